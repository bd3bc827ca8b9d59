"""Evolutionary search: schedules mutate (gain, lose, change, move perturbations) and cross; the fitter have more offspring.

It does not walk the tree: a schedule may have perturbations at any calls, in any number within the budget. Calls are taken from
executed runs, and what a run never reached is cut from its schedule before it has offspring. It proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final

from mat.core.operator import ERRORS
from mat.core.run import Run
from mat.core.site import Site
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat_search.curve import Offered, drawn_from, offered_by
from mat_search.rounds import Rank, Rounds
from mat_search.space import Edge, Grid, free
from mat_search.strategy import EdgeOutcome, SearchPlan

POPULATION: Final = 20
"""Schedules that survive a generation."""
OFFSPRING: Final = 40
"""Schedules executed in a generation."""
TOURNAMENT: Final = 3
"""How many are drawn for a tournament; the fittest of them becomes a parent."""
_CROSSOVER_PERCENT: Final = 40
"""Percent of the offspring with two parents."""
_SECOND_MUTATION_PERCENT: Final = 30
"""Percent of the offspring that mutate once more."""
_ATTEMPTS: Final = 20
"""Draws for each schedule of a generation, until enough of them are new."""


class Evolutionary(Rounds):
    """A population of constant size under tournament selection; a fitter schedule has a better rank."""

    def __init__(self, plan: SearchPlan, *, population: int = POPULATION, offspring: int = OFFSPRING) -> None:
        super().__init__(plan)
        self._size, self._offspring = population, offspring
        self._population: list[_Individual] = []
        self._children: list[_Individual] = []
        self._tried.add(NO_SCHEDULE)
        self._nominal: _Individual | None = None

    def _learn(self, rank: Rank, edge: Edge, outcome: EdgeOutcome) -> None:
        run = outcome.run
        reached = Schedule(tuple(item for item in run.spec.schedule if item not in run.unreached))
        self._tried.add(reached)  # its run is this one
        individual = _Individual(rank, reached, outcome, self._grid, self._budget)
        self._children.append(individual)
        self._nominal = self._nominal or individual

    # -- generations ------------------------------------------------------------------------------------------------

    def _draw_round(self) -> list[Edge]:
        """The next generation; schedules with the same effect count once in the population."""
        distinct = {
            item.schedule: item for item in sorted((*self._population, *self._children), key=_Individual.order, reverse=True)
        }
        self._population = sorted(distinct.values(), key=_Individual.order)[: self._size]
        self._children = []
        found: list[Edge] = []
        for _ in range(_ATTEMPTS * self._offspring):
            schedule = self._child() if self._population else NO_SCHEDULE
            if schedule not in self._tried:
                self._tried.add(schedule)
                found.append(free(schedule))
            if len(found) == self._offspring:
                break
        return found

    def _child(self) -> Schedule:
        stream, parent = self._stream, self._select()
        items = list(parent.schedule)
        if stream.randrange(100) < _CROSSOVER_PERCENT:
            items = self._cross(items, list(self._select().schedule))
        items = self._mutate(items, parent)
        if stream.randrange(100) < _SECOND_MUTATION_PERCENT:
            items = self._mutate(items, parent)
        return self._cut_to_budget(items)

    def _select(self) -> _Individual:
        """The fittest of a few; sometimes the nominal run, from which everything can be reached."""
        drawn = [self._stream.randrange(len(self._population) + 1) for _ in range(TOURNAMENT)]
        fittest = min(drawn)  # the population is in order of fitness
        if fittest == len(self._population):
            assert self._nominal is not None
            return self._nominal
        return self._population[fittest]

    # -- variation --------------------------------------------------------------------------------------------------

    def _cross(self, one: list[Perturbation], other: list[Perturbation]) -> list[Perturbation]:
        """A random half of the perturbations of both parents."""
        return _without_overlaps(item for item in (*one, *other) if self._stream.randrange(2))

    def _mutate(self, items: list[Perturbation], parent: _Individual) -> list[Perturbation]:
        stream = self._stream
        ways = (self._add, self._add, self._remove, self._change, self._move) if items else (self._add,)
        return ways[stream.randrange(len(ways))](items, parent)

    def _add(self, items: list[Perturbation], parent: _Individual) -> list[Perturbation]:
        """Add a perturbation that the run of the parent offers, or the nominal run, which also offers earlier calls."""
        assert self._nominal is not None
        offers = (parent if self._stream.randrange(2) else self._nominal).offers
        if not offers:
            return items
        return _without_overlaps([drawn_from(offers, self._stream), *items])

    def _remove(self, items: list[Perturbation], parent: _Individual) -> list[Perturbation]:
        gone = self._stream.randrange(len(items))
        return [item for index, item in enumerate(items) if index != gone]

    def _change(self, items: list[Perturbation], parent: _Individual) -> list[Perturbation]:
        """Change one perturbation to another grid point of its operator, with the same span."""
        index = self._stream.randrange(len(items))
        item = items[index]
        span = item.site.last - item.site.nth + 1
        client = str(item.parameters.get(ERRORS, ""))
        points = [
            named
            for option in self._grid.options
            if option.operator.id == item.operator
            and option.choice.span == span
            and (named := self._grid.naming(option, client)).parameters != item.parameters
        ]
        if not points:
            return self._move(items, parent)
        point = points[self._stream.randrange(len(points))]
        return [*items[:index], replace(item, parameters=point.parameters, cost=point.choice.cost), *items[index + 1 :]]

    def _move(self, items: list[Perturbation], parent: _Individual) -> list[Perturbation]:
        """Move one perturbation to a nearby call, or to any call of its port."""
        index = self._stream.randrange(len(items))
        item = items[index]
        span, asks = item.site.last - item.site.nth + 1, parent.asks(item.site)
        if asks < 1:
            return items
        steps = (-2, -1, 1, 2, self._stream.randrange(asks) + 1 - item.site.nth)
        nth = min(max(1, item.site.nth + steps[self._stream.randrange(len(steps))]), asks)
        moved = replace(item, site=replace(item.site, nth=nth, last=nth + span - 1))
        return _without_overlaps([moved, *items[:index], *items[index + 1 :]])

    def _cut_to_budget(self, items: list[Perturbation]) -> Schedule:
        """Remove perturbations at random until the rest fits the budget."""
        while sum(item.cost for item in items) > self._budget:
            items.pop(self._stream.randrange(len(items)))
        return Schedule(tuple(items))


class _Individual:
    """The part of a schedule that its run reached, and what that run offers."""

    def __init__(self, rank: Rank, schedule: Schedule, outcome: EdgeOutcome, grid: Grid, budget: int) -> None:
        self.rank, self.schedule = rank, schedule
        self._outcome, self._grid, self._budget = outcome, grid, budget

    def order(self) -> tuple[Rank, tuple[tuple[str, str, str], ...]]:
        return self.rank, tuple(item.key for item in self.schedule)

    @property
    def run(self) -> Run:
        return self._outcome.run

    @cached_property
    def offers(self) -> Offered:
        """What could be added at any call of its run; computed when the schedule first becomes a parent."""
        return offered_by(self.run, self.schedule, self._grid, self._budget)

    def asks(self, site: Site) -> int:
        """How often its run called the port of a site."""
        return self._asks.get(site.port, 0)

    @cached_property
    def _asks(self) -> dict[tuple[str, str, str], int]:
        found: dict[tuple[str, str, str], int] = {}
        for (added, *_), *_ in self.offers:  # the first grid point of any operator names the port of a call
            found[added.site.port] = max(found.get(added.site.port, 0), added.site.nth)
        for item in self.schedule:
            found[item.site.port] = max(found.get(item.site.port, 0), item.site.nth)
        return found


def _without_overlaps(items: Iterable[Perturbation]) -> list[Perturbation]:
    """The perturbations without those that overlap an earlier one: a call carries one effect."""
    found: list[Perturbation] = []
    for item in items:
        if not any(item.site.overlaps(other.site) for other in found):
            found.append(item)
    return found
