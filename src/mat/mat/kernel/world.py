"""The world of a run: its clock, its randomness and its threads. A process has one installed at a time (see `install`)."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from mat.core.errors import Deadlock, RunStopped
from mat.core.spec import ClockKind
from mat.kernel import clock as clocks
from mat.kernel import names
from mat.kernel.entropy import Entropy
from mat.kernel.scheduler import Scheduler

_SETTLE: Final = 100_000
"""How many hand-overs go to threads that still work when the body of a run has ended."""
_current: World | None = None


class _LoopInRunTime(Protocol):
    """What the world needs from an event loop in run time (mat.kernel.loop)."""

    def others_ready(self) -> bool: ...
    async def hold(self, turns: int) -> int: ...


def current() -> World | None:
    """The installed world, if any."""
    return _current


def put_in_place(world: World | None) -> None:
    """For `install` alone, which replaces the standard library's functions as well."""
    global _current
    _current = world


def mine() -> World | None:
    """The installed world, if it is virtual and the calling thread belongs to it."""
    world = _current
    return world if world is not None and world.scheduler is not None and world.scheduler.me() is not None else None


def guarding() -> World | None:
    """The world that guards the calling thread, if any."""
    world = mine()
    return world if world is not None and world.guarded else None


class World:
    """Clock, entropy and threads of one run. `guarded` while a run is open: then network and real sleeps are watched.

    `looks` counts how often a clock was read. `loops` are under the world's time; the tasks of the run in those that others go
    on using were `cancelled_by` its horizon or a deadlock.
    """

    def __init__(self, seed: int | str = 0, clock: ClockKind = "virtual", task: str = "") -> None:
        self.entropy = Entropy(seed, task)
        self.clock: clocks.Clock = clocks.VirtualClock() if clock == "virtual" else clocks.RealClock()
        self.scheduler: Scheduler | None = Scheduler(self) if clock == "virtual" else None
        self.guarded = False
        self._thread = threading.get_ident()
        self._checked: object = None
        self._numbers = itertools.count(1)
        self.loops: list[Any] = []
        self._task: object = None
        self.cancelled_by = ""
        self.booted_ns = 0
        self.looks = 0
        self.ends_at_ns: int | None = None
        self.on_note: Callable[[str, str], None] | None = None
        self.on_stop: Callable[[str], None] | None = None
        self.on_site: Callable[[], str] | None = None

    def note(self, code: str, message: str) -> None:
        if self.on_note is not None:
            self.on_note(code, message)

    def site(self) -> str:
        """The site of the agent's open step; "" without one."""
        return "" if self.on_site is None else self.on_site()

    def admits(self) -> bool:
        """Whether the calling thread and task may install another world within this one."""
        if self.scheduler is None:
            return threading.get_ident() == self._thread
        return self.scheduler.me() is not None and self._task in (None, _current_task())

    def owns_thread(self) -> bool:
        """Whether the calling thread belongs to the run."""
        return self.scheduler is None or self.scheduler.me() is not None

    def entered(self) -> None:
        """Note which task has installed the world, if it was one."""
        self._task = _current_task()

    def next_number(self) -> int:
        """The number of the next object that hashes by its number (see `numbered`)."""
        return next(self._numbers)

    # -- time -------------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Sleep in run time; RunStopped beyond the horizon, so that an endless wait ends."""
        turns = self.scheduler
        me = None if turns is None else turns.me()
        if turns is None or me is None or turns.alone:
            if me is not None and turns is not None:
                if seconds == 0:
                    turns.polled(me)
                    return
                me.polls = 0
            self.clock.sleep(seconds)
            if self._beyond() and (turns is None or me is not None):
                self.stopped("horizon")
                raise RunStopped("horizon")
            return
        if seconds < 0 or seconds != seconds:  # NaN
            raise ValueError("sleep length must be non-negative")
        if seconds > 0:
            turns.block(me, None, turns.deadline_ns(seconds))
        elif not turns.polled(me):
            turns.rest(me)
        if turns.over and me is not turns.owner:  # the run this thread belonged to has ended while it slept
            raise SystemExit

    def jump(self, to_ns: int) -> bool:
        """Move virtual time forward; False if it is then beyond the horizon."""
        ahead = to_ns - self.clock.at_ns
        if ahead > 0:
            self.clock.sleep(ahead / 1e9)
        return not self._beyond()

    def _beyond(self) -> bool:
        return self.guarded and self.ends_at_ns is not None and self.clock.now_ns() > self.ends_at_ns

    def stopped(self, reason: str) -> None:
        """End the run from outside the agent: no further step is taken. Outside a run a deadlock is an error."""
        if self.on_stop is not None:
            self.on_stop(reason)
        elif reason == "deadlock":
            raise Deadlock(
                what="every task waits and nothing can wake one",
                why="there is no timer, no thread that can run and no open descriptor",
                fix="look for a wait on something that is never set",
            )

    def monotonic_s(self) -> float:
        return 1_000_000.0 + self.clock.at_ns / 1e9

    def wall_ns(self) -> int:
        """The wall clock: the time of the run, except for the harness in its own threads."""
        if not self.owns_thread() and names.by_the_machine(str(sys._getframe(1).f_globals.get("__name__"))):
            return self.booted_ns + clocks.real_monotonic_ns()
        self.looked_at()
        return clocks.EPOCH_S * 10**9 + self.clock.at_ns

    def looked_at(self) -> None:
        """Note that the clock was read. A thread that reads it again and again lets time pass."""
        self.looks += 1
        turns = self.scheduler
        me = None if turns is None else turns.me()
        if turns is not None and me is not None:
            turns.polled(me)

    # -- who goes first ---------------------------------------------------------------------------------------------

    def others_can_run(self, *, suspends: bool) -> bool:
        """Whether another thread could go on instead now or, if the caller `suspends`, another task."""
        turns = self.scheduler
        if turns is None or turns.me() is None:
            return False
        return turns.others_ready() or (suspends and (loop := _running_loop()) is not None and loop.others_ready())

    def let_others(self, turns: int) -> int:
        """Let others go on until `turns` of their calls have ended or none of them can run; return how many ended."""
        scheduler = self.scheduler
        me = None if scheduler is None else scheduler.me()
        return 0 if scheduler is None or me is None else scheduler.hold(me, turns)

    async def let_others_async(self, turns: int) -> int:
        """Like `let_others`, for the calling task."""
        loop = _running_loop()
        return 0 if loop is None else await loop.hold(turns)

    def call_ended(self) -> None:
        """Note that a call has crossed its boundary; calls that were held for it may go on."""
        if self.scheduler is not None and self.scheduler.held:
            self.scheduler.call_ended()

    def check_loop(self) -> None:
        """Mark the run if the calling coroutine runs on a loop whose timers do not belong to this world."""
        loop = asyncio._get_running_loop()
        if self._checked is loop and loop is not None:
            return
        self._checked = loop
        if self.scheduler is None or self.scheduler.me() is None or _running_loop() is not None:
            return
        name = "a loop that is not asyncio's" if loop is None else f"{type(loop).__module__}.{type(loop).__qualname__}"
        self.note("real-clock", f"the agent runs on {name}, whose timers are real")

    def settle(self) -> None:
        """Let every ready thread run, without any time passing, before the run ends."""
        turns = self.scheduler
        me = None if turns is None else turns.me()
        if turns is not None and me is not None:
            for _ in range(_SETTLE):
                if not turns.others_ready():
                    return
                turns.rest(me)


def _running_loop() -> _LoopInRunTime | None:
    """The run-time side of the event loop that runs the caller, if it has one."""
    return cast("_LoopInRunTime | None", getattr(asyncio._get_running_loop(), "mat_run_time", None))


def _current_task() -> object:
    return None if asyncio._get_running_loop() is None else asyncio.current_task()
