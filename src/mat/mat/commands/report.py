"""`mat report FILE...`: convert a report, or make one from replay files, recorded traces, a log or a store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.commands.shared import PASS, UNDER, USAGE, Add, check_files, complain, one_of, print_json, reading, width
from mat.commands.sources import POPULATIONS, SOURCES, RecordedSource, SourceKind, nominal_runs, wants_page
from mat.core.errors import SpecError

if TYPE_CHECKING:
    from mat.measure.regression import Regression
    from mat.measure.suite import Cover
    from mat.report.document import Document
    from mat.report.files import ReportExtras

_TEXT: Final = "convert a report to another format, or make one from replay files, recorded traces, a log or a store"
_EXAMPLES: Final = """mat report report.json                       (all tables, as text)
         mat report report.json --out report.html --out numbers.csv
         mat report report.json --baseline old.json --as md
         mat report report.json --out tables --as csv (a file for each table)
         mat report tests/mat_replays/*.mat.json --out failures.html
         mat report runs.mat.jsonl --out trace.html   (a trace in the viewer)
         mat report spans.jsonl.gz --format otlp --contracts shop.contracts:ALL
         mat report .mat/store                        (what --mat-store kept)
         mat report .mat/store/store.duckdb           (only the metrics)

what a report contains, by its source
  a report FILE.json: everything; the steps of counterexamples come from their replay files
  replay files: their counterexamples
  traces and logs: every number of their runs, but no search results
  a store or exported Parquet: the metrics of each category and variant
.csv and .parquet contain every number, one per line (table, item, condition, category, variant, subject, name, unit, value, \
low, high, n, confidence, method, text, sampling_unit, population)
exit codes: 0 the report is written, 2 a usage error, or a file that cannot be read or converted"""
_INTERVALS: Final = ("wilson", "clopper-pearson")
_BOOTSTRAPS: Final = ("percentile", "bca", "abc")
_NAMES: Final[dict[SourceKind, str]] = {
    "report": "a report", "replays": "a replay file", "traces": "a file of traces", "log": "a log", "store": "a store",
}  # fmt: skip
_RENDERED: Final = (".csv", ".md", ".html", ".txt")
_FORMS: Final = ("txt", "md", "json", "html", "csv", "parquet")
_FOLDERS: Final = ("csv", "parquet")


def add_parser(add: Add) -> None:
    parser = add("report", _TEXT, _EXAMPLES)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a report, replay files, traces, a log or a store")
    parser.add_argument("--schema", action=_PrintSchema, nargs=0, help="print the JSON schema of a report and exit")
    parser.add_argument(
        "--out", type=Path, action="append", default=[], metavar="FILE",
        help="write to FILE; the suffix selects the format (.html .md .json .csv .parquet .txt .sarif); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--as", dest="form", metavar="FORM", type=one_of(*_FORMS), choices=_FORMS,
        help="format to print (default txt); with --out FOLDER: csv or parquet, one file for each table",
    )  # fmt: skip
    parser.add_argument("--baseline", type=Path, metavar="OLD.json", help="add a comparison with this older report")
    parser.add_argument(
        "--under", type=one_of(*UNDER), choices=UNDER, default="nominal",
        help="with --baseline, the runs to compare: nominal (default), or faults: replays and searched schedules",
    )  # fmt: skip
    parser.add_argument(
        "--suite",
        action="store_true",
        help="in an HTML page, add the fewest replay files that cover all failures, as mat suite selects them",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FOLDER",
        help="in an HTML page, compare counterexamples with the nominal runs in this store (default: .mat/store, if any)",
    )  # fmt: skip
    parser.add_argument(
        "--format", metavar="NAME",
        help="format of recorded traces, if it cannot be detected from the first row: otlp, inspect, chat, mat, replay, or "
        "MODULE:NAME of your own importer",
    )  # fmt: skip
    parser.add_argument(
        "--contracts",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="judge recorded traces by these contracts; may be repeated",
    )
    add_sampling(parser)
    parser.add_argument(
        "--policies", action="append", default=[], metavar="CONTRACT",
        help="residual harm counts violations of these contracts (default: all hard ones); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--epsilon", type=_probability, metavar="P",
        help="verdict on unsafe actions (unsafe.declared): fail if they are more probable than P, pass if not, unknown if "
        "their interval contains P",
    )  # fmt: skip


def _probability(text: str) -> float:
    """An argument's type: a bound on a probability, from 0 to below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a probability from 0 to below 1")
    return value


class _PrintSchema(argparse.Action):
    """Prints the schema of JSON reports; no file is needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from mat.report.schema import schema_text

        print(schema_text(), end="")
        parser.exit(PASS)


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """The options that say what intervals are for."""
    parser.add_argument(
        "--unit", type=one_of("task", "run"), choices=("task", "run"), default="task",
        help="sampling unit of intervals and tests: task (default), or run, which assumes that all runs are independent and is "
        "refused if runs share random draws",
    )  # fmt: skip
    parser.add_argument(
        "--population", type=one_of(*POPULATIONS), choices=tuple(POPULATIONS), default="new-tasks",
        help="what intervals are for: new-tasks like these (default), or these-tasks on new seeds",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=one_of(*_INTERVALS), choices=_INTERVALS, default="wilson",
        help="interval of shares of independent runs: wilson (default) or clopper-pearson",
    )  # fmt: skip
    parser.add_argument(
        "--bootstrap", type=one_of(*_BOOTSTRAPS), choices=_BOOTSTRAPS,
        help="interval of means and ratios: percentile (default up to 1,000 runs), bca, or abc (analytic, default above)",
    )  # fmt: skip


def report(options: argparse.Namespace) -> int:
    _check(options)
    kind = _kind_of(options.files)
    _check_kind(options, kind)
    with reading(options.files[0]):
        source = SOURCES[kind](options)
    if kind in ("report", "replays") and wants_page(options):
        source = replace(source, traces=nominal_runs(options, source.document))
    extras, found = _extras(options, source)
    for note in source.notes:
        _note(note)
    written = _write(options, source, extras)
    if options.json:
        _print_json(options, source, found, written)
    elif written:
        for path in written:
            print(path)
    else:
        _print(options.form or "txt", source, extras)
    for problem in source.problems:
        complain(problem)
    return USAGE if source.problems else PASS


# -- checking the arguments -------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> None:
    """Refuse options that cannot work, before anything is read."""
    from mat.adapters.checking import check_format
    from mat.report.files import check_path

    check_format(options.format)
    check_files(*options.files, fix="name a report, replay files, recorded traces, a log or a store", folders=True)
    if options.baseline is not None:
        check_files(options.baseline, fix="name a report that pytest --mat-report FILE.json wrote")
    for path in options.out:
        if not _is_folder(path, options.form):
            check_path(path)
    if not options.out and options.form == "parquet":
        raise SpecError(what="--as parquet without --out", why="Parquet is a binary format", fix="add --out FILE.parquet")
    if options.json and options.form and not options.out:
        raise SpecError(what="--json with --as", why="both select what is printed", fix="omit one of them")


def _is_folder(path: Path, form: str | None) -> bool:
    return form in _FOLDERS and (path.is_dir() or not path.suffix)


def _kind_of(paths: Sequence[Path]) -> SourceKind:
    """The kind of the files; SpecError if they are of several kinds, or of one that cannot be read back."""
    rendered = [str(path) for path in paths if path.suffix.lower() in _RENDERED]
    if rendered:
        raise SpecError(
            what=f"{', '.join(rendered)}: a report cannot be read from this format",
            why="it contains the text of a report but not the data",
            fix="name the JSON report of the same session (pytest --mat-report FILE.json)", where=rendered[0],
        )  # fmt: skip
    kinds = {path: _kind(path) for path in paths}
    if len(set(kinds.values())) > 1:
        described = "; ".join(f"{path} is {_NAMES[kind]}" for path, kind in kinds.items())
        raise SpecError(what="files of several kinds", why=described, fix="run mat report once for each kind")
    kind = next(iter(kinds.values()))
    if len(paths) > 1 and kind in ("report", "store"):
        raise SpecError(
            what=f"{len(paths)} {kind}s", why=f"mat report reads one {kind} at a time",
            fix="compare two reports with --baseline OLD.json" if kind == "report" else "merge them with mat import",
        )  # fmt: skip
    return kind


def _kind(path: Path) -> SourceKind:
    from mat.evidence import replay_file, runlog
    from mat.report.from_json import is_report, read_data

    name = path.name.lower()
    if path.is_dir():
        return "store" if any(path.glob("runs-*.parquet")) else "log"
    if name.endswith(replay_file.SUFFIX):
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
    if kind in ("report", "store"):
        defaults: tuple[tuple[str, object, object], ...] = (
            ("--unit", options.unit, "task"), ("--population", options.population, "new-tasks"),
            ("--interval", options.interval, "wilson"), ("--bootstrap", options.bootstrap, None),
            ("--epsilon", options.epsilon, None), ("--policies", ", ".join(options.policies), ""),
        )  # fmt: skip
        problems += [f"{name} {given} with {_NAMES[kind]}" for name, given, default in defaults if given != default]
    if options.baseline is not None and kind != "report":
        problems.append(f"--baseline with {_NAMES[kind]}")
    if problems:
        raise SpecError(
            what="; ".join(problems),
            why="--format and --contracts apply to recorded traces, --baseline to a report; --unit, --population, --interval "
            "and --bootstrap to runs (traces, or the folder that --mat-store wrote)",
            fix="omit the option",
        )  # fmt: skip


# -- writing the report -----------------------------------------------------------------------------------------------


def _extras(options: argparse.Namespace, source: RecordedSource) -> tuple[ReportExtras, Regression | None]:
    from mat.report.files import ReportExtras

    cover = _suite(source.document) if options.suite else None
    if options.baseline is None:
        return ReportExtras(traces=source.traces, suite=cover), None
    from mat.measure.regression import compare
    from mat.report.from_json import read

    with reading(options.baseline):
        old = read(options.baseline)
    found = compare(old.tables.outcomes, source.document.outcomes, under=options.under)
    if not found.runs:
        raise SpecError(
            what=f"{options.baseline} and the report share no runs", why="runs are matched by item, seed and schedule",
            fix="report the same tests from the same folder, with --mat-report FILE.json",
        )  # fmt: skip
    names = (str(options.baseline), str(options.files[0]))
    return ReportExtras(regression=found, names=names, traces=source.traces, suite=cover), found


def _suite(document: Document) -> Cover:
    """Select a regression suite among the counterexamples whose steps are known."""
    from mat.measure.suite import candidates, select

    files = {line.id: iter(line.replays) for line in document.items}
    by_file = [(next(files.get(replay.item, iter(())), ""), replay.counterexample) for replay in document.counterexamples]
    found = {name: counterexample for name, counterexample in by_file if name and counterexample.run.records}
    if not found:
        raise SpecError(
            what="no replay file was found for --suite", why="a suite is selected among replay files",
            fix="run pytest --mat-stress, and keep mat_replays/ next to the tests",
        )  # fmt: skip
    return select(candidates(found))


def _write(options: argparse.Namespace, source: RecordedSource, extras: ReportExtras) -> list[Path]:
    from mat.report.files import form_of, write_bytes, write_folder

    written: list[Path] = []
    for path in options.out:
        if _is_folder(path, options.form):
            written += write_folder(source.document, path, options.form)
        else:
            write_bytes(path, _rendered(form_of(path), source, extras))
            written.append(path)
    return written


def _rendered(form: str, source: RecordedSource, extras: ReportExtras) -> bytes:
    """The report in one format. JSON of a report stays as it was read; the page of a single trace is only the viewer."""
    from mat.report.files import rendered

    if form == "json" and source.data is not None:
        import json

        return (json.dumps(source.data, ensure_ascii=True, indent=1) + "\n").encode()
    if form == "html" and source.alone:
        from mat.report.page import trace_page

        return trace_page(source.traces, title=source.traces[0].name).encode()
    return rendered(source.document, form, extras)


def _print(form: str, source: RecordedSource, extras: ReportExtras) -> None:
    """Print text as wide as the terminal (80 columns without one); print any other format as it is written to a file."""
    if form != "txt":
        print(_rendered(form, source, extras).decode(), end="")
        return
    from mat.report.regression import regression_blocks
    from mat.report.terminal import blocks_in_text, report_text

    columns = width()
    print(report_text(source.document, width=columns), end="")
    if extras.regression is not None:
        print("\n" + blocks_in_text(regression_blocks(extras.regression, names=extras.names), width=columns), end="")


def _print_json(options: argparse.Namespace, source: RecordedSource, found: Regression | None, written: Sequence[Path]) -> None:
    from mat.report.regression import regression_data
    from mat.report.to_json import as_data

    if written:
        print_json({"files": [path.as_posix() for path in written], "runs": source.document.runs, "notes": list(source.notes)})
        return
    data = as_data(source.document) if source.data is None else source.data
    print_json(data if found is None else {**data, "comparison": regression_data(found)})


def _note(text: str) -> None:
    from mat.core.errors import printable

    print(f"mat: {printable(text)}", file=sys.stderr)
