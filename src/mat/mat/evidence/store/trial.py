"""Open a store's file in a process of its own first, because DuckDB may not come back from a damaged one.

DuckDB's checksum of a block is the same when words of the block change places. So a file that was damaged, or made by somebody
who means harm, can send it in a circle, without an error and without an end, or crash it. A process can be ended from outside.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from mat.core.errors import MatError

LIMIT_S: Final = 0.6
"""Seconds of processor time to open a small file, once DuckDB is loaded: some thirty times what it takes."""
BYTES_PER_S: Final = 20_000_000
"""What a second more is allowed for: opening reads the log of the last changes, and of the rest only a table of contents."""
WALL_FACTOR: Final = 100
"""How much longer it may take than in processor time: the machine may be busy, the file on a network."""
_PROGRAM: Final = """
import sys
path, limit, *sys.path[:] = sys.argv[1:]
try:
    import _duckdb as duckdb
except ImportError:
    import duckdb
try:
    import signal
    signal.setitimer(signal.ITIMER_PROF, float(limit))
except AttributeError:
    pass
try:
    duckdb.connect(path, read_only=True).close()
except duckdb.Error:
    pass
"""
_UNTRIED: Final = 1
"""The exit code of a process that could not try, for example because it finds no DuckDB."""
_opened: Final[dict[Path, tuple[tuple[int, int, int], ...]]] = {}
"""By file: its inodes, sizes and times when it was last found to open."""


def try_to_open(path: Path, *, limit_s: float | None = None) -> None:
    """MatError if DuckDB crashes when it opens the file, or needs more than `limit_s` seconds of processor time.

    `limit_s` is in proportion to the size of the file by default. A file that is as it was is not tried again. What DuckDB says
    of a file is not an error here: it says so again when the file is opened in this process.
    """
    if _opened.get(path.resolve()) == _state(path) or not sys.executable:
        return
    if limit_s is None:
        limit_s = LIMIT_S + sum(file.stat().st_size for file in _files(path)) / BYTES_PER_S
    code = _exit_code(path, limit_s)
    if code not in (0, _UNTRIED):
        ends = code not in (None, -getattr(signal, "SIGPROF", 0))
        raise MatError(
            f"{path.name} cannot be read as a store",
            why=f"DuckDB crashes when it opens the file (exit code {code})" if ends else
            f"DuckDB has not opened the file after {limit_s:.1f} s of processor time",
            fix="rebuild it from its log: mat import --rebuild", where=str(path),
        )  # fmt: skip
    remember(path)


def remember(path: Path) -> None:
    """Do not try this file again as it is now: it opens."""
    _opened[path.resolve()] = _state(path)


def _exit_code(path: Path, limit_s: float) -> int | None:
    """How a process ended that opened the file, None if it had to be ended."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(path), str(limit_s), *filter(None, map(str, sys.path))]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=limit_s * WALL_FACTOR, check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return None


def _files(path: Path) -> list[Path]:
    """The file, and the log of changes that are not in it yet."""
    return [file for file in (path, path.with_name(f"{path.name}.wal")) if file.exists()]


def _state(path: Path) -> tuple[tuple[int, int, int], ...]:
    states = [file.stat() for file in _files(path)]
    return tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in states)
