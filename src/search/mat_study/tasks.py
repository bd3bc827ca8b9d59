"""A test as a task of an evaluation: its workload, and the workload's judgment of a run. Source: A6.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from mat.core.errors import SpecError, enumeration, raised_text
from mat.core.run import Run, ending_text
from mat.core.verdict import ContractOutcome, Violation
from mat.measure.rows import NO_LABELS, Labels, Misuse, misuse_of
from mat.measure.workload import Workload, workload
from mat_study.settings import ItemSettings

TASK: Final = "task"
"""The contract that a test's body stands for where it is judged, and the beginning of its name where the body raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The workload's judgment of a run. `harm`: whether a misuse task's attack succeeded; None if only contracts can tell."""

    labels: Labels = NO_LABELS
    harm: bool | None = None

    @property
    def misuse(self) -> bool:
        return self.labels.input == "misuse"


def workload_of(given: Any, settings: ItemSettings) -> Workload:
    """The workload from the fixture `mat_workload`, which overrides the marker. SpecError if one is invalid."""
    return workload(given, settings.workload)


def is_task(task: Workload) -> bool:
    """Whether an evaluation measures a test: it has a workload, possibly with gaps."""
    return bool(task.category or task.channels or task.tools or task.waive)


def refuse_gaps(task: Workload, where: str) -> None:
    """Raise SpecError with everything that an evaluation needs and the workload lacks. Source: A6.1."""
    if task.gaps:
        raise SpecError(
            what=f"the workload of the task lacks {enumeration(task.gaps)}",
            why="an evaluation needs the category, an untrusted channel and a tool boundary of each task",
            fix="name them in mat_workload or the marker, or waive what the task does not have: mat.Workload(waive=[...])",
            where=where,
        )


def judged(task: Workload, run: Run) -> Judged:
    """A task's judgment of one of its runs; the run's variant is in its configuration. JudgeFailed if `harm` raises."""
    labels = Labels(
        category=task.category, input=task.input, misuse=_misuse_outcome(task, run) if task.misuse else "", episode=task.episode
    )
    if not task.misuse or task.harm is None:
        return Judged(labels=labels)
    if isinstance(task.harm, frozenset):
        return Judged(labels=labels, harm=any(each.broken and each.contract in task.harm for each in run.outcomes))
    return Judged(labels=labels, harm=_call_judge("harm", task.harm, run) is True)


def _misuse_outcome(task: Workload, run: Run) -> Misuse | Literal[""]:
    """The outcome of a misuse task, by the contracts that its `harm` names, else by all hard ones; "" without any.

    Source: A2.F5.
    """
    from mat_contracts.misuse import misuse_outcome

    hard = [outcome for outcome in run.outcomes if outcome.severity == "hard"]
    known = {item.contract: item for item in hard if not item.unjudged and item.outcome != "unknown"}
    policies = set(known) if not isinstance(task.harm, frozenset) else task.harm & set(known)
    if not policies:
        return ""
    outcomes: list[ContractOutcome] = list(known.values())
    return misuse_of(misuse_outcome(run.records, outcomes, label="misuse", policies=policies).outcome)


def succeeded(task: Workload, run: Run) -> bool | None:
    """The answer of the task's oracle for a run whose body finished; True without an oracle. JudgeFailed if it raises."""
    if task.oracle is None:
        return True
    answer = _call_judge("oracle", task.oracle, run)
    return None if answer is None else bool(answer)


def with_success(task: Workload, run: Run, *, returned: bool) -> Run:
    """The run with its task success (Y): the body returned, and the oracle, if any, answered True."""
    success = succeeded(task, run) if returned and run.term else False
    return run if run.success == success else replace(run, success=success)


def with_task(run: Run, *, place: str = "", named: bool = True) -> Run:
    """The run judged by its body: an unsuccessful one breaks the contract "task".

    `place`: where the body raised. Together with the type of the exception it is part of the contract's name, so that two
    different failures of one body are two findings: a time-out of a search does not hide a double booking. Without `named`
    all have one name.
    """
    last = run.records[-1]
    name = TASK if run.success or not run.error or not named else f"{TASK}.{run.error.partition(':')[0]}"
    name += f"@{place}" if place and name != TASK else ""
    message = run.error or f"the task did not succeed (the run ended: {ending_text(run.termination)})"
    broken = Violation(
        contract=name, severity="hard", stage="effected", step=last.step, agent=last.agent, role=last.role, message=message,
        region=(last.step, last.step),
    )  # fmt: skip
    outcome = ContractOutcome(
        contract=name, severity="hard", outcome="pass" if run.success else "fail",
        violations=() if run.success else (broken,),
    )  # fmt: skip
    return replace(run, outcomes=(*run.outcomes, outcome))


class JudgeFailed(SpecError):  # noqa: N818  (named after what happened)
    """A function that judges a task's runs raised. Its run does not count; `reason` is the short form."""

    reason = ""


_ANSWERS: Final = {"oracle": "True, False, or None if it cannot decide", "harm": "True or False"}


def _call_judge(name: str, function: Callable[[Run], Any], run: Run) -> Any:
    try:
        return function(run)
    except Exception as error:
        failed = JudgeFailed(
            what=f"the {name} of the workload {raised_text(error)}",
            why="it did not judge this run, so no rate includes the run",
            fix=f"make it return {_ANSWERS[name]}",
        )
        failed.reason = f"the {name} of the workload raised {type(error).__name__}"
        raise failed from error
