"""Foreign threads: threads outside a run that take no turns. Their time is real, and they may wake the run."""

from __future__ import annotations

import math
import threading

from mat.kernel import clock as clocks
from mat.kernel import probe


class Lasting:
    """How long a condition has lasted since it was first checked after the last hand-over. `switches` counts hand-overs."""

    __slots__ = ("_began_s", "_switches")

    def __init__(self) -> None:
        self._switches, self._began_s = -1, 0.0

    def seconds(self, now_s: float, switches: int) -> float:
        """Seconds since the first check; 0 at the first check after a hand-over."""
        if switches != self._switches:
            self._switches, self._began_s = switches, now_s
        return now_s - self._began_s


class ForeignThreads:
    """Threads that started before the run or in its set-up, and threads that wait for a child process."""

    __slots__ = ("_children", "_seen", "_threads", "_waiting")

    def __init__(self) -> None:
        self._threads = [thread for thread in threading.enumerate() if probe.may_wake(thread)]
        self._children: list[threading.Thread] = []
        self._waiting = Lasting()
        self._seen: list[object] = []

    def add(self, thread: threading.Thread) -> None:
        self._threads.append(thread)

    def add_child(self, thread: threading.Thread) -> None:
        """Add a thread in which an event loop waits for a child process."""
        self._children.append(thread)

    def forget(self) -> None:
        """Forget all threads; a forked child process has none of them."""
        self._threads.clear()
        self._children.clear()

    def alive(self) -> bool:
        """Whether a living thread from the set-up, a module or an earlier run may wake the run."""
        if self._threads:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
        return bool(self._threads)

    def children_alive(self) -> bool:
        """Whether an event loop waits for a child process in a thread of its own."""
        if self._children:
            self._children = [thread for thread in self._children if thread.is_alive()]
        return bool(self._children)

    def real_time_s(self, switches: int, *, idle_is_enough: bool, polled: bool) -> float:
        """Real seconds since the last hand-over, in which foreign threads could have woken the run.

        `idle_is_enough`: infinite if no foreign thread has made progress since the previous call. An event loop may just be
        sleeping, so it waits only for threads that work. `polled`: the caller has computed since the previous call, so the
        threads had their time to make progress already.
        """
        now_s = clocks.real_monotonic()
        before, self._seen = self._seen, [probe.progress(thread.ident or 0, thread.native_id or 0) for thread in self._threads]
        waited_s = self._waiting.seconds(now_s, switches)
        return math.inf if idle_is_enough and (polled or waited_s > 0) and before == self._seen else waited_s
