"""Output fits the width that is told: COLUMNS, else the terminal's, else 80. Names and paths stay whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from mat.__main__ import main
from mat.commands.shared import width


def too_wide(text: str, columns: int) -> list[str]:
    """Lines beyond the width, but for those that a long name or path makes so."""
    return [line for line in text.splitlines() if len(line) > columns and max(map(len, line.split())) < columns // 2]


@pytest.fixture
def told(tmp_path: Path, file: Path, other_file: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that print tables and paragraphs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rules.py").write_text("from mat_contracts import no_duplicate_effect\nONCE = no_duplicate_effect('refund')\n")
    assert main(["report", "one.mat.json", "--out", "one.json"]) == 0
    assert main(["import", "one.mat.json", "--store", "kept"]) == 0
    return [
        ["show", "one.mat.json"],
        ["diff", "one.mat.json", "other.mat.json"],
        ["diff", "one.json", "one.json", "--under", "faults"],
        ["check", "one.mat.json", "--contracts", "rules:ONCE"],
        ["suite", "one.mat.json"],
        ["report", "one.json"],
        ["report", "one.json", "--baseline", "one.json", "--under", "faults"],
        ["query", "SELECT * FROM runs", "--store", "kept"],
        ["query", "SELECT run, item, condition, steps FROM runs", "--store", "kept"],
        ["doctor"],
    ]


@pytest.mark.full
@pytest.mark.parametrize("columns", [60, 80, 100, 132])
def test_every_command_fits_the_columns_it_is_reported(
    columns: int, told: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    capsys.readouterr()
    wide = []
    for command in told:
        main(command)
        out = capsys.readouterr().out
        assert out, command
        wide += [f"{' '.join(command)}: {line}" for line in too_wide(out, columns)]
    assert wide == []


def test_without_a_terminal_and_without_columns_it_is_80_as_pytest_has_it(
    told: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.__stdout__", None)  # nobody's terminal
    assert (width(), width(piped=None)) == (80, None)
    capsys.readouterr()
    main(told[0])
    assert too_wide(capsys.readouterr().out, 80) == []


def test_rows_that_go_to_a_pipe_are_whole_unless_a_width_is_reported(
    told: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = ["query", "SELECT key, key AS again FROM runs", "--store", "kept"]
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.__stdout__", None)
    capsys.readouterr()
    main(query)
    whole = capsys.readouterr().out
    assert "…" not in whole
    monkeypatch.setenv("COLUMNS", "80")
    main(query)
    assert "…" in capsys.readouterr().out


def test_a_width_below_60_is_taken_as_60(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert width() == 60


def test_more_columns_than_have_room_are_reported_a_column_a_line(
    told: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    main(["query", "SELECT * FROM runs", "--store", "kept"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row 1"
    assert "  condition" in {line[:11] for line in lines}
    assert lines[-1] == "(1 row)"


@pytest.mark.parametrize(
    "command",
    [
        "show",
        "replay",
        "compare",
        "judge",
        "diff",
        "suite",
        "check",
        "gate",
        "doctor",
        "query",
        "import",
        "export",
        "report",
        "completion",
    ],
)
def test_help_fits_80_columns_with_its_examples_on_lines_of_their_own(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []
