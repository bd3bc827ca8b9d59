"""The controlled surroundings of a run: time, randomness, threads and network, put in place and taken away again.

One world at a time is in place in a process. `time.sleep`, `time.monotonic`, `time.perf_counter` and the wall clock agree;
names bound earlier (`from time import sleep`) are found in the user's own modules and in libraries; threads, locks and queues
take turns (see threads); `random`, `uuid`, `secrets` and `os.urandom` draw from streams of the seed; a real connection is
refused with its address, and from Python 3.13 on a real sleep is reported.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import functools
import itertools
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any, Final

from mat.core.errors import Deadlock, RunStopped, SpecError
from mat.core.spec import ClockKind
from mat.kernel import clock as clocks
from mat.kernel import locks, names, network, standing
from mat.kernel.entropy import Entropy, stream_seed
from mat.kernel.members import Member
from mat.kernel.threads import Scheduler

_current: World | None = None


def current() -> World | None:
    """The world in place, if any."""
    return _current


class World:
    """Clock, entropy and threads of one run. `guarded` while a run is open: then network and real sleeps are watched.

    `looks` counts how often a clock was read.
    """

    def __init__(self, seed: int | str = 0, clock: ClockKind = "virtual") -> None:
        self.entropy = Entropy(seed)
        self.clock: clocks.Clock = clocks.VirtualClock() if clock == "virtual" else clocks.RealClock()
        self.turns: Scheduler | None = Scheduler(self) if clock == "virtual" else None
        self.guarded = False
        self._thread = threading.get_ident()
        self._checked: object = None
        self._booted_ns = 0
        self.looks = 0
        self.ends_at_ns: int | None = None
        self.on_note: Callable[[str, str], None] | None = None
        self.on_stop: Callable[[str], None] | None = None

    def note(self, code: str, message: str) -> None:
        if self.on_note is not None:
            self.on_note(code, message)

    def _admits(self) -> bool:
        """Whether the calling thread may put a world of its own in place within this one."""
        return threading.get_ident() == self._thread if self.turns is None else self.turns.me() is not None

    def owns_thread(self) -> bool:
        """Whether the calling thread belongs to the run."""
        return self.turns is None or self.turns.me() is not None

    # -- time -------------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Sleep in run time; RunStopped where that leads beyond the horizon, so that an endless wait ends."""
        turns = self.turns
        member = None if turns is None else turns.me()
        if turns is None or member is None or turns.alone:
            if member is not None and turns is not None:
                if seconds == 0:
                    turns.polled(member)
                    return
                member.polls = 0
            self.clock.sleep(seconds)
            if self._beyond() and (turns is None or member is not None):
                self.stopped("horizon")
                raise RunStopped("horizon")
            return
        if seconds < 0 or seconds != seconds:  # NaN
            raise ValueError("sleep length must be non-negative")
        if seconds > 0:
            turns.block(member, None, turns.deadline_ns(seconds))
        elif not turns.polled(member):
            turns.rest(member)
        if turns.over and member is not turns.owner:  # the run this thread belonged to has ended while it slept
            raise SystemExit

    def jump(self, to_ns: int) -> bool:
        """Move virtual time to a moment ahead; False where that is beyond the horizon."""
        ahead = to_ns - self.clock.at_ns
        if ahead > 0:
            self.clock.sleep(ahead / 1e9)
        return not self._beyond()

    def _beyond(self) -> bool:
        return self.guarded and self.ends_at_ns is not None and self.clock.now_ns() > self.ends_at_ns

    def stopped(self, reason: str) -> None:
        """The run is ended from outside the agent: no further step is taken. Outside a run a deadlock is an error."""
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

    # -- who goes first ---------------------------------------------------------------------------------------------

    def others_can_run(self, *, suspends: bool) -> bool:
        """Whether, at this moment, some other thread, or where the caller `suspends` some other task, could go on instead."""
        turns = self.turns
        if turns is None or turns.me() is None:
            return False
        return turns.others_ready() or (suspends and _loop_has_others())

    def let_others(self, turns: int) -> int:
        """Others go on until `turns` of their calls have ended or none of them can run; how many ended."""
        scheduler = self.turns
        member = None if scheduler is None else scheduler.me()
        return 0 if scheduler is None or member is None else scheduler.hold(member, turns)

    async def let_others_async(self, turns: int) -> int:
        """The same for the calling task."""
        from mat.kernel.loop import VirtualLoop

        loop = asyncio.get_running_loop()
        return await loop.hold(turns) if isinstance(loop, VirtualLoop) else 0

    def call_ended(self) -> None:
        """A call has crossed its boundary: whoever was held for it may go on."""
        if self.turns is not None and self.turns.held:
            self.turns.call_ended()

    def check_loop(self) -> None:
        """Mark the run where the calling coroutine is driven by a loop whose timers are not this world's."""
        loop = asyncio._get_running_loop()
        if self._checked is loop and loop is not None:
            return
        self._checked = loop
        if self.turns is None or self.turns.me() is None or (loop is not None and getattr(loop, "mat_virtual", False)):
            return
        name = "a loop that is not asyncio's" if loop is None else f"{type(loop).__module__}.{type(loop).__qualname__}"
        self.note("real-clock", f"the agent runs on {name}, whose timers are real")

    def settle(self) -> None:
        """Let every thread that can run do so, without any time passing: the run is about to end."""
        turns = self.turns
        member = None if turns is None else turns.me()
        if turns is not None and member is not None:
            for _ in range(_SETTLE):
                if not turns.others_ready():
                    return
                turns.rest(member)

    @contextmanager
    def installed(self) -> Iterator[World]:
        """Put this world in place; worlds nest within a thread of the outer run, and the inner one counts.

        SpecError where another thread, one that is not of it, has a world in place: a process has one time.
        """
        global _current
        with _entering:
            if _current is not None and not _current._admits():
                raise SpecError(
                    what="a run is open in another thread of this process",
                    why="a run takes the clock, the randomness and the threads of the whole process into its hands",
                    fix='run them one after another, or in processes of their own (pytest -n, isolate="fork")',
                )
            outer, _current = _current, self
        self._booted_ns = time.time_ns() - clocks.real_monotonic_ns() if outer is None else outer._booted_ns
        random_state = random.getstate()
        random.seed(stream_seed(self.entropy.seed, "random"))
        undo: list[tuple[Any, str, Any]] = []

        def patch(owner: Any, name: str, value: Any) -> None:
            undo.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, value)

        try:
            urandom = self._urandom()
            patch(os, "urandom", urandom)
            patch(random, "_urandom", urandom)
            patch(random.Random, "seed", self._seed(random.Random.seed))
            patch(uuid, "_node", 0x1A5E_2026_0101)
            for name in ("_last_timestamp", "_last_timestamp_v6", "_last_timestamp_v7", "_last_counter_v7"):
                if hasattr(uuid, name):  # a run must not continue the ids of the run before
                    patch(uuid, name, 0 if name == "_last_counter_v7" else None)
            if hasattr(uuid, "_generate_time_safe"):
                patch(uuid, "_generate_time_safe", None)  # made in C, of the real time and the real machine
            patch(threading, "_counter", _counted(1))
            patch(concurrent.futures.ThreadPoolExecutor, "_counter", _counted(0))
            if self.turns is not None:
                locks.current.append(self.turns)
                travel, coordinates = self._travel()
                undo.append((travel, "", coordinates))  # before `time` is patched, and after it is mended: it works in C
                for owner, name, value in (*_REPLACED, *_where_loaded()):
                    patch(owner, name, value)
                if hasattr(sys.modules.get("uvloop"), "run"):
                    patch(sys.modules["uvloop"], "run", _uvloop_run(sys.modules["uvloop"].run))
                names.rebind(_BY_IDENTITY)
                names.adopt_handlers()
                for owner, name in network.CALLS:
                    patch(owner, name, network.asked_first(getattr(owner, name), _guarding, resolves=owner is socket))
                if sys.version_info >= (3, 13):
                    _install_audit_hook()
            else:
                patch(threading.Thread, "start", _start_real)
                patch(concurrent.futures.ThreadPoolExecutor, "submit", _submit_real)
            yield self
        finally:
            if self.turns is not None and self.turns in locks.current:
                locks.current.remove(self.turns)
                self.turns.disband()
            for owner, name, value in reversed(undo):
                if not name:
                    _come_back(owner, value)
                elif value is _INHERITED:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
            random.setstate(random_state)
            _current = outer

    def _travel(self) -> tuple[Any, Any]:
        """The wall clock in all its forms is read from this world's clock: what ends that, and what it is."""
        import time_machine

        travel = time_machine.travel(float(clocks.EPOCH_S), tick=False)
        coordinates: Any = travel.start()
        coordinates.time_ns = self._wall_ns
        return travel, coordinates

    def _wall_ns(self) -> int:
        """What the wall clock says to whoever reads it: the time of the run, but for the harness in threads of its own."""
        if not self.owns_thread() and names.by_the_machine(str(sys._getframe(1).f_globals.get("__name__"))):
            return self._booted_ns + clocks.real_monotonic_ns()
        self.looked_at()
        return clocks.EPOCH_S * 10**9 + self.clock.at_ns

    def looked_at(self) -> None:
        """Somebody has read the clock: one who does so without end lets time pass."""
        self.looks += 1
        turns = self.turns
        member = None if turns is None else turns.me()
        if turns is not None and member is not None:
            turns.polled(member)

    def _urandom(self) -> Callable[[int], bytes]:
        stream, real = self.entropy.stream("os.urandom"), _real_urandom

        def urandom(size: int) -> bytes:
            return stream.randbytes(size) if self.owns_thread() else real(size)

        return urandom

    def _seed(self, real: Callable[..., None]) -> Callable[..., None]:
        """`random.Random()` without a seed reads the operating system in C; inside a run it is seeded from a stream."""
        stream = self.entropy.stream("random.Random")

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            real(generator, stream.getrandbits(128) if a is None and self.owns_thread() else a, version)

        return seed


