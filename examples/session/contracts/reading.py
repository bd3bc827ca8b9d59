"""Records as the session convention reads them (README.md): one record gives at most one event.

model_call: an attempt; tool_call: an execution; memory_write to "conversation", "accounting", "log" or "configuration": what
was added there; final_response or termination with a mapping that has `success`: the result; message to "user": streamed text.
Fields that a record does not have are None: only observed facts are judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from mat.core.record import Record
from mat.core.value import EMPTY, FrozenDict, FrozenList
from session.contracts.markup import Instructions, Tag, instructions, responses, tags
from session.contracts.parsing import parsed, repaired, schema_problem
from session.contracts.settings import BATCH, FINAL, PROGRESS, SessionConfig

RETRYABLE: Final = ("rate_limit", "timeout", "network", "model", "invalid")
FATAL: Final = ("auth", "quota")
_KINDS: Final[Mapping[str, str]] = {"connection": "network", "server_error": "model", "": "model", "not_found": "model"}
_OVERFLOW: Final = re.compile(
    r"context[ _-](?:length|window)|maximum context|prompt is too long|too many (?:input )?tokens", re.I
)
_RETRY_AFTER: Final = re.compile(r"retry[- ]after\D{0,3}(\d+(?:\.\d+)?)\s*(ms)?", re.I)

Standing: TypeAlias = Literal["valid", "repaired", "unparsable", "invalid", "unknown", "ignored", "unclosed"]
RUNS: Final = ("valid", "repaired")
ReplyKind: TypeAlias = Literal["error", "unknown", "calls", "text", "reasoning", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call that the model asked for, and the state of its arguments. `problem` says why it is not valid."""

    id: str
    name: str
    raw: Any
    arguments: FrozenDict | None
    standing: Standing
    final: bool
    problem: str = ""
    tag: Tag | None = None

    @property
    def runs(self) -> bool:
        return self.standing in RUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An attempt: what the provider received and what it answered."""

    provider: str
    model: str
    messages: FrozenList | None
    tools: FrozenList | None
    tool_names: tuple[str, ...] | None
    tool_choice: str | None
    settings: FrozenDict | None
    turn: int | None
    counters: FrozenDict | None
    after_shrink: FrozenDict | None
    instructions: Instructions | None
    reply: ReplyKind
    content: str
    reasoning: str
    calls: tuple[ToolRequest, ...]
    stop: str
    usage: FrozenDict | None
    error: str
    error_text: str
    retry_after_ms: int | None
    overflow: bool
    restricted: bool | None

    @property
    def tail(self) -> tuple[FrozenDict, ...]:
        """The last messages of the request: what may have been added for this attempt alone."""
        return tuple(item for item in (self.messages or ())[-4:] if isinstance(item, FrozenDict))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A tool's response as the conversation holds it. `text`: of a user message, the block behind its notice."""

    id: str
    tool: str
    text: str

    @property
    def failure(self) -> str | None:
        """The reason of `(tool failed: <reason>)`, None if it is not a failure of that form."""
        found = _FAILED.fullmatch(self.text)
        return None if found is None else found[1]


