"""Jobs of executors whose threads a run did not start take turns as its own threads do."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mat.kernel.members import Member

if TYPE_CHECKING:
    from mat.kernel.threads import Scheduler


class Guests:
    """Jobs of an executor whose threads the run did not start: as many at a time as it has threads, in the order submitted."""

    __slots__ = ("_queue", "_scheduler", "_size", "active", "executor")

    def __init__(self, scheduler: Scheduler, executor: Any) -> None:
        self._scheduler, self.executor = scheduler, executor
        self._size = int(getattr(executor, "_max_workers", 1))
        self._queue: deque[Member] = deque()
        self.active = 0

    def admit(self) -> Member:
        scheduler = self._scheduler
        with scheduler._mutex:
            member = scheduler._member(f"job {scheduler._count + 1} of an executor")
            self._queue.append(member)
            self._promote()
            return member

    def _promote(self) -> None:
        while self._queue and self.active < self._size:
            self.active += 1
            self._scheduler._ready.append(self._queue.popleft())

    def end(self, member: Member) -> None:
        """The job has told its future. Also for one that was cancelled before it began."""
        scheduler = self._scheduler
        with scheduler._mutex:
            if member.finished:
                return
            if member in self._queue:
                self._queue.remove(member)
                member.finished = True
                return
            self.active -= 1
            self._promote()
            if member in scheduler._ready:
                scheduler._ready.remove(member)
                member.finished = True
                return
        scheduler.leave(member)
