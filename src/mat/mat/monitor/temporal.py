"""Temporal formulas: atoms on one record, connectives, past and bounded future operators, slices by id; see `compile`.

Windows count steps (`within`) or milliseconds of run time (`within_ms`), or both; `within=5` is 0 to 5 steps away, and
`within=(1, 5)` leaves the step itself out. A past formula has a value at every step, so it can gate an action; a future one
(eventually, until, next) is decided later, and an obligation still open at the end of the trace is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, TypeAlias

from mat.core.errors import SpecError, did_you_mean
from mat.core.record import ACTION_KINDS, ActionKind, Record
from mat.core.spelling import as_kind
from mat.core.value import snapshot
from mat.monitor.contract import kinds_of
from mat.monitor.deep import bottom_up, depth_of, room_for
from mat.monitor.written import refuse_deferred

Bound: TypeAlias = int | tuple[int, int]
SliceKey: TypeAlias = Callable[[Record], Hashable]


class Formula:
    """The connectives of all formulas. The set of formulas is closed (see `FormulaNode`): write predicates, not subclasses."""

    __slots__ = ()

    def __and__(self, other: Formula) -> Formula:
        return And(parts=(*_joined(self, And), _node(other)))

    def __or__(self, other: Formula) -> Formula:
        return Or(parts=(*_joined(self, Or), _node(other)))

    def __invert__(self) -> Formula:
        return Not(part=_node(self))

    def implies(self, other: Formula) -> Formula:
        return Or(parts=(Not(part=_node(self)), _node(other)))

    def __bool__(self) -> bool:
        raise SpecError(
            what="a formula alone has no truth value",
            why="Python's `and`, `or` and `not` would drop part of it",
            fix="write &, | and ~, or .implies(...)",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable that ranges over ids; see `for_each`."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A value read from a record, None if it is missing; comparisons with it are formulas.

    `paths` are attribute paths; several make a tuple. `function` reads anything else. `before` reads the previous step.
    """

    paths: tuple[tuple[str, ...], ...] = ()
    function: Callable[[Record], Any] | None = None
    before: bool = False

    def __eq__(self, other: object) -> Formula:  # type: ignore[override]
        return Compare(left=self, operator="==", right=other)

    def __ne__(self, other: object) -> Formula:  # type: ignore[override]
        return Compare(left=self, operator="!=", right=other)

    def __lt__(self, other: object) -> Formula:
        return Compare(left=self, operator="<", right=other)

    def __le__(self, other: object) -> Formula:
        return Compare(left=self, operator="<=", right=other)

    def __gt__(self, other: object) -> Formula:
        return Compare(left=self, operator=">", right=other)

    def __ge__(self, other: object) -> Formula:
        return Compare(left=self, operator=">=", right=other)

    __hash__ = object.__hash__

    def among(self, values: Iterable[object]) -> Formula:
        """A formula: the value is one of these."""
        members = frozenset(snapshot(value) if isinstance(value, dict | list) else value for value in values)
        return Compare(left=self, operator="in", right=members)


@dataclass(frozen=True, slots=True)
class Window:
    """Distances in steps and milliseconds, both ends included; None: no bound. One step must meet both."""

    low: int = 0
    high: int | None = None
    low_ms: int = 0
    high_ms: int | None = None

    @property
    def bounded(self) -> bool:
        return self.high is not None or self.high_ms is not None

    @property
    def timed(self) -> bool:
        """Whether the window has a bound in milliseconds."""
        return self.low_ms > 0 or self.high_ms is not None


