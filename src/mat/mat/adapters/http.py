"""HTTP as boundaries, for every client: what an endpoint is called, which one is a model, and messages as plain data."""

from __future__ import annotations

import base64
import json
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from mat.adapters.attachment import Attachment
from mat.boundary.calls import is_inside
from mat.boundary.metered import ChunkUsage, ClientReply
from mat.boundary.port import Port
from mat.boundary.session import CallEnd
from mat.boundary.usage import usage_of
from mat.core.limits import STREAMED_BYTES
from mat.core.value import HiddenText
from mat.kernel.network import is_loopback

_MODEL_PATHS: Final = re.compile(
    r"/(chat/completions|responses|completions|messages|embeddings)$|:(stream)?[gG]enerateContent$|/api/(chat|generate)$"
    r"|/v[12]/chat$|/model/[^/]+/(converse|converse-stream|invoke|invoke-with-response-stream)$"
)
"""OpenAI, Anthropic, Gemini, Ollama, Cohere and Bedrock."""
_NAMED_MODEL: Final = re.compile(r"/models/([^/:]+):|/model/([^/]+)/")
"""Gemini and Bedrock have the model in the path."""
_ID: Final = re.compile(r"/(?=[^/]*\d)[^/]+(?=/|$)")
_VERSION: Final = re.compile(r"^/v\d+(?:(?:alpha|beta)\d*)?$")
_SAFE: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods that change nothing (RFC 9110, 9.2.1)."""
_ASKED: Final = ("idempotency-key", "if-match", "if-none-match")
_KEYS: Final = ("key", "api_key", "api-key", "apikey", "access_token")
"""The parameters of a URL that hold the caller's key, of Gemini and others. They are never recorded in the clear."""
_KEPT: Final = ("content-type", "etag", "idempotency-key", "location", "retry-after", "x-request-id")
"""The headers that are recorded: of a request, and of a reply. Date is recorded with a Retry-After that is a date."""
_REFUSED: Final = 400
"""From this status on, a reply is a refusal."""
_FREE_PORT: Final = 32_768
"""From this port on, systems choose free ones."""
STATUSES: Final = {"server_error": 503, "rate_limit": 429, "auth": 401, "not_found": 404, "invalid": 422}
"""The status of a reply for each kind of fault that HTTP has one for."""


class HTTPStatus(Exception):  # noqa: N818  (a reply, not an error, for the client)
    """A fault that the client meets as a reply with a status. The adapter turns it into the client's own reply."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text, self.retry_after_s = status, text, None
        super().__init__(text)

    @property
    def reply(self) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        return {"status": self.status, "headers": headers, "body": {"error": {"message": self.text}}}


def status_errors() -> dict[str, Callable[[str], HTTPStatus]]:
    """The kinds of fault that the client meets as a status."""

    def maker(status: int) -> Callable[[str], HTTPStatus]:
        return lambda text: HTTPStatus(status, text)

    return {kind: maker(status) for kind, status in STATUSES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """One request of a client: its method, its URL, its body, and those of its headers that matter."""

    method: str
    url: str
    content: bytes
    headers: Mapping[str, str]

    @property
    def body(self) -> Any:
        return body_of(self.content)

    @property
    def arguments(self) -> dict[str, Any]:
        """The request as a step's arguments; what is empty is left out, and so is the key of who asks a model.

        Of any other endpoint the key is hidden: its reply may depend on who asks, and "key" may be an ordinary word there.
        """
        parts = urlsplit(self.url)
        query = {
            name: HiddenText(value) if name.lower() in _KEYS else value
            for name, value in parse_qsl(parts.query)
            if not (name.lower() in _KEYS and self.model)
        }
        found: dict[str, Any] = {"path": parts.path, "query": query, "body": self.body}
        found.update((name, self.headers[name]) for name in _ASKED if name in self.headers)
        return {name: value for name, value in found.items() if value not in (None, {}, "")}

    def sent(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The request as it is sent, where governance or a fault has left these arguments of the step; see `sending`."""
        url, asked = self.url, self.arguments
        if any(arguments.get(name) != asked.get(name) for name in ("path", "query")):
            parts = urlsplit(url)
            query = urlencode(changed_query(url, arguments.get("query", {})))
            url = f"{parts.scheme}://{parts.netloc}{arguments.get('path', parts.path)}" + (f"?{query}" if query else "")
        return {"url": url, "headers": dict(self.headers), "body": arguments.get("body")}

    @property
    def endpoint(self) -> str:
        """Method, host and path, with {id} in the place of segments that name one thing: "GET shop.test/orders/{id}".

        The port of a server that a test starts on this machine is left out: it is another one each time.
        """
        parts = urlsplit(self.url)
        free = (parts.port or 0) >= _FREE_PORT and is_loopback(parts.hostname)
        named = parts.netloc.rpartition("@")[2]  # without a user and a password
        host = named.rpartition(":")[0] if free else named
        return f"{self.method} {host}{_template(parts.path)}"

    @property
    def model(self) -> str:
        """The id of the model that this request asks, "" for any other request."""
        if not asks_model(self.method, self.url):
            return ""
        named = _NAMED_MODEL.search(urlsplit(self.url).path)
        body = self.body
        found = (named[1] or unquote(named[2])) if named else body.get("model") if isinstance(body, dict) else None
        return str(found or "model")


