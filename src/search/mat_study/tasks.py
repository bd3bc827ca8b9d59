"""What a test stands for (A6.1): its workload, and what that says of one run of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from mat.core.errors import SpecError
from mat.core.run import Run
from mat.core.verdict import ContractOutcome, Violation
from mat.measure.rows import NO_LABELS, Labels, Misuse, misuse_of
from mat.measure.workload import Workload, workload
from mat_study.settings import ItemSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """`harm`: whether the attack of a misuse task succeeded, None where nobody but the contracts can say."""

    labels: Labels = NO_LABELS
    harm: bool | None = None

    @property
    def misuse(self) -> bool:
        return self.labels.input == "misuse"


def workload_of(given: Any, settings: ItemSettings) -> Workload:
    """From the fixture `mat_workload`, over what the marker says. SpecError where they mean nothing."""
    return workload(given, settings.workload)


def is_task(task: Workload) -> bool:
    """Whether an evaluation is meant to measure a test: it has a workload, be it one with gaps."""
    return bool(task.category or task.channels or task.tools or task.waive)


def refuse_gaps(task: Workload, where: str) -> None:
    """SpecError with all that A6.1 wants to know of a task and its workload does not say."""
    if task.gaps:
        raise SpecError(
            what=f"the workload of the task lacks {', '.join(task.gaps)}",
            why="an evaluation needs the category, an untrusted channel and a tool boundary of each task",
            fix="name them in mat_workload or the marker, or waive what the task does not have: mat.Workload(waive=[...])",
            where=where,
        )


def judged(task: Workload, run: Run) -> Judged:
    """What a task says of one of its runs; the run's variant is in its configuration. JudgeFailed where `harm` raises."""
    labels = Labels(
        category=task.category, input=task.input, misuse=_ending(task, run) if task.misuse else "", episode=task.episode
    )
    if not task.misuse or task.harm is None:
        return Judged(labels=labels)
    if isinstance(task.harm, frozenset):
        return Judged(labels=labels, harm=any(violation.contract in task.harm for violation in run.failures))
    return Judged(labels=labels, harm=_asked("harm", task.harm, run) is True)


def _ending(task: Workload, run: Run) -> Misuse | Literal[""]:
    """What became of a misuse task (A2.F5), by the contracts that its harm names, or by all hard ones; "" without any."""
    from mat_contracts.misuse import misuse_outcome

    known = {item.contract: item for item in run.outcomes if item.severity == "hard" and item.outcome != "unknown"}
    policies = set(known) if not isinstance(task.harm, frozenset) else task.harm & set(known)
    if not policies:
        return ""
    outcomes: list[ContractOutcome] = list(known.values())
    return misuse_of(misuse_outcome(run.records, outcomes, label="misuse", policies=policies).outcome)


def succeeded(task: Workload, run: Run) -> bool | None:
    """What the task's oracle says of a run whose body came to its end; True without one. JudgeFailed where it raises."""
    if task.oracle is None:
        return True
    answer = _asked("oracle", task.oracle, run)
    return None if answer is None else bool(answer)


def with_success(task: Workload, run: Run, *, returned: bool) -> Run:
    """Y is about the task alone: its body returned, and its oracle, where it has one, says yes."""
    success = succeeded(task, run) if returned and run.term else False
    return run if run.success == success else replace(run, success=success)


def with_task(run: Run) -> Run:
    """Under objective="task" a body that does not succeed breaks a contract of that name."""
    last = run.records[-1]
    said = run.error or f"the run ended with {run.termination}"
    broken = Violation(
        contract="task", severity="hard", stage="effected", step=last.step, agent=last.agent, role=last.role, message=said,
        region=(last.step, last.step),
    )  # fmt: skip
    outcome = ContractOutcome(
        contract="task", severity="hard", outcome="pass" if run.success else "fail",
        violations=() if run.success else (broken,),
    )  # fmt: skip
    return replace(run, outcomes=(*run.outcomes, outcome))


class JudgeFailed(SpecError):  # noqa: N818  (named after what happened)
    """A function that judges a task's runs raised. What it was asked of is no run that counts; `reason` says so shortly."""

    reason = ""


_ANSWERS: Final = {"oracle": "True, False, or None if it cannot decide", "harm": "True or False"}


def _asked(name: str, function: Callable[[Run], Any], run: Run) -> Any:
    try:
        return function(run)
    except Exception as error:
        failed = JudgeFailed(
            what=f"the {name} of the workload raised {type(error).__name__}: {error}",
            why="it did not judge this run, so the run counts in no rate",
            fix=f"make it return {_ANSWERS[name]}",
        )
        failed.reason = f"the {name} of the workload raised {type(error).__name__}"
        raise failed from error
