"""`mat diff A B`: the first differing step of two replay files, or the regressions between two reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from mat.commands.shared import PASS, VIOLATION, print_json
from mat.core.errors import MatError, SpecError
from mat.evidence import artifact


def diff(options: argparse.Namespace) -> int:
    _check_that_they_are_there(options.one, options.other)
    reports = [_is_report(path) for path in (options.one, options.other)]
    if all(reports):
        return _reports(options)
    if any(reports):
        report, other = (options.one, options.other) if reports[0] else (options.other, options.one)
        raise SpecError(
            what=f"{report.name} is a report and {other.name} is none", why="only two of a kind can be compared",
            fix="give two replay files, or two reports of pytest --mat-report FILE.json",
        )  # fmt: skip
    if options.under != "nominal":
        raise SpecError(what="--under with two replay files", why="it chooses runs of a report", fix="leave it out")
    return _replays(options)


def _check_that_they_are_there(*paths: Path) -> None:
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise SpecError(
            what=f"no such file: {', '.join(missing)}",
            fix="give two replay files, or two reports of pytest --mat-report FILE.json",
        )


def _is_report(path: Path) -> bool:
    """A file that cannot be read is none: reading it as a replay file says why."""
    from mat.report.document import is_report, read_data

    if path.name.endswith(artifact.SUFFIX) or path.suffix.lower() != ".json":
        return False
    try:
        return is_report(read_data(path))
    except MatError:
        return False


def _reports(options: argparse.Namespace) -> int:
    from mat.measure.regression import compare
    from mat.report.document import read
    from mat.report.regression import regression_data, regression_text
    from mat.report.words import plural

    old, new = (read(path) for path in (options.one, options.other))
    found = compare(old.tables.outcomes, new.tables.outcomes, under=options.under)
    if not found.runs:
        raise SpecError(
            what=f"the reports share no run ({found.unmatched_old} in {options.one.name}, {found.unmatched_new} in the other)",
            why="runs are matched by item, seed and schedule"
            + ("; under faults there are replays and searched schedules" if options.under == "faults" else ""),
            fix="report the same tests from the same folder, with --mat-report FILE.json",
        )
    if options.json:
        print_json(regression_data(found))
    else:
        print(regression_text(found, names=(str(options.one), str(options.other))), end="")
        if options.under == "nominal":
            faults = compare(old.tables.outcomes, new.tables.outcomes, under="faults").runs
            if faults:
                print(f"{plural(faults, 'run')} under faults in both, not compared here: add --under faults")
    return VIOLATION if found.regressed else PASS


def _replays(options: argparse.Namespace) -> int:
    from mat.evidence.replay import first_difference
    from mat.report.terminal import difference_text

    one, other = (artifact.read(path).counterexample.run for path in (options.one, options.other))
    found = first_difference(one, other)
    if options.json:
        names = ("step", "aspect", "recorded", "again", "cause")
        print_json({"equal": found is None, "difference": found and {name: getattr(found, name) for name in names}})
    elif found is None:
        print(f"the same run: {len(one.records)} equal steps, head {one.head[:12]}")
    else:
        print(difference_text(found, one, other, names=(str(options.one), str(options.other))))
    return PASS if found is None else VIOLATION
