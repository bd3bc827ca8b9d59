"""Calls outside of runs that a resource contract is in force for: admitted before they start, settled with what they consumed.

There is a function for each form of a call: plain, async, stream, async stream. Each gets `call()`, which makes the plain call,
and returns its reply. A reply that arrives later, from a coroutine or as a stream, is settled when it is complete, closed or
given up.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from mat.boundary.port import Port
from mat.boundary.session import CallCharge, CallEnd, Meter
from mat.boundary.usage import add_chunk, usage_of
from mat.core.value import EMPTY, FrozenDict

__tracebackhide__ = True
"""pytest shows no frames of this module."""


_END: Final = object()
_model_call: Final[ContextVar[_ModelCall | None]] = ContextVar("mat_model_call", default=None)


class _ModelCall:
    """The time in which a call of a model is made. What it starts may outlive it."""

    __slots__ = ("_token", "is_open")

    def __enter__(self) -> None:
        self.is_open = True
        self._token = _model_call.set(self)

    def __exit__(self, *raised: object) -> None:
        self.is_open = False
        _model_call.reset(self._token)


def in_model_call() -> bool:
    """Whether this code makes a metered or decorated call of a model, of which what clients below it do is a part."""
    call = _model_call.get()
    return call is not None and call.is_open


def as_model_call(callee: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a model's callee so that `in_model_call` holds during its calls. The wrapper has the form (coroutine, generator)
    of `function`, which the callee calls.
    """
    made: Any
    if inspect.isasyncgenfunction(function):

        async def made(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            chunks = callee(*args, **kwargs)
            try:
                while True:
                    with _ModelCall():
                        chunk = await anext(chunks, _END)
                    if chunk is _END:
                        return
                    yield chunk
            finally:
                await chunks.aclose()
    elif inspect.isgeneratorfunction(function):

        def made(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            chunks = callee(*args, **kwargs)
            try:
                while True:
                    with _ModelCall():
                        chunk = next(chunks)
                    yield chunk
            except StopIteration as stop:
                return stop.value
            finally:
                chunks.close()
    elif inspect.iscoroutinefunction(function):

        async def made(*args: Any, **kwargs: Any) -> Any:
            with _ModelCall():
                return await callee(*args, **kwargs)
    else:

        def made(*args: Any, **kwargs: Any) -> Any:
            with _ModelCall():
                return callee(*args, **kwargs)

    return functools.wraps(callee)(made)


def _making(port: Port) -> AbstractContextManager[None]:
    return _ModelCall() if port.kind == "model_call" else nullcontext()


@dataclass(frozen=True, slots=True)
class ClientReply:
    """The reply of an attached client, which its caller gets as it is. `watch(usage)` adds what it names to the usage, and ends
    it: at once, or when the rest of the reply has arrived."""

    reply: Any
    watch: Callable[[ChunkUsage], None]


def metered(meter: Meter, port: Port, arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
    """Admit a call, make it, and settle it by its reply. A refusal of the meter propagates, and then no call is made."""
    charge = meter.admit(port, arguments)
    try:
        with _making(port):
            reply = call()
    except BaseException:
        charge.settle(EMPTY, "failed")
        raise
    return _follow(charge, port, reply)


async def metered_async(meter: Meter, port: Port, arguments: Mapping[str, Any], call: Callable[[], Awaitable[Any]]) -> Any:
    """`metered` for a coroutine."""
    return await _arrived(meter.admit(port, arguments), port, call)


async def _arrived(charge: CallCharge, port: Port, call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        with _making(port):
            reply = await call()
    except BaseException:
        charge.settle(EMPTY, "failed")
        raise
    return _follow(charge, port, reply)


def _follow(charge: CallCharge, port: Port, reply: Any) -> Any:
    """Settle a call by its reply, now or when the reply is there."""
    if inspect.iscoroutine(reply):
        return _arrived(charge, port, lambda: reply)
    if isinstance(reply, ClientReply):
        reply.watch(ChunkUsage(charge, port, begun=True))
        return reply.reply
    if port.kind != "model_call":
        charge.settle(EMPTY, "reply")
        return reply
    flows = hasattr(type(reply), "__next__") or hasattr(type(reply), "__anext__")
    usage = EMPTY if flows and port.usage is not None else usage_of(reply if flows else _as_recorded(port, reply), port.usage)
    if flows and not usage:
        return MeteredStream(reply, ChunkUsage(charge, port, begun=True))
    charge.settle(usage, "reply")
    return reply


def _as_recorded(port: Port, reply: Any) -> Any:
    """A framework's reply as the data that a run would record of it."""
    if port.encode is None:
        return reply
    try:
        return port.encode(reply)
    except Exception:  # the reply stands, whatever becomes of its usage
        return reply


class ChunkUsage:
    """The usage that the chunks of a stream have named so far. `end` settles the call, once.

    `begun`: the model has begun to reply. Before that, a stream that ends is a call that failed.
    """

    __slots__ = ("_begun", "_charge", "_chunks", "_counts", "_port")

    def __init__(self, charge: CallCharge, port: Port, *, begun: bool = False) -> None:
        self._charge: CallCharge | None = charge
        self._port = port
        self._counts: dict[str, int] = {}
        self._chunks: list[Any] = []
        self._begun = begun

    def add(self, chunk: Any) -> None:
        self._begun = True
        if self._port.usage is not None:
            self._chunks.append(chunk)
        elif self._port.kind == "model_call":
            add_chunk(self._counts, chunk)

    def end(self, ending: CallEnd) -> None:
        charge, self._charge = self._charge, None
        if charge is None:
            return
        read = self._port.usage
        usage = FrozenDict(self._counts) if read is None else usage_of(self._chunks, read)
        charge.settle(usage, ending if self._begun or ending == "reply" else "failed")


def metered_stream(
    meter: Meter, port: Port, arguments: Mapping[str, Any], call: Callable[[], Iterator[Any]]
) -> Generator[Any, Any, None]:
    """`metered` for a stream; the call is settled at its end, or when the reader stops."""
    usage = ChunkUsage(meter.admit(port, arguments), port)
    ending: CallEnd = "cut"
    try:
        with _making(port):
            chunks = call()
            rest = iter(chunks)
        try:
            while True:
                with _making(port):
                    chunk = next(rest, _END)
                if chunk is _END:
                    break
                usage.add(chunk)
                yield chunk
            ending = "reply"
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
    finally:
        usage.end(ending)


async def metered_stream_async(
    meter: Meter, port: Port, arguments: Mapping[str, Any], call: Callable[[], AsyncIterator[Any]]
) -> AsyncIterator[Any]:
    """`metered_stream` for async code."""
    usage = ChunkUsage(meter.admit(port, arguments), port)
    ending: CallEnd = "cut"
    try:
        with _making(port):
            chunks = call()
            rest = aiter(chunks)
        try:
            while True:
                with _making(port):
                    chunk = await anext(rest, _END)
                if chunk is _END:
                    break
                usage.add(chunk)
                yield chunk
            ending = "reply"
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
    finally:
        usage.end(ending)


class MeteredStream:
    """A client's stream, plain or async, that is settled when it is exhausted, closed or given up. All else is the client's."""

    __slots__ = ("_stream", "_usage")

    def __init__(self, stream: Any, usage: ChunkUsage) -> None:
        self._stream, self._usage = stream, usage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> MeteredStream:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._stream)
        except BaseException as error:
            self._usage.end("reply" if isinstance(error, StopIteration) else "cut")
            raise
        self._usage.add(chunk)
        return chunk

    def __aiter__(self) -> MeteredStream:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._stream)
        except BaseException as error:
            self._usage.end("reply" if isinstance(error, StopAsyncIteration) else "cut")
            raise
        self._usage.add(chunk)
        return chunk

    def close(self) -> Any:
        self._usage.end("cut")
        return self._stream.close()

    def aclose(self) -> Any:
        self._usage.end("cut")
        return self._stream.aclose()

    def __enter__(self) -> MeteredStream:
        self._stream.__enter__()
        return self

    def __exit__(self, *raised: Any) -> Any:
        self._usage.end("cut")
        return self._stream.__exit__(*raised)

    async def __aenter__(self) -> MeteredStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        self._usage.end("cut")
        return await self._stream.__aexit__(*raised)

    def __del__(self) -> None:
        usage = getattr(self, "_usage", None)
        if usage is not None:
            usage.end("cut")


__all__ = ["ChunkUsage", "ClientReply", "as_model_call", "in_model_call", "metered", "metered_async", "metered_stream",
           "metered_stream_async"]  # fmt: skip
