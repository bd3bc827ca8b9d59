"""From results and rows to the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from mat.core.campaign import Certificate, ItemResult
from mat.evidence.artifact import Replay
from mat.measure import containment, reliability
from mat.measure.estimate import spread
from mat.measure.governance import GovernedRow, SearchRow, by_variant, is_governed
from mat.measure.rows import Condition, RunRow
from mat.report.document import Document, ItemLine, Metric, NominalLine

_NOT_SEARCHED: Final = Certificate(proven=False, reason="nothing was searched")


def build(
    results: Sequence[ItemResult],
    rows: Sequence[RunRow],
    *,
    governed: Sequence[GovernedRow] = (),
    searches: Sequence[SearchRow] = (),
) -> Document:
    """The report of a session. Rates under faults describe the schedules that were run, not a population of them.

    `governed` holds the runs under each governance variant, `searches` what was searched under them.
    """
    return Document(
        runs=len(rows),
        items=tuple(_item(result) for result in results),
        nominal=_nominal(results, rows),
        faults=containment.fault_profile(rows),
        governance=by_variant(governed, searches) if any(map(is_governed, governed)) else (),
        violations=reliability.profile(rows),
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
        metrics=_metrics(rows),
    )


def _item(result: ItemResult) -> ItemLine:
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
