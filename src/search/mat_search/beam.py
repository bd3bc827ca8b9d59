"""Beam search: level by level, one perturbation more each, the best runs of a level are grown. It proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from mat_search.rounds import Rank, Rounds
from mat_search.space import Edge, edges
from mat_search.strategy import EdgeOutcome, SearchPlan

WIDTH: Final = 12
"""Runs of a level that are grown."""
SAMPLE: Final = 60
"""Edges drawn into each of them."""
RESERVE: Final = 250
"""Further runs kept, which are grown when a level leads nowhere."""


class Beam(Rounds):
    """Grows the `width` best runs of a level by `sample` random edges each.

    A level with nothing left to grow is followed by the best of the runs kept that offer more, in the end by the nominal one.
    """

    def __init__(self, plan: SearchPlan, *, width: int = WIDTH, sample: int = SAMPLE) -> None:
        super().__init__(plan)
        self._width, self._sample = width, sample
        self._level: list[_Node] = []
        self._reserve: list[_Node] = []
        self._root: _Node | None = None

    def _learned(self, rank: Rank, edge: Edge, outcome: EdgeOutcome) -> None:
        run = outcome.run
        offered = edges(run, run.spec.schedule, edge.step, self._grid, outcome.states, budget=self._budget)
        left = [item for item in offered if item.schedule not in self._tried]
        if left:
            self._level.append(_Node(rank, left))
            self._root = self._root or self._level[0]

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
    """A run with what it still offers."""

    __slots__ = ("left", "rank")

    def __init__(self, rank: Rank, left: list[Edge]) -> None:
        self.rank, self.left = rank, left

    def order(self) -> Rank:
        return self.rank

    def draw(self, stream: Random, count: int) -> list[Edge]:
        """Up to `count` of what is left, at random; they are not left any more."""
        chosen = set(stream.sample(range(len(self.left)), min(count, len(self.left))))
        drawn = [edge for index, edge in enumerate(self.left) if index in chosen]
        self.left = [edge for index, edge in enumerate(self.left) if index not in chosen]
        return drawn
