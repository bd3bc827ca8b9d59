"""Renders the comparison of two reports (`mat diff OLD.json NEW.json`) for a terminal, a page and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from mat.core.codec import FORMAT
from mat.measure.regression import DECISIONS, ActionChange, GovernanceComparison, Regression, RunPair
from mat.report import words
from mat.report.table import PAGE, Column, Listing, ReportBlock, Table, p_value
from mat.report.tables import with_population
from mat.report.to_json import data_of

_CHANGED: Final = "Decisions that changed"
_APART: Final = "Not compared"
_LISTED: Final = 20
"""The most runs, actions or items that one list shows; JSON has all."""


def regression_data(found: Regression) -> dict[str, Any]:
    """The comparison as JSON data, with `regressed` first."""
    return {"mat": FORMAT, "regressed": found.regressed, **data_of(found)}


def regression_blocks(found: Regression, *, names: tuple[str, str]) -> list[ReportBlock]:
    """Rates with their intervals, the runs behind them, the mediator's decisions, and what could not be compared."""
    rates, *decided = regression_tables(found)
    runs, changed = listings(found)
    return [scope_sentence(found, names), rates, *runs, *decided, *changed, conclusion(found)]


def scope_sentence(found: Regression, names: tuple[str, str]) -> str:
    """Which reports are compared, and on how many runs."""
    old, new = names
    runs, items = words.plural(found.runs, "run"), words.plural(found.items, "item")
    return f"{old} (old) and {new} (new): {runs} of {items} in both, {_compared_runs(found)}."


def _compared_runs(found: Regression) -> str:
    return (
        "without faults" if found.under == "nominal" else "under faults (replays, and schedules that both searched)"
    )  # fmt: skip


def regression_tables(found: Regression) -> tuple[Table, ...]:
    """The rates by run, and the mediator's old and new decisions."""
    decided = [("Decisions on actions of high impact", found.high)]
    decided += [("Decisions on all actions", found.all_actions)] if _has_more_actions(found) else []
    return (_rate_table(found), *(_decision_table(title, part) for title, part in decided if _has_interventions(part)))


def every_table(found: Regression) -> Iterator[Table]:
    """The whole comparison as tables, for a page: rates, regressed and improved runs, decisions and changed ones."""
    yield _rate_table(found)
    for part in (found.success, found.compliance):
        yield _run_table(f"regressed_{part.aspect}", part.regressed)
        yield _run_table(f"improved_{part.aspect}", part.improved)
    for name, decided in (("decisions_high", found.high), ("decisions_all", found.all_actions)):
        if _has_interventions(decided):
            yield replace(_decision_table("Decisions", decided), name=name)
    names = ("action", "impact", "old", "new", "change", "test", "seed", "schedule")
    yield Table(
        name="changes",
        title=_CHANGED,
        columns=tuple(Column(name=name, key=name == "action") for name in names),
        rows=tuple(
            (
                item.site, item.impact, item.old, item.new, "loosened" if item.loosened else "tightened", item.item, item.seed,
                item.schedule,
            )
            for item in _sorted_changes(found)
        ),
    )  # fmt: skip


def _run_table(name: str, pairs: tuple[RunPair, ...]) -> Table:
    columns = tuple(Column(name=each, key=each == "test") for each in ("test", "seed", "schedule", "why"))
    rows = tuple((pair.item, pair.seed, pair.schedule, pair.why) for pair in pairs)
    return Table(name=name, title=name, columns=columns, rows=rows)


def _rate_table(found: Regression) -> Table:
    table = Table(
        name="regression",
        title="Rates by run",
        note="95% intervals; regressed: share of the runs with this aspect in the old report that lost it; "
        "difference: new minus old; p: exact two-sided test that swaps the two sides of whole tests",
        columns=(
            Column(name="aspect", key=True), Column(name="old"), Column(name="new"), Column(name="regressed"),
            Column(name="improved"), Column(name="difference"), Column(name="p"), Column(name="lost", media=PAGE),
        ),
        rows=tuple(
            (
                words.ASPECTS[part.aspect], part.old, part.new, part.rate, len(part.improved), part.difference,
                p_value(part.p_value),
                len(part.regressed),
            )
            for part in (found.success, found.compliance, found.passed)
        ),
    )  # fmt: skip
    return with_population(table)


