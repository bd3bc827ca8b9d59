"""Reads the sources of `mat report` (a report, replay files, recorded traces, a log or a store) as documents."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from mat.commands.recorded import RecordedOptions, entries, judging
from mat.commands.shared import check_files, reading
from mat.commands.stores import exported, lost, opened, say, undamaged
from mat.core.errors import MatError, SpecError

if TYPE_CHECKING:
    from mat.core.run import Run
    from mat.evidence.replay_file import Replay
    from mat.evidence.runlog import RunEntry
    from mat.evidence.store import Store
    from mat.evidence.store.metrics import GroupMetrics
    from mat.measure.rows import RunCondition, RunRow
    from mat.measure.sampling import Population, Sampling
    from mat.report.document import Document, EvaluationLine
    from mat.report.page.trace import Traced

SourceKind: TypeAlias = Literal["report", "replays", "traces", "log", "store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSource:
    """The content of the files. `data` is the JSON of a report as it was read. `notes` list what the report does not show,
    `problems` what could not be read. `alone`: the source is a single trace.
    """

    document: Document
    traces: tuple[Traced, ...] = ()
    data: Any = None
    notes: tuple[str, ...] = ()
    problems: tuple[MatError, ...] = ()
    alone: bool = False


def _report(options: argparse.Namespace) -> RecordedSource:
    from mat.report.from_json import read_data, restored

    (path,) = options.files
    data = read_data(path)
    found = restored(data, where=str(path), folders=(path.parent, Path.cwd()))
    return RecordedSource(document=found.document, data=data, notes=found.missing)


def _replays(options: argparse.Namespace) -> RecordedSource:
    """Counterexamples with the outcomes of their recorded runs."""
    from mat.core.campaign import ItemResult
    from mat.evidence import replay_file
    from mat.measure.rows import row_of
    from mat.report.build import build

    by_item: dict[str, list[tuple[Path, Replay]]] = {}
    for path in options.files:
        with reading(path):
            replay = replay_file.read(path)
        by_item.setdefault(replay.item, []).append((path, replay))
    results, ordered, rows = [], [], []
    for item, found in by_item.items():
        found.sort(key=lambda pair: pair[1].counterexample.cost)
        replays = [replay for _, replay in found]
        ordered += replays
        rows += [row_of(replay.counterexample.run, item=item, condition="replay") for replay in replays]
        results.append(
            ItemResult(
                id=item, status="expected" if all(replay.expected for replay in replays) else "counterexample",
                counterexamples=tuple(replay.counterexample for replay in replays), certificate=replays[0].certificate,
                executions=max(replay.certificate.executions for replay in replays),
                replays=tuple(path.as_posix() for path, _ in found),
            )
        )  # fmt: skip
    return RecordedSource(document=replace(build(results, rows), counterexamples=tuple(ordered)))


def _traces(options: argparse.Namespace) -> RecordedSource:
    contracts, given = judging(options.contracts), RecordedOptions(format=options.format)
    return _from_entries((entry for path in options.files for entry in entries(path, given, contracts)), options)


def _log(options: argparse.Namespace) -> RecordedSource:
    from mat.evidence import runlog
    from mat.evidence.store.database import IMPORTED

    found = runlog.read(*options.files)
    if not found.paths:
        raise SpecError(
            what=f"{', '.join(map(str, options.files))} contains no log and no exported runs",
            why="no file in it is a log or an export",
            fix="name the folder that pytest --mat-store (.mat/store) or mat export wrote",
            where=str(options.files[0]),
        )  # fmt: skip
    source = _from_entries(iter(found), options)
    elsewhere = [path / IMPORTED for path in options.files if any((path / IMPORTED).glob("*/runs-*.parquet"))]
    if elsewhere:
        left_out = f"runs that were imported from exports are not in this report ({elsewhere[0]})"
        note = f"{left_out}; to include them, run mat report on the file of the store (store.duckdb)"
        source = replace(source, notes=(*source.notes, note))
    problems = lost(found.findings, *(path for path in options.files if not path.is_dir()))
    say([finding for finding in found.findings if finding.message not in {problem.what for problem in problems}])
    return replace(source, problems=problems)


def _from_entries(found: Iterator[RunEntry], options: argparse.Namespace) -> RecordedSource:
    """Runs as rows, and for a page as many traces as it can hold."""
    from mat.core.errors import plural
    from mat.report.build import build
    from mat.report.page import RECORDS
    from mat.report.page.trace import Traced

    wants_traces = wants_page(options)
    rows: list[RunRow] = []
    traces: list[Traced] = []
    room = RECORDS if wants_traces else 0
    judged = 0
    for entry in found:
        rows.append(entry.row())
        judged += bool(entry.run.outcomes)
        if len(entry.run.records) <= room:
            room -= len(entry.run.records)
            traces.append(Traced.of(entry.run, name=_trace_name(entry.item, entry.run)))
    if not rows:
        raise SpecError(
            what=f"no trace in {', '.join(map(str, options.files))}", why="a report needs at least one recorded run",
            fix="record a run, or check the file", where=str(options.files[0]),
        )  # fmt: skip
    left = len(rows) - len(traces)
    notes = []
    if wants_traces and left:
        subject = f"{left} of {plural(len(rows), 'trace')} {'is' if left == 1 else 'are'}"
        notes.append(f"{subject} in the tables only: a page holds at most {RECORDS:,} steps")
    if not judged:
        notes.append("no contract judged these runs, so the report shows no violations: add --contracts MODULE:NAME")
    return RecordedSource(
        document=build(
            [], rows, sampling=sampling_of(options, rows), epsilon=options.epsilon, policies=options.policies or None
        ), traces=tuple(traces), notes=tuple(notes),
        alone=len(rows) == 1 == len(traces),
    )  # fmt: skip


POPULATIONS: Final[dict[str, Population]] = {"new-tasks": "new tasks", "these-tasks": "these tasks"}
"""What intervals can be for, by the word on the command line."""


def sampling_of(options: argparse.Namespace, rows: Sequence[RunRow]) -> Sampling:
    """What the options say about intervals. SpecError for independent runs that share draws."""
    from mat.measure.sampling import Sampling, check_independent

    if options.unit == "run":
        check_independent(rows)
    return Sampling(
        unit=options.unit, population=POPULATIONS[options.population], interval=options.interval, bootstrap=options.bootstrap
    )


def wants_page(options: argparse.Namespace) -> bool:
    """Whether the options ask for an HTML page."""
    return options.form == "html" or any(path.suffix.lower() == ".html" for path in options.out)


def nominal_runs(options: argparse.Namespace, document: Document) -> tuple[Traced, ...]:
    """The nominal runs to compare a page's counterexamples with, from the log that pytest --mat-store kept."""
    from mat.evidence import runlog
    from mat.report.page import undisturbed

    asked = [options.store] if options.store is not None else []
    folders = [folder / runlog.FOLDER for folder in (options.files[0].parent, Path())]
    log = next((folder for folder in (*asked, *folders) if os.path.isdir(folder)), None)
    found = [replay.counterexample.run for replay in document.counterexamples]
    if options.store is not None:
        check_files(options.store, fix="name the folder that pytest --mat-store wrote", folders=True)
    return () if log is None else undisturbed(found, nominal_runs_of(log, {run.spec.base for run in found}))


