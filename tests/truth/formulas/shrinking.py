"""The smallest pair near another one that still differs: fewer steps, fewer facts in each, smaller formulas and windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Final

from tests.truth.formulas import comparing
from tests.truth.formulas.language import Contract, Fact, Pair, Part, Window, children

_PLAIN: Final = Fact(at_ms=0, kind="tool_call", name="a")


def smallest(pair: Pair) -> Pair:
    """Take the first smaller pair that still differs, as long as there is one."""
    while (found := next(filter(_differs, _smaller(pair)), None)) is not None:
        pair = found
    return pair


def _differs(pair: Pair) -> bool:
    try:
        return bool(comparing.difference(pair))
    except Exception:  # a formula that cannot be written is no smaller case of one that can
        return False


def _smaller(pair: Pair) -> Iterator[Pair]:
    facts, contract = pair.facts, pair.contract
    for step in range(len(facts)):
        yield replace(pair, facts=facts[:step] + facts[step + 1 :])
    for number, part in enumerate(contract.parts):
        if len(contract.parts) > 1:
            yield replace(pair, contract=replace(contract, parts=contract.parts[:number] + contract.parts[number + 1 :]))
        for phi in _formulas(part.phi):
            yield replace(pair, contract=_with(contract, number, replace(part, phi=phi)))
    for step, fact in enumerate(facts):
        for item in fields(Fact):
            value = getattr(_PLAIN, item.name)
            if getattr(fact, item.name) != value and (item.name != "at_ms" or step == 0 or facts[step - 1].at_ms == 0):
                yield replace(pair, facts=(*facts[:step], replace(fact, **{item.name: value}), *facts[step + 1 :]))
        for number in range(len(fact.arguments)):
            fewer = fact.arguments[:number] + fact.arguments[number + 1 :]
            yield replace(pair, facts=(*facts[:step], replace(fact, arguments=fewer), *facts[step + 1 :]))


def _with(contract: Contract, number: int, part: Part) -> Contract:
    return replace(contract, parts=(*contract.parts[:number], part, *contract.parts[number + 1 :]))


def _formulas(phi: Any) -> Iterator[Any]:
    """Smaller formulas: a part in the place of the whole, one part fewer, a window less, a smaller part inside."""
    yield from children(phi)
    for item in fields(phi):
        value = getattr(phi, item.name)
        if item.name == "parts" and len(value) > 2:
            for number in range(len(value)):
                yield replace(phi, parts=value[:number] + value[number + 1 :])
        elif isinstance(value, Window):
            if value != Window():
                yield replace(phi, window=Window())
        elif item.name == "parts":
            for number, part in enumerate(value):
                for smaller in _formulas(part):
                    yield replace(phi, parts=(*value[:number], smaller, *value[number + 1 :]))
        elif value in children(phi):
            for smaller in _formulas(value):
                yield replace(phi, **{item.name: smaller})
