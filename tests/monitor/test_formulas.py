"""Every formula means what a slow, obviously right evaluator says: online, offline, peeked, armed alone or with others."""

from __future__ import annotations

import builtins
import operator
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical, digest, plain
from mat.core.record import Action, ErrorFact, Mediation, Observation, Record
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat.monitor.judge import Judge, attribute, judge
from mat.monitor.temporal import (
    Always,
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
    ForEach,
    Formula,
    Next,
    Not,
    Once,
    Or,
    Previous,
    Since,
    Until,
    Variable,
    Window,
    action,
    always,
    at_most,
    children,
    eventually,
    field,
    for_each,
    historically,
    looks_ahead,
    mentions,
    next,
    once,
    predicate,
    previous,
    since,
    text,
    tool_call,
    until,
    variable,
    verification,
)
from mat_contracts.traces import record, violations
from mat_contracts.traces import trace as traced

# ---------------------------------------------------------------------------------------------------------------------
# The slow evaluator: the definitions, written down. Positions are places in a slice; a slice is the whole trace or, under
# for_each, the records of one id.
# ---------------------------------------------------------------------------------------------------------------------

Broken = set[tuple[str, int]]
"""(instance, position): for which id a contract is broken, and at which step of the trace."""


@dataclass(frozen=True)
class Slice:
    records: tuple[Record, ...]
    places: tuple[int, ...]
    variable: Variable | None = None
    id: object = None

    def at(self, i: int) -> Record:
        return self.records[self.places[i]]

    def __len__(self) -> int:
        return len(self.places)


def whole(records: tuple[Record, ...]) -> Slice:
    return Slice(records, tuple(range(len(records))))


def broken(formula: Formula, records: tuple[Record, ...]) -> Broken:
    match formula:
        case And(parts=parts):
            return set().union(*(broken(part, records) for part in parts))
        case Always(part=ForEach(key=key, part=part)):
            return broken(ForEach(key=key, part=Always(part=part)), records)
        case ForEach(key=key, part=part):
            slices = of_variable(key, part, records) if isinstance(key, Variable) else of_field(key, records)
            return {(str(one.id), place) for one in slices for place in judged(part, one)}
        case _:
            return {("", place) for place in judged(formula, whole(records))}


def judged(formula: Formula, given: Slice) -> set[int]:
    match formula:
        case And(parts=parts):
            return set().union(*(judged(part, given) for part in parts))
        case Always(part=part):
            return {given.places[i] for i in range(len(given)) if not holds(blaming(part), given, i)}
    if len(given) == 0:
        return set() if of_nothing(formula) else {0}
    i = 0 if looks_ahead(formula) else len(given) - 1
    return set() if holds(formula, given, i) else {given.places[i]}


def blaming(formula: Formula) -> Formula:
    """A limit on how often something happens is broken where it happens once too often, not at the steps after."""
    match formula:
        case AtMost(part=part):
            return part.implies(formula)
        case And(parts=parts):
            return And(parts=tuple(blaming(part) for part in parts))
        case _:
            return formula


def of_field(key: Field, records: tuple[Record, ...]) -> list[Slice]:
    """Records with one value of the key; None concerns no id."""
    read_at = [read(key, whole(records), place) for place in range(len(records))]
    ids = dict.fromkeys(value for value in read_at if value is not None)
    return [Slice(records, tuple(p for p, value in enumerate(read_at) if value == id), id=id) for id in ids]


def of_variable(key: Variable, formula: Formula, records: tuple[Record, ...]) -> list[Slice]:
    """Records at which some atom with the variable is true of the id."""
    everywhere = [Slice(records, tuple(range(len(records))), key, id) for id in candidates(key, formula, records)]
    slices = []
    for trace in everywhere:
        places = tuple(p for p in trace.places if any(holds(atom, trace, p) for atom in bound_atoms(key, formula)))
        if places:
            slices.append(Slice(records, places, key, trace.id))
    return slices


def bound_atoms(key: Variable, formula: Formula) -> list[Formula]:
    if isinstance(formula, Atom | Compare):
        return [formula] if mentions(formula, key) else []
    return [atom for part in children(formula) for atom in bound_atoms(key, part)]


def candidates(key: Variable, formula: Formula, records: tuple[Record, ...]) -> list[object]:
    """Every value that stands anywhere where an atom compares it with the variable."""
    compares = [
        compare
        for atom in bound_atoms(key, formula)
        for compare in (atom.compares if isinstance(atom, Atom) else (atom,))
        if compare.right is key
    ]
    found = [read(compare.left, whole(records), place) for compare in compares for place in range(len(records))]
    return list(dict.fromkeys(value for value in found if value is not None))


def of_nothing(formula: Formula) -> bool:
    """The value where nothing happened."""
    match formula:
        case Not(part=part):
            return not of_nothing(part)
        case And(parts=parts):
            return all(of_nothing(part) for part in parts)
        case Or(parts=parts):
            return any(of_nothing(part) for part in parts)
        case AtMost():
            return True
        case _:
            return False


