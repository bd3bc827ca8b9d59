"""One call of a port as a step of the run in progress, whatever the port calls: `cross` and its async and streaming forms.

The decorators and the adapters of frameworks both end here. Outside a run each form is the plain call, or the metered one if a
resource contract is in force there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from mat.boundary.crossing import (
    Deliver,
    Invoke,
    Sleep,
    StreamSilent,
    crossing,
    drive,
    drive_async,
    perform,
    perform_async,
    within_async,
)
from mat.boundary.effect import Repeat, Stall, Truncate
from mat.boundary.emit import acting
from mat.boundary.emit import agent as agent_block
from mat.boundary.metered import in_model_call, metered, metered_async, metered_stream, metered_stream_async
from mat.boundary.port import Port
from mat.boundary.session import active, meter_of, refuse_after_end
from mat.core.digest import canonical
from mat.core.errors import CodecError, MatError
from mat.core.limits import STREAM_REST_S, STREAMED_CHUNKS
from mat.core.value import FrozenDict, Value, snapshot, thaw
from mat.kernel import clock as clocks

__tracebackhide__ = True
"""pytest shows no frames of this module."""
Changed = FrozenDict | None
"""The arguments that governance or a fault has changed, by name; None if none is."""
Ends: TypeAlias = Callable[[Any], bool]
"""Whether a chunk of a stream is the last word of its port."""
Settle: TypeAlias = Callable[[list[Any]], list[Any]]
"""From the recorded chunks of a stream that a fault may have changed to those of them that its client can get together."""
_MISSING: Final = object()
_open_calls: ContextVar[tuple[_OpenCall, ...]] = ContextVar("mat_open_calls", default=())
"""The calls by `cross` that this code was begun in; a task may outlive them."""


def call_port(port: Port, arguments: Mapping[str, Any], call: Callable[[Changed], Any]) -> Any:
    """A synchronous call. `arguments`: by name, with values that have a recorded form. `call(changed)` makes the real call."""
    session = active()
    if session is None:
        meter = meter_of(port)
        return call(None) if meter is None else metered(meter, port, arguments, lambda: call(None))
    return drive(crossing(session, port, arguments), call)  # type: ignore[arg-type]


async def call_port_async(port: Port, arguments: Mapping[str, Any], call: Callable[[Changed], Awaitable[Any]]) -> Any:
    session = active()
    if session is None:
        meter = meter_of(port)
        return await (call(None) if meter is None else metered_async(meter, port, arguments, lambda: call(None)))
    return await drive_async(crossing(session, port, arguments, suspends=True), call)  # type: ignore[arg-type]


def stream_port(
    port: Port,
    arguments: Mapping[str, Any],
    call: Callable[[Changed], Iterator[Any]],
    *,
    patience_s: float | None = None,
    ends: Ends | None = None,
) -> Generator[Any, Any, Any]:
    """A call whose reply comes in chunks. `call(changed)` returns the iterator of the port's chunks.

    `patience_s`: how long the client waits for a chunk; None for ever. `ends`: see `cross_stream`.
    """
    session = active()
    if session is None:
        meter = meter_of(port)
        return (yield from (call(None) if meter is None else metered_stream(meter, port, arguments, lambda: call(None))))
    steps, stream = crossing(session, port, arguments), _Stream(port, patience_s, ends)  # type: ignore[arg-type]
    try:
        command: Any = next(steps)
        while True:
            answer: Any = None
            try:
                if isinstance(command, Invoke):
                    chunks = call(command.changed) if command.recorded is None else command.recorded
                    try:
                        while stream.goes_on(command):
                            refuse_after_end(session)
                            if silence_s := stream.silence_s(command):
                                perform(stream.waited(silence_s))
                                stream.check_patience(silence_s)
                            command.asks = True
                            chunk = next(chunks, _MISSING)
                            if chunk is _MISSING:
                                stream.ended(command)
                                break
                            for passed in stream.arrived(command, chunk):
                                yield passed
                    except GeneratorExit:
                        if not stream.leaves_the_end(command):
                            raise
                        _read_rest(stream, command, chunks)
                        if not stream.is_read(command):
                            raise
                    finally:  # the port cleans up before its step is sealed
                        if command.keeps:
                            _read_rest(stream, command, chunks)
                        close = getattr(chunks, "close", None)
                        if close is not None:
                            close()
                elif isinstance(command, Deliver):
                    try:
                        for passed in stream.rest(command):
                            yield passed
                    except GeneratorExit:
                        if not stream.has_last:
                            raise
                else:
                    answer = perform(command)
            except BaseException as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration:
        return None


async def stream_port_async(
    port: Port,
    arguments: Mapping[str, Any],
    call: Callable[[Changed], AsyncIterator[Any]],
    *,
    patience_s: float | None = None,
    ends: Ends | None = None,
    settle: Settle | None = None,
) -> AsyncIterator[Any]:
    session = active()
    if session is None:
        meter = meter_of(port)
        plain = call(None) if meter is None else metered_stream_async(meter, port, arguments, lambda: call(None))
        async for chunk in plain:
            yield chunk
        return
    steps = crossing(session, port, arguments, suspends=True)  # type: ignore[arg-type]
    stream = _Stream(port, patience_s, ends, settle)
    try:
        command: Any = next(steps)
        while True:
            answer: Any = None
            try:
                if isinstance(command, Invoke):
                    chunks = call(command.changed) if command.recorded is None else _in_turn(command.recorded)
                    try:
                        while stream.goes_on(command):
                            refuse_after_end(session)
                            if silence_s := stream.silence_s(command):
                                await perform_async(stream.waited(silence_s), lambda changed: None)
                                stream.check_patience(silence_s)
                            command.asks = True
                            chunk = await anext(chunks, _MISSING)
                            if chunk is _MISSING:
                                stream.ended(command)
                                break
                            for passed in stream.arrived(command, chunk):
                                yield passed
                    except GeneratorExit:
                        if not stream.leaves_the_end(command):
                            raise
                        await _read_rest_async(stream, command, chunks)
                        if not stream.is_read(command):
                            raise
                    finally:  # the port cleans up before its step is sealed
                        if command.keeps:
                            await _read_rest_async(stream, command, chunks)
                        close = getattr(chunks, "aclose", None)
                        if close is not None:
                            await close()
                elif isinstance(command, Deliver):
                    try:
                        for passed in stream.rest(command):
                            yield passed
                    except GeneratorExit:
                        if not stream.has_last:
                            raise
                else:
                    answer = await perform_async(command, lambda changed: None)
            except BaseException as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration:
        return


async def _in_turn(chunks: Iterator[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


def _read_rest(stream: _Stream, command: Invoke, chunks: Iterator[Any]) -> None:
    """Read a stream to its end that the agent or a fault has left: nothing disturbs it any more.

    It takes at most `STREAM_REST_S` and one wait for a chunk, which ends by then if the iterator has `hurry(seconds)`, else by
    the client's own time-out. A stream that breaks or goes on for longer is not whole.
    """
    began = clocks.real_monotonic()
    with _broken_rest():
        if stream.has_rest(command) and (hurry := getattr(chunks, "hurry", None)) is not None:
            hurry(STREAM_REST_S)
        while stream.has_rest(command) and clocks.real_monotonic() - began < STREAM_REST_S:
            command.asks = True
            stream.keep(command, next(chunks, _MISSING))


async def _read_rest_async(stream: _Stream, command: Invoke, chunks: AsyncIterator[Any]) -> None:
    """`_read_rest`; no wait for a chunk takes longer than `STREAM_REST_S`."""
    began = clocks.real_monotonic()
    with _broken_rest():
        while stream.has_rest(command) and (left_s := STREAM_REST_S - (clocks.real_monotonic() - began)) > 0:
            command.asks = True
            stream.keep(command, await within_async(left_s, anext(chunks, _MISSING)))


@contextmanager
def _broken_rest() -> Iterator[None]:
    """What ends the reading of a rest. Nobody waits for it, so that an error of the port is none of the agent."""
    try:
        yield
    except MatError:
        raise
    except Exception:
        return


class _Stream:
    """The chunks of one stream on their way from the port, or a recording, to the agent.

    `patience_s`: how long the agent waits for one. `ends`: whether a chunk is the last word. `settle`: see `Settle`. `passed`:
    how many the agent has got; `has_last`: the latest of them is the last word.
    """

    __slots__ = ("_ends", "_left_at", "_originals", "_patience_s", "_port", "_settle", "has_last", "passed")

    def __init__(self, port: Port, patience_s: float | None, ends: Ends | None, settle: Settle | None = None) -> None:
        self._port, self._patience_s, self._ends, self._settle = port, patience_s, ends, settle
        self._originals: dict[int, tuple[Any, Any]] = {}
        self.passed = self._left_at = 0
        self.has_last = False

    def goes_on(self, command: Invoke) -> bool:
        """Whether the port is asked for another chunk. The first one is always asked for, because that makes the call."""
        fault = command.midstream
        if fault is None or not isinstance(fault.effect, Truncate) or len(command.heard) < max(fault.effect.chunks, 1):
            return True
        fault.happened = True
        return False

    def silence_s(self, command: Invoke) -> float:
        """How long nothing comes before the next chunk."""
        fault = command.midstream
        if fault is None or not isinstance(fault.effect, Stall) or fault.happened or len(command.heard) != fault.effect.chunks:
            return 0.0
        fault.happened = fault.effect.ms > 0
        return fault.effect.ms / 1000

    def ended(self, command: Invoke) -> None:
        """The port has no more chunks for an agent that reads on. A fault that fails does so here at the latest."""
        command.ended = True
        if command.midstream is not None and command.midstream.fails:
            command.midstream.happened = True

    def leaves_the_end(self, command: Invoke) -> bool:
        """Whether an agent that leaves has got the last word, so that nothing but the end of the stream should follow."""
        self._left_at = len(command.heard)
        return self.has_last and not command.asks and (command.recorded is None or command.known is not None)

    def has_rest(self, command: Invoke) -> bool:
        """Whether more can be read of a stream that was left; not if it broke while it was read."""
        return not (command.ended or command.asks) and len(command.heard) < STREAMED_CHUNKS

    def is_read(self, command: Invoke) -> bool:
        """Whether a stream that its agent has left after the last word came to its end; then the agent has got all of it."""
        if command.ended and command.through:
            rest = command.heard[self._left_at :]
            command.passed += rest
            self.passed += len(rest)
        return command.ended

    def waited(self, silence_s: float) -> Sleep:
        """The time that the client waits for a stream that is silent."""
        return Sleep(silence_s if self._patience_s is None else min(silence_s, self._patience_s))

    def check_patience(self, silence_s: float) -> None:
        """Give a stream up that is silent for longer than its client waits."""
        if self._patience_s is not None and silence_s > self._patience_s:
            raise StreamSilent

    def keep(self, command: Invoke, chunk: Any) -> Any:
        """Note a chunk that has come, as plain data; returns that."""
        if chunk is _MISSING:
            command.ended, command.asks = True, False
            return None
        plain = chunk if command.recorded is not None or self._port.encode is None else self._port.encode(chunk)
        command.heard.append(plain)
        command.asks = False
        return plain

    def arrived(self, command: Invoke, chunk: Any) -> Iterator[Any]:
        """The client's objects that a chunk which has come brings the agent."""
        plain = self.keep(command, chunk)
        if not command.through:
            if plain is not chunk:  # the agent gets the original where nothing changes the chunk
                self._originals[id(plain)] = (plain, chunk)
            return
        fault = command.midstream
        if fault is not None and isinstance(fault.effect, Truncate) and fault.effect.chunks < len(command.heard):
            return
        yield self._passing(command, plain, chunk)
        if fault is not None and isinstance(fault.effect, Repeat) and fault.effect.chunk == len(command.heard):
            fault.happened = True
            yield self._passing(command, plain, chunk)

    def _passing(self, command: Invoke, plain: Any, chunk: Any) -> Any:
        """The client's object of a chunk that the agent gets now."""
        self.passed += 1
        command.passed.append(plain)
        return self._last(self._client_object(plain) if command.recorded is not None else chunk)

    def rest(self, command: Deliver) -> Iterator[Any]:
        """The client's objects of the chunks that the agent has not got yet."""
        command.passed, left = command.chunks[: self.passed], command.chunks[self.passed :]
        if self._settle is not None and not self.passed:
            left = self._settle(left)
        for chunk in left:
            command.passed.append(chunk)
            known = self._originals.get(id(chunk))
            yield self._last(known[1] if known is not None else self._client_object(chunk))

    def _last(self, chunk: Any) -> Any:
        self.has_last = self._ends is not None and self._ends(chunk)
        return chunk

    def _client_object(self, chunk: Any) -> Any:
        return chunk if self._port.decode is None else self._port.decode(thaw(chunk))


