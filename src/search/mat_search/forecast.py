"""A forecast of how many schedules there are up to each cost, from what a search has seen.

A schedule has at most one fault at a call of the nominal run, and what is offered there does not depend on the faults before.
What a single fault was seen to do is taken to be what it does in every schedule: it makes the agent call again, where as much
is offered as at the call of the fault, or it makes the agent leave out the calls that follow. A fault that was not executed yet
changes nothing. Faults of faults and equal states are not foreseen, so the forecast of later costs is scaled by what the last
complete cost really took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_AGAIN: Final = 8
"""Schedules are counted again when one in this many more single faults is known."""


@dataclass(slots=True)
class _Call:
    """What is offered at one call, by cost, and what is known of how faults change the number of calls that follow."""

    offered: Counter[int]
    changes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By cost and change, how many faults are known."""


class Forecast:
    """Schedules by cost, up to `budget`. `costs_by_call`: what each fault costs, by the calls of the nominal run in order."""

    def __init__(self, costs_by_call: Mapping[str, Sequence[int]], budget: int) -> None:
        self._budget = budget
        self._calls = {
            site: _Call(Counter(cost for cost in costs if 0 < cost <= budget)) for site, costs in costs_by_call.items()
        }
        self._learned = self._known = 0
        self._counted = self._schedules_by_cost()

    def learn(self, site: str, cost: int, change: int) -> None:
        """What a single fault did: by how much it changed the number of calls."""
        if site in self._calls:
            self._calls[site].changes[cost, change] += 1
            self._learned += 1

    def left(self, bound: int, limit: int, done: Sequence[int]) -> int:
        """How many executions the costs above `bound` will take, up to `limit`. `done`: executions by cost so far."""
        if self._learned * _AGAIN >= self._known * (_AGAIN + 1) and self._learned > self._known:
            self._counted, self._known = self._schedules_by_cost(), self._learned
        numerator, denominator = self._scale(bound, done)
        known = range(bound + 1, min(limit, self._budget) + 1)
        return sum(max(0, self._counted[cost] * numerator // denominator - done[cost]) for cost in known)

    def _scale(self, bound: int, done: Sequence[int]) -> tuple[int, int]:
        """The ratio between executions and count at the dearest complete cost that had any."""
        for cost in range(min(bound, self._budget), 0, -1):
            if self._counted[cost]:
                return max(1, done[cost]), self._counted[cost]
        return 1, 1

    def _schedules_by_cost(self) -> list[int]:
        """The schedules by cost, as polynomials in the cost of what is left, from the last call to the first."""
        none = [1] + [0] * self._budget
        after = [none]  # of the calls after the last one, the last two, and so on
        for call in reversed(self._calls.values()):
            counted = list(after[-1])
            longer = [after[-1]]  # with no call like this one before it, with one, and so on
            for (cost, change), number in sorted(_known(call).items()):
                while len(longer) <= min(change, self._budget):
                    longer.append(self._with_call(longer[-1], call))
                rest = after[max(0, len(after) - 1 + change)] if change < 0 else longer[min(change, self._budget)]
                for total in range(cost, self._budget + 1):
                    counted[total] += number * rest[total - cost]
            after.append(counted)
        return after[-1]

    def _with_call(self, counted: Sequence[int], call: _Call) -> list[int]:
        """The schedules if there is one more call, which is like this one."""
        more = list(counted)
        for cost, number in call.offered.items():
            for total in range(cost, self._budget + 1):
                more[total] += number * counted[total - cost]
        return more


def _known(call: _Call) -> Counter[tuple[int, int]]:
    """The faults of a call by cost and change; those that were not executed change nothing."""
    found = Counter(call.changes)
    for cost, number in call.offered.items():
        known = sum(count for (of, _), count in call.changes.items() if of == cost)
        if number > known:
            found[cost, 0] += number - known
    return found