_entering = threading.Lock()
_SETTLE: Final = 100_000
"""Hand-overs to threads that are still at work when the body of a run has ended."""
_real_urandom = os.urandom
_real_submit = concurrent.futures.ThreadPoolExecutor.submit
_real_start = threading.Thread.start
_real_join = threading.Thread.join
_real_is_alive = threading.Thread.is_alive
_real_is_set = threading.Event.is_set
_real_done = concurrent.futures.Future.done
_real_start_new_thread = _thread.start_new_thread
_real_new_event_loop = asyncio.events.new_event_loop
_real_runner = asyncio.Runner.__init__


def _counted(start: int) -> Callable[[], int]:
    """Names of threads and pools count from the run's beginning."""
    return itertools.count(start).__next__


def _mine() -> World | None:
    """The world, where it is virtual and the calling thread belongs to it."""
    world = _current
    return world if world is not None and world.turns is not None and world.turns.me() is not None else None


def _guarding() -> World | None:
    """The world that watches the calling thread, if one does."""
    world = _mine()
    return world if world is not None and world.guarded else None


def _sleep(seconds: float, /) -> None:
    world = _mine()
    if world is None:
        clocks.real_sleep(seconds)
    else:
        world.sleep(seconds)


def _looking() -> World | None:
    """The world of the calling thread, which reads the clock."""
    world = _mine()
    if world is not None:
        world.looked_at()
    return world