def nominal_runs_of(log: Path, bases: set[str]) -> Iterator[Run]:
    """Yield one nominal run of a log for each of these bases. Found bases are removed from `bases`."""
    from mat.evidence import runlog

    for entry in runlog.read(log):
        if not bases:
            return
        if not len(entry.run.spec.schedule) and entry.run.spec.base in bases:
            bases.remove(entry.run.spec.base)
            yield entry.run


def _trace_name(item: str, run: Run) -> str:
    return f"{item or 'trace'}, seed {run.spec.seed}"


def _store(options: argparse.Namespace) -> RecordedSource:
    """The metrics of each condition, category and variant, computed by the store."""
    from mat.report.document import Document, InfrastructureLine

    (path,) = options.files
    with undamaged(path), _open_store(path) as store:
        failed = store.query(
            "SELECT condition, infrastructure, count(*) FROM runs WHERE infrastructure <> '' GROUP BY ALL ORDER BY ALL"
        ).rows
        ((runs,),) = store.query("SELECT count(*) FROM runs").rows
        document = Document(
            runs=int(runs),
            evaluation=tuple(_evaluation_lines(store)),
            infrastructure=tuple(
                InfrastructureLine(condition=condition, reason=reason, runs=count) for condition, reason, count in failed
            ),
        )
    note = "the report of a store contains metrics only; items, counterexamples and curves are in the JSON report of a session"
    return RecordedSource(document=document, notes=(note,))


def _open_store(path: Path) -> Store:
    """Open a store for reading, updated from its log; exported files become a store in memory."""
    from mat.evidence.store import NAME, Store

    if path.name == NAME:
        return opened(argparse.Namespace(store=path.parent))
    return exported(path) if path.is_dir() or path.suffix.lower() == ".parquet" else Store(path, mode="read")


_ORDER: Final = ("nominal", "fault", "adversarial")


def _evaluation_lines(store: Store) -> list[EvaluationLine]:
    """A line for each category and one for all categories, as in the report of a session."""
    from mat.report.tables import ALL

    lines: list[EvaluationLine] = []
    for by in (("condition", "category", "variant"), ("condition", "variant")):
        names = ", ".join(f'"{name}"' for name in by)
        answer = store.query(f"SELECT {names}, count(DISTINCT item) FROM runs GROUP BY {names}")
        items = {tuple(row[:-1]): int(row[-1]) for row in answer.rows}
        for found in store.metrics(by):
            condition, *rest = found.group
            category, variant = rest if len(rest) == 2 else (ALL, *rest)
            if condition in _ORDER and category:
                lines.append(_evaluation_line(found, condition, category, variant, items=items.get(tuple(found.group), 0)))
    return sorted(lines, key=lambda line: (_ORDER.index(line.condition), line.category == ALL, line.category, line.variant))


def _evaluation_line(found: GroupMetrics, condition: str, category: str, variant: str, *, items: int) -> EvaluationLine:
    from mat.report.document import EvaluationLine, MetricLine, unit_of

    return EvaluationLine(
        condition=cast("RunCondition", condition), category=category, variant=variant, items=items,
        runs=found.runs + found.left_out, infrastructure=found.left_out, k=0,
        metrics=tuple(
            MetricLine(name=name, estimate=one, unit=unit_of(name))
            for name, one in found.metrics.items()
            if one.known
        ),
    )  # fmt: skip


SOURCES: Final[dict[SourceKind, Callable[[argparse.Namespace], RecordedSource]]] = {
    "report": _report, "replays": _replays, "traces": _traces, "log": _log, "store": _store,
}  # fmt: skip
