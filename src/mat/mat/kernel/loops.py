"""Put the loops of a run under its time, whoever made them and when; refuse those for which that is impossible.

A loop comes under run time when a thread of the run starts it, asks it for the time, or enters the run inside it. At the end
of the run it is put back on the time that it had. A loop written in C (uvloop) keeps its own time, and so does trio.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import functools
import selectors
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from mat.core.errors import SpecError
from mat.kernel import clock as clocks
from mat.kernel.loop import LoopInRunTime
from mat.kernel.numbered import InOrder, hashed_by_address, numbered
from mat.kernel.world import World, mine

_real_set_running_loop = asyncio.events._set_running_loop
_real_new_event_loop = asyncio.events.new_event_loop
_real_create_task: Final[Callable[..., Any]] = asyncio.BaseEventLoop.create_task
_real_create_future: Final[Callable[..., asyncio.Future[Any]]] = asyncio.BaseEventLoop.create_future
_real_runner = asyncio.Runner.__init__
real_all_tasks: Final = asyncio.all_tasks
real_as_completed: Final = asyncio.as_completed


# -- into run time, and back ------------------------------------------------------------------------------------------


def enter(world: World) -> None:
    """Put the loop that runs the caller, if any, under the time of the world that has just been installed."""
    loop = asyncio._get_running_loop()
    if loop is not None:
        _adopt(loop, world).task = asyncio.current_task()


def leave(world: World) -> None:
    """Put the loops of a world back on the time that they had, the last one first."""
    while world.loops:
        world.loops.pop().leave()


def refuse_around() -> None:
    """Refuse a run inside a loop, or in trio, that cannot be put under its time."""
    loop = asyncio._get_running_loop()
    if loop is not None and not _adoptable(loop):
        refuse(_name(loop))
    if loop is None and _in_trio():
        refuse("trio")


def refuse(name: str) -> NoReturn:
    raise SpecError(
        what=f"{name} cannot run in virtual time",
        why="it keeps its own time: its sleeps would take real time, or never end",
        fix='use a loop of asyncio (asyncio.run, asyncio.SelectorEventLoop), or make the run in real time with clock="real"',
    )


def _name(loop: object) -> str:
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


def _adoptable(loop: object) -> bool:
    held = getattr(loop, "_selector", None)
    return isinstance(loop, asyncio.selector_events.BaseSelectorEventLoop) and isinstance(held, selectors.BaseSelector)


def _adopt(loop: asyncio.AbstractEventLoop, world: World) -> LoopInRunTime:
    """The loop under the world's time. SpecError if it cannot keep it."""
    found: LoopInRunTime | None = getattr(loop, "mat_run_time", None)
    if found is not None and found.world is world:
        return found
    if not _adoptable(loop):
        refuse(_name(loop))
    world.loops[:] = [held for held in world.loops if not _is_done(held)]
    made = LoopInRunTime(loop, world)
    world.loops.append(made)
    return made


def _is_done(held: LoopInRunTime) -> bool:
    """Whether a loop is closed; then it is released, so that a run with many loops does not keep them all."""
    closed = bool(held.loop.is_closed())
    if closed:
        held.leave()
    return closed


def _set_running_loop(loop: asyncio.AbstractEventLoop | None, /) -> None:
    """Asyncio calls this when a loop starts and stops."""
    if loop is not None:
        world = mine()
        held: LoopInRunTime | None = getattr(loop, "mat_run_time", None)
        if world is not None:
            _adopt(loop, world)
        elif isinstance(held, LoopInRunTime) and isinstance(held.world, World):  # started in a thread that is not of the run
            held.world.loops.remove(held)
            held.leave()
    _real_set_running_loop(loop)


def _run_time_of(loop: Any) -> LoopInRunTime | None:
    """The run-time side of a loop that a thread of the run uses; the first use puts the loop under run time."""
    world = mine()
    if world is None or getattr(loop, "_thread_id", None) not in (None, threading.get_ident()) or not _adoptable(loop):
        return None
    return _adopt(loop, world)


def _loop_time(self: Any) -> float:
    held = _run_time_of(self)
    return clocks.real_monotonic() if held is None else held.time()


def _create_task(self: Any, coro: Any, **options: Any) -> Any:
    held = _run_time_of(self)
    return _real_create_task(self, coro, **options) if held is None else held.create_task(_real_create_task, coro, **options)


def _create_future(self: Any) -> asyncio.Future[Any]:
    held = _run_time_of(self)
    return _real_create_future(self) if held is None else held.create_future()


# -- loops that are made in the run -----------------------------------------------------------------------------------


def _new_event_loop() -> asyncio.AbstractEventLoop:
    return _real_new_event_loop() if mine() is None else _owned(_real_new_event_loop)


