"""Conversations with a model: messages and tool calls are well-formed, cut results are marked, turns and entries are counted.

The templates read the messages of a model call (its argument `messages`, `input` or `contents`, which
`mat.model(record="keep")` records) and its reply, in the formats of OpenAI's chat and responses, Anthropic's messages and
OpenTelemetry's spans. They ignore calls whose messages were hashed or not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts._outcome import failed, stated_failure
from mat_contracts._shared import count_of, cut, judged, label, label_of, names_of, names_or_all
from mat_contracts._values import same
from mat_contracts.catalogue import Options, template

ToolNames: TypeAlias = str | Iterable[str]
_MODEL: Final[frozenset[ActionKind]] = frozenset(("model_call",))
_MESSAGES: Final = ("messages", "input", "contents")
_CONTINUED: Final = ("previous_response_id", "conversation")
"""Arguments of a request that continues a conversation stored by the provider. Its messages do not hold the earlier calls."""
_RESULT_FIELDS: Final = ("output", "value", "content", "response", "result")
_NAMED_CALLS: Final = ("tool_use", "function_call", "tool_call")
_CLIENT_CALLS: Final = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call")
"""Items that ask the client to run a tool defined by the provider. The type holds the tool's name."""
_PREFIX: Final = 64
"""First characters by which a result is recognized after it was cut."""
_NOTICE: Final = 256
"""Characters that a notice may add before or after a cut result."""
_REMEMBERED: Final = 64
"""Large results, and attempts without an entry, that are remembered, the latest ones."""
_IDS: Final = 256
"""Ids of calls that are remembered, the latest ones."""


class _Call(NamedTuple):
    """A tool call that a model asked for. `arguments` are as recorded: an object or a text."""

    id: str
    name: str
    arguments: Any


class _Result(NamedTuple):
    """The result of a tool call, as given to a model."""

    id: str
    text: str


@template
def messages_well_formed(model: ToolNames | None = None, **options: Unpack[Options]) -> Contract:
    """In the messages given to a model, every tool result answers one earlier call, every call has a result, ids are unique.

    Most providers refuse a request that breaks this, or answer as if the tool had never run. `model` names the model ports to
    check, all by default. The result of a call must come before the next message that is not a result. A request with
    `previous_response_id` or `conversation` may answer calls that are stored by the provider.

    Raises `mat.MatError` for an empty name.

    Precision 1.00, recall 1.00 on 26 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> call = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]}
    >>> result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    >>> broken(messages_well_formed(), trace(record("model_call", "llm", {"messages": [call, result]})))
    ()
    >>> broken(messages_well_formed(), trace(record("model_call", "llm", {"messages": [result]})))
    (0,)

    Source: A1.9.
    """
    models = names_or_all(model, "model")

    def step(state: None, record: Record) -> Violated | None:
        messages = _messages(record)
        if messages is None or (models is not None and record.action.name not in models):
            return state
        is_continued = any(record.action.arguments.get(name) for name in _CONTINUED)
        found = _problems(messages, is_continued=is_continued)
        return judged([Violated(message, instance=id, wanted=wanted) for message, id, wanted in found], state)

    return Contract(
        id=f"{label_of(models)}.messages_well_formed", step=step, kinds=_MODEL,
        repair="keep each tool result with its call, answer calls before the next message, and give each call a unique id",
        text="each tool result that a model is given answers one call, and each call has one result",
    )  # fmt: skip


