"""Random search, the baseline: schedules drawn at random within the budget. It proves nothing.

A draw has one injection, and one more in every second case, up to six. Each is drawn from what the run under the schedule so
far offers, if that run is known, else from what the nominal run offers: uniformly one of the calls, then one of the operators
that can act there, then one of its grid points. So operators with many grid points are not favored, and calls that exist only
after a fault are drawn once a run with that fault was executed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from random import Random
from typing import Final

from mat.core import limits
from mat.core.adversary import Choose
from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, Schedule
from mat_search.campaign import Layer
from mat_search.curve import Offered, drawn_from, offered_by
from mat_search.space import ROOT, Edge, GridKey, free
from mat_search.strategy import EdgeOutcome, SearchPlan, Skips

_LARGEST: Final = 6


class RandomSearch:
    """Draws schedules within the budget; each is executed once. Its edges have no keys, so `seen` stays empty."""

    proves = False

    def __init__(self, plan: SearchPlan, *, attempts: int = 200) -> None:
        self._grid, self._budget, self._stream, self._attempts = plan.grid, plan.budget, plan.stream, attempts
        self._runs: OrderedDict[Schedule, Run] = OrderedDict()
        self._offers: dict[Schedule, Offered] = {}
        self._tried: set[Schedule] = {NO_SCHEDULE}
        self._started = False
        self.seen: set[GridKey] = set()
        self.skipped = Skips()

    @property
    def layer(self) -> Layer | None:
        return None

    def ask(self, most: int | None = None) -> Edge | None:
        """The next schedule; None after a hit, and after many draws in a row gave only known schedules."""
        if not self._started:
            self._started = True
            return ROOT
        if most is not None:
            return None
        schedule = self._draw_untried(self._stream, self._tried)
        if schedule is None:
            return None
        self._tried.add(schedule)
        return free(schedule)

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        schedule = edge.schedule
        self._runs[schedule] = outcome.run
        if len(self._runs) > limits.RUNS_KEPT:
            self._runs.pop(next(known for known in self._runs if known != NO_SCHEDULE))

    def upcoming(self, count: int) -> Sequence[Edge]:
        """The next draws without further results."""
        if not self._started or NO_SCHEDULE not in self._runs:
            return ()
        stream, tried, found = Random(), set(self._tried), list[Edge]()
        stream.setstate(self._stream.getstate())
        while len(found) < count and (schedule := self._draw_untried(stream, tried)) is not None:
            tried.add(schedule)
            found.append(free(schedule))
        return found

    def _draw_untried(self, stream: Random, tried: set[Schedule]) -> Schedule | None:
        for _ in range(self._attempts):
            schedule = self._draw(stream)
            if schedule not in tried:
                return schedule
        return None

    def _draw(self, stream: Random) -> Schedule:
        size = 1
        while size < _LARGEST and stream.randrange(2):
            size += 1
        schedule = NO_SCHEDULE
        for _ in range(size):
            offered = self._offers_under(schedule)
            if not offered:
                break
            schedule = schedule.add(drawn_from(offered, stream))
        return schedule

    def _offers_under(self, schedule: Schedule) -> Offered:
        """What the run under a schedule offers, if it is known; otherwise what remains of the nominal run's offers."""
        known = self._offers.get(schedule)
        if known is None:
            run = self._runs.get(schedule)
            if run is None:
                return _affordable_part(self._offers_under(NO_SCHEDULE), schedule, self._budget - schedule.cost)
            known = self._offers[schedule] = offered_by(run, schedule, self._grid, self._budget)
        return known

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def bound(self) -> int:
        return 0


def _affordable_part(offered: Offered, schedule: Schedule, rest: int) -> Offered:
    """The part of an offer that can be added to a schedule at a cost of at most `rest`."""
    calls = []
    for operators in offered:
        left = []
        for points in operators:
            fits = tuple(
                item for item in points if item.cost <= rest and not any(item.site.overlaps(other.site) for other in schedule)
            )
            if fits:
                left.append(fits)
        if left:
            calls.append(tuple(left))
    return tuple(calls)
