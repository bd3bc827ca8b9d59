"""OTLP/JSON documents whose spans follow the GenAI semantic conventions of OpenTelemetry, in any of their versions.

A row is a document, `{"resourceSpans": [...]}`, or an object that holds one in a field; its plain fields become labels.
Spans with one `traceId` are one trace where they stand in one row, or in rows that follow each other and whose plain fields
are equal: rows that name different cases are different runs. What becomes of a span:

    chat, generate_content, text_completion, embeddings    model_call, named after the requested model, with token usage
    execute_tool                                           tool_call; arguments and result where they were captured
    invoke_agent inside another agent's                    delegation, sealed at once: what that agent does comes after it;
                                                           its answer or error is a message back to who delegated
    invoke_agent outside                                   names who acts; at its end, of the last one, a final_response, or
                                                           a termination: exception, horizon where a limit of turns was met
    retrieval; search_memory; update_memory ...            retrieval; memory_read; memory_write
    anything else                                          only passes on who acts; labels count it as `spans_left_out`

A user's text in a model's input is a message from "user" when it first appears. A tool call that a model asked for, whose
response stands in a later input and that has no span of its own, is a tool_call between the two. Contents are read from
`gen_ai.input.messages` and `gen_ai.output.messages`, on the span or in its operation.details event; from the message and
choice events of 1.28 to 1.36, as span events or as log records of the document; from `gen_ai.content.*` events; from
pydantic-ai's `events`; and from `gen_ai.prompt.0.role` and its like. Other attributes are kept out.

The agent is the nearest `gen_ai.agent.name` upwards, else "main". Time counts from the first span; spans that overlap are
concurrent. A span with status ERROR is an error; one without an end is cancelled. No span says what a tool does: it reads
where its name begins with a verb of READ_VERBS, and writes otherwise, since too much caution costs a finding to look at and
too little hides one. A trace is finished where every span has ended and every parent is there, or stated to be remote.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from mat.adapters.agentdojo import HIGH_WORDS
from mat.adapters.agentdojo import READ_VERBS as FEWER_READ_VERBS
from mat.adapters.importers.base import HARNESS, Format, RecordMaker, Row, StoredTrace, interleave, misfit
from mat.core.errors import CodecError
from mat.core.record import ActionKind, Effect, Impact

__all__ = ["FORMAT", "READ_VERBS", "effect_of"]

READ_VERBS: Final = FEWER_READ_VERBS | {
    "calculate", "compute", "count", "describe", "fetch", "lookup", "query", "retrieve", "show", "think", "view",
}  # fmt: skip
Message: TypeAlias = dict[str, Any]
"""{role, content, tool_calls: [{id, name, arguments}], tool_results: [{id, value}], finish_reason}, without what is empty."""

_Event: TypeAlias = tuple[str, Mapping[str, Any]]
"""A span's event: its name and its attributes."""
_KINDS: Final[Mapping[str, ActionKind]] = {
    "chat": "model_call", "generate_content": "model_call", "text_completion": "model_call", "completion": "model_call",
    "embeddings": "model_call", "execute_tool": "tool_call", "invoke_agent": "delegation", "retrieval": "retrieval",
    "search_memory": "memory_read", "get_memory": "memory_read", "create_memory": "memory_write",
    "update_memory": "memory_write", "upsert_memory": "memory_write", "delete_memory": "memory_write",
}  # fmt: skip
_PLAIN_KINDS: Final[Mapping[str, ActionKind]] = {"tool": "tool_call", "agent": "delegation"}
"""OpenLLMetry's `traceloop.span.kind`."""
_USAGE: Final = {
    "input_tokens": "input_tokens", "prompt_tokens": "input_tokens", "output_tokens": "output_tokens",
    "completion_tokens": "output_tokens", "reasoning_tokens": "reasoning_tokens", "reasoning.output_tokens": "reasoning_tokens",
    "total_tokens": "total_tokens",
}  # fmt: skip
_ERROR_KINDS: Final = (
    ("timeout", "timeout"), ("deadline", "timeout"), ("ratelimit", "rate_limit"), ("429", "rate_limit"),
    ("connect", "connection"), ("notfound", "not_found"), ("404", "not_found"), ("authenticat", "auth"),
    ("permission", "auth"), ("401", "auth"), ("403", "auth"), ("internalserver", "server_error"), ("500", "server_error"),
    ("502", "server_error"), ("503", "server_error"), ("validation", "invalid"),
)  # fmt: skip
"""What an error's type says of its kind: the first part that it holds, in lower case without underscores."""
_HORIZONS: Final = frozenset(
    {"UsageLimitExceeded", "MaxTurnsExceeded", "GraphRecursionError", "MaxIterationsExceeded", "MaxStepsError"}
)
"""Errors by which frameworks say that a run was stopped at its limit of turns."""
_REMOTE: Final = 0x300
"""Bits of a span's flags: it is known whether its parent is remote, and it is."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def effect_of(tool: str) -> tuple[Effect, Impact]:
    """Whether a tool of that name changes the world, and how much is at stake, as far as a name says it."""
    words = [word.lower() for word in _WORDS.findall(tool)]
    if words and words[0] in READ_VERBS:
        return "read", "low"
    return "write", "high" if HIGH_WORDS & set(words) else "low"


# -- from rows to traces ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Span:
    """A span as it is read. Times are nanoseconds; an end of None is a span still open."""

    id: str
    parent: str
    name: str
    start: int
    end: int | None
    attributes: Mapping[str, Any]
    events: list[_Event]
    failed: bool
    status: str
    remote: bool
    kind: ActionKind | None = None


@dataclass(slots=True, eq=False)
class _Gathered:
    """The spans of one trace, as far as they were read."""

    id: str
    position: str
    labels: dict[str, Any]
    spans: list[_Span] = field(default_factory=list)
    logs: dict[str, list[_Event]] = field(default_factory=dict)


def _document(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The OTLP document that a row is, or holds in one of its fields."""
    for part in (row, *row.values()):
        if isinstance(part, Mapping) and ("resourceSpans" in part or "resourceLogs" in part):
            return part
    return None


