"""`mat compare A B`: is B better than A, on what kind of task, and how sure is that?"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mat.commands.report import add_sampling
from mat.commands.shared import PASS, Add, one_of, print_json, reading, width
from mat.commands.sources import sampling_of
from mat.core.errors import SpecError, plural
from mat.measure.regression import RunOutcome

_TEXT: Final = (
    "compare two systems on the same tasks and seeds, by category and overall: with intervals, and how many runs would decide "
    "the rest"
)
_EXAMPLES: Final = """mat compare old.json new.json       (reports: --mat-report FILE.json)
         mat compare .mat/store:none .mat/store:shield       (two variants)
         mat compare report.json:none report.json:shield --under faults
         mat compare main:mat_baseline.json new.json   (in a git revision)
         mat compare a.jsonl b.jsonl --format otlp --as md

a pair: one task at one seed on both sides
exit codes: 0 compared, whatever the verdict; 2 a usage error, or nothing to compare"""
_UNDER: Final = ("nominal", "faults", "adversarial")
_ASPECTS: Final = ("success", "compliance")
_FORMS: Final = ("txt", "md")
_FIX: Final = "name a report, a store's folder, a log, traces, or REVISION:REPORT.json; add :VARIANT for one variant of them"
_REVISION: Final = re.compile(r"(?P<revision>[^:]+):(?P<file>[^:]+\.json)(?::(?P<variant>[^:]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One side: its name, its runs, and the replay files of its tasks."""

    name: str
    outcomes: tuple[RunOutcome, ...]
    replays: dict[str, tuple[str, ...]]


def add_parser(add: Add) -> None:
    parser = add("compare", _TEXT, _EXAMPLES)
    parser.add_argument(
        "a", metavar="A", help="a report, a store's folder, a log, traces or REVISION:REPORT.json, with or without :VARIANT"
    )
    parser.add_argument("b", metavar="B", help="the other side")
    parser.add_argument(
        "--under", type=one_of(*_UNDER), choices=_UNDER, default="nominal",
        help="the runs to compare: nominal (default), faults (the same schedules on both sides), "
        "adversarial (the worst run of each side)",
    )  # fmt: skip
    parser.add_argument(
        "--aspect", type=one_of(*_ASPECTS), choices=_ASPECTS, default="success",
        help="what to compare: task success (default), or compliance (no hard contract broken)",
    )  # fmt: skip
    parser.add_argument(
        "--margin", type=_points, default=0.05, metavar="POINTS",
        help="call the sides equivalent if a difference above this is excluded, in percentage points (default 5)",
    )  # fmt: skip
    parser.add_argument("--as", dest="form", type=one_of(*_FORMS), choices=_FORMS, default="txt", help="format to print")
    parser.add_argument("--format", metavar="NAME", help="format of recorded traces, as in mat report")
    add_sampling(parser)


def _points(text: str) -> float:
    """An argument's type: percentage points above 0 and below 100, as a share."""
    try:
        value = float(text) / 100
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of percentage points above 0 and below 100")
    return value


def compare(options: argparse.Namespace) -> int:
    from mat.measure.comparison import compare_systems
    from mat.report.comparison import comparison_blocks, comparison_data, comparison_markdown
    from mat.report.terminal import blocks_in_text

    a, b = (_side(text, options) for text in (options.a, options.b))
    replays = {task: (*a.replays.get(task, ()), *b.replays.get(task, ())) for task in {**a.replays, **b.replays}}
    replays = {task: tuple(dict.fromkeys(files)) for task, files in replays.items()}
    _check_draws(options, a, b)
    found = compare_systems(
        a.outcomes, b.outcomes, under=options.under, aspect=options.aspect, margin=options.margin,
        sampling=sampling_of(options, ()), replays=replays,
    )  # fmt: skip
    if not found.overall.paired.table.pairs and not found.apart:
        raise SpecError(
            what=f"{_with_size(a)} and {_with_size(b)} share no {options.under} run",
            why="a pair is one task at one seed on both sides",
            fix="run the same tests with the same seeds, or choose other runs with --under",
        )  # fmt: skip
    names = (a.name, b.name)
    if options.json:
        print_json(comparison_data(found, names=names))
    elif options.form == "md":
        print(comparison_markdown(found, names=names))
    else:
        print(blocks_in_text(comparison_blocks(found, names=names), width=width()), end="")
    return PASS


def _with_size(side: ComparedSide) -> str:
    return f"{side.name} ({plural(len(side.outcomes), 'run')})"


