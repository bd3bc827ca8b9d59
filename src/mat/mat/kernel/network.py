"""Real connections are refused inside a virtual run, with their address."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NoReturn, Protocol

from mat.core.errors import Uncontrolled

CALLS: Final = ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket.socket, "sendto"), (socket, "getaddrinfo"))
"""The calls that begin a connection. Resolving a name counts as one."""

live: ContextVar[bool] = ContextVar("mat_live_call", default=False)
"""Whether the caller is a port whose reply is being recorded, which may leave the run."""


class NoteSink(Protocol):
    def note(self, code: str, message: str) -> None: ...


@functools.lru_cache(maxsize=16)
def asked_first(real: Callable[..., Any], guarding: Callable[[], NoteSink | None], *, resolves: bool) -> Callable[..., Any]:
    """Wrap a function of the socket module, so that it is refused if it would leave a virtual run."""

    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        world = guarding()
        if world is not None and not live.get():
            address = (*args, kwargs.get("host"), kwargs.get("port"))[:2] if resolves else args[-1]
            if isinstance(address, tuple) and address[0] is not None:
                _refuse(world, address)
        return real(*args, **kwargs)

    return call


def _refuse(world: NoteSink, address: tuple[Any, ...]) -> NoReturn:
    world.note("network-refused", f"a connection to {address[0]}:{address[1]} was refused")
    raise Uncontrolled(
        what=f"connection to {address[0]}:{address[1]} refused inside a virtual run",
        why="a real service has its own time and state, so the run could not be searched or replayed",
        fix='serve it in process, tape the port (tape="external"), or use clock="real"',
    )
