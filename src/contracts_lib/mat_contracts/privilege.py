"""Least privilege (Sec. IV-B): who may call which tool, with which parameters, and how often.

>>> from mat_contracts.privilege import ToolRights, least_privilege
>>> rights: ToolRights = {"refund": {"amount": (0, 100)}, "look_up": None}
>>> least_privilege({"clerk": rights}).id
'privilege.least'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Unpack

from mat.core.allowed import Allowed, describe, is_allow_list, within
from mat.core.digest import digest
from mat.core.endpoint import MISSING, allowed_from, endpoint, folder, length, pattern, values_at
from mat.core.errors import SpecError, did_you_mean
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import TOOL_CALLS, any_names, count_of, judged, let_through, milliseconds_of, one_of, too_many
from mat_contracts.catalogue import Options, template

__all__ = [
    "CallRate", "ToolRights", "delegated_authority", "endpoint", "folder", "least_privilege", "length", "pattern", "rate",
]  # fmt: skip

Parameters: TypeAlias = Mapping[str, Allowed]
ToolRights: TypeAlias = Mapping[str, Parameters | Sequence[Parameters] | None] | Iterable[str]
"""Tool names, or tool -> parameter -> allowed, several such sets being alternatives; others may have any value."""
_NO_TOOLS: Final[frozenset[str]] = frozenset()
_SHARED_BY: Final = ("agent", "role", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRate:
    """At most `most` calls in any window of `steps` steps or `within_ms` milliseconds; `rate` makes one.

    >>> from mat_contracts.privilege import rate
    >>> rate(2, steps=5).per
    ('agent', 'tool')

    Source: A5.1.
    """

    most: int
    steps: int | None = None
    within_ms: int | None = None
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    per: tuple[str, ...] = ("agent", "tool")
    key: tuple[str, ...] = ()


class _Call(NamedTuple):
    step: int
    at_ms: int


def rate(
    most: int,
    *,
    steps: int | None = None,
    within_ms: int | None = None,
    tools: str | Iterable[str] = (),
    agents: str | Iterable[str] = (),
    per: str | Iterable[str] = ("agent", "tool"),
    key: str | Iterable[str] = (),
) -> CallRate:
    """A rate limit: at most `most` calls in any `steps` consecutive steps, or in any `within_ms` milliseconds of run time.

    It concerns the calls of `tools` by `agents`, by default all. Calls that agree in `per` ("agent", "role", "tool") and in
    the arguments `key` share one count; `per=()` counts all together. A blocked call counts for nothing, a failed one does.
    Returns a CallRate for `least_privilege(rates=)`. Raises `mat.MatError` without exactly one window, and for numbers that
    are not counts.

    >>> from mat_contracts.privilege import rate
    >>> limit = rate(3, within_ms=60_000, tools="refund")
    >>> limit.most, limit.within_ms, limit.tools
    (3, 60000, ('refund',))

    Source: A5.1.
    """
    count_of(most, "most", least=0)
    if (steps is None) == (within_ms is None):
        raise SpecError(
            what="a rate has one window", why="it counts in steps or in milliseconds", fix="give steps= or within_ms="
        )
    if steps is not None:
        count_of(steps, "steps", least=1)
    if within_ms is not None:
        milliseconds_of(within_ms, "within_ms", least=1)
    shared = any_names(per, "per")
    unknown = [name for name in shared if name not in _SHARED_BY]
    if unknown:
        raise SpecError(
            what=f"calls have no {unknown[0]!r} to be counted by{did_you_mean(unknown[0], _SHARED_BY)}",
            fix=f"use some of {', '.join(_SHARED_BY)}; arguments go into key=",
        )
    return CallRate(
        most=most, steps=steps, within_ms=within_ms, tools=any_names(tools, "tools"), agents=any_names(agents, "agents"),
        per=shared, key=any_names(key, "key"),
    )  # fmt: skip


@template
def least_privilege(
    capabilities: Mapping[str, ToolRights],
    *,
    roles: Mapping[str, ToolRights] = EMPTY,
    rates: Iterable[CallRate] = (),
    default: Literal["deny", "allow"] = "deny",
    **options: Unpack[Options],
) -> Contract:
    """Each agent calls only the tools of its capability set, by exact name, with every listed parameter present and allowed.

    Sec. IV-B and IV-E, A1.9, A5.1. `capabilities` names agents, `roles` roles; an agent may do what either grants. One that
    is listed in neither may call nothing, or anything with `default="allow"`. A tool takes one set of parameters, or several
    as alternatives. A parameter takes a set of values, a (least, most) range of numbers or a predicate, such as `length`,
    `pattern`, `endpoint` and `folder` make; "body.amount" and "to.*" name nested values. `rates` limit how often (see
    `rate`), whatever grants the call. A call that the mediator rewrote is judged as rewritten.

    >>> from mat_contracts.traces import broken, record, trace
    >>> may = least_privilege({"clerk": {"refund": {"amount": (0, 100)}}})
    >>> broken(may, trace(record("tool_call", "refund", {"amount": 100}, agent="clerk")))
    ()
    >>> broken(may, trace(record("tool_call", "refund", {"amount": 101}, agent="clerk")))
    (0,)
    """
    one_of(default, "default", ("deny", "allow"))
    sets = {agent: _tools(agent, tools) for agent, tools in capabilities.items()}
    shared = {role: _tools(role, tools) for role, tools in roles.items()}
    limits = tuple(rates)
    wrong = [item for item in limits if not isinstance(item, CallRate)]
    if wrong:
        raise SpecError(what=f"{wrong[0]!r} is no rate", fix="write rate(5, within_ms=60_000)")

    free, shared_free = ({who: _unlimited(granted) for who, granted in table.items()} for table in (sets, shared))

    def step(state: Any, record: Record) -> Any:
        name = record.action.name
        if name in free.get(record.agent, _NO_TOOLS) or name in shared_free.get(record.role, _NO_TOOLS):
            if not limits:
                return state
            state, over = _counted(state, record, limits)
            return judged(over, state)
        granted = [found for found in (sets.get(record.agent), shared.get(record.role)) if found is not None]
        why, wanted = _refused(record, granted, default)
        refused = [Violated(why, witness=(record.step,), instance=record.agent, wanted=wanted)] if why else []
        if limits:
            state, over = _counted(state, record, limits)
            refused += over
        return judged(refused, state)

    return Contract(
        id="privilege.least", step=step, start=(EMPTY,) * len(limits) if limits else None, kinds=TOOL_CALLS,
        repair="give the task to an agent that may do it, or ask for approval; grant only what is meant",
        text=f"{', '.join(sorted((*sets, *shared))) or 'nobody'} may call only what is listed",
    )  # fmt: skip


_Granted: TypeAlias = dict[str, tuple[dict[str, Allowed], ...]]


def _tools(holder: str, tools: ToolRights) -> _Granted:
    if isinstance(tools, str):
        raise SpecError(what=f"capabilities of {holder!r} are one text", fix=f"write [{tools!r}]")
    if not isinstance(tools, Mapping):
        return {tool: ({},) for tool in tools}
    granted = {tool: _alternatives(parameters) for tool, parameters in tools.items()}
    problems = [
        f"{holder}.{tool}: {name}={allowed!r} is no allow-list"
        for tool, alternatives in granted.items()
        for parameters in alternatives
        for name, allowed in parameters.items()
        if not is_allow_list(allowed)
    ]
    if problems:
        raise SpecError(
            what="; ".join(problems),
            why="a bare value would match by containment",
            fix="give a set of values, a (least, most) tuple of numbers, or a predicate",
        )
    return granted


def _unlimited(granted: _Granted) -> frozenset[str]:
    """The tools that may be called with any parameters."""
    return frozenset(tool for tool, alternatives in granted.items() if any(not parameters for parameters in alternatives))


def _alternatives(parameters: Parameters | Sequence[Parameters] | None) -> tuple[dict[str, Allowed], ...]:
    if parameters is None or isinstance(parameters, Mapping):
        return (dict(parameters or {}),)
    if isinstance(parameters, str) or not all(isinstance(item, Mapping) for item in parameters):
        raise SpecError(what=f"{parameters!r} names no parameters", fix="write {parameter: allowed}, or a list of such sets")
    return tuple(dict(item) for item in parameters)


def _refused(record: Record, granted: Sequence[_Granted], default: str) -> tuple[str, str]:
    """Why nothing grants this call, and what would; two empty texts where something does."""
    name = record.action.name
    if not granted:
        if default == "allow":
            return "", ""
        return f"{record.agent} has no capability at all", f"a capability {name} of {record.agent}"
    alternatives = [parameters for found in granted for parameters in found.get(name, ())]
    if not alternatives:
        listed = sorted({tool for found in granted for tool in found})
        return f"{record.agent} has no capability {name}", f"one of {', '.join(listed) or 'no tool at all'}"
    reasons = [_refusal(record, parameters) for parameters in alternatives]
    if "" in reasons:
        return "", ""
    return reasons[0], " or ".join(_described(name, parameters) for parameters in alternatives)


def _refusal(record: Record, parameters: Mapping[str, Allowed]) -> str:
    """Why these arguments are not covered, or an empty text."""
    arguments = let_through(record)
    said = f"{record.agent} may not call {record.action.name}"
    for name, allowed in sorted(parameters.items()):
        for value in values_at(arguments, name):
            if value is MISSING:
                return f"{said} without {name}"
            if not within(allowed, value):
                return f"{said} with {name}={value!r}: outside {describe(allowed)}"
    return ""


def _described(tool: str, parameters: Mapping[str, Allowed]) -> str:
    return f"{tool}({', '.join(f'{name} in {describe(allowed)}' for name, allowed in sorted(parameters.items()))})"


def _counted(
    state: tuple[FrozenDict, ...], record: Record, limits: tuple[CallRate, ...]
) -> tuple[tuple[FrozenDict, ...], list[Violated]]:
    """The calls in each rate's window with this one, and a violation for each rate it exceeds."""
    counts, over = [], []
    for limit, calls in zip(limits, state, strict=True):
        if (limit.tools and record.action.name not in limit.tools) or (limit.agents and record.agent not in limit.agents):
            counts.append(calls)
            continue
        live, shared = _live(calls, limit, record), _shared_key(limit, record)
        recent = live.get(shared, ())
        recent = tuple(call for call in recent if not _is_past(limit, call, record))
        if len(recent) >= limit.most:
            over.append(_exceeded(limit, recent, record))
        if not record.blocked:  # the entry moves to the end: the first one is always the longest unused
            recent = (*recent, _Call(record.step, record.at_ms))[-max(limit.most, 1) :]
            live = FrozenDict({**{name: item for name, item in live.items() if name != shared}, shared: recent})
        counts.append(live)
    return tuple(counts), over


