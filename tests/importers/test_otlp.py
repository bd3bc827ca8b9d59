from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mat.adapters.importers import StoredTrace, read_traces
from mat.adapters.importers.otlp import FORMAT, effect_of
from mat.core.errors import MatError
from mat.core.record import Record

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "otel-genai"
TRACE = "0af7651916cd43dd8448eb211c80319c"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the recorded spans of ../shared/data are not here")


def value(plain: Any) -> dict[str, Any]:
    """An OTLP AnyValue; integers are texts in JSON."""
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, list):
        return {"arrayValue": {"values": [value(item) for item in plain]}}
    if isinstance(plain, dict):
        return {"kvlistValue": {"values": attributes(plain)}}
    return {"stringValue": plain}


def attributes(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(item)} for key, item in plain.items()]


def span(
    id: str, start: Any, end: Any, operation: str, *, parent: str = "", error: str = "", trace: str = TRACE, **more: Any
) -> dict[str, Any]:
    """A span from `start` to `end`, in milliseconds; `told` are its attributes."""
    told = {"gen_ai.operation.name": operation, **more.pop("told", {})}
    made: dict[str, Any] = {"traceId": trace, "spanId": id, "name": operation, "attributes": attributes(told), **more}
    if parent:
        made["parentSpanId"] = parent
    if start is not None:
        made["startTimeUnixNano"] = str(1_700_000_000_000_000_000 + start * 1_000_000)
    if end is not None:
        made["endTimeUnixNano"] = str(1_700_000_000_000_000_000 + end * 1_000_000)
    if error:
        made["status"] = {"code": 2, "message": error}
    return made


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "test"}, "spans": list(spans)}]}]}


def imported(*rows: Mapping[str, Any]) -> list[StoredTrace]:
    return list(FORMAT.traces((f"runs.jsonl:{number}", row) for number, row in enumerate(rows, 1)))


def records(*spans: dict[str, Any]) -> list[Record]:
    (trace,) = imported(document(*spans))
    return list(trace.records)


def shape(found: list[Record]) -> list[tuple[str, str, str]]:
    return [(record.agent, record.action.kind, record.action.name) for record in found]


AGENT = {"gen_ai.agent.name": "clerk"}


# -- the recorded documents -------------------------------------------------------------------------------------------


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


