"""Turn a finished run into rows of the store's tables. Everything that SQL needs later is counted here once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mat.core.digest import plain
from mat.core.record import MediationDecision, Record
from mat.core.run import Run
from mat.core.site import parse_site
from mat.evidence.runlog import RunEntry
from mat.evidence.store.schema import TABLES
from mat.measure.metrics import residual_harm
from mat.measure.reliability import collapse
from mat.measure.rows import ActionCount, FaultRow, RunRow, proposed

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""Table -> rows, each with the table's columns in their order."""
_text: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode


def run_number(key: str) -> int:
    """The number of a run: the first 64 bits of its key."""
    return int(key[:16], 16)


def add_rows(rows: Rows, entry: RunEntry, *, key: str, head: str) -> None:
    """Append the rows of one entry to the lists. `key` and `head` are those of the entry, which the caller has computed."""
    run, row, number = entry.run, entry.row(), run_number(key)
    columns = run_columns(
        row, key=key, head=head, session=entry.session, repeat=entry.repeat, written_at=entry.written_at, error=run.error
    )
    rows["runs"].append(tuple(columns.values()))
    rows["steps"] += [_step(number, record) for record in run.records]
    rows["violations"] += _violations(number, run)
    rows["perturbations"] += _perturbations(number, run, row.faults)
    rows["mediations"] += _mediations(number, run)
    rows["usage"] += _usage(number, run)
    rows["contracts"] += [
        (number, item.contract, item.severity, item.outcome, item.evaluations, item.error) for item in run.outcomes
    ]
    rows["scores"] += [(number, score.name, score.value, score.error) for score in entry.scores]
    rows["findings"] += [(number, item.code, item.message, item.step, "") for item in run.findings]


def no_rows() -> Rows:
    return {table: [] for table in TABLES}


def run_columns(
    row: RunRow, *, key: str, head: str = "", session: str = "", repeat: int = 0, written_at: str = "", error: str = ""
) -> dict[str, Any]:
    """A run as a row of the table `runs`, by the names of its columns, in their order."""
    injected = [fault for fault in row.faults if fault.injected]
    decided = _decision_counts(row.actions)
    high_impact = [action for action in row.actions if action.impact == "high"]
    high = _decision_counts(high_impact)
    kept = replace(row, infrastructure="")  # rates leave such rows out, the store does not
    claims = row.claims
    return {
        "run": run_number(key),
        "key": key,
        "session": session,
        "item": row.item,
        "condition": row.condition,
        "category": row.category,
        "input": row.input,
        "variant": row.variant,
        "episode": row.episode,
        "place": row.place,
        "repeat": repeat,
        "written_at": written_at,
        "spec": row.run,
        "head": head,
        "task": row.task,
        "config": row.config,
        "seed": row.seed,
        "schedule": row.schedule,
        "cost": row.cost,
        "success": row.success,
        "outcome": row.outcome,
        "termination": row.termination,
        "error": error,
        "infrastructure": row.infrastructure,
        "armed": row.judged,
        "misuse": row.misuse,
        "steps": row.steps,
        "tool_calls": row.tool_calls,
        "model_calls": row.model_calls,
        "tokens": row.tokens,
        "elapsed_ms": row.elapsed_ms,
        "hard": len(row.hard),
        "soft": len(row.violations) - len(row.hard),
        "effected": sum(found.stage == "effected" for found in row.hard),
        "first_failure": row.first_failure,
        "first_failure_ms": row.first_failure_ms,
        "final_step": row.final_step,
        "cases": len(row.cases),
        "cases_broken": sum(case.first_failure is not None for case in row.cases),
        "collapsed": collapse([kept]).value == 1,
        "faulted": bool(row.faults),
        "harmed": residual_harm([kept]).value == 1,
        "faults": len(injected),
        "detected": sum(fault.detected for fault in injected),
        "mitigated": sum(fault.mitigated for fault in injected),
        "contained": sum(fault.contained for fault in injected),
        "final_ok": sum(fault.final_ok for fault in injected),
        "allowed": decided["allow"],
        "rewritten": decided["rewrite"],
        "blocked": decided["block"],
        "high_allowed": high["allow"],
        "high_rewritten": high["rewrite"],
        "high_blocked": high["block"],
        "high_stopped": sum(action.count for action in high_impact if action.stopped),
        "claims_final": None if claims is None else claims.final,
        "claims_unsupported": None if claims is None else claims.unsupported,
        "claims_recorded": None if claims is None else claims.recorded,
        "claims_propagated": None if claims is None else claims.propagated,
        "claims_unknown": None if claims is None else claims.unknown,
    }


