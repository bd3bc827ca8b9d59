"""Import conversations in the formats of model APIs: OpenAI chat, OpenAI responses, Anthropic messages.

A row is one run: an object with `messages` (OpenAI chat, or Anthropic's with `system` next to them), or with the items of the
responses API in `input`, `output` or both (`instructions` next to them). A reply next to its request is the last message: the
first of `choices`, or Anthropic's `role` and `content`. Each message becomes the steps that `conversation` lists. In addition:

- Calls are `tool_calls` and `function_call` of a message, blocks `tool_use`, and items `function_call`, `custom_tool_call` and
  those of hosted tools: `web_search_call` is a call of "web_search", with the result that the item holds, if any.
- Results are messages of the role "tool", blocks `tool_result`, and items `function_call_output` and its like. A result is an
  error if the source says so (`is_error`, `error`, `error_code`, the status "failed"); OpenAI's chat messages do not.
- Effect and impact are guessed from the tool's name, as for spans (`mat.adapters.otel.convert`): no source declares them.
- Reasoning and token usage are left out. Parts of other types (images, files) are included in the text as JSON.
- A run that ends with a text of the assistant is completed, and the text is its final response. Any other run is unfinished.
- A reply that the provider cut (`stop_reason`, `finish_reason`, the status "incomplete") ends the run at its horizon. A failed
  or cancelled response ends the run with its error. One that is still in progress leaves the run unfinished.

Labels: the plain fields of the row (`id`, `model`, ...) and `left_out`, the number of parts of reasoning. Source steps are
indices of messages, or of the items of `input` and `output` together, from 0; `system` and `instructions` are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mat.adapters.importers.base import Format, RecordMaker, StoredTrace, misfit, one_trace_a_row, text_of
from mat.adapters.importers.conversation import ConversationMessage, Dialect, conversation, tool_of
from mat.adapters.otel.convert import effect_of

__all__ = ["FORMAT", "chat"]

MessagePart: TypeAlias = Mapping[str, Any]
_LISTS: Final = ("messages", "input", "output")
_SYSTEM: Final = ("system", "instructions")
_REASONING: Final = ("reasoning", "thinking", "redacted_thinking")
_REASONED: Final = ("reasoning_content", "reasoning")
"""The fields of a message that hold reasoning on servers with OpenAI's chat API."""
_TEXTS: Final = ("text", "input_text", "output_text")
_RESULTS: Final = ("output", "outputs", "results", "result", "tools")
_CUT: Final = ("length", "max_tokens", "model_context_window_exceeded")
"""Reasons of OpenAI's chat and of Anthropic for a reply that the provider cut."""
_BROKEN: Final = {"failed": "the response failed", "cancelled": "the response was cancelled"}
_NO_ARGUMENTS: Final = ("type", "id", "call_id", "status", "name", "error", *_RESULTS)