def spans_of(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in row["otlp"]["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def told_by(made: Mapping[str, Any], name: str) -> Any:
    return next((next(iter(item["value"].values())) for item in made["attributes"] if item["key"] == name), None)


@needs_data
def test_all_125_recorded_documents_import_with_every_call_and_token() -> None:
    documents = 0
    for path in sorted(DATA.glob("*.jsonl.gz")):
        rows = list(rows_of(path))
        documents += len(rows)
        by_line: dict[str, list[StoredTrace]] = {}
        for trace in read_traces(path):
            by_line.setdefault(trace.labels["origin"].rpartition(":")[2], []).append(trace)
        for number, row in enumerate(rows, 1):
            found = [record for trace in by_line[str(number)] for record in trace.records]
            spans = list(spans_of(row))
            operations = Counter(told_by(made, "gen_ai.operation.name") for made in spans)
            kinds = Counter(record.action.kind for record in found)
            assert kinds["model_call"] == operations["chat"] + operations["embeddings"]
            assert kinds["tool_call"] == operations["execute_tool"]
            roots = sum(
                not made.get("parentSpanId") for made in spans if told_by(made, "gen_ai.operation.name") == "invoke_agent"
            )
            assert kinds["delegation"] == operations["invoke_agent"] - roots
            assert kinds["final_response"] + kinds["termination"] == roots
            asked = sum(int(told_by(made, "gen_ai.usage.input_tokens") or 0) for made in spans)
            assert sum(record.observation.usage.get("input_tokens", 0) for record in found) == asked
            failed = sum(made["status"].get("code") == 2 for made in spans)
            assert sum(record.observation.error is not None for record in found) == failed
    assert documents == 125


@needs_data
def test_what_the_steps_are_depends_neither_on_the_convention_nor_on_captured_content() -> None:
    shapes: dict[str, set[tuple[tuple[str, str, str], ...]]] = {}
    versions: dict[str, int] = Counter()
    for trace in read_traces(DATA / "pydantic_ai-otlp.jsonl.gz"):
        if trace.labels["scenario"] == "parallel":  # which of its three concurrent tools starts first is chance
            continue
        steps = [record for record in trace.records if record.action.name != "user"]
        told = tuple(item for item in shape(steps) if item[1] != "message")
        shapes.setdefault(trace.labels["scenario"], set()).add(told)
        versions[trace.labels["scenario"]] += 1
    assert set(versions.values()) == {10}
    assert {scenario: len(found) for scenario, found in shapes.items()} == dict.fromkeys(versions, 1)


@needs_data
def test_parallel_tools_of_the_recordings_are_concurrent_and_the_models_calls_around_them_are_not() -> None:
    for trace in read_traces(DATA / "pydantic_ai-otlp.jsonl.gz"):
        if trace.labels["scenario"] != "parallel":
            continue
        found = list(trace.records)
        tools = [record for record in found if record.action.kind == "tool_call"]
        before, after = (record for record in found if record.action.kind == "model_call")
        assert len(tools) == 3
        assert not any(one.happened_before(other) for one in tools for other in tools)
        assert all(before.happened_before(tool) and tool.happened_before(after) for tool in tools)


# -- the mapping ------------------------------------------------------------------------------------------------------


def test_an_agents_run_becomes_its_calls_in_order_and_its_answer() -> None:
    found = records(
        span("c2", 30, 40, "chat", parent="a", told={"gen_ai.request.model": "m", "gen_ai.usage.output_tokens": 7}),
        span("t", 15, 25, "execute_tool", parent="a", told={
            "gen_ai.tool.name": "refund_order", "gen_ai.tool.call.arguments": '{"order": "A-7"}',
            "gen_ai.tool.call.result": "12",
        }),
        span("c1", 1, 10, "chat", parent="a", told={"gen_ai.request.model": "m", "gen_ai.request.temperature": 1, "x.y": "z"}),
        span("a", 0, 50, "invoke_agent", told={**AGENT, "final_result": "refunded"}),
    )  # fmt: skip
    assert shape(found) == [
        ("clerk", "model_call", "m"), ("clerk", "tool_call", "refund_order"), ("clerk", "model_call", "m"),
        ("clerk", "final_response", "answer"),
    ]  # fmt: skip
    assert [(record.at_ms, record.sealed_ms) for record in found] == [(1, 10), (15, 25), (30, 40), (50, 50)]
    assert [record.step for record in found] == [0, 1, 2, 3]
    assert found[0].action.arguments == {"temperature": 1}
    assert (found[1].action.arguments, found[1].observation.value) == ({"order": "A-7"}, "12")
    assert (found[1].action.effect, found[1].effected, found[1].site) == ("write", "yes", "clerk/service:refund_order#1")
    assert found[2].observation.usage == {"output_tokens": 7}
    assert found[3].action.arguments == {"answer": "refunded"}


def test_an_agent_inside_another_is_a_delegation_before_all_it_does_and_a_message_back() -> None:
    found = records(
        span("a", 0, 50, "invoke_agent", told=AGENT),
        span("t", 5, 40, "execute_tool", parent="a", told={"gen_ai.tool.name": "ask"}),
        span("b", 10, 30, "invoke_agent", parent="t", told={
            "gen_ai.agent.name": "expert", "final_result": "it depends",
            "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "may I?"}]}]',
        }),
        span("c", 11, 20, "chat", parent="b", told={
            "gen_ai.request.model": "m", "gen_ai.input.messages": '[{"role": "user", "content": "may I?"}]',
        }),
    )  # fmt: skip
    assert shape(found) == [
        ("clerk", "tool_call", "ask"), ("clerk", "delegation", "expert"), ("expert", "model_call", "m"),
        ("expert", "message", "clerk"), ("clerk", "final_response", "answer"),
    ]  # fmt: skip
    delegated, asked, told = found[1:4]
    assert delegated.action.arguments == {"task": "may I?", "delegator": "clerk"}
    assert told.action.arguments == {"text": "it depends", "sender": "expert"}
    assert delegated.happened_before(asked)
    assert asked.happened_before(told)
    assert not delegated.happened_before(found[0])
    assert not found[0].happened_before(told)


def test_spans_that_overlap_are_concurrent_and_those_that_touch_are_not() -> None:
    one, two, three = records(
        span("1", 0, 10, "execute_tool"), span("2", 5, 15, "execute_tool"), span("3", 15, 20, "execute_tool")
    )
    assert not one.happened_before(two)
    assert not two.happened_before(one)
    assert two.happened_before(three)
    assert one.happened_before(three)


@pytest.mark.parametrize(
    ("told", "message", "events", "expected"),
    [
        ({"error.type": "openai.RateLimitError"}, "slow down", [], ("openai.RateLimitError", "slow down", "rate_limit")),
        ({"error.type": "timeout"}, "", [], ("timeout", "", "timeout")),
        ({"error.type": "500"}, "", [], ("500", "", "server_error")),
        ({}, "APIConnectionError: refused", [], ("APIConnectionError", "APIConnectionError: refused", "connection")),
        ({}, "it failed", [], ("Error", "it failed", "")),
        ({}, "", [("exception", {"exception.type": "KeyError", "exception.message": "'x'"})], ("KeyError", "'x'", "")),
    ],
)
def test_an_error_status_becomes_the_error_the_agent_met(
    told: dict[str, str], message: str, events: list[Any], expected: tuple[str, str, str]
) -> None:
    made = span("t", 0, 1, "execute_tool", told=told, error=message)
    made["status"] = {"code": "STATUS_CODE_ERROR", "message": message}
    made["events"] = [{"name": name, "attributes": attributes(more)} for name, more in events]
    (found,) = records(made)
    error = found.observation.error
    assert error is not None
    assert (error.type, error.message, error.kind) == expected
    assert found.effected == "unknown"


def test_a_span_that_went_well_has_no_error_whatever_it_caught_inside() -> None:
    made = span("t", 0, 1, "execute_tool")
    made["events"] = [{"name": "exception", "attributes": attributes({"exception.type": "KeyError"})}]
    assert records(made)[0].observation.error is None


@pytest.mark.parametrize(
    ("error", "ended"), [("UsageLimitExceeded: too many", "horizon"), ("ValueError: no", "exception"), ("", "answer")]
)
def test_the_end_of_the_outermost_agent_tells_how_the_run_ended(error: str, ended: str) -> None:
    last = records(span("a", 0, 9, "invoke_agent", told=AGENT, error=error))[-1]
    assert last.action.name == ended
    assert last.agent == ("harness" if error else "clerk")


def test_stores_are_retrievals_and_memories() -> None:
    found = records(
        span("1", 0, 1, "retrieval", told={"gen_ai.data_source.id": "kb", "gen_ai.retrieval.query.text": "refunds"}),
        span("2", 2, 3, "search_memory", told={"gen_ai.memory.store.name": "notes"}),
        span("3", 4, 5, "update_memory", told={"gen_ai.memory.store.name": "notes", "gen_ai.memory.record.id": "k"}),
        span("4", 6, 7, "create_agent"),
    )
    assert [(record.action.kind, record.action.name, record.action.effect) for record in found] == [
        ("retrieval", "kb", "read"), ("memory_read", "notes", "read"), ("memory_write", "notes", "write"),
    ]  # fmt: skip
    assert found[0].action.arguments == {"query": "refunds"}
    assert found[2].action.arguments["key"] == "k"


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("get_order", ("read", "low")), ("getOrder", ("read", "low")), ("search-flights", ("read", "low")),
        ("cancel_order", ("write", "high")), ("sendMessage", ("write", "high")), ("book", ("write", "low")),
        ("getaway_booking", ("write", "low")), ("", ("write", "low")),
    ],
)  # fmt: skip
def test_a_tool_reads_where_its_first_word_says_so(tool: str, expected: tuple[str, str]) -> None:
    assert effect_of(tool) == expected