def _live(calls: FrozenDict, limit: CallRate, record: Record) -> FrozenDict:
    """Without the keys whose last call has left the window."""
    gone = 0
    for recent in calls.values():
        if not _is_past(limit, recent[-1], record):
            break
        gone += 1
    return FrozenDict(islice(calls.items(), gone, None)) if gone else calls


def _is_past(limit: CallRate, call: _Call, record: Record) -> bool:
    if limit.steps is not None:
        return record.step - call.step >= limit.steps
    return record.at_ms - call.at_ms >= (limit.within_ms or 0)


def _shared_key(limit: CallRate, record: Record) -> str:
    """What calls that share one count agree in."""
    facts = {"agent": record.agent, "role": record.role, "tool": record.action.name}
    arguments = let_through(record)
    shared = [facts[name] for name in limit.per]
    return "/".join(shared) + (f"#{digest([arguments.get(name) for name in limit.key])[:16]}" if limit.key else "")


def _exceeded(limit: CallRate, recent: tuple[_Call, ...], record: Record) -> Violated:
    window = f"{limit.steps} steps" if limit.steps is not None else f"{limit.within_ms} ms"
    arguments = let_through(record)
    by = [record.agent] if "agent" in limit.per else []
    by += [f"{name}={arguments.get(name)!r}" for name in limit.key]
    said = f"{record.action.name} was called more than {limit.most} times in {window}{' by ' + ', '.join(by) if by else ''}"
    return Violated(
        said, witness=(*(call.step for call in recent), record.step), instance=_shared_key(limit, record) or "all calls",
        wanted=f"at most {limit.most} calls in any {window}", repair="wait until the window has passed, or do more in one call",
    )  # fmt: skip


