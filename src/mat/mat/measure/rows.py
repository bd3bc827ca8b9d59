"""One run as a row of numbers: everything the metrics read, and nothing they would have to read from a trace again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mat.core.record import Record
from mat.core.run import Run, Termination
from mat.core.site import parse_site
from mat.core.spec import Perturbation
from mat.core.verdict import Outcome, Severity, Stage

Condition: TypeAlias = Literal["nominal", "fault", "replay"]
DETECT_WITHIN: Final = 5
"""w of Eq. 10, in steps."""
MITIGATE_WITHIN: Final = 5
"""w' of Eq. 10, in steps."""
OBSERVED_KINDS: Final = frozenset(("timeout", "connection", "rate_limit", "server_error", "invalid"))
"""Error kinds that mean a fault of the other side where nothing was injected. Others are answers an agent may well get."""
FAULT_BOUNDARIES: Final = frozenset(("service", "retrieval", "memory", "model", "delegation"))
"""Where faults enter. Prompt and order disturbances are perturbations of the search, not faults (Sec. IV-C, IV-D)."""


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
    contract.
    """

    operator: str
    injected: bool
    step: int
    detected: bool
    mitigated: bool
    contained: bool
    final_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run in numbers. `success` is Y, None where there was nothing to judge it by; times are run milliseconds."""

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

    @property
    def hard(self) -> tuple[ViolationRow, ...]:
        return tuple(item for item in self.violations if item.severity == "hard")


def row_of(run: Run, *, item: str, condition: Condition) -> RunRow:
    """The row of one run. Mediations are counted where the mediator decided; without one all three counts are 0."""
    kinds = [record.action.kind for record in run.records]
    decisions = [record.mediation.decision for record in run.records if record.mediation is not None]
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
        faults=faults_of(run),
        allowed=decisions.count("allow"),
        rewritten=decisions.count("rewrite"),
        blocked=decisions.count("block"),
        elapsed_ms=run.elapsed_ms,
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


def faults_of(run: Run, *, detect_within: int = DETECT_WITHIN, mitigate_within: int = MITIGATE_WITHIN) -> tuple[FaultRow, ...]:
    """The faults of a run and what became of each (Eq. 10). The rules, in words:

    - A fault is a perturbation that changed a call, or an error of OBSERVED_KINDS where nothing was injected. A range of
      calls is one fault; it is detected, or mitigated, where it is at each call it changed.
    - Detected: within w steps there is a `mat.detect`, a failed verification or, where the agent met an error, another call
      of the same port. A wrong reply is not detected by calling again.
    - Mitigated: within w' steps of such a detection there is a `mat.mitigate`, another call of the same port, a delegation, a
      request for approval or a message to "user"; it may be the detecting step itself.
    - Blocked calls are neither.
    """
    final_ok = not run.failures
    rows = []
    for operator, injected, entries in _entries(run):
        checks = [_contained(run.records, entry, detect_within, mitigate_within) for entry in entries]
        mitigated = all(check == "mitigated" for check in checks)
        rows.append(
            FaultRow(
                operator=operator,
                injected=injected,
                step=entries[0].step,
                detected=all(check != "missed" for check in checks),
                mitigated=mitigated,
                contained=mitigated and final_ok,
                final_ok=final_ok,
            )
        )
    return tuple(rows)


def _entries(run: Run) -> list[tuple[str, bool, list[Record]]]:
    """(operator, injected, the records by which it entered), by first step."""
    injected: dict[tuple[str, str, str], list[Record]] = {}
    observed: list[Record] = []
    for record in run.records:
        notes = [note.operator for note in record.faults if note.changed]
        if record.action.boundary and record.action.boundary not in FAULT_BOUNDARIES:
            continue
        for operator in notes:
            injected.setdefault(_perturbation(run, record, operator), []).append(record)
        error = record.observation.error
        if not notes and error is not None and error.kind in OBSERVED_KINDS:
            observed.append(record)
    found = [(key[1], True, records) for key, records in injected.items()]
    for record in observed:
        assert record.observation.error is not None
        found.append((f"observed.{record.observation.error.kind}", False, [record]))
    return sorted(found, key=lambda entry: (entry[2][0].step, entry[0]))


def _perturbation(run: Run, record: Record, operator: str) -> tuple[str, str, str]:
    """The key of the perturbation that acted on a record; the record's own site where the schedule does not hold it."""
    site = parse_site(record.site)
    items: Iterable[Perturbation] = run.spec.schedule
    for item in items:
        if item.operator == operator and item.site.covers(site):
            return item.key
    return (record.site, operator, "")


def _contained(
    records: Sequence[Record], fault: Record, detect_within: int, mitigate_within: int
) -> Literal["missed", "detected", "mitigated"]:
    loud = fault.observation.error is not None
    detections = [
        record.step
        for record in _window(records, fault.step + 1, fault.step + detect_within)
        if _detects(record) or (loud and _again(record, fault))
    ]
    for step in detections:
        if any(_mitigates(record, fault) for record in _window(records, step, step + mitigate_within)):
            return "mitigated"
    return "detected" if detections else "missed"


def _window(records: Sequence[Record], first: int, last: int) -> Sequence[Record]:
    return records[first : last + 1]


def _again(record: Record, fault: Record) -> bool:
    same = record.action.kind == fault.action.kind and record.action.name == fault.action.name
    return same and not record.blocked


def _detects(record: Record) -> bool:
    kind = record.action.kind
    return kind == "detection" or (kind == "verification" and record.action.arguments.get("passed") is False)


def _mitigates(record: Record, fault: Record) -> bool:
    if record.blocked:
        return False
    kind = record.action.kind
    if kind == "message":  # what comes from the user enters at the prompt boundary
        return record.action.name == "user" and record.action.boundary != "prompt"
    return kind in ("mitigation", "delegation", "approval") or _again(record, fault)