# -- contents in all their forms --------------------------------------------------------------------------------------

SAID = [
    {"role": "system", "content": "Be brief"},
    {"role": "user", "content": "Refund A-7"},
]
CALL = {"id": "x1", "name": "refund", "arguments": {"order": "A-7"}}
REPLY = {"role": "assistant", "content": "Will do", "tool_calls": [CALL], "finish_reason": "tool_calls"}
PARTS_IN = [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in SAID]
PARTS_OUT = [
    {
        "role": "assistant",
        "parts": [{"type": "text", "content": "Will do"}, {"type": "tool_call", **CALL}],
        "finish_reason": "tool_calls",
    }
]
OPENAI_CALL = {"id": "x1", "type": "function", "function": {"name": "refund", "arguments": '{"order": "A-7"}'}}
CHOICE = {
    "index": 0,
    "finish_reason": "tool_calls",
    "message": {"role": "assistant", "content": "Will do", "tool_calls": [OPENAI_CALL]},
}
WHOLE = {"gen_ai.input.messages": json.dumps(PARTS_IN), "gen_ai.output.messages": json.dumps(PARTS_OUT)}
SPOKEN = [("gen_ai.system.message", {"content": "Be brief"}), ("gen_ai.user.message", {"content": "Refund A-7"})]
FORMS: dict[str, tuple[dict[str, Any], list[tuple[str, Any]]]] = {
    "attributes as JSON text": (WHOLE, []),
    "attributes as structures": ({"gen_ai.input.messages": PARTS_IN, "gen_ai.output.messages": PARTS_OUT}, []),
    "system instructions apart": (
        {
            "gen_ai.system_instructions": '[{"type": "text", "content": "Be brief"}]',
            "gen_ai.input.messages": json.dumps(PARTS_IN[1:]),
            "gen_ai.output.messages": json.dumps(PARTS_OUT),
        },
        [],
    ),
    "the operation's details": ({}, [("gen_ai.client.inference.operation.details", WHOLE)]),
    "an event a message": ({}, [*SPOKEN, ("gen_ai.choice", {**CHOICE, "message": json.dumps(CHOICE["message"])})]),
    "prompt and completion events": (
        {},
        [
            ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(SAID)}),
            ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([CHOICE])}),
        ],
    ),
    "events in an attribute": (
        {"events": json.dumps([{**more, "event.name": name} for name, more in (*SPOKEN, ("gen_ai.choice", CHOICE))])},
        [],
    ),
    "an attribute a field": (
        {
            "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "Refund A-7", "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be brief", "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "Will do", "gen_ai.completion.0.finish_reason": "tool_calls",
            "gen_ai.completion.0.tool_calls.0.id": "x1", "gen_ai.completion.0.tool_calls.0.name": "refund",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"order": "A-7"}',
        },
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_conversation_is_one_record_whichever_convention_wrote_it(form: str) -> None:
    told, events = FORMS[form]
    made = span("c", 0, 9, "chat", told={"gen_ai.request.model": "m", **told})
    made["events"] = [{"name": name, "attributes": attributes(more)} for name, more in events]
    message, call = records(made)
    assert call.action.arguments["messages"] == SAID
    assert call.observation.value == REPLY
    assert (message.action.name, message.action.arguments["text"]) == ("user", "Refund A-7")


