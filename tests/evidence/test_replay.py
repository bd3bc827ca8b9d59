from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Replace
from mat.boundary.tape import Tape
from mat.core.difference import Aspect, first_difference
from mat.core.errors import ReplayDivergence
from mat.core.run import Run
from mat.evidence import replay_file
from mat.evidence.replay import compare, judge_strict, regression_outcome


def test_the_same_run_again_does_not_diverge(shop_tests: Any, violating: Run) -> None:
    assert compare(violating, shop_tests.run(schedule=[shop_tests.lost_ack()])) is None


def test_a_run_read_from_its_file_does_not_diverge_from_one_made_anew(shop_tests: Any, replay: replay_file.Replay) -> None:
    read = replay_file.unpack(replay_file.pack(replay), where="x").counterexample.run
    assert compare(read, shop_tests.run(schedule=[shop_tests.lost_ack()])) is None


class World:
    """A small agent whose every behaviour can be altered, so that a difference can be planted at a known step."""

    def __init__(self, **planted: Any) -> None:
        self.planted = planted

    def __call__(self) -> None:
        planted = self.planted

        @mat.tool(effect="read")
        def look(what: str) -> Any:
            return planted.get("reply", {"rows": ["a", "b"]})

        @mat.tool(effect="write")
        def send(to: str, text: str) -> str:
            return "sent"

        with mat.agent("worker", role=planted.get("role", "")):
            look("orders")  # step 0
            if "sleep" in planted:
                import time

                time.sleep(planted["sleep"])
            look(planted.get("what", "customers"))  # step 1
            mat.state(open=planted.get("open", 1))
            if planted.get("other_tool"):
                look("ann")
            else:
                send("ann", planted.get("text", "hello"))  # step 2
            mat.verify("sent", passed=planted.get("passed", True))  # step 3
            if planted.get("early"):
                return
            mat.finish("done")  # step 4
            if planted.get("late"):
                mat.detect("more")
            if "sleep_at_end" in planted:
                import time

                time.sleep(planted["sleep_at_end"])


@pytest.mark.parametrize(
    ("planted", "step", "aspect"),
    [
        ({"reply": {"rows": ["a", "c"]}}, 0, "reply"),
        ({"what": "suppliers"}, 1, "arguments"),
        ({"sleep": 2}, 1, "time"),
        ({"open": 2}, 2, "state"),
        ({"text": "bye"}, 2, "arguments"),
        ({"other_tool": True}, 2, "call"),
        ({"passed": False}, 3, "arguments"),
        ({"role": "boss"}, 0, "state"),
        ({"late": True}, 5, "extra"),
        ({"sleep_at_end": 1}, 5, "end"),
    ],
)
def test_the_first_differing_step_and_what_differs_there_is_named(
    shop_tests: Any, planted: dict[str, Any], step: int, aspect: Aspect
) -> None:
    found = first_difference(shop_tests.run(World()), shop_tests.run(World(**planted)))
    assert found is not None
    assert (found.step, found.aspect) == (step, aspect)
    assert found.cause
    assert found.recorded != found.again


def test_a_run_that_stops_earlier_names_the_first_missing_step(shop_tests: Any) -> None:
    long, short = shop_tests.run(World(late=True)), shop_tests.run(World())
    found = first_difference(long, short)
    assert found is not None
    assert (found.step, found.aspect) == (5, "missing")


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        (["a", "b", "c"], ["c", "a", "b"], "order"),
        ("2026-01-01T10:00:00", "2026-01-02T11:30:00", "clock"),
        ("6f1f3c0e-9f3b-4c55-8f61-0d5f0a0d7a11", "0c1f3c0e-9f3b-4c55-8f61-0d5f0a0d7a12", "id"),
        ({"n": 1}, {"n": 2}, "shared between runs"),
    ],
)
def test_the_likely_cause_is_read_from_what_differs(shop_tests: Any, one: Any, other: Any, word: str) -> None:
    found = first_difference(shop_tests.run(World(reply={"x": one})), shop_tests.run(World(reply={"x": other})))
    assert found is not None
    assert word in found.cause


