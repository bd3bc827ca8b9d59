"""Renders a regression suite (`mat suite`) for a terminal, a page and as JSON data: what is selected or left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mat.core.codec import FORMAT
from mat.measure.suite import Cover, CoverageUnit, NominalChoice
from mat.report import words
from mat.report.table import Column, Table, TableCell

_SIGNATURE: Final = ("contract", "severity", "action_kind", "interface", "risk", "operator_family")
_CLASS: Final = ("interface_class", "action_kind")
_NOUNS: Final = {"contract": "hard contract", "signature": "failure signature", "class": "kind of failure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """A suite with what its renderings need. `nodes`: each replay file's node id; `uncovered`: hard contracts without a replay.

    `flaky`: replays that not every repetition reproduced, as (reproduced, executions). `short`: categories with fewer passing
    tests than requested, as (category, passing, requested).
    """

    cover: Cover
    nodes: Mapping[str, str]
    flaky: Mapping[str, tuple[int, int]]
    nominal: tuple[NominalChoice, ...] = ()
    short: tuple[tuple[str, int, int], ...] = ()
    uncovered: tuple[str, ...] = ()
    refused: tuple[Mapping[str, str], ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The node ids for pytest, replays first."""
        return (*(self.nodes[choice.name] for choice in self.cover.chosen), *(choice.item for choice in self.nominal))


def suite_data(report: SuiteReport) -> dict[str, Any]:
    """The suite as JSON data."""
    cover = report.cover
    return {
        "mat": FORMAT,
        "method": cover.method,
        "proven": cover.proven,
        "unique": cover.unique,
        "bound": cover.bound,
        "units": [_unit_data(unit) for unit in cover.units],
        "replays": [
            {
                "id": report.nodes[choice.name], "file": choice.name, "steps": choice.steps,
                "only": [_unit_data(unit) for unit in choice.only], "shared": [_unit_data(unit) for unit in choice.shared],
            }
            for choice in cover.chosen
        ],
        "nominal": [
            {"id": item.item, "category": item.category, "steps": item.steps, "rank": item.rank, "passing": item.passing}
            for item in report.nominal
        ],
        "left_out": [
            {"id": report.nodes[item.name], "file": item.name, "covered_by": list(item.covered_by)} for item in cover.left_out
        ],
        "uncovered": list(report.uncovered),
        "short": [{"category": name, "passing": passing, "asked": asked} for name, passing, asked in report.short],
        "refused": [dict(item) for item in report.refused],
    }  # fmt: skip


def _unit_data(unit: CoverageUnit) -> dict[str, str]:
    if unit.kind == "contract":
        return {"kind": "contract", "contract": unit.key[0]}
    return {"kind": unit.kind, **dict(zip(_SIGNATURE if unit.kind == "signature" else _CLASS, unit.key, strict=True))}


def suite_text(report: SuiteReport, *, width: int | None = None) -> str:
    """How small the suite is and whether that is proven, each selected item with its reasons, and what is left out."""
    fill = words.filler(width)
    cover = report.cover
    lines = [fill(line) for line in _introduction(report)] + [""]
    for choice in cover.chosen:
        lines.append(words.clean(report.nodes[choice.name]))
        lines += _reason_lines("only this file covers", [_unit_text(unit) for unit in choice.only], fill)
        lines += _reason_lines("covers with others", [_unit_text(unit) for unit in choice.shared], fill)
        if choice.name in report.flaky:
            reproduced, runs = report.flaky[choice.name]
            lines.append(f"  flaky: its failure was reproduced in {reproduced} of {words.plural(runs, 'run')}")
    for item in report.nominal:
        category = words.clean(item.category) or "tests without a category"
        rank = "the fewest steps" if item.rank == 1 else f"number {item.rank} by steps"
        of = words.plural(item.passing, "passing test")
        lines += [
            words.clean(item.item),
            f"  passes its nominal runs; selected for {category}: {rank} ({item.steps}) of {of}",
        ]
    if cover.left_out:
        lines += ["", "Left out"]
        lines += [
            fill(
                f"{words.clean(report.nodes[item.name])}: covered by {_node_list(report, item.covered_by)}",
                indent="  ",
                hanging="    ",
            )
            for item in cover.left_out
        ]
    lines += ["", *_missing_lines(report, fill)] if _missing_lines(report, fill) else []
    return "\n".join(lines) + "\n"


