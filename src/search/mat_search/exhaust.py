"""Cost-ordered exhaustive search over the dynamic tree, skipping edges whose key was seen (DESIGN decisions 8 and 9).

Why it is exact on its grid: the queue is ordered by cost and a child costs more than its parent, so when an edge is executed
every cheaper schedule was executed or skipped, and the first run that breaks a contract is a cheapest one. `bound` is one
less than the cheapest edge that is queued or open, so it holds whenever and for whatever reason the search stops.

Why skipping is sound: an edge is skipped only if an edge with the same key was executed before, at no greater cost. The key
holds D, the digest of all that the agents, ports and monitors have been through, the ask, what earlier perturbations still
do, and the injection itself. In a deterministic system both edges have the same future: the same records, monitor states
and offers. Whatever more could be injected there was offered by the first edge, with at least as much of the budget left
and with the same ranges excluded. What lies before the site was judged in the parents' own runs. By induction over the cost
left, every contract that some schedule breaks is broken by an executed one that costs no more.

What the argument rests on, determinism and the completeness of D, is not taken on trust: the campaign compares prefixes at
every execution, repeats a sample of the executed edges and executes a sample of the skipped ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat_search.space import ROOT, Edge, Grid, Key, edges


class Exhaustive:
    """Uniform-cost search. `prune=False` executes every edge, for comparison."""

    def __init__(self, operators: Sequence[OperatorSpec], *, budget: int, prune: bool = True) -> None:
        self._grid, self._budget, self._prune = Grid(operators), budget, prune
        self._queue: list[tuple[int, int, int, Edge]] = [(0, 0, 0, ROOT)]
        self._sequence = 0
        self._open: Edge | None = None
        self.seen: set[Key] = set()
        self.skipped: list[Edge] = []

    def ask(self, most: int | None = None) -> Edge | None:
        """The cheapest edge whose key is new; ties by number of perturbations, then in order of discovery."""
        while self._queue:
            cost, _, _, edge = self._queue[0]
            if self._prune and edge.key in self.seen:
                self.skipped.append(heapq.heappop(self._queue)[-1])
                continue
            if most is not None and cost > most:
                return None
            self._open = heapq.heappop(self._queue)[-1]
            return self._open
        return None

    def tell(self, edge: Edge, run: Run, states: Sequence[str]) -> None:
        self._open = None
        if edge.key is not None:
            self.seen.add(edge.key)
        if edge.cost + self._grid.least > self._budget:
            return
        for child in edges(run, run.spec.schedule, edge.step, self._grid, states, budget=self._budget):
            if self._prune and child.key in self.seen:
                self.skipped.append(child)
                continue
            self._sequence += 1
            heapq.heappush(self._queue, (child.cost, child.size, self._sequence, child))

    @property
    def bound(self) -> int:
        left = [self._queue[0][0]] if self._queue else []
        if self._open is not None:
            left.append(self._open.cost)
        return min(left) - 1 if left else self._budget
