"""Cost-ordered exhaustive search over the dynamic tree, skipping edges whose key was seen (DESIGN decisions 8 and 9).

Why it is exact on its grid: the queue is ordered by cost and a child costs more than its parent, so when an edge is executed
every cheaper schedule was executed or skipped, and the first run that breaks a contract is a cheapest one. `bound` is one
less than the cheapest edge that is queued or open, so it holds whenever and for whatever reason the search stops.

Why skipping an equal state is sound: an edge is skipped only if an edge with the same key was executed before, at no greater
cost. The key holds D, the digest of all that the agents, ports and monitors have been through, the ask, what earlier
perturbations still do, and the injection itself. In a deterministic system both edges have the same future: the same records,
monitor states and offers. Whatever more could be injected there was offered by the first edge, with at least as much of the
budget left and with the same ranges excluded. What lies before the site was judged in the parents' own runs. By induction
over the cost left, every contract that some schedule breaks is broken by an executed one that costs no more.

Where the user vouches for a complete state, that state stands for D: the key then leaves out how the state was reached, and
for that reason holds only for injections that were seen to decide by the call alone (`Alike.local`); the others keep D. An
operator of a range decides again later, in runs that are yet to come: one that is then seen to look at more lowers the bound
to what was not skipped in reliance on it.

Why skipping an equal effect is sound: two grid points of one operator at one ask in one state, for which the operator decides
the same effect, make the same run. They go on to do so where all that the injection covers was decided in that run and nothing
injected later can come in between (or can be paid for); otherwise neither is taken for the other. Equal decisions: with a
complete state every number that the agent keeps is read, and so compared, at the next ask; if all decisions on the injected
numbers come out the same until then, and the state at each ask is the same, both points have the same future. In both cases
the first one executed costs no more, because the queue is ordered.

What the arguments rest on, determinism and the completeness of D, is not taken on trust: the campaign compares prefixes at
every execution, repeats a sample of the executed edges and executes a sample of the skipped ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence, Set
from itertools import islice

from mat.core.adversary import Choose
from mat.core.run import Alike, Run
from mat_search.space import ROOT, Edge, Grid, Key, Offers, undisturbed
from mat_search.strategy import Plan, Skips, Told, Why


class Seen:
    """What was executed, and what need not be: keys of edges, and of those exchangeable with them."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Why, Key]] = {}
        self._trusted: dict[Key, frozenset[str]] = {}
        self._strangers: set[str] = set()
        self._relied: dict[str, int] = {}

    def add(self, edge: Edge, run: Run, grid: Grid, *, last: bool = False) -> None:
        """The run of an edge. `last`: no other injection can follow it."""
        self._strangers.update(item.operator for item in run.alike if not item.local)
        if edge.key is None:
            return
        alike = _alike(edge, run)
        settled = last or _settled(edge, run)
        keys = [edge.key]
        if edge.loose is not None and alike is not None and alike.local and _ranges_local(run):
            keys.append(edge.loose)
            if not last:
                ranges = {item.operator for item in edge.parent if item.site.last > item.site.nth}
                self._trusted.setdefault(edge.loose, frozenset(ranges if settled else ranges | {alike.operator}))
        for key in keys:
            self._known.setdefault(key, ("equal state", key))
        if alike is None or not settled:
            return
        exchangeable: list[tuple[Why, tuple[str, ...]]] = [
            ("equal effect", grid.texts(alike.operator, alike.effect)),
            ("equal decisions", grid.texts(alike.operator, alike.decisions) if run.complete else ()),
        ]
        for why, texts in exchangeable:
            for key in keys:
                for text in texts:
                    self._known.setdefault((key[0], text), (why, key))

    def why(self, edge: Edge) -> tuple[Why, Key] | None:
        """The reason for which an edge need not be executed, and the key of the executed edge that it equals."""
        for key in (edge.key, edge.loose):
            if key is not None and key in self._known:
                return self._known[key]
        return None

    def rely(self, edge: Edge, of: Key) -> None:
        """An edge was skipped for an equal one: what follows both is equal if these operators go on to decide by the call."""
        for operator in self._trusted.get(of, ()):
            self._relied[operator] = min(self._relied.get(operator, edge.cost), edge.cost)

    @property
    def doubtful(self) -> int | None:
        """The least cost of an edge that was skipped in reliance on an operator that was then seen to look at more."""
        return min((cost for operator, cost in self._relied.items() if operator in self._strangers), default=None)

    @property
    def keys(self) -> Set[Key]:
        return self._known.keys()


