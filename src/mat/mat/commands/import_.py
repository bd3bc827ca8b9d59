"""`mat import FILE...`: add recorded runs to the store, from logs, exports, replay files and traces of any known format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from mat.commands.recorded import RecordedOptions, entries, judging
from mat.commands.shared import PASS, USAGE, Add, check_files, complain, one_of, print_json, reading
from mat.commands.stores import add_store, file_of, lost, say, undamaged
from mat.core.errors import MatError, SpecError
from mat.measure.rows import RunCondition
from mat.measure.workload import InputCategory

if TYPE_CHECKING:
    from mat.evidence.runlog import RunEntry
    from mat.evidence.store import Store, Taken
    from mat.monitor.contract import Contract

_TEXT: Final = "add recorded runs to the store, from logs, exports, replay files and traces of any format that mat check reads"
_EXAMPLES: Final = """mat import runs.mat.jsonl --category tools
         mat import spans.jsonl.gz --format otlp --contracts shop.contracts:ALL
         mat import tests/mat_replays/*.mat.json
         mat import other-machine/.mat/store exports/*.parquet
         mat import --rebuild             (rebuilds the store, with its imports)

a run that is already in the store is not added again; with another --session it counts as another run
exit codes: 0 everything is imported, 2 a usage error or an unreadable file (runs before the damage are imported)"""
_CONDITIONS: Final = get_args(RunCondition)
_INPUTS: Final = get_args(InputCategory)


def add_parser(add: Add) -> None:
    parser = add("import", _TEXT, _EXAMPLES)
    parser.set_defaults(name="import_")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="files to import, or folders of logs or exports")
    add_store(parser)
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="first rebuild the store from its log and from the exports that were imported, even if the store is damaged",
    )
    parser.add_argument(
        "--format", metavar="NAME",
        help="format of recorded traces, if it cannot be detected from the first row: otlp, inspect, chat, mat, replay, or "
        "MODULE:NAME of your own importer",
    )  # fmt: skip
    parser.add_argument(
        "--contracts", action="append", default=[], metavar="MODULE:NAME",
        help="judge recorded traces by these contracts and store their violations; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--session", default="", metavar="NAME", help="the session of the runs (default: 'import' and the file name)"
    )
    parser.add_argument(
        "--condition", type=one_of(*_CONDITIONS), choices=_CONDITIONS, help="condition of recorded traces (default nominal)"
    )
    parser.add_argument("--category", default="", metavar="NAME", help="category for recorded traces without one")
    parser.add_argument(
        "--input", type=one_of("", *_INPUTS), choices=_INPUTS, default="", help="input category of recorded traces"
    )
    parser.add_argument("--variant", default="", metavar="NAME", help="governance variant for recorded traces without one")


def import_(options: argparse.Namespace) -> int:
    from mat.evidence.store import Store, Taken

    _check(options)
    log = Path(options.store)
    contracts = judging(options.contracts)
    if options.rebuild:
        say(Store.rebuild(file_of(options), *([log] if log.is_dir() else [])).findings)
    imported: list[tuple[Path, Taken]] = []
    problems: list[MatError] = []
    with undamaged(file_of(options)), Store(file_of(options)) as store:
        if log.is_dir():
            say(store.merge(log).findings)
        for path in options.files:
            before = _run_count(store)
            try:
                with reading(path, fix="record it again, or name its format with --format"):
                    taken = _import_source(store, path, log, options, contracts)
            except MatError as error:
                complain(error)
                problems.append(error)
                taken = store.merge(log) if log.is_dir() else Taken()
                taken = replace(taken, new=_run_count(store) - before)
            lost_files = lost(taken.findings, *([] if path.is_dir() else [path]))
            for problem in lost_files:
                complain(problem)
            problems += lost_files
            say([finding for finding in taken.findings if finding.message not in {problem.what for problem in lost_files}])
            imported.append((path, taken))
        runs = _run_count(store)
    _report(options, imported, runs, problems)
    return USAGE if problems else PASS


def _check(options: argparse.Namespace) -> None:
    from mat.adapters.checking import check_format

    check_format(options.format)
    if not options.files and not options.rebuild:
        raise SpecError(what="nothing to import", fix="name files, or use --rebuild to rebuild the store from its log")
    check_files(*options.files, fix="name recorded runs, a log or an export", folders=True)


def _run_count(store: Store) -> int:
    return int(store.query("SELECT count(*) FROM runs").rows[0][0])


def _report(
    options: argparse.Namespace, imported: Sequence[tuple[Path, Taken]], runs: int, problems: Sequence[MatError]
) -> None:
    from mat.commands.shared import error_data
    from mat.core.errors import plural

    if options.json:
        files = [
            {"file": str(path), "new": taken.new, "known": taken.known, "findings": [item.message for item in taken.findings]}
            for path, taken in imported
        ]
        print_json({"files": files, "runs": runs, "problems": [error_data(error) for error in problems]})
        return
    for path, taken in imported:
        known = f", {taken.known} already in the store" if taken.known else ""
        print(f"{path}: {plural(taken.new, 'new run')}{known}")
    print(f"{options.store}: {plural(runs, 'run')}")


# -- one source -------------------------------------------------------------------------------------------------------


def _import_source(store: Store, path: Path, log: Path, options: argparse.Namespace, contracts: Sequence[Contract]) -> Taken:
    """Import one source. Runs go to the store's log, an export is kept next to it: the store can be rebuilt from both."""
    from mat.evidence import runlog
    from mat.evidence.store import Taken

    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("runs-*.parquet"))):
        return store.keep(path, log)
    if path.is_dir() or path.name.endswith(runlog.SUFFIX):
        if path.resolve() in (log.resolve(), *(shard.resolve() for shard in (runlog.shards(log) if log.is_dir() else ()))):
            return Taken(known=sum(1 for _ in runlog.read(path)))  # the store's own log, merged above
        found = runlog.read(path)
        if not found.paths:
            raise SpecError(
                what=f"{path} contains no log and no exported runs", why="no file in it is a log or an export",
                fix="name the folder that pytest --mat-store (.mat/store) or mat export wrote", where=str(path),
            )  # fmt: skip
        return replace(_import_entries(store, found, log), findings=found.findings)
    return _import_entries(store, entries(path, _recorded_options(options), contracts), log)


def _recorded_options(options: argparse.Namespace) -> RecordedOptions:
    return RecordedOptions(
        format=options.format, session=options.session, condition=options.condition, category=options.category,
        input=options.input, variant=options.variant,
    )  # fmt: skip


def _import_entries(store: Store, source: Iterator[RunEntry] | Any, log: Path) -> Taken:
    """Append new runs to the store's log, and merge the log into the store."""
    from mat.evidence.runlog import RunLog
    from mat.evidence.store import Taken

    read = 0

    def counted() -> Iterator[RunEntry]:
        nonlocal read
        for entry in source:
            read += 1
            yield entry

    with RunLog(log, session="import") as ours:
        for entry in store.missing(counted()):
            ours.append(entry)
    new = store.merge(log).new if log.is_dir() else 0
    return Taken(new=new, known=read - new)
