"""Cost-ordered exhaustive search over the dynamic tree, skipping edges whose key was seen.

Exactness on the grid: the queue is ordered by cost and a child costs more than its parent, so when an edge is executed
every cheaper schedule was executed or skipped, and the first run that breaks a contract is a cheapest one. `bound` is one
less than the cheapest edge that is queued or open, so it holds whenever and for whatever reason the search stops.

Skipping an equal state is sound: an edge is skipped only if an edge with the same key was executed before, at no greater
cost. The key holds D (the digest of the history of agents, ports and monitors), the call, the pending effects of earlier
perturbations, and the injection itself. In a deterministic system both edges have the same future: the same records, monitor
states and offers. The first edge offered every further injection, with at least as much of the budget left and with the same
ranges excluded. Everything before the site was judged in the parents' own runs. By induction
over the cost left, every contract that some schedule breaks is broken by an executed one that costs no more.

If the user declares a state digest complete, that state replaces D: the key then ignores how the state was reached, and
therefore holds only for injections that were seen to decide by the call alone (`EquivalenceClass.local`); the others keep D.

Later operators must not distinguish the two edges either: an operator that reads earlier replies, the time, the occurrence
number or its random stream may decide differently after each. So nothing is skipped by the state alone while such an operator
can still act. Which operators these are shows only when they are called; edges that were skipped before that are executed then.

Skipping an equal effect is sound: two grid points of one operator at one call in one state for which the operator decides the
same effect make the same run. They stay equal if that run made every call that the injection covers and no later injection
can come between them (or be paid for); otherwise neither replaces the other. Equal decisions: with a complete state, every
number that the agent keeps is read, and so compared, at the next call; if all decisions on the injected numbers are equal until
then, and the state at each call is equal, both points have the same future. In both cases the first one executed costs no
more, because the queue is ordered.

The assumptions, determinism and the completeness of D, are checked: the campaign compares prefixes at every execution, repeats
a sample of the executed edges and executes a sample of the skipped ones.

Memory stays flat. The children of a run are worked out one run at a time, when its turn comes. Until then the run is kept, as
long as there is room for its records (`limits.RECORDS_KEPT`); otherwise its edge is asked for again when its turn comes.

Edges may be executed before their turn (`tell` takes an edge that `ask` did not return): an entry of `SeenEdges` holds for
edges that cost as much or more, so the order of execution decides nothing.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final, TypeAlias

from mat.core import limits
from mat.core.adversary import Choose
from mat.core.run import EquivalenceClass, Run
from mat.core.spec import Schedule
from mat_search.campaign import Layer
from mat_search.space import ROOT, Edge, Grid, GridKey, Offers, undisturbed
from mat_search.strategy import EdgeOutcome, SearchPlan, Skips, Why

_Entry: TypeAlias = tuple[Why, GridKey, int]
"""Why edges of a key are skipped, and the key and cost of the executed one; a cheaper edge is not skipped for it."""
NO_OPERATORS: Final[frozenset[str]] = frozenset()
_AHEAD: Final = 64
"""Runs whose children of one cost are kept that were worked out in advance."""


class SeenEdges:
    """The keys of executed edges, and of edges equivalent to them.

    Entries that depend on the user's state digest alone are separate: equal states may have different histories and times. An
    operator that reads these (one of `history_readers`) distinguishes them, so such entries hold only if none can act later.
    """

    def __init__(self) -> None:
        self._exact: dict[GridKey, _Entry] = {}
        self._vouched: dict[GridKey, _Entry] = {}
        self.history_readers: set[str] = set()

    def add(self, edge: Edge, run: Run, grid: Grid, *, last: bool = False) -> None:
        """Add an edge with its run. `last`: no other injection can follow it."""
        self.history_readers.update(item.operator for item in run.equivalence_classes if not item.local)
        if edge.key is None:
            return
        equivalent = _equivalence(edge, run)
        loose = edge.loose if equivalent is not None and equivalent.local and _ranges_local(run) else None
        _enter(self._exact, edge.key, "equal state", edge.key, edge.cost)
        if loose is not None:
            _enter(self._vouched, loose, "equal state", loose, edge.cost)
        if equivalent is None or not (last or _is_undisturbed(edge, run)):
            return
        exchangeable: list[tuple[Why, tuple[str, ...], bool]] = [
            ("equal effect", grid.texts(equivalent.operator, equivalent.effect), _may_take_longer(edge, run)),
            ("equal decisions", grid.texts(equivalent.operator, equivalent.decisions) if run.complete else (), False),
        ]
        for why, texts, timed in exchangeable:
            for text in texts:
                _enter(self._vouched if timed else self._exact, (edge.key[0], text), why, edge.key, edge.cost)
                if loose is not None:
                    _enter(self._vouched, (loose[0], text), why, loose, edge.cost)

    def why(self, edge: Edge, later: Set[str] = NO_OPERATORS) -> tuple[Why, GridKey] | None:
        """The reason why an edge can be skipped, and the key of the executed edge that it equals.

        `later`: the operators that can act after it.
        """
        entry, _ = self.entry(edge, later)
        return None if entry is None else entry[:2]

    def entry(self, edge: Edge, later: Set[str] = NO_OPERATORS) -> tuple[_Entry | None, bool]:
        """The entry by which an edge can be skipped, and whether it depends on the user's state digest."""
        exact = None if edge.key is None else self._exact.get(edge.key)
        if exact is not None and exact[2] <= edge.cost:
            return exact, False
        for key in (edge.key, edge.loose):
            found = None if key is None else self._vouched.get(key)
            if found is not None and found[2] <= edge.cost and self.history_readers.isdisjoint(later):
                return found, True
        return None, False

    @property
    def keys(self) -> Set[GridKey]:
        return self._exact.keys() | self._vouched.keys()


