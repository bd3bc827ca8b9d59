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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """`second` happens at the retry after `first`."""

    first: _Single
    second: Perturbation

    @property
    def cost(self) -> int:
        return self.first.fault.cost + self.second.cost

    def schedule(self) -> Schedule:
        site, retry = self.second.site, self.first.retry
        assert retry is not None
        there = replace(site, nth=retry, last=retry + site.last - site.nth)
        return NO_SCHEDULE.add(self.first.fault).add(replace(self.second, site=there))


class RareAnswers:
    def __init__(self, nominal: Run, stream: Random) -> None:
        self._stream = stream
        self._calls = calls_of(nominal)
        self._known = frozenset(self._calls)
        self._answers: dict[_Fault, dict[_Answer, list[_Single]]] = {}
        self._at: dict[str, list[_Single]] = {}
        self._waiting: list[_Pair] = []
        self._drawn: set[_Pair] = set()
        self._has_learnt = False

    def learn(self, fault: Perturbation, run: Run) -> None:
        """Learn from the run of a single fault, which it reached and did not fail under."""
        call, port = first_ask(fault), port_of(fault)
        step = next((record.step for record in run.records if record.site == call), None)
        if step is None:
            return
        fresh, _, _ = compared(run, step, self._calls)
        again = (int(record.site.rpartition("#")[2]) for record in fresh if record_port(record) == port)
        single = _Single(fault=fault, retry=next((nth for nth in again if nth > fault.site.last), None))
        answer = frozenset((record_port(record), call_of(record) in self._known) for record in fresh), *ending_of(run)
        self._answers.setdefault((port, fault.operator, fault.parameters), {}).setdefault(answer, []).append(single)
        self._at.setdefault(call, []).append(single)
        self._has_learnt = True

    def draw(self, limit: int) -> Schedule | None:
        """A pair about a rare answer that costs at most `limit` and was not drawn before; None if there is none."""
        if self._has_learnt:
            self._waiting = [pair for pair in dict.fromkeys(self._pairs()) if pair not in self._drawn]
            self._has_learnt = False
        least = min((pair.cost for pair in self._waiting), default=limit + 1)
        if least > limit:
            return None
        cheapest = [index for index, pair in enumerate(self._waiting) if pair.cost == least]
        pair = self._waiting.pop(cheapest[self._stream.randrange(len(cheapest))])
        self._drawn.add(pair)
        return pair.schedule()

    def _pairs(self) -> Iterator[_Pair]:
        """All pairs about what is rare by now, in an order that depends only on what was learnt when."""
        for rare in self._rare():
            for single in self._at[first_ask(rare.fault)]:
                for first, second in ((single, rare), (rare, single)):
                    if single is not rare and first.retry is not None:
                        yield _Pair(first=first, second=second.fault)

    def _rare(self) -> Iterator[_Single]:
        for answers in self._answers.values():
            most = sum(map(len, answers.values())) // _FEW
            for singles in answers.values():
                if len(singles) <= most:
                    yield from singles
