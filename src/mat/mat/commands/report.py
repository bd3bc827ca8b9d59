"""`mat report FILE...`: a report in another form; and replay files, stored traces, logs and stores as a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.commands.shared import PASS, UNDER, USAGE, Add, check_files, complain, one_of, print_json, reading, width
from mat.commands.sources import SOURCES, RecordedSource, SourceKind, undisturbed_runs, wants_page
from mat.core.errors import SpecError

if TYPE_CHECKING:
    from mat.measure.regression import Regression
    from mat.measure.suite import Cover
    from mat.report.document import Document
    from mat.report.files import Besides

_TEXT: Final = "tell a report in another form; make one from replay files, stored traces, a log or a store"
_EXAMPLES: Final = """mat report report.json                       (all tables, as text)
         mat report report.json --out report.html --out numbers.csv
         mat report report.json --baseline old.json --as md
         mat report report.json --out tables --as csv (a file for each table)
         mat report tests/mat_replays/*.mat.json --out failures.html
         mat report runs.mat.jsonl --out trace.html   (a trace in the viewer)
         mat report spans.jsonl.gz --format otlp --contracts shop.contracts:ALL
         mat report .mat/store                        (what --mat-store kept)
         mat report .mat/store/store.duckdb           (its metrics alone)

what there is
  a report FILE.json: everything; the steps of its counterexamples are in their replay files
  replay files: their counterexamples
  traces and logs: every number of their runs, but no search
  a store or exported Parquet: the metrics of each category and variant
.csv and .parquet hold every number, one a line (table, item, condition, category, variant, subject, name, unit, value, low, \
high, n, confidence, method, text)
exit codes: 0 the report is told, 2 a wrong option, or a file that cannot be read or told so"""
_NAMES: Final[dict[SourceKind, str]] = {
    "report": "a report", "replays": "a replay file", "traces": "a file of traces", "log": "a log", "store": "a store",
}  # fmt: skip
_RENDERED: Final = (".csv", ".md", ".html", ".txt")
_FORMS: Final = ("txt", "md", "json", "html", "csv", "parquet")
_FOLDERS: Final = ("csv", "parquet")


def add_parser(add: Add) -> None:
    parser = add("report", _TEXT, _EXAMPLES)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a report, or replay files, traces, a log, a store")
    parser.add_argument(
        "--out", type=Path, action="append", default=[], metavar="FILE",
        help="write there, in the form of its suffix (.html .md .json .csv .parquet .txt); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--as", dest="form", metavar="FORM", type=one_of(*_FORMS), choices=_FORMS,
        help="what is printed (default txt); with --out FOLDER: csv or parquet, a file for each table",
    )  # fmt: skip
    parser.add_argument("--baseline", type=Path, metavar="OLD.json", help="compare with this report, and tell that too")
    parser.add_argument(
        "--under", type=one_of(*UNDER), choices=UNDER, default="nominal",
        help="runs that are compared with the baseline: undisturbed (default), or replays and searched schedules",
    )  # fmt: skip
    parser.add_argument(
        "--suite",
        action="store_true",
        help="in a page, also the fewest replays that cover all failures, as mat suite selects them",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FOLDER",
        help="in a page of counterexamples, compare with the undisturbed runs kept there (default: .mat/store, if it is there)",
    )  # fmt: skip
    parser.add_argument(
        "--format", metavar="NAME",
        help="the format of recorded traces, where the first row does not tell: otlp, inspect, chat, mat, replay, or "
        "MODULE:NAME of your own",
    )  # fmt: skip
    parser.add_argument(
        "--contracts", action="append", default=[], metavar="MODULE:NAME", help="judge traces by these; may be repeated"
    )


def report(options: argparse.Namespace) -> int:
    _check(options)
    kind = _kind_of(options.files)
    _check_kind(options, kind)
    with reading(options.files[0]):
        source = SOURCES[kind](options)
    if kind in ("report", "replays") and wants_page(options):
        source = replace(source, traces=undisturbed_runs(options, source.document))
    besides, found = _besides(options, source)
    for note in source.notes:
        _note(note)
    written = _write(options, source, besides)
    if options.json:
        _print_json(options, source, found, written)
    elif written:
        for path in written:
            print(path)
    else:
        _print(options.form or "txt", source, besides)
    for problem in source.problems:
        complain(problem)
    return USAGE if source.problems else PASS


# -- what is asked ----------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> None:
    """What cannot work, before anything is read."""
    from mat.adapters.checking import check_format
    from mat.report.files import check_path

    check_format(options.format)
    check_files(*options.files, fix="give a report, replay files, stored traces, a log or a store", folders=True)
    if options.baseline is not None:
        check_files(options.baseline, fix="give a report that pytest --mat-report FILE.json wrote")
    for path in options.out:
        if not _is_folder(path, options.form):
            check_path(path)
    if not options.out and options.form == "parquet":
        raise SpecError(what="--as parquet without --out", why="Parquet is no text", fix="add --out FILE.parquet")
    if options.json and options.form and not options.out:
        raise SpecError(what="--json with --as", why="each says what is printed", fix="leave one out")


def _is_folder(path: Path, form: str | None) -> bool:
    return form in _FOLDERS and (path.is_dir() or not path.suffix)


def _kind_of(paths: Sequence[Path]) -> SourceKind:
    """What the files are; SpecError where they are of several kinds, or of one that cannot be read back."""
    rendered = [str(path) for path in paths if path.suffix.lower() in _RENDERED]
    if rendered:
        raise SpecError(
            what=f"{', '.join(rendered)}: a report cannot be read back from that form",
            why="it holds what a report says, and not what that was made from",
            fix="give the JSON report of the same session (pytest --mat-report FILE.json)", where=rendered[0],
        )  # fmt: skip
    kinds = {path: _kind(path) for path in paths}
    if len(set(kinds.values())) > 1:
        named = "; ".join(f"{path} is {_NAMES[kind]}" for path, kind in kinds.items())
        raise SpecError(what="files of several kinds", why=named, fix="tell them one kind after another")
    kind = next(iter(kinds.values()))
    if len(paths) > 1 and kind in ("report", "store"):
        raise SpecError(
            what=f"{len(paths)} {kind}s", why=f"one {kind} is told at a time",
            fix="add --baseline OLD.json to compare two reports" if kind == "report" else "mat import them into one store",
        )  # fmt: skip
    return kind


def _kind(path: Path) -> SourceKind:
    from mat.evidence import artifact, runlog
    from mat.report.from_json import is_report, read_data

    name = path.name.lower()
    if path.is_dir():
        return "store" if any(path.glob("runs-*.parquet")) else "log"
    if name.endswith(artifact.SUFFIX):
        return "replays"
    if name.endswith(runlog.SUFFIX):
        return "log"
    if path.suffix.lower() in (".duckdb", ".parquet"):
        return "store"
    if path.suffix.lower() == ".json":
        with reading(path):
            return "report" if is_report(read_data(path)) else "traces"
    return "traces"


def _check_kind(options: argparse.Namespace, kind: SourceKind) -> None:
    problems = []
    if kind != "traces":
        problems += [
            f"{name} with {_NAMES[kind]}" for name, given in (("--format", options.format), ("--contracts", options.contracts))
            if given
        ]  # fmt: skip
    if options.baseline is not None and kind != "report":
        problems.append(f"--baseline with {_NAMES[kind]}")
    if problems:
        raise SpecError(
            what="; ".join(problems), why="--format and --contracts are about traces, --baseline about a report",
            fix="leave it out",
        )  # fmt: skip


# -- what is told -----------------------------------------------------------------------------------------------------


def _besides(options: argparse.Namespace, source: RecordedSource) -> tuple[Besides, Regression | None]:
    from mat.report.files import Besides

    cover = _suite(source.document) if options.suite else None
    if options.baseline is None:
        return Besides(traces=source.traces, suite=cover), None
    from mat.measure.regression import compare
    from mat.report.from_json import read

    with reading(options.baseline):
        old = read(options.baseline)
    found = compare(old.tables.outcomes, source.document.outcomes, under=options.under)
    if not found.runs:
        raise SpecError(
            what=f"{options.baseline} and the report share no run", why="runs are matched by item, seed and schedule",
            fix="report the same tests from the same folder, with --mat-report FILE.json",
        )  # fmt: skip
    names = (str(options.baseline), str(options.files[0]))
    return Besides(regression=found, names=names, traces=source.traces, suite=cover), found


def _suite(document: Document) -> Cover:
    """The regression suite among the counterexamples that have their steps."""
    from mat.measure.suite import candidates, select

    files = {line.id: iter(line.replays) for line in document.items}
    named = [(next(files.get(replay.item, iter(())), ""), replay.counterexample) for replay in document.counterexamples]
    found = {name: counterexample for name, counterexample in named if name and counterexample.run.records}
    if not found:
        raise SpecError(
            what="--suite without a replay file", why="a suite is selected among replay files, and none was found",
            fix="run pytest --mat-stress, and keep mat_replays/ beside its tests",
        )  # fmt: skip
    return select(candidates(found))


def _write(options: argparse.Namespace, source: RecordedSource, besides: Besides) -> list[Path]:
    from mat.report.files import form_of, write_bytes, write_folder

    written: list[Path] = []
    for path in options.out:
        if _is_folder(path, options.form):
            written += write_folder(source.document, path, options.form)
        else:
            write_bytes(path, _rendered(form_of(path), source, besides))
            written.append(path)
    return written


def _rendered(form: str, source: RecordedSource, besides: Besides) -> bytes:
    """A report that was read is given back as JSON as it was; a trace alone is a page of the viewer."""
    from mat.report.files import rendered

    if form == "json" and source.data is not None:
        import json

        return (json.dumps(source.data, ensure_ascii=True, indent=1) + "\n").encode()
    if form == "html" and source.alone:
        from mat.report.page import trace_page

        return trace_page(source.traces, title=source.traces[0].name).encode()
    return rendered(source.document, form, besides)


def _print(form: str, source: RecordedSource, besides: Besides) -> None:
    """Text of the width that is told, else of 80 columns; every other form as it is written to a file."""
    if form != "txt":
        print(_rendered(form, source, besides).decode(), end="")
        return
    from mat.report.regression import regression_blocks
    from mat.report.terminal import told, whole

    columns = width()
    print(whole(source.document, width=columns), end="")
    if besides.regression is not None:
        print("\n" + told(regression_blocks(besides.regression, names=besides.names), width=columns), end="")


def _print_json(options: argparse.Namespace, source: RecordedSource, found: Regression | None, written: Sequence[Path]) -> None:
    from mat.report.regression import regression_data
    from mat.report.to_json import as_data

    if written:
        print_json({"files": [path.as_posix() for path in written], "runs": source.document.runs, "notes": list(source.notes)})
        return
    data = as_data(source.document) if source.data is None else source.data
    print_json(data if found is None else {**data, "comparison": regression_data(found)})


def _note(text: str) -> None:
    from mat.evidence.artifact import printable

    print(f"mat: {printable(text)}", file=sys.stderr)
