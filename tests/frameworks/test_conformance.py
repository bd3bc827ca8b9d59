"""Every built-in adapter of a framework passes exactly what it declares (`mat.adapters.conformance`)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.frameworks.test_frameworks import EFFECTS, HERE, MODES, missing

from mat.adapters.conformance import Scenario, Scripted, findings

pytestmark = pytest.mark.full
FRAMEWORKS = ("google_adk", "langgraph", "mcp", "openai_agents", "pydantic_ai", "smolagents")
STREAMS = ("google_adk", "langgraph", "openai_agents", "pydantic_ai", "smolagents")


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if missing(name):
        pytest.skip(f"{name} is not installed")
    monkeypatch.syspath_prepend(str(HERE))
    for module in ("shop", f"{name}_desk"):
        sys.modules.pop(module, None)
    return name


def agents(framework: str) -> dict[Scenario, Scripted]:
    """The shop's agent of a framework in each scenario that the framework offers."""
    real = watched()
    shop, desk = importlib.import_module("shop"), importlib.import_module(f"{framework}_desk")
    mode = "async" if "async" in MODES.get(framework, ("async",)) else "sync"

    def scripted(mind: Callable[..., Any], steps: tuple[tuple[str, str], ...], *, mode: str = mode) -> Scripted:
        def run() -> Any:
            shop.reset()
            real.clear()
            return desk.handle(mind, mode)

        return Scripted(run=run, real=lambda: real, steps=steps)

    def failing(results: list[Any]) -> Any:
        return "gave up" if results else [("break_down", {"order": "A17"})]

    tools = (("tool_call", "look_up"), ("tool_call", "refund"))
    found: dict[Scenario, Scripted] = {
        "tools": scripted(shop.careful_refunder, tools),
        "retrieval": scripted(shop.careful_reader, (("tool_call", "look_up"), ("retrieval", "search_kb"))),
    }
    if mode == "async":
        found["parallel"] = scripted(shop.hurried, (("tool_call", "charge"), ("tool_call", "ship")))
    if framework in STREAMS:
        found["stream"] = scripted(shop.careful_refunder, tools, mode="stream")
    found["failing"] = scripted(failing, (("tool_call", "break_down"),))
    if framework in MEMORIES:
        found["memory"] = MEMORIES[framework](shop, desk, real)
    if framework in DELEGATIONS:
        found["delegation"] = DELEGATIONS[framework](shop, desk, real)
    return found


def of_openai_agents(shop: Any, desk: Any, real: list[str]) -> Scripted:
    import asyncio

    from agents import Agent, Runner, function_tool

    def triage(results: list[Any]) -> Any:
        return [("transfer_to_cashier", {})] if not results else "done"

    def cashier(results: list[Any]) -> Any:
        paid = any(each.tool == "refund" for each in results)
        return "refunded" if paid else [("refund", {"order": "A17", "amount": 30})]

    def run() -> Any:
        shop.reset()
        real.clear()
        till = Agent(name="cashier", model=desk.ScriptedModel(cashier), tools=[function_tool(shop.refund)])
        return asyncio.run(
            Runner.run(Agent(name="triage", model=desk.ScriptedModel(triage), handoffs=[till]), "Refund A17")
        ).final_output

    return Scripted(run=run, real=lambda: real, steps=(("delegation", "cashier"), ("tool_call", "refund")))


def of_smolagents(shop: Any, desk: Any, real: list[str]) -> Scripted:
    from smolagents import ToolCallingAgent
    from smolagents.monitoring import LogLevel

    def boss(results: list[Any]) -> Any:
        return "done" if results else [("cashier", {"task": "look A17 up"})]

    def cashier(results: list[Any]) -> Any:
        return "found" if results else [("look_up", {"order": "A17"})]

    quiet: dict[str, Any] = {"verbosity_level": LogLevel.OFF, "max_steps": 6}

    def run() -> Any:
        shop.reset()
        real.clear()
        till = ToolCallingAgent(
            tools=[desk._tool(shop.look_up)], model=desk.ScriptedModel(cashier), name="cashier", description="pays", **quiet
        )
        return ToolCallingAgent(tools=[], model=desk.ScriptedModel(boss), managed_agents=[till], **quiet).run("Look A17 up")

    return Scripted(run=run, real=lambda: real, steps=(("delegation", "cashier"), ("tool_call", "look_up")))


