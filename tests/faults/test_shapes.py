"""Operators on replies of every shape that clients return: data, dataclasses, models, named tuples, passages, JSON text."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Call, Reply
from mat.core.record import Record
from mat.core.value import EMPTY, FrozenDict
from mat_faults.mutators import corrupted, leaves, with_leaf, with_note

CATALOG = Catalog(mat_faults.operators())


@dataclasses.dataclass
class Loose:
    text: Any
    rest: Any = None
    made: str = dataclasses.field(init=False, default="made")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tight:
    name: Any
    value: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: Any
    value: Any


class Pair(NamedTuple):
    left: Any
    right: Any


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.dates(), st.datetimes(),
    st.decimals(allow_nan=False, places=2, min_value=-999, max_value=999),
)  # fmt: skip
SHAPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3), st.builds(Loose, inner, inner),
        st.builds(Tight, name=inner, value=inner), st.builds(Model, name=inner, value=inner), st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)  # fmt: skip


@given(value=SHAPES, data=st.data())
def test_one_leaf_is_replaced_and_nothing_else_in_a_value_of_any_shape(value, data):
    found = list(leaves(value))
    assert len({path for path, _ in found}) == len(found)
    if not found:
        return
    before = copy.deepcopy(value)
    path, leaf = data.draw(st.sampled_from(found))
    new = corrupted(leaf, data.draw(st.sampled_from(["empty", "wrong"])))
    changed = with_leaf(value, path, new)
    assert type(changed) is type(value)
    assert type(new) is type(leaf)
    assert repr(new) != repr(leaf)
    assert [repr(item) for item in leaves(changed)] == [repr((at, new if at == path else item)) for at, item in found]
    assert repr(value) == repr(before)
    assert repr(with_leaf(changed, path, leaf)) == repr(value), "the damage can be undone: nothing else was lost"


@given(value=SHAPES, note=st.text(min_size=1))
def test_a_note_keeps_the_shape_and_takes_nothing_away(value, note):
    before = copy.deepcopy(value)
    noted = with_note(value, note)
    assert repr(value) == repr(before)
    if noted is None:
        return
    assert type(noted) is type(value)
    if isinstance(value, list):
        assert repr(noted[:-1]) == repr(value)
        assert len(noted) == len(value) + 1
    else:
        assert [path for path, _ in leaves(noted)] == [path for path, _ in leaves(value)]
        assert sum(repr(one) != repr(other) for one, other in zip(leaves(noted), leaves(value), strict=True)) == 1


@pytest.mark.parametrize(
    ("leaf", "empty", "wrong"),
    [
        (True, False, False), (7, 0, 71), (0, 1, 1), (-1, 0, -9), (1.5, 0.0, 16.0), (float("inf"), 0.0, 0.0), ("ab", "", "a"),
        ("", "?", "?"), (b"x", b"", b"x\x00"), (Decimal("1.5"), Decimal(0), Decimal("16.0")),
        (date(9999, 12, 31), date(9999, 12, 30), date(9999, 12, 30)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_a_wrong_value_is_of_the_same_type(leaf, empty, wrong):
    got = (corrupted(leaf, "empty"), corrupted(leaf, "wrong"))
    assert got == (empty, wrong)
    assert {type(item) for item in got} == {type(leaf)}


def test_a_read_only_mapping_is_no_obstacle():
    value = MappingProxyType({"a": 1, "b": [2]})
    assert with_leaf(value, ("b", 0), 3) == {"a": 1, "b": [3]}
    assert with_leaf(FrozenDict({"a": 1}), ("a",), 2) == {"a": 2}


def decide(id: str, value: Any, **parameters: Any) -> Any:
    """What the operator makes of a reply; the reply itself where it decides to pass."""
    operator = CATALOG[id]
    call = Call(
        port="p", kind=min(operator.spec().kinds), agent="main", site="", arguments=EMPTY, at_ms=0,
        parameters=FrozenDict(parameters),
    )  # fmt: skip
    before = copy.deepcopy(value)
    effect = operator.decide(call, Reply(value), random.Random(0))
    assert value == before
    return value if effect == PASS else effect.value


NEWS = mat_faults.payloads.PASSAGES[0]


@pytest.mark.parametrize(
    ("passages", "poisoned"),
    [
        ([mat.Passage(text="A"), mat.Passage(text="B", id="b")], mat.Passage(text=NEWS, id="b")),
        ([{"content": "A", "id": 1}, {"content": "B", "id": 2}], {"content": NEWS, "id": 2}),
        (["A", "B"], NEWS),
        (("A", "B"), NEWS),
        ([Pair("A", 1), Pair("B", 2)], Pair(NEWS, 2)),
    ],
)
def test_passages_of_any_class_are_shuffled_dropped_and_poisoned_in_their_own_shape(passages, poisoned):
    kind = type(passages)
    assert decide("retrieval.shuffle", passages) == kind(reversed(passages))
    assert decide("retrieval.drop", passages, passage=0) == kind(passages[1:])
    assert decide("retrieval.drop", passages, passage=1) == kind(passages[:1])
    assert decide("retrieval.poison", passages, payload=0) == kind([*passages, poisoned])


@pytest.mark.parametrize("nothing", [[], (), None, "one text", 5, Pair("a", "b"), {"text": "a"}])
def test_a_reply_that_is_no_list_of_passages_is_left_alone(nothing):
    for id, parameters in (("retrieval.shuffle", {}), ("retrieval.drop", {"passage": 0}), ("retrieval.poison", {"payload": 0})):
        assert decide(id, nothing, **parameters) == nothing
    assert decide("memory.reorder", nothing) == nothing


@dataclasses.dataclass(frozen=True)
class Answer:
    content: str
    tool_name: str = ""
    finish: str = "stop"


CALL = json.dumps({"tool": "pay", "arguments": {"order": "A1"}})


@pytest.mark.parametrize(
    ("reply", "malformed", "empty"),
    [
        (CALL, CALL[: len(CALL) // 2], ""),
        ("Dear Ann", "Dear Ann", ""),
        ({"tool": "pay", "arguments": {"order": "A1"}}, {"tool": "pay_", "arguments": {"order": "A1"}}, {}),
        ({"arguments": "order A1"}, {"arguments": "order A1_"}, {}),
        ({"role": "assistant", "content": "[1]"}, {"role": "assistant", "content": "["}, {}),
        (Answer("hello", "pay"), Answer("hello", "pay_"), Answer("", "pay")),
        (Answer(CALL), Answer(CALL[: len(CALL) // 2]), Answer("")),
        (Answer("hello"), Answer("hello"), Answer("")),
        (["a"], ["a"], []), (5, 5, 5), (None, None, None), ("", "", ""), ({}, {}, {}),
    ],
)  # fmt: skip
def test_a_model_reply_of_any_shape_is_damaged_in_its_own_shape(reply, malformed, empty):
    assert decide("model.malformed_call", reply) == malformed
    assert decide("model.empty", reply) == empty


def test_deep_json_text_is_no_obstacle():
    assert decide("model.malformed_call", "[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ([1, 2, 3], [1]),
        ((1, 2), (1,)),
        ([], []),
        ({}, {}),
        ("text", "text"),
        (Pair(1, 2), Pair(1, 2)),
    ],
)
def test_a_partial_reply_only_loses_something(reply, part):
    assert decide("service.partial", reply) == part


def asked(call: Any, *given: Any) -> tuple[Record, ...]:
    with mat.run() as run:
        for item in given:
            call(item)
    return run.result.records[:-1]


def relevant(id: str, records: tuple[Record, ...], **parameters: Any) -> bool:
    return CATALOG[id].relevant(records[-1], FrozenDict(parameters), records[:-1])


REPLIES = {"same": {"at": 1}, "flat": "text", "wide": {"a": 1, "b": "x", "c": 2.5}, "mirror": ["a", "b", "a"], "none": None}


def port(**options: Any) -> Any:
    said: list[str] = []

    @mat.tool(name="ask", **options)
    def ask(what: str) -> Any:
        said.append(what)
        return {"count": len(said)} if what == "count" else REPLIES[what]

    return ask


@pytest.mark.sweep(
    ("id", "parameters", "calls", "expected"),
    [
        ("service.stale", {"age": 1}, ["count"], False), ("service.stale", {"age": 1}, ["count", "count"], True),
        ("service.stale", {"age": 2}, ["count", "count"], False), ("service.stale", {"age": 2}, ["count"] * 3, True),
        ("service.stale", {"age": 1}, ["same", "same"], True), ("service.stale", {"age": 1}, ["same", "count"], False),
        ("service.stale", {"age": 1}, ["count", "same", "count"], True),
        ("service.corrupt_field", {"field": 2}, ["wide"], True), ("service.corrupt_field", {"field": 3}, ["wide"], False),
        ("service.corrupt_field", {"field": 0}, ["flat"], True), ("service.corrupt_field", {"field": 1}, ["flat"], False),
        ("service.corrupt_field", {"field": 0}, ["none"], False),
        ("service.partial", {}, ["wide"], True), ("service.partial", {}, ["flat"], False),
        ("service.partial", {}, ["none"], False),
        ("retrieval.shuffle", {}, ["mirror"], False), ("retrieval.drop", {"passage": 2}, ["mirror"], True),
        ("retrieval.drop", {"passage": 3}, ["mirror"], False), ("retrieval.poison", {"payload": 0}, ["flat"], False),
        ("model.malformed_call", {}, ["flat"], False), ("model.empty", {}, ["none"], False),
        ("service.lost_ack", {}, ["wide"], True), ("service.duplicate", {}, ["wide"], True),
    ],
)  # fmt: skip
def test_an_operator_says_whether_it_could_matter(id, parameters, calls, expected):
    assert relevant(id, asked(port(), *calls), **parameters) is expected


def test_a_stale_answer_to_a_write_matters_even_if_it_reads_the_same():
    assert relevant("service.stale", asked(port(effect="write"), "same", "same"), age=1)


@pytest.mark.parametrize("policy", ["hash", "redact"])
def test_what_the_record_does_not_show_is_never_ruled_out(policy):
    records = asked(port(record={"reply": policy}), "wide")
    for id, parameters in (
        ("service.corrupt_field", {"field": 2}),
        ("service.partial", {}),
        ("retrieval.shuffle", {}),
        ("model.empty", {}),
    ):
        assert relevant(id, records, **parameters)


def test_a_cache_answers_with_what_the_same_request_was_told():
    balances = {"ann": 1, "bob": 2}

    @mat.tool
    def balance(of: str) -> int:
        return balances[of]

    with mat.run(schedule=[mat.spec.perturbation("service.stale", "main/service:balance#3", {"age": 1}, 5)]):
        assert [balance("ann"), balance("bob")] == [1, 2]
        balances["ann"] = 9
        assert [balance("ann"), balance("ann")] == [1, 9]


@pytest.mark.parametrize("id", ["service.lost_ack", "service.corrupt_field", "service.partial"])
def test_a_port_that_fails_by_itself_leaves_nothing_to_damage(id):
    @mat.tool(effect="write")
    def ask(what: str) -> None:
        raise LookupError(what)

    with mat.run() as run, pytest.raises(LookupError):
        ask("x")
    assert not CATALOG[id].relevant(run.result.records[0], FrozenDict({"field": 0}), ())
    with mat.run(schedule=[mat.spec.perturbation(id, "main/service:ask#1", {"field": 0, "how": "empty"}, 5)]) as again:
        with pytest.raises(LookupError):
            ask("x")
    assert again.result.view == run.result.view
