"""Least privilege (Sec. IV-B): who may call which tool, with which parameters, and how often."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from mat.core.allowed import Allowed, describe, is_allow_list, within
from mat.core.digest import digest
from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated, did_you_mean
from mat_contracts._shared import count_of, let_through, names_of

Parameters: TypeAlias = Mapping[str, Allowed]
Tools: TypeAlias = Mapping[str, Parameters | Sequence[Parameters] | None] | Iterable[str]
"""Tool names, or tool -> parameter -> allowed, several such sets being alternatives; others may have any value."""
_TOOL_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call",))
_NO_TOOLS: Final[frozenset[str]] = frozenset()
_SHARED_BY: Final = ("agent", "role", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most `most` calls in any window of `steps` steps or `within_ms` milliseconds; see `rate`."""

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
) -> Rate:
    """A rate limit (A5.1): at most `most` calls in any `steps` consecutive steps, or in any `within_ms` milliseconds.

    It concerns the calls of `tools` by `agents`, by default all. Calls that agree in `per` ("agent", "role", "tool") and in
    the arguments `key` share one count; `per=()` counts all together. A blocked call counts for nothing, a failed one does.
    """
    count_of(most, "most", least=0)
    if (steps is None) == (within_ms is None):
        raise SpecError(
            what="a rate has one window", why="it counts in steps or in milliseconds", fix="give steps= or within_ms="
        )
    count_of(steps if within_ms is None else within_ms, "steps" if within_ms is None else "within_ms", least=1)  # type: ignore[arg-type]
    shared = names_of(per, "per") if per else ()
    unknown = [name for name in shared if name not in _SHARED_BY]
    if unknown:
        raise SpecError(
            what=f"calls have no {unknown[0]!r} to be counted by{did_you_mean(unknown[0], _SHARED_BY)}",
            fix=f"use some of {', '.join(_SHARED_BY)}; arguments go into key=",
        )
    return Rate(
        most=most, steps=steps, within_ms=within_ms, tools=names_of(tools, "tools") if tools else (),
        agents=names_of(agents, "agents") if agents else (), per=shared, key=names_of(key, "key") if key else (),
    )  # fmt: skip