def listings(found: Regression) -> tuple[list[Listing], list[Listing]]:
    """Two groups of non-empty lists: regressed and improved runs; changed decisions and what was not compared."""
    both = (found.success, found.compliance)
    runs = [
        *(_listing(f"Regressions: {words.ASPECTS[part.aspect]}", _run_lines(part.regressed)) for part in both),
        *(_listing(f"Improvements: {words.ASPECTS[part.aspect]}", _run_lines(part.improved, was="before: ")) for part in both),
    ]
    others = [_listing(_CHANGED, _change_lines(found)), _listing(_APART, excluded(found))]
    return [each for each in runs if each.lines], [each for each in others if each.lines]


def _listing(title: str, lines: Sequence[str]) -> Listing:
    return Listing(title=title, lines=tuple(lines), most=_LISTED)


def _run_lines(pairs: tuple[RunPair, ...], *, was: str = "") -> list[str]:
    """Each run with its failure: in the new report for a regression, in the old one for an improvement."""
    return [f"{pair.item} seed {pair.seed}{words.under_schedule(pair.schedule)}: {was}{pair.why}" for pair in pairs]


def _has_interventions(part: GovernanceComparison) -> bool:
    """Whether the mediator refused or rewrote any action, in the old or the new report."""
    return any(line.count for line in part.table if (line.old, line.new) != ("allow", "allow"))


def _decision_table(title: str, part: GovernanceComparison) -> Table:
    counts = {(line.old, line.new): line.count for line in part.table}
    return Table(
        name="decisions",
        title=title,
        note=f"rows: old, columns: new; changed {words.share(part.changed)}",
        columns=(Column(name="old", title=" ", key=True), *(Column(name=new) for new in DECISIONS)),
        rows=tuple((old, *(counts[old, new] for new in DECISIONS)) for old in DECISIONS),
    )


def _has_more_actions(found: Regression) -> bool:
    return found.all_actions.matched > found.high.matched


def _sorted_changes(found: Regression) -> list[ActionChange]:
    """The changed decisions: actions of high impact first, loosened decisions before tightened ones."""
    return sorted(found.all_actions.changes, key=lambda item: (item.impact != "high", not item.loosened, item.item, item.site))


def _change_lines(found: Regression) -> list[str]:
    return [
        f"{item.site} ({item.impact} impact): {item.old} -> {item.new}{', loosened' if item.loosened else ''}, in "
        f"{item.item} seed {item.seed}{words.under_schedule(item.schedule)}"
        for item in _sorted_changes(found)
    ]


def excluded(found: Regression) -> list[str]:
    """What the comparison excludes, stated so that nobody believes it was compared."""
    lines = [f"runs under a different governance variant than before: {variant}" for variant in found.variants]
    lines += [f"only in the old report: {name}" for name in found.only_old]
    lines += [f"only in the new report: {name}" for name in found.only_new]
    if found.unmatched_old or found.unmatched_new:
        lines.append(
            "runs without a counterpart with the same item, seed and schedule: "
            f"{found.unmatched_old} old, {found.unmatched_new} new"
        )
    if found.unjudged:
        lines.append(f"{words.plural(found.unjudged, 'run')} without a task success on one side: only contracts compared")
    lines += [f"no longer armed in {line.item}: {', '.join(line.contracts)}" for line in found.disarmed]
    actions = found.all_actions
    if actions.only_old or actions.only_new:
        lines.append(f"actions proposed in only one of the reports: {actions.only_old} old, {actions.only_new} new")
    return lines


def conclusion(found: Regression) -> str:
    """The conclusion in one sentence: no regression, or how many of which kind."""
    if not found.regressed:
        return "No regression."
    loosened = sum(change.loosened for change in found.high.changes)
    counts = (
        (len(found.success.regressed), "of task success"),
        (len(found.compliance.regressed), "of contracts"),
        (loosened, "of governance (decisions on actions of high impact loosened)"),
    )
    return "Regressions: " + ", ".join(f"{count} {what}" for count, what in counts if count) + "."
