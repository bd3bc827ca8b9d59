"""`mat diff A B`: show the first step at which two replay files differ, or the regressions between two reports."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from mat.commands.shared import PASS, VIOLATION, check_files, print_json, reading, replay_of, width
from mat.core.errors import SpecError
from mat.evidence import replay_file

_FIX: Final = "give two replay files, or two reports of pytest --mat-report FILE.json"


def diff(options: argparse.Namespace) -> int:
    paths = (options.one, options.other)
    check_files(*paths, fix=_FIX)
    reports = [_is_report(path) for path in paths]
    if all(reports):
        return _compare_reports(options)
    if any(reports):
        report, other = paths if reports[0] else reversed(paths)
        raise SpecError(
            what=f"{report.name} is a report and {other.name} is a replay file", why="both files must be of the same kind",
            fix=_FIX, where=f"{options.one}, {options.other}",
        )  # fmt: skip
    if options.under != "nominal":
        raise SpecError(
            what="--under cannot be combined with two replay files", why="--under selects runs of reports", fix="omit --under"
        )
    return _compare_replays(options)


def _is_report(path: Path) -> bool:
    """Whether the file is a report; False for a replay file, SpecError for anything else."""
    from mat.report.from_json import is_report, read_data

    if path.name.endswith(replay_file.SUFFIX) or path.suffix.lower() != ".json":
        return False
    with reading(path, fix=_FIX):
        data = read_data(path)
    if is_report(data):
        return True
    if not isinstance(data, dict) or "verdict" not in data:
        raise SpecError(
            what=f"{path.name} is neither a replay file nor a report",
            why="a report has items and tables, and a replay file has a verdict",
            fix=_FIX, where=str(path),
        )  # fmt: skip
    return False


def _compare_reports(options: argparse.Namespace) -> int:
    from mat.core.errors import plural
    from mat.measure.regression import compare
    from mat.report.from_json import read
    from mat.report.regression import regression_blocks, regression_data
    from mat.report.terminal import blocks_in_text

    with reading(options.one, fix=_FIX):
        old = read(options.one)
    with reading(options.other, fix=_FIX):
        new = read(options.other)
    found = compare(old.tables.outcomes, new.tables.outcomes, under=options.under)
    if not found.runs:
        raise SpecError(
            what=f"the reports share no runs ({found.unmatched_old} in {options.one.name}, {found.unmatched_new} in the other)",
            why="runs are matched by item, seed and schedule"
            + ("; under faults there are replays and searched schedules" if options.under == "faults" else ""),
            fix="report the same tests from the same folder, with --mat-report FILE.json",
            where=f"{options.one}, {options.other}",
        )  # fmt: skip
    if options.json:
        print_json(regression_data(found))
    else:
        print(blocks_in_text(regression_blocks(found, names=(str(options.one), str(options.other))), width=width()), end="")
        if options.under == "nominal":
            faults = compare(old.tables.outcomes, new.tables.outcomes, under="faults").runs
            if faults:
                print(f"{plural(faults, 'run')} under faults in both reports, not compared here: add --under faults")
    return VIOLATION if found.regressed else PASS


def _compare_replays(options: argparse.Namespace) -> int:
    from mat.core.difference import first_difference
    from mat.core.errors import plural
    from mat.report.terminal import difference_text

    one, other = (replay_of(path).counterexample.run for path in (options.one, options.other))
    found = first_difference(one, other)
    if options.json:
        names = ("step", "aspect", "recorded", "again", "cause")
        print_json({"equal": found is None, "difference": found and {name: getattr(found, name) for name in names}})
    elif found is None:
        print(f"the same run: {plural(len(one.records), 'equal step')}, head {one.head[:12]}")
    else:
        print(difference_text(found, one, other, names=(str(options.one), str(options.other)), width=width()))
    return PASS if found is None else VIOLATION