def _decision_counts(actions: Iterable[ActionCount]) -> Counter[MediationDecision]:
    counts: Counter[MediationDecision] = Counter()
    for action in actions:
        counts[action.decision] += action.count
    return counts


def _step(number: int, record: Record) -> tuple[Any, ...]:
    action, observation = record.action, record.observation
    error = observation.error
    return (
        number, record.step, record.at_ms, record.sealed_ms, record.agent, record.role, action.kind, action.name,
        action.boundary, record.site, action.effect, action.impact, record.effected, _json(action.arguments),
        None if record.mediation is None else record.mediation.decision,
        None if error is None else f"{error.type}: {error.message}", None if error is None else error.kind,
        record.invoked, len(record.faults), _tokens(observation.usage),
    )  # fmt: skip


def _json(value: Any) -> str:
    return _text(plain(value)) if value else "{}"


def _tokens(usage: Mapping[str, Any]) -> int:
    """The tokens as `rows.row_of` counts them: the total that the model reports, or input plus output."""
    if not usage:
        return 0
    total = usage.get("total_tokens")
    return int(total if total is not None else usage.get("input_tokens", 0) + usage.get("output_tokens", 0))


def _violations(number: int, run: Run) -> Iterator[tuple[Any, ...]]:
    kinds = {record.step: record.action.kind for record in run.records} if run.outcomes else {}
    for found in run.violations:
        yield (
            number, found.contract, found.severity, found.stage, found.step, found.agent, found.role,
            kinds.get(found.step, ""), found.message, float(found.weight), found.instance,
            found.label,
        )  # fmt: skip


def _perturbations(number: int, run: Run, faults: Sequence[FaultRow]) -> Iterator[tuple[Any, ...]]:
    """The perturbations of the schedule with their outcomes, then other faults."""
    remaining = list(faults)
    for item in run.spec.schedule:
        fault = next(
            (
                one
                for one in remaining
                if one.injected and one.operator == item.operator and item.site.covers(parse_site(one.site))
            ),
            None,
        )
        if fault is not None:
            remaining.remove(fault)
        yield (
            number, item.operator, str(item.site), _json(item.parameters), item.cost, True, item not in run.unreached,
            *_fault_columns(fault, item.site.boundary),
        )  # fmt: skip
    for fault in remaining:
        yield number, fault.operator, fault.site, "{}", 0, fault.injected, True, *_fault_columns(fault, fault.boundary)


def _fault_columns(fault: FaultRow | None, boundary: str) -> tuple[Any, ...]:
    if fault is None:
        return None, boundary, None, None, None, None, "", ""
    return (
        fault.step, fault.boundary or boundary, fault.detected, fault.mitigated, fault.contained, fault.final_ok,
        fault.detected_by, fault.mitigated_by,
    )  # fmt: skip


def _mediations(number: int, run: Run) -> Iterator[tuple[Any, ...]]:
    for record in run.records:
        mediation, counts = record.mediation, proposed(record)
        if mediation is None and not counts:
            continue
        yield (
            number, record.step, record.agent, record.action.kind, record.action.name, record.site, record.action.impact,
            counts, mediation is not None, "allow" if mediation is None else mediation.decision,
            "" if mediation is None else mediation.rule, "" if mediation is None else mediation.reason,
            "" if mediation is None else mediation.approval,
        )  # fmt: skip


def _usage(number: int, run: Run) -> Iterator[tuple[Any, ...]]:
    for record in run.records:
        usage = record.observation.usage
        if usage:
            yield (
                number, record.step, record.agent, record.action.name, _count(usage.get("input_tokens")),
                _count(usage.get("output_tokens")), _tokens(usage),
            )  # fmt: skip


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
