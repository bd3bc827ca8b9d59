"""Injected failures that leave the body of a run: which port they came from, and of which type they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from mat.boundary.port import Port
from mat.core.run import Uncaught

_MARK: Final = "__mat_injected__"


def marked(error: BaseException, port: Port) -> BaseException:
    """The same exception, which now says which port it was injected at."""
    with suppress(AttributeError, TypeError):  # an exception class with slots
        setattr(error, _MARK, f"{port.boundary}:{port.name}")
    return error


def uncaught(error: BaseException | None) -> Uncaught | None:
    """The injected failure that ended a body, by itself or in the group of a task group; None if something else did."""
    for each in _leaves(error):
        port = getattr(each, _MARK, "")
        if isinstance(port, str) and port:
            kind = type(each)
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            return Uncaught(port=port, type=f"{module}{kind.__qualname__}")
    return None


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    elif error is not None:
        yield error
