"""Sources of other processes are compared with those here."""

from __future__ import annotations

import time
from pathlib import Path

from mat_study.sources import Sources


def test_a_source_that_differs_or_is_missing_here_is_named(tmp_path: Path) -> None:
    same, other, missing = (tmp_path / name for name in ("same.py", "other.py", "missing.py"))
    for path in (same, other, missing):
        path.write_text("RATE = 1\n")
    sources = Sources(time.time_ns() + 10**9)
    there = [(str(path), sources.digest(str(path))) for path in (same, other, missing)]
    assert sources.differing(there) == []
    other.write_text("RATE = 2  # and more\n")
    missing.unlink()
    assert sources.differing(there) == [str(other), str(missing)]
