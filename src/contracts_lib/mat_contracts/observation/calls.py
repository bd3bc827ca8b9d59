"""How observation contracts select and read calls: by port or, for ports that make HTTP requests, by method and path.

>>> from mat_contracts.observation.calls import CALLS, On, SelectedCalls
>>> on: On = "POST /orders/{id}"
>>> SelectedCalls(on).text, "message" in CALLS
('POST /orders/{id}', False)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from mat.core.artifact import used
from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat_contracts._shared import names_of

On: TypeAlias = str | Iterable[str] | None
"""Which calls: names of ports, or routes such as "POST /orders/{id}", "/orders/*" and "GET https://bank.example/accounts";
None for all."""
CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "retrieval", "model_call", "memory_read", "memory_write"))
_URL_ARGUMENTS: Final = ("url", "uri", "href")
"""Arguments that may hold the URL of a request; the first that is a text does."""
_BODIES: Final = ("json", "form", "data", "body", "content", "text", "params")
_STATUSES: Final = ("status", "status_code")
_STATUS_TEXT: Final = re.compile(r"\s*[1-5]\d\d(?:\s.*)?", re.DOTALL)
_ROUTE: Final = re.compile(r"(?:(?P<method>[A-Z]+)\s+)?(?P<host>[a-z][a-z0-9+.\-]*://[^/\s]*)?(?P<path>/\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An HTTP request and its reply, as far as a record shows them.

    `method`, `url`, `path`: as texts. `query`, `headers`, `reply_headers`: name -> text. `body`: as it was recorded;
    `fields`: name -> value, if it is JSON or a form. `status`: the HTTP status that the reply states, an integer, 0 if it
    states none or never came. `reply`: the body of the reply. `captured`: name -> text, what the route's `{names}` matched.
    Header names are in lower case.

    >>> from mat_contracts.observation import exchange
    >>> from mat_contracts.traces import record
    >>> found = exchange(record("tool_call", "http", {"url": "https://shop.example/orders?page=2"}, value={"status": 200}))
    >>> found.method, found.path, found.value("query.page"), found.succeeded
    ('GET', '/orders', '2', True)

    Source: D1; RFC 9110.
    """

    method: str
    url: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    fields: Mapping[str, Any]
    body: Any
    status: int
    reply: Any
    reply_headers: Mapping[str, str]
    captured: Mapping[str, str]

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 400

    def value(self, place: str) -> Any:
        """The value at a place of the request ("headers.x", "query.x", "body.x", "body" or "path.x"), or None."""
        part, _, name = place.partition(".")
        if part == "headers":
            return self.headers.get(name.lower())
        if part == "query":
            return self.query.get(name)
        if part == "path":
            return self.captured.get(name)
        found: Any = self.fields if name else self.body
        for key in name.split(".") if name else ():
            if isinstance(found, Mapping):
                found = found.get(key)
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found


def exchange(record: Record, captured: Mapping[str, str] | None = None) -> Exchange | None:
    """A record as an HTTP exchange, if one of its arguments (`url`, `uri`, `href`) is the URL; else None.

    `captured`: name -> text, what a route captured from the path. Returns an `Exchange`.

    >>> from mat_contracts.observation import exchange
    >>> from mat_contracts.traces import record
    >>> exchange(record("tool_call", "http", {"url": "https://shop.example/orders"}, value={"status": 404})).status
    404

    Source: D1; RFC 9110.
    """
    arguments = record.arguments
    url = _url(record)
    if url is None:
        return None
    split, value = _split(url), record.observation.value
    body = next((arguments[name] for name in _BODIES if arguments.get(name) is not None), None)
    return Exchange(
        method=str(arguments.get("method", "GET")).upper(), url=url, path=split.path or "/",
        query=dict(parse_qsl(split.query, keep_blank_values=True)), headers=_headers(arguments.get("headers")),
        fields=_fields(body), body=body, status=status_of(record),
        reply=_reply_body(value), reply_headers=_headers(value.get("headers") if isinstance(value, Mapping) else None),
        captured=captured or {},
    )  # fmt: skip


def _url(record: Record) -> str | None:
    """The URL that a call goes to. For a URL passed on by a handle, the part that the trace shows."""
    for name in _URL_ARGUMENTS:
        url = record.arguments.get(name)
        if isinstance(url, str):
            places = [item.place for item in used(record) if item.handle and item.at == name] if record.artefacts else []
            return next((place for place in places if place), url)
    return None