def test_contents_logged_next_to_the_spans_are_found_by_their_span() -> None:
    logged = [(name, more) for name, more in SPOKEN] + [("gen_ai.choice", CHOICE)]
    row = document(span("c", 0, 9, "chat"), span("d", 10, 19, "chat"))
    row["resourceLogs"] = [
        {"scopeLogs": [{"logRecords": [
            {"traceId": TRACE, "spanId": "c", "eventName": name, "body": value(more)} for name, more in logged
        ]}]}
    ]  # fmt: skip
    (trace,) = imported(row)
    calls = [record for record in trace.records if record.action.kind == "model_call"]
    assert calls[0].action.arguments["messages"] == SAID
    assert calls[0].observation.value == REPLY
    assert calls[1].action.arguments == {}


def test_without_captured_content_the_finish_reason_is_what_is_known_of_a_reply() -> None:
    (call,) = records(span("c", 0, 9, "chat", told={"gen_ai.response.finish_reasons": ["length"]}))
    assert call.observation.value == {"role": "assistant", "finish_reason": "length"}


def test_a_users_text_is_a_message_as_often_as_it_was_said() -> None:
    def asked(*texts: str) -> dict[str, str]:
        return {"gen_ai.input.messages": json.dumps([{"role": "user", "content": text} for text in texts])}

    found = records(
        span("1", 0, 1, "chat", told=asked("yes")),
        span("2", 2, 3, "chat", told=asked("yes", "yes")),
        span("3", 4, 5, "chat", told=asked("yes", "yes", "no")),
    )
    assert [(record.action.arguments["text"], record.at_ms) for record in found if record.action.kind == "message"] == [
        ("yes", 0), ("yes", 2), ("no", 4),
    ]  # fmt: skip