def _monotonic() -> float:
    world = _looking()
    return clocks.real_monotonic() if world is None else world.monotonic_s()


def _deadline_clock() -> float:
    """The same for the standard library's own waits, which are no polls."""
    world = _mine()
    return clocks.real_monotonic() if world is None else world.monotonic_s()


def _monotonic_ns() -> int:
    world = _looking()
    return clocks.real_monotonic_ns() if world is None else _BOOTED_NS + world.clock.at_ns


def _perf_counter() -> float:
    world = _looking()
    return clocks.real_perf_counter() if world is None else world.monotonic_s()


def _perf_counter_ns() -> int:
    world = _looking()
    return clocks.real_perf_counter_ns() if world is None else _BOOTED_NS + world.clock.at_ns


_MONOTONIC: Final = frozenset(
    getattr(time, name)
    for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_UPTIME", "CLOCK_UPTIME_RAW")
    if hasattr(time, name)
)
_real_gettime = getattr(time, "clock_gettime", None)
_real_gettime_ns = getattr(time, "clock_gettime_ns", None)


def _gettime_ns(clock: int, /) -> int:
    world = _looking() if clock in _MONOTONIC else None
    return _real_gettime_ns(clock) if world is None else _BOOTED_NS + world.clock.at_ns  # type: ignore[misc]


