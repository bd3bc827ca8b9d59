"""Threads of a run take turns: one runs at a time, until it blocks or ends, and who comes next is decided here.

Blocking on a lock, a condition, an event, a queue, a future, a join or a sleep hands over to the thread that could go on
longest ago; when nobody can, virtual time jumps to the earliest deadline; when there is none either, that is a deadlock, and
it is named. So a run with threads is a function of its spec, like any other (L1).

A thread that blocks where no hand-over happens (a lock of a C extension, a read from a pipe) is noticed after a grace of real
time; the others go on beside it, and the run is marked: its order is not controlled. Threads that were not started in the
run are guests: jobs they take from an executor get their turns as members do.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

from mat.core import limits
from mat.core.errors import RunStopped
from mat.kernel import clock as clocks

allocate_lock: Final = threading._allocate_lock  # type: ignore[attr-defined]
"""The real primitive, whatever a world has put in its place."""
real_rlock: Final = threading.RLock
_SLICE_S: Final = 0.02
"""Real seconds between looks at what is outside the run."""


class Outside(Protocol):
    """What may wake a waiting thread from outside the run: an event loop with descriptors of its own."""

    def listens(self) -> bool: ...
    def look(self, seconds: float) -> bool:
        """Wait in real time, at most so long, for something to have come."""

    def describe(self) -> list[str]:
        """What waits there, a phrase each."""


class Member:
    """One thread of the run. `key`: what it waits for; `gate` opens when its turn comes."""

    __slots__ = (
        "at_gate",
        "deadline_ns",
        "finished",
        "gate",
        "ident",
        "key",
        "name",
        "number",
        "order",
        "outside",
        "stop",
        "timed_out",
    )

    def __init__(self, name: str, number: int, ident: int = 0) -> None:
        self.name, self.number, self.ident = name, number, ident
        self.gate = allocate_lock()
        self.gate.acquire()
        self.key: Any = None
        self.deadline_ns: int | None = None
        self.order = 0
        self.outside: Outside | None = None
        self.timed_out = False
        self.finished = False
        self.stop: str = ""


class Held:
    """A call that lets others go first: `release` lets it go on. `ended` counts the calls of others meanwhile."""

    __slots__ = ("ended", "left", "release")

    def __init__(self, turns: int, release: Callable[[], Any]) -> None:
        self.left, self.ended, self.release = turns, 0, release


class Surroundings(Protocol):
    """What the scheduler needs of its world. `guarded`: a run is open."""

    guarded: bool

    @property
    def clock(self) -> clocks.Clock: ...
    def note(self, code: str, message: str) -> None: ...
    def jump(self, to_ns: int) -> bool:
        """Move the clock; False where that leads beyond the horizon."""

    def stopped(self, reason: str) -> None: ...


class Scheduler:
    """The members of one world. Whoever holds the turn calls its methods; `wake` may be called by anybody."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._mutex = real_rlock()
        self._count = 0
        self._order = 0
        self.owner = self._member("main", threading.get_ident())
        self.members: dict[int, Member] = {self.owner.ident: self.owner}
        self._running: Member | None = self.owner
        self._ready: deque[Member] = deque()
        self._waiting: list[Member] = []
        self._guests: dict[int, _Guests] = {}
        self.held: list[Held] = []
        self.strangers: list[threading.Thread] = []
        self._switches = 0
        self._quiet_since: tuple[int, float] | None = None
        self._unattended = self._idling = False
        self._astray: list[Member] = []
        self.over = False

    # -- who is who -------------------------------------------------------------------------------------------------

    def _member(self, name: str, ident: int = 0) -> Member:
        self._count += 1
        return Member(name, self._count, ident)

    def me(self) -> Member | None:
        """The calling thread, where it is a member."""
        return self.members.get(threading.get_ident())

    @property
    def alone(self) -> bool:
        """Whether the owner is the only thread there is."""
        return len(self.members) == 1 and not self._ready and not self._waiting

    def others_ready(self) -> bool:
        return bool(self._ready)

    def waits_for_real(self) -> bool:
        """Whether what the caller blocks on is to be waited for in real time: in set-up, where other threads are at work."""
        return self.over or (not self._world.guarded and self.strangers_alive())

    def deadline_ns(self, seconds: float) -> int | None:
        """The run time that is so many seconds ahead; None where they are negative, for ever."""
        return None if seconds < 0 else self._world.clock.at_ns + math.ceil(seconds * 1e9)

    # -- blocking and waking ----------------------------------------------------------------------------------------

    def block(self, member: Member, key: Any, deadline_ns: int | None, outside: Outside | None = None) -> bool:
        """Hand over until `key` is woken (True) or the deadline has come (False). RunStopped where the run has ended."""
        with self._mutex:
            member.key, member.deadline_ns, member.outside, member.timed_out = key, deadline_ns, outside, False
            self._order += 1
            member.order = self._order
            self._waiting.append(member)
            self._hand_over(member)
        self._take_turn(member)
        return not member.timed_out

    def rest(self, member: Member) -> None:
        """Let those who can run go first, once."""
        with self._mutex:
            if not self._ready:
                return
            self._ready.append(member)
            self._hand_over(member)
        self._take_turn(member)

    def _hand_over(self, member: Member) -> None:
        if self._astray and member in self._astray:  # it has come back, and waits for its turn like others
            self._astray.remove(member)
        try:
            self._release(member)
        except BaseException:  # interrupted while it looked outside
            self._forget(member)
            raise

    def wake(self, key: Any, most: int | None = None) -> int:
        """Those who wait for `key` can go on, in the order in which they began to wait; how many."""
        with self._mutex:
            found = [member for member in self._waiting if member.key is key][:most]
            for member in found:
                self._make_ready(member)
            if found and self._running is None and not self._idling:
                self._next()
            return len(found)

    def _make_ready(self, member: Member, *, first: bool = False) -> None:
        self._waiting.remove(member)
        member.key = member.deadline_ns = member.outside = None
        if first:
            self._ready.appendleft(member)
        else:
            self._ready.append(member)

    def _release(self, member: Member) -> None:
        """Give the turn away, where it is this member's to give."""
        if self._running is member:
            self._running = None
            self._next()
        elif self._running is None:
            self._next()

    def _next(self) -> None:
        """The turn goes to who could go on longest ago; called with the turn free."""
        if not self._ready:
            self._idling = True
            try:
                self._idle()
            finally:
                self._idling = False
        if self._ready:
            self._running = member = self._ready.popleft()
            self._switches += 1
            member.gate.release()

    def _take_turn(self, member: Member) -> None:
        """Wait for the turn. Another thread that holds it and stands still is left behind."""
        try:
            while not member.gate.acquire(timeout=limits.BLOCKED_S):
                if self._running is None:
                    self._poll()
                else:
                    self._leave_behind()
        except BaseException:  # an interrupt: the run is being torn down, and this thread goes on whoever has the turn
            with self._mutex:
                self._forget(member)
            raise
        if member.stop:
            reason, member.stop = member.stop, ""
            raise RunStopped(reason)

    def _forget(self, member: Member) -> None:
        if member in self._waiting:
            self._waiting.remove(member)
        if member in self._ready:
            self._ready.remove(member)
        if self._running is not None and self._running.finished:
            self._running = None

    # -- nobody can run ---------------------------------------------------------------------------------------------

    def _idle(self) -> None:
        """Held calls go on, then time jumps to the next deadline, then nothing is left: a deadlock."""
        while not self._ready and not self.over:
            if self.held:
                self.held.pop(0).release()
                continue
            listening = [member for member in self._waiting if member.outside is not None and member.outside.listens()]
            timed = [member for member in self._waiting if member.deadline_ns is not None]
            due = min(timed, key=lambda member: (member.deadline_ns, member.order), default=None)
            if listening:
                self._listen(listening, due)
            elif due is not None:
                self._jump(due)
            elif not self._may_be_dead():
                return
            else:
                self._world.note("deadlock", f"everyone waits and nobody can be woken: {'; '.join(self.describe())}")
                self._stop("deadlock")
            if self._unattended:
                return

    def _listen(self, listening: list[Member], due: Member | None) -> None:
        """Beside a descriptor time runs as outside."""
        self._world.note("real-clock", "the loop waits for a descriptor that virtual time does not control")
        began = clocks.real_monotonic()
        for member in listening:
            assert member.outside is not None
            if member.outside.look(_SLICE_S):
                self._make_ready(member)
                return
        now_ns = self._world.clock.at_ns + int((clocks.real_monotonic() - began) * 1e9)
        if due is not None and due.deadline_ns is not None and due.deadline_ns <= now_ns:
            self._jump(due)
        elif not self._world.jump(now_ns):
            self._stop("horizon")

    def _jump(self, due: Member) -> None:
        assert due.deadline_ns is not None
        if due.deadline_ns > self._world.clock.at_ns and not self._world.jump(due.deadline_ns):
            self._stop("horizon")
            return
        for member in sorted(self._waiting, key=lambda item: item.order):
            if member.deadline_ns is not None and member.deadline_ns <= self._world.clock.at_ns:
                self._make_ready(member)
                member.timed_out = True

    def _may_be_dead(self) -> bool:
        """Nobody can run, and nothing of the run can wake anybody. What comes from outside gets a grace of real time."""
        if not self._world.guarded:  # set-up and tear-down belong to no run: what they wait for is real
            return False
        if not (self._astray or self.strangers_alive() or any(guests.active for guests in self._guests.values())):
            return True
        now = clocks.real_monotonic()
        if self._quiet_since is None or self._quiet_since[0] != self._switches:
            self._quiet_since = (self._switches, now)
        return now - self._quiet_since[1] > limits.THREAD_GRACE_S

    def strangers_alive(self) -> bool:
        """Whether threads live that were started around the run, in its set-up."""
        if self.strangers:
            self.strangers = [thread for thread in self.strangers if thread.is_alive()]
        return bool(self.strangers)

    def _stop(self, reason: str) -> None:
        """The run is over: its owner is told where it waits, or when it next does."""
        self._world.stopped(reason)
        self.owner.stop = reason
        if self.owner in self._waiting:
            self._make_ready(self.owner, first=True)
        else:
            self._unattended = True

    def _poll(self) -> None:
        """Nobody has the turn: something outside was waited for."""
        with self._mutex:
            if self._running is None:
                self._next()

    def _leave_behind(self) -> None:
        """Go on without a thread that stands in one place and computes nothing: what blocks it hands nothing over."""
        running, seen = self._running, self._switches
        if running is None or running.ident == 0:
            return
        before = _progress(running.ident)
        _pause(limits.BLOCKED_S)
        with self._mutex:
            if self._switches != seen or before is None or _progress(running.ident) != before:
                return
            self._world.note(
                "order-not-controlled",
                f"{running.name} is blocked at {_where(running.ident)} by something that hands nothing over; others go on",
            )
            self._astray.append(running)
            self._running = None
            self._next()

    def describe(self) -> list[str]:
        """Who waits where, threads in the order in which they began to wait, and tasks of event loops."""
        found = []
        for member in sorted(self._waiting, key=lambda item: item.order):
            tasks = [] if member.outside is None else member.outside.describe()
            found += tasks or [f"{member.name} waits at {_where(member.ident)}"]
        return found

    # -- threads ----------------------------------------------------------------------------------------------------

    def enlist(self, name: str) -> Member:
        """A member that is about to come: its turn is after all who can run now."""
        with self._mutex:
            member = self._member(name)
            self._ready.append(member)
            return member

    def dismiss(self, member: Member) -> None:
        """A thread that could not be started."""
        with self._mutex:
            if member in self._ready:
                self._ready.remove(member)

    def arrive(self, member: Member) -> None:
        """The calling thread is that member from now on; returns at its first turn."""
        member.ident = threading.get_ident()
        with self._mutex:
            self.members[member.ident] = member
        self._take_turn(member)

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """Inside, the calling thread blocks for real, and keeps its turn: for what takes no time, such as a thread's start."""
        ident = threading.get_ident()
        member = self.members.pop(ident, None)
        try:
            yield
        finally:
            if member is not None:
                self.members[ident] = member

    def leave(self, member: Member) -> None:
        """The member has ended; those who wait for its end can go on."""
        with self._mutex:
            if member.finished:
                return
            member.finished = True
            if member in self._astray:
                self._astray.remove(member)
            if self.members.get(member.ident) is member:
                del self.members[member.ident]
            for waiting in [item for item in self._waiting if item.key is member]:
                self._make_ready(waiting)
            self._release(member)

    def guests(self, executor: Any) -> _Guests:
        """The jobs of an executor whose threads are not of this run."""
        found = self._guests.get(id(executor))
        if found is None:
            found = self._guests[id(executor)] = _Guests(self, executor)
        return found

    # -- who goes first ---------------------------------------------------------------------------------------------

    def call_ended(self) -> None:
        """A call of somebody has ended; those held for it may go on."""
        for held in list(self.held):
            held.ended += 1
            held.left -= 1
            if held.left <= 0:
                self.held.remove(held)
                held.release()

    def hold(self, member: Member, turns: int) -> int:
        """Hold a thread until others have had their turns; how many of their calls ended."""
        if not self._ready:
            return 0
        held = Held(turns, lambda: self.wake(held))
        self.held.append(held)
        self.block(member, held, None)
        return held.ended

    # -- the end ----------------------------------------------------------------------------------------------------

    def disband(self) -> None:
        """The world is taken away: whoever still waits goes on in real time. Sleepers of the run end (see world)."""
        with self._mutex:
            self.over = True
            for member in [*self._waiting, *self._ready]:
                if member is not self.owner:
                    member.gate.release()
            self._waiting.clear()
            self._ready.clear()
            self.members.clear()
            self.held.clear()


