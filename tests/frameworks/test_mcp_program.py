"""A program on the real SDK behind `mat mcp-proxy`: parallel calls, faults in the forms of its client, and the search."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mat
import mat_faults
from mat.adapters import program

pytest.importorskip("mcp")
pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform == "win32", reason="a program's run is a Unix socket")]
HERE = Path(__file__).parent
CATALOG = mat_faults.operators()
TEST = """
import pytest
from mat.adapters import program
from mat_contracts import no_duplicate_effect

@pytest.fixture
def refunded_once():
    return no_duplicate_effect("refund", key="order")

@pytest.mark.mat(budget=4)
def test_refund(mat_run, refunded_once, tmp_path):
    assert program([*{command}, str(tmp_path / "ledger")], effects={{"refund": "write"}}).run().code == 0
"""


def command(care: str) -> list[str]:
    server = HERE.parent / "adapters" / "programs" / "server.py"
    return [sys.executable, str(HERE / "mcp_program.py"), care, sys.executable, "-m", "mat", "mcp-proxy", "--", sys.executable,
            str(server)]  # fmt: skip


def test_parallel_calls_of_the_sdk_cross_in_the_order_in_which_it_makes_them(tmp_path: Path) -> None:
    heads = set()
    for number in range(5):
        with mat.run() as run:
            done = program([*command("careless"), str(tmp_path / f"ledger-{number}")]).run()
        assert (done.code, done.stdout) == (0, "refunded A17, refunded A18\n"), done.stderr
        assert run.result is not None
        heads.add(run.result.head)
    asked = [(each.action.kind, each.action.name, each.action.arguments.get("order")) for each in run.trace[:-1]]
    assert asked == [("tool_call", "refund", "A17"), ("tool_call", "refund", "A18"), ("retrieval", "resource", None)]
    assert len(heads) == 1


@pytest.mark.parametrize(
    ("operator", "parameters", "told"),
    [
        ("service.timeout", {}, "timed out"), ("service.error", {"kind": "connection"}, "connection failed"),
        ("service.error", {"kind": "server_error"}, "service unavailable"),
    ],
)  # fmt: skip
def test_a_fault_is_what_the_client_of_the_sdk_raises_or_returns(
    tmp_path: Path, operator: str, parameters: dict[str, str], told: str
) -> None:
    fault = mat.spec.perturbation(operator, "main/service:refund#1", parameters, cost=4)
    with mat.run(schedule=[fault], operators=CATALOG):
        done = program([*command("careless"), str(tmp_path / "ledger")]).run()
    assert done.code == 0, done.stderr
    assert told in done.stdout + done.stderr


def test_a_double_refund_of_a_program_on_the_sdk_is_found_and_gone_when_it_is_fixed(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for care, result in (("careless", "0 certified, 1 broken"), ("careful", "1 certified, 0 broken")):
        (tmp_path / f"test_{care}.py").write_text(TEST.format(command=repr(command(care))))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--mat-stress", f"test_{care}.py"], cwd=tmp_path,
            env={**os.environ}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert result in done.stdout, done.stdout
        assert ("when the reply of the 1st refund call" in " ".join(done.stdout.split())) == (care == "careless")
