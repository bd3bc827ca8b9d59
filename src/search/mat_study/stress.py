"""One item under stress: its search, its counterexamples on other seeds, and the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mat.core.campaign import (
    Certificate,
    Counterexample,
    ItemResult,
    ItemStatus,
    LiveCost,
    Stability,
)
from mat.core.errors import MatError, ReplayError
from mat.core.run import Run, same_violation
from mat.core.spec import Schedule
from mat.core.verdict import Violation
from mat.evidence import replay_file
from mat.kernel.folders import spare
from mat.kernel.isolation import OutlivedState
from mat.kernel.network import LOOPBACK
from mat_search import CampaignResult
from mat_search.declarations import savings
from mat_search.reach import planned
from mat_study.evaluation import Evaluated, EvaluationLost, Lost
from mat_study.means import Means, Subject
from mat_study.measuring import Gathered, curve, measured, search_row
from mat_study.nominal import why_vacuous
from mat_study.progress import how_far
from mat_study.searches import HASH_SEEDS, Searches, SearchEvaluator, campaign_of
from mat_study.settings import ItemSettings
from mat_study.standing import StandingCounterexample, not_found_again, standing_of, standings


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an item fails.

    `extra`: contracts that are broken and were not expected to be. `missing`: contracts that were expected to be broken
    (`expect=`) and are not. `message`: any other reason. `remarks`: what else the report of the failure says.
    """

    extra: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    message: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stressed:
    """The outcome of an item under stress.

    `result` is None if the test was skipped. `lost`: an execution that gave no run; it decides the outcome.
    """

    result: ItemResult | None
    failure: Failure | None = None
    lost: Lost | None = None
    interrupted: bool = False


def stress(subject: Subject, means: Means, gathered: Gathered, searches: Searches, nominal: Evaluated) -> Stressed:
    """Search from a nominal execution that passed."""
    vacuous = why_vacuous(nominal.run)
    if vacuous:
        return Stressed(result=ItemResult(id=subject.id, status="vacuous", executions=1, reason=vacuous))
    means.searching()
    most = _planned(subject, means, nominal.run)
    try:
        known: dict[Schedule, Run] = {}

        def take(given: Evaluated) -> None:
            note(gathered, given)
            if means.saving is not None:
                known.setdefault(given.run.spec.schedule, given.run)

        def restart() -> None:
            forget()
            known.clear()

        forget = gathered.mark()
        result, evaluate = searches.search(nominal, note=take, restart=restart)
        if means.saving is not None:
            execute = partial(evaluate.execute, nominal.run.spec.seed)
            means.saving(savings(result.nominal, known, execute, campaign_of(subject, means, nominal.run)))
        gathered.searches.append(search_row(subject.task, nominal.variant, result))
        gathered.curves.append(curve(subject.task, gathered.category, subject.settings.budget, result))
        found = _on_other_seeds(subject.settings, gathered, searches, evaluate, result.counterexamples)
    except EvaluationLost as ended:
        return _lost_result(subject, gathered, ended.lost)
    except MatError as error:
        failed = ItemResult(id=subject.id, status="failed", executions=len(gathered.rows))
        return Stressed(result=failed, failure=Failure(message=f"the search stopped\n{error}"))
    result = replace(result, counterexamples=found)
    failing = [each for each in found if standing_of(each, subject.settings).kind == "new"]
    if evaluate.lost is not None and not failing:
        return replace(_lost_result(subject, gathered, evaluate.lost), interrupted=result.interrupted)
    stressed = _conclude(subject, means, gathered, evaluate, result)
    assert stressed.result is not None
    return replace(stressed, result=replace(stressed.result, recorded=means.live.reached(result, most)))


def _planned(subject: Subject, means: Means, nominal: Run) -> LiveCost | None:
    """What all live calls of the search would cost, shown before they are made; None if nothing is recorded."""
    if not means.live.recorded:
        return None
    cost = planned(nominal, campaign_of(subject, means, nominal))
    estimate = "" if cost is None else means.live.estimate(cost)
    if estimate:
        means.tell(estimate)
    return cost


def note(gathered: Gathered, given: Evaluated) -> None:
    """Note an execution that a search took."""
    gathered.note(given, "fault" if len(given.run.spec.schedule) else "nominal")


