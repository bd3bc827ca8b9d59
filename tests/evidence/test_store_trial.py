"""A file on which DuckDB runs in a circle, or crashes, is refused, and the store can be made again from its log."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from mat.core.errors import MatError
from mat.evidence.runlog import RunEntry, RunLog
from mat.evidence.store import Store, bring_up_to_date, trial

HEADER: Final = 4096
"""Where the first of DuckDB's two database headers is; it has this length too."""
BLOCKS: Final = 3 * HEADER
BLOCK: Final = 262_144
PART: Final = 4_088
"""The length of a part of a block of metadata. See MetadataManager and SingleFileBlockManager of DuckDB 1.3 to 2.0."""


def checksum(data: bytes) -> int:
    """DuckDB's checksum of a block: it does not depend on the order of words."""
    found = 5381
    for (word,) in struct.iter_unpack("<Q", data):
        found ^= word * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    return found


def run_in_a_circle(path: Path) -> None:
    """Make the part of the file that lists free blocks its own next part, as long as DuckDB reads on."""
    data = bytearray(path.read_bytes())
    first, other = (struct.unpack_from("<4Q", data, at) for at in (HEADER, 2 * HEADER))
    _, _, _, pointer = max(first, other, key=lambda header: header[1])
    part, block = pointer >> 56, pointer & (1 << 56) - 1
    start = BLOCKS + block * BLOCK
    assert struct.unpack_from("<Q", data, start)[0] == checksum(data[start + 8 : start + BLOCK])
    struct.pack_into("<2Q", data, start + 8 + part * PART, pointer, 1 << 40)
    struct.pack_into("<Q", data, start, checksum(data[start + 8 : start + BLOCK]))
    path.write_bytes(data)


@pytest.fixture
def log(tmp_path: Path, shop_tests: Any) -> Path:
    with RunLog(tmp_path / "log", session="first") as written:
        for seed in range(3):
            run = shop_tests.run(seed=seed)
            written.append(RunEntry(item=run.spec.task, condition="nominal", run=run))
    return tmp_path / "log"


@pytest.fixture
def path(log: Path) -> Path:
    file = log / "store.duckdb"
    assert not bring_up_to_date(file, log)
    return file


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that a process of its own has opened, from an empty memory."""
    tried: list[Path] = []
    exit_code = trial._exit_code

    def counted(path: Path, limit_s: float) -> int | None:
        tried.append(path)
        return exit_code(path, limit_s)

    monkeypatch.setattr(trial, "_exit_code", counted)
    monkeypatch.setattr(trial, "_opened", {})
    return tried


def runs(path: Path) -> tuple[tuple[Any, ...], ...]:
    with Store(path, mode="read") as store:
        return store.query("SELECT count(*) FROM runs").rows


@pytest.mark.full
def test_a_file_on_which_duckdb_runs_in_a_circle_is_refused_and_made_again_from_its_log(path: Path, log: Path) -> None:
    run_in_a_circle(path)
    for reading in (lambda: Store(path), lambda: Store(path, mode="read"), lambda: bring_up_to_date(path, log)):
        with pytest.raises(MatError, match=r"has not opened the file after 0\.\d s") as refused:
            reading()
        assert refused.value.where == str(path)
        assert refused.value.fix == "rebuild it from its log: mat import --rebuild"
    assert [finding.code for finding in Store.rebuild(path, log).findings] == ["store-damaged"]
    assert runs(path) == ((3,),)


def test_a_file_on_which_duckdb_crashes_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_opened", {})
    monkeypatch.setattr(trial, "_PROGRAM", "import os; os.abort()")
    with pytest.raises(MatError, match=r"crashes when it opens the file \(exit code -6\)"):
        Store(path)


def test_waiting_without_an_end_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_opened", {})
    monkeypatch.setattr(trial, "_PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(trial, "WALL_FACTOR", 0.5)
    with pytest.raises(MatError, match="has not opened the file"):
        Store(path)


def test_a_file_is_tried_once_as_long_as_it_does_not_change(path: Path, tried: list[Path]) -> None:
    assert runs(path) == runs(path) == ((3,),)
    assert tried == [path]
    with Store(path) as store:
        store.append("findings", {"code": ["x"], "message": ["y"]})
    assert runs(path) == ((3,),)
    assert tried == [path], "what this process wrote needs no trial"
    subprocess.run(
        [sys.executable, "-c", f"import duckdb; duckdb.connect({str(path)!r}).execute('CHECKPOINT; DELETE FROM runs')"],
        check=True,
    )
    assert runs(path) == ((0,),)
    assert tried == [path, path]


def test_a_new_file_is_not_tried(tmp_path: Path, tried: list[Path]) -> None:
    with Store(tmp_path / "new.duckdb") as store:
        assert store.query("SELECT count(*) FROM runs").rows == ((0,),)
    assert not tried


def test_what_duckdb_says_of_a_file_is_said_by_the_process_that_reads_it(tmp_path: Path, tried: list[Path]) -> None:
    (tmp_path / "x.duckdb").write_text("no database")
    with pytest.raises(MatError, match="cannot open the store"):
        Store(tmp_path / "x.duckdb")
    assert tried == [tmp_path / "x.duckdb"]


def test_a_process_that_finds_no_duckdb_tells_nothing(path: Path, tried: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.sys, "path", [])
    trial.try_to_open(path)
    assert tried == [path]
