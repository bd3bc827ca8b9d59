"""Beam search: level by level, one perturbation more each, the best runs of a level are grown. It proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from mat.core.adversary import Choose
from mat.core.spec import Schedule
from mat_search.coverage import Coverage, Nearness
from mat_search.space import ROOT, Edge, Grid, Key, edges
from mat_search.strategy import Plan, Skips, Told

WIDTH: Final = 12
"""Runs of a level that are grown."""
SAMPLE: Final = 60
"""Edges drawn into each of them."""
RESERVE: Final = 250
"""Runs kept, besides those of the level, to be grown where a level leads nowhere."""


class Beam:
    """Grows the `width` best runs of a level by `sample` random edges each.

    Better is nearer to breaking a contract, then more that was new, then cheaper. A level with nothing left to grow is
    followed by the best of the runs kept that offer more, in the end by the nominal one. A hit is not grown: what contains a
    failing schedule fails in the same way as a rule.
    """

    proves = False

    def __init__(self, plan: Plan, *, width: int = WIDTH, sample: int = SAMPLE) -> None:
        self._grid, self._budget, self._stream = Grid(plan.operators), plan.budget, plan.stream
        self._width, self._sample = width, sample
        self._queue: list[Edge] = [ROOT]
        self._level: list[_Node] = []
        self._reserve: list[_Node] = []
        self._root: _Node | None = None
        self._tried: set[Schedule] = set()
        self._coverage = Coverage()
        self._nearness: Nearness | None = None
        self.seen: set[Key] = set()
        self.skipped = Skips()
        self.bound = -1

    def ask(self, most: int | None = None) -> Edge | None:
        """None after a hit, and once no known run offers anything new."""
        if most is not None:
            return None
        if not self._queue:
            self._queue = self._drawn()
        return self._queue.pop(0) if self._queue else None

    def tell(self, edge: Edge, told: Told) -> None:
        run = told.run
        if self._nearness is None:
            self._nearness, self.bound = Nearness(run), 0
        if edge.key is not None:
            self.seen.add(edge.key)
        rank = (self._nearness.least(run), -self._coverage.add(run).worth, edge.cost)
        if not told.hit:
            offered = edges(run, run.spec.schedule, edge.step, self._grid, told.states, budget=self._budget)
            left = [item for item in offered if item.schedule not in self._tried]
            if left:
                self._level.append(_Node(rank, left))
                self._root = self._root or self._level[0]

    def ahead(self, count: int) -> Sequence[Edge]:
        """The rest of the level."""
        return self._queue[:count]

    def policy(self, edge: Edge) -> Choose | None:
        return None

    def _drawn(self) -> list[Edge]:
        """The next level: the best of those that the last one led to, or else the best of all."""
        self._level.sort(key=_Node.order)
        front, rest = self._level[: self._width], self._level[self._width :]
        self._reserve += rest
        self._level = []
        found = self._grown(front)
        while not found and self._reserve:
            self._reserve.sort(key=_Node.order)
            front, self._reserve = self._reserve[: self._width], self._reserve[self._width : RESERVE]
            found = self._grown(front)
        return found or self._grown([self._root] if self._root is not None else [])

    def _grown(self, front: Sequence[_Node]) -> list[Edge]:
        found: list[Edge] = []
        for node in front:
            for edge in node.draw(self._stream, self._sample):
                if edge.schedule not in self._tried:
                    self._tried.add(edge.schedule)
                    found.append(edge)
            if node.left and node is not self._root:
                self._reserve.append(node)
        return found


class _Node:
    """A run with what it still offers. `rank` is (margin, minus what was new, cost)."""

    __slots__ = ("left", "rank")

    def __init__(self, rank: tuple[int, int, int], left: list[Edge]) -> None:
        self.rank, self.left = rank, left

    def order(self) -> tuple[int, int, int]:
        return self.rank

    def draw(self, stream: Random, count: int) -> list[Edge]:
        """Up to `count` of what is left, at random; they are not left any more."""
        chosen = set(stream.sample(range(len(self.left)), min(count, len(self.left))))
        drawn = [edge for index, edge in enumerate(self.left) if index in chosen]
        self.left = [edge for index, edge in enumerate(self.left) if index not in chosen]
        return drawn
