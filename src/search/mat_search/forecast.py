"""A forecast of how many schedules there are up to each cost, from what a search has seen.

Before anything is known, the perturbations of the nominal run are counted as if a fault changed nothing that follows: each
combination of them, at most one at a call. Faults add and remove calls, and equal states merge schedules. So the forecast of
later costs is scaled by what the last complete cost really took.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Forecast:
    """Schedules by cost, up to `budget`. `costs_by_call`: what each perturbation costs, call by call of the nominal run."""

    def __init__(self, costs_by_call: Iterable[Sequence[int]], budget: int) -> None:
        counted = [1] + [0] * budget
        for costs in costs_by_call:
            offered = [cost for cost in costs if 0 < cost <= budget]
            for total in range(budget, 0, -1):
                counted[total] += sum(counted[total - cost] for cost in offered if cost <= total)
        self._counted = counted

    def left(self, bound: int, limit: int, done: Sequence[int]) -> int:
        """How many executions the costs above `bound` will take, up to `limit`. `done`: executions by cost so far."""
        numerator, denominator = self._scale(bound, done)
        known = range(bound + 1, min(limit, len(self._counted) - 1) + 1)
        return sum(max(0, self._counted[cost] * numerator // denominator - done[cost]) for cost in known)

    def _scale(self, bound: int, done: Sequence[int]) -> tuple[int, int]:
        """The ratio between executions and count at the dearest complete cost that had any."""
        for cost in range(min(bound, len(self._counted) - 1), 0, -1):
            if self._counted[cost]:
                return max(1, done[cost]), self._counted[cost]
        return 1, 1
