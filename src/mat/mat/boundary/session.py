"""The run that calls belong to: what a crossing asks of it, what its mediator may decide, and which run that is."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mat.boundary.effect import Effect, Reply
from mat.boundary.port import Port
from mat.core.errors import Blocked
from mat.core.record import Mediation
from mat.core.value import FrozenDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A mediation that waits for an approver: an approval record of its own is asked, and sealed with the outcome.

    `call` asks the approver; None where nobody is asked now. `settle(answer, artefact)` turns the answer into the final
    decision, given the artefact of the approval record; `abandon` undoes what the proposal took where no answer comes.
    """

    port: Port
    request: FrozenDict
    call: Callable[[], Any] | None
    settle: Callable[[Any, str], Settled]
    abandon: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What an approver's answer led to. `said` is what the approval record observes; `decision` may wait for another one."""

    said: FrozenDict
    decision: MediationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A mediation that lets nothing through to the port: what `call` answers to the arguments is delivered instead."""

    mediation: Mediation
    call: Callable[[FrozenDict], Any]


MediationOutcome: TypeAlias = Mediation | Pending | StandIn


class AskedStep(Protocol):
    """A step that was asked and is not sealed yet; what the layers learn is noted on it."""

    step: int
    asked: FrozenDict
    mediation: Mediation | None
    executed: FrozenDict | None
    invoked: int
    error_kind: str
    passed: list[Any] | None

    @property
    def given(self) -> FrozenDict:
        """The arguments the port would get now."""


class SessionMediation(Protocol):
    """Governance of a run."""

    def mediate(self, opened: Any, /) -> MediationOutcome | None: ...
    def confirm(self, opened: Any, /) -> Mediation | None:
        """Asked once more, after the fault layer, where the action was approved: a block where that no longer holds."""


class MeteringLayer(Protocol):
    """The resource contracts of a run. `active`: somebody works under one."""

    active: bool

    def reserve(self, opened: Any, /) -> Blocked | None:
        """Hold what the call may consume, under the contract in force here; what to raise where no budget holds it."""


class SessionFaults(Protocol):
    """The schedule of a run.

    `interleaves`: the order in which concurrent calls go on is searched, or decided by the schedule.
    """

    interleaves: bool

    def turns(self, opened: Any, /, *, suspends: bool) -> int:
        """How many calls of others go first here; 0 for none. `suspends`: the caller can be suspended (async code)."""

    def phase(self, opened: Any, /) -> str:
        """The phase in which the schedule acts on this call: "", "before" or "after"."""

    def decide(self, opened: Any, reply: Reply | None, /) -> Effect: ...
    def acted(self, opened: Any, effect: Effect, /, *, differs: bool) -> None: ...


class SessionTape(Protocol):
    """What ports said in a recorded run."""

    def serve(self, opened: Any, /) -> Reply | BaseException | None: ...


class Session(Protocol):
    """What a crossing needs of the run it belongs to. Layers that the run does not have are None."""

    closed: bool

    @property
    def mediation(self) -> SessionMediation | None: ...
    @property
    def metering(self) -> MeteringLayer: ...
    @property
    def faults(self) -> SessionFaults | None: ...
    @property
    def tape(self) -> SessionTape | None: ...
    def ask(self, port: Port, arguments: dict[str, Any]) -> Any:
        """Number the step and take the snapshot of its arguments, where they are not in recorded form yet."""

    def heard(self, opened: Any, value: Any, error: BaseException | None) -> None:
        """The port has spoken: goes on tape, before faults."""

    def seal(self, opened: Any, value: Any) -> None: ...
    def seal_error(self, opened: Any, error: BaseException) -> None: ...


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
