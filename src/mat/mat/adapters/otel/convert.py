"""Convert spans of the GenAI conventions, in any version, to records: a whole trace at once, or span by span as they end.

A span is converted as follows:

    chat, generate_content, text_completion, embeddings    model_call, named after the requested model, with token usage
    execute_tool                                           tool_call; arguments and result if they were captured
    invoke_agent inside another agent's                    delegation, sealed at once: that agent's steps come after it; its
                                                           answer or error is a message back to the delegator
    invoke_agent outside                                   names the agent; at the end of the last one, a final_response, or
                                                           a termination: exception, or horizon at a limit of turns
    retrieval; search_memory; update_memory ...            retrieval; memory_read; memory_write
    anything else                                          only names the agent; labels count it as `spans_left_out`

A user's text in a model's input is a message from "user" when it first appears. If a model asked for a tool call, a later input
has its response, and it has no span of its own, it becomes a tool_call between the two. Other attributes are left out.

The agent is the nearest `gen_ai.agent.name` upwards, else "main". Time counts from the first span; spans that overlap are
concurrent. A span with status ERROR is an error, or was cancelled if its error says so; a span without an end is cancelled. No
span says what a tool does: it reads if its name begins with a verb of READ_VERBS, and writes otherwise, because too much
caution costs a needless finding and too little hides one.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from mat.adapters.agentdojo import HIGH_WORDS
from mat.adapters.importers.base import HARNESS, RecordMaker, interleave
from mat.adapters.otel.messages import contents
from mat.adapters.otel.span import Span, SpanMessage, first, opened, text_of
from mat.core.record import ActionKind, DeclaredEffect, Impact, Record
from mat.core.verbs import READING_VERBS, sounds_like_reading, words_of

__all__ = ["READ_VERBS", "Conversion", "EffectOf", "effect_of"]

READ_VERBS: Final = READING_VERBS
EffectOf: TypeAlias = Callable[[str], tuple[DeclaredEffect, Impact]]
"""A function from a tool's name to its effect and impact."""
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
"""Part of an error's type (in lower case, without underscores) -> error kind. The first match counts."""
_HORIZONS: Final = frozenset(
    {"UsageLimitExceeded", "MaxTurnsExceeded", "GraphRecursionError", "MaxIterationsExceeded", "MaxStepsError"}
)
"""Errors that frameworks raise when a run reaches its limit of turns."""
_CANCELLED: Final = frozenset({"cancelled", "CancelledError", "Cancelled", "GeneratorExit"})
"""Errors of calls that were cancelled from outside."""


def effect_of(tool: str) -> tuple[DeclaredEffect, Impact]:
    """The effect and impact of a tool, guessed from its name."""
    if sounds_like_reading(tool):
        return "read", "low"
    return "write", "high" if HIGH_WORDS & set(words_of(tool)) else "low"


@dataclass(slots=True, eq=False)
class _Item:
    """A future record: the arguments of RecordMaker.add, and when it was asked and sealed, in nanoseconds."""

    start: int
    end: int
    kind: ActionKind
    name: str
    arguments: Mapping[str, Any]
    more: dict[str, Any]
    source: str

    @property
    def order(self) -> tuple[int, bool]:
        """The sort key: items without duration come before others."""
        return self.start, self.end > self.start