# -- delegated authority ------------------------------------------------------------------------------------------------


class _Task(NamedTuple):
    """A delegated task that was not handed back: who delegated it to whom, and in the course of which others."""

    step: int
    delegator: str
    agent: str
    outer: tuple[int, ...]


class _Given(NamedTuple):
    """A grant that may still serve. `parameters`: allow-lists in recorded form; `made_in`: the tasks it was made in."""

    step: int
    grantor: str
    holder: str
    tool: str
    parameters: FrozenDict
    left: int | None
    until_ms: int | None
    made_in: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Course:
    """Open tasks and grants. `told`: the mediator says itself in the course of which tasks an agent acts."""

    tasks: tuple[_Task, ...] = ()
    grants: tuple[_Given, ...] = ()
    told: bool = False


OPEN: Final = 1_000
"""Open tasks, and grants, that one contract remembers. Past it the contract is unknown."""
_COURSE: Final[frozenset[ActionKind]] = frozenset(("tool_call", "delegation", "handback", "grant"))


@template
def delegated_authority(
    capabilities: Mapping[str, ToolRights],
    **options: Unpack[Options],
) -> Contract:
    """Whoever acts on a delegated task calls only what all who delegated it may call, unless a grant goes beyond that.

    Sec. IV-E, A5.1: delegation attenuates. `capabilities` as `least_privilege` takes them; a delegator that is not listed
    sets no limit, and the agent's own set is the business of `least_privilege`. A task lasts from its delegation to its
    hand-back. Where governance tells concurrent tasks apart, its account of the tasks an agent acted on is used; else every
    open task of the agent binds it. A grant goes beyond the limits of its grantor, and of tasks it was made in; it serves as
    often and as long as it says, and ends with the task it was made in. Calls without effect are not judged.

    >>> from mat_contracts.traces import broken, record, trace
    >>> to_b = record("delegation", "b", agent="a")
    >>> pay = record("tool_call", "pay", agent="b", effect="write")
    >>> granted = record("grant", "b", {"tool": "pay", "parameters": {}}, agent="a")
    >>> broken(delegated_authority({"a": ["read"]}), trace(to_b, granted, pay))
    ()
    >>> broken(delegated_authority({"a": ["read"]}), trace(to_b, pay))
    (1,)
    """
    sets = {agent: _tools(agent, tools) for agent, tools in capabilities.items()}

    def step(state: _Course, record: Record) -> _Course | Violated:
        if record.mediation is not None and record.mediation.under and not state.told:
            state = replace(state, told=True)
        kind = record.action.kind
        if kind == "tool_call":
            return _judged(state, record, sets) if record.effected != "no" and state.tasks else state
        if record.blocked:
            return state
        if kind == "delegation":
            task = _Task(record.step, record.agent, record.action.name, _course_of(state, record))
            return replace(state, tasks=_bounded((*state.tasks, task), "delegated tasks are open"))
        return _ended(state, record) if kind == "handback" else _granted(state, record)

    return Contract(
        id="privilege.delegated", step=step, start=_Course(), kinds=_COURSE,
        repair="delegate to it only what you may do yourself, or have what is missing granted",
        text="whoever acts for another does no more than that one may",
    )  # fmt: skip


