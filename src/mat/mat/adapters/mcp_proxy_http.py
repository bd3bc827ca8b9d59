"""The proxy before an MCP server of streamable HTTP: it listens on the loopback interface.

Apart from `mcp_proxy`, because the modules of HTTP take longer to load than everything else that a proxy needs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from mat.adapters.mcp_proxy import CLOSED_REPLY, Responder, is_crossed, line_of, parsed, reply_in

_CHUNK: Final = 1 << 16
_HOP: Final = ("connection", "transfer-encoding", "content-length", "keep-alive", "host", "accept-encoding")
"""Headers of one connection, which a proxy does not pass on (RFC 9110, 7.6.1), and those that it sets."""


class HTTPProxy:
    """A proxy for a server at an address, on the loopback interface. `port` 0: one that is free."""

    def __init__(self, url: str, responder: Responder, *, port: int = 0) -> None:
        self._parts, self._responder = urlsplit(url), responder
        self._lock = threading.Lock()
        self._own = 0
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
        try:
            body = request_body(handler)
        except ValueError as error:
            _respond(handler, 400, {"Content-Type": "text/plain"}, str(error).encode())
            return
        message = parsed(body)
        if not is_crossed(message):
            self._pass(handler, body)
            return
        got: list[tuple[dict[str, Any], HTTPResponse, list[bytes]]] = []

        def forward(params: dict[str, Any], /, *, method: str = "") -> dict[str, Any]:
            if method or got:  # an id may be used once
                return self._ask_for_ourselves(handler, method or message["method"], params)
            sent = body if params == (message.get("params") or {}) else line_of({**message, "params": params})
            try:
                response = self._send(handler, sent)
                reply, before = _reply_in(response, message["id"])
            except (OSError, HTTPException):
                return CLOSED_REPLY
            got[:] = [(reply, response, before)]
            return reply

        with self._lock:
            reply = self._responder.answer(message["method"], message.get("params") or {}, forward)
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}, ensure_ascii=False).encode()
        headers = _kept(got[0][1]) if got else {}
        if got and got[0][2]:  # events of the server come before the reply
            content = b"".join([*got[0][2], b"event: message\ndata: ", answer, b"\n\n"])
            _respond(handler, 200, {**headers, "Content-Type": "text/event-stream"}, content)
        else:
            _respond(handler, 200, {**headers, "Content-Type": "application/json"}, answer)

    def _ask_for_ourselves(self, handler: BaseHTTPRequestHandler, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request of which the client does not hear: without its token for progress, under an id of the proxy."""
        self._own += 1
        kept = {name: item for name, item in params.items() if name != "_meta"}
        sent = {"jsonrpc": "2.0", "id": f"mat-{self._own}", "method": method, "params": kept}
        try:
            return _reply_in(self._send(handler, line_of(sent)), sent["id"])[0]
        except (OSError, HTTPException):
            return CLOSED_REPLY

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
        except (OSError, HTTPException) as error:
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


def request_body(handler: BaseHTTPRequestHandler) -> bytes:
    """The body of a request, in one piece or in chunks (RFC 9112, 7.1), as clients send streams."""
    if "chunked" not in handler.headers.get("Transfer-Encoding", "").lower():
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    chunks: list[bytes] = []
    while size := int(handler.rfile.readline().split(b";")[0] or b"0", 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    while handler.rfile.readline().strip():  # trailers
        pass
    return b"".join(chunks)


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
        found = parsed(response.read())
        return reply_in(found) or {"error": {"code": -32603, "message": f"the server answered with {response.status}"}}, []
    before: list[bytes] = []
    for event in _events(response):
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        found = parsed(data)
        if found.get("id") == number and "method" not in found:
            return reply_in(found) or CLOSED_REPLY, before
        before.append(event)
    return CLOSED_REPLY, before


def _events(response: HTTPResponse) -> Iterator[bytes]:
    lines: list[bytes] = []
    while line := response.readline():
        lines.append(line)
        if not line.strip():
            yield b"".join(lines)
            lines = []


__all__ = ["HTTPProxy", "request_body"]
