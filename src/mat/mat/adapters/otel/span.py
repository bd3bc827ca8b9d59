"""Spans from an OTLP/JSON document or from a running program, with helpers for both sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mat.core.record import ActionKind

__all__ = ["Event", "Span", "SpanMessage", "first", "kind_of", "opened", "plain_value", "text_of"]

Event: TypeAlias = tuple[str, Mapping[str, Any]]
"""A span's event: its name and its attributes."""
SpanMessage: TypeAlias = dict[str, Any]
"""{role, content, tool_calls: [{id, name, arguments}], tool_results: [{id, value}], finish_reason}, without what is empty."""

_KINDS: Final[Mapping[str, ActionKind]] = {
    "chat": "model_call", "generate_content": "model_call", "text_completion": "model_call", "completion": "model_call",
    "embeddings": "model_call", "execute_tool": "tool_call", "invoke_agent": "delegation", "retrieval": "retrieval",
    "search_memory": "memory_read", "get_memory": "memory_read", "create_memory": "memory_write",
    "update_memory": "memory_write", "upsert_memory": "memory_write", "delete_memory": "memory_write",
}  # fmt: skip
_PLAIN_KINDS: Final[Mapping[str, ActionKind]] = {"tool": "tool_call", "agent": "delegation"}
"""OpenLLMetry's `traceloop.span.kind`."""


@dataclass(slots=True, eq=False)
class Span:
    """A span. Times are nanoseconds; a span without an end is still open.

    `dropped`: the number of attributes and events that limits of its SDK dropped. `read`: its messages, once they were read.
    """

    id: str
    parent: str
    name: str
    start: int
    end: int | None
    attributes: Mapping[str, Any]
    events: list[Event] = field(default_factory=list)
    failed: bool = False
    status: str = ""
    remote: bool = False
    dropped: int = 0
    kind: ActionKind | None = None
    read: tuple[list[SpanMessage], list[SpanMessage]] | None = None

    def __post_init__(self) -> None:
        self.kind = kind_of(self.attributes)


def kind_of(attributes: Mapping[str, Any]) -> ActionKind | None:
    """The kind of step that a span with these attributes records; None if it is not a step."""
    operation = text_of(attributes.get("gen_ai.operation.name"))
    if operation:
        return _KINDS.get(operation)
    plain = _PLAIN_KINDS.get(text_of(attributes.get("traceloop.span.kind")))
    if plain is not None:
        return plain
    if "gen_ai.tool.name" in attributes:
        return "tool_call"
    if "gen_ai.request.model" in attributes or "gen_ai.response.model" in attributes:
        return "model_call"
    return None


def text_of(value: Any) -> str:
    """A text unchanged, None as "", anything else by `str`."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def first(attributes: Mapping[str, Any], *names: str) -> Any:
    """The first of these attributes that exists."""
    for name in names:
        found = attributes.get(name)
        if found is not None:
            return found
    return None


def opened(value: Any) -> Any:
    """The value of a text that is a JSON object or array. Any other text is unchanged, because "12" may be an id."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def plain_value(value: Any) -> Any:
    """The plain value of an OTLP AnyValue, in which integers are texts and an empty object is None."""
    if value == {}:
        return None
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((tag, inner),) = value.items()
    if tag == "intValue":
        try:
            return int(inner)
        except (TypeError, ValueError, OverflowError):
            return inner
    if tag in ("arrayValue", "kvlistValue"):
        items = inner.get("values") if isinstance(inner, Mapping) else None
        items = items if isinstance(items, list) else []
        if tag == "arrayValue":
            return [plain_value(item) for item in items]
        return {text_of(item.get("key")): plain_value(item.get("value")) for item in items if isinstance(item, Mapping)}
    return inner if tag in ("stringValue", "boolValue", "doubleValue", "bytesValue") else value
