"""Threads that inherit a context variable from whoever started them, outside of runs. (A run does this for all its threads.)"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final

from mat.kernel import world as worlds

_real_start: Final = threading.Thread.start
_real_submit: Final = concurrent.futures.ThreadPoolExecutor.submit
_lock: Final = threading.Lock()
_inherited: Final[dict[ContextVar[Any], int]] = {}
"""How often each variable is wanted."""


@contextmanager
def inherited(variable: ContextVar[Any]) -> Iterator[None]:
    """Inside the block, threads and jobs that are started where the variable has a value run in a copy of that context.

    `threading.Thread.start` and `ThreadPoolExecutor.submit` are replaced as long as a block is open, and act as ever where the
    variable is None or unset. Processes inherit nothing.
    """
    with _lock:
        _inherited[variable] = _inherited.get(variable, 0) + 1
        if worlds.current() is None:  # a world has replaced both, and its threads inherit everything
            threading.Thread.start = _start_in_context  # type: ignore[method-assign]
            concurrent.futures.ThreadPoolExecutor.submit = _submit_in_context  # type: ignore[method-assign]
    try:
        yield
    finally:
        with _lock:
            _inherited[variable] -= 1
            if not _inherited[variable]:
                del _inherited[variable]
            if not _inherited and threading.Thread.start is _start_in_context:
                threading.Thread.start = _real_start  # type: ignore[method-assign]
                concurrent.futures.ThreadPoolExecutor.submit = _real_submit  # type: ignore[method-assign]


def _wanted() -> list[ContextVar[Any]]:
    return [variable for variable in list(_inherited) if variable.get(None) is not None]


def _start_in_context(self: threading.Thread) -> None:
    if _wanted():
        context, run = copy_context(), self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
    _real_start(self)


def _submit_in_context(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    wanted = _wanted()
    if not wanted:
        return _real_submit(self, fn, *args, **kwargs)
    context = copy_context()
    tokens = [variable.set(None) for variable in wanted]  # a worker that starts here serves other jobs, too
    try:
        return _real_submit(self, context.run, fn, *args, **kwargs)
    finally:
        for variable, token in zip(wanted, tokens, strict=True):
            variable.reset(token)
