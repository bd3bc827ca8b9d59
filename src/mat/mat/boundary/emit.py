"""Reports of agents: who acts, messages, claims, checks, detections, mitigations, the end. No-ops outside a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from mat.boundary.crossing import crossing, drive, drive_async, plain_answer
from mat.boundary.integrity import Integrity
from mat.boundary.issue import issue
from mat.boundary.port import Port, make_port
from mat.boundary.session import Session, active, current_session
from mat.core.allowed import Allowed
from mat.core.endpoint import allowed_data
from mat.core.errors import Blocked, RunStopped, SpecError
from mat.core.record import ActionKind
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments

Mitigation: TypeAlias = Literal["retry", "alternate", "replan", "clarify", "escalate", "sandbox", "block"]
MITIGATIONS: Final = ("retry", "alternate", "replan", "clarify", "escalate", "sandbox", "block")
FinishStatus: TypeAlias = Literal["completed", "aborted", "failed"]

acting: ContextVar[tuple[str, str]] = ContextVar("mat_agent", default=("main", ""))
"""(agent, role) of the agent that acts in this context."""


class Talking(Session, Protocol):
    """A session as this module needs it: it also records reports that cross no boundary."""

    def emit(self, kind: ActionKind, name: str, arguments: FrozenDict, supports: Iterable[object] = ()) -> None: ...
    def project(self, signals: Mapping[str, object]) -> None: ...
    def secret(self, text: str) -> None: ...
    def finish(self, status: FinishStatus, answer: object) -> None: ...
    def observe(self, name: str, text: str, *, ttl_ms: int | None, integrity: Integrity, supersedes: bool) -> None: ...


def _talking() -> Talking | None:
    return cast("Talking | None", active())


class agent:  # noqa: N801  (reads as a statement: with mat.agent(...))
    """Name the agent that acts inside the block; blocks nest, and can be `with` or `async with`."""

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
    """Mark text that enters from outside: it is recorded as a message from that channel, and prompt operators can change it."""
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
    """Record a check and its outcome; returns `passed`, so that it can be used in an `if`."""
    session = _talking()
    if session is not None:
        session.emit("verification", what, FrozenDict({"passed": bool(passed)}), supports)
    return passed


def observed(
    value: str,
    *,
    name: str = "artefact",
    ttl_ms: int | None = None,
    integrity: Integrity | None = None,
    supersedes: bool = False,
) -> str:
    """Declare that a text is an artifact issued now, to be used unchanged and within `ttl_ms`; returns it.

    The contract is (artifact, issued at, time to live, integrity), with sha256() by default. `supersedes`: it ends
    the earlier artifacts of its name. If every reply of a port brings one, declare it once with `@mat.tool(issues=...)`.
    """
    declared = issue(name, ttl_ms=ttl_ms, integrity=integrity, supersedes=supersedes)
    if not isinstance(value, str) or not value:
        raise SpecError(
            what="an artifact is a non-empty string", why=f"got {type(value).__qualname__}", fix="pass the text itself"
        )
    session = _talking()
    if session is not None:
        session.observe(name, value, ttl_ms=ttl_ms, integrity=declared.integrity, supersedes=supersedes)
    return value


def claim(text: str, supports: Iterable[object] = ()) -> str:
    """Record a claim and the results, passages or rows that support it; returns the text."""
    session = _talking()
    if session is not None:
        session.emit("claim", "claim", FrozenDict({"text": text}), supports)
    return text


def detect(what: str, supports: Iterable[object] = ()) -> None:
    """Record that the agent recognised a fault."""
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
    """Send a message to an agent or to "user". Returns what was delivered, None if it was lost."""
    session = active()
    if session is None:
        return text
    arguments = snapshot_arguments({"text": text, "sender": acting.get()[0]}, f"message to {to}")
    return cast("str | None", drive(crossing(session, _port("message", to, "delegation"), arguments), _delivered("text", text)))


def _delivered(field: str, given: Any) -> Any:
    def deliver(changed: FrozenDict | None) -> Any:
        return changed[field] if changed and field in changed else given

    return deliver


class DelegatedTask:
    """A delegated task, from the step that delegated it until it is handed back.

    `outer`: the tasks under which it was delegated, outermost first. `entered`: somebody acts on it in a separate
    context; otherwise it binds its agent in all contexts. `owner`: who keeps account of it, in the run `session`.
    """

    __slots__ = ("agent", "delegator", "ended", "entered", "outer", "owner", "session", "step")

    def __init__(self, step: int, delegator: str, agent: str, outer: tuple[DelegatedTask, ...], owner: object) -> None:
        self.step, self.delegator, self.agent, self.outer, self.owner = step, delegator, agent, outer, owner
        self.entered = self.ended = False
        self.session = active()


tasks: ContextVar[tuple[DelegatedTask, ...]] = ContextVar("mat_tasks", default=())
"""The delegated tasks that the agent of this context works on, outermost first. Empty without governance."""
delegated: ContextVar[DelegatedTask | None] = ContextVar("mat_delegated", default=None)
"""The task that the mediator last let pass in this context, or that ended last."""


def take_task() -> DelegatedTask | None:
    """The task that was just delegated in this context, if a mediator keeps account of tasks in this run."""
    task = delegated.get()
    return task if task is not None and task.session is active() else None


@contextmanager
def entered(task: DelegatedTask | None) -> Iterator[None]:
    """Work on this task inside the block, limited to what its delegators may do; the task ends with the block."""
    if task is None:
        yield
        return
    token = _enter(task)
    try:
        yield
    finally:
        _leave(task, token)


def _enter(task: DelegatedTask) -> Any:
    task.entered, task.ended = True, False  # a hand-off that is delivered twice is begun twice
    before = tasks.get()
    return tasks.set((*before, *(item for item in (*task.outer, task) if item not in before)))


def _leave(task: DelegatedTask, token: Any) -> None:
    task.ended = True
    tasks.reset(token)
    delegated.set(task)


class delegate:  # noqa: N801  (also a statement: with mat.delegate(...))
    """Hand a task to another agent. As a context manager, that agent acts inside the block. `task` is what was delivered.

    The end of the block is recorded too: the agent hands back to whoever delegated.
    """

    __slots__ = ("_agent", "_delegator", "_taken", "_token", "task")

    def __init__(self, to: str, task: str = "", *, role: str = "") -> None:
        self._agent = agent(to, role=role or to)
        self._delegator = acting.get()[0]
        self.task: str | None = task
        self._taken: DelegatedTask | None = None
        self._token: Any = None
        session = active()
        if session is not None:
            arguments = snapshot_arguments({"task": task, "delegator": acting.get()[0]}, f"delegation to {to}")
            steps = crossing(session, _port("delegation", to, "delegation"), arguments)
            self.task = drive(steps, _delivered("task", task))
            self._taken = take_task()

    def __enter__(self) -> delegate:
        self._agent.__enter__()
        if self._taken is not None:
            self._token = _enter(self._taken)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not isinstance(error, RunStopped):
                hand_back(self._delegator, self._taken)
        finally:
            if self._taken is not None:
                _leave(self._taken, self._token)
            self._agent.__exit__(kind, error, trace)

    async def __aenter__(self) -> delegate:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


@contextmanager
def handed_over(to: str, role: str) -> Iterator[None]:
    """Inside the block, the agent `to` acts on what it was handed; at the end it hands back. Does nothing outside a run."""
    if active() is None:
        yield
        return
    delegator, task = acting.get()[0], take_task()
    with entered(task), agent(to, role=role or to):
        try:
            yield
        except RunStopped:
            raise
        except BaseException:
            hand_back(delegator, task)
            raise
        hand_back(delegator, task)


def hand_back(delegator: str, task: DelegatedTask | None = None) -> None:
    """Record that the acting agent has ended its delegated task; `task` if governance keeps account of it."""
    session = _talking()
    if session is not None:
        found = {"agent": acting.get()[0]} if task is None else {"agent": acting.get()[0], "task": f"step#{task.step}"}
        session.emit("handback", delegator, snapshot_arguments(found, "hand-back"))


def grant(to: str, tool: str, /, *, calls: int | None = None, within_ms: int | None = None, **parameters: Allowed) -> bool:
    """Permit an agent something that its own capabilities do not; False if governance refuses. Both are recorded.

    `tool` and `parameters` as `mat.policy.capability` takes them, without functions, because the trace records the grant. The
    acting agent must hold what it grants, or be declared as a granter. It holds for `calls` calls and `within_ms`
    milliseconds of run time, by default without limit, and ends with the delegation in which it was made.
    """
    session = active()
    if session is None:
        return True
    steps = crossing(session, _granting(to), _grant_arguments(to, tool, calls, within_ms, parameters))
    try:
        return drive(steps, lambda changed: True) is True
    except Blocked:
        return False


async def grant_async(
    to: str, tool: str, /, *, calls: int | None = None, within_ms: int | None = None, **parameters: Allowed
) -> bool:
    """Like `grant`, for governance that may ask an async approver."""
    session = active()
    if session is None:
        return True

    async def made(changed: FrozenDict | None) -> bool:
        return True

    steps = crossing(session, _granting(to), _grant_arguments(to, tool, calls, within_ms, parameters))
    try:
        return await drive_async(steps, made) is True
    except Blocked:
        return False


def _granting(to: str) -> Port:
    port = _grants.get(to)
    if port is None:
        port = _grants[to] = Port(name=to, kind="grant", boundary="", effect="none")
        if len(_grants) > 10_000:
            _grants.clear()
    return port


_grants: dict[str, Port] = {}


def _grant_arguments(
    to: str, tool: str, calls: int | None, within_ms: int | None, parameters: Mapping[str, Allowed]
) -> FrozenDict:
    problems = [
        f"{name}={value!r} is not an integer >= 1"
        for name, value in (("calls", calls), ("within_ms", within_ms))
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1)
    ]
    problems += [f"{name}={value!r} is empty" for name, value in (("to", to), ("tool", tool)) if not value]
    if problems:
        raise SpecError(what=f"a grant to {to!r}: {'; '.join(problems)}", fix='write mat.grant("mailer", "send", calls=1)')
    data = {name: allowed_data(allowed, f"grant of {tool}, {name}") for name, allowed in sorted(parameters.items())}
    return snapshot_arguments({"tool": tool, "parameters": data, "calls": calls, "within_ms": within_ms}, f"grant to {to}")


_APPROVAL: Final = Port(name="approval", kind="approval", boundary="", effect="none")


def approval(what: str, **details: object) -> bool:
    """Ask the run's approver and record the answer; anything but True means no, as do no approver and no run."""
    session = active()
    if session is None:
        return False
    steps, call = _approval(session, what, details)
    return drive(steps, lambda changed: says_yes(plain_answer(call(changed)))) is True


