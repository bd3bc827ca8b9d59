"""Schedules that are drawn without regard to any run: dense probes beyond the budget, and small ones within it.

A probe perturbs many calls at once, as in group testing: if it fails, some part of it fails, and a reduction finds a cheap one.
Density, operators, grid points and the window of calls are drawn anew for each, because faults mask each other: an agent that
stops at the first error hides what comes later. A probe contains no known way to fail: of each, one perturbation is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from mat.core.errors import SpecError
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat_search.vocabulary import Point, Vocabulary

_DENSITIES: Final = (4, 8, 16, 32, 48, 64)
"""How many of 64 calls a probe perturbs."""
_ATTEMPTS: Final = 200


def draw_probe(vocabulary: Vocabulary, stream: Random, known: Sequence[Schedule]) -> Schedule:
    """A dense schedule, of any cost. `known`: schedules that fail, which it must not contain."""
    ports = vocabulary.ports
    if not ports:
        return NO_SCHEDULE
    if stream.randrange(10) >= 7:
        ports = stream.sample(ports, min(len(ports), 1 + stream.randrange(2)))
    operators = _some_of(sorted({name for port in ports for name in vocabulary.points[port]}), stream)
    density = _DENSITIES[stream.randrange(len(_DENSITIES))]
    window = sorted(stream.randrange(65) for _ in range(2)) if stream.randrange(3) == 0 else (0, 64)
    choose = _Chooser(operators, stream)
    found: list[Perturbation] = []
    for port in ports:
        mine = [name for name in vocabulary.points[port] if name in operators]
        asks = vocabulary.asks[port]
        retries = asks if len(operators) <= 3 or density > 16 else 0
        free = 1
        for nth in range(1, asks + retries + 3) if mine else ():
            inside = window[0] * asks <= 64 * (nth - 1) <= window[1] * asks
            if nth >= free and inside and stream.randrange(64) < density:
                name = mine[stream.randrange(len(mine))]
                point = choose.point(vocabulary.points[port][name])
                found.append(point.at(port, nth))
                free = nth + point.span
    return _without(Schedule(tuple(found)), known, stream)


class _Chooser:
    """Chooses a grid point of each operator: one for all calls, mostly the last, or any."""

    def __init__(self, operators: Sequence[str], stream: Random) -> None:
        self._stream = stream
        self._way = stream.randrange(4)
        self._fixed = stream.randrange(1 << 20)

    def point(self, points: Sequence[Point]) -> Point:
        if self._way == 0:
            return points[self._fixed % len(points)]
        if self._way == 1 and self._stream.randrange(4):
            return points[-1]
        return points[self._stream.randrange(len(points))]


def _some_of(operators: list[str], stream: Random) -> list[str]:
    """All operators, one of them, or two or three."""
    way = stream.randrange(10)
    if way < 5:
        return operators
    count = 1 if way < 7 else 2 + stream.randrange(2)
    return stream.sample(operators, min(len(operators), count))


def _without(schedule: Schedule, known: Sequence[Schedule], stream: Random) -> Schedule:
    items = set(schedule)
    for failing in known:
        if len(failing) and items.issuperset(failing):
            items.discard(failing.perturbations[stream.randrange(len(failing))])
    return schedule if len(items) == len(schedule) else Schedule(tuple(items))


def draw_few(vocabulary: Vocabulary, stream: Random, limit: int) -> Schedule:
    """Two perturbations or three, at most at a cost of `limit`; fewer where no more fit."""
    kinds = [(port, name) for port in vocabulary.ports for name in vocabulary.points[port]]
    schedule = NO_SCHEDULE
    for _ in range(2 if stream.randrange(4) else 3) if kinds else ():
        port, name = kinds[stream.randrange(len(kinds))]
        points = vocabulary.points[port][name]
        point = points[-1] if stream.randrange(3) == 0 else points[stream.randrange(len(points))]
        nth = 1 + stream.randrange(vocabulary.asks[port])
        try:
            grown = schedule.add(point.at(port, nth))
        except SpecError:
            continue
        schedule = grown if grown.cost <= limit else schedule
    return schedule


class Untried:
    """The first of many draws that was not drawn before and has at least `least` perturbations."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._tried: set[Schedule] = set()

    def first(self, draws: Sequence[Schedule]) -> Schedule | None:
        for schedule in draws:
            if len(schedule) >= self._least and schedule not in self._tried:
                self._tried.add(schedule)
                return schedule
        return None