def test_a_tool_that_only_messages_tell_of_is_a_call_between_the_model_calls() -> None:
    answer = {"role": "tool", "tool_call_id": "x1", "content": '{"ok": true}'}
    chats = [
        span("1", 0, 10, "chat", told=WHOLE),
        span("2", 20, 30, "chat", told={"gen_ai.input.messages": json.dumps([*PARTS_IN, *PARTS_OUT, answer])}),
        span("3", 40, 50, "chat", told={"gen_ai.input.messages": json.dumps([*PARTS_IN, *PARTS_OUT, answer])}),
    ]
    (tool,) = (record for record in records(*chats) if record.action.kind == "tool_call")
    assert (tool.action.name, tool.action.arguments, tool.observation.value) == ("refund", {"order": "A-7"}, {"ok": True})
    assert (tool.at_ms, tool.sealed_ms) == (10, 20)
    seen = span("t", 12, 15, "execute_tool", told={"gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "x1"})
    (own,) = (record for record in records(*chats, seen) if record.action.kind == "tool_call")
    assert (own.at_ms, own.action.arguments) == (12, {"order": "A-7"})  # its arguments are those that the model gave


# -- what is missing or odd -------------------------------------------------------------------------------------------


def test_nanoseconds_are_numbers_or_texts_and_other_fields_may_be_absent() -> None:
    bare = {"spanId": "1", "startTimeUnixNano": 1_000_000, "endTimeUnixNano": "3000000", "name": "execute_tool find"}
    bare["attributes"] = attributes({"gen_ai.operation.name": "execute_tool"})  # type: ignore[assignment]
    plain = {"startTimeUnixNano": "9000000", "attributes": {"gen_ai.tool.name": "book", "other": 1}}
    (trace,) = imported(document(bare, plain))
    found = list(trace.records)
    assert trace.id == "runs.jsonl:1"
    assert [(record.action.name, record.at_ms, record.sealed_ms) for record in found] == [("find", 0, 2), ("book", 8, 8)]
    assert found[1].observation.cancelled
    assert not trace.finished
    assert trace.labels["source_steps"] == ("1", "")


def test_a_trace_is_finished_where_all_spans_ended_and_no_local_parent_is_missing() -> None:
    whole = [span("a", 0, 9, "invoke_agent", told=AGENT), span("c", 1, 2, "chat", parent="a")]
    assert imported(document(*whole))[0].finished
    (cut,) = imported(document(whole[1]))
    assert (cut.finished, cut.labels["parents_missing"]) == (False, 1)
    assert imported(document(span("c", 1, 2, "chat", parent="a", flags=0x300)))[0].finished
    (running,) = imported(document(span("a", 0, None, "invoke_agent", told=AGENT), whole[1]))
    assert not running.finished
    assert shape(list(running.records)) == [("clerk", "model_call", "chat")]  # it has not answered yet


def test_a_trace_over_rows_that_follow_each_other_is_the_trace_of_one_row() -> None:
    spans = [
        span("c", 1, 2, "chat", parent="a"), span("t", 3, 4, "execute_tool", parent="a"),
        span("a", 0, 9, "invoke_agent", told=AGENT),
    ]  # fmt: skip
    (whole,) = imported(document(*spans))
    (parts,) = imported(*(document(item) for item in spans))
    assert (tuple(parts.records), parts.finished, parts.id) == (tuple(whole.records), True, TRACE)


def test_rows_that_name_different_cases_and_other_traces_between_are_traces_of_their_own() -> None:
    one, two = span("1", 0, 1, "chat"), span("2", 2, 3, "chat")
    cases = imported({"test": "a", "otlp": document(one)}, {"test": "b", "otlp": document(two)})
    assert [(trace.labels["test"], len(list(trace.records))) for trace in cases] == [("a", 1), ("b", 1)]
    apart = imported(document(one), document(span("x", 0, 1, "chat", trace="f" * 32)), document(two))
    assert [trace.id for trace in apart] == [TRACE, "f" * 32, TRACE]
    both = imported(document(one, span("x", 0, 1, "chat", trace="f" * 32)), document(two))
    assert [(trace.id, len(list(trace.records))) for trace in both] == [("f" * 32, 1), (TRACE, 2)]


def test_reading_holds_the_traces_of_one_row_only() -> None:
    taken = []

    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(100):
            taken.append(number)
            yield f"x:{number}", document(span("1", 0, 1, "chat", trace=f"{number + 1:032x}"))

    traces = FORMAT.traces(rows())
    for number in range(50):
        next(traces)
        assert len(taken) == number + 2


def test_a_span_that_ends_before_it_starts_ends_when_it_starts() -> None:
    found = records(span("a", 7, 5, "invoke_agent", told=AGENT), span("c", 8, 2, "chat", parent="a"))
    assert [(record.action.kind, record.at_ms, record.sealed_ms) for record in found] == [
        ("final_response", 0, 0), ("model_call", 1, 1),
    ]  # fmt: skip


def test_a_circle_of_parents_ends() -> None:
    found = records(
        span("1", 0, 5, "chat", parent="2"), span("2", 1, 4, "invoke_agent", parent="3"), span("3", 2, 3, "x", parent="1")
    )
    assert [record.action.kind for record in found] == ["model_call", "final_response"]


@pytest.mark.full
def test_spans_nested_ten_thousand_deep_are_read_in_one_pass() -> None:
    chain = [span(f"s{n}", n, 20_000 - n, "POST", parent=f"s{n - 1}" if n else "") for n in range(10_000)]
    chain[0] = span("s0", 0, 20_000, "invoke_agent", told=AGENT)
    found = records(*reversed(chain), span("c", 10_000, 10_001, "chat", parent="s9999"))
    assert shape(found) == [("clerk", "model_call", "chat"), ("clerk", "final_response", "answer")]


def test_spans_that_are_no_steps_pass_on_who_acts_and_are_counted() -> None:
    (trace,) = imported(document(
        span("a", 0, 9, "invoke_agent", told=AGENT), span("h", 1, 8, "POST", parent="a"), span("c", 2, 3, "chat", parent="h"),
    ))  # fmt: skip
    assert shape(list(trace.records))[0] == ("clerk", "model_call", "chat")
    assert trace.labels["spans_left_out"] == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"resourceSpans": 3}, "resourceSpans"),
        ({"resourceSpans": [3]}, "resourceSpans"),
        ({"resourceSpans": [{"scopeSpans": {}}]}, "scopeSpans"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "soon"}]}]}]}, "startTimeUnixNano"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": 3}]}]}]}, "attributes"),
        ({"other": 1}, "neither resourceSpans nor resourceLogs"),
    ],
)
def test_a_row_of_another_shape_is_an_error_with_its_position(row: dict[str, Any], said: str) -> None:
    with pytest.raises(MatError, match=said) as caught:
        imported(row)
    assert "runs.jsonl:1" in caught.value.where