_FAILED: Final = re.compile(r"\(tool failed: (.+)\)", re.DOTALL)
_RESPONSE: Final = re.compile(r"^response:[ \t]*\n?(.*)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message added to the conversation. `answers`: the tool responses in it, in any form."""

    role: str
    content: str
    reasoning: str
    calls: tuple[ToolRequest, ...]
    call_id: str
    answers: tuple[Answer, ...]
    instructions: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A tool execution. `text` is the tool's own response, None if it was not seen."""

    id: str
    name: str
    server: str
    queue: str
    arguments: FrozenDict | None
    text: str | None
    failed: bool
    timed_out: bool
    error: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    entry: FrozenDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    entry: FrozenDict

    @property
    def event(self) -> str:
        return text_of(field(self.entry, "event"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    event: FrozenDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The AIAgentResult. `category`: the kind of failure that the session reports; empty if it reports none."""

    success: bool
    report: FrozenDict | None
    error: str
    exit_code: int | None
    category: str

    @property
    def content(self) -> Any:
        """The report's content in whichever field its format has."""
        if self.report is None:
            return None
        return field(self.report, "content_json", "messages", "content")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The run ended without a result: by an exception, or stopped from outside."""

    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    text: str


Event: TypeAlias = Asked | Said | Executed | Billed | Logged | Loaded | Ended | Crashed | Streamed


def field(mapping: Mapping[str, Any], *names: str) -> Any:
    """The first of several names that a mapping has; None if it has none."""
    for name in names:
        if name in mapping:
            return mapping[name]
    return None


def text_of(value: Any) -> str:
    """A text, or the compact JSON of another value; empty for None."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def read(config: SessionConfig, record: Record) -> Event | None:
    """The event of a record; None if it does not belong to a session."""
    kind, name, value = record.action.kind, record.action.name, record.action.arguments.get("value")
    if kind == "model_call":
        return _asked(config, record)
    if kind == "tool_call":
        return _executed(config, record)
    if kind == "memory_write":
        if not isinstance(value, FrozenDict) or record.blocked:
            return None
        if name == "conversation":
            return _said(config, value)
        if name == "accounting":
            return Billed(entry=value)
        if name == "log":
            return Logged(entry=value)
        return Loaded(event=value) if name == "configuration" else None
    if kind == "message":
        text = record.action.arguments.get("text")
        return Streamed(text=text) if name == "user" and isinstance(text, str) else None
    return _ended(record)


def _ended(record: Record) -> Event | None:
    answer = record.action.arguments.get("answer")
    if isinstance(answer, FrozenDict) and isinstance(answer.get("success"), bool):
        report, code = answer.get("finalReport"), field(answer, "exitCode", "exit_code")
        return Ended(
            success=answer["success"],
            report=report if isinstance(report, FrozenDict) else None,
            error=text_of(answer.get("error")),
            exit_code=code if type(code) is int else None,
            category=text_of(field(answer, "errorCategory", "error_category")),
        )
    return Crashed(how=record.action.name) if record.action.kind == "termination" else None


# -- attempts ----------------------------------------------------------------------------------------------------------------


def _asked(config: SessionConfig, record: Record) -> Asked:
    given, value = record.action.arguments, record.observation.value
    seen_value = _seen(value)
    reply = seen_value if isinstance(seen_value, FrozenDict) else EMPTY
    messages, tools, meta = given.get("messages"), given.get("tools"), given.get("session")
    messages = messages if isinstance(messages, FrozenList) else None
    tools = tools if isinstance(tools, FrozenList) else None
    meta = meta if isinstance(meta, FrozenDict) else EMPTY
    turn, names = meta.get("turn"), None if tools is None else tuple(_definition(item)[0] for item in tools)
    error, error_text, retry_after_ms = _error(record, reply)
    seen = any(name in reply for name in ("content", "tool_calls", "toolCalls", "reasoning"))
    content, reasoning = text_of(reply.get("content")), text_of(reply.get("reasoning"))
    told = _told(messages)
    stop = text_of(field(reply, "stop_reason", "stopReason"))
    calls = requests(config, reply, content, stop=stop, told=told, tools=tools) if seen else ()
    settings, counters, after = _seen(given.get("settings")), meta.get("context"), meta.get("context_after")
    usage, choice = reply.get("usage"), given.get("tool_choice")
    return Asked(
        provider=_name(given.get("provider")),
        model=_name(given.get("model")),
        messages=messages,
        tools=tools,
        tool_names=names,
        tool_choice=choice if isinstance(choice, str) else None,
        settings=settings if isinstance(settings, FrozenDict) else None,
        turn=turn if type(turn) is int else None,
        counters=counters if isinstance(counters, FrozenDict) else None,
        after_shrink=after if isinstance(after, FrozenDict) else None,
        instructions=told,
        reply=_reply_kind(error, seen, calls, content, reasoning),
        content=content,
        reasoning=reasoning,
        calls=calls,
        stop=stop,
        usage=usage if isinstance(usage, FrozenDict) else record.observation.usage or None,
        error=error,
        error_text=error_text,
        retry_after_ms=retry_after_ms,
        overflow=error != "" and (error == "context" or bool(_OVERFLOW.search(error_text))),
        restricted=_restricted(config, names, told),
    )


_HASHED: Final = frozenset(("sha256", "length", "pii"))


def _seen(value: Any) -> Any:
    """A recorded field; None if the recording policy kept only its hash."""
    return None if isinstance(value, FrozenDict) and value.keys() == _HASHED else value


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _reply_kind(error: str, seen: bool, calls: tuple[ToolRequest, ...], content: str, reasoning: str) -> ReplyKind:
    if error:
        return "error"
    if not seen:
        return "unknown"
    if any(call.standing != "ignored" for call in calls):
        return "calls"
    if content.strip():
        return "text"
    return "reasoning" if reasoning.strip() else "empty"


def _error(record: Record, reply: FrozenDict) -> tuple[str, str, int | None]:
    """(kind, text, Retry-After in ms): from the exception that the session met, or from a reply that says it failed."""
    fact, said = record.observation.error, reply.get("error")
    if fact is not None:
        found = _RETRY_AFTER.search(fact.message)
        after = None if found is None else round(float(found[1]) * (1 if found[2] else 1000))
        return _KINDS.get(fact.kind, fact.kind), fact.message, after
    if isinstance(said, FrozenDict):
        after_ms, kind = field(said, "retry_after_ms", "retryAfterMs"), text_of(said.get("kind"))
        number = after_ms if isinstance(after_ms, int | float) and not isinstance(after_ms, bool) else None
        return _KINDS.get(kind, kind), text_of(said.get("message")), None if number is None else round(number)
    return "", "", None


def _told(messages: FrozenList | None) -> Instructions | None:
    """The per-turn instructions: in one of the last messages, never in the head."""
    for item in reversed((messages or ())[-3:]):
        if isinstance(item, FrozenDict) and item.get("role") in ("user", "system"):
            found = instructions(text_of(item.get("content")))
            if found is not None:
                return found
    return None


def _restricted(config: SessionConfig, names: tuple[str, ...] | None, told: Instructions | None) -> bool | None:
    """Whether only the final report was offered; None if the request does not show it, or there is nothing to restrict."""
    if config.transport == "xml":
        return None if told is None else not told.slots
    if names is None or not config.tools:
        return None
    return set(names) <= {FINAL}


def _definition(item: Any) -> tuple[str, Any]:
    """(name, schema) of a tool definition in the common shapes."""
    if not isinstance(item, FrozenDict):
        return text_of(item), None
    inner = item.get("function")
    body = inner if isinstance(inner, FrozenDict) else item
    return text_of(body.get("name")), field(body, "parameters", "input_schema", "inputSchema", "schema")


def requests(
    config: SessionConfig,
    reply: Mapping[str, Any],
    content: str,
    *,
    stop: str,
    told: Instructions | None,
    tools: FrozenList | None,
) -> tuple[ToolRequest, ...]:
    """The calls of a reply: native ones, and tags if the transport has them."""
    known: dict[str, Any] = dict(map(_definition, tools or ()))
    if config.transport != "native" or not known:
        own: dict[str, Any] = {tool.name: tool.schema for tool in config.tools}
        known = {**own, **({BATCH: None, PROGRESS: None} if own else {}), **known}
    native = field(reply, "tool_calls", "toolCalls")
    items = native if isinstance(native, list) else ()
    found = [_native(config, item, known) for item in items if isinstance(item, FrozenDict)]
    if config.transport != "native":
        found += _tagged(config, content, stop=stop, told=told, known=known)
    return tuple(found)


def _native(config: SessionConfig, item: FrozenDict, known: Mapping[str, Any]) -> ToolRequest:
    inner = item.get("function")
    body = inner if isinstance(inner, FrozenDict) else item
    name, raw = text_of(body.get("name")), field(body, "arguments", "parameters", "input")
    final = name == FINAL
    made = _request(text_of(item.get("id")), name, raw, {**known, FINAL: None} if final and known else known)
    foreign = config.transport == "xml" or (final and config.transport == "xml-final")
    return made if not foreign else _ignored(made)


def _ignored(made: ToolRequest) -> ToolRequest:
    return ToolRequest(
        id=made.id,
        name=made.name,
        raw=made.raw,
        arguments=made.arguments,
        standing="ignored",
        final=made.final,
        tag=made.tag,
        problem="this transport does not take it",
    )


def _request(id: str, name: str, raw: Any, known: Mapping[str, Any], tag: Tag | None = None) -> ToolRequest:
    standing: Standing = "valid"
    arguments, problem = parsed(raw), ""
    if arguments is None:
        arguments = repaired(raw)
        standing, problem = ("repaired", "") if arguments is not None else ("unparsable", "its arguments are not JSON")
    if known and name not in known:
        standing, problem = "unknown", f"no tool is called {name}"
    elif arguments is not None and name != FINAL:
        problem = schema_problem(arguments, known.get(name))
        standing = "invalid" if problem else standing
    return ToolRequest(
        id=id,
        name=name,
        raw=raw,
        arguments=arguments,
        standing=standing,
        final=name == FINAL,
        problem=problem,
        tag=tag,
    )


NORMAL_STOPS: Final = ("stop", "end_turn", "end", "eos")
CUT_STOPS: Final = ("length", "max_tokens")


def _tagged(
    config: SessionConfig, content: str, *, stop: str, told: Instructions | None, known: Mapping[str, Any]
) -> list[ToolRequest]:
    found, used = [], set()
    for tag in tags(content):
        mine = told is None or tag.nonce == told.nonce
        if tag.slot.endswith("-FINAL"):
            found.append(_final_tag(tag, stop, mine=mine and tag.tool == FINAL))
            continue
        if tag.slot.endswith("-PROGRESS"):
            continue
        made = _request(tag.slot, tag.tool, tag.payload, known, tag)
        fits = mine and config.transport == "xml" and tag.slot not in used and (told is None or tag.slot in told.slots)
        used.add(tag.slot)
        if not fits:
            made = _ignored(made)
        elif not tag.closed:
            made = ToolRequest(
                id=made.id,
                name=made.name,
                raw=made.raw,
                arguments=None,
                standing="unclosed",
                final=False,
                tag=tag,
                problem="its tag is not closed",
            )
        found.append(made)
    return found


def _final_tag(tag: Tag, stop: str, *, mine: bool) -> ToolRequest:
    standing: Standing = "valid" if mine else "ignored"
    if mine and not tag.closed and (stop in CUT_STOPS or not tag.payload.strip()):
        standing = "unclosed"
    return ToolRequest(
        id=tag.slot,
        name=FINAL,
        raw=tag.payload,
        arguments=tag.attributes,
        standing=standing,
        final=True,
        tag=tag,
        problem="" if standing == "valid" else "its tag is not closed" if mine else "its tag does not match",
    )


# -- conversation and tools --------------------------------------------------------------------------------------------------


def _said(config: SessionConfig, value: FrozenDict) -> Said:
    role, content = text_of(value.get("role")), text_of(value.get("content"))
    call_id = text_of(field(value, "toolCallId", "tool_call_id"))
    answers: tuple[Answer, ...] = ()
    if role == "tool":
        answers = (Answer(id=call_id, tool=text_of(field(value, "toolName", "name")), text=content),)
    elif role == "user":
        answers = tuple(Answer(id=item.slot, tool=item.tool, text=_block(item.text)) for item in responses(content))
    calls = requests(config, value, content, stop="", told=None, tools=None) if role == "assistant" else ()
    return Said(
        role=role,
        content=content,
        reasoning=text_of(value.get("reasoning")),
        calls=calls,
        call_id=call_id,
        answers=answers,
        instructions=role in ("user", "system") and instructions(content) is not None,
    )


def _block(text: str) -> str:
    """The response in a tool-response block: what follows its `response:` line, or all of it."""
    found = _RESPONSE.search(text)
    return (found[1] if found is not None else text).strip("\n")


def _executed(config: SessionConfig, record: Record) -> Executed:
    given, observation = record.action.arguments, record.observation
    inner, value, error = _seen(given.get("arguments")), _seen(observation.value), observation.error
    duration = record.sealed_ms - record.at_ms
    over = config.tool_timeout_ms is not None and duration >= config.tool_timeout_ms
    tool = config.by_name.get(record.action.name)
    return Executed(
        id=_name(field(given, "call_id", "toolCallId", "id")),
        name=record.action.name,
        server=text_of(given.get("server")),
        queue=text_of(given.get("queue")) or (tool.queue if tool is not None else ""),
        arguments=inner if isinstance(inner, FrozenDict) else None,
        text=None if value is None or observation.opaque else text_of(value),
        failed=error is not None or observation.cancelled,
        timed_out=(error is not None and error.kind == "timeout") or (observation.cancelled and over),
        error="" if error is None else error.message or error.type,
        duration_ms=duration,
    )
