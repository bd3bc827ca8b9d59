"""Several cases in one run: contracts are judged for each from their start (A6.4 episodes, DESIGN section 1)."""

from __future__ import annotations

import mat
from mat.temporal import always, once, tool_call, verification

CHECKED = mat.contract("checked", once(verification(passed=True)))
VERIFIED_FIRST = mat.contract(
    "verified.first",
    always(tool_call("pay").implies(once(verification(passed=True)))),
)


@mat.tool(effect="write")
def pay(order):
    return order


def _run(*cases, contracts):
    with mat.run(contracts) as run:
        assert run.recorder is not None
        for number, case in enumerate(cases):
            with run.recorder.episode(f"case {number}"):
                case()
    return run.result


def _verified():
    mat.verify("order", passed=True)
    pay("a")


def _unverified():
    pay("b")


def test_a_check_of_one_episode_does_not_cover_the_next():
    result = _run(_verified, _unverified, contracts=[VERIFIED_FIRST])
    assert [(found.contract, found.step) for found in result.violations] == [("verified.first", 2)]


def test_an_open_obligation_is_closed_at_the_end_of_its_own_episode():
    assert [found.step for found in _run(_unverified, _verified, contracts=[CHECKED]).violations] == [0]


def test_the_closing_record_of_the_harness_is_no_case_of_its_own():
    assert _run(_verified, _verified, contracts=[CHECKED]).violations == ()


def test_judging_offline_begins_anew_at_the_same_steps():
    contracts = [CHECKED, VERIFIED_FIRST]
    for cases in ((_verified, _unverified), (_unverified, _verified, _unverified), (_verified,)):
        result = _run(*cases, contracts=contracts)
        verdicts, outcomes = mat.judge(result.records, contracts)
        assert (verdicts, outcomes) == (result.verdicts, result.outcomes)


def test_a_run_stopped_at_its_horizon_ends_inside_its_episode():
    def endless():
        while True:
            pay("a")

    @mat.step_contract(on="termination")
    def ends(record):
        return record.action.name != "horizon"

    with mat.run([ends], horizon=5) as run:
        assert run.recorder is not None
        with run.recorder.episode("endless"):
            endless()
    assert run.result is not None
    assert run.result.records[-1].state["episode"] == "1: endless"
    assert [found.contract for found in run.result.violations] == ["ends"]
