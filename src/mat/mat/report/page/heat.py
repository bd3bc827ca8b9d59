"""The heat maps of a page: tables whose cells say their share and what failed, and are shaded besides."""

from __future__ import annotations

from itertools import groupby

from mat.report import words
from mat.report.document import HeatCell, HeatMap
from mat.report.page.cells import percent
from mat.report.page.markup import Markup, breakable, joined, tag

__all__ = ["heat_table"]


def heat_table(found: HeatMap) -> Markup:
    """One heat map. A cell's tooltip, and what a screen reader is told, has the interval, the runs and what failed."""
    head = tag("tr", tag("th", found.down, scope="col"), *(tag("th", breakable(name), scope="col") for name in found.columns))
    several = len({row.group for row in found.rows}) > 1
    bodies = []
    for group, rows in groupby(found.rows, key=lambda row: row.group):
        title = tag("tr", tag("th", group or "others", scope="rowgroup", colspan=len(found.columns) + 1)) if several else None
        lines = (
            tag("tr", tag("th", tag("code", breakable(row.name)), scope="row"), *map(_cell, row.cells)) for row in rows
        )  # fmt: skip
        bodies.append(tag("tbody", title, *lines))
    shown = tag("table", tag("caption", found.title), tag("thead", head), *bodies, class_="heat")
    return tag("div", shown, class_="scroll", tabindex=0, role="region", aria_label=found.title)


def _cell(cell: HeatCell | None) -> Markup:
    if cell is None or cell.success.value is None:
        return tag("td", "-", class_="none", title="no run")
    value, ends = cell.success.value, f"{percent(cell.success.low)} to {percent(cell.success.high)}"
    about = f"{ends}, {words.plural(cell.success.n, 'run')}" + (f"; most often: {cell.why}" if cell.why else "")
    level = 0 if value == 0 else 3 if value == 1 else 1 if value < 0.5 else 2
    why = tag("small", breakable(words.shorten(cell.why, 40))) if cell.why else None
    return tag("td", joined(percent(value), why), class_=f"h{level}", title=about)
