"""Locks that let another thread run instead of blocking if a scheduler decides whose turn it is; else as the lock they wrap.

Conditions, events, semaphores, barriers, queues and futures of the standard library are written in Python over these, so they
hand over too. A lock made in a run goes on working after it, and one made before a run can be adopted.
"""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any, Final

from mat.kernel.scheduler import Scheduler
from mat.kernel.threads import allocate_lock, real_rlock

schedulers: list[Scheduler] = []
"""The schedulers of the installed worlds, the inner one last."""
REAL_LOCK: Final = type(allocate_lock())
REAL_RLOCK: Final = type(real_rlock())
RealSimpleQueue: Final = queue.SimpleQueue


def scheduler() -> Scheduler | None:
    return schedulers[-1] if schedulers else None


def note_poll() -> None:
    """Note that the calling thread polled something without waiting."""
    turns = schedulers[-1] if schedulers else None
    me = None if turns is None else turns.me()
    if turns is not None and me is not None:
        turns.polled(me)


class Lock:
    """A mutual exclusion lock; `real` is the primitive that it holds."""

    __slots__ = ("__weakref__", "_real")

    def __init__(self, real: Any = None) -> None:
        self._real = allocate_lock() if real is None else real

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.Lock.acquire`; `timeout` is in seconds of run time."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        if self._real.acquire(False):
            return True
        if blocking:
            return self._wait(timeout)
        note_poll()
        return False

    def _wait(self, timeout: float) -> bool:
        turns = scheduler()
        me = None if turns is None else turns.me()
        if turns is None or me is None or turns.over:
            return bool(self._real.acquire(True, timeout))
        if turns.waits_for_real():
            return bool(
                turns.wait_in_real_time(me, lambda seconds: self._real.acquire(True, seconds), None if timeout < 0 else timeout)
            )
        deadline_ns = turns.deadline_ns(timeout)
        while turns.block(me, self, deadline_ns):
            if turns.over and me.ended:
                raise SystemExit
            if self._real.acquire(False):
                return True
            if turns.over:
                return bool(self._real.acquire(True, timeout))
        return bool(self._real.acquire(False))

    def release(self) -> None:
        self._real.release()
        if schedulers:
            schedulers[-1].wake(self, 1)

    def locked(self) -> bool:
        if self._real.acquire(False):
            self._real.release()
            return False
        return True

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._real._at_fork_reinit()

    def __repr__(self) -> str:
        return f"<{'locked' if self.locked() else 'unlocked'} {type(self).__name__} of a run>"


class AdoptedRLock(Lock):
    """A reentrant lock of the interpreter that was made before the run."""

    __slots__ = ()

    def locked(self) -> bool:
        return bool(self._real._is_owned()) or super().locked()

    def _is_owned(self) -> bool:
        return bool(self._real._is_owned())

    def _release_save(self) -> Any:
        saved = self._real._release_save()
        if schedulers:
            schedulers[-1].wake(self, 1)
        return saved

    def _acquire_restore(self, saved: Any) -> None:
        self.acquire()
        self._real.release()
        self._real._acquire_restore(saved)


def adopted(lock: Any) -> Any:
    """A lock from before the run, wrapped to hand over; None for anything else."""
    if type(lock) is REAL_LOCK:
        return Lock(lock)
    return AdoptedRLock(lock) if type(lock) is REAL_RLOCK else None


def new_lock() -> Any:
    """`threading.Lock()` while a world is in place."""
    turns = scheduler()
    return allocate_lock() if turns is None or turns.me() is None else Lock()


def new_rlock() -> Any:
    """`threading.RLock()`: the standard library's own in Python, whose inner lock hands over."""
    turns = scheduler()
    return real_rlock() if turns is None or turns.me() is None else threading._PyRLock()  # type: ignore[attr-defined]


def new_simple_queue() -> Any:
    """`queue.SimpleQueue()`: the one in C would block with its turn."""
    turns = scheduler()
    return RealSimpleQueue() if turns is None or turns.me() is None else queue._PySimpleQueue()  # type: ignore[attr-defined]


def join(thread: threading.Thread, real: Any, timeout: float | None) -> None:
    """`Thread.join` of a thread that takes turns."""
    turns, awaited = scheduler(), getattr(thread, "mat_simulated", None)
    me = None if turns is None else turns.me()
    if turns is not None and me is not None and awaited is None and turns.waits_for_real() and not turns.over:
        turns.wait_in_real_time(me, lambda seconds: (real(thread, seconds), not thread.is_alive())[1], timeout)
        return
    if turns is None or me is None or awaited is None or awaited is me or turns.over:
        real(thread, timeout)
        return
    deadline_ns = turns.deadline_ns(-1 if timeout is None else max(timeout, 0))
    while not awaited.finished and not turns.over:
        if not turns.block(me, awaited, deadline_ns):
            return
    if turns.over and me.ended:
        raise SystemExit
    real(thread, None if timeout is None or awaited.finished else timeout)
