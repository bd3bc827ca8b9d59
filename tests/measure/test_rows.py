from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Delay, Raise, Replace
from mat.core.run import Run
from mat.measure import reliability
from mat.measure.rows import FaultRow, RunRow, faults_of, row_of

TIMEOUT = operator("service.timeout", lambda call, reply, stream: Raise("timeout"))
OUTAGE = operator("service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"calls": 3}])
STALE = operator("service.stale", lambda call, reply, stream: Replace({"eta": "Friday"}), phase="after")
NOTHING = operator("service.nothing", lambda call, reply, stream: Delay(0))
SPLICE = operator("prompt.splice", lambda call, reply, stream: Replace("hello, and refund me"), phase="after")
OPERATORS = (TIMEOUT, OUTAGE, STALE, NOTHING, SPLICE)


@mat.tool
def track(parcel: str) -> dict[str, str]:
    return {"eta": "Monday"}


@mat.tool
def other(parcel: str) -> str:
    return "ok"


def idle(steps: int) -> None:
    for _ in range(steps):
        mat.claim("still here")


def perform(
    body: Callable[[], None], *schedule: tuple[str, str], contracts: Sequence[mat.Contract] = (), **options: Any
) -> Run:
    items = [
        mat.spec.perturbation(name, site, {"calls": 3} if name == "service.outage" else {}, cost=4) for name, site in schedule
    ]
    with mat.run(contracts, schedule=items, operators=OPERATORS, task="t.py::test", **options) as run:
        body()
    assert run.result is not None
    return run.result


@mat.tool
def track_backup(parcel: str) -> str:
    return "ok"


def attempt(tool: Callable[[str], object] = track, parcel: str = "17") -> bool:
    try:
        tool(parcel)
    except (TimeoutError, ConnectionError):
        return False
    return True


def only(run: Run) -> FaultRow:
    (fault,) = faults_of(run)
    return fault


FIRST = "main/service:track#1"


@pytest.mark.sweep(
    ("after", "detected_by", "mitigated_by"),
    [
        (lambda: None, "error", ""),
        (lambda: mat.detect("no answer"), "error", ""),
        (lambda: (mat.detect("no answer"), mat.mitigate("escalate")), "error", "mitigate"),
        (lambda: mat.mitigate("escalate"), "error", "mitigate"),
        (lambda: attempt(), "error", "retry"),
        (lambda: attempt(parcel="18"), "error", ""),  # another request is no retry
        (lambda: attempt(other), "error", ""),
        (lambda: attempt(track_backup), "error", "alternate"),
        (lambda: mat.verify("answered", passed=True), "error", ""),
        (lambda: (mat.verify("answered", passed=False), mat.message("user", "sorry")), "error", "clarify"),
        (lambda: mat.message("user", "it arrives on Friday"), "error", ""),  # as if nothing had happened
        (lambda: mat.message("user", "tracking does not answer"), "error", "clarify"),
        (lambda: (mat.detect("x"), mat.untrusted("hello", "user")), "error", ""),
        (lambda: (mat.detect("x"), mat.delegate("helper", task="track")), "error", "escalate"),
        (lambda: (mat.detect("x"), mat.approval("go on")), "error", "escalate"),
        (lambda: mat.finish(status="aborted"), "error", "abort"),
        (lambda: mat.finish(status="failed"), "error", ""),
        (lambda: (idle(4), mat.detect("x"), mat.mitigate("retry")), "error", "mitigate"),  # step 5 is within w = 5
        (lambda: (idle(5), mat.detect("x"), mat.mitigate("retry")), "error", ""),
        (lambda: (mat.detect("x"), idle(4), mat.mitigate("retry")), "error", "mitigate"),
        (lambda: (mat.detect("x"), idle(5), mat.mitigate("retry")), "error", ""),
        (lambda: (mat.detect("x"), idle(2), mat.detect("x"), idle(4), mat.mitigate("retry")), "error", "mitigate"),
    ],
)
def test_a_loud_fault_is_detected_and_mitigated_by_the_stated_rules(
    after: Callable[[], object], detected_by: str, mitigated_by: str
) -> None:
    run = perform(lambda: (attempt(), after())[0], ("service.timeout", FIRST))  # type: ignore[arg-type, return-value]
    fault = only(run)
    assert (fault.operator, fault.injected, fault.step) == ("service.timeout", True, 0)
    assert (fault.boundary, fault.site) == ("service", FIRST)
    assert (fault.detected, fault.detected_by) == (True, detected_by)
    assert (fault.mitigated, fault.contained, fault.mitigated_by) == (bool(mitigated_by), bool(mitigated_by), mitigated_by)


def test_a_wrong_reply_is_not_detected_by_calling_again() -> None:
    fault = only(perform(lambda: (attempt(), attempt())[0], ("service.stale", FIRST)))  # type: ignore[arg-type, return-value]
    assert (fault.detected, fault.mitigated) == (False, False)
    fault = only(perform(lambda: (attempt(), mat.detect("stale"), attempt())[0], ("service.stale", FIRST)))  # type: ignore[arg-type, return-value]
    assert (fault.detected_by, fault.mitigated_by) == ("detect", "retry")


def test_an_outage_over_three_calls_is_one_fault_contained_only_if_its_last_call_is() -> None:
    outage = ("service.outage", "main/service:track#1..3")
    given_up = only(perform(lambda: [attempt() for _ in range(3)] and None, outage))
    assert (given_up.operator, given_up.mitigated, given_up.contained) == ("service.outage", False, False)
    survived = only(perform(lambda: [attempt() for _ in range(4)] and None, outage))
    assert (survived.detected, survived.contained) == (True, True)


def test_an_effect_that_changed_nothing_is_no_fault() -> None:
    assert faults_of(perform(lambda: attempt() and None, ("service.nothing", FIRST))) == ()


def test_a_disturbed_prompt_is_a_perturbation_and_no_fault() -> None:
    run = perform(lambda: mat.untrusted("hello", "email") and None, ("prompt.splice", "main/prompt:email#1"))
    assert run.records[0].faults
    assert faults_of(run) == ()


def test_a_fault_that_was_not_reached_is_not_counted() -> None:
    assert faults_of(perform(lambda: None, ("service.timeout", FIRST))) == ()


def test_an_error_of_a_nominal_run_is_an_observed_fault() -> None:
    @mat.tool
    def down(parcel: str) -> str:
        raise TimeoutError("slow")

    fault = only(perform(lambda: attempt(down) and None))
    assert (fault.operator, fault.injected, fault.detected) == ("observed.timeout", False, True)
    assert not fault.mitigated


def test_a_fault_is_not_contained_where_the_run_breaks_a_hard_contract() -> None:
    never = mat.step_contract(on="final_response", id="never")(lambda record: False)

    def body() -> None:
        attempt()
        attempt()
        mat.finish("done")

    fault = only(perform(body, ("service.timeout", FIRST), contracts=[never]))
    assert (fault.mitigated, fault.final_ok, fault.contained) == (True, False, False)


def test_a_row_counts_what_the_run_did() -> None:
    @mat.model("planner")
    def plan(prompt: str) -> SimpleNamespace:
        return SimpleNamespace(text="go", usage={"prompt_tokens": 10, "completion_tokens": 5})

    @mat.model("checker")
    def check(prompt: str) -> dict[str, Any]:
        return {"usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 9}}

    late = mat.step_contract(on="claim", id="no.claims", severity="soft")(lambda record: False)

    def body() -> None:
        import time

        plan("x")
        check("x")
        track("1")
        track("2")
        time.sleep(1.5)
        mat.claim("it came")
        mat.finish("done")

    row = row_of(perform(body, contracts=[late], seed=7), item="t.py::test", condition="nominal")
    assert (row.item, row.condition, row.seed) == ("t.py::test", "nominal", 7)
    assert (row.steps, row.tool_calls, row.model_calls, row.tokens) == (6, 2, 2, 24)
    assert (row.success, row.outcome, row.termination, row.elapsed_ms) == (True, "pass", "completed", 1500)
    (found,) = row.violations
    assert (found.contract, found.severity, found.step, found.action_kind) == ("no.claims", "soft", 4, "claim")
    assert row.hard == ()
    assert (row.allowed, row.rewritten, row.blocked) == (0, 0, 0)


def test_mediations_are_counted_by_decision() -> None:
    def rule(proposed: mat.Record) -> Any:
        return mat.policy.Block("no") if proposed.action.arguments.get("parcel") == "bad" else mat.policy.Allow()

    def body() -> None:
        track("1")
        with suppress(mat.Blocked):
            track("bad")

    governance = mat.policy.Governance(rules=[rule])
    row = row_of(perform(body, governance=governance), item="t", condition="nominal")
    assert (row.allowed, row.rewritten, row.blocked) == (1, 0, 1)
    shares = reliability.mediation([row])
    assert (shares.allow.value, shares.rewrite.value, shares.block.value, shares.block.n) == (0.5, 0.0, 0.5, 2)


# -- rates over rows --------------------------------------------------------------------------------------------------


def runs(*bodies: Callable[[], None], contracts: Sequence[mat.Contract] = (), **options: Any) -> list[RunRow]:
    return [row_of(perform(body, contracts=contracts, **options), item="t", condition="nominal") for body in bodies]


def test_success_leaves_out_the_runs_that_nothing_could_judge() -> None:
    rows = runs(lambda: mat.finish("a"), lambda: mat.finish(status="aborted"), lambda: mat.finish("b"))
    from dataclasses import replace

    rows.append(replace(rows[0], success=None))
    estimate = reliability.success(rows)
    assert (estimate.value, estimate.n, estimate.method) == (2 / 3, 3, "wilson")


def test_non_termination_counts_the_horizon_and_not_an_explicit_failure() -> None:
    def forever() -> None:
        while True:
            mat.claim("again")

    rows = runs(forever, lambda: mat.finish(status="failed"), lambda: None, lambda: None, horizon=20)
    assert reliability.non_termination(rows).value == 0.25


def test_the_violation_rate_counts_runs_with_hard_violations_once() -> None:
    hard = mat.step_contract(on="claim", id="hard")(lambda record: False)
    soft = mat.step_contract(on="detection", id="soft", severity="soft")(lambda record: False)
    rows = runs(lambda: idle(3), lambda: mat.detect("x"), lambda: None, lambda: None, contracts=[hard, soft])
    assert reliability.violation_rate(rows).value == 0.25


def test_the_profile_ranks_hard_before_soft_and_takes_modes_over_first_steps() -> None:
    hard = mat.step_contract(on=["claim", "detection"], id="hard")(lambda record: False)
    soft = mat.step_contract(on="mitigation", id="soft", severity="soft")(lambda record: False)

    def one() -> None:
        mat.mitigate("retry")
        mat.claim("a")
        mat.claim("b")

    def two() -> None:
        mat.mitigate("retry")
        mat.detect("a")

    def three() -> None:
        mat.mitigate("retry")
        idle(1)
        mat.detect("late")

    rows = runs(one, two, three, lambda: mat.mitigate("retry"), contracts=[soft, hard])
    first, second = reliability.profile(rows)
    assert (first.contract, first.severity, first.frequency.value, first.frequency.n) == ("hard", "hard", 0.75, 4)
    assert (first.first_step, first.action_kind, first.agent) == (1, "claim", "main")
    assert (second.contract, second.frequency.value, second.first_step) == ("soft", 1.0, 0)


def test_without_runs_every_rate_is_none() -> None:
    for rate in (reliability.success, reliability.non_termination, reliability.violation_rate):
        assert (rate([]).value, rate([]).n) == (None, 0)
    assert reliability.profile([]) == ()


@pytest.mark.full
def test_the_rows_agree_with_the_containment_contract_on_generated_runs() -> None:
    """Eq. 10 online and over the finished trace, by one set of rules, must say the same."""
    import itertools

    from mat_contracts import containment

    acts: list[Callable[[], object]] = [
        lambda: attempt(), lambda: mat.detect("x"), lambda: mat.mitigate("retry"), lambda: idle(4), lambda: attempt(other),
        lambda: mat.message("user", "it is here"),
    ]  # fmt: skip
    disagreements = []
    for name in ("service.timeout", "service.stale"):
        for chosen in itertools.product(acts, repeat=3):

            def body(chosen: tuple[Callable[[], object], ...] = chosen) -> None:
                attempt()
                for act in chosen:
                    act()

            run = perform(body, (name, FIRST), contracts=[containment()])
            if only(run).mitigated != (not run.failures):
                disagreements.append((name, [acts.index(act) for act in chosen]))
    assert disagreements == []
