"""Install a world in the process, and remove it again.

While a world is installed, `time.sleep`, `time.monotonic`, `time.perf_counter` and the wall clock agree. Names that user
modules and libraries bound earlier (`from time import sleep`) are rebound. Threads, locks and queues take turns (see
`scheduler`). `random`, `uuid`, `secrets` and `os.urandom` draw from streams of the seed and the task
(see `randomness`). The ways out of a run are refused (see `network`), and from Python 3.13 on a real sleep is reported.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mat.core.errors import SpecError
from mat.kernel import audit, locks, loops, names, network, randomness, replaced
from mat.kernel import clock as clocks
from mat.kernel import world as worlds
from mat.kernel.world import World, guarding

try:
    import _posixsubprocess
except ImportError:  # Windows
    _posixsubprocess = None  # type: ignore[assignment]

_entering = threading.Lock()
_INHERITED = object()
_BOUND_EARLIER = {**replaced.BOUND_EARLIER, **randomness.BOUND_EARLIER}


@contextmanager
def installed(world: World) -> Iterator[World]:
    """Install a world; worlds nest within a thread of the outer run, and the inner one is in force.

    SpecError if an unrelated thread has a world installed, or another task of the running loop, because a process has one time.
    """
    with _entering:
        outer = worlds.current()
        if outer is not None and not outer.admits():
            raise SpecError(
                what="a run is open in another thread or task of this process",
                why="a run controls the clock, the randomness and the threads of the whole process",
                fix='start one run at a time, or use separate processes (pytest -n, isolate="fork")',
            )
        if world.scheduler is not None:
            loops.refuse_around()
        worlds.put_in_place(world)
        world.entered()
    world.booted_ns = time.time_ns() - clocks.real_monotonic_ns() if outer is None else outer.booted_ns
    restore_generators, turns, patches = randomness.seed_shared(world.entropy), world.scheduler, _Patches()
    try:
        _replace_randomness(world, patches)
        if turns is not None:
            locks.schedulers.append(turns)
            _replace_time_and_threads(world, patches)
            loops.enter(world)
        else:
            patches.put(threading.Thread, "start", replaced.start_real)
            patches.put(concurrent.futures.ThreadPoolExecutor, "submit", replaced.submit_real)
        yield world
    finally:
        if turns is not None and turns in locks.schedulers:
            locks.schedulers.remove(turns)
            turns.disband()
        loops.leave(world)
        patches.restore()
        restore_generators()
        worlds.put_in_place(outer)


class _Patches:
    """Replaced attributes. An ExitStack would do, but it would double the cost of a world."""

    __slots__ = ("_undo",)

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, vars(owner).get(name, _INHERITED)))
        setattr(owner, name, value)

    def put_wall_clock(self, travel: Any, coordinates: Any) -> None:
        """Note that the wall clock was replaced now; `restore` undoes everything in reverse order."""
        self._undo.append((travel, "", coordinates))

    def restore(self) -> None:
        for owner, name, value in reversed(self._undo):
            if not name:
                _remove_wall_clock(owner, value)
            elif value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _replace_randomness(world: World, patches: _Patches) -> None:
    """Make randomness and ids depend on seed and task, and number threads and pools from the start of the run."""
    for owner, name, value in randomness.REPLACED:
        patches.put(owner, name, value)
    rebind()
    patches.put(uuid, "_node", 0x1A5E_2026_0101)
    for name in ("_last_timestamp", "_last_timestamp_v6", "_last_timestamp_v7", "_last_counter_v7"):
        if hasattr(uuid, name):  # a run must not continue the ids of the run before
            patches.put(uuid, name, 0 if name == "_last_counter_v7" else None)
    if hasattr(uuid, "_generate_time_safe"):
        patches.put(uuid, "_generate_time_safe", None)  # written in C: it reads the real time and the real machine
    patches.put(threading, "_counter", itertools.count(1).__next__)
    patches.put(concurrent.futures.ThreadPoolExecutor, "_counter", itertools.count(0).__next__)


def rebind() -> None:
    """Have the modules that were imported by now use our stand-ins, which outside of runs do what they stand in for."""
    _BOUND_EARLIER.update(randomness.of_packages())
    names.rebind(_BOUND_EARLIER)


def _replace_time_and_threads(world: World, patches: _Patches) -> None:
    """Replace the clocks, threads, event loops and sockets for a virtual run."""
    import time_machine

    travel = time_machine.travel(float(clocks.EPOCH_S), tick=False)
    coordinates: Any = travel.start()  # starts before `time` is patched, and stops after it is restored: it works in C
    patches.put_wall_clock(travel, coordinates)
    coordinates.time_ns = world.wall_ns
    for owner, name, value in (*replaced.REPLACED, *replaced.where_loaded()):
        patches.put(owner, name, value)
    names.adopt_handlers()
    network.refuse_ways_out()
    if _posixsubprocess is not None:
        patches.put(_posixsubprocess, "fork_exec", network.fork_exec_refused(_posixsubprocess.fork_exec))
    audit.watch(("time.sleep",), _note_sleep)


def _remove_wall_clock(travel: Any, coordinates: Any) -> None:
    """Remove our wall clock, and any clocks that the agent installed on top of it and did not remove."""
    import time_machine

    stack = getattr(time_machine, "traveller_stack", None) or getattr(time_machine, "coordinates_stack", [])
    while coordinates in stack[:-1]:
        travel.stop()
    travel.stop()


def _clean_up_after_fork() -> None:
    """Clean up in a child process, which has only the thread that forked."""
    global _entering
    _entering = threading.Lock()
    for turns in locks.schedulers:
        turns.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clean_up_after_fork)


def _note_sleep(event: str, arguments: tuple[Any, ...]) -> None:
    """From 3.13 on CPython reports sleeps, whatever name they were called by."""
    world = guarding()
    if world is not None:
        world.note("real-sleep", f"a real sleep of {arguments[0]} s happened during the run")
