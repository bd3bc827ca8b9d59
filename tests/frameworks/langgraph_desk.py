"""The shop's agents in LangGraph, as its documentation builds them; nothing of mat in it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import shop
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool


class ScriptedModel(BaseChatModel):
    mind: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        results = [
            shop.Result(str(each.name), str(each.content), each.status == "error")
            for each in messages
            if isinstance(each, ToolMessage)
        ]
        thought = self.mind(results)
        size = len(messages)
        usage = {"input_tokens": 10 * size, "output_tokens": 5, "total_tokens": 10 * size + 5}
        if isinstance(thought, str):
            message = AIMessage(content=thought, usage_metadata=usage)
        else:
            calls = [{"name": name, "args": args, "id": f"c{size}-{number}"} for number, (name, args) in enumerate(thought)]
            message = AIMessage(content="", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _told(request: Any, error: Exception) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(content=f"error: {error}", tool_call_id=call["id"], name=call["name"], status="error")


class TellsErrors(AgentMiddleware):
    def wrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        try:
            return handler(request)
        except Exception as error:
            return _told(request, error)

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        try:
            return await handler(request)
        except Exception as error:
            return _told(request, error)


def _tool(function: Callable[..., Any]) -> StructuredTool:
    if inspect.iscoroutinefunction(function):
        return StructuredTool.from_function(coroutine=function)
    return StructuredTool.from_function(function)


def handle(mind: shop.Mind, mode: str) -> str:
    model = ScriptedModel(mind=mind)
    agent = create_agent(model, [_tool(each) for each in shop.TOOLS], middleware=[TellsErrors()], name="clerk")
    question = {"messages": [("user", "Help me with order A17")]}
    options = {"recursion_limit": 200}
    if mode == "sync":
        return str(agent.invoke(question, options)["messages"][-1].content)
    if mode == "stream":
        *_, last = agent.stream(question, options, stream_mode="values")
        return str(last["messages"][-1].content)
    return str(asyncio.run(agent.ainvoke(question, options))["messages"][-1].content)
