"""One replay item: execute its recorded seed and schedule again, strictly or as a regression test."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mat.boundary.tape import Tape
from mat.core.campaign import ItemResult, ItemStatus, signature_of
from mat.core.errors import ReplayDivergence
from mat.core.run import Run, same_violation
from mat.core.spec import Schedule
from mat.core.verdict import Violation
from mat.evidence.moving import in_place, relocate
from mat.evidence.replay import compare, regression_outcome
from mat.evidence.replay_file import Replay
from mat_study.evaluation import Evaluated, Lost, Plan
from mat_study.means import Means, Subject
from mat_study.measuring import Gathered
from mat_study.settings import ItemSettings
from mat_study.standing import fixed_text, is_held, standings_in


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


def judge(plan: Plan, run: Run, settings: ItemSettings) -> ReplayJudgement:
    """Judge a replay's run. A run in which a site was not reached, or by another call, is not judged: see `replay`.

    A regression replay does not fail if all that it breaks is accepted, or in the baseline.
    """
    recorded = plan.replay
    assert recorded is not None
    if _is_out_of_place(plan, run):
        return ReplayJudgement()
    if plan.mode == "strict":
        divergence = compare(recorded.counterexample.run, run)
        return ReplayJudgement(
            fails=divergence is not None or not recorded.expected, divergence=divergence, reproduced=divergence is None
        )
    outcome = regression_outcome(recorded, run)
    found = standings_in(run, settings)
    new = tuple(each.violation for each in found if each.standing.kind == "new")
    if outcome.status == "violated" and not outcome.ok and is_held(found):
        return ReplayJudgement()
    if not outcome.ok:
        violations = new or outcome.violations if outcome.status == "violated" else ()
        message = outcome.reason
        if violations and recorded.counterexample.verdict.contract not in {each.contract for each in violations}:
            message = f"violates {violations[0].contract} at step {violations[0].step}: {violations[0].message}"
        return ReplayJudgement(fails=True, message=_with_moves(plan, message), violations=violations)
    if not (recorded.expected and new):
        return ReplayJudgement()
    first = new[0]
    message = f"violates {first.contract}, which expect= does not name, at step {first.step}: {first.message}"
    return ReplayJudgement(fails=True, message=_with_moves(plan, message))


def _is_out_of_place(plan: Plan, run: Run) -> bool:
    """Whether the calls that a regression replay disturbs must be looked for: it disturbed others, and shows nothing yet."""
    if plan.mode != "regression" or plan.moves is not None or plan.replay is None:
        return False
    recorded = plan.replay.counterexample
    shows = any(same_violation(recorded.verdict, found) for found in run.violations) or bool(run.failures)
    return not shows and not in_place(recorded.run, run)


def _with_moves(plan: Plan, text: str) -> str:
    return "; ".join(filter(None, (text, moved_text(plan))))


def replay(subject: Subject, means: Means, gathered: Gathered, plan: Plan) -> tuple[Evaluated | Lost, ItemResult]:
    """Execute a replay; returns the execution, whose outcome is the item's, and the item's result.

    If a regression replay disturbs other calls than recorded, these are looked for, and it is executed once more.
    """
    given = means.evaluate(plan)
    if isinstance(given, Evaluated) and _is_out_of_place(plan, given.run):
        plan = _at_present_places(means, plan, given.run)
        given = means.evaluate(plan)
    if isinstance(given, Evaluated):
        gathered.note(given, "replay")
    if given.outcome == "passed":
        return given, _passed(subject, plan, given)
    if isinstance(given, Evaluated):
        gathered.show(given.run)
    return given, ItemResult(id=subject.id, status=_failure_status(plan, given), executions=1)


def _passed(subject: Subject, plan: Plan, given: Evaluated | Lost) -> ItemResult:
    """The result of a replay that fails nothing: because it holds, or because what it breaks is accepted or known."""
    result = ItemResult(id=subject.id, status="replayed", executions=1, reason=_success_text(plan))
    if plan.mode == "strict" or plan.replay is None or isinstance(given, Lost):
        return result
    settings = subject.settings
    found = standings_in(given.run, settings)
    if is_held(found):
        kinds = {each.standing.kind for each in found}
        result = replace(result, status="accepted" if "accepted" in kinds else "known")
    shown = [signature_of(given.run, each.violation) for each in found]
    recorded = plan.replay.counterexample.signature
    fixed = [
        fixed_text(each, file=subject.replay) for each in settings.known.unseen(shown) if each.finding.concerns(recorded)
    ]  # fmt: skip
    return replace(result, notes=tuple(fixed))


def _at_present_places(means: Means, plan: Plan, run: Run) -> Plan:
    """The plan with the recorded schedule at its present places."""
    recorded = plan.replay
    assert recorded is not None

    def execute(schedule: Schedule) -> Run | None:
        tape = _tape(recorded, plan)
        given = means.evaluate(Plan(mode="search", seed=plan.seed, schedule=schedule, tape=tape))
        return given.run if isinstance(given, Evaluated) else None

    found = relocate(recorded.counterexample.run, run, execute)
    return replace(plan, schedule=found.schedule, moves=found.moves, tape=_tape(recorded, plan))


def _tape(recorded: Replay, plan: Plan) -> Tape:
    """The recorded tape from its beginning, with as many live calls as the plan's."""
    return Tape(recorded.counterexample.run.tape, live=None if plan.tape is None else plan.tape.live)


def moved_text(plan: Plan) -> str:
    """How the sites of a replay were moved, for people; "" if they were not."""
    return "; ".join(map(str, plan.moves or ()))


def _success_text(plan: Plan) -> str:
    """What to say of a replay that passes: that a strict one matched its recording, or how its sites were moved."""
    if plan.mode != "strict" or plan.replay is None:
        return moved_text(plan)
    found = plan.replay.counterexample
    return f"reproduced step by step: {found.verdict.contract} at step {found.verdict.step}, cost {found.cost}"


def _failure_status(plan: Plan, given: Evaluated | Lost) -> ItemStatus:
    if isinstance(given, Lost):
        return "failed"
    assert plan.replay is not None
    if plan.mode == "regression" and regression_outcome(plan.replay, given.run).status == "stale":
        return "stale"
    return "violated" if given.run.failures else "failed"
