"""The findings of a report: a line for each run that breaks contracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mat.core.campaign import BrokenRun, FindingStanding, ItemResult, broken_run
from mat.report import words
from mat.report.document import Document, FindingLine
from mat.report.grouping import FoundRun, found_runs


def finding_lines(results: Sequence[ItemResult], broken: Mapping[str, Sequence[BrokenRun]]) -> tuple[FindingLine, ...]:
    """A line for each run that breaks something, without replays of what a search has found again."""
    lines = [(result, _finding_line(result.id, each)) for result in results for each in broken.get(result.id, ())]
    found = {(line.replay, line.standing) for result, line in lines if result.standings}
    return tuple(line for result, line in lines if result.standings or (line.replay, line.standing) not in found)


def _finding_line(item: str, run: BrokenRun) -> FindingLine:
    verdict, standing = run.verdict, run.standing
    return FindingLine(
        item=item, test=run.test, standing=standing.kind, contract=verdict.contract, contracts=run.contracts,
        severity=verdict.severity, stage=verdict.stage, step=verdict.step, agent=verdict.agent, cost=run.schedule.cost,
        message=verdict.message,
        repair=verdict.repair, causes=tuple(map(words.perturbation_in_words, run.schedule)), place=run.place,
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
    return _finding_line(group.first.item, replace(run, standing=standing))
