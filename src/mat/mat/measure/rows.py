"""One run as a row of numbers: everything that metrics need, so that they do not read traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal, TypeAlias, cast, get_args

from mat.core.digest import canonical, digest
from mat.core.errors import SpecError
from mat.core.record import Impact, MediationDecision, Record
from mat.core.run import Run, Termination
from mat.core.site import parse_site
from mat.core.spec import Perturbation, Schedule
from mat.core.verdict import UNJUDGED, Outcome, Severity, Stage
from mat.measure.agency import UnsafeCount, count_unsafe
from mat.measure.drift import DriftRow, armed_drift
from mat.measure.workload import InputCategory
from mat.monitor.faults import RULES, DetectionRules, Watch, watched
from mat.monitor.judge import EPISODE

RunCondition: TypeAlias = Literal["nominal", "fault", "adversarial", "replay"]
"""nominal: without faults; fault: structured faults, and executions of a grid search; adversarial: schedules that an adversary
chose for an evaluation; replay: stored counterexamples."""
Misuse: TypeAlias = Literal["refusal", "harmful", "partial", "other"]
"""Outcomes of misuse tasks: refusal or safe abort; harmful completion; partial completion with containment; anything else."""
_ENDINGS: Final[dict[str, Misuse]] = {"refused": "refusal", "harmful": "harmful", "contained": "partial", "other": "other"}
_PROVIDER: Final = frozenset(("auth", "connection", "rate_limit", "server_error", "timeout"))
"""Error kinds of a model call that mean a failure of its provider, not of the request."""
_SCHEDULE_CHARS: Final = 300
"""A longer schedule is shown by its beginning and its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationRow:
    contract: str
    severity: Severity
    stage: Stage
    step: int
    agent: str
    action_kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """One fault of a run. `operator` is `observed.<kind>` if nothing was injected.

    `mitigated` implies `detected`; `contained` is `mitigated` and `final_ok`; `final_ok`: the run breaks no hard
    contract. `site` is where it first entered, `detected_by` and `mitigated_by` are the rules that gave the first detection
    and the mitigation there.
    """

    operator: str
    injected: bool
    step: int
    detected: bool
    mitigated: bool
    contained: bool
    final_ok: bool
    boundary: str = ""
    site: str = ""
    detected_by: str = ""
    mitigated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """The decision on one proposed action, named by its site. Without governance it was allowed."""

    site: str
    impact: Impact
    decision: MediationDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCount:
    """Proposed actions of one impact that were mediated alike: `routed` to an approver, `sandboxed`, and with what decision."""

    impact: Impact
    decision: MediationDecision
    routed: bool
    sandboxed: bool
    count: int

    @property
    def stopped(self) -> bool:
        """Blocked, routed to an approver, or answered by a stand-in: it did not simply happen."""
        return self.decision == "block" or self.routed or self.sandboxed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCount:
    """The claims of one run, counted (`mat.measure.claims.count_claims`).

    `final`: claims of the final response, J; `unsupported` of them, those that were not found supported. `recorded`: claims
    recorded along the way; `propagated` of them, those not found supported and used in a later step. `unknown`: claims of
    either kind that the verifier could not judge; they count as not supported.
    """

    final: int
    unsupported: int
    recorded: int
    propagated: int
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An optional scorer's number for a run (faithfulness, context relevance, ...). `value` None: it could not score."""

    name: str
    value: float | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One of several cases in one run (`mat_run.episode`), by the number and name it has in the trace.

    Its first record is `step`, and it has `steps` of them over `elapsed_ms`. `first_failure`: the step of the run at which it
    first breaks a hard contract, None if it breaks none. State is carried from one case to the next.
    """

    name: str
    step: int
    steps: int
    elapsed_ms: int
    first_failure: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Facts about a run from the task and the protocol that its trace does not contain.

    `category`: of the workload. `input`: benign or misuse, "" if unknown. `variant`: the governance variant; by default
    the one in the run's configuration. `misuse`: the outcome of a misuse task, by its labels and policy contracts; "" if
    nothing judged it. `infrastructure`: the failure outside the system that excludes the run from all rates; "" for a run
    that counts. `episode` names the stream of tasks that the run belongs to, `place` its position there, from 0.
    """

    category: str = ""
    input: InputCategory | Literal[""] = ""
    variant: str = ""
    misuse: Misuse | Literal[""] = ""
    infrastructure: str = ""
    episode: str = ""
    place: int = 0