class Conversion:
    """Turns the spans of one trace into records.

    For a whole trace: `add` every span, in any order, then `finish`. For spans as they end: `begin` each span that has begun,
    `add` each that has ended, and `advance` to take the records that no open span can precede. If spans come in the order of
    their times, both give the same records; otherwise the conversion of the whole trace is right.
    """

    def __init__(self, effects: EffectOf = effect_of) -> None:
        self._effects = effects
        self._ended: dict[str, Span] = {}
        self._begun: dict[str, Span] = {}
        self._unplaced: list[Span] = []
        self._waiting: list[tuple[int, float, int, Span]] = []
        self._added = 0
        self._first: int | None = None
        self._last = 0
        self._agents: dict[Span, str] = {}
        self._callers: dict[Span, Span | None] = {}
        self._outermost: list[Span] = []
        self._calls: dict[str, list[Span]] = {}
        self._user_texts: dict[str, Counter[str]] = {}
        self._asked: dict[str, tuple[Span, SpanMessage]] = {}
        self._executed: set[str] = set()
        self._answered: set[str] = set()
        self._items: list[_Item] = []
        self._maker = RecordMaker()
        self.gaps: Counter[str] = Counter()
        """The facts that spans lacked: code of `unknown` -> count."""

    @property
    def sources(self) -> tuple[Any, ...]:
        """The span of each record so far, by its id."""
        return tuple(self._maker.source_steps)

    def begin(self, span: Span) -> None:
        """Note a span that has begun and may be the parent of others."""
        self._begun[span.id] = span
        self._first = span.start if self._first is None else min(self._first, span.start)

    def add(self, span: Span) -> None:
        """Add a span that has ended, or that never will."""
        self._begun.pop(span.id, None)
        known = self._ended.get(span.id)
        if known is None or span.start >= known.start:
            self._ended[span.id] = span
        if self._first is None or span.start < self._first:
            self._first = span.start
        self._last = max(self._last, span.start if span.end is None else span.end)
        self._unplaced.append(span)
        # of spans that begin together, the longest contains the others
        heapq.heappush(self._waiting, (span.start, float("-inf") if span.end is None else -span.end, self._added, span))
        self._added += 1

    def advance(self, until: int | None) -> list[Record]:
        """The records of spans that begin before `until` (None: all spans), as far as no later span can come before them."""
        self._make_items(until)
        return self._records(until)

    def finish(self) -> tuple[Record, ...]:
        """All records, with how the trace ended. Call once."""
        self._make_items(None)
        self._ending()
        self._records(None)
        return tuple(self._maker.records)

    def _make_items(self, until: int | None) -> None:
        """Turn the added spans that begin before `until` into items, in the order of their begin."""
        for span in self._unplaced:
            self._place(span)
            if span.kind == "model_call":
                caller = self._callers[span]
                self._calls.setdefault("" if caller is None else caller.id, []).append(span)
            elif span.kind == "tool_call":
                self._executed.add(text_of(span.attributes.get("gen_ai.tool.call.id")))
        self._unplaced = []
        while self._waiting and (until is None or self._waiting[0][0] < until):
            self._convert(heapq.heappop(self._waiting)[3])

    def _convert(self, span: Span) -> None:
        if span.end is None:
            self.gaps["ends"] += 1
        if span.kind is None:
            self.gaps["spans_left_out"] += 1
        elif span.kind == "delegation":
            self._agent_span(span)
        elif span.kind == "model_call":
            self._user_messages(span)
            self._unseen_tools(span)
            self._model_call(span)
        elif span.kind == "tool_call":
            self._tool_call(span)
        else:
            self._store_call(span)

    # -- records ------------------------------------------------------------------------------------------------------

    def _records(self, until: int | None) -> list[Record]:
        """The records of all items up to a moment at which no item is in progress, in ask order."""
        self._items.sort(key=lambda item: item.order)
        count, latest = 0, 0
        for index, item in enumerate(self._items, 1):
            latest = max(latest, item.end)
            if until is not None and latest > until:
                break
            if index == len(self._items) or latest <= self._items[index].start:
                count = index
        batch, self._items = self._items[:count], self._items[count:]
        begin, sequence = self._first or 0, 2 * len(self._maker.records)
        made = []
        for item, (asked, sealed) in zip(batch, interleave([(item.start, item.end) for item in batch]), strict=True):
            record = self._maker.add(
                item.kind, item.name, item.arguments, at_ms=max(0, item.start - begin) // 1_000_000,
                sealed_ms=max(0, item.end - begin) // 1_000_000, asked_seq=sequence + asked, sealed_seq=sequence + sealed,
                source=item.source, **item.more,
            )  # fmt: skip
            made.append(record)
        return made

    def _add(self, span: Span, kind: ActionKind, name: str, arguments: Mapping[str, Any], **more: Any) -> None:
        end = self._last if span.end is None else span.end
        self._put(span, span.start, end, kind, name, arguments, **{**_failure(span), **more})

    def _put(
        self, span: Span, start: int, end: int, kind: ActionKind, name: str, arguments: Mapping[str, Any], **more: Any
    ) -> None:
        more.setdefault("agent", self._agents[span])
        self._items.append(_Item(start, max(start, end), kind, name, arguments, more, span.id))

    # -- who acts -----------------------------------------------------------------------------------------------------

    def _place(self, span: Span) -> None:
        """Find the agent that acts in a span, and the agent's span around it, from the known parents.

        Each span is visited once, however deep they nest; a circle of parents is cut where it closes.
        """
        path: dict[Span, None] = {}
        above: Span | None = span
        while above is not None and above not in self._agents and above not in path:
            path[above] = None
            above = (self._ended.get(above.parent) or self._begun.get(above.parent)) if above.parent else None
        if above is not None and above in path:
            above = None
        for here in reversed(path):
            around = above if above is None or above.kind == "delegation" else self._callers[above]
            self._callers[here] = around
            self._agents[here] = _agent_name(here) or ("main" if above is None else self._agents[above])
            if here.kind == "delegation" and around is None:
                self._outermost.append(here)
            above = here

    def _conversation(self, span: Span) -> Counter[str]:
        """The user's texts so far for the agent that acts in a span."""
        agent = span if span.kind == "delegation" else self._callers[span]
        return self._user_texts.setdefault("" if agent is None else agent.id, Counter())

    # -- spans --------------------------------------------------------------------------------------------------------

    def _read(self, span: Span) -> tuple[list[SpanMessage], list[SpanMessage]]:
        """Read the input and output of a span's agent or model."""
        if span.read is None:
            span.read = contents(span)
        return span.read

    def _agent_span(self, span: Span) -> None:
        caller = self._callers[span]
        if caller is None:
            return
        inputs, _ = self._read(span)
        if not inputs:
            inputs = next((self._read(inner)[0] for inner in self._model_spans(span)), [])
        task = next((message["content"] for message in inputs if message["role"] == "user" and "content" in message), "")
        self.gaps["tasks"] += not task
        self._conversation(span)[task] += 1  # the task is not a message of the user
        name, delegator = self._agents[span], self._agents[caller]
        arguments = {"task": task, "delegator": delegator}
        self._put(span, span.start, span.start, "delegation", name, arguments, agent=delegator, value=task)
        answer, failure = self._answer(span), _failure(span)
        if span.end is not None and (answer is not None or failure):
            self._put(
                span, span.end, span.end, "message", delegator, {"text": "" if answer is None else answer, "sender": name},
                value=None if failure else answer, **failure,
            )  # fmt: skip

    def _model_spans(self, span: Span) -> Iterable[Span]:
        """The model calls of an agent in the order of their begin, without those of its delegates."""
        return sorted(self._calls.get(span.id, ()), key=lambda inner: inner.start) if span.id else ()

    def _answer(self, span: Span) -> Any:
        """The final answer of an agent; None if it was not recorded."""
        result = span.attributes.get("final_result")
        if result is not None:
            return opened(result)
        outputs = self._read(span)[1]
        if not outputs:
            outputs = next((self._read(inner)[1] for inner in reversed(tuple(self._model_spans(span)))), [])
        return next((message["content"] for message in reversed(outputs) if "content" in message), None)

    def _user_messages(self, span: Span) -> None:
        """The user's messages that were not in an earlier input of this conversation."""
        earlier, here = self._conversation(span), Counter[str]()
        for message in self._read(span)[0]:
            text = message.get("content")
            if message["role"] != "user" or not isinstance(text, str):
                continue
            here[text] += 1
            if here[text] > earlier[text]:
                earlier[text] += 1
                arguments = {"text": text, "sender": "user"}
                self._put(span, span.start, span.start, "message", "user", arguments, value=text, boundary="prompt")

    def _unseen_tools(self, span: Span) -> None:
        """Tool calls that only occur in messages: requested by an earlier model call, answered in the input of this one."""
        for message in self._read(span)[0]:
            for result in message.get("tool_results", ()):
                key = result["id"]
                if key in self._asked and key not in self._executed and key not in self._answered:
                    self._answered.add(key)
                    self.gaps["unseen_tools"] += 1
                    asker, call = self._asked[key]
                    effect, impact = self._effects(call["name"])
                    begun = min(asker.end or span.start, span.start)
                    self._put(
                        asker, begun, span.start, "tool_call", call["name"], _mapping(call["arguments"]), value=result["value"],
                        effect=effect, impact=impact,
                    )  # fmt: skip

    def _model_call(self, span: Span) -> None:
        attributes = span.attributes
        inputs, outputs = self._read(span)
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
        usage, failure = _usage(attributes), _failure(span)
        self.gaps["inputs"] += not inputs
        self.gaps["outputs"] += not outputs and not failure
        self.gaps["usage"] += not usage and not failure
        self._add(
            span, "model_call", text_of(model) or span.name or "model", arguments, usage=usage,
            value=outputs[0] if len(outputs) == 1 else outputs or _finish(attributes),
        )  # fmt: skip

    def _tool_call(self, span: Span) -> None:
        attributes = span.attributes
        name = attributes.get("gen_ai.tool.name") or attributes.get("traceloop.entity.name")
        name = text_of(name) or span.name.removeprefix("execute_tool ") or "tool"
        names = ("gen_ai.tool.call.arguments", "tool_arguments", "gen_ai.tool.arguments", "traceloop.entity.input")
        given = first(attributes, *names)
        if given is None:  # the model that asked for it may have been recorded with it
            given = self._asked.get(text_of(attributes.get("gen_ai.tool.call.id")), (span, {"arguments": None}))[1]["arguments"]
        result = first(attributes, "gen_ai.tool.call.result", "tool_response", "gen_ai.tool.result", "traceloop.entity.output")
        self.gaps["arguments"] += given is None
        self.gaps["results"] += result is None and not _failure(span)
        effect, impact = self._effects(name)
        self._add(span, "tool_call", name, _mapping(opened(given)), value=opened(result), effect=effect, impact=impact)

    def _store_call(self, span: Span) -> None:
        """A retrieval or the use of a memory."""
        attributes = span.attributes
        stores = ("gen_ai.data_source.id", "gen_ai.memory.store.name", "gen_ai.memory.store.id")
        query = opened(first(attributes, "gen_ai.retrieval.query.text", "gen_ai.memory.query.text"))
        value = opened(first(attributes, "gen_ai.retrieval.documents", "gen_ai.memory.records"))
        arguments: dict[str, Any] = {} if query is None else {"query": query}
        self.gaps["stored"] += value is None and not _failure(span)
        if span.kind != "retrieval":
            arguments["key"] = text_of(attributes.get("gen_ai.memory.record.id")) or "*"
        if span.kind == "memory_write":
            arguments["value"], value = value, None
        effect: DeclaredEffect = "write" if span.kind == "memory_write" else "read"
        assert span.kind is not None
        name = text_of(first(attributes, *stores)) or "default"
        self._add(span, span.kind, name, arguments, value=value, effect=effect)

    def _ending(self) -> None:
        """How the run ended, if the span of its outermost agent says so."""
        outermost = sorted(self._outermost, key=lambda span: span.start)
        if not outermost or any(span.end is None for span in outermost):
            return
        last = max(outermost, key=lambda span: span.end or 0)
        end = cast(int, last.end)
        failure = _failure(last)
        if not failure:
            answer = self._answer(last)
            self.gaps["answer"] += answer is None
            self._put(last, end, end, "final_response", "answer", {"answer": answer})
            return
        stopped = failure.get("error_type", "").rpartition(".")[2] in _HORIZONS
        self._put(last, end, end, "termination", "horizon" if stopped else "exception", {}, agent=HARNESS, **failure)


