"""An asyncio loop in virtual time: it jumps to the next timer only when nothing can run (DESIGN decision 13)."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

from mat.kernel import clock as clocks
from mat.kernel import world as worlds

_SLICE_S = 0.02
"""Real seconds between looks at a running job; the loop is woken earlier by the job's end."""


class VirtualSelector(selectors.BaseSelector):
    """Asks the operating system without waiting, and waits in virtual time instead."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()

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
        events = self._real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        jobs = world.jobs
        if jobs.open_next():
            while not events and jobs.running:
                events = self._real.select(_SLICE_S)
            return events
        if jobs.helpers_alive():
            return self._real.select(_SLICE_S)
        outside = len(self._real.get_map()) > 1  # one is the loop's own wake-up pipe
        if outside or jobs.threads_alive():
            world.note("real-clock", "the loop waits for a descriptor or a thread that virtual time does not control")
            return self._real.select(_SLICE_S if timeout is None else min(timeout, _SLICE_S))
        if timeout is None:
            if not world.guarded:  # set-up and tear-down belong to no run; what they wait for is real
                return self._real.select(None)
            world.deadlock()
        world.clock.sleep(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop of a virtual run; outside a world it is an ordinary selector loop."""

    def __init__(self) -> None:
        super().__init__(VirtualSelector())

    def time(self) -> float:
        world = worlds.current()
        if world is None or not world.clock.virtual:
            return clocks.real_monotonic()
        return world.monotonic_s()
