"""A proxy between an MCP client and a server: all messages pass unchanged, but for requests that a run answers.

Two transports of the specification: stdio, one JSON-RPC message a line, and streamable HTTP. Who answers is a `Responder`:
another process with a run in progress (`RunConnection`, the other end of `mat.adapters.program`), or a run of this process.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, Protocol, TypeAlias

from mat.core.errors import SpecError
from mat.core.proxied import ADDRESS, CLOSED, VERSION

PASSED: Final = ("ping", "notifications/initialized")
"""Requests that are no step."""
CLOSED_REPLY: Final[dict[str, Any]] = {"error": {"code": CLOSED, "message": "Connection closed"}}
_CANCELLED: Final[dict[str, Any]] = {"error": {"code": -32800, "message": "Request cancelled"}}
_GREETING: Final = "mat-initialize"
_CHUNK: Final = 1 << 16
_LAST_S: Final = 30.0
"""Seconds in which a server may answer what a client asked that has closed its end."""

Message: TypeAlias = dict[str, Any]


class Forward(Protocol):
    """Sends a request to the server, and returns {"result": ...} or {"error": ...}: the client's own with these params, or one
    of the proxy, by its `method`."""

    def __call__(self, params: dict[str, Any], /, *, method: str = "") -> dict[str, Any]: ...


class Responder(Protocol):
    """What answers requests: {"result": ...} or {"error": ...}, the same object that `forward` returned if it is unchanged.

    `descriptor`: becomes readable where there is nobody left who answers; None if that cannot happen.
    """

    descriptor: int | None

    def answer(self, method: str, params: Mapping[str, Any], forward: Forward) -> dict[str, Any]: ...


# -- the run of another process -------------------------------------------------------------------------------------------


class RunGone(Exception):  # noqa: N818  (named after what happened)
    """The run that a proxy belongs to has ended."""


class RunConnection:
    """The run in progress in another process, by the socket that MAT_RUN names. One request at a time.

    The proxy sends {"cross": method, "params": ...}; the run answers {"forward": params}, and gets {"reply": ...}, as often as
    it wants; then {"answer": reply}, or {"answer": null} for the last reply as it was. {"forward": params, "method": ...} is a
    request that the client has not made now: one that a recording answered, and that the server has to know of.
    """

    def __init__(self, address: str, *, name: str) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise SpecError(
                what=f"{ADDRESS} names a run, which cannot be reached",
                why="it listens on a Unix socket, which this platform does not have",
                fix="run this on Linux or macOS",
            )  # fmt: skip
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address)
        except OSError as error:
            raise SpecError(
                what=f"{ADDRESS} names {address}, where no run is in progress: {error.strerror}",
                why="a test sets the variable for its program and for the servers of that program, and the test has ended",
                fix=f"unset {ADDRESS}, or start the program with mat.adapters.program",
            ) from None
        self.descriptor: int | None = self._socket.fileno()
        self._stream = self._socket.makefile("rwb")
        self._send({"mat": VERSION, "server": name})

    def answer(self, method: str, params: Mapping[str, Any], forward: Forward) -> dict[str, Any]:
        self._send({"cross": method, "params": params})
        last: dict[str, Any] = CLOSED_REPLY
        while True:
            message = self._receive()
            if "forward" in message:
                last = forward(message["forward"], method=message.get("method", ""))
                self._send({"reply": last})
            else:
                return last if message["answer"] is None else message["answer"]

    def _send(self, message: Message) -> None:
        try:
            self._stream.write(json.dumps(message).encode() + b"\n")
            self._stream.flush()
        except OSError as error:
            raise RunGone from error

    def _receive(self) -> Message:
        try:
            line = self._stream.readline()
        except OSError as error:
            raise RunGone from error
        if not line:
            raise RunGone
        found: Message = json.loads(line)
        return found


# -- stdio ----------------------------------------------------------------------------------------------------------------


class _Lines:
    """The lines of a descriptor, whole, as they come; at its end, `ended`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.ended = descriptor, False
        self._rest = b""

    def read(self) -> list[bytes]:
        """The lines that have come; call it when the descriptor is readable."""
        chunk = os.read(self.descriptor, _CHUNK)
        self.ended = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self.ended and self._rest:
            lines.append(self._rest)
        return [line for line in lines if line.strip()]


