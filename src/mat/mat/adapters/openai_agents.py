"""The OpenAI Agents SDK: function tools, models, hand-offs, sessions, guardrails.

Seams: the invoker of function tools, inside of the tool's failure formatter, so that the model hears of a fault as it would of
the tool's own failure; `get_model` where a turn looks its model up; `get_handoffs`; `get_items` and `add_items` of sessions;
`run` of guardrails, whose results are verifications.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross_async, cross_stream_async
from mat.boundary.emit import agent, verify
from mat.boundary.session import calls_are_plain


def install(attachment: Attachment) -> None:
    _tools(attachment)
    if attachment.models is not False:
        _models(attachment)
    _handoffs(attachment)
    _guardrails(attachment)
    if attachment.memory is not False:
        _sessions(attachment)


def _name_of(context: Any) -> str:
    return str(getattr(getattr(context, "agent", None), "name", "") or "")


# -- tools ----------------------------------------------------------------------------------------------------------------


def _tools(attachment: Attachment) -> None:
    from agents import tool as tools

    def crossed(name: str, function: Any, real: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        port = attachment.tool(name, callee=function)

        async def invoke(context: Any, given: str) -> Any:
            try:
                asked = json.loads(given or "{}")
            except ValueError:  # the tool itself says what is wrong with its arguments
                return await real(context, given)
            if not isinstance(asked, dict):
                return await real(context, given)

            def call(changed: dict[str, Any] | None) -> Any:
                if changed:
                    context._function_tool_arguments = None  # those that were parsed before
                return real(context, json.dumps({**asked, **changed}) if changed else given)

            return await cross_async(port, asked, call, agent=_name_of(context))

        return invoke

    def call_invoker(real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(self: Any, ctx: Any, input: str) -> Any:
            if calls_are_plain() or self._function_tool is None:
                return await real(self, ctx, input)
            inner = copy.copy(self)
            function = self._get_wrapped_callable()
            inner._invoke_tool_impl = crossed(
                self._function_tool.name, function if callable(function) else None, self._invoke_tool_impl
            )
            return await real(inner, ctx, input)

        return call

    def invoke_tool(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _invoke(*, function_tool: Any, context: Any, arguments: str) -> Any:
            if not calls_are_plain() and not isinstance(
                function_tool.on_invoke_tool, tools._FailureHandlingFunctionToolInvoker
            ):
                own = function_tool.on_invoke_tool  # a tool that was made by hand, which has no failure formatter
                function_tool = dataclasses.replace(function_tool, on_invoke_tool=crossed(function_tool.name, own, own))
            return await real(function_tool=function_tool, context=context, arguments=arguments)

        return _invoke

    attachment.replace(tools._FailureHandlingFunctionToolInvoker, "__call__", call_invoker)
    attachment.replace(tools, "_invoke_function_tool_with_metadata", invoke_tool)


# -- models ---------------------------------------------------------------------------------------------------------------


def _models(attachment: Attachment) -> None:
    from agents import Model
    from agents.run_internal import run_loop, turn_preparation

    class CrossedModel(Model):
        """A model whose calls are steps. Everything else is the model's own."""

        def __init__(self, real: Any, agent: str) -> None:
            self._real, self._agent = real, agent
            self._name = str(getattr(real, "model", "") or type(real).__name__)
            self._errors = "openai" if type(real).__module__.startswith("agents.models.openai") else None

        def __getattribute__(self, name: str) -> Any:
            if name.startswith("_") or name in ("get_response", "stream_response"):
                return super().__getattribute__(name)
            return getattr(self._real, name)

        async def get_response(self, *args: Any, **options: Any) -> Any:
            port = attachment.model(
                self._name, of=type(self._real), errors=self._errors, encode=_response_data, decode=_response
            )
            return await cross_async(
                port, _prompt(args, options), lambda changed: self._real.get_response(*args, **options), agent=self._agent
            )

        async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
            port = attachment.model(
                self._name, of=type(self._real), errors=self._errors, stream=True, encode=_event_data, decode=_event
            )
            chunks = cross_stream_async(
                port, _prompt(args, options), lambda changed: self._real.stream_response(*args, **options), agent=self._agent
            )
            async for chunk in chunks:
                yield chunk

    def get_model(real: Callable[..., Any]) -> Callable[..., Any]:
        def _get_model(agent: Any, run_config: Any) -> Any:
            found = real(agent, run_config)
            return found if calls_are_plain() else CrossedModel(found, agent.name)

        return _get_model

    for module in (turn_preparation, run_loop):
        attachment.replace(module, "get_model", get_model)


_PARAMETERS: Final = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


def _prompt(args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    given = {**dict(zip(_PARAMETERS, args, strict=False)), **options}
    found = {
        "instructions": given.get("system_instructions"), "input": given.get("input"),
        "tools": [str(getattr(each, "name", "")) for each in given.get("tools") or ()],
        "handoffs": [str(each.tool_name) for each in given.get("handoffs") or ()],
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, [])}


def _plain(item: Any) -> Any:
    return item if isinstance(item, dict) else item.model_dump(exclude_none=True)


