"""A small shop whose agents the plugin's tests drive, and a session of pytest over it."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# pytester forgets what an inner session imported; what is imported here stays, so that inner sessions start fast
import mat
import mat.report.build
import mat.report.markdown
import mat_contracts
import mat_faults
import mat_search
import mat_study
import pytest_mat.confirm
import pytest_mat.items
import pytest_mat.replays
import pytest_mat.summary

KEPT = (mat, mat_contracts, mat_faults, mat_search, mat_study, pytest_mat)

SHOP = '''
"""A team with a naive way to handle a refund and a careful one."""
import time

import mat


@mat.tool(effect="write", impact="high")
def refund(order):
    return {"refunded": order}


@mat.tool
def check(order):
    return {"order": order, "fine": True}


def naive(tries=3, order="o1"):
    check(order)
    for _ in range(tries):
        try:
            refund(order)
            return "refunded"
        except TimeoutError:
            time.sleep(60)
    return "failed"


def careful(order="o1"):
    return naive(1, order)
'''

CONFTEST = '''
import mat
import pytest
from mat.boundary.effect import Raise


def pytest_mat_operators(config):
    """Two faults that look alike to the agent: no answer before the effect, and none after it."""
    return [
        mat.spec.operator("service.unanswered", lambda call, reply, stream: Raise("timeout")),
        mat.spec.operator(
            "service.unconfirmed", lambda call, reply, stream: Raise("timeout"), phase="after",
            relevant=lambda record, parameters, before: record.action.effect == "write",
        ),
    ]


@pytest.fixture
def no_double():
    @mat.trace_contract(start=frozenset())
    def no_double(seen, record):
        if record.action.name == "refund" and record.effected == "yes":
            order = record.action.arguments["order"]
            if order in seen:
                return mat.Violated(f"{order} was refunded twice", repair="ask what happened before a retry")
            return seen | {order}
    return no_double


@pytest.fixture
def no_refund():
    return mat.step_contract(on="tool_call", id="no_refund")(lambda record: record.action.name != "refund")
'''

INI = """
[pytest]
addopts = -p no:hypothesispytest
asyncio_default_fixture_loop_scope = function
"""

HEADER = """
import time

import mat
import pytest
import shop

FAULTS = ("service.unanswered", "service.unconfirmed")
"""


@dataclass(frozen=True)
class Session:
    """An inner session: its terminal text, the outcome of each item, and what the plugin reported of it."""

    code: int
    text: str
    errors: str
    outcomes: dict[str, str]
    failures: dict[str, str]
    report: dict[str, Any]

    @property
    def items(self) -> dict[str, dict[str, Any]]:
        return {item["id"]: item for item in self.report.get("items", ())}

    @property
    def statuses(self) -> dict[str, str]:
        return {name: item["status"] for name, item in self.items.items()}


class Shop:
    """A directory with the shop, its conftest and tests; `run` is a session of pytest in it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path: Path = pytester.path
        self.write("shop.py", SHOP)
        self.write("conftest.py", CONFTEST)
        self.write("pytest.ini", INI)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def tests(self, text: str, name: str = "test_shop.py") -> Path:
        return self.write(name, HEADER + textwrap.dedent(text))

    def conftest(self, text: str) -> Path:
        return self.write("conftest.py", CONFTEST + textwrap.dedent(text))

    @property
    def replays(self) -> list[Path]:
        return sorted((self.path / "mat_replays").glob("*"))

    def run(self, *arguments: str, process: bool = False, plugins: tuple[object, ...] = ()) -> Session:
        """A session; in a process of its own where what it leaves behind matters."""
        out = self.path / "out.json"
        out.unlink(missing_ok=True)
        given = (*arguments, "--mat-report", "out.json")
        if process:
            result = self.pytester.runpytest_subprocess(*given, timeout=120)
            reports: list[pytest.TestReport] = []
        else:
            result = self.pytester.runpytest_inprocess(*given, plugins=list(plugins))
            reports = result.reprec.getreports("pytest_runtest_logreport")  # type: ignore[attr-defined]
        return Session(
            code=int(result.ret),
            text=result.stdout.str(),
            errors=result.stderr.str(),
            outcomes=_outcomes(reports),
            failures={report.nodeid: report.longreprtext for report in reports if report.failed},
            report=json.loads(out.read_text()) if out.exists() else {},
        )

    def stress(self, *arguments: str, process: bool = False, plugins: tuple[object, ...] = ()) -> Session:
        return self.run("--mat-stress", *arguments, process=process, plugins=plugins)


def _outcomes(reports: list[pytest.TestReport]) -> dict[str, str]:
    """Outcome by item: of its call, or of the set-up or tear-down that did not pass."""
    found: dict[str, str] = {}
    for report in reports:
        if report.when == "call" or not report.passed:
            said: str = report.outcome if report.when == "call" or report.skipped else "error"
            found[report.nodeid] = "xfailed" if report.skipped and hasattr(report, "wasxfail") else said
    return found


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # a module rewritten within a second must be read again
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name in ("PYTEST_ADDOPTS", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")  # each message stays on one line, so that tests find it
    return Shop(pytester)