def test_an_empty_document_and_logs_alone_are_no_traces() -> None:
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": TRACE, "body": {"stringValue": "x"}}]}]}]}
    assert imported({"resourceSpans": []}, {"resourceSpans": [{}]}, logs) == []


TEXTS = ["chat", "execute_tool", "invoke_agent", '[{"role": 3, "parts": [4, {"type": "tool_call"}]}]', '{"a": [1', "1"]
KEYS = ["key", "value", "stringValue", "arrayValue", "values", "role", "content", "parts", "tool_calls", "message"]
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=6) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    "gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.call.arguments",
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.usage.input_tokens", "events",
    "gen_ai.response.finish_reasons", "gen_ai.prompt.0.content", "gen_ai.completion.0.tool_calls.0.name", "final_result",
    "error.type", "pydantic_ai.all_messages", "gen_ai.memory.record.id", "gen_ai.retrieval.documents",
]  # fmt: skip
OURS = [
    "mat.format", "mat.step", "mat.action.kind", "mat.action.name", "mat.arguments.asked", "mat.observation.error", "mat.links",
    "mat.run.records", "mat.run.id", "mat.run.head", "mat.run.elapsed_ms", "mat.mediation.decision", "mat.mediation.under",
]  # fmt: skip
odd_spans = st.fixed_dictionaries(
    {"attributes": st.dictionaries(st.sampled_from(NAMES), junk, max_size=6)},
    optional={
        **dict.fromkeys(("traceId", "name", "status", "flags", "kind"), junk),
        "spanId": st.sampled_from(["1", "2", 3]),
        "parentSpanId": st.sampled_from(["1", "2", 3, None, "0000"]),
        "startTimeUnixNano": st.sampled_from([0, 5, "7", None, "", -1, 1e300, "x", True]),
        "endTimeUnixNano": st.sampled_from([0, 5, "7", None, "", -1, float("inf")]),
        "events": st.lists(st.fixed_dictionaries({"name": st.sampled_from([
            "exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.content.prompt",
        ]), "attributes": st.dictionaries(st.sampled_from([*NAMES, "content", "message", "tool_calls"]), junk, max_size=3)}),
            max_size=2),
    },
)  # fmt: skip


