"""Random search, the baseline: a random known run, a random injection into it. It proves nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat_search.space import ROOT, Edge, edges


class RandomSearch:
    """Grows schedules at random within the budget; each is executed once."""

    def __init__(self, operators: Sequence[OperatorSpec], *, budget: int, stream: random.Random, attempts: int = 200) -> None:
        self._operators, self._budget, self._stream, self._attempts = tuple(operators), budget, stream, attempts
        self._offers: list[list[Edge]] = []
        self._tried: set[tuple[tuple[str, str, str], ...]] = set()
        self.seen: set[str] = set()
        self.skipped: list[Edge] = []

    def ask(self) -> Edge | None:
        """None once many draws in a row met only schedules already tried."""
        if not self._offers:
            return ROOT
        for _ in range(self._attempts):
            known = self._offers[self._stream.randrange(len(self._offers))]
            if not known:
                continue
            edge = known[self._stream.randrange(len(known))]
            identity = tuple(item.key for item in edge.schedule)
            if identity not in self._tried:
                self._tried.add(identity)
                self.seen.add(edge.key)
                return edge
        return None

    def tell(self, edge: Edge, run: Run) -> None:
        self._offers.append(list(edges(run, edge, self._operators, budget=self._budget)))

    @property
    def bound(self) -> int:
        return 0

    @property
    def complete(self) -> bool:
        return False