def asks_model(method: str, url: str) -> bool:
    """Whether a request asks a model, as far as its method and its URL say."""
    return method == "POST" and _MODEL_PATHS.search(urlsplit(url).path) is not None


def changed_query(url: str, query: Mapping[str, str]) -> dict[str, str]:
    """The query of a request that governance or a fault has changed, with the caller's key, which its arguments lack."""
    keys = {name: value for name, value in parse_qsl(urlsplit(url).query) if name.lower() in _KEYS}
    return {**keys, **query}


def _template(path: str) -> str:
    def named(found: re.Match[str]) -> str:
        return found[0] if _VERSION.match(found[0]) else "/{id}"

    return _ID.sub(named, path)


def port_of(attachment: Attachment, asked: HTTPRequest, errors: Mapping[str, Any]) -> Port | None:
    """The port of a request; None for one that belongs to a model call which another adapter has recorded."""
    model = asked.model
    if model:
        if is_inside("model_call") or attachment.models is False:
            return None
        return attachment.model(model, errors=errors)
    effect = "read" if asked.method in _SAFE else "write"
    return attachment.tool(asked.endpoint, effect=effect, source=f"the method {asked.method}", errors=errors)


def body_of(content: bytes) -> Any:
    """A body as data: JSON, the events of a stream, text, or base64 of any other bytes; None if it is empty."""
    if not content:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    try:
        return json.loads(text)
    except ValueError:
        return text


def bytes_of(body: Any) -> bytes:
    """The bytes of a body; the inverse of `body_of` up to the blanks of JSON."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, dict) and list(body) == ["base64"]:
        return base64.b64decode(body["base64"])
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def reply_of(status: int, headers: Iterable[tuple[str, str]], content: bytes) -> dict[str, Any]:
    """A reply as plain data: status, headers, body, and the token usage that it reports."""
    body, named = body_of(content), {name.lower(): value for name, value in headers}
    kept = _KEPT if named.get("retry-after", "0")[:1].isdigit() else (*_KEPT, "date")
    made: dict[str, Any] = {
        "status": status, "headers": {name: value for name, value in named.items() if name in kept}, "body": body,
    }  # fmt: skip
    usage = usage_of(_events(body) if isinstance(body, str) else body) or usage_of({"HTTPHeaders": named})
    if usage:
        made["usage"] = dict(usage)
    return made


# -- replies outside of runs ----------------------------------------------------------------------------------------------


def settled(response: Any, data: Mapping[str, Any]) -> ClientReply:
    """A model's reply that is there, for the resource contract that is charged. `data`: from `reply_of`."""

    def watch(usage: ChunkUsage) -> None:
        usage.add(data)
        usage.end("failed" if data["status"] >= _REFUSED else "reply")

    return ClientReply(response, watch)


def arriving(
    response: Any, status: int, headers: Iterable[tuple[str, str]], begin: Callable[[ArrivingBody], None]
) -> ClientReply:
    """A model's reply whose body is still to come: the client reads it as ever, and `begin(body)` makes it noted on its way.

    A reply that refuses the request consumed nothing. One that the client gives up ends with it.
    """

    def watch(usage: ChunkUsage) -> None:
        if status >= _REFUSED:
            usage.end("failed")
            return
        body = ArrivingBody(usage, status, tuple(headers))
        weakref.finalize(response, body.end, "cut")
        begin(body)

    return ClientReply(response, watch)


class ArrivingBody:
    """The body of a model's reply as the client reads it. At its end, the usage that it names is settled."""

    __slots__ = ("_headers", "_parts", "_size", "_status", "_usage", "decode")

    def __init__(self, usage: ChunkUsage, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self._usage, self._status, self._headers = usage, status, headers
        self._parts: list[bytes] = []
        self._size = 0
        self.decode: Callable[[bytes], bytes] = bytes

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= STREAMED_BYTES:
            self._parts.append(part)

    def end(self, ending: CallEnd) -> None:
        """`ending`: "reply" for a body that is whole, "cut" for one that is given up. Only the first end counts."""
        parts, self._parts = self._parts, []
        if parts and self._size <= STREAMED_BYTES:
            with suppress(Exception):  # of the decoder: what it cannot read names no usage
                self._usage.add(reply_of(self._status, self._headers, self.decode(b"".join(parts))))
        self._usage.end(ending)


def _events(text: str) -> list[Any]:
    """The events of a stream as data: lines of JSON (Ollama), or server-sent events with JSON in `data:`."""
    found = []
    for line in text.splitlines():
        line = line.removeprefix("data:").strip()
        if line.startswith("{"):
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


__all__ = [
    "STATUSES",
    "ArrivingBody",
    "HTTPRequest",
    "HTTPStatus",
    "arriving",
    "asks_model",
    "body_of",
    "bytes_of",
    "changed_query",
    "port_of",
    "reply_of",
    "settled",
    "status_errors",
]
