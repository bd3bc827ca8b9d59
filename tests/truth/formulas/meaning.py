"""What a formula means, from `docs/reference/formulas.md` and the docstrings of `mat.temporal`, by definition, not for speed.

Every value is looked up again in the whole trace. A formula of the future has three values on a prefix: True, False, or None,
not yet known; and two at the end, where nothing more comes. Decisions 0006, 0021 and 0026 say what the guide leaves open.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tests.truth.formulas.language import (
    FUTURE,
    PAST,
    Acts,
    All,
    Among,
    Any,
    AtMost,
    Compares,
    Contract,
    Eventually,
    Fact,
    Implies,
    Next,
    Not,
    Part,
    Past,
    Phi,
    Plain,
    Previous,
    Read,
    Says,
    Since,
    Until,
    Variable,
    Window,
    children,
    every,
    has_variable,
    is_atom,
    looks_ahead,
    looks_back,
    remembered,
)

Known: TypeAlias = bool | None


class UnjudgedError(Exception):
    """The formula has no answer at this step."""


def _fails_late(fact: Fact) -> bool:
    if fact.at_ms >= 9:
        raise UnjudgedError
    return True


FUNCTIONS: Final[dict[str, Callable[[Fact], bool]]] = {
    "is_main": lambda fact: fact.agent == "main",
    "is_even": lambda fact: fact.at_ms % 2 == 0,
    "fails_late": _fails_late,
    "amount_is_text": lambda fact: isinstance(dict(fact.arguments).get("amount"), str),
}
_SIGNS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The formula does not hold at step `asked`. `step`: where that became certain; `asked` itself if it is open at the end."""

    part: int
    asked: int
    step: int
    open: bool
    at_end: bool
    """Whether it is a part about the past, judged at the last step."""
    labels: frozenset[str]
    """The texts of the id: equal ids (1 and 1.0) are one, and a report may show either."""


@dataclass(frozen=True, slots=True)
class Judged:
    broken: tuple[Broken, ...]
    unjudged: tuple[int, ...]
    """The steps at which the contract has no answer."""


def judged(contract: Contract, facts: Sequence[Fact], *, finished: bool = True) -> Judged:
    """All that is broken; on a prefix (not finished), all that is certainly broken already."""
    answered, unjudged = list[int](), list[int]()
    parts = parts_of(contract)
    for step in range(len(facts)):
        (answered if _has_answers(contract, parts, facts, step, answered) else unjudged).append(step)
    found: list[Broken] = []
    for view in _views(contract, facts, tuple(answered)):
        for number, part in enumerate(parts):
            found.extend(_broken(part, number, view, finished=finished))
    return Judged(broken=tuple(found), unjudged=tuple(unjudged))


def parts_of(contract: Contract) -> list[Part]:
    """What is judged separately: parts joined by &, unless all are about the past, which are one requirement at the end."""
    first, *rest = contract.parts
    operands = [first] if first.always else [Part(phi, always=False) for phi in _operands(first.phi)]
    operands += rest
    if any(part.always or looks_ahead(part.phi) for part in operands):
        return [one for part in operands for one in _split(part)]
    return [Part(All(tuple(part.phi for part in operands)), always=False)]


def _operands(phi: Phi) -> list[Phi]:
    """(a & b) & c is a & b & c."""
    return [*_operands(phi.parts[0]), *phi.parts[1:]] if isinstance(phi, All) else [phi]


def _split(part: Part) -> list[Part]:
    """Under `always`, at_most(n, a) is judged where a holds."""
    if part.always:
        return [Part(_counting(part.phi), always=True)]
    if isinstance(part.phi, All) and looks_ahead(part.phi):
        return [one for phi in _operands(part.phi) for one in _split(Part(phi, always=False))]
    return [part]


def _counting(phi: Phi) -> Phi:
    if isinstance(phi, AtMost):
        return Any((Not(phi.inner), phi))
    return All(tuple(map(_counting, phi.parts))) if isinstance(phi, All) else phi


def standing(contract: Contract, facts: Sequence[Fact]) -> str:
    """What is known of a run that goes on: false for certain, or what it would be if it ended now."""
    certain = judged(contract, facts, finished=False)
    if certain.unjudged or any(not item.at_end for item in certain.broken):
        return "false"
    return "presumably_false" if judged(contract, facts).broken else "presumably_true"


# -- slices -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """The steps of a slice, and all of the trace that has an answer, up to a horizon."""

    facts: tuple[Fact, ...]
    whole: tuple[int, ...]
    steps: tuple[int, ...]
    identity: Plain
    horizon: int
    finished: bool
    known: dict[tuple[int, ...], tuple[Phi, Known]] = field(default_factory=dict)
    """Values that were found before; those of the past do not depend on the horizon."""

    @property
    def is_slice(self) -> bool:
        return self.steps is not self.whole or self.identity is not None

    def of(self, phi: Phi) -> View:
        """The view on which phi is judged: parts without the variable are judged on the whole trace."""
        if self.identity is None or has_variable(phi):
            return self
        return View(self.facts, self.whole, self.whole, None, self.horizon, self.finished, self.known)


@dataclass(frozen=True, slots=True)
class Sliced:
    view: View
    labels: frozenset[str]
    judged: tuple[int, ...]
    """The steps of the whole trace that have an answer: windows close at them."""


def _views(contract: Contract, facts: Sequence[Fact], whole: tuple[int, ...]) -> list[Sliced]:
    trace, last = tuple(facts), len(facts) - 1
    if contract.key is None:
        return [Sliced(View(trace, whole, whole, None, last, True), frozenset(("",)), whole)]
    slices: dict[Plain, list[int]] = {}  # equal ids are one id, as == says: 1, 1.0 and True
    labels: dict[Plain, set[str]] = {}
    for step in whole:
        for identity in _ids(contract, facts, step):
            steps = slices.setdefault(identity, [])
            steps += [] if step in steps[-1:] else [step]
            labels.setdefault(identity, set()).add(label(identity))
    made = []
    for identity, steps in slices.items():
        bound = isinstance(contract.key, Variable)
        view = View(trace, whole if bound else tuple(steps), tuple(steps), identity if bound else None, last, True)
        made.append(Sliced(view, frozenset(labels[identity]), whole))
    return made


def label(identity: Plain) -> str:
    """An id as reports show it: a text that looks like another value stands in quotes."""
    if not isinstance(identity, str):
        return str(identity)
    try:
        float(identity)
    except ValueError:
        return repr(identity) if identity in ("None", "True", "False") else identity
    return repr(identity)


def _ids(contract: Contract, facts: Sequence[Fact], step: int) -> list[Plain]:
    """The ids that the record concerns; equal ones, 1 and True, with each of their texts."""
    if isinstance(contract.key, str):
        found = _value(facts[step], step, contract.key)
        return [] if found is None else [found]
    candidates: list[Plain] = []
    atoms = [item for part in contract.parts for item in every(part.phi) if is_atom(item) and has_variable(item)]
    for atom in atoms:
        candidates.extend(_candidates(atom, facts[step], step))
    ids: list[Plain] = []
    for identity in candidates:
        view = View(tuple(facts), (step,), (step,), identity, step, True)
        if identity is not None and label(identity) not in map(label, ids) and any(_holds(atom, step, view) for atom in atoms):
            ids.append(identity)
    return ids


def _candidates(atom: Phi, fact: Fact, step: int) -> list[Plain]:
    if isinstance(atom, Acts):
        given = dict(fact.arguments)
        return [given.get(name) for name, value in atom.arguments if isinstance(value, Variable)]
    assert isinstance(atom, Compares)
    return [_read(atom.left, (fact,), 0, step)]


# -- values ------------------------------------------------------------------------------------------------------------------


def _holds(phi: Phi, step: int, view: View) -> Known:
    """Whether phi holds at a step: True, False, or None where the records up to the horizon do not decide it."""
    view = view.of(phi)
    until = (view.horizon, view.finished) if looks_ahead(phi) else (-1, True)
    key = (id(phi), step, view.identity is not None, *until)
    if key not in view.known:
        view.known[key] = (phi, _value_of(phi, step, view))  # phi, so that its id is not given to another
    return view.known[key][1]


