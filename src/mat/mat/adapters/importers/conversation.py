"""Conversations in OpenAI's message form, as records: what tau-bench, its descendants and AgentDojo store.

- user, and any role but those below: text that enters at the prompt boundary, recorded as `mat.untrusted` does: a `message`
  named after the channel, its role.
- system, developer: a `message` to "assistant".
- assistant with text and no tool calls: a `message` to "user", or the `final_response` if the dialect says so.
- assistant with tool calls: one `tool_call` each. Its result is the tool message with the same id or, without ids, the next
  of that name; calls of one message overlap. Text next to tool calls reaches no user: a `model_call` of "model" with that
  text as value.
- A result without a call is a `tool_call` without arguments; a call without a result has effected "unknown".
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mat.adapters.importers.base import RecordMaker, error_kind, field_of, interleave, misfit, structured, text_of
from mat.core.record import DeclaredEffect, Impact

__all__ = ["ConversationMessage", "Dialect", "conversation", "parsed_arguments", "tool_of"]

_RESULTS: Final = ("tool", "function")
_INSTRUCTIONS: Final = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMessage:
    """A message of a conversation: its place, its index in the source (None if not counted), role, text and tool calls."""

    place: int
    index: int | None
    role: str
    text: str
    calls: tuple[Mapping[str, Any], ...]
    row: Mapping[str, Any]


def parsed_arguments(arguments: object) -> Mapping[str, Any]:
    """Arguments from an object, its JSON text, or its Python text. Anything else is kept under the key "unparsed"."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, Mapping):
        return arguments
    if isinstance(arguments, str):
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(arguments)
            except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                continue
            if isinstance(value, dict) and all(isinstance(name, str) for name in value):
                return value
    return {"unparsed": arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The rules of one source: how arguments and results are written, which results are errors, what tools do, how runs end.

    `error_of` returns the error of a result, or None; `default_error_kind` is the kind of an error whose text names none;
    `error_may_have_effect`: a call that failed may have changed something; `ending` returns how the run ended and the place of
    its final response.
    """

    effect_of: Callable[[str], DeclaredEffect]
    error_of: Callable[[ConversationMessage, str], str | None]
    ending: Callable[[list[ConversationMessage]], tuple[str, int | None]]
    impact_of: Callable[[str], Impact] = lambda tool: "low"
    arguments_of: Callable[[object], Mapping[str, Any]] = parsed_arguments
    result_of: Callable[[str], str] = str
    default_error_kind: str = ""
    error_may_have_effect: bool = True


def conversation(
    position: str, rows: list[Any], dialect: Dialect, *, path: str, first: int = 0, crash: str | None = None
) -> RecordMaker:
    """The records of one conversation, its end included. MatError names `position` and the field that cannot be read.

    `path` is the field with the messages, `first` the source's index of the first message (messages below 0 are not counted),
    `crash` the error that ended the run from outside.
    """
    maker = RecordMaker(agent="assistant")
    messages = _messages(position, rows, path, first)
    status, final = dialect.ending(messages)
    steps = _steps(messages, dialect, final)
    for (asked, sealed), (_, what, how) in zip(interleave([times for times, _, _ in steps]), steps, strict=True):
        maker.add(*what, **how, asked_seq=asked, sealed_seq=sealed)
    maker.end(status if crash is None else "exception", error=crash)
    return maker


_Step = tuple[tuple[int, int], tuple[Any, ...], dict[str, Any]]
"""An interval, and the arguments of RecordMaker.add."""


def _steps(messages: list[ConversationMessage], dialect: Dialect, final: int | None) -> list[_Step]:
    """The steps of all messages in ask order. A message is one instant; a call lasts until its result."""
    results = _results(messages)
    answers = {result.place for result in results.values()}
    found: list[_Step] = []
    for message in messages:
        now = 2 * message.place
        if message.role in _RESULTS:
            if message.place not in answers:
                found.append(((now, now), *_call(message, {}, message, dialect, source=message.index)))
            continue
        if message.text or not message.calls:
            found.append(((now, now), *_message_step(message, final=message.place == final)))
        for number, call in enumerate(message.calls):
            result = results.get((message.place, number))
            until = now + 1 if result is None else 2 * result.place
            found.append(((now, until), *_call(message, call, result, dialect, source=_index_of(message, number))))
    return found


def _message_step(message: ConversationMessage, *, final: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    text = message.text
    if message.role != "assistant":
        inside = message.role in _INSTRUCTIONS
        how = {"agent": message.role, "boundary": None if inside else "prompt", "value": text, "source": message.index}
        return ("message", "assistant" if inside else message.role, {"text": text, "sender": message.role}), how
    if message.calls:
        return ("model_call", "model"), {"value": text, "source": message.index}
    if final:
        return ("final_response", "answer", {"answer": text}), {"source": message.index}
    return ("message", "user", {"text": text, "sender": "assistant"}), {"value": text, "source": message.index}


def _index_of(message: ConversationMessage, number: int) -> int | None:
    """The source's index of a call: that of its message, or its own if the source counts the calls of a message separately."""
    given = message.row.get("call_indices")
    own = given[number] if isinstance(given, list) and number < len(given) else None
    return own if type(own) is int else message.index


def _call(
    message: ConversationMessage,
    call: Mapping[str, Any],
    result: ConversationMessage | None,
    dialect: Dialect,
    *,
    source: int | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name = tool_of(call) or str(message.row.get("name") or "unknown")
    text = None if result is None else dialect.result_of(result.text)
    error = None if result is None or text is None else dialect.error_of(result, text)
    if error is not None:
        effected = "unknown" if dialect.error_may_have_effect else "no"
    else:
        effected = "unknown" if text is None else "yes"
    how: dict[str, Any] = {
        "effect": dialect.effect_of(name), "impact": dialect.impact_of(name), "effected": effected, "error": error,
        "value": None if text is None or error is not None else structured(text),
        "error_kind": "" if error is None else error_kind(error, dialect.default_error_kind), "source": source,
        "source_end": None if result is None else result.index,
    }  # fmt: skip
    return ("tool_call", name, dialect.arguments_of(_function(call).get("arguments"))), how


def _messages(position: str, rows: list[Any], path: str, first: int) -> list[ConversationMessage]:
    found = []
    for place, row in enumerate(rows):
        where = f"{path}[{place}]"
        if not isinstance(row, Mapping):
            raise misfit(position, where, f"is {row!r:.60}, not a message")
        calls = field_of(row, "tool_calls", list, position, path=f"{where}.", default=[])
        if not calls and isinstance(row.get("function_call"), Mapping):
            calls = [row["function_call"]]
        for number, call in enumerate(calls):
            if not isinstance(call, Mapping) or not tool_of(call):
                raise misfit(position, f"{where}.tool_calls[{number}]", "names no function")
        index = row["index"] if type(row.get("index")) is int else first + place
        found.append(
            ConversationMessage(
                place=place, index=index if index >= 0 else None, text=text_of(row.get("content")), calls=tuple(calls),
                role=field_of(row, "role", str, position, path=f"{where}."), row=row,
            )
        )  # fmt: skip
    return found


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = call.get("function")
    return inner if isinstance(inner, Mapping) else call


def tool_of(call: Mapping[str, Any]) -> str:
    """The name of the tool that a call names, "" without one."""
    name = _function(call).get("name")
    return name if isinstance(name, str) else ""


_CallPlace: TypeAlias = tuple[int, int]
"""A call: the place of its message, and its number there."""


def _results(messages: list[ConversationMessage]) -> dict[_CallPlace, ConversationMessage]:
    """The result message of each call."""
    waiting, found = _Waiting(), {}
    for message in messages:
        for number, call in enumerate(message.calls):
            waiting.add((message.place, number), call)
        if message.role in _RESULTS:
            key = waiting.answered(message.row)
            if key is not None:
                found[key] = message
    return found


class _Waiting:
    """The calls that have no result yet."""

    def __init__(self) -> None:
        self._calls: dict[_CallPlace, Mapping[str, Any]] = {}
        self._by_id: dict[str, list[_CallPlace]] = {}

    def add(self, key: _CallPlace, call: Mapping[str, Any]) -> None:
        self._calls[key] = call
        if call.get("id") is not None:
            self._by_id.setdefault(str(call["id"]), []).append(key)

    def answered(self, row: Mapping[str, Any]) -> _CallPlace | None:
        """The waiting call that a result belongs to: by id if calls have ids, else the first with its name.

        Without a name, it is the first call. Some models restart the numbering in each message; then the id refers to the last
        message with that id.
        """
        given, name = row.get("tool_call_id"), row.get("name")
        if given is not None and self._by_id:
            same = self._by_id.get(str(given), [])
            key = min(itertools.takewhile(lambda key: key[0] == same[-1][0], reversed(same)), default=None)
        else:
            key = next((key for key, call in self._calls.items() if name is None or tool_of(call) == name), None)
        if key is not None:
            self._drop(key)
        return key

    def _drop(self, key: _CallPlace) -> None:
        id = self._calls.pop(key).get("id")
        if id is not None:
            same = self._by_id[str(id)]
            same.remove(key)
            if not same:
                del self._by_id[str(id)]
