"""Reports of agents: who acts, messages, claims, checks, detections, mitigations, the end. No-ops outside a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
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
from mat.core.redact import declare
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments

Mitigation: TypeAlias = Literal["retry", "alternate", "replan", "clarify", "escalate", "sandbox", "block"]
MITIGATIONS: Final = ("retry", "alternate", "replan", "clarify", "escalate", "sandbox", "block")
FinishStatus: TypeAlias = Literal["completed", "aborted", "failed"]

_PROGRAM: Final = "main"
acting: ContextVar[tuple[str, str]] = ContextVar("mat_agent", default=(_PROGRAM, ""))
"""(agent, role) of the agent that acts in this context."""
_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("mat_blocks", default=())
"""The blocks that this context is in, innermost last."""


class _Block:
    """One time that a block is entered: who acts in it, and the agents around it, outermost first.

    `enclosing`: those inside whose blocks it was entered without a delegation. `around`: these and the delegators, with roles.
    "main" is the program, and is around nobody.
    """

    __slots__ = ("around", "enclosing", "who")

    def __init__(self, who: tuple[str, str], *, encloses: bool) -> None:
        outer, self.who = acting.get(), who
        inner = _blocks.get()[-1:]
        self.enclosing: tuple[str, ...] = inner[0].enclosing if inner else ()
        self.around: tuple[tuple[str, str], ...] = inner[0].around if inner else ()
        if outer[0] != _PROGRAM and outer != who:
            self.around = (*self.around, outer)
            if encloses and outer[0] != who[0]:
                self.enclosing = (*self.enclosing, outer[0])


def _before(token: Token[Any]) -> Any:
    """The value of a variable before it was set; () if it had none."""
    return () if token.old_value is Token.MISSING else token.old_value


def enclosing() -> tuple[str, ...]:
    """The agents inside whose blocks this agent acts, outermost first, without its delegators."""
    blocks = _blocks.get()
    return blocks[-1].enclosing if blocks else ()


def around() -> tuple[tuple[str, str], ...]:
    """(agent, role) of all agents inside whose blocks this agent acts, outermost first, its delegators among them."""
    blocks = _blocks.get()
    return blocks[-1].around if blocks else ()


class ReportingSession(Session, Protocol):
    """A session that also records reports, which cross no boundary."""

    def emit(self, kind: ActionKind, name: str, arguments: FrozenDict, supports: Iterable[object] = ()) -> None: ...
    def project(self, signals: Mapping[str, object]) -> None: ...
    def secret(self, text: str) -> None: ...
    def finish(self, status: FinishStatus, answer: object) -> None: ...
    def observe(self, name: str, text: str, *, ttl_ms: int | None, integrity: Integrity, supersedes: bool) -> None: ...


def _refuse_no_text(value: object, what: str) -> None:
    """Raise SpecError for what is not a string, or is an empty one."""
    if not isinstance(value, str) or not value:
        reason = "it is empty" if isinstance(value, str) else f"it is of type {type(value).__qualname__}"
        raise SpecError(what=f"{what} must be a non-empty string", why=reason, fix="pass the text itself")


def _reporting_session() -> ReportingSession | None:
    """The run that records a report; None outside a run, and after its end."""
    return cast("ReportingSession | None", active(refuse=False))


class agent:  # noqa: N801  (reads as a statement: with mat.agent(...))
    """Name the agent that acts inside the block. Blocks nest, and can be `with` or `async with`.

    `role`: what the agent is there for, such as "planner"; contracts and policies select by it. Code outside of any block is
    the agent "main". Under governance, an agent in the block of another may do only what both may do. Raises `mat.MatError`
    for an empty name.

    >>> @mat.tool
    ... def look_up(order): return {"order": order}
    >>> with mat.run() as run:
    ...     with mat.agent("clerk", role="planner"):
    ...         reply = look_up("A17")
    ...     reply = look_up("B4")
    >>> [(record.agent, record.role) for record in run.trace[:2]]
    [('clerk', 'planner'), ('main', '')]

    Source: A1.1.
    """

    __slots__ = ("_entered", "_name", "_role")

    def __init__(self, name: str, *, role: str = "") -> None:
        if not name:
            raise SpecError(what="an agent needs a name", why="steps and sites name who acted", fix='mat.agent("planner")')
        self._name, self._role = name, role
        self._entered: list[tuple[_Block, Token[Any], Token[Any]]] = []

    def _is_enclosed(self) -> bool:
        """Whether the agent that acts where the block is entered limits the one inside."""
        return True

    def __enter__(self) -> agent:
        block = _Block((self._name, self._role), encloses=self._is_enclosed())
        self._entered.append((block, _blocks.set((*_blocks.get(), block)), acting.set(block.who)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left, blocks_token, acting_token = self._entered.pop()
        if _blocks.get() == (*_before(blocks_token), left):
            with suppress(ValueError):  # entered in another context
                _blocks.reset(blocks_token)
                acting.reset(acting_token)
                return
        blocks = tuple(block for block in _blocks.get() if block is not left)  # a generator has left it in another order
        _blocks.set(blocks)
        acting.set(blocks[-1].who if blocks else (_PROGRAM, ""))

    async def __aenter__(self) -> agent:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class _DelegateBlock(agent):
    """The block of a delegate. Its delegator limits it by the delegation, so only another agent around it does by the block."""

    __slots__ = ("_delegator",)

    def __init__(self, name: str, role: str) -> None:
        super().__init__(name, role=role or name)
        self._delegator = acting.get()[0]

    def _is_enclosed(self) -> bool:
        return acting.get()[0] != self._delegator


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
    """Mark a text that a stranger wrote; returns the text, as it reaches the agent.

    It is recorded as a message from `channel` ("user" by default; "email", "web", ...) to the agent that acts. Prompt
    operators can change it, splice an injection into it, for example, so use what is returned. Outside a run it is the text
    itself.

    Raises `mat.Blocked` after the end of the run, and `mat.MatError` for an empty channel or a text that cannot be
    recorded.

    >>> with mat.run() as run:
    ...     mat.untrusted("Please refund A17", channel="email")
    'Please refund A17'
    >>> run.trace[0].action.kind, run.trace[0].action.name, run.trace[0].action.arguments["sender"]
    ('message', 'email', 'email')

    Source: A2.F4, A6.1.
    """
    session = active()
    if session is None:
        return text
    arguments = snapshot_arguments({"text": text, "sender": channel}, f"untrusted text of {channel}")
    return cast(str, drive(crossing(session, _port("message", channel, "prompt"), arguments), _delivery("text", text)))


def state(**signals: object) -> None:
    """Update the state projection, which every later record carries and contracts and potentials read.

    Signals are named values, plain data: `open_subtasks`, `approvals` and `retries` are those that progress contracts read by
    default. A signal keeps its value until it is set again. Does nothing outside a run.

    >>> with mat.run() as run:
    ...     mat.state(open_subtasks=2)
    ...     mat.detect("tracking is stale")
    ...     mat.state(open_subtasks=1)
    >>> dict(run.trace[0].state), dict(run.trace[-1].state)
    ({'open_subtasks': 2}, {'open_subtasks': 1})

    Source: A1.1, A1.8.
    """
    session = _reporting_session()
    if session is not None:
        session.project(signals)


def verify(what: str, passed: bool, supports: Iterable[object] = ()) -> bool:
    """Record a check and its outcome; returns `passed`, so that it can be used in an `if`.

    `what`: the name of the check, by which `mat.temporal.verification` finds it. `supports`: the results, passages or rows
    that were checked. Outside a run it only returns `passed`.

    >>> order = {"owner": "ann@example.org"}
    >>> with mat.run() as run:
    ...     mat.verify("the order is the sender's", order["owner"] == "eve@example.org", supports=[order])
    False
    >>> run.trace[0].action.kind, run.trace[0].action.name, dict(run.trace[0].action.arguments)
    ('verification', "the order is the sender's", {'passed': False})

    Source: A1.2, A1.3.
    """
    session = _reporting_session()
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
    """Declare that a text is an artifact issued now, to be used unchanged and in time; returns it.

    `name`: of such artifacts. `ttl_ms`: how long it is valid, in milliseconds of run time, None for ever. `integrity`: the
    predicate that says whether it was used intact, `mat.artifact.sha256()` by default. `supersedes`: it ends the earlier
    artifacts of its name. If every reply of a port brings one, declare it once with `@mat.tool(issues=...)`. Outside a run it
    only returns the text. Raises `mat.MatError` for an empty text, an invalid name or an invalid time.

    `value`: the text of the artifact.

    >>> @mat.tool
    ... def download(url): return "the file"
    >>> with mat.run() as run:
    ...     url = mat.artifact.observed("https://files.example.org/a?sig=9f", name="url", ttl_ms=60_000)
    ...     reply = download(url)
    >>> [(record.action.kind, record.action.name) for record in run.trace[:2]]
    [('artefact', 'url'), ('tool_call', 'download')]

    Source: D1.
    """
    declared = issue(name, ttl_ms=ttl_ms, integrity=integrity, supersedes=supersedes)
    _refuse_no_text(value, "an artifact")
    session = _reporting_session()
    if session is not None:
        session.observe(name, value, ttl_ms=ttl_ms, integrity=declared.integrity, supersedes=supersedes)
    return value


def claim(text: str, supports: Iterable[object] = ()) -> str:
    """Record what an agent states, and what it rests on; returns the text.

    `supports`: the results, passages or claims that support it, as they were returned (or their names: "step#3"). They become
    links of the trace, from which contracts such as `mat_contracts.claims_supported` judge the claim. Outside a run it only
    returns the text.

    >>> @mat.tool
    ... def track(parcel): return {"eta": "Friday"}
    >>> with mat.run() as run:
    ...     mat.claim("Parcel 17 arrives on Friday", supports=[track(17)])
    'Parcel 17 arrives on Friday'
    >>> [(link.src, link.rel, link.dst) for link in run.trace[1].links]
    [('step#0', 'supports', 'claim#1')]

    Source: A1.3, A2.F2.
    """
    session = _reporting_session()
    if session is not None:
        session.emit("claim", "claim", FrozenDict({"text": text}), supports)
    return text


def detect(what: str, supports: Iterable[object] = ()) -> None:
    """Record that the agent noticed a fault, such as a stale or malformed reply.

    `what`: the fault in words. `supports`: the results that show it. Containment contracts take it as the detection of an
    earlier fault. Does nothing outside a run.

    >>> with mat.run() as run:
    ...     mat.detect("tracking is stale")
    >>> run.trace[0].action.kind, run.trace[0].action.name
    ('detection', 'tracking is stale')

    Source: A4.2 (Eq. 10).
    """
    session = _reporting_session()
    if session is not None:
        session.emit("detection", what, EMPTY, supports)


def mitigate(kind: Mitigation, **details: object) -> None:
    """Record a corrective action after a fault.

    `kind`: "retry", "alternate" (another service), "replan", "clarify" (ask the user), "escalate" (to a person), "sandbox" or
    "block". `details`: anything about it, plain data. Containment contracts take it as the mitigation of a detected fault.
    Does nothing outside a run. Raises `mat.MatError` for another kind.

    >>> with mat.run() as run:
    ...     mat.mitigate("alternate", service="carrier")
    >>> run.trace[0].action.kind, run.trace[0].action.name, dict(run.trace[0].action.arguments)
    ('mitigation', 'alternate', {'service': 'carrier'})

    Source: A4.2 (Eq. 10).
    """
    if kind not in MITIGATIONS:
        raise SpecError(what=f"unknown mitigation: {kind!r}", fix=f"use one of {', '.join(MITIGATIONS)}")
    session = _reporting_session()
    if session is not None:
        session.emit("mitigation", kind, snapshot_arguments(details, "mitigation"))


def message(to: str, text: str) -> str | None:
    """Send a message to an agent, or to "user"; returns the text that was delivered, None if it was lost.

    It crosses the delegation boundary, where faults can change, delay or drop it, so go on with what is returned. Outside a
    run it returns the text. Raises `mat.Blocked` if governance refuses it.

    Raises `mat.MatError` for an empty name and for a text that cannot be recorded.

    >>> with mat.run() as run, mat.agent("clerk"):
    ...     mat.message("user", "Your refund is on its way")
    'Your refund is on its way'
    >>> run.trace[0].action.name, run.trace[0].action.arguments["sender"]
    ('user', 'clerk')

    Source: A1.2.
    """
    session = active()
    if session is None:
        return text
    arguments = snapshot_arguments({"text": text, "sender": acting.get()[0]}, f"message to {to}")
    return cast("str | None", drive(crossing(session, _port("message", to, "delegation"), arguments), _delivery("text", text)))


def _delivery(field: str, given: Any) -> Any:
    def deliver(changed: FrozenDict | None) -> Any:
        return changed[field] if changed and field in changed else given

    return deliver


class DelegatedTask:
    """A delegated task, from the step that delegated it until it is handed back.

    `outer`: the tasks under which it was delegated, outermost first. `entered`: an agent works on it in a separate
    context; otherwise it binds its agent in all contexts. `owner`: the mediator that tracks it, in the run `session`.
    """

    __slots__ = ("agent", "delegator", "ended", "entered", "outer", "owner", "session", "step")

    def __init__(self, step: int, delegator: str, agent: str, outer: tuple[DelegatedTask, ...], owner: object) -> None:
        self.step, self.delegator, self.agent, self.outer, self.owner = step, delegator, agent, outer, owner
        self.entered = self.ended = False
        self.session = active()


tasks: ContextVar[tuple[DelegatedTask, ...]] = ContextVar("mat_tasks", default=())
"""The delegated tasks that the agent of this context works on, outermost first. Empty without governance."""
delegated: ContextVar[DelegatedTask | None] = ContextVar("mat_delegated", default=None)
"""The task that the mediator last allowed in this context, or that ended last."""


def take_task() -> DelegatedTask | None:
    """The task that was just delegated in this context, if a mediator tracks tasks in this run."""
    task = delegated.get()
    return task if task is not None and task.session is active() else None


@contextmanager
def entered(task: DelegatedTask | None) -> Iterator[None]:
    """Work on this task inside the block, limited to what its delegators may do; the task ends with the block."""
    if task is None:
        yield
        return
    taken = _enter(task)
    try:
        yield
    finally:
        _leave(task, taken)


_Taken: TypeAlias = tuple[tuple[DelegatedTask, ...], Token[Any]]


def _enter(task: DelegatedTask) -> _Taken:
    """Begin to work on a task. Returns the tasks that this context has taken on with it."""
    task.entered, task.ended = True, False  # a hand-off that is delivered twice begins twice
    before = tasks.get()
    taken = tuple(item for item in (*task.outer, task) if item not in before)
    return taken, tasks.set((*before, *taken))


def _leave(task: DelegatedTask, taken: _Taken) -> None:
    task.ended = True
    own, token = taken
    rest = tuple(item for item in tasks.get() if item not in own)
    try:
        if rest != _before(token):
            raise ValueError("left in another order")
        tasks.reset(token)
    except ValueError:  # or entered in another context
        tasks.set(rest)
    delegated.set(task)


class delegate:  # noqa: N801  (also a statement: with mat.delegate(...))
    """Hand a task to another agent. As a context manager, plain or async, that agent acts inside the block.

    The attribute `task` is the text that was delivered, None if it was lost; faults of the delegation boundary can change it.
    `role`: of the other agent, by default its name. The end of the block is recorded as the hand-back to whoever delegated.
    For a function that runs the other agent, use `mat.handoff`. Raises `mat.Blocked` if governance refuses the delegation.

    Raises `mat.MatError` for an empty name and for a task that cannot be recorded.

    >>> with mat.run() as run, mat.agent("planner"):
    ...     with mat.delegate("mailer", task="tell Ann") as handed:
    ...         text = mat.message("user", handed.task)
    >>> [(record.agent, record.action.kind, record.action.name) for record in run.trace[:3]]
    [('planner', 'delegation', 'mailer'), ('mailer', 'message', 'user'), ('mailer', 'handback', 'planner')]

    Source: A1.2.
    """

    __slots__ = ("_agent", "_chain", "_delegator", "_taken", "task")

    def __init__(self, to: str, task: str = "", *, role: str = "") -> None:
        self._agent = _DelegateBlock(to, role)
        self._delegator = acting.get()[0]
        self.task: str | None = task
        self._taken: DelegatedTask | None = None
        self._chain: _Taken | None = None
        session = active()
        if session is not None:
            arguments = snapshot_arguments({"task": task, "delegator": acting.get()[0]}, f"delegation to {to}")
            steps = crossing(session, _port("delegation", to, "delegation"), arguments)
            self.task = drive(steps, _delivery("task", task))
            self._taken = take_task()

    def __enter__(self) -> delegate:
        self._agent.__enter__()
        if self._taken is not None:
            self._chain = _enter(self._taken)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not isinstance(error, RunStopped):
                hand_back(self._delegator, self._taken)
        finally:
            if self._taken is not None:
                _leave(self._taken, cast("_Taken", self._chain))
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
    with entered(task), _DelegateBlock(to, role):
        try:
            yield
        except RunStopped:
            raise
        except BaseException:
            hand_back(delegator, task)
            raise
        hand_back(delegator, task)


def hand_back(delegator: str, task: DelegatedTask | None = None) -> None:
    """Record that the acting agent has ended its delegated task. `task`: the task, if governance tracks it."""
    session = _reporting_session()
    if session is not None:
        found = {"agent": acting.get()[0]} if task is None else {"agent": acting.get()[0], "task": f"step#{task.step}"}
        session.emit("handback", delegator, snapshot_arguments(found, "hand-back"))


def grant(to: str, tool: str, /, *, calls: int | None = None, within_ms: int | None = None, **parameters: Allowed) -> bool:
    """Permit another agent something that its own capabilities do not; False if governance refuses. Both are recorded.

    `to`: the agent. `tool` and `parameters`: as `mat.policy.capability` takes them, without functions, because the trace
    records the grant. The acting agent must hold what it grants, or be declared as a granter. The grant holds for `calls`
    calls and `within_ms` milliseconds of run time, by default without limit, and ends with the delegation in which it was
    made. Outside a run it is True. Raises `mat.MatError` for an empty name, a limit below 1 and a parameter that is not an
    allow-list.

    Raises `mat.Blocked` after the end of the run.

    >>> @mat.tool(effect="write")
    ... def refund(order, amount): return "refunded"
    >>> policy = mat.policy.Governance(capabilities={"planner": ["refund", "delegation:clerk"], "clerk": []})
    >>> with mat.run(governance=policy), mat.agent("planner"):
    ...     given = mat.grant("clerk", "refund", calls=1, amount=(1, 500))
    ...     with mat.delegate("clerk", task="refund A17"):
    ...         given, refund("A17", amount=30)
    (True, 'refunded')

    Source: A5.1.
    """
    session = active()
    if session is None:
        return True
    steps = crossing(session, _grant_port(to), _grant_arguments(to, tool, calls, within_ms, parameters))
    try:
        return drive(steps, lambda changed: True) is True
    except Blocked:
        return False


async def grant_async(
    to: str, tool: str, /, *, calls: int | None = None, within_ms: int | None = None, **parameters: Allowed
) -> bool:
    """Like `mat.grant`, for governance that may ask an async approver. Await it; its arguments and errors are the same.

    >>> import asyncio
    >>> policy = mat.policy.Governance(capabilities={"planner": ["refund"], "clerk": []})
    >>> with mat.run(governance=policy), mat.agent("clerk"):
    ...     asyncio.run(mat.policy.grant_async("planner", "refund", calls=1))
    False

    Source: A5.1.
    """
    session = active()
    if session is None:
        return True

    async def permit(changed: FrozenDict | None) -> bool:
        return True

    steps = crossing(session, _grant_port(to), _grant_arguments(to, tool, calls, within_ms, parameters))
    try:
        return await drive_async(steps, permit) is True
    except Blocked:
        return False


def _grant_port(to: str) -> Port:
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
    data = {name: allowed_data(allowed, f"grant of {tool}, parameter {name!r}") for name, allowed in sorted(parameters.items())}
    return snapshot_arguments({"tool": tool, "parameters": data, "calls": calls, "within_ms": within_ms}, f"grant to {to}")


_APPROVAL: Final = Port(name="approval", kind="approval", boundary="", effect="none")


def approval(what: str, **details: object) -> bool:
    """Ask the run's approver, and record the answer. Only True means yes.

    `what` and `details`: what is to be approved, usually a tool and its arguments, as the approver gets them. The approver is
    that of the governance in force (`mat.policy.Governance(approver=)`). Without an approver, and outside a run, the answer is
    False. A rule with `own=True` accepts such an approval for exactly this call.

    Raises `mat.Blocked` after the end of the run, and `mat.MatError` for details that cannot be recorded.

    >>> def manager(what, details):
    ...     return details["amount"] <= 100
    >>> with mat.run(governance=mat.policy.Governance(approver=manager)) as run:
    ...     mat.approval("refund", order="A17", amount=30), mat.approval("refund", order="A17", amount=900)
    (True, False)

    Source: A5.3.
    """
    session = active()
    if session is None:
        return False
    steps, call = _approval(session, what, details)
    return drive(steps, lambda changed: says_yes(plain_answer(call(changed)))) is True


async def approval_async(what: str, **details: object) -> bool:
    """Like `mat.approval`, for an async approver. Await it; its arguments, answer and errors are the same.

    >>> import asyncio
    >>> async def manager(what, details):
    ...     return details["amount"] <= 100
    >>> with mat.run(governance=mat.policy.Governance(approver=manager)):
    ...     asyncio.run(mat.policy.approval_async("refund", order="A17", amount=30))
    True

    Source: A5.3.
    """
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
    """End the task: with a final response, as a safe abort, or as an explicit failure.

    `answer`: the final response, plain data. `status`: "completed" (default), "aborted" or "failed"; the last two mean that
    the task did not succeed. It records the end; the code after it still runs. A body that returns without it ends the run
    implicitly. Does nothing outside a run. Raises `mat.MatError` for another status.

    >>> with mat.run() as run:
    ...     mat.finish("that is not your order", status="aborted")
    >>> run.result.termination, run.result.success
    ('aborted', False)

    Source: A1.2, A1.7.
    """
    if status not in ("completed", "aborted", "failed"):
        raise SpecError(what=f"unknown finish status: {status!r}", fix="use completed, aborted or failed")
    session = _reporting_session()
    if session is not None:
        session.finish(status, answer)


def secret(value: str) -> str:
    """Declare a text that must not appear in any record, file or report; returns it unchanged.

    It is cut out in all its forms: escaped by JSON, `repr`, HTML or URLs, in hex and in base64. Inside a run it holds for the
    run, including the steps already recorded; outside a run for all runs of the process. No file or report that the process
    writes from then on contains it. A `pydantic.SecretStr` or `SecretBytes` that crosses a port is declared by itself.
    Raises `mat.MatError` for anything but a non-empty string.

    `value`: the text.

    >>> @mat.tool
    ... def log_in(key): return "welcome"
    >>> with mat.run() as run:
    ...     reply = log_in(mat.secret("s3cr3t-key"))
    >>> run.trace[0].action.arguments["key"]
    '[redacted:secret#1]'

    Source: A1.8.
    """
    _refuse_no_text(value, "a secret")
    session = _reporting_session()
    declare(value, everywhere=session is None or current_session.get() is None)
    if session is not None:
        session.secret(str.__str__(value))
    return value


@contextmanager
def bound(session: Session) -> Iterator[None]:
    """Make a run the active one in this context."""
    token = current_session.set(session)
    try:
        yield
    finally:
        current_session.reset(token)
