"""The controlled surroundings of a run: time, randomness, threads and network, put in place and taken away again.

One world at a time is in place in a process. `time.sleep`, `time.monotonic` and the wall clock agree; names bound earlier
(`from time import sleep`) are found in the user's own modules; `random`, `uuid`, `secrets` and `os.urandom` draw from
streams of the seed; a real connection is refused with its address, and from Python 3.13 on a real sleep is reported.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import random
import socket
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mat.core.errors import Deadlock, RunStopped, Uncontrolled
from mat.core.spec import ClockKind
from mat.kernel import clock as clocks
from mat.kernel.entropy import Entropy, stream_seed
from mat.kernel.threads import Jobs

_current: World | None = None


def current() -> World | None:
    """The world in place, if any."""
    return _current


class World:
    """Clock, entropy and jobs of one run. `guarded` while a run is open: then network and real sleeps are watched."""

    def __init__(self, seed: int | str = 0, clock: ClockKind = "virtual") -> None:
        self.entropy = Entropy(seed)
        self.clock: clocks.Clock = clocks.VirtualClock() if clock == "virtual" else clocks.RealClock()
        self.jobs = Jobs(self.note)
        self.guarded = False
        self.ends_at_ns: int | None = None
        self.on_note: Callable[[str, str], None] | None = None
        self.on_stop: Callable[[str], None] | None = None

    def note(self, code: str, message: str) -> None:
        if self.on_note is not None:
            self.on_note(code, message)

    def owns_thread(self) -> bool:
        return threading.get_ident() in self.jobs.owned

    def sleep(self, seconds: float) -> None:
        """Sleep in run time; RunStopped where that leads beyond the horizon, so that an endless wait ends."""
        self.clock.sleep(seconds)
        if (
            self.guarded
            and self.ends_at_ns is not None
            and self.clock.now_ns() > self.ends_at_ns
            and self.jobs.controls_thread()
        ):
            self._stop("horizon")

    def _stop(self, reason: str) -> None:
        if self.on_stop is not None:
            self.on_stop(reason)
        raise RunStopped(reason)

    def others_can_run(self, *, suspends: bool) -> bool:
        """Whether, at this moment, some other task or thread could go on instead of the caller."""
        return False

    def let_others(self, turns: int) -> int:
        """Others go on until `turns` of their calls have ended or none of them can run; how many ended."""
        return 0

    async def let_others_async(self, turns: int) -> int:
        """The same for the calling task."""
        return 0

    def call_ended(self) -> None:
        """A call has crossed its boundary: whoever was held for it may go on."""

    def monotonic_s(self) -> float:
        return 1_000_000.0 + self.clock.now_ns() / 1e9

    def deadlock(self) -> None:
        """Nothing can run any more: the run ends with Term = 0; outside a run it is an error."""
        if self.guarded:
            self._stop("deadlock")
        raise Deadlock(
            what="every task waits and nothing can wake one",
            why="there is no timer, no job in a thread and no open descriptor",
            fix="look for an await on something that is never set",
        )

    @contextmanager
    def installed(self) -> Iterator[World]:
        """Put this world in place; worlds nest, the inner one counts."""
        global _current
        outer, _current = _current, self
        random_state = random.getstate()
        random.seed(stream_seed(self.entropy.seed, "random"))
        undo: list[tuple[Any, str, Any]] = []

        def patch(owner: Any, name: str, value: Any) -> None:
            undo.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, value)

        traveller = None
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
            patch(concurrent.futures.ThreadPoolExecutor, "submit", _submit)
            patch(threading.Thread, "start", _start)
            if self.clock.virtual:
                patch(time, "sleep", _sleep)
                patch(time, "monotonic", _monotonic)
                patch(time, "monotonic_ns", _monotonic_ns)
                patch(asyncio, "new_event_loop", _new_event_loop)
                patch(asyncio.events, "new_event_loop", _new_event_loop)
                _rebind_user_modules()
                traveller = self._travel()
                for owner, name in _CALLS:
                    patch(owner, name, _asked_first(getattr(owner, name), resolves=owner is socket))
                if sys.version_info >= (3, 13):
                    _install_audit_hook()
            yield self
        finally:
            self.jobs.open_all()
            if traveller is not None:
                traveller.stop()
            for owner, name, value in reversed(undo):
                if value is _INHERITED:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
            random.setstate(random_state)
            _current = outer

    def _travel(self) -> Any:
        import time_machine

        traveller = time_machine.travel(float(clocks.EPOCH_S), tick=False)
        coordinates = traveller.start()
        at_ns = self.clock.now_ns()
        if at_ns:
            coordinates.move_to(clocks.EPOCH_S + at_ns / 1e9)
        if isinstance(self.clock, clocks.VirtualClock):
            self.clock.moved = lambda now_ns: coordinates.move_to(clocks.EPOCH_S + now_ns / 1e9)
        return traveller

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


_real_urandom = os.urandom
_real_submit = concurrent.futures.ThreadPoolExecutor.submit
_real_start = threading.Thread.start
_real_new_event_loop = asyncio.events.new_event_loop


def _mine() -> World | None:
    """The world, where it is virtual and the calling thread belongs to it."""
    world = _current
    return world if world is not None and world.clock.virtual and world.owns_thread() else None


def _sleep(seconds: float, /) -> None:
    world = _mine()
    if world is None:
        clocks.real_sleep(seconds)
    else:
        world.sleep(seconds)


def _monotonic() -> float:
    world = _mine()
    return clocks.real_monotonic() if world is None else world.monotonic_s()


def _monotonic_ns() -> int:
    world = _mine()
    return clocks.real_monotonic_ns() if world is None else 1_000_000 * 10**9 + world.clock.now_ns()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if _mine() is None:
        return _real_new_event_loop()
    from mat.kernel.loop import VirtualLoop

    return VirtualLoop()


def _submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    world = _current
    if world is None or not world.guarded or not world.owns_thread():
        return _real_submit(self, fn, *args, **kwargs)
    try:
        from_loop = asyncio.get_running_loop() is not None
    except RuntimeError:
        from_loop = False
    if from_loop and not world.clock.virtual:
        from_loop = False
    return world.jobs.submit(lambda: fn(*args, **kwargs), lambda job: _real_submit(self, job), from_loop=from_loop)


def _start(self: threading.Thread) -> None:
    world = _current
    if world is not None and world.guarded and world.owns_thread():
        module = getattr(getattr(self, "_target", None), "__module__", None) or ""
        if type(self).__module__ == "anyio._backends._asyncio" and hasattr(self, "queue"):
            self.queue = _WorkerQueue(self.queue)
        elif module.startswith("asyncio."):  # the loop's own helper, which ends an executor
            world.jobs.helpers.append(self)
        elif not module.startswith("concurrent.futures"):
            world.jobs.adopt(self)
    _real_start(self)


class _WorkerQueue:
    """The queue of one of anyio's worker threads: what it hands over becomes a job, so its turn is decided as any other's."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def put_nowait(self, item: Any) -> None:
        world = _mine()
        if item is not None and world is not None and world.guarded:
            context, call, args, future, scope = item
            item = (context, world.jobs.queue(lambda: call(*args), future), (), future, scope)
        self._real.put_nowait(item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


_REPLACED: dict[int, Any] = {
    id(clocks.real_sleep): _sleep,
    id(clocks.real_monotonic): _monotonic,
    id(clocks.real_monotonic_ns): _monotonic_ns,
}
_seen_modules: dict[str, int] = {}
_newest: list[object] = [None, 0]
_OUTSIDE = tuple(
    path + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_paths().get(key))
)