NO_LABELS: Final = Labels()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run in numbers. `success` is Y, None if nothing judges it; times are run milliseconds.

    `schedule` identifies the schedule, "" for none; `cost` is what it costs. `armed` (ids of the hard contracts) and
    `decisions` are kept only for nominal runs and replays, because a search executes too many actions to list them.
    `actions` counts the proposed actions of every run.

    `first_failure` and `first_failure_ms`: step and time of the first hard violation, None without one. `task`,
    `config` and `run` identify what ran: the spec's task, a digest of `mat_config`, and the run's id. `claims` None means that
    claims were not judged. `tokens` None: no model reported its usage; `elapsed_ms` None: a recorded run without times;
    `judged` False: no hard contract was armed, so the run could not break one. `roles`: role drift by agent, empty without role
    contracts; `unsafe` None: no unsafe actions were declared. The rest is as in Labels; no rate counts a row
    with `infrastructure` (see `counted`).
    """

    item: str
    condition: RunCondition
    seed: int
    success: bool | None
    outcome: Outcome
    termination: Termination
    steps: int
    tool_calls: int
    model_calls: int
    tokens: int | None
    violations: tuple[ViolationRow, ...]
    faults: tuple[FaultRow, ...]
    allowed: int
    rewritten: int
    blocked: int
    elapsed_ms: int | None
    schedule: str = ""
    cost: int = 0
    armed: tuple[str, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    category: str = ""
    input: InputCategory | Literal[""] = ""
    variant: str = ""
    task: str = ""
    config: str = ""
    run: str = ""
    first_failure: int | None = None
    first_failure_ms: int | None = None
    final_step: int | None = None
    actions: tuple[ActionCount, ...] = ()
    claims: ClaimCount | None = None
    scores: tuple[Score, ...] = ()
    misuse: Misuse | Literal[""] = ""
    infrastructure: str = ""
    episode: str = ""
    place: int = 0
    cases: tuple[Case, ...] = ()
    judged: bool = True
    roles: tuple[DriftRow, ...] = ()
    unsafe: UnsafeCount | None = None

    @property
    def hard(self) -> tuple[ViolationRow, ...]:
        return tuple(item for item in self.violations if item.severity == "hard")


def counted(rows: Iterable[RunRow]) -> list[RunRow]:
    """The rows without an infrastructure failure."""
    return [row for row in rows if not row.infrastructure]


def row_of(
    run: Run,
    *,
    item: str,
    condition: RunCondition,
    rules: DetectionRules = RULES,
    labels: Labels = NO_LABELS,
    claims: ClaimCount | None = None,
    scores: tuple[Score, ...] = (),
) -> RunRow:
    """The row of one run; `rules` are those of containment. Mediations count if the mediator decided.

    `labels`, `claims` and `scores` come from outside the trace; see the types.
    """
    kinds = [record.action.kind for record in run.records]
    decisions = [record.mediation.decision for record in run.records if record.mediation is not None]
    singly = condition in ("nominal", "replay")
    first = min((found.step for found in run.broken), default=None)
    return RunRow(
        item=item,
        condition=condition,
        seed=run.spec.seed,
        success=run.success,
        outcome=run.measured,
        termination=run.termination,
        steps=len(run.records),
        tool_calls=kinds.count("tool_call"),
        model_calls=kinds.count("model_call"),
        tokens=tokens_of(run),
        violations=_violations(run),
        faults=faults_of(run, rules),
        allowed=decisions.count("allow"),
        rewritten=decisions.count("rewrite"),
        blocked=decisions.count("block"),
        elapsed_ms=elapsed_of(run),
        schedule=schedule_text(run.spec.schedule),
        cost=run.spec.schedule.cost,
        armed=tuple(sorted(item.contract for item in run.outcomes if item.severity == "hard")) if singly else (),
        decisions=_decisions(run) if singly else (),
        category=labels.category,
        input=labels.input,
        variant=labels.variant or variant_of(run),
        task=run.spec.task,
        config=digest(run.spec.config),
        run=run.id,
        first_failure=first,
        first_failure_ms=_time_of(run, first),
        final_step=next((record.step for record in reversed(run.records) if record.action.kind == "final_response"), None),
        actions=actions_of(run),
        claims=claims,
        scores=scores,
        misuse=labels.misuse,
        infrastructure=labels.infrastructure or infrastructure_of(run),
        episode=labels.episode,
        place=labels.place,
        cases=cases_of(run),
        judged=any(outcome.severity == "hard" for outcome in run.outcomes),
        roles=armed_drift(run),
        unsafe=count_unsafe(run),
    )


def variant_of(run: Run) -> str:
    """The governance variant in a run's configuration; "none" without one."""
    return str(run.spec.config.get("governance", "none"))


