"""Contracts on running programs: early word of violations, and results that are those of the importer on the same spans."""

from __future__ import annotations

import gzip
import json
import logging
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.sdk.trace import IdGenerator, ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mat
from mat.adapters.importers.otlp import FORMAT
from mat.adapters.otel import Alert, MatSpanProcessor, TraceResult, export
from mat.adapters.otel.traces import judged
from mat.core.digest import digest
from mat.core.errors import SpecError
from mat.core.record import facts
from mat.core.verdict import ContractOutcome, Violation
from mat.temporal import action, always, at_most, eventually, once, tool_call

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "otel-genai"
EPOCH = 1_700_000_000_000_000_000
VERIFIED = mat.contract(
    "refund.verified",
    always(tool_call("refund").implies(once(tool_call("verify")))),
)
ANSWERED = mat.contract("run.answered", eventually(action("final_response")))
FEW_CALLS = mat.contract("calls.few", always(at_most(2, action("tool_call"))), severity="soft")
CONTRACTS = (VERIFIED, ANSWERED, FEW_CALLS)


class Program:
    """A program of plain OpenTelemetry: agents, tools and models as the conventions have them; time is ours."""

    def __init__(self, *processors: SpanProcessor, ids: IdGenerator | None = None) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider(id_generator=ids, shutdown_on_exit=False)
        for processor in (*processors, SimpleSpanProcessor(self.spans)):
            self.provider.add_span_processor(processor)
        self.tracer = self.provider.get_tracer("program")
        self.now = 0

    def begin(self, operation: str, *, within: otel.Span | None = None, at: int | None = None, **told: Any) -> otel.Span:
        context = Context() if within is None else otel.set_span_in_context(within, Context())
        self.now += 1
        plain = {"gen_ai.operation.name": operation} if operation else {}
        named = {f"gen_ai.{key.replace('__', '.')}": item for key, item in told.items()}
        start = EPOCH + (self.now if at is None else at) * 1_000_000
        return self.tracer.start_span(operation or "POST /chat", context=context, attributes=plain | named, start_time=start)

    def end(self, span: otel.Span, *, error: str = "") -> None:
        self.now += 1
        if error:
            span.set_status(otel.StatusCode.ERROR, error)
        span.end(EPOCH + self.now * 1_000_000)

    def agent(self, name: str = "clerk", within: otel.Span | None = None) -> otel.Span:
        return self.begin("invoke_agent", within=within, agent__name=name)

    def tool(self, name: str, within: otel.Span, **told: Any) -> None:
        self.end(self.begin("execute_tool", within=within, tool__name=name, **told))


def told(processor_arguments: Mapping[str, Any] | None = None, contracts: Iterable[Any] = CONTRACTS) -> tuple[Any, list[Alert]]:
    alerts: list[Alert] = []
    return MatSpanProcessor(contracts, on_violation=alerts.append, **(processor_arguments or {})), alerts


def said(outcomes: Iterable[ContractOutcome]) -> list[tuple[str, str, tuple[Violation, ...]]]:
    return [(item.contract, item.outcome, item.violations) for item in outcomes]


def in_order(violations: Iterable[Violation]) -> list[Violation]:
    return sorted(violations, key=lambda item: (item.step, item.contract, item.message))


def about(violation: Violation) -> tuple[str, str, str]:
    """A violation without its step: an agent's answer takes its place among the steps when the trace is whole."""
    return violation.contract, violation.agent, violation.message


def codes(result: TraceResult) -> set[str]:
    return {item.code for item in result.unknown}


# -- while it goes on -------------------------------------------------------------------------------------------------


def test_a_violation_is_reported_when_its_tool_has_ended_and_the_agent_still_works() -> None:
    processor, alerts = told()
    program = Program(processor)
    clerk = program.agent()
    program.tool("search", clerk)
    assert alerts == []
    program.tool("refund", clerk)
    (alert,) = alerts
    assert (alert.violation.contract, alert.violation.step, alert.early) == ("refund.verified", 1, True)
    assert alert.record is not None
    assert (alert.record.agent, alert.record.action.name, alert.record.action.effect) == ("clerk", "refund", "write")
    assert processor.results == ()
    program.end(clerk)
    (result,) = processor.results
    assert len(alerts) == 1
    assert [item.contract for item in result.violations] == ["refund.verified"]
    assert (result.outcome, result.withdrawn, result.reason, result.finished) == ("fail", (), "ended", True)
    assert result.trace == alert.trace


