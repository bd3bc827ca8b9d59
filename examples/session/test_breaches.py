"""Every guarantee is broken once, by a switch in the session or an edit of its trace, and exactly its contract reports it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pytest

import mat
from mat.core.record import ErrorFact, Observation, Record
from mat.core.redact import hashed
from mat.core.value import FrozenDict, snapshot, thaw
from mat.monitor.judge import judge
from session.checking import check
from session.contracts import BY_ID, GUARANTEES, SessionConfig, Target, session_contracts
from session.orchestrator import NOTICE, Keeps
from session.provider import Says
from session.scenarios import SCENARIOS, Scenario, search

Trace = tuple[Record, ...]
Edit = Callable[[Trace], Trace]
GONE: Final = object()


# -- edits of a trace --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The nth record of a kind and name whose value (an entry, a message) has these fields. Negative: from the end."""

    kind: str
    name: str
    nth: int = 0
    fields: tuple[tuple[str, Any], ...] = ()

    def index(self, trace: Trace) -> int:
        found = [
            index
            for index, record in enumerate(trace)
            if record.action.kind == self.kind
            and self.name in ("", record.action.name)
            and all((record.action.arguments.get("value") or {}).get(key) == item for key, item in self.fields)
        ]
        return found[self.nth]


def asked(nth: int = 0) -> Where:
    return Where(kind="model_call", name="llm", nth=nth)


def ran(nth: int = 0, name: str = "") -> Where:
    return Where(kind="tool_call", name=name, nth=nth)


def said(nth: int, role: str) -> Where:
    return Where(kind="memory_write", name="conversation", nth=nth, fields=(("role", role),))


def billed(nth: int, kind: str) -> Where:
    return Where(kind="memory_write", name="accounting", nth=nth, fields=(("type", kind),))


def logged(nth: int, event: str) -> Where:
    return Where(kind="memory_write", name="log", nth=nth, fields=(("event", event),))


ENDED: Final = Where(kind="final_response", name="")
FAILED: Final = Where(kind="termination", name="")


def renumbered(records: Iterable[Record]) -> Trace:
    return tuple(replace(record, step=step) for step, record in enumerate(records))