@template
def tool_calls_well_formed(
    model: ToolNames | None = None, *, tools: ToolNames | None = None, **options: Unpack[Options]
) -> Contract:
    """Each tool call that a model asks for has a name, arguments that are an object, and an id that no earlier call has.

    `model` names the model ports to check, all by default. `tools` names the existing tools; a call of any other name is a
    violation. Arguments in text form are parsed as JSON; a custom tool takes any text. A tool that the provider defines and the
    client runs is named after its type, such as "shell". Ids may be missing if no call of the reply has one.

    Raises `mat.MatError` for an empty name.

    Precision 1.00, recall .92 on 24 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def asks(text): return record("model_call", "llm", value={"tool_calls": [{"name": "look", "arguments": text}]})
    >>> broken(tool_calls_well_formed(tools="look"), trace(asks('{"order": 7}')))
    ()
    >>> broken(tool_calls_well_formed(tools="look"), trace(asks('{"order": ')))
    (0,)

    Source: A1.9.
    """
    models, known = names_or_all(model, "model"), names_or_all(tools, "tools")

    def step(seen: tuple[tuple[str, str], ...], record: Record) -> tuple[tuple[str, str], ...] | Violated:
        if models is not None and record.action.name not in models:
            return seen
        calls = [part for part in _parts(record.observation.value) if isinstance(part, _Call)]
        found: list[Violated] = []
        has_ids = any(call.id for call in calls)
        for call in calls:
            instance = call.id or call.name
            if not call.name:
                found.append(Violated("a tool call has no name", instance=instance, wanted="the name of a tool"))
            elif known is not None and call.name not in known:
                found.append(Violated(f"unknown tool: {call.name!r}", instance=instance, wanted=f"one of {', '.join(known)}"))
            if not _is_object(call.arguments):
                message = f"the arguments of {call.name or 'a call'} are not an object: {_excerpt(call.arguments)}"
                found.append(Violated(message, instance=instance, wanted="a JSON object"))
            if has_ids and (not call.id or (record.agent, call.id) in seen):
                message = f"a call of {call.name} has {'the id of an earlier call' if call.id else 'no id'}"
                found.append(Violated(message, instance=instance, wanted="a unique id"))
            elif call.id:
                seen = (*seen, (record.agent, call.id))[-_IDS:]
        return judged(found, seen)

    return Contract(
        id=f"{label_of(models)}.tool_calls_well_formed", step=step, start=(), kinds=_MODEL,
        repair="reject the reply and tell the model what is wrong with the call; do not guess what it meant and run that",
        text="each tool call that a model asks for has a name, arguments that are an object, and a unique id",
    )  # fmt: skip


@template
def truncation_noticed(
    tool: ToolNames | None = None, *, limit: int, notice: str = "truncated", **options: Unpack[Options]
) -> Contract:
    """A tool result of more than `limit` characters is cut before a model gets it, with a notice that says so.

    The result that a model gets is recognized by its first characters. If it is cut, it must contain `notice` (in upper or
    lower case) and have at most 256 characters more than `limit`. `tool` names the tools to check, all by default.

    Raises `mat.MatError` for a limit below its minimum, and for a notice that is not a text.

    Precision 1.00, recall .90 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def told(text): return record("model_call", "llm", {"messages": [{"role": "tool", "content": text}]})
    >>> page = record("tool_call", "fetch", value="x" * 300)
    >>> broken(truncation_noticed(limit=100), trace(page, told("x" * 100 + " [truncated]")))
    ()
    >>> broken(truncation_noticed(limit=100), trace(page, told("x" * 100)))
    (1,)

    Source: A1.9.
    """
    count_of(limit, "limit", least=_PREFIX)
    if not isinstance(notice, str) or not notice:
        raise SpecError(what=f"notice={notice!r} is not a text", fix="give the words of the notice, such as 'truncated'")
    tools, mark = names_or_all(tool, "tool"), notice.casefold()

    def step(large: FrozenDict, record: Record) -> FrozenDict | Violated:
        if record.action.kind == "tool_call":
            text = _text(record.observation.value)
            if len(text) <= limit or (tools is not None and record.action.name not in tools):
                return large
            kept = {key: item for key, item in large.items() if key != text[:_PREFIX]}
            return FrozenDict({**dict(list(kept.items())[1 - _REMEMBERED :]), text[:_PREFIX]: (record.action.name, len(text))})
        found = []
        for part in _parts(list(_messages(record) or ())) if large else ():
            if not isinstance(part, _Result):
                continue
            start = next((key for key in large if key in part.text), None)
            if start is None:
                continue
            name, size = large[start]
            has_notice = mark in part.text.casefold()
            if len(part.text) > limit + _NOTICE or (not has_notice and len(part.text) >= size):
                message = f"a result of {name} reached the model with {len(part.text)} characters; {limit} are allowed"
                found.append(Violated(message, instance=part.id or name, wanted=f"its first {limit} characters and a notice"))
            elif not has_notice:
                message = f"a result of {name} was truncated from {size} characters without a notice to the model"
                found.append(Violated(message, instance=part.id or name, wanted=f"a notice that contains {notice!r}"))
        return judged(found, large)

    return Contract(
        id=f"{label_of(tools)}.truncation_noticed", step=step, start=EMPTY, kinds=_MODEL | {"tool_call"},
        repair=f"cut results longer than {limit} characters, and say so in the text that the model gets",
        text=f"a tool result of more than {limit} characters is cut, with a notice to the model",
    )  # fmt: skip


