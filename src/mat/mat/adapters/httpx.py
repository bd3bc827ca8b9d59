"""httpx and httpx2: each request of a client is a call of an endpoint, or of a model. Seams: `Client.send`, `AsyncClient.send`.

Retries of the client library above it are outside of the seam, so each attempt is a step. Time-outs and broken connections are
httpx's own exceptions; a status is a reply. A streamed reply is a step that ends when the client has read or closed it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.adapters.http import (
    ArrivingBody,
    HTTPRequest,
    HTTPStatus,
    arriving,
    asks_model,
    bytes_of,
    changed_query,
    port_of,
    reply_of,
    settled,
    status_errors,
)
from mat.adapters.http_streams import (
    AsyncStreamBody,
    BrokenStreams,
    Chunk,
    EventSplitter,
    StreamBody,
    asks_stream,
    framing_of,
    head_chunk,
    is_last,
    opened,
    stream_port_of,
    whole_chunk,
)
from mat.boundary.calls import cross, cross_async, cross_stream, cross_stream_async
from mat.boundary.port import Port
from mat.boundary.requests import sending
from mat.boundary.session import active, calls_are_plain


def install(attachment: Attachment) -> None:
    for name in ("httpx", "httpx2"):
        if importlib.util.find_spec(name) is not None:
            _install(attachment, importlib.import_module(name))


def _install(attachment: Attachment, httpx: Any) -> None:
    errors: dict[str, Callable[[str], BaseException]] = {
        "timeout": lambda text: httpx.ReadTimeout(text),
        "connection": lambda text: httpx.ConnectError(text),
        "cut": lambda text: httpx.RemoteProtocolError(text),
        **status_errors(),
    }

    def asked_of(request: Any) -> HTTPRequest:
        content = request.content if is_read(request) else b""
        return HTTPRequest(method=request.method, url=str(request.url), content=content, headers=request.headers)

    def is_read(request: Any) -> bool:
        """Whether the body of a request is to be known; outside of runs that of an upload stays a stream."""
        return active() is not None or asks_model(request.method, str(request.url))

    class Noted(httpx.SyncByteStream, httpx.AsyncByteStream):
        """A body that is noted while the client reads it."""

        def __init__(self, stream: Any, body: ArrivingBody) -> None:
            self._stream, self._body = stream, body

        def __iter__(self) -> Iterator[bytes]:
            for part in self._stream:
                self._body.add(part)
                yield part
            self._body.end("reply")

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self._stream:
                self._body.add(part)
                yield part
            self._body.end("reply")

        def close(self) -> None:
            self._body.end("cut")
            self._stream.close()

        async def aclose(self) -> None:
            self._body.end("cut")
            await self._stream.aclose()

    class Streamed(httpx.SyncByteStream, httpx.AsyncByteStream):
        """The body of a streamed reply in a run."""

        def __init__(self, body: Any) -> None:
            self._body = body

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._body)

        def __aiter__(self) -> AsyncIterator[bytes]:
            found: AsyncIterator[bytes] = self._body.__aiter__()
            return found

        def close(self) -> None:
            self._body.close()

        async def aclose(self) -> None:
            await self._body.aclose()

    def streamed(body: StreamBody | AsyncStreamBody, request: Any) -> Any:
        """The client's own response with the body of this run, or one that no server has sent."""
        response, stream = body.response, Streamed(body)
        if response is None:
            head = body.head
            return httpx.Response(head["status"], headers=head.get("headers") or {}, stream=stream, request=request)
        response.stream = stream
        if "content-encoding" in response.headers:
            del response.headers["content-encoding"]
        return response

    def decoded(response: Any) -> Any:
        """The response with its body as it is to be read, on the same connection."""
        return httpx.Response(response.status_code, headers=response.headers, stream=response.stream)

    def outside(port: Port, response: Any) -> Any:
        """The reply to a call outside of runs, which the client gets as it is."""
        if port.kind != "model_call":
            return response
        if response.is_closed:
            return settled(response, encode(response))
        status, headers = response.status_code, response.headers

        def begin(body: ArrivingBody) -> None:
            body.decode = lambda raw: bytes(httpx.Response(status, headers=headers, content=raw).content)
            response.stream = Noted(response.stream, body)

        return arriving(response, status, headers.items(), begin)

    def encode(response: Any) -> dict[str, Any]:
        return reply_of(response.status_code, response.headers.items(), response.content)

    def decode(reply: Any, request: Any) -> Any:
        reply = reply or {}
        return httpx.Response(
            reply.get("status", 200), headers=reply.get("headers") or {}, content=bytes_of(reply.get("body")), request=request
        )

    def changed_request(client: Any, request: Any, changed: dict[str, Any] | None) -> Any:
        if not changed:
            return request
        query = changed_query(str(request.url), changed["query"]) if "query" in changed else dict(request.url.params)
        url = request.url.copy_with(path=changed.get("path", request.url.path), params=query)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        content = bytes_of(changed["body"]) if "body" in changed else request.content
        return client.build_request(request.method, url, content=content, headers=headers, extensions=request.extensions)

    def port_for(asked: HTTPRequest, options: Mapping[str, Any]) -> Port | None:
        if options.get("stream") and active() is not None and asks_stream(asked):
            return stream_port_of(attachment, asked, errors)
        return port_of(attachment, asked, errors)

    def stream(client: Any, request: Any, asked: HTTPRequest, port: Port, send: Callable[[Any], Any]) -> Any:
        def chunks(changed: dict[str, Any] | None) -> Iterator[Chunk]:
            response = send(changed_request(client, request, changed))
            status, headers = response.status_code, response.headers.items()
            body = decoded(response)
            try:
                framing = framing_of(status, headers)
                if framing is None:
                    yield whole_chunk(response, status, headers, body.read())
                    return
                splitter = EventSplitter(framing)
                yield head_chunk(response, status, headers)
                for part in body.iter_bytes():
                    yield from splitter.add(part)
                yield from splitter.rest()
            finally:
                body.close()

        try:
            with sending(port, asked.sent):
                passing = cross_stream(port, asked.arguments, chunks, patience_s=_patience_s(request), ends=is_last)
                body = StreamBody(passing, BrokenStreams(asked, errors))
        except HTTPStatus as status:
            return decode(status.reply, request)
        return streamed(body, request)

    async def async_stream(client: Any, request: Any, asked: HTTPRequest, port: Port, send: Callable[[Any], Any]) -> Any:
        async def chunks(changed: dict[str, Any] | None) -> AsyncIterator[Chunk]:
            response = await send(changed_request(client, request, changed))
            status, headers = response.status_code, response.headers.items()
            body = decoded(response)
            try:
                framing = framing_of(status, headers)
                if framing is None:
                    yield whole_chunk(response, status, headers, await body.aread())
                    return
                splitter = EventSplitter(framing)
                yield head_chunk(response, status, headers)
                async for part in body.aiter_bytes():
                    for chunk in splitter.add(part):
                        yield chunk
                for chunk in splitter.rest():
                    yield chunk
            finally:
                await body.aclose()

        try:
            with sending(port, asked.sent):
                passing = cross_stream_async(port, asked.arguments, chunks, patience_s=_patience_s(request), ends=is_last)
                body = await opened(passing, BrokenStreams(asked, errors))
        except HTTPStatus as status:
            return decode(status.reply, request)
        return streamed(body, request)

    def sync_send(real: Any) -> Any:
        def send(self: Any, request: Any, **options: Any) -> Any:
            if calls_are_plain():
                return real(self, request, **options)
            if is_read(request):
                request.read()
            asked = asked_of(request)
            port = port_for(asked, options)
            if port is None:
                return real(self, request, **options)
            if port.stream:
                return stream(self, request, asked, port, lambda changed: real(self, changed, **options))
            if active() is None:
                return cross(port, asked.arguments, lambda changed: outside(port, real(self, request, **options)))
            got: list[tuple[Any, dict[str, Any]]] = []

            def call(changed: dict[str, Any] | None) -> Any:
                response = real(self, changed_request(self, request, changed), **options)
                response.read()
                got[:] = [(response, encode(response))]
                return got[0][1]

            try:
                with sending(port, asked.sent):
                    reply = cross(port, asked.arguments, call)
            except HTTPStatus as status:
                return decode(status.reply, request)
            return got[0][0] if got and got[0][1] is reply else reply if not _is_data(reply) else decode(reply, request)

        return send

    def async_send(real: Any) -> Any:
        async def send(self: Any, request: Any, **options: Any) -> Any:
            if calls_are_plain():
                return await real(self, request, **options)
            if is_read(request):
                await request.aread()
            asked = asked_of(request)
            port = port_for(asked, options)
            if port is None:
                return await real(self, request, **options)
            if port.stream:
                return await async_stream(self, request, asked, port, lambda changed: real(self, changed, **options))
            if active() is None:

                async def sent(changed: dict[str, Any] | None) -> Any:
                    return outside(port, await real(self, request, **options))

                return await cross_async(port, asked.arguments, sent)
            got: list[tuple[Any, dict[str, Any]]] = []

            async def call(changed: dict[str, Any] | None) -> Any:
                response = await real(self, changed_request(self, request, changed), **options)
                await response.aread()
                got[:] = [(response, encode(response))]
                return got[0][1]

            try:
                with sending(port, asked.sent):
                    reply = await cross_async(port, asked.arguments, call)
            except HTTPStatus as status:
                return decode(status.reply, request)
            return got[0][0] if got and got[0][1] is reply else reply if not _is_data(reply) else decode(reply, request)

        return send

    attachment.replace(httpx.Client, "send", sync_send)
    attachment.replace(httpx.AsyncClient, "send", async_send)


def _patience_s(request: Any) -> float | None:
    """How long the client waits for the next bytes."""
    found = (request.extensions.get("timeout") or {}).get("read")
    return found if isinstance(found, int | float) else None


def _is_data(reply: Any) -> bool:
    """Whether a reply is a recorded form (a mapping or None) to decode, and not a response or a text to return as it is."""
    return reply is None or hasattr(reply, "get")


_RELEASES: Final = {"httpx": "httpx>=0.27", "httpx2": "httpx2>=2.0"}
_PACKAGE: Final = next((name for name in _RELEASES if importlib.util.find_spec(name) is not None), "httpx")
"""The package that is installed; the clients of OpenAI and others bring httpx2 alone."""
ADAPTERS: Final = {
    "httpx": Adapter(
        name="httpx", package=_PACKAGE, install=install, release=_RELEASES[_PACKAGE],
        policy="httpx retries nothing; a client above it may (openai: twice, on 408, 409, 429, 5xx and broken connections)",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
