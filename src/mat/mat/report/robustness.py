"""Tables of robustness curves: three budgets and the area for people, every point for files.

Source: A6.4, A6.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mat.measure.estimate import Estimate
from mat.measure.robustness import MEASURES, Curve, Measure
from mat.report import words
from mat.report.table import FILES, PAGE, PEOPLE, Column, Table, TableCell, UnitEstimate

_TITLES: Final[dict[Measure, str]] = {
    "success": "Robustness: task success within budget B",
    "compliance": "Robustness: no hard contract broken within budget B",
}
_AREA: Final = {None: "sampled", True: "exact on the grid", False: "upper bound"}
_NOTE: Final = "<=: at most; not everything was searched"


def tables(curves: Sequence[Curve]) -> tuple[Table, ...]:
    """R at budget 0, half of the largest budget and all of it, and the area, for each measure with data."""
    by_measure = ((measure, [item for item in curves if item.measure == measure]) for measure in MEASURES)
    brief = not _alone(curves)
    return tuple(_table_of(measure, found, brief) for measure, found in by_measure if any(item.area.n for item in found))


def _table_of(measure: Measure, curves: Sequence[Curve], brief: bool) -> Table:
    budgets = _budgets(curves[0].largest)
    open_ended = any(point.proven is False and point.estimate.known for item in curves for point in item.points)
    return Table(
        name=f"robustness_{measure}",
        title=_TITLES[measure],
        note=_NOTE if open_ended else "",
        brief=brief,
        columns=(
            Column(name="category", key=True), Column(name="schedules", key=True),
            *(Column(name=f"R({budget})") for budget in budgets), Column(name="area"),
        ),
        rows=tuple(
            (
                item.category, item.kind,
                *(_bounded(item.at(budget).estimate, item.at(budget).proven) for budget in budgets),
                _bounded(item.area, item.area_proven),
            )
            for item in curves
        ),
        media=PEOPLE,
    )  # fmt: skip


def points(curves: Sequence[Curve]) -> Table:
    """Every point of every curve, for files."""
    rows: list[tuple[TableCell, ...]] = []
    for curve in curves:
        keys: tuple[TableCell, ...] = (curve.category, curve.measure, curve.kind)
        rows += [(*keys, point.budget, _bounded(point.estimate, point.proven)) for point in curve.points if point.estimate.n]
        if curve.area.n:
            rows.append((*keys, "area", _bounded(curve.area, curve.area_proven)))
    return Table(
        name="robustness",
        title="Robustness",
        columns=(
            Column(name="category", key=True), Column(name="measure", key=True), Column(name="schedules", key=True),
            Column(name="budget", key=True), Column(name="R"),
        ),
        rows=tuple(rows),
        media=FILES,
    )  # fmt: skip


def overview(curves: Sequence[Curve]) -> Table:
    """A row for each curve: its first value, its last value, and its area."""
    names = ("measure", "category", "schedules", "budget", "first", "last", "area", "kind")
    return Table(
        name="robustness_overview",
        title="Robustness",
        columns=tuple(Column(name=name, key=name in names[:3]) for name in names),
        rows=tuple(
            (
                words.MEASURES[curve.measure], curve.category, curve.kind, curve.largest, curve.points[0].estimate,
                curve.last.estimate, curve.area, _AREA[curve.area_proven],
            )
            for curve in curves
            if curve.area.n
        ),
        media=PAGE,
    )  # fmt: skip


def _alone(curves: Sequence[Curve]) -> bool:
    """Whether the curves come from one item's search without random schedules; the table of items already has its result."""
    return all(item.kind == "adversarial" and item.area.n <= 1 for item in curves)


def _budgets(largest: int) -> tuple[int, ...]:
    return tuple(sorted({0, largest // 2, largest}))


def _bounded(estimate: Estimate, proven: bool | None) -> UnitEstimate:
    return UnitEstimate(estimate=estimate, at_most=proven is False)
