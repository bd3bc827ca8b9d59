"""`--pdb` for contracts: a prompt in the agent's code, at the call that breaks the contract, while the run is in progress.

When the run is over, the agent's frames are gone: a prompt at the failure of the test would stand in our own.
"""

from __future__ import annotations

import bdb
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn

import pytest
from _pytest.debugging import pytestPDB
from _pytest.outcomes import Failed

from mat.core.record import Record
from mat.core.verdict import Verdict, Violation
from mat.kernel.callers import agent_frame
from mat.kernel.names import origin

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
    entries = []
    each = traceback
    while each is not None:
        if _module(each.tb_frame) not in _OURS:
            entries.append(each)
        each = each.tb_next
    found: TracebackType | None = None
    for entry in reversed(entries):
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return found or traceback
