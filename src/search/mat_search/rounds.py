"""Searches in rounds: each round (a level, a generation) is drawn from the runs of earlier ones. They prove nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from mat.core.adversary import Choose
from mat.core.spec import Schedule
from mat_search.campaign import Layer
from mat_search.coverage import Coverage, Nearness
from mat_search.space import ROOT, Edge, GridKey
from mat_search.strategy import EdgeOutcome, SearchPlan, Skips

Rank: TypeAlias = tuple[int, int, int]
"""(margin, minus new coverage, cost); less is better: nearer to breaking a contract, then more new coverage, then cheaper."""


class Rounds(ABC):
    """The common part of these searches: the queue, the tried schedules, and the ranking of runs."""

    proves = False

    def __init__(self, plan: SearchPlan) -> None:
        self._grid, self._budget, self._stream = plan.grid, plan.budget, plan.stream
        self._queue: list[Edge] = [ROOT]
        self._tried: set[Schedule] = set()
        self._coverage = Coverage()
        self._nearness: Nearness | None = None
        self.seen: set[GridKey] = set()
        self.skipped = Skips()
        self.bound = -1

    def ask(self, most: int | None = None) -> Edge | None:
        """The next edge; None after a hit, and when a round draws nothing new."""
        if most is not None:
            return None
        if not self._queue:
            self._queue = self._draw_round()
        return self._queue.pop(0) if self._queue else None

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        """Learn from a run, except from a hit: a schedule that contains a failing one usually fails in the same way."""
        if self._nearness is None:
            self._nearness, self.bound = Nearness(outcome.run), 0
        if edge.key is not None:
            self.seen.add(edge.key)
        rank = (self._nearness.least(outcome.run), -self._coverage.add(outcome.run).worth, edge.cost)
        if not outcome.hit:
            self._learn(rank, edge, outcome)

    def narrow(self, budget: int) -> None:
        """Draw no schedules of a greater cost from now on."""
        self._budget = min(self._budget, budget)
        self._queue = [edge for edge in self._queue if edge.cost <= budget]

    def upcoming(self, count: int) -> Sequence[Edge]:
        """The rest of the round."""
        return self._queue[:count]

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def layer(self) -> Layer | None:
        return None

    @abstractmethod
    def _draw_round(self) -> list[Edge]:
        """The edges of the next round, none if nothing new can be drawn."""

    @abstractmethod
    def _learn(self, rank: Rank, edge: Edge, outcome: EdgeOutcome) -> None:
        """Keep what later rounds need of a run that is not a hit."""