def test_equal_steps_under_another_configuration_name_what_changed(shop_tests: Any) -> None:
    soft = mat.step_contract(id="new.one", severity="soft")(lambda record: True)
    found = first_difference(
        shop_tests.run(World()), shop_tests.run(World(), contracts=[shop_tests.contract, soft])
    )  # fmt: skip
    assert found is not None
    assert found.aspect == "spec"
    assert "new.one" in found.again
    assert "config.contracts" in found.again


def test_another_configuration_is_named_next_to_a_differing_step(shop_tests: Any) -> None:
    found = first_difference(shop_tests.run(World()), shop_tests.run(World(text="bye"), contracts=[]))
    assert found is not None
    assert found.step == 2
    assert found.cause.startswith("config.contracts changed")


def test_an_operator_that_decides_otherwise_is_a_difference_of_the_fault(shop_tests: Any, violating: Run) -> None:
    changed = operator("service.lost_ack", lambda call, reply, stream: Replace({"order": "A-7", "paid": 0}), phase="after")
    found = first_difference(violating, shop_tests.run(schedule=[shop_tests.lost_ack()], operators=[changed]))
    assert found is not None
    assert (found.step, found.aspect) == (0, "fault")


def test_the_divergence_names_step_difference_and_likely_cause(shop_tests: Any) -> None:
    divergence = compare(shop_tests.run(World()), shop_tests.run(World(text="bye")))
    assert isinstance(divergence, ReplayDivergence)
    assert "step 2" in divergence.what
    assert "hello" in divergence.what
    assert "bye" in divergence.what
    assert "likely cause" in divergence.why
    assert divergence.where == shop_tests.item


@pytest.mark.covers("law", ["L6"])
def test_a_taped_run_replays_strictly_without_asking_its_external_ports(shop_tests: Any) -> None:
    calls: list[str] = []

    @mat.tool(effect="read", tape="external")
    def track(parcel: str) -> dict[str, str]:
        calls.append(parcel)
        if parcel == "gone":
            raise LookupError(parcel)
        return {"parcel": parcel, "state": "in transit"}

    def body() -> None:
        with mat.agent("mailer"):
            track("17")
            try:
                track("gone")
            except LookupError:
                mat.detect("no such parcel")

    recorded = shop_tests.run(body)
    assert calls == ["17", "gone"]
    again = shop_tests.run(body, tape=Tape(recorded.tape, live=0))
    assert calls == ["17", "gone"]
    assert compare(recorded, again) is None


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_a_replay_that_violates_again_is_red_and_names_contract_and_step(shop_tests: Any, replay: replay_file.Replay) -> None:
    outcome = regression_outcome(replay, shop_tests.run(schedule=[shop_tests.lost_ack()]))
    assert (outcome.status, outcome.ok) == ("violated", False)
    assert "refund.once at step 2" in outcome.reason
    assert outcome.violations


def test_a_mended_agent_passes_its_replay(shop_tests: Any, replay: replay_file.Replay) -> None:
    outcome = regression_outcome(replay, shop_tests.run(lambda: shop_tests.body(retries=0), schedule=[shop_tests.lost_ack()]))
    assert (outcome.status, outcome.ok) == ("passed", True)


def test_a_replay_whose_sites_are_gone_is_stale_and_not_green(shop_tests: Any, replay: replay_file.Replay) -> None:
    outcome = regression_outcome(replay, shop_tests.run(lambda: mat.finish("no refund"), schedule=[shop_tests.lost_ack()]))
    assert (outcome.status, outcome.ok) == ("stale", False)
    assert "mailer/service:refund#1" in outcome.reason


def test_a_replay_with_one_of_two_sites_gone_is_judged_and_says_so(shop_tests: Any, replay: replay_file.Replay) -> None:
    schedule = [shop_tests.lost_ack(), shop_tests.lost_ack(5)]
    outcome = regression_outcome(replay, shop_tests.run(lambda: shop_tests.body(retries=0), schedule=schedule))
    assert (outcome.status, outcome.ok) == ("passed", True)
    assert "1 of 2 sites not reached" in outcome.reason


