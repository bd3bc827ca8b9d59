"""Cost-ordered exhaustive search over the dynamic tree, skipping edges whose key was seen (DESIGN decisions 8 and 9).

Why it is exact on its grid: the queue is ordered by cost, so when an edge is executed every cheaper schedule has been
executed or skipped, and the first run that breaks a contract is a cheapest one.

Why skipping is sound: an edge is skipped only if an edge with the same key was executed before, at no greater cost. The
key holds D, the digest of all that the agents, ports and monitors have been through, and the injection itself. In a
deterministic system both edges have the same future, and whatever more could be injected there was offered by the first
edge with at least as much budget left. What the argument rests on, determinism and the completeness of D, is checked by
the campaign: by prefix comparison at every execution and by executing a sample of the skipped edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat_search.space import ROOT, Edge, edges


class Exhaustive:
    """Uniform-cost search. `prune=False` executes every edge, for comparison."""

    def __init__(self, operators: Sequence[OperatorSpec], *, budget: int, prune: bool = True) -> None:
        self._operators, self._budget, self._prune = tuple(operators), budget, prune
        self._queue: list[tuple[int, int, int, Edge]] = [(0, 0, 0, ROOT)]
        self._sequence = 0
        self.seen: set[str] = set()
        self.skipped: list[Edge] = []

    def ask(self) -> Edge | None:
        """The cheapest edge whose key is new; ties by number of perturbations, then in order of discovery."""
        while self._queue:
            edge = heapq.heappop(self._queue)[-1]
            if edge.key:
                if edge.key in self.seen and self._prune:
                    self.skipped.append(edge)
                    continue
                self.seen.add(edge.key)
            return edge
        return None

    def tell(self, edge: Edge, run: Run) -> None:
        for child in edges(run, edge, self._operators, budget=self._budget):
            if self._prune and child.key in self.seen:
                self.skipped.append(child)
                continue
            self._sequence += 1
            heapq.heappush(self._queue, (child.cost, len(child.schedule), self._sequence, child))

    @property
    def bound(self) -> int:
        return self._queue[0][0] - 1 if self._queue else self._budget

    @property
    def complete(self) -> bool:
        return not self._queue
