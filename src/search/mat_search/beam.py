"""Beam search: each level adds a perturbation to the best runs of the level before. It proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from mat_search.rounds import Rank, Rounds
from mat_search.space import Edge, edges
from mat_search.strategy import EdgeOutcome, SearchPlan

WIDTH: Final = 12
"""How many runs of a level are grown."""
SAMPLE: Final = 60
"""How many edges are drawn for each of them."""
RESERVE: Final = 250
"""How many further runs are kept, to be grown when a level leads to nothing new."""


class Beam(Rounds):
    """Grows the `width` best runs of a level by `sample` random edges each.

    If a level leads to nothing new, the best runs of the reserve are grown, and finally the nominal run.
    """

    def __init__(self, plan: SearchPlan, *, width: int = WIDTH, sample: int = SAMPLE) -> None:
        super().__init__(plan)
        self._width, self._sample = width, sample
        self._next_level: list[_Node] = []
        self._reserve: list[_Node] = []
        self._root: _Node | None = None

    def _learn(self, rank: Rank, edge: Edge, outcome: EdgeOutcome) -> None:
        run = outcome.run
        offered = edges(run, run.spec.schedule, edge.step, self._grid, outcome.states, budget=self._budget)
        left = [item for item in offered if item.schedule not in self._tried]
        if left:
            self._next_level.append(_Node(rank, left))
            self._root = self._root or self._next_level[0]

    def _draw_round(self) -> list[Edge]:
        """The next level: edges of the best runs of the last level, or else of the best runs in the reserve."""
        self._next_level.sort(key=_Node.order)
        front, rest = self._next_level[: self._width], self._next_level[self._width :]
        self._reserve += rest
        self._next_level = []
        found = self._grow(front)
        while not found and self._reserve:
            self._reserve.sort(key=_Node.order)
            front, self._reserve = self._reserve[: self._width], self._reserve[self._width : RESERVE]
            found = self._grow(front)
        return found or self._grow([self._root] if self._root is not None else [])

    def _grow(self, front: Sequence[_Node]) -> list[Edge]:
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
    """A run and the edges that it still offers."""

    __slots__ = ("left", "rank")

    def __init__(self, rank: Rank, left: list[Edge]) -> None:
        self.rank, self.left = rank, left

    def order(self) -> Rank:
        return self.rank

    def draw(self, stream: Random, count: int) -> list[Edge]:
        """Remove up to `count` of the edges at random, and return them."""
        chosen = set(stream.sample(range(len(self.left)), min(count, len(self.left))))
        drawn = [edge for index, edge in enumerate(self.left) if index in chosen]
        self.left = [edge for index, edge in enumerate(self.left) if index not in chosen]
        return drawn