def test_a_program_that_keeps_its_contracts_is_not_told_of() -> None:
    processor, alerts = told()
    program = Program(processor)
    clerk = program.agent()
    program.tool("verify", clerk)
    program.tool("refund", clerk)
    program.end(clerk)
    (result,) = processor.results
    assert alerts == []
    assert result.outcome == "pass"
    assert [record.action.name for record in result.records] == ["verify", "refund", "answer"]


def test_nothing_is_judged_before_what_began_before_it_has_ended() -> None:
    processor, alerts = told()
    program = Program(processor)
    clerk = program.agent()
    verify = program.begin("execute_tool", within=clerk, tool__name="verify")
    program.tool("refund", clerk)
    assert alerts == []  # whether the tool that began before is the verification is known when it ends
    program.end(verify)
    assert alerts == []
    other = program.begin("execute_tool", within=clerk, tool__name="book")
    other.set_attribute("gen_ai.tool.name", "archive")
    program.tool("search", clerk)
    assert alerts == []
    program.end(other)
    assert [(alert.violation.contract, alert.violation.step) for alert in alerts] == [("calls.few", 2), ("calls.few", 3)]


def test_a_span_that_is_no_step_holds_nothing_up_once_there_are_spans_inside() -> None:
    processor, alerts = told()
    program = Program(processor)
    request = program.begin("")
    clerk = program.agent(within=request)
    program.tool("refund", clerk)
    assert [alert.early for alert in alerts] == [True]
    program.end(clerk)
    program.end(request)
    assert len(processor.results) == 1


def test_what_a_delegated_agent_does_is_reported_when_its_span_has_ended() -> None:
    processor, alerts = told()
    program = Program(processor)
    clerk = program.agent()
    mailer = program.agent("mailer", within=clerk)
    program.tool("refund", mailer)
    assert alerts == []
    program.end(mailer)
    (alert,) = alerts
    assert (alert.violation.agent, alert.early) == ("mailer", True)
    program.end(clerk)
    (result,) = processor.results
    assert [record.action.kind for record in result.records] == ["delegation", "tool_call", "final_response"]


def test_what_still_had_to_happen_is_reported_at_the_end() -> None:
    processor, alerts = told()
    program = Program(processor)
    program.end(program.begin("execute_tool", tool__name="search"))
    (alert,) = alerts
    assert (alert.violation.contract, alert.early) == ("run.answered", False)
    assert alert.record is not None
    assert alert.record.action.name == "search"


def test_what_a_late_span_mends_is_withdrawn() -> None:
    processor, alerts = told()
    program = Program(processor)
    clerk = program.agent()
    program.tool("refund", clerk)
    assert [alert.violation.contract for alert in alerts] == ["refund.verified"]
    verify = program.begin("execute_tool", within=clerk, at=1, tool__name="verify")  # reported afterwards, with its own time
    verify.end(EPOCH + 1_500_000)
    program.end(clerk)
    (result,) = processor.results
    assert result.outcome == "pass"
    assert [item.contract for item in result.withdrawn] == ["refund.verified"]
    assert [record.action.name for record in result.records] == ["verify", "refund", "answer"]


# -- the same as offline ----------------------------------------------------------------------------------------------


class Preset(IdGenerator):
    """Ids that a test has chosen."""

    span = trace = 1

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


def plain(value: Mapping[str, Any]) -> Any:
    ((tag, inner),) = value.items()
    if tag == "intValue":
        return int(inner)
    if tag == "arrayValue":
        return [plain(item) for item in inner.get("values", [])]
    if tag == "kvlistValue":
        return {item["key"]: plain(item["value"]) for item in inner.get("values", [])}
    return inner