@template
def turns_bounded(turns: int, *, model: ToolNames | None = None, **options: Unpack[Options]) -> Contract:
    """An agent takes at most `turns` turns. A turn is an answered model call; a failed call is no turn and may be repeated.

    A call failed if it raised, was cancelled, or its reply is an object that reports a failure, such as an `error`. Each model
    call after the last turn is a violation. `model` names the model ports to count, all by default.

    Raises `mat.MatError` for a count below its minimum and an empty name.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, reply = record("model_call", "llm", error="timeout"), record("model_call", "llm", value="hello")
    >>> broken(turns_bounded(1), trace(failed, reply))
    ()
    >>> broken(turns_bounded(1), trace(reply, failed))
    (1,)

    Source: A1.9.
    """
    count_of(turns, "turns", least=1)
    models = names_or_all(model, "model")

    def step(taken: FrozenDict, record: Record) -> FrozenDict | Violated:
        if models is not None and record.action.name not in models:
            return taken
        before = taken.get(record.agent, 0)
        new = FrozenDict({**taken, record.agent: min(before + _is_answered(record), turns)})
        if before < turns:
            return new
        message = f"{record.agent} calls {record.action.name} after its last turn ({turns} allowed)"
        return Violated(message, state=new, instance=record.agent, wanted=f"no model call after turn {turns}")

    return Contract(
        id=f"{label_of(models)}.turns_bounded", step=step, start=EMPTY, kinds=_MODEL,
        repair="end with the results so far after the last turn, and tell the model beforehand which turn is its last",
        text=f"an agent takes at most {turns} turns",
    )  # fmt: skip


@template
def one_entry_per_attempt(
    port: ToolNames, *, entry: ToolNames, fields: Mapping[str, Any] = EMPTY, **options: Unpack[Options]
) -> Contract:
    """Each attempt at a port, failed or not, is followed by exactly one entry, and each entry belongs to an attempt.

    This checks accounts, logs and audits. `port` names the calls. `entry` names the memories or tools that entries are written
    to; with `fields`, only values with these fields count as entries. A blocked call is no attempt. Attempts may overlap: an
    entry belongs to the oldest attempt that has none yet. An attempt without an entry is a violation when the trace ends, or
    when 64 later ones wait for theirs.

    Raises `mat.MatError` if `port` and `entry` have a name in common.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, entry = record("model_call", "llm", error="timeout"), record("memory_write", "accounting", {"key": "1"})
    >>> broken(one_entry_per_attempt("llm", entry="accounting"), trace(failed, entry))
    ()
    >>> broken(one_entry_per_attempt("llm", entry="accounting"), trace(failed, entry, entry))
    (2,)

    Source: A1.9.
    """
    ports, entries = frozenset(names_of(port, "port")), frozenset(names_of(entry, "entry"))
    if ports & entries:
        raise SpecError(what=f"port= and entry= both name {label(sorted(ports & entries))}", fix="give them different names")
    subject = label(sorted(ports))

    def wanted(value: Any) -> bool:
        return not fields or (isinstance(value, Mapping) and all(same(value.get(name), item) for name, item in fields.items()))

    def without_entry(at: int) -> Violated:
        return Violated(f"an attempt at {subject} has no entry", step=at, witness=(at,), wanted="one entry per attempt")

    def step(open_: tuple[int, ...], record: Record) -> tuple[int, ...] | Violated:
        if record.action.name in ports and not record.blocked:
            new = (*open_, record.step)
            return new if len(new) <= _REMEMBERED else replace(without_entry(new[0]), state=new[1:])
        if record.action.name not in entries or record.action.kind == "memory_read" or failed(record):
            return open_
        if not wanted(record.action.arguments.get("value", record.action.arguments)):
            return open_
        if open_:
            return open_[1:]
        return Violated(f"{record.action.name} has an entry without an attempt at {subject}", wanted="one entry per attempt")

    def finish(open_: tuple[int, ...]) -> Violated | None:
        return judged([without_entry(at) for at in open_], None)

    return Contract(
        id=f"{subject}.one_entry_per_attempt", step=step, start=(), finish=finish,
        repair=f"write one entry wherever {subject} is called, whether or not the call succeeds",
        text=f"each attempt at {subject} has exactly one entry",
    )  # fmt: skip


# -- reading messages -------------------------------------------------------------------------------------------------