def changed(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """A copy with one part replaced; `new` may be a function of the old part, or GONE."""
    copy = thaw(value)
    inner = copy
    for name in path[:-1]:
        inner = inner[int(name) if isinstance(inner, list) else name]
    last: Any = int(path[-1]) if isinstance(inner, list) else path[-1]
    if new is GONE:
        del inner[last]
    else:
        inner[last] = new(inner[last]) if callable(new) else new
    return snapshot(copy)


def put(where: Where, path: str, new: Any) -> Edit:
    """Change a part of a record: of its arguments, or of its reply where the path begins with `reply`."""

    def edit(trace: Trace) -> Trace:
        index = where.index(trace)
        record, parts = trace[index], tuple(path.split("."))
        if parts[0] == "reply":
            value = changed(record.observation.value, parts[1:], new) if parts[1:] else snapshot(new)
            new_record = replace(record, observation=replace(record.observation, value=value))
        else:
            new_record = replace(record, action=replace(record.action, arguments=changed(record.action.arguments, parts, new)))
        return (*trace[:index], new_record, *trace[index + 1 :])

    return edit


def value(where: Where, path: str, new: Any) -> Edit:
    """Change a part of an entry or a message."""
    return put(where, f"value.{path}", new)


def answer(path: str, new: Any, where: Where = ENDED) -> Edit:
    """Change a part of the result."""
    return put(where, f"answer.{path}", new)


def without(where: Where) -> Edit:
    def edit(trace: Trace) -> Trace:
        index = where.index(trace)
        return renumbered((*trace[:index], *trace[index + 1 :]))

    return edit


def repeated(where: Where, before: Where | None = None, **new: Any) -> Edit:
    """The record once more, with other arguments, in front of another record or behind itself."""

    def edit(trace: Trace) -> Trace:
        index = where.index(trace)
        arguments = FrozenDict({**trace[index].action.arguments, **{name: snapshot(item) for name, item in new.items()}})
        copy = replace(trace[index], action=replace(trace[index].action, arguments=arguments))
        at = index + 1 if before is None else before.index(trace)
        return renumbered((*trace[:at], copy, *trace[at:]))

    return edit


def moved(where: Where, before: Where) -> Edit:
    """A record put in front of another one."""

    def edit(trace: Trace) -> Trace:
        index = where.index(trace)
        record, rest = trace[index], (*trace[:index], *trace[index + 1 :])
        at = before.index(rest)
        return renumbered((*rest[:at], record, *rest[at:]))

    return edit


def longer(where: Where, ms: int) -> Edit:
    """A record that took longer, as did its accounting."""

    def edit(trace: Trace) -> Trace:
        index = where.index(trace)
        return (*trace[:index], replace(trace[index], sealed_ms=trace[index].sealed_ms + ms), *trace[index + 1 :])

    return edit


def errs(where: Where, kind: str) -> Edit:
    """A call with an error instead of its reply."""

    def edit(trace: Trace) -> Trace:
        index = where.index(trace)
        fact = ErrorFact(type="Error", message=kind, kind=kind)
        return (*trace[:index], replace(trace[index], observation=Observation(error=fact)), *trace[index + 1 :])

    return edit


def all_of(*edits: Edit) -> Edit:
    return lambda trace: functools.reduce(lambda found, edit: edit(found), edits, trace)


def every_request(path: str, new: Any) -> Edit:
    def edit(trace: Trace) -> Trace:
        count = sum(record.action.kind == "model_call" for record in trace)
        return all_of(*(put(asked(nth), path, new) for nth in range(count)))(trace)

    return edit


def told(old: str, new: str) -> Callable[[Any], Any]:
    """Change a text in the last message of a request."""

    def change(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert old in messages[-1]["content"], messages[-1]["content"]
        return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"].replace(old, new)}]

    return change


def at_the_limit() -> Scenario:
    """The plain session whose first request is projected to exactly the limit."""
    plain = SCENARIOS["plain"]
    with mat.run() as run:
        plain.run("native")
    counters = next(record for record in run.trace if record.action.kind == "model_call").action.arguments["session"]["context"]
    total = counters["current"] + counters["pending"] + counters["schema"]
    return replace(plain, changes={"context_window": total + 2_000})


# -- the table ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One guarantee broken: in a scenario and transport, by promises not kept or by an edit of the trace."""

    contract: str
    name: str
    scenario: str | Scenario = "plain"
    transport: str = "native"
    broken: tuple[str, ...] = ()
    edit: Edit | None = None
    config: dict[str, Any] | None = None

    @property
    def played(self) -> Scenario:
        return SCENARIOS[self.scenario] if isinstance(self.scenario, str) else self.scenario

    def judged_by(self) -> SessionConfig:
        config = self.played.config(self.transport)
        return replace(config, **self.config) if self.config else config


def switch(contract: str, promise: str, scenario: str | Scenario, transport: str = "native", **more: Any) -> Breach:
    return Breach(
        contract=f"session.{contract}",
        name=f"{promise} is not kept",
        scenario=scenario,
        transport=transport,
        broken=(promise,),
        **more,
    )


def edited(
    contract: str, name: str, edit: Edit, scenario: str | Scenario = "plain", transport: str = "native", **more: Any
) -> Breach:
    return Breach(contract=f"session.{contract}", name=name, scenario=scenario, transport=transport, edit=edit, **more)


FOUR_TURNS: Final = replace(SCENARIOS["turns used up"], changes={"max_turns": 3})
AT_THE_LIMIT: Final = at_the_limit()
ALONE: Final = replace(SCENARIOS["network"], changes={"targets": (Target(provider="alpha", model="a1"),)})
TRUNCATED: Final = "[TRUNCATED] Original size 1800 bytes; truncated to 1024 bytes."
LOAD: Final = {
    "layers": [
        {
            "source": "cwd",
            "path": "/a/.ai-agent.json",
            "env": {"HOST": "inner"},
            "values": {
                "temperature": 0.5,
                "providers": {"alpha": {"url": "http://${HOST}/${USER_NAME}"}},
                "queues": {"web": {"concurrent": 2}},
                "restTools": {"find": {"queue": "web", "body": "q=${parameters.q}"}},
            },
        },
        {
            "source": "home",
            "path": "/h/ai-agent.json",
            "env": {},
            "values": {
                "temperature": 0.9,
                "top_p": 0.8,
                "providers": {"alpha": {"url": "other", "limit": 3}},
                "mcpServers": {"web": {"env": {"X": "${HOST}"}, "queue": "web"}},
            },
        },
    ],
    "process_env": {"HOST": "outer", "USER_NAME": "ann"},
    "merged": {
        "temperature": 0.5,
        "top_p": 0.8,
        "providers": {"alpha": {"url": "http://inner/ann", "limit": 3}},
        "queues": {"web": {"concurrent": 2}, "default": {"concurrent": 4}},
        "restTools": {"find": {"queue": "web", "body": "q=${parameters.q}"}},
        "mcpServers": {"web": {"env": {"X": "${HOST}"}, "queue": "web"}},
    },
}
REFUSED: Final = {
    "category": "configuration",
    "name": "MissingVariableError",
    "message": "NOPE in layer /a/.ai-agent.json is not defined",
}


def loading(event: dict[str, Any]) -> Edit:
    """A session whose configuration was loaded like this."""

    def edit(trace: Trace) -> Trace:
        arguments = FrozenDict({"key": "load", "value": snapshot(event)})
        return renumbered(
            (replace(trace[0], action=replace(trace[0].action, name="configuration", arguments=arguments)), *trace)
        )

    return edit


def refusal(error: dict[str, Any], exit_code: int, values: dict[str, Any] | None = None) -> Edit:
    """A session that did not start: its configuration failed like this, and the command exited with this code."""

    def edit(trace: Trace) -> Trace:
        layer = {"source": "cwd", "path": "/a/.ai-agent.json", "env": {}, "values": values or {"x": "${NOPE}"}}
        head = loading({"layers": [layer], "process_env": {}, "error": error})(trace)[0]
        said = FrozenDict({"answer": snapshot({"success": False, "error": error["message"], "exitCode": exit_code})})
        return renumbered((head, replace(trace[-1], action=replace(trace[-1].action, arguments=said))))

    return edit


def load(contract: str, name: str, path: str, new: Any, *more: tuple[str, Any]) -> Breach:
    event: Any = snapshot(LOAD)
    for part, item in ((path, new), *more):
        event = changed(event, tuple(part.split(".")), item)
    return edited(f"configuration.{contract}", name, loading(event), "at once")


BREACHES: Final[tuple[Breach, ...]] = (
    # limits
    switch("limits.max_turns", "max_turns", FOUR_TURNS),
    edited(
        "limits.max_turns",
        "four assistant messages with maxTurns 3",
        lambda trace: trace,
        "turns used up",
        config={"max_turns": 3},
    ),
    edited("limits.retry_is_not_a_turn", "a retry begins the next turn", put(asked(-1), "session.turn", 3), ALONE),
    switch("limits.retry_is_not_a_turn", "retries_are_no_turns", "failed turns"),
    switch("limits.max_retries", "max_retries", "failed turns"),
    switch("limits.empty_counts_as_attempt", "empties_count", "empty to the end"),
    switch("limits.round_robin", "round_robin", "network"),
    switch("limits.max_tool_calls", "call_limit", "excess calls"),
    switch("limits.excess_calls_told", "tells_excess", "excess calls"),
    # tools
    switch("tools.truncation", "truncates", "truncation"),
    switch("tools.truncation", "truncates", "truncation", "xml"),
    edited(
        "tools.truncation",
        "the notice has another size",
        value(said(0, "tool"), "content", lambda old: old.replace("1800", "1700")),
        "truncation",
    ),
    edited(
        "tools.truncation",
        "the notice is worded differently",
        value(said(0, "tool"), "content", lambda old: old.replace("[TRUNCATED] Original size", "[TRUNCATED] original size")),
        "truncation",
    ),
    edited(
        "tools.truncation",
        "more is kept than the notice says",
        value(said(0, "tool"), "content", lambda old: old + "ä" * 9),
        "truncation",
    ),
    edited(
        "tools.batch_not_truncated",
        "the batch is cut as a whole",
        value(said(0, "tool"), "content", f"{TRUNCATED}\n{'x' * 1024}"),
        "batch",
    ),
    edited(
        "tools.batch_items_truncated",
        "a part of the batch is not cut",
        value(
            said(0, "tool"),
            "content",
            lambda old: old.replace("[TRUNCATED] Original size 1800 bytes; truncated to 1024 bytes.", "y" * 80),
        ),
        "batch",
    ),
    switch("tools.timeout_aborts", "times_out", "timeout"),
    edited("tools.timeout_accounted", "the time-out is accounted as ok", value(billed(-2, "tool"), "status", "ok"), "timeout"),
    edited(
        "tools.timeout_text",
        "another text for a time-out",
        value(said(-1, "tool"), "content", "(tool failed: took too long)"),
        "timeout",
    ),
    edited("tools.arguments_as_sent", "other arguments reach the tool", put(ran(0, "search"), "arguments.query", "teapots")),
    edited(
        "tools.arguments_repaired",
        "a repair that changes the meaning",
        put(ran(0, "search"), "arguments.query", "teapots"),
        "repaired arguments",
    ),
    switch("tools.arguments_repaired", "repairs", "repaired arguments"),
    edited(
        "tools.unparsable_dropped",
        "unreadable arguments run",
        all_of(repeated(ran(0, "search"), call_id="call-2", arguments={}), repeated(billed(0, "tool"))),
        "unreadable arguments",
    ),
    switch("tools.invalid_dropped", "checks_parameters", "invalid parameters"),
    edited("tools.unparsable_told", "silence about unreadable arguments", without(said(0, "tool")), "unreadable arguments"),
    edited("tools.invalid_told", "silence about invalid parameters", without(said(0, "tool")), "invalid parameters"),
    edited(
        "tools.valid_calls_run",
        "the whole reply is dropped",
        all_of(without(ran(0, "search")), without(billed(0, "tool")), without(said(1, "tool"))),
        "unreadable arguments",
    ),
    switch("tools.report_failure_collapses", "collapses", "report refused twice"),
    switch("tools.queue_concurrency", "slots", "queue"),
    switch("tools.queue_waits", "waits_for_slots", "queue"),
    # context
    edited(
        "context.window_respected",
        "the provider refuses the prompt",
        all_of(
            put(asked(1), "reply", {"error": {"kind": "context", "message": "maximum context length exceeded"}}),
            value(billed(1, "llm"), "error", "maximum context length exceeded"),
        ),
        "a failed turn, then an answer",
    ),
    edited(
        "context.window_respected",
        "the prompt is larger than the window",
        all_of(put(asked(-1), "reply.usage.inputTokens", 16_001), value(billed(-1, "llm"), "tokens.inputTokens", 16_001)),
        "network",
    ),
    switch("context.turn_preflight", "turn_guard", "preflight"),
    switch("context.guard_is_strict", "strict_guard", AT_THE_LIMIT),
    switch("context.tool_preflight", "tool_guard", "overflow"),
    edited("context.overflow_stub", "another stub", value(said(1, "tool"), "content", "(tool failed: too much)"), "overflow"),
    edited(
        "context.overflow_accounted",
        "the estimate is not accounted",
        value(billed(1, "tool"), "originalTokens", GONE),
        "overflow",
    ),
    switch("context.no_new_tools_after_overflow", "stops_tools", "overflow while others wait"),
    switch("context.forced_final_tools", "restricts", "overflow"),
    edited(
        "context.final_instruction",
        "no final instruction",
        put(asked(-1), "messages", lambda old: [item for item in old if "No other tools are left" not in item["content"]]),
        "overflow",
    ),
    edited(
        "context.no_tools_in_forced_final",
        "progress runs in a forced final turn",
        all_of(repeated(ran(0), before=ENDED, call_id="call-9"), repeated(billed(0, "tool"), before=ENDED)),
        "overflow",
    ),
    # errors
    switch("errors.auth_is_fatal", "fatal_at_once", "auth"),
    switch("errors.quota_is_fatal", "fatal_at_once", "quota"),
    edited("errors.auth_result", "no reason for the failure", answer("error", "", FAILED), "auth"),
    edited("errors.quota_result", "no reason for the failure", answer("error", "", FAILED), "quota"),
    switch("errors.retries_until_exhausted", "all_attempts", "network"),
    edited(
        "errors.stops_on_success",
        "another request in the same turn",
        all_of(put(asked(1), "session.turn", 1), put(asked(2), "session.turn", 2)),
        replace(ALONE, script=SCENARIOS["plain"].script),
    ),
    switch("errors.retry_after", "retry_after", "retry after"),
    switch("errors.backoff", "backoff", "one target limited"),
    switch("errors.all_limited_wait", "longest_wait", "all limited"),
    switch("errors.backoff_capped", "backoff_cap", "one target limited"),
    switch("errors.no_delay", "at_once", "network"),
    switch("errors.empty_retry_notice", "notice", "empty"),
    switch("errors.invalid_retry_notice", "invalid_notice", "malformed response"),
    # result
    switch("result.always", "always_answers", "failed turns"),
    edited("result.always", "the result never comes", without(ENDED)),
    edited("result.success_has_report", "success without a report", answer("finalReport", GONE)),
    edited(
        "result.status_and_success",
        "a synthetic failure calls itself a success",
        all_of(answer("success", True, FAILED), answer("exitCode", 0, FAILED)),
        "forced without an answer",
    ),
    edited("result.status_by_source", "the model's report is a failure", answer("finalReport.status", "failure")),
    switch("result.every_session_reports", "synthetic_report", "turns used up"),
    switch("result.exit_zero_is_success", "exit_code", "turns used up"),
    edited("result.exit_code_category", "1 for a configuration error", refusal(REFUSED, 1), "auth"),
    edited("result.exit_code_category", "3 for turns that are used up", answer("exitCode", 3, FAILED), "turns used up"),
    edited("result.synthetic_reason", "no reason", answer("finalReport.metadata.reason", "gave_up", FAILED), "turns used up"),
    edited(
        "result.synthetic_content",
        "a report that says nothing",
        answer("finalReport.content", "Sorry.", FAILED),
        "turns used up",
    ),
    edited("result.report_fields", "no time stamp", answer("finalReport.ts", GONE)),
    edited(
        "result.report_fields",
        "a JSON report in content",
        all_of(answer("finalReport.content", "x"), answer("finalReport.content_json", GONE)),
        "json",
    ),
    edited("result.format", "another format", answer("finalReport.format", "html")),
    edited(
        "result.format_const",
        "the format is left open",
        put(
            asked(0),
            "tools",
            lambda old: [
                *old[:-1],
                {**old[-1], "parameters": {"type": "object", "properties": {"format": {"type": "string"}}}},
            ],
        ),
    ),
    switch("result.text_fallback", "text_fallback", "text at the end"),
    edited("result.report_is_the_models", "the report is rewritten", answer("finalReport.content", "Kettles do not boil.")),
    switch("result.report_base64", "decodes", "base64"),
    edited(
        "result.report_schema",
        "content that breaks the schema",
        all_of(
            answer("finalReport.content_json", {"title": "t"}),
            put(asked(-1), "reply.tool_calls.0.arguments", '{"content_json": {"title": "t"}}'),
            value(said(-1, "assistant"), "toolCalls.0.arguments", '{"content_json": {"title": "t"}}'),
        ),
        "json",
    ),
    switch("result.nested_json_parsed", "parses_nested", "nested json"),
    edited("result.final_not_truncated", "the report is cut", answer("finalReport.content", TRUNCATED), "long report"),
    # conversation
    edited("conversation.order", "the task comes first", moved(said(0, "user"), said(0, "system"))),
    edited("conversation.ends_with_answer", "the report is not stored last", without(said(-1, "assistant"))),
    edited(
        "conversation.tool_linked",
        "the response names no call",
        repeated(said(0, "tool"), value={"role": "tool", "toolCallId": "call-7", "content": "x"}),
    ),
    edited("conversation.tool_answered", "a response is missing", without(said(0, "tool"))),
    edited(
        "conversation.failed_format",
        "a failure in other words",
        value(said(0, "tool"), "content", "Error: no such host"),
        "tool failure",
    ),
    edited(
        "conversation.successful_response",
        "a success reads as a failure",
        value(said(0, "tool"), "content", "(tool failed: unlucky)"),
    ),
    edited("conversation.successful_response", "the response is summarised", value(said(0, "tool"), "content", "pages")),
    switch("conversation.reasoning_kept", "keeps_reasoning", "reasoning"),
    edited(
        "conversation.reasoning_kept", "the reasoning is lost", value(said(0, "assistant"), "reasoning", "Hm."), "reasoning"
    ),
    switch("conversation.empty_not_stored", "empty_not_stored", "empty"),
    switch("conversation.ephemeral", "notice_not_stored", "empty"),
    edited(
        "conversation.ephemeral",
        "a notice is stored",
        repeated(
            said(0, "user"),
            before=said(0, "assistant"),
            value={
                "role": "user",
                "content": NOTICE,
            },
        ),
        "empty",
    ),
    edited(
        "conversation.notice_used_once",
        "the notice stays",
        put(
            asked(-1),
            "messages",
            lambda old: [
                *old,
                {
                    "role": "user",
                    "content": NOTICE,
                },
            ],
        ),
    ),
    edited(
        "conversation.full_history",
        "a call is left out",
        value(said(1, "assistant"), "content", "I will read."),
        replace(
            SCENARIOS["plain"],
            script=(Says(calls=(search(),)), Says(content="Let me look.", calls=(search(),)), Says(report=("x",))),
        ),
    ),
    # accounting
    edited("accounting.llm_entry", "a failed attempt is not accounted", without(billed(1, "llm")), ALONE),
    edited("accounting.llm_entry", "an accepted reply is not accounted", without(billed(0, "llm")), "at once"),
    edited("accounting.tool_entry", "an execution is not accounted", without(billed(0, "tool"))),
    edited("accounting.llm_fields", "no latency", value(billed(0, "llm"), "latency", GONE)),
    edited("accounting.llm_fields", "no token total", value(billed(0, "llm"), "tokens.totalTokens", GONE)),
    edited("accounting.tool_fields", "no size", value(billed(0, "tool"), "charactersOut", GONE)),
    edited("accounting.tool_failure_error", "no error", value(billed(0, "tool"), "error", GONE), "tool failure"),
    edited("accounting.entry_types", "an entry of no type", repeated(billed(0, "llm"), value={"type": "note"})),
    edited("accounting.provider_as_used", "another provider", value(billed(1, "llm"), "provider", "alpha"), "rate limits"),
    edited("accounting.llm_status", "a failure is accounted as ok", value(billed(1, "llm"), "status", "ok"), "network"),
    edited(
        "accounting.llm_status",
        "a success is accounted as failed",
        all_of(value(billed(0, "llm"), "status", "failed"), value(billed(0, "llm"), "error", "x")),
    ),
    edited(
        "accounting.tool_status", "a failed tool is accounted as ok", value(billed(0, "tool"), "status", "ok"), "tool failure"
    ),
    edited("accounting.latency", "no time passed", value(billed(0, "tool"), "latency", 0)),
    edited("accounting.tokens", "tokens of another request", value(billed(0, "llm"), "tokens.inputTokens", 3)),
    edited("accounting.timestamps", "time runs backwards", value(billed(1, "llm"), "timestamp", 5)),
    # configuration
    switch("configuration.sampling", "sampling", "plain"),
    edited("configuration.sampling", "an override is ignored", put(asked(2), "settings.temperature", 0.5), "network"),
    edited("configuration.reasoning", "a toggle is dropped", put(asked(0), "settings.reasoning_effort", GONE)),
    load("layers", "home is consulted before the working directory", "layers", lambda old: old[::-1]),
    load("precedence", "the lower layer wins", "merged.temperature", 0.9),
    load("deep_merge", "an object is replaced", "merged.providers.alpha.limit", GONE),
    load("placeholders", "the process wins over the env file", "merged.providers.alpha.url", "http://outer/ann"),
    load("missing_variable", "an unresolved name is left standing", "process_env.USER_NAME", GONE),
    load("parameters_protected", "a parameter is expanded", "merged.restTools.find.body", "q="),
    load("child_env_protected", "the child's environment is expanded", "merged.mcpServers.web.env.X", "outer"),
    load(
        "queue_bindings",
        "a binding to nowhere",
        "layers.0.values.restTools.find.queue",
        "slow",
        ("merged.restTools.find.queue", "slow"),
    ),
    load("default_queue", "no default queue", "merged.queues.default", GONE),
    edited(
        "configuration.missing_names_layer",
        "the layer is not named",
        refusal({**REFUSED, "message": "NOPE is not defined"}, 4),
        "auth",
    ),
    edited(
        "configuration.queue_error_is_clear",
        "the queue is not named",
        refusal(
            {**REFUSED, "name": "QueueError", "message": "bad configuration"}, 4, {"restTools": {"find": {"queue": "slow"}}}
        ),
        "auth",
    ),
    # transport
    edited("transport.tool_choice", "a tool is required", put(asked(0), "tool_choice", "required"), transport="xml-final"),
    edited(
        "transport.xml_withholds_tools", "definitions are sent", put(asked(0), "tools", [{"name": "search"}]), transport="xml"
    ),
    edited(
        "transport.xml_final_shows_tools",
        "the report is offered as a tool",
        put(asked(0), "tools", lambda old: [*old, {"name": "agent__final_report"}]),
        transport="xml-final",
    ),
    switch("transport.report_by_tag", "report_by_tag", "native report", "xml-final"),
    edited(
        "transport.nonce_constant",
        "another nonce in turn 2",
        put(asked(1), "messages", told("5e551011", "00000000")),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.slots_increase",
        "slots begin anew",
        put(asked(2), "messages", told("5e551011-0004", "5e551011-0001")),
        "plain",
        "xml",
    ),
    edited(
        "transport.progress_slot",
        "progress in xml-final",
        put(asked(0), "messages", told("Per-turn", "<ai-agent-5e551011-PROGRESS> Per-turn")),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.next_present", "no instructions", put(asked(0), "messages", lambda old: old[:-1]), "at once", "xml-final"
    ),
    edited(
        "transport.next_has_schemas",
        "a tool is missing",
        put(asked(0), "messages", told("read_page", "something")),
        "plain",
        "xml",
    ),
    edited(
        "transport.next_not_stored",
        "the instructions are stored",
        repeated(said(0, "user"), value={"role": "user", "content": "<ai-agent-5e551011-FINAL>"}),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.forced_final_next",
        "slots in xml-final",
        put(asked(0), "messages", told("Per-turn", "<ai-agent-5e551011-0001> Per-turn")),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.no_past_in_xml_final",
        "results in a user message",
        repeated(
            said(0, "tool"),
            value={"role": "user", "content": "System Notice: tool response for 5e551011-0001 (search)\nresponse:\nx"},
        ),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.past_has_fields",
        "no duration",
        value(said(1, "user"), "content", lambda old: old.replace("duration:", "took")),
        "plain",
        "xml",
    ),
    edited(
        "transport.response_as_user",
        "a tool message",
        put(said(1, "user"), "value", {"role": "tool", "toolCallId": "5e551011-0001", "content": "three pages about kettles"}),
        "plain",
        "xml",
    ),
    edited(
        "transport.prompt_is_clean",
        "tools in the system prompt",
        put(asked(0), "messages", lambda old: [{"role": "system", "content": "Use read_page."}, *old[1:]]),
        "plain",
        "xml",
    ),
    switch("transport.only_valid_tags_run", "matches_nonce", "foreign nonce", "xml"),
    edited(
        "transport.tags_run",
        "a tag does not run",
        all_of(without(ran(1)), without(billed(1, "tool")), without(said(2, "user"))),
        replace(SCENARIOS["plain"], changes={"queues": {}}),
        "xml",
    ),
    edited(
        "transport.unclosed_tools_do_not_run",
        "an open tag runs",
        all_of(repeated(ran(0, "read_page"), call_id="5e551011-0002"), repeated(billed(0, "tool"))),
        "unclosed call",
        "xml",
    ),
    switch("transport.unclosed_report_accepted", "unclosed_is_taken", "unclosed", "xml"),
    switch("transport.unclosed_report_cut", "cut_is_retried", "cut off", "xml"),
    switch("transport.last_tag_wins", "last_tag", "two reports", "xml-final"),
    edited(
        "transport.wrapper_stays_outside",
        "status inside the content",
        answer("finalReport.content_json", lambda old: {**old, "status": "success"}),
        "json",
        "xml",
    ),
    edited(
        "transport.json_payload",
        "a field is lost",
        answer("finalReport.content_json", {"facts": {"a": 1}}),
        "json",
        "xml-final",
    ),
    edited("transport.slack_payload", "other messages", answer("finalReport.messages", [{"text": "ho"}]), "slack", "xml"),
    edited(
        "transport.opaque_payload",
        "the payload is trimmed",
        answer("finalReport.content", '{"not": parsed'),
        "sub-agent",
        "xml",
    ),
    edited("transport.text_payload", "the text is rewritten", answer("finalReport.content", "Kettles."), "plain", "xml"),
    edited(
        "transport.format_attribute",
        "no format",
        put(asked(0), "messages", told(' format="markdown"', "")),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.final_no_response",
        "the report is answered",
        repeated(said(0, "tool"), before=ENDED, value={"role": "tool", "toolCallId": "call-final", "content": "ok"}),
    ),
    edited("transport.accounting_source", "no source", value(billed(0, "tool"), "source", GONE), "plain", "xml"),
    edited(
        "transport.report_command",
        "the native command",
        value(billed(-1, "tool"), "command", "agent__final_report"),
        "plain",
        "xml-final",
    ),
    edited(
        "transport.stream_is_clean",
        "a tag is streamed",
        put(Where(kind="message", name="user"), "text", "<ai-agent-5e551011-FINAL"),
        "long report",
        "xml",
    ),
)


@functools.cache
def _nominal(name: str, transport: str, broken: tuple[str, ...]) -> Trace:
    return _played(SCENARIOS[name], transport, broken)


def _played(scenario: Scenario, transport: str, broken: tuple[str, ...]) -> Trace:
    with contextlib.suppress(RuntimeError), mat.run() as run:  # one breach is a crash
        scenario.run(transport, Keeps(**dict.fromkeys(broken, False)))
    return run.trace


def trace_of(breach: Breach) -> Trace:
    if isinstance(breach.scenario, str):
        found = _nominal(breach.scenario, breach.transport, breach.broken)
    else:
        found = _played(breach.scenario, breach.transport, breach.broken)
    return found if breach.edit is None else breach.edit(found)


def violated(trace: Trace, config: SessionConfig, *observable: str) -> dict[str, list[str]]:
    _, outcomes = judge(trace, session_contracts(config, observable=observable))  # type: ignore[arg-type]
    assert [item.error for item in outcomes if item.error] == []
    return {item.contract: [found.message for found in item.violations] for item in outcomes if item.violations}


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: f"{breach.contract}: {breach.name}")
def test_a_breach_is_caught_by_exactly_the_contract_meant_for_it(breach: Breach) -> None:
    assert list(violated(trace_of(breach), breach.judged_by(), "result", "request")) == [breach.contract]


def _elsewhere() -> list[Breach]:
    """The broken promises again, in every other transport in which scenario and guarantee make sense."""
    return [
        replace(breach, transport=transport)
        for breach in BREACHES
        if breach.broken
        for transport in ("native", "xml-final", "xml")
        if transport != breach.transport
        and transport in breach.played.transports
        and transport in BY_ID[breach.contract].transports
        and breach.scenario is not AT_THE_LIMIT  # a limit of the native transport
    ]


@pytest.mark.parametrize("breach", _elsewhere(), ids=lambda breach: f"{breach.transport}, {breach.contract}: {breach.name}")
def test_a_broken_promise_is_caught_in_every_transport(breach: Breach) -> None:
    assert list(violated(trace_of(breach), breach.judged_by(), "result", "request")) == [breach.contract]


# -- the same breaches in results --------------------------------------------------------------------------------------------


def result_of(trace: Trace) -> dict[str, Any] | None:
    """The AIAgentResult of a trace; None if the session gave none."""
    found: dict[str, Any] = {"conversation": [], "accounting": []}
    for record in trace:
        if record.action.kind == "memory_write" and record.action.name in found:
            found[record.action.name].append(thaw(record.action.arguments["value"]))
    last = trace[-1].action.arguments.get("answer")
    return None if last is None else {**found, **thaw(last)}


SHOWN: Final = [breach for breach in BREACHES if BY_ID[breach.contract].observable == "result"]


def in_result(breach: Breach) -> set[str]:
    """The guarantees that the result of a breach breaks observably; none without a result."""
    result = result_of(trace_of(breach))
    if result is None:
        return set()
    checked = check(result, breach.judged_by(), GUARANTEES)
    assert [item.error for item in checked.outcomes if item.error] == []
    return {found.contract for found in checked.violations}


@pytest.mark.parametrize("breach", SHOWN, ids=lambda breach: f"{breach.contract}: {breach.name}")
def test_a_result_alone_never_blames_another_guarantee(breach: Breach) -> None:
    assert in_result(breach) <= {breach.contract}


@pytest.mark.parametrize("contract", sorted({breach.contract for breach in SHOWN} - {"session.result.always"}))
def test_what_is_marked_result_is_caught_in_a_result_alone(contract: str) -> None:
    assert any(contract in in_result(breach) for breach in SHOWN if breach.contract == contract)


def test_no_result_at_all_is_seen_by_whoever_waits_for_one() -> None:
    (breach, *_) = [item for item in SHOWN if item.contract == "session.result.always"]
    assert result_of(trace_of(breach)) is None


# -- coverage, section 9, near misses ----------------------------------------------------------------------------------------

SECTION_9: Final = {
    "Turn limit exceeded": ("session.limits.max_turns", "four assistant messages with maxTurns 3"),
    "Context window exceeded": ("session.context.window_respected", "the provider refuses the prompt"),
    "Missing final report": ("session.result.success_has_report", "success without a report"),
    "Wrong exit code: 0 for a failure": ("session.result.exit_zero_is_success", "exit_code is not kept"),
    "Wrong exit code: 1 for a configuration error": ("session.result.exit_code_category", "1 for a configuration error"),
    "Configuration ignored": ("session.configuration.sampling", "sampling is not kept"),
    "Tool response overflow without handling": ("session.tools.truncation", "truncates is not kept"),
}


def test_every_guarantee_that_results_or_requests_show_has_a_breach() -> None:
    shown = {item.id for item in GUARANTEES if item.observable != "log"}
    assert shown - {breach.contract for breach in BREACHES} == set()


def test_every_example_of_section_9_is_in_the_table() -> None:
    table = {(breach.contract, breach.name) for breach in BREACHES}
    assert [name for name, wanted in SECTION_9.items() if wanted not in table] == []


def test_every_promise_of_the_session_is_broken_somewhere() -> None:
    switched = {promise for breach in (*BREACHES, *LOG_BREACHES) for promise in breach.broken}
    assert {item.name for item in fields(Keeps)} - switched == set()


# -- what only logs show -----------------------------------------------------------------------------------------------------

LOG_BREACHES: Final[tuple[Breach, ...]] = (
    edited("tools.truncation_logged", "no warning", without(logged(0, "tool_truncated")), "truncation"),
    edited(
        "tools.original_only_when_tracing",
        "the original is logged",
        value(logged(0, "tool_truncated"), "response", "x" * 1800),
        "truncation",
    ),
    edited("tools.repair_logged", "no entry", without(logged(0, "tool_arguments_repaired")), "repaired arguments"),
    edited(
        "tools.parse_failure_logged",
        "a cut payload",
        value(logged(0, "tool_arguments_unreadable"), "payload", "num"),
        "unreadable arguments",
    ),
    edited(
        "tools.report_failure_logged", "no payload", value(logged(0, "final_report_failed"), "payload", GONE), "report refused"
    ),
    edited(
        "tools.queue_depth",
        "no depth",
        lambda trace: renumbered(item for item in trace if "queue_depth" not in (item.action.arguments.get("value") or {})),
    ),
    edited("context.overflow_logged", "no numbers", value(logged(0, "tool_overflow"), "projected_tokens", GONE), "overflow"),
    edited(
        "context.first_turn_is_zero",
        "ctx is not 0",
        all_of(
            value(logged(0, "llm_request_prepared"), "ctxTokens", 7),
            value(logged(0, "llm_request_prepared"), "expectedTokens", GONE),
        ),
    ),
    edited(
        "context.ctx_as_reported",
        "ctx of nobody",
        all_of(
            value(logged(1, "llm_request_prepared"), "ctxTokens", 7),
            value(logged(1, "llm_request_prepared"), "expectedTokens", GONE),
        ),
    ),
    edited("context.expected_tokens", "another sum", value(logged(1, "llm_request_prepared"), "expectedTokens", 7)),
    edited("context.new_tokens", "other new tokens", value(logged(1, "llm_request_prepared"), "newTokens", 7)),
    edited("context.retry_notices_counted", "the notice costs nothing", lambda trace: _same_pending(trace), "empty"),
    edited(
        "context.flushed",
        "something is left",
        all_of(
            value(logged(0, "context_guard"), "newCtxTokens", 7), value(logged(0, "context_guard"), "projected_tokens", GONE)
        ),
    ),
    edited("context.projection", "another sum", value(logged(0, "context_guard"), "projected_tokens", 7)),
    edited("context.decision", "it fires below the limit", value(logged(0, "context_guard"), "fired", True)),
    edited("context.limit", "the buffer is forgotten", value(logged(0, "context_guard"), "limit_tokens", 14_500)),
    edited("context.blocked_pair", "no pair", value(logged(0, "context_guard"), "provider", GONE), "preflight"),
    edited(
        "context.forced_reason_logged",
        "no reason",
        lambda trace: renumbered(
            item for item in trace if "forcedFinalTurnReason" not in (item.action.arguments.get("value") or {})
        ),
        "preflight",
    ),
    edited("context.schema_recomputed", "the old schema", put(asked(0), "session.context_after.schema", 128), "preflight"),
    edited("context.post_shrink_warning", "no warning", without(logged(0, "post_shrink_overflow")), "preflight"),
    edited("result.format_mismatch_logged", "no warning", without(logged(0, "format_mismatch")), "another format"),
    edited(
        "transport.unknown_stop_logged",
        "no warning",
        without(logged(0, "unclosed_final_report")),
        "unclosed, reason unknown",
        "xml",
    ),
)


def _same_pending(trace: Trace) -> Trace:
    """Every request of the first turn logs the pending tokens of its first one."""
    first = trace[logged(0, "llm_request_prepared").index(trace)].action.arguments["value"]["pendingCtxTokens"]
    where = logged(1, "llm_request_prepared")
    return all_of(
        *(value(where, name, first) for name in ("pendingCtxTokens", "newTokens")), value(where, "expectedTokens", GONE)
    )(trace)


@pytest.mark.parametrize("breach", LOG_BREACHES, ids=lambda breach: f"{breach.contract}: {breach.name}")
def test_a_missing_or_wrong_log_is_seen_by_its_advisory_contract_alone(breach: Breach) -> None:
    assert list(violated(trace_of(breach), breach.judged_by(), "result", "request", "log")) == [breach.contract]
    assert violated(trace_of(breach), breach.judged_by(), "result", "request") == {}


def test_every_advisory_guarantee_has_a_breach_and_is_soft() -> None:
    advisory = [item for item in GUARANTEES if item.observable == "log"]
    assert {item.id for item in advisory} == {breach.contract for breach in LOG_BREACHES}
    config = replace(SCENARIOS["plain"].config("xml"), output_schema={"type": "object"})
    armed = {contract.id: contract.severity for contract in session_contracts(config, observable=("result", "request", "log"))}
    assert {armed[item.id] for item in advisory if item.id in armed} == {"soft"}
    assert {severity for id, severity in armed.items() if BY_ID[id].observable != "log"} == {"hard"}


# -- what is no violation ----------------------------------------------------------------------------------------------------


def silent(trace: Trace, scenario: str, transport: str = "native") -> bool:
    return violated(trace, SCENARIOS[scenario].config(transport), "result", "request") == {}


@pytest.mark.parametrize("transport", ["native", "xml-final", "xml"])
@pytest.mark.parametrize("scenario", ["plain", "overflow", "empty", "preflight"])
def test_a_changed_log_is_no_violation(scenario: str, transport: str) -> None:
    def reworded(record: Record) -> Record:
        if record.action.name != "log":
            return record
        entry = {"message": "something else", "level": 3}
        return replace(record, action=replace(record.action, arguments=FrozenDict({"key": "k", "value": snapshot(entry)})))

    trace = _nominal(scenario, transport, ())
    assert silent(tuple(map(reworded, trace)), scenario, transport)
    assert silent(renumbered(record for record in trace if record.action.name != "log"), scenario, transport)


@pytest.mark.parametrize("scenario", ["plain", "network", "failed turns", "empty", "overflow"])
def test_internal_state_that_is_not_told_or_told_otherwise_is_no_violation(scenario: str) -> None:
    """The turn and counters of a request are the session's own; a request without them is judged by the rest."""

    def bare(record: Record) -> Record:
        arguments = FrozenDict({name: item for name, item in record.action.arguments.items() if name != "session"})
        return (
            replace(record, action=replace(record.action, arguments=arguments))
            if record.action.kind == "model_call"
            else record
        )

    assert silent(tuple(map(bare, _nominal(scenario, "native", ()))), scenario)


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("scenario", ["plain", "network", "batch"])
def test_another_token_estimate_is_no_violation(scenario: str, factor: float) -> None:
    def estimated(record: Record) -> Record:
        if record.action.kind != "model_call":
            return record
        known = record.action.arguments["session"]["context"]
        counters = {name: item if name == "current" else round(item * factor) for name, item in known.items()}
        return replace(
            record, action=replace(record.action, arguments=changed(record.action.arguments, ("session", "context"), counters))
        )

    assert silent(tuple(map(estimated, _nominal(scenario, "native", ()))), scenario)


@pytest.mark.parametrize("transport", ["native", "xml-final", "xml"])
@pytest.mark.parametrize("scenario", ["plain", "all limited", "empty", "overflow"])
def test_prompts_that_were_recorded_as_hashes_are_not_judged(scenario: str, transport: str) -> None:
    """The default recording policy of a model keeps only the reply."""

    def hidden(record: Record) -> Record:
        if record.action.kind != "model_call":
            return record
        arguments = FrozenDict({name: hashed(item) for name, item in record.action.arguments.items()})
        return replace(record, action=replace(record.action, arguments=arguments))

    assert silent(tuple(map(hidden, _nominal(scenario, transport, ()))), scenario, transport)


@pytest.mark.parametrize("transport", ["native", "xml-final", "xml"])
@pytest.mark.parametrize("scenario", ["plain", "unreadable arguments", "queue", "tool failure"])
def test_executions_that_do_not_name_their_call_blame_nobody(scenario: str, transport: str) -> None:
    def nameless(record: Record) -> Record:
        arguments = FrozenDict({name: item for name, item in record.action.arguments.items() if name != "call_id"})
        return (
            replace(record, action=replace(record.action, arguments=arguments)) if record.action.kind == "tool_call" else record
        )

    assert silent(tuple(map(nameless, _nominal(scenario, transport, ()))), scenario, transport)


def test_a_response_of_exactly_the_limit_is_left_alone() -> None:
    trace = _nominal("truncation", "native", ())
    answers = [
        record.action.arguments["value"]["content"]
        for record in trace
        if (record.action.arguments.get("value") or {}).get("role") == "tool"
    ]
    assert [len(text.encode()) for text in answers] == [1_024 + 63, 1_024]
    assert answers[0].startswith(TRUNCATED)
    assert silent(trace, "truncation")
