"""The audit hook: CPython reports sockets, processes, files and sleeps to it, by whatever name and module they were called.

A hook cannot be removed again, so there is one, installed when somebody first watches. With it in place, each assignment to
`__class__`, three in each recorded step, costs four times as much: about a microsecond a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[str, tuple[Any, ...]], None]
"""(event, its arguments). What it raises is raised in place of what the event is about."""

_handlers: dict[str, tuple[Handler, ...]] = {}


def watch(events: Iterable[str], handler: Handler) -> None:
    """Call the handler for these events from now on; once, however often it is given."""
    first = not _handlers
    for event in events:
        known = _handlers.get(event, ())
        if handler not in known:
            _handlers[event] = (*known, handler)
    if first and _handlers:
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _handlers:
        for handler in _handlers[event]:
            handler(event, arguments)
