"""Formulas and traces as plain data of this test's own: what `docs/reference/formulas.md` says can be written, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

Plain: TypeAlias = str | int | float | bool | tuple["Plain", ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One record, as far as formulas read it. `error` is its kind, `decision` what the mediator decided; "" is none."""

    at_ms: int
    kind: str
    name: str
    arguments: tuple[tuple[str, Plain], ...] = ()
    state: tuple[tuple[str, Plain], ...] = ()
    value: tuple[tuple[str, Plain], ...] | None = None
    agent: str = "main"
    error: str = ""
    decision: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """The id that a slice is about."""


@dataclass(frozen=True, slots=True)
class Read:
    """The values of some paths, at this step or at the step before."""

    paths: tuple[str, ...]
    before: bool = False


Operand: TypeAlias = Read | Variable | Plain


@dataclass(frozen=True, slots=True)
class Acts:
    """A record of a kind, by its name if there is one, with arguments that equal constants or the variable."""

    kind: str
    name: str | None = None
    arguments: tuple[tuple[str, Variable | Plain], ...] = ()


@dataclass(frozen=True, slots=True)
class Compares:
    left: Read
    sign: Literal["==", "!=", "<", "<=", ">", ">="]
    right: Operand


@dataclass(frozen=True, slots=True)
class Among:
    left: Read
    members: tuple[Plain, ...]


@dataclass(frozen=True, slots=True)
class Says:
    """A function of the record, by its name in `FUNCTIONS`, for records of some kinds (all, if there are none)."""

    function: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    inner: Phi


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Phi, ...]


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple[Phi, ...]


@dataclass(frozen=True, slots=True)
class Implies:
    left: Phi
    right: Phi


@dataclass(frozen=True, slots=True)
class Window:
    """How far away, in steps and in milliseconds, both ends included; None is without an end."""

    low: int = 0
    high: int | None = None
    low_ms: int = 0
    high_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Past:
    operator: Literal["once", "historically"]
    inner: Phi
    window: Window


@dataclass(frozen=True, slots=True)
class Since:
    left: Phi
    right: Phi
    window: Window


@dataclass(frozen=True, slots=True)
class Previous:
    inner: Phi


@dataclass(frozen=True, slots=True)
class AtMost:
    count: int
    inner: Phi
    steps: int | None = None
    ms: int | None = None


@dataclass(frozen=True, slots=True)
class Eventually:
    inner: Phi
    window: Window


@dataclass(frozen=True, slots=True)
class Until:
    left: Phi
    right: Phi
    window: Window


@dataclass(frozen=True, slots=True)
class Next:
    inner: Phi


Atom: TypeAlias = Acts | Compares | Among | Says
Phi: TypeAlias = Atom | Not | All | Any | Implies | Past | Since | Previous | AtMost | Eventually | Until | Next
FUTURE = (Eventually, Until, Next)
PAST = (Past, Since, Previous, AtMost)


@dataclass(frozen=True, slots=True)
class Part:
    """`always(phi)`, or phi alone."""

    phi: Phi
    always: bool


@dataclass(frozen=True, slots=True)
class Contract:
    """Parts joined by &, for the whole trace, or for each id: of a path, or of the variable."""

    parts: tuple[Part, ...]
    key: str | Variable | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    contract: Contract
    facts: tuple[Fact, ...]


Answer = TypeVar("Answer")


def remembered(function: Callable[[Phi], Answer]) -> Callable[[Phi], Answer]:
    """A function of a formula, by identity: the same few are asked for at every step."""
    known: dict[int, tuple[Phi, Answer]] = {}  # with the formula, so that its id is not given to another

    def ask(phi: Phi) -> Answer:
        found = known.get(id(phi))
        if found is None:
            if len(known) > 20_000:
                known.clear()
            found = known[id(phi)] = (phi, function(phi))
        return found[1]

    return ask


def is_atom(phi: Phi) -> bool:
    return isinstance(phi, Acts | Compares | Among | Says)


def children(phi: Phi) -> tuple[Phi, ...]:
    match phi:
        case All() | Any():
            return phi.parts
        case Implies() | Since() | Until():
            return (phi.left, phi.right)
        case Not() | Past() | Previous() | AtMost() | Eventually() | Next():
            return (phi.inner,)
        case _:
            return ()


def every(phi: Phi) -> Iterator[Phi]:
    """The formula and all formulas inside it."""
    waiting = [phi]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += children(part)


@remembered
def has_variable(phi: Phi) -> bool:
    if isinstance(phi, Acts):
        return any(isinstance(value, Variable) for _, value in phi.arguments)
    return (isinstance(phi, Compares) and isinstance(phi.right, Variable)) or any(map(has_variable, children(phi)))


@remembered
def looks_ahead(phi: Phi) -> bool:
    return isinstance(phi, FUTURE) or any(map(looks_ahead, children(phi)))


@remembered
def looks_back(phi: Phi) -> bool:
    if isinstance(phi, Compares):
        return phi.left.before or (isinstance(phi.right, Read) and phi.right.before)
    return isinstance(phi, PAST) or (isinstance(phi, Among) and phi.left.before) or any(map(looks_back, children(phi)))
