"""Virtual seconds: the same for a task's server and for the agent that talks to it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the episode began."""

    async def sleep(self, seconds: float) -> None: ...


class RunClock:
    """The clock of the current run, which jumps when every thread waits."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def now(self) -> float:
        return round(time.monotonic() - self._start, 3)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves only by sleeping: for a server behind a socket, which the clock of a run does not reach."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return round(self._now, 3)

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