def _outside_of_the_run() -> AbstractContextManager[object]:
    """A block in which a run of this process, if there is one, lets a server start. A proxy by itself loads no run."""
    found = sys.modules.get("mat.kernel.network")
    return nullcontext() if found is None else found.allowed()


class StdioProxy:
    """A proxy for a server that is a command, between descriptors of the client (its standard input and output).

    The server is started when the first message has to reach it: where all replies come from a recording, never.
    """

    def __init__(self, command: Sequence[str], responder: Responder, *, client_in: int = 0, client_out: int = 1) -> None:
        if sys.platform == "win32":
            raise SpecError(
                what="a server that is a command needs Linux or macOS", why="Windows cannot wait for several pipes at once",
                fix="start the server with streamable HTTP, and give its address with --url",
            )  # fmt: skip
        self._command, self._responder = list(command), responder
        self._client, self._out = _Lines(client_in), client_out
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()  # epoll takes no files
        self._selector.register(client_in, selectors.EVENT_READ, self._from_client)
        if responder.descriptor is not None:
            self._selector.register(responder.descriptor, selectors.EVENT_READ, self._run_has_ended)
        self._queue: deque[tuple[Message, bytes]] = deque()
        self._server: subprocess.Popen[bytes] | None = None
        self._server_lines: _Lines | None = None
        self._greeting: dict[str, Any] | None = None
        self._greeted = False
        self._awaited: Any = None
        self._reply: tuple[dict[str, Any], bytes] | None = None
        self._cancelled = False
        self._ends_s = math.inf
        self._own = 0

    def serve(self) -> int:
        """Pass messages on until the client closes its end; returns the exit code of the server, 0 if it was not needed."""
        try:
            while self._queue or not self._client.ended:
                if self._queue:
                    self._answer(*self._queue.popleft())
                else:
                    self._pump()
                if self._server_gone and not self._queue:
                    break
            return self._end_server()
        except RunGone:
            return self._end_server()
        except BaseException:  # a signal: whoever sent it waits two seconds, and then kills this process
            self._kill_server()
            raise

    @property
    def _server_gone(self) -> bool:
        return self._server_lines is not None and self._server_lines.ended

    def _answer(self, message: Message, line: bytes) -> None:
        params = message.get("params") or {}
        if message["method"] == "initialize":
            self._greeting = params
        self._cancelled, raw, sent = False, b"", False

        def forward(changed: dict[str, Any], /, *, method: str = "") -> dict[str, Any]:
            nonlocal raw, sent
            if method or sent:  # an id may be used once
                reply, _ = self._ask_for_ourselves(method or message["method"], changed)
                return reply
            sent = True
            reply, raw = self._ask(message, line if changed == params else line_of({**message, "params": changed}))
            return reply

        reply = self._responder.answer(message["method"], params, forward)
        if self._cancelled:
            return
        unchanged = self._reply is not None and reply is self._reply[0] and raw
        self._write(raw if unchanged else line_of({"jsonrpc": "2.0", "id": message["id"], **reply}))

    def _ask(self, message: Message, line: bytes) -> tuple[dict[str, Any], bytes]:
        """Send a request to the server, and wait for its reply while all other messages pass."""
        if not self._start(greet=message["method"] != "initialize"):
            return CLOSED_REPLY, b""
        self._greeted = True
        return self._exchange(message["id"], line)

    def _ask_for_ourselves(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a request of which the client does not hear: without its token for progress, under an id of the proxy."""
        if not self._start(greet=True):
            return CLOSED_REPLY, b""
        self._own += 1
        number = f"mat-{self._own}"
        kept = {name: item for name, item in params.items() if name != "_meta"}
        return self._exchange(number, line_of(_request(number, method, kept)))

    def _exchange(self, number: Any, line: bytes) -> tuple[dict[str, Any], bytes]:
        self._awaited, self._reply = number, None
        self._to_server(line)
        while self._reply is None and not self._server_gone and not self._cancelled:
            self._pump()
        self._awaited = None
        if self._cancelled:
            return _CANCELLED, b""
        if self._reply is None:
            self._reply = CLOSED_REPLY, b""
        return self._reply

    def _start(self, *, greet: bool) -> bool:
        """Start the server, if it is not there; one that has missed the client's greeting gets it. False if it has ended."""
        if self._server is None:
            with _outside_of_the_run():
                self._server = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._server.stdout is not None
            self._server_lines = _Lines(self._server.stdout.fileno())
            self._selector.register(self._server_lines.descriptor, selectors.EVENT_READ, self._from_server)
        if greet and not self._greeted and self._greeting is not None:
            self._greeted = True
            self._exchange(_GREETING, line_of(_request(_GREETING, "initialize", self._greeting)))
            self._to_server(line_of({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return not self._server_gone

    def _pump(self) -> None:
        """Pass on what has come. Where the client has gone, the server has a while to answer what was asked."""
        left_s = None if self._ends_s == math.inf else self._ends_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise RunGone
        for key, _ in self._selector.select(left_s):
            key.data()

    def _run_has_ended(self) -> None:
        raise RunGone

    def _from_client(self) -> None:
        for line in self._client.read():
            message = parsed(line)
            if is_crossed(message):
                self._queue.append((message, line))
            else:
                self._pass(message, line)
        if self._client.ended:
            self._selector.unregister(self._client.descriptor)
            self._ends_s = time.monotonic() + _LAST_S

    def _pass(self, message: Message, line: bytes) -> None:
        if message.get("method") == "notifications/cancelled":
            number = (message.get("params") or {}).get("requestId")
            self._cancelled = self._cancelled or (self._awaited is not None and number == self._awaited)
            self._queue = deque(each for each in self._queue if each[0]["id"] != number)
        if self._server is not None:
            self._to_server(line)
        elif message.get("method") == "ping" and "id" in message:
            self._write(line_of({"jsonrpc": "2.0", "id": message["id"], "result": {}}))
        elif "method" not in message or "id" in message:  # no request that a recording answers
            self._start(greet=True)
            self._to_server(line)

    def _from_server(self) -> None:
        assert self._server_lines is not None
        for line in self._server_lines.read():
            message = parsed(line)
            if self._awaited is not None and "method" not in message and message.get("id") == self._awaited:
                self._reply = reply_in(message) or CLOSED_REPLY, line + b"\n"
            else:
                self._write(line + b"\n")
        if self._server_lines.ended:
            self._selector.unregister(self._server_lines.descriptor)

    def _to_server(self, line: bytes) -> None:
        assert self._server is not None
        assert self._server.stdin is not None
        with suppress(OSError):  # it has ended, which its output tells
            self._server.stdin.write(line.rstrip(b"\r\n") + b"\n")
            self._server.stdin.flush()

    def _write(self, line: bytes) -> None:
        rest = line
        while rest:
            try:
                rest = rest[os.write(self._out, rest) :]
            except OSError as error:  # the client has gone
                raise RunGone from error

    def _end_server(self) -> int:
        """Close the server's input, as the specification says, and wait a little; then end it."""
        if self._server is None:
            return 0
        assert self._server.stdin is not None
        with suppress(OSError):
            self._server.stdin.close()
        try:
            return self._server.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._server.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(timeout=2)
        self._kill_server()
        return 0

    def _kill_server(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()


def is_crossed(message: Message) -> bool:
    """Whether a message of the client is a request that a run answers."""
    return "id" in message and isinstance(message.get("method"), str) and message["method"] not in PASSED


def reply_in(message: Message) -> dict[str, Any]:
    """The reply that a message carries; {} for one that is no reply."""
    return {name: message[name] for name in ("result", "error") if name in message}


def _request(number: Any, method: str, params: Mapping[str, Any]) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def line_of(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def parsed(line: bytes) -> Message:
    """A message; {} for what is none, such as a batch: it passes as it is."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def warn(text: str) -> None:
    print(f"mat mcp-proxy: {text}", file=sys.stderr)


__all__ = [
    "CLOSED_REPLY", "Forward", "Responder", "RunConnection", "RunGone", "StdioProxy", "is_crossed", "line_of",
    "parsed", "reply_in", "warn",
]  # fmt: skip