def chat(
    position: str,
    sources: Iterable[tuple[str, object]],
    *,
    system: object = None,
    crash: str | None = None,
    status: str | None = None,
) -> tuple[RecordMaker, int]:
    """The records of one conversation, and how many parts of reasoning were left out.

    `sources` are its messages or items, each with its field, which MatError names if one cannot be read. `system` is the
    model's system prompt, `crash` the error that ended the run from outside, and `status` how the run ended if the source says
    so: "horizon", or "implicit" if it did not end.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": system, "index": -1}] if system else []
    left_out, call_ids = 0, dict[str, object]()
    for index, (where, source) in enumerate(sources):
        if not isinstance(source, Mapping):
            raise misfit(position, where, f"is {source!r:.60}, not a message")
        content = source.get("content")
        if not isinstance(source.get("role", ""), str) or not isinstance(source.get("tool_calls") or [], list):
            raise misfit(position, where, "is not a message: it needs a string as role and a list as tool_calls")
        if _is_foreign(source):
            raise misfit(
                position, where, "is a message of another API: it has neither a role with content nor the form of an item"
            )
        left_out += _is_reasoning(source) + ("role" in source and any(source.get(name) for name in _REASONED))
        left_out += sum(map(_is_reasoning, content)) if isinstance(content, list) else 0
        for message in _messages(source):
            calls = message.get("tool_calls") or []
            if not all(isinstance(call, Mapping) and tool_of(call) for call in calls):
                raise misfit(position, where, "contains a call that names no function")
            if "role" in source:
                messages.append({**message, "index": index})
                continue
            if calls:
                call_ids[str(source.get("id"))] = calls[0]["id"]
            elif "call_id" not in source:  # results of a local shell name the item
                message["tool_call_id"] = call_ids.get(str(message.get("tool_call_id")), message.get("tool_call_id"))
            last = messages[-1] if messages else {}
            if calls and last.get("call_indices"):
                last["tool_calls"] += calls  # the calls of one reply overlap
                last["call_indices"] += [index]
            else:
                messages.append({**message, "index": index, "call_indices": [index] if calls else []})
    dialect = _DIALECT
    if status == "horizon":
        dialect = replace(dialect, ending=lambda messages: ("horizon", _ending(messages)[1]))
    elif status is not None:
        dialect = replace(dialect, ending=lambda messages: (status, None))
    return conversation(position, messages, dialect, path="messages", crash=crash), left_out


def _is_reasoning(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _REASONING


def _is_foreign(source: MessagePart) -> bool:
    """Whether a message belongs to another API, with text or calls in places that this importer does not read."""
    if "role" in source:
        return "parts" in source and "content" not in source
    return not _is_reasoning(source) and ("content" in source or "data" in source)


def _messages(source: MessagePart) -> Iterator[dict[str, Any]]:
    """A message or an item in the form of OpenAI chat: one message, or several if it also contains results."""
    if _is_reasoning(source):
        return
    if "role" not in source:
        yield from _item(source)
        return
    message = {name: source.get(name) for name in ("role", "name", "tool_call_id", "error", "is_error", "function_call")}
    message["name"] = source.get("name") or source.get("function")
    calls, content = [_chat_call(call) for call in source.get("tool_calls") or ()], source.get("content")
    if not isinstance(content, list):
        yield {**message, "content": content or source.get("refusal") or _transcript(source), "tool_calls": calls}
        return
    texts: list[Any] = []
    for block in content:
        kind = str(block.get("type")) if isinstance(block, Mapping) else ""
        if _is_reasoning(block):
            continue
        if kind.endswith("tool_use"):  # of local tools, of the provider's tools, of an MCP server
            calls.append(_call(block.get("id"), block.get("name"), block.get("input", block.get("arguments"))))
            if "result" in block:  # Inspect's form of the provider's tool calls
                yield {**message, "content": texts, "tool_calls": calls}
                texts, calls = [], []
                yield _result(block.get("id"), block["result"], block.get("error"))
        elif kind.endswith("tool_result"):
            if texts or calls:
                yield {**message, "content": texts, "tool_calls": calls}
            texts, calls = [], []
            yield _result(block.get("tool_use_id"), block.get("content"), block.get("is_error") or _code(block.get("content")))
        else:
            texts.append({"text": block["refusal"]} if kind == "refusal" and "refusal" in block else block)
    if texts or calls or not content:
        yield {**message, "content": texts, "tool_calls": calls}


def _transcript(message: MessagePart) -> object:
    """The transcript in an audio message."""
    audio = message.get("audio")
    return audio.get("transcript") if isinstance(audio, Mapping) else None


def _code(content: object) -> object:
    """The error in a result of a server's tool."""
    return (content.get("error_message") or content.get("error_code")) if isinstance(content, Mapping) else None


def _chat_call(call: Any) -> Any:
    """A tool call of a message: a function, a custom tool (with one text as its input), or Inspect's form of a call."""
    custom, function = (call.get("custom"), call.get("function")) if isinstance(call, Mapping) else (None, None)
    if isinstance(custom, Mapping):
        return _call(call.get("id"), custom.get("name"), {"input": custom.get("input")})
    return _call(call.get("id"), function, call.get("arguments")) if isinstance(function, str) else call


