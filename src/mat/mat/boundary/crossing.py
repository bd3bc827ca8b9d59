"""One crossing of a boundary, always in this order: recorder, order faults, mediator, metering, faults, tape, port.

The crossing is a generator that yields what only the caller can do: invoke the port, sleep, ask an approver. Two
small drivers run it, for synchronous and for async code; nothing else differs between the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from mat.boundary.effect import (
    PASS,
    BrokenReply,
    Crash,
    Delay,
    Drop,
    Duplicate,
    Effect,
    Hold,
    Pass,
    Raise,
    Repeat,
    Replace,
    Reply,
    Rewrite,
    Stall,
    Truncate,
)
from mat.boundary.port import Port
from mat.boundary.session import (
    AskedStep,
    MediationOutcome,
    Pending,
    Session,
    SessionFaults,
    SessionMediation,
    StandIn,
    refuse_after_end,
)
from mat.core.digest import canonical
from mat.core.errors import Blocked, CodecError, LimitReached, MatError, ProcessCrashed, SpecError
from mat.core.value import IMMUTABLE, FrozenDict, snapshot, thaw
from mat.kernel import world as worlds

__tracebackhide__ = True
"""pytest shows no frames of this module."""


Midstream: TypeAlias = Truncate | Stall | Repeat
"""What a fault does to a stream on its way."""


class Disturbance:
    """A fault of a stream on its way. `happened`: the stream got so far and its agent read on; the driver notes it."""

    __slots__ = ("effect", "happened")

    def __init__(self, effect: Midstream) -> None:
        self.effect, self.happened = effect, False

    @property
    def fails(self) -> bool:
        """Whether the agent meets an error, after so many chunks or at the end of a shorter stream."""
        return isinstance(self.effect, Truncate) and self.effect.kind != ""


class Invoke:
    """Call the port. `changed` overrides parameters by name.

    For streams: `through` passes the chunks on as they come, `midstream` is a fault that they meet on their way, `recorded`
    the chunks of a recording, which come in the place of the port's, `known` all of them where it is whole, and `keeps` asks
    for the rest of a stream that is left early, for the recording. The driver fills `heard`, the chunks that the port has sent,
    and `passed`, those that the agent has got; `ended`: the end was reached; `asks`: the port is being asked for more.
    """

    __slots__ = ("asks", "changed", "ended", "heard", "keeps", "known", "midstream", "passed", "recorded", "through")

    def __init__(
        self,
        changed: FrozenDict | None = None,
        *,
        through: bool = True,
        midstream: Disturbance | None = None,
        recorded: Iterator[Any] | None = None,
        known: list[Any] | None = None,
        keeps: bool = False,
    ) -> None:
        self.changed, self.through, self.midstream = changed, through, midstream
        self.recorded, self.known, self.keeps = recorded, known, keeps
        self.heard: list[Any] = []
        self.passed: list[Any] = []
        self.ended = self.asks = False

    @property
    def everything(self) -> list[Any] | None:
        """All chunks of the stream; None if more may have come."""
        return self.heard if self.ended else self.known


class Deliver:
    """Pass on the chunks of a stream that the agent has not got yet. The driver fills `passed`, as for Invoke."""

    __slots__ = ("chunks", "passed")

    def __init__(self, chunks: list[Any]) -> None:
        self.chunks = chunks
        self.passed: list[Any] = []


class StreamSilent(BaseException):
    """A stream has been silent for longer than its client waits."""


class StreamCut(BaseException):
    """A fault has cut a stream before its port had sent all. What would have come is not known."""


class Sleep:
    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Ask:
    """Call an approver; the answer may be awaitable."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


class Wait:
    """Let other calls go first, as a Hold says. The answer is the number of other calls that ended in the meantime."""

    __slots__ = ("turns",)

    def __init__(self, turns: int) -> None:
        self.turns = turns


class Stopped(Exception):  # noqa: N818
    """Carries a StopIteration that a synchronous port raised through the crossing: generators cannot raise one (PEP 479)."""

    def __init__(self, error: StopIteration) -> None:
        self.error = error
        super().__init__(error)


Command: TypeAlias = Invoke | Deliver | Sleep | Ask | Wait
Crossing: TypeAlias = Generator[Command, Any, Any]
_INVOKE: Final = Invoke()
MISTAKES: Final = (SpecError, CodecError, LimitReached)
"""Errors that no agent should handle: a call, or what is declared about its port, is invalid."""