# -- for adapters -------------------------------------------------------------------------------------------------------


def recordable(arguments: Mapping[str, Any], where: str) -> FrozenDict:
    """The recorded form of arguments; a value that has none (a client, a context) is recorded by the name of its type.

    Two values of one such type look equal in the trace, so the search takes calls that differ only in them for the same call.
    """
    return FrozenDict({name: _recorded_or_type(value, where) for name, value in arguments.items()})


def _recorded_or_type(value: Any, where: str) -> Value:
    try:
        return snapshot(value, where)
    except CodecError:
        pass
    if isinstance(value, Mapping):
        return FrozenDict({str(name): _recorded_or_type(item, where) for name, item in value.items()})
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"


def is_inside(kind: str) -> bool:
    """Whether this code is a part of a call that crossed as this action kind, such as "model_call"."""
    if kind == "model_call" and in_model_call():
        return True
    return any(call.key[0] == kind and call.is_open for call in _open_calls.get())


class _OpenCall:
    """Notes that a call is open, unless it is a part of an open call of the same port by the same agent (`again`).

    `key`: action kind, port and agent. `arguments`: what the port gets. Under governance, a call with other arguments is
    another call, because nobody has judged these.
    """

    __slots__ = ("_token", "again", "arguments", "is_open", "key")

    def __init__(self, port: Port, agent: str, arguments: Mapping[str, Any]) -> None:
        self.key = (port.kind, port.name, agent or acting.get()[0])
        self.is_open = False
        self.arguments = arguments
        outer = [call for call in _open_calls.get() if call.key == self.key and call.is_open]
        session = active() if outer else None
        self.again = bool(outer)
        if session is not None and session.mediation is not None:
            asked = canonical(recordable(arguments, f"call of {port.name}"))
            self.again = any(canonical(recordable(call.arguments, f"call of {port.name}")) == asked for call in outer)

    def passing(self, changed: Changed) -> _OpenCall:
        """Note what the port gets in the place of some arguments."""
        if changed:
            self.arguments = {**self.arguments, **changed}
        return self

    def __enter__(self) -> None:
        self.is_open = True
        self._token = _open_calls.set((*_open_calls.get(), self))

    def __exit__(self, *raised: object) -> None:
        self.is_open = False
        _open_calls.reset(self._token)