class _Guests:
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


def _pause(seconds: float) -> None:
    """Wait in real time; not by a sleep, which would be reported as one of the agent's."""
    gate = allocate_lock()
    gate.acquire()
    gate.acquire(timeout=seconds)


def _progress(ident: int) -> tuple[int, int, float] | None:
    """Where a thread stands and how much processor time it has had; None where there is no such thread."""
    frame = sys._current_frames().get(ident)
    return None if frame is None else (id(frame), frame.f_lasti, clocks.thread_time_s(ident))


_MACHINERY: Final = ("threading", "queue", "concurrent.", "asyncio", "selectors", "contextlib", "mat.", "anyio")
"""Modules in which threads wait on behalf of others."""


def _where(ident: int) -> str:
    """The innermost place in the user's code at which a thread stands."""
    frame = sys._current_frames().get(ident)
    innermost = frame
    while frame is not None and in_machinery(frame):
        frame = frame.f_back
    frame = frame or innermost
    return "an unknown place" if frame is None else place(frame)


def in_machinery(frame: FrameType) -> bool:
    """Whether a frame is of the standard library's or our own waiting."""
    return str(frame.f_globals.get("__name__", "")).startswith(_MACHINERY)


def place(frame: FrameType) -> str:
    """file:line in function"""
    name = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