def holds(formula: Formula, given: Slice, i: int) -> bool:
    """The meaning of a formula at position i of a slice."""
    if given.variable is not None and not mentions(formula, given.variable):
        return holds(formula, whole(given.records), given.places[i])
    before, after = range(i + 1), range(i, len(given))
    match formula:
        case Atom():
            return atom_holds(formula, given, i)
        case Compare():
            return compare_holds(formula, given, i)
        case Not(part=part):
            return not holds(part, given, i)
        case And(parts=parts):
            return all(holds(part, given, i) for part in parts)
        case Or(parts=parts):
            return any(holds(part, given, i) for part in parts)
        case Previous(part=part):
            return i > 0 and holds(part, given, i - 1)
        case Next(part=part):
            return i + 1 < len(given) and holds(part, given, i + 1)
        case Once(part=part, window=window):
            return any(inside(window, given, j, i) and holds(part, given, j) for j in before)
        case AtMost(count=count, part=part, window=window):
            return sum(inside(window, given, j, i) and holds(part, given, j) for j in before) <= count
        case Since(left=left, right=right, window=window):
            return any(
                inside(window, given, j, i)
                and holds(right, given, j)
                and all(holds(left, given, between) for between in range(j + 1, i + 1))
                for j in before
            )
        case Eventually(part=part, window=window):
            return any(inside(window, given, i, j) and holds(part, given, j) for j in after)
        case Until(left=left, right=right, window=window):
            return any(
                inside(window, given, i, j)
                and holds(right, given, j)
                and all(holds(left, given, between) for between in range(i, j))
                for j in after
            )
    raise AssertionError(formula)


def inside(window: Window, given: Slice, earlier: int, later: int) -> bool:
    steps = given.at(later).step - given.at(earlier).step
    milliseconds = given.at(later).at_ms - given.at(earlier).at_ms
    return (
        window.low <= steps
        and (window.high is None or steps <= window.high)
        and window.low_ms <= milliseconds
        and (window.high_ms is None or milliseconds <= window.high_ms)
    )


def atom_holds(atom: Atom, given: Slice, i: int) -> bool:
    now = given.at(i)
    return (
        (atom.kinds is None or now.action.kind in atom.kinds)
        and (atom.name is None or now.action.name == atom.name)
        and all(
            compare.left.paths[0][-1] in now.action.arguments and compare_holds(compare, given, i) for compare in atom.compares
        )
        and (atom.test is None or bool(atom.test(now)))
    )


ORDERINGS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def compare_holds(compare: Compare, given: Slice, i: int) -> bool:
    left, right = read(compare.left, given, i), compare.right
    if isinstance(right, Variable):
        assert right is given.variable
        right = given.id
    elif isinstance(right, Field):
        right = read(right, given, i)
    match compare.operator:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "in":
            return left in right
        case "test":
            return bool(right(left))
        case ordering:
            return left is not None and right is not None and bool(ORDERINGS[ordering](left, right))


def read(given: Field, trace: Slice, i: int) -> Any:
    """The field's value at a position; of the position before for previous(field)."""
    if given.before:
        return read(replace(given, before=False), trace, i - 1) if i > 0 else None
    if given.function is not None:
        return given.function(trace.at(i))
    values = tuple(reached(trace.at(i), path) for path in given.paths)
    return values if len(values) > 1 else values[0]


def reached(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Record | Action | Observation | ErrorFact | Mediation):
            value = getattr(value, part)
        else:
            return None
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Random formulas and traces
# ---------------------------------------------------------------------------------------------------------------------


def is_even(item: Record) -> bool:
    return item.step % 2 == 0


phi = field("state.phi")
amount = field("arguments.amount")
ATOMS: tuple[Formula, ...] = (
    tool_call("pay"),
    tool_call("ship"),
    tool_call(),
    tool_call("pay", amount=2),
    tool_call("pay", amount=None),
    tool_call("ship", amount=lambda amount: amount is not None and amount > 1),
    tool_call(where=lambda item: item.agent == "a"),
    verification(),
    verification(passed=True),
    verification("row", passed=False),
    action("message", "user"),
    action("memory_write"),
    predicate(lambda item: item.agent == "a", text="by a"),
    predicate(is_even, on=("tool_call", "message")),
    phi < previous(phi),
    phi > 1,
    phi != previous(phi),
    amount <= 1,
    amount == None,  # noqa: E711
    amount == phi,
    previous(amount) >= amount,
    previous(field("name")) == field("name"),
    field("value.order") != None,  # noqa: E711
    field("error") == "timeout",
    field("error.kind").among(["timeout", "blocked"]),
    field("effect") == "write",
    field("agent", "name") == ("a", "pay"),
    previous(field("agent", "name")) == field("agent", "name"),
    field("kind").among(["tool_call", "verification"]),
    field(lambda item: item.step % 3) == 0,
    field("mediation.decision") == "block",
)


def bound_to(id: Variable) -> tuple[Formula, ...]:
    return (
        tool_call("pay", order=id),
        tool_call("ship", order=id),
        tool_call(order=id),
        tool_call("pay", order=id, amount=2),
        field("value.order") == id,
        field("arguments.order") == id,
        field("agent") == id,
        action("message", arguments={"text": id}),
    )


KEYS: tuple[Any, ...] = (
    "arguments.order",
    "agent",
    "value.order",
    field("agent", "name"),
    lambda item: item.action.arguments.get("amount"),
)


