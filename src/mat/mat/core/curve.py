"""What a robustness curve is made of: executed schedules by cost, and chains of them that grow (A6.4; seed Sec. VII.D).

Here because searches make them, and measures and reports read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from mat.core.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What one executed schedule came to.

    `cost` is the whole schedule's. `success` is Y, None where there was nothing to judge it by. `broken`: ids of the hard
    contracts it broke, sorted. `unjudged`: some hard contract could not be judged.
    """

    cost: int
    success: bool | None
    broken: tuple[str, ...] = ()
    unjudged: bool = False

    @property
    def complied(self) -> bool | None:
        """Whether no hard contract was broken; None where none was seen broken and some could not be judged."""
        if self.broken:
            return False
        return None if self.unjudged else True


Chain: TypeAlias = tuple[Lived, ...]
"""Schedules each of which holds the one before it and one perturbation more; the first is the empty one. Costs never fall."""


def lived(run: Run) -> Lived:
    """What a finished run came to."""
    return Lived(
        cost=run.spec.schedule.cost,
        success=run.success,
        broken=tuple(sorted({violation.contract for violation in run.failures})),
        unjudged=run.outcome == "unknown",
    )


def frontier(lives: Iterable[Lived]) -> tuple[Lived, ...]:
    """The few lives that decide a worst-case curve: of each answer to each question the cheapest, by cost.

    The worst over all schedules that cost at most B is the same for these as for all, at every B.
    """
    cheapest: dict[tuple[str, bool | None], Lived] = {}
    for life in lives:
        for answer in (("success", life.success), ("complied", life.complied)):
            known = cheapest.get(answer)
            if known is None or _rank(life) < _rank(known):
                cheapest[answer] = life
    return tuple(sorted(set(cheapest.values()), key=_rank))


def _rank(life: Lived) -> tuple[int, tuple[str, ...], bool, str]:
    """An order without ties, so that the cheapest is one whichever came first."""
    return (life.cost, life.broken, life.unjudged, str(life.success))
