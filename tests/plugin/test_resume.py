"""A session that is killed while it searches is taken up again: no finished execution is repeated, and none is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

AGENT = """
import os
import signal
import sys
from pathlib import Path

PAY = {pay!r}
RUNS = Path(__file__).with_name("runs")


def executed(schedule):
    fresh = "--mat-confirm" in sys.argv
    with open(RUNS.with_name("fresh") if fresh else RUNS, "a") as stream:
        stream.write(repr([str(item.site) + item.operator for item in schedule]) + "\\n")
    searching = RUNS.with_name("searching")
    if fresh and os.environ.get("KILL_IN_FRESH"):
        os.kill(int(searching.read_text()), signal.SIGKILL)
    if not fresh:
        searching.write_text(str(os.getpid()))
    most = os.environ.get("KILL_AFTER")
    if most and not fresh and len(RUNS.read_text().splitlines()) > int(most):  # of several workers none may see the next
        os.kill(int(os.environ.get("VICTIM") or os.getpid()), signal.SIGKILL)
"""
TEST = """
import agent


@pytest.fixture
def mat_workload():
    return dict(input="misuse", harm=lambda run: any(record.action.name == "refund" for record in run.records))


@pytest.mark.mat(budget=8, faults=FAULTS, seeds=2)
def test_refund(mat_run, no_double, mat_workload):
    agent.executed(mat_run.spec.schedule)
    for order in ("o1", "o2"):
        shop.naive(2, order)
"""
RESUMED = "executions reused from an interrupted search"
Outcome = tuple[list[str], dict[str, bytes]]
WHOLE: dict[tuple[str, ...], tuple[Outcome, list[str]]] = {}
"""By source: what a session that nothing interrupted leaves, and what it executed; it is the same in every folder."""


class Bench:
    """A directory whose only test counts its executions, and a session that dies after so many of them."""

    def __init__(self, shop: Any) -> None:
        self.shop, self.path = shop, shop.path
        shop.tests(TEST)
        shop.write("agent.py", AGENT.format(pay="1"))
        for path in self.path.glob("*.py"):  # of before the session, whatever the resolution of the clock
            os.utime(path, (1_000_000_000, 1_000_000_000))

    def run(self, *arguments: str, after: int | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **more}
        if after is not None:
            environment["KILL_AFTER"] = str(after)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "--mat-stress", "--mat-report", "out.json", *arguments], cwd=self.path,
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    @property
    def runs(self) -> list[str]:
        path = self.path / "runs"
        return path.read_text().splitlines() if path.exists() else []

    def forget(self) -> None:
        (self.path / "runs").unlink(missing_ok=True)
        self.forget_replays()

    def forget_replays(self) -> None:
        """A replay file that a killed session left is one more item of the next."""
        for path in self.shop.replays:
            path.unlink()

    @property
    def journals(self) -> list[Path]:
        return sorted((self.path / ".mat" / "campaigns").glob("*.jsonl"))

    def whole(self) -> tuple[Outcome, list[str]]:
        """What this session is and executes from beginning to end."""
        sources = tuple(path.read_text() for path in sorted(self.path.glob("*.py")))
        if sources not in WHOLE:
            done = self.run()
            assert RESUMED not in done.stdout
            assert self.journals == []
            WHOLE[sources] = self.outcome(), self.runs
            self.forget()
        return WHOLE[sources]

    def outcome(self) -> Outcome:
        """The report and the replay files."""
        report = json.loads((self.path / "out.json").read_text())
        lines = json.dumps(report, sort_keys=True, indent=1).splitlines()
        return lines, {path.name: path.read_bytes() for path in self.shop.replays}


@pytest.fixture
def bench(shop: Any) -> Bench:
    return Bench(shop)


@pytest.mark.nightly
def test_a_session_killed_again_and_again_ends_as_one_that_was_not(bench: Bench) -> None:
    expected, whole = bench.whole()
    seeds, step, sessions = 2, 9, 0
    while True:
        before = len(bench.runs)
        done = bench.run(after=before + seeds + step)
        if done.returncode != -signal.SIGKILL:
            break
        sessions += 1
        assert len(bench.journals) == 1
        if sessions == 2:  # in the middle of a line
            with open(bench.journals[0], "ab") as stream:
                stream.write(b'["00')
    assert sessions >= 3
    assert bench.outcome() == expected
    assert bench.journals == []
    # each killed session repeats what it reports, its nominal runs, and lost the one execution in which it was killed
    assert len(bench.runs) == len(whole) + sessions * (seeds + 1)
    assert f"resumed: {sessions * step} {RESUMED}" in done.stdout


@pytest.mark.nightly
def test_executions_of_edited_code_are_not_used_and_it_is_said(bench: Bench) -> None:
    _, whole = bench.whole()
    assert bench.run(after=15).returncode == -signal.SIGKILL
    bench.shop.write("agent.py", AGENT.format(pay="2"))
    os.utime(bench.path / "agent.py", (1_000_000_000, 1_000_000_000))
    count = len(bench.runs)
    done = bench.run()
    assert RESUMED not in done.stdout
    assert "an interrupted search was set aside: " in done.stdout
    assert "agent.py changed since" in done.stdout
    assert len(bench.runs) - count == len(whole)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "named"), [(("--mat-budget", "4"), "budget"), (("--mat-horizon", "50"), "spec and the reported run")]
)
def test_another_search_of_the_same_test_does_not_use_them(bench: Bench, options: tuple[str, ...], named: str) -> None:
    assert bench.run(after=15).returncode == -signal.SIGKILL
    done = bench.run(*options)
    assert f"an interrupted search was set aside: it has a different {named}" in done.stdout
    assert RESUMED not in done.stdout


@pytest.mark.nightly
def test_a_person_may_ask_for_a_search_from_the_start(bench: Bench) -> None:
    _, whole = bench.whole()
    assert bench.run(after=15).returncode == -signal.SIGKILL
    count = len(bench.runs)
    done = bench.run("--mat-fresh")
    assert RESUMED not in done.stdout
    assert "set aside" not in done.stdout
    assert len(bench.runs) - count == len(whole)


@pytest.mark.nightly
def test_a_session_of_workers_that_was_killed_is_taken_up_without_them(bench: Bench) -> None:
    expected, _ = bench.whole()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_FROM_INSIDE, "--mat-stress", "--mat-workers", "2"], cwd=bench.path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (journal,) = bench.journals
    kept = journal.read_bytes().count(b'"kind"')
    assert kept > 5
    done = bench.run()
    assert RESUMED in done.stdout
    assert bench.outcome() == expected


KILLED_FROM_INSIDE = """
import os, sys, pytest
os.environ["KILL_AFTER"], os.environ["VICTIM"] = "16", str(os.getpid())
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.nightly
def test_what_a_finished_search_executed_is_not_repeated_when_a_later_one_is_killed(bench: Bench) -> None:
    bench.shop.tests(TEST + SECOND)
    os.utime(bench.path / "test_shop.py", (1_000_000_000, 1_000_000_000))
    expected, whole = bench.whole()
    assert bench.run(after=len(whole) - 5).returncode == -signal.SIGKILL
    assert len(bench.journals) == 2
    bench.forget_replays()
    done = bench.run()
    assert done.stdout.count(RESUMED) == 2
    assert bench.outcome() == expected
    nominal = 2 + 2
    assert len(bench.runs) == len(whole) + nominal + 1
    assert bench.journals == []


