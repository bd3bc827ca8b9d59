"""A cluster searches (--mat-executor): the answer of one process, byte for byte, whatever happens to the cluster."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from mat.core.extras import EXTRAS
from pytest_mat.session import SessionState

TEAM = """
import os
import sys
from pathlib import Path

FRESH = "--mat-confirm" in sys.argv
PLACE = Path(".mat")  # holds nothing of a program's state


def executed():
    with (PLACE / "log").open("a") as stream:
        stream.write(f"{os.getpid()}\\n")
    executions = len((PLACE / "log").read_text().splitlines())
    if FRESH and executions % 20 == 0 and (PLACE / "dying").exists():
        kill_worker()
    if FRESH and executions > 10 and (PLACE / "scheduler").exists():
        os.kill(int((PLACE / "scheduler").read_text()), 9)
        (PLACE / "scheduler").unlink()


def kill_worker():
    import psutil

    for each in psutil.Process().parents():
        if "multiprocessing" in " ".join(each.cmdline()):  # as dask starts them
            (PLACE / f"killed-{each.pid}").touch()
            each.kill()
            return


@pytest.mark.mat(budget=8, faults=FAULTS, seeds=2)
def test_team(mat_run, no_double):
    executed()
    for order in ("o1", "o2"):
        shop.naive(2, order)


@pytest.mark.mat(budget=8, faults=FAULTS)
def test_careful(mat_run, no_double):
    executed()
    for order in ("o1", "o2", "o3"):
        shop.careful(order)
"""


SICK = """
import os
import sys
from pathlib import Path

import psutil


def is_sick():  # whether this process belongs to the worker that asks first, or to any if all are
    above = [each.pid for each in psutil.Process().parents() if "multiprocessing" in " ".join(each.cmdline())]
    claimed = Path(".mat", "claimed")
    if above and not claimed.exists():
        claimed.write_text(str(above[0]))
    return bool(above) and (Path(".mat", "all").exists() or str(above[0]) == claimed.read_text())


if "--mat-confirm" in sys.argv and is_sick():
    raise OSError("No space left on device")
