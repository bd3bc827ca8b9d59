from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.adapters.checking import stored_traces
from mat.core.record import Action, Observation, Record
from mat.core.value import EMPTY, FrozenDict
from mat.core.verdict import Obligation
from mat.evidence import jsonl
from mat.monitor.judge import EPISODE, HARNESS, Judge, judge
from mat.report.check import CheckReport, CheckTally, check_blocks, judge_trace, report_data, trace_data
from mat.report.terminal import blocks_in_text


def step(number: int, name: str = "refund", *, agent: str = "mailer", episode: str = "", kind: Any = "tool_call") -> Record:
    return Record(
        step=number, at_ms=number, sealed_ms=number, asked_seq=2 * number, sealed_seq=2 * number + 1, agent=agent,
        role=f"{agent}'s role", state=FrozenDict({EPISODE: episode}) if episode else EMPTY,
        site=f"{agent}/service:{name}#1", action=Action(kind=kind, name=name, effect="write"), observation=Observation(),
        effected="yes", mediation=None, links=(), executed=None, raw=None, invoked=1, faults=(), taped=False,
    )  # fmt: skip


def check_text(report: CheckReport) -> str:
    return blocks_in_text(check_blocks(report))


@dataclass(frozen=True, kw_only=True)
class Given:
    """A stored trace for these tests."""

    records: Iterable[Record]
    id: str = "one"
    labels: Mapping[str, Any] = EMPTY
    finished: bool = True


@mat.trace_contract(start=frozenset(), id="refund.once", on="tool_call", repair="ask for the receipt")
def once_only(seen: Any, record: Record) -> Any:
    if record.action.name != "refund":
        return None
    return mat.Violated("refunded twice", witness=(0,)) if "refund" in seen else seen | {"refund"}


def _closing(waiting: Any) -> Any:
    if waiting:
        return mat.Violated(f"opened at step {waiting[0]} and never closed", step=waiting[0], instance="door")
    return None


@mat.trace_contract(
    start=(), id="closed", on="tool_call", finish=_closing,
    obligations=lambda waiting: tuple(Obligation(text="close it", since=since, instance="door") for since in waiting),
)  # fmt: skip
def is_closed(waiting: Any, record: Record) -> Any:
    if record.action.name == "open":
        return (*waiting, record.step)
    return () if record.action.name == "close" else None


@mat.step_contract(on="tool_call", id="crashes")
def crashes(record: Record) -> bool:
    raise RuntimeError("no such field")


@mat.step_contract(on="approval", id="approvals", severity="soft")
def approvals(record: Record) -> bool:
    return False


def names(*given: str, **more: Any) -> list[Record]:
    return [step(number, name, **more) for number, name in enumerate(given)]


# -- judging ----------------------------------------------------------------------------------------------------------

runs = st.lists(
    st.tuples(
        st.sampled_from(["refund", "open", "close", "look"]), st.sampled_from(["mailer", "clerk", HARNESS]),
        st.sampled_from(["", "1", "2"]),
    ), max_size=12,
)  # fmt: skip


@given(runs)
@settings(max_examples=400, deadline=None)
def test_a_trace_judged_record_by_record_gets_the_outcomes_of_the_whole_trace(run: list[tuple[str, str, str]]) -> None:
    trace = [step(number, name, agent=agent, episode=case) for number, (name, agent, case) in enumerate(run)]
    contracts = (once_only, is_closed, crashes, approvals)
    _, whole = judge(trace, contracts)
    streamed = judge_trace(Given(records=iter(trace)), contracts).outcomes
    assert [replace(item, standing="true", open=()) for item in streamed] == [
        replace(item, standing="true", open=()) for item in whole
    ]


@given(runs)
@settings(max_examples=200, deadline=None)
def test_a_trace_without_an_end_is_judged_as_a_prefix(run: list[tuple[str, str, str]]) -> None:
    trace = [step(number, name) for number, (name, _, _) in enumerate(run)]
    court = Judge((once_only, is_closed))
    for record in trace:
        court.step(record)
    expected = court.outcomes_so_far(trace[-1] if trace else None)
    assert judge_trace(Given(records=iter(trace), finished=False), (once_only, is_closed)).outcomes == expected


def test_an_open_obligation_is_a_violation_where_the_trace_ends_and_open_where_it_breaks_off() -> None:
    trace = names("look", "open", "look")
    (ended,) = judge_trace(Given(records=trace), [is_closed]).outcomes
    assert (ended.outcome, ended.standing, ended.open) == ("fail", "false", ())
    (violation,) = ended.violations
    assert (violation.step, violation.agent, violation.role) == (1, "mailer", "mailer's role")
    (cut,) = judge_trace(Given(records=trace, finished=False), [is_closed]).outcomes
    assert (cut.outcome, cut.standing, cut.violations) == ("unknown", "presumably_false", ())
    assert cut.open == (Obligation(text="close it", since=1, instance="door"),)


