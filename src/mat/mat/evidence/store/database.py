"""The store: runs, steps, violations, perturbations, mediations and usage in DuckDB, made from run logs.

    with Store(".mat/store/store.duckdb") as store:
        store.merge(".mat/store")                             # adds the runs that are only in the log
        store.query("SELECT category, avg(steps) FROM runs GROUP BY category").rows

DuckDB lets one process write a file at a time, or several read it. So processes append to a log (`mat.evidence.runlog`), and
one of them adds the log to the store afterwards. Exports that are imported are kept next to the log (`Store.keep`). So a lost
store loses nothing: `Store.rebuild` makes it again from both.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from mat.core.checkpoint import START, Mark
from mat.core.errors import MatError, SpecError
from mat.core.extras import require
from mat.core.files import PRIVATE, is_private, make_folder
from mat.core.run import Finding
from mat.evidence.runlog import FOLDER, RunEntry, Shard, shards
from mat.evidence.store.bulk import append_columns, append_rows, as_array, registered
from mat.evidence.store.columns import add_rows, no_rows, run_number
from mat.evidence.store.files import FileFormat, keep_files, machines, read_files, write_files
from mat.evidence.store.metrics import BY, GroupMetrics, metrics
from mat.evidence.store.schema import CREATE, MIGRATIONS, TABLES, VERSION
from mat.evidence.store.trial import remember, try_to_open
from mat.evidence.store.views import VIEWS, create_views
from mat.measure.interval import CONFIDENCE
from mat.measure.rows import RunCondition
from mat.measure.sampling import TASKS, Sampling

NAME: Final = "store.duckdb"
"""The name of the store's file, in the folder of its log."""
STORE: Final = FOLDER / NAME
IMPORTED: Final = "imported"
"""The folder, in that of a log, of the exports that were imported: each in a folder named by its digest."""
BATCH: Final = 1_000
"""The number of runs added in one transaction."""
AccessMode: TypeAlias = Literal["write", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What an import did: the runs that were new, the runs that the store had already, and what could not be read."""

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
    """A store in a file, or in memory if `path` is None. Close it, or use it in a `with`.

    While it is open for writing, no other process can open it; `mode="read"` lets others read at the same time. A new file gets
    its tables, and one of an earlier version is migrated. MatError if the file is not a store, has a later version, or is open
    in another process.
    """

    def __init__(self, path: str | Path | None = STORE, *, mode: AccessMode = "write") -> None:
        self.path = None if path is None else Path(path)
        if mode == "read" and self.path is not None and not self.path.is_file():
            raise SpecError(
                what=f"there is no store {self.path}", why="a store is made from recorded runs",
                fix="run pytest --mat-store, or mat import FILE", where=str(self.path),
            )  # fmt: skip
        self._connection = self._connect(mode)
        self._has_views = False
        try:
            if mode == "write" or self.path is None:
                self._prepare()
            elif _version(self._connection, self.path) != VERSION:
                self._connection.close()
                Store(self.path).close()  # migrates it, or raises
                self._connection = self._connect(mode)
        except BaseException:
            self._connection.close()
            raise

    # -- open and close ---------------------------------------------------------------------------------------------------

    def _connect(self, mode: AccessMode) -> Any:
        require("store", "a store of runs")
        import duckdb

        if self.path is not None and mode == "write":
            make_folder(self.path.parent)
        is_new = self.path is not None and mode == "write" and not self.path.exists()
        if self.path is not None and not is_new:
            try_to_open(self.path)
        try:
            connection = duckdb.connect(
                ":memory:" if self.path is None else str(self.path), read_only=mode == "read" and self.path is not None
            )
            if self.path is not None and is_new and is_private(self.path):
                self.path.chmod(PRIVATE)
            connection.execute("SET python_enable_replacements = false")  # no variable of a program is a table
            for option in ("autoinstall_known_extensions", "autoload_known_extensions"):
                connection.execute(f"SET {option} = false")
        except duckdb.Error as error:
            raise _unusable(self.path, error) from None
        return connection

    def _prepare(self) -> None:
        """Create the tables, or migrate them to this version."""
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
        if self.path is not None:
            remember(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none, even if the process is killed."""
        self._connection.execute("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # report the first error, not the failed rollback
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    # -- in ---------------------------------------------------------------------------------------------------------------

    def append(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows in bulk, given as columns (lists or NumPy arrays of one length), without checks.

        This is for data without runs, as in benchmarks. Use `ingest` for runs.
        """
        append_columns(self._connection, table, TABLES[table], columns)

    def ingest(self, entries: Iterable[RunEntry]) -> Taken:
        """Add the runs that the store does not have. A run that is given several times is added once."""
        taken = Taken()
        for part in _batches(entries):
            with self._transaction():
                taken += self._add(part)
        return taken

    def merge(self, log: str | Path) -> Taken:
        """Add the runs that were appended to the shards of a log since the last merge.

        What cannot be read is reported in the result and in the table `findings`. Of a shard that is still being written, the
        complete lines are read now and the rest next time.
        """
        taken, marks = Taken(), self._marks()
        for path in shards(log):
            name, size = self._name_of(path), path.stat().st_size
            seen, mark = marks.get(name, (0, START))
            if size != seen:
                taken += self._merge_shard(path, name, size, mark)
        return taken

    def behind(self, log: str | Path) -> bool:
        """Whether a log may have runs that the store does not have."""
        marks = self._marks()
        return any(path.stat().st_size != marks.get(self._name_of(path), (0, START))[0] for path in shards(log))

    def missing(self, entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
        """The entries whose runs the store does not have."""
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
        """Make a new store from logs and the exports kept there, and replace the old file with it when it is complete.

        Runs that only the old store has are carried over if it can be read; a finding `store-damaged` says if it cannot.
        MatError if a log has runs that this version cannot read: the old store may have them, and the new one would lose them.
        StoreInUse if the old store is open in another process.
        """
        path = Path(path)
        draft = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            with cls(draft) as store:
                taken = sum((store.merge(log) for log in logs), Taken())
                for folder in (Path(log, IMPORTED) for log in logs):
                    if any(folder.glob("*/*.parquet")):
                        taken += store.read_parquet(f"{glob.escape(str(folder))}/*/*.parquet")
                taken += store.carry_over(path)
            foreign = [finding.message for finding in taken.findings if finding.code == "log-foreign"]
            if foreign:
                raise MatError(
                    f"a new store would lack the runs of {len(foreign)} files: {'; '.join(foreign)}",
                    why="another version of pytest-mat wrote them", fix="move these files away if you do not need them",
                    where=str(path),
                )  # fmt: skip
            path.with_name(f"{path.name}.wal").unlink(
                missing_ok=True
            )  # DuckDB must not apply the old file's WAL to the new one
            os.replace(draft, path)
        finally:
            for left in (draft, draft.with_name(f"{draft.name}.wal")):
                left.unlink(missing_ok=True)
        return taken

    def _add(self, entries: list[RunEntry]) -> Taken:
        """Add a batch, within a transaction."""
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
        """The run numbers that the store has -> their keys."""
        with registered(self._connection, {"run": as_array(list(numbers), "UBIGINT")}) as batch:
            return dict(
                self._connection.execute(f"SELECT run, key FROM runs WHERE run IN (SELECT run FROM {batch})").fetchall()
            )

    def _marks(self) -> dict[str, tuple[int, Mark]]:
        """shard -> (its size when it was read to its end, or 0; the end of its valid part)."""
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
        """A shard's path relative to the store's folder, so that both can be moved together."""
        return Path(os.path.relpath(shard, self.path.parent)).as_posix() if self.path is not None else str(shard.resolve())

    def read_parquet(self, pattern: str | Path) -> Taken:
        """Add what `export` wrote on any number of machines, from a glob or a folder. A run that several have counts once."""
        taken = Taken()
        for files in machines(pattern).values():
            with self._transaction():
                new, known = read_files(self._connection, files)
            taken += Taken(new=new, known=known)
        return taken

    def keep(self, pattern: str | Path, log: str | Path) -> Taken:
        """Import an export as `read_parquet` does, and copy its files to the folder of the log, for `rebuild`."""
        taken = self.read_parquet(pattern)
        for files in machines(pattern).values():
            keep_files(files, Path(log, IMPORTED))
        return taken

    def carry_over(self, path: Path) -> Taken:
        """Add the runs of another store that this one does not have. Of a store that cannot be read, nothing."""
        import duckdb

        if not path.is_file():
            return Taken()
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            try:
                with Store(path, mode="read") as other:
                    other.export(folder, machine="earlier")
            except StoreInUse:
                raise
            except (MatError, duckdb.Error):
                message = (
                    f"{path.name} cannot be read; the new store has only the runs of the run log and of the exports kept "
                    "next to the log"
                )
                return Taken(findings=(Finding(code="store-damaged", message=message),))
            known = [message for (message,) in self._connection.execute(_OF_SHARDS).fetchall()]
            taken = self.read_parquet(folder)
            # What the old store said of its shards is not true of these.
            self._connection.execute("DELETE FROM findings WHERE run IS NULL AND NOT list_contains($1, message)", [known])
            return taken

    # -- out --------------------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Restrict SQL to the tables: no file, no network, no extension. This cannot be undone."""
        for statement in ("SET enable_external_access = false", "SET lock_configuration = true"):
            self._connection.execute(statement)

    def query(self, sql: str, *, limit: int | None = None) -> QueryResult:
        """The first `limit` rows of one SELECT (or DESCRIBE, SUMMARIZE, SHOW, EXPLAIN). It never changes the store.

        SpecError for any other statement and for invalid SQL. Call `seal` first if the SQL is not your own.
        """
        import duckdb

        self._check(sql)
        self._make_views()
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

    def _make_views(self) -> None:
        if not self._has_views:
            create_views(self._connection)
            self._has_views = True

    def metrics(
        self,
        by: Sequence[str] = BY,
        *,
        condition: RunCondition | None = None,
        confidence: float = CONFIDENCE,
        sampling: Sampling = TASKS,
    ) -> tuple[GroupMetrics, ...]:
        """Every metric in METRICS for each group of runs, with intervals. See `mat.evidence.store.metrics`."""
        return metrics(self._connection, by, condition=condition, confidence=confidence, sampling=sampling)

    def rollup(self, by: Sequence[str] = ("agent", "kind")) -> QueryResult:
        """Steps, tokens, errors and blocked steps, grouped by columns of the table `steps` (such as "run")."""
        wrong = [name for name in by if name not in TABLES["steps"]]
        if wrong or not by:
            raise SpecError(
                what="; ".join(f"steps have no column {name!r}" for name in wrong) or "no column to group by",
                fix=f"choose from {', '.join(TABLES['steps'])}",
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
        """SpecError unless a text is one statement that only reads."""
        import duckdb

        try:
            kinds = [statement.type.name for statement in self._connection.extract_statements(sql)]
        except duckdb.Error as error:
            raise _wrong(error) from None
        if len(kinds) != 1 or kinds[0] not in _READING:
            what = f"a {kinds[0]} statement" if len(kinds) == 1 else f"{len(kinds)} statements"
            raise SpecError(
                what=f"{what} instead of one SELECT", why="queries only read the store",
                fix="write one SELECT; runs are added by pytest --mat-store and mat import",
            )  # fmt: skip


_FOREIGN: Final = """
    SELECT 'view', view_name FROM duckdb_views() WHERE NOT internal AND NOT temporary
    UNION ALL SELECT 'macro', function_name FROM duckdb_functions() WHERE NOT internal AND function_type LIKE '%macro'
"""
_OF_SHARDS: Final = "SELECT message FROM findings WHERE run IS NULL"
_READING: Final = ("SELECT", "EXPLAIN")


def _batches(entries: Iterable[RunEntry]) -> Iterator[list[RunEntry]]:
    """Batches of up to BATCH entries. If reading raises an error, the entries before it come first."""
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
    """Add the new runs of a log to the store in a file. Returns what could not be read.

    If another process has the store open, nothing is added, and the result is a finding `store-behind`.
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
        return (Finding(code="store-behind", message=f"the newest runs are not in the store yet: {error.what}"),)


class StoreInUse(MatError):  # noqa: N818  (named after what happened)
    """Another process has the store open."""


def _wrong(error: Exception) -> SpecError:
    return SpecError(
        what=str(error).strip(), why="the query could not be answered",
        fix=f"correct the query; the tables are {', '.join(TABLES)}, the views are {', '.join(VIEWS)}, and DESCRIBE runs lists "
        "the columns of runs",
    )  # fmt: skip


def _version(connection: Any, path: Path | None) -> int:
    """The schema's version, 0 if there is no table yet.

    SpecError if it is not a store, has a later version, or contains what a store does not: a view or a macro of somebody else
    could read files of this machine where a command expects a table.
    """
    names = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    foreign = connection.execute(_FOREIGN).fetchall()
    if foreign:
        raise SpecError(
            what=f"{path} contains the {foreign[0][0]} {foreign[0][1]!r}", why="a store has tables only; a view or a macro "
            "could read other files when it is used", fix="do not open it unless you know who made it; import its log, or its "
            "export to Parquet", where=str(path),
        )  # fmt: skip
    if not names:
        return 0
    found = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() if "meta" in names else None
    if found is None or not str(found[0]).isdecimal() or int(found[0]) < 1:
        raise SpecError(
            what=f"{path} is not a store of pytest-mat", why="it is a DuckDB file with other tables",
            fix="give another file", where=str(path),
        )  # fmt: skip
    if int(found[0]) > VERSION:
        raise SpecError(
            what=f"the store has schema {found[0]}; this pytest-mat reads up to {VERSION}",
            why="a newer version of pytest-mat wrote it", fix="upgrade pytest-mat, or give another file", where=str(path),
        )  # fmt: skip
    return int(found[0])


def _unusable(path: Path | None, error: Exception) -> MatError:
    reason = str(error).strip().split("\n")[0]
    if re.search(r"\block\b", reason.lower()):  # the whole word, because damage is reported for a "block"
        return StoreInUse(
            what=f"the store {path} is open in another process", why=reason,
            fix="wait until it ends; new runs stay in the log and are imported later", where=str(path),
        )  # fmt: skip
    return MatError(
        f"cannot open the store {path}", why=reason, fix="rebuild it from its log: mat import --rebuild", where=str(path)
    )