def _agent_name(span: Span) -> str:
    attributes = span.attributes
    found = first(attributes, "gen_ai.agent.name", "agent_name")
    if found is None and span.kind == "delegation":
        found = attributes.get("traceloop.entity.name") or span.name.removeprefix("invoke_agent").strip()
        found = found or attributes.get("gen_ai.agent.id")
    return text_of(found)


def _failure(span: Span) -> dict[str, Any]:
    """The error of a span as arguments for RecordMaker; empty without an error."""
    if span.end is None:
        return {"cancelled": True}
    if not span.failed:
        return {}
    raised: Mapping[str, Any] = next((found for name, found in reversed(span.events) if name == "exception"), {})
    message = span.status or text_of(raised.get("exception.message"))
    named = re.match(r"([A-Za-z_][A-Za-z0-9_.]*): ", message)
    stated = text_of(first(span.attributes, "error.type") or raised.get("exception.type") or (named[1] if named else "Error"))
    if stated.rpartition(".")[2] in _CANCELLED:
        return {"cancelled": True}
    plain = stated.lower().replace("_", "")
    kind = next((kind for part, kind in _ERROR_KINDS if part in plain), "")
    return {"error": message, "error_type": stated, "error_kind": kind}


def _usage(attributes: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name, ours in _USAGE.items():
        value = first(attributes, f"gen_ai.usage.{name}", f"llm.usage.{name}")
        if isinstance(value, int) and not isinstance(value, bool):
            found[ours] = value
    return found


def _finish(attributes: Mapping[str, Any]) -> SpanMessage | None:
    """The known facts of a reply whose content was not captured."""
    reasons = attributes.get("gen_ai.response.finish_reasons")
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return {"role": "assistant", "finish_reason": text_of(reason)} if reason else None


def _mapping(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping):
        return arguments
    return {} if arguments is None or arguments == "" else {"input": arguments}