def _named_agent(name: str) -> AbstractContextManager[object]:
    """The block of the agent that acts, if it is named and does not act already."""
    return agent_block(name) if name and acting.get()[0] != name else nullcontext()


def _is_plain(port: Port) -> bool:
    """Whether a call of the port is neither a step of a run nor charged to a resource contract.

    Outside of runs, a framework's model call below another one is a part of it, whose usage is charged once.
    """
    return (port.kind == "model_call" and in_model_call()) or (active() is None and meter_of(port) is None)


def _thawed(changed: Changed) -> dict[str, Any] | None:
    return {name: thaw(value) for name, value in changed.items()} if changed else None


def cross(port: Port, arguments: Mapping[str, Any], call: Callable[[dict[str, Any] | None], Any], *, agent: str = "") -> Any:
    """One call of a framework as a recorded step, which can be judged, blocked and disturbed. For authors of adapters.

    `port`: from `mat.adapters.Attachment`. `arguments`: by name; a value without a recorded form is recorded by its type.
    `call(changed)` makes the real call; `changed` holds the arguments to replace, by name, or is None. `agent`: who acts,
    as the framework names it; by default whoever acts already. Returns what `call` returns, unless a fault, governance or a
    tape decides otherwise, and raises what it raises, or `mat.Blocked`. Outside a run, and inside of a call of the same port
    by the same agent, it is the plain call.

    >>> from mat.adapters import Attachment
    >>> tools = Attachment(effects={"refund": "write"})
    >>> with mat.run() as run:
    ...     mat.cross(tools.tool("refund"), {"order": "A17"}, lambda changed: "refunded", agent="clerk")
    'refunded'
    >>> run.trace[0].site
    'clerk/service:refund#1'

    Source: A1.1, A4.1.
    """
    opened = _OpenCall(port, agent, arguments)
    if opened.again or _is_plain(port):
        return call(None)
    with _named_agent(agent):
        named = recordable(arguments, f"call of {port.name}")

        def invoke(changed: Changed) -> Any:
            with opened.passing(changed):
                return call(_thawed(changed))

        return call_port(port, named, invoke)


