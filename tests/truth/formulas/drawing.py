"""Random pairs of a contract and a trace, small and full of corners: equal times, no steps, mixed types, late failures."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

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
    Pair,
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
    has_variable,
    looks_ahead,
    looks_back,
)

NAMES = ("a", "b", "c")
IDS: tuple[Plain, ...] = ("x", "y", 1, "1", True, 1.0, 2, None)
AMOUNTS: tuple[Plain, ...] = (1, 2, 3, 2.0, 5, None)
MIXED: tuple[Plain, ...] = (*AMOUNTS, "2", "x")
VARIABLE = Variable()
TRACES = 4
"""For each contract."""


def pairs(draw: Random) -> Iterator[Pair]:
    """One contract with some traces. About a tenth of them have values of mixed types where orders are asked."""
    drawn = contract(draw)
    for _ in range(TRACES):
        yield Pair(drawn, trace(draw, mixed=draw.random() < 0.1))


def trace(draw: Random, *, mixed: bool) -> tuple[Fact, ...]:
    size = draw.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14))
    stands_still, at_ms, facts = draw.random() < 0.3, draw.choice((0, 3)), []
    pool, names = draw.choice((IDS, IDS[:2], IDS[:2])), draw.choice((NAMES, NAMES[:2]))
    for _ in range(size):
        facts.append(_fact(draw, at_ms, MIXED if mixed else AMOUNTS, pool, names))
        at_ms += 0 if stands_still and draw.random() < 0.7 else draw.choice((0, 1, 1, 2, 5))
    return tuple(facts)


def _fact(draw: Random, at_ms: int, amounts: tuple[Plain, ...], ids: tuple[Plain, ...], names: tuple[str, ...]) -> Fact:
    arguments = [(name, draw.choice(ids)) for name in ("id", "other") if draw.random() < (0.9 if name == "id" else 0.3)]
    if draw.random() < 0.7:
        arguments.append(("amount", draw.choice(amounts)))
    error = draw.choice(("", "", "", "timeout"))
    return Fact(
        at_ms=at_ms,
        kind=draw.choice(("tool_call", "tool_call", "tool_call", "verification", "message")),
        name=draw.choice(names),
        arguments=tuple(arguments),
        state=(("n", draw.choice((0, 1, 2))),) if draw.random() < 0.5 else (),
        value=None if error or draw.random() < 0.5 else (("id", draw.choice(ids)),),
        agent=draw.choice(("main", "main", "helper")),
        error=error,
        decision=draw.choice(("", "", "allow", "block")),
    )


# -- contracts ---------------------------------------------------------------------------------------------------------------


def contract(draw: Random) -> Contract:
    key = draw.choice((None, None, "arguments.id", VARIABLE, VARIABLE))
    while True:
        parts = tuple(_part(draw, key) for _ in range(draw.choice((1, 1, 1, 2, 3))))
        if not isinstance(key, Variable) or any(has_variable(part.phi) for part in parts):
            return Contract(parts, key)


def _part(draw: Random, key: str | Variable | None) -> Part:
    variable, depth = isinstance(key, Variable), draw.choice((1, 2, 2, 3, 3, 4, 6))
    if draw.random() < 0.7:
        kind = draw.random()
        if kind < 0.1:
            return Part(_at_most(draw, depth, variable=variable), always=True)
        if kind < 0.5:
            trigger = _past(draw, draw.choice((0, 0, 1)), variable=variable)
            return Part(Implies(trigger, _future(draw, depth, variable=variable)), always=True)
        return Part(_any(draw, depth, variable=variable), always=True)
    while True:
        phi = _future(draw, depth, variable=variable) if draw.random() < 0.6 else _past(draw, depth, variable=variable)
        if not (looks_ahead(phi) and looks_back(phi)):
            return Part(phi, always=False)


def _any(draw: Random, depth: int, *, variable: bool) -> Phi:
    return (_future if draw.random() < 0.6 else _past)(draw, depth, variable=variable)


def _past(draw: Random, depth: int, *, variable: bool) -> Phi:
    if depth == 0 or draw.random() < 0.1:
        return _atom(draw, variable=variable)

    def inner(less: int = 1) -> Phi:
        return _past(draw, depth - less, variable=variable)

    match draw.randrange(9):
        case 0:
            return Not(inner())
        case 1:
            return _joined(draw, [inner() for _ in range(draw.choice((2, 2, 3, 5)))])
        case 2:
            return Implies(inner(), inner())
        case 3 | 4:
            return Past(draw.choice(("once", "historically")), inner(), window(draw))
        case 5:
            return Since(inner(), inner(), window(draw))
        case 6:
            return Previous(inner())
        case 7:
            return _at_most(draw, depth, variable=variable)
        case _:
            return _joined(draw, [_atom(draw, variable=variable), inner()])


def _future(draw: Random, depth: int, *, variable: bool) -> Phi:
    if depth == 0:
        return _atom(draw, variable=variable)

    def inner(less: int = 1) -> Phi:
        return (_future if draw.random() < 0.7 else _past)(draw, depth - less, variable=variable)

    match draw.randrange(9):
        case 0:
            return Not(inner())
        case 1:
            return _joined(draw, [inner() for _ in range(draw.choice((2, 2, 3, 5)))])
        case 2:
            return Implies(inner(), inner())
        case 3 | 4 | 5:
            return Eventually(inner(), window(draw))
        case 6 | 7:
            return Until(inner(), inner(), window(draw))
        case _:
            return Next(inner())


def _at_most(draw: Random, depth: int, *, variable: bool) -> AtMost:
    steps, ms = draw.choice(((None, None), (None, None), (2, None), (0, None), (None, 3), (None, 0), (4, 3)))
    return AtMost(draw.choice((0, 1, 1, 2)), _past(draw, max(depth - 1, 0), variable=variable), steps, ms)


def _joined(draw: Random, parts: list[Phi]) -> Phi:
    return (All if draw.random() < 0.5 else Any)(tuple(parts))


def window(draw: Random) -> Window:
    low, high, low_ms, high_ms = 0, None, 0, None
    if draw.random() < 0.45:
        low = draw.choice((0, 0, 0, 1, 2))
        high = low + draw.choice((0, 1, 2, 5))
    if draw.random() < 0.35:
        low_ms = draw.choice((0, 0, 0, 1, 2))
        high_ms = low_ms + draw.choice((0, 1, 2, 6))
    return Window(low, high, low_ms, high_ms)


def _atom(draw: Random, *, variable: bool) -> Phi:
    if variable and draw.random() < 0.65:
        if draw.random() < 0.15:
            return Compares(Read(("value.id",)), "==", VARIABLE)
        arguments = {draw.choice(("id", "id", "id", "other")): VARIABLE}
        if draw.random() < 0.2:
            arguments["other"] = draw.choice((VARIABLE, "x"))
        return Acts("tool_call", draw.choice((*NAMES, None)), tuple(sorted(arguments.items())))
    match draw.randrange(10):
        case 0 | 1 | 2 | 3:
            return Acts("tool_call", draw.choice((*NAMES, NAMES[0], None)))
        case 4:
            return Acts("tool_call", draw.choice(NAMES), (("id", draw.choice(IDS[:-1])),))
        case 5:
            return Acts(draw.choice(("verification", "message")), draw.choice((*NAMES, None)))
        case 6:
            sign = draw.choice(("==", "!=", "<", "<=", ">", ">="))
            return Compares(Read(("arguments.amount",)), sign, draw.choice((2, 3, 2.0)))
        case 7:
            read = Read((draw.choice(("state.n", "arguments.amount")),))
            return Compares(read, draw.choice(("==", "!=", "<", "<=", ">", ">=")), Read(read.paths, before=True))
        case 8:
            path = draw.choice(("error.kind", "mediation.decision", "agent", "name", "kind", "value.id", "arguments.id"))
            if draw.random() < 0.4:
                return Among(Read((path,)), draw.choice((("timeout", "block", "a"), (1, "x"), (None, "main"), ())))
            paths = (path, "agent") if draw.random() < 0.3 else (path,)
            constant = draw.choice(("timeout", "block", "main", "a", 1, None))
            return Compares(Read(paths), draw.choice(("==", "!=")), (constant, "main") if len(paths) == 2 else constant)
        case _:
            function = draw.choice(("is_main", "is_even", "amount_is_text"))
            return Says(
                "fails_late" if draw.random() < 0.1 else function, draw.choice(((), ("tool_call",), ("message", "tool_call")))
            )
