"""A declared secret is in no file that a session writes: said in sixty places, in nine forms, in sessions of their own.

What pytest itself prints is pytest's: the names of tests, tracebacks, and what a test without a run prints. So the first
project has no secret in a name and fails by contracts alone, and its whole terminal is searched; of the second, whose node ids
hold the secret, the terminal and the JUnit file are left out.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_forms = runpy.run_path(str(HERE / "secret_forms.py"))
FORMS, SECRET, leaks = _forms["FORMS"], _forms["SECRET"], _forms["leaks"]
REPORTS = ("r.json", "r.html", "r.md", "r.csv", "r.txt", "r.parquet")
SOURCES = (".py", ".pyc")


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PLANTED_SECRET": SECRET, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def project(folder: Path, name: str) -> Path:
    shutil.copy(HERE / "secret_forms.py", folder / "forms.py")
    shutil.copy(HERE / f"planted_{name}.py", folder / f"test_{name}.py")
    return folder


def leaking(folder: Path, *but: str) -> dict[str, list[str]]:
    """The files that hold the secret, with the places."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in SOURCES and path.name not in but
    ]
    assert files
    assert not list(leaks("\n".join(str(path.relative_to(folder)) for path in folder.rglob("*")).encode()))
    return {path.name: found for path in files if (found := list(leaks(path.read_bytes())))}


@pytest.mark.parametrize("form", FORMS)
def test_the_search_for_leaks_finds_each_form(form: str) -> None:
    assert list(leaks(f"some text, {FORMS[form](SECRET)}, and more".encode()))


@pytest.mark.nightly
def test_a_secret_said_everywhere_is_in_no_file_and_not_on_the_terminal(tmp_path: Path) -> None:
    folder = project(tmp_path, "everywhere")
    reports = [f"--mat-report={name}" for name in REPORTS]
    printed = run(
        folder, "pytest", "-v", "-p", "no:cacheprovider", "--mat-stress", "--mat-store", "--junitxml=junit.xml", *reports
    )
    assert f"{len(FORMS)} failed, 1 passed" in printed, printed[-3000:]
    assert "paid twice with [redacted:secret#1]" in printed
    assert len(list(folder.glob("mat_replays/*.mat.json"))) == len(FORMS) - 1  # of one a contract's id holds the secret
    assert "no replay file for" in printed
    assert "[redacted:secret#1]" in (folder / "traces.jsonl").read_text()
    run(folder, "mat", "export", "csv", "--format", "csv")
    run(folder, "mat", "export", "parquet")
    run(folder, "mat", "report", ".mat/store", "--out", "later.html")
    assert {path.name for path in folder.iterdir()} >= {"csv", "parquet", "later.html", "traces.jsonl", *REPORTS}
    answers = ""
    for table in ("steps", "violations", "contracts", "mediations", "perturbations", "findings"):
        answers += (answer := run(folder, "mat", "query", "--json", f"FROM {table}"))
        assert "[redacted:secret#" in answer or table in ("perturbations", "findings"), answer
    (folder / "terminal.txt").write_text(printed + answers, encoding="utf-8")
    assert leaking(folder) == {}


@pytest.mark.nightly
def test_a_secret_in_node_ids_and_one_that_is_declared_in_the_run_are_in_no_file_of_ours(tmp_path: Path) -> None:
    folder = project(tmp_path, "ids")
    options = ("-p", "no:cacheprovider", "--mat-store", "--mat-live-calls=30", "--junitxml=junit.xml")
    reports = ("--mat-report=i.json", "--mat-report=i.html", "--mat-governance=all")
    printed = run(folder, "pytest", "--mat-stress", *reports, *options)
    assert "5 failed" in printed, printed[-3000:]
    assert [path.name.partition("-")[0] for path in folder.glob("mat_replays/*.mat.json")] == ["test_pays_late"]
    assert len(list(folder.glob(".mat/cassettes/*"))) == 5
    printed = run(folder, "pytest", "--mat-evaluate", "--mat-report=e.json", *options)
    assert "evaluated 3 tasks" in printed, printed[-3000:]
    assert len(json.loads((folder / "e.json").read_text())["items"]) == 6  # with the replay
    assert leaking(folder, "junit.xml") == {}


@pytest.mark.full
def test_without_redaction_of_documents_the_secret_is_found(tmp_path: Path) -> None:
    folder = project(tmp_path, "ids")
    blind = "from mat.core.redact import Declarations\nDeclarations.clean = lambda self, text: text\n"
    (folder / "conftest.py").write_text(blind)
    run(folder, "pytest", "-p", "no:cacheprovider", "--mat-stress", "--mat-store", "--mat-live-calls=30", "--mat-report=i.json")
    found = leaking(folder)
    assert {"i.json", *(path.name for path in folder.glob(".mat/store/*"))} - {".gitignore"} <= found.keys()


@pytest.mark.nightly
def test_what_is_in_mat_is_for_its_owner_alone_and_a_report_for_whom_the_umask_admits(tmp_path: Path) -> None:
    folder = project(tmp_path, "ids")
    options = ("-p", "no:cacheprovider", "--mat-store", "--mat-live-calls=30", "--mat-report=i.json", "--mat-stress")
    run(folder, "pytest", *options)
    run(folder, "mat", "query", "FROM runs")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if ".py" not in path.suffix}
    private = {path: mode for path, mode in modes.items() if ".mat" in path.relative_to(folder).parts}
    assert {path.suffix for path in private} >= {".duckdb", ".log", ".jsonl"}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in private.items()), private
    umask = os.umask(0)
    os.umask(umask)
    shared = [mode for path, mode in modes.items() if path.name == "i.json" or path.name.endswith(".mat.json")]
    assert shared == [0o666 & ~umask] * 2