def remembering_openai_agents(shop: Any, desk: Any, real: list[str]) -> Scripted:
    import asyncio

    from agents import Agent, Runner
    from agents.memory import SessionABC

    class Notes(SessionABC):
        session_id = "ann"

        def __init__(self) -> None:
            self.items: list[Any] = []

        async def get_items(self, limit: int | None = None) -> list[Any]:
            return self.items[-limit:] if limit else list(self.items)

        async def add_items(self, items: list[Any]) -> None:
            self.items += items

        async def pop_item(self) -> Any:
            return self.items.pop() if self.items else None

        async def clear_session(self) -> None:
            self.items.clear()

    def run() -> Any:
        real.clear()
        notes, clerk = Notes(), Agent(name="clerk", model=desk.ScriptedModel(lambda results: "noted"))
        asyncio.run(Runner.run(clerk, "I am Ann", session=notes))
        return [str(asyncio.run(Runner.run(clerk, "Who am I?", session=notes)).final_output), len(notes.items)]

    turn = (("memory_read", "session"), ("memory_write", "session"), ("memory_write", "session"))
    return Scripted(run=run, real=lambda: real, steps=turn + turn)


def remembering_langgraph(shop: Any, desk: Any, real: list[str]) -> Scripted:
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.runtime import Runtime
    from langgraph.store.memory import InMemoryStore

    def note(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        runtime.store.put(("ann",), "wish", {"text": "a window seat"})
        return {}

    def recall(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        found = runtime.store.get(("ann",), "wish")
        return {"messages": [("assistant", found.value["text"] if found else "nothing is known")]}

    def run() -> Any:
        real.clear()
        graph = StateGraph(MessagesState)
        graph.add_node("note", note)
        graph.add_node("recall", recall)
        graph.add_edge(START, "note")
        graph.add_edge("note", "recall")
        graph.add_edge("recall", END)
        made = graph.compile(store=InMemoryStore())
        return made.invoke({"messages": [("user", "What do I like?")]})["messages"][-1].content

    return Scripted(run=run, real=lambda: real, steps=(("memory_write", "store"), ("memory_read", "store")))


MEMORIES = {"openai_agents": remembering_openai_agents, "langgraph": remembering_langgraph}
"""The frameworks that bring a memory, by an agent that uses it."""
DELEGATIONS = {"openai_agents": of_openai_agents, "smolagents": of_smolagents}
"""The frameworks whose agents hand work to each other, by an agent that does."""


def watched() -> list[str]:
    """Import the shop with tools that note that they ran, before the framework's agent takes them over."""
    import functools
    import inspect

    real: list[str] = []
    shop = importlib.import_module("shop")

    def noted(tool: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(tool):

            @functools.wraps(tool)
            async def later(*given: Any, **options: Any) -> Any:
                real.append(tool.__name__)
                return await tool(*given, **options)

            return later

        @functools.wraps(tool)
        def now(*given: Any, **options: Any) -> Any:
            real.append(tool.__name__)
            return tool(*given, **options)

        return now

    made = []
    for tool in shop.TOOLS:
        wrapped = noted(tool)
        setattr(shop, tool.__name__, wrapped)
        made.append(wrapped)
    shop.TOOLS = tuple(made)
    return real


def test_an_adapter_passes_exactly_what_it_declares(framework: str) -> None:
    offered = agents(framework)
    found = findings(framework, offered, retrievers=["search_kb"], effects=EFFECTS)
    assert [str(each) for each in found] == []
    assert {"tools", "retrieval"} <= {*offered}
