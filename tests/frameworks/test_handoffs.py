"""Hand-offs as delegations: who hands what to whom is in the trace, and no part of it is opaque."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from tests.frameworks.test_frameworks import HERE, missing

import mat

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def desks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("shop", "openai_agents_desk"):
        sys.modules.pop(name, None)


@pytest.mark.skipif(missing("openai_agents"), reason="openai_agents is not installed")
def test_a_hand_off_between_openai_agents_is_a_delegation_by_the_one_who_hands_over() -> None:
    import shop
    from agents import Agent, Runner, function_tool
    from openai_agents_desk import ScriptedModel

    def triage(results: list[Any]) -> Any:
        return [("transfer_to_cashier", {})] if not results else "done"

    def cashier(results: list[Any]) -> Any:
        paid = any(each.tool == "refund" for each in results)
        return "refunded" if paid else [("refund", {"order": "A17", "amount": 30})]

    shop.reset()
    till = Agent(name="cashier", model=ScriptedModel(cashier), tools=[function_tool(shop.refund)])
    desk = Agent(name="triage", model=ScriptedModel(triage), handoffs=[till])
    with mat.run() as run, mat.attach("openai_agents", effects={"refund": "write"}):
        result = asyncio.run(Runner.run(desk, "Refund A17"))
    assert result.last_agent.name == "cashier"
    assert result.final_output == "refunded"
    steps = [(each.agent, each.action.kind, each.action.name) for each in run.trace if each.action.boundary]
    assert steps == [
        ("triage", "model_call", "scripted"), ("triage", "delegation", "cashier"), ("cashier", "model_call", "scripted"),
        ("cashier", "tool_call", "refund"), ("cashier", "model_call", "scripted"),
    ]  # fmt: skip
    assert run.result is not None
    assert run.result.uncontrolled == ()


@pytest.mark.skipif(missing("smolagents"), reason="smolagents is not installed")
def test_a_managed_agent_of_smolagents_is_a_delegation_and_acts_under_its_name() -> None:
    from smolagents import ToolCallingAgent
    from smolagents.monitoring import LogLevel

    desk = __import__("smolagents_desk")

    def boss(results: list[Any]) -> Any:
        return "done" if results else [("cashier", {"task": "refund A17"})]

    def cashier(results: list[Any]) -> Any:
        return "refunded" if results else [("look_up", {"order": "A17"})]

    quiet: dict[str, Any] = {"verbosity_level": LogLevel.OFF, "max_steps": 6}
    shop = __import__("shop")
    till = ToolCallingAgent(
        tools=[desk._tool(shop.look_up)], model=desk.ScriptedModel(cashier), name="cashier", description="pays", **quiet
    )
    agent = ToolCallingAgent(tools=[], model=desk.ScriptedModel(boss), managed_agents=[till], **quiet)
    with mat.run() as run, mat.attach("smolagents", effects={"look_up": "read"}):
        agent.run("Refund A17")
    found = [(each.agent, each.action.kind, each.action.name) for each in run.trace if each.action.kind != "model_call"]
    assert ("main", "delegation", "cashier") in found
    assert ("cashier", "tool_call", "look_up") in found


@pytest.mark.skipif(missing("google_adk"), reason="google_adk is not installed")
def test_a_transfer_between_agents_of_google_adk_is_a_delegation() -> None:
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    desk = __import__("google_adk_desk")

    def triage(results: list[Any]) -> Any:
        return [("transfer_to_agent", {"agent_name": "cashier"})] if not results else "done"

    till = LlmAgent(name="cashier", model=desk.ScriptedModel(model="scripted", mind=lambda results: "refunded"))
    agent = LlmAgent(name="triage", model=desk.ScriptedModel(model="scripted", mind=triage), sub_agents=[till])
    runner = InMemoryRunner(agent=agent, app_name="shop")
    message = types.Content(role="user", parts=[types.Part(text="Refund A17")])

    async def work() -> None:
        session = await runner.session_service.create_session(app_name="shop", user_id="ann")
        async for _ in runner.run_async(user_id="ann", session_id=session.id, new_message=message):
            pass

    with mat.run() as run, mat.attach("google_adk"):
        asyncio.run(work())
    kinds = [(each.agent, each.action.kind, each.action.name) for each in run.trace]
    assert ("triage", "delegation", "cashier") in kinds
    assert ("cashier", "model_call", "scripted") in kinds


@pytest.mark.skipif(missing("langgraph"), reason="langgraph is not installed")
def test_in_a_graph_the_node_acts_and_in_an_agent_of_langchain_the_agent() -> None:
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph

    desk = __import__("langgraph_desk")

    @tool
    def look(order: str) -> str:
        """Look an order up."""
        return "found"

    def clerk(results: list[Any]) -> Any:
        return "done" if results else [("look", {"order": "A17"})]

    def triage(state: MessagesState) -> dict[str, Any]:
        look.invoke({"order": "B4"})
        return {}

    def made(name: str | None = None) -> Any:
        return create_agent(desk.ScriptedModel(mind=clerk), [look], name=name)

    graph = StateGraph(MessagesState)
    for name, node in (("triage", triage), ("desk", made()), ("till", made("cashier"))):
        graph.add_node(name, node)
    for start, end in ((START, "triage"), ("triage", "desk"), ("desk", "till"), ("till", END)):
        graph.add_edge(start, end)
    with mat.run() as run, mat.attach("langgraph"):
        graph.compile().invoke({"messages": [("user", "hi")]})
        made().invoke({"messages": [("user", "hi")]})
    looked = [each.agent for each in run.trace if each.action.name == "look"]
    assert looked == ["triage", "desk", "main"]
