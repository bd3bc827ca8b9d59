"""Least privilege: who may call which tool, with which parameters, and how often.

>>> from mat_contracts.privilege import ToolRights, least_privilege
>>> rights: ToolRights = {"refund": {"amount": (0, 100)}, "look_up": None}
>>> least_privilege({"clerk": rights}).id
'privilege.least'

Source: Sec. IV-B.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Unpack

from mat.core.allowed import Allowed, describe, is_allow_list
from mat.core.digest import digest
from mat.core.endpoint import MISSING, allowed_from, endpoint, folder, length, pattern, values_at
from mat.core.errors import SpecError, did_you_mean, plural
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import TOOL_CALLS, any_names, count_of, judged, let_through, milliseconds_of, one_of, too_many
from mat_contracts._values import allows, normal
from mat_contracts.catalogue import Options, template

__all__ = [
    "CallRate", "ToolRights", "delegated_authority", "endpoint", "folder", "least_privilege", "length", "pattern", "rate",
]  # fmt: skip

Parameters: TypeAlias = Mapping[str, Allowed]
ToolRights: TypeAlias = Mapping[str, Parameters | Sequence[Parameters] | None] | Iterable[str]
"""Tool names, or tool -> parameter -> allowed values; several sets of parameters are alternatives. Parameters that are not
named may have any value."""
_NO_TOOLS: Final[frozenset[str]] = frozenset()
_SHARED_BY: Final = ("agent", "role", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRate:
    """At most `most` calls in any window of `steps` steps or `within_ms` milliseconds; `rate` makes one.

    `tools`, `agents`: the names whose calls it limits, by default all. `per` ("agent", "role", "tool") and `key`
    (parameters) say which calls share a count.

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

    It limits the calls of `tools` by `agents`, by default all calls. `per` ("agent", "role", "tool") and the arguments named in
    `key` say which calls share a count; `per=()` counts all calls together. Failed calls count, blocked ones do not.

    Returns a CallRate. Raises `mat.MatError` for a number below its minimum, for no window or two, and for an unknown
    `per`.

    >>> from mat_contracts.privilege import rate
    >>> limit = rate(3, within_ms=60_000, tools="refund")
    >>> limit.most, limit.within_ms, limit.tools
    (3, 60000, ('refund',))

    Source: A5.1.
    """
    count_of(most, "most", least=0)
    if (steps is None) == (within_ms is None):
        raise SpecError(
            what="a rate needs exactly one window", why="it counts in steps or in milliseconds", fix="give steps= or within_ms="
        )
    if steps is not None:
        count_of(steps, "steps", least=1)
    if within_ms is not None:
        milliseconds_of(within_ms, "within_ms", least=1)
    shared = any_names(per, "per")
    unknown = [name for name in shared if name not in _SHARED_BY]
    if unknown:
        raise SpecError(
            what=f"calls cannot be counted per {unknown[0]!r}{did_you_mean(unknown[0], _SHARED_BY)}",
            fix=f"choose from {', '.join(_SHARED_BY)}; arguments go into key=",
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

    `capabilities` maps agents to tools, `roles` maps roles to tools; an agent may use what
    either grants. An agent in neither may call nothing, or with `default="allow"` anything. A tool has one set of parameters,
    or several alternative sets. A parameter is allowed a set of values, a (least, most) range of numbers, or what a predicate
    accepts, such as one made by `length`, `pattern`, `endpoint` or `folder`. Values that are written differently are the same:
    "50.00" lies in (0, 100), and " a17 " is in {"A17"}; a predicate sees the value as it is. "body.amount" and "to.*" name
    nested values.
    `rates` limit how often tools are called (see `rate`), whatever grants the call. A call that the mediator rewrote is judged
    as rewritten.

    Raises `mat.MatError` for a bare string where a list of tools or values is expected, and for a rate that `rate` did not
    make.

    Precision 1.00, recall 1.00 on 31 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> may = least_privilege({"clerk": {"refund": {"amount": (0, 100)}}})
    >>> broken(may, trace(record("tool_call", "refund", {"amount": 100}, agent="clerk")))
    ()
    >>> broken(may, trace(record("tool_call", "refund", {"amount": 101}, agent="clerk")))
    (0,)

    Source: Sec. IV-B and IV-E, A1.9, A5.1.
    """
    one_of(default, "default", ("deny", "allow"))
    sets = {agent: _tools(agent, tools) for agent, tools in capabilities.items()}
    shared = {role: _tools(role, tools) for role, tools in roles.items()}
    limits = tuple(rates)
    wrong = [item for item in limits if not isinstance(item, CallRate)]
    if wrong:
        raise SpecError(what=f"{wrong[0]!r} is not a rate", fix="write rate(5, within_ms=60_000)")

    free, shared_free = ({who: _unlimited(granted) for who, granted in table.items()} for table in (sets, shared))

    def step(state: Any, record: Record) -> Any:
        name = record.action.name
        if name in free.get(record.agent, _NO_TOOLS) or name in shared_free.get(record.role, _NO_TOOLS):
            if not limits:
                return state
            state, over = _count_call(state, record, limits)
            return judged(over, state)
        granted = [rights for rights in (sets.get(record.agent), shared.get(record.role)) if rights is not None]
        why, wanted = _refusal(record, granted, default)
        found = [Violated(why, witness=(record.step,), instance=record.agent, wanted=wanted)] if why else []
        if limits:
            state, over = _count_call(state, record, limits)
            found += over
        return judged(found, state)

    return Contract(
        id="privilege.least", step=step, start=(EMPTY,) * len(limits) if limits else None, kinds=TOOL_CALLS,
        repair="give the task to an agent that may do it, or ask for approval; grant only what the agent needs",
        text=f"{', '.join(sorted((*sets, *shared))) or 'no agent'} may call only the listed tools",
    )  # fmt: skip


