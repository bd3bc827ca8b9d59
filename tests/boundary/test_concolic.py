"""Numbers that stand in for others: what they compute, what decides, what they look like from outside."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mat.boundary.concolic import Family, form_of, is_stand_in, plain_of, replaced, same, standing_in, understood, unlike
from mat.core.digest import canonical
from mat.core.value import snapshot, snapshot_arguments

Row = namedtuple("Row", "name amount")


@dataclass(frozen=True)
class Quote:
    amount: int
    note: str = ""


def stand_in(*values: Any) -> tuple[Any, Family]:
    family = Family(len(values))
    return standing_in(family, values), family


BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.and_, operator.or_,
    operator.xor, operator.rshift, divmod, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip
UNARY = [
    operator.neg, operator.pos, abs, bool, int, float, complex, hash, str, repr, round, math.floor, math.ceil, math.trunc,
    operator.index, operator.invert, math.sqrt, json.dumps, lambda x: round(x, 1), lambda x: f"{x:>5}", lambda x: "%d" % x,  # noqa: UP031
    lambda x: list(range(x)), lambda x: [0, 1, 2][x], lambda x: {1: "one"}.get(x), lambda x: x in (1, 2, 3),
    lambda x: sorted([3, x, 1]), lambda x: max(x, 2), lambda x: "ab" * x, lambda x: x + "a", lambda x: "a" + x, lambda x: x[0],
    lambda x: len(x), lambda x: x.real, lambda x: x.bit_length(), lambda x: x.nothing, lambda x: x == "a", lambda x: x < None,
    lambda x: sum([1, x, x]), lambda x: x**2, lambda x: pow(x, 2, 7), lambda x: 2**x, lambda x: 1 << x, lambda x: x << 1,
    lambda x: isinstance(x, int), lambda x: isinstance(x, bool), lambda x: isinstance(x, float), lambda x: bool(x and x > 1),
]  # fmt: skip
numbers = st.one_of(
    st.integers(-12, 12), st.sampled_from([0.0, -0.0, 0.5, 2.5, -3.25, 1e300, math.inf, math.nan]), st.sampled_from([2**70])
)
small = st.one_of(st.integers(-12, 12), st.sampled_from([0.0, -0.0, 0.5, 2.5, -3.25, math.nan]))


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return ("is", function())
    except Exception as error:
        return (type(error).__name__, str(error))


def agrees(found: Any, plain: Any) -> bool:
    """Whether what came of it is, read last of all, the plain thing."""
    if found[0] != "is" or plain[0] != "is":
        return found == plain
    return repr(plain_of(found[1])) == repr(plain[1])


def check(function: Callable[..., Any], values: list[Any]) -> None:
    made, family = stand_in(*values)
    with understood():
        found = outcome(lambda: function(made))
    assert agrees(found, outcome(lambda: function(values[0])))
    for index in family.alive:  # those that are alive once the outcome was read whole
        assert agrees(outcome(lambda index=index: function(values[index])), outcome(lambda: function(values[0])))


@given(st.sampled_from(UNARY), st.lists(small, min_size=2, max_size=4))
def test_whatever_is_done_with_one_gives_what_the_plain_number_gives_and_points_alive_give_the_same(function, values):
    check(function, values)


@given(st.sampled_from(BINARY), st.lists(numbers, min_size=2, max_size=4), st.one_of(numbers, st.booleans()), st.booleans())
def test_so_do_operations_with_a_plain_number_on_either_side(function, values, other, reflected):
    check((lambda x: function(other, x)) if reflected else (lambda x: function(x, other)), values)


@given(st.sampled_from(BINARY), st.lists(st.tuples(numbers, numbers), min_size=2, max_size=4))
def test_so_do_operations_on_two_numbers_of_one_family(function, pairs):
    family = Family(len(pairs))
    one, other = (standing_in(family, [pair[side] for pair in pairs]) for side in (0, 1))
    found = outcome(lambda: function(one, other))
    assert agrees(found, outcome(lambda: function(*pairs[0])))
    for index in family.alive:
        assert agrees(outcome(lambda index=index: function(*pairs[index])), outcome(lambda: function(*pairs[0])))


def test_arithmetic_keeps_every_point_and_a_comparison_those_on_the_same_side():
    number, family = stand_in(5, 6, 7, 50)
    total = (number * 2 + 1) / 2 - number
    assert family.alive == [1, 2, 3]
    assert number < 10
    assert family.alive == [1, 2]
    assert not is_stand_in(total)  # one half for all of them
    assert number + 1 < 7.5
    assert family.alive == [1]


def test_a_number_that_is_shown_is_the_plain_one_and_stands_alone():
    ways = [str, repr, json.dumps, "{}".format, snapshot, canonical, copy.copy, copy.deepcopy, pickle.dumps]
    for shown in ways:
        number, family = stand_in(5, 6)
        with understood():
            found = shown(number)
        assert family.alive == []
        assert (type(found), pickle.loads(found) if shown is pickle.dumps else found) == (
            type(shown(5)),
            5 if shown is pickle.dumps else shown(5),
        )


def test_a_snapshot_decides_on_the_numbers_that_it_takes_and_on_no_others():
    family = Family(3)
    one, other = standing_in(family, [1, 1, 2]), standing_in(family, [3, 4, 3])
    assert snapshot_arguments({"a": [{"b": one}]}, "call") == {"a": [{"b": 1}]}
    assert family.alive == [1]
    assert snapshot({other: 0}) == {"3": 0}
    assert family.alive == []


def test_what_raises_for_the_chosen_point_leaves_it_alone_and_what_raises_for_another_drops_that_one():
    number, family = stand_in(0, 1, 2)
    with pytest.raises(ZeroDivisionError):
        1 // number
    assert family.alive == []
    number, family = stand_in(1, 0, 2)
    assert is_stand_in(1 / number)
    assert family.alive == [2]


def test_points_whose_number_becomes_one_of_another_type_are_dropped():
    number, family = stand_in(4, -4, 9)
    root = number**0.5
    assert family.alive == [2]  # a complex number
    assert root == 2.0


def test_of_two_families_the_older_one_is_decided():
    older, younger = Family(2, serial=0), Family(2, serial=1)
    total = standing_in(older, [1, 2]) + standing_in(younger, [10, 20])
    assert (older.alive, younger.alive) == ([], [1])
    assert total > 10
    assert younger.alive == [1]


def test_one_is_an_int_or_a_float_to_isinstance_and_in_messages_of_errors():
    number, _ = stand_in(5, 6)
    assert isinstance(number, int)
    assert not isinstance(number, bool | float | str)
    match number:
        case int(found):
            assert found is number
        case _:
            pytest.fail("not seen as an int")
    for wrong in (lambda x: x[0], lambda x: x + "a", lambda x: x(), lambda x: len(x), lambda x: x.nothing, lambda x: 1.5 | x):
        assert outcome(lambda wrong=wrong: wrong(number)) == outcome(lambda wrong=wrong: wrong(5))


def test_its_class_called_as_a_constructor_is_refused_by_name():
    number, _ = stand_in(5, 6)
    with pytest.raises(TypeError, match="concolic"):
        type(number)(0)


def test_outcomes_are_one_only_if_nothing_tells_them_apart():
    assert same(math.nan, math.nan)
    assert not same(0.0, -0.0)
    assert not same(1, True)
    assert not same(1, 1.0)


def test_json_and_sum_are_as_before_once_nobody_needs_them():
    default, added = json.JSONEncoder.default, sum
    number, _ = stand_in(5, 6)
    with understood():
        assert json.dumps([number]) == "[5]"
    assert (json.JSONEncoder.default, sum) == (default, added)
    with pytest.raises(TypeError):
        json.dumps(stand_in(5, 6)[0])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"a": 1, "b": [2.5]}, {"a": 3, "b": [2.0]}, {("a",): 3, ("b", 0): 2.0}),
        ((1, Row("x", 2)), (1, Row("x", 3)), {(1, 1): 3}),
        (Quote(1), Quote(2), {("amount",): 2}),
        ({"a": 1}, {"a": 1}, {}),
        (7, 8, {(): 8}),
        (1, 1.0, None),
        (1, True, None),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ([1], (1,), None),
        ([1], [1, 2], None),
        ({"a": "x", "b": 1}, {"a": "y", "b": 2}, None),
        ([True, 1], [False, 1], None),
        (object(), object(), None),
    ],
)
def test_values_are_alike_where_numbers_alone_differ(one, other, expected):
    assert unlike(one, other) == expected


def test_replacing_leaves_keeps_what_lies_next_to_them_and_refuses_parts_that_are_shared():
    beside = ["same"]
    value = {"a": [1, beside], "q": Quote(1, "n"), "r": Row("x", 1)}
    made = replaced(value, {("a", 0): 9, ("q", "amount"): 8, ("r", 1): 7})
    assert made == {"a": [9, beside], "q": Quote(8, "n"), "r": Row("x", 7)}
    assert made["a"][1] is beside
    assert value["q"] == Quote(1, "n")
    row = [1]
    with pytest.raises(ValueError, match="twice"):
        replaced([row, row], {(0, 0): 2})


def test_forms_keep_apart_what_is_equal_only_to_python():
    forms = [form_of(item) for item in (1, True, 1.0, [1], (1,), {"a": 1, "b": 2}, {"b": 2, "a": 1}, -0.0, 0.0, "1", b"1", {1})]
    assert len({repr(form) for form in forms}) == len(forms)
    assert form_of([object()]) is None
