"""Rare answers: a call that reacts to a fault as few calls of its port do, like one customer whose retry has another key.

A mistake in such a call may need a second fault to show. So the fault that it answers in its own way meets its retry after
each other fault there, and each other fault meets the retry after that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias

from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.core.value import FrozenDict
from mat_search.reactions import call_of, calls_of, compared, ending_of, record_port
from mat_search.vocabulary import first_ask, port_of

_FEW: Final = 4
"""An answer is rare if at most one in this many of the calls at which a fault was injected gave it."""

_Fault: TypeAlias = tuple[str, str, FrozenDict]
"""Port, operator and parameters."""
_Answer: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Single:
    """A fault that was executed alone; `retry`: the number of the next call of its port that exists because of it."""

    fault: Perturbation
    retry: int | None


class RareAnswers:
    def __init__(self, nominal: Run, stream: Random) -> None:
        self._stream = stream
        self._calls = calls_of(nominal)
        self._known = frozenset(self._calls)
        self._answers: dict[_Fault, dict[_Answer, list[str]]] = {}
        self._at: dict[str, list[_Single]] = {}
        self._drawn: set[Schedule] = set()

    def learn(self, fault: Perturbation, run: Run) -> None:
        """Learn from the run of a single fault, which it reached and did not fail under."""
        call, port = first_ask(fault), port_of(fault)
        step = next((record.step for record in run.records if record.site == call), None)
        if step is None:
            return
        fresh, _, _ = compared(run, step, self._calls)
        asked = frozenset((record_port(record), call_of(record) in self._known) for record in fresh)
        self._answers.setdefault((port, fault.operator, fault.parameters), {}).setdefault(
            (asked, *ending_of(run)), []
        ).append(call)  # fmt: skip
        again = (int(record.site.rpartition("#")[2]) for record in fresh if record_port(record) == port)
        retry = next((nth for nth in again if nth > fault.site.last), None)
        self._at.setdefault(call, []).append(_Single(fault=fault, retry=retry))

    def draw(self, limit: int) -> Schedule | None:
        """A pair about a rare answer that costs at most `limit` and was not drawn before; None if there is none."""
        found = sorted({each for each in self._pairs() if each.cost <= limit} - self._drawn, key=lambda each: each.cost)
        cheapest = [each for each in found if each.cost == found[0].cost]
        if not cheapest:
            return None
        chosen = cheapest[self._stream.randrange(len(cheapest))]
        self._drawn.add(chosen)
        return chosen

    def _pairs(self) -> Iterator[Schedule]:
        for call, rare in self._rare():
            for single in self._at[call]:
                if single.fault == rare.fault:
                    continue
                yield from _pair(single, rare.fault)
                yield from _pair(rare, single.fault)

    def _rare(self) -> Iterator[tuple[str, _Single]]:
        for (_, operator, parameters), answers in self._answers.items():
            most = sum(map(len, answers.values())) // _FEW
            for calls in answers.values():
                for call in calls if len(calls) <= most else ():
                    for single in self._at[call]:
                        if (single.fault.operator, single.fault.parameters) == (operator, parameters):
                            yield call, single


def _pair(first: _Single, second: Perturbation) -> Iterator[Schedule]:
    """The first fault, and the second at its retry."""
    if first.retry is not None:
        span = second.site.last - second.site.nth
        site = replace(second.site, nth=first.retry, last=first.retry + span)
        yield NO_SCHEDULE.add(first.fault).add(replace(second, site=site))