def _bounded(items: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if len(items) > OPEN:
        raise too_many(f"more than {OPEN} {what}", "hand back, or give limits")
    return items


def _course_of(state: _Course, record: Record) -> tuple[int, ...]:
    """The open tasks in whose course a record's agent acts, outermost first."""
    mediation = record.mediation
    if mediation is not None and state.told:
        return tuple(int(step.removeprefix("step#")) for step in mediation.under)
    found = [step for task in state.tasks if task.agent == record.agent for step in (*task.outer, task.step)]
    return tuple(sorted(set(found)))


def _ended(state: _Course, record: Record) -> _Course:
    """Without the task that was handed back, and without what was granted in it."""
    details = record.action.arguments
    named, agent = details.get("task"), details.get("agent")
    fitting = [
        task
        for task in state.tasks
        if (f"step#{task.step}" == named if named is not None else (task.agent, task.delegator) == (agent, record.action.name))
    ]
    if not fitting:
        return state
    gone = fitting[0]
    return replace(
        state, tasks=tuple(task for task in state.tasks if task is not gone),
        grants=tuple(grant for grant in state.grants if gone.step not in grant.made_in),
    )  # fmt: skip


def _granted(state: _Course, record: Record) -> _Course:
    if record.effected == "no":
        return state
    details = record.action.arguments
    tool, parameters, within_ms = details.get("tool"), details.get("parameters"), details.get("within_ms")
    if not isinstance(tool, str) or not isinstance(parameters, FrozenDict):
        return state
    given = _Given(
        record.step, record.agent, record.action.name, tool, parameters, details.get("calls"),
        None if within_ms is None else record.at_ms + within_ms, _course_of(state, record),
    )  # fmt: skip
    live = [grant for grant in state.grants if grant.until_ms is None or grant.until_ms >= record.at_ms]
    return replace(state, grants=_bounded((*live, given), "grants are open"))


def _judged(state: _Course, record: Record, sets: Mapping[str, _Granted]) -> _Course | Violated:
    course = set(_course_of(state, record))
    beyond = []
    for task in state.tasks:
        if task.step in course and task.delegator != record.agent and task.delegator in sets:
            why, _ = _refused(record, [sets[task.delegator]], "deny")
            if why and _serving(state, record, task.delegator, ()) is None:
                beyond.append(task)
    grant = _serving(state, record, record.agent, tuple(beyond))
    if not beyond or grant is not None:
        return state if grant is None or not beyond else _spent(state, grant)
    task = beyond[0]
    return Violated(
        f"{record.agent} called {record.action.name} on a task of {task.delegator}, who may not call it so",
        witness=(task.step, record.step), instance=record.agent,
        wanted=f"a call that {task.delegator} may make, or a grant of it to {record.agent} in this task",
    )  # fmt: skip


def _serving(state: _Course, record: Record, holder: str, beyond: tuple[_Task, ...]) -> _Given | None:
    """The first grant to an agent that covers a call and goes beyond the limits of some tasks."""
    for grant in state.grants:
        fits = (grant.holder, grant.tool) == (holder, record.action.name) and grant.left != 0
        in_time = grant.until_ms is None or record.at_ms <= grant.until_ms
        lifts = all(task.delegator == grant.grantor or task.step in grant.made_in for task in beyond)
        if fits and in_time and lifts:
            allowed = {name: allowed_from(data, "grant") for name, data in grant.parameters.items()}
            if not _refusal(record, allowed):
                return grant
    return None


def _spent(state: _Course, grant: _Given) -> _Course:
    if grant.left is None:
        return state
    less = grant._replace(left=grant.left - 1)
    return replace(state, grants=tuple(less if item is grant else item for item in state.grants))