def _value_of(phi: Phi, step: int, view: View) -> Known:
    facts = view.facts
    match phi:
        case Acts():
            fact, given = facts[step], dict(facts[step].arguments)
            if fact.kind != phi.kind or (phi.name is not None and fact.name != phi.name):
                return False
            return all(name in given and _equals(given[name], value, view) for name, value in phi.arguments)
        case Compares():
            try:
                return _compares(phi, step, view)
            except UnjudgedError:
                return False  # what is asked first decides, whatever this would be
        case Among():
            found = _read_at(phi.left, step, view)
            return any(found == member for member in phi.members)
        case Says():
            try:
                return _says(phi, facts[step])
            except UnjudgedError:
                return False
        case Not():
            return _not(_holds(phi.inner, step, view))
        case All():
            return _and(_holds(part, step, view) for part in phi.parts)
        case Any():
            return _or(_holds(part, step, view) for part in phi.parts)
        case Implies():
            return _or([_not(_holds(phi.left, step, view)), _holds(phi.right, step, view)])
        case Past():
            seen = [_holds(phi.inner, at, view) for at in _earlier(step, view) if _inside(phi.window, step, at, view)]
            return _or(seen) if phi.operator == "once" else _and(seen)
        case Since():
            earlier = _earlier(step, view)
            return _or(
                _and([_holds(phi.right, at, view), *(_holds(phi.left, then, view) for then in earlier if then > at)])
                for at in earlier
                if _inside(phi.window, step, at, view)
            )
        case Previous():
            before = _before(step, view)
            lost = not view.is_slice and before != step - 1  # the step before could not be judged
            return False if before is None or lost else _holds(phi.inner, before, view)
        case AtMost():
            window = Window(high=phi.steps, high_ms=phi.ms)
            held = [_holds(phi.inner, at, view) for at in _earlier(step, view) if _inside(window, step, at, view)]
            return sum(map(bool, held)) <= phi.count
        case Eventually():
            seen = [_holds(phi.inner, at, view) for at in _later(step, view) if _inside(phi.window, step, at, view)]
            return _or([*seen, None] if _may_come(phi.window, step, view) else seen)
        case Until():
            later = _later(step, view)
            ways = [
                _and([_holds(phi.right, at, view), *(_holds(phi.left, then, view) for then in later if then < at)])
                for at in later
                if _inside(phi.window, step, at, view)
            ]
            if _may_come(phi.window, step, view):
                ways.append(_and([None, *(_holds(phi.left, then, view) for then in later)]))
            return _or(ways)
        case Next():
            after = [at for at in _later(step, view) if at > step]
            if after:
                return _holds(phi.inner, after[0], view)
            return False if view.finished else None


def _earlier(step: int, view: View) -> list[int]:
    return [at for at in view.steps if at <= step]


def _later(step: int, view: View) -> list[int]:
    return [at for at in view.steps if step <= at <= view.horizon]


def _before(step: int, view: View) -> int | None:
    found = [at for at in view.steps if at < step]
    return found[-1] if found else None


def _inside(window: Window, step: int, at: int, view: View) -> bool:
    steps, ms = abs(step - at), abs(view.facts[step].at_ms - view.facts[at].at_ms)
    return (
        window.low <= steps
        and (window.high is None or steps <= window.high)
        and window.low_ms <= ms
        and (window.high_ms is None or ms <= window.high_ms)
    )


def _may_come(window: Window, step: int, view: View) -> bool:
    """Whether a record beyond the horizon could still be inside the window: times never decrease."""
    if view.finished:
        return False
    now = view.facts[view.horizon].at_ms - view.facts[step].at_ms
    return (window.high is None or view.horizon + 1 - step <= window.high) and (window.high_ms is None or now <= window.high_ms)


def _says(phi: Says, fact: Fact) -> bool:
    return (not phi.kinds or fact.kind in phi.kinds) and FUNCTIONS[phi.function](fact)


def _compares(phi: Compares, step: int, view: View) -> bool:
    left = _read_at(phi.left, step, view)
    if isinstance(phi.right, Variable) or phi.sign in ("==", "!="):
        right = _read_at(phi.right, step, view) if isinstance(phi.right, Read) else phi.right
        same = _equals(left, right, view)
        return same if phi.sign == "==" else not same
    right = _read_at(phi.right, step, view) if isinstance(phi.right, Read) else phi.right
    if left is None or right is None:
        return False
    try:
        return bool(_SIGNS[phi.sign](left, right))
    except TypeError:
        raise UnjudgedError from None


def _equals(found: Plain, wanted: Variable | Plain, view: View) -> bool:
    if isinstance(wanted, Variable):
        return found is not None and found == view.identity
    return found == wanted


def _read_at(read: Read, step: int, view: View) -> Plain:
    at = _before(step, view) if read.before else step
    return None if at is None and len(read.paths) == 1 else _read(read, view.facts, at, at)