def _enter(entries: dict[GridKey, _Entry], key: GridKey, why: Why, of: GridKey, cost: int) -> None:
    known = entries.get(key)
    if known is None or cost < known[2]:
        entries[key] = (why, of, cost)


def _may_take_longer(edge: Edge, run: Run) -> bool:
    """Whether equal effects may come at different times, because the user declared that time decides nothing."""
    if run.clocked or not run.complete or edge.option is None:
        return False
    operator = edge.option.operator.id
    notes = (note for record in run.records for note in record.faults)
    return any(note.operator == operator and note.effect in ("Delay", "Raise") for note in notes)


def _is_undisturbed(edge: Edge, run: Run) -> bool:
    """Whether every call that the edge's injection covers was made, and no later injection can come between them."""
    if edge.option is None:
        return True
    span = edge.option.choice.span
    port = run.records[edge.step].site.rpartition("#")[0]
    asks = [record for record in run.records[edge.step :] if record.site.rpartition("#")[0] == port][:span]
    return len(asks) == span and undisturbed(run, asks)


def _ranges_local(run: Run) -> bool:
    """Whether no operator of a range read more than its calls: no state digest covers what an active range has read."""
    ranges = {(item.operator, str(item.site)) for item in run.spec.schedule if item.site.last > item.site.nth}
    return all(item.local for item in run.equivalence_classes if (item.operator, item.site) in ranges)


def _equivalence(edge: Edge, run: Run) -> EquivalenceClass | None:
    added = edge.added
    if added is None:
        return None
    place = str(added.site)
    found = (
        item for item in run.equivalence_classes if item.operator == added.operator and item.parameters == added.parameters
    )
    return next((item for item in found if item.site in (place, edge.site)), None)


