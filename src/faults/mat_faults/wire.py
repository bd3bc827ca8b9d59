"""Faults of HTTP, as the wire has them: a status, a cut body, a wrong type, an old ETag, a redirect.

They act on calls whose reply is an HTTP reply as the adapters of HTTP clients record it, {status, headers, body}. The client
meets the status and the headers in a reply of its own, and a cut body as its own exception.

>>> from mat_faults import wire
>>> [operator.id for operator in wire.operators()]
['service.http_status', 'service.http_gateway', 'service.http_cut', 'service.http_reply']

Source: A3.4, A4.1.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Raise, Replace, Reply
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.site import on_reply

_WORDS: Final = {
    408: "Request Timeout", 409: "Conflict", 425: "Too Early", 429: "Too Many Requests", 500: "Internal Server Error",
    502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
_RETRY_AFTER_S: Final = 30
_REFUSED: Final = (503, 429, 500, 502, 408, 409, 425)
_GATEWAY: Final = (502, 504, 500)
_LOGIN: Final = "/login"
_ENDPOINT: Final = re.compile(r"[A-Z]+ [^/\s]+/")
"""The name of a port that is an endpoint of HTTP: method, host and path."""


def is_http(value: Any) -> bool:
    """Whether a reply is one of HTTP in recorded form."""
    return isinstance(value, Mapping) and isinstance(value.get("status"), int) and isinstance(value.get("headers"), Mapping)


def _head_of(value: Any) -> Any:
    """The reply, or the head of one that came in chunks; None for anything else."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if is_http(value) else None


def _with_status(status: int) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    if status in (429, 503):
        headers["retry-after"] = str(_RETRY_AFTER_S)
    return {"status": status, "headers": headers, "body": {"error": {"message": _WORDS[status]}}}


def _refuse(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if not _ENDPOINT.match(call.port):
        return PASS
    return Replace(_with_status(int(call.parameters["status"])))


def _fail_behind(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    answered = reply is not None and _head_of(reply.value) is not None
    return Replace(_with_status(int(call.parameters["status"]))) if answered else PASS


def _cut(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None or not is_http(reply.value) or not reply.value.get("body"):
        return PASS
    return Raise("connection", "the connection was closed before the whole body had arrived", midway=True)


def _changed(value: Any, how: str) -> Any:
    """The reply changed in one way; None if it has nothing to change. Another reply comes in the place of a whole stream."""
    if isinstance(value, list):
        head = _changed(_head_of(value), how)
        return head and [head, *value[1:]] if how == "etag" else head and [head]
    if not is_http(value):
        return None
    headers = dict(value["headers"])
    if how == "content_type":
        page = "<html><body>Welcome</body></html>"
        return {**value, "headers": {**headers, "content-type": "text/html"}, "body": page}
    if how == "redirect":
        return {"status": 302, "headers": {"location": _LOGIN, "content-type": "text/html"}, "body": ""}
    if how == "etag" and isinstance(headers.get("etag"), str):
        return {**value, "headers": {**headers, "etag": '"' + headers["etag"].strip('W/"') + '-before"'}}
    if how == "empty" and value.get("body"):
        return {**value, "body": None}
    return None


def _change(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    found = None if reply is None else _changed(reply.value, str(call.parameters["how"]))
    return PASS if found is None else Replace(found)


def _is_answered(value: Any, parameters: FrozenDict) -> bool:
    return _head_of(value) is not None


def _is_endpoint(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return _ENDPOINT.match(record.action.name) is not None


def _has_body(value: Any, parameters: FrozenDict) -> bool:
    return is_http(value) and bool(value.get("body"))


def _can_change(value: Any, parameters: FrozenDict) -> bool:
    return _changed(value, str(parameters["how"])) is not None


def operators() -> tuple[Operator, ...]:
    return (
        operator(
            "service.http_status", _refuse, relevant=_is_endpoint, default=False,
            grid=[{"status": status} for status in _REFUSED],
            plausible="the server or a proxy in front of it refuses the request", bounds={"count": 1, "magnitude": 100},
        ),
        operator(
            "service.http_gateway", _fail_behind, phase="after", relevant=on_reply(_is_answered), default=False,
            grid=[{"status": status} for status in _GATEWAY],
            plausible="the request was served, and the proxy in front of the server lost the reply",
            bounds={"count": 1, "magnitude": 100},
        ),
        operator(
            "service.http_cut", _cut, phase="after", relevant=on_reply(_has_body), default=False, raises=["connection"],
            plausible="the connection breaks while the body is sent", bounds={"count": 1},
        ),
        operator(
            "service.http_reply", _change, phase="after", relevant=on_reply(_can_change), default=False,
            grid=[{"how": how, "magnitude": 1} for how in ("content_type", "redirect", "etag", "empty")],
            plausible="a proxy, a login page or a cache answers instead of the service",
            bounds={"count": 1, "magnitude": 8},
        ),
    )  # fmt: skip
