"""Reduction of a failing schedule while a search goes on: from many perturbations, even beyond the budget, to a cheap few.

`mat_search.shrink` makes what is reported 1-minimal, in small steps. A reduction begins with hundreds of perturbations and
ends when its executions are used up:

1. What was injected after the violation is removed, then halves, quarters, ... of the rest (delta debugging, Zeller 2002).
   A fault often causes a retry. Without it the retry is missing, and later calls have lower numbers; so each candidate is tried
   with renumbered calls first. One that does not fail is tried again with the numbers that its calls, known by port and
   arguments, had in its own run.
2. Each perturbation is replaced by a cheaper one at the same call; one of a range of calls by one of a call at each of them.
3. Of two perturbations one becomes stronger and the other weaker by more.
4. Each is moved to another call of its port, and what still fails there is reduced like the first.

It executes nothing: it yields schedules and is sent their outcomes (None if a run could not be made).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

from mat.core.errors import SpecError
from mat.core.run import Run
from mat.core.spec import Perturbation, Schedule
from mat_search.reactions import call_of, record_port
from mat_search.strategy import EdgeOutcome
from mat_search.vocabulary import Point, Vocabulary, first_ask, port_of, reached

Steps: TypeAlias = Generator[Schedule, EdgeOutcome | None, None]
_Found: TypeAlias = tuple[Schedule, EdgeOutcome]
_Trial: TypeAlias = Generator[Schedule, EdgeOutcome | None, EdgeOutcome | None]
_Reducing: TypeAlias = Generator[Schedule, EdgeOutcome | None, _Found]

_REMOVALS: Final = 250
"""Executions that removing takes at most."""
_LOWERINGS: Final = 80
"""Executions that cheaper points may take, whatever removing has left."""
_MOVES: Final = 60
"""Executions that each exchange or move may take."""
_KINDS: Final = 4
"""How many points, the cheapest first, take the place of a range."""
_ALIGNMENTS: Final = 2
"""How often a schedule that does not fail is tried again with the numbers that its calls had."""
_NEVER: Final = 1 << 60


class Reduction:
    """One reduction, which keeps one of the contracts `wanted` broken. `minimal`: the reduced schedules, as far as it came."""

    def __init__(
        self, vocabulary: Vocabulary, *, budget: int, wanted: frozenset[str], nearness: Callable[[Run], int], stream: Random
    ) -> None:
        self._vocabulary, self._budget, self._wanted = vocabulary, budget, wanted
        self._nearness, self._stream = nearness, stream
        self._refuted: set[Schedule] = set()
        self._passed: Run | None = None  # the run of the last schedule that was tried, if it did not fail
        self._left = 0
        self.minimal: list[Schedule] = []

    def steps(self, schedule: Schedule, outcome: EdgeOutcome) -> Steps:
        self._left = _REMOVALS
        found = yield from self._remove((schedule, outcome))
        self._left = max(self._left, _LOWERINGS)
        found = yield from self._lower(found)
        self._keep(found)
        if found[0].cost > self._budget or len(found[0]) < 2:
            return
        self._left = _MOVES
        found = yield from self._exchange(found)
        self._left = _MOVES
        while (better := (yield from self._move(found))) is not None:
            found, self._left = better, max(self._left, _MOVES)
            self._keep(found)

    def _keep(self, found: _Found) -> None:
        if found[0] not in self.minimal:
            self.minimal.append(found[0])

    def _try(self, schedule: Schedule) -> _Trial:
        """The outcome if the schedule still fails; None if not, if that is known, and if no executions are left."""
        self._passed = None
        if schedule in self._refuted or self._left <= 0 or not len(schedule):
            return None
        self._left -= 1
        outcome = yield schedule
        if outcome is None or not outcome.broken & self._wanted:
            self._refuted.add(schedule)
            self._passed = None if outcome is None else outcome.run
            return None
        return outcome

    # -- removing ---------------------------------------------------------------------------------------------------

    def _remove(self, found: _Found) -> _Reducing:
        schedule, outcome = found
        before = self._before_violation(schedule, outcome)
        if before != schedule:
            again = yield from self._try(before)
            if again is not None:
                schedule, outcome = reached(before, again.run), again
        parts = 2
        while len(schedule) > 1 and self._left > 0:
            items = _in_order(schedule, outcome.run)
            size = -(-len(items) // parts)
            smaller = yield from self._without_one_of(items, size, outcome.run)
            if smaller is not None:
                schedule, outcome = smaller
                parts = max(2, parts - 1)
            elif size == 1:
                break
            else:
                parts = min(len(items), 2 * parts)
        if schedule != outcome.run.spec.schedule:  # as it will be reported: without what is not reached
            again = yield from self._try(schedule)
            outcome = outcome if again is None else again
        return schedule, outcome

    def _before_violation(self, schedule: Schedule, outcome: EdgeOutcome) -> Schedule:
        run, steps = outcome.run, _step_by_site(outcome.run)
        broken = [each.step for each in run.failures if each.contract in outcome.broken]
        last = max(broken, default=_NEVER)
        return Schedule(tuple(item for item in reached(schedule, run) if steps.get(first_ask(item), _NEVER) <= last))

    def _without_one_of(
        self, items: Sequence[Perturbation], size: int, run: Run
    ) -> Generator[Schedule, EdgeOutcome | None, _Found | None]:
        """What fails without one of the chunks of this size; the last chunk is left out first."""
        for start in reversed(range(0, len(items), size)):
            gone, kept = items[start : start + size], [*items[:start], *items[start + size :]]
            for candidate in (_renumbered(kept, gone, run), Schedule(tuple(kept))):
                found = None if candidate is None else (yield from self._try_aligned(candidate, kept, run))
                if found is not None:
                    return found
        return None

    def _try_aligned(
        self, candidate: Schedule, kept: Sequence[Perturbation], run: Run
    ) -> Generator[Schedule, EdgeOutcome | None, _Found | None]:
        """The candidate if it fails; or else what is kept of the schedule of `run`, at the calls that had it there."""
        for _ in range(1 + _ALIGNMENTS):
            outcome = yield from self._try(candidate)
            if outcome is not None:
                return reached(candidate, outcome.run), outcome
            aligned = None if self._passed is None else _aligned(kept, run, self._passed)
            if aligned is None or aligned == candidate:
                return None
            candidate = aligned
        return None

    # -- cheaper points ---------------------------------------------------------------------------------------------

    def _lower(self, found: _Found) -> _Reducing:
        while (cheaper := (yield from self._one_cheaper(found))) is not None:
            found = yield from self._remove(cheaper)
        return found

    def _one_cheaper(self, found: _Found) -> Generator[Schedule, EdgeOutcome | None, _Found | None]:
        schedule, outcome = found
        run = outcome.run
        for item in sorted(schedule, key=lambda each: (-each.cost, each.key)):
            port = port_of(item)
            points = [point for point in self._vocabulary.points_at(port) if point.cost < item.cost]
            points.sort(key=lambda each: (each.cost, each.operator != item.operator))
            for point in points:
                candidate = _changed(schedule, {item: point.at(port, item.site.nth)})
                again = None if candidate is None else (yield from self._try(candidate))
                if candidate is not None and again is not None:
                    return reached(candidate, again.run), again
            cheaper = (yield from self._one_by_one(schedule, item, points, run)) if item.site.last > item.site.nth else None
            if cheaper is not None:
                return cheaper
        return None

    def _one_by_one(
        self, schedule: Schedule, item: Perturbation, points: Sequence[Point], run: Run
    ) -> Generator[Schedule, EdgeOutcome | None, _Found | None]:
        """Something cheaper that has, in place of a range, another perturbation at some of the calls that it covered."""
        port, rest = port_of(item), [each for each in schedule if each is not item]
        asks = [nth for nth in _asks(run, port) if item.site.nth <= nth <= item.site.last]
        for point in [each for each in points if each.span == 1][:_KINDS]:
            candidate = Schedule((*rest, *(point.at(port, nth) for nth in asks)))
            outcome = yield from self._try(candidate)
            if outcome is not None:
                cheaper = yield from self._remove((reached(candidate, outcome.run), outcome))
                if cheaper[0].cost < schedule.cost:
                    return cheaper
        return None

    def _exchange(self, found: _Found) -> _Reducing:
        while (cheaper := (yield from self._one_exchange(found[0]))) is not None:
            found = cheaper
            self._keep(found)
        return found

    def _one_exchange(self, schedule: Schedule) -> Generator[Schedule, EdgeOutcome | None, _Found | None]:
        for item in schedule:
            mine = self._vocabulary.points.get(port_of(item), {}).get(item.operator, [])
            for stronger in (point for point in mine if point.cost > item.cost):
                for other in schedule:
                    most = item.cost + other.cost - stronger.cost
                    weaker = [point for point in self._vocabulary.points_at(port_of(other)) if point.cost < most]
                    for point in weaker if other != item else ():
                        candidate = _changed(
                            schedule,
                            {
                                item: stronger.at(port_of(item), item.site.nth),
                                other: point.at(port_of(other), other.site.nth),
                            },
                        )
                        outcome = None if candidate is None else (yield from self._try(candidate))
                        if candidate is not None and outcome is not None:
                            return reached(candidate, outcome.run), outcome
        return None

    # -- other calls ------------------------------------------------------------------------------------------------

    def _move(self, found: _Found) -> Generator[Schedule, EdgeOutcome | None, _Found | None]:
        """A cheaper schedule that a move leads to. A move is reduced if it came nearer, or if no margin can say so."""
        schedule, outcome = found
        nearness = self._nearness(outcome.run)
        moved = [
            _changed(schedule, {item: _at(item, nth)})
            for item in schedule
            for nth in range(1, self._vocabulary.asks.get(port_of(item), 0) + 1)
            if nth != item.site.nth
        ]
        candidates = [each for each in moved if each is not None]
        self._stream.shuffle(candidates)
        for candidate in candidates:
            again = yield from self._try(candidate)
            if again is None or (outcome.run.margins and self._nearness(again.run) >= nearness):
                continue
            self._left += 10
            smaller = yield from self._remove((reached(candidate, again.run), again))
            smaller = yield from self._lower(smaller)
            if smaller[0].cost < schedule.cost:
                return smaller
        return None


def _at(item: Perturbation, nth: int) -> Perturbation:
    span = item.site.last - item.site.nth
    return replace(item, site=replace(item.site, nth=nth, last=nth + span))


def _changed(schedule: Schedule, changes: dict[Perturbation, Perturbation]) -> Schedule | None:
    """The schedule with some perturbations replaced; None if two of them meet."""
    try:
        return Schedule(tuple(changes.get(item, item) for item in schedule))
    except SpecError:
        return None


def _step_by_site(run: Run) -> dict[str, int]:
    return {record.site: record.step for record in run.records}


def _asks(run: Run, port: str) -> list[int]:
    """The numbers of the calls that a run made of a port."""
    return [
        int(record.site.rpartition("#")[2]) for record in run.records if record.action.boundary and record_port(record) == port
    ]


def _calls(run: Run) -> Iterator[tuple[tuple[int, int], str]]:
    """The calls of a run: a number for its port and arguments, how many like it came before, and its site."""
    counts: Counter[int] = Counter()
    for record in run.records:
        if record.action.boundary:
            call = call_of(record)
            yield (call, counts[call]), record.site
            counts[call] += 1


def _aligned(kept: Sequence[Perturbation], run: Run, other: Run) -> Schedule | None:
    """What is kept of a run's schedule, at the calls of another run that have the same port and arguments, one by one.

    What has no such call is left out, what is at no call stays. None if nothing is left, or two would meet.
    """
    called = {site: call for call, site in _calls(run)}
    numbers = {call: int(site.rpartition("#")[2]) for call, site in _calls(other)}
    found = []
    for item in kept:
        call = called.get(first_ask(item))
        nth = item.site.nth if call is None else numbers.get(call)
        found += [] if nth is None else [_at(item, nth)]
    try:
        return Schedule(tuple(found)) if found else None
    except SpecError:
        return None


def _in_order(schedule: Schedule, run: Run) -> list[Perturbation]:
    """The perturbations in the order in which their calls are asked."""
    steps = _step_by_site(run)
    return sorted(schedule, key=lambda item: (steps.get(first_ask(item), _NEVER), item.key))


def _renumbered(kept: Sequence[Perturbation], gone: Sequence[Perturbation], run: Run) -> Schedule | None:
    """What is kept, with the calls renumbered as if each retry of a call that is no longer disturbed were missing.

    A retry is a call of the same port with the same arguments right after it. None if there is none.
    """
    arguments = {record.site: record.action.arguments for record in run.records if record.action.boundary}
    missing: dict[str, list[int]] = {}
    for item in gone:
        port, nth = port_of(item), item.site.nth
        here, after = arguments.get(f"{port}#{nth}"), arguments.get(f"{port}#{nth + 1}")
        if here is not None and here == after:
            missing.setdefault(port, []).append(nth + 1)
    if not missing:
        return None
    found = []
    for item in kept:
        lost = missing.get(port_of(item), ())
        if item.site.nth not in lost:
            found.append(_at(item, item.site.nth - sum(nth < item.site.nth for nth in lost)))
    try:
        return Schedule(tuple(found)) if found else None
    except SpecError:
        return None
