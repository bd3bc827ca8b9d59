"""A table as a value: columns with headings and units, and cells that are values too.

A cell is a text, a whole number, an `Estimate` (in its column's unit), a `Spread`, a `UnitEstimate`, a `Reworded`; None and
"" say that nothing is known. `media` says where a table or a column is shown, because a page has room for what a terminal has
not. Terminal and Markdown show `texts` of it, CSV and Parquet its numbers (`flat`), the page lays it out by a template.
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
"""A page chooses among all columns (`templates/sections.html.jinja`); these are its alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEstimate:
    """An estimate with a unit of its own. `at_most`: the value is an upper bound of what is estimated."""

    estimate: Estimate
    unit: str = "share"
    at_most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reworded:
    """A value that people are told in other words: `value` is what files hold."""

    text: str
    value: str | float | None


TableCell: TypeAlias = "str | int | Estimate | Spread | UnitEstimate | Reworded | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`name` is its name in files, `title` its heading for people (by default the name). `unit` is that of its estimates.

    `key`: it says what the row is about. `whole`: names (of tests) that are of more use whole than folded.
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
    """`note` says how to read it. `brief`: it belongs in a short summary too.

    `n_in`: the column that says how many runs a row speaks of; an estimate from as many need not repeat it. `grouped`: the
    rows of one value of the first key stand together, and a narrow rendering may say that value once.
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
    """Lines under a title; of more than `most` the first are shown. `more`: what is said of those that are not here."""

    title: str
    lines: tuple[str, ...]
    most: int | None = None
    more: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        return self.lines[: self.most]

    @property
    def rest(self) -> str:
        """What is said of the lines left out; "" where none is."""
        left = len(self.lines) - len(self.shown)
        return self.more or (f"and {left} more" if left else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteList:
    """Sentences that stand together, each on a line of its own."""

    lines: tuple[str, ...]


ReportBlock: TypeAlias = "str | Table | Listing | NoteList"
"""A part of a text for people; a str is a paragraph."""


def shown(tables: Iterable[Table], medium: Medium) -> tuple[Table, ...]:
    """The tables of one medium, each with the columns of that medium alone."""
    return tuple(_in(table, medium) for table in tables if medium in table.media)


def _in(table: Table, medium: Medium) -> Table:
    kept = [place for place, column in enumerate(table.columns) if medium in column.media]
    if len(kept) == len(table.columns):
        return table
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


# -- cells ------------------------------------------------------------------------------------------------------------


def cell_text(cell: TableCell, unit: str = "share", *, n: int | None = None) -> str:
    """A cell as people read it, not yet escaped; "-" for nothing. An estimate from `n` observations does not say so again."""
    if isinstance(cell, Reworded):
        return cell.text or "-"
    if isinstance(cell, UnitEstimate):
        said = words.quantity(cell.estimate, cell.unit, n=n)
        return f"<= {said}" if cell.at_most and cell.estimate.known else said
    if isinstance(cell, Estimate):
        return words.quantity(cell, unit, n=n)
    if isinstance(cell, Spread):
        return words.seen(cell)
    return "-" if cell is None or cell == "" else str(cell)


def texts(table: Table) -> list[list[str]]:
    """The rows of a table as people read them, not yet escaped."""
    place = next((place for place, column in enumerate(table.columns) if column.name == table.n_in), None)
    return [
        [
            cell_text(cell, column.unit, n=_count(row, place))
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]  # fmt: skip


def compact(table: Table) -> Table:
    """The same in less width: n is said once a row, the one that most of its estimates rest on; others still say theirs."""
    names = [column.name for column in table.columns]
    if table.n_in in names or "runs" in names:
        return replace(table, n_in=table.n_in or "runs")
    counts = [[found.n for found in map(_estimated, row) if found is not None and found.known] for row in table.rows]
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


def _estimated(cell: TableCell) -> Estimate | None:
    if isinstance(cell, UnitEstimate):
        return cell.estimate
    return cell if isinstance(cell, Estimate) else None


def _count(row: Sequence[TableCell], place: int | None) -> int | None:
    cell = None if place is None else row[place]
    return cell if isinstance(cell, int) else None
