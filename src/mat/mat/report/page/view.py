"""Prepares what the templates of a page print: safe texts, cells ready to show, and the template environment.

Everything that a template prints is escaped (jinja2, autoescape), after `printable` has made control characters and
bidirectional marks visible. Only what this module marks as `Markup` goes into the page unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from xml.etree.ElementTree import Element, tostring

from mat.core.errors import printable
from mat.core.extras import require
from mat.measure.estimate import Estimate, Spread
from mat.report import brief, words
from mat.report.definitions import definition_of
from mat.report.document import HeatRow
from mat.report.table import Reworded, Table, TableCell, UnitEstimate

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_SEAMS: Final = re.compile(r"(?<=[_/\[])|(?<=::)")
"""Where a node id may break across lines."""
_SCRIPT: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
LISTED: Final = 200
"""The most runs, actions or items that one list of a comparison shows; the JSON report has all."""
FINDINGS: Final = 5
"""The broken runs that are shown unfolded."""
_BAR: Final = 44
"""The width of the bar that shows an interval, in pixels."""
Style: TypeAlias = Literal["", "name", "code", "badge", "all", "bound", "number", "condition", "aspect", "list"]
_TOTALS: Final[Mapping[Style, str]] = {"all": "~", "name": ""}
"""The sort key of the row of totals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEstimate:
    """An estimate as text for a page: value, ends of the interval, n, and the method (`about`, a tooltip).

    `bar`: for a share, the positions of low, value and high on a bar of 44 pixels.
    """

    value: str
    low: str
    high: str
    between: str
    n: str
    about: str
    bar: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCell:
    """A cell that a template renders according to its `kind`. `by` is the sort key; None sorts by the text."""

    kind: Literal["text", "none", "number", "name", "code", "badge", "total", "estimate", "spread", "list"]
    text: str = ""
    by: str | float | None = None
    ends: ShownEstimate | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumns:
    """The columns of a table that a page shows. `right`: whether a column holds numbers and is aligned to the right. `tips`:
    what each column means, as a tooltip, "" for nothing. `methods`: how the intervals are made, each method once."""

    headings: tuple[str, ...]
    tips: tuple[str, ...]
    right: tuple[bool, ...]
    rows: tuple[tuple[ShownCell, ...], ...]
    methods: tuple[str, ...] = ()

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """Headings with a known meaning."""
        return [(heading, tip) for heading, tip in zip(self.headings, self.tips, strict=True) if tip]


def grid(
    table: Table | None, columns: Sequence[Sequence[str]], *, only: Mapping[str, str] | None = None, shared: str = ""
) -> PageColumns | None:
    """The given columns of a table, each as (name, heading, style, unit); None without rows.

    `only` selects the rows with these values. `shared` is a file or folder to remove from the names of tests.
    """
    if table is None:
        return None
    names = [column.name for column in table.columns]
    places = [names.index(name) for name, *_ in columns]
    rows = [row for row in table.rows if all(row[names.index(name)] == value for name, value in (only or {}).items())]
    if not rows:
        return None
    styles: list[Any] = [column[2] if len(column) > 2 else "" for column in columns]
    units = [column[3] if len(column) > 3 else None for column in columns]
    return PageColumns(
        headings=tuple(column[1] for column in columns),
        tips=tuple(definition_of(column[0]) for column in columns),
        right=tuple(all(_is_number(row[place], style) for row in rows) for place, style in zip(places, styles, strict=True)),
        rows=tuple(
            tuple(
                shown(_without_folder(row[place], shared), style, table.columns[place].unit, shown_unit=unit)
                for place, style, unit in zip(places, styles, units, strict=True)
            )
            for row in rows
        ),
        methods=() if "method" in names else tuple(dict.fromkeys(_methods(row[place] for row in rows for place in places))),
    )


def _methods(cells: Iterable[TableCell]) -> Iterator[str]:
    for cell in cells:
        estimate = cell.estimate if isinstance(cell, UnitEstimate) else cell
        if isinstance(estimate, Estimate) and estimate.value is not None:
            yield _method_text(estimate)


def _method_text(estimate: Estimate) -> str:
    return f"{estimate.confidence:.0%} interval, {estimate.method}"


def _is_number(cell: TableCell, style: Style) -> bool:
    if isinstance(cell, Reworded):
        return isinstance(cell.value, int | float)
    return style in ("", "bound", "number") and (cell is None or isinstance(cell, int | Spread))


def _without_folder(cell: TableCell, shared: str) -> TableCell:
    return without_folder(cell, shared) if isinstance(cell, str) and shared else cell


def without_folder(item: str, shared: str) -> str:
    """A test's name without the file or folder that all tests share."""
    return item.removeprefix(f"{shared}::").removeprefix(f"{shared}/") if shared else item


