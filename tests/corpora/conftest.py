"""The corpora as traces and under their contracts, judged once for all tests here. A corpus that is absent skips its tests."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mat.adapters.importers import StoredTrace

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
DATA = BENCHMARKS.parents[1] / "shared" / "data"
if str(BENCHMARKS) not in sys.path:
    sys.path.insert(0, str(BENCHMARKS))


@cache
def _runs(name: str) -> Any:
    from corpora.report import corpora, runs_of

    try:
        return tuple(runs_of(next(corpus for corpus in corpora() if corpus.name == name)))
    except FileNotFoundError as absent:
        return absent


@pytest.fixture
def runs() -> Callable[[str], Any]:
    """The judged runs of a corpus by its name."""

    def of(name: str) -> Any:
        found = _runs(name)
        if isinstance(found, FileNotFoundError):
            pytest.skip(f"{found} is absent")
        return found

    return of


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as JSON lines, gzipped where the name ends with .gz."""

    def write(*rows: Any, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write


@pytest.fixture
def imported(written: Callable[..., Path]) -> Callable[..., StoredTrace]:
    """The one trace of one row."""

    from corpora.formats import read_traces

    def read(row: Any, format: str | None = None) -> StoredTrace:
        (stored,) = read_traces(written(row), format)
        return stored

    return read


@pytest.fixture
def corpus() -> Callable[[str], Path]:
    """A file of the recorded corpora; the test skips where it is absent."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"no recorded corpus at {path}")
        return path

    return find
