"""Runs as spans: what they carry, through which exporters, and that they come back but for what the reference lists as lost."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from helpdesk.team import CAREFUL, NAIVE, Email, Team
from helpdesk.tools import Tools
from helpdesk.world import new_world
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mat
from mat.adapters.importers import StoredTrace
from mat.adapters.importers.otlp import FORMAT
from mat.adapters.otel import LOST, MatSpanProcessor, export, from_otlp_json, names, readable_spans, to_otlp_json
from mat.adapters.otel.unknown import ALWAYS, MET
from mat.core.adversary import Seen
from mat.core.codec import encode
from mat.core.errors import CodecError, MatError, SpecError
from mat.core.record import (
    ACTION_KINDS,
    Action,
    ErrorFact,
    FaultNote,
    Link,
    Mediation,
    Observation,
    Record,
)
from mat.core.run import EquivalenceClass, Run, TapeEntry, Uncaught
from mat.core.spec import RunSpec
from mat.core.value import EMPTY, FrozenDict, FrozenList
from mat.govern.rewrites import clamp
from mat.monitor.judge import judge
from mat.temporal import at_most, tool_call
from mat_contracts import verify_before_act

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "adapters.md"
REFUND = Email(ticket="T1", sender="ann@example.org", text="My kettle arrived broken. Please refund order A1.")
PARCEL = Email(ticket="T2", sender="bob@example.org", text="Where is the parcel of order A2?")
VERIFIED = verify_before_act(tool="refund", within=5)


# -- runs of every kind -----------------------------------------------------------------------------------------------


def done(run: mat.run) -> Run:
    assert run.result is not None
    return run.result


def helped(email: Email, guards: Any = CAREFUL, *perturbations: Any, task: str = "helpdesk") -> Run:
    contracts = [
        VERIFIED,
        mat.contract("one.refund", mat.temporal.always(at_most(1, tool_call("refund")))),
    ]
    with mat.run(contracts, task=task, seed=7, schedule=perturbations, states=True) as run:
        Team(Tools(new_world()), guards).handle(email)
    return done(run)


@mat.tool(effect="write", impact="high")
def pay(to: str = "ann", amount: int = 5) -> str:
    return "paid"


@mat.tool
def look(key: str) -> Any:
    return {"key": key, "seen": [1, 2.5, None, True]}


def governed() -> Run:
    def asks(record: mat.Record) -> Any:
        return mat.policy.NeedsApproval("payment") if record.action.arguments.get("to") == "eve" else None

    def refuses(record: mat.Record) -> Any:
        return mat.policy.Block("not to bob") if record.action.arguments.get("to") == "bob" else mat.policy.Allow()

    rules = (clamp("amount", 0, 100), refuses, asks)
    governance = mat.policy.Governance(rules=rules, approver=lambda what, arguments: arguments.get("amount", 0) < 50)
    with mat.run([VERIFIED], governance=governance, task="governed") as run:
        for arguments in ({"amount": 900}, {"to": "bob"}, {"to": "eve"}, {"to": "eve", "amount": 90}):
            try:
                pay(**arguments)
            except mat.Blocked as error:
                mat.message("ann", str(error))
        mat.grant("mailer", "pay", calls=1, to={"ann"})
    return done(run)


def concurrent() -> Run:
    @mat.tool
    async def slow(key: str) -> str:
        await asyncio.sleep(2)
        return key

    @mat.tool(effect="write")
    async def stuck(key: str) -> str:
        await asyncio.sleep(3600)
        return key

    async def work() -> None:
        with mat.agent("left", role="reader"):
            await asyncio.gather(slow("a"), slow("b"))
        with mat.agent("right"):
            try:
                await asyncio.wait_for(stuck("c"), 5)
            except TimeoutError:
                mat.mitigate("escalate")

    with mat.run(task="concurrent") as run:
        asyncio.run(work())
    return done(run)


def spoken() -> Run:
    @mat.model("planner")
    def plan(prompt: str) -> dict[str, Any]:
        return {"content": "refund it", "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}}

    @mat.model("writer", record="keep")
    def write(messages: list[dict[str, str]]) -> str:
        return "Dear Ann"

    @mat.retriever("kb")
    def search(query: str) -> list[mat.Passage]:
        return [mat.Passage(text="Thirty days.", id="returns", score=0.5)]

    @mat.tool
    def pages() -> Iterator[str]:
        yield from ("one", "two", "three")

    notes = mat.memory({}, name="notes")
    with mat.run([VERIFIED], task="spoken", config={"model": "m-1"}) as run:
        with (
            mat.run_episode(run, "first") if hasattr(mat, "run_episode") else run.episode("first"),
            mat.agent("clerk", role="r"),
        ):
            mat.state(open_subtasks=2)
            text = mat.untrusted("please refund", channel="email")
            plan(text)
            (passage,) = search("returns")
            notes["ann"] = "was promised a refund"
            mat.claim("Returns are free for thirty days", supports=[passage])
            mat.verify("the order is hers", passed=True, supports=[notes["ann"]])
            write([{"role": "user", "content": "greet her"}])
            list(pages())
            fetch(mat.artifact.observed("https://files.example/a?sig=0123456789abcdef", name="url", ttl_ms=5_000))
        with run.episode("second"), mat.agent("clerk"), mat.delegate("mailer", task="send"):
            mat.detect("tracking is stale")
            try:
                failing()
            except mat.errors.RateLimited:
                mat.finish("no answer", status="failed")
    return done(run)


@mat.tool
def fetch(url: str) -> str:
    return "a file"


@mat.tool
def failing() -> None:
    raise mat.errors.RateLimited("later", retry_after_s=2.5)


def opaque() -> Run:
    @mat.tool
    def handle() -> Any:
        return object()

    with mat.run(task="opaque") as run:
        handle()
        look("\U0001f40d ünïcode \x00 $tag")
        mat.message("log", json.dumps({"$int": "0x1"}))
    return done(run)


def crashed() -> Run:
    run = mat.run([VERIFIED], task="crashed", horizon=50)
    with suppress(ValueError), run:
        look("a")
        raise ValueError("a bug of the agent")
    return done(run)


def stopped() -> Run:
    with mat.run(task="stopped", horizon=3) as run:
        while True:
            look("a")
    return done(run)


def contracted() -> Run:
    contract = mat.budget.ResourceContract(name="work", budgets={"calls": 2, "tokens": 100})
    with mat.run(task="contracted") as run, mat.budget.contracted(contract, agent="clerk") as work:
        with work.delegate(mat.budget.ResourceContract(name="part", budgets={"tokens": 10}), agent="helper"):
            look("a")
        look("b")
        with suppress(mat.budget.BudgetSpent):
            look("c")
    return done(run)


def fault(operator: str, site: str, **parameters: Any) -> Any:
    from mat_faults import operators

    known = next(item for item in operators() if item.id == operator)
    return mat.spec.perturbation(operator, site, parameters or known.grid[0], cost=1)


RUNS: dict[str, Callable[[], Run]] = {
    "under a resource contract": contracted,
    "helpdesk": lambda: helped(REFUND),
    "helpdesk, naive, acknowledgement lost": lambda: helped(
        REFUND, NAIVE, fault("service.lost_ack", "mailer/service:refund#1")
    ),
    "helpdesk, stale tracking": lambda: helped(PARCEL, NAIVE, fault("service.stale", "planner/service:track#2")),
    "helpdesk, corrupted order, never reached": lambda: helped(
        PARCEL, CAREFUL, fault("service.error", "planner/service:order#1"), fault("service.timeout", "planner/service:track#9")
    ),
    "governed": governed,
    "concurrent and cancelled": concurrent,
    "models, memory, retrieval, claims, streams, episodes": spoken,
    "opaque and odd": opaque,
    "crashed": crashed,
    "stopped at the horizon": stopped,
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: make() for name, make in RUNS.items()}


def sent(run: Run) -> Any:
    """The OTLP document of a run, as text would bring it."""
    return json.loads(json.dumps(to_otlp_json(run)))


def imported(document: Any) -> StoredTrace:
    (stored,) = FORMAT.traces(iter([("runs.jsonl:1", document)]))
    return stored


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_every_field_of_every_record_comes_back_and_of_the_run_what_is_not_listed_as_lost(
    name: str, runs: dict[str, Run]
) -> None:
    run = runs[name]
    (back,) = from_otlp_json(sent(run))
    for ours, theirs in zip(run.records, back.records, strict=True):
        for field in fields(Record):
            assert encode(getattr(theirs, field.name)) == encode(getattr(ours, field.name)), (ours.step, field.name)
    for field in fields(Run):
        if field.name not in LOST:
            assert getattr(back, field.name) == getattr(run, field.name), field.name
    assert (back.id, back.head, back.view) == (run.id, run.head, run.view)


def test_the_runs_fill_every_field_that_is_compared(runs: dict[str, Run]) -> None:
    filled: set[tuple[type, str]] = set()

    def look_at(value: Any) -> None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                inner = getattr(value, field.name)
                if inner is not None and inner != field.default and inner not in ((), "", 0, False):
                    filled.add((type(value), field.name))
                look_at(inner)
        elif isinstance(value, tuple):
            for item in value:
                look_at(item)

    for run in runs.values():
        look_at(run)
    wanted = {(kind, field.name) for kind in (Record, Action, Observation, ErrorFact, Mediation, FaultNote, Link)
              for field in fields(kind)}  # fmt: skip
    rest = {f"{kind.__name__}.{name}" for kind, name in wanted - filled}
    assert rest <= {
        "FaultNote.changed",
        "Mediation.grant",
        "Mediation.under",
        "Record.taped",
    }  # the property below has these
    kinds = {record.action.kind for run in runs.values() for record in run.records}
    assert set(ACTION_KINDS) - kinds == set()
    kept = {field.name for field in fields(Run)} - set(LOST)
    assert {name for kind, name in filled if kind is Run} >= kept


def test_what_is_listed_as_lost_is_lost(runs: dict[str, Run]) -> None:
    run = runs["helpdesk"]
    entry = TapeEntry(site="a/service:b#1", request="0", mode="external")
    found = EquivalenceClass(site="a/service:b#1", operator="service.error", parameters=EMPTY)
    seen = Seen(
        step=0, kind="tool_call", boundary="service", name="b", agent="a", role="", site="a/service:b#1", impact="low",
        effect="read", rest=3,
    )  # fmt: skip
    full = replace(
        run, tape=(entry,), states=("0",), restricted=FrozenDict({"service:b": FrozenList(["x"])}), contended=(1,),
        equivalence_classes=(found,), margins=FrozenDict({"x": 1}), complete=True, clocked=False, concolic=True, seen=(seen,),
        uncaught=Uncaught(port="service:b", type="TimeoutError"), places=("shop.py:1",),
    )  # fmt: skip
    (back,) = from_otlp_json(sent(full))
    assert {field.name for field in fields(Run) if getattr(back, field.name) != getattr(full, field.name)} == set(LOST)
    assert back.seen == ()


def test_the_reference_lists_what_is_lost_and_nothing_else() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| fields of `Run` |", 1)[1].split("\n\n", 1)[0]
    listed = re.findall(r"`(\w+)`", table)
    assert sorted(listed) == sorted(LOST)


def test_the_reference_lists_what_spans_do_not_tell() -> None:
    part = PAGE.read_text(encoding="utf-8").split("## What spans leave open", 1)[1].split("\n## ", 1)[0]
    always, met = part.split("Where it is met", 1)
    first = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)
    for told, codes in ((always.split("| code |", 1)[1], ALWAYS), (met, MET)):
        assert sorted(re.findall(r"`(\w+)`", " ".join(first.findall(told)))) == sorted(codes)


def test_verdicts_are_made_again_from_what_comes_back(runs: dict[str, Run]) -> None:
    contracts = [
        VERIFIED,
        mat.contract("one.refund", mat.temporal.always(at_most(1, tool_call("refund")))),
    ]
    run = runs["helpdesk, naive, acknowledgement lost"]
    (back,) = from_otlp_json(sent(run))
    verdicts, outcomes = judge(back.records, contracts)
    assert (verdicts, outcomes) == (run.verdicts, run.outcomes)
    assert run.failures != ()


@pytest.mark.parametrize("name", RUNS)
def test_the_importer_reads_our_spans_record_by_record_and_says_that_nothing_is_lost(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    stored = imported(sent(run))
    assert tuple(map(encode, stored.records)) == tuple(map(encode, run.records))
    assert stored.finished
    assert (stored.labels["lossy"], stored.labels["unknown"]) == (False, {})
    told = {key: stored.labels[key] for key in ("run", "head", "task", "seed", "termination", "success", "elapsed_ms")}
    assert told == {
        "run": run.id, "head": run.head, "task": run.spec.task, "seed": run.spec.seed, "termination": run.termination,
        "success": run.success, "elapsed_ms": run.elapsed_ms,
    }  # fmt: skip


names_ = st.text(max_size=8)
numbers = st.integers(-(2**70), 2**70)
leaves = st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=8) | st.binary(max_size=8)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(FrozenList) | st.dictionaries(st.text(max_size=5), inner, max_size=3).map(FrozenDict)
    ),
    max_leaves=6,
)
mappings = st.dictionaries(st.text(max_size=5), values, max_size=3).map(FrozenDict)
small = st.integers(0, 10**9)
waits = st.none() | small
errors = st.builds(ErrorFact, type=names_, message=names_, kind=names_, retry_after_ms=waits)
observations = st.builds(
    Observation, value=values, error=st.none() | errors, cancelled=st.booleans(), chunks=waits, opaque=st.booleans(),
    usage=mappings,
    charged=mappings,
)  # fmt: skip
actions = st.builds(
    Action, kind=st.sampled_from(ACTION_KINDS), name=names_, arguments=mappings,
    effect=st.sampled_from(["none", "read", "write"]), impact=st.sampled_from(["low", "high"]), boundary=names_,
)  # fmt: skip
mediations = st.builds(
    Mediation, decision=st.sampled_from(["allow", "rewrite", "block"]), rule=names_, reason=names_,
    arguments=st.none() | mappings, asked_digest=names_, allowed_digest=names_, approval=names_, grant=names_,
    under=st.lists(names_, max_size=2).map(tuple),
    reserved=mappings,
)  # fmt: skip
steps = st.builds(
    Record, step=st.just(0), at_ms=small, sealed_ms=small, asked_seq=small, sealed_seq=small, agent=names_, role=names_,
    state=mappings, site=names_, action=actions, observation=observations,
    effected=st.sampled_from(["yes", "no", "unknown"]), mediation=st.none() | mediations,
    links=st.lists(st.builds(Link, src=names_, rel=names_, dst=names_), max_size=2).map(tuple), executed=st.none() | mappings,
    raw=st.none() | observations, invoked=small,
    faults=st.lists(
        st.builds(FaultNote, operator=names_, parameters=mappings, effect=names_, changed=st.booleans()), max_size=2
    ).map(tuple), taped=st.booleans(),
)  # fmt: skip
specs = st.builds(RunSpec, task=names_, config=mappings, seed=numbers, horizon_steps=small, horizon_ms=small)


@pytest.mark.full
@given(record=steps, spec=specs, success=st.none() | st.booleans(), error=names_)
@settings(max_examples=150, deadline=None)
def test_whatever_a_run_holds_comes_back(record: Record, spec: RunSpec, success: bool | None, error: str) -> None:
    run = Run(spec=spec, records=(record,), success=success, error=error, termination="completed")
    (back,) = from_otlp_json(sent(run))
    assert encode(back) == encode(run)
    assert back.head == run.head


@pytest.mark.full
@given(record=steps)
@settings(max_examples=60, deadline=None)
def test_whatever_a_run_holds_an_exporter_can_encode(record: Record) -> None:
    for span in readable_spans(Run(spec=RunSpec(), records=(record,))):
        span.to_json().encode("utf-8")
        for value in dict(span.attributes or {}).values():
            for item in value if isinstance(value, tuple) else (value,):
                assert type(item) in (str, bool, int, float)
                assert type(item) is not int or -(2**63) <= item < 2**63
                str(item).encode("utf-8")


# -- what was changed on the way --------------------------------------------------------------------------------------


def spans_of(document: Any) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


def attribute(span: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((item["value"] for item in span["attributes"] if item["key"] == name), None)


def step_span(document: Any, step: int) -> dict[str, Any]:
    return next(span for span in spans_of(document) if attribute(span, names.STEP) == {"intValue": str(step)})


def test_a_changed_fact_is_noticed(runs: dict[str, Run]) -> None:
    document = sent(runs["helpdesk"])
    value = attribute(step_span(document, 2), names.VALUE)
    assert value is not None
    value["stringValue"] = value["stringValue"].replace("A1", "A9")
    stored = imported(document)
    assert stored.labels["lossy"]
    assert set(stored.labels["unknown"]) == {"facts"}


def test_a_changed_end_is_noticed(runs: dict[str, Run]) -> None:
    document = sent(runs["helpdesk"])
    value = attribute(spans_of(document)[0], names.RUN_SCALARS["termination"])
    assert value is not None
    value["stringValue"] = "aborted"
    assert set(imported(document).labels["unknown"]) == {"facts"}


def test_of_a_run_with_a_missing_step_what_stands_before_it_is_read_and_it_is_not_finished(runs: dict[str, Run]) -> None:
    run, document = runs["helpdesk"], sent(runs["helpdesk"])
    spans_of(document).remove(step_span(document, 4))
    stored = imported(document)
    assert tuple(stored.records) == run.records[:4]
    assert not stored.finished
    assert stored.labels["unknown"]["records"]["count"] == len(run.records) - 4
    with pytest.raises(CodecError, match=f"lacks {len(run.records) - 4} of the run's steps"):
        from_otlp_json(document)


def test_steps_without_the_span_of_their_run_are_no_whole_run(runs: dict[str, Run]) -> None:
    document = sent(runs["governed"])
    del spans_of(document)[0]
    stored = imported(document)
    assert tuple(stored.records) == runs["governed"].records
    assert (stored.finished, set(stored.labels["unknown"])) == (False, {"parents"})
    with pytest.raises(CodecError, match=r"has 0 spans with mat\.format"):
        from_otlp_json(document)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (names.VALUE, {"stringValue": '{"a": [1'}, "mat.observation.value is not JSON: Expecting"),
        (names.ARGUMENTS, {"intValue": "3"}, "mat.arguments.asked is not JSON: it is of type int"),
        (names.SCALARS["effected"], {"stringValue": "perhaps"}, "not a record: effected"),
        (names.ACTION["kind"], {"stringValue": "deed"}, r"not a record: action\.kind"),
        (names.STEP, {"stringValue": "two"}, "mat.step is 'two'"),
        (names.STEP, {"intValue": "-1"}, "mat.step is '-1'"),
    ],
)
def test_a_span_of_ours_that_is_not_whole_is_an_error_with_its_place(
    name: str, value: dict[str, Any], said: str, runs: dict[str, Run]
) -> None:
    document = sent(runs["helpdesk"])
    span = step_span(document, 3)
    span["attributes"] = [item for item in span["attributes"] if item["key"] != name] + [{"key": name, "value": value}]
    with pytest.raises(CodecError, match=said) as caught:
        imported(document)
    assert caught.value.where == "runs.jsonl:1"


def test_a_run_of_a_later_format_is_refused(runs: dict[str, Run]) -> None:
    document = sent(runs["crashed"])
    value = attribute(spans_of(document)[0], names.FORMAT)
    assert value is not None
    value["intValue"] = "2"
    with pytest.raises(CodecError, match="is of format 2"):
        from_otlp_json(document)


def test_several_runs_of_one_document_come_back_in_order_and_foreign_traces_are_left_out(runs: dict[str, Run]) -> None:
    some = (runs["crashed"], runs["governed"])
    document = json.loads(json.dumps(to_otlp_json(*some)))
    foreign = {"traceId": "f" * 32, "spanId": "1" * 16, "name": "chat", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    spans_of(document).insert(0, foreign)
    assert [run.head for run in from_otlp_json(document)] == [run.head for run in some]


# -- what spans tell --------------------------------------------------------------------------------------------------


def finished(run: Run) -> dict[str, list[ReadableSpan]]:
    """Spans by name."""
    exporter = InMemorySpanExporter()
    export(run, exporter)
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def span_step(span: ReadableSpan) -> Any:
    return dict(span.attributes or {}).get("mat.step", None)


def events(span: ReadableSpan) -> dict[str, dict[str, Any]]:
    return {event.name: dict(event.attributes or {}) for event in span.events}


def test_a_tool_call_has_the_conventions_names_and_ours_and_what_was_decided(runs: dict[str, Run]) -> None:
    spans = finished(runs["governed"])
    rewritten, blocked, approved, refused = spans["execute_tool pay"]
    told = dict(rewritten.attributes or {})
    executed = json.loads(str(told.pop("gen_ai.tool.call.arguments")))
    assert executed == json.loads(str(told["mat.arguments.executed"])) == {"to": "ann", "amount": 100}
    assert {key: told[key] for key in told if key.startswith("gen_ai.")} == {
        "gen_ai.agent.name": "main", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.result": "paid",
    }  # fmt: skip
    assert json.loads(str(told["mat.arguments.asked"])) == {"to": "ann", "amount": 900}
    assert (told["mat.mediation.decision"], told["mat.action.effect"], told["mat.action.impact"]) == (
        "rewrite",
        "write",
        "high",
    )
    assert events(rewritten)["mat.mediation"]["mat.mediation.decision"] == "rewrite"
    assert events(blocked)["mat.mediation"]["mat.mediation.reason"] == "not to bob"
    assert blocked.status.status_code is otel.StatusCode.ERROR
    assert (dict(approved.attributes or {})["mat.effected"], dict(refused.attributes or {})["mat.effected"]) == ("yes", "no")


def test_faults_and_violations_are_events_of_the_step_they_came_at(runs: dict[str, Run]) -> None:
    run = runs["helpdesk, naive, acknowledgement lost"]
    spans = finished(run)
    first, second = spans["execute_tool refund"]
    assert events(first)["mat.fault"]["mat.fault.operator"] == "service.lost_ack"
    assert "exception" in events(first)
    assert "mat.fault" not in events(second)
    broken = [dict(event.attributes or {}) for event in second.events if event.name == "mat.violation"]
    assert [(item["mat.violation.contract"], item["mat.violation.severity"]) for item in broken] == [
        (violation.contract, "hard")
        for violation in run.failures
        if violation.step == dict(second.attributes or {})["mat.step"]
    ]
    assert "one.refund" in {item["mat.violation.contract"] for item in broken}
    steps = {span_step(span): dict(span.attributes or {}).get("mat.verdict") for of in spans.values() for span in of}
    assert {step for step, verdict in steps.items() if verdict == "hard"} == {violation.step for violation in run.failures}
    (root,) = spans["mat.run helpdesk"]
    assert root.status.status_code is otel.StatusCode.ERROR
    outcomes = [dict(event.attributes or {}) for event in root.events]
    assert {item["mat.contract.id"]: item["mat.contract.outcome"] for item in outcomes} == {
        item.contract: item.outcome for item in run.outcomes
    }


def test_spans_lead_to_the_steps_whose_results_they_rest_on(runs: dict[str, Run]) -> None:
    run = runs["models, memory, retrieval, claims, streams, episodes"]
    spans = finished(run)
    (found,), (claim,) = spans["retrieval kb"], spans["mat.claim claim"]
    (step,) = (record.step for record in run.records if record.action.kind == "retrieval")
    assert dict(claim.attributes or {})["mat.causal.parents"] == (step,)
    assert [link.context.span_id for link in claim.links] == [found.context.span_id]  # type: ignore[union-attr]
    (read,), (write,) = spans["search_memory"], spans["upsert_memory"]
    stored = json.loads(str(dict(write.attributes or {})["gen_ai.memory.records"]))
    assert stored == [{"id": "ann", "content": "was promised a refund"}]
    assert dict(read.attributes or {})["mat.causal.parents"] == (dict(write.attributes or {})["mat.step"],)
    assert dict(read.attributes or {})["mat.causal.previous"] == dict(read.attributes or {})["mat.step"] - 1


def test_prompts_are_hashed_as_in_the_trace_and_replies_and_usage_are_reported(runs: dict[str, Run]) -> None:
    spans = finished(runs["models, memory, retrieval, claims, streams, episodes"])
    (hashed,), (kept,) = spans["chat planner"], spans["chat writer"]
    told = dict(hashed.attributes or {})
    assert "please refund" not in json.dumps(told, default=str)
    assert "gen_ai.input.messages" not in told
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (12, 3)
    (said,) = json.loads(str(told["gen_ai.output.messages"]))
    assert said["parts"] == [{"type": "text", "content": "refund it"}]
    given = json.loads(str(dict(kept.attributes or {})["gen_ai.input.messages"]))
    assert given == [{"role": "user", "parts": [{"type": "text", "content": "greet her"}]}]
    assert hashed.kind is otel.SpanKind.CLIENT


def test_times_are_run_time_and_tell_order_and_concurrency(runs: dict[str, Run]) -> None:
    run = runs["concurrent and cancelled"]
    exporter = InMemorySpanExporter()
    export(run, exporter, began_ns=1_000_000_000)
    of = {dict(span.attributes or {}).get("mat.step"): span for span in exporter.get_finished_spans()}
    for one in run.records:
        assert of[one.step].start_time == 1_000_000_000 + one.at_ms * 1_000_000 + one.asked_seq
        for other in run.records:
            before = of[one.step].end_time < of[other.step].start_time  # type: ignore[operator]
            assert before == one.happened_before(other)
    (stuck,) = (of[record.step] for record in run.records if record.observation.cancelled)
    assert (stuck.status.description, dict(stuck.attributes or {})["error.type"]) == ("CancelledError: ", "CancelledError")


def test_who_reads_only_the_conventions_sees_the_same_calls_in_the_same_order(runs: dict[str, Run]) -> None:
    crossings = ("tool_call", "model_call", "retrieval", "memory_read", "memory_write")
    for name, run in runs.items():
        if name == "concurrent and cancelled":
            continue
        document = sent(run)
        for span in spans_of(document):
            span["attributes"] = [item for item in span["attributes"] if not item["key"].startswith("mat.")]
        stored = imported(document)
        ours = [record for record in run.records if record.action.kind in crossings]
        theirs = [record for record in stored.records if record.action.kind in crossings]
        assert [(record.agent, record.action.kind, record.action.name) for record in theirs] == [
            (record.agent, record.action.kind, record.action.name) for record in ours
        ]
        assert stored.labels["lossy"]


# -- where to ---------------------------------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_spans_and_another_run_others(runs: dict[str, Run]) -> None:
    assert to_otlp_json(helped(REFUND)) == to_otlp_json(runs["helpdesk"])
    one, other = InMemorySpanExporter(), InMemorySpanExporter()
    assert export(runs["helpdesk"], one) == export(runs["helpdesk"], other) != export(runs["governed"], other)
    ids = [span.context.span_id for span in one.get_finished_spans() if span.context]
    assert len(set(ids)) == len(ids) == len(one.get_finished_spans())


def test_the_console_gets_every_span(runs: dict[str, Run]) -> None:
    out = io.StringIO()
    export(runs["governed"], ConsoleSpanExporter(out=out))
    assert out.getvalue().count('"trace_id"') >= len(runs["governed"].records) + 1


def test_a_provider_gets_the_run_through_its_own_processors(runs: dict[str, Run]) -> None:
    for run in runs.values():
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace = export(run, provider)
        spans = exporter.get_finished_spans()
        assert {f"{span.context.trace_id:032x}" for span in spans if span.context} == {trace}
        direct = {span.name: span for span in readable_spans(run)}
        assert sorted(span.name for span in spans) == sorted(span.name for span in readable_spans(run))
        for span in spans:
            same = direct[span.name]
            if [item.name for item in readable_spans(run)].count(span.name) == 1:
                assert dict(span.attributes or {}) == dict(same.attributes or {})
                assert (span.start_time, span.end_time, span.status.status_code) == (
                    same.start_time, same.end_time, same.status.status_code,
                )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (SpanLimits(max_span_attribute_length=60), "a limit of the SDK or of a collector may have cut it|is not JSON"),
        (SpanLimits(max_span_attributes=20), "not a record"),
    ],
)
def test_what_limits_of_a_provider_cut_is_noticed_when_the_run_is_read_back(
    limits: SpanLimits, said: str, runs: dict[str, Run]
) -> None:
    processor = MatSpanProcessor([VERIFIED])
    provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    export(runs["helpdesk"], provider)
    (result,) = processor.results
    assert re.search(said, result.error)
    assert (result.lossy, {item.outcome for item in result.outcomes}) == (True, {"unknown"})


def test_the_programs_own_provider_is_taken_by_default(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "get_tracer_provider", lambda: provider)
    export(runs["crashed"])
    assert len(exporter.get_finished_spans()) == len(readable_spans(runs["crashed"]))


def test_without_a_place_to_send_to_it_is_an_error(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "get_tracer_provider", otel.ProxyTracerProvider)
    with pytest.raises(SpecError, match="no tracer provider is set"):
        export(runs["crashed"])
    with pytest.raises(SpecError, match="a value of type dict"):
        export(runs["crashed"], {})  # type: ignore[arg-type]


def test_an_exporter_that_fails_is_an_error(runs: dict[str, Run]) -> None:
    class Down(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.FAILURE

    with pytest.raises(MatError, match="Down could not export the run"):
        export(runs["crashed"], Down())


def test_the_otlp_encoding_of_the_exporters_package_reads_back_as_ours(runs: dict[str, Run]) -> None:
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder", reason="no OTLP exporter installed")
    json_format = pytest.importorskip("google.protobuf.json_format")
    for run in runs.values():
        message = json_format.MessageToDict(encoder.encode_spans(readable_spans(run)))
        for span in spans_of(message):
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in span:
                    span[key] = base64.b64decode(span[key]).hex()
        (back,) = from_otlp_json(message)
        assert back.head == run.head


# -- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "hunter2-tr0ub4dor"
PROCESS_SECRET = "correct-horse-battery"


def test_a_planted_secret_is_in_no_span() -> None:
    mat.secret(PROCESS_SECRET)

    @mat.tool
    def login(key: str, password: str, header: str) -> dict[str, str]:
        return {"welcome": key, "token": f"Bearer {'a1' * 20}"}

    @mat.model("planner", record="keep")
    def plan(prompt: str) -> str:
        return f"use {SECRET}"

    @mat.step_contract(on="tool_call", id="raw", raw=True)
    def leaks(record: mat.Record) -> Any:
        return mat.Violated(f"called with {PROCESS_SECRET}, {record.action.arguments}")

    run = mat.run([leaks], task=f"log in with {PROCESS_SECRET}", config={"api_key": PROCESS_SECRET, "note": PROCESS_SECRET})
    with suppress(ValueError), run:
        mat.secret(SECRET)
        login(SECRET, "letmein-please", f"Basic {'Zm9v' * 6}")
        plan(f"the key is {SECRET} and {PROCESS_SECRET}")
        mat.claim(f"logged in with {SECRET}")
        raise ValueError(f"{SECRET} was refused, so was {PROCESS_SECRET}")
    exporter = InMemorySpanExporter()
    export(done(run), exporter)
    for text in (json.dumps(to_otlp_json(done(run))), *(span.to_json() for span in exporter.get_finished_spans())):
        for planted in (SECRET, PROCESS_SECRET, "letmein-please", "a1" * 20, "Zm9v" * 6):
            assert planted not in text
    assert "[redacted:" in json.dumps(to_otlp_json(done(run)))