@given(spans=st.lists(odd_spans, max_size=4))
@settings(max_examples=300, deadline=None)
def test_whatever_a_document_holds_it_is_imported_or_refused_with_its_position(spans: list[dict[str, Any]]) -> None:
    traces, refused = [], ""
    try:
        traces = imported(document(*spans))
    except MatError as error:
        refused = error.where
    assert traces or refused.startswith("runs.jsonl:1") or not spans
    for trace in traces:
        found = list(trace.records)
        assert [record.step for record in found] == list(range(len(found)))
        assert all(0 <= record.at_ms <= record.sealed_ms and record.asked_seq < record.sealed_seq for record in found)
        assert [record.asked_seq for record in found] == sorted(record.asked_seq for record in found)


ours = st.fixed_dictionaries(
    {
        "attributes": st.dictionaries(st.sampled_from([*OURS, *NAMES]), junk, max_size=4).map(
            lambda some: {"mat.step": 0, "mat.format": 1} | some
        )
    }
)


@example(spans=[{"attributes": {"mat.step": 0, "mat.format": 1, "mat.mediation.decision": None, "mat.mediation.under": None}}])
@example(
    spans=[{"attributes": {"mat.step": 0, "mat.format": 1, "mat.mediation.decision": "allow", "mat.mediation.under": "r"}}]
)
@given(spans=st.lists(ours | odd_spans, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_whatever_claims_to_be_a_span_of_ours_is_imported_or_refused_with_its_position(spans: list[dict[str, Any]]) -> None:
    refused = ""
    try:
        for trace in imported(document(*spans)):
            assert [record.step for record in trace.records] == list(range(len(tuple(trace.records))))
    except MatError as error:
        refused = error.where
    assert not refused or refused.startswith("runs.jsonl:1")


# -- what could not be known ------------------------------------------------------------------------------------------

ALWAYS = {"effect", "effected", "mediation", "faults", "links", "state", "emitted"}


def unknown(*spans: dict[str, Any]) -> dict[str, int]:
    """How many spans each gap concerns, without those of every trace of foreign spans."""
    (trace,) = imported(document(*spans))
    assert trace.labels["lossy"]
    told = trace.labels["unknown"]
    assert set(told) >= ALWAYS
    assert all(item["text"] for item in told.values())
    return {code: item["count"] for code, item in told.items() if code not in ALWAYS}


FULL_CHAT = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 3, **WHOLE}
FULL_TOOL = {"gen_ai.tool.name": "t", "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "0"}


def test_a_trace_that_tells_all_that_spans_can_lacks_only_what_no_span_tells() -> None:
    assert unknown(
        span("a", 0, 20, "invoke_agent", told={**AGENT, "final_result": "done"}),
        span("c", 1, 2, "chat", parent="a", told=FULL_CHAT),
        span("t", 3, 4, "execute_tool", parent="a", told=FULL_TOOL),
        span("r", 5, 6, "retrieval", parent="a", told={"gen_ai.retrieval.documents": "[]"}),
    ) == {}  # fmt: skip


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (span("c", 0, 1, "chat"), {"inputs": 1, "outputs": 1, "usage": 1}),
        (span("c", 0, 1, "chat", told={"gen_ai.usage.output_tokens": 1}), {"inputs": 1, "outputs": 1}),
        (span("c", 0, 1, "chat", told=FULL_CHAT, error="it failed"), {}),
        (span("t", 0, 1, "execute_tool"), {"arguments": 1, "results": 1}),
        (span("t", 0, 1, "execute_tool", error="it failed"), {"arguments": 1}),
        (span("t", 0, None, "execute_tool", told=FULL_TOOL), {"ends": 1}),
        (span("t", 0, 1, "execute_tool", told=FULL_TOOL, parent="gone"), {"parents": 1}),
        (span("t", 0, 1, "execute_tool", told=FULL_TOOL, droppedAttributesCount=2), {"dropped": 1}),
        (span("m", 0, 1, "search_memory"), {"stored": 1}),
        (span("a", 0, 1, "invoke_agent"), {"answer": 1}),
        (span("p", 0, 1, "plan"), {"spans_left_out": 1}),
    ],
)
def test_each_gap_is_counted_where_it_is_met(made: dict[str, Any], expected: dict[str, int]) -> None:
    assert unknown(made) == expected