def _read(read: Read, facts: Sequence[Fact], at: int | None, step: int | None) -> Plain:
    values = [None if at is None or step is None else _value(facts[at], step, path) for path in read.paths]
    return values[0] if len(values) == 1 else tuple(values)


def _value(fact: Fact, step: int, path: str) -> Plain:
    first, _, rest = path.partition(".")
    if first in ("arguments", "state", "value"):
        items = getattr(fact, first)
        return dict(items).get(rest) if items is not None else None
    if first == "error":
        assert rest == "kind"
        return fact.error or None
    if first == "mediation":
        assert rest == "decision"
        return fact.decision or None
    return step if first == "step" else getattr(fact, first)


def _not(one: Known) -> Known:
    return None if one is None else not one


def _and(values: object) -> Known:
    seen = list(values)  # type: ignore[call-overload]
    return False if False in seen else None if None in seen else True


def _or(values: object) -> Known:
    seen = list(values)  # type: ignore[call-overload]
    return True if True in seen else None if None in seen else False


# -- verdicts ----------------------------------------------------------------------------------------------------------------


def _has_answers(contract: Contract, parts: Sequence[Part], facts: Sequence[Fact], step: int, answered: Sequence[int]) -> bool:
    """Whether each order that is needed at this step has an answer."""
    whole = (*answered, step)
    steps: tuple[int, ...] = whole
    if isinstance(contract.key, str):
        mine = _ids(contract, facts, step)
        steps = tuple(at for at in whole if _ids(contract, facts, at) == mine)
    view = View(tuple(facts), whole, steps, None, step, True)
    fact, in_slice = facts[step], not isinstance(contract.key, str) or bool(_ids(contract, facts, step))
    atoms = [item for part in contract.parts for item in every(part.phi) if is_atom(item) and has_variable(item)]
    concerned = not isinstance(contract.key, Variable) or any(_by_kind(atom, fact) is not False for atom in atoms)
    try:
        for part in parts:
            for root in _roots(part.phi):
                by_kind = any(_by_kind(connective, fact) is not None for connective in root.around)
                if (in_slice or _about_record(root.phi)) and (concerned or root.whole) and not by_kind:
                    _answer(root.phi, step, view)
    except UnjudgedError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Root:
    """What is asked of a record as one: the parts about the record in a connective, or a comparison with the step before."""

    phi: Phi
    around: tuple[Phi, ...] = ()
    """The connectives around it, up to the next operator: where the kind of the record decides one, it is not asked."""
    inside: bool = False
    """Whether an operator is around it, or it is one."""
    whole: bool = False
    """Whether an operator without the variable is around it, or it is one: such an operator sees the whole trace."""


@remembered
def _roots(phi: Phi) -> list[Root]:
    if _about_record(phi) or is_atom(phi):
        return [Root(phi, inside=looks_back(phi), whole=looks_back(phi))]
    if (joined := _connective(phi)) is not None:
        alone = tuple(part for part in joined.parts if _about_record(part))
        roots = [Root(type(joined)(alone))] if alone else []
        roots += [found for part in joined.parts if part not in alone for found in _roots(part)]
        return [root if root.inside else replace(root, around=(*root.around, phi)) for root in roots]
    whole = isinstance(phi, (*PAST, *FUTURE)) and not has_variable(phi)
    return [replace(root, inside=True, whole=root.whole or whole) for part in children(phi) for root in _roots(part)]


def _connective(phi: Phi) -> All | Any | None:
    """A connective with the parts of those inside it that are the same one: ~(a & ~(b | c)) is ~a | b | c."""
    negated = False
    while isinstance(phi, Not):
        phi, negated = phi.inner, not negated
    if isinstance(phi, Implies):
        phi = Any((Not(phi.left), phi.right))
    if not isinstance(phi, All | Any):
        return None
    disjunction = isinstance(phi, Any) is not negated
    return (Any if disjunction else All)(tuple(_same_connective(phi, disjunction, negated=negated)))


@remembered
def _about_record(phi: Phi) -> bool:
    return not looks_ahead(phi) and not looks_back(phi) and not has_variable(phi)


