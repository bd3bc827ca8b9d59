"""Streamed replies of HTTP, for every client: server-sent events and lines of JSON, each of which is a chunk of its own.

The first chunk is the head of the reply, {status, headers}; a reply that turns out to be no stream is one chunk, which is also
its body. An event is {event, data}, with JSON as data; what is neither, such as a comment, is its text. An event whose own
bytes cannot be made again from that (spaces in JSON, other line ends, the body ends in its middle) has its text as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from mat.adapters.attachment import Attachment
from mat.adapters.http import HTTPRequest, HTTPStatus, bytes_of, port_of, reply_of
from mat.boundary.port import CUT, Port
from mat.core.value import thaw

Framing: TypeAlias = Literal["events", "lines"]
"""How the chunks of a body are told apart: server-sent events, or lines of JSON."""
_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK_LINE_BYTES: Final = 4
"""At most."""
_LINE_END: Final = re.compile(rb"\n")
_LINE_ENDS: Final = re.compile(r"\r\n|\n|\r")
_FIELDS: Final = ("event", "id", "retry")
"""The fields of an event next to its data, as the HTML standard has them (9.2.5)."""
_STREAMING_PATHS: Final = re.compile(r":streamGenerateContent$")
_STREAMING_UNASKED: Final = re.compile(r"/api/(chat|generate)$")
"""Ollama streams unless the request says that it should not."""
_LAST: Final = ("message_stop", "response.completed", "response.failed", "response.incomplete")
"""The types of events after which a model says nothing more; OpenAI's chat completions end with the text [DONE]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk of a reply: `data`, what is recorded. `content`: the bytes in which it came; None for one of a recording.

    `response`: the client's own response, where this is the head of a reply that has come.
    """

    data: Any
    content: bytes | None = None
    response: Any = None

    @property
    def is_head(self) -> bool:
        found = self.data
        return isinstance(found, Mapping) and isinstance(found.get("status"), int) and "headers" in found


def is_last(chunk: Chunk) -> bool:
    """Whether a model says nothing after this chunk, so that a client which stops reading here has got everything."""
    said = chunk.data.get("data") if isinstance(chunk.data, Mapping) else None
    return said == "[DONE]" or (isinstance(said, Mapping) and said.get("type") in _LAST)


def asks_stream(asked: HTTPRequest) -> bool:
    """Whether a request asks for a reply in chunks."""
    if "text/event-stream" in asked.headers.get("accept", ""):
        return True
    if not asked.model:
        return False
    path, body = urlsplit(asked.url).path, asked.body
    if _STREAMING_PATHS.search(path):
        return True
    return isinstance(body, dict) and body.get("stream", _STREAMING_UNASKED.search(path) is not None) is True


def stream_port_of(attachment: Attachment, asked: HTTPRequest, errors: Mapping[str, Any]) -> Port | None:
    """The port of a request for a stream. It is no stream where `port_of` has the port: of a retriever, or none at all."""
    whole = port_of(attachment, asked, errors)
    if whole is None or whole.kind == "retrieval":
        return whole
    if whole.kind == "model_call":
        return attachment.model(asked.model, errors=errors, stream=True, encode=_data_of, decode=_chunk_of)
    return attachment.tool(
        asked.endpoint, effect=whole.effect, source=f"the method {asked.method}", errors=errors, stream=True,
        encode=_data_of, decode=_chunk_of,
    )  # fmt: skip


def _data_of(chunk: Chunk) -> Any:
    return chunk.data


def _chunk_of(data: Any) -> Chunk:
    return Chunk(data=data)


# -- from the wire ----------------------------------------------------------------------------------------------------------


def framing_of(status: int, headers: Iterable[tuple[str, str]]) -> Framing | None:
    """How the chunks of a reply are told apart; None for one that is no stream, such as a refusal."""
    kind = next((value for name, value in headers if name.lower() == "content-type"), "").partition(";")[0].strip().lower()
    if not 200 <= status < 300:
        return None
    if kind == "text/event-stream":
        return "events"
    return "lines" if kind in ("application/x-ndjson", "application/ndjson", "application/jsonl") else None


def whole_chunk(response: Any, status: int, headers: Iterable[tuple[str, str]], content: bytes) -> Chunk:
    """A reply that is no stream, in one chunk."""
    return Chunk(data=reply_of(status, headers, content), content=content, response=response)


def head_chunk(response: Any, status: int, headers: Iterable[tuple[str, str]]) -> Chunk:
    """The head of a stream."""
    return Chunk(data=reply_of(status, headers, b""), content=b"", response=response)


class EventSplitter:
    """The bytes of a body as chunks, whatever parts they come in."""

    __slots__ = ("_end", "_left")

    def __init__(self, framing: Framing) -> None:
        self._end, self._left = _BLANK_LINE if framing == "events" else _LINE_END, bytearray()

    def add(self, part: bytes) -> Iterator[Chunk]:
        """The chunks that are complete now."""
        searched = max(0, len(self._left) - _BLANK_LINE_BYTES + 1)  # an end may lie across two parts
        self._left += part
        start, complete = 0, []
        for found in self._end.finditer(self._left, searched):
            complete.append(_event(bytes(self._left[start : found.end()])))
            start = found.end()
        del self._left[:start]
        yield from complete

    def rest(self) -> Iterator[Chunk]:
        """What is left at the end of the body."""
        if self._left:
            yield _event(bytes(self._left))


def _event(content: bytes) -> Chunk:
    return Chunk(data=event_data(content), content=content)


def event_data(content: bytes) -> Any:
    """An event, or a line, as plain data."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    found = _event_parts(text)
    return found if content_of(Chunk(data=found)) == content else {**found, "text": text}


