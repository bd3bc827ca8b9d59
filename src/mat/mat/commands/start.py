"""What `mat` says without arguments: what is in this folder, and the next command."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from mat.commands.project import FILES, python_files
from mat.core.errors import plural

_MARKS: Final = (b"mark.mat", b"mat_run")
"""What the source of a test under contracts contains."""


def start(folder: Path) -> str:
    """Four lines at most."""
    from mat.evidence.replay_file import FOLDER, SUFFIX

    files = list(islice(python_files(folder), FILES))
    tests = [path for path in files if path.name.startswith("test_") or path.name.endswith("_test.py")]
    ours = [path for path in tests if _is_under_contracts(path)]
    homes = sorted({path.parent / FOLDER for path in tests} | {folder / FOLDER})
    replays = [path for home in homes if home.is_dir() for path in sorted(home.glob(f"*{SUFFIX}"))]
    found = f"here: {plural(len(tests), 'test file')}, {len(ours)} with tests of agents; {plural(len(replays), 'replay file')}"
    if replays:
        step = f"mat show {replays[-1].relative_to(folder)} shows a counterexample; pytest runs all of them again"
    elif ours:
        step = "pytest --mat-stress searches for the cheapest disturbance that breaks a contract"
    else:
        step = "mat init writes a first test with a contract; mat init --dry-run shows what it would write"
    return f"mat tests agents: contracts, stress, replay.\n{found}\nnext: {step}\nall commands: mat --help"


def _is_under_contracts(path: Path) -> bool:
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return any(mark in text for mark in _MARKS)