def replayed(document: Mapping[str, Any], processor: SpanProcessor) -> None:
    """Do what the program did that a document tells of: begin and end its spans, in the order of their times."""
    ids = Preset()
    program = Program(processor, ids=ids)
    spans = [span for part in document["resourceSpans"] for scope in part["scopeSpans"] for span in scope["spans"]]
    moments = []
    for number, span in enumerate(spans):
        start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        moments += [(start, 0, -end, number), (end, 1, number, number)]
    made: dict[str, otel.Span] = {}
    for at, phase, _, number in sorted(moments):
        span = spans[number]
        if phase:
            for event in span.get("events", []):
                attributes = {item["key"]: plain(item["value"]) for item in event.get("attributes", [])}
                made[span["spanId"]].add_event(event["name"], attributes)
            if span["status"].get("code") == 2:
                made[span["spanId"]].set_status(otel.StatusCode.ERROR, span["status"].get("message"))
            made[span["spanId"]].end(at)
            continue
        ids.span, ids.trace = int(span["spanId"], 16), int(span["traceId"], 16)
        context, parent = Context(), span.get("parentSpanId")
        if parent:
            elsewhere = otel.NonRecordingSpan(otel.SpanContext(ids.trace, int(parent, 16), False, otel.TraceFlags(1)))
            context = otel.set_span_in_context(made.get(parent, elsewhere), context)
        attributes = {item["key"]: plain(item["value"]) for item in span["attributes"]}
        made[span["spanId"]] = program.tracer.start_span(span["name"], context=context, start_time=at, attributes=attributes)


def documents() -> Iterator[Mapping[str, Any]]:
    for path in sorted(DATA.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                yield json.loads(line)["otlp"]


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded spans of ../shared/data are not here")
def test_every_recorded_document_is_judged_online_as_offline_and_no_early_word_is_withdrawn() -> None:
    no_tools = mat.contract("tools.none", always(~action("tool_call")))
    contracts = (no_tools, ANSWERED, FEW_CALLS)
    count, early = 0, 0
    for document in documents():
        processor, alerts = told(contracts=contracts)
        replayed(document, processor)
        stored = list(FORMAT.traces(iter([("documents:1", document)])))
        for result, trace in zip(processor.results, stored, strict=True):
            assert result.records == tuple(trace.records)
            assert said(result.outcomes) == said(judged(tuple(trace.records), contracts, finished=trace.finished))
            assert (result.finished, result.lossy, codes(result)) == (trace.finished, True, set(trace.labels["unknown"]))
            assert result.withdrawn == ()
            expected = [item for item in result.violations if item.contract != "run.answered"]
            assert in_order(alert.violation for alert in alerts if alert.early) == in_order(expected)
        count += 1
        early += sum(alert.early for alert in alerts)
    assert (count, early > 50) == (125, True)


TOOLS = ("verify", "refund", "search_orders")
PARTS = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Refund A-7"}]}])
ASKS = json.dumps([{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "refund", "arguments": {}}]}])
ANSWERS = json.dumps([{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "done"}]}])
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"},
    {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "mailer", "final_result": "done"},
    *({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool} for tool in TOOLS),
    {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"},
    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": PARTS},
    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.output.messages": ASKS},
    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": ANSWERS},
    {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": "kb"},
)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, int, int | None, dict[str, Any], bool]], list[tuple[int, bool]]]:
    """Spans (start, end, parent, attributes, failed) with starts of their own, and an order in which they begin and end.

    The order has nothing to do with the times, but the span that begins first ends last: so the trace is one.
    """
    count = draw(st.integers(1, 9))
    starts = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count, unique=True))
    spans = []
    for number, start in enumerate(starts):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        spans.append((start, start + draw(st.integers(0, 40)), parent, draw(st.sampled_from(SHAPES)), draw(st.booleans())))
    order: list[tuple[int, bool]] = [(0, False)]
    waiting, open_spans = list(range(1, count)), []
    while waiting or open_spans:
        if waiting and (not open_spans or draw(st.booleans())):
            open_spans.append(waiting[0])
            order.append((waiting.pop(0), False))
        else:
            order.append((open_spans.pop(draw(st.integers(0, len(open_spans) - 1))), True))
    return spans, [*order, (0, True)]


