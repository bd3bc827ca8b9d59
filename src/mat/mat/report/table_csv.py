"""Tables as CSV (RFC 4180 but for plain line ends): UTF-8, a header, numbers as they are.

A spreadsheet reads a text that begins with =, +, - or @ as a formula, and what came from a run could be one: such a text gets
an apostrophe before it. Line breaks and control characters are spelled out, so that every row is a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from typing import Final, TypeAlias

from mat.measure.estimate import Estimate, Spread
from mat.report import words
from mat.report.tables import FIELDS, Cell, Column, Quantity, Table, Told, numbers

__all__ = ["flat", "harmless", "numbers_csv", "table_csv"]

_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_ESTIMATE: Final = ("", "_low", "_high", "_n", "_method")
_SPREAD: Final = ("", "_least", "_most", "_n")

Value: TypeAlias = "str | int | float | None"


def numbers_csv(tables: Iterable[Table]) -> str:
    """Every number and fact of tables, one a line, under the names of `FIELDS`."""
    return _csv([name for name, _ in FIELDS], (astuple(number) for number in numbers(tables)))


def table_csv(table: Table) -> str:
    """One table, its estimates and spreads in several columns each."""
    names, rows = flat(table)
    return _csv([name for name, _ in names], rows)


def flat(table: Table) -> tuple[list[tuple[str, str]], list[list[Value]]]:
    """A table of plain values: columns with their SQL types, and rows. A column that nothing is known of is a text."""
    columns: list[tuple[str, str]] = []
    rows: list[list[Value]] = [[] for _ in table.rows]
    for place, column in enumerate(table.columns):
        cells = [_value(row[place]) for row in table.rows]
        kind = _kind(cells)
        columns += _columns(column, kind)
        for row, cell in zip(rows, cells, strict=True):
            row += _flat(cell, kind)
    return columns, rows


def _value(cell: Cell) -> str | float | Estimate | Spread | None:
    if isinstance(cell, Told):
        return cell.value
    return cell.estimate if isinstance(cell, Quantity) else cell


def _kind(cells: Sequence[object]) -> type[object]:
    """What the cells of a column are: estimates, spreads, whole numbers, or texts."""
    for kind in (Estimate, Spread, float, int):
        if any(isinstance(cell, kind) for cell in cells) and not any(isinstance(cell, str) and cell for cell in cells):
            return kind
    return str


def _columns(column: Column, kind: type[object]) -> Iterator[tuple[str, str]]:
    if kind is Estimate:
        kinds = ("DOUBLE", "DOUBLE", "DOUBLE", "BIGINT", "VARCHAR")
        yield from ((f"{column.name}{ending}", of) for ending, of in zip(_ESTIMATE, kinds, strict=True))
    elif kind is Spread:
        yield from ((f"{column.name}{ending}", "BIGINT") for ending in _SPREAD)
    else:
        yield column.name, {int: "BIGINT", float: "DOUBLE"}.get(kind, "VARCHAR")


def _flat(cell: object, kind: type[object]) -> list[Value]:
    if isinstance(cell, Estimate):
        return [cell.value, cell.low, cell.high, cell.n, cell.method]
    if isinstance(cell, Spread):
        return [cell.median, cell.least, cell.most, cell.n]
    if kind in (Estimate, Spread):
        return [None] * len(_ESTIMATE if kind is Estimate else _SPREAD)
    if kind in (int, float):
        return [cell if isinstance(cell, int | float) else None]
    return ["" if cell is None else str(cell)]


def _csv(names: Sequence[str], rows: Iterable[Iterable[Value]]) -> str:
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([harmless(name) for name in names])
    writer.writerows([harmless(value) if isinstance(value, str) else value for value in row] for row in rows)
    return stream.getvalue()


def harmless(text: str) -> str:
    """Text that a spreadsheet shows, and does not run."""
    said = words.clean(text)
    return f"'{said}" if said.lstrip().startswith(_FORMULA) else said