def _runner(self: asyncio.Runner, *, debug: bool | None = None, loop_factory: Any = None) -> None:
    made = loop_factory
    if made is not None and mine() is not None:
        made = functools.partial(_owned, loop_factory)
    _real_runner(self, debug=debug, loop_factory=made)


def _owned(factory: Callable[[], asyncio.AbstractEventLoop]) -> asyncio.AbstractEventLoop:
    """A loop by a factory, under run time. A loop that cannot keep it, as uvloop's, is replaced, and the run says so."""
    world = mine()
    if world is None:
        return factory()
    guarded, world.guarded = world.guarded, False  # where pipes are made of sockets, a loop connects to itself
    try:
        made = factory()
        if not _adoptable(made):
            made.close()
            if not isinstance(made, asyncio.BaseEventLoop):
                world.note("loop-replaced", f"{_name(made)} keeps its own time; the run uses a virtual loop instead")
            made = asyncio.SelectorEventLoop()
    finally:
        world.guarded = guarded
    _adopt(made, world).owned = True
    return made


# -- loops that keep their own time -----------------------------------------------------------------------------------


def _refusing(real: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Wrap what starts a loop that cannot be put under run time."""

    @functools.wraps(real)
    def start(*args: Any, **options: Any) -> Any:
        if mine() is not None:
            refuse(name or _name(args[0]))
        return real(*args, **options)

    return start


def _uvloop_run(real: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `uvloop.run`, which insists on its own loop: inside a run the coroutine runs on one of asyncio's."""

    def run(main: Any, *, loop_factory: Any = None, debug: bool | None = None, **options: Any) -> Any:
        world = mine()
        if world is None:
            return (
                real(main, debug=debug, **options)
                if loop_factory is None
                else real(main, loop_factory=loop_factory, debug=debug)
            )
        world.note("loop-replaced", "uvloop keeps its own time; the run uses a virtual loop instead")
        return asyncio.run(main, debug=debug)

    return run


def _in_trio() -> bool:
    trio: Any = sys.modules.get("trio")
    try:
        return trio is not None and trio.lowlevel.current_task() is not None
    except (AttributeError, RuntimeError):  # it is not running
        return False


# -- order ------------------------------------------------------------------------------------------------------------


def all_tasks(loop: asyncio.AbstractEventLoop | None = None) -> set[Any]:
    found = real_all_tasks(loop)
    return found if mine() is None else InOrder(found)


def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
    """Make the tasks in the order given. Asyncio first puts coroutines into a set, where they hash by their address."""
    if mine() is None or asyncio.isfuture(fs) or asyncio.iscoroutine(fs):
        return real_as_completed(fs, timeout=timeout)
    return real_as_completed([asyncio.ensure_future(each) for each in dict.fromkeys(fs)], timeout=timeout)


def _next_number() -> int | None:
    world = mine()
    return None if world is None else world.next_number()


# -- what is replaced -------------------------------------------------------------------------------------------------


def where_loaded() -> Iterator[tuple[Any, str, Any]]:
    """Replacements in classes and libraries that are already imported."""
    for module, name in hashed_by_address():
        yield module, name, numbered(getattr(module, name), _next_number)
    for kind in asyncio.AbstractEventLoop.__subclasses__():
        if kind is not asyncio.BaseEventLoop and kind.__flags__ & _HEAP_TYPE and not kind.__flags__ & _IMMUTABLE:
            for name in ("run_forever", "run_until_complete"):
                yield kind, name, _refusing(getattr(kind, name))
    if hasattr(sys.modules.get("uvloop"), "run"):
        yield sys.modules["uvloop"], "run", _uvloop_run(sys.modules["uvloop"].run)
    trio = sys.modules.get("trio")
    if trio is not None:
        yield trio, "run", _refusing(trio.run, "trio")
        yield trio.lowlevel, "start_guest_run", _refusing(trio.lowlevel.start_guest_run, "trio")


_HEAP_TYPE: Final = 1 << 9
_IMMUTABLE: Final = 1 << 8
REPLACED: Final[tuple[tuple[Any, str, Any], ...]] = (
    (asyncio.BaseEventLoop, "time", _loop_time), (asyncio.BaseEventLoop, "create_task", _create_task),
    (asyncio.BaseEventLoop, "create_future", _create_future),
    (asyncio.events, "_set_running_loop", _set_running_loop),
    (asyncio, "new_event_loop", _new_event_loop), (asyncio.events, "new_event_loop", _new_event_loop),
    (asyncio.Runner, "__init__", _runner),
    (asyncio, "all_tasks", all_tasks), (asyncio.tasks, "all_tasks", all_tasks),
    (asyncio, "as_completed", as_completed), (asyncio.tasks, "as_completed", as_completed),
)  # fmt: skip