def _lost_result(subject: Subject, gathered: Gathered, lost: Lost) -> Stressed:
    """The outcome of an item with an execution that gave no run: it failed outside the test's body, or was skipped."""
    failed = ItemResult(id=subject.id, status="failed", executions=len(gathered.rows))
    return Stressed(result=failed if lost.failed else None, lost=lost)


def _on_other_seeds(
    settings: ItemSettings,
    gathered: Gathered,
    searches: Searches,
    evaluate: SearchEvaluator,
    found: Sequence[Counterexample],
) -> tuple[Counterexample, ...]:
    """Execute each counterexample on the seeds that were not searched."""
    shown: dict[int, list[int]] = {index: [] for index in range(len(found))}
    tried = 0
    with suppress(EvaluationLost):
        for seed in range(1, settings.seeds):
            given = [searches.once(f"seed {seed}", each.run.spec.schedule, seed=seed, evaluate=evaluate) for each in found]
            tried += 1
            for index, (each, again) in enumerate(zip(found, given, strict=True)):
                gathered.note(again, "fault")
                if any(same_violation(violation, each.verdict) for violation in again.run.failures):
                    shown[index].append(seed)
    return tuple(
        replace(each, stability=replace(each.stability, other_seeds=tried, shown_on=tuple(shown[index])))
        for index, each in enumerate(found)
    )


def _conclude(
    subject: Subject, means: Means, gathered: Gathered, evaluate: SearchEvaluator, result: CampaignResult
) -> Stressed:
    settings = subject.settings
    nominal = _nominal_counterexamples(result.nominal, result.nominal_stability, settings)
    broken = {each.verdict.contract for each in nominal}
    others = (each for each in result.counterexamples if each.verdict.contract not in broken)
    judged = standings([*nominal, *others], settings)
    found = [each.found for each in judged]
    contracts = frozenset(each.verdict.contract for each in found)
    certificate = isolated(means.live.relative(result.certificate, result.nominal), evaluate.outlived.values())
    if settings.loopback:
        certificate = replace(certificate, relative_to="; ".join(filter(None, (certificate.relative_to, LOOPBACK))))
    flaky = [each for each in result.unconfirmed if each.verdict.contract not in broken]
    if gathered.unjudged and certificate.proven:
        certificate = replace(certificate, proven=False, reason=gathered.unjudged, bound=0)
    proven = certificate.proven and certificate.bound >= settings.budget
    extra = frozenset(each.found.verdict.contract for each in judged if each.standing.kind == "new")
    missing = settings.expect - contracts
    status: ItemStatus = "certified" if proven else "not_proven"
    if found or settings.expect:
        status = "counterexample" if extra else "missed" if missing else _held_status(judged)
    if flaky and status != "counterexample":
        status = "flaky"
    reason = certificate.reason
    if not found and status != "flaky" and certificate.states == 0 and not reason:
        status = "vacuous"
        reason = f"no operator of the grid can change anything here within the budget of {settings.budget}"
    if found and not reason and proven is False and certificate.proven and settings.stop != "budget":
        reason = f"stop={settings.stop}: schedules that cost more than {certificate.bound} were not searched"
    reason = "; ".join(filter(None, (reason, how_far(result, certificate, settings))))
    saved = [_save(subject, means, each, certificate) for each in found]
    remarks = tuple(dict.fromkeys(each.remark for each in saved if each.remark))
    reason = "; ".join(filter(None, (reason, *remarks)))
    outcome = ItemResult(
        id=subject.id, status=status, counterexamples=tuple(found), certificate=certificate, executions=result.executions,
        reason=reason, findings=(*result.findings, *gathered.uncaught), replays=tuple(each.path for each in saved),
        category=gathered.category,
        covered=result.covered, standings=tuple(each.standing for each in judged),
        notes=tuple(not_found_again(settings, [*found, *result.unconfirmed], certificate)),
    )  # fmt: skip
    disturbed = [each.run for each in found if len(each.run.spec.schedule)]
    gathered.show(*([result.nominal] if disturbed else []))
    gathered.keep([(run, measured(evaluate.taken(run), subject.task, "adversarial")[0]) for run in disturbed])
    failure = Failure(extra=extra, missing=missing, remarks=remarks) if status in _FAILING else None
    if status == "flaky":
        failure = Failure(message=_flaky_text(flaky, certificate))
    return Stressed(result=outcome, failure=failure, interrupted=result.interrupted)


