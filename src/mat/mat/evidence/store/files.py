"""Export the store to Parquet or CSV, one file per table and machine, and import Parquet files of many machines.

    exports/runs-runner-1.parquet  exports/steps-runner-1.parquet  ...  exports/runs-runner-2.parquet  ...

The numbers of runs are the same in every store, so any tool can also read the files in place, with a glob:
`SELECT ... FROM 'exports/runs-*.parquet' JOIN 'exports/steps-*.parquet' USING (run)`. There, a run that two machines exported
counts twice; imported into a store, it counts once.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from mat.core.errors import MatError, SpecError
from mat.evidence.store.schema import TABLES, VERSION

FileFormat: TypeAlias = Literal["parquet", "csv"]
_NAME: Final = re.compile(rf"({'|'.join(TABLES)})-([A-Za-z0-9_.\-]+)\.parquet")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\-]+")


def write_files(connection: Any, folder: Path, *, machine: str, file_format: FileFormat) -> tuple[Path, ...]:
    """Write each table to its own file, atomically, with rows in a fixed order. Returns the files."""
    import duckdb

    if file_format not in get_args(FileFormat):
        raise SpecError(what=f"unknown file format: {file_format!r}", fix=f"use one of {', '.join(get_args(FileFormat))}")
    name = _UNSAFE.sub("-", machine or platform.node()) or "machine"
    options = f"FORMAT parquet, KV_METADATA {{mat_schema: '{VERSION}'}}" if file_format == "parquet" else "FORMAT csv, HEADER"
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in TABLES:
            path = folder / f"{table}-{name}.{file_format}"
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                columns = "*" if file_format == "parquet" else _harmless_columns(table)
                connection.execute(f"COPY (SELECT {columns} FROM {table} ORDER BY ALL) TO {_quoted(str(draft))} ({options})")
                os.replace(draft, path)
            finally:
                draft.unlink(missing_ok=True)
            written.append(path)
    except (OSError, duckdb.IOException) as error:
        raise MatError(
            f"cannot write to {folder}: {getattr(error, 'strerror', None) or error}", fix="check the folder", where=str(folder)
        ) from None
    return tuple(written)


def _harmless_columns(table: str) -> str:
    """SQL for the columns of a table, in which a spreadsheet displays texts instead of executing them as formulas."""
    formula = r"^\s*[=+@＝＋－＠-]"
    return ", ".join(
        f"if(regexp_matches(\"{name}\", '{formula}'), '''' || \"{name}\", \"{name}\") AS \"{name}\""
        if kind == "VARCHAR" else f'"{name}"'
        for name, kind in TABLES[table].items()
    )  # fmt: skip


def machines(pattern: str | Path) -> dict[str, dict[str, Path]]:
    """machine -> table -> file, for the Parquet files of a glob or a folder. SpecError if there are none."""
    found: dict[str, dict[str, Path]] = {}
    text = str(pattern)
    names: Iterable[str] = glob.glob(f"{glob.escape(text)}/*.parquet" if Path(text).is_dir() else text, recursive=True)
    for path in map(Path, sorted(names)):
        match = _NAME.fullmatch(path.name)
        if match is not None:
            found.setdefault(f"{path.parent.as_posix()}/{match[2]}", {})[match[1]] = path
    complete = {machine: files for machine, files in found.items() if "runs" in files}
    if not complete:
        raise SpecError(
            what=f"no exported runs match {text}", why="an export has runs-<machine>.parquet and a file for each other table",
            fix="name the folder that mat export wrote, or a glob over such folders", where=text,
        )  # fmt: skip
    return complete


def keep_files(files: dict[str, Path], folder: Path) -> None:
    """Copy the files of one machine to a folder of their own in `folder`, named by their digest, unless they are there."""
    digest = hashlib.sha256()
    for table, path in sorted(files.items()):
        digest.update(f"{table} {path.stat().st_size}\n".encode())
        with path.open("rb") as stream:
            while part := stream.read(1 << 20):
                digest.update(part)
    target = folder / digest.hexdigest()[:16]
    if target.exists():
        return
    draft = folder / f".{target.name}.{os.getpid()}"
    try:
        draft.mkdir(parents=True)
        for path in files.values():
            shutil.copyfile(path, draft / path.name)
        os.replace(draft, target)
    except OSError as error:
        raise MatError(
            f"cannot write to {folder}: {error.strerror}", why="an imported export is copied there, for rebuilding",
            fix="check the folder", where=str(folder),
        ) from None  # fmt: skip
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_files(connection: Any, files: dict[str, Path]) -> tuple[int, int]:
    """Import the files of one machine, within a transaction. Returns (new runs, known runs)."""
    import duckdb

    try:
        for path in files.values():
            _check_version(connection, path)
        return _read(connection, files)
    except duckdb.Error as error:
        where = ", ".join(map(str, files.values()))
        raise SpecError(
            what=f"cannot read the export: {str(error).strip()}", why="the files are damaged, or another program wrote them",
            fix="export them again", where=where,
        ) from None  # fmt: skip


def _read(connection: Any, files: dict[str, Path]) -> tuple[int, int]:
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE mat_new AS
        SELECT {_columns(connection, "runs", files["runs"])} FROM {_rows(files["runs"])}
        QUALIFY row_number() OVER (PARTITION BY key) = 1
    """)
    (total,) = connection.execute("SELECT count(*) FROM mat_new").fetchone()
    connection.execute("DELETE FROM mat_new WHERE key IS NULL OR run IS NULL OR key IN (SELECT key FROM runs)")
    (clash,) = connection.execute("SELECT count(*) FROM mat_new WHERE run IN (SELECT run FROM runs)").fetchone()
    if clash:
        raise MatError("two different runs have the same number", why="64 bits of their keys are equal", fix="use two stores")
    connection.execute("INSERT INTO runs BY NAME SELECT * FROM mat_new")
    for table, path in files.items():
        if table != "runs":
            of_shards = " OR (run IS NULL AND message NOT IN (SELECT message FROM findings))" if table == "findings" else ""
            connection.execute(
                f"INSERT INTO {table} BY NAME SELECT {_columns(connection, table, path)} FROM {_rows(path)} "
                f"WHERE run IN (SELECT run FROM mat_new){of_shards}"
            )
    (new,) = connection.execute("SELECT count(*) FROM mat_new").fetchone()
    connection.execute("DROP TABLE mat_new")
    return int(new), int(total) - int(new)


