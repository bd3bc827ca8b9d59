"""The items of a report and its findings: a line for each test, and for each run that breaks contracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mat.core.campaign import BrokenRun, FindingStanding, ItemResult, broken_run
from mat.report import words
from mat.report.document import Document, FindingLine, ItemLine
from mat.report.grouping import FoundRun, found_runs


def item_line(result: ItemResult, left_out: int = 0) -> ItemLine:
    """The line of an item. `left_out`: its runs under faults that the report does not list."""
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
        covered=result.covered,
        recorded=result.recorded,
        relative_to=certificate.given_in_full if certificate else "",
        notes=result.notes,
        reused=result.reused,
        estimate=words.estimate_of(certificate) if certificate else None,
    )


def finding_lines(results: Sequence[ItemResult], broken: Mapping[str, Sequence[BrokenRun]]) -> tuple[FindingLine, ...]:
    """A line for each run that breaks something, without replays of what a search has found again."""
    pairs = [(result, run) for result in results for run in broken.get(result.id, ())]
    found = {(file, run.standing.kind) for result, run in pairs if _is_searched(result) for file in run.replays}
    again = {(file, run.standing.kind) for result, run in pairs if not _is_searched(result) for file in run.replays} & found
    lines = []
    for result, run in pairs:
        replayed = any((file, run.standing.kind) in again for file in run.replays)
        if _is_searched(result) or not replayed:
            lines.append(replace(finding_line(result.id, run), replayed=replayed))
    return tuple(lines)


def _is_searched(result: ItemResult) -> bool:
    return bool(result.standings) or result.status == "counterexample"


def finding_line(item: str, run: BrokenRun) -> FindingLine:
    """The line of a run that breaks contracts, found by this item."""
    verdict, standing = run.verdict, run.standing
    return FindingLine(
        item=item, test=run.test, standing=standing.kind, contract=verdict.contract, contracts=run.contracts,
        severity=verdict.severity, stage=verdict.stage, step=verdict.step, agent=verdict.agent, cost=run.schedule.cost,
        message=verdict.message,
        repair=verdict.repair, causes=tuple(map(words.perturbation_in_words, words.in_order_of_calls(run.schedule))),
        place=run.place,
        replay=run.replays[0] if run.replays else "", signatures=run.signatures, remark=standing.remark, until=standing.until,
        executions=run.stability.runs, reproduced=run.stability.reproduced,
    )  # fmt: skip


def findings_of(document: Document) -> tuple[FindingLine, ...]:
    """The findings of a document. Reports of replay files and of earlier versions have counterexamples only.

    The counterexamples of an evaluation are measurements, and fail nothing.
    """
    failing = {line.id for line in document.items if line.status in ("counterexample", "expected")}
    return document.findings or tuple(_derived(group) for group in found_runs(document) if group.first.item in failing)


def _derived(group: FoundRun) -> FindingLine:
    found = group.first.counterexample
    contracts = frozenset(each.counterexample.verdict.contract for each in group.replays)
    run = broken_run(found.run, found.verdict, contracts, files=group.files, stability=found.stability)
    standing = FindingStanding(kind="expected" if all(each.expected for each in group.replays) else "new")
    return finding_line(group.first.item, replace(run, standing=standing))
