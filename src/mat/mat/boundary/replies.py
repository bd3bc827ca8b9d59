"""Responses of HTTP clients and frameworks as data, for declarations that name places in a reply.

Only what is in memory is read: a body that still has to come over the network belongs to the agent that asked for it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from typing import Any, Final

_BODIES: Final = ("_content", "_body", "body", "response")
"""The attributes that hold a body in memory: of httpx and requests, urllib3 and aiohttp, Starlette, Werkzeug."""


def as_data(value: Any) -> Any:
    """A response as {status, headers, body, json, text}; any other value itself.

    body and json: parsed, if the body is JSON; else its text. They and text are missing if the body is not in memory.
    """
    headers = getattr(value, "headers", None)
    if isinstance(value, Mapping | str | bytes | int | float | list | tuple | None) or not hasattr(headers, "items"):
        return value
    status = getattr(value, "status_code", getattr(value, "status", None))
    if not isinstance(status, int | str):
        return value
    found: dict[str, Any] = {"status": status, "status_code": status, "headers": _headers(headers)}
    content = _content(value)
    if content is None:
        return Unread(found)
    text = content.decode(_charset(value), "replace")
    return {**found, "body": _parsed(text), "json": _parsed(text), "text": text, "content": text}


class Unread(dict[str, Any]):
    """A response whose body is not in memory."""

    def lacks(self, key: str) -> bool:
        """Whether a key names the body, in any form."""
        return key in ("body", "json", "text", "content")


def _headers(headers: Any) -> dict[str, str]:
    """Header fields by name; fields of one name are joined as RFC 9110 (5.3) says."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        key = str(name)
        found[key] = f"{found[key]}, {value}" if key in found else str(value)
    return found


def _content(value: Any) -> bytes | None:
    held = getattr(value, "__dict__", {})
    for name in _BODIES:
        content = held.get(name)
        if isinstance(content, bytes):
            return content
        if isinstance(content, list) and all(isinstance(chunk, bytes) for chunk in content):
            return b"".join(content)
    return None


def _charset(value: Any) -> str:
    found = str(getattr(value, "charset_encoding", None) or getattr(value, "charset", None) or "utf-8")
    try:
        return codecs.lookup(found).name
    except LookupError:
        return "utf-8"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