def _columns(connection: Any, table: str, path: Path) -> str:
    """SQL for the columns of a table, cast to our types. A column that the file does not have is NULL."""
    present = {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {_rows(path)}").fetchall()}
    sources = {name: f'"{name}"' if name in present else "NULL" for name in TABLES[table]}
    return ", ".join(f'CAST({sources[name]} AS {kind}) AS "{name}"' for name, kind in TABLES[table].items())


def _check_version(connection: Any, path: Path) -> None:
    found = connection.execute(
        f"SELECT decode(value) FROM parquet_kv_metadata({_quoted(glob.escape(str(path)))}) WHERE decode(key) = 'mat_schema'"
    ).fetchone()
    version = int(found[0]) if found is not None and str(found[0]).isdecimal() else 0
    if not 0 < version <= VERSION:
        raise SpecError(
            what=f"{path.name} has schema {version}; this pytest-mat reads up to {VERSION}" if version else
            f"{path.name} is not an export of pytest-mat",
            fix="upgrade pytest-mat" if version else "name files that mat export wrote", where=str(path),
        )  # fmt: skip


def _rows(path: Path) -> str:
    """SQL for one file as a table. The name is escaped, because DuckDB reads it as a pattern."""
    return f"read_parquet({_quoted(glob.escape(str(path)))})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