_Rights: TypeAlias = dict[str, tuple[dict[str, Allowed], ...]]


def _tools(holder: str, tools: ToolRights) -> _Rights:
    if isinstance(tools, str):
        raise SpecError(what=f"the capabilities of {holder!r} are a single string", fix=f"write [{tools!r}]")
    if not isinstance(tools, Mapping):
        return {tool: ({},) for tool in tools}
    granted = {tool: _alternatives(parameters) for tool, parameters in tools.items()}
    problems = [
        f"{holder}.{tool}: {name}={allowed!r} is not an allow-list"
        for tool, alternatives in granted.items()
        for parameters in alternatives
        for name, allowed in parameters.items()
        if not is_allow_list(allowed)
    ]
    if problems:
        raise SpecError(
            what="; ".join(problems),
            why="a plain string would allow each of its substrings",
            fix="give a set of values, a (least, most) tuple of numbers, or a predicate",
        )
    return granted


def _unlimited(granted: _Rights) -> frozenset[str]:
    """The tools that may be called with any parameters."""
    return frozenset(tool for tool, alternatives in granted.items() if any(not parameters for parameters in alternatives))


def _alternatives(parameters: Parameters | Sequence[Parameters] | None) -> tuple[dict[str, Allowed], ...]:
    if parameters is None or isinstance(parameters, Mapping):
        return (dict(parameters or {}),)
    if isinstance(parameters, str) or not all(isinstance(item, Mapping) for item in parameters):
        raise SpecError(
            what=f"{parameters!r} is not a set of parameters", fix="write {parameter: allowed}, or a list of such sets"
        )
    return tuple(dict(item) for item in parameters)


def _refusal(record: Record, granted: Sequence[_Rights], default: str) -> tuple[str, str]:
    """Why no capability grants this call, and what would; two empty texts if one grants it."""
    name = record.action.name
    if not granted:
        if default == "allow":
            return "", ""
        return f"{record.agent} has no capability at all", f"a capability {name} of {record.agent}"
    alternatives = [parameters for rights in granted for parameters in rights.get(name, ())]
    if not alternatives:
        tools = sorted({tool for rights in granted for tool in rights})
        return f"{record.agent} has no capability {name}", f"one of {', '.join(tools)}" if tools else "no call"
    reasons = [_mismatch(record, parameters) for parameters in alternatives]
    if "" in reasons:
        return "", ""
    return reasons[0], " or ".join(_signature(name, parameters) for parameters in alternatives)


def _mismatch(record: Record, parameters: Mapping[str, Allowed]) -> str:
    """Why these parameters do not cover the arguments of a call; "" if they do."""
    arguments = let_through(record)
    call = f"{record.agent} may not call {record.action.name}"
    for name, allowed in sorted(parameters.items()):
        for value in values_at(arguments, name):
            if value is MISSING:
                return f"{call} without {name}"
            if not allows(allowed, value):
                return f"{call} with {name}={value!r}: outside {describe(allowed)}"
    return ""


def _signature(tool: str, parameters: Mapping[str, Allowed]) -> str:
    return f"{tool}({', '.join(f'{name} in {describe(allowed)}' for name, allowed in sorted(parameters.items()))})"


