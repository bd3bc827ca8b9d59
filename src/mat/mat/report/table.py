"""Represents a report's table as a value, which every output format renders: columns with headings and units, and cells.

A cell is a text, an integer, an `Estimate` (in its column's unit), a `Spread`, a `UnitEstimate` or a `Reworded`; None and ""
mean unknown. `media` says where a table or a column is shown, because a page has more room than a terminal. Terminal and
Markdown show its `texts`, CSV and Parquet its numbers (`flat`), and the page renders it with a template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from mat.measure.estimate import Estimate, Spread
from mat.report import words

Medium: TypeAlias = Literal["terminal", "markdown", "files", "page"]
EVERYWHERE: Final[tuple[Medium, ...]] = ("terminal", "markdown", "files")
PEOPLE: Final[tuple[Medium, ...]] = ("terminal", "markdown")
WRITTEN: Final[tuple[Medium, ...]] = ("markdown", "files")
FILES: Final[tuple[Medium, ...]] = ("files",)
PAGE: Final[tuple[Medium, ...]] = ("page",)
"""Shown on the page only. (A page can use all columns of all tables, see `templates/sections.html.jinja`.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEstimate:
    """An estimate with a unit of its own. `at_most`: the value is an upper bound of the true value."""

    estimate: Estimate
    unit: str = "share"
    at_most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reworded:
    """A value with a different text for people: they see `text`, files contain `value`."""

    text: str
    value: str | float | None


TableCell: TypeAlias = "str | int | Estimate | Spread | UnitEstimate | Reworded | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: `name` in files, `title` the heading for people (default: the name), `unit` the unit of its estimates.

    `key`: the column identifies the row. `whole`: its names (of tests) are never wrapped.
    """

    name: str
    title: str = ""
    unit: str = "share"
    key: bool = False
    whole: bool = False
    media: tuple[Medium, ...] = EVERYWHERE

    @property
    def heading(self) -> str:
        return self.title or self.name.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its title. `note` says how to read it; `brief`: the short summary shows it too.

    `n_in`: the column with the number of runs of a row; an estimate from the same number does not repeat it. `grouped`: rows
    with the same first key are adjacent, and a narrow rendering may show that key once.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    brief: bool = False
    n_in: str = ""
    grouped: bool = False
    media: tuple[Medium, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Lines under a title; at most the first `most` are shown. `more`: a text about lines that are left out."""

    title: str
    lines: tuple[str, ...]
    most: int | None = None
    more: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        return self.lines[: self.most]

    @property
    def rest(self) -> str:
        """A text about the lines left out; "" if there are none."""
        left = len(self.lines) - len(self.shown)
        return self.more or (f"and {left} more" if left else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteList:
    """A group of sentences, one per line."""

    lines: tuple[str, ...]


ReportBlock: TypeAlias = "str | Table | Listing | NoteList"
"""A part of a text for people; a str is a paragraph."""


def shown(tables: Iterable[Table], medium: Medium) -> tuple[Table, ...]:
    """The tables of one medium, each with only the columns of that medium."""
    return tuple(_for_medium(table, medium) for table in tables if medium in table.media)


def _for_medium(table: Table, medium: Medium) -> Table:
    kept = [place for place, column in enumerate(table.columns) if medium in column.media]
    if len(kept) == len(table.columns):
        return table
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


# -- cells ------------------------------------------------------------------------------------------------------------


def p_value(value: float | None) -> Reworded | None:
    """The cell of a p-value: two significant digits for people, the number for files."""
    return None if value is None else Reworded(text=f"{value:.2g}", value=value)


def cell_text(cell: TableCell, unit: str = "share", *, n: int | None = None) -> str:
    """A cell as text, not yet escaped; "-" for an empty one. An estimate omits its count if it equals `n`."""
    if isinstance(cell, Reworded):
        return cell.text or "-"
    if isinstance(cell, UnitEstimate):
        text = words.quantity(cell.estimate, cell.unit, n=n)
        return f"<= {text}" if cell.at_most and cell.estimate.known else text
    if isinstance(cell, Estimate):
        return words.quantity(cell, unit, n=n)
    if isinstance(cell, Spread):
        return words.seen(cell)
    return "-" if cell is None or cell == "" else str(cell)


def texts(table: Table) -> list[list[str]]:
    """The rows of a table as text, not yet escaped."""
    place = next((place for place, column in enumerate(table.columns) if column.name == table.n_in), None)
    return [
        [
            cell_text(cell, column.unit, n=_count_at(row, place))
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]  # fmt: skip


def compact(table: Table) -> Table:
    """The same table in less width: the most frequent n of a row gets a column, and only estimates with another n state it."""
    names = [column.name for column in table.columns]
    if table.n_in in names or "runs" in names:
        return replace(table, n_in=table.n_in or "runs")
    counts = [[found.n for found in map(_estimate_of, row) if found is not None and found.known] for row in table.rows]
    if not any(counts):
        return table
    place = 1 + max((place for place, column in enumerate(table.columns) if column.key), default=-1)
    return replace(
        table,
        columns=(*table.columns[:place], Column(name="n"), *table.columns[place:]),
        rows=tuple(
            (*row[:place], max(found, key=found.count, default=None), *row[place:])
            for row, found in zip(table.rows, counts, strict=True)
        ),
        n_in="n",
    )


def _estimate_of(cell: TableCell) -> Estimate | None:
    if isinstance(cell, UnitEstimate):
        return cell.estimate
    return cell if isinstance(cell, Estimate) else None


def _count_at(row: Sequence[TableCell], place: int | None) -> int | None:
    cell = None if place is None else row[place]
    return cell if isinstance(cell, int) else None