def test_only_the_episode_that_broke_off_stays_open() -> None:
    trace = [step(0, "open", episode="1"), step(1, "look", episode="2")]
    (outcome,) = judge_trace(Given(records=trace, finished=False), [is_closed]).outcomes
    assert (outcome.outcome, outcome.standing, [item.step for item in outcome.violations]) == ("fail", "false", [0])
    trace = [step(0, "close", episode="1"), step(1, "open", episode="2")]
    (outcome,) = judge_trace(Given(records=trace, finished=False), [is_closed]).outcomes
    assert (outcome.outcome, outcome.standing) == ("unknown", "presumably_false")
    assert [item.since for item in outcome.open] == [1]


def test_a_violation_that_blames_an_early_step_names_who_acted_then() -> None:
    trace = [step(0, agent="a"), step(1, "open", agent="b"), step(2, agent="a"), step(3, "look", agent="c")]
    (outcome,) = judge_trace(Given(records=iter(trace)), [is_closed]).outcomes
    assert [(item.step, item.agent) for item in outcome.violations] == [(1, "b")]


# -- counting ---------------------------------------------------------------------------------------------------------


def tallied(*traces: Given, limit: int = 20, contracts: Any = (once_only, is_closed, crashes, approvals)) -> Any:
    tally = CheckTally(contracts, limit=limit)
    for trace in traces:
        tally.add(judge_trace(trace, contracts))
    return tally.report()


def test_contracts_are_counted_by_what_became_of_each_trace() -> None:
    report = tallied(
        Given(records=names("refund", "look", "refund", "refund")),
        Given(records=names("refund", "refund", "open", "close")),
        Given(records=names("open"), finished=False),
        Given(records=names("look", kind="memory_read")),
    )
    once, closed, crash, approval = report.lines
    assert (once.traces, once.applied, once.violated, once.unknown, once.pending) == (4, 3, 2, 0, 0)
    assert (once.rate.value, once.rate.n, once.first_step.least, once.first_step.median, once.first_step.most) == (
        0.5,
        4,
        1,
        1,
        2,
    )
    assert (closed.violated, closed.pending, closed.unknown, closed.rate.n) == (0, 1, 0, 3)
    assert (crash.violated, crash.unknown, crash.rate.n) == (0, 3, 1)
    assert crash.error == "raised RuntimeError at step 0: no such field"
    assert (approval.applied, approval.vacuous, approval.rate.value, approval.rate.n) == (0, True, None, 0)
    assert report.vacuous == ("approvals",)
    assert (report.traces, report.unfinished, report.records, report.violating, report.failing) == (4, 1, 10, 2, 3)


def test_a_contract_that_only_the_end_can_break_is_not_vacuous() -> None:
    @mat.trace_contract(
        start=0, id="answers", on="final_response", finish=lambda count: None if count else mat.Violated("silent")
    )
    def answers(count: int, record: Record) -> int:
        return count + 1

    (line,) = tallied(Given(records=names("look")), contracts=[answers]).lines
    assert (line.applied, line.violated, line.vacuous) == (1, 1, False)
    (line,) = tallied(Given(records=names("look"), finished=False), contracts=[answers]).lines
    assert (line.pending, line.vacuous) == (1, False)


def test_a_soft_violation_is_shown_and_does_not_fail() -> None:
    report = tallied(Given(records=names("ask", kind="approval")), contracts=[approvals])
    assert (report.violating, report.failing) == (1, 0)
    assert "approvals at step 0" in check_text(report)
    assert report_data(report)["ok"]


def test_the_text_shows_the_first_violations_and_says_how_many_more() -> None:
    traces = [Given(id=f"case {n}", records=names("refund", "refund", "refund"), labels={"origin": f"x:{n}"}) for n in range(5)]
    text = check_text(tallied(*traces, limit=2)).replace("\n    ", " ")
    assert "case 0 (x:0): refund.once at step 1 by mailer: refunded twice (1 more violation of this contract)" in text
    assert "case 1 (x:1)" in text
    assert "case 2" not in text
    assert "and 3 more" in text
    assert "and 3 more" not in check_text(tallied(*traces, limit=5))
    assert "and 5 more" in check_text(tallied(*traces, limit=0))