def shown(cell: TableCell, style: Style = "", unit: str = "share", *, shown_unit: str | None = None) -> ShownCell:
    """A cell in one of the page's styles; "" selects one by the type of the cell. `shown_unit` replaces an estimate's unit."""
    if isinstance(cell, Reworded):
        return _reworded(cell, style)
    if isinstance(cell, UnitEstimate):
        unit, cell = cell.unit, cell.estimate
    if cell is None or cell == "":
        return ShownCell(kind="none", by="" if cell is None else None)
    if isinstance(cell, Estimate):
        return (
            ShownCell(kind="none", by="")
            if cell.value is None
            else ShownCell(kind="estimate", by=cell.value, ends=ends(cell, unit if shown_unit is None else shown_unit))
        )
    if isinstance(cell, Spread):
        return _spread(cell)
    if isinstance(cell, int):
        return ShownCell(kind="number", text=f"{cell:,}", by=cell)
    if cell == "all" and style in _TOTALS:
        return ShownCell(kind="total", text=cell, by=_TOTALS[style])
    match style:
        case "name" | "code" | "badge":
            return ShownCell(kind=style, text=cell, by=words.clean(cell))
        case "condition":
            return ShownCell(kind="text", text=words.CONDITIONS[cell])
        case "aspect":
            return ShownCell(kind="text", text=words.ASPECTS[cell])
        case "list":
            lines = tuple(cell.split("\n"))
            return ShownCell(kind="list", lines=lines, by=len(lines))
    return ShownCell(kind="text", text=cell)


def _reworded(cell: Reworded, style: Style) -> ShownCell:
    if style == "number" and isinstance(cell.value, int | float):
        return ShownCell(kind="number", text=f"{cell.value:.4g}", by=cell.value)
    if isinstance(cell.value, int | float):
        return ShownCell(kind="number", text=cell.text, by=-1 if style == "bound" else cell.value)
    return ShownCell(kind="text" if cell.text else "none", text=cell.text)


def _spread(cell: Spread) -> ShownCell:
    if cell.median is None:
        return ShownCell(kind="none", by="")
    lines = () if cell.least == cell.most else (f"[{cell.least:,}–{cell.most:,}]",)
    return ShownCell(kind="spread", text=f"{cell.median:,}", by=cell.median, lines=lines)


# -- numbers ----------------------------------------------------------------------------------------------------------


def ends(estimate: Estimate, unit: str = "share") -> ShownEstimate:
    """A known number with its interval. The unit "points" is for a difference of two shares, in percentage points."""
    value, low, high = estimate.value, estimate.low, estimate.high
    assert value is not None
    share = unit == "share"
    if unit == "points":
        value, low, high = 100 * value, None if low is None else 100 * low, None if high is None else 100 * high
    return ShownEstimate(
        value=words.rounded_percent(value) if share else _amount_text(value, unit),
        low=_interval_end(low, share),
        high=_interval_end(high, share),
        between="–" if (low or 0) >= 0 else " to ",
        n=f"{estimate.n:,}",
        about=f"{_method_text(estimate)}, n = {estimate.n}",
        bar=(_bar_position(value if low is None else low), _bar_position(value), _bar_position(value if high is None else high))
        if share
        else None,
    )


def _interval_end(end: float | None, share: bool) -> str:
    if end is None:
        return "…"
    return words.rounded_percent(end).rstrip("%") if share else _amount_text(end, "")


def _amount_text(value: float, unit: str) -> str:
    text = words.amount(value)
    return f"{text} {unit}" if unit and unit != "score" else text


def _bar_position(share: float) -> float:
    return round(1 + (_BAR - 2) * min(max(share, 0.0), 1.0), 1)


# -- templates --------------------------------------------------------------------------------------------------------


def breakable(name: str) -> Markup:
    """A long name, such as a node id, with line break opportunities."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in _SEAMS.split(printable(name)))


def script_json(data: object) -> Markup:
    """JSON for a `<script type="application/json">`, escaped so that it can neither end the element nor begin another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    from markupsafe import Markup

    return Markup(text.translate(_SCRIPT))


def svg(drawn: Element) -> Markup:
    from markupsafe import Markup

    return Markup(tostring(drawn, encoding="unicode", short_empty_elements=False))


def _printed(value: object) -> object:
    """A value as a template prints it: invisible characters of a text are escaped, Markup stays unchanged."""
    from markupsafe import Markup

    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _by_group(rows: Iterable[HeatRow]) -> list[tuple[str, list[HeatRow]]]:
    return [(group, list(found)) for group, found in groupby(rows, key=lambda row: row.group)]


def _first_rows(table: Table) -> Table:
    return replace(table, rows=table.rows[:LISTED])


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The environment of the templates, made once. jinja2 is imported here because only pages need it."""
    require("report", "an HTML report", otherwise="write text, Markdown or JSON")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("mat.report.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_printed,
    )  # fmt: skip
    made.filters |= {
        "breakable": breakable, "json": script_json, "svg": svg, "percent": words.rounded_percent, "clean": words.clean,
        "plural": words.plural, "shorten": words.shorten, "spaced": _spaced, "grouped": _by_group, "first_rows": _first_rows,
    }  # fmt: skip
    made.globals |= {"words": words, "brief": brief, "grid": grid, "LISTED": LISTED, "FINDINGS": FINDINGS}
    return made
