"""Random search, the baseline: a random known run, a random injection into it. It proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mat.core.adversary import Choose
from mat.core.spec import Schedule
from mat_search.space import ROOT, Edge, Grid, Key, edges
from mat_search.strategy import Plan, Skips, Told


class RandomSearch:
    """Grows schedules at random within the budget; each is executed once, and a hit ends the search unless more are wanted.

    A run with nothing left to offer is forgotten. Deterministic by its stream: known runs and their edges are lists. The
    schedules tried are counted, not removed, because a removal would give the runs that offer much another weight.
    """

    proves = False

    def __init__(self, plan: Plan, *, attempts: int = 200) -> None:
        self._grid, self._budget, self._stream, self._attempts = Grid(plan.operators), plan.budget, plan.stream, attempts
        self._offers: list[list[Edge]] = []
        self._tried: set[Schedule] = set()
        self._begun = False
        self.seen: set[Key] = set()
        self.skipped = Skips()

    def ask(self, most: int | None = None) -> Edge | None:
        """None after a hit, and once many draws in a row met only schedules already tried."""
        if not self._begun:
            self._begun = True
            return ROOT
        if most is not None:
            return None
        edge = self._drawn(self._stream, self._tried)
        if edge is not None:
            self._tried.add(edge.schedule)
        return edge

    def tell(self, edge: Edge, told: Told) -> None:
        if edge.key is not None:
            self.seen.add(edge.key)
        offered = list(edges(told.run, told.run.spec.schedule, edge.step, self._grid, told.states, budget=self._budget))
        if offered:
            self._offers.append(offered)

    def ahead(self, count: int) -> Sequence[Edge]:
        """What would be drawn next if nothing more were told."""
        if not self._begun:
            return ()
        stream, tried, found = Random(), set(self._tried), list[Edge]()
        stream.setstate(self._stream.getstate())
        while len(found) < count and (edge := self._drawn(stream, tried)) is not None:
            tried.add(edge.schedule)
            found.append(edge)
        return found

    def _drawn(self, stream: Random, tried: set[Schedule]) -> Edge | None:
        if not self._offers:
            return None
        for _ in range(self._attempts):
            known = self._offers[stream.randrange(len(self._offers))]
            edge = known[stream.randrange(len(known))]
            if edge.schedule not in tried:
                return edge
        return None

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def bound(self) -> int:
        return 0