def test_the_text_shows_open_obligations_unknown_contracts_and_those_never_evaluated() -> None:
    text = check_text(tallied(Given(id="cut", records=names("look", "open"), finished=False)))
    assert "1 trace judged, 1 unfinished: 0 violating, 2 records" in text
    assert "cut: closed since step 1: close it [door]" in text
    assert "crashes could not be judged in 1 trace: raised RuntimeError at step 0: no such field" in text
    assert "approvals is vacuous" in text
    assert "closed is vacuous" not in text
    assert text.endswith("\n")


def test_nothing_in_a_trace_reaches_the_terminal_as_a_control_character() -> None:
    trace = Given(id="\x1b[2Jcase", records=names("refund", "refund", agent="\x1b[31mred"), labels={"origin": "a\x07b"})
    text = check_text(tallied(trace))
    assert not set(text) & {"\x1b", "\x07"}
    assert "\\x1b[31mred" in text


def test_the_data_of_a_trace_holds_every_violation_with_the_sources_own_step() -> None:
    labels = {"reward": 0.5, "origin": "x:1", "source_steps": ("s0", "s1", "s2")}
    judged = judge_trace(Given(records=names("refund", "refund", "refund"), labels=labels), [once_only, is_closed])
    data = json.loads(json.dumps(trace_data(judged)))
    assert (data["trace"], data["origin"], data["labels"], data["outcome"]) == ("one", "x:1", {"reward": 0.5}, "fail")
    found = data["contracts"][0]["violations"]
    assert [(item["step"], item["source_step"], item["agent"]) for item in found] == [(1, "s1", "mailer"), (2, "s2", "mailer")]
    assert found[0]["repair"] == "ask for the receipt"
    assert (data["contracts"][1]["outcome"], data["contracts"][1]["violations"]) == ("pass", [])


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_torn_file_is_judged_up_to_where_it_breaks_off_and_the_place_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    jsonl.write(path, names("look", "open", "look", "close"), trace="torn")
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(text[:4]) + text[4][:30])
    tally = CheckTally([is_closed], limit=9)
    for stored in stored_traces(path):
        tally.add(judge_trace(stored, [is_closed]))
    report = tally.report()
    assert (report.traces, report.unfinished, report.records, report.lines[0].pending) == (1, 1, 3, 1)
    assert report.notes == (f"{path}:5: the file is cut off here; the lines before this one are kept",)


def test_a_torn_header_is_noted_and_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    jsonl.write(path, names("look"), trace="one")
    with path.open("a") as stream:
        stream.write('{"mat": 1, "tr')
    tally = CheckTally([is_closed], limit=9)
    for stored in stored_traces(path):
        tally.add(judge_trace(stored, [is_closed]))
    assert (tally.report().traces, len(tally.report().notes)) == (1, 1)


def spans(trace: int) -> str:
    def span(number: int, tool: str) -> dict[str, Any]:
        told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        return {
            "traceId": f"{trace + 1:032x}", "spanId": f"{number}", "startTimeUnixNano": str(number),
            "endTimeUnixNano": str(number + 1), "attributes": told,
        }  # fmt: skip

    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span(0, "refund"), span(2, "open"), span(4, "refund")]}]}]})


@pytest.mark.nightly
@pytest.mark.parametrize("format", ["mat", "otlp", "one long trace"])
def test_memory_does_not_grow_with_the_file(format: str, tmp_path: Path) -> None:
    contracts = (once_only, is_closed, approvals)

    def written(count: int) -> Path:
        path = tmp_path / f"{format}{count}.jsonl"
        if format == "otlp":
            path.write_text("".join(f"{spans(number)}\n" for number in range(count)))
            return path
        if format == "one long trace":
            jsonl.write(path, (step(number, "look") for number in range(3 * count)), trace="long")
            return path
        jsonl.write(path, names("refund", "open", "refund"), trace="case")
        path.write_bytes(path.read_bytes() * count)
        return path

    def peak(path: Path) -> tuple[int, int]:
        tally = CheckTally(contracts, limit=20)
        gc.collect()
        gc.freeze()  # so that collecting often, and with it a steady peak, is cheap
        tracemalloc.start()
        try:
            for number, stored in enumerate(stored_traces(path)):
                tally.add(judge_trace(stored, contracts))
                if number % 20 == 0:
                    gc.collect()
            return tracemalloc.get_traced_memory()[1], tally.report().records
        finally:
            tracemalloc.stop()

    few, many = written(150), written(1_500)
    peak(few)  # what is imported and cached on first use
    assert peak(few)[1] == 450
    small, (large, records) = peak(few)[0], peak(many)
    assert records == 4_500
    assert large < small + 10_000, f"{small} bytes for 150 traces, {large} for 1,500"