def _accepts(row: Mapping[str, Any]) -> bool:
    return _document(row) is not None


def _traces(rows: Iterator[Row]) -> Iterator[StoredTrace]:
    open_traces: dict[str, _Gathered] = {}
    for position, row in rows:
        found = _gather(position, row)
        for key in list(open_traces):
            if key not in found or found[key].labels != open_traces[key].labels:
                yield from _stored(open_traces.pop(key))
        for key, more in found.items():
            known = open_traces.setdefault(key, more)
            if known is not more:
                known.spans += more.spans
                for span, events in more.logs.items():
                    known.logs.setdefault(span, []).extend(events)
    for gathered in open_traces.values():
        yield from _stored(gathered)


def _gather(position: str, row: Mapping[str, Any]) -> dict[str, _Gathered]:
    """The traces of one row, by id, in the order in which they appear; spans without a trace id are one trace."""
    document = _document(row)
    if document is None:
        raise misfit(position, "the row", "holds no OTLP document: it has neither resourceSpans nor resourceLogs")
    labels = {key: value for key, value in row.items() if value is None or isinstance(value, str | int | float)}
    found: dict[str, _Gathered] = {}

    def trace_of(item: Mapping[str, Any]) -> _Gathered:
        key = _text(item.get("traceId")) or position
        return found.setdefault(key, _Gathered(key, position, labels))

    for item in _leaves(document, "resourceSpans", "scopeSpans", "spans", position):
        trace_of(item).spans.append(_span(item, position))
    for item in _leaves(document, "resourceLogs", "scopeLogs", "logRecords", position):
        trace_of(item).logs.setdefault(_text(item.get("spanId")), []).append(_log_event(item, position))
    return found


def _leaves(document: Mapping[str, Any], outer: str, middle: str, inner: str, position: str) -> Iterator[Mapping[str, Any]]:
    for resource in _objects(document, outer, position):
        for scope in _objects(resource, middle, position):
            yield from _objects(scope, inner, position)


def _objects(parent: Mapping[str, Any], name: str, position: str) -> Iterator[Mapping[str, Any]]:
    items = parent.get(name)
    if items is None:
        return
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise misfit(position, name, "is not a list of objects")
    yield from items