async def cross_async(
    port: Port, arguments: Mapping[str, Any], call: Callable[[dict[str, Any] | None], Awaitable[Any]], *, agent: str = ""
) -> Any:
    """`cross` for async code: `call(changed)` returns an awaitable.

    >>> import asyncio
    >>> from mat.adapters import Attachment
    >>> async def look_up(changed):
    ...     return "shipped"
    >>> async def agent():
    ...     return await mat.cross_async(Attachment().tool("look_up"), {"order": "A17"}, look_up)
    >>> with mat.run() as run:
    ...     asyncio.run(agent())
    'shipped'
    >>> run.trace[0].action.effect
    'unknown'

    Source: A1.1, A4.1.
    """
    opened = _OpenCall(port, agent, arguments)
    if opened.again or _is_plain(port):
        return await call(None)
    with _named_agent(agent):
        named = recordable(arguments, f"call of {port.name}")

        async def invoke(changed: Changed) -> Any:
            with opened.passing(changed):
                return await call(_thawed(changed))

        return await call_port_async(port, named, invoke)


def cross_stream(
    port: Port,
    arguments: Mapping[str, Any],
    call: Callable[[dict[str, Any] | None], Iterator[Any]],
    *,
    agent: str = "",
    patience_s: float | None = None,
    ends: Ends | None = None,
) -> Iterator[Any]:
    """`cross` for a reply in chunks: `call(changed)` returns their iterator. `port`: one with `stream=True`.

    `arguments` and `agent` are as in `cross`. `patience_s`: how long the client waits for the next chunk before it gives the
    stream up; None for ever. `ends(chunk)`: whether a chunk is the last word of the port, so that a caller which closes the
    stream there has got all of it. Yields the chunks that the caller gets; a fault may change, drop or cut them.

    >>> from mat.adapters import Attachment, cross_stream
    >>> planner = Attachment().model("planner", stream=True)
    >>> with mat.run() as run:
    ...     list(cross_stream(planner, {"prompt": "Hi"}, lambda changed: iter(["Hel", "lo"])))
    ['Hel', 'lo']
    >>> run.trace[0].observation.chunks
    2

    Source: A1.1, A4.1.
    """
    if _is_plain(port) or _OpenCall(port, agent, arguments).again:
        yield from call(None)
        return
    with _named_agent(agent):
        named = recordable(arguments, f"call of {port.name}")
        steps = stream_port(port, named, lambda changed: call(_thawed(changed)), patience_s=patience_s, ends=ends)
    try:
        while True:
            with _named_agent(agent), _OpenCall(port, agent, arguments):
                chunk = next(steps, _MISSING)
            if chunk is _MISSING:
                return
            yield chunk
    finally:
        steps.close()


