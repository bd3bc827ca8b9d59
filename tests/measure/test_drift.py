from __future__ import annotations

import random
from dataclasses import replace

import pytest

import mat
from mat.core.errors import SpecError
from mat.core.run import Run
from mat.core.spec import RunSpec
from mat.measure.drift import AgentDrift, DriftRow, drift, drift_of
from mat.monitor.contract import Contract
from mat.monitor.judge import judge
from mat_contracts.role import role
from mat_contracts.traces import record, trace


def act(agent: str, kind: str = "tool_call", name: str = "send", **more: object) -> mat.Record:
    return record(kind, name, agent=agent, **more)  # type: ignore[arg-type]


def run_of(*records: mat.Record, contracts: tuple[Contract, ...]) -> Run:
    done = trace(*records)
    return Run(spec=RunSpec(task="t"), records=done, outcomes=judge(done, contracts)[1])


def row(outside: int, steps: int, agent: str = "planner") -> DriftRow:
    return DriftRow(agent=agent, steps=steps, outside=outside)


def test_the_score_is_the_share_of_an_agents_actions_outside_its_role() -> None:
    steps = [act("planner"), act("planner", "delegation", "b"), act("b"), act("planner"), act("planner", "model_call")]
    run = run_of(*steps, contracts=(role("planner", allow="delegation"),))
    assert drift_of(run, "planner.role") == (row(0, 1, "b"), row(2, 4))
    assert row(2, 4).score == 0.5


def test_an_agent_that_never_acted_has_no_score_and_one_that_kept_its_role_has_zero() -> None:
    run = run_of(act("planner", "delegation", "b"), contracts=(role("planner", allow="delegation"),))
    found = drift_of(run, "planner.role", agents=["planner", "absent"])
    assert [(item.agent, item.score) for item in found] == [("absent", None), ("planner", 0.0)]


def test_what_came_in_and_what_the_harness_adds_are_no_actions() -> None:
    steps = [
        record("message", "user", {"text": "hi"}, agent="planner", boundary="prompt"),
        act("planner", "delegation", "b"), act("harness", "termination", "horizon"),
    ]  # fmt: skip
    run = run_of(*steps, contracts=(role("planner", allow="delegation"),))
    assert drift_of(run, "planner.role") == (row(0, 1),)


def test_a_step_counts_once_however_many_contracts_blame_it() -> None:
    contracts = (role("planner", allow="delegation"), role("planner", deny="tool_call:send", id="no.send"))
    run = run_of(act("planner"), act("planner", "delegation", "b"), act("b"), contracts=contracts)
    assert drift_of(run, "planner.role", agents="planner") == (row(1, 2),)
    assert drift_of(run, ["planner.role", "no.send"]) == (row(0, 1, "b"), row(1, 2))


def test_a_blocked_action_is_an_action_outside_the_role() -> None:
    run = run_of(act("planner", blocked=True), contracts=(role("planner", allow="delegation"),))
    assert drift_of(run, "planner.role")[0].score == 1.0


def test_the_score_of_a_real_run_agrees_with_its_contract() -> None:
    @mat.tool
    def browse(page: int) -> int:
        return page

    with mat.run(contracts=[role("planner", allow="delegation")]) as run, mat.agent("planner"):
        mat.delegate("b", "x")
        for page in range(3):
            browse(page=page)
    assert drift_of(run.result, "planner.role", agents=["planner"]) == (row(3, 4),)


def test_a_contract_that_crashed_leaves_the_score_unknown() -> None:
    def crash(item: mat.Record) -> bool:
        raise ValueError("odd")

    run = run_of(act("planner"), contracts=(role("planner", allow=crash),))
    (found,) = drift_of(run, "planner.role")
    assert found.score is None
    assert "odd" in found.error
    (over,) = drift([found, row(1, 2)])
    assert (over.unjudged, over.absent, over.score.n, over.score.value) == (1, 0, 1, 0.5)


def test_a_contract_that_was_not_armed_is_refused() -> None:
    run = run_of(act("planner"), contracts=(role("planner", allow="delegation"),))
    with pytest.raises(SpecError, match=r"arm a role contract in the run, or choose from planner\.role"):
        drift_of(run, "planer.role")
    with pytest.raises(SpecError):
        drift_of(run, [])


def test_runs_are_the_unit_however_long_they_are() -> None:
    (over,) = drift([row(1, 2), row(0, 1_000), row(0, 0)])
    assert over.score.value == 0.25
    assert (over.score.n, over.score.method, over.absent) == (2, "wilson-mean", 1)
    assert (over.drifted.value, over.drifted.n) == (0.5, 2)


def test_without_a_run_in_which_it_acted_an_agent_has_no_drift() -> None:
    (over,) = drift([row(0, 0)])
    assert (over.score.value, over.score.low, over.score.high, over.score.n) == (None, None, None, 0)
    assert over.drifted.value is None
    assert drift([]) == ()


def test_agents_are_listed_by_name_and_apart() -> None:
    found = drift([row(1, 1, "b"), row(0, 1, "a"), row(0, 1, "b")])
    assert [(item.agent, item.score.value) for item in found] == [("a", 0.0), ("b", 0.5)]


def test_scores_that_are_all_equal_leave_an_interval() -> None:
    (over,) = drift([row(0, 9)] * 4)
    assert over.score.low == 0.0
    assert over.score.high is not None
    assert 0.4 < over.score.high < 0.6
    (full,) = drift([DriftRow(agent="a", steps=3, outside=3)] * 4)
    assert (full.score.value, full.score.high) == (1.0, 1.0)


@pytest.mark.full
@pytest.mark.parametrize("mean", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("spread", ["coin", "steady", "mixed"])
def test_the_interval_of_the_mean_score_covers_it_at_least_as_often_as_it_says(mean: float, spread: str) -> None:
    stream, covered, trials = random.Random(f"{mean}/{spread}"), 0, 600
    for _ in range(trials):
        rows = []
        for _ in range(30):
            share = float(stream.random() < mean) if spread == "coin" else mean
            if spread == "mixed":
                share = stream.betavariate(mean * 2, (1 - mean) * 2)
            rows.append(row(sum(stream.random() < share for _ in range(10)), 10))
        found: AgentDrift = drift(rows)[0]
        assert found.score.low is not None
        assert found.score.high is not None
        covered += found.score.low <= mean <= found.score.high
    assert covered / trials >= 0.95 - 0.027  # three standard errors of 600 trials


def test_a_row_is_a_value() -> None:
    assert replace(row(1, 2), outside=2).score == 1.0
