"""Split a contract's formula into goals: where each is judged, on which slice, and at which action kinds.

A goal is skipped at a step where neither its truth nor its state can change. `true_kinds` and `false_kinds` bound the
action kinds at which a formula can be true, or false; an atom is false at every other kind, so the state of once(phi) can
only change where phi can be true. That is why the dispatch by kind is sound (tests/monitor compares it with every step).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import ActionKind
from mat.monitor.deep import remembered
from mat.monitor.temporal import (
    Always,
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
    ForEach,
    FormulaNode,
    Next,
    Not,
    Once,
    Or,
    Previous,
    Since,
    Started,
    Until,
    Variable,
    children,
    contains,
    looks_ahead,
    mentions,
    subformulas,
    text,
)

Kinds: TypeAlias = frozenset[ActionKind] | None
"""None: any kind."""
When: TypeAlias = Literal["every", "first", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One requirement of a contract. `body` holds at every step, the first or the last, of the trace or of each slice.

    `touches` is the formula of the whole for_each: its atoms with the variable say which steps are in the slice of an id.
    """

    body: Any
    when: When
    key: Variable | Field | None = None
    touches: Any = None
    kinds: Kinds = None

    @property
    def ahead(self) -> bool:
        return looks_ahead(self.body)


def goals_of(node: FormulaNode) -> tuple[Goal, ...]:
    """The goals of a formula: always(phi) at every step, a formula that looks ahead at the first, any other at the last."""
    return tuple(_with_kinds(goal) for goal in _goals(node, None, always=False))


def pattern(goal: Goal) -> tuple[Any, Eventually | Until | Next, bool] | None:
    """(guard, operator, negated) where `response` applies to the goal's slice as well.

    Under a variable, an operator without the variable is judged on the whole trace, for ids that are not touched too.
    """
    found = response(goal.body)
    if found is not None and isinstance(goal.key, Variable) and not mentions(found[1], goal.key):
        return None
    return found


def chain(goal: Goal) -> tuple[Any, Eventually, Any, Eventually] | None:
    """(guard, first, link, then) for guard | first = eventually(link & then), then = eventually(past), both within steps.

    A fault is detected, then mitigated: common enough, and slow enough as a general formula, to be written out.
    """
    parts = alternatives(goal.body)
    future = [part for part in parts if looks_ahead(part)]
    if goal.key is not None or len(future) != 1 or not isinstance(future[0], Eventually):
        return None
    first = future[0]
    if not isinstance(first.part, And):
        return None
    inner = [part for part in first.part.parts if looks_ahead(part)]
    if len(inner) != 1 or not isinstance(inner[0], Eventually) or looks_ahead(inner[0].part):
        return None
    then = inner[0]
    if any(window.high is None or window.timed for window in (first.window, then.window)):
        return None
    rest = tuple(part for part in parts if part is not first)
    return Or(parts=rest), first, And(parts=tuple(part for part in first.part.parts if part is not then)), then


def _goals(node: FormulaNode, key: Variable | Field | None, *, always: bool) -> Iterator[Goal]:
    match node:
        case And(parts=parts) if not always and (looks_ahead(node) or contains(node, Always | ForEach)):
            for part in parts:
                yield from _goals(part, key, always=False)
        case Always(part=part):
            yield from _goals(part, key, always=True)
        case ForEach(key=own, part=part):
            if key is not None:
                raise SpecError(
                    what="for_each(...) is nested inside for_each(...)",
                    fix='use one key that reads both ids: for_each(field("arguments.order", "agent"), ...)',
                )
            yield from (replace(goal, touches=_strip_always(part)) for goal in _goals(part, own, always=always))
        case _:
            yield _goal(node, key, always=always)


def _goal(node: FormulaNode, key: Variable | Field | None, *, always: bool) -> Goal:
    if contains(node, Always | ForEach):
        raise SpecError(
            what=f"always(...) or for_each(...) is nested inside another formula: {text(node)}",
            why="it describes the whole trace, so it has no value at a step",
            fix="use historically(...) inside, and always(...) or for_each(...) outermost (several may be joined by &)",
        )
    _check_variables(node, key)
    if always:
        return Goal(body=_counting(node), when="every", key=key)
    if not looks_ahead(node):
        return Goal(body=node, when="last", key=key)
    if contains(node, Once | Since | Previous | AtMost):
        raise SpecError(
            what=f"the formula refers to past and future steps, but not from which step: {text(node)}",
            fix="write always(...) around it, or two contracts",
        )
    return Goal(body=Or(parts=(Started(), node)), when="first", key=key)


def _counting(node: FormulaNode) -> FormulaNode:
    """Judge always(at_most(n, phi)) only where phi holds: a step that is not counted is not a new violation."""
    if isinstance(node, AtMost):
        return Or(parts=(Not(part=node.part), node))
    return And(parts=tuple(_counting(part) for part in node.parts)) if isinstance(node, And) else node