def _answer(phi: Phi, step: int, view: View) -> bool:
    """The value of a part about the record: what cannot fail is asked first, then the rest in order, as far as needed."""
    fact = view.facts[step]
    match phi:
        case Not():
            return not _answer(phi.inner, step, view)
        case Implies():
            return _answer(Any((Not(phi.left), phi.right)), step, view)
        case All() | Any():
            decisive = isinstance(phi, Any)
            parts = _flat(phi)
            for part in sorted(parts, key=lambda part: not (_never_fails(part) or _by_kind(part, fact) is not None)):
                if _answer(part, step, view) is decisive:
                    return decisive
            return not decisive
        case Compares():
            return not has_variable(phi) and _compares(phi, step, view)
        case Says():
            return _says(phi, fact)
        case _:
            return not has_variable(phi) and bool(_holds(phi, step, view))


def _flat(phi: All | Any, *, negated: bool = False) -> list[Phi]:
    """The parts of a connective, those of the same connective inside it included; ~(a | b) is ~a & ~b."""
    found: list[Phi] = []
    for part in phi.parts:
        found += _same_connective(part, isinstance(phi, Any) is not negated, negated=negated)
    return found


def _same_connective(phi: Phi, disjunction: bool, *, negated: bool) -> list[Phi]:
    if isinstance(phi, Not):
        return _same_connective(phi.inner, disjunction, negated=not negated)
    if isinstance(phi, Implies):
        phi = Any((Not(phi.left), phi.right))
    if isinstance(phi, All | Any) and (isinstance(phi, Any) is not negated) is disjunction:
        return [inner for part in phi.parts for inner in _same_connective(part, disjunction, negated=negated)]
    return [Not(phi) if negated else phi]


@remembered
def _never_fails(phi: Phi) -> bool:
    return not any(
        isinstance(item, Says) or (isinstance(item, Compares) and item.sign not in ("==", "!=")) for item in every(phi)
    )


def _by_kind(phi: Phi, fact: Fact) -> Known:
    """The value as far as the kind of the record decides it."""
    match phi:
        case Acts():
            return None if phi.kind == fact.kind else False
        case Says():
            return None if not phi.kinds or fact.kind in phi.kinds else False
        case Not():
            return _not(_by_kind(phi.inner, fact))
        case All():
            return _and(_by_kind(part, fact) for part in phi.parts)
        case Any():
            return _or(_by_kind(part, fact) for part in phi.parts)
        case Implies():
            return _or([_not(_by_kind(phi.left, fact)), _by_kind(phi.right, fact)])
        case _:
            return None


def _broken(part: Part, number: int, sliced: Sliced, *, finished: bool) -> list[Broken]:
    view, found = sliced.view, []
    if not part.always and not view.steps:
        if not finished or _holds_of_nothing(part.phi):
            return []
        at_end = not looks_ahead(part.phi)  # and then it blames the last step, even if that could not be judged
        step = len(view.facts) - 1 if at_end and view.facts else 0
        return [Broken(part=number, asked=0, step=step, open=True, at_end=at_end, labels=sliced.labels)]
    for asked in _asked(part, view):
        if _holds(part.phi, asked, view):
            continue
        certain = [at for at in sliced.judged if at >= asked and _holds(part.phi, asked, _prefix(view, at)) is False]
        if certain or finished:
            step = certain[0] if certain else asked
            at_end = not part.always and not looks_ahead(part.phi)
            if at_end and not view.is_slice:
                step = len(view.facts) - 1  # the end of the trace, even if its last step could not be judged
            found.append(Broken(part=number, asked=asked, step=step, open=not certain, at_end=at_end, labels=sliced.labels))
    return found


def _holds_of_nothing(phi: Phi) -> bool:
    """The value where there is no step: nothing happens, and nothing happened."""
    match phi:
        case Not():
            return not _holds_of_nothing(phi.inner)
        case All():
            return all(map(_holds_of_nothing, phi.parts))
        case Any():
            return any(map(_holds_of_nothing, phi.parts))
        case Implies():
            return not _holds_of_nothing(phi.left) or _holds_of_nothing(phi.right)
        case _:
            return isinstance(phi, AtMost) or (isinstance(phi, Past) and phi.operator == "historically")


def _prefix(view: View, horizon: int) -> View:
    return View(view.facts, view.whole, view.steps, view.identity, horizon, False, view.known)


def _asked(part: Part, view: View) -> tuple[int, ...]:
    """The steps at which the part is judged: every one, the first of a formula that looks ahead, the last of any other."""
    if not part.always:
        return view.steps[:1] if looks_ahead(part.phi) else view.steps[-1:]
    return view.steps
