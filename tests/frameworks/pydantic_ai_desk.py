"""The shop's agents in Pydantic AI, as its documentation builds them; nothing of mat in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import shop
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits


def _model(mind: shop.Mind) -> FunctionModel:
    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        results = [
            shop.Result(part.tool_name or "", str(part.content), getattr(part, "outcome", "failed") != "success")
            for part in parts
            if isinstance(part, ToolReturnPart | RetryPromptPart)
        ]
        thought = mind(results)
        usage = RequestUsage(input_tokens=10 * len(messages), output_tokens=5)
        if isinstance(thought, str):
            return ModelResponse(parts=[TextPart(thought)], usage=usage)
        return ModelResponse(parts=[ToolCallPart(name, args) for name, args in thought], usage=usage)

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        for number, part in enumerate(reply(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {number: DeltaToolCall(name=part.tool_name, json_args=part.args_as_json_str())}
            elif isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "

    return FunctionModel(reply, stream_function=stream, model_name="scripted")


def handle(mind: shop.Mind, mode: str) -> str:
    agent = Agent(_model(mind), name="clerk", retries=50)
    for each in shop.TOOLS:
        agent.tool_plain(each)
    question, limits = "Help me with order A17", UsageLimits(request_limit=60)
    if mode == "sync":
        return str(agent.run_sync(question, usage_limits=limits).output)
    if mode == "async":
        return str(asyncio.run(agent.run(question, usage_limits=limits)).output)

    async def streamed() -> str:
        async with agent.run_stream(question, usage_limits=limits) as result:
            return str(await result.get_output())

    return asyncio.run(streamed())