def _rebind_user_modules() -> None:
    """Names like `sleep` bound by `from time import sleep` in the user's modules become ones that ask for the world."""
    last = sys.modules.get(next(reversed(sys.modules)))
    if _newest[0] is last and _newest[1] == len(sys.modules):
        return
    _newest[:] = [last, len(sys.modules)]
    for name, module in list(sys.modules.items()):
        if _seen_modules.get(name) == id(module):
            continue
        _seen_modules[name] = id(module)
        path = getattr(module, "__file__", None) or ("<input>" if name == "__main__" else "")
        if not path or path.startswith(_OUTSIDE) or f"{os.sep}site-packages{os.sep}" in path:
            continue
        if name.partition(".")[0] in ("mat", "mat_contracts", "mat_faults", "mat_search", "pytest_mat"):
            continue
        for attribute, value in list(vars(module).items()):
            replacement = _REPLACED.get(id(value))
            if replacement is not None:
                setattr(module, attribute, replacement)


_INHERITED = object()
_hooked = False
_CALLS = ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket.socket, "sendto"), (socket, "getaddrinfo"))


def _install_audit_hook() -> None:
    """From 3.13 on CPython reports sleeps as audit events, whatever name they were called by.

    Before, there is nothing to hear, and a hook can never be taken out again: with one in place every assignment to
    `__class__`, three in each recorded step, costs four times as much, and so does every event of the user's program.
    """
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)


def _guarding() -> World | None:
    """The world that watches the calling thread, if one does."""
    world = _mine()
    return world if world is not None and world.guarded else None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "time.sleep":
        world = _guarding()
        if world is not None:
            world.note("real-sleep", f"a real sleep of {arguments[0]} s happened inside a virtual run")


def _asked_first(real: Callable[..., Any], *, resolves: bool) -> Callable[..., Any]:
    """A call of the socket module that is refused where it would leave a virtual run."""

    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        world = _guarding()
        if world is not None:
            address = (*args, kwargs.get("host"), kwargs.get("port"))[:2] if resolves else args[-1]
            if isinstance(address, tuple) and address[0] is not None:
                _refuse(world, address)
        return real(*args, **kwargs)

    return call


def _refuse(world: World, address: tuple[Any, ...]) -> None:
    world.note("network-refused", f"a connection to {address[0]}:{address[1]} was refused")
    raise Uncontrolled(
        what=f"connection to {address[0]}:{address[1]} refused inside a virtual run",
        why="a real service has its own time and state, so the run could not be searched or replayed",
        fix='serve it in process, tape the port (tape="external"), or use clock="real"',
    )
