"""Replacements for functions of the standard library while a world is installed; each asks the world first.

`REPLACED` lists what is replaced where. `BOUND_EARLIER` finds the replacement for a name that was bound before the run.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import functools
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any, Final

from mat.core.errors import RunStopped
from mat.kernel import clock as clocks
from mat.kernel import locks, loops, probe
from mat.kernel import world as worlds
from mat.kernel.scheduler import Scheduler
from mat.kernel.threads import SimulatedThread
from mat.kernel.world import World, guarding, mine

_real_submit = concurrent.futures.ThreadPoolExecutor.submit
_real_start = threading.Thread.start
_real_join = threading.Thread.join
_real_is_alive = threading.Thread.is_alive
_real_is_set = threading.Event.is_set
_real_done = concurrent.futures.Future.done
_real_start_new_thread = _thread.start_new_thread
_MONOTONIC: Final = frozenset(
    getattr(time, name)
    for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_UPTIME", "CLOCK_UPTIME_RAW")
    if hasattr(time, name)
)
_real_gettime = getattr(time, "clock_gettime", None)
_real_gettime_ns = getattr(time, "clock_gettime_ns", None)
_BOOTED_NS: Final = 1_000_000 * 10**9
"""The monotonic clock at the start of every virtual run."""
_REAL_TIME: Final = SimpleNamespace(
    **{**{name: getattr(time, name) for name in dir(time) if not name.startswith("_")}, "sleep": probe.pause}
)
"""Real time, for waiting for another process: with virtual sleeps, that would be a busy loop."""


# -- time -------------------------------------------------------------------------------------------------------------


def _sleep(seconds: float, /) -> None:
    world = mine()
    if world is None:
        clocks.real_sleep(seconds)
    else:
        world.sleep(seconds)


def _world_of_clock_read() -> World | None:
    """Return the world of the calling thread, after noting that the thread reads the clock."""
    world = mine()
    if world is not None:
        world.looked_at()
    return world


def _monotonic() -> float:
    world = _world_of_clock_read()
    return clocks.real_monotonic() if world is None else world.monotonic_s()


def _deadline_clock() -> float:
    """Like `_world_of_clock_read`, for waits inside the standard library, which do not count as polls."""
    world = mine()
    return clocks.real_monotonic() if world is None else world.monotonic_s()


def _monotonic_ns() -> int:
    world = _world_of_clock_read()
    return clocks.real_monotonic_ns() if world is None else _BOOTED_NS + world.clock.at_ns


def _perf_counter() -> float:
    world = _world_of_clock_read()
    return clocks.real_perf_counter() if world is None else world.monotonic_s()


def _perf_counter_ns() -> int:
    world = _world_of_clock_read()
    return clocks.real_perf_counter_ns() if world is None else _BOOTED_NS + world.clock.at_ns


def _gettime_ns(clock: int, /) -> int:
    world = _world_of_clock_read() if clock in _MONOTONIC else None
    return _real_gettime_ns(clock) if world is None else _BOOTED_NS + world.clock.at_ns  # type: ignore[misc]


def _gettime(clock: int, /) -> float:
    world = _world_of_clock_read() if clock in _MONOTONIC else None
    return _real_gettime(clock) if world is None else world.monotonic_s()  # type: ignore[misc]


def _is_set(self: threading.Event) -> bool:
    return _real_is_set(self) or _note_poll()


def _done(self: concurrent.futures.Future[Any]) -> bool:
    return _real_done(self) or _note_poll()


def _note_poll() -> bool:
    """Note a poll of something that has not happened yet; returns False, the result of the poll."""
    locks.note_poll()
    return False


def _with_run_clock(real: Callable[..., None]) -> Callable[..., None]:
    """Give `sched.scheduler()` the clock and the sleep of the run; it bound its defaults when it was imported."""

    def initialize(self: Any, timefunc: Callable[[], float] = _monotonic, delayfunc: Callable[[float], Any] = _sleep) -> None:
        real(self, timefunc, delayfunc)

    return initialize


# -- child processes --------------------------------------------------------------------------------------------------


def _wait_after_others(real: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a wait for a child process: ready threads go first, and the real time of the wait is no run time."""

    @functools.wraps(real)
    def wait(*args: Any, **kwargs: Any) -> Any:
        world = guarding()
        me = None if world is None or world.scheduler is None else world.scheduler.me()
        if world is not None and world.scheduler is not None and me is not None:
            world.scheduler.rest(me)
        return real(*args, **kwargs)

    return wait


# -- threads and executors --------------------------------------------------------------------------------------------


def _start(self: threading.Thread) -> None:
    """A thread that is started in a run takes turns and inherits the context; one of the set-up belongs to no run."""
    world = mine()
    if world is None or world.scheduler is None:
        _real_start(self)
        return
    turns = world.scheduler
    child = probe.waits_for_child(self)
    if child:
        turns.foreign.add_child(self)
    elif not world.guarded:
        turns.foreign.add(self)
    if child or not world.guarded or _blocks_in_c_code(self) or probe.waits_on_pipes(self):
        with turns.bypassed():
            _real_start(self)
        return
    simulated = turns.enlist(self.name)
    simulated.may_outlive_run = self.daemon
    self.mat_simulated = simulated  # type: ignore[attr-defined]
    self.run = _thread_target(turns, simulated, self.run)  # type: ignore[method-assign]
    try:
        with turns.bypassed():
            _real_start(self)
    except BaseException:
        turns.dismiss(simulated)
        raise


