"""--mat-store: which runs of a session the run log has, from how many processes, and what it never has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.plugin.conftest import INI

from mat.__main__ import main
from mat.evidence.runlog import read, shards

TESTS = """
TASK = dict(budget=4, faults=FAULTS, search=mat.Search(max_runs=8))
WORK = dict(channels=["email"], tools=["check", "refund"])


@pytest.mark.mat(seeds=2, budget=4, faults=FAULTS)
def test_careful(mat_run, no_double):
    assert shop.careful() == "refunded"


@pytest.mark.mat(**TASK, workload=mat.Workload(**WORK, category="policy"))
def test_task(mat_run, no_double):
    mat.untrusted("refund o1", channel="email")
    shop.naive()
"""
CAREFUL, TASK = "test_shop.py::test_careful", "test_shop.py::test_task"
POLICY = """
from mat.govern.variant import Policy


@pytest.fixture
def mat_governance():
    return Policy(rules=(lambda record: None,), use="shield")
"""


def kept(folder: Path, *names: str) -> Counter[tuple[Any, ...]]:
    """How many runs the log has, by what an entry or its labels say."""
    return Counter(
        tuple(getattr(entry, name, None) or getattr(entry.labels, name, "") for name in names) for entry in read(folder)
    )


def test_nothing_is_kept_unless_it_is_asked_for(shop: Any) -> None:
    shop.tests(TESTS)
    shop.run()
    assert not (shop.path / ".mat" / "store").exists()


def test_reported_runs_are_kept_under_one_session_and_the_command_line_finds_them(
    shop: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.tests(TESTS)
    assert shop.run("--mat-store").code == 0
    folder = shop.path / ".mat" / "store"
    assert kept(folder, "item", "condition", "category") == {
        (CAREFUL, "nominal", ""): 2,
        (TASK, "nominal", "policy"): 1,
    }
    entries = list(read(folder))
    assert len({entry.session for entry in entries}) == 1
    assert all(entry.session and entry.written_at for entry in entries)
    assert (shop.path / ".mat" / ".gitignore").read_text().endswith("*\n")
    monkeypatch.chdir(shop.path)
    capsys.readouterr()
    assert main(["query", "SELECT item, count(*) AS n FROM runs GROUP BY item ORDER BY item", "--json"]) == 0
    said = capsys.readouterr().out
    assert CAREFUL in said
    assert TASK in said


def test_another_folder_may_be_named_and_a_test_is_not_mistaken_for_one(shop: Any) -> None:
    shop.tests(TESTS)
    shop.run("--mat-store=kept")
    assert sum(kept(shop.path / "kept", "item").values()) == 3
    mistaken = shop.run("--mat-store", "test_shop.py", process=True)
    assert mistaken.code == pytest.ExitCode.USAGE_ERROR
    assert "'test_shop.py' is not a folder; write --mat-store=FOLDER" in mistaken.errors


def test_the_configuration_file_names_the_folder_unless_the_command_line_does(shop: Any) -> None:
    shop.write("pytest.ini", INI + "mat_store = kept\n")
    shop.tests(TESTS)
    shop.run()
    assert sum(kept(shop.path / "kept", "item").values()) == 3
    shop.run("--mat-store=other")
    assert sum(kept(shop.path / "other", "item").values()) == 3
    assert sum(kept(shop.path / "kept", "item").values()) == 3


@pytest.mark.full
def test_a_second_session_is_another_one_in_the_same_folder(shop: Any) -> None:
    shop.tests(TESTS)
    shop.run("--mat-store=kept")
    shop.run("--mat-store=kept", process=True)
    found = kept(shop.path / "kept", "session")
    assert sorted(found.values()) == [3, 3]


@pytest.mark.full
def test_of_a_search_its_counterexamples_are_kept_and_what_it_executed_on_the_way_is_not(shop: Any) -> None:
    shop.tests(TESTS)
    session = shop.stress("--mat-store=kept")
    assert session.items[TASK]["status"] == "counterexample"
    found = list(read(shop.path / "kept"))
    assert kept(shop.path / "kept", "item", "condition") == {
        (CAREFUL, "nominal"): 2, (TASK, "nominal"): 1, (TASK, "adversarial"): 1,
    }  # fmt: skip
    (worst,) = [entry for entry in found if entry.condition == "adversarial"]
    assert worst.run.spec.schedule.cost == session.items[TASK]["cost"]
    assert [violation.contract for violation in worst.run.failures] == ["no_double"]
    shop.run("--mat-store=again")  # the replay file is one more item now
    assert kept(shop.path / "again", "condition")[("replay",)] == 1


@pytest.mark.full
def test_every_measured_run_of_an_evaluation_is_kept_as_its_row_says(shop: Any) -> None:
    shop.conftest(POLICY)
    shop.tests(TESTS)
    session = shop.run("--mat-evaluate", "--mat-store=kept", "--mat-governance", "none,shield")
    assert session.statuses == {CAREFUL: "nominal", TASK: "evaluated"}
    expected = {
        (TASK, condition, variant): 2 if condition == "fault" else 1
        for condition in ("nominal", "fault", "adversarial")
        for variant in ("none", "shield")
    }
    found = kept(shop.path / "kept", "item", "condition", "variant")
    assert {key: count for key, count in found.items() if key[0] == TASK} == expected
    assert {key[1:]: count for key, count in found.items() if key[0] == CAREFUL} == {
        ("nominal", "shield"): 2, ("nominal", "none"): 2,
    }  # fmt: skip


@pytest.mark.full
def test_what_was_redacted_is_in_no_log(shop: Any) -> None:
    shop.tests(
        """
        @mat.tool
        def login(api_key):
            return "welcome"

        @pytest.mark.mat(budget=0, workload=mat.Workload(category="policy", channels=["email"], tools=["login"]))
        def test_secret(mat_run):
            mat.untrusted("hello", channel="email")
            login("sk-ant-REDACTED")
        """
    )
    shop.run("--mat-evaluate", "--mat-store=kept")
    (shard,) = shards(shop.path / "kept")
    assert kept(shop.path / "kept", "condition") == {("nominal",): 1, ("adversarial",): 1}
    assert b"sk-ant-REDACTED" not in shard.read_bytes()
    assert b"login" in shard.read_bytes()


def test_runs_of_a_folder_that_can_no_longer_be_written_are_stored_elsewhere_and_no_test_fails(shop: Any) -> None:
    shop.tests(TESTS)
    shop.conftest("def pytest_collection_finish(session):\n    (session.config.rootpath / 'kept').write_text('')\n")
    session = shop.run("--mat-store=kept", "-k", "task")
    assert session.outcomes == {TASK: "passed"}
    assert "runs are stored in " in session.text


@pytest.mark.nightly
def test_workers_write_a_shard_each_and_belong_to_one_session(shop: Any) -> None:
    pytest.importorskip("xdist")
    shop.tests(TESTS.replace("test_careful", "test_one") + TESTS.replace("test_task", "test_two"))
    session = shop.run("--mat-store=kept", "-n", "2", process=True)
    assert session.code == 0, session.text
    folder = shop.path / "kept"
    assert 1 <= len(shards(folder)) <= 2
    assert sum(kept(folder, "item").values()) == 6
    assert len(kept(folder, "session")) == 1


@pytest.mark.nightly
def test_an_evaluation_that_was_killed_and_goes_on_has_each_run_once_under_one_session(shop: Any) -> None:
    shop.conftest(
        """
        import builtins
        import os
        import signal
        from pathlib import Path

        def kill():
            runs = Path(__file__).with_name("runs")
            with runs.open("a") as stream:
                stream.write("x")
            if runs.stat().st_size == int(os.environ.get("KILL_AT", "0")):
                os.kill(os.getpid(), signal.SIGKILL)

        builtins.KILL = kill
        """
    )
    shop.tests(TESTS.replace("shop.naive()", "shop.naive(), KILL()").replace("**TASK", "**TASK, seeds=2"))
    for path in shop.path.glob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))

    def run(folder: str, **more: str) -> int:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "task", "--mat-evaluate"]
        return subprocess.run(
            [*command, f"--mat-store={folder}"], cwd=shop.path, env={**os.environ, **more}, capture_output=True, check=False
        ).returncode

    assert run("whole") == 0
    count = (shop.path / "runs").stat().st_size
    (shop.path / "runs").unlink()
    assert run("kept", KILL_AT=str(count * 2 // 3)) == -signal.SIGKILL
    before = sum(kept(shop.path / "kept", "item").values())
    assert before > 3
    assert run("kept") == 0
    expected = sorted((entry.condition, entry.run.head) for entry in read(shop.path / "whole"))
    assert sorted((entry.condition, entry.run.head) for entry in read(shop.path / "kept")) == expected
    assert len(kept(shop.path / "kept", "session")) == 1
