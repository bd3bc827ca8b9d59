"""An asyncio loop in run time: when idle it hands over, and time jumps when nobody can run.

Every asyncio loop that waits in a selector can keep run time, whoever made it and when: `LoopInRunTime` sets a clock
and a selector of its own as attributes of the loop, and removes them again.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from mat.core.errors import RunStopped
from mat.kernel import clock as clocks
from mat.kernel import locks, numbered
from mat.kernel.probe import in_machinery, place
from mat.kernel.scheduler import Scheduler
from mat.kernel.threads import HeldCall

_PASS: Final = 10
"""How many polls one pass of a loop counts as, if the loop never has to wait."""
_STOPS: Final = 10
"""How often the tasks of a stopped run are cancelled. If they still go on, the loop itself is interrupted."""
_STEPS_IN_A_SECOND: Final = 10
"""Timers from before the run have a remaining delay in real time; it is rounded up to a tenth of a second."""
_ABSENT: Final = object()


class LoopWorld(Protocol):
    """What a loop needs from its world. `guarded`: a run is open. `cancelled_by`: why the run's tasks were cancelled."""

    guarded: bool
    cancelled_by: str

    def monotonic_s(self) -> float: ...
    def next_number(self) -> int: ...


class VirtualSelector(selectors.BaseSelector):
    """A selector that asks the operating system without waiting, and waits in run time instead."""

    def __init__(self, real: selectors.BaseSelector, loop: LoopInRunTime) -> None:
        self.real, self._loop = real, loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self.real.get_key(fileobj)

    def close(self) -> None:
        self.real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self.real.get_map()

    def listens(self) -> bool:
        """Whether the user has a descriptor open; the loop itself has one for wake-ups."""
        return len(self.real.get_map() or ()) > 1

    def look(self, seconds: float) -> bool:
        return bool(self.real.select(seconds))

    def describe(self) -> list[str]:
        """The tasks of the loop that wait, and where."""
        tasks = [task for task in asyncio.all_tasks(self._loop.loop) if not task.done()]
        return [f"{task.get_name()} waits at {_suspended_at(task)}" for task in sorted(tasks, key=_name_order)]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        turns = locks.scheduler()
        me = None if turns is None else turns.me()
        if turns is None or me is None or turns.over:
            return self.real.select(timeout)
        if turns.waits_for_real() and (timeout is None or timeout > 0):
            return turns.wait_in_real_time(me, self.real.select, timeout) or []
        events = self.real.select(0)
        try:
            if events or (timeout is not None and timeout <= 0):
                return self.real.select(0) if turns.polled(me, _PASS, self._due_ns(turns), self) else events
            turns.block(me, self, turns.deadline_ns(-1 if timeout is None else timeout), outside=self)
        except RunStopped as stop:
            if not self._loop.cancel_tasks_of_run(stop.reason):
                raise
        if turns.over and me.ended:
            raise SystemExit
        return self.real.select(0)

    def _due_ns(self, turns: Scheduler) -> int | None:
        """The run time of the loop's next timer."""
        scheduled = self._loop.timers
        return turns.deadline_ns(max(0.0, scheduled[0].when() - self._loop.time())) if scheduled else None