"""


@dataclass(frozen=True)
class Found:
    """A session: its report without times and without the notice that workers were lost, and its replay files."""

    report: dict[str, Any]
    replays: dict[str, str]
    processes: int
    lost: bool
    text: str


ALONE: list[Found] = []


def session(shop: Any, *arguments: str) -> Found:
    shop.tests(TEAM)
    (shop.path / ".mat").mkdir(exist_ok=True)
    log = shop.path / ".mat" / "log"
    log.unlink(missing_ok=True)
    for path in shop.replays:
        path.unlink()
    found = shop.stress("--mat-no-reuse", *arguments, process=True)
    report = {name: part for name, part in found.report.items() if name not in ("made", "seconds", "duration")}
    lost = "workers-lost" in json.dumps(report)
    for item in report["items"]:
        item["findings"] = [each for each in item["findings"] if "workers-lost" not in each]
    replays = {path.name: path.read_text() for path in shop.replays}
    return Found(report, replays, len(set(log.read_text().split())), lost, found.text)


def alone(shop: Any) -> Found:
    """The session without a cluster, once for all tests."""
    if not ALONE:
        ALONE.append(session(shop))
        assert {each["status"] for each in ALONE[0].report["items"]} == {"counterexample", "certified"}
        assert ALONE[0].replays
    return ALONE[0]


@pytest.fixture
def scheduler(shop: Any) -> Iterator[tuple[str, int]]:
    """A scheduler and a worker of two threads, as on other machines: the address, and the process of the scheduler."""
    place = shop.path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": ""}
    first = subprocess.Popen([*command, "--scheduler-file", place], env=environment, **quiet)
    worker = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        "--scheduler-file",
        place,
        "--nthreads",
        "2",
        "--no-dashboard",
    ]
    second = subprocess.Popen(worker, env=environment, start_new_session=True, **quiet)
    address = ""
    while not address:
        assert first.poll() is None
        time.sleep(0.05)
        with suppress(OSError, ValueError):  # it is not there yet, or half-written
            address = json.loads(place.read_text())["address"]
    yield address, first.pid
    first.kill()
    first.wait()
    os.killpg(second.pid, signal.SIGTERM)
    second.wait()


@pytest.mark.nightly
def test_a_cluster_whose_workers_are_killed_gives_the_report_and_the_replays_of_one_process(shop: Any) -> None:
    expected = alone(shop)
    (shop.path / ".mat").mkdir(exist_ok=True)
    (shop.path / ".mat" / "dying").touch()
    found = session(shop, "--mat-executor", "dask", "--mat-workers", "2")
    assert list((shop.path / ".mat").glob("killed-*")), "no worker was killed"
    assert (found.report, found.replays) == (expected.report, expected.replays)
    assert not found.lost, "others go on"


@pytest.mark.nightly
def test_two_xdist_workers_share_a_cluster_and_go_on_without_it_when_its_scheduler_dies(
    shop: Any, scheduler: tuple[str, int]
) -> None:
    expected = alone(shop)
    options = ("--mat-executor", f"dask:{scheduler[0]}", "-n", "2")
    shared = session(shop, *options)
    assert (shared.report, shared.replays, shared.lost) == (expected.report, expected.replays, False)
    assert shared.processes > expected.processes
    (shop.path / ".mat" / "scheduler").write_text(str(scheduler[1]))
    left = session(shop, *options)
    assert (left.report, left.replays, left.lost) == (expected.report, expected.replays, True)


@pytest.mark.nightly
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_worker_that_cannot_collect_a_test_is_given_up_by_name_and_the_search_goes_on(shop: Any, all_of_them: bool) -> None:
    expected = alone(shop)
    shop.conftest(SICK)
    (shop.path / ".mat").mkdir(exist_ok=True)
    if all_of_them:
        (shop.path / ".mat" / "all").touch()
    found = session(shop, "--mat-executor", "dask", "--mat-workers", "2")
    assert (found.report, found.replays, found.lost) == (expected.report, expected.replays, all_of_them)
    sick = (shop.path / ".mat" / "claimed").read_text()
    assert f"process {sick}: OSError: No space left on device" in found.text
    assert "a worker is given up" in found.text
    assert found.processes > expected.processes or all_of_them


@pytest.mark.nightly
def test_a_file_of_the_project_that_is_another_one_on_a_worker_is_refused_by_its_name(shop: Any) -> None:
    shop.conftest(
        """
        import os
        from pathlib import Path

        @pytest.fixture(scope="session")
        def made():
            Path("made.txt").write_text(str(os.getpid()))
        """
    )
    shop.tests(
        """
        from pathlib import Path

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_careful(mat_run, no_double, made):
            assert Path("made.txt").read_text()
            for order in ("o1", "o2", "o3"):
                shop.careful(order)
        """
    )
    found = shop.stress("--mat-no-reuse", "--mat-executor", "dask", "--mat-workers", "1", process=True)
    assert found.code == 1
    assert f"would execute something else: {shop.path}/made.txt: another content" in found.text.replace("\n", "")


def test_no_two_processes_of_pytest_have_one_name_on_a_cluster(pytestconfig: pytest.Config) -> None:
    first, second = SessionState(pytestconfig), SessionState(pytestconfig)
    assert first.process != second.process
    assert all(platform.node() in each.process for each in (first, second))


@pytest.mark.nightly
def test_a_worker_that_has_other_sources_is_refused_by_their_name(shop: Any) -> None:
    shop.conftest(
        """
        import sys

        if "--mat-confirm" in sys.argv:  # where a worker collects the item
            sys.path.insert(0, "elsewhere")
            import shop
        """
    )
    shop.write("elsewhere/shop.py", (shop.path / "shop.py").read_text() + "\n# another version\n")
    shop.tests(TEAM)
    (shop.path / ".mat").mkdir()
    found = shop.stress("--mat-no-reuse", "--mat-executor", "dask", "--mat-workers", "1", "-k", "careful", process=True)
    assert found.code == 1
    assert "would execute something else: elsewhere/shop.py, shop.py differ" in found.text


def test_without_the_extra_the_option_is_refused_with_the_line_that_installs_it(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.tests(TEAM)
    for name in EXTRAS["dask"]:
        monkeypatch.setitem(sys.modules, name, None)
    refused = shop.pytester.runpytest_inprocess("--mat-stress", "--mat-executor", "dask")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(['*fix: pip install "pytest-mat[[]dask]", or use --mat-workers on this machine*'])


@pytest.mark.parametrize("text", ["ray", "dask:", "dask:scheduler", "tcp://scheduler:8786"])
def test_what_names_no_cluster_is_refused_at_once(shop: Any, text: str) -> None:
    refused = shop.pytester.runpytest_inprocess("--mat-stress", "--mat-executor", text)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"*{text!r} is neither dask nor dask:ADDRESS, such as dask:tcp*"])


def test_the_help_says_what_workers_are_for_each_kind_of_cluster(shop: Any) -> None:
    text = " ".join(shop.pytester.runpytest_inprocess("--help").stdout.str().split())
    assert "runs --mat-workers executions at once (default: one per thread of the cluster)" in text
    assert "starts a cluster of --mat-workers processes on this machine (default: one per CPU)" in text


@pytest.mark.full
def test_the_link_is_the_only_part_that_imports_dask() -> None:
    code = "import pytest_mat.cluster, pytest_mat.remote, sys; print({'dask', 'distributed'}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
