"""An asyncio loop in virtual time: it jumps to the next timer only when nothing can run (DESIGN decision 13)."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any, Final, TypeVarTuple

from mat.kernel import clock as clocks
from mat.kernel import world as worlds

Ts = TypeVarTuple("Ts")
_PATIENCE: Final = 10
"""Slices that a job may take after it called the loop before virtual time goes on without it."""
_SLICE_S: Final = 0.02
"""Real seconds between looks at a running job; the loop is woken earlier by the job's end."""


class VirtualSelector(selectors.BaseSelector):
    """Asks the operating system without waiting, and waits in virtual time instead."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self._patience = _PATIENCE

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        world = worlds.current()
        if world is None or not world.clock.virtual:
            return self._real.select(timeout)
        jobs = world.jobs
        busy = (timeout is None or timeout > 0) and jobs.busy()  # asked first: what a job reports after this is seen below
        events = self._real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if busy:
            return self._await_job(world, timeout)
        if jobs.helpers_alive():
            return self._real.select(_SLICE_S)
        return self._idle(world, timeout)

    def _await_job(self, world: worlds.World, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait in real time for a running job. One that has called the loop may wait for it: then time must not stand still."""
        events = self._real.select(_SLICE_S)
        if events or timeout is None or not world.jobs.waits_for_loop():
            self._patience = _PATIENCE
            return events
        self._patience -= 1
        if self._patience <= 0:
            self._patience = _PATIENCE
            world.note("order-not-controlled", "a job in a thread waits for the loop, so the two run in parallel")
            world.sleep(timeout)
        return []

    def _idle(self, world: worlds.World, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing of ours can run: jump to the next timer, unless something outside may still speak."""
        outside = len(self._real.get_map()) > 1  # one is the loop's own wake-up pipe
        threads = world.jobs.threads_alive()
        if not outside and not threads:
            if timeout is None:
                if not world.guarded:  # set-up and tear-down belong to no run; what they wait for is real
                    return self._real.select(None)
                world.deadlock()
                return []
            world.sleep(timeout)
            return []
        world.note("real-clock", "the loop waits for a descriptor or a thread that virtual time does not control")
        began = clocks.real_monotonic()
        events = self._real.select(_SLICE_S if timeout is None else min(timeout, _SLICE_S))
        if timeout is not None and not events:  # a plain thread gets its chance; beside a descriptor, time runs as outside
            passed = clocks.real_monotonic() - began
            world.sleep(min(timeout, passed) if outside else timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop of a virtual run; outside a world it is an ordinary selector loop."""

    def __init__(self) -> None:
        world = worlds.current()
        guarded = world is not None and world.guarded
        if world is not None:
            world.guarded = False  # where pipes are made of sockets, the loop connects to itself
        try:
            super().__init__(VirtualSelector())
        finally:
            if world is not None:
                world.guarded = guarded

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        world = worlds.current()
        if world is not None:
            world.jobs.called_loop()
        return handle

    def time(self) -> float:
        world = worlds.current()
        if world is None or not world.clock.virtual:
            return clocks.real_monotonic()
        return world.monotonic_s()