def _thread_target(turns: Scheduler, simulated: SimulatedThread, run: Callable[[], Any]) -> Callable[[], None]:
    """The target of a thread of the run: it waits for its turn, runs in the context of its starter, and leaves."""
    context = copy_context()

    def target() -> None:
        turns.arrive(simulated)
        try:
            if not simulated.ended:
                context.run(run)
        except (RunStopped, SystemExit):  # the run is over; its owner knows
            pass
        finally:
            turns.leave(simulated)

    return target


def _start_new_thread(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any = None, /) -> int:
    """Start a thread that has no Thread object; it takes turns, too."""
    world = guarding()
    if world is None or world.scheduler is None:
        return _real_start_new_thread(function, args, {} if kwargs is None else kwargs)
    simulated = world.scheduler.enlist("a thread without a name")
    simulated.may_outlive_run = True
    target = _thread_target(world.scheduler, simulated, lambda: function(*args, **(kwargs or {})))
    try:
        return _real_start_new_thread(target, ())
    except BaseException:
        world.scheduler.dismiss(simulated)
        raise


def _blocks_in_c_code(thread: threading.Thread) -> bool:
    """Whether the thread is a worker of an executor from outside the run: it would keep its turn while it waits for jobs."""
    arguments = getattr(thread, "_args", ())
    return any(type(item) is locks.RealSimpleQueue for item in arguments)


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    locks.join(self, _real_join, timeout)


def _is_alive(self: threading.Thread) -> bool:
    simulated: SimulatedThread | None = getattr(self, "mat_simulated", None)
    alive = _real_is_alive(self) and not (simulated is not None and simulated.finished)
    return alive and not _note_poll()


def _submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A job inherits its submitter's context. In an executor whose threads are not in this run, the job takes turns."""
    world = guarding()
    if world is None or world.scheduler is None:
        return _real_submit(self, fn, *args, **kwargs)
    context, turns = copy_context(), world.scheduler
    if _is_native(self, turns):
        return _real_submit(self, lambda: context.run(fn, *args, **kwargs))
    job = turns.admit_job(self)

    def run() -> Any:
        turns.arrive(job)
        return context.run(fn, *args, **kwargs)

    def finish_job(future: Any) -> None:
        # the last callback, because the others wake the threads that wait for the result
        future._done_callbacks.append(lambda _: turns.end_job(self, job))

    try:
        with turns.bypassed():
            future = _real_submit(self, run)
    except BaseException:  # the executor refused it
        turns.end_job(self, job)
        raise
    future.add_done_callback(finish_job)
    return future


def _is_native(executor: Any, turns: Scheduler) -> bool:
    """Whether the executor's threads belong to this run, or will when they are started."""
    queued = getattr(executor, "_work_queue", None)
    if type(queued) is locks.RealSimpleQueue:
        return False
    owner = getattr(executor, "mat_turns", None)
    if owner is None and not executor._threads:
        executor.mat_turns = owner = turns
    return owner is turns


def start_real(self: threading.Thread) -> None:
    """Start a thread in real time, where it only inherits the context."""
    world = worlds.current()
    if world is not None and world.guarded:
        context, run = copy_context(), self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
    _real_start(self)


def submit_real(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    context = copy_context()
    return _real_submit(self, lambda: context.run(fn, *args, **kwargs))


# -- what is replaced -------------------------------------------------------------------------------------------------


def where_loaded() -> Iterator[tuple[Any, str, Any]]:
    """Replacements in modules of the standard library that are already imported, and so bound the clock early."""
    yield from loops.where_loaded()
    if "multiprocessing" in sys.modules:
        import multiprocessing.connection

        yield multiprocessing.connection, "time", _REAL_TIME  # it waits for other processes
    if sys.version_info < (3, 12):
        yield functools, "RLock", locks.new_rlock  # used by cached_property
    sched = sys.modules.get("sched")
    if sched is not None:
        yield sched.scheduler, "__init__", _with_run_clock(sched.scheduler.__init__)


REPLACED: Final[tuple[tuple[Any, str, Any], ...]] = (
    (time, "sleep", _sleep), (time, "monotonic", _monotonic), (time, "monotonic_ns", _monotonic_ns),
    (time, "perf_counter", _perf_counter), (time, "perf_counter_ns", _perf_counter_ns),
    (threading, "_time", _deadline_clock), (queue, "time", _deadline_clock), (subprocess, "time", _REAL_TIME),
    (threading, "Lock", locks.new_lock), (threading, "RLock", locks.new_rlock), (threading, "_allocate_lock", locks.new_lock),
    (queue, "SimpleQueue", locks.new_simple_queue),
    (threading.Thread, "start", _start), (threading.Thread, "join", _join), (threading.Thread, "is_alive", _is_alive),
    (concurrent.futures.ThreadPoolExecutor, "submit", _submit),
    *loops.REPLACED,
    (threading.Event, "is_set", _is_set), (concurrent.futures.Future, "done", _done),
    *(((time, "clock_gettime", _gettime), (time, "clock_gettime_ns", _gettime_ns)) if _real_gettime else ()),
    (subprocess.Popen, "wait", _wait_after_others(subprocess.Popen.wait)),
    (subprocess.Popen, "communicate", _wait_after_others(subprocess.Popen.communicate)),
    (_thread, "start_new_thread", _start_new_thread), (_thread, "start_new", _start_new_thread),
)  # fmt: skip
BOUND_EARLIER: Final[dict[int, Any]] = {
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
    id(loops.real_all_tasks): loops.all_tasks,
    id(loops.real_as_completed): loops.as_completed,
}
"""Replacements by the id of the original, which a module may have imported before the run."""