def _is_answered(record: Record) -> bool:
    """Whether a model call was answered: it raised no error, was not cancelled, and its reply reports no failure."""
    seen = record.observation
    if seen.error is not None or seen.cancelled:
        return False
    return not isinstance(seen.value, Mapping) or stated_failure(seen.value) is None


def _messages(record: Record) -> Iterable[Any] | None:
    """The messages of a model call; None if they are not recorded."""
    arguments = record.action.arguments
    found = next((arguments[name] for name in _MESSAGES if name in arguments), None)
    return found if isinstance(found, list | tuple) else None


def _problems(messages: Iterable[Any], *, is_continued: bool) -> Iterator[tuple[str, str, str]]:
    """(what is wrong, the id of the call, what was wanted) for each problem in the messages of one request."""
    asked: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for message in messages:
        parts = list(_parts(message))
        results = [part for part in parts if isinstance(part, _Result)]
        if not results and _is_message(message):
            for id, name in waiting.items():
                yield f"a message comes between the call of {name} and its result", id, f"the result of {name} first"
            waiting = {}
        for result in results:
            if not result.id:
                continue
            if result.id not in asked:
                if is_continued:
                    continue
                yield (
                    f"a tool result answers {result.id!r}, which is not the id of an earlier call",
                    result.id,
                    "a result of an earlier call",
                )
            elif waiting.pop(result.id, None) is None:
                yield f"the call of {asked[result.id]} has a second or late result", result.id, "one result per call"
        for part in parts:
            if isinstance(part, _Call) and part.id:
                if part.id in asked:
                    yield f"two calls have the id {part.id!r}", part.id, "a unique id"
                asked[part.id] = waiting[part.id] = part.name
    for id, name in waiting.items():
        yield f"the call of {name} has no result", id, f"the result of {name}"


def _is_message(message: Any) -> bool:
    """Whether an item is a message. Items of the responses API may also be calls or reasoning."""
    return isinstance(message, Mapping) and (message.get("type", "message") == "message")


def _parts(value: Any) -> Iterator[_Call | _Result]:
    """The tool calls and results in a message, a list of messages, or a reply."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    if not isinstance(value, Mapping):
        return
    kind, id = str(value.get("type") or ""), str(value.get("tool_use_id") or value.get("call_id") or value.get("id") or "")
    if kind in _NAMED_CALLS:
        yield _Call(id, str(value.get("name") or ""), value.get("input", value.get("arguments", EMPTY)))
    elif kind == "custom_tool_call":
        yield _Call(id, str(value.get("name") or ""), {"input": value.get("input")})
    elif kind in _CLIENT_CALLS:
        yield _Call(id, kind.removesuffix("_call"), EMPTY)
    elif kind in ("tool_result", "tool_call_response") or kind.endswith("_call_output"):
        yield _Result(id, _text(next((value[name] for name in _RESULT_FIELDS if name in value), None)))
    elif value.get("role") in ("tool", "function") and "tool_results" not in value and "parts" not in value:
        yield _Result(str(value.get("tool_call_id") or value.get("toolCallId") or ""), _text(value.get("content")))
    else:
        for call in value.get("tool_calls") or value.get("toolCalls") or (value.get("function_call"),):
            if isinstance(call, Mapping):
                yield _chat_call(call)
        for result in value.get("tool_results") or ():
            if isinstance(result, Mapping):
                yield _Result(str(result.get("id") or ""), _text(result.get("value")))
        for field in ("content", "parts", "output", "message", "choices"):
            if isinstance(value.get(field), list | tuple | Mapping):
                yield from _parts(value[field])


def _chat_call(call: Mapping[str, Any]) -> _Call:
    """A call in a chat message: of a function, or of a custom tool, which takes one text."""
    id, function, custom = str(call.get("id") or ""), call.get("function"), call.get("custom")
    if isinstance(custom, Mapping):
        return _Call(id, str(custom.get("name") or ""), {"input": custom.get("input")})
    made = function if isinstance(function, Mapping) else call
    return _Call(id, str(made.get("name") or ""), made.get("arguments", made.get("parameters", EMPTY)))


def _text(content: Any) -> str:
    """Message content as one text: the string itself, the texts of its parts, or JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list | tuple) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    return json.dumps(content, ensure_ascii=False, default=str)


def _is_object(arguments: Any) -> bool:
    """Whether arguments are an object, as a value or as JSON text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return False
    return arguments is None or isinstance(arguments, Mapping)


def _excerpt(value: object) -> str:
    return cut(value if isinstance(value, str) else repr(value))
