"""Clocks of a run: virtual time, which moves only when code sleeps, or the machine's time since the start of the run."""

from __future__ import annotations

import math
import time
from typing import Final, Protocol

from mat.core.waits import EPOCH_S as EPOCH_S

real_sleep: Final = time.sleep
real_monotonic: Final = time.monotonic
real_monotonic_ns: Final = time.monotonic_ns
real_perf_counter: Final = time.perf_counter
real_perf_counter_ns: Final = time.perf_counter_ns


class Clock(Protocol):
    """The clock that a run needs. Times count from the start of the run. `at_ns` is `now_ns()` as an attribute."""

    @property
    def virtual(self) -> bool: ...
    @property
    def at_ns(self) -> int: ...
    def now_ns(self) -> int: ...
    def sleep(self, seconds: float) -> None: ...


def now_ms(clock: Clock) -> int:
    return clock.now_ns() // 1_000_000


class VirtualClock:
    """A clock that jumps.

    `at_ns` is a plain attribute, because the recorder reads the time twice at every step and it has rarely changed.
    """

    __slots__ = ("at_ns",)

    @property
    def virtual(self) -> bool:
        return True

    def __init__(self) -> None:
        self.at_ns = 0

    def now_ns(self) -> int:
        return self.at_ns

    def sleep(self, seconds: float) -> None:
        """Advance the clock, rounded up to a nanosecond, so that a timer for the end of the sleep is due."""
        if seconds < 0 or math.isnan(seconds):
            raise ValueError("sleep length must be non-negative")
        self.at_ns += math.ceil(seconds * 1e9)


class RealClock:
    """The machine's monotonic clock."""

    __slots__ = ("_start_ns",)

    @property
    def virtual(self) -> bool:
        return False

    def __init__(self) -> None:
        self._start_ns = real_monotonic_ns()

    @property
    def at_ns(self) -> int:
        return real_monotonic_ns() - self._start_ns

    def now_ns(self) -> int:
        return self.at_ns

    def sleep(self, seconds: float) -> None:
        real_sleep(seconds)
