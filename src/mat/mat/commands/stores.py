"""What the commands on a store of recorded runs share: the --store option, opening the store, and its errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.core.errors import MatError, SpecError
from mat.core.extras import require

if TYPE_CHECKING:
    from mat.core.run import Finding
    from mat.evidence.store import Store


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the store."""
    parser.add_argument(
        "--store", type=Path, default=Path(".mat", "store"), metavar="FOLDER",
        help="the folder of the store and its log, as for pytest --mat-store (default %(default)s)",
    )  # fmt: skip


def file_of(options: argparse.Namespace) -> Path:
    """The file of the store, inside the folder of its log."""
    from mat.evidence.store import NAME

    return Path(options.store, NAME)


def opened(options: argparse.Namespace) -> Store:
    """Open the store that the options name for reading, updated from its log."""
    from mat.evidence.runlog import SUFFIX
    from mat.evidence.store import Store, bring_up_to_date

    folder = Path(options.store)
    if os.path.isdir(folder) and not file_of(options).exists() and not any(folder.glob(f"*{SUFFIX}")):
        raise SpecError(
            what=f"{folder} contains no store and no log", why=f"nothing was recorded there (relative to {Path.cwd()})",
            fix="run pytest --mat-store, or name the folder with --store", where=str(folder),
        )  # fmt: skip
    say(bring_up_to_date(file_of(options), options.store))
    return Store(file_of(options), mode="read")


def say(findings: Sequence[Finding]) -> None:
    """Print findings on stderr without control characters, because they may quote file names from outside."""
    from mat.core.errors import printable

    for finding in findings:
        print(f"mat: {finding.code}: {printable(finding.message)}", file=sys.stderr)


_FIXES: Final = {
    "log-torn": "import it after its process has ended; if the process was killed, that part is lost",
    "log-damaged": "copy it again from its origin",
    "log-foreign": "read it with the version of pytest-mat that wrote it",
}


def lost(findings: Iterable[Finding], *files: Path) -> tuple[MatError, ...]:
    """The findings that mean lost runs of a log, as errors.

    A torn file is an error only if it is one of `files`, named on the command line: in a folder, killed processes leave files
    that end in the middle of a line.
    """
    named = {path.name: str(path) for path in files}
    return tuple(
        MatError(
            finding.message, why="the unreadable part is left out; the other runs are read", fix=_FIXES[finding.code],
            where=named.get(finding.message.partition(": ")[0], ""),
        )
        for finding in findings
        if finding.code in _FIXES and (finding.code != "log-torn" or finding.message.partition(": ")[0] in named)
    )  # fmt: skip


@contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """Turn DuckDB's errors about a damaged file into a MatError."""
    require("store", "a store of runs")
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise MatError(
            f"{file.name} cannot be read as a store", why=str(error).partition("\n")[0],
            fix="rebuild it from its log: mat import --rebuild", where=str(file),
        ) from None  # fmt: skip


def exported(files: Path | str) -> Store:
    """Open exported Parquet files (a folder, a file or a pattern) as a store in memory."""
    from mat.evidence.store import Store

    store = Store(None)
    try:
        store.read_parquet(files)
    except BaseException:
        store.close()
        raise
    return store