class Exhaustive:
    """Uniform-cost search. `plan.prune=False` executes every edge, for comparison."""

    proves = True

    def __init__(self, plan: SearchPlan) -> None:
        self._grid, self._budget, self._prune = plan.grid, plan.budget, plan.prune
        self._plan = plan
        self._ahead: OrderedDict[tuple[int, int], list[Edge]] = OrderedDict()
        self._queue: list[_Queued] = [(0, 0, 0, 0, ROOT)]
        self._sequence = 0
        self._records = 0
        self._open: Edge | None = None
        self._again: _Again | None = None
        self._early: set[Schedule] = set()
        self._lost: int | None = None
        self._done: Counter[int] = Counter()
        self.executed = [0] * (plan.budget + 1)
        """How many edges of each cost were executed; one that was asked for again counts once."""
        self._seen = SeenEdges()
        self.skipped = Skips()
        self._skipped_by_state: list[Edge] = []
        self._affordable_ids: dict[int, frozenset[str]] = {}

    def ask(self, most: int | None = None) -> Edge | None:
        """The cheapest edge that need not be skipped; ties by number of perturbations, then in order of discovery.

        An edge is returned again if its run was not kept and its children are needed now.
        """
        while self._queue:
            cost, size, sequence, _, found = self._queue[0]
            if most is not None and cost > most:
                return None
            heapq.heappop(self._queue)
            if isinstance(found, Offers):
                if cost - found.cost == found.costs[-1]:
                    self._records -= found.records
                self._offer(found, cost, size, sequence)
            elif isinstance(found, _Unkept):
                self._again = _Again(found, cost, size, sequence)
                return found.edge
            elif not self._is_early(found) and not self._skip(found):
                self._open = found
                return found
        return None

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        """Take an outcome. An edge that `ask` did not return counts too; it must be one of this tree."""
        if self._again is not None and edge is self._again.unkept.edge:
            self._tell_again(self._again, outcome)
            return
        if edge is not self._open:
            self._early.add(edge.schedule)
        else:
            self._open = None
        self._done[edge.cost] += 1
        self.executed[edge.cost] += 1
        run = outcome.run
        last, before = edge.cost + self._grid.least > self._budget, len(self._seen.history_readers)
        self._seen.add(edge, run, self._grid, last=last)
        self._reconsider(before)
        if last:
            return
        offers = self._offers(edge, outcome)
        if self._records + offers.records > limits.RECORDS_KEPT:
            self._push_unkept(_Unkept(edge, offers.costs))
            return
        self._records += offers.records if offers.costs else 0
        for cost in offers.costs:
            self._push(offers.cost + cost, edge.size + 1, offers)

    def _offers(self, edge: Edge, outcome: EdgeOutcome) -> Offers:
        run = outcome.run
        return Offers(run, run.spec.schedule, edge.step, self._grid, outcome.states, budget=self._budget)

    def _tell_again(self, again: _Again, outcome: EdgeOutcome) -> None:
        """The children of one cost, of a run that was not kept; it is not kept now either."""
        unkept, self._again = again.unkept, None
        self._offer(self._offers(unkept.edge, outcome), again.cost, again.size, again.sequence)
        self._push_unkept(replace(unkept, costs=unkept.costs[1:]))

    def _push_unkept(self, unkept: _Unkept) -> None:
        if unkept.costs:
            self._push(unkept.edge.cost + unkept.costs[0], unkept.edge.size + 1, unkept)

    def _is_early(self, edge: Edge) -> bool:
        return bool(self._early) and edge.schedule in self._early

    def is_needed(self, edge: Edge) -> bool:
        """Whether an edge of this tree was neither executed nor can be skipped, by current knowledge."""
        why = self._seen.why(edge, self._operators_after(edge)) if self._prune else None
        return why is None and edge.schedule not in self._early

    def lose(self, edge: Edge) -> None:
        """Go on without an edge that `ask` returned and that cannot be executed: nothing is proven from its cost on."""
        cost = edge.cost
        if self._again is not None and edge is self._again.unkept.edge:
            cost, self._again = self._again.cost, None
        self._open = None
        self._lost = cost if self._lost is None else min(self._lost, cost)

    def _offer(self, offers: Offers, cost: int, size: int, sequence: int) -> None:
        """Queue the children of one cost, in the place of the offers."""
        for index, child in enumerate(offers.at(cost - offers.cost)):
            if not self._is_early(child) and not self._skip(child):
                heapq.heappush(self._queue, (cost, size, sequence, index, child))
        self._add_history_readers(offers.history_readers)

    def _skip(self, edge: Edge) -> bool:
        """Whether an edge need not be executed."""
        if not self._prune:
            return False
        entry, vouched = self._seen.entry(edge, self._operators_after(edge) if self._seen.history_readers else NO_OPERATORS)
        if entry is None:
            return False
        self.skipped.add(edge, *entry[:2])
        self._done[edge.cost] += 1
        if vouched and edge.cost + self._grid.least <= self._budget:
            self._skipped_by_state.append(edge)
        return True

    def _operators_after(self, edge: Edge) -> Set[str]:
        """The operators that can act after an edge's injection: the affordable ones, and active ranges."""
        if edge.option is None or edge.cost + self._grid.least > self._budget:
            return NO_OPERATORS
        rest = self._budget - edge.cost
        if rest not in self._affordable_ids:
            found = {option.operator.id for options in self._grid.affordable(rest).values() for option in options}
            self._affordable_ids[rest] = frozenset(found)
        under_way = {item.operator for item in edge.parent if item.site.last > item.site.nth}
        return self._affordable_ids[rest] | under_way | {edge.option.operator.id}

    def _add_history_readers(self, history_readers: Set[str]) -> None:
        before = len(self._seen.history_readers)
        self._seen.history_readers.update(history_readers)
        self._reconsider(before)

    def _reconsider(self, before: int) -> None:
        """Queue again the edges that were skipped by the state alone, if a new history reader can act after them."""
        if len(self._seen.history_readers) == before:
            return
        again = [
            edge for edge in self._skipped_by_state if not self._seen.history_readers.isdisjoint(self._operators_after(edge))
        ]
        numbers = {id(edge) for edge in again}
        self._skipped_by_state = [edge for edge in self._skipped_by_state if id(edge) not in numbers]
        self.skipped.edges = [item for item in self.skipped.edges if id(item[0]) not in numbers]
        for edge in again:
            self._done[edge.cost] -= 1
            self._push(edge.cost, edge.size, edge)

    def _push(self, cost: int, size: int, item: Edge | Offers | _Unkept) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (cost, size, self._sequence, 0, item))

    def upcoming(self, count: int) -> Sequence[Edge]:
        """The first edges of the queue that cannot be skipped, by current knowledge."""
        near = heapq.nsmallest(2 * count, self._queue)
        edges = (edge for item in near for edge in self._edges_of(item) if self.is_needed(edge))
        return list(islice(edges, count))

    def _edges_of(self, queued: _Queued) -> Sequence[Edge]:
        """The edges in a place of the queue. Children are worked out in advance on a grid of their own, once."""
        cost, _, sequence, _, found = queued
        if isinstance(found, Edge):
            return (found,)
        if isinstance(found, _Unkept):
            return ()
        if (sequence, cost) not in self._ahead:
            self._ahead[sequence, cost] = found.ahead(cost - found.cost, self._grid_ahead)
            if len(self._ahead) > _AHEAD:
                self._ahead.popitem(last=False)
        return self._ahead[sequence, cost]

    @cached_property
    def _grid_ahead(self) -> Grid:
        """A second grid: what the first one notes belongs to the certificate."""
        return replace(self._plan).grid

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def seen(self) -> Set[GridKey]:
        return self._seen.keys

    @property
    def bound(self) -> int:
        left = [self._queue[0][0]] if self._queue else []
        if self._lost is not None:
            left.append(self._lost)
        if self._open is not None:
            left.append(self._open.cost)
        if self._again is not None:
            left.append(self._again.cost)
        return min(left) - 1 if left else self._budget

    @property
    def layer(self) -> Layer | None:
        cost = self.bound + 1
        if cost > self._budget or not (self._queue or self._open or self._again):
            return None
        waiting = [item for priority, *_, item in self._queue if priority == cost]
        offers = [item for item in waiting if isinstance(item, Offers)]
        edges = sum(isinstance(item, Edge) for item in waiting)
        counted = [self._offered_at(item, cost) for item in offers[: limits.LAYER_OFFERS]]
        parents = len(waiting) - edges + (self._again is not None)
        offered = sum(counted) * parents // max(1, len(counted))
        left = edges + offered + (self._open is not None and self._open.cost == cost)
        return Layer(cost=cost, done=self._done[cost], known=self._done[cost] + left)

    def _offered_at(self, offers: Offers, cost: int) -> int:
        return sum(not self._is_early(edge) for edge in offers.at(cost - offers.cost))


@dataclass(frozen=True, slots=True)
class _Unkept:
    """A run that was not kept: its edge, and the costs of injections into it whose turn has not come."""

    edge: Edge
    costs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Again:
    """An edge that was asked for again, and the place of its children in the queue."""

    unkept: _Unkept
    cost: int
    size: int
    sequence: int


_Queued: TypeAlias = tuple[int, int, int, int, Edge | Offers | _Unkept]
"""(cost, perturbations, when it was found, place among its kind, what is queued)."""