class LoopInRunTime:
    """One loop while it keeps the time of a world. Tasks that the world's code makes are numbered from 1 in each loop.

    `owned`: the run made the loop, so nobody needs it after the run has been stopped. `task`: the task that entered the run, if
    the loop runs around it.
    """

    __slots__ = ("_before", "_named", "_outer", "_put", "_stops", "_timers", "loop", "owned", "selector", "task", "world")

    def __init__(self, loop: Any, world: LoopWorld) -> None:
        self.loop, self.world = loop, world
        self._outer: LoopInRunTime | None = vars(loop).get("mat_run_time")
        self.owned, self._named, self._stops = False, 0, 0
        self.task: asyncio.Task[Any] | None = None
        held = loop._selector
        self.selector = VirtualSelector(held.real if isinstance(held, VirtualSelector) else held, self)
        self._timers = self._shift_timers()
        self._before: dict[str, Any] = {}
        self._put = {
            "mat_run_time": self, "_selector": self.selector, "time": self.time, "_write_to_self": self._waker(),
            "_asyncgens": numbered.OrderedWeakSet(loop._asyncgens),
        }  # fmt: skip
        for name, value in self._put.items():
            self._before[name] = vars(loop).get(name, _ABSENT)
            setattr(loop, name, value)

    @property
    def timers(self) -> list[Any]:
        return self.loop._scheduled  # type: ignore[no-any-return]

    # -- into run time, and back ------------------------------------------------------------------------------------

    def _outer_time(self) -> float:
        return clocks.real_monotonic() if self._outer is None else self._outer.time()

    def _shift_timers(self) -> dict[int, tuple[Any, float]]:
        """Move the pending timers to run time, with the delay that is left; returns them with their own times."""
        now, run_now = self._outer_time(), self.time()
        found = {}
        for timer in self.timers:
            found[id(timer)] = (timer, timer._when)
            timer._when = run_now + math.ceil((timer._when - now) * _STEPS_IN_A_SECOND) / _STEPS_IN_A_SECOND
        return found

    def leave(self) -> None:
        """Put the loop back on the time it had. Earlier timers keep their time, new ones their remaining delay."""
        loop, now, run_now = self.loop, self._outer_time(), self.time()
        if self.task is not None:
            for _ in range(self._stops):
                self.task.uncancel()  # the request ended the run, and ends nothing else
        generators = list(loop._asyncgens)
        for name, value in self._before.items():
            if vars(loop).get(name) is not self._put[name]:  # replaced by somebody else, or removed as the loop was closed
                continue
            if value is _ABSENT:
                delattr(loop, name)
            else:
                setattr(loop, name, value)
        for generator in generators:
            loop._asyncgens.add(generator)
        for timer in self.timers:
            own = self._timers.get(id(timer))
            timer._when = timer._when - run_now + now if own is None else own[1]
        heapq.heapify(self.timers)

    # -- what the loop does instead of its own: clock, numbered tasks and futures, wake-ups ---------------------------

    def time(self) -> float:
        return self.world.monotonic_s()

    def create_future(self) -> asyncio.Future[Any]:
        return numbered.future(self.loop, self.world.next_number())

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return numbered.task(coro, number=self.world.next_number(), guarded=self.world.guarded, loop=loop, **options)

    def create_task(self, real: Callable[..., Any], coro: Any, *, name: object = None, **options: Any) -> Any:
        """`real` is the loop's own. Unnamed tasks get names that do not depend on what ran in the process before."""
        if name is None:
            self._named += 1
            name = f"Task-{self._named}"
        loop = self.loop
        given = loop._task_factory
        loop._task_factory = _numbering_factory(given, self._make_task)
        try:
            return real(loop, coro, name=name, **options)
        finally:
            loop._task_factory = given

    def _waker(self) -> Callable[[], None]:
        """`_write_to_self`: wake the loop, because another thread has a callback for it."""
        real = type(self.loop)._write_to_self

        def write_to_self() -> None:
            real(self.loop)
            turns = locks.scheduler()
            if turns is not None:
                turns.wake(self.selector)

        return write_to_self

    # -- who goes first ---------------------------------------------------------------------------------------------

    def others_ready(self) -> bool:
        """Whether another task of this loop could go on."""
        return bool(self.loop._ready)

    async def hold(self, calls: int) -> int:
        """Hold the calling task until `calls` of others have ended or nobody else can run; return how many ended."""
        scheduler = locks.scheduler()
        if scheduler is None or scheduler.me() is None or not (self.others_ready() or scheduler.others_ready()):
            return 0
        free = self.loop.create_future()
        held = HeldCall(calls, lambda: self.loop.call_soon_threadsafe(_release_future, free))
        scheduler.held.append(held)
        try:
            await free
        finally:
            if held in scheduler.held:
                scheduler.held.remove(held)
        return held.ended

    # -- the end of a run that was stopped --------------------------------------------------------------------------

    def cancel_tasks_of_run(self, reason: str) -> bool:
        """Cancel the tasks of a stopped run, and let the loop go on; False if the loop itself must be interrupted.

        A loop that the run made is interrupted. One that others go on using is not: a task that stays suspended would hold
        what it holds, and whoever runs the test in a task would wait for it for ever.
        """
        if self.owned or self._stops >= _STOPS:
            return False
        found = sorted((task for task in asyncio.all_tasks(self.loop) if self._is_of_run(task)), key=_name_order)
        if not found:
            return False
        self._stops += 1
        self.world.cancelled_by = reason
        for task in found:
            task.cancel(f"the run was stopped: {reason}")
        return True

    def _is_of_run(self, task: asyncio.Task[Any]) -> bool:
        if self.task is not None:  # the body runs in this task, which ends the others if it is written to
            return task is self.task
        return numbered.made_in_run(task) or getattr(task.get_coro(), "__qualname__", "") == _ANYIO_RUNNER


_ANYIO_RUNNER: Final = "TestRunner._run_tests_and_fixtures"
"""The task in which anyio's pytest plugin runs all tests of a scope."""


def _numbering_factory(given: Any, numbering: Callable[..., Any]) -> Any:
    """The task factory for one task: the user's own, unless it is asyncio's."""
    if given is None:
        return numbering
    eager = getattr(asyncio, "eager_task_factory", None)
    return asyncio.create_eager_task_factory(numbering) if given is eager else given  # type: ignore[attr-defined]


def _name_order(task: asyncio.Task[Any]) -> tuple[int, str]:
    name = task.get_name()
    return (len(name), name)  # Task-2 before Task-10


def _suspended_at(task: asyncio.Task[Any]) -> str:
    """The innermost place in the user's code at which a task is suspended."""
    coroutine: Any = task.get_coro()
    found = None
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if found is None or not in_machinery(frame):
            found = frame
        coroutine = coroutine.cr_await
    return "an unknown place" if found is None else place(found)


def _release_future(free: asyncio.Future[None]) -> None:
    if not free.done():
        free.set_result(None)
