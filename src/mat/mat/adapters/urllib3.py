"""urllib3, and requests above it: each attempt to send a request is a call of an endpoint, or of a model.

Seam: `HTTPConnectionPool._make_request`, below urllib3's own retries and above the connection, because what it raises is what
urllib3 and requests turn into their own exceptions. It is private, and named so by both for as long as they have existed.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from mat.adapters.attachment import Adapter, Attachment
from mat.adapters.http import (
    ArrivingBody,
    HTTPRequest,
    HTTPStatus,
    arriving,
    bytes_of,
    changed_query,
    port_of,
    reply_of,
    settled,
    status_errors,
)
from mat.adapters.http_streams import (
    BrokenStreams,
    Chunk,
    EventSplitter,
    StreamBody,
    asks_stream,
    framing_of,
    head_chunk,
    is_last,
    stream_port_of,
    whole_chunk,
)
from mat.boundary.calls import cross, cross_stream
from mat.boundary.port import Port
from mat.boundary.requests import sending
from mat.boundary.session import active, calls_are_plain

_CHUNK: Final = 65_536


def install(attachment: Attachment) -> None:
    from urllib3 import exceptions
    from urllib3.connectionpool import HTTPConnectionPool

    def make_request(real: Callable[..., Any]) -> Callable[..., Any]:
        def _make_request(
            self: Any, conn: Any, method: str, url: str, body: Any = None, headers: Any = None, **given: Any
        ) -> Any:
            if calls_are_plain():
                return real(self, conn, method, url, body=body, headers=headers, **given)
            content = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else None
            asked = HTTPRequest(
                method=method, url=_address(self, url), content=content or b"",
                headers={name.lower(): str(value) for name, value in (headers or {}).items()},
            )  # fmt: skip
            errors: dict[str, Callable[[str], BaseException]] = {
                "timeout": lambda text: exceptions.ReadTimeoutError(self, url, text),
                "connection": lambda text: exceptions.NewConnectionError(conn, text),
                "cut": lambda text: exceptions.ProtocolError(text),
                **status_errors(),
            }
            streams = not given.get("preload_content", True) and active() is not None and asks_stream(asked)
            port = (stream_port_of if streams else port_of)(attachment, asked, errors)
            if port is None:
                return real(self, conn, method, url, body=body, headers=headers, **given)
            if port.stream:

                def send(changed: dict[str, Any] | None) -> Any:
                    address, content, named = _sent(url, body, headers, changed)
                    return real(self, conn, method, address, body=content, headers=named, **given)

                try:
                    with sending(port, asked.sent):
                        patience_s = _patience_s(given)
                        chunks = cross_stream(
                            port, asked.arguments, lambda changed: _Chunks(send, changed), patience_s=patience_s, ends=is_last
                        )
                        return _streamed(StreamBody(chunks, BrokenStreams(asked, errors)), method, given)
                except HTTPStatus as status:
                    return _response(status.reply, method, url, given)
            if active() is None:

                def sent(changed: dict[str, Any] | None) -> Any:
                    return _client_reply(port, real(self, conn, method, url, body=body, headers=headers, **given), given)

                return cross(port, asked.arguments, sent)
            got: list[tuple[Any, Any]] = []

            def call(changed: dict[str, Any] | None) -> Any:
                sent = _sent(url, body, headers, changed)
                response = real(self, conn, method, sent[0], body=sent[1], headers=sent[2], **given)
                made, data = _read(response, method, given)
                got[:] = [(made, data)]
                return data

            try:
                with sending(port, asked.sent):
                    reply = cross(port, asked.arguments, call)
            except HTTPStatus as status:
                return _response(status.reply, method, url, given)
            return got[0][0] if got and got[0][1] is reply else _response(reply or {}, method, url, given)

        return _make_request

    attachment.replace(HTTPConnectionPool, "_make_request", make_request)


def _address(pool: Any, url: str) -> str:
    if "://" in url:  # through a proxy
        return url
    default = {"http": 80, "https": 443}.get(pool.scheme)
    return f"{pool.scheme}://{pool.host}{'' if pool.port in (None, default) else f':{pool.port}'}{url}"


def _sent(url: str, body: Any, headers: Any, changed: Mapping[str, Any] | None) -> tuple[str, Any, Any]:
    """The request with what governance or a fault has replaced in it."""
    if not changed:
        return url, body, headers
    path, _, query = url.partition("?")
    path = changed.get("path", path)
    query = urlencode(changed_query(url, changed["query"])) if "query" in changed else query
    if "body" in changed:
        body = bytes_of(changed["body"])
        headers = {name: value for name, value in (headers or {}).items() if name.lower() != "content-length"}
        headers["Content-Length"] = str(len(body))
    return f"{path}?{query}" if query else path, body, headers


def _read(response: Any, method: str, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """The response with its body in memory, for whoever reads it, and as data."""
    content = response.data if given.get("preload_content", True) else response.read(decode_content=True)
    headers = {name: value for name, value in response.headers.items() if name.lower() != "content-encoding"}
    made = _made(response.status, headers, content, method, response.reason, given)
    return made, reply_of(response.status, response.headers.items(), content)


class _Chunks:
    """The chunks of a reply as they come."""

    def __init__(self, send: Callable[[dict[str, Any] | None], Any], changed: dict[str, Any] | None) -> None:
        self._response: Any = None
        self._chunks = self._read(send, changed)

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        self._chunks.close()

    def hurry(self, seconds: float) -> None:
        """Let no further read of the connection take longer, as far as its socket is known."""
        found: Any = self._response
        for name in ("_fp", "fp", "raw", "_sock"):
            found = getattr(found, name, None)
        if found is not None:
            found.settimeout(seconds)

    def _read(
        self, send: Callable[[dict[str, Any] | None], Any], changed: dict[str, Any] | None
    ) -> Generator[Chunk, None, None]:
        response = self._response = send(changed)
        status, headers = response.status, list(response.headers.items())
        try:
            framing = framing_of(status, headers)
            if framing is None:
                yield whole_chunk(response, status, headers, response.read(decode_content=True))
                return
            splitter = EventSplitter(framing)
            yield head_chunk(response, status, headers)
            for part in _parts(response):
                yield from splitter.add(part)
            yield from splitter.rest()
        finally:
            response.close()


def _parts(response: Any) -> Iterator[bytes]:
    if response.chunked or not hasattr(response, "read1"):  # since 2.1
        yield from response.stream(decode_content=True)
        return
    while part := response.read1(decode_content=True):
        yield part


class _Content(io.BytesIO):
    """A body in memory, which ends as that of a connection does: without this, a reader without a size reads on for ever."""

    def isclosed(self) -> bool:
        return self.closed or self.tell() >= self.getbuffer().nbytes


class _Reader(io.RawIOBase):
    """The body of a streamed reply as a file."""

    def __init__(self, body: StreamBody) -> None:
        self._body, self._left = body, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = self._body.part() or b""
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def read1(self, size: int = -1) -> bytes:
        """What has come, as `HTTPResponse` of the standard library has it."""
        return self.read(size if size > 0 else _CHUNK) or b""

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()


def _streamed(body: StreamBody, method: str, given: Mapping[str, Any]) -> Any:
    """A response whose body comes chunk by chunk, as one that a server sends in chunks."""
    sent, head, reader = body.response, body.head, _Reader(body)
    headers = head.get("headers") or {} if sent is None else sent.headers.items()
    kept = {name: value for name, value in dict(headers).items() if name.lower() not in ("content-encoding", "content-length")}
    made = _made(head["status"], kept, reader, method, None if sent is None else sent.reason, given)

    def read_chunked(amount: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        while part := reader.read(amount or _CHUNK):
            yield part

    made.chunked, made.supports_chunked_reads, made.read_chunked = True, lambda: True, read_chunked
    return made


def _patience_s(given: Mapping[str, Any]) -> float | None:
    """How long the client waits for the next bytes."""
    from urllib3 import Timeout

    timeout = given.get("timeout")
    if not isinstance(timeout, Timeout):
        return None
    begun = timeout.clone()
    begun.start_connect()  # what is left of a total is known only from then on
    found = begun.read_timeout
    return found if isinstance(found, int | float) else None


def _client_reply(port: Port, response: Any, given: Mapping[str, Any]) -> Any:
    """The reply to a call outside of runs, which the client gets as it is."""
    if port.kind != "model_call":
        return response
    if given.get("preload_content", True):
        return settled(response, reply_of(response.status, response.headers.items(), response.data))
    return arriving(response, response.status, response.headers.items(), lambda body: _note_body(response, body))


def _note_body(response: Any, body: ArrivingBody) -> None:
    """Note the body of a response while it is read, whole, in parts or in chunks."""
    itself: Callable[[], Any] = weakref.ref(response)
    kind = type(response)

    def reading(name: str) -> Callable[..., Any]:
        def read(*given: Any, **options: Any) -> Any:
            part = getattr(kind, name)(itself(), *given, **options)
            body.add(part)
            if not part or itself().closed:
                body.end("reply")
            return part

        return read

    def read_chunked(*given: Any, **options: Any) -> Iterator[Any]:
        for part in kind.read_chunked(itself(), *given, **options):
            body.add(part)
            yield part
        body.end("reply")

    def close() -> None:
        body.end("cut")
        kind.close(itself())

    response.read, response.read1, response.read_chunked, response.close = (
        reading("read"), reading("read1"), read_chunked, close
    )  # fmt: skip


def _response(reply: Mapping[str, Any], method: str, url: str, given: Mapping[str, Any]) -> Any:
    return _made(reply.get("status", 200), reply.get("headers") or {}, bytes_of(reply.get("body")), method, None, given)


def _made(
    status: int, headers: Mapping[str, str], content: bytes | _Reader, method: str, reason: str | None, given: Mapping[str, Any]
) -> Any:
    from urllib3 import HTTPResponse

    return HTTPResponse(
        body=_Content(content) if isinstance(content, bytes) else content, headers=headers, status=status, reason=reason,
        request_method=method, preload_content=given.get("preload_content", True),
        decode_content=given.get("decode_content", True), enforce_content_length=False,
    )  # fmt: skip


_POLICY: Final = (
    "urllib3 tries again three times where a connection fails, and never after a status, unless a Retry says otherwise; "
    "requests retries nothing"
)
ADAPTERS: Final = {
    name: Adapter(name=name, package=name, install=install, release=f"{name}>=2.0", policy=_POLICY)
    for name in ("requests", "urllib3")
}

__all__ = ["ADAPTERS", "install"]
