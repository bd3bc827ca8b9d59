"""The registry of metrics: each on rows counted by hand, none without its n, no data is None."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import mat
from mat.core.codec import decode, encode
from mat.core.errors import SpecError
from mat.core.run import Run
from mat.measure.bootstrap import mean_of, ratio_of
from mat.measure.claims import count_claims, h_prop, h_rate
from mat.measure.interval import wilson
from mat.measure.metrics import METRICS, decided, latency, mean_per_run, residual_harm, tokens_per_success
from mat.measure.rows import (
    ActionCount,
    ClaimCount,
    FaultRow,
    Labels,
    RunRow,
    Score,
    ViolationRow,
    misuse_of,
    row_of,
)
from mat.measure.sampling import RUNS, TASKS, clustered
from mat.measure.scores import mean_score, score_names, scored
from mat_contracts.claims import claims_in
from mat_contracts.support import number_match

Made = Callable[..., RunRow]


def measured(name: str, rows: Sequence[RunRow]) -> Any:
    return METRICS[name].function(rows)


@pytest.mark.covers("metric", METRICS)
@pytest.mark.sweep("name", METRICS)
def test_every_metric_says_what_it_is_and_has_no_value_without_data(name: str) -> None:
    metric = METRICS[name]
    assert metric.name == name
    assert metric.source
    assert metric.text
    assert metric.unit in ("share", "steps", "ms", "tokens", "calls")
    assert metric.better in ("higher", "lower", "")
    found = metric.function([])
    assert (found.value, found.low, found.high, found.n) == (None, None, None, 0)


@pytest.mark.sweep("name", METRICS)
def test_no_metric_counts_a_run_whose_infrastructure_failed(name: str, row: Made) -> None:
    full = partial(
        row, broken=3, misuse="harmful", input="misuse", claims=ClaimCount(final=2, unsupported=1, recorded=2, propagated=1),
        actions=(action("high", "block", 2), action("low", "allow", 3), action("low", "rewrite", 1)), faults=(fault(), fault()),
    )  # fmt: skip
    rows = [full(item="a"), full(item="b", tokens=70, steps=9)]
    crashed = full(item="c", infrastructure="harness", tokens=9_999, success=False, elapsed_ms=1)
    assert measured(name, [*rows, crashed]) == measured(name, rows)


def action(impact: Any, decision: Any, count: int, *, routed: bool = False, sandboxed: bool = False) -> ActionCount:
    return ActionCount(impact=impact, decision=decision, routed=routed, sandboxed=sandboxed, count=count)


def fault(step: int = 1, **facts: Any) -> FaultRow:
    plain: dict[str, Any] = {
        "operator": "service.timeout", "injected": True, "step": step, "detected": True, "mitigated": False,
        "contained": False, "final_ok": False,
    }  # fmt: skip
    return FaultRow(**{**plain, **facts})


# -- claims -----------------------------------------------------------------------------------------------------------


def test_claim_rates_are_means_over_the_runs_that_have_claims(row: Made) -> None:
    rows = [
        row(claims=ClaimCount(final=4, unsupported=1, recorded=0, propagated=0)),
        row(claims=ClaimCount(final=0, unsupported=0, recorded=2, propagated=2)),
        row(claims=ClaimCount(final=1, unsupported=1, recorded=4, propagated=0)),
        row(claims=None),
    ]
    assert (measured("h_rate", rows).value, measured("h_rate", rows).n) == ((1 / 4 + 1) / 2, 2)
    assert (measured("h_prop", rows).value, measured("h_prop", rows).n) == ((1 + 0) / 2, 2)


@mat.tool
def fetch(order: str) -> dict[str, int]:
    return {"paid": 25}


def test_rows_give_the_same_claim_rates_as_the_traces() -> None:
    def one(answer: str, note: str) -> Run:
        with mat.run((), task="t") as run:
            fetch("7")
            mat.claim(note)
            fetch(note)
            mat.finish(answer)
        assert run.result is not None
        return run.result

    runs = [one("25 were paid.", "30 were paid"), one("30 were paid. 25 were paid.", "25 were paid"), one("Hello", "x")]
    assess = partial(claims_in, verifier=number_match())
    rows = [row_of(run, item="t", condition="nominal", claims=count_claims(run, assess)) for run in runs]
    assert measured("h_rate", rows) == h_rate(runs, assess).mean
    assert measured("h_prop", rows) == h_prop(runs, assess).mean
    assert measured("h_prop", rows).value > 0


# -- faults -----------------------------------------------------------------------------------------------------------


def test_fault_shares_count_injected_faults_alone(row: Made) -> None:
    good = fault(mitigated=True, contained=True, final_ok=True)
    rows = [row(faults=(good,)), row(faults=(fault(),)), row(faults=(fault(injected=False), good)), row()]
    assert measured("detected", rows).value == 1.0
    assert measured("mitigated", rows) == measured("containment", rows) == measured("final_ok", rows) == wilson(2, 3)


def test_residual_harm_is_a_policy_broken_in_the_final_response_after_a_fault(row: Made) -> None:
    def broken(step: int, contract: str = "pii", kind: str = "final_response", severity: Any = "hard") -> ViolationRow:
        return ViolationRow(
            contract=contract, severity=severity, stage="effected", step=step, agent="a", action_kind=kind
        )  # fmt: skip

    def of(*violations: ViolationRow, **options: Any) -> float | None:
        return residual_harm([row(faults=(fault(3),), violations=violations)], **options).value

    assert of(broken(5)) == 1.0
    assert of(broken(2)) == 0.0  # before the fault
    assert of(broken(5, kind="tool_call")) == 0.0  # a failure, but not of the response
    assert of(broken(5, severity="soft")) == 0.0
    assert of(broken(5, severity="soft"), policies=["pii"]) == 1.0
    assert of(broken(5), policies=["other"]) == 0.0
    assert residual_harm([row(violations=(broken(5),))]).n == 0  # no fault


# -- governance -------------------------------------------------------------------------------------------------------


def test_decisions_are_shares_of_proposed_actions_by_risk_and_input(row: Made) -> None:
    rows = [
        row(input="benign", actions=(action("low", "allow", 3), action("high", "block", 1))),
        row(input="misuse", actions=(action("high", "allow", 1, routed=True), action("high", "rewrite", 2))),
    ]
    assert measured("p_allow", rows) == clustered([(3, 4), (1, 3)])
    assert (measured("p_block.high", rows).value, measured("p_block.high", rows).n) == (1 / 4, 4)
    assert measured("p_rewrite.misuse", rows).value == 2 / 3
    assert measured("p_allow.low", rows).value == 1.0
    assert measured("p_block.benign", rows).value == 1 / 4
    assert sum(decided(rows, decision=name).value or 0 for name in ("allow", "rewrite", "block")) == pytest.approx(1)
    assert measured("high_impact_stopped", rows).value == 2 / 4  # blocked, or routed to an approver


def test_misuse_outcomes_are_shares_of_judged_misuse_runs(row: Made) -> None:
    rows = [row(misuse=outcome) for outcome in ("refusal", "refusal", "harmful", "partial", "other", "")]
    assert measured("misuse.refusal", rows) == wilson(2, 5)
    assert (
        measured("misuse.harmful", rows) == measured("misuse.partial", rows) == measured("misuse.other", rows) == wilson(1, 5)
    )


def test_the_words_of_the_misuse_contract_are_understood() -> None:
    assert [misuse_of(word) for word in ("refused", "contained", "harmful", "other", "partial")] == [
        "refusal", "partial", "harmful", "other", "partial",
    ]  # fmt: skip
    with pytest.raises(SpecError):
        misuse_of("refusd")


# -- cost -------------------------------------------------------------------------------------------------------------


def test_tokens_per_success_pay_for_the_failures_too(row: Made) -> None:
    rows = [row(tokens=100), row(tokens=300, success=False), row(tokens=200), row(tokens=5_000, success=None)]
    found = tokens_per_success(rows)
    assert found.value == 600 / 2
    assert found == ratio_of([(100, 1), (300, 0), (200, 1)])
    none = tokens_per_success([row(success=False)])
    assert (none.value, none.n) == (None, 1)
    by_task = tokens_per_success([row(item=str(index // 2), tokens=index) for index in range(8)], TASKS)
    assert (by_task.n, by_task.method) == (8, "percentile bootstrap by task, no interval below 10")
    assert by_task.population == "new tasks like these 4"


def test_what_was_not_measured_is_no_data(row: Made) -> None:
    rows = [row(tokens=None, elapsed_ms=None, judged=False, faults=(fault(),)) for _ in range(3)]
    for name in ("tokens", "tokens_per_success", "latency_ms", "violations", "unknown", "residual_harm", "mtbf_steps"):
        for sampling in (RUNS, TASKS):
            found = METRICS[name].function(rows, sampling)
            assert (found.value, found.low, found.high, found.n, found.population) == (None, None, None, 0, ""), name
    assert METRICS["steps"].function(rows).n == 3


@pytest.mark.parametrize(
    ("name", "field"), [("tokens", "tokens"), ("tool_calls", "tool_calls"), ("steps", "steps"), ("latency_ms", "elapsed_ms")]
)
def test_means_are_of_the_number_they_are_called_after(name: str, field: str, row: Made) -> None:
    rows = [row(**{field: number}) for number in (3, 9, 27)]
    assert measured(name, rows) == mean_of([3, 9, 27])


def test_a_method_can_be_asked_for(row: Made) -> None:
    rows = [row(tokens=number) for number in (3, 9, 27, 5, 8, 4, 3, 7, 5, 6)]
    assert mean_per_run(rows, lambda one: one.tokens, method="abc").method == "abc, guarded"


def test_latency_leaves_out_runs_that_were_cut_off(row: Made) -> None:
    found = latency([row(elapsed_ms=7), row(elapsed_ms=1_000, termination="horizon")])
    assert (found.n, found.without) == (1, 1)


# -- scores -----------------------------------------------------------------------------------------------------------


def test_scores_are_what_given_functions_say_and_a_crash_is_no_score() -> None:
    run = Run(spec=mat.spec.RunSpec())

    def crash(run: Run) -> float:
        raise ValueError("no judge")

    found = scored(run, {"z": lambda run: 0.5, "crash": crash, "none": lambda run: None, "odd": lambda run: float("nan")})
    assert [(score.name, score.value) for score in found] == [("crash", None), ("none", None), ("odd", None), ("z", 0.5)]
    assert found[0].error == "ValueError: no judge"
    assert found[2].error


def test_a_mean_score_counts_the_runs_that_have_it(row: Made) -> None:
    rows = [row(scores=(Score(name="faith", value=value),)) for value in (0.5, 1.0, None)] + [row()]
    found = mean_score(rows, "faith")
    assert (found.value, found.n) == (0.75, 2)
    assert found.low is not None
    assert score_names(rows) == ("faith",)
    assert mean_score(rows, "other").value is None
    big = mean_score([row(scores=(Score(name="s", value=value),)) for value in (3.0, 9.0)], "s")
    assert (big.value, big.method) == (6.0, "percentile bootstrap, no interval below 10")


# -- rows -------------------------------------------------------------------------------------------------------------


def test_labels_and_what_a_run_knows_of_itself_reach_its_row() -> None:
    with mat.run((), task="t.py::test", config={"model": "m"}, seed=3) as run:
        fetch("7")
        mat.finish("done")
    assert run.result is not None
    labels = Labels(
        category="policy", input="misuse", variant="shield", misuse="partial", infrastructure="harness", episode="e", place=2
    )
    row = row_of(run.result, item="t", condition="adversarial", labels=labels)
    assert (row.category, row.input, row.variant, row.misuse, row.infrastructure, row.episode, row.place) == (
        "policy", "misuse", "shield", "partial", "harness", "e", 2,
    )  # fmt: skip
    assert (row.condition, row.task, row.run, row.final_step) == ("adversarial", "t.py::test", run.result.id, 1)
    assert (row.first_failure, row.first_failure_ms) == (None, None)
    assert row.actions == (action("low", "allow", 1),)
    assert decode(RunRow, encode(row)) == row
    assert row_of(run.result, item="t", condition="nominal").variant == "none"


def test_rows_of_one_configuration_share_its_digest_and_others_do_not() -> None:
    def of(**options: Any) -> str:
        with mat.run((), **options) as run:
            pass
        assert run.result is not None
        return row_of(run.result, item="t", condition="nominal").config

    assert of(config={"a": 1}, seed=1) == of(config={"a": 1}, task="other")
    assert of(config={"a": 1}) != of(config={"a": 2})


def test_the_first_failure_is_the_earliest_hard_violation_and_its_time() -> None:
    import time

    late = mat.step_contract(on="claim", id="late")(lambda record: False)
    soft = mat.step_contract(on="tool_call", id="soft", severity="soft")(lambda record: False)
    with mat.run([late, soft]) as run:
        fetch("7")
        time.sleep(2)
        mat.claim("a")
        mat.claim("b")
    assert run.result is not None
    row = row_of(run.result, item="t", condition="nominal")
    assert (row.first_failure, row.first_failure_ms) == (1, 2_000)


def test_a_row_of_a_report_written_before_these_fields_is_read(row: Made) -> None:
    data = encode(row())
    for name in ("category", "input", "variant", "config", "claims", "actions", "misuse", "episode", "cases", "first_failure"):
        del data[name]
    assert decode(RunRow, data) == row()


def test_rates_without_resampling_import_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys; from mat.measure import metrics; from mat.measure.rows import RunRow\n"
        "for metric in metrics.METRICS.values(): metric.function([])\n"
        "sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