def _event_parts(text: str) -> dict[str, Any]:
    fields: dict[str, str] = {}
    for line in _LINE_ENDS.split(text):
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and colon:
            fields["data"] = f"{fields['data']}\n{value}" if "data" in fields else value
        elif name in _FIELDS and colon and name not in fields:
            fields[name] = value
        elif line:
            fields = {}
            break
    if fields:
        return {name: _parsed(value) if name == "data" else value for name, value in fields.items()}
    data = _parsed(text.strip())
    return {"text": text} if isinstance(data, str) else {"line": data}


def _parsed(text: str) -> Any:
    """JSON as data; other text as it is, and so is JSON that has no bytes or no recorded form as data."""
    if text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            found = json.loads(text, parse_constant=_refused)
            if "\\u" in text:  # half of a surrogate pair
                bytes_of(found)
            return found
    return text


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


# -- to the client ----------------------------------------------------------------------------------------------------------


def content_of(chunk: Chunk) -> bytes:
    """The bytes of a chunk of a body: as they came, else made of its data."""
    if chunk.content is not None:
        return chunk.content
    data = thaw(chunk.data)
    if chunk.is_head:
        return bytes_of(data.get("body"))
    if not isinstance(data, dict):
        return b"" if data is None else f"data: {data}\n\n".encode()
    if "base64" in data:
        return bytes_of(data)
    if "text" in data:
        text, rest = str(data["text"]), {name: part for name, part in data.items() if name != "text"}
        if not rest or _event_parts(text) == rest:
            return text.encode()
        data = rest  # a fault has changed them
    if "line" in data:
        return bytes_of(data["line"]) + b"\n"
    lines = [f"{name}: {data[name]}" for name in _FIELDS if name in data]
    if "data" in data:
        said = data["data"]
        text = said if isinstance(said, str) else bytes_of(said).decode()
        lines += [f"data: {line}" for line in text.split("\n")]
    return ("\n".join(lines) + "\n\n").encode()


def error_content(status: HTTPStatus, path: str, framing: Framing | None) -> bytes | None:
    """A failure after the head, as the provider reports it in its stream; None for one whose streams only break off."""
    if framing == "lines":
        return bytes_of({"error": status.text}) + b"\n" if _STREAMING_UNASKED.search(path) else None
    found = next((form for ending, form in _ERROR_EVENTS.items() if path.endswith(ending)), None)
    return None if framing is None or found is None else content_of(Chunk(data=found(status)))


def _chat_error(status: HTTPStatus) -> dict[str, Any]:
    return {"data": {"error": {"message": status.text, "type": "server_error", "code": status.status}}}


def _response_error(status: HTTPStatus) -> dict[str, Any]:
    return {"event": "error", "data": {"type": "error", "code": "server_error", "message": status.text, "param": None}}


def _message_error(status: HTTPStatus) -> dict[str, Any]:
    return {"event": "error", "data": {"type": "error", "error": {"type": "overloaded_error", "message": status.text}}}