def _response_data(response: Any) -> dict[str, Any]:
    usage = response.usage
    return {
        "output": [_plain(item) for item in response.output],
        "usage": {name: getattr(usage, name) for name in ("requests", "input_tokens", "output_tokens", "total_tokens")},
        "response_id": response.response_id,
    }


def _response(data: Any) -> Any:
    from agents import ModelResponse, Usage
    from openai.types.responses import ResponseOutputItem
    from pydantic import TypeAdapter

    given: dict[str, Any] = data if isinstance(data, dict) else {"output": _message(data)}
    usage = {name: value for name, value in (given.get("usage") or {}).items() if isinstance(value, int)}
    return ModelResponse(
        output=TypeAdapter(list[ResponseOutputItem]).validate_python(given.get("output") or []),
        usage=Usage(**usage), response_id=given.get("response_id"),
    )  # fmt: skip


def _message(text: Any) -> list[dict[str, Any]]:
    if not text:
        return []
    content = [{"type": "output_text", "text": str(text), "annotations": []}]
    return [{"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}]


def _event_data(event: Any) -> Any:
    data = _plain(event)
    usage = (data.get("response") or {}).get("usage")
    return {**data, "usage": usage} if usage else data


def _event(data: Any) -> Any:
    from agents.items import TResponseStreamEvent
    from pydantic import TypeAdapter

    return TypeAdapter(TResponseStreamEvent).validate_python({name: item for name, item in data.items() if name != "usage"})


# -- hand-offs and sessions -----------------------------------------------------------------------------------------------


def _handoffs(attachment: Attachment) -> None:
    from agents.run_internal import run_loop, turn_preparation

    def crossed(handoff: Any, agent: str) -> Any:
        real = handoff.on_invoke_handoff
        port = attachment.delegation(handoff.agent_name, encode=lambda found: {"agent": found.name})

        async def invoke(context: Any, given: str) -> Any:
            return await cross_async(port, {"input": given} if given else {}, lambda changed: real(context, given), agent=agent)

        return dataclasses.replace(handoff, on_invoke_handoff=invoke)

    def get_handoffs(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _get_handoffs(agent: Any, *args: Any, **options: Any) -> Any:
            found = await real(agent, *args, **options)
            return found if calls_are_plain() else [crossed(each, agent.name) for each in found]

        return _get_handoffs

    for module in (turn_preparation, run_loop):
        attachment.replace(module, "get_handoffs", get_handoffs)


def _sessions(attachment: Attachment) -> None:
    from agents.memory import SessionABC

    def get_items(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _get_items(self: Any, limit: int | None = None, *args: Any, **options: Any) -> Any:
            if calls_are_plain():
                return await real(self, limit, *args, **options)
            reads, _ = attachment.store("session")
            return await cross_async(
                reads, {"key": self.session_id, "limit": limit}, lambda changed: real(self, limit, *args, **options)
            )

        return _get_items

    def add_items(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _add_items(self: Any, items: Any, *args: Any, **options: Any) -> Any:
            if calls_are_plain():
                return await real(self, items, *args, **options)
            _, writes = attachment.store("session")

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, (changed or {}).get("value", items), *args, **options)

            return await cross_async(writes, {"key": self.session_id, "value": items}, call)

        return _add_items

    for name, make in (("get_items", get_items), ("add_items", add_items)):
        attachment.replace_method(SessionABC, name, make)


# -- guardrails -----------------------------------------------------------------------------------------------------------


def _guardrails(attachment: Attachment) -> None:
    from agents import guardrail, tool_guardrails

    def noted(name: str, acting: Any, checked: Any, *, passed: bool) -> None:
        with agent(str(acting.name)):
            verify(name, passed, supports=[checked])

    def of_input(real: Callable[..., Any]) -> Callable[..., Any]:
        async def run(self: Any, agent: Any, input: Any, context: Any) -> Any:
            result = await real(self, agent, input, context)
            noted(self.get_name(), agent, input, passed=not result.output.tripwire_triggered)
            return result

        return run

    def of_output(real: Callable[..., Any]) -> Callable[..., Any]:
        async def run(self: Any, context: Any, agent: Any, agent_output: Any) -> Any:
            result = await real(self, context, agent, agent_output)
            noted(self.get_name(), agent, agent_output, passed=not result.output.tripwire_triggered)
            return result

        return run

    def of_tool(real: Callable[..., Any]) -> Callable[..., Any]:
        async def run(self: Any, data: Any) -> Any:
            result = await real(self, data)
            checked = getattr(data, "output", None) or data.context.tool_arguments
            noted(self.get_name(), data.agent, checked, passed=result.behavior["type"] == "allow")
            return result

        return run

    attachment.replace(guardrail.InputGuardrail, "run", of_input)
    attachment.replace(guardrail.OutputGuardrail, "run", of_output)
    for kind in (tool_guardrails.ToolInputGuardrail, tool_guardrails.ToolOutputGuardrail):
        attachment.replace(kind, "run", of_tool)


ADAPTERS: Final = {
    "openai_agents": Adapter(
        name="openai_agents", package="agents", install=install, extra="openai-agents", release="openai-agents>=0.20",
        policy="a function tool that raises is reported to the model as text, unless its failure_error_function is None",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
