from __future__ import annotations

from pathlib import Path

import pytest

import mat
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.evidence import replay_file

TEST = """
import mat
import pytest


@mat.tool(effect="write", impact="high")
def refund(order):
    return {"order": order}


@pytest.fixture
def refund_once():
    @mat.trace_contract(start=0, id="refund.once")
    def fold(count, record):
        if record.action.name != "refund" or record.effected == "no":
            return None
        return mat.Violated("refunded twice", state=count + 1) if count else 1

    return fold


@pytest.mark.mat
def test_refund(mat_run, refund_once):
    with mat.agent("mailer"):
        for attempt in range(RETRIES + 1):
            try:
                refund("A-777")
                break
            except TimeoutError:
                mat.mitigate("retry")
"""


@mat.trace_contract(start=0, id="refund.once")
def once_only(count: int, record: mat.Record) -> object:
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", state=count + 1) if count else 1


def replay_of(amount: int) -> replay_file.Replay:
    @mat.tool(effect="write", impact="high")
    def refund(order: str, amount: int) -> str:
        return "done"

    with mat.run(
        [once_only], task="test_shop.py::test_refund",
        schedule=[mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)],
    ) as run, mat.agent("mailer"):  # fmt: skip
        for _ in range(2):
            try:
                refund("A-777", amount)
                break
            except TimeoutError:
                mat.mitigate("retry")
    assert run.result is not None
    return replay_file.Replay(
        item="test_shop.py::test_refund",
        counterexample=Counterexample(
            verdict=run.result.failures[0], run=run.result, stability=Stability(runs=3, reproduced=3)
        ),
        certificate=Certificate(proven=True, bound=3, executions=12),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of one width, whatever the terminal of whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="module")
def a_replay() -> replay_file.Replay:
    return replay_of(25)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.mat.json"
    replay_file.write(path, replay_of(25))
    return path


@pytest.fixture
def other_file(tmp_path: Path) -> Path:
    path = tmp_path / "other.mat.json"
    replay_file.write(path, replay_of(30))
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A test that refunds twice when an acknowledgement is lost, in a folder of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_shop.py").write_text(TEST.replace("RETRIES", "1"))
    return folder
