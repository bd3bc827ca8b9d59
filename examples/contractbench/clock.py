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
    """The clock of the run in progress, which jumps where nobody has anything to do."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def now(self) -> float:
        return round(time.monotonic() - self._start, 3)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that only sleeping moves: for a server at the other end of a socket, where a run cannot decide about time."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return round(self._now, 3)

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