def _gemini_error(status: HTTPStatus) -> dict[str, Any]:
    return {"data": {"error": {"code": status.status, "message": status.text, "status": "UNAVAILABLE"}}}


_ERROR_EVENTS: Final[Mapping[str, Callable[[HTTPStatus], dict[str, Any]]]] = {
    "/completions": _chat_error,
    "/responses": _response_error,
    "/messages": _message_error,
    ":streamGenerateContent": _gemini_error,
}
"""How the path of a model's URL ends, and what an error is in its streams: OpenAI (twice), Anthropic and Gemini."""


class BrokenStreams:
    """How streams of one request end where a failure comes after the head. `errors`: those of the client."""

    __slots__ = ("_cut", "_path")

    def __init__(self, asked: HTTPRequest, errors: Mapping[str, Callable[[str], BaseException]]) -> None:
        self._path, self._cut = urlsplit(asked.url).path if asked.model else "", errors[CUT]

    def content(self, status: HTTPStatus, head: Mapping[str, Any]) -> bytes:
        """What the client reads; raises its own exception where the connection is all that can say it."""
        framing = framing_of(head["status"], (head.get("headers") or {}).items())
        content = error_content(status, self._path, framing)
        if content is None:
            raise self._cut(status.text) from None
        return content


class StreamBody:
    """The body of a streamed reply, for a synchronous client: its bytes, a chunk at a time. `head`: status and headers.

    `chunks`: of the reply, from `cross_stream`. The constructor reads the head, and raises what the call raises.
    """

    __slots__ = ("_broken", "_chunks", "_first", "head", "response")

    def __init__(self, chunks: Iterator[Chunk], broken: BrokenStreams) -> None:
        self._chunks: Any = chunks
        self._broken = broken
        first = next(self._chunks, None)
        self.head, self._first, self.response = _opened(first)

    def __iter__(self) -> Iterator[bytes]:
        while (part := self.part()) is not None:
            yield part

    def part(self) -> bytes | None:
        """The bytes of the next chunk that has some; None at the end."""
        while True:
            chunk, self._first = self._first, None
            try:
                chunk = chunk or next(self._chunks, None)
            except HTTPStatus as status:
                return self._broken.content(status, self.head)
            if chunk is None:
                return None
            if part := content_of(chunk):
                return part

    def close(self) -> None:
        """End the call."""
        self._chunks.close()


class AsyncStreamBody:
    """`StreamBody` for an async client; made by `opened`."""

    __slots__ = ("_broken", "_chunks", "_first", "head", "response")

    def __init__(self, chunks: AsyncIterator[Chunk], first: Chunk | None, broken: BrokenStreams) -> None:
        self._chunks: Any = chunks
        self._broken = broken
        self.head, self._first, self.response = _opened(first)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self.part()) is not None:
            yield part

    async def part(self) -> bytes | None:
        """The bytes of the next chunk that has some; None at the end."""
        while True:
            chunk, self._first = self._first, None
            try:
                chunk = chunk or await anext(self._chunks, None)
            except HTTPStatus as status:
                return self._broken.content(status, self.head)
            if chunk is None:
                return None
            if part := content_of(chunk):
                return part

    async def aclose(self) -> None:
        """End the call."""
        await self._chunks.aclose()


async def opened(chunks: AsyncIterator[Chunk], broken: BrokenStreams) -> AsyncStreamBody:
    """The body of a streamed reply, whose head has come. Raises what the call raises."""
    return AsyncStreamBody(chunks, await anext(chunks, None), broken)


def _opened(first: Chunk | None) -> tuple[Mapping[str, Any], Chunk | None, Any]:
    """The head of a reply, the chunk that its body begins with, and the client's own response, if there is one."""
    if first is not None and first.is_head:
        body = first if first.data.get("body") is not None else None
        return first.data, body, first.response
    return {"status": 200, "headers": {"content-type": "text/event-stream"}}, first, None


__all__ = [
    "AsyncStreamBody",
    "BrokenStreams",
    "Chunk",
    "EventSplitter",
    "StreamBody",
    "asks_stream",
    "error_content",
    "framing_of",
    "head_chunk",
    "is_last",
    "opened",
    "stream_port_of",
    "whole_chunk",
]  # fmt: skip
