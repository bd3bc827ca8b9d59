"""The committed replay files of the examples, which every Python and every process must run again to the same head."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mat.evidence import replay_file
from mat.evidence.runlog import read

ROOT = Path(__file__).parents[2]
EXAMPLES = [ROOT / "examples" / name for name in ("contractbench", "helpdesk", "resources", "treasury")]
SESSION = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "replay")


@pytest.mark.full
@pytest.mark.covers("law", ["L1", "L6"])
def test_committed_replays_run_again_to_the_heads_that_they_recorded(tmp_path: Path) -> None:
    session = subprocess.run(
        [sys.executable, "-m", "pytest", *SESSION, "--mat-store", str(tmp_path / "kept"), *map(str, EXAMPLES)], cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "random"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert session.returncode == 0, session.stdout + session.stderr
    files = {folder: replay_file.find(folder) for folder in EXAMPLES}
    assert all(files.values())
    recorded = [replay_file.read(path) for paths in files.values() for path in paths]
    assert sorted((entry.item, entry.run.head) for entry in read(tmp_path / "kept")) == sorted(
        (replay.item, replay.counterexample.run.head) for replay in recorded
    )