def _item(item: MessagePart) -> Iterator[dict[str, Any]]:
    """An item of the responses API that is not a message."""
    kind, id, error = str(item.get("type")), item.get("call_id") or item.get("id"), item.get("error")
    has_failed = item.get("status") == "failed"
    if kind.endswith("_output"):
        found = next((item[field] for field in _RESULTS if item.get(field) is not None), None)
        yield {**_result(id, found, error or has_failed), "name": item.get("name")}
    elif kind.endswith("_call") or kind == "program":
        error = error or (kind + " failed" if has_failed else None)
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


def _call(id: object, name: object, arguments: object) -> MessagePart:
    return {"id": id, "function": {"name": name, "arguments": arguments}}


def _result(id: object, content: object, error: object) -> dict[str, Any]:
    """A result as a message of the role "tool". A result without text parts becomes JSON."""
    parts = content if isinstance(content, list) else [content] if isinstance(content, Mapping) else []
    if parts and not any(isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") in _TEXTS) for part in parts):
        content = json.dumps(content, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": id, "content": content, "error": error}


def _error_of(result: ConversationMessage, text: str) -> str | None:
    """The error of a result: its text if flagged as an error, a separate text, or an object with a message."""
    stated = result.row.get("error") or result.row.get("is_error")
    return None if not stated else _message_of(stated) or text


def _message_of(error: object) -> str:
    """The message of an error: the text itself, its message, or the text in it; "" without one."""
    if isinstance(error, Mapping):
        error = error.get("message") or text_of(error)
    return error if isinstance(error, str) else ""


def _outcome(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The arguments `crash` and `status` of `chat`, as far as the reply in the row states them."""
    choices = row.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    if row.get("stop_reason") in _CUT or first.get("finish_reason") in _CUT:
        return None, "horizon"
    if not isinstance(row.get("output"), list):
        return None, "implicit" if row.get("stop_reason") == "pause_turn" else None
    status = str(row.get("status"))
    if status in _BROKEN:
        return _message_of(row.get("error")) or _BROKEN[status], None
    return None, {"incomplete": "horizon", "in_progress": "implicit", "queued": "implicit"}.get(status)


def _ending(messages: list[ConversationMessage]) -> tuple[str, int | None]:
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
    crash, status = _outcome(row)
    system = next((row[name] for name in _SYSTEM if row.get(name)), None)
    maker, left_out = chat(position, _sources(row), system=system, crash=crash, status=status)
    plain = {
        name: value for name, value in row.items() if isinstance(value, str | int | float) and name not in (*_LISTS, *_SYSTEM)
    }
    return StoredTrace(
        id=str(row.get("id") or position), records=tuple(maker.records),
        labels={**plain, **maker.labels(FORMAT.name, position, left_out=left_out)},
        finished=maker.records[-1].action.name in ("completed", "horizon"),
    )  # fmt: skip


def _sources(row: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The messages or items of a row, each with its field. A reply next to its request is the last one."""
    lists = ("messages",) if isinstance(row.get("messages"), list) else ("input", "output")
    found = [(f"{name}[{place}]", part) for name in lists for place, part in enumerate(_parts(row.get(name)))]
    replies: list[tuple[str, object]] = []
    choices = row.get("choices")
    if isinstance(choices, list) and choices:
        replies.append(("choices[0].message", choices[0].get("message") if isinstance(choices[0], Mapping) else choices[0]))
    if row.get("role") == "assistant" and row.get("content"):
        replies.append(("content", {"role": "assistant", "content": row["content"]}))
    return found + [(where, reply) for where, reply in replies if not found or not _is_same(found[-1][1], reply)]


def _is_same(message: object, reply: object) -> bool:
    """Whether the messages of a row already end with its reply."""
    if not isinstance(message, Mapping) or not isinstance(reply, Mapping):
        return False
    return all((message.get(name) or None) == (reply.get(name) or None) for name in ("role", "content", "tool_calls"))


def _parts(given: object) -> list[Any]:
    """The items of a field. The input of a request may be a single text."""
    return given if isinstance(given, list) else [] if given is None else [{"role": "user", "content": given}]


FORMAT: Final = Format(
    name="chat",
    text="conversations: messages of OpenAI chat or Anthropic, or input and output of OpenAI responses",
    accepts=_accepts,
    traces=one_trace_a_row("chat", _accepts, _convert),
)