@pytest.mark.full
@given(made=programs(), shuffled=st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_online_verdicts_are_offline_verdicts_in_whatever_order_spans_come(
    made: tuple[Any, Any], shuffled: random.Random
) -> None:
    spans, order = made
    processor, alerts = told()
    program = Program(processor)
    running: dict[int, otel.Span] = {}
    for number, ending in order:
        start, end, parent, attributes, failed = spans[number]
        if not ending:
            around = Context() if not number else otel.set_span_in_context(running[parent or 0], Context())
            at = EPOCH + start * 1_000_000
            running[number] = program.tracer.start_span("step", context=around, attributes=attributes, start_time=at)
            continue
        if failed:
            running[number].set_status(otel.StatusCode.ERROR, "ValueError: no")
        running[number].end(EPOCH + end * 1_000_000)
    ended = list(program.spans.get_finished_spans())
    shuffled.shuffle(ended)
    (stored,) = read_back(ended)
    records = tuple(stored.records)
    if not records:
        assert processor.results == ()
        return
    (result,) = processor.results
    assert result.records == records
    assert said(result.outcomes) == said(judged(records, CONTRACTS, finished=stored.finished))
    assert (result.finished, codes(result)) == (stored.finished, set(stored.labels["unknown"]))
    early = Counter(alert.violation.contract for alert in alerts if alert.early)
    early -= Counter(item.contract for item in result.withdrawn)
    assert early <= Counter(item.contract for item in result.violations)
    late = Counter(alert.violation.contract for alert in alerts if not alert.early)
    assert early + late == Counter(item.contract for item in result.violations)


def lived(program: Program, spans: list[Any]) -> None:
    """Begin and end spans in the order of their times."""
    running: dict[int, otel.Span] = {}
    moments = [(start, 0, number) for number, (start, *_) in enumerate(spans)]
    moments += [(end, 1, number) for number, (_, end, *_) in enumerate(spans)]
    for at, phase, number in sorted(moments):
        if phase:
            running[number].end(EPOCH + at)
            continue
        _, _, parent, attributes, _ = spans[number]
        around = Context() if parent is None else otel.set_span_in_context(running[parent], Context())
        running[number] = program.tracer.start_span("step", context=around, attributes=attributes, start_time=EPOCH + at)


@given(made=programs())
@settings(max_examples=100, deadline=None)
def test_where_spans_come_in_the_order_of_their_times_early_words_are_never_withdrawn(made: tuple[Any, Any]) -> None:
    spans = nested(made[0])
    processor, alerts = told()
    program = Program(processor)
    lived(program, spans)
    for result in processor.results:
        assert result.withdrawn == ()
        early = Counter(about(alert.violation) for alert in alerts if alert.early)
        assert early <= Counter(map(about, result.violations))


@mat.trace_contract(start=0, id="mirror")
def mirror(count: int, record: mat.Record) -> mat.Violated:
    return mat.Violated(digest(facts(record)), instance=str(count), state=count + 1)


@pytest.mark.full
@given(made=programs())
@settings(max_examples=100, deadline=None)
def test_records_folded_early_are_those_of_the_whole_trace_fact_by_fact(made: tuple[Any, Any]) -> None:
    spans = nested(made[0])
    spans[0] = (*spans[0][:3], SHAPES[1], False)  # one agent around all
    processor, alerts = told(contracts=(mirror,))
    program = Program(processor)
    lived(program, spans)
    (result,) = processor.results
    assert [alert.violation.message for alert in alerts] == [digest(facts(record)) for record in result.records]
    assert [alert.early for alert in alerts] == [True] * (len(alerts) - 1) + [False]


def test_a_users_words_are_put_before_the_model_call_that_heard_them_first_also_while_it_goes_on() -> None:
    processor, alerts = told(contracts=(mirror,))
    program = Program(processor)
    clerk = program.agent()
    first = program.begin("chat", within=clerk, request__model="slow", input__messages=PARTS)
    program.end(program.begin("chat", within=clerk, request__model="quick", input__messages=PARTS))
    assert alerts == []
    program.end(first)
    told_early = [alert.record for alert in alerts]
    assert [record and record.action.name for record in told_early] == ["user", "slow", "quick"]
    program.end(clerk)
    assert processor.results[0].records[:3] == tuple(told_early)


def nested(spans: list[Any]) -> list[Any]:
    """The same spans, each inside its parent and next to or across its siblings; messages that tell of a tool are left out."""
    found: list[Any] = []
    count = len(spans)
    for number, (begun, ended, parent, attributes, failed) in enumerate(spans):
        parent = 0 if number and parent is None else parent
        told_of = {key: item for key, item in attributes.items() if not key.endswith((".messages", "call.id"))}
        inside = (0, 10**15) if parent is None else (found[parent][0], found[parent][1])
        width = (inside[1] - inside[0]) // (count + 2)
        start = inside[0] + width * (number + 1) + number
        end = min(start + width * (2 * ((ended - begun) % 4) + 1) // 2, inside[1] - 1) - number
        assert inside[0] < start < end < inside[1]
        found.append((start, end, parent, told_of, failed))
    return found


def read_back(spans: Iterable[ReadableSpan]) -> list[Any]:
    """What the OTLP importer makes of spans."""
    return list(FORMAT.traces(iter([("spans:1", {"resourceSpans": [{"scopeSpans": [{"spans": [*map(encode, spans)]}]}]})])))


def encode(span: ReadableSpan) -> dict[str, Any]:
    assert span.context is not None
    return {
        "traceId": f"{span.context.trace_id:032x}", "spanId": f"{span.context.span_id:016x}", "name": span.name,
        "parentSpanId": "" if span.parent is None else f"{span.parent.span_id:016x}",
        "startTimeUnixNano": str(span.start_time), "endTimeUnixNano": str(span.end_time),
        "attributes": dict(span.attributes or {}), "status": {"code": span.status.status_code.value,
                                                              "message": span.status.description},
    }  # fmt: skip


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_spans_that_never_end_are_judged_when_the_processor_is_closed_and_obligations_stay_open() -> None:
    processor, alerts = told()
    program = Program(processor)
    clerk = program.agent()
    program.tool("refund", clerk)
    program.begin("execute_tool", within=clerk, tool__name="search")
    program.provider.shutdown()
    (result,) = processor.results
    assert (result.reason, result.finished, result.outcome) == ("closed", False, "fail")
    assert [record.action.name for record in result.records] == ["refund", "search"]
    assert result.records[1].observation.cancelled
    assert result.records[1].effected == "unknown"
    assert codes(result) >= {"ends", "early"}
    answered = next(item for item in result.outcomes if item.contract == "run.answered")
    assert (answered.outcome, answered.standing) == ("unknown", "presumably_false")
    assert [alert.violation.contract for alert in alerts] == ["refund.verified"]


def test_after_a_shutdown_nothing_is_judged() -> None:
    processor, _ = told()
    program = Program(processor)
    processor.shutdown()
    program.tool("refund", program.agent())
    assert processor.results == ()


def test_a_child_may_outlive_its_parent() -> None:
    processor, _ = told()
    program = Program(processor)
    clerk = program.agent()
    verify = program.begin("execute_tool", within=clerk, tool__name="verify")
    program.end(clerk)
    assert processor.results == ()
    program.end(verify)
    (result,) = processor.results
    assert {record.action.name for record in result.records} == {"verify", "answer"}


def test_of_too_many_traces_the_one_longest_without_news_is_judged_as_it_stands() -> None:
    processor, _ = told({"max_traces": 2})
    program = Program(processor)
    first, second = program.agent("first"), program.agent("second")
    program.tool("search", first)
    program.tool("search", second)
    program.tool("search", first)
    third = program.agent("third")
    (evicted,) = processor.results
    assert (evicted.reason, evicted.records[0].agent) == ("evicted", "second")
    assert "early" in codes(evicted)
    program.end(second)
    assert processor.late == 1
    program.end(first)
    program.end(third)
    assert [result.reason for result in processor.results] == ["evicted", "ended", "ended"]


def test_memory_does_not_grow_with_the_length_of_a_trace_and_what_is_cut_is_said() -> None:
    processor, _ = told({"max_spans": 5})
    program = Program(processor)
    clerk = program.agent()
    for _ in range(20):
        program.tool("search", clerk)
    program.end(clerk)
    (result,) = processor.results
    assert (len(result.records), result.finished) == (5, False)
    assert [item.count for item in result.unknown if item.code == "cut"] == [16]


def test_memory_does_not_grow_with_the_number_of_traces() -> None:
    processor, _ = told({"keep_results": 3, "max_traces": 4})
    program = Program(processor)
    for _ in range(50):
        clerk = program.agent()
        program.tool("search", clerk)
        program.end(clerk)
    assert len(processor.results) == 3
    assert not processor._traces
    assert len(processor._segments) <= 16


def test_a_trace_of_which_nothing_comes_for_long_is_judged_as_it_stands() -> None:
    processor, _ = told({"idle_s": 60})
    program = Program(processor)
    clerk = program.agent("first")
    program.tool("search", clerk)
    program.now += 59_000
    program.end(program.agent("second"))
    assert [result.records[0].agent for result in processor.results] == ["second"]
    program.now += 2_000
    program.end(program.agent("third"))
    assert [(result.reason, result.records[0].agent) for result in processor.results] == [
        ("ended", "second"), ("ended", "third"), ("idle", "first"),
    ]  # fmt: skip


def test_spans_that_come_after_a_trace_was_judged_are_a_segment_of_their_own() -> None:
    processor, _ = told()
    program = Program(processor, ids=Preset())
    elsewhere = otel.NonRecordingSpan(otel.SpanContext(1, 7, True, otel.TraceFlags(1)))
    for _ in range(2):
        program.tool("search", elsewhere)
    assert [(result.segment, len(result.records), result.finished) for result in processor.results] == [
        (1, 1, True), (2, 1, True),
    ]  # fmt: skip


def test_a_trace_without_a_step_of_an_agent_has_no_result() -> None:
    processor, alerts = told()
    program = Program(processor)
    request = program.begin("")
    program.end(program.begin("", within=request))
    program.end(request)
    assert (processor.results, alerts) == ((), [])


def test_a_watcher_that_fails_is_logged_and_the_program_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def watch(alert: Alert) -> None:
        raise ValueError("the pager is down")

    processor = MatSpanProcessor([VERIFIED], on_violation=watch, on_result=watch)  # type: ignore[arg-type]
    program = Program(processor)
    clerk = program.agent()
    with caplog.at_level(logging.ERROR, "mat.otel"):
        program.tool("refund", clerk)
        program.end(clerk)
    assert len(processor.results) == 1
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_a_watcher_may_make_spans_and_ask_for_results() -> None:
    seen: list[int] = []

    def watch(alert: Alert) -> None:
        program.end(program.begin(""))
        worker = threading.Thread(target=lambda: seen.append(len(processor.results)))
        worker.start()
        worker.join(10)

    processor = MatSpanProcessor([VERIFIED], on_violation=watch)
    program = Program(processor)
    clerk = program.agent()
    program.tool("refund", clerk)
    program.end(clerk)
    assert seen == [0]


def test_spans_of_one_trace_may_come_from_many_threads_and_traces_from_each() -> None:
    processor, alerts = told()
    program = Program(processor)
    team = program.agent("team")

    def work(number: int) -> None:
        own = Program(processor)
        for _ in range(25):
            clerk = own.agent(f"clerk-{number}")
            own.tool("verify" if number % 2 else "search", clerk)
            own.tool("refund", clerk)
            own.end(clerk)
            own.tool("search", team)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    program.end(team)
    *each, shared = sorted(processor.results, key=lambda result: len(result.records))
    assert (len(processor.results), processor.late) == (100, 0)
    assert len(shared.records) == 151
    assert {result.outcome for result in each if result.records[0].agent in ("clerk-1", "clerk-3", "clerk-5")} == {"pass"}
    assert {result.outcome for result in each if result.records[0].agent in ("clerk-0", "clerk-2", "clerk-4")} == {"fail"}
    assert sum(alert.violation.contract == "refund.verified" for alert in alerts) == 75


def test_a_contract_that_crashes_is_reported_and_the_others_go_on() -> None:
    @mat.step_contract(on="tool_call", id="broken")
    def broken(record: mat.Record) -> bool:
        raise KeyError("amount")

    processor, alerts = told(contracts=(broken, VERIFIED))
    program = Program(processor)
    clerk = program.agent()
    program.tool("refund", clerk)
    program.end(clerk)
    (result,) = processor.results
    assert [(item.contract, item.outcome) for item in result.outcomes] == [("broken", "fail"), ("refund.verified", "fail")]
    assert sorted((alert.violation.contract, alert.violation.label) for alert in alerts) == [
        ("broken", "unjudged"), ("refund.verified", ""),
    ]  # fmt: skip


def test_a_contract_on_raw_values_is_unknown_for_spans_are_not_raw() -> None:
    @mat.step_contract(on="tool_call", id="raw", raw=True)
    def raw(record: mat.Record) -> bool:
        return False

    processor, _ = told(contracts=(raw,))
    program = Program(processor)
    program.end(program.begin("execute_tool", tool__name="search"))
    assert [item.outcome for item in processor.results[0].outcomes] == ["unknown"]


def test_a_value_too_deep_to_record_makes_the_trace_unknown_and_not_the_program_fail() -> None:
    processor, alerts = told()
    program = Program(processor)
    deep = "[" * 60 + "]" * 60
    program.end(program.begin("execute_tool", tool__name="refund", tool__call__arguments=deep))
    (result,) = processor.results
    assert "nested more than" in result.error
    assert {item.outcome for item in result.outcomes} == {"unknown"}
    assert alerts == []


def test_effects_may_be_named_where_a_tools_name_misleads() -> None:
    processor, _ = told({"effects": lambda tool: ("read", "low")})
    program = Program(processor)
    program.end(program.begin("execute_tool", tool__name="refund"))
    assert processor.results[0].records[0].action.effect == "read"


def test_effects_that_raise_make_the_trace_unknown_and_not_the_program_fail() -> None:
    processor, alerts = told({"effects": lambda tool: {}[tool]})
    program = Program(processor)
    program.end(program.begin("execute_tool", tool__name="refund"))
    (result,) = processor.results
    assert (result.error, {item.outcome for item in result.outcomes}, alerts) == ("raised KeyError: 'refund'", {"unknown"}, [])


def test_memory_does_not_grow_with_spans_that_never_end() -> None:
    processor, _ = told({"max_spans": 5})
    program = Program(processor)
    clerk = program.agent()
    for _ in range(20):
        program.begin("execute_tool", within=clerk, tool__name="search")
    (trace,) = processor._traces.values()
    assert len(trace.open) == 5
    program.tool("search", clerk)
    processor.close()
    (result,) = processor.results
    assert (len(result.records), result.finished) == (5, False)
    assert [item.count for item in result.unknown if item.code == "cut"] == [17]


def test_each_of_several_violations_of_one_contract_at_one_step_is_reported_once() -> None:
    @mat.step_contract(on="tool_call", id="twice")
    def twice(record: mat.Record) -> mat.Violated:
        return mat.Violated("first", more=(mat.Violated("second"),))

    processor, alerts = told(contracts=(twice,))
    program = Program(processor)
    clerk = program.agent()
    program.tool("search", clerk)
    program.end(clerk)
    assert [(alert.violation.message, alert.early) for alert in alerts] == [("first", True), ("second", True)]
    (result,) = processor.results
    assert (len(result.violations), result.withdrawn) == (2, ())


def test_limits_below_one_and_contracts_that_cannot_be_armed_are_refused_before_a_span_is_made() -> None:
    with pytest.raises(SpecError, match="max_spans=0 is not an integer >= 1; idle_s=-1 is not an integer >= 1"):
        MatSpanProcessor([], max_spans=0, idle_s=-1)
    with pytest.raises(SpecError, match=r"refund\.verified"):
        MatSpanProcessor([VERIFIED, VERIFIED])
    with pytest.raises(SpecError, match="not a contract"):
        MatSpanProcessor([print])  # type: ignore[list-item]


def test_cancelled_calls_are_cancelled_and_failed_ones_are_errors() -> None:
    processor, _ = told()
    program = Program(processor)
    clerk = program.agent()
    program.end(program.begin("execute_tool", within=clerk, tool__name="a"), error="CancelledError: ")
    program.end(program.begin("execute_tool", within=clerk, tool__name="b"), error="ReadTimeout: slow")
    program.end(clerk)
    one, other, _ = processor.results[0].records
    assert (one.observation.cancelled, one.observation.error) == (True, None)
    assert other.observation.error is not None
    assert (other.observation.error.kind, other.observation.cancelled) == ("timeout", False)


def test_a_run_of_ours_sent_through_the_provider_is_judged_as_it_was() -> None:
    @mat.tool(effect="write")
    def refund(order: str) -> str:
        return order

    with mat.run(CONTRACTS, task="team") as run:
        with mat.agent("clerk", role="planner"):
            refund("A1")
            mat.claim("refunded")
    assert run.result is not None
    processor, alerts = told()
    export(run.result, Program(processor).provider)
    (result,) = processor.results
    assert (result.records, result.lossy, result.unknown, result.finished) == (run.result.records, False, (), True)
    assert said(result.outcomes) == said(run.result.outcomes)
    assert [alert.violation for alert in alerts] == list(result.violations)
