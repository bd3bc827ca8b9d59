"""Executor jobs: jobs of executors whose threads the run did not start take turns like its own threads."""

from __future__ import annotations

from collections import deque
from typing import Any

from mat.kernel.threads import SimulatedThread


class ExecutorJobs:
    """The jobs of one executor, in the order submitted: as many take turns at a time as it has threads."""

    __slots__ = ("_active", "_executor", "_limit", "_queue")

    def __init__(self, executor: Any) -> None:
        self._executor = executor  # keeps the executor alive, because the scheduler identifies it by its id()
        self._limit = int(getattr(executor, "_max_workers", 1))
        self._queue: deque[SimulatedThread] = deque()
        self._active = 0

    @property
    def active(self) -> bool:
        return self._active > 0

    def submit(self, job: SimulatedThread) -> list[SimulatedThread]:
        """Add a job; returns the jobs that may begin now."""
        self._queue.append(job)
        return self._start_next()

    def withdraw(self, job: SimulatedThread) -> bool:
        """Withdraw a job; False if it has already begun."""
        if job not in self._queue:
            return False
        self._queue.remove(job)
        return True

    def end(self) -> list[SimulatedThread]:
        """End a job that had begun; returns the jobs that may begin now."""
        self._active -= 1
        return self._start_next()

    def _start_next(self) -> list[SimulatedThread]:
        started = []
        while self._queue and self._active < self._limit:
            self._active += 1
            started.append(self._queue.popleft())
        return started
