"""The ways out of a virtual run, the network and other processes: refused with the address, the site and the place in the code.

An audit hook sees them all, by whatever name, module or library of Python they are taken (`_socket`, asyncio, `ssl`, `urllib`).
It does not see what C code does without Python: a library with sockets of its own (grpc, libpq, librdkafka), `ctypes`, and what
is sent over connections made before the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

from mat.core.errors import Uncontrolled
from mat.core.site import unescape
from mat.kernel import audit
from mat.kernel.callers import agent_place, place_texts
from mat.kernel.world import World, guarding

live: ContextVar[bool] = ContextVar("mat_live_call", default=False)
"""Whether the caller may leave the run: a port whose reply is being recorded, or an adapter for what a test declares."""

_ASKING: Final = frozenset({"platform", "distro.distro", "ctypes.util", "uuid", "multiprocessing.resource_tracker"})
"""Modules that start programs to ask about the machine, at their first use."""
_STDIO_SERVERS: Final = frozenset({"mcp.client.stdio", "mcp.os.posix.utilities", "mcp.os.win32.utilities"})
"""Modules that start the servers that a client of MCP names."""
_ALLOWED: Final = _ASKING | _STDIO_SERVERS

_declared: WeakKeyDictionary[object, tuple[str, ...]] = WeakKeyDictionary()


def declare_child(owner: object, command: Sequence[str]) -> None:
    """Allow children whose command line begins with `command`, as long as `owner` lives."""
    _declared[owner] = tuple(command)


@contextmanager
def allowed() -> Iterator[None]:
    """Let what follows leave the run: the test has declared it."""
    before = live.set(True)
    try:
        yield
    finally:
        live.reset(before)


LOOPBACK: Final = "servers on the loopback interface, whose time and state are their own"
"""What a search takes as given where connections to this machine are allowed."""
_loopback: Final[list[object]] = []


@contextmanager
def loopback_allowed(wanted: bool = True) -> Iterator[None]:
    """Allow connections to the loopback interface, for the servers that a fixture starts, while an item is executed."""
    if not wanted:
        yield
        return
    token = object()
    _loopback.append(token)
    try:
        yield
    finally:
        _loopback.remove(token)


def is_loopback(host: object) -> bool:
    """Whether a host is this machine, as an address or as the name localhost. No other name is looked up.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback(b"localhost"), is_loopback("localhost.example.org")
    (True, True, True, False)
    """
    name = host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host)
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_allowed(host: object) -> bool:
    """Whether the item that is executed may connect to this host; its certificate names the allowance."""
    return bool(_loopback) and is_loopback(host)


def refuse_ways_out() -> None:
    """Refuse the ways out to each caller that a world guards, from now on."""
    audit.watch(_EVENTS, _audited)


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    world = guarding()
    if world is not None and not live.get() and (found := _EVENTS[event](event, arguments)) is not None:
        _refuse(world, *found)


def _connection(event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """Of socket.connect, .sendto and .sendmsg: (socket, address)."""
    address = arguments[1]
    if not isinstance(address, tuple) or not address or address[0] is None:  # a Unix socket, or one that is connected
        return None
    if is_allowed(address[0]):
        return None
    verb = "connection" if event == "socket.connect" else "message"
    return f"{verb} to {':'.join(map(str, address[:2]))}", "network"


def _look_up(event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """Of socket.getaddrinfo and its kin: (host or address, ...)."""
    asked = arguments[0]
    if asked is None or asked == "":  # the wildcard address, to listen at
        return None
    if is_allowed(asked):
        return None
    host = asked.decode("utf-8", "replace") if isinstance(asked, bytes) else asked
    port = arguments[1] if event == "socket.getaddrinfo" else None
    return f"look-up of {host if port is None else f'{host}:{port}'}", "network"


def _child(event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """Of subprocess.Popen, os.posix_spawn, os.exec and os.spawn: the command line is a list among the arguments."""
    given = arguments[2] if event == "os.spawn" else arguments[1]
    return started(given if isinstance(given, list | tuple) else [given])


def _command(event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """Of os.system, os.startfile and pty.spawn: the command is the first argument."""
    given = arguments[0]
    return started(given if isinstance(given, list | tuple) else [given])


def started(command: Sequence[Any]) -> tuple[str, str] | None:
    """What is refused of a child with this command line; None if it is allowed."""
    words = [os.fsdecode(word) if isinstance(word, str | bytes | os.PathLike) else str(word) for word in command]
    if any(tuple(words[: len(each)]) == each for each in _declared.values()) or _asked_by_an_allowed_module():
        return None
    return f"start of the process {os.path.basename(words[0]) if words else ''}", "process"


_EVENTS: Final[dict[str, Callable[[str, tuple[Any, ...]], tuple[str, str] | None]]] = {
    "socket.connect": _connection, "socket.sendto": _connection, "socket.sendmsg": _connection,
    "socket.getaddrinfo": _look_up, "socket.gethostbyname": _look_up, "socket.gethostbyaddr": _look_up,
    "socket.getnameinfo": lambda event, arguments: _look_up(event, tuple(arguments[0])),
    "subprocess.Popen": _child, "os.posix_spawn": _child, "os.exec": _child, "os.spawn": _child,
    "os.system": _command, "os.startfile": _command, "pty.spawn": _command,
}  # fmt: skip


def _asked_by_an_allowed_module() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in _ALLOWED:
            return True
        frame = frame.f_back
    return False


def fork_exec_refused(real: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_posixsubprocess.fork_exec`, by which multiprocessing starts processes: CPython does not report it."""

    def fork_exec(command: Sequence[Any], *others: Any) -> Any:
        world = guarding()
        if world is not None and not live.get() and (found := started(command)) is not None:
            _refuse(world, *found)
        return real(command, *others)

    return fork_exec


_WHY: Final = {
    "network": "a real service has its own time and state, so the run could not be searched or replayed",
    "process": "it is outside the run: what it does is neither recorded nor put back, and it could reach the network",
}
_FIX: Final = {
    "network": 'serve it in process, record its port (mat.tool(..., tape="external")), or use clock="real"; for a server '
    "that a fixture starts on this machine, set loopback=True in the marker",
    "process": 'declare it (mat.adapters.program([...])), record its port (mat.tool(..., tape="external")), or use '
    'clock="real"',
}


def _refuse(world: World, what: str, kind: str) -> None:
    site = unescape(world.site())
    (place,) = place_texts([agent_place(sys._getframe(1))])
    code = "network-refused" if kind == "network" else "process-refused"
    world.note(code, f"a {what} was refused")
    raise Uncontrolled(
        what=f"a {what} was refused during the run", why=_WHY[kind], fix=_FIX[kind],
        where=" at ".join(filter(None, (site, place))),
    )  # fmt: skip
