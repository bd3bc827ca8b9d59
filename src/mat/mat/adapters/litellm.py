"""LiteLLM: `completion` and `acompletion`, streamed or not, as model calls.

Seam: the code of the two functions themselves, so that callers that imported them before the attachment are reached as well.
What LiteLLM does of its own below them (fallbacks, retries, caches) stays inside of the call; a Router is above them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from types import FunctionType, SimpleNamespace
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross, cross_async, cross_stream, cross_stream_async
from mat.boundary.session import active, calls_are_plain

_VOLATILE: Final = ("id", "created", "system_fingerprint")
"""Fields of a reply that differ from call to call."""
_crossings: Final = SimpleNamespace(completion=None, acompletion=None)
"""What the two functions do while LiteLLM is attached; None while it is not."""


def _completion(*args: Any, **kwargs: Any) -> Any:
    from mat.adapters.litellm import _crossings

    return _crossings.completion(*args, **kwargs)


async def _acompletion(*args: Any, **kwargs: Any) -> Any:
    from mat.adapters.litellm import _crossings

    return await _crossings.acompletion(*args, **kwargs)


def install(attachment: Attachment) -> None:
    import litellm

    if attachment.models is False:
        return
    errors = _errors()

    def port_and_prompt(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any], bool]:
        given = {**dict(zip(("model", "messages"), args, strict=False)), **kwargs}
        stream = bool(given.get("stream"))
        port = attachment.model(
            str(given.get("model")), of=_handler(given), errors=errors, stream=stream, encode=_data,
            decode=_chunk if stream else _reply,
        )  # fmt: skip
        tools = [each.get("function", each).get("name") for each in given.get("tools") or ()]
        asked = {"messages": [_plain(each) for each in given.get("messages") or ()], **({"tools": tools} if tools else {})}
        return port, asked, stream

    def sync(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if calls_are_plain() or kwargs.get("acompletion"):  # then it returns acompletion(...)
                return real(*args, **kwargs)
            port, asked, stream = port_and_prompt(args, kwargs)
            crossed = cross_stream if stream and active() is not None else cross  # outside, a stream stays the client's object
            return crossed(port, asked, lambda changed: real(*args, **kwargs))

        return call

    def asynchronous(real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return await real(*args, **kwargs)
            port, asked, stream = port_and_prompt(args, kwargs)
            if not stream or active() is None:
                return await cross_async(port, asked, lambda changed: real(*args, **kwargs))

            async def chunks(changed: dict[str, Any] | None) -> AsyncIterator[Any]:
                async for chunk in await real(*args, **kwargs):
                    yield chunk

            return cross_stream_async(port, asked, chunks)

        return call

    for name, code, made in (("completion", _completion, sync), ("acompletion", _acompletion, asynchronous)):
        function = getattr(litellm, name)
        attachment.replace_value(_crossings, name, made(getattr(_crossings, name) or _copy(function)))
        attachment.replace_value(function, "__code__", code.__code__)


def _copy(function: Any) -> FunctionType:
    """The function as it is now, which keeps its code when the original gets another."""
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _handler(given: Mapping[str, Any]) -> type | None:
    """The class that users wrote for a provider of their own."""
    from litellm import custom_provider_map

    provider = given.get("custom_llm_provider") or str(given.get("model")).partition("/")[0]
    return next((type(each["custom_handler"]) for each in custom_provider_map if each["provider"] == provider), None)


def _errors() -> dict[str, Callable[[str], BaseException]]:
    """What LiteLLM raises for each kind of fault, of whichever provider."""
    from litellm import exceptions

    names = {
        "timeout": "Timeout", "connection": "APIConnectionError", "rate_limit": "RateLimitError",
        "server_error": "ServiceUnavailableError", "auth": "AuthenticationError", "not_found": "NotFoundError",
        "invalid": "BadRequestError",
    }  # fmt: skip

    def maker(name: str) -> Callable[[str], BaseException]:
        def make(text: str) -> BaseException:
            error: BaseException = getattr(exceptions, name)(message=text, model="model", llm_provider="provider")
            return error

        return make

    return {kind: maker(name) for kind, name in names.items()}


def _plain(message: Any) -> Any:
    return message if isinstance(message, dict) else message.model_dump(exclude_none=True)


def _data(reply: Any) -> dict[str, Any]:
    found = reply.model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in found.items() if name not in _VOLATILE}


def _reply(data: Any) -> Any:
    from litellm import ModelResponse

    return ModelResponse(**(data if isinstance(data, dict) else _message(data)))


def _chunk(data: Any) -> Any:
    from litellm.types.utils import ModelResponseStream

    return ModelResponseStream(**(data if isinstance(data, dict) else {"choices": [{"delta": {"content": str(data)}}]}))


def _message(text: Any) -> dict[str, Any]:
    content = None if text is None else str(text)
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}]}


ADAPTERS: Final = {
    "litellm": Adapter(
        name="litellm", package="litellm", install=install, extra="litellm", release="litellm>=1.110",
        policy="num_retries and fallbacks lie inside of the call and do not see a fault; a Router sees it and tries again",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