def _span(item: Mapping[str, Any], position: str) -> _Span:
    status = item.get("status") if isinstance(item.get("status"), Mapping) else {}
    attributes = _attributes(item, position)
    begun, end = _nanoseconds(item, "startTimeUnixNano", position), _nanoseconds(item, "endTimeUnixNano", position)
    start = begun or end or 0
    flags = item.get("flags")
    events: list[_Event] = [
        (_text(event.get("name")), _attributes(event, position)) for event in _objects(item, "events", position)
    ]
    name, parent = _text(item.get("name")), _text(item.get("parentSpanId"))
    return _Span(
        id=_text(item.get("spanId")), parent=parent if parent.strip("0") else "", name=name,
        start=start, end=max(start, end) if end else None, attributes=attributes, events=events,
        failed=cast(Any, status).get("code") in (2, "2", "STATUS_CODE_ERROR"), status=_text(cast(Any, status).get("message")),
        remote=isinstance(flags, int) and flags & _REMOTE == _REMOTE, kind=_kind(name, attributes),
    )  # fmt: skip


def _kind(name: str, attributes: Mapping[str, Any]) -> ActionKind | None:
    operation = _text(attributes.get("gen_ai.operation.name"))
    if operation:
        return _KINDS.get(operation)
    plain = _PLAIN_KINDS.get(_text(attributes.get("traceloop.span.kind")))
    if plain is not None:
        return plain
    if "gen_ai.tool.name" in attributes:
        return "tool_call"
    if "gen_ai.request.model" in attributes or "gen_ai.response.model" in attributes:
        return "model_call"
    return None


def _nanoseconds(item: Mapping[str, Any], name: str, position: str) -> int | None:
    value = item.get(name)
    if value is None or value == "":
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise misfit(position, name, f"is {str(value)[:40]!r}, not nanoseconds") from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _attributes(item: Mapping[str, Any], position: str) -> dict[str, Any]:
    """Attributes as plain data; some exporters write a plain object instead of a list of keys and values."""
    given = item.get("attributes")
    if isinstance(given, Mapping):
        return dict(given)
    return {_text(pair.get("key")): _plain(pair.get("value")) for pair in _objects(item, "attributes", position)}


