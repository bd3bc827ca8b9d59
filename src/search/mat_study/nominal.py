"""The nominal runs of an item: all its seeds, each with fresh fixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mat.core.campaign import ItemResult, ItemStatus
from mat.core.run import Run
from mat_study.evaluation import Evaluated, Lost, Plan
from mat_study.means import Means, Subject
from mat_study.measuring import Gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominal:
    """`reported`: the execution whose outcome is the item's, `first` the first that gave a run. `failed`: the failing seed."""

    reported: Evaluated | Lost
    first: Evaluated | None = None
    failed: int | None = None


def nominal(
    subject: Subject, means: Means, gathered: Gathered, *, begun: Evaluated | None = None, look: bool = False
) -> Nominal:
    """Execute all seeds and report the first that fails. The others still run: a Wilson interval needs a number of runs that
    does not depend on their results. If the first seed gives no run, it is reported and no other is executed.

    `begun`: the execution of the first seed, if already made. `look`: a person inspects the first that fails, so stop there.
    """
    first: Evaluated | None = None
    failed: Evaluated | Lost | None = None
    given: Evaluated | Lost | None = None
    for seed in range(subject.settings.seeds):
        given = begun if begun is not None and seed == 0 else means.evaluate(Plan(seed=seed))
        if isinstance(given, Evaluated):
            gathered.note(given, "nominal")
            gathered.show_nominal(given.run)
            first = first or given
        if first is None:
            return Nominal(reported=given)
        if failed is None and given.outcome != "passed":
            failed = given
            if look:
                break
    assert given is not None
    if failed is None:
        return Nominal(reported=given, first=first)
    return Nominal(reported=failed, first=first, failed=failed.plan.seed)


def failed_result(subject: Subject, gathered: Gathered, run: Run) -> ItemResult:
    """The result of an item with a failed nominal run, by a contract or otherwise."""
    unexpected = [found for found in run.failures if found.contract not in subject.settings.expect]
    status: ItemStatus = "violated" if unexpected else "failed"
    return ItemResult(id=subject.id, status=status, executions=len(gathered.rows), category=gathered.category)


def passed_result(subject: Subject, gathered: Gathered, run: Run) -> ItemResult:
    vacuous = why_vacuous(run)
    return ItemResult(
        id=subject.id,
        status="vacuous" if vacuous else "nominal",
        executions=len(gathered.rows),
        reason=vacuous or gathered.unjudged,
        findings=run.findings,
        category=gathered.category,
    )


def why_vacuous(run: Run) -> str:
    """Why nothing can be disturbed in a passing nominal run; "" if something can."""
    if not any(record.action.boundary for record in run.records):
        return "no boundary is crossed"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """The seeds of a gate's session. `failed`: how many failed; None if one gave no run to judge, which is then reported."""

    reported: Evaluated | Lost
    result: ItemResult
    failed: int | None = None


def smoke(subject: Subject, means: Means, gathered: Gathered, seeds: Sequence[int]) -> Smoke:
    """Execute the seeds, some of which may be repeated, passing or failing, until one gives no run to judge. The gate judges
    the share that fails (`--mat-gate`).
    """
    shown: Evaluated | None = None
    last: Evaluated | None = None
    failed = violated = 0
    for done, seed in enumerate(seeds):
        given = means.evaluate(Plan(seed=seed))
        if isinstance(given, Evaluated):
            gathered.note(given, "nominal", repeated=seed in seeds[:done])
            gathered.show_nominal(given.run)
        if isinstance(given, Lost) or given.outcome in ("skipped", "error"):
            return Smoke(reported=given, result=ItemResult(id=subject.id, status="failed", executions=done))
        last = given
        if given.outcome == "failed":
            failed += 1
            violated += bool(given.run.failures)
            shown = shown or given
    assert last is not None
    status: ItemStatus = "violated" if violated else "failed" if failed else "nominal"
    result = ItemResult(id=subject.id, status=status, executions=len(seeds))
    return Smoke(reported=shown or last, result=result, failed=failed)
