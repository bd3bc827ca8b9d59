"""Conversations as the APIs of language models store them: OpenAI chat, OpenAI responses, Anthropic messages.

A row is one run: an object with `messages` (OpenAI chat, or Anthropic's with `system` next to them), or with the items of the
responses API in `input`, `output` or both (`instructions` next to them). Each message becomes the steps that `conversation`
lists. Besides:

- Calls are `tool_calls` and `function_call` of a message, blocks `tool_use`, and items `function_call`, `custom_tool_call` and
  those of hosted tools: `web_search_call` is a call of "web_search", with the result that the item holds, if any.
- Results are messages of the role "tool", blocks `tool_result`, and items `function_call_output` and its like. A result is an
  error where the source says so (`is_error`, `error`); OpenAI's chat messages do not.
- Effect and impact are guessed from the tool's name, as for spans (`mat.adapters.otel.convert`): no source declares them.
- Reasoning is neither said nor done: it is left out. Parts of other types (images, files) stand in the text as JSON.
- A run that ends with a text of the assistant is completed, and the text is its final response. Any other is not finished.

Labels: the plain fields of the row (`id`, `model`, ...) and `left_out`, the number of parts of reasoning. Source steps are
indices of messages, or of the items of `input` and `output` together, from 0; `system` and `instructions` are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mat.adapters.importers.base import Format, RecordMaker, StoredTrace, misfit, one_trace_a_row
from mat.adapters.importers.conversation import Dialect, Message, conversation, tool_of
from mat.adapters.otel.convert import effect_of

__all__ = ["FORMAT", "chat"]

Part: TypeAlias = Mapping[str, Any]
_LISTS: Final = ("messages", "input", "output")
_TOLD: Final = ("system", "instructions")
_REASONING: Final = ("reasoning", "thinking", "redacted_thinking")
_RESULTS: Final = ("output", "outputs", "results", "result")
_NO_ARGUMENTS: Final = ("type", "id", "call_id", "status", "name", "error", "server_label", *_RESULTS)


def chat(
    position: str,
    sources: Iterable[tuple[str, object]],
    *,
    told: object = None,
    crash: str | None = None,
    is_cut: bool = False,
) -> tuple[RecordMaker, int]:
    """The records of one conversation, and how many parts of reasoning were left out.

    `sources` are its messages or items, each with the field that holds it, which MatError names where one cannot be read.
    `told` is what the model was told besides, `crash` the error that ended the run from outside; `is_cut`: at its horizon.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": told, "index": -1}] if told else []
    left_out = 0
    for index, (where, source) in enumerate(sources):
        if not isinstance(source, Mapping):
            raise misfit(position, where, f"is {source!r:.60}, not a message")
        content = source.get("content")
        if not isinstance(source.get("role", ""), str) or not isinstance(source.get("tool_calls") or [], list):
            raise misfit(position, where, "is no message: its role is a text, its tool_calls are a list")
        left_out += _is_reasoning(source) + (sum(map(_is_reasoning, content)) if isinstance(content, list) else 0)
        for message in _messages(source):
            calls = message.get("tool_calls") or []
            if not all(isinstance(call, Mapping) and tool_of(call) for call in calls):
                raise misfit(position, where, "holds a call that names no function")
            last = messages[-1] if messages else {}
            if calls and "role" not in source and last.get("is_item") and last.get("tool_calls"):
                last["tool_calls"] += calls  # the calls of one reply overlap
            else:
                messages.append({**message, "index": index, "is_item": "role" not in source})
    dialect = replace(_DIALECT, ending=lambda said: ("horizon", _ending(said)[1])) if is_cut else _DIALECT
    return conversation(position, messages, dialect, path="messages", crash=crash), left_out


