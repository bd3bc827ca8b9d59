"""A trace as the viewer gets it: nothing lost, nothing invented, and the two sides agree on what a bit means."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

import mat
from mat.core.campaign import Counterexample
from mat.core.digest import plain
from mat.core.record import Link, Mediation, Observation, Record
from mat.core.run import Run
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat.monitor.localize import backward_slice
from mat.report import page
from mat.report.page import Traced, trace_page
from mat.report.page import trace as traces


def columns(html: str, place: int = 0) -> dict[str, Any]:
    return read(html, f"trace-{place}")


def read(html: str, name: str) -> Any:
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)
    assert found is not None, name
    return json.loads(found[1])


@mat.retriever("kb")
def search(query: str) -> list[mat.Passage]:
    return [mat.Passage(id="kb-1", text="two days"), mat.Passage(id="kb-2", text="tracked")]


@mat.tool
def ask(what: str) -> str:
    return "yes"


def told(*, whole: bool = True) -> Run:
    """Two agents that share a memory; `whole`: the second also reads all of it at once."""
    with mat.run([], task="t.py::test_provenance") as run:
        notes = mat.memory({}, name="notes")
        with mat.agent("one"):
            found = search("refunds")
            notes["a"] = "first"
            notes["b"] = "second"
            notes["a"] = "third"
        with mat.agent("two"):
            assert notes["a"] == "third"
            assert not whole or sorted(notes) == ["a", "b"]
            mat.claim("two days", supports=[found[0]])
            mat.finish("done")
    assert run.result is not None
    return run.result


def test_each_step_leads_to_those_it_was_made_from() -> None:
    run = told()
    data = columns(trace_page(run))
    steps = {
        (record.action.kind, record.action.name, record.action.arguments.get("key")): record.step for record in run.records
    }
    found = {(source[0], source[1], data["artefacts"][source[3]]) for source in data["sources"]}
    retrieved = next(step for (kind, _, _), step in steps.items() if kind == "retrieval")
    claimed = next(step for (kind, _, _), step in steps.items() if kind == "claim")
    assert (claimed, retrieved) in {(at, source) for at, source, _ in found}
    reads = [record for record in run.records if record.action.kind == "memory_read"]
    writes = [record.step for record in run.records if record.action.kind == "memory_write"]
    assert (reads[0].step, writes[2], "memory:notes/a") in found  # the last that was written before it was read


def test_a_passage_leads_to_the_retrieval_that_found_it_last() -> None:
    run = told()
    first, claim = run.records[0], next(record for record in run.records if record.action.kind == "claim")
    link = Link(src="passage:kb-1", rel="supports", dst="claim#2")
    data = columns(trace_page([first, replace(first, step=1), replace(claim, step=2, links=(link,))]))
    assert [source[:2] for source in data["sources"]] == [[2, 1]]


@pytest.mark.parametrize("whole", [False, True])
def test_sources_lead_to_nothing_that_the_backward_slice_does_not_hold(whole: bool) -> None:
    """Followed from any step they reach its slice. Of a whole memory the slice holds what was overwritten, too."""
    run = told(whole=whole)
    data = columns(trace_page(run))
    came: dict[int, set[int]] = {}
    for at, source, _, _ in data["sources"]:
        came.setdefault(at, set()).add(source)
    for record in run.records:
        reached, work = set[int](), [record.step]
        while work:
            for source in came.get(work.pop(), set()) - reached:
                reached.add(source)
                work.append(source)
        found = set(backward_slice(run.records, record.step))
        assert reached <= found if whole else reached == found, record.step


def test_what_comes_from_outside_the_trace_is_said_and_leads_nowhere(shop_tests: Any) -> None:
    record = shop_tests.run().records[0]
    lonely = replace(record, links=(Link(src="passage:gone", rel="supports", dst=record.artefact),))
    data = columns(trace_page([lonely]))
    assert data["sources"] == [[0, -1, 0, 0]]
    assert (data["relations"], data["artefacts"]) == (["supports"], ["passage:gone"])


def test_every_fact_of_a_record_is_in_the_page(shop_tests: Any) -> None:
    values = FrozenDict({"amount": 25, "none": None, "zero": 0, "no": False, "empty": "", "list": [], "<b>": "&"})
    mediation = Mediation(
        decision="rewrite", rule="r", reason="why", arguments=values, approval="a", grant="g", under=("boss",)
    )
    record = replace(
        shop_tests.run(schedule=[shop_tests.lost]).records[1], executed=values, mediation=mediation, state=values, invoked=0,
        raw=Observation(value=None), observation=Observation(value=values, usage=FrozenDict({"input_tokens": 7}), chunks=2),
        sealed_ms=99, taped=True,
    )  # fmt: skip
    _, _, facts = read(trace_page([record]), "trace-0-0")[0]
    assert facts["executed"] == [plain(values)]
    assert facts["state"] == plain(values)
    assert facts["observation"] == {"value": [plain(values)], "chunks": 2, "usage": {"input_tokens": 7}}
    assert facts["mediation"] == {
        "decision": "rewrite", "rule": "r", "reason": "why", "arguments": [plain(values)], "approval": "a", "grant": "g",
        "under": ["boss"],
    }  # fmt: skip
    assert (facts["invoked"], facts["sealed"], facts["taped"], facts["site"]) == (0, 99, True, record.site)
    assert facts["faults"][0]["operator"] == "service.lost_ack"
    assert facts["arguments"] == plain(record.action.arguments)


def test_a_long_trace_comes_in_parts_and_each_step_in_its_own(shop_tests: Any) -> None:
    one = shop_tests.run().records[1]
    records = [
        replace(one, step=n, at_ms=n * 3, action=replace(one.action, arguments=FrozenDict({"n": n}))) for n in range(601)
    ]
    html = trace_page(records)
    data = columns(html)
    assert (len(data["step"]), data["part"], data["at"][600]) == (601, traces.PART, 1800)
    parts = [read(html, f"trace-0-{number}") for number in range(3)]
    assert [len(part) for part in parts] == [250, 250, 101]
    assert [facts["arguments"]["n"] for part in parts for _, _, facts in part] == list(range(601))


def test_violations_faults_and_decisions_are_marked_where_they_are(found: Counterexample) -> None:
    run = found.run
    data = columns(trace_page(run))
    hit = next(record.step for record in run.records if record.faults)
    assert [hit, "fault", "service.lost_ack"] in data["marks"]
    assert [found.verdict.step, "hard", "refund.once"] in data["marks"]
    assert data["violations"][data["verdict"]]["message"] == "refunded twice"
    bits = data["bits"]
    assert bits[found.verdict.step] & traces._HARD
    assert bits[hit] & traces._FAULT
    assert bits[hit] & traces._ERROR
    assert [place for place, bit in enumerate(bits) if bit & traces._HARD] == [found.verdict.step]
    first, last = found.verdict.region
    assert [place for place, bit in enumerate(bits) if bit & traces._REGION] == list(range(first, last + 1))


def test_blocked_and_rewritten_steps_are_marked_and_allowed_ones_are_not(shop_tests: Any) -> None:
    one = shop_tests.run().records[1]

    def decided(step: int, decision: Any, approval: str = "") -> Record:
        return replace(one, step=step, mediation=Mediation(decision=decision, approval=approval))

    data = columns(trace_page([decided(0, "allow"), decided(1, "block"), decided(2, "rewrite"), decided(3, "allow", "step#1")]))
    assert data["marks"] == [[1, "block", "blocked"], [2, "rewrite", "rewritten"]]
    governed = traces._REWRITTEN | traces._BLOCKED | traces._APPROVAL
    assert [bool(bits & governed) for bits in data["bits"]] == [False, True, True, True]


def test_violations_of_steps_that_are_not_in_the_trace_do_no_harm(shop_tests: Any) -> None:
    records = shop_tests.run().records
    far = Violation(
        contract="c", severity="soft", stage="attempted", step=999, agent="", role="", message="m", region=(990, 1_000_000_000)
    )
    data = columns(trace_page(records, violations=[far]))
    assert data["marks"] == []
    assert data["verdict"] == 0


@pytest.mark.parametrize(
    ("name", "same_ask", "same_result"),
    [("observation", True, False), ("arguments", False, True), ("time", True, True), ("agent", False, True)],
)
def test_steps_are_matched_by_what_was_asked_and_differ_in_what_came_of_it(
    shop_tests: Any, name: str, same_ask: bool, same_result: bool
) -> None:
    one = shop_tests.run().records[1]
    other = {
        "observation": replace(one, observation=Observation(value="else")),
        "arguments": replace(one, action=replace(one.action, arguments=FrozenDict({"other": 1}))),
        "time": replace(one, at_ms=one.at_ms + 5, sealed_ms=one.sealed_ms + 9),
        "agent": replace(one, agent="somebody"),
    }[name]
    first, second = columns(trace_page([replace(one, step=0)])), columns(trace_page([replace(other, step=0)]))
    assert (first["asked"] == second["asked"], first["results"] == second["results"]) == (same_ask, same_result)


def test_numbers_in_the_page_are_those_a_script_holds_exactly(found: Counterexample) -> None:
    data = columns(trace_page(found.run))
    assert max(*data["asked"], *data["results"]) <= 2**53


def test_the_script_and_the_page_agree_on_the_bits() -> None:
    script = page._file("viewer.js")
    for name in (
        "HARD", "SOFT", "FAULT", "REWRITTEN", "BLOCKED", "APPROVAL", "ERROR", "WITNESS", "REGION", "SLICE", "HIGH", "WRITE",
    ):  # fmt: skip
        said = re.search(rf"\b{name} = (\d+)", script)
        assert said is not None
        assert int(said[1]) == getattr(traces, f"_{name}"), name


def test_a_run_says_how_it_ended_and_what_disturbed_it(found: Counterexample) -> None:
    shown = Traced.of(found.run, name="x")
    assert dict(shown.about)["ended"] == found.run.termination
    assert shown.schedule == (("the reply of the 1st refund call by mailer is lost after the effect happened", 1, 4),)
    assert shown.verdict == found.run.failures[0]