async def approval_async(what: str, **details: object) -> bool:
    """Like `approval`, for an async approver."""
    session = active()
    if session is None:
        return False
    steps, call = _approval(session, what, details)

    async def asked(changed: FrozenDict | None) -> Any:
        import inspect

        answer = call(changed)
        return says_yes(await answer if inspect.isawaitable(answer) else answer)

    return await drive_async(steps, asked) is True


def says_yes(answer: object) -> bool:
    """Whether an approver's answer is yes: True itself, or an answer object that says it approved."""
    return answer is True or getattr(answer, "approved", None) is True


def _approval(session: Session, what: str, details: Mapping[str, object]) -> tuple[Any, Any]:
    from dataclasses import replace

    arguments = snapshot_arguments(details, f"approval of {what}")
    approver = getattr(session, "approver", None)
    steps = crossing(session, replace(_APPROVAL, name=what), arguments)
    return steps, lambda changed: False if approver is None else approver(what, arguments)


def finish(answer: object = None, *, status: FinishStatus = "completed") -> None:
    """End the run: with a final response, as a safe abort, or as an explicit failure."""
    if status not in ("completed", "aborted", "failed"):
        raise SpecError(what=f"no finish status is called {status!r}", fix="use completed, aborted or failed")
    session = _talking()
    if session is not None:
        session.finish(status, answer)


_process_secrets: dict[str, None] = {}


def secret(value: str) -> str:
    """Declare a text that must not appear in any file; returns it unchanged. Declared outside a run, it holds for all runs."""
    if not isinstance(value, str) or not value:
        raise SpecError(
            what="a secret is a non-empty string", why=f"got {type(value).__qualname__}", fix="pass the text itself"
        )
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