def _split(url: str) -> SplitResult:
    """The parts of a URL. A text that is not a URL becomes the path."""
    try:
        return urlsplit(url)
    except ValueError:  # an IPv6 address without its closing bracket
        return SplitResult("", "", url, "", "")


def status_of(record: Record) -> int:
    """The HTTP status that a record's reply states; 0 if it states none, as replies of tools that are not HTTP do.

    >>> from mat_contracts.observation.calls import status_of
    >>> from mat_contracts.traces import record
    >>> status_of(record("tool_call", "get", value={"status": 429})), status_of(record("tool_call", "get", value="ok"))
    (429, 0)

    Source: D1; RFC 9110, section 15.
    """
    value = record.observation.value
    if isinstance(value, Mapping):
        for name in _STATUSES:
            stated = value.get(name)
            if isinstance(stated, int):
                return int(stated)
            if isinstance(stated, str) and _STATUS_TEXT.fullmatch(stated):  # "429", "429 Too Many Requests"
                return int(stated.strip()[:3])
    return 0


def _reply_body(value: Any) -> Any:
    return value.get("body") if isinstance(value, Mapping) and "body" in value else value


def _headers(value: Any) -> dict[str, str]:
    return {str(name).lower(): str(item) for name, item in value.items()} if isinstance(value, Mapping) else {}


def _fields(body: Any) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        return body
    if isinstance(body, str):
        try:
            found = json.loads(body)
        except ValueError:
            return dict(parse_qsl(body, keep_blank_values=True))
        return found if isinstance(found, dict) else {}
    return {}


class SelectedCalls:
    """A predicate made from `on`: whether a record is one of these calls, and what the `{names}` of its route stand for.

    `on`: names of ports (`*` and `?` are wildcards), or routes such as "POST /orders/{id}"; None for every call. Raises
    `mat.MatError` for a text that is neither.

    >>> from mat_contracts.observation.calls import SelectedCalls
    >>> from mat_contracts.traces import record
    >>> SelectedCalls("/orders/{id}")(record("tool_call", "http", {"url": "https://shop.example/orders/7"}))
    {'id': '7'}

    Source: D1.
    """

    __slots__ = ("_any", "_ports", "_routes", "text")

    def __init__(self, on: On) -> None:
        names = () if on is None else names_of(on, "on")
        self._any = on is None
        self._ports = frozenset(name for name in names if "/" not in name)
        self._routes = [_route(name) for name in names if "/" in name]
        self.text = ", ".join(names) or "a call"

    def __call__(self, record: Record) -> Mapping[str, str] | None:
        """The captured names of a selected record; None if the record is not selected."""
        if record.action.kind not in CALLS:
            return None
        if self._any or record.action.name in self._ports:
            return {}
        if not self._routes:
            return None
        arguments = record.arguments
        url = _url(record)
        if url is None:
            return None
        method, split = str(arguments.get("method", "GET")).upper(), _split(url)
        host = f"{split.scheme}://{split.netloc}"
        for wanted, where, path in self._routes:
            if wanted in ("", method) and where in ("", host):
                found = path.fullmatch(split.path or "/")
                if found is not None:
                    return {name: unquote(item) for name, item in found.groupdict().items()}
        return None

    def exchange(self, record: Record) -> Exchange | None:
        """A selected record as an HTTP exchange."""
        captured = self(record)
        return None if captured is None else exchange(record, captured)


def _route(text: str) -> tuple[str, str, re.Pattern[str]]:
    found = _ROUTE.fullmatch(text.strip())
    if found is None:
        raise SpecError(
            what=f"{text!r} is neither the name of a port nor a route",
            why="a route is an optional HTTP method and a path",
            fix='write "POST /orders/{id}" or "/orders/*"',
        )
    pattern = re.escape(found["path"]).replace(r"\*", ".*")
    pattern = re.sub(r"\\\{([A-Za-z_]\w*)\\\}", r"(?P<\1>[^/]+)", pattern)
    return found["method"] or "", found["host"] or "", re.compile(pattern)


__all__ = ["CALLS", "Exchange", "On", "SelectedCalls", "exchange", "status_of"]
