"""The run that calls belong to: what a crossing needs from it, what its mediator can decide, and which run is active."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from mat.boundary.effect import BrokenReply, Effect, Reply
from mat.boundary.port import Port
from mat.core.errors import Blocked, MatError
from mat.core.record import Mediation
from mat.core.resources import PER_PORT
from mat.core.value import FrozenDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A mediation that waits for an approver: a separate approval record is asked, and sealed with the outcome.

    `call` asks the approver; None if no approver is asked now. `settle(answer, artifact)` turns the answer into the final
    decision; `artifact` names the approval record. `abandon` releases what the proposal reserved if no answer comes.
    """

    port: Port
    request: FrozenDict
    call: Callable[[], Any] | None
    settle: Callable[[Any, str], Settled]
    abandon: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of an approver's answer. `observation` is that of the approval record; `decision` may be Pending again."""

    observation: FrozenDict
    decision: MediationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A mediation that replaces the port: the result of `call` with the arguments is delivered instead."""

    mediation: Mediation
    call: Callable[[FrozenDict], Any]


MediationOutcome: TypeAlias = Mediation | Pending | StandIn


class AskedStep(Protocol):
    """A step that was asked and is not sealed yet. Each layer notes its results on it."""

    step: int
    passed_arguments: FrozenDict
    mediation: Mediation | None
    replaced_arguments: FrozenDict | None
    invoked: int
    error_kind: str
    delivered: list[Any] | None
    client_reply: tuple[Any, Any] | None

    @property
    def current_arguments(self) -> FrozenDict:
        """The arguments that the port would get now."""


class SessionMediation(Protocol):
    """Governance of a run."""

    def mediate(self, opened: Any, /) -> MediationOutcome | None: ...
    def confirm(self, opened: Any, /) -> Mediation | None:
        """Check an approved action again after the fault layer; returns a block if the approval no longer holds."""

    def refuse_changed(self, opened: Any, names: list[str], /) -> Mediation:
        """Block an action whose parameters `names` were changed after it was judged."""


class MeteringLayer(Protocol):
    """The resource contracts of a run. `active`: an agent works under one; `governs`: the run's governance has one."""

    active: bool

    @property
    def governs(self) -> bool: ...

    def reserve(self, opened: Any, /) -> Blocked | None:
        """Reserve what the call may consume under the contract in force. Returns the error if a budget is too small."""


CallEnd: TypeAlias = Literal["reply", "cut", "failed"]
"""How a call outside of a run ended: with its whole reply, with a part of a stream, or without any reply."""


class CallCharge(Protocol):
    """A call outside of a run that a resource contract has admitted. It is settled once."""

    def settle(self, usage: FrozenDict, ending: CallEnd, /) -> None:
        """Charge what the call consumed. `usage`: the tokens that a model's reply names."""


class Meter(Protocol):
    """The resource contract that calls outside of runs are charged to."""

    def admit(self, port: Port, arguments: Mapping[str, Any], /) -> CallCharge:
        """Reserve what the call may consume. Raises `Blocked` if a budget is too small."""


class SessionFaults(Protocol):
    """The schedule of a run.

    `interleaves`: the order in which concurrent calls go on is searched, or decided by the schedule.
    """

    interleaves: bool

    def crashes(self, opened: Any, /) -> bool:
        """Whether the agent's process ends at this call."""

    def turns(self, opened: Any, /, *, suspends: bool) -> int:
        """How many other calls go first here. `suspends`: the caller can be suspended (async code)."""

    def phase(self, opened: Any, /) -> str:
        """The phase in which the schedule acts on this call: "", "before" or "after"."""

    def decide(self, opened: Any, reply: Reply | None, /) -> Effect: ...
    def acted(self, opened: Any, effect: Effect, /, *, differs: bool) -> None: ...
    def failure(self, opened: Any, kind: str, message: str, /, *, retry_after_s: float | None, midway: bool) -> BaseException:
        """The exception that the agent gets for a kind of failure. `midway`: a part of the reply has arrived."""


class SessionTape(Protocol):
    """The recorded replies of the ports in a run."""

    def serve(self, opened: Any, /) -> Reply | BrokenReply | BaseException | None: ...
    def records(self, opened: Any, /) -> bool:
        """Whether this is a live call whose reply is kept."""

    def read_on(self, opened: Any, /) -> BaseException:
        """The error of a run that reads a stream further than the recorded one did; the run is invalid."""


class Session(Protocol):
    """What a crossing needs from its run. Layers that the run does not have are None."""

    closed: bool
    crashed: bool
    mistake: MatError | None
    """The first mistake of whoever wrote the test or the agent that a crossing refused. The end of the run raises it, because
    agents and frameworks catch every exception of a tool."""

    def crash(self) -> None:
        """End the agent's process: until the run is resumed, no call reaches a port."""

    @property
    def mediation(self) -> SessionMediation | None: ...
    @property
    def metering(self) -> MeteringLayer: ...
    @property
    def faults(self) -> SessionFaults | None: ...
    @property
    def tape(self) -> SessionTape | None: ...
    def ask(self, port: Port, arguments: dict[str, Any]) -> Any:
        """Number the step and take a snapshot of its arguments, unless they are already in recorded form."""

    def heard(self, opened: Any, value: Any, error: BaseException | None) -> None:
        """Tape the port's reply, before faults change it."""

    def seal(self, opened: Any, value: Any) -> None: ...
    def seal_error(self, opened: Any, error: BaseException) -> None: ...


current_session: ContextVar[Session | None] = ContextVar("mat_session", default=None)
current_meter: ContextVar[Meter | None] = ContextVar("mat_meter", default=None)
"""The meter of calls outside of runs, None without a contract. Inside a run, the run meters its calls itself."""
_ambient: list[Session] = []
"""Runs that own the whole process (a pytest item): threads and tasks that inherited no context find them here."""


AFTER_THE_END: Final = "the run that this call belongs to has ended, and its governance lets nothing pass after the end"


def refuse_after_end(session: Session) -> None:
    """Raise Blocked if the run was governed and has ended."""
    if session.closed and (session.mediation is not None or session.metering.governs):
        raise Blocked(AFTER_THE_END)


def active(*, refuse: bool = True) -> Session | None:
    """The run that calls belong to, or None; then an instrumented call is a plain call.

    `refuse`: raise Blocked where the caller carries a governed run that has ended, because a task or thread outlived it. A
    plain call there would pass the governance that it was under.
    """
    session = current_session.get()
    if session is None:
        return _ambient[-1] if _ambient else None
    if session.closed:
        if refuse:
            refuse_after_end(session)
        if _ambient and not _ambient[-1].closed and _ambient[-1] is not session:
            _warn_finished()
        return None
    return session


def meter_of(port: Port) -> Meter | None:
    """The contract that a call of this port outside of a run is charged to, or None; then it is a plain call."""
    meter = current_meter.get()
    return meter if meter is not None and port.kind in PER_PORT else None


def calls_are_plain() -> bool:
    """Whether calls here are plain ones: no run records them, and no contract outside of runs is charged for them."""
    return active() is None and current_meter.get() is None


def _warn_finished() -> None:
    import warnings

    message = (
        "a call belongs to a run that is over, so it is not recorded: a task or thread outlived its test; "
        "end it before the test returns"
    )
    warnings.warn(message, stacklevel=4)


def push_ambient(session: Session) -> None:
    _ambient.append(session)


def pop_ambient(session: Session) -> None:
    if session in _ambient:
        _ambient.remove(session)
