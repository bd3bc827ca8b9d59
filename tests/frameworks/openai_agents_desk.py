"""The shop's agents in the OpenAI Agents SDK, as its documentation builds them; nothing of mat in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import agents
import shop
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseUsage,
)

agents.set_tracing_disabled(True)


class ScriptedModel(Model):
    model = "scripted"

    def __init__(self, mind: shop.Mind) -> None:
        self.mind = mind

    def _reply(self, given: Any) -> ModelResponse:
        items = given if isinstance(given, list) else []
        names = {each["call_id"]: each["name"] for each in items if each.get("type") == "function_call"}
        results = [
            shop.Result(names[each["call_id"]], str(each["output"]), "error" in str(each["output"]))
            for each in items
            if each.get("type") == "function_call_output"
        ]
        thought, size = self.mind(results), len(items)
        output: list[Any]
        if isinstance(thought, str):
            text = ResponseOutputText(text=thought, type="output_text", annotations=[])
            output = [
                ResponseOutputMessage(id=f"m{size}", content=[text], role="assistant", status="completed", type="message")
            ]
        else:
            output = [
                ResponseFunctionToolCall(
                    call_id=f"c{size}-{number}", name=name, arguments=json.dumps(arguments), type="function_call"
                )
                for number, (name, arguments) in enumerate(thought)
            ]
        usage = Usage(requests=1, input_tokens=10 * size, output_tokens=5, total_tokens=10 * size + 5)
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> ModelResponse:
        return self._reply(input)

    async def stream_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> AsyncIterator[Any]:
        reply = self._reply(input)
        response = Response(
            id="r", created_at=0, model="scripted", object="response", output=reply.output, parallel_tool_calls=True,
            tool_choice="auto", tools=[],
            usage=ResponseUsage.model_validate(
                {
                    **{name: getattr(reply.usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")},
                    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0},
                }
            ),
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def handle(mind: shop.Mind, mode: str) -> str:
    agent = Agent(name="clerk", model=ScriptedModel(mind), tools=[function_tool(each) for each in shop.TOOLS])
    question, config = "Help me with order A17", RunConfig(tracing_disabled=True)
    if mode == "sync":
        return str(Runner.run_sync(agent, question, max_turns=60, run_config=config).final_output)
    if mode == "async":
        return str(asyncio.run(Runner.run(agent, question, max_turns=60, run_config=config)).final_output)

    async def streamed() -> str:
        result = Runner.run_streamed(agent, question, max_turns=60, run_config=config)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    return asyncio.run(streamed())
