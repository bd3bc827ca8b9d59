"""One crossing of a boundary, in the order that is law: recorder, mediator, faults, tape, port (DESIGN decisions 5, 6, 12).

The crossing is a generator that yields what only the caller's world can do: invoke the port, sleep, ask an approver. Two
small drivers run it, for plain and for async code; nothing else differs between the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from mat.boundary.effect import (
    PASS,
    Delay,
    Drop,
    Duplicate,
    Effect,
    Pass,
    Raise,
    Replace,
    Reply,
    Rewrite,
    Truncate,
)
from mat.boundary.port import Port
from mat.core.errors import Blocked
from mat.core.record import Mediation
from mat.core.value import FrozenDict


class Invoke:
    """Call the port. `changed` overrides parameters by name; `through` lets a stream's chunks pass as they come."""

    __slots__ = ("changed", "limit", "through")

    def __init__(self, changed: FrozenDict | None = None, *, through: bool = True, limit: int | None = None) -> None:
        self.changed, self.through, self.limit = changed, through, limit


class Sleep:
    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Ask:
    """Call an approver: the answer may be awaitable."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


Command: TypeAlias = Invoke | Sleep | Ask
Crossing: TypeAlias = Generator[Command, Any, Any]
_INVOKE: Final = Invoke()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A mediation that waits for an approver. `settle` turns the answer into the final decision."""

    call: Callable[[], Any]
    settle: Callable[[Any], Mediation]


class Open(Protocol):
    """A step that was asked and is not sealed yet; what the layers learn is noted on it."""

    mediation: Mediation | None
    executed: FrozenDict | None
    invoked: int
    error_kind: str


class Session(Protocol):
    """What a crossing needs of the run it belongs to."""

    closed: bool

    def ask(self, port: Port, arguments: FrozenDict) -> Any: ...
    def mediate(self, open: Any, port: Port) -> Mediation | Pending | None: ...
    def perturbed(self, open: Any, port: Port) -> str:
        """The phase in which the schedule acts on this call: "", "before" or "after"."""

    def decide(self, open: Any, port: Port, reply: Reply | None) -> Effect: ...
    def taped(self, open: Any, port: Port) -> Reply | BaseException | None: ...
    def heard(self, open: Any, port: Port, value: Any, error: BaseException | None) -> None:
        """The port has spoken: goes on tape, before faults."""

    def changed(self, open: Any, effect: Effect, *, differs: bool) -> None: ...
    def seal(self, open: Any, port: Port, value: Any) -> None: ...
    def seal_error(self, open: Any, port: Port, error: BaseException) -> None: ...


current_session: ContextVar[Session | None] = ContextVar("mat_session", default=None)
_ambient: list[Session] = []
"""Runs of a process that own it as a whole (a pytest item): found by threads and tasks that inherited no context."""


def active() -> Session | None:
    """The run that calls belong to, or None: then an instrumented call is a plain call."""
    session = current_session.get()
    if session is None:
        return _ambient[-1] if _ambient else None
    if session.closed:
        if _ambient and not _ambient[-1].closed and _ambient[-1] is not session:
            _warn_finished()
        return None
    return session


def _warn_finished() -> None:
    import warnings

    warnings.warn("a call still carries a finished run; it is not recorded (a task or thread outlived its test)", stacklevel=4)


def push_ambient(session: Session) -> None:
    _ambient.append(session)


def pop_ambient(session: Session) -> None:
    if session in _ambient:
        _ambient.remove(session)


def crossing(session: Session, port: Port, arguments: FrozenDict) -> Crossing:
    """One call through all layers; returns what the agent gets, raises what the agent meets."""
    step = session.ask(port, arguments)
    try:
        if port.boundary:
            mediation = session.mediate(step, port)
            if mediation is not None:
                if isinstance(mediation, Pending):
                    mediation = mediation.settle((yield Ask(mediation.call)))
                step.mediation = mediation
                if mediation.decision == "block":
                    step.error_kind = "blocked"
                    raise Blocked(mediation.reason or f"{port.name} is not allowed")
                if mediation.arguments is not None:
                    step.executed = mediation.arguments
            phase = session.perturbed(step, port)
            value = (yield from _perturbed(session, step, port, phase)) if phase else (yield from _serve(session, step, port))
        else:
            value = yield from _serve(session, step, port)
    except BaseException as error:
        session.seal_error(step, port, error)
        raise
    session.seal(step, port, value)
    return value


