"""One run as a row of numbers: everything the metrics read, and nothing they would have to read from a trace again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mat.core.digest import canonical, digest
from mat.core.record import Decision, Impact, Record
from mat.core.run import Run, Termination
from mat.core.site import parse_site
from mat.core.spec import Perturbation, Schedule
from mat.core.verdict import Outcome, Severity, Stage
from mat.monitor.faults import RULES, Rules, Watch, watched

Condition: TypeAlias = Literal["nominal", "fault", "replay"]
_SCHEDULE_CHARS: Final = 300
"""Beyond it a schedule is told by its beginning and its digest."""


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
    """One fault of a run. `operator` is `observed.<kind>` where nothing was injected.

    `mitigated` implies `detected`; `contained` is `mitigated` and `final_ok` (CR of A6.2); `final_ok`: the run breaks no hard
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
    """What became of one proposed action, named by its site. Without governance it was allowed."""

    site: str
    impact: Impact
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run in numbers. `success` is Y, None where there was nothing to judge it by; times are run milliseconds.

    `schedule` tells schedules apart, "" for none; `cost` is what it costs. `armed` (ids of the hard contracts) and `decisions`
    are kept of nominal runs and replays alone: what a search executes is too much to be kept action by action.
    """

    item: str
    condition: Condition
    seed: int
    success: bool | None
    outcome: Outcome
    termination: Termination
    steps: int
    tool_calls: int
    model_calls: int
    tokens: int
    violations: tuple[ViolationRow, ...]
    faults: tuple[FaultRow, ...]
    allowed: int
    rewritten: int
    blocked: int
    elapsed_ms: int
    schedule: str = ""
    cost: int = 0
    armed: tuple[str, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()

    @property
    def hard(self) -> tuple[ViolationRow, ...]:
        return tuple(item for item in self.violations if item.severity == "hard")


def row_of(run: Run, *, item: str, condition: Condition, rules: Rules = RULES) -> RunRow:
    """The row of one run; `rules` are those of Eq. 10. Mediations are counted where the mediator decided."""
    kinds = [record.action.kind for record in run.records]
    decisions = [record.mediation.decision for record in run.records if record.mediation is not None]
    singly = condition != "fault"
    return RunRow(
        item=item,
        condition=condition,
        seed=run.spec.seed,
        success=run.success,
        outcome=run.outcome,
        termination=run.termination,
        steps=len(run.records),
        tool_calls=kinds.count("tool_call"),
        model_calls=kinds.count("model_call"),
        tokens=sum(_tokens(record) for record in run.records),
        violations=_violations(run),
        faults=faults_of(run, rules),
        allowed=decisions.count("allow"),
        rewritten=decisions.count("rewrite"),
        blocked=decisions.count("block"),
        elapsed_ms=run.elapsed_ms,
        schedule=schedule_text(run.spec.schedule),
        cost=run.spec.schedule.cost,
        armed=tuple(sorted(item.contract for item in run.outcomes if item.severity == "hard")) if singly else (),
        decisions=_decisions(run) if singly else (),
    )


def schedule_text(schedule: Schedule) -> str:
    """Text that equal schedules share and others do not, "" for the empty one. Costs do not enter: prices may change."""
    said = "; ".join(
        f"{item.operator}{canonical(item.parameters) if item.parameters else ''} at {item.site}" for item in schedule
    )
    return said if len(said) <= _SCHEDULE_CHARS else f"{said[:_SCHEDULE_CHARS]}... {digest(said)[:12]}"


def proposed(record: Record) -> bool:
    """Whether a step is a proposed action in the sense of A6.2: a tool call, or anything else that writes across a boundary.

    The same actions count under every variant, so that shares can be compared: without governance all of them are allowed.
    """
    action = record.action
    return bool(action.boundary) and (action.kind == "tool_call" or action.effect == "write")


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
    )


def faults_of(run: Run, rules: Rules = RULES) -> tuple[FaultRow, ...]:
    """The faults of a run and what became of each (Eq. 10), by the fold of the containment contract, under the same rules.

    One perturbation is one fault, whatever the number of calls it changed; it is detected, or mitigated, where it is at each
    of them. An observed error is a fault of its own.
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
    """The key of the perturbation that acted at a site; the site itself where the schedule does not hold it."""
    site = parse_site(where)
    items: Iterable[Perturbation] = run.spec.schedule
    for item in items:
        if item.operator == operator and item.site.covers(site):
            return item.key
    return (where, operator, "")
