"""Anytime search: greedy up to a first counterexample, then by cost until nothing cheaper can exist.

The greedy phase grows the tree of mat_search.space best first. It alternates between three choices of a run: the nearest to
breaking a contract (Run.margins), the one with the most new coverage (mat_search.coverage), the cheapest. No single order is
reliable: a margin may lead away from the fault, and its turn is skipped if no margin shrinks. A run counts for less each time
it is grown without new coverage. Within the run the phase alternates between pairs of an interface and an operator, so an
operator with many grid points does not starve the others; pairs that keep giving new coverage come more often. Within the pair
the extreme grid points come first. A run that came nearer than its parent is also grown before its last injection.

The phase ends with a counterexample, when half of it brought nothing new, and at the latest after a fifth of the executions.
Then mat_search.exhaust starts from the beginning. Both phases skip edges by the same keys, but the greedy one does not execute
edges in order of cost: an edge that it skipped may be cheaper than the one it was equal to, with more of the budget left below
it. So the second phase takes over no skipped or seen edges. The campaign reuses executed runs at no cost.
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
"""(port, how the agent's previous crossing ended, operator): the kind of an injection and its place."""

_SHARE: Final = 5
"""The greedy phase takes at most this part of the executions."""
_PATIENCE: Final = 50
"""The least number of executions without anything new before it ends."""
_SPENT: Final = {"behaviour": 1, "states": 2, "": 4}
"""The charge of a pair by the new coverage of its run: a pair without any is picked four times less often."""


class Anytime:
    """Greedy search to a first counterexample, then branch and bound below the cost of the cheapest one known."""

    proves = True

    def __init__(self, plan: SearchPlan) -> None:
        self._greedy: Greedy | None = Greedy(plan)
        self._exact = Exhaustive(plan)
        self.skipped = self._exact.skipped

    def ask(self, most: int | None = None) -> Edge | None:
        """In the greedy phase the most promising edge, afterwards the cheapest of those that cost at most `most`."""
        if self._greedy is not None:
            edge = self._greedy.ask()
            if edge is not None:
                return edge
            self._greedy = None
        return self._exact.ask(most)

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        (self._greedy or self._exact).tell(edge, outcome)

    def ahead(self, count: int) -> Sequence[Edge]:
        return (self._greedy or self._exact).ahead(count)

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def seen(self) -> Set[GridKey]:
        return (self._greedy or self._exact).seen

    @property
    def bound(self) -> int:
        """The bound of the second phase; -1 before it began."""
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
        """The most promising edge within the budget; None once the phase is over."""
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
        """Take the first edge that is worth executing; the others before it never will be."""
        while items:
            edge = items.popleft()
            if self._worth(edge):
                return edge
        return None

    def _worth(self, edge: Edge) -> bool:
        """Whether an edge is not skipped, was not offered more cheaply since, and is not an executed schedule."""
        if self._prune and (self._cheapest[_alias(edge)] is not edge or self._seen.why(edge) is not None):
            return False
        return edge.schedule not in self._tried

    @property
    def _over(self) -> bool:
        """Whether it found something, has spent its share, or half of its executions brought nothing new."""
        barren = self._asked - self._fruitful
        return self._hit or self._asked >= max(1, self._most_runs) or barren > max(_PATIENCE, self._fruitful)

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        run = outcome.run
        if self._nearness is None:
            self._nearness = Nearness(run)
            self._least = self._nearness.least(run)
        self._hit = self._hit or outcome.hit
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
            self._runs.append(_Grown(run, edge.cost, step, outcome.states, margin=margin, news=news.worth, nearer=nearer))
            self._nearer = self._nearer or nearer

    def ahead(self, count: int) -> Sequence[Edge]:
        """The picks of its next turns if these show nothing new; runs whose edges are not computed yet are left out."""
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
        """Whether no run offers the same more cheaply; if runs reach the same state, the cheapest owns what follows."""
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
    """The identity of an edge in this phase. `loose` holds only for injections that depend on the call alone: no proofs."""
    alias = edge.loose or edge.key
    assert alias is not None
    return alias


class _Grown:
    """An executed run with its edges by pair, computed when it is first picked."""

    __slots__ = ("_made", "_run", "_states", "_step", "barren", "cost", "margin", "nearer", "news")

    def __init__(self, run: Run, cost: int, step: int, states: Sequence[str], *, margin: int, news: int, nearer: bool) -> None:
        self._run, self._step, self._states = run, step, states
        self._made: dict[PlaceOperator, deque[Edge]] | None = None
        self.cost, self.margin, self.news, self.nearer = cost, margin, news, nearer
        self.barren = 0

    @property
    def known(self) -> dict[PlaceOperator, deque[Edge]]:
        """The edges, if they are computed."""
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
    """The spending on each pair of place and operator; the pair with the least is next."""

    def __init__(self) -> None:
        self._spent: dict[PlaceOperator, int] = {}

    def rank(self, pair: PlaceOperator) -> tuple[int, PlaceOperator]:
        """A pair that was never tried comes first."""
        return (self._spent.get(pair, -1), pair)

    def charge(self, pair: PlaceOperator, cost: int) -> None:
        """A new pair starts level with the least tried, else it would be picked until it had caught up with all."""
        self._spent[pair] = self._spent.get(pair, min(self._spent.values(), default=0)) + cost


def _before(run: Run) -> list[str]:
    """For each step, how the previous crossing of the same agent ended."""
    last: dict[str, str] = {}
    found = []
    for record in run.records:
        found.append(last.get(record.agent, ""))
        last[record.agent] = met_error(record)
    return found


def _extremes_first(items: Sequence[Edge]) -> list[Edge]:
    """By grid point, from the last to the first in the operator's order; edges of one point in the order of their calls."""
    order: dict[str, int] = {}
    for edge in items:
        assert edge.option is not None
        choices = edge.option.operator.choices
        order.setdefault(edge.option.text, choices.index(edge.option.choice))
    return sorted(items, key=lambda edge: -order[edge.option.text] if edge.option else 0)
