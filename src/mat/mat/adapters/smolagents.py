"""smolagents: tools, models, managed agents.

Seams, all public: `Tool.__call__`, inside of the agent's own handling of errors; `generate` and `generate_stream` of models;
`__call__` of agents, by which one agent calls another; `run` of agents, for the name of the one at work.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross, cross_stream
from mat.boundary.session import calls_are_plain

_ANSWER: Final = "final_answer"
"""The tool by which an agent ends; it does nothing."""
_END: Final = object()
_acting: ContextVar[str] = ContextVar("mat_smolagents_acting", default="")
"""The agent at work; "" if it has no name."""


def install(attachment: Attachment) -> None:
    from smolagents import Tool
    from smolagents.agents import MultiStepAgent

    def call_tool(real: Callable[..., Any]) -> Callable[..., Any]:
        def _call(self: Any, *given: Any, sanitize_inputs_outputs: bool = False, **options: Any) -> Any:
            if calls_are_plain() or self.name == _ANSWER:
                return real(self, *given, sanitize_inputs_outputs=sanitize_inputs_outputs, **options)
            asked = _by_name(self, given, options)
            port = attachment.tool(self.name, callee=type(self).forward, encode=_text, decode=_text)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, sanitize_inputs_outputs=sanitize_inputs_outputs, **{**asked, **(changed or {})})

            return cross(port, asked, call, agent=_acting.get())

        return _call

    def call_agent(real: Callable[..., Any]) -> Callable[..., Any]:
        def _call(self: Any, task: str, **options: Any) -> Any:
            if calls_are_plain():
                return real(self, task, **options)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, (changed or {}).get("task", task), **options)

            return cross(attachment.delegation(str(self.name)), {"task": task}, call, agent=_acting.get())

        return _call

    def run(real: Callable[..., Any]) -> Callable[..., Any]:
        def _run_agent(self: Any, *given: Any, **options: Any) -> Any:
            if calls_are_plain():
                return real(self, *given, **options)
            name = str(self.name or "")
            with _at_work(name):
                found = real(self, *given, **options)
            return _steps(found, name) if inspect.isgenerator(found) else found

        return _run_agent

    attachment.replace_method(Tool, "__call__", call_tool)
    attachment.replace_method(MultiStepAgent, "__call__", call_agent)
    attachment.replace_method(MultiStepAgent, "run", run)
    if attachment.models is not False:
        _models(attachment)


@contextmanager
def _at_work(name: str) -> Iterator[None]:
    entered = _acting.set(name)
    try:
        yield
    finally:
        _acting.reset(entered)


def _steps(steps: Generator[Any, Any, Any], name: str) -> Iterator[Any]:
    """The steps of an agent that is run as a stream: it works only while one is asked for."""
    try:
        while True:
            with _at_work(name):
                step = next(steps, _END)
            if step is _END:
                return
            yield step
    finally:
        steps.close()


def _by_name(tool: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name: code that a model writes gives them by position, or as one dict."""
    names = list(tool.inputs)
    if len(given) == 1 and not options and isinstance(given[0], dict) and all(name in names for name in given[0]):
        return dict(given[0])
    return {**dict(zip(names, given, strict=False)), **options}


def _text(reply: Any) -> Any:
    """A reply as data: smolagents has a class of its own for texts."""
    return str(reply) if isinstance(reply, str) else reply


# -- models ---------------------------------------------------------------------------------------------------------------


def _models(attachment: Attachment) -> None:
    from smolagents import Model

    def name_of(model: Any) -> str:
        return str(getattr(model, "model_id", None) or type(model).__name__)

    def generate(real: Callable[..., Any]) -> Callable[..., Any]:
        def _generate(self: Any, messages: Any, *given: Any, **options: Any) -> Any:
            if calls_are_plain():
                return real(self, messages, *given, **options)
            port = attachment.model(name_of(self), of=type(self), encode=_data, decode=_message)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, messages, *given, **options)

            return cross(port, _prompt(messages, options), call, agent=_acting.get())

        return _generate

    def generate_stream(real: Callable[..., Any]) -> Callable[..., Any]:
        def _generate_stream(self: Any, messages: Any, *given: Any, **options: Any) -> Iterator[Any]:
            if calls_are_plain():
                return iter(real(self, messages, *given, **options))
            port = attachment.model(name_of(self), of=type(self), stream=True, encode=_data, decode=_delta)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, messages, *given, **options)

            return cross_stream(port, _prompt(messages, options), call, agent=_acting.get())

        return _generate_stream

    attachment.replace_method(Model, "generate", generate, of_base=False)
    attachment.replace_method(Model, "generate_stream", generate_stream)


def _prompt(messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a model is given. Ids of calls are left out, because some models draw them."""

    def plain(message: Any) -> Any:
        if isinstance(message, dict):
            return message
        return {"role": str(getattr(message.role, "value", message.role)), "content": message.content}

    tools = [each.name for each in options.get("tools_to_call_from") or ()]
    return {"messages": [plain(each) for each in messages], **({"tools": tools} if tools else {})}


def _data(message: Any) -> dict[str, Any]:
    """A message or a part of one as data, without what the provider sent."""
    found = dataclasses.asdict(dataclasses.replace(message, raw=None) if hasattr(message, "raw") else message)
    if "role" in found:
        found["role"] = str(getattr(message.role, "value", message.role))
    usage = found.pop("token_usage", None)
    return {**{name: value for name, value in found.items() if value is not None}, **({"usage": usage} if usage else {})}


def _usage(data: Mapping[str, Any]) -> Any:
    from smolagents.monitoring import TokenUsage

    usage = data.get("usage")
    return TokenUsage(usage["input_tokens"], usage["output_tokens"]) if isinstance(usage, Mapping) else None


def _message(data: Any) -> Any:
    from smolagents.models import ChatMessage, MessageRole

    given: dict[str, Any] = data if isinstance(data, dict) else {"content": None if data is None else str(data)}
    return ChatMessage(
        role=MessageRole(given.get("role", "assistant")), content=given.get("content"), tool_calls=given.get("tool_calls"),
        token_usage=_usage(given),
    )  # fmt: skip


def _delta(data: Any) -> Any:
    from smolagents.models import (
        ChatMessageStreamDelta,
        ChatMessageToolCallFunction,
        ChatMessageToolCallStreamDelta,
    )

    given: dict[str, Any] = data if isinstance(data, dict) else {"content": str(data)}
    calls = [
        ChatMessageToolCallStreamDelta(
            **{**each, "function": ChatMessageToolCallFunction(**each["function"]) if each.get("function") else None}
        )
        for each in given.get("tool_calls") or ()
    ]
    return ChatMessageStreamDelta(content=given.get("content"), tool_calls=calls or None, token_usage=_usage(given))


ADAPTERS: Final = {
    "smolagents": Adapter(
        name="smolagents", package="smolagents", install=install, extra="smolagents", release="smolagents>=1.26",
        policy="a tool that raises is reported to the model as an observation, until max_steps",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
