"""Capability sets: what an agent may call, with which parameters and how often. Deny by default if a set is declared.

Source: A5.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, get_args

from mat.core.allowed import Allowed, describe, is_allow_list, within
from mat.core.endpoint import MISSING, endpoint, folder, length, narrower, pattern, values_at
from mat.core.errors import SpecError, did_you_mean, raised_text
from mat.core.record import ActionKind, Record
from mat.core.site import BOUNDARIES
from mat.core.spelling import KINDS_AT, as_boundary

__all__ = [
    "LIMITED", "Capability", "RateLimit", "Sets", "capability", "capability_sets", "covers", "endpoint", "folder", "length",
    "pattern", "rate", "refusal_by_sets",
]  # fmt: skip

KINDS: Final[dict[str, tuple[ActionKind, ...]]] = {
    "service": KINDS_AT["service"],
    "retrieval": KINDS_AT["retrieval"],
    "memory": KINDS_AT["memory"],
    "memory_read": ("memory_read",),
    "memory_write": ("memory_write",),
    "model": KINDS_AT["model"],
    "delegation": KINDS_AT["delegation"],
}
"""The kinds of action that each prefix of a capability's name permits. A colon ends the prefix."""
LIMITED: Final[frozenset[ActionKind]] = frozenset(kind for kinds in KINDS.values() for kind in kinds)
"""The kinds of action that a declared set limits."""
_PREFIXES: Final[dict[tuple[ActionKind, ...], str]] = {kinds: name for name, kinds in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most `most` calls in any `window_ms` milliseconds of run time, or in the whole run where that is None."""

    most: int
    window_ms: int | None = None


def rate(most: int, window_ms: int | None = None) -> RateLimit:
    """A rate limit. A proposed action counts, unless it is blocked; a failed call counts."""
    problems = []
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        problems.append(f"most={most!r} is not an integer >= 0")
    if window_ms is not None and (not isinstance(window_ms, int) or isinstance(window_ms, bool) or window_ms < 1):
        problems.append(f"window_ms={window_ms!r} is not an integer >= 1")
    if problems:
        raise SpecError(what="; ".join(problems), fix="write rate(3, window_ms=60_000), or rate(3) for the whole run")
    return RateLimit(most=most, window_ms=window_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Permission to call one port, by exact name; `mat.policy.capability` makes one.

    `tool`: the port's name. `parameters`: parameter -> what it may be (values, a (least, most) range, or a predicate); others
    may have any value. `kinds`: the kinds of action. `rates`: limits on how often. `refuses(arguments)` says why arguments are
    not covered, "" if they are.

    >>> small = mat.policy.capability("refund", amount=(1, 500))
    >>> small.refuses({"amount": 30}), small.refuses({"amount": 900})
    ('', 'refund(amount=900) is outside 1..500')

    Source: A5.1.
    """

    tool: str
    parameters: Mapping[str, Allowed] = field(default_factory=dict)
    kinds: tuple[ActionKind, ...] = ("tool_call",)
    rates: tuple[RateLimit, ...] = ()

    @property
    def name(self) -> str:
        """The declared name: the bare name of a tool, anything else after its kind."""
        prefix = _PREFIXES.get(self.kinds, "")
        return self.tool if prefix in ("service", "") else f"{prefix}:{self.tool}"

    def refuses(self, arguments: Mapping[str, Any]) -> str:
        """Why these arguments are not covered, or "". A predicate that raises does not cover them."""
        for path, allowed in self.parameters.items():
            for value in values_at(arguments, path):
                if value is MISSING:
                    return f"{self.tool} needs the parameter {path}"
                try:
                    fits = within(allowed, value)
                except Exception as error:  # fail closed
                    return f"{self.tool}({path}={_short(value)}): the allow-list {raised_text(error)}"
                if not fits:
                    return f"{self.tool}({path}={_short(value)}) is outside {describe(allowed)}"
        return ""


Sets: TypeAlias = Mapping[str, Mapping[ActionKind, Mapping[str, tuple[Capability, ...]]]]
"""agent -> kind -> name -> alternatives; each listed agent has all kinds of LIMITED."""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def capability(tool: str, /, *rates: RateLimit, **parameters: Allowed) -> Capability:
    """Make a capability; each parameter takes a set of values, a (least, most) range or a predicate, and is required.

    `tool` is a tool's exact name; other ports are named after their kind: "retrieval:kb", "memory:notes" ("memory_read:",
    "memory_write:" for one direction only), "model:planner", "delegation:mailer". Predicates that are data, from
    `mat.govern.capability`: `pattern`, `length`, `endpoint`, `folder`. A nested value is named by its path, `**{"body.amount":
    (0, 9), "to.*": {...}}`. `rates`: limits such as `mat.govern.capability.rate(3, window_ms=60_000)`; all must be met.
    Returns a Capability. Raises `mat.MatError` for an empty name, for a kind that sets do not limit or that is misspelled
    (another prefix is a part of the tool's name), and for a parameter that is no allow-list, such as a bare string.

    `parameters`: parameter -> allow-list, or a predicate, which gets the value.

    >>> mail = mat.policy.capability("send", to={"ann@example.org"}, size=(0, 1000))
    >>> mail.refuses({"to": "eve@example.net", "size": 10})
    "send(to='eve@example.net') is outside {'ann@example.org'}"

    Source: A5.1.
    """
    problems = [
        f"{name}={allowed!r} is not an allow-list" for name, allowed in parameters.items() if not is_allow_list(allowed)
    ]
    problems += [f"{item!r} is not a rate" for item in rates if not isinstance(item, RateLimit)]
    if not isinstance(tool, str) or not tool:
        raise SpecError(
            what=f"capability {tool!r} has no name", fix='write capability("refund"), or capability("retrieval:kb")'
        )
    prefix, colon, name = tool.partition(":")
    kinds = KINDS.get(prefix) if colon else None
    if problems:
        raise SpecError(
            what=f"capability {tool!r}: {'; '.join([*_name_problems(tool), *problems])}",
            why="a plain string would allow each of its substrings",
            fix="give a set of values, a (least, most) tuple of numbers, or a predicate; rates as rate(3, window_ms=60_000)",
        )
    if wrong := [*_name_problems(tool)]:
        raise SpecError(
            what=f"capability {tool!r}: {'; '.join(wrong)}", why="names match exactly",
            fix='write capability("refund"), or capability("retrieval:kb")',
        )  # fmt: skip
    if kinds is None:
        return Capability(tool=tool, parameters=parameters, rates=rates)
    return Capability(tool=name, parameters=parameters, kinds=kinds, rates=rates)


def _name_problems(tool: str) -> Iterator[str]:
    """Problems of the name in a capability, which may begin with a kind."""
    prefix, colon, name = tool.partition(":")
    if colon and prefix in KINDS and not name:
        yield f"{tool!r} has no name after its kind"
    if not colon or prefix in KINDS:
        return
    if as_boundary(prefix):
        yield f"{prefix!r} is not a boundary{as_boundary(prefix)}"
    elif prefix in BOUNDARIES or prefix in get_args(ActionKind):
        yield f"capability sets do not limit {prefix}; use one of {', '.join(KINDS)}"
    elif did_you_mean(prefix, KINDS):
        yield f"unknown kind: {prefix!r}; a tool of that name is written 'service:{tool}'{did_you_mean(prefix, KINDS)}"


def capability_sets(declared: Mapping[str, Iterable[str | Capability]]) -> Sets:
    """Make capability sets from a declaration; a bare name allows any arguments. SpecError lists every problem."""
    sets: dict[str, dict[ActionKind, dict[str, tuple[Capability, ...]]]] = {}
    problems = []
    for agent, items in declared.items():
        if isinstance(items, str):
            problems.append(f"capabilities of {agent!r} are a single string: write [{items!r}]")
            continue
        table: dict[ActionKind, dict[str, tuple[Capability, ...]]] = {kind: {} for kind in sorted(LIMITED)}
        for item in items:
            try:
                made = item if isinstance(item, Capability) else capability(item)
            except SpecError as error:
                problems.append(f"{agent}: {error.what}")
                continue
            for kind in made.kinds:
                table[kind][made.tool] = (*table[kind].get(made.tool, ()), made)
        sets[agent] = table
    if problems:
        raise SpecError(what="; ".join(problems), fix='write {"agent": ["tool", capability("other", amount=(0, 9))]}')
    return sets


def refusal_by_sets(record: Record, sets: Sets) -> str:
    """Why the acting agent may not do this, or "", ignoring rates. An agent without a declared set is not limited."""
    action = record.action
    table = sets.get(record.agent)
    if table is None or action.kind not in LIMITED:
        return ""
    return refusal(record.agent, action.kind, action.name, action.arguments, table[action.kind].get(action.name, ()))


def refusal(agent: str, kind: ActionKind, name: str, arguments: Mapping[str, Any], granted: Iterable[Capability]) -> str:
    """Why none of the alternatives covers a call, or ""."""
    reasons = [item.refuses(arguments) for item in granted]
    if not reasons:
        prefix = _PREFIXES[(kind,)]
        return f"{agent} has no capability {name if prefix == 'service' else f'{prefix}:{name}'}"
    return "" if "" in reasons else reasons[0]


def covers(outer: Capability, inner: Capability) -> bool:
    """Whether `outer` provably allows everything that `inner` allows, ignoring rates."""
    if outer.tool != inner.tool or not set(inner.kinds) <= set(outer.kinds):
        return False
    return all(
        name in inner.parameters and narrower(inner.parameters[name], allowed) for name, allowed in outer.parameters.items()
    )