@pytest.mark.nightly
def test_a_session_killed_while_the_fresh_process_confirms_repeats_nothing_of_the_search(bench: Bench) -> None:
    expected, whole = bench.whole()
    assert bench.run(KILL_IN_FRESH="1").returncode == -signal.SIGKILL
    searched = len(bench.runs)
    done = bench.run()
    assert f"resumed: {searched - 2} {RESUMED}" in done.stdout
    assert bench.outcome() == expected
    assert len(bench.runs) == len(whole) + 2


SECOND = """
@pytest.mark.mat(budget=8, faults=FAULTS, seeds=2)
def test_second(mat_run, no_double, mat_workload):
    agent.executed(mat_run.spec.schedule)
    shop.careful("o1")
    shop.careful("o2")
"""


@pytest.mark.nightly
def test_an_interrupted_session_keeps_what_it_executed(bench: Bench) -> None:
    _, whole = bench.whole()
    text = AGENT.format(pay="1").replace("signal.SIGKILL", "signal.SIGINT")
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored\n"
    bench.shop.write("agent.py", heard + text)
    os.utime(bench.path / "agent.py", (1_000_000_000, 1_000_000_000))
    done = bench.run(after=15)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "mat: interrupted: run the same command again to continue the search" in done.stdout
    assert len(bench.journals) == 1
    count = len(bench.runs)
    done = bench.run()
    assert RESUMED in done.stdout
    assert "mat: interrupted" not in done.stdout
    executed = len(bench.runs) - count
    assert bench.journals == []
    assert executed < len(whole) - 5


@pytest.mark.nightly
def test_with_xdist_the_controller_removes_what_its_workers_kept(bench: Bench) -> None:
    done = bench.run("-n", "2")
    assert "1 failed" in done.stdout
    assert (bench.path / ".mat" / "campaigns").is_dir()
    assert bench.journals == []


@pytest.mark.full
def test_the_folder_is_no_business_of_git(bench: Bench) -> None:
    bench.run(after=15)
    assert "*" in (bench.path / ".mat" / ".gitignore").read_text().splitlines()


def test_a_nominal_session_keeps_no_journal(bench: Bench) -> None:
    assert bench.shop.run().report["items"]
    assert not (bench.path / ".mat").exists()


# -- what counts as the user's code -------------------------------------------------------------------------------------


def test_sources_are_the_loaded_files_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mat_study.sources import Sources

    sources = Sources(time.time_ns())
    first = sources.new()
    assert __file__ in first
    assert not any("site-packages" in path for path in first)
    assert os.__file__ not in first
    assert sources.new() == {}
    (tmp_path / "a_module_of_the_user.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import a_module_of_the_user  # type: ignore[import-not-found]

    assert list(sources.new()) == [a_module_of_the_user.__file__]
    assert sources.new() == {}


def test_a_source_changed_while_the_session_runs_fits_nothing(tmp_path: Path) -> None:
    from mat_study.sources import Sources

    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    began = path.stat().st_mtime_ns
    before = Sources(began).digest(str(path))
    assert len(before) == 32
    edited = Sources(began - 1).digest(str(path))
    assert edited != before
    assert Sources(began + 10**12).digest(str(path)) == before != edited
    path.unlink()
    assert Sources(began + 10**12).digest(str(path)) not in (before, edited)