@dataclass(frozen=True)
class Writer:
    """Writes formulas by the dice: `past` without future operators, `any` with all of them."""

    dice: random.Random
    leaves: tuple[Formula, ...]

    def past(self, depth: int) -> Formula:
        return self._formula(depth, self.past, ahead=False)

    def any(self, depth: int) -> Formula:
        return self._formula(depth, self.any, ahead=True)

    def ahead(self, depth: int) -> Formula:
        """One of future operators alone: it says from which step it speaks, so it may stand without always."""
        below = max(depth - 1, 0)
        match self.dice.randrange(7):
            case 0 if depth:
                return self.ahead(below) | self.ahead(below)
            case 1 if depth:
                return ~self.ahead(below)
            case 2:
                return next(self._settled(below))
            case 3 | 4:
                return until(self._settled(below), self._settled(below), **self.window())
            case _:
                return eventually(self._settled(below), **self.window())

    def promise(self, depth: int) -> Formula:
        """What users write most: a trigger and one promise, or a chain of two."""
        trigger, left, right = (self.past(max(depth - 2, 0)) for _ in range(3))
        match self.dice.randrange(8):
            case 0:
                promised = until(left, right, **self.window())
            case 1:
                promised = next(right)
            case 2:
                promised = ~eventually(right, **self.window())
            case 3 | 4:
                promised = eventually(right, **self.window())
            case _:
                then = eventually(right, **self.window())
                promised = eventually(self.dice.choice([left & then, then & left, left & ~trigger & then]), **self.window())
        return self.dice.choice([trigger.implies(promised), trigger | promised, (trigger & left).implies(promised)])

    def _settled(self, depth: int) -> Formula:
        """An atom, or a formula of future operators alone."""
        return self.dice.choice(self.leaves) if depth == 0 else self.ahead(depth)

    def _formula(self, depth: int, inner: Callable[[int], Formula], *, ahead: bool) -> Formula:
        if depth == 0:
            return self.dice.choice(self.leaves)
        below = depth - 1
        match self.dice.randrange(11 if ahead else 8):
            case 0:
                return ~inner(below)
            case 1:
                return inner(below) & inner(below)
            case 2:
                return inner(below) | inner(below)
            case 3:
                return inner(below).implies(inner(below))
            case 4 | 5 | 6 | 7:
                return self._past(below)
            case _:
                return self._future(depth)

    def _past(self, below: int) -> Formula:
        match self.dice.randrange(5):
            case 0:
                return once(self.past(below), **self.window())
            case 1:
                return historically(self.past(below), **self.window())
            case 2:
                return since(self.past(below), self.past(below), **self.window())
            case 3:
                return previous(self.past(below))
            case _:
                within, within_ms = self.dice.choice([(None, None), (3, None), (None, 700), (4, 1100)])
                return at_most(self.dice.randrange(4), self.past(below), within=within, within_ms=within_ms)

    def _future(self, depth: int) -> Formula:
        below = max(depth - 1, 0)
        match self.dice.randrange(5):
            case 0 | 1:
                return eventually(self.any(below), **self.window())
            case 2 | 3:
                return until(self.any(below), self.any(below), **self.window())
            case _:
                return next(self.any(below))

    def window(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        shape = self.dice.randrange(8)
        if shape in (1, 2, 3, 6, 7):
            given["within"] = self._bound(self.dice.randrange(6), 1 + self.dice.randrange(3))
        if shape in (4, 5, 6):
            given["within_ms"] = self._bound(100 * max(0, self.dice.randrange(16) - 2), 100 * (1 + self.dice.randrange(4)))
        return given

    def _bound(self, high: int, low: int) -> Any:
        return self.dice.choice([high, high, (min(low, high), high), (low, None)])


def random_formula(dice: random.Random) -> Formula:
    """always(...), a bare past or future formula, a conjunction of such, or a slice of any."""
    depth = dice.choice((1, 2, 2, 3, 3, 4))
    if dice.randrange(5) < 3:
        return top(Writer(dice, ATOMS), depth, conjoin=True)
    if dice.randrange(2):
        return sliced(dice.choice(KEYS), top(Writer(dice, ATOMS), min(depth, 3), conjoin=False), dice)
    id = variable("id")
    writer = Writer(dice, (*ATOMS, *bound_to(id) * 6))
    tried = (top(writer, min(depth, 3), conjoin=False) for _ in range(20))
    chosen = (part for part in tried if mentions(part, id))
    return sliced(id, builtins.next(chosen, always(bound_to(id)[0])), dice)


def top(writer: Writer, depth: int, *, conjoin: bool) -> Formula:
    match writer.dice.randrange(12 if conjoin else 10):
        case 0 | 1 | 2 | 3:
            return always(writer.past(depth))
        case 4 | 5:
            return always(writer.any(depth))
        case 6 | 7:
            return always(writer.promise(depth))
        case 8:
            return writer.past(depth)
        case 9:
            return writer.ahead(depth)
        case _:
            return top(writer, depth - 1, conjoin=False) & top(writer, depth - 1, conjoin=False)


def sliced(key: Any, formula: Formula, dice: random.Random) -> Formula:
    if isinstance(formula, Always) and dice.randrange(2):
        return always(for_each(key, formula.part))
    return for_each(key, formula)


BODIES: tuple[Record, ...] = (
    *(
        record("tool_call", name, arguments, agent=agent, effect=effect, value=value, state=state)
        for name, arguments, agent, effect, value, state in (
            ("pay", {"order": "A", "amount": 2}, "a", "write", None, {"phi": 2}),
            ("pay", {"order": "B", "amount": 0}, "b", "write", None, {"phi": 1}),
            ("pay", {"order": "A", "amount": None}, "a", "none", None, {}),
            ("pay", {"amount": 1}, "a", "none", None, {"phi": 1}),
            ("pay", {"order": "C"}, "b", "write", {"order": "B"}, {"phi": 0}),
            ("ship", {"order": "A", "amount": 3}, "a", "none", {"order": "A"}, {"phi": 3}),
            ("ship", {"order": "B", "amount": 1}, "b", "none", {"order": "A"}, {"phi": 2}),
            ("ship", {"order": "A"}, "b", "write", {"order": "C"}, {"phi": 2}),
            ("ship", {}, "a", "none", "plain", {"phi": 1}),
            ("find", {"order": "B"}, "a", "read", {"order": "B"}, {}),
        )
    ),
    record("tool_call", "pay", {"order": "B", "amount": 2}, error="timeout", state={"phi": 2}, agent="a"),
    record("tool_call", "ship", {"order": "A", "amount": 2}, blocked=True, agent="b"),
    record("verification", "row", {"passed": True}, agent="a", state={"phi": 1}),
    record("verification", "row", {"passed": False}, agent="b", state={"phi": 0}),
    record("verification", "sum", {"passed": True}, agent="b"),
    record("message", "user", {"text": "A"}, agent="a", state={"phi": 3}),
    record("message", "mailer", {"text": "B"}, agent="b"),
    record("memory_write", "notes", {"key": "k", "order": "A"}, agent="a"),
    record("final_response", "answer", agent="a"),
)


def random_trace(dice: random.Random, least: int = 0) -> tuple[Record, ...]:
    """Of 0 to 18 steps; the time stands still, moves a little or jumps."""
    at_ms, placed = dice.choice((0, 50)), []
    for step in range(max(least, dice.choice((0, 1, 2, *range(4, 19))))):
        at_ms += dice.choice((0, 0, 100, 100, 300, 1000))
        body = dice.choice(BODIES)
        placed.append(replace(body, step=step, at_ms=at_ms, sealed_ms=at_ms, asked_seq=2 * step, sealed_seq=2 * step + 1))
    return tuple(placed)


# ---------------------------------------------------------------------------------------------------------------------
# What the engine says
# ---------------------------------------------------------------------------------------------------------------------


def unbounded(formula: Formula) -> bool:
    """Whether a part looks ahead without end; such a part is open until the trace ends and names its earliest break only."""
    own = isinstance(formula, Eventually | Until) and not formula.window.bounded
    return own or any(unbounded(part) for part in children(formula))


def conjoined(formula: Formula) -> bool:
    """Whether it asks for several things, each judged by its own rule."""
    return isinstance(formula, And) or (isinstance(formula, Always | ForEach) and conjoined(formula.part))


def contract_of(formula: Formula, id: str = "c") -> mat.Contract:
    return mat.contract(id, formula)


def position(formula: Formula, violation: Violation) -> tuple[str, int]:
    """Which id, and at which step: a formula that looks ahead names the step that was promised something first."""
    ahead = looks_ahead(formula) and violation.witness
    return (violation.instance, violation.witness[0] if ahead else violation.step)


def online(court: Judge, records: Iterable[Record]) -> list[Violation]:
    return [violation for item in records for violation in court.step(item).violations]


def last_of(records: tuple[Record, ...]) -> Record | None:
    return records[-1] if records else None


def disagreement(formula: Formula, contract: mat.Contract, records: tuple[Record, ...]) -> str:
    """What online, offline and the slow evaluator do not agree about; empty where they agree."""
    court = Judge([contract])
    early = online(court, records)
    (live,) = attribute(court.finish(last_of(records)), records)
    _, (offline,) = judge(records, [contract])
    if live.error:
        return live.error
    if live != offline:
        return f"online {live}, offline {offline}"
    if list(live.violations[: len(early)]) != [named(item, records) for item in early]:
        return f"found while it ran {early}, told at the end {live.violations}"
    return unequal(formula, live.violations, broken(formula, records))


def unequal(formula: Formula, violations: Iterable[Violation], expected: Broken) -> str:
    if isinstance(formula, And) and len({looks_ahead(part) for part in formula.parts}) > 1:
        return unequal_parts(formula, violations, expected)
    said = [position(formula, item) for item in violations]
    if len(said) != len(set(said)) and not conjoined(formula):
        return f"said twice: {sorted(said)}"
    if unbounded(formula):
        agrees = set(said) <= expected and earliest(said) == earliest(expected)
    else:
        agrees = set(said) == expected
    return "" if agrees else f"said {sorted(said)}, expected {sorted(expected)}"


def unequal_parts(formula: And, violations: Iterable[Violation], expected: Broken) -> str:
    """Where one part looks ahead and another does not, a violation does not say which of the two it speaks of."""
    either = [{(item.instance, item.step), *((item.instance, step) for step in item.witness[:1])} for item in violations]
    said = set().union(*either)
    told = set(earliest(expected).items()) <= said if unbounded(formula) else expected <= said
    return "" if told and all(places & expected for places in either) else f"said {either}, expected {sorted(expected)}"


def earliest(places: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for instance, place in places:
        found[instance] = min(place, found.get(instance, place))
    return found


def named(violation: Violation, records: tuple[Record, ...]) -> Violation:
    """With the agent and role of the step it blames, as judging a whole trace gives them."""
    own = records[violation.step]
    return violation if violation.agent else replace(violation, agent=own.agent, role=own.role)


def shrunk(records: tuple[Record, ...], fails: Callable[[tuple[Record, ...]], object]) -> tuple[Record, ...]:
    """A trace that still fails and from which no record can be left out."""
    for place in range(len(records)):
        shorter = tuple(replace(item, step=step) for step, item in enumerate((*records[:place], *records[place + 1 :])))
        if fails(shorter):
            return shrunk(shorter, fails)
    return records


def shown(records: Iterable[Record]) -> str:
    return "\n".join(
        f"  {item.step} {item.at_ms} ms {item.agent} {item.action.kind} {item.action.name} {dict(item.action.arguments)} "
        f"state={dict(item.state)} value={item.observation.value} error={item.observation.error}"
        for item in records
    )


# ---------------------------------------------------------------------------------------------------------------------
# The laws
# ---------------------------------------------------------------------------------------------------------------------

BATCHES, FORMULAS, TRACES = 25, 100, 4
"""25 x 100 x 4: ten thousand pairs of a formula and a trace."""
Armed = tuple[Formula, mat.Contract]


def batch(number: int) -> Iterator[tuple[list[Armed], list[tuple[Record, ...]], str]]:
    """Groups of five contracts with four traces, and how to make them again."""
    dice = random.Random(f"formulas/{number}")
    for group in range(FORMULAS // 5):
        formulas = [random_formula(dice) for _ in range(5)]
        armed = [(formula, contract_of(formula, f"c{seat}")) for seat, formula in enumerate(formulas)]
        yield armed, [random_trace(dice) for _ in range(TRACES)], f"batch {number}, group {group}"


@pytest.mark.nightly
@pytest.mark.sweep("number", range(BATCHES), fast=4)
def test_online_and_offline_say_what_the_slow_evaluator_says(number: int) -> None:
    for armed, traces, where in batch(number):
        for formula, contract in armed:
            for records in traces:
                if disagreement(formula, contract, records):
                    least = shrunk(records, lambda tried: disagreement(formula, contract, tried))  # noqa: B023
                    why = disagreement(formula, contract, least)
                    pytest.fail(f"{where}: {text(formula)}\n{why}\non\n{shown(least)}", pytrace=False)


PAY, SHIP, CHECKED = tool_call("pay"), tool_call("ship"), verification(passed=True)
ID = variable("id")
OF_ID, SHIP_ID = tool_call(order=ID), tool_call("ship", order=ID)
PAY_A, PAY_B, MESSAGE = BODIES[0], BODIES[1], BODIES[15]


@pytest.mark.parametrize(
    ("formula", "bodies", "at_ms", "expected"),
    [
        # the last step of a slice is not the last of the trace, and an id whose formula is false at once is not forgotten
        (for_each(ID, previous(tool_call("pay", order=ID))), (PAY_A, PAY_B), (0, 0), {("A", 0), ("B", 1)}),
        (for_each("arguments.order", once(SHIP, within=(2, 5))), (PAY_A,), (0,), {("A", 0)}),
        # two formulas judged at the first step, each by its own first step
        (next(PAY) & next(SHIP), (PAY_A, PAY_B), (0, 0), {("", 0)}),
        (~next(action("message")) & next(PAY), (PAY_A,), (0,), {("", 0)}),
        # parts joined under for_each share the slice; a part without the variable is judged on the whole trace
        (for_each(ID, once(action("message")) & ~SHIP_ID), (PAY_A, BODIES[5]), (0, 0), {("A", 1)}),
        (for_each(ID, always(OF_ID.implies(eventually(action("message"), within=2)))), (PAY_A, MESSAGE), (0, 0), set()),
        (for_each(ID, always(OF_ID.implies(next(action("message"))))), (PAY_A, MESSAGE, PAY_B), (0, 0, 0), {("B", 2)}),
        # a chain whose deadline passes outside the slice
        (
            for_each(ID, always(OF_ID.implies(eventually(SHIP_ID & eventually(PAY, within_ms=5), within_ms=4)))),
            (PAY_A, PAY_B),
            (0, 9),
            {("A", 0), ("B", 1)},
        ),
        # a window of no milliseconds lasts for all steps of that moment
        (
            for_each(ID, always(OF_ID.implies(eventually(field("agent") == ID, within_ms=0)))),
            (PAY_A, PAY_B),
            (7, 7),
            {("A", 0), ("B", 1)},
        ),
        # without records nothing is promised by anybody, and nothing happens eventually
        (eventually(PAY), (), (), {("", 0)}),
        (always(eventually(PAY)), (), (), set()),
    ],
)
def test_a_case_that_once_went_wrong_stays_right(
    formula: Formula, bodies: tuple[Record, ...], at_ms: tuple[int, ...], expected: Broken
) -> None:
    records = tuple(replace(body, step=step, at_ms=at) for step, (body, at) in enumerate(zip(bodies, at_ms, strict=True)))
    assert broken(formula, records) == expected
    assert disagreement(formula, contract_of(formula), records) == ""


DENSE: tuple[Formula, ...] = (
    *ATOMS[:10],
    *(
        predicate(lambda item, part=part: item.step % 4 in part, text=f"step in {part}")
        for part in ((0,), (1, 2), (0, 1, 2), (2, 3))
    ),
    phi != previous(phi),
)


@pytest.mark.full
@pytest.mark.parametrize("number", range(8))
def test_promises_with_dense_triggers_and_answers_mean_the_same(number: int) -> None:
    """Shapes the compiler writes out in full, in the trace and in slices, with windows of every form."""
    dice = random.Random(f"promises/{number}")
    id = variable("id")
    for _ in range(50):
        whole_trace, sliced_too = Writer(dice, DENSE), Writer(dice, (*DENSE, *bound_to(id) * 3))
        formula = always(whole_trace.promise(dice.choice((2, 2, 3))))
        if dice.randrange(3) == 0:
            formula = sliced(dice.choice(KEYS), formula, dice)
        elif dice.randrange(2) and mentions(part := sliced_too.promise(2), id):
            formula = sliced(id, always(part), dice)
        contract = contract_of(formula)
        for records in (random_trace(dice, least=8) for _ in range(5)):
            if disagreement(formula, contract, records):
                least = shrunk(records, lambda tried: disagreement(formula, contract, tried))  # noqa: B023
                why = disagreement(formula, contract, least)
                pytest.fail(f"{text(formula)}\n{why}\non\n{shown(least)}", pytrace=False)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_formula_shrunk_by_hypothesis_means_the_same(dice: random.Random) -> None:
    formula, records = random_formula(dice), random_trace(dice)
    why = disagreement(formula, contract_of(formula), records)
    assert not why, f"{text(formula)}\n{why}\non\n{shown(records)}"


@pytest.mark.parametrize(
    ("meant", "written"),
    [
        (always(PAY.implies(once(CHECKED, within=3))), always(PAY.implies(once(CHECKED, within=2)))),
        (always(PAY.implies(once(CHECKED, within=(1, 3)))), always(PAY.implies(once(CHECKED & ~PAY, within=(2, 3))))),
        (always(PAY.implies(once(SHIP, within_ms=300))), always(PAY.implies(once(SHIP, within_ms=299)))),
        (always(SHIP.implies(since(~PAY, CHECKED))), always(SHIP.implies(once(CHECKED)))),
        (always(SHIP.implies(previous(PAY))), always(SHIP.implies(once(PAY, within=(1, 2))))),
        (always(at_most(2, PAY, within=4)), always(at_most(2, PAY, within=5))),
        (always(PAY.implies(eventually(SHIP, within=3))), always(PAY.implies(eventually(SHIP, within=4)))),
        (always(PAY.implies(until(~SHIP, CHECKED, within=4))), always(PAY.implies(eventually(CHECKED, within=4)))),
        (always(PAY.implies(next(SHIP))), always(PAY.implies(eventually(SHIP, within=(1, 2))))),
        (always(eventually(PAY & eventually(SHIP, within=2), within=3)), always(eventually(PAY, within=3))),
        (for_each("agent", always(at_most(1, PAY))), for_each("arguments.order", always(at_most(1, PAY)))),
        (for_each("agent", SHIP), always(once(SHIP))),
        (always(phi <= previous(phi)), always(phi < previous(phi))),
        (once(PAY), eventually(PAY & ~CHECKED & ~SHIP) & PAY),
    ],
    ids=lambda formula: text(formula),
)
def test_a_formula_written_a_little_differently_is_distinguished(meant: Formula, written: Formula) -> None:
    dice, contract = random.Random("told apart"), contract_of(written)
    assert any(disagreement(meant, contract, random_trace(dice)) for _ in range(200))


@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_contracts_armed_together_say_what_each_says_alone(number: int) -> None:
    for armed, traces, where in batch(number):
        contracts = [contract for _, contract in armed]
        for records in traces:
            _, together = judge(records, contracts)
            alone = tuple(outcome for contract in contracts for outcome in judge(records, [contract])[1])
            assert together == alone, f"{where}: {[text(formula) for formula, _ in armed]}\non\n{shown(records)}"


@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_a_peek_foretells_the_next_step_and_changes_nothing(number: int) -> None:
    for armed, traces, where in batch(number):
        contracts = [contract for _, contract in armed]
        gates = {contract.id for formula, contract in armed if not looks_ahead(formula)}
        for records in traces:
            court, undisturbed = Judge(contracts), Judge(contracts)
            for item in records:
                foretold = [violation for violation in court.peek(item) if violation.contract in gates]
                assert court.digest() == undisturbed.digest(), where
                verdict = court.step(item)
                assert [item for item in verdict.violations if item.contract in gates] == foretold, f"{where}, step {item.step}"
                assert undisturbed.step(item) == verdict
            assert court.finish(last_of(records)) == undisturbed.finish(last_of(records))


@pytest.mark.parametrize("number", range(3))
def test_skipping_steps_by_kind_changes_no_verdict(number: int) -> None:
    """A part that could be false at any kind has the whole formula judged at every step."""
    dice = random.Random(f"kinds/{number}")
    writer, everywhere = Writer(dice, ATOMS[:12]), predicate(lambda item: True, text="anything")
    evaluated = counted = 0
    for _ in range(100):
        part = dice.choice(ATOMS[:12]).implies(writer.past(dice.choice((1, 1, 2))))
        contracts = (contract_of(always(part), "some"), contract_of(always(part & everywhere), "every"))
        for records in (random_trace(dice) for _ in range(4)):
            _, (some, every) = judge(records, contracts)
            said = [[(item.step, item.witness) for item in outcome.violations] for outcome in (some, every)]
            assert said[0] == said[1], f"{text(part)}\non\n{shown(records)}"
            assert every.evaluations == len(records) >= some.evaluations
            evaluated, counted = evaluated + some.evaluations, counted + len(records)
    assert evaluated < 0.9 * counted


@pytest.mark.full
@pytest.mark.parametrize("number", range(3))
def test_a_contract_that_crashes_is_unknown_and_keeps_no_other_from_judging(number: int) -> None:
    dice = random.Random(f"crash/{number}")
    crashed = 0
    for armed, traces, where in batch(number):
        at = dice.randrange(6)

        def crashes(item: Record, at: int = at) -> bool:
            if item.step == at:
                raise ZeroDivisionError
            return item.step % 2 == 0

        leaves = (*ATOMS[:8], predicate(crashes), predicate(crashes, on="tool_call"))
        crashing = [contract_of(always(Writer(dice, leaves).any(2)), f"crash{seat}") for seat in range(2)]
        contracts = [crashing[0], *(contract for _, contract in armed), crashing[1]]
        for records in traces:
            _, outcomes = judge(records, contracts)
            alone = tuple(outcome for contract in contracts for outcome in judge(records, [contract])[1])
            assert outcomes == alone, f"{where}\n{[contract.text for contract in contracts]}\non\n{shown(records)}"
            for outcome in (outcomes[0], outcomes[-1]):
                crashed += outcome.error.startswith(f"raised ZeroDivisionError at step {at}")
    assert crashed > 10


def spoken(number: int) -> str:
    """All that is said about a batch: verdicts, foretold ones, outcomes after a crash at the second step, and states."""
    said = []

    def crashes(item: Record) -> bool:
        raise ZeroDivisionError

    second = predicate(lambda item: item.step == 1 and crashes(item), text="crashes at 1")
    for armed, traces, _ in batch(number):
        contracts = [contract_of(always(~second), "crash"), *(contract for _, contract in armed)]
        for records in traces:
            court = Judge(contracts)
            said += [f"{court.peek(item)} {court.step(item)} {court.digest()}" for item in records]
            said.append(str(court.finish(last_of(records))))
    return digest(said)


SPOKEN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("formulas", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["formulas"] = module
spec.loader.exec_module(module)
print(module.spoken(2))
"""


@pytest.mark.nightly
def test_nothing_that_is_said_depends_on_the_hash_seed() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", SPOKEN, __file__],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(said) == 1


def followed(records: tuple[Record, ...], rest: Iterable[Record]) -> tuple[Record, ...]:
    """One trace after the other, as one."""
    moved = [replace(item, step=len(records) + place) for place, item in enumerate(rest)]
    begins = records[-1].at_ms if records else 0
    return (*records, *(replace(item, at_ms=begins + item.at_ms) for item in moved))


@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_what_is_broken_in_a_prefix_is_broken_however_it_goes_on(number: int) -> None:
    dice = random.Random(f"prefix/{number}")
    for armed, traces, where in batch(number):
        for formula, contract in armed:
            if conjoined(formula):
                continue
            for records in traces[:2]:
                said = {position(formula, item) for item in online(Judge([contract]), records)}
                longer = followed(records, random_trace(dice))
                assert said <= broken(formula, longer), f"{where}: {text(formula)}\non\n{shown(longer)}"


@pytest.mark.full
@pytest.mark.parametrize("number", range(3))
def test_histories_with_one_digest_have_one_future(number: int) -> None:
    """What the search relies on when it skips: a digest stands for all that the contracts still want to know."""
    dice = random.Random(f"digest/{number}")
    merged = 0
    for armed, _, where in batch(number):
        contracts = [contract for _, contract in armed[:2]]
        rest = random_trace(dice, least=4)
        futures: dict[str, object] = {}
        for _ in range(8):
            length = 2
            records = tuple(
                replace(dice.choice(BODIES[:4]), step=step, at_ms=100 * step, sealed_ms=100 * step) for step in range(length)
            )
            court = Judge(contracts)
            online(court, records)
            key = court.digest()
            after = [tuple(court.step(item).violations) for item in followed(records, rest)[length:]]
            merged += key in futures
            assert futures.setdefault(key, after) == after, f"{where}: {[text(formula) for formula, _ in armed[:2]]}"
    assert merged > 20


def certain_at(left: Formula | None, right: Formula, window: Window, given: Slice, i: int) -> int | None:
    """When it is certain that `left until right` from i is broken: at the deadline, where left fails, or only at the end."""
    for j in range(i, len(given)):
        if inside(window, given, i, j) and holds(right, given, j):
            return None
        if (left is not None and not holds(left, given, j)) or j - i == window.high:
            return j
    return i


@pytest.mark.full
@pytest.mark.sweep("number", range(40))
def test_a_broken_promise_is_reported_at_the_first_step_at_which_it_is_certain(number: int) -> None:
    dice = random.Random(f"early/{number}")
    leaves = Writer(dice, ATOMS)
    trigger, left, right = leaves.past(1), leaves.past(1), leaves.past(1)
    high = dice.randrange(6)
    window = Window(low=dice.randrange(high + 1), high=high)
    within = (window.low, high)
    plain = dice.randrange(2) == 0
    formula = always(trigger.implies(eventually(right, within=within) if plain else until(left, right, within=within)))
    contract = contract_of(formula)
    for _ in range(20):
        given = whole(random_trace(dice))
        expected = {}
        for i in range(len(given)):
            told = certain_at(None if plain else left, right, window, given, i) if holds(trigger, given, i) else None
            if told is not None:
                expected[i] = told
        _, (outcome,) = judge(given.records, [contract])
        said = {item.witness[0]: item.step for item in outcome.violations}
        assert said == expected, f"{text(formula)}\non\n{shown(given.records)}"


def test_a_kind_no_contract_mentions_is_never_dispatched() -> None:
    contracts = [
        contract_of(always(PAY.implies(once(CHECKED, within=3))), "past"),
        contract_of(always(at_most(2, PAY, within=5)), "rate"),
        contract_of(for_each("arguments.order", always(PAY.implies(once(SHIP)))), "sliced"),
    ]
    idle = [record("message", "user"), record("memory_write", "notes"), record("final_response", "answer")] * 30
    court = Judge(contracts)
    for step, item in enumerate(idle):
        assert court.step(replace(item, step=step, at_ms=step)).checked == ()
    assert [outcome.evaluations for outcome in court.finish(None)] == [0, 0, 0]
    seen = [record("verification", "row", {"passed": True}), record("tool_call", "pay", {"order": "A"})]
    court = Judge(contracts)
    for step, item in enumerate(idle + seen):
        court.step(replace(item, step=step, at_ms=step))
    assert [outcome.evaluations for outcome in court.finish(None)] == [2, 1, 1]


def test_an_atom_that_contracts_share_is_evaluated_once_a_step() -> None:
    calls: Counter[int] = Counter()

    def counted(item: Record) -> bool:
        calls[item.step] += 1
        return item.step % 3 == 0

    def atom() -> Formula:
        return predicate(counted, on="tool_call")

    id = variable("id")
    contracts = [
        contract_of(always(atom().implies(once(CHECKED))), "implied"),
        contract_of(always(once(atom(), within=4) | ~atom()), "twice in one"),
        contract_of(always(at_most(5, atom(), within=9)), "counted"),
        contract_of(always(PAY.implies(eventually(atom(), within=6))), "promised"),
        contract_of(for_each(id, always(tool_call(order=id).implies(once(atom(), within=3)))), "sliced"),
    ]
    records = tuple(
        replace(dice_body, step=step, at_ms=step)
        for step, dice_body in enumerate(random.Random("shared").choices(BODIES, k=200))
    )
    court = Judge(contracts)
    for item in records:
        court.step(item)
    assert calls == {item.step: 1 for item in records if item.action.kind == "tool_call"}


def sizes(court: Judge) -> dict[str, int]:
    """How long the state of each armed contract is, as canonical text."""
    return {contract.id: len(canonical(plain(court.states()[index]))) for index, contract in enumerate(court.contracts)}


def bounded_by_windows() -> dict[str, Formula]:
    id = variable("order")
    paid, shipped, failed = tool_call("pay", order=id), tool_call("ship", order=id), verification(passed=False)
    return {
        "once": always(PAY.implies(once(CHECKED, within=(3, 20)))),
        "since": always(PAY.implies(since(~failed, CHECKED, within_ms=2000))),
        "historically": always(SHIP.implies(historically(~failed, within=(2, 30)))),
        "rate": always(at_most(30, PAY, within=40)),
        "rate in time": always(at_most(20, PAY, within_ms=900)),
        "promise": always(PAY.implies(eventually(CHECKED, within=(18, 25)))),
        "promise in time": always(PAY.implies(until(~CHECKED, SHIP, within_ms=1500))),
        "nested": always(PAY.implies(eventually(SHIP & eventually(CHECKED, within=9), within=(2, 15)))),
        "unbounded": always(PAY.implies(eventually(SHIP & CHECKED))),
        "previous": always((previous(phi) == 7).implies(PAY)),
        "for_each once": for_each(id, always(shipped.implies(once(paid, within=30)))),
        "for_each rate": for_each("arguments.order", always(at_most(2, PAY, within=20))),
        "for_each promise": for_each(id, always(paid.implies(eventually(shipped, within=35)))),
        "for_each promise in time": for_each("arguments.order", always(PAY.implies(eventually(SHIP, within_ms=1200)))),
        "for_each nested": for_each(id, always(paid.implies(eventually(shipped & eventually(CHECKED, within=9), within=9)))),
    }


@pytest.mark.nightly
def test_states_are_bounded_by_their_windows_over_a_hundred_thousand_steps_and_ids() -> None:
    court = Judge([contract_of(formula, name) for name, formula in bounded_by_windows().items()])
    pay, ship, checked = BODIES[0], BODIES[7], BODIES[12]
    for step in range(100_000):
        body = (pay, ship, pay, checked, pay, ship, pay)[step % 7]
        body = replace(body, step=step, at_ms=40 * step) if body is checked else ordered(body, step, f"{step // 3:05}")
        court.fold(body)
        if step % 997 == 0:  # no id lives longer than 41 steps, and an entry for each is short
            assert {name: size for name, size in sizes(court).items() if size > 41 * 60} == {}, f"at step {step}"
    assert min(sizes(court).values()) > len("[]")


def ordered(body: Record, step: int, order: str) -> Record:
    arguments = FrozenDict({"order": order, "amount": 2})
    return replace(body, step=step, at_ms=40 * step, action=replace(body.action, arguments=arguments))


def test_an_id_is_forgotten_as_soon_as_it_can_no_longer_matter() -> None:
    id = variable("order")
    promise = tool_call("pay", order=id).implies(eventually(tool_call("ship", order=id)))
    court = Judge([contract_of(for_each(id, always(promise)))])
    empty = sizes(court)
    for step in range(1_000):
        court.step(ordered(BODIES[0], step, f"order-{step}"))
    assert sizes(court)["c"] > 1_000 * len("order-1")
    for step in range(1_000):
        court.step(ordered(BODIES[7], 1_000 + step, f"order-{step}"))
    assert sizes(court) == empty


def test_a_formula_in_words_counts_its_steps_and_sets_off_its_sets() -> None:
    late = mat.contract("c", always(tool_call("pay").implies(once(tool_call("check"), within=1))))
    (found,) = violations(late, traced(record("tool_call", "check"), record("tool_call", "look"), record("tool_call", "pay")))
    assert "2 steps before" in found.wanted
    assert "at most 1 step before" in found.wanted
    assert text(field("error.kind").among(["timeout", "blocked"])) == "error.kind in {'blocked', 'timeout'}"
