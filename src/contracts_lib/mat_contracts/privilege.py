"""Least privilege (Sec. IV-B): who may call which tool, with which parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from mat.core.allowed import Allowed, describe, is_allow_list, within
from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated
from mat_contracts._shared import let_through

Tools: TypeAlias = Mapping[str, Mapping[str, Allowed] | None] | Iterable[str]
"""Tool names, or tool -> parameter -> allowed; parameters that are not named may have any value."""
_TOOL_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call",))


def least_privilege(
    capabilities: Mapping[str, Tools],
    *,
    default: Literal["deny", "allow"] = "deny",
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """Each agent calls only the tools of its capability set, by exact name, with every listed parameter present and allowed.

    Sec. IV-B and IV-E, A1.9. An agent that is not listed may call nothing, or anything with `default="allow"`. A call that
    the mediator rewrote is judged as rewritten.

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

    def step(state: None, record: Record) -> Violated | None:
        granted = sets.get(record.agent)
        if granted is None:
            why = f"{record.agent} has no capability at all" if default == "deny" else ""
        elif record.action.name not in granted:
            why = f"{record.agent} has no capability {record.action.name}"
        else:
            why = _refusal(record, granted[record.action.name])
        return Violated(why, witness=(record.step,), instance=record.agent) if why else state

    return Contract(
        id=id or "privilege.least", step=step, kinds=_TOOL_CALLS, severity=severity, weight=weight, policy=policy,
        repair=repair or "give the task to an agent that may do it, or ask for approval; grant only what is meant",
        text=f"{', '.join(sorted(sets)) or 'nobody'} may call only what is listed",
    )  # fmt: skip


def _tools(agent: str, tools: Tools) -> dict[str, dict[str, Allowed]]:
    if isinstance(tools, str):
        raise SpecError(what=f"capabilities of {agent!r} are one text", fix=f"write [{tools!r}]")
    if not isinstance(tools, Mapping):
        return {tool: {} for tool in tools}
    problems = [
        f"{agent}.{tool}: {name}={allowed!r} is no allow-list"
        for tool, parameters in tools.items()
        for name, allowed in (parameters or {}).items()
        if not is_allow_list(allowed)
    ]
    if problems:
        raise SpecError(
            what="; ".join(problems),
            why="a bare value would match by containment",
            fix="give a set of values, a (least, most) tuple of numbers, or a predicate",
        )
    return {tool: dict(parameters or {}) for tool, parameters in tools.items()}


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