def _is_reasoning(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _REASONING


def _messages(source: Part) -> Iterator[dict[str, Any]]:
    """A message or an item in the form of OpenAI chat: one message, or several where it holds results besides."""
    if _is_reasoning(source):
        return
    if "role" not in source:
        yield from _item(source)
        return
    message = {name: source.get(name) for name in ("role", "name", "tool_call_id", "error", "is_error", "function_call")}
    calls, content = [_chat_call(call) for call in source.get("tool_calls") or ()], source.get("content")
    if not isinstance(content, list):
        yield {**message, "content": source.get("refusal") if content is None else content, "tool_calls": calls}
        return
    texts: list[Any] = []
    for block in content:
        kind = str(block.get("type")) if isinstance(block, Mapping) else ""
        if _is_reasoning(block):
            continue
        if kind.endswith("tool_use"):  # of our own tools, of the server's, of an MCP server
            calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind.endswith("tool_result"):
            if texts or calls:
                yield {**message, "content": texts, "tool_calls": calls}
            texts, calls = [], []
            yield _result(block.get("tool_use_id"), block.get("content"), block.get("is_error"))
        else:
            texts.append({"text": block["refusal"]} if kind == "refusal" and "refusal" in block else block)
    if texts or calls or not content:
        yield {**message, "content": texts, "tool_calls": calls}


def _chat_call(call: Any) -> Any:
    """A tool call of a message: a function, a custom tool, which takes one text, or as Inspect writes it."""
    custom, function = (call.get("custom"), call.get("function")) if isinstance(call, Mapping) else (None, None)
    if isinstance(custom, Mapping):
        return _call(call.get("id"), custom.get("name"), {"input": custom.get("input")})
    return _call(call.get("id"), function, call.get("arguments")) if isinstance(function, str) else call


def _item(item: Part) -> Iterator[dict[str, Any]]:
    """An item of the responses API that is no message."""
    kind, id, error = str(item.get("type")), item.get("call_id") or item.get("id"), item.get("error")
    if kind.endswith("_call_output"):
        yield _result(id, item.get("output"), error)
    elif kind.endswith("_call"):
        is_ours = kind in ("function_call", "custom_tool_call")
        rest = {name: value for name, value in item.items() if name not in _NO_ARGUMENTS}
        name = item.get("name") if is_ours else item.get("name") or kind.removesuffix("_call")
        call = _call(id, name, item.get("arguments", rest))
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        result = next((item[field] for field in _RESULTS if item.get(field) is not None), error)
        if result is not None and not is_ours:
            yield _result(id, result, error)
    else:
        yield {"role": kind, "content": dict(item)}


def _call(id: object, name: object, arguments: object) -> Part:
    return {"id": id, "function": {"name": name, "arguments": arguments}}


def _result(id: object, content: object, error: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, "error": error}


def _error_of(result: Message, text: str) -> str | None:
    """What a result says of its failure: true and the text, a text of its own, or an object with a message."""
    said = result.row.get("error") or result.row.get("is_error")
    if isinstance(said, Mapping):
        said = said.get("message")
    return None if not said else said if isinstance(said, str) else text


def _ending(messages: list[Message]) -> tuple[str, int | None]:
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.calls or not last.text:
        return "implicit", None
    return "completed", last.place


_DIALECT: Final = Dialect(
    effect_of=lambda tool: effect_of(tool)[0], impact_of=lambda tool: effect_of(tool)[1], error_of=_error_of, ending=_ending
)


def _accepts(row: Mapping[str, Any]) -> bool:
    given = [row[name] for name in _LISTS if isinstance(row.get(name), list)]
    return bool(given) and all(isinstance(part, Mapping) and ("role" in part or "type" in part) for part in given[0][:1])


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    lists = ("messages",) if "messages" in row else ("input", "output")
    maker, left_out = chat(
        position,
        [(f"{name}[{place}]", part) for name in lists for place, part in enumerate(_parts(row.get(name)))],
        told=next((row[name] for name in _TOLD if row.get(name)), None),
    )
    plain = {
        name: value
        for name, value in row.items()
        if isinstance(value, str | int | float) and name not in (*_LISTS, *_TOLD, "format", "origin", "timed", "left_out")
    }
    return StoredTrace(
        id=str(row.get("id") or position), records=tuple(maker.records),
        labels={**plain, **maker.labels(FORMAT.name, position, left_out=left_out)},
        finished=maker.records[-1].action.name == "completed",
    )  # fmt: skip


def _parts(given: object) -> list[Any]:
    """The items of a field; a request's input may be a text alone."""
    return given if isinstance(given, list) else [] if given is None else [{"role": "user", "content": given}]


FORMAT: Final = Format(
    name="chat",
    text="conversations: messages of OpenAI chat or Anthropic, or input and output of OpenAI responses",
    accepts=_accepts,
    traces=one_trace_a_row("chat", _accepts, _convert),
)
