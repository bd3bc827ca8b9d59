"""A stand-in for an HTTP API on the loopback interface: each request of a program crosses the run, and goes on from there."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from mat.adapters.attachment import Attachment
from mat.adapters.http import HTTPRequest, HTTPStatus, bytes_of, changed_query, port_of, reply_of, status_errors
from mat.adapters.mcp_crossing import MCPPorts
from mat.adapters.mcp_proxy_http import request_body
from mat.boundary.calls import cross
from mat.core.errors import Blocked
from mat.kernel import network

_HOP: Final = ("connection", "transfer-encoding", "content-length", "keep-alive", "host", "accept-encoding")
_CUT: Final = "cut"
_TIMEOUT_S: Final = 60.0
_FIRST_BYTE_S: Final = 2.0
"""Seconds that a connection may be open without a request: requests are served one at a time."""


class _Gone(ConnectionError):  # noqa: N818  (what the program meets)
    """A fault that the program meets as a closed connection."""


class Gateway:
    """One API. `url` of the gateway stands for `upstream` in the program's environment."""

    def __init__(self, upstream: str, ports: MCPPorts) -> None:
        self._upstream = urlsplit(upstream)
        self._attachment = Attachment(
            effects=ports.effects, impacts=ports.impacts, retrievers=ports.retrievers, perturb=ports.perturb,
            tape=ports.tape,
        )  # fmt: skip
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *error: object) -> None:
        self.listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}{self._upstream.path.rstrip('/')}"

    def handle(self) -> None:
        """Serve one connection, with one request."""
        gateway, (connection, address) = self, self.listener.accept()

        class Handler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_S

            def log_message(self, *given: Any) -> None:
                pass

            def answer(self) -> None:
                gateway._answer(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer  # noqa: N815

        with connection:
            connection.settimeout(_FIRST_BYTE_S)
            try:
                if not connection.recv(1, socket.MSG_PEEK):
                    return
            except OSError:  # opened in advance: the program connects again when it needs to
                return
            connection.settimeout(_TIMEOUT_S)
            Handler(connection, address, self)  # type: ignore[arg-type]  # it needs no server

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        try:
            body = request_body(handler)
        except ValueError as error:
            _respond(handler, 400, [], str(error).encode())
            return
        asked = HTTPRequest(
            method=handler.command, url=f"{self._upstream.scheme}://{self._upstream.netloc}{handler.path}", content=body,
            headers={name.lower(): value for name, value in handler.headers.items()},
        )  # fmt: skip
        errors = {"timeout": _gone, "connection": _gone, _CUT: _gone, **status_errors()}
        port = port_of(self._attachment, asked, errors)
        got: list[tuple[dict[str, Any], int, list[tuple[str, str]], bytes]] = []

        def call(changed: dict[str, Any] | None) -> Any:
            status, headers, content = self._send(handler, body, changed or {})
            reply = reply_of(status, headers, content)
            got[:] = [(reply, status, headers, content)]
            return reply

        try:
            reply = call(None) if port is None else cross(port, asked.arguments, call)
        except HTTPStatus as status:
            reply = status.reply
        except Blocked as blocked:
            reply = {
                "status": 403,
                "headers": {"content-type": "application/json"},
                "body": {"error": {"message": str(blocked)}},
            }
        except _Gone:
            handler.close_connection = True
            return
        if got and got[0][0] is reply:
            _, status_code, headers, content = got[0]
            _respond(handler, status_code, headers, content)
        else:
            _respond(handler, reply.get("status", 200), list((reply.get("headers") or {}).items()), bytes_of(reply.get("body")))

    def _send(
        self, handler: BaseHTTPRequestHandler, body: bytes, changed: Mapping[str, Any]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        kind = HTTPSConnection if self._upstream.scheme == "https" else HTTPConnection
        path, _, query = handler.path.partition("?")
        path = changed.get("path", path)
        query = urlencode(changed_query(handler.path, changed["query"])) if "query" in changed else query
        content = bytes_of(changed["body"]) if "body" in changed else body
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP}
        try:  # the test has named this API
            with network.allowed(), closing(kind(self._upstream.netloc, timeout=_TIMEOUT_S)) as connection:
                connection.request(handler.command, f"{path}?{query}" if query else path, body=content or None, headers=headers)
                response = connection.getresponse()
                return response.status, response.getheaders(), response.read()
        except (HTTPException, OSError) as error:
            raise _Gone(str(error)) from error


def _gone(text: str) -> _Gone:
    return _Gone(text)


def _respond(handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
    handler.send_response(status)
    for name, value in headers:
        if name.lower() not in (*_HOP, "content-encoding"):
            handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


__all__ = ["Gateway"]
