"""Renders the comparison of two systems (`mat compare A B`) for a terminal, as Markdown and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from mat.core.codec import FORMAT
from mat.measure.comparison import ALL, CategoryComparison, FlippedTask, SystemComparison
from mat.measure.estimate import Estimate
from mat.report import words
from mat.report.markdown import escape, in_markdown
from mat.report.table import Column, Listing, ReportBlock, Table, TableCell, p_value
from mat.report.tables import with_population
from mat.report.to_json import data_of

_LISTED: Final = 20
_SEEDS: Final = 6
_ASPECTS: Final = {"success": "task success", "compliance": "contracts kept"}
_UNDER: Final = {
    "nominal": "without faults", "faults": "under the same faults", "adversarial": "under adversarial schedules",
}  # fmt: skip


def comparison_data(found: SystemComparison, *, names: tuple[str, str]) -> dict[str, Any]:
    """The comparison as JSON data, with the sentence first."""
    return {"mat": FORMAT, "a": names[0], "b": names[1], "sentence": sentence(found), **data_of(found)}


def comparison_blocks(found: SystemComparison, *, names: tuple[str, str]) -> list[ReportBlock]:
    lists = [Listing(title="Tasks that differ", lines=tuple(_flip_lines(found.flipped)), most=_LISTED)]
    lists += [Listing(title="What would settle the rest", lines=tuple(_open_lines(found)))]
    lists += [Listing(title="Not compared", lines=tuple(_apart_lines(found)), most=_LISTED)]
    return [heading(found, names), sentence(found), table(found), *(each for each in lists if each.lines)]


def comparison_markdown(found: SystemComparison, *, names: tuple[str, str]) -> str:
    first, second, rates, *lists = comparison_blocks(found, names=names)
    assert isinstance(rates, Table)
    lines = ["## Comparison\n", f"{escape(str(first))}\n", f"**{escape(str(second))}**\n", in_markdown([rates])]
    for each in lists:
        assert isinstance(each, Listing)
        lines += [f"### {each.title}\n", *(f"- {escape(line)}" for line in each.shown)]
        lines += [f"- {escape(each.rest)}"] * bool(each.rest) + [""]
    return "\n".join(lines)


def heading(found: SystemComparison, names: tuple[str, str]) -> str:
    """What is compared, on how many draws."""
    paired = found.overall.paired
    return (
        f"A: {names[0]}. B: {names[1]}. {_ASPECTS[found.aspect].capitalize()} {_UNDER[found.under]}: "
        f"{words.plural(paired.table.pairs, 'pair')} of {words.plural(found.overall.tasks, 'task')}."
    )


def sentence(found: SystemComparison) -> str:
    """The verdict, as a reader should repeat it."""
    if found.overall.verdict == "nothing":
        return "Nothing can be said: no task ran at the same seed on both sides."
    if found.identical:
        return f"A and B are the same on all {words.plural(found.overall.paired.table.pairs, 'pair')}: every outcome is equal."
    every = [*found.categories] or [found.overall]
    parts = [_decided(each, found) for each in every if each.verdict in ("better", "worse")]
    rest = [each for each in every if each.verdict not in ("better", "worse")]
    where = "" if len(every) == 1 else "elsewhere " if parts else "in every category " if len(rest) > 1 else ""
    equivalent = [each for each in rest if each.verdict == "equivalent"]
    undecided = [each for each in rest if each.verdict == "open"]
    margin = f"{_points(found.margin)} points"
    if undecided and not equivalent:
        parts.append(f"{where}no difference is shown, and one larger than {margin} is not excluded")
    elif equivalent and not undecided:
        parts.append(f"{where}a difference larger than {margin} is excluded")
    elif rest:
        parts.append(f"on {_listed(equivalent)} a difference larger than {margin} is excluded")
        parts.append(f"on {_listed(undecided)} no difference is shown, and one larger than {margin} is not excluded")
    text = "; ".join(parts)
    if found.categories:
        text += f". Overall, {_overall(found)}"
    return f"{text[0].upper()}{text[1:]}."


def _decided(each: CategoryComparison, found: SystemComparison) -> str:
    name = "overall" if each.category == ALL else f"on {words.clean(each.category)}"
    return f"B is {each.verdict} {name} by {_by(each.paired.difference)}"


def _overall(found: SystemComparison) -> str:
    overall = found.overall
    if overall.verdict in ("better", "worse"):
        return f"B is {overall.verdict} by {_by(overall.paired.difference)}"
    excluded = "excluded" if overall.verdict == "equivalent" else "not excluded"
    return f"no difference is shown, and one larger than {_points(found.margin)} points is {excluded}"


def _by(difference: Estimate) -> str:
    assert difference.value is not None
    sign = 1 if difference.value >= 0 else -1
    ends = sorted(sign * end for end in (difference.low, difference.high) if end is not None)
    return f"{_points(abs(difference.value))} points [{', '.join(map(_points, ends))}]"


def _points(share: float) -> str:
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 1 or abs(value) < 0.05 else f"{value:.1f}"


def _listed(found: Sequence[CategoryComparison]) -> str:
    return ", ".join(words.clean(each.category) for each in found)


def table(found: SystemComparison) -> Table:
    """A row for each category, and one for all tasks."""
    several = len(found.categories)
    level = 100 * found.overall.paired.difference.confidence
    note = f"difference: B minus A; brackets: {level:.4g}% intervals; "
    note += "p: exact two-sided test that swaps the two sides of whole tasks"
    if several:
        confidence = found.categories[0].paired.difference.confidence
        note += (
            f"; p of the categories is adjusted for {several} of them (Holm), and their differences hold together "
            f"({100 * confidence:.4g}% each)"
        )
    return with_population(
        Table(
            name="comparison",
            title="By category" if several else "All tasks",
            note=note,
            columns=(
                Column(name="category", key=True), Column(name="tasks"), Column(name="pairs"), Column(name="A"),
                Column(name="B"), Column(name="difference"), Column(name="p"), Column(name="gained"), Column(name="lost"),
                Column(name="B is"),
            ),
            rows=tuple(_row(each, found) for each in (*found.categories, found.overall)),
            n_in="pairs",
        )
    )  # fmt: skip


def _row(each: CategoryComparison, found: SystemComparison) -> tuple[TableCell, ...]:
    paired = each.paired
    return (
        each.category, each.tasks, paired.table.pairs, paired.old, paired.new, paired.difference, p_value(each.p_value),
        paired.table.only_new, paired.table.only_old, "the same" if found.identical else each.verdict,
    )  # fmt: skip


def _flip_lines(flipped: Sequence[FlippedTask]) -> Iterator[str]:
    for each in flipped:
        sides = []
        if each.lost:
            sides.append(f"only A at {_seeds(each.lost)}")
        if each.gained:
            sides.append(f"only B at {_seeds(each.gained)}")
        replays = f"; replay: {', '.join(words.replay_command(file) for file in each.replays)}" if each.replays else ""
        yield f"{each.task}: {' and '.join(sides)}; the other side: {each.why}{replays}"


def _seeds(seeds: Sequence[int]) -> str:
    shown = ", ".join(map(str, seeds[:_SEEDS])) + (" ..." if len(seeds) > _SEEDS else "")
    return f"seed{'s' if len(seeds) > 1 else ''} {shown}"


def _open_lines(found: SystemComparison) -> Iterator[str]:
    needed: dict[str, list[str]] = {}
    for each in () if found.identical else (*found.categories, found.overall):
        if each.verdict == "open":
            parts = []
            if each.tasks_needed is not None:
                parts.append(f"about {each.tasks_needed} tasks like these (now {each.tasks})")
            if each.seeds_needed is not None:
                parts.append(f"for these tasks alone, about {each.seeds_needed} seeds a task")
            name = "overall" if each.category == ALL else words.clean(each.category)
            needed.setdefault("; ".join(parts) or "nothing here tells", []).append(name)
    for text, names in needed.items():
        each_one = "each, " if len(names) > 1 else ""
        yield f"{', '.join(names)}: {each_one}{text}, if the difference is as observed"


def _apart_lines(found: SystemComparison) -> Iterator[str]:
    sides = {"old": "A", "new": "B"}
    for each in found.apart:
        yield f"{words.plural(each.pairs, 'pair')} because of {sides[each.side]}: {each.reason}"
    if found.unpaired:
        yield f"{words.plural(found.unpaired, 'run')} without a run of the other side at the same seed"
    if found.repeated:
        yield f"{words.plural(found.repeated, 'run')} that a newer run of the same draw replaces"
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            more = " ..." if len(names) > _SEEDS else ""
            yield f"only {side} has {words.plural(len(names), 'task')}: {', '.join(names[:_SEEDS])}{more}"
