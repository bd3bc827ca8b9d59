"""Tasks and futures of a run hash by the number at which they were made, so that sets of them iterate alike everywhere.

By default an object hashes by its address: `asyncio.wait`, `asyncio.all_tasks`, `TaskGroup` and anyio's cancel scopes keep sets
of tasks, so the order of what they return, or cancel, would differ from run to run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final


class _Task(asyncio.Task[Any]):
    __slots__ = ("mat_guarded", "mat_number")

    def __init__(self, coro: Any, *, number: int, guarded: bool, **options: Any) -> None:
        self.mat_number, self.mat_guarded = number, guarded  # first, because the base class hashes the task
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.mat_number


class _Future(asyncio.Future[Any]):
    __slots__ = ("mat_number",)

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.mat_number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.mat_number


_Task.__name__ = _Task.__qualname__ = "Task"  # the name is part of a task's repr
_Future.__name__ = _Future.__qualname__ = "Future"
_numbered: Final[dict[type, type]] = {}


def task(coro: Any, *, number: int, guarded: bool, loop: asyncio.AbstractEventLoop, **options: Any) -> asyncio.Task[Any]:
    """A new task. `guarded`: whether a run is open, whose task it is."""
    return _Task(coro, number=number, guarded=guarded, loop=loop, **options)


def future(loop: asyncio.AbstractEventLoop, number: int) -> asyncio.Future[Any]:
    return _Future(number=number, loop=loop)


def made_in_run(made: object) -> bool:
    """Whether a task was made while a run was open."""
    return bool(getattr(made, "mat_guarded", False))


def _number_of(made: object) -> int:
    return int(getattr(made, "mat_number", 0))


class InOrder(set[Any]):
    """A set of tasks that iterates in the order in which they were made. Tasks of before the run come first."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=_number_of))


class OrderedWeakSet:
    """What an event loop needs of a WeakSet, for its async generators; it iterates in the order in which they were added."""

    __slots__ = ("_held",)

    def __init__(self, items: Any = ()) -> None:
        self._held: dict[int, weakref.ref[Any]] = {}
        for item in items:
            self.add(item)

    def add(self, item: Any) -> None:
        held, key = self._held, id(item)
        held[key] = weakref.ref(item, lambda _: held.pop(key, None))

    def discard(self, item: Any) -> None:
        self._held.pop(id(item), None)

    def clear(self) -> None:
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Any]:
        found = [reference() for reference in list(self._held.values())]
        return iter([item for item in found if item is not None])


def numbered(kind: type, next_number: Callable[[], int | None]) -> type:
    """A subclass of a class written in Python, under its name. An instance hashes by its number, if there is a next one."""
    if kind in _numbered.values():  # another run is open around this one
        return kind
    found = _numbered.get(kind)
    if found is None:

        def initialize(self: Any, *args: Any, **options: Any) -> None:
            self.mat_number = next_number() or object.__hash__(self)
            kind.__init__(self, *args, **options)  # type: ignore[misc]

        body = {"__slots__": ("mat_number",), "__init__": initialize, "__hash__": _number_of, "__module__": kind.__module__}
        found = _numbered[kind] = type(kind.__name__, (kind,), body)
        found.__qualname__ = kind.__qualname__
    return found


def hashed_by_address() -> Iterator[tuple[Any, str]]:
    """(module, name) of the loaded classes, written in Python, that libraries keep in sets."""
    yield asyncio.tasks, "_GatheringFuture"
    yield concurrent.futures._base, "Future"
    if "anyio" in sys.modules:
        import anyio._backends._asyncio as backend

        yield backend, "CancelScope"