EVER: Final = Window()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compare(Formula):
    """A field compared with a constant, another field or a variable. An ordering with None on either side is false."""

    left: Field
    operator: str
    right: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Atom(Formula):
    """True of a record of one of `kinds`, with that name, for which all of `compares` hold and `test` is true."""

    text: str
    kinds: frozenset[ActionKind] | None = None
    name: str | None = None
    compares: tuple[Compare, ...] = ()
    test: Callable[[Record], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Not(Formula):
    part: FormulaNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class And(Formula):
    parts: tuple[FormulaNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Or(Formula):
    parts: tuple[FormulaNode, ...]

    @property
    def implication(self) -> bool:
        """Whether it is shown as an implication."""
        return len(self.parts) == 2 and isinstance(self.parts[0], Not | Started)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Once(Formula):
    """True now or at some earlier step, at a distance in the window."""

    part: FormulaNode
    window: Window = EVER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Since(Formula):
    """`right` held at some step at a distance in the window, and `left` at every step after that, this one included."""

    left: FormulaNode
    right: FormulaNode
    window: Window = EVER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Previous(Formula):
    """The operand held at the previous step; false at the first step."""

    part: FormulaNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AtMost(Formula):
    """The operand held at no more than `count` steps of the window that ends now."""

    count: int
    part: FormulaNode
    window: Window = EVER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eventually(Formula):
    """True at some step from now on, at a distance in the window."""

    part: FormulaNode
    window: Window = EVER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Until(Formula):
    """`right` holds at some step at a distance in the window, and `left` at every step from now until just before that."""

    left: FormulaNode
    right: FormulaNode
    window: Window = EVER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Next(Formula):
    """There is a next step, and the operand holds at it."""

    part: FormulaNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Always(Formula):
    """The operand holds at every step; only at the top of a contract."""

    part: FormulaNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForEach(Formula):
    """The operand holds on the slice of every id; only at the top of a contract."""

    key: Variable | Field
    part: FormulaNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Started(Formula):
    """Internal: this is not the first step (of the slice)."""


FormulaNode: TypeAlias = (
    Atom | Compare | Started | Not | And | Or | Once | Since | Previous | AtMost | Eventually | Until | Next | Always | ForEach
)


def _node(formula: Formula) -> FormulaNode:
    if not isinstance(formula, FormulaNode):
        raise SpecError(
            what=f"{formula!r} is not a formula",
            fix="from mat.temporal, use tool_call(...), verification(...), predicate(...) or a combination of them",
        )
    return formula


def _joined(formula: Formula, kind: type[And | Or]) -> tuple[FormulaNode, ...]:
    """The parts of what is already joined by the same operator: a formula of many parts is no deeper than one of two."""
    if isinstance(formula, kind) and not (isinstance(formula, Or) and formula.implication):
        return formula.parts
    return (_node(formula),)


def children(node: FormulaNode) -> tuple[FormulaNode, ...]:
    """The direct operands of a formula."""
    match node:
        case And(parts=parts) | Or(parts=parts):
            return parts
        case Since(left=left, right=right) | Until(left=left, right=right):
            return (left, right)
        case Atom() | Compare() | Started():
            return ()
        case _:
            return (node.part,)


def subformulas(node: FormulaNode) -> Iterator[FormulaNode]:
    """All formulas inside a formula, inner ones first, and then itself."""
    waiting, found = [node], list[FormulaNode]()
    while waiting:  # a formula may be nested more deeply than Python calls
        part = waiting.pop()
        found.append(part)
        waiting += children(part)
    return reversed(found)


def depth(node: FormulaNode) -> int:
    """How deeply operators are nested."""
    return depth_of(node, children)


@bottom_up(children)
def _types(node: FormulaNode, inner: list[frozenset[type]]) -> frozenset[type]:
    """The types of the formula and of those inside it."""
    found = inner[0].union(*inner[1:]) if inner else frozenset[type]()
    return found if type(node) in found else found | {type(node)}


def contains(node: FormulaNode, kinds: type | UnionType) -> bool:
    """Whether the formula, or one inside it, is of these kinds."""
    return any(issubclass(kind, kinds) for kind in _types(node))


def looks_ahead(node: FormulaNode) -> bool:
    """Whether its value can depend on later steps."""
    return contains(node, Eventually | Until | Next)


def always(formula: Formula) -> Formula:
    """The formula holds at every step; only at the top of a contract. Each step at which it does not is a violation.

    Raises `mat.MatError` for anything but a formula.

    >>> from mat_contracts.traces import broken, record, trace
    >>> small = mat.contract("small", mat.temporal.always(mat.temporal.field("arguments.amount") <= 500))
    >>> broken(small, trace(record("tool_call", "refund", {"amount": 20}), record("tool_call", "refund", {"amount": 900})))
    (1,)

    Source: A1.6.
    """
    return Always(part=_node(formula))


def once(formula: Formula, *, within: Bound | None = None, within_ms: Bound | None = None) -> Formula:
    """The formula holds now or held at some earlier step.

    `within`: at most that many steps ago, this step being 0; `within_ms`: that many milliseconds of run time. Each can be
    (low, high): `within=(1, 5)` leaves this step out. Both ends count. Raises `mat.MatError` for a formula about later steps,
    and for bounds that are not counts.

    >>> from mat.temporal import always, once, tool_call, verification
    >>> from mat_contracts.traces import broken, record, trace
    >>> verified = mat.contract("verified", always(tool_call("refund").implies(once(verification(), within=1))))
    >>> broken(verified, trace(record("verification", "owner"), record("tool_call", "refund"), record("tool_call", "refund")))
    (2,)

    Source: A1.9.
    """
    return Once(part=_past(formula, "once"), window=_window(within, within_ms))


def historically(formula: Formula, *, within: Bound | None = None, within_ms: Bound | None = None) -> Formula:
    """The formula holds now and held at every earlier step.

    `within`: at each of that many steps back; `within_ms`: at the steps of the last milliseconds of run time. Raises
    `mat.MatError` for a formula about later steps, and for bounds that are not counts.

    >>> from mat.temporal import always, field, historically, tool_call
    >>> from mat_contracts.traces import broken, record, trace
    >>> calm = mat.contract("calm", always(tool_call("pay").implies(historically(field("error") == None, within=1))))
    >>> failed, paid = record("tool_call", "track", error="timeout"), record("tool_call", "pay")
    >>> broken(calm, trace(failed, paid, paid))
    (1,)

    Source: A1.9.
    """
    return Not(part=Once(part=Not(part=_past(formula, "historically")), window=_window(within, within_ms)))


def since(left: Formula, right: Formula, *, within: Bound | None = None, within_ms: Bound | None = None) -> Formula:
    """`right` held at this or an earlier step, and `left` held at every step after that, this one included.

    `within`: `right` held at most that many steps ago; `within_ms`: milliseconds of run time. Raises `mat.MatError` for a
    formula about later steps, and for bounds that are not counts.

    >>> from mat.temporal import always, since, tool_call, verification
    >>> from mat_contracts.traces import broken, record, trace
    >>> fresh = since(~tool_call("edit"), verification())
    >>> checked = mat.contract("checked", always(tool_call("pay").implies(fresh)))
    >>> paid, edited = record("tool_call", "pay"), record("tool_call", "edit")
    >>> broken(checked, trace(record("verification"), paid, edited, paid))
    (3,)

    Source: A1.9.
    """
    return Since(left=_past(left, "since"), right=_past(right, "since"), window=_window(within, within_ms))


def previous(formula: Formula | Field) -> Any:
    """For a formula: it held at the previous step (false at the first). For a field: its value there (None at the first).

    Returns a formula, or a field to compare. Raises `mat.MatError` for a formula about later steps.

    >>> from mat.temporal import always, field, previous
    >>> from mat_contracts.traces import broken, record, trace
    >>> growing = mat.contract("growing", always(~(field("arguments.page") < previous(field("arguments.page")))))
    >>> broken(growing, trace(*(record("tool_call", "list", {"page": page}) for page in (1, 2, 1))))
    (2,)

    Source: A1.9.
    """
    if isinstance(formula, Field):
        return Field(paths=formula.paths, function=formula.function, before=True)
    return Previous(part=_past(formula, "previous"))


def at_most(count: int, formula: Formula, *, within: int | None = None, within_ms: int | None = None) -> Formula:
    """The formula held at no more than `count` steps: so far, or in the window that ends now.

    `within`: the window in steps before this one; `within_ms`: in milliseconds of run time. `always(at_most(n, phi))` is
    judged at the steps where phi holds: each step beyond `count` is a violation. Raises `mat.MatError` for a formula about
    later steps, and for a count or bound below 0.

    >>> from mat.temporal import always, at_most, tool_call
    >>> from mat_contracts.traces import broken, record, trace
    >>> twice = mat.contract("twice", always(at_most(2, tool_call("search"))))
    >>> broken(twice, trace(*[record("tool_call", "search")] * 4))
    (2, 3)

    Source: A1.9.
    """
    _check_count(count, "the count of at_most")
    for bound, name in ((within, "within"), (within_ms, "within_ms")):
        if bound is not None:
            _check_count(bound, name)
    return AtMost(count=count, part=_past(formula, "at_most"), window=Window(high=within, high_ms=within_ms))


def eventually(formula: Formula, *, within: Bound | None = None, within_ms: Bound | None = None) -> Formula:
    """The formula holds now or at some later step. If it is still open at the end of the trace, that is a violation.

    `within`: at most that many steps from now; `within_ms`: milliseconds of run time; each can be (low, high). Raises
    `mat.MatError` for bounds that are not counts.

    >>> from mat.temporal import action, always, eventually, tool_call
    >>> from mat_contracts.traces import broken, record, trace
    >>> told = mat.contract("told", always(tool_call("refund").implies(eventually(action("message", "user"), within=2))))
    >>> broken(told, trace(record("tool_call", "refund"), record("message", "user"), record("tool_call", "refund")))
    (2,)

    Source: A1.9.
    """
    return Eventually(part=_part(formula), window=_window(within, within_ms))


def until(left: Formula, right: Formula, *, within: Bound | None = None, within_ms: Bound | None = None) -> Formula:
    """`right` holds now or at some later step, and `left` at every step from now until just before that.

    `within`: `right` holds at most that many steps from now; `within_ms`: milliseconds of run time. If it is still open at the
    end of the trace, that is a violation. Raises `mat.MatError` for bounds that are not counts.

    >>> from mat.temporal import always, tool_call, until
    >>> from mat_contracts.traces import broken, record, trace
    >>> locked = mat.contract("locked", always(tool_call("lock").implies(until(~tool_call("read"), tool_call("unlock")))))
    >>> broken(locked, trace(record("tool_call", "lock"), record("tool_call", "read"), record("tool_call", "unlock")))
    (1,)

    Source: A1.9.
    """
    return Until(left=_part(left), right=_part(right), window=_window(within, within_ms))


def next(formula: Formula) -> Formula:
    """The formula holds at the next step; false at the last step of a finished trace.

    Raises `mat.MatError` for anything but a formula, and for one that describes a whole trace (`always`, `for_each`).

    >>> from mat.temporal import always, next, tool_call, verification
    >>> from mat_contracts.traces import broken, record, trace
    >>> checked = mat.contract("checked", always(tool_call("write").implies(next(verification()))))
    >>> broken(checked, trace(record("tool_call", "write"), record("verification"), record("tool_call", "write")))
    (2,)

    Source: A1.9.
    """
    return Next(part=_part(formula))


def for_each(key: str | Variable | Field | SliceKey, formula: Formula) -> Formula:
    """The formula holds for every id separately (parametric trace slicing); only at the top of a contract.

    `key` reads the id from a record: a path such as "arguments.order", a field, or a function of the record (None: the record
    concerns no id). The formula is judged on the slice of each id, the records with that key. If an id occurs in several
    places, use a variable: `order = variable("order")`, then `tool_call("pay", order=order)` or `field("value.id") == order`.
    The slice of an id is then the records at which an atom with the variable is true of it, and parts without the variable are
    judged on the whole trace. Windows count steps and time of the whole trace; `previous` and `next` refer to the neighbours
    in the slice. State is kept for each id as long as it can matter.

    Raises `mat.MatError` if the formula does not mention the variable, and for a key of the previous step.

    >>> from mat.temporal import always, at_most, for_each, tool_call
    >>> from mat_contracts.traces import broken, record, trace
    >>> paid_once = mat.contract("paid_once", for_each("arguments.order", always(at_most(1, tool_call("pay")))))
    >>> broken(paid_once, trace(*(record("tool_call", "pay", {"order": order}) for order in ("A", "B", "A"))))
    (2,)

    Source: A1.9; parametric trace slicing (Chen and Rosu 2009).
    """
    node = _node(formula)
    if isinstance(key, Variable):
        if not mentions(node, key):
            raise SpecError(
                what=f"the formula of for_each does not mention the variable {key.name!r}",
                fix=f'compare something with it, as in tool_call("pay", {key.name}={key.name})',
            )
        return ForEach(key=key, part=node)
    read = key if isinstance(key, Field) else field(key)
    if read.before:
        raise SpecError(what="the key of for_each is a field of the previous step", fix="use a field of the record itself")
    return ForEach(key=read, part=node)


def mentions(node: FormulaNode, variable: Variable) -> bool:
    """Whether an atom of the formula uses the variable."""
    return variable in _variables(node)


@bottom_up(children)
def _variables(node: FormulaNode, inner: list[frozenset[Variable]]) -> frozenset[Variable]:
    if isinstance(node, Atom | Compare):
        compares = (node,) if isinstance(node, Compare) else node.compares
        return frozenset(compare.right for compare in compares if isinstance(compare.right, Variable))
    return inner[0].union(*inner[1:]) if inner else frozenset()


def variable(name: str) -> Variable:
    """A variable for an id that several atoms share; `mat.temporal.for_each` binds it. `name` is how reports show it.

    >>> from mat.temporal import always, for_each, once, tool_call, variable
    >>> from mat_contracts.traces import broken, record, trace
    >>> order = variable("order")
    >>> known = for_each(order, always(tool_call("pay", order=order).implies(once(tool_call("look_up", order=order)))))
    >>> looked, paid = record("tool_call", "look_up", {"order": "A"}), record("tool_call", "pay", {"order": "B"})
    >>> broken(mat.contract("known", known), trace(looked, paid))
    (1,)

    Source: A1.9; parametric trace slicing (Chen and Rosu 2009).
    """
    return Variable(name)


_ROOTS: Final = frozenset(("step", "at_ms", "sealed_ms", "agent", "role", "site", "effected", "invoked", "state", "mediation"))
_SHORT: Final = {
    **{name: ("action", name) for name in ("kind", "name", "arguments", "effect", "impact", "boundary")},
    **{name: ("observation", name) for name in ("value", "error", "cancelled", "usage", "chunks")},
}
_MAPPINGS: Final = frozenset(("state", "arguments", "value", "usage"))


def field(*paths: str | SliceKey) -> Field:
    """A value of the record, to compare: `field("arguments.amount") <= 500`, `field("state.n") < previous(field("state.n"))`.

    A path starts with step, at_ms, agent, role, kind, name, arguments, effect, impact, effected, value (what came back), error
    (`error.kind`), usage, state or mediation (`mediation.decision`), and continues through mappings; a missing value is None,
    and no ordering with None holds. Several paths make a tuple of values. A function of the record can read anything else.
    Comparisons, and `.among(values)` for membership, are formulas. Raises `mat.MatError` for a path that no record has.

    `paths`: texts, or functions of the record.

    >>> from mat.temporal import always, field
    >>> from mat_contracts.traces import broken, record, trace
    >>> known = mat.contract("known", always(field("arguments.country").among(["DE", "FR"])))
    >>> broken(known, trace(record("tool_call", "ship", {"country": "DE"}), record("tool_call", "ship", {"country": "XX"})))
    (1,)

    Source: A1.9.
    """
    if len(paths) == 1 and callable(paths[0]):
        refuse_deferred(paths[0], "the function of a field")
        return Field(function=paths[0])
    if not paths or not all(isinstance(path, str) for path in paths):
        raise SpecError(
            what=f"{paths!r} is not a field", fix='give paths such as "arguments.order", or one function of the record'
        )
    return Field(paths=tuple(_path(str(path)) for path in paths))


def _path(given: str) -> tuple[str, ...]:
    parts: tuple[str, ...] = tuple(given.split("."))
    if parts[0] in ("action", "observation") and len(parts) > 1:
        parts = parts[1:]
    root, rest = parts[0], parts[1:]
    known = [*_ROOTS, *_SHORT]
    if root not in known or not all(parts):
        raise SpecError(
            what=f"a record has no {given!r}{did_you_mean(root, known)}", fix=f"start with {', '.join(sorted(known))}"
        )
    attributes: tuple[str, ...] = {"error": ("kind", "type", "message"), "mediation": ("decision", "rule", "reason")}.get(
        root, ()
    )
    if rest and root not in _MAPPINGS and not (len(rest) == 1 and rest[0] in attributes):
        raise SpecError(
            what=f"{given!r}: {root} has no parts {'.'.join(rest)!r}",
            fix="correct the path; mat.temporal.field describes paths",
        )
    if attributes and not rest:
        rest = attributes[:1]
    return (*_SHORT.get(root, (root,)), *rest)


def predicate(
    test: Callable[[Record], bool], *, on: ActionKind | Iterable[ActionKind] | None = None, text: str = ""
) -> Formula:
    """An atom from a function of one record that returns a bool.

    `on`: the action kinds for which it can be true ("tool_call", or several), by default all. `text`: how violations show it,
    by default the function's name. If it raises or returns anything else, the contract could not be judged (`on_error`).

    `test`: a function of the record; it returns True or False. Raises `mat.MatError` for a coroutine or generator function.

    >>> from mat.temporal import always, predicate
    >>> from mat_contracts.traces import broken, record, trace
    >>> long = predicate(lambda record: len(record.action.arguments["text"]) > 3, on="message")
    >>> broken(mat.contract("short", always(~long)), trace(record("message", "user", {"text": "hello"})))
    (0,)

    Source: A1.9.
    """
    refuse_deferred(test, "a predicate")
    return Atom(text=text or getattr(test, "__name__", "predicate"), kinds=kinds_of(on), test=test)


def action(
    kind: ActionKind,
    name: str | None = None,
    *,
    arguments: Mapping[str, object] | None = None,
    where: Callable[[Record], bool] | None = None,
    text: str = "",
) -> Formula:
    """An atom: a record of one action kind, optionally with one name.

    `arguments`: parameter -> a value, a variable, or a function of the value that says whether it matches. `where`: a function
    of the record. `text`: how violations show it. Raises `mat.MatError` for an unknown kind.

    >>> from mat.temporal import action, always
    >>> from mat_contracts.traces import broken, record, trace
    >>> silent = mat.contract("silent", always(~action("message", "user")))
    >>> broken(silent, trace(record("message", "mailer"), record("message", "user")))
    (1,)

    Source: A1.9.
    """
    if kind not in ACTION_KINDS:
        hint = as_kind(kind) or did_you_mean(kind, ACTION_KINDS)
        raise SpecError(what=f"unknown action kind: {kind!r}{hint}", fix=f"choose from {', '.join(ACTION_KINDS)}")
    filters = tuple(sorted((arguments or {}).items()))
    for test in (where, *(arguments or {}).values()):
        refuse_deferred(test, f"a test of {kind}({name or ''})")
    compares = tuple(
        Compare(left=Field(paths=(("action", "arguments", key),)), operator="test" if callable(wanted) else "==", right=wanted)
        for key, wanted in filters
    )
    said = text or _atom_text(kind, name, filters)
    return Atom(text=said, kinds=frozenset((kind,)), name=name, compares=compares, test=where)


def tool_call(name: str | None = None, *, where: Callable[[Record], bool] | None = None, **arguments: object) -> Formula:
    """An atom: a call of that tool (of any tool without a name), including blocked and failed calls.

    `arguments`: parameter=value, a variable, or a function of the value that says whether it matches. `where`: a function of
    the record.

    Raises `mat.MatError` if `where` is a coroutine or generator function.

    >>> from mat.temporal import always, tool_call
    >>> from mat_contracts.traces import broken, record, trace
    >>> small = mat.contract("small", always(~tool_call("refund", amount=lambda amount: amount > 500)))
    >>> broken(small, trace(record("tool_call", "refund", {"amount": 20}), record("tool_call", "refund", {"amount": 900})))
    (1,)

    Source: A1.9.
    """
    return action("tool_call", name, arguments=arguments, where=where)


def verification(name: str | None = None, *, passed: bool | None = None) -> Formula:
    """An atom: a recorded check (`mat.verify`), optionally by its name and by its outcome.

    `name`: the check, by default any. `passed`: its outcome, by default either.

    >>> from mat.temporal import always, verification
    >>> from mat_contracts.traces import broken, record, trace
    >>> sound = mat.contract("sound", always(~verification("owner", passed=False)))
    >>> broken(sound, trace(*(record("verification", "owner", {"passed": passed}) for passed in (True, False))))
    (1,)

    Source: A1.9.
    """
    return action("verification", name, arguments={} if passed is None else {"passed": passed})


def _part(formula: Formula) -> FormulaNode:
    node = _node(formula)
    if isinstance(node, Always | ForEach):
        raise SpecError(
            what=f"{'always' if isinstance(node, Always) else 'for_each'}(...) is nested inside another formula",
            why="it describes the whole trace, so it has no value at a step",
            fix="use historically(...) inside, and always(...) or for_each(...) outermost",
        )
    return node


def _past(formula: Formula, operator: str) -> FormulaNode:
    node = _part(formula)
    if looks_ahead(node):
        raise SpecError(
            what=f"{operator}(...) is applied to a formula about later steps: {text(node)}",
            why="a past operator needs its operand's value at the same step, and later steps decide this one",
            fix="put the past operator inside: eventually(once(...)), or state it as trigger.implies(eventually(...))",
        )
    return node


def _window(steps: Bound | None, milliseconds: Bound | None) -> Window:
    (low, high), (low_ms, high_ms) = _parse_bound(steps, "within"), _parse_bound(milliseconds, "within_ms")
    return Window(low=low, high=high, low_ms=low_ms, high_ms=high_ms)


def _parse_bound(bound: Bound | None, name: str) -> tuple[int, int | None]:
    if bound is None:
        return (0, None)
    if isinstance(bound, tuple) and len(bound) == 2:
        low, high = bound
        _check_count(low, name)
        if high is None:
            return (low, None)
        _check_count(high, name)
        if low > high:
            raise SpecError(what=f"{name}={bound!r} ends before it starts", fix="give (low, high) with low <= high")
        return (low, high)
    _check_count(bound, name)
    assert isinstance(bound, int)
    return (0, bound)


def _check_count(bound: object, name: str) -> None:
    if not isinstance(bound, int) or isinstance(bound, bool) or bound < 0:
        raise SpecError(what=f"{name}={bound!r} is not a count", fix=f"give {name} as an integer >= 0, or as (low, high)")


def _atom_text(kind: str, name: str | None, filters: tuple[tuple[str, object], ...]) -> str:
    inside = [repr(name)] if name is not None else []
    inside += [f"{key}={_constant_text(value)}" for key, value in filters]
    return f"{kind}({', '.join(inside)})"


def _constant_text(value: object) -> str:
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, Field):
        return field_text(value)
    return str(getattr(value, "__name__", value)) if callable(value) else repr(value)


def field_text(given: Field) -> str:
    """A field as a person would write it."""
    if given.function is not None:
        said = getattr(given.function, "__name__", "field")
    else:
        shown = [path[1:] if path[0] in ("action", "observation") else path for path in given.paths]
        said = ", ".join(".".join(path) for path in shown)
        said = f"({said})" if len(shown) > 1 else said
    return f"previous({said})" if given.before else said


def text(node: Formula) -> str:
    """A formula as a person would write it."""
    known = _node(node)
    with room_for(depth(known)):
        return _text(known)


def _text(node: FormulaNode) -> str:
    match node:
        case Atom(text=said):
            return said
        case Compare(left=left, operator=operator, right=right):
            shown = f"{{{', '.join(sorted(map(_constant_text, right)))}}}" if operator == "in" else _constant_text(right)
            return f"{field_text(left)} {operator} {shown}"
        case Started():
            return "after the first step"
        case Or(parts=(Started(), part)):
            return _text(part)
        case Not(part=Once(part=Not(part=part), window=window)):
            return f"historically({_text(part)}{_bounds_text(window)})"
        case Not(part=part):
            return f"~{_text(part)}"
        case And(parts=parts):
            return "(" + " & ".join(_text(part) for part in parts) + ")"
        case Or(parts=(Not(part=left), right)):
            return f"({_text(left)} implies {_text(right)})"
        case Or(parts=parts):
            return "(" + " | ".join(_text(part) for part in parts) + ")"
        case Once(part=part, window=window):
            return f"once({_text(part)}{_bounds_text(window)})"
        case Since(left=left, right=right, window=window):
            return f"since({_text(left)}, {_text(right)}{_bounds_text(window)})"
        case Previous(part=part):
            return f"previous({_text(part)})"
        case AtMost(count=count, part=part, window=window):
            return f"at_most({count}, {_text(part)}{_bounds_text(window)})"
        case Eventually(part=part, window=window):
            return f"eventually({_text(part)}{_bounds_text(window)})"
        case Until(left=left, right=right, window=window):
            return f"until({_text(left)}, {_text(right)}{_bounds_text(window)})"
        case Next(part=part):
            return f"next({_text(part)})"
        case Always(part=part):
            return f"always({_text(part)})"
        case ForEach(key=key, part=part):
            return f"for_each({key.name if isinstance(key, Variable) else field_text(key)}, {_text(part)})"


def _bounds_text(window: Window) -> str:
    said = ""
    for low, high, name in ((window.low, window.high, "within"), (window.low_ms, window.high_ms, "within_ms")):
        if low:
            said += f", {name}=({low}, {high})"
        elif high is not None:
            said += f", {name}={high}"
    return said