def sentence(cover: Cover) -> str:
    """How many replays cover what, and whether fewer could."""
    total = len(cover.chosen) + len(cover.left_out)
    how = {True: "fewer are not enough", False: f"at least {cover.bound} are needed"}[cover.proven]
    counts = Counter(unit.kind for unit in cover.units)
    covered = ", ".join(words.plural(count, _NOUNS[kind]) for kind, count in counts.items())
    verb = "covers" if len(cover.chosen) == 1 else "cover"
    return f"{len(cover.chosen)} of {words.plural(total, 'replay')} {verb} {covered or 'nothing'}; {how} ({cover.method})."


def tables(cover: Cover) -> tuple[Table, Table]:
    """The selected replays with what they cover, one name per line, and those left out."""
    chosen: list[tuple[TableCell, ...]] = [
        (item.name, item.steps, *("\n".join(map(_unit_text, units)) for units in (item.only, item.shared)))
        for item in cover.chosen
    ]
    left_out: list[tuple[TableCell, ...]] = [(item.name, ", ".join(item.covered_by)) for item in cover.left_out]
    return _table("chosen", ("replay", "steps", "only", "shared"), chosen), _table(
        "left_out", ("replay", "covered_by"), left_out
    )


def _table(name: str, columns: Sequence[str], rows: Sequence[tuple[TableCell, ...]]) -> Table:
    return Table(name=name, title=name, columns=tuple(Column(name=each) for each in columns), rows=tuple(rows))


def how_to_run(report: SuiteReport, *, selected: str, file: str = "") -> str:
    """The command that runs the suite. `selected`: the command that selected it; `file`: where its node ids were written.

    A shell splits a node id with a blank, so ids with blanks need a file.
    """
    if file:
        return f"run it with: pytest @{file}"
    if any(character.isspace() for name in report.ids for character in name):
        return f"run it with: {selected} --write suite.txt && pytest @suite.txt"
    return f"run it with: pytest $({selected} --list)"


def _introduction(report: SuiteReport) -> list[str]:
    cover = report.cover
    total, chosen = len(cover.chosen) + len(cover.left_out), len(cover.chosen)
    verb = "covers" if chosen == 1 else "cover"
    counts = [
        words.plural(sum(unit.kind == kind for unit in cover.units), noun).replace("kind of failures", "kinds of failure")
        for kind, noun in _NOUNS.items()
        if any(unit.kind == kind for unit in cover.units)
    ]
    head = [f"{chosen} of {words.plural(total, 'replay')} {verb} {' and '.join(counts)}."] if total else ["No replay files."]
    if total and cover.method == "exact" and not cover.unique:
        head.append("Fewer are not enough (exact set cover). Not all suites of this size were compared.")
    elif total and cover.method == "exact":
        head.append(
            "Fewer are not enough (exact set cover). Among suites of this size: the fewest steps, then the first by name."
        )
    elif total and cover.proven:
        head.append("Selected greedily; fewer are not enough (the linear relaxation proves it).")
    elif total:
        head.append(
            f"Selected greedily; at least {cover.bound} are needed (linear relaxation). Raise --exact-limit for a proof."
        )
    if report.nominal:
        tests = words.plural(len(report.nominal), "test")
        head.append(f"In addition, {tests} of the report with passing nominal runs, to detect a loss of quality.")
    return head


def _reason_lines(title: str, names: Sequence[str], fill: Callable[..., str]) -> list[str]:
    return [fill(f"{title}: {'; '.join(names)}", indent="  ", hanging="    ")] if names else []


def _unit_text(unit: CoverageUnit) -> str:
    if unit.kind == "contract":
        return words.clean(unit.key[0])
    if unit.kind == "class":
        return words.clean(f"{unit.key[1]} at {unit.key[0]}")
    contract, severity, kind, interface, risk, family = unit.key
    return words.clean(f"{contract} ({severity}) by {kind} {interface}, {risk or 'no'} impact, under {family}")


def _node_list(report: SuiteReport, files: Sequence[str]) -> str:
    return ", ".join(words.clean(report.nodes[name]) for name in files)


def _missing_lines(report: SuiteReport, fill: Callable[..., str]) -> list[str]:
    lines = [f"not covered: {words.clean(name)} is broken in the report, but in no replay file" for name in report.uncovered]
    lines += [
        f"{words.clean(category) or 'tests without a category'}: {passing} of {asked} requested passing tests"
        for category, passing, asked in report.short
    ]
    return [fill(line, hanging="  ") for line in lines]
