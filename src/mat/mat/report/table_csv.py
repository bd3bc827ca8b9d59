"""Tables as CSV (RFC 4180 but for plain line ends): UTF-8, a header, numbers as they are.

A spreadsheet reads a text that begins with =, +, - or @ as a formula, and what came from a run could be one: such a text gets
an apostrophe before it. Line breaks and control characters are spelled out, so that every row is a line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Final

from mat.report import words
from mat.report.flat import FIELDS, FlatValue, flat, numbers
from mat.report.table import Table

_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def numbers_csv(tables: Iterable[Table]) -> str:
    """Every number and fact of tables, one a line, under the names of `FIELDS`."""
    return _csv([name for name, _ in FIELDS], (astuple(number) for number in numbers(tables)))


def table_csv(table: Table) -> str:
    """One table, its estimates and spreads in several columns each."""
    names, rows = flat(table)
    return _csv([name for name, _ in names], rows)


def _csv(names: Sequence[str], rows: Iterable[Iterable[FlatValue]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([harmless(name) for name in names])
    writer.writerows([harmless(value) if isinstance(value, str) else value for value in row] for row in rows)
    return stream.getvalue()


def harmless(text: str) -> str:
    """Text that a spreadsheet shows, and does not run."""
    said = words.clean(text)
    return f"'{said}" if said.lstrip().startswith(_FORMULA) else said