def _check_draws(options: argparse.Namespace, *sides: ComparedSide) -> None:
    """SpecError for independent runs under faults, because schedules of one seed share its draw."""
    if options.unit == "run" and options.under == "faults":
        raise SpecError(
            what="--unit run cannot be combined with --under faults",
            why="the schedules of a task at one seed share its random draws, so their runs are not independent",
            fix="omit --unit run: the unit is then the task",
        )  # fmt: skip


# -- reading a side ---------------------------------------------------------------------------------------------------


def _side(text: str, options: argparse.Namespace) -> ComparedSide:
    """A side by its name: PATH, PATH:VARIANT, REVISION:REPORT.json or REVISION:REPORT.json:VARIANT."""
    if Path(text).exists():
        return _deciding(_read(Path(text), text, options))
    path, separator, variant = text.rpartition(":")
    if separator and Path(path).exists():
        return _of_variant(_read(Path(path), text, options), variant)
    match = _REVISION.fullmatch(text)
    if match is None:
        raise SpecError(what=f"no such file: {text}", why=f"paths are relative to {Path.cwd()}", fix=_FIX, where=text)
    return _committed(text, match)


def _committed(text: str, match: re.Match[str]) -> ComparedSide:
    from mat.commands.baseline import read_baseline

    found, name = read_baseline(match["revision"], file=match["file"])
    categories = {item.id: item.category for item in found.items}
    outcomes = (*found.tables.outcomes, *found.tables.other_outcomes)
    side = ComparedSide(name=name, outcomes=_with_categories(outcomes, categories), replays={})
    return _of_variant(side, match["variant"]) if match["variant"] else _deciding(side)


def _read(path: Path, name: str, options: argparse.Namespace) -> ComparedSide:
    from mat.report.from_json import is_report, read_data, restored

    if path.suffix.lower() == ".json" and not path.name.endswith(".mat.json"):
        with reading(path, fix=_FIX):
            data = read_data(path)
            if is_report(data):
                document = restored(data, where=str(path), folders=(path.parent, Path.cwd())).document
                categories = {line.id: line.category for line in document.items}
                outcomes = _with_categories((*document.outcomes, *document.other_outcomes), categories)
                return ComparedSide(
                    name=name, outcomes=outcomes, replays={line.id: line.replays for line in document.items if line.replays}
                )
    return ComparedSide(name=name, outcomes=_recorded(path, options), replays={})


def _recorded(path: Path, options: argparse.Namespace) -> tuple[RunOutcome, ...]:
    """The outcomes of a log, the folder of a store, or traces."""
    from mat.commands.recorded import RecordedOptions, entries
    from mat.evidence import runlog
    from mat.measure.regression import outcome_of

    folder = path.parent if path.suffix.lower() == ".duckdb" else path
    with reading(path, fix=_FIX):
        if folder.is_dir() or folder.name.lower().endswith(runlog.SUFFIX):
            log = runlog.read(folder)
            if not log.paths:
                raise SpecError(what=f"{folder} contains no log and no exported runs", fix=_FIX, where=str(folder))
            return tuple(outcome_of(entry.row()) for entry in log)
        return tuple(outcome_of(entry.row()) for entry in entries(path, RecordedOptions(format=options.format), ()))


def _with_categories(outcomes: Sequence[RunOutcome], categories: dict[str, str]) -> tuple[RunOutcome, ...]:
    return tuple(
        outcome if outcome.category else replace(outcome, category=categories.get(outcome.item, "")) for outcome in outcomes
    )


def _of_variant(side: ComparedSide, variant: str) -> ComparedSide:
    known = sorted({outcome.variant for outcome in side.outcomes})
    if variant not in known:
        raise SpecError(
            what=f"{side.name}: no run of the variant {variant!r}",
            why=f"its variants are {', '.join(map(repr, known))}" if known else "it has no runs", fix=_FIX,
            where=side.name,
        )  # fmt: skip
    return replace(side, outcomes=tuple(outcome for outcome in side.outcomes if outcome.variant == variant))


def _deciding(side: ComparedSide) -> ComparedSide:
    """The runs of each task's deciding variant, the first that it ran under."""
    own: dict[str, str] = {}
    for outcome in side.outcomes:
        own.setdefault(outcome.item, outcome.variant)
    return replace(side, outcomes=tuple(outcome for outcome in side.outcomes if outcome.variant == own[outcome.item]))
