"""Schedule the threads of a run in turns: one runs at a time, until it blocks or ends, and the scheduler picks the next.

A thread that blocks on a lock, a condition, an event, a queue, a future, a join or a sleep hands over to the thread that has
been ready longest. If no thread is ready, virtual time jumps to the earliest deadline. If there is no deadline either, the
scheduler reports a deadlock. So a run with threads is a function of its spec, like any other.

A thread that blocks without handing over (in a lock of a C extension, or a read from a pipe) is noticed after a grace of real
time. The others go on without it, and the run notes that its order is not controlled. The same applies to a thread that
computes for long while others are ready. A thread that polls (the clock, an event, a future, `sleep(0)`) lets run time pass
after a number of polls; its order stays controlled. Jobs of an executor that started its threads outside the run take turns.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mat.core import limits
from mat.core.errors import RunStopped
from mat.kernel import clock as clocks
from mat.kernel import probe
from mat.kernel.foreign import ForeignThreads, Lasting
from mat.kernel.jobs import ExecutorJobs
from mat.kernel.threads import ExternalWaker, HeldCall, SchedulerHost, SimulatedThread, real_rlock

_SLICE_S: Final = 0.02
"""Real seconds between two checks for something outside the run."""
_PACE_S: Final = 0.05
"""Real seconds between jumps of time while a thread that was left behind may come back."""


class Scheduler:
    """The scheduler of one world's threads. Only the thread with the turn calls its methods; any thread may call `wake`."""

    def __init__(self, world: SchedulerHost) -> None:
        self._world = world
        self._mutex = real_rlock()
        self._count = 0
        self._order = 0
        self.owner = self._new_thread("main", threading.get_ident())
        self.threads: dict[int, SimulatedThread] = {self.owner.ident: self.owner}
        self._running: SimulatedThread | None = self.owner
        self._ready: deque[SimulatedThread] = deque()
        self._waiting: list[SimulatedThread] = []
        self._jobs: dict[int, ExecutorJobs] = {}
        self.held: list[HeldCall] = []
        self.foreign = ForeignThreads()
        self._switches = 0
        self._quiet, self._holding = Lasting(), Lasting()
        self._stop_requested = self._idling = self._busy = False
        self._late_wakes: deque[tuple[Any, int | None]] = deque()
        self._left_behind: list[SimulatedThread] = []
        self._waiting_in_real_time = 0
        self._left_behind_at = self._jumped_at = 0.0
        self.over = False

    # -- identity ---------------------------------------------------------------------------------------------------

    def _new_thread(self, name: str, ident: int = 0) -> SimulatedThread:
        self._count += 1
        return SimulatedThread(name, self._count, ident)

    def me(self) -> SimulatedThread | None:
        """The calling thread, if it takes turns in this world."""
        return self.threads.get(threading.get_ident())

    @property
    def alone(self) -> bool:
        """Whether the owner is the only thread."""
        return len(self.threads) == 1 and not self._ready and not self._waiting

    def others_ready(self) -> bool:
        return bool(self._ready)

    def waits_for_real(self) -> bool:
        """Whether the caller waits in real time: in set-up while foreign threads are alive, and after the run."""
        return self.over or (not self._world.guarded and self.foreign.alive())

    def deadline_ns(self, seconds: float) -> int | None:
        """The run time that is this many seconds ahead; None (never) if negative."""
        return None if seconds < 0 else self._world.clock.at_ns + math.ceil(seconds * 1e9)

    # -- blocking and waking ----------------------------------------------------------------------------------------

    def block(self, thread: SimulatedThread, key: Any, deadline_ns: int | None, outside: ExternalWaker | None = None) -> bool:
        """Hand over until `key` is woken (returns True) or the deadline has come (False). RunStopped if the run has ended."""
        thread.polls = 0
        return self._block(thread, key, deadline_ns, outside)

    def _block(self, thread: SimulatedThread, key: Any, deadline_ns: int | None, outside: ExternalWaker | None) -> bool:
        with self._mutex:
            thread.key, thread.deadline_ns, thread.outside, thread.timed_out = key, deadline_ns, outside, False
            self._order += 1
            thread.order = self._order
            self._waiting.append(thread)
            self._hand_over(thread)
        self._take_turn(thread)
        return not thread.timed_out

    def polled(
        self, thread: SimulatedThread, weight: int = 1, limit_ns: int | None = None, outside: ExternalWaker | None = None
    ) -> bool:
        """Note a poll; after `limits.POLLS` of them without a wait, each further one lets run time pass.

        Time advances by 1 ms or by a thousandth of the time spent polling, and not beyond `limit_ns`. Returns whether it did.
        """
        thread.polls += weight
        if thread.polls < limits.POLLS or self.over or not self._world.guarded:
            return False
        now_ns = self._world.clock.at_ns
        if thread.polls - weight < limits.POLLS:
            thread.polled_ns = now_ns
            self._world.note("busy-wait", f"{thread.name} keeps polling at {probe.where(thread.ident)} without waiting")
        until_ns = now_ns + max(1_000_000, (now_ns - thread.polled_ns) // 1000)
        self._block(thread, outside, until_ns if limit_ns is None else min(until_ns, max(limit_ns, now_ns)), outside)
        return True

    def rest(self, thread: SimulatedThread) -> None:
        """Let all ready threads go first, once."""
        with self._mutex:
            if not self._ready:
                return
            self._ready.append(thread)
            self._hand_over(thread)
        self._take_turn(thread)

    def _hand_over(self, thread: SimulatedThread) -> None:
        if self._left_behind and thread in self._left_behind:  # it is back, and waits for its turn again
            self._left_behind.remove(thread)
        try:
            self._release(thread)
        except BaseException:  # interrupted while it waited for something outside
            self._forget(thread)
            raise

    def wake(self, key: Any, most: int | None = None) -> int:
        """Make threads that wait for `key` ready, at most `most`, in the order in which they began to wait; return how many."""
        with self._mutex:
            if self._busy:  # a finalizer or a signal handler interrupted this method
                self._late_wakes.append((key, most))
                return 0
            self._busy = True
            try:
                found = [thread for thread in self._waiting if thread.key is key][:most]
                for thread in found:
                    self._make_ready(thread)
            finally:
                self._busy = False
            if found and self._running is None and not self._idling:
                self._next()
            while self._late_wakes:
                self.wake(*self._late_wakes.popleft())
            return len(found)

    def _make_ready(self, thread: SimulatedThread, *, first: bool = False) -> None:
        if thread not in self._waiting:
            return
        self._waiting.remove(thread)
        thread.key = thread.deadline_ns = thread.outside = None
        if first:
            self._ready.appendleft(thread)
        else:
            self._ready.append(thread)

    def _release(self, thread: SimulatedThread) -> None:
        """Give the turn away, if this thread has it."""
        if self._running is thread:
            self._running = None
            self._next()
        elif self._running is None:
            self._next()

    def _next(self) -> None:
        """Give the turn, which must be free, to the thread that has been ready longest."""
        if not self._ready:
            self._idling = True
            try:
                self._idle()
            finally:
                self._idling = False
        if self._ready:
            self._running = thread = self._ready.popleft()
            self._switches += 1
            thread.turn_lock.release()

    def _take_turn(self, thread: SimulatedThread) -> None:
        """Wait for the turn. If the thread that has the turn makes no progress, leave it behind."""
        try:
            while not thread.turn_lock.acquire(timeout=self._patience_s(thread)):
                if self._running is None:
                    self._poll()
                else:
                    self._leave_behind()
        except BaseException:  # an interrupt: the run is being torn down, and this thread goes on without the turn
            with self._mutex:
                self._forget(thread)
                thread.turn_lock.acquire(blocking=False)  # it may have just got its turn
            raise
        if thread.stop:
            reason, thread.stop = thread.stop, ""
            raise RunStopped(reason)

    def _patience_s(self, thread: SimulatedThread) -> float:
        """Real seconds until a waiting thread checks again: few if nobody has the turn, so that the run waits for outside."""
        looks = self._running is None and next(reversed(self._waiting), None) is thread
        return 0.001 if looks else limits.BLOCKED_S

    def _forget(self, thread: SimulatedThread) -> None:
        if thread in self._waiting:
            self._waiting.remove(thread)
        if thread in self._ready:
            self._ready.remove(thread)
        if self._running is not None and self._running.finished:
            self._running = None

    # -- nobody can run ---------------------------------------------------------------------------------------------

    def _idle(self) -> None:
        """Release a held call; if there is none, jump to the next deadline; if there is none either, report a deadlock.

        This checks once for something outside the run. A waiting thread repeats the check (`_take_turn`).
        """
        while not self._ready and not self.over:
            if self.held:
                self.held.pop(0).release()
                continue
            listening = [thread for thread in self._waiting if thread.outside is not None and thread.outside.listens()]
            timed = [thread for thread in self._waiting if thread.deadline_ns is not None]
            due = min(timed, key=lambda thread: (thread.deadline_ns, thread.order), default=None)
            if listening or self.foreign.children_alive():
                self._listen(listening, due)
                return
            if due is not None:
                if not (self._may_jump() and self._may_time_out(due)):
                    return
                self._jump(due)
            elif not self._is_deadlock():
                return
            else:
                self._world.note(
                    "deadlock", f"all tasks and threads wait, and nothing can wake them: {'; '.join(self.describe())}"
                )
                self._stop("deadlock")
            if self._stop_requested:
                return

    def _may_jump(self) -> bool:
        """Whether time may jump now. Jumps are slow after a thread was left behind, and while one waits in real time."""
        now = clocks.real_monotonic() if self._left_behind or self._waiting_in_real_time else 0.0
        slowly = self._waiting_in_real_time or (self._left_behind and now - self._left_behind_at < limits.THREAD_GRACE_S)
        if slowly and now - self._jumped_at < _PACE_S:
            return False
        self._jumped_at = now
        return True

    def _may_time_out(self, due: SimulatedThread) -> bool:
        """Whether a wait may time out. Foreign threads first get some real time to end the wait."""
        if due.key is None or not self._world.guarded or not self.foreign.alive():
            return True
        polled = due.polls >= limits.POLLS
        waited_s = self.foreign.real_time_s(self._switches, idle_is_enough=due.outside is not None, polled=polled)
        if waited_s < limits.FOREIGN_S:
            return False
        if waited_s < math.inf:
            self._world.note("foreign-threads", "a wait timed out in virtual time while threads outside the run use real time")
        return True

    def _listen(self, listening: list[SimulatedThread], due: SimulatedThread | None) -> None:
        """Wait for a descriptor or a child process; run time advances by the real time of the wait."""
        self._world.note("real-clock", "the loop waits for a descriptor or a process that virtual time does not control")
        began = clocks.real_monotonic()
        for thread in listening:
            assert thread.outside is not None
            if thread.outside.look(_SLICE_S):
                self._make_ready(thread)
                return
        if not listening:
            probe.pause(_SLICE_S / 4)
        now_ns = self._world.clock.at_ns + int((clocks.real_monotonic() - began) * 1e9)
        if due is not None and due.deadline_ns is not None and due.deadline_ns <= now_ns:
            self._jump(due)
        elif not self._world.jump(now_ns):
            self._stop("horizon")

    def _jump(self, due: SimulatedThread) -> None:
        assert due.deadline_ns is not None
        if due.deadline_ns > self._world.clock.at_ns and not self._world.jump(due.deadline_ns):
            self._stop("horizon")
            return
        for thread in sorted(self._waiting, key=lambda item: item.order):
            if thread.deadline_ns is not None and thread.deadline_ns <= self._world.clock.at_ns:
                self._make_ready(thread)
                thread.timed_out = True

    def _is_deadlock(self) -> bool:
        """Whether the idle run is deadlocked. If something outside may still wake a thread, only after a grace of real time."""
        if not self._world.guarded:  # set-up and tear-down belong to no run: what they wait for is real
            return False
        if any(probe.waits_outside(thread.ident) for thread in self._left_behind):
            return False
        if not (self._left_behind or self.foreign.alive() or any(jobs.active for jobs in self._jobs.values())):
            return True
        return self._quiet.seconds(clocks.real_monotonic(), self._switches) > limits.THREAD_GRACE_S

    def _stop(self, reason: str) -> None:
        """End the run: the owner gets RunStopped in its current wait or its next one."""
        self._world.stopped(reason)
        self.owner.stop = reason
        if self.owner in self._waiting:
            self._make_ready(self.owner, first=True)
        else:
            self._stop_requested = True

    def _poll(self) -> None:
        """Give the turn to the next thread if nobody has it; called after waiting for something outside."""
        with self._mutex:
            if self._running is None:
                self._next()

    def _leave_behind(self) -> None:
        """Go on without the running thread if it is blocked, or if it computes for long while others could go on.

        If nobody else could go on, a thread that waits for something outside keeps the turn. Any other blocked thread does
        not: it may be part of a deadlock.
        """
        running, seen = self._running, self._switches
        if running is None or running.ident == 0:
            return
        before = probe.progress(running.ident, running.native)
        probe.pause(limits.BLOCKED_S)
        with self._mutex:
            after = probe.progress(running.ident, running.native)
            if self._switches != seen or before is None or after is None:
                return
            others = bool(self._ready or self.held or any(thread.deadline_ns is not None for thread in self._waiting))
            if after == before and not after[3]:
                if not others and probe.waits_outside(running.ident):
                    return
                why = "is blocked at {} by something that does not yield"
            elif others and self._computes_for_long(after[2]):
                why = f"computes at {{}} for more than {limits.SPIN_S:.0f} s without waiting"
            else:
                return
            if others:
                reason = why.format(probe.where(running.ident))
                self._world.note("order-not-controlled", f"{running.name} {reason}; other threads continue")
            self._left_behind.append(running)
            self._left_behind_at = clocks.real_monotonic()
            self._running = None
            self._next()

    def _computes_for_long(self, used: int) -> bool:
        """Whether the running thread has used `limits.SPIN_S` of processor time since the first check of its turn."""
        used_s = used / probe.TICKS if used else clocks.real_monotonic()  # the system does not report processor time
        return self._holding.seconds(used_s, self._switches) > limits.SPIN_S

    def describe(self) -> list[str]:
        """List who waits where: threads in the order in which they began to wait, and tasks of event loops."""
        found = []
        for thread in sorted(self._waiting, key=lambda item: item.order):
            tasks = [] if thread.outside is None else thread.outside.describe()
            found += tasks or [f"{thread.name} waits at {probe.where(thread.ident)}"]
        return found

    # -- threads ----------------------------------------------------------------------------------------------------

    def enlist(self, name: str) -> SimulatedThread:
        """Add a thread that is about to start: its turn comes after all that can run now."""
        with self._mutex:
            thread = self._new_thread(name)
            self._ready.append(thread)
            return thread

    def dismiss(self, thread: SimulatedThread) -> None:
        """Remove a thread that could not be started."""
        with self._mutex:
            if thread in self._ready:
                self._ready.remove(thread)

    def arrive(self, thread: SimulatedThread) -> None:
        """Register the calling thread as the enlisted one; returns at its first turn."""
        thread.ident, thread.native = threading.get_ident(), threading.get_native_id()
        with self._mutex:
            self.threads[thread.ident] = thread
        self._take_turn(thread)

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """Inside the block, the calling thread blocks for real and keeps its turn, for short waits such as a thread's start."""
        ident = threading.get_ident()
        thread = self.threads.pop(ident, None)
        try:
            yield
        finally:
            if thread is not None:
                self.threads[ident] = thread

    def wait_in_real_time(self, thread: SimulatedThread, wait: Callable[[float], Any], seconds: float | None) -> Any:
        """Wait in real time, in set-up or tear-down, while ready threads of the run go on; returns the last result of `wait`.

        `wait(timeout)` is called until its result is true or `seconds` have passed (None: no limit).
        """
        until = math.inf if seconds is None else clocks.real_monotonic() + seconds
        with self._mutex:
            self._waiting_in_real_time += 1
            if self._running is thread:
                self._running = None
        try:
            self._poll()
            while True:
                left = until - clocks.real_monotonic()
                found = wait(max(0.0, min(_PACE_S, left)))
                if found or left <= _PACE_S or self.over:
                    return found
                self._poll()
        finally:
            with self._mutex:
                self._waiting_in_real_time -= 1
                thread.stop = ""  # the reason belongs to a run that has ended
                if not self.over:
                    self._ready.append(thread)
                    if self._running is None:
                        self._next()
            if not self.over:
                self._take_turn(thread)

    def leave(self, thread: SimulatedThread) -> None:
        """Remove a thread that has ended, and wake the threads that wait for its end."""
        with self._mutex:
            if thread.finished:
                return
            thread.finished = True
            if thread in self._left_behind:
                self._left_behind.remove(thread)
            if self.threads.get(thread.ident) is thread:
                del self.threads[thread.ident]
            for waiting in [item for item in self._waiting if item.key is thread]:
                self._make_ready(waiting)
            self._release(thread)

    def admit_job(self, executor: Any) -> SimulatedThread:
        """Add a job for an executor whose threads do not belong to this run."""
        with self._mutex:
            jobs = self._jobs.get(id(executor))
            if jobs is None:
                jobs = self._jobs[id(executor)] = ExecutorJobs(executor)
            job = self._new_thread(f"job {self._count + 1} of an executor")
            self._ready += jobs.submit(job)
            return job

    def end_job(self, executor: Any, job: SimulatedThread) -> None:
        """End a job whose future is done, or that was cancelled before it began."""
        with self._mutex:
            jobs = self._jobs.get(id(executor))
            if job.finished or jobs is None:
                return
            if jobs.withdraw(job):
                job.finished = True
                return
            self._ready += jobs.end()
            if job in self._ready:
                self._ready.remove(job)
                job.finished = True
                return
        self.leave(job)

    # -- who goes first ---------------------------------------------------------------------------------------------

    def call_ended(self) -> None:
        """Count a call that has ended, and release the held calls that have waited for enough of them."""
        for held in list(self.held):
            held.ended += 1
            held.left -= 1
            if held.left <= 0:
                self.held.remove(held)
                held.release()

    def hold(self, thread: SimulatedThread, turns: int) -> int:
        """Hold a thread until `turns` calls of others have ended or nobody else can run; return how many ended."""
        if not self._ready:
            return 0
        held = HeldCall(turns, lambda: self.wake(held))
        self.held.append(held)
        self.block(thread, held, None)
        return held.ended

    # -- the end ----------------------------------------------------------------------------------------------------

    def forked(self) -> None:
        """Adapt to a forked child process: only the thread that forked exists, and it has the turn."""
        self._mutex = real_rlock()
        thread = self.me() or self._new_thread("main", threading.get_ident())
        thread.native = threading.get_native_id()
        self.owner = self._running = thread
        self.threads = {thread.ident: thread}
        self._ready.clear()
        self._waiting.clear()
        self._jobs.clear()
        self.held.clear()
        self.foreign.forget()
        self._left_behind.clear()
        self._idling = self._busy = False

    def disband(self) -> None:
        """End the world's threads, except daemons and idle executor workers that wait without a deadline.

        Those go on waiting in real time, because they may serve the next run.
        """
        with self._mutex:
            self.over = True
            for thread in [*self._waiting, *self._ready]:
                if thread is not self.owner:
                    waits_on = thread.deadline_ns is None and thread in self._waiting
                    thread.ended = not (waits_on and (thread.may_outlive_run or probe.idles(thread.ident)))
                    thread.turn_lock.release()
            self._waiting.clear()
            self._ready.clear()
            self.threads.clear()
            self.held.clear()