def _plain(value: Any) -> Any:
    """The plain form of an OTLP AnyValue; integers come as texts there."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((tag, inner),) = value.items()
    if tag == "intValue":
        try:
            return int(inner)
        except (TypeError, ValueError):
            return inner
    if tag in ("arrayValue", "kvlistValue"):
        items = inner.get("values") if isinstance(inner, Mapping) else None
        items = items if isinstance(items, list) else []
        if tag == "arrayValue":
            return [_plain(item) for item in items]
        return {_text(item.get("key")): _plain(item.get("value")) for item in items if isinstance(item, Mapping)}
    return inner if tag in ("stringValue", "boolValue", "doubleValue", "bytesValue") else value


def _log_event(item: Mapping[str, Any], position: str) -> _Event:
    """A log record as an event of its span: content was logged so by the conventions up to 1.36."""
    attributes = _attributes(item, position)
    name = _text(item.get("eventName")) or _text(attributes.get("event.name"))
    body = _plain(item.get("body"))
    return name, {**attributes, **(body if isinstance(body, Mapping) else {"content": body})}


# -- from spans to records --------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Item:
    """A record to be: what RecordMaker.add takes, and when it was asked and sealed, in nanoseconds."""

    start: int
    end: int
    kind: ActionKind
    name: str
    arguments: Mapping[str, Any]
    more: dict[str, Any]
    source: str


def _stored(gathered: _Gathered) -> Iterator[StoredTrace]:
    """The trace, unless only log records of it are here."""
    if not gathered.spans:
        return
    spans = gathered.spans
    for span in spans:
        span.events += gathered.logs.get(span.id, [])
    items = _Items(spans).items
    items.sort(key=lambda item: (item.start, item.end > item.start))
    begin = min(span.start for span in spans)
    maker = RecordMaker()
    try:
        for item, (asked, sealed) in zip(items, interleave([(item.start, item.end) for item in items]), strict=True):
            maker.add(
                item.kind, item.name, item.arguments, at_ms=(item.start - begin) // 1_000_000,
                sealed_ms=(item.end - begin) // 1_000_000, asked_seq=asked, sealed_seq=sealed, source=item.source, **item.more,
            )  # fmt: skip
    except CodecError as error:  # a value too deep to record
        raise CodecError(f"{gathered.position}: {error.what}", why=error.why, where=gathered.position) from None
    ids = {span.id for span in spans}
    orphans = sum(bool(span.parent) and span.parent not in ids and not span.remote for span in spans)
    yield StoredTrace(
        id=gathered.id, records=tuple(maker.records), finished=not orphans and all(span.end is not None for span in spans),
        labels={
            **gathered.labels, "format": "otlp", "origin": gathered.position, "timed": True,
            "source_steps": tuple(maker.source_steps), "parents_missing": orphans,
            "spans_left_out": sum(span.kind is None for span in spans),
        },
    )  # fmt: skip


class _Items:
    """The records to be of one trace, in no order."""

    def __init__(self, spans: list[_Span]) -> None:
        self._spans = sorted(spans, key=lambda span: span.start)
        self._by_id = {span.id: span for span in self._spans}
        self._last = max(span.end or span.start for span in spans)
        self._contents = {id(span): _contents(span) for span in self._spans if span.kind in ("model_call", "delegation")}
        self._agents: dict[int, str] = {}
        self._callers: dict[int, _Span | None] = {}
        self._calls: dict[int, list[_Span]] = {}
        for span in self._spans:
            self._place(span)
            if span.kind == "model_call":
                self._calls.setdefault(id(self._caller(span)), []).append(span)
        self._told: dict[int, Counter[str]] = {}
        self._asked: dict[str, tuple[_Span, Message]] = {}
        self._executed = {_text(span.attributes.get("gen_ai.tool.call.id")) for span in self._spans if span.kind == "tool_call"}
        self._answered: set[str] = set()
        self.items: list[_Item] = []
        for span in self._spans:
            if span.kind == "delegation":
                self._agent_span(span)
            elif span.kind == "model_call":
                self._user_messages(span)
                self._unseen_tools(span)
                self._model_call(span)
            elif span.kind == "tool_call":
                self._tool_call(span)
            elif span.kind is not None:
                self._store_call(span)
        self._ending()

    def _add(self, span: _Span, kind: ActionKind, name: str, arguments: Mapping[str, Any], **more: Any) -> None:
        end = self._last if span.end is None else span.end
        self._put(span, span.start, end, kind, name, arguments, **{**_failure(span), **more})

    def _put(
        self, span: _Span, start: int, end: int, kind: ActionKind, name: str, arguments: Mapping[str, Any], **more: Any
    ) -> None:
        more.setdefault("agent", self._agent(span))
        self.items.append(_Item(start, max(start, end), kind, name, arguments, more, span.id))

    # -- who acts -----------------------------------------------------------------------------------------------------

    def _place(self, span: _Span) -> None:
        """Find who acts in a span and which agent's span is around it, from what is known of its parents.

        Each span is visited once, however deep they nest; a circle of parents is cut where it closes.
        """
        path: dict[int, _Span] = {}
        above: _Span | None = span
        while above is not None and id(above) not in self._agents and id(above) not in path:
            path[id(above)] = above
            above = self._by_id.get(above.parent) if above.parent else None
        if above is not None and id(above) in path:
            above = None
        for here in reversed(path.values()):
            around = above if above is None or above.kind == "delegation" else self._callers[id(above)]
            self._callers[id(here)] = around
            self._agents[id(here)] = _agent_name(here) or ("main" if above is None else self._agents[id(above)])
            above = here

    def _agent(self, span: _Span) -> str:
        return self._agents[id(span)]

    def _caller(self, span: _Span) -> _Span | None:
        """The agent's span around this one."""
        return self._callers[id(span)]

    def _conversation(self, span: _Span) -> Counter[str]:
        """The user's texts told so far to the agent that acts in a span."""
        agent = span if span.kind == "delegation" else self._caller(span)
        return self._told.setdefault(0 if agent is None else id(agent), Counter())

    # -- spans --------------------------------------------------------------------------------------------------------

    def _agent_span(self, span: _Span) -> None:
        caller = self._caller(span)
        if caller is None:
            return
        inputs, _ = self._contents[id(span)]
        if not inputs:
            inputs = next((self._contents[id(inner)][0] for inner in self._inside(span)), [])
        task = next((message["content"] for message in inputs if message["role"] == "user" and "content" in message), "")
        self._conversation(span)[task] += 1  # the task is no message of the user
        name, delegator = self._agent(span), self._agent(caller)
        arguments = {"task": task, "delegator": delegator}
        self._put(span, span.start, span.start, "delegation", name, arguments, agent=delegator, value=task)
        answer, failure = self._answer(span), _failure(span)
        if span.end is not None and (answer is not None or failure):
            self._put(
                span, span.end, span.end, "message", delegator, {"text": "" if answer is None else answer, "sender": name},
                value=None if failure else answer, **failure,
            )  # fmt: skip

    def _inside(self, span: _Span) -> list[_Span]:
        """The model calls of an agent, not those of agents it delegates to."""
        return self._calls.get(id(span), [])

    def _answer(self, span: _Span) -> Any:
        """What an agent said in the end; None where that was not recorded."""
        result = span.attributes.get("final_result")
        if result is not None:
            return _opened(result)
        said = self._contents[id(span)][1]
        if not said:
            said = next((self._contents[id(inner)][1] for inner in reversed(self._inside(span))), [])
        return next((message["content"] for message in reversed(said) if "content" in message), None)

    def _user_messages(self, span: _Span) -> None:
        """What the user said that was not in an earlier input of this conversation."""
        told, here = self._conversation(span), Counter[str]()
        for message in self._contents[id(span)][0]:
            text = message.get("content")
            if message["role"] != "user" or not isinstance(text, str):
                continue
            here[text] += 1
            if here[text] > told[text]:
                told[text] += 1
                arguments = {"text": text, "sender": "user"}
                self._put(span, span.start, span.start, "message", "user", arguments, value=text, boundary="prompt")

    def _unseen_tools(self, span: _Span) -> None:
        """Tool calls that only messages tell of: asked by an earlier model call, answered in the input of this one."""
        for message in self._contents[id(span)][0]:
            for result in message.get("tool_results", ()):
                key = result["id"]
                if key in self._asked and key not in self._executed and key not in self._answered:
                    self._answered.add(key)
                    asker, call = self._asked[key]
                    effect, impact = effect_of(call["name"])
                    begun = min(asker.end or span.start, span.start)
                    self._put(
                        asker, begun, span.start, "tool_call", call["name"], _named(call["arguments"]), value=result["value"],
                        effect=effect, impact=impact,
                    )  # fmt: skip

    def _model_call(self, span: _Span) -> None:
        attributes = span.attributes
        inputs, outputs = self._contents[id(span)]
        for message in outputs:
            for call in message.get("tool_calls", ()):
                if call["id"]:
                    self._asked.setdefault(call["id"], (span, call))
        model = attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")
        prefix = "gen_ai.request."
        arguments = {
            key.removeprefix(prefix): value
            for key, value in sorted(attributes.items())
            if key.startswith(prefix) and key != "gen_ai.request.model"
        }
        if inputs:
            arguments["messages"] = inputs
        self._add(
            span, "model_call", _text(model) or span.name or "model", arguments, usage=_usage(attributes),
            value=outputs[0] if len(outputs) == 1 else outputs or _finish(attributes),
        )  # fmt: skip

    def _tool_call(self, span: _Span) -> None:
        attributes = span.attributes
        name = attributes.get("gen_ai.tool.name") or attributes.get("traceloop.entity.name")
        name = _text(name) or span.name.removeprefix("execute_tool ") or "tool"
        names = ("gen_ai.tool.call.arguments", "tool_arguments", "gen_ai.tool.arguments", "traceloop.entity.input")
        given = _first(attributes, *names)
        if given is None:  # the model that asked for it may have been recorded with it
            given = self._asked.get(_text(attributes.get("gen_ai.tool.call.id")), (span, {"arguments": None}))[1]["arguments"]
        result = _first(attributes, "gen_ai.tool.call.result", "tool_response", "gen_ai.tool.result", "traceloop.entity.output")
        effect, impact = effect_of(name)
        self._add(span, "tool_call", name, _named(_opened(given)), value=_opened(result), effect=effect, impact=impact)

    def _store_call(self, span: _Span) -> None:
        """A retrieval or the use of a memory."""
        attributes = span.attributes
        stores = ("gen_ai.data_source.id", "gen_ai.memory.store.name", "gen_ai.memory.store.id")
        query = _opened(_first(attributes, "gen_ai.retrieval.query.text", "gen_ai.memory.query.text"))
        value = _opened(_first(attributes, "gen_ai.retrieval.documents", "gen_ai.memory.records"))
        arguments: dict[str, Any] = {} if query is None else {"query": query}
        if span.kind != "retrieval":
            arguments["key"] = _text(attributes.get("gen_ai.memory.record.id")) or "*"
        if span.kind == "memory_write":
            arguments["value"], value = value, None
        effect: Effect = "write" if span.kind == "memory_write" else "read"
        assert span.kind is not None
        name = _text(_first(attributes, *stores)) or "default"
        self._add(span, span.kind, name, arguments, value=value, effect=effect)

    def _ending(self) -> None:
        """How the run ended, where the span of its outermost agent tells."""
        outermost = [span for span in self._spans if span.kind == "delegation" and self._caller(span) is None]
        if not outermost or any(span.end is None for span in outermost):
            return
        last = max(outermost, key=lambda span: span.end or 0)
        end = cast(int, last.end)
        failure = _failure(last)
        if not failure:
            self._put(last, end, end, "final_response", "answer", {"answer": self._answer(last)})
            return
        stopped = failure["error_type"].rpartition(".")[2] in _HORIZONS
        self._put(last, end, end, "termination", "horizon" if stopped else "exception", {}, agent=HARNESS, **failure)


