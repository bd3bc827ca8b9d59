"""What an agent says about itself: who acts, messages, claims, checks, detection, mitigation, the end. No-ops outside a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from mat.boundary.crossing import Session, active, crossing, current_session, drive, drive_async, plain_answer
from mat.boundary.port import Port, make_port
from mat.core.errors import RunStopped, SpecError
from mat.core.record import ActionKind
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments

Mitigation: TypeAlias = Literal["retry", "alternate", "replan", "clarify", "escalate", "sandbox", "block"]
MITIGATIONS: Final = ("retry", "alternate", "replan", "clarify", "escalate", "sandbox", "block")
FinishStatus: TypeAlias = Literal["completed", "aborted", "failed"]

acting: ContextVar[tuple[str, str]] = ContextVar("mat_agent", default=("main", ""))
"""(agent, role) of whoever acts in this context."""


class Talking(Session, Protocol):
    """A session as this module needs it: it also takes notes that cross no boundary."""

    def emit(self, kind: ActionKind, name: str, arguments: FrozenDict, supports: Iterable[object] = ()) -> None: ...
    def project(self, signals: Mapping[str, object]) -> None: ...
    def secret(self, text: str) -> None: ...
    def finish(self, status: FinishStatus, answer: object) -> None: ...


def _talking() -> Talking | None:
    return cast("Talking | None", active())


class agent:  # noqa: N801  (reads as a statement: with mat.agent(...))
    """Who acts inside the block; nests, and works as a plain or an async context manager."""

    __slots__ = ("_name", "_role", "_tokens")

    def __init__(self, name: str, *, role: str = "") -> None:
        if not name:
            raise SpecError(what="an agent needs a name", why="steps and sites name who acted", fix='mat.agent("planner")')
        self._name, self._role = name, role
        self._tokens: list[Any] = []

    def __enter__(self) -> agent:
        self._tokens.append(acting.set((self._name, self._role)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        acting.reset(self._tokens.pop())

    async def __aenter__(self) -> agent:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


_ports: dict[tuple[str, str], Port] = {}


def _port(kind: ActionKind, name: str, boundary: Literal["prompt", "delegation"]) -> Port:
    key = (kind if boundary != "prompt" else "prompt", name)
    found = _ports.get(key)
    if found is None:
        found = _ports[key] = make_port(name=name, kind=kind, boundary=boundary, effect="none", result_type=str)
        if len(_ports) > 10_000:
            _ports.clear()
    return found


def untrusted(text: str, channel: str = "user") -> str:
    """Text from outside enters here: recorded as a message from that channel, and open to prompt operators."""
    session = active()
    if session is None:
        return text
    arguments = snapshot_arguments({"text": text, "sender": channel}, f"untrusted text of {channel}")
    return cast(str, drive(crossing(session, _port("message", channel, "prompt"), arguments), _delivered("text", text)))


def state(**signals: object) -> None:
    """Update the state projection that records carry and potentials read, e.g. open_subtasks, approvals, retries."""
    session = _talking()
    if session is not None:
        session.project(signals)


def verify(what: str, passed: bool, supports: Iterable[object] = ()) -> bool:
    """Record a check and its outcome; returns `passed`, so that it can stand in an `if`."""
    session = _talking()
    if session is not None:
        session.emit("verification", what, FrozenDict({"passed": bool(passed)}), supports)
    return passed


def claim(text: str, supports: Iterable[object] = ()) -> str:
    """Record a claim and the results, passages or rows that support it; returns the text."""
    session = _talking()
    if session is not None:
        session.emit("claim", "claim", FrozenDict({"text": text}), supports)
    return text


def detect(what: str, supports: Iterable[object] = ()) -> None:
    """Record that a fault was recognised."""
    session = _talking()
    if session is not None:
        session.emit("detection", what, EMPTY, supports)


def mitigate(kind: Mitigation, **details: object) -> None:
    """Record a corrective action: retry, alternate, replan, clarify, escalate, sandbox or block."""
    if kind not in MITIGATIONS:
        raise SpecError(what=f"no mitigation is called {kind!r}", fix=f"use one of {', '.join(MITIGATIONS)}")
    session = _talking()
    if session is not None:
        session.emit("mitigation", kind, snapshot_arguments(details, "mitigation"))


def message(to: str, text: str) -> str | None:
    """Send a message to an agent or to "user". Returns what was delivered, None where it was lost."""
    session = active()
    if session is None:
        return text
    arguments = snapshot_arguments({"text": text, "sender": acting.get()[0]}, f"message to {to}")
    return cast("str | None", drive(crossing(session, _port("message", to, "delegation"), arguments), _delivered("text", text)))


def _delivered(field: str, given: Any) -> Any:
    def deliver(changed: FrozenDict | None) -> Any:
        return changed[field] if changed and field in changed else given

    return deliver


class delegate:  # noqa: N801  (also a statement: with mat.delegate(...))
    """Hand a task to another agent. As a context manager, that agent acts inside the block. `task` is what was delivered.

    The end of the block is recorded too: the agent hands back to whoever delegated.
    """

    __slots__ = ("_agent", "_delegator", "task")

    def __init__(self, to: str, task: str = "", *, role: str = "") -> None:
        self._agent = agent(to, role=role or to)
        self._delegator = acting.get()[0]
        self.task: str | None = task
        session = active()
        if session is not None:
            arguments = snapshot_arguments({"task": task, "delegator": acting.get()[0]}, f"delegation to {to}")
            steps = crossing(session, _port("delegation", to, "delegation"), arguments)
            self.task = drive(steps, _delivered("task", task))

    def __enter__(self) -> delegate:
        self._agent.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not isinstance(error, RunStopped):
                hand_back(self._delegator)
        finally:
            self._agent.__exit__(kind, error, trace)

    async def __aenter__(self) -> delegate:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def hand_back(delegator: str) -> None:
    """Record that the acting agent has ended what it was delegated."""
    session = _talking()
    if session is not None:
        session.emit("handback", delegator, snapshot_arguments({"agent": acting.get()[0]}, "hand-back"))


_APPROVAL: Final = Port(name="approval", kind="approval", boundary="", effect="none")


def approval(what: str, **details: object) -> bool:
    """Ask the run's approver; anything but True is no, and so is no approver. Recorded with the answer. Outside a run: no."""
    session = active()
    if session is None:
        return False
    steps, call = _approval(session, what, details)
    return drive(steps, lambda changed: plain_answer(call(changed)) is True) is True


