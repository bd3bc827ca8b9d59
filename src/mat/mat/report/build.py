"""From results and rows to the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from mat.core import limits
from mat.core.campaign import Certificate, ItemResult
from mat.evidence.artifact import Replay
from mat.measure import containment, reliability
from mat.measure.estimate import spread
from mat.measure.governance import GovernedRow, SearchRow, by_variant, is_governed
from mat.measure.regression import RunOutcome, outcome_of
from mat.measure.robustness import CurveRow
from mat.measure.robustness import curves as curves_of
from mat.measure.rows import Condition, RunRow
from mat.report import robustness
from mat.report.document import Document, ItemLine, Metric, NominalLine

_NOT_SEARCHED: Final = Certificate(proven=False, reason="nothing was searched")


def build(
    results: Sequence[ItemResult],
    rows: Sequence[RunRow],
    *,
    governed: Sequence[GovernedRow] = (),
    searches: Sequence[SearchRow] = (),
    curves: Sequence[CurveRow] = (),
) -> Document:
    """The report of a session. Rates under faults describe the schedules that were run, not a population of them.

    `governed` holds the runs under each governance variant, `searches` what was searched under them, `curves` what each search
    gives to the robustness curves.
    """
    drawn = curves_of(curves)
    outcomes, left_out = _outcomes(rows)
    return Document(
        runs=len(rows),
        items=tuple(_item(result, left_out.get(result.id, 0)) for result in results),
        nominal=_nominal(results, rows),
        faults=containment.fault_profile(rows),
        governance=by_variant(governed, searches) if any(map(is_governed, governed)) else (),
        violations=reliability.profile(rows),
        outcomes=outcomes,
        curves=drawn,
        counterexamples=tuple(
            Replay(
                item=result.id,
                counterexample=found,
                certificate=(result.certificate or _NOT_SEARCHED).below(found.cost),
                expected=result.status == "expected",
            )
            for result in results
            for found in result.counterexamples
        ),
        metrics=(*_metrics(rows), *robustness.metrics(drawn)),
    )


def _outcomes(rows: Sequence[RunRow]) -> tuple[tuple[RunOutcome, ...], dict[str, int]]:
    """The outcome of every nominal run and replay, and of the cheapest runs under faults; how many of an item are left out.

    The cheapest, because two reports then keep the same ones.
    """
    faults: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.condition == "fault":
            faults.setdefault(row.item, []).append(row)
    kept = [row for row in rows if row.condition != "fault"]
    for found in faults.values():
        found.sort(key=lambda row: (row.cost, row.schedule, row.seed))
        kept += found[: limits.FAULT_OUTCOMES]
    left_out = {
        item: len(found) - limits.FAULT_OUTCOMES for item, found in faults.items() if len(found) > limits.FAULT_OUTCOMES
    }
    return tuple(map(outcome_of, kept)), left_out


def _item(result: ItemResult, left_out: int) -> ItemLine:
    first = result.counterexamples[0] if result.counterexamples else None
    certificate = result.certificate
    return ItemLine(
        id=result.id,
        status=result.status,
        cost=first.cost if first else None,
        executions=result.executions,
        bound=certificate.bound if certificate else None,
        proven=certificate.proven if certificate else None,
        reason=result.reason or (certificate.reason if certificate else ""),
        contract=first.verdict.contract if first else "",
        step=first.verdict.step if first else None,
        agent=first.verdict.agent if first else "",
        category=result.category,
        replays=result.replays,
        findings=tuple(f"{finding.code}: {finding.message}" for finding in result.findings),
        outcomes_left_out=left_out,
    )


def _nominal(results: Sequence[ItemResult], rows: Sequence[RunRow]) -> tuple[NominalLine, ...]:
    by_item: dict[str, list[RunRow]] = {result.id: [] for result in results}
    for row in rows:
        if row.condition == "nominal":
            by_item.setdefault(row.item, []).append(row)
    lines = [_nominal_line(item, found) for item, found in by_item.items() if found]
    if len(lines) > 1:
        lines.append(_nominal_line("all", [row for found in by_item.values() for row in found]))
    return tuple(lines)


def _nominal_line(item: str, rows: Sequence[RunRow]) -> NominalLine:
    return NominalLine(
        item=item,
        runs=len(rows),
        success=reliability.success(rows),
        non_termination=reliability.non_termination(rows),
        violations=reliability.violation_rate(rows),
        steps=spread(row.steps for row in rows),
        tool_calls=spread(row.tool_calls for row in rows),
        tokens=spread(row.tokens for row in rows),
    )


def _metrics(rows: Sequence[RunRow]) -> tuple[Metric, ...]:
    found = []
    for condition in get_args(Condition):
        chosen = _under(rows, condition)
        if chosen:
            found += [
                Metric(name=f"{condition}.success", estimate=reliability.success(chosen)),
                Metric(name=f"{condition}.non_termination", estimate=reliability.non_termination(chosen)),
                Metric(name=f"{condition}.violations", estimate=reliability.violation_rate(chosen)),
            ]
    found.append(Metric(name="containment", estimate=containment.containment(rows)))
    for by in ("operator", "boundary"):
        profiles = containment.fault_profile(rows, by=by)
        found += [Metric(name=f"containment.{line.operator}", estimate=line.contained) for line in profiles if line.injected]
    return tuple(found)


def _under(rows: Iterable[RunRow], condition: str) -> list[RunRow]:
    return [row for row in rows if row.condition == condition]