def _count_call(
    state: tuple[FrozenDict, ...], record: Record, limits: tuple[CallRate, ...]
) -> tuple[tuple[FrozenDict, ...], list[Violated]]:
    """The calls in each rate's window including this one, and a violation for each rate that this call exceeds."""
    counts, over = [], []
    for limit, calls in zip(limits, state, strict=True):
        if (limit.tools and record.action.name not in limit.tools) or (limit.agents and record.agent not in limit.agents):
            counts.append(calls)
            continue
        live, shared = _calls_in_window(calls, limit, record), _shared_key(limit, record)
        recent = live.get(shared, ())
        recent = tuple(call for call in recent if not _is_past(limit, call, record))
        if len(recent) >= limit.most:
            over.append(_exceeded(limit, recent, record))
        if not record.blocked:  # the entry moves to the end, so the first one is always the least recently used
            recent = (*recent, _Call(record.step, record.at_ms))[-max(limit.most, 1) :]
            live = FrozenDict({**{name: item for name, item in live.items() if name != shared}, shared: recent})
        counts.append(live)
    return tuple(counts), over


def _calls_in_window(calls: FrozenDict, limit: CallRate, record: Record) -> FrozenDict:
    """The calls without the keys whose last call has left the window."""
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
    """The key of the count that a call belongs to."""
    facts = {"agent": record.agent, "role": record.role, "tool": record.action.name}
    arguments = let_through(record)
    shared = [facts[name] for name in limit.per]
    return "/".join(shared) + (f"#{digest([normal(arguments.get(name)) for name in limit.key])[:16]}" if limit.key else "")


def _exceeded(limit: CallRate, recent: tuple[_Call, ...], record: Record) -> Violated:
    window = plural(limit.steps, "step") if limit.steps is not None else f"{limit.within_ms} ms"
    arguments = let_through(record)
    whose = f" by {record.agent}" if "agent" in limit.per else ""
    if limit.key:
        whose += f" for {', '.join(f'{name}={arguments.get(name)!r}' for name in limit.key)}"
    message = f"{record.action.name} was called more than {plural(limit.most, 'time')} in {window}{whose}"
    return Violated(
        message, witness=(*(call.step for call in recent), record.step), instance=_shared_key(limit, record) or "all calls",
        wanted=f"at most {plural(limit.most, 'call')} in any {window}",
        repair="wait until the window has passed, or do more in one call",
    )  # fmt: skip


# -- delegated authority ------------------------------------------------------------------------------------------------


class _Task(NamedTuple):
    """A delegated task that is still open: who delegated it to whom, and the tasks (`outer`) it was delegated in."""

    step: int
    delegator: str
    agent: str
    outer: tuple[int, ...]


class _Grant(NamedTuple):
    """A grant that can still be used. `parameters`: allow-lists in recorded form. `made_in`: the tasks it was made in."""

    step: int
    grantor: str
    holder: str
    tool: str
    parameters: FrozenDict
    left: int | None
    until_ms: int | None
    made_in: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _OpenTasks:
    """Open tasks and grants. `from_mediator`: the mediator records in which tasks an agent acts."""

    tasks: tuple[_Task, ...] = ()
    grants: tuple[_Grant, ...] = ()
    from_mediator: bool = False


MAX_OPEN: Final = 1_000
"""The most open tasks, and the most grants, that one contract remembers. Beyond that its outcome is unknown."""
_TASK_KINDS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "delegation", "handback", "grant"))


@template
def delegated_authority(
    capabilities: Mapping[str, ToolRights],
    **options: Unpack[Options],
) -> Contract:
    """An agent that acts on a delegated task calls only what all its delegators may call, unless a grant allows more.

    Delegation attenuates. `capabilities` is the same as for `least_privilege`, which judges the agent's own
    set. A delegator that is not listed sets no limit. A task lasts from its delegation to its hand-back. If governance records
    which of its concurrent tasks an agent acts on, only these bind the agent; otherwise all its open tasks do. A grant lifts
    the limits of its grantor and of the tasks it was made in. It is valid as often and as long as it says, and ends with the
    task it was made in. Calls without effect are not judged.

    Raises `mat.MatError` for a bare string where a list of tools or values is expected.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> to_b = record("delegation", "b", agent="a")
    >>> pay = record("tool_call", "pay", agent="b", effect="write")
    >>> granted = record("grant", "b", {"tool": "pay", "parameters": {}}, agent="a")
    >>> broken(delegated_authority({"a": ["read"]}), trace(to_b, granted, pay))
    ()
    >>> broken(delegated_authority({"a": ["read"]}), trace(to_b, pay))
    (1,)

    Source: Sec. IV-B, A5.1.
    """
    sets = {agent: _tools(agent, tools) for agent, tools in capabilities.items()}

    def step(state: _OpenTasks, record: Record) -> _OpenTasks | Violated:
        if record.mediation is not None and record.mediation.under and not state.from_mediator:
            state = replace(state, from_mediator=True)
        kind = record.action.kind
        if kind == "tool_call":
            return _judge_call(state, record, sets) if record.effected != "no" and state.tasks else state
        if record.blocked:
            return state
        if kind == "delegation":
            task = _Task(record.step, record.agent, record.action.name, _steps_of_tasks(state, record))
            return replace(state, tasks=_bounded((*state.tasks, task), "delegated tasks are open"))
        return _hand_back(state, record) if kind == "handback" else _add_grant(state, record)

    return Contract(
        id="privilege.delegated", step=step, start=_OpenTasks(), kinds=_TASK_KINDS,
        repair="delegate only tasks that the delegator may do itself, or get a grant for the rest",
        text="an agent that acts for another does no more than the other may",
    )  # fmt: skip