async def approval_async(what: str, **details: object) -> bool:
    """The same for an async approver."""
    session = active()
    if session is None:
        return False
    steps, call = _approval(session, what, details)

    async def asked(changed: FrozenDict | None) -> Any:
        import inspect

        answer = call(changed)
        return (await answer if inspect.isawaitable(answer) else answer) is True

    return await drive_async(steps, asked) is True


def _approval(session: Session, what: str, details: Mapping[str, object]) -> tuple[Any, Any]:
    from dataclasses import replace

    arguments = snapshot_arguments(details, f"approval of {what}")
    approver = getattr(session, "approver", None)
    steps = crossing(session, replace(_APPROVAL, name=what), arguments)
    return steps, lambda changed: False if approver is None else approver(what, arguments)


def finish(answer: object = None, *, status: FinishStatus = "completed") -> None:
    """The run ends here: with a final response, or as a safe abort or an explicit failure."""
    if status not in ("completed", "aborted", "failed"):
        raise SpecError(what=f"no finish status is called {status!r}", fix="completed, aborted or failed")
    session = _talking()
    if session is not None:
        session.finish(status, answer)


_process_secrets: dict[str, None] = {}


def secret(value: str) -> str:
    """Declare a text that must appear in no artefact; returns it unchanged. Declared outside a run, it holds for all runs."""
    if not isinstance(value, str) or not value:
        raise SpecError(what="a secret is a non-empty text", why=f"got {type(value).__qualname__}", fix="pass the text itself")
    session = _talking()
    if session is not None and current_session.get() is not None:
        session.secret(value)
    else:
        _process_secrets[value] = None
        if session is not None:
            session.secret(value)
    return value


def process_secrets() -> dict[str, None]:
    return dict(_process_secrets)


@contextmanager
def bound(session: Session) -> Iterator[None]:
    """Make a run the active one in this context."""
    token = current_session.set(session)
    try:
        yield
    finally:
        current_session.reset(token)
