"""The request that an HTTP client sends, for artifact tracking. Its adapter knows it; a step records only a part of it.

An artifact such as a signed URL is nowhere in the arguments of such a step, which are a path and a query. It is in the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from mat.boundary.port import Port

Assembly: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The arguments of a step -> {url, headers, body} of the request that they make. It is read and never recorded."""
_sent: ContextVar[tuple[Port, Assembly] | None] = ContextVar("sent", default=None)


@contextmanager
def sending(port: Port, assembly: Assembly) -> Iterator[None]:
    """Say how the request of a call is assembled, around the crossing of that call."""
    token = _sent.set((port, assembly))
    try:
        yield
    finally:
        _sent.reset(token)


def sent(port: Port, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request that a call of a port sends, if its adapter says so; else its arguments."""
    found = _sent.get()
    return arguments if found is None or found[0] is not port else found[1](arguments)