def _strip_always(node: FormulaNode) -> FormulaNode:
    """A formula without always."""
    if isinstance(node, Always):
        return _strip_always(node.part)
    return And(parts=tuple(_strip_always(part) for part in node.parts)) if isinstance(node, And) else node


def _check_variables(node: FormulaNode, key: Variable | Field | None) -> None:
    for compare in compares_of(node):
        if not isinstance(compare.right, Variable):
            continue
        if compare.right is not key:
            raise SpecError(
                what=f"no for_each binds the variable {compare.right.name!r}",
                fix=f"write for_each({compare.right.name}, ...) around the formula",
            )
        if compare.operator != "==" or compare.left.before:
            raise SpecError(
                what=f"a variable can only be compared with ==: {text(compare)}",
                fix="compare it with ==, and negate the comparison with ~",
            )


def compares_of(node: FormulaNode) -> Iterator[Compare]:
    """Every comparison in a formula, those of atoms included."""
    for part in subformulas(node):
        if isinstance(part, Compare):
            yield part
        elif isinstance(part, Atom):
            yield from part.compares


def occurrences(node: FormulaNode) -> Iterator[Once | Since]:
    """The operators whose last occurrence explains why the formula does not hold."""
    return (part for part in subformulas(node) if isinstance(part, Once | Since))


@remembered
def is_present(node: Any) -> bool:
    """Whether the value depends only on the record."""
    if isinstance(node, Compare):
        return not _reads_previous(node)
    if isinstance(node, Atom):
        return not any(_reads_previous(compare) for compare in node.compares)
    return isinstance(node, Not | And | Or) and all(is_present(part) for part in children(node))


def _reads_previous(node: Compare) -> bool:
    return node.left.before or (isinstance(node.right, Field) and node.right.before)


def alternatives(node: Any) -> tuple[Any, ...]:
    """The parts of a disjunction, nested ones included."""
    if isinstance(node, Or):
        return tuple(inner for part in node.parts for inner in alternatives(part))
    return (node,)


def response(body: Any) -> tuple[Any, Eventually | Until | Next, bool] | None:
    """(guard, operator, negated) if the body is `guard | operator`, with one future operator over past formulas; else None."""
    parts = alternatives(body)
    future = [part for part in parts if looks_ahead(part)]
    if len(future) != 1:
        return None
    operator, negated = future[0], False
    if isinstance(operator, Not) and isinstance(operator.part, Eventually):
        operator, negated = operator.part, True
    if not isinstance(operator, Eventually | Until | Next) or any(looks_ahead(part) for part in children(operator)):
        return None
    rest = tuple(part for part in parts if part is not future[0])
    return (Or(parts=rest), operator, negated)


def _with_kinds(goal: Goal) -> Goal:
    if goal.when != "every" or goal.ahead:
        return goal
    return replace(goal, kinds=union(false_kinds(goal.body), *_state_kinds(goal.body, sliced=goal.key is not None)))


def _state_kinds(node: Any, *, sliced: bool) -> Iterator[Kinds]:
    """The action kinds at which the state of a formula can change."""
    match node:
        case Previous() if sliced:  # any record of the id is the one before the next
            yield None
        case Once(part=part) | AtMost(part=part) | Previous(part=part):
            yield true_kinds(part)
        case Since(left=left, right=right):
            yield union(false_kinds(left), true_kinds(right))
        case Compare() if _reads_previous(node):
            yield None
        case Atom(compares=compares) if any(_reads_previous(compare) for compare in compares):
            yield None
    for part in children(node):
        yield from _state_kinds(part, sliced=sliced)


@remembered
def true_kinds(node: Any) -> Kinds:
    match node:
        case Atom(kinds=kinds):
            return kinds
        case Not(part=part):
            return false_kinds(part)
        case And(parts=parts):
            return _intersection(*[true_kinds(part) for part in parts])
        case Or(parts=parts):
            return union(*[true_kinds(part) for part in parts])
        case _:
            return None


@remembered
def false_kinds(node: Any) -> Kinds:
    match node:
        case Not(part=part):
            return true_kinds(part)
        case And(parts=parts):
            return union(*[false_kinds(part) for part in parts])
        case Or(parts=parts):
            return _intersection(*[false_kinds(part) for part in parts])
        case _:
            return None


def decided(node: Any, kind: ActionKind | None) -> bool | None:
    """The value of a formula where the kind of the record alone decides it. `kind`: None for one that no formula names."""
    if isinstance(node, Atom | Not | And | Or):
        for kinds, value in ((true_kinds(node), False), (false_kinds(node), True)):
            if kinds is not None and kind not in kinds:
                return value
    return None


