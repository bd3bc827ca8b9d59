"""The same formulas and traces as pytest-mat has them, and what it says of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tests.truth.formulas.language import (
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
)

import mat
from mat import temporal
from mat.core.record import Action, ErrorFact, Mediation, Observation, Record
from mat.core.value import snapshot, snapshot_arguments
from mat.monitor.judge import Judge


def _fails_late(record: Record) -> bool:
    if record.at_ms >= 9:
        raise KeyError("late")
    return True


FUNCTIONS: Final[Mapping[str, Callable[[Record], bool]]] = {
    "is_main": lambda record: record.agent == "main",
    "is_even": lambda record: record.at_ms % 2 == 0,
    "fails_late": _fails_late,
    "amount_is_text": lambda record: isinstance(record.action.arguments.get("amount"), str),
}
_SIGNS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Found:
    step: int
    instance: str
    unjudged: bool


def records(facts: Sequence[Fact]) -> tuple[Record, ...]:
    return tuple(_record(fact, step) for step, fact in enumerate(facts))


@lru_cache(maxsize=8)
def contract(drawn: Contract) -> mat.Contract:
    return mat.contract("drawn", formula(drawn))


def formula(drawn: Contract) -> temporal.Formula:  # type: ignore[name-defined]
    variable = temporal.variable("id")
    whole = None
    for part in drawn.parts:
        made = _part(part, variable)
        whole = made if whole is None else whole & made
    if drawn.key is None:
        return whole
    return temporal.for_each(variable if isinstance(drawn.key, Variable) else drawn.key, whole)


def judged(made: mat.Contract, facts: Sequence[Fact]) -> tuple[Found, ...]:
    _, (outcome,) = mat.judge(records(facts), [made])
    return tuple(Found(item.step, item.instance, item.label == "unjudged") for item in outcome.violations)


def standing(made: mat.Contract, facts: Sequence[Fact]) -> str:
    """What it says online of a run that goes on."""
    judge = Judge([made])
    seen = records(facts)
    for record in seen:
        judge.fold(record)
    (outcome,) = judge.outcomes_so_far(seen[-1] if seen else None)
    return outcome.standing


def _part(part: Part, variable: object) -> temporal.Formula:  # type: ignore[name-defined]
    made = _formula(part.phi, variable)
    return temporal.always(made) if part.always else made


def _formula(phi: Phi, variable: object) -> temporal.Formula:  # type: ignore[name-defined]
    def of(inner: Phi) -> temporal.Formula:  # type: ignore[name-defined]
        return _formula(inner, variable)

    match phi:
        case Acts():
            arguments = {name: variable if isinstance(value, Variable) else _plain(value) for name, value in phi.arguments}
            if phi.kind == "tool_call":
                return temporal.tool_call(phi.name, **arguments)
            return temporal.action(phi.kind, phi.name, arguments=arguments or None)
        case Compares():
            right = _operand(phi.right, variable)
            return _SIGNS[phi.sign](_operand(phi.left, variable), right)
        case Among():
            return _operand(phi.left, variable).among([_plain(member) for member in phi.members])
        case Says():
            return temporal.predicate(FUNCTIONS[phi.function], on=phi.kinds or None)
        case Not():
            return ~of(phi.inner)
        case All() | Any():
            made = of(phi.parts[0])
            for part in phi.parts[1:]:
                made = made & of(part) if isinstance(phi, All) else made | of(part)
            return made
        case Implies():
            return of(phi.left).implies(of(phi.right))
        case Past():
            return getattr(temporal, phi.operator)(of(phi.inner), **_window(phi.window))
        case Since():
            return temporal.since(of(phi.left), of(phi.right), **_window(phi.window))
        case Previous():
            return temporal.previous(of(phi.inner))
        case AtMost():
            return temporal.at_most(phi.count, of(phi.inner), within=phi.steps, within_ms=phi.ms)
        case Eventually():
            return temporal.eventually(of(phi.inner), **_window(phi.window))
        case Until():
            return temporal.until(of(phi.left), of(phi.right), **_window(phi.window))
        case Next():
            return temporal.next(of(phi.inner))


def _operand(operand: Read | Variable | Plain, variable: object) -> object:
    if isinstance(operand, Variable):
        return variable
    if not isinstance(operand, Read):
        return _plain(operand)
    read = temporal.field(*operand.paths)
    return temporal.previous(read) if operand.before else read


def _plain(value: Plain) -> object:
    return value


def _window(window: Window) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, low, high in (("within", window.low, window.high), ("within_ms", window.low_ms, window.high_ms)):
        if high is not None:
            found[name] = high if low == 0 else (low, high)
        else:
            assert low == 0, "a window without an end starts now"
    return found


def _record(fact: Fact, step: int) -> Record:
    error = ErrorFact(type=fact.error.title(), message=fact.error, kind=fact.error) if fact.error else None
    value = None if fact.value is None else snapshot(dict(fact.value))
    return Record(
        step=step, at_ms=fact.at_ms, sealed_ms=fact.at_ms, asked_seq=2 * step, sealed_seq=2 * step + 1, agent=fact.agent,
        role="", state=snapshot_arguments(dict(fact.state), "state"), site=f"{fact.agent}/service:{fact.name}#1",
        action=Action(kind=fact.kind, name=fact.name, arguments=snapshot_arguments(dict(fact.arguments), fact.name)),
        observation=Observation(value=None if error else value, error=error), effected="yes",
        mediation=Mediation(decision=fact.decision) if fact.decision else None, links=(), executed=None, raw=None, invoked=1,
        faults=(), taped=False,
    )  # fmt: skip
