"""Where a thread stands, and whether it gets on: read from outside, without its help."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import thread as executors
from types import FrameType
from typing import Any, Final

from mat.kernel import clock as clocks

_MACHINERY: Final = ("threading", "queue", "concurrent.", "asyncio", "selectors", "contextlib", "mat.", "anyio")
"""Modules in which threads wait on behalf of others."""
_OUTSIDE: Final = frozenset({"subprocess", "multiprocessing", "selectors", "socket", "ssl", "socketserver", "http", "urllib"})
"""Modules in which threads wait for what is outside the process."""
_HARNESS: Final = ("concurrent.futures", "execnet", "xdist", "pytest_", "_pytest", "pytest_mat", "coverage", "pydevd", "_pydevd")
"""Modules whose threads never wake an agent: idle workers, and those that run the test."""
_RUN: Final = executors._WorkItem.run.__code__  # type: ignore[attr-defined]
_allocate_lock: Final = threading._allocate_lock  # type: ignore[attr-defined]


def pause(seconds: float) -> None:
    """Wait in real time; not by a sleep, which would be reported as one of the agent's."""
    gate = _allocate_lock()
    gate.acquire()
    gate.acquire(timeout=seconds)


def progress(ident: int) -> tuple[int, int, float] | None:
    """Where a thread stands and how much processor time it has had; None where there is no such thread."""
    frame = sys._current_frames().get(ident)
    return None if frame is None else (id(frame), frame.f_lasti, clocks.thread_time_s(ident))


def starved(native: int) -> bool:
    """Whether a thread could run and is given no processor, or waits for a disk; False where the system does not tell."""
    try:
        with open(f"/proc/self/task/{native}/stat", "rb") as told:
            return told.read().rpartition(b")")[2].split()[0] in (b"R", b"D")
    except (OSError, IndexError):
        return False


def where(ident: int) -> str:
    """The innermost place in the user's code at which a thread stands."""
    frame = sys._current_frames().get(ident)
    innermost = frame
    while frame is not None and in_machinery(frame):
        frame = frame.f_back
    frame = frame or innermost
    return "an unknown place" if frame is None else place(frame)


def waits_outside(ident: int) -> bool:
    """Whether a thread stands in a wait for another process or a socket, which may take as long as it likes."""
    frame = sys._current_frames().get(ident)
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _OUTSIDE


def idles(ident: int) -> bool:
    """Whether a thread is the worker of an executor and has no job."""
    frame = sys._current_frames().get(ident)
    found = False
    while frame is not None:
        if frame.f_code is _RUN:
            return False
        found = found or frame.f_code is executors._worker.__code__  # type: ignore[attr-defined]
        frame = frame.f_back
    return found


def waits_for_child(thread: threading.Thread) -> bool:
    """Whether it is the thread in which asyncio waits for a child process."""
    target = getattr(thread, "_target", None)
    return getattr(target, "__name__", "") == "_do_waitpid"


def may_wake(thread: threading.Thread) -> bool:
    """Whether a thread around a run may have something for it: not an idle worker, nor one of the test's machinery."""
    target: Any = getattr(thread, "_target", None)
    module = str(getattr(target, "__module__", "") or type(thread).__module__)
    return thread is not threading.main_thread() and not module.startswith(_HARNESS)


def in_machinery(frame: FrameType) -> bool:
    """Whether a frame is of the standard library's or our own waiting."""
    return str(frame.f_globals.get("__name__", "")).startswith(_MACHINERY)


def place(frame: FrameType) -> str:
    """file:line in function"""
    name = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
