"""Read the input and output messages of a model or an agent, in any version of the conventions.

Contents are read from `gen_ai.input.messages` and `gen_ai.output.messages`, on the span or in its operation.details event;
from the message and choice events of 1.28 to 1.36; from `gen_ai.content.*` events; from pydantic-ai's `events` and
`all_messages`; and from `gen_ai.prompt.0.role` and its like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mat.adapters.otel.span import Event, Span, SpanMessage, first, opened, text_of

__all__ = ["contents"]

_MESSAGE_EVENT: Final = re.compile(r"^gen_ai\.(system|user|assistant|tool)\.message$")


def contents(span: Span) -> tuple[list[SpanMessage], list[SpanMessage]]:
    """The input and output messages of a model or an agent, as far as they were captured."""
    inputs, outputs = _from_attributes(span.attributes)
    if span.kind == "delegation" and not (inputs or outputs):
        inputs = messages(span.attributes.get("pydantic_ai.all_messages") or span.attributes.get("all_messages_events"))
        outputs = [message for message in inputs if message["role"] == "assistant"][-1:]
    events = span.events
    listed = opened(span.attributes.get("events"))
    if isinstance(listed, list):
        events = events + [(text_of(item.get("event.name")), item) for item in listed if isinstance(item, Mapping)]
    event_inputs, event_outputs = _from_events(events)
    flat = (
        _from_flat_attributes(span.attributes, "gen_ai.prompt."),
        _from_flat_attributes(span.attributes, "gen_ai.completion."),
    )
    return inputs or event_inputs or flat[0], outputs or event_outputs or flat[1]


def _from_attributes(attributes: Mapping[str, Any]) -> tuple[list[SpanMessage], list[SpanMessage]]:
    given = messages(attributes.get("gen_ai.input.messages"))
    system = opened(attributes.get("gen_ai.system_instructions"))
    if system and not any(message["role"] == "system" for message in given):
        given = [*messages([{"role": "system", "parts": system if isinstance(system, list) else [system]}]), *given]
    return given, messages(attributes.get("gen_ai.output.messages"), role="assistant")


def _from_events(events: Iterable[Event]) -> tuple[list[SpanMessage], list[SpanMessage]]:
    inputs: list[SpanMessage] = []
    outputs: list[SpanMessage] = []
    for name, attributes in events:
        event = _MESSAGE_EVENT.match(name)
        if event:
            inputs += messages([dict(attributes)], role=event[1])
        elif name == "gen_ai.choice":
            outputs += messages([dict(attributes)], role="assistant")
        elif name == "gen_ai.content.prompt":
            inputs += messages(attributes.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            outputs += messages(attributes.get("gen_ai.completion"), role="assistant")
        elif name == "gen_ai.client.inference.operation.details":
            whole = _from_attributes(attributes)
            inputs, outputs = inputs + whole[0], outputs + whole[1]
    return inputs, outputs


def _from_flat_attributes(attributes: Mapping[str, Any], prefix: str) -> list[SpanMessage]:
    """Messages spread over attributes: `gen_ai.prompt.0.role`, `gen_ai.completion.0.tool_calls.0.name`, ..."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix):
            continue
        number, _, rest = key.removeprefix(prefix).partition(".")
        if not number.isdecimal() or len(number) > 6:
            continue
        message = found.setdefault(int(number), {})
        inner = re.match(r"^tool_calls\.([0-9]{1,6})\.(.+)$", rest)
        if inner:
            message.setdefault("calls", {}).setdefault(int(inner[1]), {})[inner[2]] = value
        else:
            message[rest] = value
    for message in found.values():
        calls = message.pop("calls", {})
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    role = "assistant" if prefix.startswith("gen_ai.completion") else "user"
    return messages([found[number] for number in sorted(found)], role=role)


def messages(given: Any, *, role: str = "user") -> list[SpanMessage]:
    given = opened(given)
    if isinstance(given, str) and given:
        given = [{"content": given}]
    if isinstance(given, Mapping):
        given = [given]
    return [_message(item, role) for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []


def _message(given: Mapping[str, Any], role: str) -> SpanMessage:
    """A message of any convention in the form that records hold."""
    inner = opened(given.get("message"))
    if isinstance(inner, Mapping):  # a choice: index, finish_reason, message
        given = {**given, **inner}
    message: SpanMessage = {"role": text_of(given.get("role")) or role}
    parts = given.get("parts") if isinstance(given.get("parts"), list) else opened(given.get("content"))
    texts: list[str] = []
    calls = [_call(item) for item in _list(given.get("tool_calls")) if isinstance(item, Mapping)]
    results: list[dict[str, Any]] = []
    if message["role"] == "tool" and not isinstance(given.get("parts"), list):
        results.append({"id": text_of(first(given, "tool_call_id", "id")), "value": parts})
    elif isinstance(parts, list):
        for part in parts:
            _add_part(part, texts, calls, results)
    elif parts is not None:
        texts.append(parts if isinstance(parts, str) else json.dumps(parts, sort_keys=True))
    if texts:
        message["content"] = "\n".join(texts)
    for name, found in (("tool_calls", calls), ("tool_results", results), ("finish_reason", given.get("finish_reason"))):
        if found:
            message[name] = found
    return message


def _add_part(part: Any, texts: list[str], calls: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    if isinstance(part, str):
        texts.append(part)
    elif isinstance(part, Mapping):
        kind = part.get("type") or part.get("kind")
        if kind == "tool_call":
            calls.append(_call(part))
        elif kind == "tool_call_response":
            value = first(part, "response", "result", "content")
            results.append({"id": text_of(part.get("id")), "value": opened(value)})
        elif kind in ("text", None):
            text = first(part, "content", "text")
            if isinstance(text, str):
                texts.append(text)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = item.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else item
    return {
        "id": text_of(item.get("id")), "name": text_of(inner.get("name")) or "tool", "arguments": opened(inner.get("arguments"))
    }  # fmt: skip


def _list(value: Any) -> list[Any]:
    found = opened(value)
    return found if isinstance(found, list) else []
