"""aiohttp: each request of a session is a call of an endpoint, or of a model. Seam: `ClientSession._request`.

It is private, and the one through which `get`, `post` and all others go; redirects are followed inside of it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

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
    status_errors,
)
from mat.adapters.http_streams import (
    AsyncStreamBody,
    BrokenStreams,
    Chunk,
    EventSplitter,
    asks_stream,
    framing_of,
    head_chunk,
    is_last,
    opened,
    stream_port_of,
    whole_chunk,
)
from mat.boundary.calls import cross_async, cross_stream_async
from mat.boundary.port import Port
from mat.boundary.requests import sending
from mat.boundary.session import active, calls_are_plain

if TYPE_CHECKING:
    import asyncio


def install(attachment: Attachment) -> None:
    import aiohttp

    errors: dict[str, Callable[[str], BaseException]] = {
        "timeout": lambda text: aiohttp.ServerTimeoutError(text),
        "connection": lambda text: aiohttp.ServerDisconnectedError(text),
        "cut": lambda text: aiohttp.ClientPayloadError(text),
        **status_errors(),
    }

    def request(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _request(self: Any, method: str, str_or_url: Any, **given: Any) -> Any:
            if calls_are_plain():
                return await real(self, method, str_or_url, **given)
            asked = _asked(self, method, str_or_url, given)
            streams = active() is not None and asks_stream(asked)
            port = (stream_port_of if streams else port_of)(attachment, asked, errors)
            if port is None:
                return await real(self, method, str_or_url, **given)
            if port.stream:

                async def send(changed: dict[str, Any] | None) -> Any:
                    url, options = _sent(self, str_or_url, given, changed)
                    return await real(self, method, url, **options)

                try:
                    with sending(port, asked.sent):
                        patience_s = _patience_s(self, given)
                        chunks = cross_stream_async(
                            port, asked.arguments, lambda changed: _chunks(send, changed), patience_s=patience_s, ends=is_last
                        )
                        body = await opened(chunks, BrokenStreams(asked, errors))
                        response = _streamed(self, method, asked.url, body)
                except HTTPStatus as status:
                    response = _response(self, method, asked.url, status.reply)
                return _checked(self, response, given)
            if active() is None:

                async def sent(changed: dict[str, Any] | None) -> Any:
                    return _client_reply(port, await real(self, method, str_or_url, **given))

                return await cross_async(port, asked.arguments, sent)
            got: list[tuple[Any, Any]] = []

            async def call(changed: dict[str, Any] | None) -> Any:
                url, options = _sent(self, str_or_url, given, changed)
                response = await real(self, method, url, **options)
                data = reply_of(response.status, response.headers.items(), await response.read())
                got[:] = [(response, data)]
                return data

            try:
                with sending(port, asked.sent):
                    reply = await cross_async(port, asked.arguments, call)
            except HTTPStatus as status:
                reply = status.reply
            if got and got[0][1] is reply:
                return got[0][0]
            return _checked(self, _response(self, method, asked.url, reply or {}), given)

        return _request

    attachment.replace(aiohttp.ClientSession, "_request", request)


def _asked(session: Any, method: str, url: Any, given: Mapping[str, Any]) -> HTTPRequest:
    whole = session._build_url(url)
    if given.get("params"):
        whole = whole.update_query(given["params"])
    if given.get("json") is not None:
        content = json.dumps(given["json"]).encode()
    else:
        data = given.get("data")
        content = data if isinstance(data, bytes) else data.encode() if isinstance(data, str) else b""
    headers = {str(name).lower(): str(value) for name, value in {**session.headers, **(given.get("headers") or {})}.items()}
    return HTTPRequest(method=method.upper(), url=str(whole), content=content, headers=headers)


def _sent(session: Any, url: Any, given: dict[str, Any], changed: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """The request with what governance or a fault has replaced in it."""
    if not changed:
        return url, given
    whole = session._build_url(url)
    if "path" in changed:
        whole = whole.with_path(changed["path"], keep_query=True)
    options = dict(given)
    if "query" in changed:
        asked = whole.update_query(options.pop("params", None) or {})
        whole = whole.with_query(changed_query(str(asked), changed["query"]))
    if "body" in changed:
        options = {name: value for name, value in options.items() if name not in ("json", "data")}
        options["json" if isinstance(changed["body"], dict | list) else "data"] = changed["body"]
    return whole, options


def _checked(session: Any, response: Any, given: Mapping[str, Any]) -> Any:
    """The response, unless the caller wants a refusal raised."""
    if given.get("raise_for_status", session._raise_for_status) is True:
        response.raise_for_status()
    return response


async def _chunks(send: Callable[[dict[str, Any] | None], Any], changed: dict[str, Any] | None) -> AsyncIterator[Chunk]:
    """The chunks of a reply as they come."""
    response = await send(changed)
    status, headers = response.status, list(response.headers.items())
    try:
        framing = framing_of(status, headers)
        if framing is None:
            yield whole_chunk(response, status, headers, await response.read())
            return
        splitter = EventSplitter(framing)
        yield head_chunk(response, status, headers)
        async for part in response.content.iter_any():
            for chunk in splitter.add(part):
                yield chunk
        for chunk in splitter.rest():
            yield chunk
    finally:
        response.close()


def _patience_s(session: Any, given: Mapping[str, Any]) -> float | None:
    """How long the client waits for the next bytes; None for ever, which is 0 to aiohttp."""
    found = given.get("timeout", session.timeout)
    limits = [found] if isinstance(found, int | float) else [getattr(found, name, None) for name in ("sock_read", "total")]
    return min((limit for limit in limits if isinstance(limit, int | float) and limit > 0), default=None)


def _client_reply(port: Port, response: Any) -> Any:
    """The reply to a call outside of runs, which the client gets as it is."""
    if port.kind != "model_call":
        return response

    def begin(body: ArrivingBody) -> None:
        response.content = _NotedReader(response.content, body)

    return arriving(response, response.status, response.headers.items(), begin)


class _NotedReader:
    """The reader of a response's body, which is noted while the client reads it. All else is the reader's own."""

    def __init__(self, reader: Any, body: ArrivingBody) -> None:
        self._reader, self._body = reader, body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def _noted(self, part: bytes) -> bytes:
        self._body.add(part)
        if self._reader.at_eof():
            self._body.end("reply")
        return part

    async def read(self, n: int = -1) -> bytes:
        return self._noted(await self._reader.read(n))

    async def readany(self) -> bytes:
        return self._noted(await self._reader.readany())

    async def readline(self, **options: Any) -> bytes:
        return self._noted(await self._reader.readline(**options))

    async def readuntil(self, separator: bytes = b"\n", **options: Any) -> bytes:
        return self._noted(await self._reader.readuntil(separator, **options))

    async def readexactly(self, n: int) -> bytes:
        return self._noted(await self._reader.readexactly(n))

    async def readchunk(self) -> tuple[bytes, bool]:
        part, ends = await self._reader.readchunk()
        return self._noted(part), ends

    def read_nowait(self, n: int = -1) -> bytes:
        return self._noted(self._reader.read_nowait(n))

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        while (found := await self.readchunk()) != (b"", False):
            yield found

    def iter_any(self) -> AsyncIterator[bytes]:
        return _parts_of(self.readany)

    def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        return _parts_of(lambda: self.read(n))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _parts_of(self.readline)

    def set_exception(self, *given: Any) -> None:
        self._body.end("cut")
        self._reader.set_exception(*given)


async def _parts_of(read: Callable[[], Any]) -> AsyncIterator[bytes]:
    while part := await read():
        yield part


def _response(session: Any, method: str, url: str, reply: Mapping[str, Any]) -> Any:
    """A response of aiohttp that no server has sent: its status, headers and body are those of the reply."""
    response = _made(session, method, url, reply)
    content = response._body = bytes_of(reply.get("body"))
    response.content = _reader()
    response.content.feed_data(content)
    response.content.feed_eof()
    return response


def _streamed(session: Any, method: str, url: str, body: AsyncStreamBody) -> Any:
    """A response whose body comes chunk by chunk; its head is that which the server has sent."""
    head = body.head
    if body.response is not None:
        head = {"status": body.response.status, "headers": body.response.headers}
    response = _made(session, method, url, head)
    response.content = reader = _reader(body)

    async def wait_for_close() -> None:
        await type(response).wait_for_close(response)
        if reader.closing is not None:
            await reader.closing

    response.wait_for_close = wait_for_close
    return response


def _reader(body: AsyncStreamBody | None = None) -> Any:
    """A reader of aiohttp, which is fed, or asks a body for more whenever it has nothing left."""
    import asyncio

    from aiohttp import StreamReader
    from aiohttp.base_protocol import BaseProtocol

    class Reader(StreamReader):
        closing: asyncio.Task[None] | None = None

        async def ask(self, func_name: str) -> None:
            """Get more bytes, or the end."""
            part = None if body is None else await body.part()
            if part is None:
                self.feed_eof()
            else:
                self.feed_data(part)

        _wait = ask

        def set_exception(self, *given: Any) -> None:
            """The client closes the response."""
            if body is not None and self.closing is None:
                self.closing = _finish(body.aclose())
            super().set_exception(*given)

    loop = asyncio.get_running_loop()
    return Reader(BaseProtocol(loop), limit=2**16, loop=loop)


def _finish(closing: Any) -> asyncio.Task[None] | None:
    """End a call at once, as aiohttp closes its connections; in a task where it waits, as for the rest of a recorded stream."""
    import asyncio

    try:
        waiting = closing.send(None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_go_on(closing, waiting))


async def _go_on(closing: Any, waiting: Any) -> None:
    await _Rest(closing, waiting)


class _Rest:
    """What is left of a coroutine that waits for something."""

    def __init__(self, closing: Any, waiting: Any) -> None:
        self._closing, self._waiting = closing, waiting

    def __await__(self) -> Generator[Any, Any, None]:
        waiting = self._waiting
        while True:
            try:
                found = yield waiting
            except BaseException as error:
                resume, given = self._closing.throw, error
            else:
                resume, given = self._closing.send, found
            try:
                waiting = resume(given)
            except StopIteration:
                return


def _made(session: Any, method: str, url: str, head: Mapping[str, Any]) -> Any:
    import asyncio

    from aiohttp import ClientResponse, RequestInfo
    from aiohttp.helpers import TimerNoop
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

    loop, address = asyncio.get_running_loop(), URL(url)
    headers = CIMultiDictProxy(CIMultiDict(head.get("headers") or {}))
    info = RequestInfo(address, method, CIMultiDictProxy(CIMultiDict()), address)
    writer: dict[str, Any] = {"writer": _Writer()}
    if "stream_writer" in inspect.signature(ClientResponse.__init__).parameters:  # since 3.14
        writer = {"writer": None, "stream_writer": _Writer()}
    response = ClientResponse(
        method, address, continue100=None, timer=TimerNoop(), request_info=info, traces=[], loop=loop, session=session, **writer
    )
    response.status, response.reason, response._headers = head.get("status", 200), "", headers
    response._raw_headers = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return response


class _Writer:
    """Stands for what has sent a request; it has."""

    output_size = upload_complete = 0

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        return None

    def remove_done_callback(self, callback: Callable[[Any], Any]) -> None:
        return None


ADAPTERS: Final = {
    "aiohttp": Adapter(
        name="aiohttp", package="aiohttp", install=install, release="aiohttp>=3.11",
        policy="aiohttp sends an idempotent request again where a connection that was kept open turns out to be closed, and "
        "retries nothing else",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