def crossing(session: Session, port: Port, arguments: dict[str, Any], *, suspends: bool = False) -> Crossing:
    """One call through all layers; returns the reply that the agent gets, or raises its error."""
    try:
        step = session.ask(port, arguments)
    except MISTAKES as error:
        session.mistake = session.mistake or error
        raise
    try:
        if port.boundary or port.kind == "grant":
            faults, stand_in = session.faults, None
            if faults is not None and faults.interleaves and port.boundary:
                turns = faults.turns(step, suspends=suspends)
                if turns:
                    faults.acted(step, Hold(), differs=(yield Wait(turns)) > 0)
            if session.mediation is not None:
                stand_in = yield from _mediate(session, session.mediation, step, port)
            if stand_in is None:
                if session.metering.active and (refused := session.metering.reserve(step)) is not None:
                    raise refused
                phase = "" if faults is None else faults.phase(step)
                if faults is not None and phase:
                    value = yield from _perturb(session, faults, step, port, phase, arguments)
                else:
                    value = yield from _serve(session, step, port, arguments)
            else:  # neither the fault layer nor the tape sees it
                value = _as_reply(port, (yield Ask(partial(stand_in, step.current_arguments))))
            if faults is not None and port.boundary and faults.crashes(step):
                faults.acted(step, Crash(), differs=True)
                session.crash()
        else:
            value = yield from _serve(session, step, port, arguments)
        if session.crashed:
            step.error_kind = "crash"
            raise ProcessCrashed(f"{port.name}: the process ends here")
        if port.stream:
            yield from _deliver(step, value)
    except BaseException as error:
        if not step.invoked and isinstance(error, MISTAKES):
            session.mistake = session.mistake or error
        session.seal_error(step, error.error if type(error) is Stopped else error)
        raise
    session.seal(step, value)
    return value if port.decode is None or port.stream else _decoded(port, step, value)


def _deliver(step: AskedStep, value: Any) -> Generator[Command, Any, None]:
    """Pass the chunks of a stream on that the agent has not got while they came. The step is open until it has read them."""
    command = Deliver(list(value or ()))
    try:
        yield command
    except BaseException:
        step.delivered = command.passed
        raise


def _decoded(port: Port, step: AskedStep, value: Any) -> Any:
    """The reply as the client's object: the very one that the port returned, where nothing has changed it."""
    if step.client_reply is not None and step.client_reply[0] is value:
        return step.client_reply[1]
    assert port.decode is not None
    return port.decode(thaw(value))


def _mediate(
    session: Session, layer: SessionMediation, step: AskedStep, port: Port
) -> Generator[Command, Any, Callable[[FrozenDict], Any] | None]:
    """Ask governance, and note the decision on the step. Returns the stand-in for the port, if any. Raises Blocked."""
    decided, stand_in = layer.mediate(step), None
    while isinstance(decided, Pending):
        decided = yield from _ask_approver(session, decided)
    if isinstance(decided, StandIn):
        stand_in, decided = decided.call, decided.mediation
    if decided is not None:
        step.mediation = decided
        if decided.decision == "block":
            step.error_kind = "blocked"
            raise Blocked(decided.reason or f"{port.name} is not allowed")
        if decided.arguments is not None:
            step.replaced_arguments = decided.arguments
    return stand_in


def _ask_approver(session: Session, pending: Pending) -> Generator[Command, Any, MediationOutcome]:
    """Ask an approver, as a separate step that is pending until the answer arrives."""
    asked, answer = session.ask(pending.port, pending.request), None
    try:
        if pending.call is not None:
            answer = yield Ask(pending.call)
        settled = pending.settle(answer, f"step#{asked.step}")
    except BaseException as error:
        pending.abandon()
        session.seal_error(asked, error)
        raise
    session.seal(asked, settled.observation)
    return settled.decision


def _as_reply(port: Port, value: Any) -> Any:
    """The reply of a stand-in or of a fault in the form of the port's reply: a stream has chunks."""
    if not port.stream or isinstance(value, list):
        return value
    return list(value) if isinstance(value, tuple) else [value]


def _confirm_approval(session: Session, step: AskedStep) -> None:
    """Check again, before the port gets the call, that it is still the approved one, in time. Raises Blocked if it is not."""
    refused = None if session.mediation is None else session.mediation.confirm(step)
    if refused is not None:
        step.mediation, step.error_kind = refused, "blocked"
        raise Blocked(refused.reason)


