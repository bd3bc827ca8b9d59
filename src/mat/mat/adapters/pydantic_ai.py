"""Pydantic AI: tools, models, sub-agents.

Seam: a capability that every run of every agent gets, through the public `Agent.iter`, on which all ways of running an agent
rest. Run ids and time stamps of messages are left out of what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross_async
from mat.boundary.session import calls_are_plain

_VOLATILE: Final = ("timestamp", "run_id", "conversation_id", "provider_response_id")
"""Fields of a message that differ from run to run."""


def install(attachment: Attachment) -> None:
    from pydantic_ai import Agent

    capability = _capability(attachment)

    def iterate(real: Callable[..., Any]) -> Callable[..., Any]:
        def iter(self: Any, user_prompt: Any = None, **options: Any) -> Any:
            if calls_are_plain():
                return real(self, user_prompt, **options)
            return real(self, user_prompt, **{**options, "capabilities": [*(options.get("capabilities") or ()), capability]})

        return iter

    attachment.replace(Agent, "iter", iterate)


def _capability(attachment: Attachment) -> Any:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ModelHTTPError

    errors: dict[str, Callable[[str], BaseException]] = {
        "rate_limit": lambda text: ModelHTTPError(429, "model", text),
        "server_error": lambda text: ModelHTTPError(503, "model", text),
        "auth": lambda text: ModelHTTPError(401, "model", text),
    }

    class Crossing(AbstractCapability[Any]):
        _safe_at_runtime = True  # it brings no tools and no steps of its own, so that a durable run takes it, too

        async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
            port = attachment.tool(call.tool_name, callee=_function_of(ctx, call.tool_name))
            return await cross_async(
                port, args, lambda changed: handler({**args, **changed} if changed else args), agent=_name_of(ctx)
            )

        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            if attachment.models is False:
                return await handler(request_context)
            model = request_context.model
            port = attachment.model(
                str(model.model_name), of=_scripted_by(model), errors=errors, encode=_response_data, decode=_response
            )
            tools = [each.name for each in request_context.model_request_parameters.function_tools]
            asked = {"messages": _messages(request_context.messages), **({"tools": tools} if tools else {})}
            return await cross_async(port, asked, lambda changed: handler(request_context), agent=_name_of(ctx))

    return Crossing()


def _name_of(context: Any) -> str:
    return str(getattr(getattr(context, "agent", None), "name", "") or "")


def _function_of(context: Any, name: str) -> Any:
    """The function behind a tool of the acting agent, if it is one."""
    toolset = getattr(getattr(context, "agent", None), "_function_toolset", None)
    tool = getattr(toolset, "tools", {}).get(name)
    return getattr(tool, "function", None)


def _scripted_by(model: Any) -> Any:
    """What decides the replies of a model: the function of a FunctionModel, else the class."""
    while hasattr(model, "wrapped"):
        model = model.wrapped
    return getattr(model, "function", None) or getattr(model, "stream_function", None) or type(model)


def _messages(messages: Iterable[Any]) -> list[Any]:
    """What a model is given. Ids of calls are replaced by their order, because some models draw them."""
    ids: dict[str, int] = {}

    def part(each: Any) -> dict[str, Any]:
        call = getattr(each, "tool_call_id", None)
        found = {
            "kind": each.part_kind, "tool": getattr(each, "tool_name", None), "content": getattr(each, "content", None),
            "args": getattr(each, "args", None), "outcome": getattr(each, "outcome", None),
            "call": None if call is None else ids.setdefault(call, len(ids)),
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}

    return [[part(each) for each in message.parts] for message in messages]


def _response_data(response: Any) -> dict[str, Any]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    data = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    return {name: value for name, value in data.items() if name not in _VOLATILE and value is not None}


def _response(data: Any) -> Any:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    given = data if isinstance(data, dict) else {"parts": [{"part_kind": "text", "content": str(data)}] if data else []}
    return ModelMessagesTypeAdapter.validate_python([{"kind": "response", **given}])[0]


ADAPTERS: Final = {
    "pydantic_ai": Adapter(
        name="pydantic_ai", package="pydantic_ai", install=install, extra="pydantic-ai", release="pydantic-ai-slim>=2.0",
        policy="a tool that raises ends the run; a ModelRetry is reported to the model, as often as the tool's retries allow",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
