"""The corpora as traces and under their contracts, judged once for all tests here. A corpus that is absent skips its tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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
def reader() -> Callable[..., Iterator[StoredTrace]]:
    from corpora.formats import read_traces

    return read_traces


@pytest.fixture
def corpus() -> Callable[[str], Path]:
    """A file of the recorded corpora; the test skips where it is absent."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"no recorded corpus at {path}")
        return path

    return find