def _serve(session: Session, step: Any, port: Port, given: Mapping[str, Any], command: Invoke = _INVOKE) -> Crossing:
    """Serve the reply from tape, else call the port. The reply is taped before any fault changes it.

    `given`: the objects that the caller passed, by name.
    """
    reply = session.tape.serve(step) if session.tape is not None and port.tape == "external" else None
    if isinstance(reply, BaseException):
        session.heard(step, None, reply)
        raise reply
    if reply is not None:
        if port.stream:
            chunks = _recorded_chunks(session, step, reply)
            known = reply.value if isinstance(reply, Reply) else None
            again = Invoke(through=command.through, midstream=command.midstream, recorded=chunks, known=known)
            return (yield from _stream(session, step, again))
        session.heard(step, reply.value, None)
        return reply.value
    if session.crashed:  # while this call slept or waited
        step.error_kind = "crash"
        raise ProcessCrashed(f"{port.name}: the process has ended")
    judged = None
    refuse_after_end(session)  # the run may have ended while this call waited
    if session.mediation is not None:
        if step.mediation is not None and step.mediation.approval:
            _confirm_approval(session, step)
        judged = _as_judged(session.mediation, step, given)
    approved = step.mediation is not None and step.mediation.approval and type(given) is FrozenDict
    if judged or step.replaced_arguments is not None or port.stream or approved:
        changed = _replacements(step, approved=approved)
        command = Invoke(
            FrozenDict({**judged, **(changed or {})}) if judged else changed, through=command.through,
            midstream=command.midstream, keeps=session.tape is not None and session.tape.records(step),
        )  # fmt: skip
    step.invoked += 1
    if port.stream:
        return (yield from _stream(session, step, command))
    try:
        value = yield command
    except BaseException as error:
        session.heard(step, None, error.error if type(error) is Stopped else error)
        raise
    if port.encode is not None:
        original, value = value, port.encode(value)
        if step.client_reply is None:
            step.client_reply = (value, original)
    session.heard(step, value, None)
    return value


def _stream(session: Session, step: Any, command: Invoke) -> Crossing:
    """The chunks of a stream that the agent gets."""
    try:
        yield command
    except BaseException as error:
        step.delivered = command.passed
        _hear_stream(session, step, command, error.error if type(error) is Stopped else error)
        raise
    _hear_stream(session, step, command, StreamCut("the stream was cut"))
    fault, everything = command.midstream, command.everything
    if fault is not None and everything is not None and isinstance(fault.effect, Truncate) and not fault.fails:
        fault.happened = len(command.passed) < len(everything)  # a silent end where the stream ends makes no difference
    return command.passed if command.through else command.heard


def _hear_stream(session: Session, step: Any, command: Invoke, ending: BaseException) -> None:
    """Take what a port has sent: all of it, else the chunks so far and what ended the stream there."""
    everything = command.everything
    session.heard(step, command.heard if everything is None else everything, ending if everything is None else None)


def _recorded_chunks(session: Session, step: Any, reply: Reply | BrokenReply) -> Iterator[Any]:
    """The chunks of a recorded stream, and the error that it ended with."""
    yield from reply.value
    if isinstance(reply, BrokenReply):
        assert session.tape is not None
        raise session.tape.read_on(step) if reply.error is None else reply.error


