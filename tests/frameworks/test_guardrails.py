"""Guardrails of the OpenAI Agents SDK are verifications, by the agent that they guard."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from tests.frameworks.test_frameworks import HERE, missing

import mat
from mat_contracts import verify_before_act

pytestmark = [pytest.mark.full, pytest.mark.skipif(missing("openai_agents"), reason="openai_agents is not installed")]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("shop", "openai_agents_desk"):
        sys.modules.pop(name, None)
    return __import__("openai_agents_desk")


def cashier(results: list[Any]) -> Any:
    return "refunded" if any(each.tool == "refund" for each in results) else [("refund", {"order": "A17", "amount": 30})]


def guarded(desk: Any, *, ordered: bool = True, allowed: bool = True, polite: bool = True) -> Any:
    from agents import (
        Agent,
        GuardrailFunctionOutput,
        ToolGuardrailFunctionOutput,
        function_tool,
        input_guardrail,
        output_guardrail,
        tool_input_guardrail,
        tool_output_guardrail,
    )

    @input_guardrail(run_in_parallel=False)
    async def names_an_order(context: Any, agent: Any, given: Any) -> Any:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=not ordered)

    @output_guardrail
    def is_polite(context: Any, agent: Any, given: Any) -> Any:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=not polite)

    @tool_input_guardrail
    def is_small(data: Any) -> Any:
        return ToolGuardrailFunctionOutput.allow() if allowed else ToolGuardrailFunctionOutput.reject_content("too much")

    @tool_output_guardrail
    def has_receipt(data: Any) -> Any:
        return ToolGuardrailFunctionOutput.allow()

    tool = function_tool(desk.shop.refund)
    tool.tool_input_guardrails, tool.tool_output_guardrails = [is_small], [has_receipt]
    return Agent(
        name="cashier", model=desk.ScriptedModel(cashier), tools=[tool], input_guardrails=[names_an_order],
        output_guardrails=[is_polite],
    )  # fmt: skip


def verifications(run: mat.run) -> list[tuple[str, str, bool]]:
    return [
        (each.agent, each.action.name, each.action.arguments["passed"])
        for each in run.trace
        if each.action.kind == "verification"
    ]


def work(agent: Any) -> str:
    from agents import Runner

    return str(asyncio.run(Runner.run(agent, "Refund A17")).final_output)


def test_each_guardrail_is_a_verification_in_its_place(desk: Any) -> None:
    desk.shop.reset()
    checked = verify_before_act(tool="refund", within=5)
    with mat.run(contracts=[checked]) as run, mat.attach("openai_agents", effects={"refund": "write"}):
        assert work(guarded(desk)) == "refunded"
    steps = [each.action.name for each in run.trace if each.action.kind in ("verification", "tool_call")]
    assert steps == ["names_an_order", "is_small", "refund", "has_receipt", "is_polite"]
    assert verifications(run) == [("cashier", name, True) for name in steps if name != "refund"]
    assert run.result is not None
    assert run.result.failures == ()


def test_a_tool_that_its_guardrail_refuses_does_not_run_and_the_refusal_is_in_the_trace(desk: Any) -> None:
    desk.shop.reset()
    with mat.run(horizon=40) as run, mat.attach("openai_agents", effects={"refund": "write"}):
        work(guarded(desk, allowed=False))
    assert ("cashier", "is_small", False) in verifications(run)
    assert [each for each in run.trace if each.action.name == "refund"] == []


@pytest.mark.parametrize(("option", "name"), [("ordered", "names_an_order"), ("polite", "is_polite")])
def test_a_tripwire_is_a_failed_verification(desk: Any, option: str, name: str) -> None:
    from agents.exceptions import AgentsException

    desk.shop.reset()
    with mat.run() as run, mat.attach("openai_agents"), pytest.raises(AgentsException):
        work(guarded(desk, **{option: False}))
    assert ("cashier", name, False) in verifications(run)


def test_outside_of_a_run_a_guardrail_only_guards(desk: Any) -> None:
    desk.shop.reset()
    with mat.attach("openai_agents"):
        assert work(guarded(desk)) == "refunded"