def least_privilege(
    capabilities: Mapping[str, Tools],
    *,
    roles: Mapping[str, Tools] = EMPTY,
    rates: Iterable[Rate] = (),
    default: Literal["deny", "allow"] = "deny",
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """Each agent calls only the tools of its capability set, by exact name, with every listed parameter present and allowed.

    Sec. IV-B and IV-E, A1.9, A5.1. `capabilities` names agents, `roles` roles; an agent may do what either grants. One that
    is listed in neither may call nothing, or anything with `default="allow"`. A tool takes one set of parameters, or several
    as alternatives. A parameter takes a set of values, a (least, most) range of numbers or a predicate, such as `length`,
    `pattern` and `endpoint` make. `rates` limit how often (see `rate`), whatever grants the call. A call that the mediator
    rewrote is judged as rewritten.

    >>> from mat_contracts.traces import broken, record, trace
    >>> may = least_privilege({"clerk": {"refund": {"amount": (0, 100)}}})
    >>> broken(may, trace(record("tool_call", "refund", {"amount": 100}, agent="clerk")))
    ()
    >>> broken(may, trace(record("tool_call", "refund", {"amount": 101}, agent="clerk")))
    (0,)
    """
    if default not in ("deny", "allow"):
        raise SpecError(what=f"default={default!r} is neither 'deny' nor 'allow'", fix="leave it out to deny")
    sets = {agent: _tools(agent, tools) for agent, tools in capabilities.items()}
    shared = {role: _tools(role, tools) for role, tools in roles.items()}
    limits = tuple(rates)
    wrong = [item for item in limits if not isinstance(item, Rate)]
    if wrong:
        raise SpecError(what=f"{wrong[0]!r} is no rate", fix="write rate(5, within_ms=60_000)")

    free, shared_free = ({who: _unlimited(granted) for who, granted in table.items()} for table in (sets, shared))

    def step(state: Any, record: Record) -> Any:
        name = record.action.name
        if name in free.get(record.agent, _NO_TOOLS) or name in shared_free.get(record.role, _NO_TOOLS):
            if not limits:
                return state
            state, over = _counted(state, record, limits)
            return replace(over[0], state=state, more=tuple(over[1:])) if over else state
        granted = [found for found in (sets.get(record.agent), shared.get(record.role)) if found is not None]
        why, wanted = _refused(record, granted, default)
        refused = [Violated(why, witness=(record.step,), instance=record.agent, wanted=wanted)] if why else []
        if limits:
            state, over = _counted(state, record, limits)
            refused += over
        return replace(refused[0], state=state, more=tuple(refused[1:])) if refused else state

    return Contract(
        id=id or "privilege.least", step=step, start=(EMPTY,) * len(limits) if limits else None, kinds=_TOOL_CALLS,
        severity=severity, weight=weight, policy=policy,
        repair=repair or "give the task to an agent that may do it, or ask for approval; grant only what is meant",
        text=f"{', '.join(sorted((*sets, *shared))) or 'nobody'} may call only what is listed",
    )  # fmt: skip


_Granted: TypeAlias = dict[str, tuple[dict[str, Allowed], ...]]


def _tools(holder: str, tools: Tools) -> _Granted:
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
        return (
            (f"{record.agent} has no capability at all", f"a capability {name} of {record.agent}")
            if default == "deny"
            else ("", "")
        )
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
        if name not in arguments:
            return f"{said} without {name}"
        if not within(allowed, arguments[name]):
            return f"{said} with {name}={arguments[name]!r}: outside {describe(allowed)}"
    return ""


def _described(tool: str, parameters: Mapping[str, Allowed]) -> str:
    return f"{tool}({', '.join(f'{name} in {describe(allowed)}' for name, allowed in sorted(parameters.items()))})"


def _counted(
    state: tuple[FrozenDict, ...], record: Record, limits: tuple[Rate, ...]
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


def _live(calls: FrozenDict, limit: Rate, record: Record) -> FrozenDict:
    """Without the keys whose last call has left the window."""
    gone = 0
    for recent in calls.values():
        if not _is_past(limit, recent[-1], record):
            break
        gone += 1
    return FrozenDict(islice(calls.items(), gone, None)) if gone else calls


def _is_past(limit: Rate, call: _Call, record: Record) -> bool:
    if limit.steps is not None:
        return record.step - call.step >= limit.steps
    return record.at_ms - call.at_ms >= (limit.within_ms or 0)


def _shared_key(limit: Rate, record: Record) -> str:
    """What calls that share one count agree in."""
    facts = {"agent": record.agent, "role": record.role, "tool": record.action.name}
    arguments = let_through(record)
    shared = [facts[name] for name in limit.per]
    return "/".join(shared) + (f"#{digest([arguments.get(name) for name in limit.key])[:16]}" if limit.key else "")


def _exceeded(limit: Rate, recent: tuple[_Call, ...], record: Record) -> Violated:
    window = f"{limit.steps} steps" if limit.steps is not None else f"{limit.within_ms} ms"
    arguments = let_through(record)
    by = [record.agent] if "agent" in limit.per else []
    by += [f"{name}={arguments.get(name)!r}" for name in limit.key]
    said = f"{record.action.name} was called more than {limit.most} times in {window}{' by ' + ', '.join(by) if by else ''}"
    return Violated(
        said, witness=(*(call.step for call in recent), record.step), instance=_shared_key(limit, record) or "all calls",
        wanted=f"at most {limit.most} calls in any {window}", repair="wait until the window has passed, or do more in one call",
    )  # fmt: skip


def length(least: int, most: int) -> Callable[[Any], bool]:
    """A predicate: a text or list of `least` to `most` characters or items."""
    count_of(least, "least", least=0)
    count_of(most, "most", least=least)

    def fits(value: Any) -> bool:
        return isinstance(value, str | list | bytes) and least <= len(value) <= most

    return _named(fits, f"a length of {least}..{most}")


def pattern(expression: str) -> Callable[[Any], bool]:
    """A predicate: a text that a regular expression matches from its first to its last character."""
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise SpecError(what=f"{expression!r} is no regular expression: {error}", fix="see the re module") from error
    return _named(lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None, f"the pattern {expression}")


def endpoint(
    host: str | Iterable[str],
    *,
    paths: str | Iterable[str] = (),
    schemes: str | Iterable[str] = "https",
    port: int | None = None,
) -> Callable[[Any], bool]:
    """A predicate: a URL of one of these hosts (exact, no subdomains), at or below one of `paths`, by default anywhere.

    A URL with a user name, a backslash or white space is refused: readers disagree about what its host is. Dots and percent
    signs in the path are resolved first. `port` None means the scheme's own.
    """
    hosts = frozenset(name.casefold() for name in names_of(host, "host"))
    below = tuple(posixpath.normpath("/" + path.strip("/")) for path in (names_of(paths, "paths") if paths else ()))
    known = frozenset(names_of(schemes, "schemes"))

    def fits(value: Any) -> bool:
        if not isinstance(value, str) or re.search(r"[\s\\]", value):
            return False
        try:
            url = urlsplit(value)
            given = url.port
        except ValueError:
            return False
        if url.scheme not in known or "@" in url.netloc or (url.hostname or "") not in hosts:
            return False
        if given is not None and given != (port or {"https": 443, "http": 80}.get(url.scheme)):
            return False
        path = posixpath.normpath("/" + unquote(unquote(url.path)).lstrip("/"))
        return (given is not None or port is None) and (
            not below or any(path == item or path.startswith(f"{item.rstrip('/')}/") for item in below)
        )

    return _named(fits, f"the endpoint {', '.join(sorted(hosts))}")


def _named(predicate: Callable[[Any], bool], name: str) -> Callable[[Any], bool]:
    """A predicate that violations can name: `describe` says what its `__name__` allows."""
    predicate.__name__ = name
    return predicate
