"""How a run reacts to a fault: which calls it has that the run without the fault has not, which are missing, how it ends."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Final

from mat.core.record import Record
from mat.core.run import Run

_NEXT: Final = 2
"""Calls after the fault, which are not fresh, that are returned."""


def ending_of(run: Run) -> tuple[object, ...]:
    """How it ended, and what became of its contracts."""
    return run.termination, tuple(sorted((each.contract, each.standing) for each in run.outcomes))


def record_port(record: Record) -> str:
    return record.site.rpartition("#")[0]


def call_of(record: Record) -> int:
    """A number that is equal for calls of one port with the same arguments."""
    return hash((record_port(record), record.action.arguments))


def calls_of(run: Run) -> array[int]:
    return array("q", [call_of(record) for record in run.records if record.action.boundary])


def compared(run: Run, step: int, parent: Iterable[int]) -> tuple[list[Record], list[Record], int]:
    """The fresh calls after a step, the next ones that are not, and how many of the parent's calls are missing.

    A call is fresh if no call of the parent is left that it could be.
    """
    left = Counter(parent)
    fresh: list[Record] = []
    following: list[Record] = []
    for record in run.records:
        if not record.action.boundary:
            continue
        call = call_of(record)
        left[call] -= 1
        if record.step <= step:
            continue
        if left[call] < 0:
            fresh.append(record)
        elif len(following) < _NEXT:
            following.append(record)
    return fresh, following, sum(count for count in left.values() if count > 0)