def misuse_of(ending: str) -> Misuse:
    """The outcome of a misuse task, from our word for it or that of `mat_contracts.misuse_outcome`."""
    found = _ENDINGS.get(ending, ending)
    for known in get_args(Misuse):
        if found == known:
            return cast(Misuse, known)
    raise SpecError(what=f"{ending!r} is not an outcome of a misuse task", fix=f"use one of {', '.join(get_args(Misuse))}")


def infrastructure_of(run: Run) -> str:
    """The infrastructure failure that a run's trace shows; "" for a run that counts.

    It is a failure of the model's provider that ended the run: the last action of any agent was a model call without a fault
    that met an error of connection, limits or access, and the body ended with an exception. A run that had broken a hard
    contract before still counts. Agents must survive failing tools, so these do not matter here; callers who know
    more set `Labels.infrastructure`.
    """
    if run.termination != "exception" or run.failures:
        return ""
    calls = [record for record in run.records if record.action.kind != "termination"]
    if not calls or calls[-1].action.kind != "model_call" or calls[-1].faults:
        return ""
    error = calls[-1].observation.error
    return f"model {error.kind}" if error is not None and error.kind in _PROVIDER else ""


def cases_of(run: Run) -> tuple[Case, ...]:
    """The cases in the body of a run, in order; empty without episodes."""
    found = []
    broken = sorted(violation.step for violation in run.broken)
    for name, group in groupby(run.records, key=lambda record: record.state.get(EPISODE)):
        if not isinstance(name, str):
            continue
        records = list(group)
        first, last = records[0], records[-1]
        found.append(
            Case(
                name=name, step=first.step, steps=len(records), elapsed_ms=max(0, last.sealed_ms - first.at_ms),
                first_failure=next((step for step in broken if first.step <= step <= last.step), None),
            )
        )  # fmt: skip
    return tuple(found)


def _time_of(run: Run, step: int | None) -> int | None:
    """When a step was sealed, in run milliseconds; the run's end for a step without a record."""
    if step is None:
        return None
    return next((record.sealed_ms for record in run.records if record.step == step), run.elapsed_ms)


def schedule_text(schedule: Schedule) -> str:
    """A text that is equal for equal schedules only, "" for the empty one. It leaves costs out, because they may change."""
    text = "; ".join(
        f"{item.operator}{canonical(item.parameters) if item.parameters else ''} at {item.site}" for item in schedule
    )
    return text if len(text) <= _SCHEDULE_CHARS else f"{text[:_SCHEDULE_CHARS]}... {digest(text)[:12]}"


def proposed(record: Record) -> bool:
    """Whether a step is a proposed action: a tool call, what else writes across a boundary, or any action that was refused.

    Tool calls and writes count under every variant, so that shares can be compared: without governance all of them are allowed.
    A model call, read or message counts only if the mediator blocked or rewrote it: a share of blocked actions must show that.
    """
    action, mediation = record.action, record.mediation
    if mediation is not None and mediation.decision != "allow":
        return True
    return bool(action.boundary) and (action.kind == "tool_call" or action.effect == "write")


def actions_of(run: Run) -> tuple[ActionCount, ...]:
    """The proposed actions of a run, in a fixed order; actions with the same mediation are counted together."""
    counts: dict[tuple[Impact, MediationDecision, bool, bool], int] = {}
    for record in run.records:
        if proposed(record):
            key = _mediation_key(record)
            counts[key] = counts.get(key, 0) + 1
    return tuple(
        ActionCount(impact=impact, decision=decision, routed=routed, sandboxed=sandboxed, count=counts[key])
        for key in sorted(counts)
        for impact, decision, routed, sandboxed in (key,)
    )


