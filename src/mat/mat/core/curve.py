"""The data of a robustness curve: executed schedules by cost, and chains of growing schedules.

They are here because searches make them, and measures and reports read them.

Source: A6.4, seed Sec. VII.D.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from mat.core.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResult:
    """The result of one executed schedule.

    `cost` is the whole schedule's. `success` is Y, None if nothing judges success. `broken`: ids of the hard
    contracts it broke, sorted. `unjudged`: some hard contract could not be judged.
    """

    cost: int
    success: bool | None
    broken: tuple[str, ...] = ()
    unjudged: bool = False

    @property
    def complied(self) -> bool | None:
        """Whether no hard contract was broken; None if none was seen broken, but some could not be judged."""
        if self.broken:
            return False
        return None if self.unjudged else True


Chain: TypeAlias = tuple[ScheduleResult, ...]
"""Schedules, each the one before it plus one perturbation; the first is the empty schedule. Costs never fall."""


def schedule_result(run: Run) -> ScheduleResult:
    """The result of a finished run."""
    return ScheduleResult(
        cost=run.spec.schedule.cost,
        success=run.success,
        broken=tuple(sorted({violation.contract for violation in run.broken})),
        unjudged=run.measured == "unknown",
    )


def frontier(executed: Iterable[ScheduleResult]) -> tuple[ScheduleResult, ...]:
    """The few results that decide a worst-case curve: the cheapest for each answer to each question, by cost.

    The worst over all schedules that cost at most B is the same for these as for all, at every B.
    """
    cheapest: dict[tuple[str, bool | None], ScheduleResult] = {}
    for result in executed:
        for answer in (("success", result.success), ("complied", result.complied)):
            known = cheapest.get(answer)
            if known is None or _rank(result) < _rank(known):
                cheapest[answer] = result
    return tuple(sorted(set(cheapest.values()), key=_rank))


def _rank(result: ScheduleResult) -> tuple[int, tuple[str, ...], bool, str]:
    """A total order, so that the cheapest result does not depend on which came first."""
    return (result.cost, result.broken, result.unjudged, str(result.success))