_NAMES: Final = 3
_FAILING: Final[tuple[ItemStatus, ...]] = ("counterexample", "missed")


def _held_status(found: Sequence[StandingCounterexample]) -> ItemStatus:
    """The status of an item none of whose counterexamples fails it."""
    kinds = {each.standing.kind for each in found}
    return "accepted" if "accepted" in kinds else "known" if "known" in kinds else "expected"


def isolated(certificate: Certificate, outlived: Iterable[OutlivedState]) -> Certificate:
    """The certificate with what outlived the executions: named if it was put back, withdrawn if even a fork shares it."""
    found = sorted(outlived)
    shared = [each.text for each in found if each.remedy == "none"]
    if shared and certificate.proven:
        reason = f"{_listed(shared)} outside of the run, where every execution sees it"
        return replace(certificate, proven=False, bound=0, reason=reason)
    restored = [each.name for each in found if each.remedy == "restore"]
    forked = [each.name for each in found if each.remedy == "fork"]
    texts = []
    if restored:
        how = "outlives a run and is" if len(restored) == 1 else "outlive a run and are"
        texts.append(f"the state before the first run: {_listed(restored)} {how} restored before each execution")
    if forked:
        how = "outlives" if len(forked) == 1 else "outlive"
        texts.append(
            f"the state after import: {_listed(forked)} {how} a run and cannot be restored, so each run was executed in a fork"
        )
    seeds = HASH_SEEDS if certificate.proven and certificate.checks.get("fresh") else ()
    return replace(certificate, assumptions=(*certificate.assumptions, *texts), hash_seeds=seeds)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}"


def _flaky_text(flaky: Sequence[Counterexample], certificate: Certificate) -> str:
    lines = []
    for each in flaky:
        under = ", ".join(f"{item.operator} at {item.site}" for item in each.run.spec.schedule) or "no fault"
        shown = each.stability
        lines.append(
            f"flaky: {each.verdict.contract} was broken under {under}, "
            f"and again in {shown.reproduced} of {shown.runs} repetitions\n"
            f"  {each.verdict.message}"
        )
    why = f"  why: {certificate.reason}\n" if certificate.reason else ""
    fix = (
        "  fix: keep no state between runs, and do not depend on the order of sets; "
        'isolate="fork" executes each run in a new process'
    )
    return "\n".join(lines) + f"\n{why}{fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """Where the replay file of a counterexample is, as a user types it. `remark`: why it is not next to the test."""

    path: str
    remark: str = ""


def _save(subject: Subject, means: Means, found: Counterexample, certificate: Certificate) -> _Saved:
    """Write the replay file of a counterexample: next to the test or, if that cannot be done, in the temporary folder."""
    replay = replay_file.Replay(
        item=subject.task, counterexample=found, certificate=certificate.below(found.cost),
        expected=found.verdict.contract in subject.settings.expect,
    )  # fmt: skip
    name = replay_file.name_of(replay)
    path = means.replays / name
    try:
        replay_file.write(path, replay)
    except replay_file.SecretInReplayError as error:
        return _Saved(path="", remark=f"{error.what}\n  why: {error.why}\n  fix: {error.fix}")
    except ReplayError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        return _save_elsewhere(means, replay, name, error)
    return _Saved(path=means.typed(path))


def _save_elsewhere(means: Means, replay: replay_file.Replay, name: str, why: ReplayError) -> _Saved:
    try:
        path = spare(means.replays) / name
        replay_file.write(path, replay)
    except (OSError, MatError) as error:
        there = error.what if isinstance(error, MatError) else str(error)
        remark = f"the replay file could not be written: {why.what}; nor in the temporary folder: {there}"
        return _Saved(path=means.typed(means.replays / name), remark=remark)
    remark = f"the replay file is in {path.parent}, because it could not be written next to the test: {why.what}"
    return _Saved(path=str(path), remark=f"{remark}; copy it to {means.replays} to keep it")


def _nominal_counterexamples(nominal: Run, stability: Stability, settings: ItemSettings) -> list[Counterexample]:
    """Expected contracts that the nominal run itself breaks: counterexamples with an empty schedule."""
    firsts: dict[str, Violation] = {}
    for violation in nominal.failures:
        firsts.setdefault(violation.contract, violation)
    expected = [firsts[name] for name in firsts if name in settings.expect]
    return [Counterexample(verdict=violation, run=nominal, stability=stability) for violation in expected]
