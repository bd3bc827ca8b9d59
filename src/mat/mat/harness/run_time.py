"""The time of a run, and its horizon."""

from __future__ import annotations

from mat.core.spec import RunSpec
from mat.kernel.clock import Clock


class RunTime:
    """The time of a run. `at_ms`, in milliseconds since its start, is computed only when the clock has moved.

    `end_step`: the horizon in steps; 0 when no further step may be taken.
    """

    __slots__ = ("_start_ns", "at_ms", "clock", "end_step", "ends_at_ns", "seen_ns")

    def __init__(self, clock: Clock, spec: RunSpec) -> None:
        self.clock = clock
        self._start_ns = self.seen_ns = clock.at_ns
        self.at_ms = 0
        self.end_step = spec.horizon_steps
        self.ends_at_ns = self._start_ns + spec.horizon_ms * 1_000_000

    def now_ms(self) -> int:
        """Milliseconds of run time since the run began."""
        if self.clock.at_ns != self.seen_ns:
            self.seen_ns = now_ns = self.clock.at_ns
            self.at_ms = (now_ns - self._start_ns) // 1_000_000
            if now_ns > self.ends_at_ns:
                self.end_step = 0
        return self.at_ms
