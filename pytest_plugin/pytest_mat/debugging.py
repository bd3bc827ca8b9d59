"""`--pdb` for contracts: a prompt in the agent's code, at the call that breaks the contract, while the run is in progress.

When the run is over, the agent's frames are gone: a prompt at the failure of the test would stand in our own.
"""

from __future__ import annotations

import bdb
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn

import pytest
from _pytest.debugging import pytestPDB
from _pytest.outcomes import Failed

from mat.core.errors import Uncontrolled, plural
from mat.core.record import Record
from mat.core.verdict import Verdict, Violation
from mat.kernel.callers import agent_frame, place_texts
from mat.kernel.names import HARNESS, origin

_OURS: Final = frozenset({"mat", "mat_contracts", "mat_faults", "mat_search", "mat_study", "pytest_mat"})
"""Packages whose frames a user need not see."""


class Breakpoint:
    """A sink of a run that opens one prompt, at the first step that `wanted` accepts. `stopped`: whether it did.

    `wanted` gets the record and the violations at that step, and returns what the prompt says; "" to go on.
    """

    def __init__(self, wanted: Callable[[Record, tuple[Violation, ...]], str]) -> None:
        self._wanted = wanted
        self.stopped = False

    def __call__(self, record: Record, found: Verdict | tuple[str, ...]) -> None:
        if self.stopped:
            return
        said = self._wanted(record, found.violations if isinstance(found, Verdict) else ())
        frame = agent_frame(sys._getframe(1)) if said else None
        if frame is not None:
            self.stopped = True
            _interact(frame, said)


def _interact(frame: FrameType, said: str) -> None:
    """Open pytest's debugger in a frame. What the user asks for there (step, next, a breakpoint) goes on from the frame."""
    pytests: Any = pytestPDB
    debugger = pytests._init_pdb("", header=said)
    debugger.reset()
    stops = debugger.stop_here
    debugger.stop_here = lambda at: not _is_ours(at) and stops(at)
    above: FrameType | None = frame
    while above is not None:
        above.f_trace = debugger.trace_dispatch
        debugger.botframe = above
        above = above.f_back
    debugger.interaction(frame, None)
    if debugger.quitting:
        pytest.exit("Quitting debugger")
    if debugger.stoplineno != -1 or debugger.get_all_breaks():
        sys.settrace(debugger.trace_dispatch)


def _is_ours(frame: FrameType | None) -> bool:
    """Whether a frame is ours, or of generated code or the standard library on our behalf: nobody wants to step into it."""
    while frame is not None:
        if _module(frame) in _OURS:
            return True
        path = frame.f_code.co_filename
        if not path.startswith("<") and origin(path) != "standard":
            return False
        frame = frame.f_back
    return False


def _module(frame: FrameType) -> str:
    """The package that a frame's module belongs to."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class Inspected(Failed, bdb.BdbQuit):
    """The failure of a test that a person has inspected: pytest opens no second prompt for it."""

    __module__ = "builtins"  # as pytest's own, so that the short summary gives its name without a module


def fail(text: str, *, inspected: bool) -> NoReturn:
    """Fail with a text and without a traceback."""
    raise (Inspected if inspected else Failed)(text, pytrace=False)


def as_refusal(error: BaseException) -> Uncontrolled | None:
    """The refused ways out of a run that an exception consists of, alone or in groups, as one exception; None for any other.

    Its traceback has the project's own frames only: between the agent's call and the refusal are dozens of a library's.
    """
    found = list(_refusals(error, ()))
    if not found or not all(isinstance(each, Uncontrolled) for each, _ in found):
        return None
    first, entries = found[0]
    assert isinstance(first, Uncontrolled)
    others = sorted({each.what for each, _ in found if isinstance(each, Uncontrolled) and each.what != first.what})
    where, places = first.where, place_texts((each.tb_frame.f_code.co_filename, each.tb_lineno) for each in entries)
    if places:  # a task of a library, as those of anyio, began where the loop was started: the call itself is in the traceback
        site = next((where.removesuffix(each).removesuffix(" at ") for each in places if where.endswith(each)), where)
        where = " at ".join(filter(None, (site, places[-1])))
    what = f"{first.what}, and {plural(len(others), 'more way')} out" if others else first.what
    refusal = Uncontrolled(what, why=first.why, fix=first.fix, where=where)
    return refusal.with_traceback(_linked(entries))


def _refusals(
    error: BaseException, above: tuple[TracebackType, ...]
) -> Iterator[tuple[BaseException, tuple[TracebackType, ...]]]:
    """The exceptions in nested groups, each with the project's entries of its traceback, those of the groups first."""
    entries = (*above, *(each for each in _traceback_entries(error.__traceback__) if _is_of_project(each.tb_frame)))
    if not isinstance(error, BaseExceptionGroup):
        yield error, entries
        return
    for each in error.exceptions:
        yield from _refusals(each, entries)


def _is_of_project(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return _module(frame) not in HARNESS and not path.startswith("<") and origin(path) == "project"


def without_our_frames(error: BaseException) -> BaseException:
    """The exception, and those that led to it, without our frames in their tracebacks."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _filtered(each.__traceback__)
        waiting += [each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ())]
    return error


def _filtered(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames; unchanged if there are no others."""
    return _linked([each for each in _traceback_entries(traceback) if _module(each.tb_frame) not in _OURS]) or traceback


def _traceback_entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _linked(entries: Sequence[TracebackType]) -> TracebackType | None:
    """A traceback of these entries; None for none."""
    found: TracebackType | None = None
    for entry in reversed(entries):
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return found