def _agent_name(span: _Span) -> str:
    attributes = span.attributes
    found = _first(attributes, "gen_ai.agent.name", "agent_name")
    if found is None and span.kind == "delegation":
        found = attributes.get("traceloop.entity.name") or span.name.removeprefix("invoke_agent").strip()
        found = found or attributes.get("gen_ai.agent.id")
    return _text(found)


def _failure(span: _Span) -> dict[str, Any]:
    """The error of a span as RecordMaker takes it; nothing where it went well."""
    if span.end is None:
        return {"cancelled": True}
    if not span.failed:
        return {}
    raised: Mapping[str, Any] = next((found for name, found in reversed(span.events) if name == "exception"), {})
    message = span.status or _text(raised.get("exception.message"))
    named = re.match(r"([A-Za-z_][A-Za-z0-9_.]*): ", message)
    stated = _first(span.attributes, "error.type") or raised.get("exception.type") or (named[1] if named else "Error")
    plain = _text(stated).lower().replace("_", "")
    kind = next((kind for part, kind in _ERROR_KINDS if part in plain), "")
    return {"error": message, "error_type": _text(stated), "error_kind": kind}


def _usage(attributes: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name, ours in _USAGE.items():
        value = _first(attributes, f"gen_ai.usage.{name}", f"llm.usage.{name}")
        if isinstance(value, int) and not isinstance(value, bool):
            found[ours] = value
    return found


def _finish(attributes: Mapping[str, Any]) -> Message | None:
    """What is known of a reply whose content was not captured."""
    reasons = attributes.get("gen_ai.response.finish_reasons")
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return {"role": "assistant", "finish_reason": _text(reason)} if reason else None


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _opened(value: Any) -> Any:
    """A text that is a JSON object or array as that; any other text stays a text, for "12" may be an id."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _named(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping):
        return arguments
    return {} if arguments is None or arguments == "" else {"input": arguments}


# -- messages in all their forms --------------------------------------------------------------------------------------

_SPOKEN: Final = re.compile(r"^gen_ai\.(system|user|assistant|tool)\.message$")


def _contents(span: _Span) -> tuple[list[Message], list[Message]]:
    """The messages a model or an agent was given and those it gave, as far as they were captured."""
    inputs, outputs = _whole(span.attributes)
    if span.kind == "delegation" and not (inputs or outputs):
        inputs = _messages(span.attributes.get("pydantic_ai.all_messages") or span.attributes.get("all_messages_events"))
        outputs = [message for message in inputs if message["role"] == "assistant"][-1:]
    events = span.events
    listed = _opened(span.attributes.get("events"))
    if isinstance(listed, list):
        events = events + [(_text(item.get("event.name")), item) for item in listed if isinstance(item, Mapping)]
    told, said = _from_events(events)
    flat = _flat(span.attributes, "gen_ai.prompt."), _flat(span.attributes, "gen_ai.completion.")
    return inputs or told or flat[0], outputs or said or flat[1]


def _whole(attributes: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    given = _messages(attributes.get("gen_ai.input.messages"))
    system = _opened(attributes.get("gen_ai.system_instructions"))
    if system and not any(message["role"] == "system" for message in given):
        given = [*_messages([{"role": "system", "parts": system if isinstance(system, list) else [system]}]), *given]
    return given, _messages(attributes.get("gen_ai.output.messages"), role="assistant")


def _from_events(events: Iterable[_Event]) -> tuple[list[Message], list[Message]]:
    inputs: list[Message] = []
    outputs: list[Message] = []
    for name, attributes in events:
        spoken = _SPOKEN.match(name)
        if spoken:
            inputs += _messages([dict(attributes)], role=spoken[1])
        elif name == "gen_ai.choice":
            outputs += _messages([dict(attributes)], role="assistant")
        elif name == "gen_ai.content.prompt":
            inputs += _messages(attributes.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            outputs += _messages(attributes.get("gen_ai.completion"), role="assistant")
        elif name == "gen_ai.client.inference.operation.details":
            whole = _whole(attributes)
            inputs, outputs = inputs + whole[0], outputs + whole[1]
    return inputs, outputs


def _flat(attributes: Mapping[str, Any], prefix: str) -> list[Message]:
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
    return _messages([found[number] for number in sorted(found)], role=role)


def _messages(given: Any, *, role: str = "user") -> list[Message]:
    given = _opened(given)
    if isinstance(given, str) and given:
        given = [{"content": given}]
    if isinstance(given, Mapping):
        given = [given]
    return [_message(item, role) for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []


def _message(given: Mapping[str, Any], role: str) -> Message:
    """One message, whichever convention wrote it, in the one form that records hold."""
    inner = _opened(given.get("message"))
    if isinstance(inner, Mapping):  # a choice: index, finish_reason, message
        given = {**given, **inner}
    message: Message = {"role": _text(given.get("role")) or role}
    parts = given.get("parts") if isinstance(given.get("parts"), list) else _opened(given.get("content"))
    texts: list[str] = []
    calls = [_call(item) for item in _list(given.get("tool_calls")) if isinstance(item, Mapping)]
    results: list[dict[str, Any]] = []
    if message["role"] == "tool" and not isinstance(given.get("parts"), list):
        results.append({"id": _text(_first(given, "tool_call_id", "id")), "value": parts})
    elif isinstance(parts, list):
        for part in parts:
            _take(part, texts, calls, results)
    elif parts is not None:
        texts.append(parts if isinstance(parts, str) else json.dumps(parts, sort_keys=True))
    if texts:
        message["content"] = "\n".join(texts)
    for name, found in (("tool_calls", calls), ("tool_results", results), ("finish_reason", given.get("finish_reason"))):
        if found:
            message[name] = found
    return message


def _take(part: Any, texts: list[str], calls: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    if isinstance(part, str):
        texts.append(part)
    elif isinstance(part, Mapping):
        kind = part.get("type") or part.get("kind")
        if kind == "tool_call":
            calls.append(_call(part))
        elif kind == "tool_call_response":
            value = _first(part, "response", "result", "content")
            results.append({"id": _text(part.get("id")), "value": _opened(value)})
        elif kind in ("text", None):
            text = _first(part, "content", "text")
            if isinstance(text, str):
                texts.append(text)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = item.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else item
    return {
        "id": _text(item.get("id")), "name": _text(inner.get("name")) or "tool", "arguments": _opened(inner.get("arguments"))
    }  # fmt: skip


def _list(value: Any) -> list[Any]:
    opened = _opened(value)
    return opened if isinstance(opened, list) else []


FORMAT: Final = Format(name="otlp", text="OTLP/JSON spans of the GenAI semantic conventions", accepts=_accepts, traces=_traces)
