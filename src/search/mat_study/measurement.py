"""`--mat-evaluate`: a task under its three conditions, on all its seeds and governance variants, as rows.

A finished cell (one condition, one seed and one variant) is kept in `.mat/evaluations` until its session has finished, so
that an interrupted evaluation can resume.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mat.core.campaign import BROKE, ItemResult
from mat.core.digest import digest
from mat.core.errors import plural
from mat.core.operator import grid_digest
from mat.core.spec import Schedule
from mat.govern.variant import NONE
from mat.kernel.clock import real_monotonic
from mat.kernel.folders import writable
from mat.measure.rows import RunCondition, RunRow
from mat_study.cell_results import CellJournal, CellResults
from mat_study.conditions import CONDITIONS, EvaluationCell, MeasuredTask, adversarial, fault, nominal
from mat_study.evaluation import Evaluated, Lost
from mat_study.means import Means, Subject
from mat_study.measuring import lost
from mat_study.notices import Notice
from mat_study.tasks import is_task

FOLDER: Final = Path(".mat", "evaluations")


class Measurement:
    """The evaluation of one task, `first` being one of its executions. `total` is the sum of its cells."""

    def __init__(self, subject: Subject, means: Means, first: Evaluated) -> None:
        self._subject, self._means = subject, means
        self._variants = first.variants
        self._plainest = NONE if NONE in first.variants else first.variants[0]
        outside = first.run.uncontrolled if subject.settings.clock == "virtual" else ()
        self._task = MeasuredTask(
            subject=subject, means=means, first=first, operators=means.operators(),
            uncontrolled=f"its runs are not controlled ({outside[0].code})" if outside else "",
        )  # fmt: skip
        folder = writable(means.root / FOLDER)
        self._elsewhere = f"the journal of the evaluation is in {folder.path}, because {folder.why}" if folder.why else ""
        if folder.is_lost:
            self._elsewhere = f"nothing is kept of this evaluation: {folder.why}"
        self._journal = CellJournal(
            folder.path / f"{digest(subject.id)[:20]}.jsonl", self._key(), began_ns=means.began_ns, fresh=means.fresh,
            session=means.store.session if means.store is not None else "",
        )  # fmt: skip
        self._matrix: dict[int, list[Schedule]] = {}
        self._nominal_run: Evaluated | None = None
        self.total = CellResults()

    def _key(self) -> dict[str, Any]:
        settings = self._subject.settings
        return {
            "item": self._subject.id, "the first run": self._task.first.run.head, "variants": list(self._variants),
            "operators": grid_digest(self._task.operators), "budget": settings.budget, "horizon": settings.horizon,
            "max_runs": settings.evaluation_runs, "strategy": settings.evaluation_strategy, "curve": settings.curve,
            "timeout": settings.timeout_s, "shrink_runs": settings.shrink_runs,
        }  # fmt: skip

    def run(self) -> None:
        """Execute all cells: each condition of each seed of each variant. The matrix is drawn before it is used."""
        seeds = range(self._subject.settings.seeds)
        order = (self._plainest, *(name for name in self._variants if name != self._plainest))
        progress = _Progress(self._subject, self._means, len(order) * len(seeds) * len(CONDITIONS))
        results: dict[tuple[str, int, RunCondition], CellResults] = {}
        try:
            for variant in order:
                for seed in seeds:
                    for condition in CONDITIONS:
                        results[variant, seed, condition] = self._cell(variant, seed, condition)
                        progress.step(f"{condition}, seed {seed}, {variant}")
        finally:
            self._journal.close()
        for variant in self._variants:  # the item's own first: tables without a variant column show it
            for seed in seeds:
                for condition in CONDITIONS:
                    self.total.take(results[variant, seed, condition])

    def _cell(self, variant: str, seed: int, condition: RunCondition) -> CellResults:
        """One cell: taken from the journal, or executed and kept there (its runs are stored first)."""
        name = f"{variant}/{seed}/{condition}"
        results = self._journal.recall(name)
        if results is None:
            cell = EvaluationCell(task=self._task, condition=condition, seed=seed, variant=variant)
            self._execute(cell)
            results = cell.results
            if self._means.store is not None:
                self._means.store.keep(cell.runs, session=self._journal.session)
            self._journal.keep(name, results)
        if condition == "nominal" and variant == self._plainest and not any(row.infrastructure for row in results.rows):
            self._matrix[seed] = results.schedules
        return results

    def _execute(self, cell: EvaluationCell) -> None:
        """Execute a cell. A seed's nominal run is executed again for the search only if it came from the journal."""
        if cell.condition == "nominal":
            self._nominal_run = nominal(cell, draw=cell.variant == self._plainest)
        elif cell.condition == "fault":
            fault(cell, self._matrix.get(cell.seed))
        else:
            known, self._nominal_run = self._nominal_run, None
            fits = known is not None and (known.variant, known.run.spec.seed) == (cell.variant, cell.seed)
            adversarial(cell, known if fits else None)

    def result(self) -> ItemResult:
        total = self.total
        return ItemResult(
            id=self._subject.id, status="evaluated", counterexamples=tuple(total.found), executions=total.executions,
            category=self._task.first.task.category, certificate=next(iter(total.certificates), None),
            covered=next(iter(total.covered), None), reason=self._reason(), notes=self._broken(),
        )  # fmt: skip

    def _broken(self) -> tuple[str, ...]:
        """A note on the runs that broke hard contracts, except expected ones; none if there is no such run."""
        expected = self._subject.settings.expect
        rows = [row for row in self.total.rows if not row.infrastructure]
        broken = [{each.contract for each in row.hard} - set(expected) for row in rows]
        count, contracts = sum(map(bool, broken)), sorted(set().union(*broken))
        return (f"{', '.join(contracts)}: {count} of {plural(len(rows), 'run')} {BROKE}",) if contracts else ()

    def _reason(self) -> str:
        """What a reader should know about how the cells were made."""
        return "; ".join(f"{note} ({count}x)" if count > 1 else note for note, count in Counter(self.total.notes).items())

    def notice(self) -> Notice:
        """The path of the journal, how much was reused from it, and what the session summarises."""
        task, total = self._task.first.task, self.total
        taken, cells = self._journal.recalled, len(self._variants) * self._subject.settings.seeds * len(CONDITIONS)
        declared = {**dict.fromkeys(task.channels, "channel"), **dict.fromkeys(task.tools, "tool")}
        resumed = f"resumed: {taken} of {cells} cells taken from an interrupted evaluation" if taken else ""
        return replace(
            self.begun(), what="evaluated", category=task.category,
            note="; ".join(filter(None, (resumed, self._journal.note, self._elsewhere))),
            unfaulted=all(row.condition != "fault" for row in total.rows),
            unmet=tuple(f"{kind} {name!r}" for name, kind in declared.items() if name not in set(total.met)),
        )  # fmt: skip

    def begun(self) -> Notice:
        """The notice of an interrupted evaluation that can be resumed."""
        return Notice(item=self._subject.id, what="begun", path=str(self._journal.path or ""))