def _gettime(clock: int, /) -> float:
    world = _looking() if clock in _MONOTONIC else None
    return _real_gettime(clock) if world is None else world.monotonic_s()  # type: ignore[misc]


def _is_set(self: threading.Event) -> bool:
    return _real_is_set(self) or _looked()


def _done(self: concurrent.futures.Future[Any]) -> bool:
    return _real_done(self) or _looked()


def _looked() -> bool:
    """Somebody has asked whether something has come yet, and it has not."""
    locks.polled()
    return False


def _after_others(real: Callable[..., Any]) -> Callable[..., Any]:
    """A wait for a child process: those who can run go first, and then its real time is nobody's run time."""

    @functools.wraps(real)
    def wait(*args: Any, **kwargs: Any) -> Any:
        world = _guarding()
        member = None if world is None or world.turns is None else world.turns.me()
        if world is not None and world.turns is not None and member is not None:
            world.turns.rest(member)
        return real(*args, **kwargs)

    return wait


def _come_back(travel: Any, coordinates: Any) -> None:
    """Take our wall clock away, and those that the agent has put upon it and left there."""
    import time_machine

    stack = getattr(time_machine, "traveller_stack", None) or getattr(time_machine, "coordinates_stack", [])
    while coordinates in stack[:-1]:
        travel.stop()
    travel.stop()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if _mine() is None:
        return _real_new_event_loop()
    from mat.kernel.loop import VirtualLoop

    return VirtualLoop()


def _runner(self: asyncio.Runner, *, debug: bool | None = None, loop_factory: Any = None) -> None:
    """A runner that is given a loop factory of its own, as uvloop's, gets a virtual loop all the same."""
    if loop_factory is not None and _guarding() is not None:
        from mat.kernel.loop import virtual_factory

        loop_factory = virtual_factory(loop_factory)
    _real_runner(self, debug=debug, loop_factory=loop_factory)


def _uvloop_run(real: Callable[..., Any]) -> Callable[..., Any]:
    """`uvloop.run` insists on a loop of its own; in a run the coroutine goes on a virtual one."""

    def run(main: Any, *, loop_factory: Any = None, debug: bool | None = None, **options: Any) -> Any:
        world = _guarding()
        if world is None:
            return (
                real(main, debug=debug, **options)
                if loop_factory is None
                else real(main, loop_factory=loop_factory, debug=debug)
            )
        world.note("loop-replaced", "uvloop keeps a time of its own; the run goes on a virtual loop")
        return asyncio.run(main, debug=debug)

    return run


def _loop_has_others() -> bool:
    from mat.kernel.loop import VirtualLoop

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return False
    return isinstance(loop, VirtualLoop) and loop.others_ready()


