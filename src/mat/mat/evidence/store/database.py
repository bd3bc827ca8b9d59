"""The store: runs, steps, violations, perturbations, mediations and usage in DuckDB, made from artefact logs.

    with Store(".mat/store/store.duckdb") as store:
        store.merge(".mat/store")                             # what the log has and the store has not
        store.query("SELECT category, avg(steps) FROM runs GROUP BY category").rows

DuckDB lets one process write a file at a time, or several read it. So processes append to a log (`mat.evidence.runlog`), and
one takes it into the store afterwards: losing a store loses nothing, `Store.rebuild` makes it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from mat.core.checkpoint import START, Mark
from mat.core.errors import MatError, SpecError
from mat.core.run import Finding
from mat.evidence.runlog import FOLDER, RunEntry, Shard, shards
from mat.evidence.store.bulk import append_columns, append_rows, as_array, registered
from mat.evidence.store.columns import add_rows, no_rows, run_number
from mat.evidence.store.files import FileFormat, machines, read_files, write_files
from mat.evidence.store.metrics import BY, GroupMetrics, metrics
from mat.evidence.store.schema import CREATE, MIGRATIONS, TABLES, VERSION
from mat.measure.interval import CONFIDENCE
from mat.measure.rows import RunCondition

NAME: Final = "store.duckdb"
"""Of the file, in the folder of the log that it is made from."""
STORE: Final = FOLDER / NAME
BATCH: Final = 1_000
"""Runs that are taken in by one transaction."""
AccessMode: TypeAlias = Literal["write", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was taken in: runs that were new, runs that the store knew, and what could not be read."""

    new: int = 0
    known: int = 0
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: Taken) -> Taken:
        return Taken(new=self.new + other.new, known=self.known + other.known, findings=self.findings + other.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The rows of a query, with the name and the SQL type of each column. `more`: there were rows beyond the limit."""

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False


class Store:
    """A store in a file, or in memory where `path` is None. Close it, or use it in a `with`.

    While it is open for writing nobody else can open it; `mode` "read" lets others read at the same time. A new file gets its
    tables, one of an earlier version is migrated. MatError where the file is none of ours, is of a later version, or is open
    elsewhere.
    """

    def __init__(self, path: str | Path | None = STORE, *, mode: AccessMode = "write") -> None:
        self.path = None if path is None else Path(path)
        if mode == "read" and self.path is not None:
            if not self.path.is_file():
                raise SpecError(
                    what=f"there is no store {self.path}", why="a store is made from recorded runs",
                    fix="run pytest --mat-store, or mat import FILE", where=str(self.path),
                )  # fmt: skip
            if self._version_of_file() != VERSION:
                Store(self.path).close()  # migrates it, or says why not
        self._connection = self._connected(mode)
        try:
            if mode == "write" or self.path is None:
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    # -- open and close ---------------------------------------------------------------------------------------------------

    def _connected(self, mode: AccessMode) -> Any:
        import duckdb

        if self.path is not None and mode == "write":
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = duckdb.connect(
                ":memory:" if self.path is None else str(self.path), read_only=mode == "read" and self.path is not None
            )
            connection.execute("SET python_enable_replacements = false")  # no variable of a program is a table
        except duckdb.Error as error:
            raise _unusable(self.path, error) from None
        return connection

    def _version_of_file(self) -> int:
        connection = self._connected("read")
        try:
            return _version(connection, self.path)
        finally:
            connection.close()

    def _prepare(self) -> None:
        """Make the tables, or bring them to this version."""
        with self._transaction():
            version = _version(self._connection, self.path)
            for statement in CREATE if version == 0 else ():
                self._connection.execute(statement)
            for step in range(version or VERSION, VERSION):
                for statement in MIGRATIONS[step]:
                    self._connection.execute(statement)
                self._connection.execute("UPDATE meta SET value = ? WHERE name = 'schema'", [str(step + 1)])

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing, however the process ends."""
        self._connection.execute("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what failed is said, not that it cannot be undone as well
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    # -- in ---------------------------------------------------------------------------------------------------------------

    def append(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows in bulk, given as columns (lists or NumPy arrays of one length); nothing is checked or told apart.

        For data that has no runs to take apart, as in benchmarks; `ingest` is the way for runs.
        """
        append_columns(self._connection, table, TABLES[table], columns)

    def ingest(self, entries: Iterable[RunEntry]) -> Taken:
        """Take in runs that the store does not have; the same run once, however often it is given."""
        taken = Taken()
        for part in _batches(entries):
            with self._transaction():
                taken += self._add(part)
        return taken

    def merge(self, log: str | Path) -> Taken:
        """Take in what the shards of a log have more than when they were last merged.

        What cannot be read of them is in the answer and in the table `findings`. A shard that is still being written is read
        as far as it is whole, and the rest the next time.
        """
        taken, marks = Taken(), self._marks()
        for path in shards(log):
            name, size = self._name_of(path), path.stat().st_size
            seen, mark = marks.get(name, (0, START))
            if size != seen:
                taken += self._merge_shard(path, name, size, mark)
        return taken

    def behind(self, log: str | Path) -> bool:
        """Whether a log may have something that the store has not taken in."""
        marks = self._marks()
        return any(path.stat().st_size != marks.get(self._name_of(path), (0, START))[0] for path in shards(log))

    def missing(self, entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
        """Those of the entries whose runs the store does not have."""
        for part in _batches(entries):
            by_number = {run_number(entry.key): entry for entry in part}
            known = self._known(by_number)
            yield from (entry for number, entry in by_number.items() if number not in known)

    def _merge_shard(self, path: Path, name: str, size: int, mark: Mark) -> Taken:
        shard, taken = Shard(path, mark), Taken()
        for part in _batches(shard):
            with self._transaction():
                taken += self._add(part)
                self._set_mark(name, 0, shard.mark)
        with self._transaction():
            self._set_mark(name, size, shard.mark)
            self._connection.execute("DELETE FROM findings WHERE shard = ? AND code <> 'log-damaged'", [name])
            for finding in shard.findings:
                self._connection.execute(
                    "INSERT INTO findings (code, message, step, shard) SELECT $1, $2, -1, $3 "
                    "WHERE NOT EXISTS (FROM findings WHERE shard = $3 AND message = $2)",
                    [finding.code, finding.message, name],
                )
        return taken + Taken(findings=shard.findings)

    @classmethod
    def rebuild(cls, path: str | Path, *logs: str | Path) -> Taken:
        """Make a store anew from logs, in the place of what is there, readable or not; until it is done the old one stays.

        MatError where a log holds runs that this version cannot read: the old store may have them, the new one would not.
        """
        path = Path(path)
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            with cls(beside) as store:
                taken = sum((store.merge(log) for log in logs), Taken())
            foreign = [finding.message for finding in taken.findings if finding.code == "log-foreign"]
            if foreign:
                raise MatError(
                    f"a new store would be without the runs of {len(foreign)} files: {'; '.join(foreign)}",
                    why="another version of pytest-mat wrote them", fix="move these files away to do without them",
                    where=str(path),
                )  # fmt: skip
            path.with_name(f"{path.name}.wal").unlink(missing_ok=True)  # of the old file; it must never meet the new one
            os.replace(beside, path)
        finally:
            for left in (beside, beside.with_name(f"{beside.name}.wal")):
                left.unlink(missing_ok=True)
        return taken

    def _add(self, entries: list[RunEntry]) -> Taken:
        """Take in a batch, within a transaction."""
        by_key: dict[str, tuple[RunEntry, str]] = {}
        for entry in entries:
            head = entry.run.head
            by_key.setdefault(entry.key_with(head), (entry, head))
        numbers = {run_number(key): key for key in by_key}
        known = self._known(numbers)
        if len(numbers) != len(by_key) or any(numbers[number] != key for number, key in known.items()):
            raise MatError(
                "two different runs have the same number", why="the first 64 bits of their keys are equal", fix="use two stores"
            )
        rows = no_rows()
        for key, (entry, head) in by_key.items():
            if run_number(key) not in known:
                add_rows(rows, entry, key=key, head=head)
        for table, found in rows.items():
            append_rows(self._connection, table, TABLES[table], found)
        return Taken(new=len(rows["runs"]), known=len(entries) - len(rows["runs"]))

    def _known(self, numbers: Iterable[int]) -> dict[int, str]:
        """Those of the run numbers that the store has, with their keys."""
        with registered(self._connection, {"run": as_array(list(numbers), "UBIGINT")}) as batch:
            return dict(
                self._connection.execute(f"SELECT run, key FROM runs WHERE run IN (SELECT run FROM {batch})").fetchall()
            )

    def _marks(self) -> dict[str, tuple[int, Mark]]:
        """By shard: the size it had when it was read to its end (0 where it was not), and how far it was whole."""
        rows = self._connection.execute("SELECT shard, size, line, byte, last_byte, last_sum FROM shards").fetchall()
        return {
            name: (size, Mark(number=line, offset=byte, last=(last_byte, last_sum)))
            for name, size, line, byte, last_byte, last_sum in rows
        }

    def _set_mark(self, name: str, size: int, mark: Mark) -> None:
        self._connection.execute("DELETE FROM shards WHERE shard = ?", [name])
        self._connection.execute(
            "INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?)", [name, size, mark.number, mark.offset, *mark.last]
        )

    def _name_of(self, shard: Path) -> str:
        """A shard's name from the store's folder, so that both can be moved together."""
        return Path(os.path.relpath(shard, self.path.parent)).as_posix() if self.path is not None else str(shard.resolve())

    def read_parquet(self, pattern: str | Path) -> Taken:
        """Take in what `export` wrote on any number of machines, by a glob or a folder; a run that several have counts once."""
        taken = Taken()
        for files in machines(pattern).values():
            with self._transaction():
                new, known = read_files(self._connection, files)
            taken += Taken(new=new, known=known)
        return taken

    # -- out --------------------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """From now on SQL reaches the tables and nothing else: no file, no network, no extension. It cannot be undone."""
        for statement in ("SET enable_external_access = false", "SET lock_configuration = true"):
            self._connection.execute(statement)

    def query(self, sql: str, *, limit: int | None = None) -> QueryResult:
        """The rows of one SELECT (or DESCRIBE, SUMMARIZE, SHOW, EXPLAIN), the first `limit` of them; nothing is ever changed.

        SpecError for anything else and for what DuckDB does not understand. Call `seal` first where the SQL is not your own.
        """
        import duckdb

        self._check(sql)
        try:
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
            try:
                kinds = tuple(map(str, self._connection.sql(sql).types))
                answer = self._connection.execute(sql)
                columns = tuple(str(column[0]) for column in answer.description)
                rows = answer.fetchall() if limit is None else answer.fetchmany(limit + 1)
            finally:
                self._connection.execute("ROLLBACK")
        except duckdb.Error as error:
            raise _wrong(error) from None
        return QueryResult(
            columns=columns,
            kinds=kinds,
            rows=tuple(rows[:limit]),
            more=limit is not None and len(rows) > limit,
        )

    def metrics(
        self, by: Sequence[str] = BY, *, condition: RunCondition | None = None, confidence: float = CONFIDENCE
    ) -> tuple[GroupMetrics, ...]:
        """Every metric of METRICS for each group of runs, with intervals; see `mat.evidence.store.metrics`."""
        return metrics(self._connection, by, condition=condition, confidence=confidence)

    def rollup(self, by: Sequence[str] = ("agent", "kind")) -> QueryResult:
        """Steps, tokens, errors and blocked steps by columns of the table `steps` ("run" among them), in their order."""
        wrong = [name for name in by if name not in TABLES["steps"]]
        if wrong or not by:
            raise SpecError(
                what="; ".join(f"steps have no column {name!r}" for name in wrong) or "nothing to roll up by",
                fix=f"use some of {', '.join(TABLES['steps'])}",
            )
        names = ", ".join(f'"{name}"' for name in by)
        return self.query(
            f"SELECT {names}, count(*) AS steps, CAST(sum(tokens) AS BIGINT) AS tokens, count(error) AS errors, "
            f"count(*) FILTER (WHERE decision = 'block') AS blocked, max(sealed_ms) AS until_ms "
            f"FROM steps GROUP BY {names} ORDER BY {names}"
        )

    def export(self, folder: str | Path, *, machine: str = "", file_format: FileFormat = "parquet") -> tuple[Path, ...]:
        """Write a file for each table, named `<table>-<machine>.parquet` (or .csv); `machine` is the host's name by default."""
        return write_files(self._connection, Path(folder), machine=machine, file_format=file_format)

    def _check(self, sql: str) -> None:
        """SpecError where a text is not one statement that reads."""
        import duckdb

        try:
            kinds = [statement.type.name for statement in self._connection.extract_statements(sql)]
        except duckdb.Error as error:
            raise _wrong(error) from None
        if len(kinds) != 1 or kinds[0] not in _READING:
            what = f"a {kinds[0]} statement" if len(kinds) == 1 else f"{len(kinds)} statements"
            raise SpecError(
                what=f"{what} where one SELECT is wanted", why="queries read the store, they do not change it",
                fix="write one SELECT; runs are added by pytest --mat-store and mat import",
            )  # fmt: skip


_READING: Final = ("SELECT", "EXPLAIN")


def _batches(entries: Iterable[RunEntry]) -> Iterator[list[RunEntry]]:
    """As many as go into a transaction; where reading ends in an error, what was read before it comes first."""
    part: list[RunEntry] = []
    try:
        for entry in entries:
            part.append(entry)
            if len(part) == BATCH:
                yield part
                part = []
    except MatError:
        if part:
            yield part
        raise
    if part:
        yield part


def bring_up_to_date(path: str | Path, log: str | Path) -> tuple[Finding, ...]:
    """Take into the store in a file what its log has more; says what could not be read.

    Where another process reads the store nothing can be taken in: then a finding `store-behind` says so, and the store can
    still be read as it is.
    """
    path, log = Path(path), Path(log)
    if not log.is_dir():
        return ()
    try:
        if path.is_file():
            with Store(path, mode="read") as store:
                if not store.behind(log):
                    return ()
        with Store(path) as store:
            return store.merge(log).findings
    except StoreInUse as error:
        return (Finding(code="store-behind", message=f"the newest runs are not in it yet: {error.what}"),)


class StoreInUse(MatError):  # noqa: N818  (named after what happened)
    """Another process has the store open."""


def _wrong(error: Exception) -> SpecError:
    return SpecError(
        what=str(error).strip(), why="the query could not be answered",
        fix=f"the tables are {', '.join(TABLES)}; DESCRIBE runs lists columns",
    )  # fmt: skip


def _version(connection: Any, path: Path | None) -> int:
    """The schema's version, 0 where there is no table yet. MatError where it is not ours, or of a later version."""
    names = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not names:
        return 0
    found = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() if "meta" in names else None
    if found is None or not str(found[0]).isdecimal() or int(found[0]) < 1:
        raise SpecError(
            what=f"{path} is no store of pytest-mat", why="it is a DuckDB file that holds other tables",
            fix="give another file", where=str(path),
        )  # fmt: skip
    if int(found[0]) > VERSION:
        raise SpecError(
            what=f"the store has schema {found[0]}; this pytest-mat reads up to {VERSION}",
            why="a newer version of pytest-mat wrote it", fix="upgrade pytest-mat, or give another file", where=str(path),
        )  # fmt: skip
    return int(found[0])


def _unusable(path: Path | None, error: Exception) -> MatError:
    said = str(error).strip().split("\n")[0]
    if re.search(r"\block\b", said.lower()):  # a word: damage is told of a "block"
        return StoreInUse(
            what=f"the store {path} is open in another process", why=said,
            fix="wait until it has ended; runs recorded meanwhile stay in the log and are imported later", where=str(path),
        )  # fmt: skip
    return MatError(
        f"cannot open the store {path}", why=said, fix="rebuild it from its log: mat import --rebuild", where=str(path)
    )
