"""A process that ends between an effect and its checkpoint: the framework's own saved work goes on.

LangGraph has check-pointers; Pydantic AI runs in a workflow of DBOS, which keeps its steps in SQLite and needs no server.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.frameworks.test_frameworks import HERE, pytest_in

pytestmark = pytest.mark.full
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


def found_replayed_and_mended(path: Path, write: Callable[[bool], None]) -> None:
    """The search finds the double effect, a new process replays it, and the careful agent is certified."""
    write(False)
    searched = pytest_in(path, "--mat-stress", "--mat-report", "report.json")
    item = json.loads((path / "report.json").read_text())["items"][0]
    assert item["status"] == "counterexample", searched.stdout
    assert "then the process ends and is started again" in " ".join(searched.stdout.split())
    [replay] = (path / "mat_replays").glob("*.mat.json")
    strict = pytest_in(path, "--mat-replay", str(replay), hash_seed="7")
    assert strict.returncode == 1, strict.stdout
    assert "ReplayDivergence" not in strict.stdout
    write(True)
    mended = pytest_in(path, "--mat-stress", "--mat-report", "report.json")
    assert mended.returncode == 0, mended.stdout
    assert json.loads((path / "report.json").read_text())["items"][0]["status"] == "certified"


@pytest.mark.skipif(importlib.util.find_spec("langgraph") is None, reason="langgraph is not installed")
@pytest.mark.parametrize("mode", CALLS)
def test_an_effect_before_its_checkpoint_happens_twice_with_langgraph(mode: str, tmp_path: Path) -> None:
    found_replayed_and_mended(tmp_path, lambda careful: written(tmp_path, mode, careful=careful))


DURABLE = """
import asyncio, logging, pytest
from dbos import DBOS, SetWorkflowID
from mat_contracts import no_duplicate_effect
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

CAREFUL = {careful}
PAID = set()

def pay(order: str) -> str:
    return f"refunded {{order}}"

def think(messages, info):
    if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("refund", {{"order": "A17"}}, "call-1")])

agent = Agent(FunctionModel(think, model_name="scripted"), name="clerk", capabilities=[DBOSDurability()])

@agent.tool_plain
{step}
async def refund(order: str) -> str:
    "Refund an order."
    if CAREFUL and order in PAID:
        return "done before"
    PAID.add(order)
    return pay(order)

@DBOS.workflow()
async def handle(order: str) -> str:
    return (await agent.run(f"Refund {{order}}")).output

def start(folder):
    DBOS(config={{"name": "desk", "system_database_url": f"sqlite:///{{folder}}/dbos.sqlite", "log_level": "ERROR"}})
    DBOS.launch()

@pytest.fixture
def folder(tmp_path):
    PAID.clear()
    start(tmp_path)
    yield tmp_path
    DBOS.destroy()

@pytest.fixture
def mat_instrument():
    return {{"test_case.pay": {{"effect": "write"}}}}

@pytest.fixture
def mat_resume(folder):
    def resume():
        DBOS.destroy()
        start(folder)  # it goes on with the workflows that have not ended
        return DBOS.retrieve_workflow("A17").get_result(polling_interval_sec=0.1)
    return resume

@pytest.fixture
def rule():
    return no_duplicate_effect("pay", key="order")

@pytest.mark.mat(budget=4, faults=["process.crash"])
def test_case(mat_run, rule, folder):
    with SetWorkflowID("A17"):
        assert asyncio.run(handle("A17")) == "done"
"""


def durable(path: Path, step: str, *, careful: bool) -> None:
    (path / "test_case.py").write_text(DURABLE.format(careful=careful, step=step))
    (path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmat_attach = pydantic_ai\n")


@pytest.mark.parametrize("step", ["", "@DBOS.step()"], ids=["tool", "step"])
def test_an_effect_before_its_step_is_saved_happens_twice_with_a_durable_run_of_pydantic_ai(step: str, tmp_path: Path) -> None:
    pytest.importorskip("dbos")
    if not hasattr(pytest.importorskip("pydantic_ai.durable_exec.dbos"), "DBOSDurability"):
        pytest.skip("this release of pydantic-ai has another way")
    found_replayed_and_mended(tmp_path, lambda careful: durable(tmp_path, step, careful=careful))
