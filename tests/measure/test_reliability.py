"""Reliability over rows: success@k against enumeration, time between failures, first violations, crashes apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.errors import SpecError
from mat.measure import reliability
from mat.measure.estimate import Estimate
from mat.measure.interval import clopper_pearson, wilson
from mat.measure.reliability import Lifetime, StepCount, lifetimes
from mat.measure.rows import RunRow, ViolationRow, row_of
from mat.measure.sampling import RUNS, Sampling

Made = Callable[..., RunRow]


def tasks(row: Made, *patterns: str) -> list[RunRow]:
    """Runs of tasks: "1" succeeds, "0" fails, "?" nothing judges, "x" its infrastructure failed. Seeds count up."""
    said = {"1": {"success": True}, "0": {"success": False}, "?": {"success": None},
            "x": {"success": False, "infrastructure": "model connection"}}  # fmt: skip
    return [
        row(item=f"task {index}", seed=seed, **said[mark])
        for index, pattern in enumerate(patterns)
        for seed, mark in enumerate(pattern)
    ]


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


# -- success ----------------------------------------------------------------------------------------------------------


def test_success_has_the_interval_that_was_asked_for(row: Made) -> None:
    rows = tasks(row, "1111", "0000", "1110")
    by_run = reliability.success(rows, RUNS)
    assert by_run == wilson(7, 12)
    assert reliability.success(rows, Sampling(unit="run", interval="clopper-pearson")) == clopper_pearson(7, 12)
    by_task = reliability.success(rows)
    assert (by_task.value, by_task.n, by_task.method) == (7 / 12, 12, "wilson by task")
    assert width(by_task) > width(by_run)


def test_success_at_k_looks_at_the_first_k_seeds_of_each_task(row: Made) -> None:
    rows = tasks(row, "001", "100", "000")
    assert [reliability.success_at(rows, k).value for k in (1, 2, 3)] == [1 / 3, 1 / 3, 2 / 3]
    assert reliability.success_at(list(reversed(rows)), 2) == reliability.success_at(rows, 2) == wilson(1, 3)


def test_tasks_with_too_few_judged_runs_are_left_out_and_n_says_so(row: Made) -> None:
    rows = tasks(row, "01", "1?", "0x", "1")
    assert reliability.success_at(rows, 2) == wilson(1, 1)
    assert reliability.success_at(rows, 1) == wilson(2, 4)
    assert reliability.runs_per_task(rows) == 1
    assert reliability.success_at(rows, 3).value is None
    assert reliability.runs_per_task([]) == 0


@settings(deadline=None)
@given(st.lists(st.text("01", min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 6))
def test_the_unbiased_estimators_are_the_means_over_all_ways_to_choose_k_runs(patterns: list[str], k: int) -> None:
    from mat.core.run import Run
    from mat.core.spec import RunSpec

    plain = row_of(Run(spec=RunSpec()), item="", condition="nominal")
    rows = tasks(lambda **facts: replace(plain, **facts), *patterns)
    chosen = [list(combinations(pattern, k)) for pattern in patterns if len(pattern) >= k]
    any_of = [Fraction(sum("1" in subset for subset in each), len(each)) for each in chosen]
    all_of = [Fraction(sum("0" not in subset for subset in each), len(each)) for each in chosen]
    for found, values in ((reliability.success_at_unbiased(rows, k), any_of), (reliability.pass_hat(rows, k), all_of)):
        assert found.n == len(values)
        assert found.value == (float(sum(values) / len(values)) if values else None)


def test_schedules_of_a_search_are_no_repetitions_of_a_task(row: Made) -> None:
    searched = [row(schedule=name, success=name == "c") for name in "abc"]
    assert reliability.runs_per_task(searched) == 1
    assert reliability.success_at(searched, 2).n == 0
    again = [row(schedule=name, seed=seed, success=seed == 1) for name in "ab" for seed in (0, 1)]
    assert reliability.success_at(again, 2) == wilson(2, 2)
    assert reliability.success_at(again, 1) == wilson(0, 2)


def test_one_run_of_each_task_makes_all_of_them_success(row: Made) -> None:
    rows = tasks(row, "1", "0", "1")
    success = reliability.success(rows)
    assert (
        reliability.success_at(rows, 1) == reliability.success_at_unbiased(rows, 1) == reliability.pass_hat(rows, 1) == success
    )


@pytest.mark.parametrize("function", [reliability.success_at, reliability.success_at_unbiased, reliability.pass_hat])
def test_k_is_at_least_one(function: Callable[..., Estimate]) -> None:
    with pytest.raises(SpecError):
        function([], 0)


# -- crashes ----------------------------------------------------------------------------------------------------------


def test_crashes_around_runs_are_counted_apart_and_in_no_rate(row: Made) -> None:
    rows = [*tasks(row, "10", "1x"), row(item="t", infrastructure="harness", broken=1, termination="deadlock", success=False)]
    assert reliability.success(rows, RUNS) == wilson(2, 3)
    assert reliability.violation_rate(rows, RUNS) == wilson(0, 3)
    assert reliability.non_termination(rows, RUNS) == wilson(0, 3)
    assert reliability.collapse(rows, RUNS) == wilson(0, 3)
    assert reliability.profile(rows) == ()
    assert reliability.first_violations(rows).steps.n == 0
    assert [(item.name, item.count) for item in reliability.infrastructure(rows)] == [("harness", 1), ("model connection", 1)]


@mat.model("planner")
def down(prompt: str) -> str:
    raise ConnectionError("no route")


@mat.tool
def tool_down(query: str) -> str:
    raise ConnectionError("no route")


def perform(body: Callable[[], Any], *contracts: mat.Contract) -> RunRow:
    with pytest.raises(ConnectionError), mat.run(contracts, task="t") as run:
        body()
    assert run.result is not None
    return row_of(run.result, item="t", condition="nominal")


def test_a_run_that_dies_of_its_models_provider_says_nothing_of_the_system() -> None:
    assert perform(lambda: down("x")).infrastructure == "model connection"


def test_a_run_that_dies_of_a_tool_or_after_a_violation_counts() -> None:
    assert perform(lambda: tool_down("x")).infrastructure == ""
    hard = mat.step_contract(on="claim", id="hard")(lambda record: False)
    assert perform(lambda: (mat.claim("a"), down("x")), hard).infrastructure == ""


def test_a_run_that_survives_its_models_provider_counts() -> None:
    with mat.run((), task="t") as run:
        try:
            down("x")
        except ConnectionError:
            mat.finish("sorry")
    assert run.result is not None
    assert row_of(run.result, item="t", condition="nominal").infrastructure == ""


# -- violations -------------------------------------------------------------------------------------------------------


def violation(
    step: int, contract: str = "c", severity: Any = "hard", agent: str = "main", kind: str = "tool_call"
) -> ViolationRow:
    return ViolationRow(contract=contract, severity=severity, stage="effected", step=step, agent=agent, action_kind=kind)


def test_collapse_is_non_termination_or_a_broken_progress_contract(row: Made) -> None:
    rows = [
        row(termination="horizon"), row(termination="deadlock"), row(violations=(violation(1, "progress.window"),)),
        row(violations=(violation(1, "work.moves"),)), row(),
    ]  # fmt: skip
    assert reliability.non_termination(rows) == wilson(2, 5)
    assert reliability.collapse(rows) == wilson(3, 5)
    assert reliability.collapse(rows, contracts=["work.moves"]) == wilson(3, 5)
    assert reliability.collapse(rows, contracts=[]) == wilson(2, 5)


def test_first_violations_are_of_any_contract_in_failing_runs_only(row: Made) -> None:
    soft = violation(1, "s", "soft", "b", "claim")
    rows = [
        row(violations=(soft, violation(4))), row(violations=(violation(4), violation(6))), row(violations=(soft,)), row(),
    ]  # fmt: skip
    found = reliability.first_violations(rows)
    assert [(bar.least, bar.count) for bar in found.steps.bins if bar.count] == [(1, 1), (4, 1)]
    assert (found.steps.n, found.steps.without) == (2, 2)
    assert [(item.name, item.share) for item in found.agents] == [("b", wilson(1, 2)), ("main", wilson(1, 2))]
    assert [item.name for item in found.action_kinds] == ["claim", "tool_call"]
    hard = reliability.first_violations(rows, severity="hard")
    assert [(bar.least, bar.count) for bar in hard.steps.bins] == [(4, 2)]


def test_the_profile_says_how_often_each_step_was_the_first(row: Made) -> None:
    rows = [
        row(violations=(violation(2), violation(9))),
        row(violations=(violation(2),)),
        row(violations=(violation(7),)),
        row(),
    ]
    (found,) = reliability.profile(rows)
    assert found.first_steps == (StepCount(step=2, runs=2), StepCount(step=7, runs=1))
    assert found.frequency == wilson(3, 4)


def test_distributions_leave_out_runs_that_have_no_such_number(row: Made) -> None:
    rows = [row(steps=7), row(steps=30, termination="horizon"), row(broken=4)]
    assert (reliability.steps_to_termination(rows).n, reliability.steps_to_termination(rows).without) == (2, 1)
    until = reliability.steps_to_failure(rows)
    assert (until.n, until.without, until.quantiles[2].estimate.value) == (1, 2, 5.0)  # the failing step counts


# -- time between failures --------------------------------------------------------------------------------------------


def test_an_episode_lasts_until_the_failing_step_of_the_task_that_fails(row: Made) -> None:
    rows = [
        row(episode="a", place=1, steps=9, elapsed_ms=90, broken=2, first_failure_ms=33),
        row(episode="a", place=0, steps=5, elapsed_ms=50),
        row(episode="a", place=2, steps=7),
    ]  # fmt: skip
    assert lifetimes(rows) == (Lifetime(length=5 + 3, failed=True),)
    assert lifetimes(rows, unit="ms") == (Lifetime(length=50 + 33, failed=True),)


def test_tasks_of_one_episode_may_arm_other_contracts_and_come_as_given_where_nobody_placed_them(row: Made) -> None:
    rows = [
        row(item="a", episode="e", config="1"),
        row(item="b", episode="e", config="2", broken=1),
        row(item="c", episode="e"),
    ]
    assert lifetimes(rows) == (Lifetime(length=5 + 2, failed=True),)


def test_seeds_variants_and_conditions_are_episodes_of_their_own(row: Made) -> None:
    rows = [
        row(episode="a"), row(episode="a", seed=1), row(episode="a", variant="shield"), row(episode="a", condition="fault"),
        row(item="alone"), row(item="alone"),
    ]  # fmt: skip
    assert lifetimes(rows) == (Lifetime(length=5, failed=False),) * 6


def test_a_crash_around_a_task_cuts_its_episode_off_before_it(row: Made) -> None:
    crashed = row(episode="a", place=1, infrastructure="harness", broken=0)
    assert lifetimes([row(episode="a", place=0), crashed, row(episode="a", place=2, broken=1)]) == (
        Lifetime(length=5, failed=False),
    )
    assert lifetimes([row(infrastructure="harness")]) == ()


def test_the_plain_mean_takes_an_end_for_a_failure_and_the_censored_estimate_does_not(row: Made) -> None:
    rows = [row(item="a", steps=10, broken=9), row(item="b", steps=50), row(item="c", steps=30, broken=19)]
    assert reliability.mtbf(rows).value == pytest.approx((10 + 50 + 20) / 3)
    assert reliability.mtbf_censored(rows).value == 80 / 2
    never = reliability.mtbf_censored([row(steps=10), row(steps=20)])
    assert (never.value, never.n) == (None, 2)


@mat.tool
def act(name: str) -> str:
    return name


def test_a_run_of_several_cases_is_one_stream_and_its_cases_are_distinguished() -> None:
    never_b = mat.step_contract(on="tool_call", id="never.b")(lambda record: record.action.arguments["name"] != "b")
    with mat.run([never_b], task="t") as run:
        act("before")
        with run.episode("one"):
            act("a")
            act("a")
        with run.episode("two"):
            act("a")
            act("b")
        with run.episode("two"):
            act("b")
    assert run.result is not None
    row = row_of(run.result, item="t", condition="nominal")
    assert [(case.name, case.step, case.steps, case.first_failure) for case in row.cases] == [
        ("1: one", 1, 2, None), ("2: two", 3, 2, 4), ("3: two", 5, 1, 5),
    ]  # fmt: skip
    assert lifetimes([row]) == (Lifetime(length=5, failed=True),)
    found = reliability.case_violations([row])
    assert (found.value, found.n) == (2 / 3, 3)
