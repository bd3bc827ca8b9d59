"""The comparison of two reports (`mat diff OLD.json NEW.json`), for a terminal and as JSON data."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Final

from mat.core.codec import FORMAT
from mat.measure.regression import DECISIONS, Comparison, GovernanceComparison, Pair, Regression
from mat.report import words
from mat.report.terminal import _table

_TITLES: Final = {"pass": "pass (both)", "success": "task success", "compliance": "contracts kept"}
_LISTED: Final = 20
"""Runs, actions and items shown of one kind; JSON has all."""


def regression_data(found: Regression) -> dict[str, Any]:
    """All of it as JSON data, with `regressed` in front."""
    return {"mat": FORMAT, "regressed": found.regressed, **_data(found)}


def _data(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_data(item) for item in value]
    return value


def regression_text(found: Regression, *, names: tuple[str, str]) -> str:
    """Rates with their intervals, the runs behind them, and the mediator's decisions; then what could not be compared."""
    old, new = (words.clean(name) for name in names)
    where = "without faults" if found.under == "nominal" else "under faults (replays, and schedules that both searched)"
    runs, items = words.plural(found.runs, "run"), words.plural(found.items, "item")
    parts = [
        words.wrap(f"{old} (old) and {new} (new): {runs} of {items} in both, {where}.") + "\n",
        _rates(found),
        *(_pairs(f"Regressions: {_TITLES[part.aspect]}", part.regressed) for part in (found.success, found.compliance)),
        *(
            _pairs(f"Improvements: {_TITLES[part.aspect]}", part.improved, was=True)
            for part in (found.success, found.compliance)
        ),
        _decisions("Decisions on actions of high impact", found.high),
        _decisions("Decisions on all actions", found.all_actions) if _says_more(found) else "",
        _changes(found),
        _apart(found),
        _verdict(found) + "\n",
    ]
    return "\n".join(part for part in parts if part)


def _rates(found: Regression) -> str:
    return _table(
        "Rates by run (95% Wilson intervals; regressed: of those that had it; p: McNemar's exact test, two-sided)",
        ("aspect", "old", "new", "regressed", "improved", "p"),
        [
            (
                _TITLES[part.aspect], words.share(part.old), words.share(part.new), words.share(part.rate),
                str(len(part.improved)), _p(part),
            )
            for part in (found.success, found.compliance, found.passed)
        ],
    )  # fmt: skip


def _p(part: Comparison) -> str:
    return "-" if part.p_value is None else f"{part.p_value:.2g}"


def _pairs(title: str, pairs: tuple[Pair, ...], *, was: bool = False) -> str:
    """Each run, and what is wrong with it in the report in which something is: the old one for an improvement."""
    prefix = "before: " if was else ""
    lines = [
        f"{words.clean(pair.item)} seed {pair.seed}{_under(pair.schedule)}: {prefix}{words.clean(pair.why)}" for pair in pairs
    ]
    return _list(title, lines)


def _under(schedule: str) -> str:
    return f" under {words.clean(schedule)}" if schedule else ""


def _list(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join([title, *(words.wrap(line, indent="  ", hanging="    ") for line in lines[:_LISTED]), *more]) + "\n"


def _decisions(title: str, part: GovernanceComparison) -> str:
    counts = {(line.old, line.new): line.count for line in part.table}
    if counts["allow", "allow"] == part.matched:  # nothing was decided against an action, then or now
        return ""
    return _table(
        f"{title} (rows: old, columns: new; changed {words.share(part.changed)})",
        ("", *DECISIONS),
        [(old, *(str(counts[old, new]) for new in DECISIONS)) for old in DECISIONS],
    )


def _says_more(found: Regression) -> bool:
    return found.all_actions.matched > found.high.matched


def _changes(found: Regression) -> str:
    changes = sorted(
        found.all_actions.changes, key=lambda item: (item.impact != "high", not item.loosened, item.item, item.site)
    )
    lines = [
        f"{words.clean(item.site)} ({item.impact} impact): {item.old} -> {item.new}{', loosened' if item.loosened else ''}, in "
        f"{words.clean(item.item)} seed {item.seed}{_under(item.schedule)}"
        for item in changes
    ]
    return _list("Decisions that changed", lines)


def _apart(found: Regression) -> str:
    """What the rates do not speak of, so that nobody takes it for compared."""
    lines = [f"only in the old report: {words.clean(name)}" for name in found.only_old]
    lines += [f"only in the new report: {words.clean(name)}" for name in found.only_new]
    if found.unmatched_old or found.unmatched_new:
        lines.append(
            f"runs without a partner of equal item, seed and schedule: {found.unmatched_old} old, {found.unmatched_new} new"
        )
    if found.unjudged:
        lines.append(f"{words.plural(found.unjudged, 'run')} without a task success on one side: contracts alone compared")
    lines += [
        f"no longer armed in {words.clean(line.item)}: {words.clean(', '.join(line.contracts))}" for line in found.disarmed
    ]
    actions = found.all_actions
    if actions.only_old or actions.only_new:
        lines.append(f"actions that only one of them proposes: {actions.only_old} old, {actions.only_new} new")
    return _list("Not compared", lines)


def _verdict(found: Regression) -> str:
    if not found.regressed:
        return "No regression."
    loosened = sum(change.loosened for change in found.high.changes)
    counts = (
        (len(found.success.regressed), "of task success"),
        (len(found.compliance.regressed), "of contracts"),
        (loosened, "of governance (actions of high impact decided more freely)"),
    )
    return "Regressions: " + ", ".join(f"{count} {what}" for count, what in counts if count) + "."
