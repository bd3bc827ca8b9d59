"""What the commands about a store of recorded runs share: which one is meant, opening it, and what is wrong with it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.core.errors import MatError, SpecError

if TYPE_CHECKING:
    from mat.core.run import Finding
    from mat.evidence.store import Store


def add_store(parser: argparse.ArgumentParser) -> None:
    """The option that says which store is meant."""
    parser.add_argument(
        "--store", type=Path, default=Path(".mat", "store"), metavar="FOLDER",
        help="the folder of the store and its log, as pytest --mat-store has it (default %(default)s)",
    )  # fmt: skip


def file_of(options: argparse.Namespace) -> Path:
    """The store's file. Its log is the folder."""
    from mat.evidence.store import NAME

    return Path(options.store, NAME)


def opened(options: argparse.Namespace) -> Store:
    """The store that the options name, for reading, with what its log has more."""
    from mat.evidence.runlog import SUFFIX
    from mat.evidence.store import Store, bring_up_to_date

    folder = Path(options.store)
    if os.path.isdir(folder) and not file_of(options).exists() and not any(folder.glob(f"*{SUFFIX}")):
        raise SpecError(
            what=f"{folder} holds no store and no log", why=f"nothing was recorded there, seen from {Path.cwd()}",
            fix="run pytest --mat-store, or name the folder with --store", where=str(folder),
        )  # fmt: skip
    say(bring_up_to_date(file_of(options), options.store))
    return Store(file_of(options), mode="read")


def say(findings: Sequence[Finding]) -> None:
    """Findings on stderr: they may quote names of files from outside."""
    from mat.evidence.artifact import printable

    for finding in findings:
        print(f"mat: {finding.code}: {printable(finding.message)}", file=sys.stderr)


_MENDED: Final = {
    "log-torn": "import it when its process has ended; if that was killed, no more can be had",
    "log-damaged": "copy it again from where it was written",
    "log-foreign": "read it with the pytest-mat that wrote it",
}


def lost(findings: Iterable[Finding], *files: Path) -> tuple[MatError, ...]:
    """Findings by which runs of a log are lost, as errors.

    A file of a folder may end in the middle of a line, as killed processes leave it; one that is given by its name is whole,
    or not what was meant.
    """
    named = {path.name: str(path) for path in files}
    return tuple(
        MatError(
            finding.message, why="what cannot be read is left out; the rest is there", fix=_MENDED[finding.code],
            where=named.get(finding.message.partition(": ")[0], ""),
        )
        for finding in findings
        if finding.code in _MENDED and (finding.code != "log-torn" or finding.message.partition(": ")[0] in named)
    )  # fmt: skip


@contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """What DuckDB raises of a damaged file, as an error of ours."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise MatError(
            f"{file.name} cannot be read as a store", why=str(error).partition("\n")[0],
            fix="make it again from its log: mat import --rebuild", where=str(file),
        ) from None  # fmt: skip


def exported(files: Path | str) -> Store:
    """Exported Parquet files as a store in memory: a folder, a file or a pattern."""
    from mat.evidence.store import Store

    store = Store(None)
    try:
        store.read_parquet(files)
    except BaseException:
        store.close()
        raise
    return store
