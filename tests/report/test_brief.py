"""The end of a session in a few lines: what needs a person, each thing once, and what is open."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias, get_args

import pytest

import mat
from mat.core.campaign import BROKE, NOT_JUDGED, BrokenRun, Certificate, ItemResult, ItemStatus, Stability
from mat.core.run import UNCAUGHT, Finding
from mat.core.spec import Schedule
from mat.core.verdict import Violation
from mat.report import brief
from mat.report.brief import headline, namer
from mat.report.build import build
from mat.report.files import rendered
from mat.report.findings import finding_line, finding_lines, item_line
from mat.report.terminal import whole

LOST = mat.spec.perturbation("service.lost_ack", "clerk/service:refund#1", cost=4)
FILE = "mat_replays/test_refund-1fd1ed.mat.json"
TWICE = BrokenRun(
    verdict=Violation(
        contract="refund.once", severity="hard", stage="effected", step=2, agent="clerk", role="",
        message="refund had the same effect at steps 1 and 2", repair="send an idempotency key",
    ),
    contracts=("refund.once",), schedule=Schedule((LOST,)), place="shop.py:22", replays=(FILE,),
)  # fmt: skip


Item: TypeAlias = tuple[ItemResult, tuple[BrokenRun, ...], bool]


def item(name: str, status: ItemStatus, *broken: BrokenRun, explained: bool = False, **facts: object) -> Item:
    return ItemResult(id=name, status=status, **facts), broken, explained  # type: ignore[arg-type]


def broken_lines(items: list[Item], width: int = brief.WIDTH) -> list[brief.BriefLine]:
    results = [result for result, _, _ in items]
    findings = finding_lines(results, {result.id: broken for result, broken, _ in items})
    return brief.broken_lines(findings, namer(each.id for each in results), width=width)


def open_lines(items: list[Item]) -> list[brief.BriefLine]:
    explained = {result.id for result, _, explained in items if explained}
    return brief.open_lines(
        [item_line(result) for result, _, _ in items], namer(result.id for result, _, _ in items), explained=explained
    )


def failure_lines(run: BrokenRun, name: str) -> list[str]:
    return brief.failure_lines(finding_line(name, run))


def text(lines: object) -> list[str]:
    return list(map(str, lines))  # type: ignore[call-overload]


def test_an_entry_has_cause_call_repair_and_the_command_that_opens_it() -> None:
    assert text(broken_lines([item("t.py::test_refund", "counterexample", TWICE)])) == [
        "BROKEN test_refund  cost 4  refund.once",
        "  refund had the same effect at steps 1 and 2 (shop.py:22) when the reply of the 1st refund call by",
        "    clerk is lost after the effect happened",
        "  repair: send an idempotency key        mat show mat_replays/test_refund-1fd1ed.mat.json",
    ]
    narrow = text(broken_lines([item("t.py::test_refund", "counterexample", TWICE)], width=60))
    assert max(map(len, narrow)) <= 60
    assert narrow[-2:] == ["  repair: send an idempotency key", f"  mat show {FILE}"]


def test_a_nominal_run_has_no_file_and_is_run_again_to_see_its_steps() -> None:
    run = replace(TWICE, schedule=Schedule(), replays=())
    found = [item("t.py::test_refund[a b]", "violated", run)]
    assert text(broken_lines(found)) == [
        "BROKEN test_refund[a b]  nominal run  refund.once",
        "  refund had the same effect at steps 1 and 2 (shop.py:22) in the nominal run",
        "  repair: send an idempotency key        pytest -v 't.py::test_refund[a b]'",
    ]


def test_a_replay_of_a_counterexample_that_was_found_again_is_not_a_second_entry() -> None:
    found = item("t.py::test_refund", "counterexample", TWICE)
    again = item("t.py::test_refund[replay-1fd1ed]", "violated", TWICE)
    both = text(broken_lines([found, again]))
    assert [line for line in both if line.startswith("BROKEN")] == [
        "BROKEN test_refund  cost 4  refund.once; its replay fails, too"
    ]
    alone = text(broken_lines([again]))
    assert alone[0] == "BROKEN test_refund[replay-1fd1ed]  cost 4  refund.once"


def test_a_counterexample_that_is_not_stable_says_so() -> None:
    run = replace(TWICE, stability=Stability(runs=3, reproduced=1))
    said = " ".join(text(broken_lines([item("t.py::test_refund", "counterexample", run)])))
    assert "It was reproduced in 1 of 3 executions: the failure is real, but not stable" in said
    assert failure_lines(run, "t.py::test_refund")[0] == "FLAKY: refund.once broken, cost 4 (shop.py:22)"


def test_control_characters_of_a_message_do_not_reach_the_terminal() -> None:
    run = replace(TWICE, verdict=replace(TWICE.verdict, message="paid \x1b[31mtwice", repair="\x07bell"))
    lines = [*text(broken_lines([item("t.py::test_refund", "counterexample", run)])), *failure_lines(run, "t.py::test_refund")]
    assert all(line.isprintable() for line in lines)


def test_a_name_that_two_items_share_is_written_out() -> None:
    items = [item("a.py::test_refund", "counterexample", TWICE), item("b.py::test_refund", "counterexample", TWICE)]
    first = [line.split("  ")[0] for line in text(broken_lines(items)) if line.startswith("BROKEN")]
    assert first == ["BROKEN a.py::test_refund", "BROKEN b.py::test_refund"]


GOOD = ("nominal", "certified", "expected", "accepted", "known", "replayed", "evaluated")


@pytest.mark.parametrize("status", get_args(ItemStatus))
def test_every_status_is_green_or_names_its_test_or_is_in_the_failures(status: ItemStatus) -> None:
    """A status that somebody adds must be decided on, too."""
    found = item("t.py::test_refund", status, TWICE, reason="because")
    said = " ".join(text([*broken_lines([(found[0], (), False)]), *open_lines([found])]))
    if status in ("counterexample", "violated"):
        assert text(broken_lines([found]))[0].startswith("BROKEN test_refund")
    elif status == "failed":
        assert said == ""
    else:
        label = "" if status in GOOD else f"{status.upper().replace('_', ' ')} "
        assert said.startswith(f"{label}test_refund: because") or status == "evaluated"
    tone = headline([item_line(found[0])], seconds=1).tone
    assert (tone == "good") == (status in GOOD)


def test_results_are_counted_with_the_worst_first() -> None:
    items = [item_line(item(f"t.py::test_{at}", status)[0]) for at, status in enumerate(("certified", "stale", "vacuous"))]
    assert [(each.text, each.tone) for each in brief.worst_first(items)] == [
        ("1 stale", "bad"), ("1 vacuous", "open"), ("1 certified", "good"),
    ]  # fmt: skip
    assert brief.worst_first([]) == []


def test_an_evaluation_that_broke_contracts_is_not_counted_as_good() -> None:
    note = f"once: 2 of 8 runs {BROKE}"
    items = [item_line(item(f"t.py::test_{name}", "evaluated", notes=notes)[0]) for name, notes in (("a", (note,)), ("b", ()))]
    assert [(each.text, each.tone) for each in brief.worst_first(items)] == [("2 evaluated (1 with broken contracts)", "open")]
    assert (brief.tone_of(items), brief.tone_of(items[1:])) == ("open", "good")
    assert str(headline(items, seconds=1)) == "mat: 2 evaluated (1 with broken contracts)  (0 executions, 1 s)"


def test_what_is_open_is_said_with_reason_and_help_a_few_times_each() -> None:
    items = [item(f"t.py::test_{number}", "not_proven", reason=f"{number} runs are not enough") for number in range(5)]
    items += [item("t.py::test_a", "vacuous", reason="no boundary is crossed"), item("t.py::test_b", "vacuous", explained=True)]
    assert text(open_lines(items)) == [
        "VACUOUS test_b: see its failure section above",
        "VACUOUS test_a: no boundary is crossed; mat doctor TEST says what is not instrumented; vacuous=",
        "  allows a contract by name",
        "NOT PROVEN test_0: 0 runs are not enough",
        "NOT PROVEN test_1: 1 runs are not enough",
        "NOT PROVEN test_2: 2 runs are not enough",
        "  and 2 more not proven tests (-v lists them)",
    ]


def test_remarks_that_are_left_out_are_counted_as_remarks_and_not_as_tests() -> None:
    said = text(open_lines([item("t.py::test_a", "certified", notes=[f"remark {number}" for number in range(5)])]))
    assert said[-1] == "  and 2 more remarks (-v lists them)"
    assert sum("remark" in line for line in said) == 4


def test_tests_with_one_reason_are_one_line() -> None:
    items = [item(f"t.py::test_{number}", "not_judged", reason="it raised") for number in range(9)]
    assert text(open_lines(items)) == ["NOT JUDGED test_0 and 8 more: it raised; make the contract judge every run"]


def test_bodies_that_were_not_judged_are_counted_by_test() -> None:
    note = f"3 of 9 disturbed runs failed the test's own asserts {NOT_JUDGED}"
    one, other = (item(f"t.py::test_{name}", "certified", notes=(note,)) for name in "ab")
    assert text(open_lines([one])) == [f"test_a: {note}"]
    assert " ".join(text(open_lines([one, other]))).startswith("not judged: in 2 tests, disturbed runs failed")


def test_what_a_green_test_rests_on_is_said() -> None:
    proof = Certificate(proven=True, bound=4, assumptions=("reads that are declared to change nothing: look_up",))
    hidden = Finding(code=UNCAUGHT, message="in 1 of 8 disturbed runs the test's body did not catch the TimeoutError injected")
    found = item("t.py::test_a", "certified", certificate=proof, findings=(hidden,))
    assert text(open_lines([found])) == [
        f"test_a: {hidden.message}",
        "test_a: certified relative to reads that are declared to change nothing: look_up",
    ]
    estimated = replace(proof, proven=False, estimate=mat.core.value.FrozenDict(
        value=0.2, low=0.1, high=0.3, n=40, confidence=0.95, method="mixture",
    ))  # fmt: skip
    said = " ".join(text(open_lines([item("t.py::test_a", "counterexample", TWICE, certificate=estimated)])))
    assert said.startswith("test_a: 20.0% of random schedules within the budget break a contract")


def test_a_report_as_text_begins_with_what_broke_and_what_is_open() -> None:
    items = [
        item("t.py::test_refund", "counterexample", TWICE, executions=9, reason="cost 4 is not complete"),
        item("t.py::test_idle", "vacuous", reason="once is vacuous: nothing triggered it"),
    ]
    document = build([each for each, _, _ in items], [], broken={each.id: broken for each, broken, _ in items})
    lines = rendered(document, "txt").decode().splitlines()
    assert lines[:2] == [
        "mat: 1 broken, 1 vacuous  (9 executions)",
        "BROKEN test_refund  cost 4  refund.once",
    ]
    assert f"  repair: send an idempotency key        mat show {FILE}" in lines[2:6]
    assert "VACUOUS test_idle: once is vacuous: nothing triggered it; " in " ".join(lines[4:8])
    assert whole(document) in "\n".join([*lines, ""])