def test_a_delegation_without_a_task_and_a_tool_that_only_messages_tell_of_are_counted() -> None:
    answer = {"role": "tool", "tool_call_id": "x1", "content": "done"}
    later = {**FULL_CHAT, "gen_ai.input.messages": json.dumps([*PARTS_IN, *PARTS_OUT, answer])}
    assert unknown(
        span("a", 0, 90, "invoke_agent", told={**AGENT, "final_result": "done"}),
        span("b", 1, 2, "invoke_agent", parent="a", told={"gen_ai.agent.name": "b"}),
        span("c", 10, 20, "chat", parent="a", told=FULL_CHAT),
        span("d", 30, 40, "chat", parent="a", told=later),
    ) == {"tasks": 1, "unseen_tools": 1}  # fmt: skip


def test_a_call_that_was_cancelled_is_no_error() -> None:
    (found,) = records(span("t", 0, 1, "execute_tool", told={"error.type": "asyncio.CancelledError"}, error="stopped"))
    assert (found.observation.cancelled, found.observation.error, found.effected) == (True, None, "unknown")
    (failed,) = records(span("t", 0, 1, "execute_tool", told={"error.type": "CancelledErrorHandlerError"}, error="stopped"))
    assert (failed.observation.cancelled, failed.observation.error is not None) == (False, True)


def test_the_order_of_a_document_does_not_matter() -> None:
    spans = [
        span("a", 0, 90, "invoke_agent", told=AGENT),
        span("b", 1, 50, "invoke_agent", parent="a", told={"gen_ai.agent.name": "b"}),
        span("c", 10, 20, "chat", parent="b", told=FULL_CHAT),
        span("t", 21, 22, "execute_tool", parent="b", told=FULL_TOOL),
        span("d", 60, 70, "chat", parent="a", told=FULL_CHAT),
    ]
    expected = records(*spans)
    for shuffled in itertools.permutations(spans):
        assert records(*shuffled) == expected


def test_of_spans_that_begin_together_the_longest_is_around_the_others() -> None:
    inner = span("i", 5, 6, "execute_tool", parent="o", told={**FULL_TOOL, "gen_ai.tool.name": "inner"})
    outer = span("o", 5, 9, "execute_tool", told={**FULL_TOOL, "gen_ai.tool.name": "outer"})
    assert [record.action.name for record in records(inner, outer)] == ["outer", "inner"]
    assert records(inner, outer) == records(outer, inner)


def test_reading_documents_does_without_the_sdk() -> None:
    code = "import sys, mat.adapters.importers.otlp; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