def union(*sets: Kinds) -> Kinds:
    found: frozenset[ActionKind] = frozenset()
    for kinds in sets:
        if kinds is None:
            return None
        found |= kinds
    return found


def _intersection(*sets: Kinds) -> Kinds:
    found: Kinds = None
    for kinds in sets:
        if kinds is not None:
            found = kinds if found is None else found & kinds
    return found


def shape(goals: tuple[Goal, ...]) -> tuple[Hashable, tuple[Any, ...]]:
    """A key equal for goals that differ only in the objects they hold (functions, variables, sets), and those objects."""
    objects: list[Any] = []

    def held(value: Any) -> Hashable:
        if value is None or type(value) in (str, int, float, bool):
            return (type(value), repr(value))
        if isinstance(value, Field):
            return ("field", value.paths, held(value.function), value.before)
        objects.append(value)
        return ("object",)

    def part(node: Any) -> Hashable:
        match node:
            case Atom(kinds=kinds, name=name, compares=compares, test=test):
                return ("atom", kinds, name, tuple(map(part, compares)), held(test))
            case Compare(left=left, operator=operator, right=right):
                return ("compare", held(left), operator, held(right))
            case AtMost(count=count, window=window):
                return ("at_most", count, window)
            case _:
                return (type(node).__name__, getattr(node, "window", None), len(children(node)))

    def walk(node: Any) -> tuple[Hashable, ...]:
        """Flat, because tuples that are nested deeply cannot be compared."""
        return tuple(part(inner) for inner in subformulas(node))

    key = tuple(
        (goal.when, goal.kinds, held(goal.key), walk(goal.body), None if goal.touches is None else walk(goal.touches))
        for goal in goals
    )
    return key, tuple(objects)


class Canon:
    """Makes equal subformulas one object, so that they share state and work. Functions and variables are equal by identity."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def __call__(self, node: Any) -> Any:
        match node:
            case Atom(kinds=kinds, name=name, compares=compares, test=test):
                parts = tuple(self(compare) for compare in compares)
                key: Hashable = ("atom", kinds, name, tuple(map(id, parts)), test if test is None else id(test))
                return self._canonical(key, replace(node, compares=parts))
            case Compare(left=left, operator=operator, right=right):
                return self._canonical(("compare", _field_key(left), operator, _constant_key(right)), node)
            case Started():
                return node  # each goal has its own
            case Not(part=part):
                made = self(part)
                return self._canonical(("not", id(made)), Not(part=made))
            case And(parts=parts) | Or(parts=parts):
                made_parts = [self(part) for part in parts]
                if not isinstance(parts[0], Started):  # what is judged at the first step only stays one part
                    made_parts = [inner for part in made_parts for inner in self._joined(part, type(node))]
                all_parts = tuple(made_parts)
                return self._canonical((type(node).__name__, tuple(map(id, all_parts))), type(node)(parts=all_parts))
            case Since(left=left, right=right, window=window) | Until(left=left, right=right, window=window):
                one, other = self(left), self(right)
                key = (type(node).__name__, id(one), id(other), window)
                return self._canonical(key, type(node)(left=one, right=other, window=window))
            case Once(part=part, window=window) | Eventually(part=part, window=window):
                made = self(part)
                return self._canonical((type(node).__name__, id(made), window), type(node)(part=made, window=window))
            case AtMost(count=count, part=part, window=window):
                made = self(part)
                return self._canonical(("at_most", count, id(made), window), AtMost(count=count, part=made, window=window))
            case Previous(part=part) | Next(part=part):
                made = self(part)
                return self._canonical((type(node).__name__, id(made)), type(node)(part=made))
        raise AssertionError(node)

    def _joined(self, node: Any, connective: type, *, positive: bool = True) -> Iterator[Any]:
        """A part as parts of a connective: (a | b) | c and a | ~(~b & ~c) are a | b | c, so that parts are asked together."""
        if isinstance(node, Not):
            yield from self._joined(node.part, connective, positive=not positive)
        elif isinstance(node, And | Or) and isinstance(node, connective) is positive:
            for part in node.parts:
                yield from self._joined(part, connective, positive=positive)
        else:
            yield node if positive else self._canonical(("not", id(node)), Not(part=node))

    def _canonical(self, key: Hashable, node: Any) -> Any:
        return self._known.setdefault(key, node)


def _field_key(field: Field) -> Hashable:
    return ("field", field.paths, None if field.function is None else id(field.function), field.before)


def _constant_key(value: Any) -> Hashable:
    if isinstance(value, Field):
        return _field_key(value)
    if type(value) in (str, int, float, bool, type(None)):
        return (type(value).__name__, repr(value))
    return ("object", id(value))