def _bounded(items: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if len(items) > MAX_OPEN:
        raise too_many(f"more than {MAX_OPEN} {what}", "hand tasks back, or limit the grants")
    return items


def _steps_of_tasks(state: _OpenTasks, record: Record) -> tuple[int, ...]:
    """The open tasks that a record's agent acts in, outermost first."""
    mediation = record.mediation
    if mediation is not None and state.from_mediator:
        return tuple(int(step.removeprefix("step#")) for step in mediation.under)
    found = [step for task in state.tasks if task.agent == record.agent for step in (*task.outer, task.step)]
    return tuple(sorted(set(found)))


def _hand_back(state: _OpenTasks, record: Record) -> _OpenTasks:
    """The open tasks without the task that was handed back, and without the grants made in it."""
    details = record.action.arguments
    task_name, agent = details.get("task"), details.get("agent")
    matching = [
        task
        for task in state.tasks
        if (
            f"step#{task.step}" == task_name
            if task_name is not None
            else (task.agent, task.delegator) == (agent, record.action.name)
        )
    ]
    if not matching:
        return state
    gone = matching[0]
    return replace(
        state, tasks=tuple(task for task in state.tasks if task is not gone),
        grants=tuple(grant for grant in state.grants if gone.step not in grant.made_in),
    )  # fmt: skip


def _add_grant(state: _OpenTasks, record: Record) -> _OpenTasks:
    if record.effected == "no":
        return state
    details = record.action.arguments
    tool, parameters, within_ms = details.get("tool"), details.get("parameters"), details.get("within_ms")
    if not isinstance(tool, str) or not isinstance(parameters, FrozenDict):
        return state
    grant = _Grant(
        record.step, record.agent, record.action.name, tool, parameters, details.get("calls"),
        None if within_ms is None else record.at_ms + within_ms, _steps_of_tasks(state, record),
    )  # fmt: skip
    live = [old for old in state.grants if old.until_ms is None or old.until_ms >= record.at_ms]
    return replace(state, grants=_bounded((*live, grant), "grants are open"))


def _judge_call(state: _OpenTasks, record: Record, sets: Mapping[str, _Rights]) -> _OpenTasks | Violated:
    open_steps = set(_steps_of_tasks(state, record))
    beyond = []
    for task in state.tasks:
        if task.step in open_steps and task.delegator != record.agent and task.delegator in sets:
            why, _ = _refusal(record, [sets[task.delegator]], "deny")
            if why and _grant_for(state, record, task.delegator, ()) is None:
                beyond.append(task)
    grant = _grant_for(state, record, record.agent, tuple(beyond))
    if not beyond or grant is not None:
        return state if grant is None or not beyond else _use(state, grant)
    task = beyond[0]
    return Violated(
        f"{record.agent} called {record.action.name} on a task of {task.delegator}, which may not make this call itself",
        witness=(task.step, record.step), instance=record.agent,
        wanted=f"a call that {task.delegator} may make, or a grant of this call to {record.agent} in this task",
    )  # fmt: skip


def _grant_for(state: _OpenTasks, record: Record, holder: str, beyond: tuple[_Task, ...]) -> _Grant | None:
    """The first grant to `holder` that covers a call and lifts the limits of the tasks `beyond`."""
    for grant in state.grants:
        fits = (grant.holder, grant.tool) == (holder, record.action.name) and grant.left != 0
        in_time = grant.until_ms is None or record.at_ms <= grant.until_ms
        lifts = all(task.delegator == grant.grantor or task.step in grant.made_in for task in beyond)
        if fits and in_time and lifts:
            allowed = {name: allowed_from(data, "grant") for name, data in grant.parameters.items()}
            if not _mismatch(record, allowed):
                return grant
    return None


def _use(state: _OpenTasks, grant: _Grant) -> _OpenTasks:
    """The open tasks after one use of a grant."""
    if grant.left is None:
        return state
    less = grant._replace(left=grant.left - 1)
    return replace(state, grants=tuple(less if item is grant else item for item in state.grants))