def test_a_replay_with_its_sites_gone_that_still_violates_is_a_violation(shop_tests: Any, replay: replay_file.Replay) -> None:
    def twice() -> None:
        with mat.agent("clerk"):
            shop_tests.refund("A-7", 25)
            shop_tests.refund("A-7", 25)

    outcome = regression_outcome(replay, shop_tests.run(twice, schedule=[shop_tests.lost_ack()]))
    assert (outcome.status, outcome.ok) == ("violated", False)


def test_a_replay_of_a_nominal_violation_has_no_sites_to_lose(shop_tests: Any) -> None:
    def twice() -> None:
        shop_tests.refund("A-7", 25)
        shop_tests.refund("A-7", 25)

    recorded = shop_tests.replay_of(shop_tests.run(twice))
    assert regression_outcome(recorded, shop_tests.run(twice)).status == "violated"
    assert regression_outcome(recorded, shop_tests.run(lambda: None)).status == "passed"


def test_an_expected_replay_is_green_only_while_it_violates_the_recorded_contract(
    shop_tests: Any, replay: replay_file.Replay
) -> None:
    expected = replace(replay, expected=True)
    again = regression_outcome(expected, shop_tests.run(schedule=[shop_tests.lost_ack()]))
    assert (again.status, again.ok) == ("expected", True)
    mended = regression_outcome(expected, shop_tests.run(lambda: shop_tests.body(retries=0), schedule=[shop_tests.lost_ack()]))
    assert (mended.status, mended.ok) == ("passed", False)
    assert "expect=" in mended.reason
    gone = regression_outcome(expected, shop_tests.run(lambda: None, schedule=[shop_tests.lost_ack()]))
    assert (gone.status, gone.ok) == ("stale", False)


def test_an_expected_replay_that_breaks_only_another_contract_is_red(shop_tests: Any, replay: replay_file.Replay) -> None:
    other = mat.step_contract(on="tool_call", id="other")(lambda record: False)
    run = shop_tests.run(lambda: shop_tests.body(retries=0), schedule=[shop_tests.lost_ack()], contracts=[other])
    outcome = regression_outcome(replace(replay, expected=True), run)
    assert (outcome.status, outcome.ok) == ("violated", False)
    assert "other" in outcome.reason


def test_a_monitor_that_crashes_does_not_make_a_replay_green(shop_tests: Any, replay: replay_file.Replay) -> None:
    def crash(record: mat.Record) -> bool:
        raise ZeroDivisionError("in the monitor")

    contract = mat.step_contract(id="refund.once")(crash)
    outcome = regression_outcome(replay, shop_tests.run(schedule=[shop_tests.lost_ack()], contracts=[contract]))
    assert (outcome.status, outcome.ok) == ("violated", False)
    assert "in the monitor" in outcome.reason


def test_a_soft_violation_leaves_a_replay_green(shop_tests: Any, replay: replay_file.Replay) -> None:
    soft = mat.step_contract(on="tool_call", id="taste", severity="soft")(lambda record: False)
    run = shop_tests.run(lambda: shop_tests.body(retries=0), schedule=[shop_tests.lost_ack()], contracts=[soft])
    assert regression_outcome(replay, run).ok


def test_strict_replay_is_divergent_where_regression_would_pass(shop_tests: Any, replay: replay_file.Replay) -> None:
    mended = shop_tests.run(lambda: shop_tests.body(retries=0), schedule=[shop_tests.lost_ack()])
    outcome = judge_strict(replay, mended)
    assert (outcome.status, outcome.ok) == ("divergent", False)
    assert isinstance(outcome.divergence, ReplayDivergence)
    same = judge_strict(replay, shop_tests.run(schedule=[shop_tests.lost_ack()]))
    assert (same.status, same.divergence) == ("violated", None)
