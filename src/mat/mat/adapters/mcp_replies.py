"""Replies of MCP as plain data, for the client in this process and for the proxy: what is recorded, and back to the wire.

A tool's result is data. The parts of a retriever's result, of a resource and of a prompt are passages, which faults can
change, drop and add to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from mat.adapters.mcp_structured import of_structured, with_structured
from mat.core.value import snapshot, thaw

TIMED_OUT: Final = -32001
"""The error code of a time-out, as the SDKs of MCP have it since 2.0."""
REPORTED: Final = ("server_error", "rate_limit", "auth", "not_found", "invalid")
"""Kinds of fault that a server reports in the result of a tool, as the specification says of errors of execution."""
VOLATILE: Final = ("_meta", "requestState")
"""Fields of a reply that may differ from run to run: notes for the protocol, and the sealed state of a call in rounds."""
PassagesField: TypeAlias = Literal["content", "contents", "messages"]
"""Where a reply has its passages: the result of a tool, a resource, a prompt."""


class ToolFailed(Exception):  # noqa: N818  (for the client it is a result and no error)
    """A fault that the client meets as a result with `isError`."""


def failed(text: str) -> dict[str, Any]:
    """The result of a tool that failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def steady(reply: Any) -> Any:
    """A reply without what may differ from run to run."""
    return {name: item for name, item in reply.items() if name not in VOLATILE} if isinstance(reply, Mapping) else reply


def passages(reply: Any, field: PassagesField) -> Any:
    """The parts of a reply as passages; a result that reports an error stays as it is."""
    if not isinstance(reply, Mapping) or reply.get("isError"):
        return steady(reply)
    parts = reply.get(field, ())
    if field == "content":
        found = with_structured(list(parts), reply.get("structuredContent"))
        return list(parts) if found is None else found
    return [_text_on_top(each) for each in parts] if field == "messages" else list(parts)


def tool_result(data: Any) -> dict[str, Any]:
    """The result of a tool: of its data, of passages, or of what governance or a fault has put in its place."""
    data = plain(data)
    if isinstance(data, Mapping) and ("content" in data or "structuredContent" in data):
        return {"content": [], **data}
    if isinstance(data, list) and (found := of_structured(data)) is not None:
        return found
    parts = [] if data is None else data if isinstance(data, list) else [data]
    return {"content": [_part(each) for each in parts]}


def of_passages(data: Any, field: PassagesField) -> dict[str, Any]:
    """A reply again, of its passages."""
    data = plain(data)
    if isinstance(data, Mapping):
        return dict(data)
    if field == "content":
        return tool_result(data)
    return {field: [_message(each) if field == "messages" else _resource(each) for each in data or ()]}


def plain(data: Any) -> Any:
    """Dicts and lists of their own, wherever the data comes from."""
    return thaw(snapshot(data))


def _text_on_top(message: Any) -> Any:
    """A message of a prompt with its text on top, where faults and contracts look for it."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, Mapping) and content.get("type") == "text":
        return {"role": message.get("role", "user"), "text": content.get("text", "")}
    return message


def _part(item: Any) -> Any:
    if isinstance(item, Mapping) and "type" in item:
        return item
    return {"type": "text", "text": item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}


def _message(item: Any) -> Any:
    if isinstance(item, str):
        item = {"text": item}
    return {"role": item.get("role", "user"), "content": {"type": "text", "text": item["text"]}} if "text" in item else item


def _resource(item: Any) -> Any:
    return {"uri": "resource://unknown", "text": item} if isinstance(item, str) else {"uri": "resource://unknown", **item}


__all__ = [
    "REPORTED", "TIMED_OUT", "VOLATILE", "PassagesField", "ToolFailed", "failed", "of_passages", "passages", "plain", "steady",
    "tool_result",
]  # fmt: skip
