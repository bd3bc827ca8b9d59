"""One replay item: execute its recorded seed and schedule again, strictly or as a regression test."""

from __future__ import annotations

from dataclasses import dataclass

from mat.boundary.tape import Tape
from mat.core.campaign import ItemResult, ItemStatus
from mat.core.errors import ReplayDivergence
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay import compare, regression_outcome
from mat.evidence.replay_file import Replay
from mat_study.evaluation import Evaluated, Lost, Plan
from mat_study.means import Means, Subject
from mat_study.measuring import Gathered


def plan_of(recorded: Replay, *, strict: bool, live_calls: int | None) -> Plan:
    """The recorded seed and schedule; external ports answer from the recorded tape."""
    run = recorded.counterexample.run
    return Plan(
        mode="strict" if strict else "regression",
        seed=run.spec.seed,
        schedule=run.spec.schedule,
        tape=Tape(run.tape, live=0 if strict and live_calls is None else live_calls),
        replay=recorded,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJudgement:
    """The judgment of a replay's run. `fails`: its item fails. `divergence` and `reproduced`: how a strict replay compares with
    its recording. `message` and `violations`: why a regression replay fails."""

    fails: bool = False
    divergence: ReplayDivergence | None = None
    reproduced: bool = False
    message: str = ""
    violations: tuple[Violation, ...] = ()


def judge(plan: Plan, run: Run, *, expect: frozenset[str]) -> ReplayJudgement:
    """Judge a replay's run."""
    recorded = plan.replay
    assert recorded is not None
    if plan.mode == "strict":
        divergence = compare(recorded.counterexample.run, run)
        return ReplayJudgement(
            fails=divergence is not None or not recorded.expected, divergence=divergence, reproduced=divergence is None
        )
    outcome = regression_outcome(recorded, run)
    if not outcome.ok:
        violations = outcome.violations if outcome.status == "violated" else ()
        return ReplayJudgement(fails=True, message=outcome.reason, violations=violations)
    first = next((each for each in run.failures if recorded.expected and each.contract not in expect), None)
    if first is None:
        return ReplayJudgement()
    message = f"violates {first.contract}, which expect= does not name, at step {first.step}: {first.message}"
    return ReplayJudgement(fails=True, message=message)


def replay(subject: Subject, means: Means, gathered: Gathered, plan: Plan) -> tuple[Evaluated | Lost, ItemResult]:
    """Execute a replay; returns the execution, whose outcome is the item's, and the item's result."""
    given = means.evaluate(plan)
    if isinstance(given, Evaluated):
        gathered.note(given, "replay")
    if given.outcome == "passed":
        return given, ItemResult(id=subject.id, status="replayed", executions=1, reason=_success_text(plan))
    if isinstance(given, Evaluated):
        gathered.show(given.run)
    return given, ItemResult(id=subject.id, status=_failure_status(plan, given), executions=1)


def _success_text(plan: Plan) -> str:
    """The message of a strict replay that matched its recording; "" for a regression replay that passes."""
    if plan.mode != "strict" or plan.replay is None:
        return ""
    found = plan.replay.counterexample
    return f"reproduced step by step: {found.verdict.contract} at step {found.verdict.step}, cost {found.cost}"


def _failure_status(plan: Plan, given: Evaluated | Lost) -> ItemStatus:
    if isinstance(given, Lost):
        return "failed"
    assert plan.replay is not None
    if plan.mode == "regression" and regression_outcome(plan.replay, given.run).status == "stale":
        return "stale"
    return "violated" if given.run.failures else "failed"
