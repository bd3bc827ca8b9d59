"""One set of tests for all frameworks: only the name of the attachment differs. A framework that is missing is skipped."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FRAMEWORKS = {
    "langgraph": "langgraph", "openai_agents": "agents", "pydantic_ai": "pydantic_ai", "mcp": "mcp", "google_adk": "google.adk",
    "smolagents": "smolagents", "litellm": "litellm",
}  # fmt: skip
"""Our name of a framework, and the module that must be there."""
CASES = {
    # case: careless mind, careful mind, contract, marker
    "double-refund": ("refunder", "careful_refunder", 'no_duplicate_effect("refund", key="order")', "budget=4"),
    "injection": ("reader", "careful_reader", "no_mail", 'budget=6, faults=["retrieval.poison"]'),
    "loop": ("stubborn", "patient", 'retry_limit("look_up", 3)', 'budget=8, faults=["service.outage"]'),
    "stale-read": ("seller", "careful_seller", "no_oversale", 'budget=6, faults=["service.stale"]'),
    "race": ("hurried", "orderly", "nothing_unpaid", 'budget=6, faults=["order.hold"]'),
}
TEST = """
import mat, pytest, shop
from mat_contracts import no_duplicate_effect
from {framework}_desk import handle

@mat.step_contract(on="tool_call")
def no_mail(record):
    return record.action.name != "send_mail"

@mat.step_contract(on="tool_call")
def nothing_unpaid(record):
    return "unpaid" not in str(record.observation.value)

@mat.trace_contract(start=0)
def no_oversale(sold, record):
    if record.action.name == "sell" and record.effected == "yes":
        sold += 1
    return mat.Violated("more was sold than there was") if sold > 1 else sold

def retry_limit(tool, most):
    @mat.trace_contract(start=0, id="retry.limit")
    def limit(failed, record):
        if record.action.name != tool:
            return failed
        failed = 0 if record.observation.error is None else failed + 1
        return mat.Violated("it is asked again and again") if failed > most else failed
    return limit

@pytest.fixture
def rule():
    return {contract}

@pytest.fixture
def mat_attach():
    return {{"{framework}": {{"retrievers": ["search_kb"], "effects": {effects}{more}}}}}

@pytest.fixture
def mat_instrument():
    return {instrument}

@pytest.mark.mat({marker})
def test_case(mat_run, rule):
    shop.reset()
    handle(shop.{mind}, "{mode}")
"""
MODES = {"smolagents": ("sync", "stream")}
"""The ways to run an agent that a framework has, where it has not all."""
THREADS = ("smolagents",)
"""Frameworks whose sync agents call the tools of one turn at the same time, in threads."""
MORE = {
    # what the tools of an agent raise there when their client fails, so that the model is told
    "pydantic_ai": ', "errors": dict.fromkeys(["timeout", "connection"], __import__("pydantic_ai").ModelRetry)',
}
EFFECTS = {"look_up": "read", "stock": "read", "refund": "write", "sell": "write", "send_mail": "write"}
INSTRUMENT = {
    # what users declare by themselves, because the framework has only models
    "litellm": {
        **{f"shop.{name}": {"effect": effect} for name, effect in EFFECTS.items()},
        "shop.search_kb": {"kind": "retriever"}, "shop.charge": {}, "shop.ship": {},
    },
}  # fmt: skip
REPORT = "import json,sys;print(json.load(open(sys.argv[1]))['items'][0]['status'])"


def folder(tmp_path: Path, framework: str, case: str, mode: str, *, careful: bool) -> Path:
    careless, fixed, contract, marker = CASES[case]
    for name in ("shop.py", f"{framework}_desk.py"):
        shutil.copy(HERE / name, tmp_path / name)
    text = TEST.format(
        framework=framework,
        contract=contract,
        marker=marker,
        mode=mode,
        mind=fixed if careful else careless,
        effects=EFFECTS,
        more=MORE.get(framework, ""),
        instrument=INSTRUMENT.get(framework, {}),
    )
    (tmp_path / "test_case.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return tmp_path


def pytest_in(path: Path, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    import os

    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, timeout=240, check=False)


def item_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "report.json").read_text())["items"][0]
    return found


def missing(framework: str) -> bool:
    try:
        return importlib.util.find_spec(FRAMEWORKS[framework]) is None
    except ModuleNotFoundError:  # of its parent
        return True


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if missing(name):
        pytest.skip(f"{name} is not installed")
    if not (HERE / f"{name}_desk.py").exists():
        pytest.skip(f"no agent for {name} yet")
    return name


@pytest.mark.full
@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("case", CASES)
def test_a_planted_mistake_is_found_replayed_in_another_process_and_gone_when_it_is_mended(
    framework: str, case: str, mode: str, tmp_path: Path
) -> None:
    if case == "race" and mode != "async" and framework not in THREADS:
        pytest.skip("only async agents call tools at the same time")
    if mode not in MODES.get(framework, (mode,)):
        pytest.skip(f"{framework} is {MODES[framework][0]} only")
    path = folder(tmp_path, framework, case, mode, careful=False)
    searched = pytest_in(path, "--mat-stress", "--mat-report", "report.json")
    item = item_of(path)
    assert item["status"] == "counterexample", searched.stdout
    [replay] = (path / "mat_replays").glob("*.mat.json")
    strict = pytest_in(path, "--mat-replay", str(replay), hash_seed="7")
    assert strict.returncode == 1, strict.stdout  # it shows the violation again, step by step, without a divergence
    assert "ReplayDivergence" not in strict.stdout
    folder(tmp_path, framework, case, mode, careful=True)
    mended = pytest_in(path, "--mat-stress", "--mat-report", "report.json")
    assert mended.returncode == 0, mended.stdout
    assert item_of(path)["status"] in ("certified", "vacuous")  # a careful agent leaves some faults nothing to act on
