"""Formulas mean what a second reading of the guide says; every path of `field` is compared with what a record really holds."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.truth.formulas.__main__ import differences

import mat
from mat import MatError
from mat.core import limits
from mat.core.record import Mediation, Observation, Record
from mat.core.value import FrozenDict, snapshot
from mat.monitor import temporal
from mat.monitor.judge import Judge
from mat.temporal import always, field, for_each, once, predicate, previous, tool_call, variable
from mat_contracts.traces import STEP_MS, broken, record, trace

# -- the second reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_formulas_mean_what_a_second_reading_of_the_guide_says(seed: int) -> None:
    assert differences(f"fast/{seed}", 50) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 5))])
def test_many_random_formulas_mean_what_a_second_reading_of_the_guide_says(seed: int) -> None:
    assert differences(f"full/{seed}", 1000) == []


def unjudged(formula: temporal.Formula, *records: Record, others: Sequence[temporal.Formula] = ()) -> list[tuple[int, bool]]:
    """The violations of a formula: where, and whether because it had no answer there."""
    made = [mat.contract("c", formula), *(mat.contract(f"other{number}", other) for number, other in enumerate(others))]
    _, (outcome, *_) = mat.judge(trace(*records), made)
    return [(item.step, item.label == "unjudged") for item in outcome.violations]


AMOUNT = field("arguments.amount")
PAID, LISTED = tool_call("pay"), tool_call("list")
TEXT, SMALL = record("tool_call", "list", {"amount": "many"}), record("tool_call", "list", {"amount": 3})


@pytest.mark.parametrize("formula", [PAID.implies(AMOUNT <= 5), ~((AMOUNT > 5) & PAID), (AMOUNT <= 5) | ~PAID])
@pytest.mark.parametrize("each", [always, lambda phi: for_each("arguments.amount", always(phi))])
def test_an_order_is_asked_only_where_it_decides(formula: temporal.Formula, each: Callable[..., temporal.Formula]) -> None:
    paid = record("tool_call", "pay", {"amount": "5"})
    assert unjudged(each(formula), TEXT, paid) == [(1, True)]


def test_an_order_is_asked_where_it_decides_whatever_else_is_armed() -> None:
    formula, others = always(PAID.implies(AMOUNT <= 5)), [always(LISTED.implies(AMOUNT <= 5)), always(once(AMOUNT <= 5))]
    assert unjudged(formula, SMALL, TEXT, others=others) == []
    assert unjudged(always(PAID.implies(AMOUNT <= 5) & (once(AMOUNT <= 5) | ~PAID)), SMALL, TEXT) == [(1, True)]


def test_an_order_with_the_step_before_that_has_no_answer_leaves_the_state_of_other_parts() -> None:
    """It was compared after other parts had changed their state, and their violations of the step were repeated."""
    growing = always(~(previous(AMOUNT) > AMOUNT))
    at_most_one = always(temporal.at_most(1, LISTED))
    assert unjudged(at_most_one & growing, SMALL, TEXT, SMALL) == [(1, True), (2, False)]
    keyed = for_each("name", always(temporal.at_most(1, LISTED)) & growing)
    assert unjudged(keyed, SMALL, TEXT, SMALL) == [(1, True), (2, False)]


def test_a_promise_that_no_step_could_ask_blames_the_first() -> None:
    promise = temporal.eventually(AMOUNT <= 2)
    assert unjudged(promise, TEXT, TEXT, TEXT) == [(0, True), (0, False)]
    assert unjudged(promise, TEXT, SMALL, SMALL) == [(0, True), (1, False)]


def test_a_promise_asks_its_parts_about_a_record_together() -> None:
    late = predicate(lambda record: bool(record.action.arguments["order"]))
    formula = always((PAID & late & temporal.eventually(LISTED)) | ~PAID | temporal.next(LISTED))
    assert unjudged(formula, SMALL, TEXT, SMALL) == []


def test_under_a_variable_only_what_is_judged_on_the_whole_trace_is_asked_of_other_kinds() -> None:
    order, late = variable("order"), predicate(lambda record: bool(record.action.arguments["late"]))
    paid, note = tool_call("pay", order=order), record("message", "note", {})
    promise = temporal.eventually(temporal.until(temporal.action("verification"), paid))
    assert unjudged(for_each(order, always(late.implies(temporal.eventually(paid)))), note) == []
    assert unjudged(for_each(order, always(late.implies(promise))), note) == []
    assert unjudged(for_each(order, always(paid.implies(temporal.eventually(late)))), note) == [(0, True)]
    assert unjudged(for_each(order, always(paid.implies(once(late)))), note) == [(0, True)]


def test_where_the_kind_of_a_record_decides_a_promise_nothing_of_it_is_asked() -> None:
    order, note = variable("order"), record("message", "note", {"amount": "many"})
    promise = temporal.next(LISTED) | ~tool_call("pay", order=order) | (AMOUNT > 2)
    assert unjudged(for_each(order, (field("value.id") == order) & promise), note) == []
    assert unjudged(for_each(order, (field("value.id") == order) & promise), replace(note, action=PAYING)) == [(0, True)]


PAYING = record("tool_call", "pay", {"order": "A1", "amount": "many"}).action


def test_any_record_of_an_id_is_the_one_before_the_next_whatever_its_kind() -> None:
    formula = for_each("arguments.order", always(~(previous(LISTED) & PAID)))
    listed, paid = record("tool_call", "list", {"order": "A1"}), record("tool_call", "pay", {"order": "A1"})
    checked = record("verification", "check", {"order": "A1"})
    assert unjudged(formula, listed, paid) == [(1, False)]
    assert unjudged(formula, listed, checked, paid) == []


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_no_order_with_none_holds(sign: str) -> None:
    def holds(left: Any, right: Any, *records: Record) -> bool:
        comparison = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]
        return unjudged(comparison, *records) == []  # judged at the last step, and neither false nor without an answer

    missing = record("tool_call", "list")
    assert not holds(AMOUNT, 5, missing)
    assert not holds(AMOUNT, None, SMALL)
    assert not holds(AMOUNT, field("arguments.other"), SMALL)
    assert not holds(AMOUNT, previous(AMOUNT), SMALL)
    pair = field("arguments.amount", "arguments.other")
    assert not holds(pair, (3, 5), SMALL)
    assert not holds(pair, (3, None), SMALL)
    assert not holds(field("arguments.other", "arguments.amount"), pair, SMALL)
    assert unjudged(~(pair < (3, 5)), SMALL) == []


# -- paths -------------------------------------------------------------------------------------------------------------------

CALL = replace(
    record("tool_call", "refund", {"amount": 30, "to": {"name": "Ann"}}, agent="clerk", state={"open": 2}, effect="write"),
    role="planner", sealed_ms=7, invoked=2,
)  # fmt: skip
CALL = replace(
    CALL,
    action=replace(CALL.action, impact="high"),
    observation=Observation(value=FrozenDict(id="R1"), usage=FrozenDict(total=9), chunks=3, cancelled=True),
    mediation=Mediation(decision="rewrite", rule="caps", reason="too much"),
)
FAILED = replace(record("tool_call", "track", error="timeout"), observation=record("tool_call", error="timeout").observation)
HELD: dict[str, tuple[object, object]] = {
    "step": (0, 1),
    "at_ms": (0, STEP_MS),
    "sealed_ms": (0, STEP_MS),
    "agent": ("clerk", "main"),
    "role": ("planner", ""),
    "site": ("clerk/service:refund#1", "main/service:track#1"),
    "kind": ("tool_call", "tool_call"),
    "name": ("refund", "track"),
    "arguments": ({"amount": 30, "to": {"name": "Ann"}}, {}),
    "arguments.amount": (30, None),
    "arguments.to.name": ("Ann", None),
    "effect": ("write", "none"),
    "impact": ("high", "low"),
    "boundary": ("service", "service"),
    "effected": ("yes", "unknown"),
    "invoked": (2, 1),
    "value": ({"id": "R1"}, None),
    "value.id": ("R1", None),
    "error": (None, "timeout"),
    "error.kind": (None, "timeout"),
    "error.type": (None, "Timeout"),
    "error.message": (None, "timeout"),
    "cancelled": (True, False),
    "usage": ({"total": 9}, {}),
    "usage.total": (9, None),
    "chunks": (3, None),
    "state": ({"open": 2}, {}),
    "state.open": (2, None),
    "mediation": ("rewrite", None),
    "mediation.decision": ("rewrite", None),
    "mediation.rule": ("caps", None),
    "mediation.reason": ("too much", None),
}
"""By path: what it is at the two records."""


@pytest.mark.parametrize("path", HELD)
def test_a_path_is_compared_with_what_the_record_holds(path: str) -> None:
    records, (first, second) = trace(CALL, FAILED), HELD[path]
    frozen = [snapshot(first), snapshot(second)]
    for wanted, value in zip(frozen, (first, second), strict=True):
        expected = tuple(step for step, held in enumerate((first, second)) if held != value)
        assert broken(mat.contract("c", always(field(path) == value)), records) == expected
        among = always(field(path).among([value, "no such value"]))
        assert broken(mat.contract("c", among), records) == expected
        differs = tuple(step for step in range(2) if step not in expected)
        assert broken(mat.contract("c", always(field(path) != wanted)), records) == differs
    assert broken(mat.contract("c", always(field(path) == "no such value")), records) == (0, 1)
    together = always(field(path, "agent") == (frozen[0], "clerk"))
    assert broken(mat.contract("c", together), records) == (1,)


def test_every_path_that_a_field_can_start_with_is_in_that_table() -> None:
    with pytest.raises(MatError, match="a record has no 'nothing'") as caught:
        field("nothing")
    named = str(caught.value).partition("start with ")[2].replace(",", " ").split()
    assert set(named) == {path.partition(".")[0] for path in HELD}


# -- ids ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["arguments.order", variable("order")])
def test_ids_that_differ_have_different_labels(key: Any) -> None:
    """Values that == tells apart are two ids; a text that looks like another value stands in quotes."""
    paid = tool_call("pay") if isinstance(key, str) else tool_call("pay", order=key)
    ids: list[object] = ["A", 1, "1", "True", 1.5, "1.5", "-2", ("1", 2)]
    records = trace(*(record("tool_call", "pay", {"order": order}) for order in ids))
    _, (outcome,) = mat.judge(records, [mat.contract("c", for_each(key, always(~paid)))])
    assert [item.instance for item in outcome.violations] == ["A", "1", "'1'", "'True'", "1.5", "'1.5'", "'-2'", "['1', 2]"]
    alone = partial(_label, key, paid)
    assert [alone(True), alone(1), alone(1.0)] == ["True", "1", "1.0"]


def _label(key: Any, paid: temporal.Formula, order: object) -> str:
    records = trace(record("tool_call", "pay", {"order": order}))
    _, (outcome,) = mat.judge(records, [mat.contract("c", for_each(key, always(~paid)))])
    (found,) = outcome.violations
    return found.instance


# -- depth and width ---------------------------------------------------------------------------------------------------------

A, B = tool_call("a"), tool_call("b")
CHEAP = AMOUNT <= 5  # can have no answer
NESTS: dict[str, Callable[[Any], Any]] = {
    "implies": lambda part: A.implies(part),
    "not": lambda part: ~part,
    "alternating": lambda part: A & (B | part),
    "alternating orders": lambda part: A & (CHEAP | part),
    "alternating past": lambda part: once(A) & (once(B) | part),
    "alternating future": lambda part: A & (temporal.eventually(B) | part),
    "previous": previous,
    "once": lambda part: ~once(part),
    "historically": temporal.historically,
    "since": lambda part: temporal.since(A, part),
    "window": lambda part: once(part, within=5),
    "at_most": lambda part: temporal.at_most(1, part),
    "eventually": lambda part: A.implies(temporal.eventually(part)),
    "until": lambda part: temporal.until(part, A, within=2),
    "next": temporal.next,
}


def nested(name: str, depth: int, formula: temporal.Formula = B) -> temporal.Formula:
    for _ in range(depth):
        formula = NESTS[name](formula)
    return formula


def judge_deeply(name: str, depth: int, form: str) -> None:
    """Build, compile, explain, judge, digest and close a formula that is nested so deeply."""
    order = variable("order")
    formula = always(nested(name, depth))
    if form == "key":
        formula = for_each("arguments.order", formula)
    elif form == "variable":
        formula = for_each(order, always(tool_call("a", order=order).implies(nested(name, depth))))
    judge = Judge([mat.contract("deep", formula), mat.contract("again", formula)])
    calls = trace(*(record("tool_call", tool, {"order": "A17", "amount": 1}) for tool in "aba"))
    for call in calls:
        judge.fold(call)
    assert judge.digest()
    assert not any(outcome.error for outcome in judge.outcomes_so_far(calls[-1]))
    assert not any(outcome.error for outcome in judge.finish(calls[-1]))
    assert all(len(contract.text) > depth for contract in judge.contracts)


@pytest.mark.parametrize("name", NESTS)
def test_a_formula_nested_60_levels_deep_is_judged(name: str) -> None:
    judge_deeply(name, 60, "whole")


@pytest.mark.full
@pytest.mark.parametrize("form", ["whole", "key", "variable"])
@pytest.mark.parametrize("name", NESTS)
def test_a_formula_nested_500_levels_deep_is_judged(name: str, form: str) -> None:
    before = sys.getrecursionlimit()
    judge_deeply(name, 500, form)
    assert sys.getrecursionlimit() == before


def deep_reading(name: str, depth: int) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
    """The violations of the formula, and of an equal one that is flat, on the same records."""
    records = [record("tool_call", tool, {"amount": amount}) for tool, amount in zip("abab", (1, 9, 9, "9"), strict=True)]
    flat = {"implies": ~A | B, "alternating": A & B, "alternating orders": A & CHEAP, "previous": ~A & A, "not": B}[name]
    return unjudged(always(nested(name, depth)), *records), unjudged(always(flat), *records)


@pytest.mark.parametrize("name", ["implies", "not", "alternating orders", "previous"])
def test_a_formula_means_the_same_however_deeply_it_is_nested(name: str) -> None:
    deep, flat = deep_reading(name, 120)
    assert deep == flat


def test_a_formula_beyond_the_limit_is_refused_with_its_name() -> None:
    with pytest.raises(
        MatError, match=rf"nested {limits.FORMULA_DEPTH + 3:,} levels deep; the limit is {limits.FORMULA_DEPTH:,}"
    ):
        mat.contract("deep", always(nested("not", limits.FORMULA_DEPTH + 1)))


@pytest.mark.full
@pytest.mark.parametrize("name", ["not", "previous", "alternating orders", "until", "next"])
def test_a_formula_of_the_greatest_depth_is_judged(name: str) -> None:
    levels = {"alternating orders": 2}.get(name, 1)
    judge_deeply(name, (limits.FORMULA_DEPTH - 10) // levels, "whole")


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["whole", "key", "variable"])
@pytest.mark.parametrize("join", [operator.or_, operator.and_])
@pytest.mark.parametrize("part", [lambda phi: phi, once, temporal.eventually], ids=["present", "past", "future"])
def test_a_formula_of_3000_parts_is_judged(form: str, join: Callable[[Any, Any], Any], part: Callable[[Any], Any]) -> None:
    wide, order = functools.reduce(join, [part(tool_call(f"tool{number}")) for number in range(3000)]), variable("order")
    formula = always(wide)
    if form == "key":
        formula = for_each("arguments.order", always(wide))
    elif form == "variable":
        formula = for_each(order, always(tool_call(order=order).implies(wide)))
    _, (outcome,) = mat.judge(trace(record("tool_call", "tool7", {"order": "A17"})), [mat.contract("wide", formula)])
    assert (outcome.error, len(outcome.violations)) == ("", 0 if join is operator.or_ else 1)
