"""Tables: cells that know how they are shown and by what they are sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mat.measure.estimate import Estimate, Spread
from mat.report.page.markup import Markup, joined, tag

__all__ = ["Cell", "Number", "Shown", "percent", "quantity", "rate", "table"]

_BAR: Final = 44
"""Width of the bar that shows an interval, in pixels."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell as markup, and what it is sorted by; one that is sorted by a number stands to the right, unless `left`."""

    markup: Markup
    by: str | float
    left: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """An estimate with its unit; None where nothing of the kind was measured."""

    estimate: Estimate | None
    unit: str = "share"


Cell: TypeAlias = "str | int | float | Estimate | Spread | Shown | Number | None"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, caption: str = "", name: str = "", label: str = ""
) -> Markup:
    """A table with a header; "" without rows. The page's script makes the headers sort it.

    A column whose cells are all numbers stands to the right. A table without a caption has a `label`, its accessible name.
    """
    if not rows:
        return Markup("")
    right = [all(_is_number(row[index]) for row in rows) for index in range(len(columns))]
    head = tag(
        "tr",
        *(tag("th", column, scope="col", class_="num" if right[index] else None) for index, column in enumerate(columns)),
    )
    body = joined(*(tag("tr", *(_cell(cell, right[index]) for index, cell in enumerate(row))) for row in rows))
    shown = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", head),
        tag("tbody", body),
        class_="data",
        data_name=name or None,
        aria_label=label or None,
    )
    return tag("div", shown, class_="scroll")


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, Shown):
        return not cell.left and not isinstance(cell.by, str)
    return cell is None or isinstance(cell, int | float | Spread)


def _cell(cell: Cell, right: bool) -> Markup:
    if isinstance(cell, Number):
        known = cell.estimate is not None and cell.estimate.value is not None
        if not known or cell.estimate is None:
            return tag("td", "-", class_="none", data_by="")
        return tag("td", quantity(cell.estimate, cell.unit), class_="rate", data_by=repr(cell.estimate.value))
    if cell is None:
        return tag("td", "-", class_="num none" if right else "none", data_by="")
    if isinstance(cell, Estimate):
        return tag("td", rate(cell), class_="rate", data_by="" if cell.value is None else repr(cell.value))
    if isinstance(cell, Spread):
        return tag("td", _spread(cell), class_="num", data_by="" if cell.median is None else cell.median)
    if isinstance(cell, Shown):
        return tag("td", cell.markup, class_="num" if right else None, data_by=cell.by)
    if isinstance(cell, int | float):
        return tag("td", f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}", class_="num", data_by=repr(cell))
    return tag("td", cell or "-", class_=None if cell else "none")


def percent(share: float | None) -> str:
    """A share in per cent: whole, but near 0 and 100 with what keeps it apart from them."""
    if share is None:
        return "unknown"
    if 0.0 < share < 0.0995 or 0.9005 < share < 1.0:
        return f"{100 * share:.1f}%" if 0.0005 <= share <= 0.9995 else ("<0.1%" if share < 0.5 else ">99.9%")
    return f"{100 * share:.0f}%"


def rate(estimate: Estimate) -> Markup:
    """A share with its interval: a bar, the value, the ends of the interval, and from how many observations."""
    return quantity(estimate, "share")


def quantity(estimate: Estimate, unit: str) -> Markup:
    """A number with its interval. Where the data do not bound an end, it is open: "[3.1–…]".

    `unit` points: a difference of two shares, in percentage points.
    """
    value, low, high = estimate.value, estimate.low, estimate.high
    share = unit == "share"
    if unit == "points":
        value, low, high = (None if end is None else 100 * end for end in (value, low, high))
    about = f"{estimate.confidence:.0%} interval, {estimate.method}, n = {estimate.n}"
    if value is None:
        return tag("span", "-", class_="none", title="no observation")
    bar = _bar(value, value if low is None else low, value if high is None else high) if share else None
    return tag(
        "span",
        bar,
        tag("b", percent(value) if share else _amount(value, unit)),
        tag("span", f"[{_end(low, share)}{'–' if (low or 0) >= 0 else ' to '}{_end(high, share)}]", class_="ends"),
        tag("span", f"n={estimate.n:,}", class_="n"),
        class_="estimate" if share else "estimate amount",
        title=about,
    )


def _end(end: float | None, share: bool) -> str:
    if end is None:
        return "…"
    return percent(end).rstrip("%") if share else _amount(end, "")


def _amount(value: float, unit: str) -> str:
    said = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{said} {unit}" if unit and unit != "score" else said


def _bar(value: float, low: float, high: float) -> Markup:
    def at(share: float) -> float:
        return round(1 + (_BAR - 2) * min(max(share, 0.0), 1.0), 1)

    return tag(
        "svg",
        tag("line", x1=1, x2=_BAR - 1, y1=6, y2=6, class_="rail"),
        tag("line", x1=at(low), x2=at(high), y1=6, y2=6, class_="band"),
        tag("line", x1=at(value), x2=at(value), y1=1.5, y2=10.5, class_="mark"),
        class_="meter", width=_BAR, height=12, viewBox=f"0 0 {_BAR} 12", aria_hidden="true", focusable="false",
    )  # fmt: skip


def _spread(spread: Spread) -> Markup:
    if spread.median is None:
        return tag("span", "-", class_="none")
    if spread.least == spread.most:
        return tag("span", f"{spread.median:,}")
    return tag("span", f"{spread.median:,} ", tag("span", f"[{spread.least:,}–{spread.most:,}]", class_="ends"))
