"""Pydantic AI: tools, models, sub-agents.

Seams: a capability that every run of every agent gets, through the public `Agent.iter`, on which all ways of running an agent
rest; and `request_stream` of each class of models, because a capability does not see a stream while it is read. The outermost
of several models that ask one another is the one that is called. Run ids and time stamps of messages are left out of what is
recorded.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross_async, cross_stream_async, is_inside
from mat.boundary.session import calls_are_plain
from mat.core.value import thaw

_VOLATILE: Final = ("timestamp", "run_id", "conversation_id", "provider_response_id")
"""Fields of a message that differ from run to run."""
_streams: Final[ContextVar[str | None]] = ContextVar("mat_pydantic_ai_streams", default=None)
"""The id of the run whose node is about to ask its model for a stream."""


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
    if attachment.models is not False:
        _model_streams(attachment)


def _capability(attachment: Attachment) -> Any:
    from pydantic_ai.capabilities import AbstractCapability

    errors = _errors()

    class Crossing(AbstractCapability[Any]):
        _safe_at_runtime = True  # it brings no tools and no steps of its own, so that a durable run takes it, too

        async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
            port = attachment.tool(call.tool_name, callee=_function_of(ctx, call.tool_name))
            return await cross_async(
                port, args, lambda changed: handler({**args, **changed} if changed else args), agent=_name_of(ctx)
            )

        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            if attachment.models is False or _streams.get() == ctx.run_id:  # a stream is a step of its own, see below
                return await handler(request_context)
            model = request_context.model
            port = attachment.model(
                str(model.model_name), of=_scripted_by(model), errors=errors, encode=_response_data, decode=_response
            )
            asked = _prompt(request_context.messages, request_context.model_request_parameters)
            return await cross_async(port, asked, lambda changed: handler(request_context), agent=_name_of(ctx))

    return Crossing()


def _errors() -> dict[str, Callable[[str], BaseException]]:
    from pydantic_ai.exceptions import ModelHTTPError

    return {
        "rate_limit": lambda text: ModelHTTPError(429, "model", text),
        "server_error": lambda text: ModelHTTPError(503, "model", text),
        "auth": lambda text: ModelHTTPError(401, "model", text),
    }


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


def _prompt(messages: Iterable[Any], parameters: Any) -> dict[str, Any]:
    tools = [each.name for each in parameters.function_tools]
    return {"messages": _messages(messages), **({"tools": tools} if tools else {})}


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


# -- streams of models ----------------------------------------------------------------------------------------------------


def _model_streams(attachment: Attachment) -> None:
    from pydantic_ai import ModelRequestNode
    from pydantic_ai.models import Model

    errors, stream_of = _errors(), _stream_class()

    def node_stream(real: Callable[..., Any]) -> Callable[..., Any]:
        @asynccontextmanager
        async def stream(self: Any, ctx: Any) -> AsyncIterator[Any]:
            async with AsyncExitStack() as stack:
                before = _streams.set(ctx.state.run_id)
                try:
                    found = await stack.enter_async_context(real(self, ctx))
                finally:
                    _streams.reset(before)
                yield found

        return stream

    def request_stream(real: Callable[..., Any]) -> Callable[..., Any]:
        @asynccontextmanager
        async def _request_stream(
            self: Any, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
        ) -> AsyncIterator[Any]:
            given = (self, messages, model_settings, model_request_parameters, run_context)
            if calls_are_plain() or is_inside("model_call"):
                async with real(*given) as found:
                    yield found
                return
            port = attachment.model(
                str(self.model_name), of=_scripted_by(self), errors=errors, stream=True, encode=_chunk_data, decode=_chunk
            )
            asked = {**_prompt(messages, model_request_parameters), "stream": True}
            chunks: Any = cross_stream_async(
                port, asked, lambda changed: _chunks(real(*given)), agent=_name_of(run_context), settle=_settled
            )
            async with aclosing(chunks):
                first = await anext(chunks, None)  # a stream that does not start says so here, as without us
                yield stream_of(self, model_request_parameters, first, chunks)

        return _request_stream

    attachment.replace(ModelRequestNode, "stream", node_stream)
    attachment.replace_method(Model, "request_stream", request_stream, of_base=False)


async def _chunks(opening: Any) -> AsyncIterator[Any]:
    """The events of a stream that start and continue the parts of a response, and the whole response as the last chunk.

    The other events follow from these.
    """
    async with opening as stream:
        async for event in stream:
            if event.event_kind in ("part_start", "part_delta"):
                yield event
        yield stream.get()


@functools.cache
def _events() -> Any:
    from pydantic import TypeAdapter
    from pydantic_ai.messages import ModelResponseStreamEvent

    return TypeAdapter(ModelResponseStreamEvent)


def _chunk_data(chunk: Any) -> dict[str, Any]:
    from pydantic_ai.messages import ModelResponse

    if isinstance(chunk, ModelResponse):
        return {"event_kind": "response", "response": _response_data(chunk)}
    found: dict[str, Any] = _events().dump_python(chunk, mode="json", exclude_none=True)
    return found


def _chunk(data: Any) -> Any:
    if isinstance(data, dict) and data.get("event_kind") in ("part_start", "part_delta"):
        return _events().validate_python(data)
    return _response(data["response"] if isinstance(data, dict) and "response" in data else data)


def _settled(chunks: list[Any]) -> list[Any]:
    """The chunks, or the whole response alone, which says all, where the parts before it say something else."""
    parts: dict[int, Any] = {}
    for chunk in chunks:
        found = _chunk(thaw(chunk))
        if hasattr(found, "event_kind"):
            parts[found.index] = _part_after(found, parts.get(found.index))
        elif list(parts.values()) != list(found.parts):
            return [chunk]
    return chunks


def _stream_class() -> Any:
    from pydantic_ai.messages import ModelResponse, PartStartEvent
    from pydantic_ai.models import StreamedResponse

    class CrossedStream(StreamedResponse):
        """What an agent reads of a stream whose chunks it gets from the crossing."""

        def __init__(self, model: Any, parameters: Any, first: Any, chunks: Any) -> None:
            super().__init__(parameters)
            self._model, self._first, self._chunks = model, first, chunks
            self._whole: Any = None
            self._began = datetime.now(UTC)

        async def _get_event_iterator(self) -> AsyncIterator[Any]:
            parts: dict[int, Any] = {}
            chunk = self._first
            while chunk is not None:
                if isinstance(chunk, ModelResponse):
                    self._take_whole(chunk)
                    said = () if parts else chunk.parts  # see `_settled`
                    events = [PartStartEvent(index=index, part=part) for index, part in enumerate(said)]
                else:
                    events = [chunk]
                for event in events:
                    part = _part_after(event, parts.get(event.index))
                    if part is not None:  # else it continues a part whose start a fault has taken away
                        parts[event.index] = part
                        self._parts_manager.handle_part(vendor_part_id=event.index, part=part)
                        yield event
                chunk = await anext(self._chunks, None)

        def _take_whole(self, response: Any) -> None:
            self._whole, self._usage = response, response.usage
            self.finish_reason, self.provider_details = response.finish_reason, response.provider_details
            self.provider_response_id = response.provider_response_id
            if response.state == "suspended":
                self.state = "suspended"

        async def close_stream(self) -> None:
            await self._chunks.aclose()

        @property
        def model_name(self) -> str:
            return str((self._whole and self._whole.model_name) or self._model.model_name)

        @property
        def provider_name(self) -> str | None:
            found: str | None = self._whole.provider_name if self._whole else self._model.system
            return found

        @property
        def provider_url(self) -> str | None:
            found: str | None = self._whole.provider_url if self._whole else self._model.base_url
            return found

        @property
        def timestamp(self) -> datetime:
            found: datetime = self._whole.timestamp if self._whole else self._began
            return found

    return CrossedStream


def _part_after(event: Any, part: Any) -> Any:
    """A part of a response after an event; None if the event continues a part that has not started."""
    if event.event_kind == "part_start":
        return event.part
    return None if part is None else event.delta.apply(part)


ADAPTERS: Final = {
    "pydantic_ai": Adapter(
        name="pydantic_ai", package="pydantic_ai", install=install, extra="pydantic-ai", release="pydantic-ai-slim>=2.0",
        policy="a tool that raises ends the run; a ModelRetry is reported to the model, as often as the tool's retries allow",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
