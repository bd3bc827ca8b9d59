"""The study of one item: the session's options decide what is executed, and one value holds all results."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mat.core.campaign import ItemResult
from mat_study.broken import broken_runs
from mat_study.evaluation import Evaluated, Lost, Plan
from mat_study.means import Means, Subject
from mat_study.measurement import Measurement, lost_at_once
from mat_study.measuring import Gathered, ItemReport
from mat_study.nominal import failed_result, nominal, passed_result, smoke
from mat_study.notices import Notice
from mat_study.replay import replay
from mat_study.searched import searched
from mat_study.searches import Searches
from mat_study.stress import Failure
from mat_study.vacuity import in_nominal_runs
from mat_study.variants import compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a study does: nominal runs, with `stress` also a search; or an evaluation (`evaluate`) if the item is a task; or
    a gate's `seeds`; or a `replay`. `look`: a person inspects the first run that fails (--pdb)."""

    stress: bool = False
    evaluate: bool = False
    seeds: tuple[int, ...] | None = None
    replay: Plan | None = None
    look: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStudy:
    """The results of the study of an item.

    `reported`: the execution whose outcome is the item's, unless `failure` gives the reason why the item fails. `result` None:
    nothing else to report; otherwise `report` holds everything. `failed_seed`: the seed of a failing execution among several.
    `unjudged` and `vacuous` are warnings: what could not be judged, and what was never triggered. `smoke`: how many
    of a gate's seeds failed, None without a gate. `interrupted`: the session must end.
    """

    reported: Evaluated | Lost
    result: ItemResult | None = None
    failure: Failure | None = None
    failed_seed: int | None = None
    unjudged: str = ""
    vacuous: str = ""
    smoke: int | None = None
    interrupted: bool = False
    notices: tuple[Notice, ...] = ()
    report: ItemReport | None = None


def study(subject: Subject, means: Means, asked: Asked) -> ItemStudy:
    """Study one item, from its first execution to its result."""
    gathered = Gathered(subject.task, store=means.store, compared=means.compared)
    searches = Searches(subject, means)
    try:
        if asked.replay is not None:
            given, result = replay(subject, means, gathered, asked.replay)
            return _with_report(ItemStudy(reported=given, result=result), subject, gathered)
        if asked.seeds is not None:
            seeds = smoke(subject, means, gathered, asked.seeds)
            found = ItemStudy(reported=seeds.reported, result=seeds.result, smoke=seeds.failed)
            if seeds.result.status == "nominal":  # the gate compares outcomes, so what is vacuous is a warning only
                result, _ = in_nominal_runs(seeds.result, subject, gathered)
                found = replace(found, result=result, vacuous=result.reason if result.status == "vacuous" else "")
        elif asked.evaluate:
            first = means.evaluate(Plan(mode="measure"))
            if isinstance(first, Lost):
                return _unmeasured_task(subject, gathered, first)
            if first.plan.mode == "measure":
                return _measure(subject, means, gathered, first)
            untasked = Notice(item=subject.id, what="untasked")
            found = replace(_run(subject, means, gathered, searches, asked, begun=first), notices=(untasked,))
        else:
            found = _run(subject, means, gathered, searches, asked)
        found = _compare_variants(subject, means, gathered, searches, asked, found)
        return _with_report(replace(found, notices=(*searches.notices(), *found.notices)), subject, gathered)
    except KeyboardInterrupt:  # no report will mention that the work can be resumed
        for notice in searches.notices():
            means.interrupted(notice)
        raise
    finally:
        searches.close()


def _run(
    subject: Subject, means: Means, gathered: Gathered, searches: Searches, asked: Asked, *, begun: Evaluated | None = None
) -> ItemStudy:
    """Execute the nominal runs, and if they pass, the search."""
    runs = nominal(subject, means, gathered, begun=begun, look=asked.look)
    given = runs.reported
    found = ItemStudy(reported=given, failed_seed=runs.failed if subject.settings.seeds > 1 else None)
    if isinstance(given, Lost):  # skipped, failed in setup, or a test that requests nothing of pytest-mat
        return found
    if given.outcome != "passed":
        gathered.show(given.run)
        return replace(found, result=failed_result(subject, gathered, given.run))
    if not asked.stress:
        result, failure = in_nominal_runs(passed_result(subject, gathered, given.run), subject, gathered)
        said = result.status == "vacuous" and gathered.armed and subject.armed and failure is None
        vacuous = result.reason if said else ""
        return replace(found, result=result, failure=failure, unjudged=gathered.unjudged, vacuous=vacuous)
    assert runs.first is not None
    stressed = searched(subject, means, gathered, searches, runs.first)
    return replace(
        found, reported=stressed.lost or given, result=stressed.result, failure=stressed.failure,
        interrupted=stressed.interrupted,
    )  # fmt: skip


def _compare_variants(
    subject: Subject, means: Means, gathered: Gathered, searches: Searches, asked: Asked, found: ItemStudy
) -> ItemStudy:
    """Add the item's other governance variants, if there is something to compare them with."""
    if found.result is None:
        return found
    problems = compare(subject, means, gathered, searches, gathered.variants[1:], stress=asked.stress)
    reason = "; ".join(filter(None, (found.result.reason, *problems)))
    return replace(found, result=replace(found.result, reason=reason))


def _unmeasured_task(subject: Subject, gathered: Gathered, first: Lost) -> ItemStudy:
    """The result of a task that could not be evaluated, because it has no first run."""
    notice = Notice(item=subject.id, what="unevaluated")
    gathered.rows = lost_at_once(subject, first)
    if not gathered.rows:
        return ItemStudy(reported=first, notices=(notice,))
    result = ItemResult(
        id=subject.id, status="failed", reason=f"not evaluated: {first.why} in its first run", category=gathered.category
    )
    return _with_report(ItemStudy(reported=first, result=result, notices=(notice,)), subject, gathered)


def _measure(subject: Subject, means: Means, gathered: Gathered, first: Evaluated) -> ItemStudy:
    """Evaluate a task under all conditions."""
    means.searching()
    measurement = Measurement(subject, means, first)
    try:
        measurement.run()
    except KeyboardInterrupt:  # no report will mention that the work can be resumed
        means.interrupted(measurement.begun())
        raise
    total = measurement.total
    gathered.rows, gathered.curves, gathered.governed, gathered.searches = (
        total.rows, total.curves, total.governed, total.searches
    )  # fmt: skip
    gathered.show(*total.undisturbed)
    found = ItemStudy(reported=first, result=measurement.result(), notices=(measurement.notice(),))
    return _with_report(found, subject, gathered)


def _with_report(found: ItemStudy, subject: Subject, gathered: Gathered) -> ItemStudy:
    """The study with its report. What fails in a gate's session is judged by the gate."""
    if found.result is None:
        return found
    broken = () if found.smoke is not None else broken_runs(subject, found.result, found.reported)
    return replace(found, report=gathered.report(found.result, broken))
