"""Thread probes: where a thread is and whether it makes progress, read from outside."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import thread as executors
from types import FrameType
from typing import Any, Final

_MACHINERY: Final = ("threading", "queue", "concurrent.", "asyncio", "selectors", "contextlib", "mat.", "anyio")
"""Modules in which threads wait on behalf of others."""
_OUTSIDE: Final = frozenset({"subprocess", "multiprocessing", "selectors", "socket", "ssl", "socketserver", "http", "urllib"})
"""Modules in which threads wait for something outside the process."""
_HARNESS: Final = (
    "concurrent.futures",
    "execnet",
    "xdist",
    "pytest_",
    "_pytest",
    "pytest_mat",
    "mat_study",
    "coverage",
    "pydevd",
    "_pydevd",
)
"""Modules whose threads never wake an agent: idle workers, and those that run the test."""
TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
"""Ticks of processor time in a second."""
_RUN: Final = executors._WorkItem.run.__code__
_allocate_lock: Final = threading._allocate_lock  # type: ignore[attr-defined]


def pause(seconds: float) -> None:
    """Wait in real time, without a sleep, which would be reported as a sleep of the agent."""
    gate = _allocate_lock()
    gate.acquire()
    gate.acquire(timeout=seconds)


def progress(ident: int, native: int) -> tuple[int, int, int, bool] | None:
    """(frame id, bytecode offset, processor time in ticks, whether it is starved); None if there is no such thread.

    A thread that could run but gets no processor, or that waits for a disk, is starved, not blocked. Outside Linux the last
    two are always 0 and False.
    """
    frame = sys._current_frames().get(ident)
    if frame is None:
        return None
    used, starved = 0, False
    try:
        with open(f"/proc/self/task/{native}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        used, starved = int(fields[11]) + int(fields[12]), fields[0] in (b"R", b"D")
    except (OSError, IndexError, ValueError):
        pass
    return (id(frame), frame.f_lasti, used, starved)


def where(ident: int) -> str:
    """The innermost place in the user's code where a thread is."""
    frame = sys._current_frames().get(ident)
    innermost = frame
    while frame is not None and in_machinery(frame):
        frame = frame.f_back
    frame = frame or innermost
    return "an unknown place" if frame is None else place(frame)


def waits_outside(ident: int) -> bool:
    """Whether a thread waits for another process or a socket, which may take any time."""
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
        found = found or frame.f_code is executors._worker.__code__
        frame = frame.f_back
    return found


def waits_for_child(thread: threading.Thread) -> bool:
    """Whether asyncio waits for a child process in this thread."""
    return getattr(getattr(thread, "_target", None), "__name__", "") == "_do_waitpid"


def waits_on_pipes(thread: threading.Thread) -> bool:
    """Whether the thread is the management thread of a multiprocessing pool, which only waits for pipes."""
    return getattr(getattr(thread, "_target", None), "__name__", "") == "_handle_workers"


def may_wake(thread: threading.Thread) -> bool:
    """Whether a thread may wake a run that it does not belong to. Not this thread, the main thread, a worker of an executor
    (busy or idle), or a thread that runs the test.
    """
    target: Any = getattr(thread, "_target", None) or getattr(thread, "function", None)
    module = str(getattr(target, "__module__", "") or type(thread).__module__)
    return thread.ident != threading.get_ident() and thread is not threading.main_thread() and not module.startswith(_HARNESS)


def in_machinery(frame: FrameType) -> bool:
    """Whether a frame belongs to the waiting code of the standard library or of this package."""
    return str(frame.f_globals.get("__name__", "")).startswith(_MACHINERY)


def place(frame: FrameType) -> str:
    """file:line in function"""
    name = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
