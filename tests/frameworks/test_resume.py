"""A process that ends between an effect and its checkpoint: LangGraph's check-pointers continue the work."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from tests.frameworks.test_frameworks import HERE, pytest_in

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(importlib.util.find_spec("langgraph") is None, reason="langgraph is not installed"),
]
TEST = """
import asyncio, pytest, shop
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_desk import ScriptedModel, _tool
from mat_contracts import no_duplicate_effect

CAREFUL = {careful}
CONFIG = {{"configurable": {{"thread_id": "A17"}}}}
PAID = set()

def refund(order: str) -> str:
    "Refund an order."
    if CAREFUL and order in PAID:
        return "done before"
    PAID.add(order)
    return pay(order)

def pay(order: str) -> str:
    return f"refunded {{order}}"

async def arefund(order: str) -> str:
    "Refund an order."
    return refund(order)

arefund.__name__ = "refund"

def mind(results):
    return "done" if results else [("refund", {{"order": "A17"}})]

class Service:
    "A service whose graph lives as long as its process, and whose checkpoints outlive it."

    def __init__(self, saver):
        self.graph = create_agent(ScriptedModel(mind=mind), tools=[_tool({tool})], checkpointer=saver)

    def run(self, given):
        {call}

@pytest.fixture
def saver():
    PAID.clear()
    return InMemorySaver()

@pytest.fixture
def mat_instrument():
    return {{"test_case.pay": {{"effect": "write"}}}}

@pytest.fixture
def mat_resume(saver):
    def resume():
        known = Service(saver).graph.get_state(CONFIG).values
        return Service(saver).run(None if known else {{"messages": [("user", "refund A17")]}})
    return resume

@pytest.fixture
def rule():
    return no_duplicate_effect("pay", key="order")

@pytest.mark.mat(budget=4, faults=["process.crash"])
def test_case(mat_run, rule, saver):
    Service(saver).run({{"messages": [("user", "refund A17")]}})
"""
CALLS = {
    "sync": "return self.graph.invoke(given, CONFIG)",
    "async": "return asyncio.run(self.graph.ainvoke(given, CONFIG))",
}


def written(path: Path, mode: str, *, careful: bool) -> None:
    for name in ("shop.py", "langgraph_desk.py"):
        shutil.copy(HERE / name, path / name)
    tool = "refund" if mode == "sync" else "arefund"
    (path / "test_case.py").write_text(TEST.format(careful=careful, call=CALLS[mode], tool=tool))
    (path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmat_attach = langgraph\n")


@pytest.mark.parametrize("mode", CALLS)
def test_an_effect_before_its_checkpoint_happens_twice_with_langgraph(mode: str, tmp_path: Path) -> None:
    written(tmp_path, mode, careful=False)
    searched = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    item = json.loads((tmp_path / "report.json").read_text())["items"][0]
    assert item["status"] == "counterexample", searched.stdout
    assert "then the process ends and is started again" in " ".join(searched.stdout.split())
    [replay] = (tmp_path / "mat_replays").glob("*.mat.json")
    strict = pytest_in(tmp_path, "--mat-replay", str(replay), hash_seed="7")
    assert strict.returncode == 1, strict.stdout
    assert "ReplayDivergence" not in strict.stdout
    written(tmp_path, mode, careful=True)
    mended = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    assert mended.returncode == 0, mended.stdout
    assert json.loads((tmp_path / "report.json").read_text())["items"][0]["status"] == "certified"