def _start(self: threading.Thread) -> None:
    """A thread started in a run takes turns and inherits the context; one of the set-up is a stranger."""
    world = _mine()
    if world is None or world.turns is None:
        _real_start(self)
        return
    turns = world.turns
    child = standing.waits_for_child(self)
    if child:
        turns.children.append(self)
    elif not world.guarded:
        turns.strangers.append(self)
    if child or not world.guarded or _blocks_in_c(self) or standing.waits_on_pipes(self):
        with turns.bypassed():
            _real_start(self)
        return
    member = turns.enlist(self.name)
    member.stays = self.daemon
    self.mat_member = member  # type: ignore[attr-defined]
    self.run = _inheriting(turns, member, self.run)  # type: ignore[method-assign]
    try:
        with turns.bypassed():
            _real_start(self)
    except BaseException:
        turns.dismiss(member)
        raise


def _inheriting(turns: Scheduler, member: Member, run: Callable[[], Any]) -> Callable[[], None]:
    """What a thread of the run does: it takes its turn in the context of whoever started it, and leaves."""
    context = copy_context()

    def inherited() -> None:
        turns.arrive(member)
        try:
            if not member.ended:
                context.run(run)
        except (RunStopped, SystemExit):  # the run is over; its owner has been told
            pass
        finally:
            turns.leave(member)

    return inherited


def _start_new_thread(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any = None, /) -> int:
    """A thread without an object: it takes turns too."""
    world = _guarding()
    if world is None or world.turns is None:
        return _real_start_new_thread(function, args, {} if kwargs is None else kwargs)
    member = world.turns.enlist("a thread without a name")
    member.stays = True
    inherited = _inheriting(world.turns, member, lambda: function(*args, **(kwargs or {})))
    try:
        return _real_start_new_thread(inherited, ())
    except BaseException:
        world.turns.dismiss(member)
        raise


def _blocks_in_c(thread: threading.Thread) -> bool:
    """Whether it is the worker of an executor made outside a run, which waits for jobs with its turn in hand."""
    given = getattr(thread, "_args", ())
    return any(type(item) is locks.RealSimpleQueue for item in given)


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    locks.join(self, _real_join, timeout)


def _is_alive(self: threading.Thread) -> bool:
    member: Member | None = getattr(self, "mat_member", None)
    alive = _real_is_alive(self) and not (member is not None and member.finished)
    return alive and not _looked()


def _submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A job inherits its submitter's context; in an executor whose threads are not the run's own, it is a guest."""
    world = _guarding()
    if world is None or world.turns is None:
        return _real_submit(self, fn, *args, **kwargs)
    context, turns = copy_context(), world.turns
    if _is_native(self, turns):
        return _real_submit(self, lambda: context.run(fn, *args, **kwargs))
    guests = turns.guests(self)
    member = guests.admit()

    def job() -> Any:
        turns.arrive(member)
        return context.run(fn, *args, **kwargs)

    def told(future: Any) -> None:
        future._done_callbacks.append(lambda _: guests.end(member))  # after all others: they wake who waits for the result

    try:
        with turns.bypassed():
            future = _real_submit(self, job)
    except BaseException:  # the executor refused it
        guests.end(member)
        raise
    future.add_done_callback(told)
    return future


def _is_native(executor: Any, turns: Scheduler) -> bool:
    """Whether the executor's threads are, or will be, members of this run."""
    queued = getattr(executor, "_work_queue", None)
    if type(queued) is locks.RealSimpleQueue:
        return False
    owner = getattr(executor, "mat_turns", None)
    if owner is None and not executor._threads:
        executor.mat_turns = owner = turns
    return owner is turns


def _start_real(self: threading.Thread) -> None:
    """In real time threads inherit the context, and that is all."""
    world = _current
    if world is not None and world.guarded:
        context, run = copy_context(), self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
    _real_start(self)