def lost_at_once(subject: Subject, given: Lost) -> list[RunRow]:
    """The rows of a task without a first run, which is an error of its test (--mat-evaluate continues with the next).

    The same failure in a later run gives a row, so it gives one here for each condition, with seed 0 and the item's own
    variant. No rows for a test that is skipped, or that asks for something that is not available.
    """
    if given.outcome == "skipped" or given.refused or not is_task(given.task):
        return []
    whys: dict[RunCondition, str] = {
        "nominal": given.why, "fault": "no nominal run to draw faults from",
        "adversarial": "no nominal run to search from",
    }  # fmt: skip
    return [lost(subject.task, given.task, condition, why, seed=0, variant=given.variant) for condition, why in whys.items()]


class _Progress:
    """The progress of an evaluation.

    The time left extrapolates from the finished cells; later items count as much as this one.
    """

    def __init__(self, subject: Subject, means: Means, cells: int) -> None:
        self._subject, self._line, self._cells, self._done = subject, means.line, cells, 0

    def step(self, cell: str) -> None:
        """Note that one more cell is done."""
        self._done += 1
        if self._line is None:
            return
        subject = self._subject
        share = (subject.place + self._done / self._cells) / subject.places
        left_s = (real_monotonic() - subject.began_s) * (1 - share) / share
        place, progress = f"{subject.place + 1}/{subject.places}", f"{self._done}/{self._cells} ({cell})"
        self._line(f"task {place}, about {left_s:.0f} s left: {subject.name}, {progress}")