def _settled(edge: Edge, run: Run) -> bool:
    """Whether all that the edge's injection covers was asked, and nothing injected later can come in between."""
    if edge.option is None:
        return True
    span = edge.option.choice.span
    port = run.records[edge.step].site.rpartition("#")[0]
    asks = [record for record in run.records[edge.step :] if record.site.rpartition("#")[0] == port][:span]
    return len(asks) == span and undisturbed(run, asks)


def _ranges_local(run: Run) -> bool:
    """Whether no operator of a range looked at more than its calls: it may be under way, and no state says what it saw."""
    ranges = {(item.operator, str(item.site)) for item in run.spec.schedule if item.site.last > item.site.nth}
    return all(item.local for item in run.alike if (item.operator, item.site) in ranges)


def _alike(edge: Edge, run: Run) -> Alike | None:
    added = edge.added
    if added is None:
        return None
    place = str(added.site)
    found = (item for item in run.alike if item.operator == added.operator and item.parameters == added.parameters)
    return next((item for item in found if item.site in (place, edge.site)), None)


class Exhaustive:
    """Uniform-cost search. `plan.prune=False` executes every edge, for comparison."""

    proves = True

    def __init__(self, plan: Plan) -> None:
        self._grid, self._budget, self._prune = Grid(plan.operators), plan.budget, plan.prune
        self._queue: list[tuple[int, int, int, Edge | Offers]] = [(0, 0, 0, ROOT)]
        self._sequence = 0
        self._open: Edge | None = None
        self._seen = Seen()
        self.skipped = Skips()

    def ask(self, most: int | None = None) -> Edge | None:
        """The cheapest edge that need not be skipped; ties by number of perturbations, then in order of discovery."""
        while self._queue:
            cost, _, _, found = self._queue[0]
            if most is not None and cost > most:
                return None
            heapq.heappop(self._queue)
            if isinstance(found, Offers):
                self._offer(found.at(cost - found.cost))
                continue
            why = self._seen.why(found) if self._prune else None
            if why is None:
                self._open = found
                return found
            self._skip(found, *why)
        return None

    def tell(self, edge: Edge, told: Told) -> None:
        self._open = None
        run = told.run
        last = edge.cost + self._grid.least > self._budget
        self._seen.add(edge, run, self._grid, last=last)
        if last:
            return
        offers = Offers(run, run.spec.schedule, edge.step, self._grid, told.states, budget=self._budget)
        for cost in offers.costs:
            self._push(offers.cost + cost, edge.size + 1, offers)

    def _offer(self, children: Iterable[Edge]) -> None:
        for child in children:
            why = self._seen.why(child) if self._prune else None
            if why is None:
                self._push(child.cost, child.size, child)
            else:
                self._skip(child, *why)

    def _skip(self, edge: Edge, why: Why, of: Key) -> None:
        self.skipped.add(edge, why, of)
        self._seen.rely(edge, of)

    def _push(self, cost: int, size: int, item: Edge | Offers) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (cost, size, self._sequence, item))

    def ahead(self, count: int) -> Sequence[Edge]:
        """The first edges of the queue that are not to be skipped, as far as is known now."""
        near = (item[-1] for item in heapq.nsmallest(2 * count, self._queue))
        edges = (item for item in near if isinstance(item, Edge) and not (self._prune and self._seen.why(item)))
        return list(islice(edges, count))

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def seen(self) -> Set[Key]:
        return self._seen.keys

    @property
    def bound(self) -> int:
        left = [self._queue[0][0]] if self._queue else []
        if self._open is not None:
            left.append(self._open.cost)
        if self._seen.doubtful is not None:
            left.append(self._seen.doubtful)
        return min(left) - 1 if left else self._budget