async def cross_stream_async(
    port: Port,
    arguments: Mapping[str, Any],
    call: Callable[[dict[str, Any] | None], AsyncIterator[Any]],
    *,
    agent: str = "",
    patience_s: float | None = None,
    ends: Ends | None = None,
    settle: Settle | None = None,
) -> AsyncIterator[Any]:
    """`cross_stream` for async code: `call(changed)` returns an async iterator. `settle(chunks)`: which of the recorded chunks
    of a stream that a fault may have changed go together, as a whole response at its end and the parts before it. The other
    parameters are as in `cross_stream`.

    >>> import asyncio
    >>> from mat.adapters import Attachment, cross_stream_async
    >>> async def chunks(changed):
    ...     yield "Hel"
    ...     yield "lo"
    >>> async def agent():
    ...     planner = Attachment().model("planner", stream=True)
    ...     return [chunk async for chunk in cross_stream_async(planner, {"prompt": "Hi"}, chunks)]
    >>> with mat.run() as run:
    ...     asyncio.run(agent())
    ['Hel', 'lo']

    Source: A1.1, A4.1.
    """
    if _is_plain(port) or _OpenCall(port, agent, arguments).again:
        async for chunk in call(None):
            yield chunk
        return
    named = recordable(arguments, f"call of {port.name}")
    steps: Any = stream_port_async(
        port, named, lambda changed: call(_thawed(changed)), patience_s=patience_s, ends=ends, settle=settle
    )
    try:
        while True:
            with _named_agent(agent), _OpenCall(port, agent, arguments):
                chunk = await anext(steps, _MISSING)
            if chunk is _MISSING:
                return
            yield chunk
    finally:
        await steps.aclose()


__all__ = ["call_port", "call_port_async", "cross", "cross_async", "cross_stream", "cross_stream_async", "is_inside",
           "recordable", "stream_port", "stream_port_async"]  # fmt: skip
