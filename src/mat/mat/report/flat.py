"""Turns tables into plain values for programs: every number as a line (`numbers`), or one table with plain columns (`flat`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mat.measure.estimate import Estimate, Spread
from mat.report.table import Column, Reworded, Table, TableCell, UnitEstimate, shown

_ESTIMATE: Final = ("", "_low", "_high", "_n", "_method")
_SPREAD: Final = ("", "_least", "_most", "_n")

FlatValue: TypeAlias = "str | int | float | None"

# -- numbers, one per line ------------------------------------------------------------------------------------------

FIELDS: Final = (
    ("table", "VARCHAR"), ("item", "VARCHAR"), ("condition", "VARCHAR"), ("category", "VARCHAR"), ("variant", "VARCHAR"),
    ("subject", "VARCHAR"), ("name", "VARCHAR"), ("unit", "VARCHAR"), ("value", "DOUBLE"), ("low", "DOUBLE"),
    ("high", "DOUBLE"), ("n", "BIGINT"), ("confidence", "DOUBLE"), ("method", "VARCHAR"), ("text", "VARCHAR"),
    ("sampling_unit", "VARCHAR"), ("population", "VARCHAR"),
)  # fmt: skip
"""The columns of CSV and Parquet files, with their SQL types."""
_ABOUT: Final = ("item", "condition", "category", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatNumber:
    """One number or fact of a table: a line of a CSV or Parquet file.

    `subject`: the row's other keys, such as an operator, a contract or an agent. `name`: the column. `value` has the interval
    [low, high] at `confidence`, from `n` observations by `method`; for a mere spread (`method` "median [least, most]"), these
    are the median and the range. `text` holds a fact that is not a number.
    `sampling_unit` and `population`: what the interval is for.
    """

    table: str
    item: str = ""
    condition: str = ""
    category: str = ""
    variant: str = ""
    subject: str = ""
    name: str
    unit: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    confidence: float | None = None
    method: str = ""
    text: str = ""
    sampling_unit: str = ""
    population: str = ""


def numbers(tables: Iterable[Table]) -> Iterator[FlatNumber]:
    """Yield every number and fact of tables, row by row, without unknown ones."""
    for table in shown(tables, "files"):
        for row in table.rows:
            cells = list(zip(table.columns, row, strict=True))
            keys = {column.name: _key_text(cell) for column, cell in cells if column.key}
            item, condition, category, variant = (keys.pop(name, "") for name in _ABOUT)
            line = FlatNumber(
                table=table.name, item=item, condition=condition, category=category, variant=variant, name="",
                subject=" / ".join(filter(None, keys.values())),
            )  # fmt: skip
            for column, cell in cells:
                if not column.key:
                    yield from _flat_numbers(replace(line, name=column.name), column, cell)


def _key_text(cell: TableCell) -> str:
    value: object = cell.value if isinstance(cell, Reworded) else cell
    return "" if value is None else str(value)


def _flat_numbers(line: FlatNumber, column: Column, given: TableCell) -> Iterator[FlatNumber]:
    cell = given.value if isinstance(given, Reworded) else given
    if isinstance(cell, Estimate | UnitEstimate):
        quantity = cell if isinstance(cell, UnitEstimate) else UnitEstimate(estimate=cell, unit=column.unit)
        estimate = quantity.estimate
        method = f"{estimate.method}, at most" if quantity.at_most and estimate.known else estimate.method
        yield replace(
            line, unit=quantity.unit, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n,
            confidence=estimate.confidence, method=method, sampling_unit=estimate.sampling_unit,
            population=estimate.population,
        )  # fmt: skip
    elif isinstance(cell, Spread):
        if cell.n:
            yield replace(
                line, unit=column.unit, value=_float(cell.median), low=_float(cell.least), high=_float(cell.most), n=cell.n,
                method="median [least, most]",
            )  # fmt: skip
    elif isinstance(cell, int | float):
        yield replace(line, value=float(cell))
    elif cell:
        yield replace(line, text=cell)


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


# -- a table of plain values -----------------------------------------------------------------------------------------


def flat(table: Table) -> tuple[list[tuple[str, str]], list[list[FlatValue]]]:
    """A table of plain values: columns with their SQL types, and rows. A column without any value is a text column."""
    columns: list[tuple[str, str]] = []
    rows: list[list[FlatValue]] = [[] for _ in table.rows]
    for place, column in enumerate(table.columns):
        cells = [_plain_value(row[place]) for row in table.rows]
        kind = _cell_type(cells)
        columns += _plain_columns(column, kind)
        for row, cell in zip(rows, cells, strict=True):
            row += _plain_cells(cell, kind)
    return columns, rows


def _plain_value(cell: TableCell) -> str | float | Estimate | Spread | None:
    if isinstance(cell, Reworded):
        return cell.value
    return cell.estimate if isinstance(cell, UnitEstimate) else cell


def _cell_type(cells: Sequence[object]) -> type[object]:
    """The type of a column's cells: estimates, spreads, floats, integers or texts."""
    for kind in (Estimate, Spread, float, int):
        if any(isinstance(cell, kind) for cell in cells) and not any(isinstance(cell, str) and cell for cell in cells):
            return kind
    return str


def _plain_columns(column: Column, kind: type[object]) -> Iterator[tuple[str, str]]:
    if kind is Estimate:
        kinds = ("DOUBLE", "DOUBLE", "DOUBLE", "BIGINT", "VARCHAR")
        yield from ((f"{column.name}{ending}", of) for ending, of in zip(_ESTIMATE, kinds, strict=True))
    elif kind is Spread:
        yield from ((f"{column.name}{ending}", "BIGINT") for ending in _SPREAD)
    else:
        yield column.name, {int: "BIGINT", float: "DOUBLE"}.get(kind, "VARCHAR")


def _plain_cells(cell: object, kind: type[object]) -> list[FlatValue]:
    if isinstance(cell, Estimate):
        return [cell.value, cell.low, cell.high, cell.n, cell.method]
    if isinstance(cell, Spread):
        return [cell.median, cell.least, cell.most, cell.n]
    if kind in (Estimate, Spread):
        return [None] * len(_ESTIMATE if kind is Estimate else _SPREAD)
    if kind in (int, float):
        return [cell if isinstance(cell, int | float) else None]
    return ["" if cell is None else str(cell)]
