"""Writes tables as Parquet files, with DuckDB. Texts stay as recorded, because readers of typed files do not execute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mat.core.extras import require
from mat.report.flat import FIELDS, FlatValue, flat, numbers
from mat.report.table import Table


def numbers_parquet(tables: Iterable[Table]) -> bytes:
    """Every number and fact of tables, one per row, with the names and types of `FIELDS`."""
    return _parquet(FIELDS, [astuple(number) for number in numbers(tables)])


def table_parquet(table: Table) -> bytes:
    """One table; estimates and spreads take several columns each."""
    columns, rows = flat(table)
    return _parquet(columns, rows)


def _parquet(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[FlatValue]]) -> bytes:
    require("store", "a Parquet file", otherwise="write CSV")
    import duckdb

    from mat.evidence.store.bulk import append_rows

    kinds = {f"column_{place}": kind for place, (_, kind) in enumerate(columns)}
    names = ", ".join(f"column_{place} AS {_quoted(name)}" for place, (name, _) in enumerate(columns))
    connection: Any = duckdb.connect(":memory:", config={"threads": 1})  # one thread: equal rows give equal bytes
    try:
        connection.execute(f"CREATE TABLE report ({', '.join(f'{name} {kind}' for name, kind in kinds.items())})")
        append_rows(connection, "report", kinds, rows)
        with TemporaryDirectory(prefix="mat-report-") as folder:
            path = Path(folder, "report.parquet")
            connection.execute(f"COPY (SELECT {names} FROM report) TO '{_text(path)}' (FORMAT parquet)")
            return path.read_bytes()
    finally:
        connection.close()


def _quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _text(path: Path) -> str:
    """A path, escaped for an SQL string literal."""
    return str(path).replace("'", "''")
