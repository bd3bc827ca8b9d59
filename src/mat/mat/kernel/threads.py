"""The threads that take turns in a run, and what the scheduler needs from its surroundings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from mat.kernel import clock as clocks

allocate_lock: Final = threading._allocate_lock  # type: ignore[attr-defined]
"""The real primitive, even while a world has replaced it; so is `real_rlock`."""
real_rlock: Final = threading.RLock


class ExternalWaker(Protocol):
    """Something outside the run that can wake a waiting thread: an event loop with its own descriptors."""

    def listens(self) -> bool: ...
    def look(self, seconds: float) -> bool:
        """Wait in real time, at most `seconds`; returns whether something came."""

    def describe(self) -> list[str]:
        """What waits there: one phrase for each task."""


class SimulatedThread:
    """One thread of the run.

    `key`: what it waits for. `turn_lock` is released when its turn comes. `polls`: how often it has polled (the clock, an
    event, a future) since it last waited. `may_outlive_run`: as daemons do, while it waits without a deadline. `ended`: the
    run is over, so it must end.
    """

    __slots__ = (
        "at_turn_lock",
        "deadline_ns",
        "ended",
        "finished",
        "ident",
        "key",
        "may_outlive_run",
        "name",
        "native",
        "number",
        "order",
        "outside",
        "polled_ns",
        "polls",
        "stop",
        "timed_out",
        "turn_lock",
    )

    def __init__(self, name: str, number: int, ident: int = 0) -> None:
        self.name, self.number, self.ident = name, number, ident
        self.turn_lock = allocate_lock()
        self.turn_lock.acquire()
        self.key: Any = None
        self.deadline_ns: int | None = None
        self.order = 0
        self.outside: ExternalWaker | None = None
        self.timed_out = False
        self.finished = False
        self.stop: str = ""
        self.native = threading.get_native_id() if ident else 0
        self.polls = self.polled_ns = 0
        self.may_outlive_run = False
        self.ended = False


class HeldCall:
    """A call that lets others go first. `release` lets it go on; `ended` counts the calls of others that ended meanwhile."""

    __slots__ = ("ended", "left", "release")

    def __init__(self, turns: int, release: Callable[[], Any]) -> None:
        self.left, self.ended, self.release = turns, 0, release


class SchedulerHost(Protocol):
    """What the scheduler needs from its world. `guarded`: a run is open."""

    guarded: bool

    @property
    def clock(self) -> clocks.Clock: ...
    def note(self, code: str, message: str) -> None: ...
    def jump(self, to_ns: int) -> bool:
        """Move the clock; False if it is then beyond the horizon."""

    def stopped(self, reason: str) -> None: ...
