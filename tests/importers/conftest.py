"""Files of rows for importers, written by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mat.adapters.importers import StoredTrace, read_traces


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

    def read(row: Any, format: str | None = None) -> StoredTrace:
        (stored,) = read_traces(written(row), format)
        return stored

    return read
