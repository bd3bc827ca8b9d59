"""Writes tables as CSV (RFC 4180, but with \\n line ends): UTF-8, a header, unformatted numbers.

A spreadsheet reads a text that begins with =, +, - or @ as a formula, and a recorded text may be one, so these texts get a
leading apostrophe. Line breaks and control characters are escaped, so that every row is one line.
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
    """Every number and fact of tables, one per line, with the names of `FIELDS`."""
    return _csv([name for name, _ in FIELDS], (astuple(number) for number in numbers(tables)))


def table_csv(table: Table) -> str:
    """One table; estimates and spreads take several columns each."""
    names, rows = flat(table)
    return _csv([name for name, _ in names], rows)


def _csv(names: Sequence[str], rows: Iterable[Iterable[FlatValue]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([harmless(name) for name in names])
    writer.writerows([harmless(value) if isinstance(value, str) else value for value in row] for row in rows)
    return stream.getvalue()


def harmless(text: str) -> str:
    """Text that a spreadsheet displays instead of executing it as a formula."""
    cleaned = words.clean(text)
    return f"'{cleaned}" if cleaned.lstrip().startswith(_FORMULA) else cleaned
