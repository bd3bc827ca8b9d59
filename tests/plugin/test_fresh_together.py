"""Fresh processes execute at the same time, unless an execution uses something that another one would use as well."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mat_study.fresh import FORKS, FreshProcesses
from pytest_mat.session import session_of

pytestmark = pytest.mark.skipif(not FORKS, reason="the processes are forks")

AGENT = """
import tempfile
from pathlib import Path

@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double, tmp_path):
    USED
    shop.AGENT()
"""


@pytest.mark.parametrize(
    ("used", "together"),
    [
        ("pass", True),
        ('(tmp_path / "orders").write_text("A17")', True),
        ("Path(__file__).read_text()", True),
        ('Path("orders").write_text("A17")', False),
        ("tempfile.mkdtemp()", False),
    ],
)
@pytest.mark.parametrize("agent", ["naive", "careful"])
def test_batches_are_begun_unless_they_could_meet(
    used: str, together: bool, agent: str, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    real = FreshProcesses.begin_batches

    def begin_batches(processes: FreshProcesses, item: Any, batches: Any) -> bool:
        monkeypatch.setattr(processes, "_at_once", 2)
        begun.extend(hash_seed for hash_seed, _ in batches)
        return real(processes, item, batches)

    monkeypatch.setattr(FreshProcesses, "begin_batches", begin_batches)
    shop.tests(AGENT.replace("USED", used).replace("AGENT", agent))
    session = shop.stress()
    assert set(begun) == ({1, 2} if together else set())
    broken = {item["status"] for item in session.items.values()} == {"counterexample"}
    assert broken is (agent == "naive")


MEETING = """
import _posixshmem
import os
import time

NAME = "/mat" + os.getcwd().replace("/", "-")
spent = time.process_time


def take():
    handle = _posixshmem.shm_open(NAME, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    until = spent() + 0.02
    while spent() < until:
        pass
    os.close(handle)
    _posixshmem.shm_unlink(NAME)
"""
LOSING = """
@pytest.fixture
def locked():
    take()


@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double, locked):
    shop.careful()
"""
DIFFERING = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double, locked):
    shop.careful()
    if not locked:
        shop.careful()


@pytest.fixture
def locked():
    try:
        take()
    except FileExistsError:
        return False
    return True
"""


@pytest.mark.parametrize("test", [LOSING, DIFFERING], ids=["losing", "differing"])
def test_a_test_whose_executions_meet_is_judged_as_if_they_did_not(
    test: str, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that nothing here sees: one of two executions loses it, or does something else."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    shop.tests(MEETING + test)
    session = shop.stress()
    assert {item["proven"] for item in session.items.values()} == {True}, session.text


@pytest.mark.parametrize(("processors", "workers", "at_once"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (8, 2, 4), (16, 1, 4)])
def test_workers_of_xdist_share_the_processors(
    processors: int, workers: int, at_once: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)), raising=False)
    found: list[int] = []

    class Loop:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if workers > 1:
                session.config.workerinput = {"workercount": workers}  # type: ignore[attr-defined]
            found.append(session_of(session.config).fresh._at_once)
            return True

    pytester.makepyfile("def test_one(): pass")
    pytester.inline_run("-q", "-p", "no:cacheprovider", "-p", "no:xdist", plugins=[Loop()])
    assert found == [at_once]
