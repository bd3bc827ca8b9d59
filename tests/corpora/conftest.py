"""The corpora under their contracts, judged once for all tests here. A corpus that is absent skips its tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
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