def _as_judged(layer: SessionMediation, step: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the caller has changed since they were judged, as they were then; raises Blocked for others.

    A list or mapping of plain data is restored from its recorded form. What cannot be restored, such as a set or an object of a
    class, must not run changed. Nothing sees a change while the port runs.
    """
    restored: dict[str, Any] = {}
    lost: list[str] = []
    judged, replaced = step.passed_arguments, step.replaced_arguments
    for name, value in given.items():
        if type(value) in IMMUTABLE or name not in judged:
            continue
        if replaced is not None and replaced.get(name) is not judged[name]:  # another value runs in its place
            continue
        if _is_still(value, judged[name]):
            continue
        if _is_plain_data(value):
            restored[name] = judged[name]
        else:
            lost.append(name)
    if lost:
        step.mediation, step.error_kind = layer.refuse_changed(step, lost), "blocked"
        raise Blocked(step.mediation.reason)
    return restored


def _is_still(value: Any, judged: Any) -> bool:
    try:
        now = snapshot(value)
        return now is judged or canonical(now) == canonical(judged)
    except Exception:  # it had a recorded form when it was judged
        return False


def _is_plain_data(value: Any) -> bool:
    """Whether a value consists of lists and mappings of plain values, which their recorded form restores exactly."""
    if type(value) is list:
        return all(map(_is_plain_data, value))
    if type(value) is dict:
        return all(type(key) is str and _is_plain_data(item) for key, item in value.items())
    return type(value) in IMMUTABLE


def _replacements(step: Any, *, approved: bool) -> FrozenDict | None:
    """The parameters that governance or an operator replaced; all others reach the port as the caller gave them.

    `approved`: an approved call of an adapter, which gives recorded forms only. Its lists and mappings are passed as they were
    when it was asked, because the framework may have changed its objects since.
    """
    passed = step.passed_arguments
    if approved:
        current = step.current_arguments.items()
        return FrozenDict(
            {name: item for name, item in current if isinstance(item, dict | list) or item is not passed.get(name)}
        )
    if step.replaced_arguments is None:
        return None
    replaced = step.replaced_arguments.items()
    return FrozenDict({name: item for name, item in replaced if name not in passed or item is not passed[name]})


def _perturb(session: Session, faults: SessionFaults, step: Any, port: Port, phase: str, given: Mapping[str, Any]) -> Crossing:
    """The fault layer: ask the operator in its phase, and carry out its effect."""
    effect: Effect = faults.decide(step, None) if phase == "before" else PASS
    fault: Disturbance | None = None
    match effect:
        case Raise():
            faults.acted(step, effect, differs=True)
            raise (yield from _port_error(faults, step, effect))
        case Replace(value=value):
            faults.acted(step, effect, differs=True)
            return _as_reply(port, value)
        case Drop():
            faults.acted(step, effect, differs=True)
            return [] if port.stream else None
        case Rewrite(arguments=changed):
            base = step.replaced_arguments if step.replaced_arguments is not None else step.passed_arguments
            faults.acted(step, effect, differs=any(name not in base or base[name] != changed[name] for name in changed))
            step.replaced_arguments = FrozenDict({**base, **changed})
        case Truncate() | Stall() | Repeat():
            fault = Disturbance(effect)
        case Hold() | Crash():
            needed = "order" if isinstance(effect, Hold) else "process"
            raise _phase_error(
                effect,
                f"a call of {port.name}",
                f"only operators of the {needed} boundary do that",
                f"name it {needed}.something",
            )
        case Delay(ms=ms):
            faults.acted(step, effect, differs=ms > 0)
            yield Sleep(ms / 1000)
        case Duplicate() | Pass():
            pass
    try:
        value = yield from _serve(session, step, port, given, Invoke(through=phase == "before", midstream=fault))
    except StreamSilent:
        step.error_kind = "timeout"
        said = f"{port.name}: the stream was silent for too long"
        raise faults.failure(step, "timeout", said, retry_after_s=None, midway=False) from None
    finally:
        if fault is not None:
            faults.acted(step, effect, differs=fault.happened)
    if isinstance(effect, Truncate) and fault is not None and fault.fails and fault.happened:
        step.error_kind, step.delivered = effect.kind, list(value)
        said = f"{port.name}: the stream broke after {len(value)} chunks"
        raise faults.failure(step, effect.kind, said, retry_after_s=None, midway=True)
    if isinstance(effect, Duplicate):
        faults.acted(step, effect, differs=True)
        for _ in range(effect.times):
            try:
                yield from _serve(session, step, port, given, Invoke(through=False))
            except MatError:
                raise
            except Exception:  # the caller already has its reply: an error of the second delivery stays unseen
                continue
    if phase != "after":
        return value
    return (yield from _perturb_reply(faults, step, port, value))


def _perturb_reply(faults: SessionFaults, step: Any, port: Port, value: Any) -> Crossing:
    effect = faults.decide(step, Reply(value))
    match effect:
        case Pass():
            return value
        case Raise():
            faults.acted(step, effect, differs=True)
            raise (yield from _port_error(faults, step, effect))
        case Replace(value=replaced):
            faults.acted(step, effect, differs=True)
            return _as_reply(port, replaced)
        case Delay(ms=ms):
            faults.acted(step, effect, differs=ms > 0)
            yield Sleep(ms / 1000)
            return value
        case Drop():
            faults.acted(step, effect, differs=True)
            return [] if port.stream else None
        case Truncate(chunks=limit):
            if not port.stream:
                return value
            faults.acted(step, effect, differs=len(value) > limit)
            return value[:limit]
        case Duplicate() | Rewrite() | Hold() | Crash() | Stall() | Repeat():
            raise _phase_error(
                effect, f"a reply of {port.name}", "the port has already been invoked", 'give the operator phase="before"'
            )


def _phase_error(effect: Effect, where: str, why: str, fix: str) -> SpecError:
    return SpecError(what=f"an operator returned {type(effect).__name__} for {where}", why=why, fix=fix)


def _port_error(faults: SessionFaults, step: Any, effect: Raise) -> Generator[Command, Any, BaseException]:
    if effect.delay_ms:
        yield Sleep(effect.delay_ms / 1000)
    step.error_kind = effect.kind
    return faults.failure(step, effect.kind, effect.message, retry_after_s=effect.retry_after_s, midway=effect.midway)


def drive(steps: Crossing, call: Callable[[FrozenDict | None], Any]) -> Any:
    """Run a crossing in synchronous code. `call(changed)` invokes the port."""
    try:
        command = next(steps)
        while True:
            try:
                answer = call(command.changed) if type(command) is Invoke else perform(command)
            except StopIteration as error:
                command = steps.throw(Stopped(error))
            except BaseException as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration as done:
        return done.value
    except Stopped as carried:
        raise carried.error from None


def perform(command: Command) -> Any:
    """Sleep, let other calls go first, or ask an approver, in synchronous code."""
    if isinstance(command, Sleep):
        import time

        time.sleep(command.seconds)
        return None
    if isinstance(command, Deliver):  # to a caller that gets all chunks at once
        return None
    if isinstance(command, Wait):
        world = worlds.current()
        return 0 if world is None else world.let_others(command.turns)
    assert isinstance(command, Ask)
    return plain_answer(command.call())


def plain_answer(answer: Any) -> Any:
    """An approver's answer in synchronous code. An awaitable is refused: it would count as yes."""
    if inspect.isawaitable(answer):
        close = getattr(answer, "close", None)
        if close is not None:  # a coroutine that nobody awaits
            close()
        raise SpecError(
            what="the approver is async, but this call is not",
            why="synchronous code cannot await its answer",
            fix="give a plain function as approver, or make the call from async code",
        )
    return answer


async def drive_async(steps: Crossing, call: Callable[[FrozenDict | None], Awaitable[Any]]) -> Any:
    """Run a crossing in async code."""
    world = worlds.current()
    if world is not None:
        world.check_loop()
    try:
        command = next(steps)
        while True:
            try:
                answer = await perform_async(command, call)
            except BaseException as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration as done:
        return done.value


async def perform_async(command: Command, call: Callable[[FrozenDict | None], Any]) -> Any:
    """Do what a crossing yields, in async code. `call(changed)` invokes the port."""
    if isinstance(command, Invoke):
        return await call(command.changed)
    if isinstance(command, Sleep):
        return await sleep_async(command.seconds)
    if isinstance(command, Deliver):
        return None
    if isinstance(command, Wait):
        world = worlds.current()
        return 0 if world is None else await world.let_others_async(command.turns)
    answer = command.call()
    return await answer if inspect.isawaitable(answer) else answer


async def sleep_async(seconds: float) -> None:
    """Sleep in the async library that runs the caller: asyncio, else trio."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        import trio

        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


async def within_async(seconds: float, waiting: Awaitable[Any]) -> Any:
    """Await for so long at most; TimeoutError after that. What need not wait is done at once, in no task of its own."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        with trio.fail_after(seconds):
            return await waiting
    return await _Within(loop, seconds, waiting)


class _Within:
    """An await with a limit, whichever task goes on with it: aiohttp closes a response in no coroutine."""

    def __init__(self, loop: Any, seconds: float, waiting: Awaitable[Any]) -> None:
        self._loop, self._seconds, self._waiting = loop, seconds, waiting
        self._future: Any = None
        self._late = False

    def _stop_waiting(self) -> None:
        self._late = True
        if self._future is not None:
            self._future.cancel()

    def __await__(self) -> Generator[Any, Any, Any]:
        import asyncio

        steps: Any = self._waiting.__await__()
        resume, given, timer = steps.send, None, None
        try:
            while True:
                self._future = resume(given)
                if timer is None:
                    timer = self._loop.call_later(self._seconds, self._stop_waiting)
                if self._late:
                    self._stop_waiting()
                try:
                    resume, given = steps.send, (yield self._future)
                except BaseException as error:
                    resume, given = steps.throw, error
        except StopIteration as done:
            return done.value
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._late or (task is not None and task.cancelling()):
                raise
            raise TimeoutError from None
        finally:
            if timer is not None:
                timer.cancel()
