"""The shop's agents in smolagents, as its documentation builds them; nothing of mat in it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import shop
from smolagents import Model, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    MessageRole,
)
from smolagents.monitoring import LogLevel, TokenUsage

TYPES = {"str": "string", "int": "integer"}


class ScriptedModel(Model):
    """Sees what its tools said in the messages that the agent makes of it."""

    def __init__(self, mind: shop.Mind) -> None:
        super().__init__(model_id="scripted")
        self.mind, self.asked = mind, list[str]()

    def generate(self, messages: Any, *given: Any, **options: Any) -> ChatMessage:
        texts = [_text_of(each) for each in messages if str(getattr(each.role, "value", each.role)) == "tool-response"]
        results = [
            shop.Result(name, text.partition("Observation:\n")[2] or text, "Error" in text)
            for name, text in zip(self.asked, _observations(texts), strict=False)
        ]
        thought = self.mind(results)
        calls = [("final_answer", {"answer": thought})] if isinstance(thought, str) else thought
        self.asked += [name for name, _ in calls]
        size = len(messages)
        return ChatMessage(
            role=MessageRole.ASSISTANT, content="",
            tool_calls=[
                ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), f"c{size}-{number}", "function")
                for number, (name, arguments) in enumerate(calls)
            ],
            token_usage=TokenUsage(10 * size, 5),
        )  # fmt: skip


class StreamingModel(ScriptedModel):
    def generate_stream(self, messages: Any, *given: Any, **options: Any) -> Iterator[ChatMessageStreamDelta]:
        import json

        message = self.generate(messages)
        for number, call in enumerate(message.tool_calls or ()):
            function = ChatMessageToolCallFunction(json.dumps(call.function.arguments), call.function.name)
            yield ChatMessageStreamDelta(tool_calls=[ChatMessageToolCallStreamDelta(number, call.id, "function", function)])
        yield ChatMessageStreamDelta(content="", token_usage=message.token_usage)


def _text_of(message: Any) -> str:
    content = message.content
    return content if isinstance(content, str) else "\n".join(each.get("text", "") for each in content)


def _observations(texts: list[str]) -> list[str]:
    return [part for text in texts for part in re.split(r"(?m)^(?=Call id:)", text) if part.strip()]


def _tool(function: Callable[..., Any]) -> Tool:
    parameters = inspect.signature(function).parameters
    found = type(
        f"{function.__name__}_tool", (Tool,),
        {
            "name": function.__name__, "description": function.__doc__ or "", "output_type": "string",
            "skip_forward_signature_validation": True,
            "inputs": {name: {"type": TYPES[str(each.annotation)], "description": name} for name, each in parameters.items()},
            "forward": lambda self, *given, **options: _done(function(*given, **options)),
        },
    )  # fmt: skip
    made: Tool = found()
    return made


def _done(value: Any) -> Any:
    return asyncio.run(value) if inspect.isawaitable(value) else value


def handle(mind: shop.Mind, mode: str) -> str:
    model = StreamingModel(mind) if mode == "stream" else ScriptedModel(mind)
    tools = [_tool(each) for each in shop.TOOLS]
    agent = ToolCallingAgent(
        tools=tools, model=model, verbosity_level=LogLevel.OFF, max_steps=40, stream_outputs=mode == "stream"
    )
    return str(agent.run("Help me with order A17"))
