"""Formulas: atoms on one record, boolean connectives, past operators. Values; `compile` makes a fold of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import ACTION_KINDS, ActionKind, Record
from mat.monitor.contract import did_you_mean, kinds_of


class Formula:
    """Connectives of every formula. The set of formulas is closed: see `Node`; users write predicates, not subclasses."""

    __slots__ = ()

    def __and__(self, other: Formula) -> Formula:
        return And(parts=(_node(self), _node(other)))

    def __or__(self, other: Formula) -> Formula:
        return Or(parts=(_node(self), _node(other)))

    def __invert__(self) -> Formula:
        return Not(part=_node(self))

    def implies(self, other: Formula) -> Formula:
        return Or(parts=(Not(part=_node(self)), _node(other)))

    def __bool__(self) -> bool:
        raise SpecError(
            what="a formula has no truth value by itself",
            why="`and`, `or` and `not` would drop half of it",
            fix="write &, | and ~, or .implies(...)",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Atom(Formula):
    """True of a record of one of `kinds`, with that name, for which `test` is true."""

    text: str
    kinds: frozenset[ActionKind] | None = None
    name: str | None = None
    test: Callable[[Record], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Not(Formula):
    part: Node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class And(Formula):
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Or(Formula):
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Once(Formula):
    """True now or at some step before, at most `within` steps and `within_ms` milliseconds ago."""

    part: Node
    within: int | None = None
    within_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Always(Formula):
    """At the top of a contract only: the part holds at every step."""

    part: Node


Node: TypeAlias = Atom | Not | And | Or | Once | Always


def _node(formula: Formula) -> Node:
    if not isinstance(formula, Atom | Not | And | Or | Once | Always):
        raise SpecError(
            what=f"{formula!r} is not a formula",
            fix="write mat.tool_call(...), mat.verification(...), mat.predicate(...) or combine them",
        )
    return formula


def always(formula: Formula) -> Formula:
    """The formula holds at every step."""
    return Always(part=_node(formula))


def once(formula: Formula, *, within: int | None = None, within_ms: int | None = None) -> Formula:
    """It holds now or held before; with `within`, at most that many steps ago; with `within_ms`, milliseconds."""
    _positive(within, "within")
    _positive(within_ms, "within_ms")
    return Once(part=_node(formula), within=within, within_ms=within_ms)


def historically(formula: Formula, *, within: int | None = None, within_ms: int | None = None) -> Formula:
    """It holds now and held at every step before; with `within`, over that many steps back."""
    _positive(within, "within")
    _positive(within_ms, "within_ms")
    return Not(part=Once(part=Not(part=_node(formula)), within=within, within_ms=within_ms))


def _positive(bound: int | None, name: str) -> None:
    if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < 0):
        raise SpecError(what=f"{name}={bound!r} is not a count", fix=f"give {name} as an integer >= 0")


def predicate(
    test: Callable[[Record], bool], *, on: ActionKind | Iterable[ActionKind] | None = None, text: str = ""
) -> Formula:
    """An atom from any predicate on one record; `on` names the action kinds it can be true of."""
    return Atom(text=text or getattr(test, "__name__", "predicate"), kinds=kinds_of(on), test=test)


def action(
    kind: ActionKind,
    name: str | None = None,
    *,
    arguments: Mapping[str, object] | None = None,
    where: Callable[[Record], bool] | None = None,
    text: str = "",
) -> Formula:
    """An atom for one action kind, optionally of one name; each argument filter is a value or a predicate on the value."""
    if kind not in ACTION_KINDS:
        raise SpecError(
            what=f"no action kind is called {kind!r}{did_you_mean(kind, ACTION_KINDS)}", fix=", ".join(ACTION_KINDS)
        )
    filters = tuple(sorted((arguments or {}).items()))
    return Atom(text=text or _atom_text(kind, name, filters), kinds=frozenset((kind,)), name=name, test=_test(filters, where))


def tool_call(name: str | None = None, *, where: Callable[[Record], bool] | None = None, **arguments: object) -> Formula:
    """An atom: a call of that tool (any, where no name is given), blocked and failed ones included."""
    return action("tool_call", name, arguments=arguments, where=where)


def verification(name: str | None = None, *, passed: bool | None = None) -> Formula:
    """An atom: a recorded check (`mat.verify`), optionally by outcome."""
    return action("verification", name, arguments={} if passed is None else {"passed": passed})


def _test(filters: tuple[tuple[str, object], ...], where: Callable[[Record], bool] | None) -> Callable[[Record], bool] | None:
    if not filters:
        return where
    if len(filters) == 1 and where is None and not callable(filters[0][1]):
        key, wanted = filters[0]
        return lambda record: record.action.arguments.get(key, _ABSENT) == wanted

    def test(record: Record) -> bool:
        arguments = record.action.arguments
        for key, wanted in filters:
            value = arguments.get(key, _ABSENT)
            if value is _ABSENT or not (wanted(value) if callable(wanted) else value == wanted):
                return False
        return where is None or bool(where(record))

    return test


_ABSENT: Any = object()


def _atom_text(kind: str, name: str | None, filters: tuple[tuple[str, object], ...]) -> str:
    inside = [repr(name)] if name is not None else []
    inside += [f"{key}={getattr(value, '__name__', value) if callable(value) else repr(value)}" for key, value in filters]
    return f"{kind}({', '.join(inside)})"


def text(node: Formula) -> str:
    """A formula as a person would write it."""
    match _node(node):
        case Atom(text=said):
            return said
        case Not(part=Once(part=Not(part=part), within=within, within_ms=within_ms)):
            return f"historically({text(part)}{_bounds(within, within_ms)})"
        case Not(part=part):
            return f"~{text(part)}"
        case And(parts=parts):
            return "(" + " & ".join(text(part) for part in parts) + ")"
        case Or(parts=(Not(part=left), right)):
            return f"({text(left)} implies {text(right)})"
        case Or(parts=parts):
            return "(" + " | ".join(text(part) for part in parts) + ")"
        case Once(part=part, within=within, within_ms=within_ms):
            return f"once({text(part)}{_bounds(within, within_ms)})"
        case Always(part=part):
            return f"always({text(part)})"


def _bounds(within: int | None, within_ms: int | None) -> str:
    return (f", within={within}" if within is not None else "") + (f", within_ms={within_ms}" if within_ms is not None else "")
