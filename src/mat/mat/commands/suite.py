"""`mat suite`: select the fewest replay files that cover all failures, and some passing tests."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.commands.baseline import REPLAY
from mat.commands.shared import (
    PASS,
    USAGE,
    VIOLATION,
    check_files,
    complain,
    error_data,
    print_json,
    reading,
    replay_of,
    width,
    write_text,
)
from mat.core.errors import MatError, SpecError
from mat.evidence import replay_file

if TYPE_CHECKING:
    from mat.measure.suite import NominalChoice
    from mat.report.suite import SuiteReport

EXACT_LIMIT: Final = 2_000
"""The default of --exact-limit: with more replay files than this, the selection is greedy."""
_REPORT: Final = "name a report that pytest --mat-report FILE.json wrote"
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "build", "dist"})


def suite(options: argparse.Namespace) -> int:
    from mat.report import words
    from mat.report.suite import how_to_run, suite_data, suite_text

    report = _select(options)
    for problem in report.refused:
        complain(MatError(problem["what"], why=problem["why"], fix=problem["fix"], where=problem["where"]))
    if options.write:
        write_text(options.write, "".join(f"{one}\n" for one in report.ids))
    if options.json:
        print_json(suite_data(report))
    elif options.list:
        print("".join(f"{one}\n" for one in report.ids), end="")
    else:
        print(suite_text(report, width=width()), end="")
        if report.ids:
            written = shlex.quote(str(options.write)) if options.write else ""
            print("\n" + words.clean(how_to_run(report, selected=_command(options), file=written)))
    return USAGE if report.refused else VIOLATION if report.uncovered else PASS


def _command(options: argparse.Namespace) -> str:
    """The command line that makes the same selection."""
    command = ["mat", "suite", *map(str, options.paths)]
    if options.report:
        command += ["--report", str(options.report)]
    if options.passes != 1:
        command += ["--passes", str(options.passes)]
    if options.representative:
        command.append("--representative")
    if options.exact_limit != EXACT_LIMIT:
        command += ["--exact-limit", str(options.exact_limit)]
    return shlex.join(command)


def _select(options: argparse.Namespace) -> SuiteReport:
    from mat.measure.suite import candidates, nominal_passes, select
    from mat.report.from_json import read
    from mat.report.suite import SuiteReport

    reported = None
    if options.report:
        check_files(options.report, fix=_REPORT)
        with reading(options.report, fix=_REPORT):
            reported = read(options.report)
    replays, refused = _read_replays(_replay_files(options.paths or [Path()]))
    found = {path: replay.counterexample for path, replay in replays.items()}
    made = candidates(found, representative=options.representative)
    covered = {unit.key[0] for one in made for unit in one.units if unit.kind == "contract"}
    nominal: tuple[NominalChoice, ...] = ()
    categories: dict[str, str] = {}
    uncovered: list[str] = []
    if reported is not None:
        categories = {item.id: item.category for item in reported.items if not REPLAY.search(item.id)}
        nominal = nominal_passes(categories, reported.tables.outcomes, each=options.passes)
        hard = {line.contract for line in reported.tables.violations if line.severity == "hard"}
        uncovered = sorted(hard - covered)
    if not made and not refused and not nominal:
        raise SpecError(
            what="no replay files" + (" and no passing test in the report" if reported else ""),
            why=f"searched for {replay_file.FOLDER}/*{replay_file.SUFFIX} "
            f"in {', '.join(map(str, options.paths)) or 'this folder'}",
            fix="run pytest --mat-stress, which writes one for each counterexample",
        )
    return SuiteReport(
        cover=select(made, exact_limit=options.exact_limit),
        nodes={path: node_id(Path(path), replay) for path, replay in replays.items()},
        flaky={path: (one.stability.reproduced, one.stability.runs) for path, one in found.items() if one.flaky},
        nominal=tuple(replace(choice, item=_relative_to_here(choice.item)) for choice in nominal),
        short=_incomplete_categories(categories.values(), nominal, options.passes),
        uncovered=tuple(uncovered),
        refused=tuple(refused),
    )


def _incomplete_categories(
    categories: Iterable[str], nominal: Sequence[NominalChoice], asked: int
) -> tuple[tuple[str, int, int], ...]:
    """Categories with fewer passing tests than asked for: (category, passing, asked)."""
    passing = {item.category: item.passing for item in nominal}
    return tuple((name, passing.get(name, 0), asked) for name in sorted(set(categories)) if passing.get(name, 0) < asked)


def _replay_files(paths: Iterable[Path]) -> list[Path]:
    """The replay files that `paths` name or that folders among them contain, each once, sorted by path."""
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _replay_files_in(path) if os.path.isdir(path) else [path]:
            found.setdefault(Path(os.path.realpath(file)), file)
    return sorted(found.values(), key=lambda file: file.as_posix())


def _replay_files_in(folder: Path) -> Iterator[Path]:
    if folder.name == replay_file.FOLDER or folder.resolve().name == replay_file.FOLDER:
        yield from replay_file.find(folder.resolve().parent)
        return
    for place, folders, _ in os.walk(folder):
        here = Path(place)
        if replay_file.FOLDER in folders:
            yield from replay_file.find(here)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in (*_SKIPPED, replay_file.FOLDER)
            and not (here / name / "pyvenv.cfg").exists()
        )


def _read_replays(files: Iterable[Path]) -> tuple[dict[str, replay_file.Replay], list[dict[str, str]]]:
    """Replays by path, and the error of each file that cannot be read."""
    replays, refused = {}, []
    for file in files:
        try:
            replays[file.as_posix()] = replay_of(file)
        except MatError as error:
            refused.append(error_data(error))
    return replays, refused


def node_id(path: Path, replay: replay_file.Replay) -> str:
    """The node id of the replay's item, relative to this folder: that of its test with [replay-3f2a91]."""
    module, _, rest = replay.item.partition("::")
    folder = path.resolve().parent
    original = folder.parent / Path(module).name
    if folder.name == replay_file.FOLDER and original.is_file():
        module = Path(os.path.relpath(original)).as_posix()
    label = f"replay-{replay_file.short_id(replay)}"
    return f"{module}::{rest[:-1]}-{label}]" if rest.endswith("]") else f"{module}::{rest}[{label}]"


def _relative_to_here(item: str) -> str:
    """A node id of a report, relative to this folder: in a report, node ids are relative to the root of its session."""
    module, separator, rest = item.partition("::")
    parts = Path(module).parts
    for start in range(len(parts)):
        if Path(*parts[start:]).is_file():
            return f"{Path(*parts[start:]).as_posix()}{separator}{rest}"
    return item