def _submit_real(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    context = copy_context()
    return _real_submit(self, lambda: context.run(fn, *args, **kwargs))


_BOOTED_NS: Final = 1_000_000 * 10**9
"""The monotonic clock at the start of every virtual run."""
_REAL_TIME: Final = SimpleNamespace(
    **{**{name: getattr(time, name) for name in dir(time) if not name.startswith("_")}, "sleep": standing.pause}
)
"""For what waits for another process: virtual sleeps would spin."""


def _where_loaded() -> Iterator[tuple[Any, str, Any]]:
    """What to replace in modules of the standard library that somebody has imported, and that bound the clock early."""
    if "multiprocessing" in sys.modules:
        import multiprocessing.connection

        yield multiprocessing.connection, "time", _REAL_TIME  # what it waits for are other processes
    if sys.version_info < (3, 12):
        yield functools, "RLock", locks.new_rlock  # of cached_property
    sched = sys.modules.get("sched")
    if sched is not None:
        yield sched.scheduler, "__init__", _with_our_defaults(sched.scheduler.__init__)


def _with_our_defaults(real: Callable[..., None]) -> Callable[..., None]:
    """`sched.scheduler()`, whose defaults are the clock and the sleep that there were when it was imported."""

    def initialise(self: Any, timefunc: Callable[[], float] = _monotonic, delayfunc: Callable[[float], Any] = _sleep) -> None:
        real(self, timefunc, delayfunc)

    return initialise


def _forked() -> None:
    """A child process has one thread, and none of the others that took turns."""
    global _entering
    _entering = threading.Lock()
    for turns in locks.current:
        turns.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


_REPLACED: Final[tuple[tuple[Any, str, Any], ...]] = (
    (time, "sleep", _sleep), (time, "monotonic", _monotonic), (time, "monotonic_ns", _monotonic_ns),
    (time, "perf_counter", _perf_counter), (time, "perf_counter_ns", _perf_counter_ns),
    (threading, "_time", _deadline_clock), (queue, "time", _deadline_clock), (subprocess, "time", _REAL_TIME),
    (threading, "Lock", locks.new_lock), (threading, "RLock", locks.new_rlock), (threading, "_allocate_lock", locks.new_lock),
    (queue, "SimpleQueue", locks.new_simple_queue),
    (threading.Thread, "start", _start), (threading.Thread, "join", _join), (threading.Thread, "is_alive", _is_alive),
    (concurrent.futures.ThreadPoolExecutor, "submit", _submit),
    (asyncio, "new_event_loop", _new_event_loop), (asyncio.events, "new_event_loop", _new_event_loop),
    (asyncio.Runner, "__init__", _runner),
    (threading.Event, "is_set", _is_set), (concurrent.futures.Future, "done", _done),
    *(((time, "clock_gettime", _gettime), (time, "clock_gettime_ns", _gettime_ns)) if _real_gettime else ()),
    (subprocess.Popen, "wait", _after_others(subprocess.Popen.wait)),
    (subprocess.Popen, "communicate", _after_others(subprocess.Popen.communicate)),
    (_thread, "start_new_thread", _start_new_thread), (_thread, "start_new", _start_new_thread),
)  # fmt: skip
_BY_IDENTITY: Final[dict[int, Any]] = {
    id(clocks.real_sleep): _sleep,
    id(clocks.real_monotonic): _monotonic,
    id(clocks.real_monotonic_ns): _monotonic_ns,
    id(clocks.real_perf_counter): _perf_counter,
    id(clocks.real_perf_counter_ns): _perf_counter_ns,
    id(_real_start_new_thread): _start_new_thread,
    id(_real_gettime): _gettime,
    id(_real_gettime_ns): _gettime_ns,
    id(threading.Lock): locks.new_lock,
    id(threading.RLock): locks.new_rlock,
    id(locks.RealSimpleQueue): locks.new_simple_queue,
}
"""Names bound before the run, by what they are bound to."""
_INHERITED = object()
_hooked = False


def _install_audit_hook() -> None:
    """From 3.13 on CPython reports sleeps as audit events, whatever name they were called by.

    Before, there is nothing to hear, and a hook can never be taken out again: with one in place every assignment to
    `__class__`, three in each recorded step, costs four times as much, and so does every event of the user's program.
    """
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "time.sleep":
        world = _guarding()
        if world is not None:
            world.note("real-sleep", f"a real sleep of {arguments[0]} s happened inside a virtual run")
