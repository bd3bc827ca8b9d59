"""Capability sets (A5.1): what an agent may call, with parameter ranges. Default deny where a set is declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mat.core.allowed import Allowed, describe, is_allow_list, within
from mat.core.errors import SpecError
from mat.core.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Leave to call one tool, by exact name; parameters not named here may have any value."""

    tool: str
    parameters: Mapping[str, Allowed] = field(default_factory=dict)

    def refuses(self, arguments: Mapping[str, Any]) -> str:
        """Why these arguments are not covered, or an empty text."""
        for name, allowed in sorted(self.parameters.items()):
            if name not in arguments:
                return f"{self.tool} needs {name}"
            if not within(allowed, arguments[name]):
                return f"{self.tool}({name}={arguments[name]!r}) is outside {describe(allowed)}"
        return ""


def capability(tool: str, **parameters: Allowed) -> Capability:
    """A capability; each parameter takes a set of values, a (least, most) range or a predicate."""
    for name, allowed in parameters.items():
        if not is_allow_list(allowed):
            raise SpecError(
                what=f"capability {tool!r}: {name}={allowed!r} is no allow-list",
                why="a bare value would match by containment",
                fix="give a set of values, a (least, most) tuple of numbers, or a predicate",
            )
    return Capability(tool=tool, parameters=parameters)


def capability_sets(
    declared: Mapping[str, Iterable[str | Capability]],
) -> dict[str, dict[str, tuple[Capability, ...]]]:
    """agent -> tool -> capabilities, from a readable declaration; a bare tool name allows any arguments."""
    sets: dict[str, dict[str, tuple[Capability, ...]]] = {}
    for agent, items in declared.items():
        if isinstance(items, str):
            raise SpecError(what=f"capabilities of {agent!r} are one text", fix=f"write [{items!r}]")
        tools: dict[str, tuple[Capability, ...]] = {}
        for item in items:
            made = item if isinstance(item, Capability) else Capability(tool=item)
            tools[made.tool] = (*tools.get(made.tool, ()), made)
        sets[agent] = tools
    return sets


def authorise(sets: Mapping[str, Mapping[str, tuple[Capability, ...]]], record: Record) -> str:
    """Why the acting agent may not do this, or an empty text. An agent without a declared set is not limited."""
    if record.action.kind != "tool_call" or record.agent not in sets:
        return ""
    granted = sets[record.agent].get(record.action.name, ())
    if not granted:
        return f"{record.agent} has no capability {record.action.name}"
    reasons = [item.refuses(record.action.arguments) for item in granted]
    return "" if "" in reasons else reasons[0]
