"""Anytime search: greedily to a first counterexample, then by cost until nothing cheaper can be left.

The greedy phase grows the tree of mat_search.space best first. It picks a run by turns: the one nearest to breaking a contract
(Run.margins), the one that showed most that was new (mat_search.coverage), the cheapest. No single order is trusted: a
margin may lead away from the fault, and where none shrinks its turn is left out. A run that is grown without showing anything
new counts for less each time. Within the run it picks among the pairs of an interface and an operator: each in turn, so that
an operator with many grid points does not starve the others, and those that keep on showing something new more often. Within
the pair the extreme grid points come first. A run that came nearer than its parent is grown before its last injection, too.

The phase ends with a counterexample, when half of it brought nothing new, and at the latest with a fifth of the executions.
Then follows mat_search.exhaust from the start. Both phases skip edges by the same keys, but the greedy one executes edges in
no order of cost: an edge that it skipped may be cheaper than the one it was equal to, with more of the budget left below it. So
nothing that it skipped or marked as seen is handed on. What it executed is known to the campaign and costs nothing again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import Final, TypeAlias

from mat.core.adversary import Choose
from mat.core.run import Run
from mat.core.spec import Schedule
from mat_search.coverage import Coverage, Nearness, met_error
from mat_search.exhaust import Exhaustive, SeenEdges
from mat_search.space import ROOT, Edge, Grid, GridKey, edges
from mat_search.strategy import EdgeOutcome, SearchPlan

PlaceOperator: TypeAlias = tuple[str, str, str]
"""(port, how the agent's crossing before ended, operator): where what kind of injection is made."""

_SHARE: Final = 5
"""The greedy phase may take this part of the executions."""
_PATIENCE: Final = 50
"""It goes on for this many executions without anything new, however short it was."""
_SPENT: Final = {"behaviour": 1, "states": 2, "": 4}
"""What a pair is charged by what its run showed that was new: a barren one is picked four times less often."""


class Anytime:
    """Greedy search to a first counterexample, then branch and bound below the cost of the cheapest one known."""

    proves = True

    def __init__(self, plan: SearchPlan) -> None:
        self._greedy: Greedy | None = Greedy(plan)
        self._exact = Exhaustive(plan)
        self.skipped = self._exact.skipped

    def ask(self, most: int | None = None) -> Edge | None:
        """Greedily the most promising edge; once that is over the cheapest, of those that cost at most `most`."""
        if self._greedy is not None:
            edge = self._greedy.ask()
            if edge is not None:
                return edge
            self._greedy = None
        return self._exact.ask(most)

    def tell(self, edge: Edge, told: EdgeOutcome) -> None:
        (self._greedy or self._exact).tell(edge, told)

    def ahead(self, count: int) -> Sequence[Edge]:
        return (self._greedy or self._exact).ahead(count)

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def seen(self) -> Set[GridKey]:
        return (self._greedy or self._exact).seen

    @property
    def bound(self) -> int:
        """That of the second phase; -1 until it began."""
        return self._exact.bound


class Greedy:
    """The first phase. It proves nothing."""

    def __init__(self, plan: SearchPlan) -> None:
        self._grid, self._budget, self._prune = Grid(plan.operators), plan.budget, plan.prune
        self._most_runs = plan.max_runs // _SHARE
        self._runs: list[_Grown] = []
        self._pairs = _Pairs()
        self._coverage = Coverage()
        self._nearness: Nearness | None = None
        self._least, self._nearer = 0, False
        self._tried: set[Schedule] = set()
        self._seen = SeenEdges()
        self._cheapest: dict[GridKey, Edge] = {}
        self._from: tuple[_Grown, PlaceOperator] | None = None
        self._asked, self._fruitful, self._hit = 0, 0, False

    def ask(self, most: int | None = None) -> Edge | None:
        """The most promising edge, whatever it costs within the budget; None once the phase is over."""
        if self._over:
            return None
        self._asked += 1
        if self._asked == 1:
            return ROOT
        while self._runs:
            run = self._next(self._asked)
            made = run.made(self._grid, self._budget, self._new)
            for pair in sorted(made, key=self._pairs.rank):
                edge = self._first(made[pair])
                if edge is not None:
                    self._from = run, pair
                    self._tried.add(edge.schedule)
                    return edge
            self._runs.remove(run)
        return None

    def _first(self, items: deque[Edge]) -> Edge | None:
        """Take the first that is worth it; what is not will never be again."""
        while items:
            edge = items.popleft()
            if self._worth(edge):
                return edge
        return None

    def _worth(self, edge: Edge) -> bool:
        """Not skipped, not offered more cheaply since, and no schedule that was executed."""
        if self._prune and (self._cheapest[_alias(edge)] is not edge or self._seen.why(edge) is not None):
            return False
        return edge.schedule not in self._tried

    @property
    def _over(self) -> bool:
        """It found something, may spend no more, or as many executions brought nothing new as did before."""
        barren = self._asked - self._fruitful
        return self._hit or self._asked >= max(1, self._most_runs) or barren > max(_PATIENCE, self._fruitful)

    def tell(self, edge: Edge, told: EdgeOutcome) -> None:
        run = told.run
        if self._nearness is None:
            self._nearness = Nearness(run)
            self._least = self._nearness.least(run)
        self._hit = self._hit or told.hit
        self._seen.add(edge, run, self._grid)
        margin, news = self._nearness.least(run), self._coverage.add(run)
        parent_margin = margin if self._from is None else self._from[0].margin
        if self._from is not None:
            parent, pair = self._from
            shown = "behaviour" if news.behaviour or margin < self._least else "states" if news.states else ""
            parent.barren += not shown
            self._pairs.charge(pair, _SPENT[shown])
            if shown:
                self._fruitful = self._asked
        self._least = min(self._least, margin)
        if edge.cost + self._grid.least <= self._budget:
            nearer = margin < parent_margin
            step = -1 if nearer else edge.step
            self._runs.append(_Grown(run, edge.cost, step, told.states, margin=margin, news=news.worth, nearer=nearer))
            self._nearer = self._nearer or nearer

    def ahead(self, count: int) -> Sequence[Edge]:
        """What it would pick at its next turns if they told nothing; runs whose edges were not worked out are left out."""
        if self._over or not self._runs:
            return ()
        found: list[Edge] = []
        for turn in range(self._asked + 1, self._asked + count + 1):
            made = self._next(turn).known
            items = (edge for pair in sorted(made, key=self._pairs.rank) for edge in made[pair])
            found.extend(islice((edge for edge in items if edge not in found and self._worth(edge)), 1))
        return found

    def _next(self, turn: int) -> _Grown:
        """The run to be grown next."""
        orders = (_by_margin, _by_news, _by_cost) if self._nearer else (_by_news, _by_cost)
        return min(self._runs, key=orders[turn % len(orders)])

    def _new(self, edge: Edge) -> bool:
        """Whether no run offers the same more cheaply; where runs meet again, what follows belongs to the cheapest."""
        alias = _alias(edge)
        known = self._cheapest.get(alias)
        if known is not None and known.cost <= edge.cost:
            return not self._prune
        self._cheapest[alias] = edge
        return True

    @property
    def seen(self) -> Set[GridKey]:
        return self._seen.keys


def _alias(edge: Edge) -> GridKey:
    """What tells edges apart here. `loose` holds only for injections that decide by the call alone; it orders, not proves."""
    alias = edge.loose or edge.key
    assert alias is not None
    return alias


class _Grown:
    """A run that was told, and the edges into it by pair, worked out when it is first picked."""

    __slots__ = ("_made", "_run", "_states", "_step", "barren", "cost", "margin", "nearer", "news")

    def __init__(self, run: Run, cost: int, step: int, states: Sequence[str], *, margin: int, news: int, nearer: bool) -> None:
        self._run, self._step, self._states = run, step, states
        self._made: dict[PlaceOperator, deque[Edge]] | None = None
        self.cost, self.margin, self.news, self.nearer = cost, margin, news, nearer
        self.barren = 0

    @property
    def known(self) -> dict[PlaceOperator, deque[Edge]]:
        """The edges, as far as they were worked out."""
        return self._made or {}

    def made(self, grid: Grid, budget: int, new: Callable[[Edge], bool]) -> dict[PlaceOperator, deque[Edge]]:
        if self._made is None:
            found: dict[PlaceOperator, list[Edge]] = {}
            before = _before(self._run)
            for edge in edges(self._run, self._run.spec.schedule, self._step, grid, self._states, budget=budget):
                assert edge.option is not None
                if not new(edge):
                    continue
                pair = (edge.site.rpartition("#")[0], before[edge.step], edge.option.operator.id)
                found.setdefault(pair, []).append(edge)
            self._made = {pair: deque(_extremes_first(items)) for pair, items in found.items()}
        return self._made


def _by_margin(run: _Grown) -> tuple[int, ...]:
    return (not run.nearer, run.margin * (2 + run.barren), run.cost)


def _by_news(run: _Grown) -> tuple[int, ...]:
    return (-1000 * run.news // (1 + run.barren + run.cost), run.margin, run.cost)


def _by_cost(run: _Grown) -> tuple[int, ...]:
    return (run.cost, run.barren, run.margin)


class _Pairs:
    """How much was spent on each pair of place and operator; the one on which least was spent is next."""

    def __init__(self) -> None:
        self._spent: dict[PlaceOperator, int] = {}

    def rank(self, pair: PlaceOperator) -> tuple[int, PlaceOperator]:
        """A pair that was never tried comes first."""
        return (self._spent.get(pair, -1), pair)

    def charge(self, pair: PlaceOperator, cost: int) -> None:
        """A new pair begins level with the least tried, or it would be picked until it had caught up with all."""
        self._spent[pair] = self._spent.get(pair, min(self._spent.values(), default=0)) + cost


def _before(run: Run) -> list[str]:
    """For each step how the crossing before it, of the same agent, ended."""
    last: dict[str, str] = {}
    found = []
    for record in run.records:
        found.append(last.get(record.agent, ""))
        last[record.agent] = met_error(record)
    return found


def _extremes_first(items: Sequence[Edge]) -> list[Edge]:
    """By grid point from the last of the operator's order to the first; among the asks of one point in ask order."""
    order: dict[str, int] = {}
    for edge in items:
        assert edge.option is not None
        choices = edge.option.operator.choices
        order.setdefault(edge.option.text, choices.index(edge.option.choice))
    return sorted(items, key=lambda edge: -order[edge.option.text] if edge.option else 0)
