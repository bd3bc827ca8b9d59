"""A proxy between an MCP client and a server: all messages pass unchanged, but for requests that a run answers.

Two transports of the specification: stdio, one JSON-RPC message a line, and streamable HTTP. Who answers is a `Crossing`:
another process with a run in progress (`RunConnection`, the other end of `mat.adapters.program`), or a run of this process.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from mat.adapters.mcp_crossing import CLOSED, VERSION, Forward

PASSED: Final = ("ping", "notifications/initialized")
"""Requests that are no step."""
_CLOSED: Final[dict[str, Any]] = {"error": {"code": CLOSED, "message": "Connection closed"}}
_CANCELLED: Final[dict[str, Any]] = {"error": {"code": -32800, "message": "Request cancelled"}}
_GREETING: Final = "mat-initialize"
_CHUNK: Final = 1 << 16

Message: TypeAlias = dict[str, Any]


class Crossing(Protocol):
    """What answers requests: {"result": ...} or {"error": ...}, the same object that `forward` returned if it is unchanged."""

    def answer(self, method: str, params: Mapping[str, Any], forward: Forward) -> dict[str, Any]: ...


# -- the run of another process -------------------------------------------------------------------------------------------


class RunGone(Exception):  # noqa: N818  (named after what happened)
    """The run that a proxy belongs to has ended."""


class RunConnection:
    """The run in progress in another process, by the socket that MAT_RUN names. One request at a time.

    The proxy sends {"cross": method, "params": ...}; the run answers {"forward": params}, and gets {"reply": ...}, as often as
    it wants; then {"answer": reply}, or {"answer": null} for the last reply as it was.
    """

    def __init__(self, address: str, *, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(address)
        self._stream = self._socket.makefile("rwb")
        self._send({"mat": VERSION, "server": name})

    def answer(self, method: str, params: Mapping[str, Any], forward: Forward) -> dict[str, Any]:
        self._send({"cross": method, "params": params})
        last: dict[str, Any] = _CLOSED
        while True:
            told = self._receive()
            if "forward" in told:
                last = forward(told["forward"])
                self._send({"reply": last})
            else:
                return last if told["answer"] is None else told["answer"]

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


class StdioProxy:
    """A proxy for a server that is a command, between descriptors of the client (its standard input and output).

    The server is started when the first message has to reach it: where all replies come from a recording, never.
    """

    def __init__(self, command: Sequence[str], crossing: Crossing, *, client_in: int = 0, client_out: int = 1) -> None:
        self._command, self._crossing = list(command), crossing
        self._client, self._out = _Lines(client_in), client_out
        self._selector = selectors.DefaultSelector()
        self._selector.register(client_in, selectors.EVENT_READ, self._from_client)
        self._queue: deque[tuple[Message, bytes]] = deque()
        self._server: subprocess.Popen[bytes] | None = None
        self._server_lines: _Lines | None = None
        self._greeting: dict[str, Any] | None = None
        self._greeted = False
        self._awaited: Any = None
        self._reply: tuple[dict[str, Any], bytes] | None = None
        self._cancelled = False

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
        except RunGone:
            pass
        finally:
            code = self._end_server()
        return code

    @property
    def _server_gone(self) -> bool:
        return self._server_lines is not None and self._server_lines.ended

    def _answer(self, message: Message, line: bytes) -> None:
        params = message.get("params") or {}
        if message["method"] == "initialize":
            self._greeting = params
        self._cancelled, raw = False, b""

        def forward(changed: dict[str, Any]) -> dict[str, Any]:
            nonlocal raw
            sent = line if changed == params else _line({**message, "params": changed})
            reply, raw = self._ask(message, sent)
            return reply

        reply = self._crossing.answer(message["method"], params, forward)
        if self._cancelled:
            return
        unchanged = self._reply is not None and reply is self._reply[0] and raw
        self._write(raw if unchanged else _line({"jsonrpc": "2.0", "id": message["id"], **reply}))

    def _ask(self, message: Message, line: bytes) -> tuple[dict[str, Any], bytes]:
        """Send a request to the server, and wait for its reply while all other messages pass."""
        if not self._start(greet=message["method"] != "initialize"):
            return _CLOSED, b""
        self._greeted = True
        return self._exchange(message["id"], line)

    def _exchange(self, number: Any, line: bytes) -> tuple[dict[str, Any], bytes]:
        self._awaited, self._reply = number, None
        self._to_server(line)
        while self._reply is None and not self._server_gone and not self._cancelled:
            self._pump()
        self._awaited = None
        if self._cancelled:
            return _CANCELLED, b""
        if self._reply is None:
            self._reply = _CLOSED, b""
        return self._reply

    def _start(self, *, greet: bool) -> bool:
        """Start the server, if it is not there; one that has missed the client's greeting gets it. False if it has ended."""
        if self._server is None:
            self._server = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._server.stdout is not None
            self._server_lines = _Lines(self._server.stdout.fileno())
            self._selector.register(self._server_lines.descriptor, selectors.EVENT_READ, self._from_server)
        if greet and not self._greeted and self._greeting is not None:
            self._greeted = True
            self._exchange(_GREETING, _line(_request(_GREETING, "initialize", self._greeting)))
            self._to_server(_line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return not self._server_gone

    def _pump(self) -> None:
        for key, _ in self._selector.select():
            key.data()

    def _from_client(self) -> None:
        for line in self._client.read():
            message = _parsed(line)
            if is_crossed(message):
                self._queue.append((message, line))
            else:
                self._pass(message, line)
        if self._client.ended:
            self._selector.unregister(self._client.descriptor)

    def _pass(self, message: Message, line: bytes) -> None:
        if message.get("method") == "notifications/cancelled":
            number = (message.get("params") or {}).get("requestId")
            self._cancelled = self._cancelled or (self._awaited is not None and number == self._awaited)
            self._queue = deque(each for each in self._queue if each[0]["id"] != number)
        if self._server is not None:
            self._to_server(line)
        elif message.get("method") == "ping" and "id" in message:
            self._write(_line({"jsonrpc": "2.0", "id": message["id"], "result": {}}))
        elif "method" not in message or "id" in message:  # no request that a recording answers
            self._start(greet=True)
            self._to_server(line)

    def _from_server(self) -> None:
        assert self._server_lines is not None
        for line in self._server_lines.read():
            message = _parsed(line)
            if self._awaited is not None and "method" not in message and message.get("id") == self._awaited:
                self._reply = _body(message) or _CLOSED, line + b"\n"
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
        try:
            self._server.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        return 0


def is_crossed(message: Message) -> bool:
    """Whether a message of the client is a request that a run answers."""
    return "id" in message and isinstance(message.get("method"), str) and message["method"] not in PASSED


def _request(number: Any, method: str, params: Mapping[str, Any]) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _line(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> Message:
    """A message; {} for what is none, such as a batch: it passes as it is."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# -- streamable HTTP ------------------------------------------------------------------------------------------------------

_HOP: Final = ("connection", "transfer-encoding", "content-length", "keep-alive", "host", "accept-encoding")
"""Headers of one connection, which a proxy does not pass on (RFC 9110, 7.6.1), and those that it sets."""


class HTTPProxy:
    """A proxy for a server at an address, on the loopback interface. `port` 0: one that is free."""

    def __init__(self, url: str, crossing: Crossing, *, port: int = 0) -> None:
        self._parts, self._crossing = urlsplit(url), crossing
        self._crossing_lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *given: Any) -> None:
                pass

            def do_POST(self) -> None:
                proxy._post(self)

            def do_GET(self) -> None:
                proxy._pass(self, b"")

            do_DELETE = do_GET  # noqa: N815

        self._httpd = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._httpd.daemon_threads = True

    @property
    def url(self) -> str:
        host, port = self._httpd.server_address[:2]
        return f"http://{host!s}:{port}{self._parts.path or '/'}"

    def serve(self) -> None:
        self._httpd.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        message = _parsed(body)
        if not is_crossed(message):
            self._pass(handler, body)
            return
        got: list[tuple[dict[str, Any], HTTPResponse, list[bytes]]] = []

        def forward(params: dict[str, Any]) -> dict[str, Any]:
            sent = body if params == (message.get("params") or {}) else _line({**message, "params": params})
            try:
                response = self._send(handler, sent)
                reply, before = _reply_in(response, message["id"])
            except OSError:
                return _CLOSED
            got[:] = [(reply, response, before)]
            return reply

        with self._crossing_lock:
            reply = self._crossing.answer(message["method"], message.get("params") or {}, forward)
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}, ensure_ascii=False).encode()
        headers = _kept(got[0][1]) if got else {}
        if got and got[0][2]:  # events of the server come before the reply
            content = b"".join([*got[0][2], b"event: message\ndata: ", answer, b"\n\n"])
            _respond(handler, 200, {**headers, "Content-Type": "text/event-stream"}, content)
        else:
            _respond(handler, 200, {**headers, "Content-Type": "application/json"}, answer)

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes) -> HTTPResponse:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.netloc)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP}
        path = self._parts.path or "/"
        target = f"{path}?{self._parts.query}" if self._parts.query else path
        connection.request(handler.command, target, body=body or None, headers=headers)
        return connection.getresponse()

    def _pass(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Pass a request and its response, streamed or not, as they are."""
        try:
            response = self._send(handler, body)
        except OSError as error:
            _respond(handler, 502, {"Content-Type": "text/plain"}, f"the server cannot be reached: {error}".encode())
            return
        handler.send_response(response.status)
        for name, value in _kept(response).items():
            handler.send_header(name, value)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        with suppress(OSError):
            while chunk := response.read1(_CHUNK):
                handler.wfile.write(chunk)
                handler.wfile.flush()


def _kept(response: HTTPResponse) -> dict[str, str]:
    return {name: value for name, value in response.getheaders() if name.lower() not in _HOP}


def _respond(handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], content: bytes) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _reply_in(response: HTTPResponse, number: Any) -> tuple[dict[str, Any], list[bytes]]:
    """The reply to a request in a response, and the events before it, as they came."""
    if "text/event-stream" not in (response.getheader("Content-Type") or ""):
        found = _parsed(response.read())
        return _body(found) or {"error": {"code": -32603, "message": f"the server answered with {response.status}"}}, []
    before: list[bytes] = []
    for event in _events(response):
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        found = _parsed(data)
        if found.get("id") == number and "method" not in found:
            return _body(found) or _CLOSED, before
        before.append(event)
    return _CLOSED, before


def _events(response: HTTPResponse) -> Iterator[bytes]:
    lines: list[bytes] = []
    while line := response.readline():
        lines.append(line)
        if not line.strip():
            yield b"".join(lines)
            lines = []


def _body(message: Message) -> dict[str, Any]:
    return {name: message[name] for name in ("result", "error") if name in message}


def warn(text: str) -> None:
    print(f"mat mcp-proxy: {text}", file=sys.stderr)


__all__ = ["Crossing", "HTTPProxy", "RunConnection", "RunGone", "StdioProxy", "is_crossed", "warn"]
