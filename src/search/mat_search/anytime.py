"""Anytime search: greedy up to a first counterexample, then by cost until nothing cheaper can exist.

The greedy phase grows the tree of mat_search.space best first. It alternates between three choices of a run: the nearest to
breaking a contract (Run.margins), the one with the most new coverage (mat_search.coverage), the cheapest. No single order is
reliable: a margin may lead away from the fault, and its turn is skipped if no margin shrinks. A run counts for less each time
it is grown without new coverage. Within the run the phase alternates between pairs of an interface and an operator, so an
operator with many grid points does not starve the others; pairs that keep bringing new coverage are picked more often. Within a
pair the extreme grid points come first. A run that came nearer than its parent also offers edges before its last injection.

The phase ends with a counterexample, when half of its executions brought nothing new, or after a fifth of all executions.
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
from mat_search.campaign import Layer
from mat_search.coverage import Coverage, Nearness, met_error
from mat_search.exhaust import Exhaustive, SeenEdges
from mat_search.space import ROOT, Edge, Grid, GridKey, edges
from mat_search.strategy import EdgeOutcome, SearchPlan

PlaceOperator: TypeAlias = tuple[str, str, str]
"""(port, outcome of the agent's previous crossing, operator): an injection's place and kind."""

_SHARE: Final = 5
"""The greedy phase takes at most one in this many of the executions."""
_PATIENCE: Final = 50
"""The greedy phase ends after no fewer executions than this without anything new."""
_CHARGES: Final = {"behavior": 1, "states": 2, "": 4}
"""What a pair is charged for a run, by its new coverage: a pair that brings none is picked a quarter as often."""


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

    def lose(self, edge: Edge) -> None:
        """Go on without an edge that cannot be executed; the second phase asks for it again, because that proves."""
        if self._greedy is None:
            self._exact.lose(edge)

    def upcoming(self, count: int) -> Sequence[Edge]:
        return (self._greedy or self._exact).upcoming(count)

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def seen(self) -> Set[GridKey]:
        return (self._greedy or self._exact).seen

    @property
    def bound(self) -> int:
        """The bound of the second phase; -1 before it began."""
        return self._exact.bound

    @property
    def layer(self) -> Layer | None:
        return self._exact.layer


class Greedy:
    """The first phase. It proves nothing."""

    def __init__(self, plan: SearchPlan) -> None:
        self._grid, self._budget, self._prune = plan.grid, plan.budget, plan.prune
        self._most_runs = plan.max_runs // _SHARE
        self._runs: list[_Candidate] = []
        self._pairs = _Pairs()
        self._coverage = Coverage()
        self._nearness: Nearness | None = None
        self._least_margin, self._any_nearer = 0, False
        self._tried: set[Schedule] = set()
        self._seen = SeenEdges()
        self._cheapest: dict[GridKey, Edge] = {}
        self._origin: tuple[_Candidate, PlaceOperator] | None = None
        self._asked, self._last_fruitful, self._hit = 0, 0, False

    def ask(self, most: int | None = None) -> Edge | None:
        """The most promising edge within the budget; None once the phase is over."""
        if self._is_over:
            return None
        self._asked += 1
        if self._asked == 1:
            return ROOT
        while self._runs:
            run = self._next_run(self._asked)
            by_pair = run.edges_by_pair(self._grid, self._budget, self._is_new)
            for pair in sorted(by_pair, key=self._pairs.rank):
                edge = self._take_worthwhile(by_pair[pair])
                if edge is not None:
                    self._origin = run, pair
                    self._tried.add(edge.schedule)
                    return edge
            self._runs.remove(run)
        return None

    def _take_worthwhile(self, items: deque[Edge]) -> Edge | None:
        """Take the first edge that is worth executing, and drop those before it."""
        while items:
            edge = items.popleft()
            if self._is_worthwhile(edge):
                return edge
        return None

    def _is_worthwhile(self, edge: Edge) -> bool:
        """Whether to execute an edge: it is not skipped, no cheaper edge offers the same, and its schedule was not executed."""
        if self._prune and (self._cheapest[_alias(edge)] is not edge or self._seen.why(edge) is not None):
            return False
        return edge.schedule not in self._tried

    @property
    def _is_over(self) -> bool:
        """Whether the phase found a counterexample, has spent its share, or half of its executions brought nothing new."""
        barren = self._asked - self._last_fruitful
        return self._hit or self._asked >= max(1, self._most_runs) or barren > max(_PATIENCE, self._last_fruitful)

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        run = outcome.run
        if self._nearness is None:
            self._nearness = Nearness(run)
            self._least_margin = self._nearness.least(run)
        self._hit = self._hit or outcome.hit
        self._seen.add(edge, run, self._grid)
        margin, news = self._nearness.least(run), self._coverage.add(run)
        parent_margin = margin if self._origin is None else self._origin[0].margin
        if self._origin is not None:
            parent, pair = self._origin
            shown = "behavior" if news.behavior or margin < self._least_margin else "states" if news.states else ""
            parent.barren += not shown
            self._pairs.charge(pair, _CHARGES[shown])
            if shown:
                self._last_fruitful = self._asked
        self._least_margin = min(self._least_margin, margin)
        if edge.cost + self._grid.least <= self._budget:
            nearer = margin < parent_margin
            step = -1 if nearer else edge.step
            self._runs.append(_Candidate(run, edge.cost, step, outcome.states, margin=margin, news=news.worth, nearer=nearer))
            self._any_nearer = self._any_nearer or nearer

    def upcoming(self, count: int) -> Sequence[Edge]:
        """The edges of the next turns if these show nothing new; runs whose edges are not computed yet are left out."""
        if self._is_over or not self._runs:
            return ()
        found: list[Edge] = []
        for turn in range(self._asked + 1, self._asked + count + 1):
            by_pair = self._next_run(turn).computed
            items = (edge for pair in sorted(by_pair, key=self._pairs.rank) for edge in by_pair[pair])
            found.extend(islice((edge for edge in items if edge not in found and self._is_worthwhile(edge)), 1))
        return found

    def _next_run(self, turn: int) -> _Candidate:
        """The run to be grown next."""
        orders = (_by_margin, _by_news, _by_cost) if self._any_nearer else (_by_news, _by_cost)
        return min(self._runs, key=orders[turn % len(orders)])

    def _is_new(self, edge: Edge) -> bool:
        """Whether no other run offers this edge as cheaply; if runs reach one state, the cheapest owns what follows."""
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
    """The identity of an edge in this phase, not for proofs: `loose` assumes that the injection depends on the call alone."""
    alias = edge.loose or edge.key
    assert alias is not None
    return alias


class _Candidate:
    """An executed run with its edges by pair, computed when it is first picked."""

    __slots__ = ("_edges", "_run", "_states", "_step", "barren", "cost", "margin", "nearer", "news")

    def __init__(self, run: Run, cost: int, step: int, states: Sequence[str], *, margin: int, news: int, nearer: bool) -> None:
        self._run, self._step, self._states = run, step, states
        self._edges: dict[PlaceOperator, deque[Edge]] | None = None
        self.cost, self.margin, self.news, self.nearer = cost, margin, news, nearer
        self.barren = 0

    @property
    def computed(self) -> dict[PlaceOperator, deque[Edge]]:
        """The edges by pair if they are computed already, else none."""
        return self._edges or {}

    def edges_by_pair(self, grid: Grid, budget: int, new: Callable[[Edge], bool]) -> dict[PlaceOperator, deque[Edge]]:
        if self._edges is None:
            found: dict[PlaceOperator, list[Edge]] = {}
            before = _previous_outcomes(self._run)
            for edge in edges(self._run, self._run.spec.schedule, self._step, grid, self._states, budget=budget):
                assert edge.option is not None
                if not new(edge):
                    continue
                pair = (edge.site.rpartition("#")[0], before[edge.step], edge.option.operator.id)
                found.setdefault(pair, []).append(edge)
            self._edges = {pair: deque(_extremes_first(items)) for pair, items in found.items()}
        return self._edges


def _by_margin(run: _Candidate) -> tuple[int, ...]:
    return (not run.nearer, run.margin * (2 + run.barren), run.cost)


def _by_news(run: _Candidate) -> tuple[int, ...]:
    return (-1000 * run.news // (1 + run.barren + run.cost), run.margin, run.cost)


def _by_cost(run: _Candidate) -> tuple[int, ...]:
    return (run.cost, run.barren, run.margin)


class _Pairs:
    """What each pair of place and operator was charged; the pair with the least comes next."""

    def __init__(self) -> None:
        self._spent: dict[PlaceOperator, int] = {}

    def rank(self, pair: PlaceOperator) -> tuple[int, PlaceOperator]:
        """A pair that was never tried comes first."""
        return (self._spent.get(pair, -1), pair)

    def charge(self, pair: PlaceOperator, cost: int) -> None:
        """A new pair starts level with the least tried, else it would be picked until it had caught up with all."""
        self._spent[pair] = self._spent.get(pair, min(self._spent.values(), default=0)) + cost


def _previous_outcomes(run: Run) -> list[str]:
    """For each step, the error that the same agent met at its previous crossing, "" without one."""
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