def _serve(session: Session, step: Any, port: Port, command: Invoke = _INVOKE) -> Crossing:
    """Tape, then port. Whatever the port says is heard before anything is done to it."""
    reply = session.taped(step, port) if port.tape == "external" else None
    if reply is not None:
        if isinstance(reply, BaseException):
            raise reply
        return reply.value
    if step.executed is not None and command.changed is None:
        command = Invoke(step.executed, through=command.through, limit=command.limit)
    step.invoked += 1
    try:
        value = yield command
    except BaseException as error:
        session.heard(step, port, None, error)
        raise
    session.heard(step, port, value, None)
    return value


def _perturbed(session: Session, step: Any, port: Port, phase: str) -> Crossing:
    """The fault layer: asks the operator in its phase and does what it decided."""
    effect: Effect = session.decide(step, port, None) if phase == "before" else PASS
    command = Invoke(through=phase == "before")
    match effect:
        case Raise():
            session.changed(step, effect, differs=True)
            raise (yield from _failure(step, port, effect))
        case Replace(value=value):
            session.changed(step, effect, differs=True)
            return value
        case Drop():
            session.changed(step, effect, differs=True)
            return [] if port.stream else None
        case Rewrite(arguments=changed):
            base = step.executed if step.executed is not None else step.arguments
            session.changed(step, effect, differs=changed != base)
            step.executed = FrozenDict({**base, **changed})
            command = Invoke(changed, through=True)
        case Truncate(chunks=limit):
            session.changed(step, effect, differs=True)
            command = Invoke(limit=limit)
        case Delay(ms=ms):
            session.changed(step, effect, differs=ms > 0)
            yield Sleep(ms / 1000)
        case Duplicate() | Pass():
            pass
    value = yield from _serve(session, step, port, command)
    if isinstance(effect, Duplicate):
        session.changed(step, effect, differs=True)
        for _ in range(effect.times):
            yield from _serve(session, step, port, command)
    if phase != "after":
        return value
    return (yield from _changed_reply(session, step, port, value))


def _changed_reply(session: Session, step: Any, port: Port, value: Any) -> Crossing:
    effect = session.decide(step, port, Reply(value))
    match effect:
        case Pass():
            return value
        case Raise():
            session.changed(step, effect, differs=True)
            raise (yield from _failure(step, port, effect))
        case Replace(value=replaced):
            session.changed(step, effect, differs=True)
            return replaced
        case Delay(ms=ms):
            session.changed(step, effect, differs=ms > 0)
            yield Sleep(ms / 1000)
            return value
        case Drop():
            session.changed(step, effect, differs=True)
            return None
        case Truncate(chunks=limit):
            session.changed(step, effect, differs=True)
            return value[:limit]
        case Duplicate() | Rewrite():
            from mat.core.errors import SpecError

            raise SpecError(
                what=f"{type(effect).__name__} was decided on a reply at {port.name}",
                why="the port has already been invoked",
                fix='give the operator phase="before"',
            )


def _failure(step: Any, port: Port, effect: Raise) -> Generator[Command, Any, BaseException]:
    if effect.delay_ms:
        yield Sleep(effect.delay_ms / 1000)
    step.error_kind = effect.kind
    return port.error(effect.kind, effect.message, effect.retry_after_s)


def drive(steps: Crossing, call: Callable[[FrozenDict | None], Any]) -> Any:
    """Run a crossing in plain code. `call(changed)` invokes the port."""
    import time

    try:
        command = next(steps)
        while True:
            try:
                if type(command) is Invoke:
                    answer = call(command.changed)
                elif type(command) is Sleep:
                    answer = time.sleep(command.seconds)
                else:
                    answer = command.call()  # type: ignore[union-attr]
                    if inspect.isawaitable(answer):
                        answer.close() if inspect.iscoroutine(answer) else None
                        raise TypeError("the approver is async, and this call is not; give a plain function")
            except BaseException as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration as done:
        return done.value


async def drive_async(steps: Crossing, call: Callable[[FrozenDict | None], Awaitable[Any]]) -> Any:
    """Run a crossing in async code."""
    try:
        command = next(steps)
        while True:
            try:
                answer = await _perform(command, call)
            except BaseException as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration as done:
        return done.value


async def _perform(command: Command, call: Callable[[FrozenDict | None], Any]) -> Any:
    if isinstance(command, Invoke):
        return await call(command.changed)
    if isinstance(command, Sleep):
        return await sleep_async(command.seconds)
    answer = command.call()
    return await answer if inspect.isawaitable(answer) else answer


async def sleep_async(seconds: float) -> None:
    """Sleep in whatever async library runs the caller: asyncio, or anyio's when trio runs."""
    import sys

    if "sniffio" in sys.modules or "trio" in sys.modules:
        import anyio

        await anyio.sleep(seconds)
        return
    import asyncio

    await asyncio.sleep(seconds)
