"""`pytest --collect-messages FILE` (tests/messages.py) writes the texts that the tests make the product show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.parametrize(
    "processes",
    [pytest.param((), id="one process"), pytest.param(("-n", "2"), id="workers", marks=pytest.mark.nightly)],
)
def test_a_run_writes_errors_help_and_terminal_lines_once_with_their_source(tmp_path: Path, processes: tuple[str, ...]) -> None:
    path = tmp_path / "messages.txt"
    stress = "tests/plugin/test_options.py::test_a_configuration_file_sets_what_no_marker_does"  # of the full tier
    files = ("tests/cli/test_mistakes.py", "tests/plugin/test_options.py", stress)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-messages", str(path), *processes)
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert not path.with_name("messages.txt.parts").exists()
    error = next(place for place, line in enumerate(lines) if line.startswith("  | SpecError: no such file: "))
    assert lines[error + 2].startswith("  |   fix: ")
    assert [line for line in lines if line.startswith("  | SpecError: no such file: ")] == [lines[error]]
    assert "src/mat/mat/commands/shared.py:" in text
    assert "  | --mat-fresh: search from the beginning: reuse no certificate, and resume no interrupted search" in lines
    assert "  | --json: print one JSON value instead of text" in lines
    terminal = lines[lines.index("## terminal") : lines.index("## page")]
    assert any(line.startswith("  | NOT PROVEN test_refund") for line in terminal), terminal