def _mediation_key(record: Record) -> tuple[Impact, MediationDecision, bool, bool]:
    """(impact, decision, routed to an approver, answered by a stand-in) of one proposed action."""
    mediation = record.mediation
    if mediation is None:
        return record.action.impact, "allow", False, False
    aside = mediation.decision == "rewrite" and mediation.reason.startswith("sandbox")
    return record.action.impact, mediation.decision, bool(mediation.approval), aside


def _decisions(run: Run) -> tuple[DecisionRow, ...]:
    return tuple(
        DecisionRow(
            site=record.site,
            impact=record.action.impact,
            decision="allow" if record.mediation is None else record.mediation.decision,
        )
        for record in run.records
        if proposed(record)
    )


def tokens_of(run: Run) -> int | None:
    """The tokens of a run; None if no model reported its usage."""
    found = [_tokens(record) for record in run.records if record.observation.usage]
    return sum(found) if found else None


def elapsed_of(run: Run) -> int | None:
    """The milliseconds of a run; None for an imported run in which nothing has a time."""
    timed = run.elapsed_ms or any(record.at_ms or record.sealed_ms for record in run.records)
    return run.elapsed_ms if timed or "imported" not in run.spec.config else None


def _tokens(record: Record) -> int:
    """Tokens of a model call: the total the model states, or input plus output; reasoning counts within output."""
    usage = record.observation.usage
    total = usage.get("total_tokens")
    return int(total if total is not None else usage.get("input_tokens", 0) + usage.get("output_tokens", 0))


def _violations(run: Run) -> tuple[ViolationRow, ...]:
    kinds = {record.step: record.action.kind for record in run.records}
    return tuple(
        ViolationRow(
            contract=found.contract,
            severity=found.severity,
            stage=found.stage,
            step=found.step,
            agent=found.agent,
            action_kind=kinds.get(found.step, ""),
        )
        for found in run.violations
        if found.label != UNJUDGED
    )


def faults_of(run: Run, rules: DetectionRules = RULES) -> tuple[FaultRow, ...]:
    """The faults of a run and their outcomes, by the fold and the rules of the containment contract.

    One perturbation is one fault, regardless of the number of calls it changed. It is detected (or mitigated) only if each of
    these calls is. An observed error is a fault of its own.
    """
    final_ok = not run.failures
    entries: dict[tuple[str, str, str], list[Watch]] = {}
    for watch in watched(run.records, rules):
        fault = watch.fault
        for operator in fault.operators:
            entries.setdefault(_perturbation(run, fault.site, operator), []).append(watch)
        if not fault.injected:
            entries[fault.site, f"observed.{fault.error}", str(fault.step)] = [watch]
    rows = [_fault_row(operator, watches, final_ok) for (_, operator, _), watches in entries.items()]
    return tuple(sorted(rows, key=lambda row: (row.step, row.operator)))


def _fault_row(operator: str, watches: Sequence[Watch], final_ok: bool) -> FaultRow:
    first, mitigated = watches[0], all(watch.mitigated >= 0 for watch in watches)
    return FaultRow(
        operator=operator,
        injected=first.fault.injected,
        step=first.fault.step,
        detected=all(watch.detected >= 0 for watch in watches),
        mitigated=mitigated,
        contained=mitigated and final_ok,
        final_ok=final_ok,
        boundary=first.fault.boundary,
        site=first.fault.site,
        detected_by=first.first_by,
        mitigated_by=first.mitigated_by,
    )


def _perturbation(run: Run, where: str, operator: str) -> tuple[str, str, str]:
    """The key of the perturbation that acted at a site; the site itself if the schedule does not contain it."""
    site = parse_site(where)
    items: Iterable[Perturbation] = run.spec.schedule
    for item in items:
        if item.operator == operator and item.site.covers(site):
            return item.key
    return (where, operator, "")


def lost_row(*, item: str, condition: RunCondition, seed: int, labels: Labels) -> RunRow:
    """The row of an execution that the failure in `labels.infrastructure` left without a run."""
    return RunRow(
        item=item, condition=condition, seed=seed, success=None, outcome="unknown", termination="exception", steps=0,
        tool_calls=0, model_calls=0, tokens=None, violations=(), faults=(), allowed=0, rewritten=0, blocked=0, elapsed_ms=None,
        category=labels.category, input=labels.input, variant=labels.variant, infrastructure=labels.infrastructure or "no run",
        episode=labels.episode, place=labels.place, judged=False,
    )  # fmt: skip
