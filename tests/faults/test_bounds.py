"""What an operator changes is bounded: one leaf, one passage, an order. On any reply, and never in place."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections import Counter, namedtuple
from datetime import date
from enum import Enum
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.cost import tokens
from mat.boundary.effect import PASS, Call, Pass, Replace, Reply, Rewrite
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments
from mat_faults.conformance import distance, token_distance
from mat_faults.mutators import corrupted, leaves

CATALOG = Catalog(mat_faults.operators())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
REPLIES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner)
)


def decide(id: str, value: Any, **parameters: Any) -> Any:
    operator = CATALOG[id]
    call = Call(
        port="p", kind=min(operator.spec().kinds), agent="main", site="", arguments=EMPTY, at_ms=0,
        parameters=FrozenDict(parameters),
    )  # fmt: skip
    return operator.decide(call, Reply(value), random.Random(0))


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


@given(reply=REPLIES, field=st.integers(0, 5), how=st.sampled_from(["empty", "wrong"]))
def test_corruption_changes_exactly_one_leaf_of_any_reply_and_keeps_its_type(reply, field, how):
    before, found = copy.deepcopy(reply), list(leaves(reply))
    effect = decide("service.corrupt_field", reply, field=field, how=how)
    assert same(reply, before)
    if field >= len(found):
        assert effect == PASS
        return
    after = list(leaves(effect.value))
    assert [path for path, _ in after] == [path for path, _ in found]
    changed = [index for index, pair in enumerate(zip(found, after, strict=True)) if not same(*pair)]
    assert changed == [field]
    assert type(after[field][1]) is type(found[field][1])


@given(passages=st.lists(SCALARS, max_size=6))
def test_a_shuffle_keeps_every_passage_and_a_drop_removes_exactly_one(passages):
    before = list(passages)
    shuffled = decide("retrieval.shuffle", passages, magnitude=1)
    if len(passages) < 2:
        assert shuffled == PASS
    else:
        assert Counter(map(repr, shuffled.value)) == Counter(map(repr, passages))
    for index in range(3):
        dropped = decide("retrieval.drop", passages, passage=index)
        assert dropped == PASS if index >= len(passages) else same(dropped.value, passages[:index] + passages[index + 1 :])
    assert same(passages, before)


@settings(deadline=None)
@given(reply=REPLIES)
def test_no_reply_breaks_an_operator_or_is_altered_by_it(reply):
    before = copy.deepcopy(reply)
    for operator in CATALOG:
        if operator.phase == "after":
            for point in operator.grid:
                assert decide(operator.id, reply, **point) is not None, operator.id
            assert same(reply, before), operator.id


REACH = ("magnitude", "tokens")


@pytest.mark.sweep("operator", [item for item in CATALOG if {*REACH} & {*item.bounds}], ids=lambda item: item.id, fast=12)
@settings(deadline=None)
@given(value=REPLIES, texts=st.lists(st.text(max_size=40), max_size=3))
def test_no_value_is_changed_further_than_the_operator_says(operator, value, texts):
    """Replies and arguments of any shape; texts of several sentences besides, because those are what rules of words act on."""
    for given_ in (value, ". ".join(texts), {"text": ", ".join(texts), "rest": value}):
        call = Call(
            port="p", kind=min(operator.spec().kinds), agent="main", site="", arguments=EMPTY, at_ms=0, parameters=EMPTY,
            given=snapshot_arguments({"text": given_}, "test"),
        )  # fmt: skip
        before = given_ if operator.phase == "after" else call.given
        for point in operator.grid:
            reply = Reply(given_) if operator.phase == "after" else None
            effect = operator.decide(dataclasses.replace(call, parameters=point), reply, random.Random(0))
            after = before
            if isinstance(effect, Replace) and reply is not None:
                after = effect.value
            elif isinstance(effect, Rewrite):
                after = {**call.given, **effect.arguments}
            assert distance(before, after) <= operator.bounds.get("magnitude", distance(before, after))
            assert token_distance(before, after) <= operator.bounds.get("tokens", token_distance(before, after))


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    id: str
    cents: int

    def __post_init__(self) -> None:
        if self.cents % 10:
            raise ValueError("whole dimes only")


class Model(pydantic.BaseModel):
    id: str
    cents: int = pydantic.Field(ge=0, le=100)


class Colour(Enum):
    RED = "red"


Pair = namedtuple("Pair", "left right")


def test_typed_replies_stay_of_their_type_even_where_their_class_would_refuse_the_damage():
    for reply in (Account(id="a", cents=10), Model(id="a", cents=10)):
        changed = decide("service.corrupt_field", reply, field=0, how="wrong").value
        assert (type(changed), changed.cents, reply.cents) == (type(reply), 101, 10)
    assert decide("service.corrupt_field", Pair(1, 2), field=1, how="empty").value == Pair(1, 0)
    assert decide("service.corrupt_field", {"on": date(2026, 1, 1)}, field=0, how="wrong").value == {"on": date(2026, 1, 2)}


def test_what_is_no_scalar_is_not_damaged():
    assert corrupted(Colour.RED, "wrong") is None
    assert corrupted(object(), "wrong") is None
    assert decide("service.corrupt_field", {"colour": Colour.RED, "handle": object()}, field=0, how="wrong") == PASS


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("likes tea", "likes tea\n{}"),
        (["likes tea"], ["likes tea", "{}"]),
        ([], ["{}"]),
        ([{"at": 3, "text": "likes tea"}], [{"at": 3, "text": "likes tea"}, {"at": 3, "text": "{}"}]),
        (
            {"text": "likes tea", "by": "a very long name of an agent"},
            {"text": "likes tea\n{}", "by": "a very long name of an agent"},
        ),
    ],
)
def test_a_poisoned_note_takes_the_shape_of_what_is_read(reply, expected):
    note = mat_faults.payloads.NOTES[0]
    after = decide("memory.insert", reply, note=0).value
    assert json.dumps(after) == json.dumps(expected).replace("{}", note)


def test_a_poisoned_passage_looks_like_its_neighbours():
    passages = [mat.Passage(text="A kettle.", id="k", score=0.5, metadata={"text": "no"})]
    poisoned = decide("retrieval.poison", passages, payload=0).value
    assert poisoned[0] == passages[0]
    assert poisoned[1] == dataclasses.replace(passages[0], text=mat_faults.payloads.PASSAGES[0])


@given(reply=st.dictionaries(st.text(), st.integers()) | st.lists(st.integers()), pad=st.text(" \n", max_size=9))
def test_a_call_in_json_text_cannot_be_parsed_any_more(reply, pad):
    damaged = decide("model.malformed_call", json.dumps(reply) + pad).value
    with pytest.raises(ValueError):
        json.loads(damaged)


def test_a_free_text_reply_is_no_call():
    assert isinstance(decide("model.malformed_call", "Dear Ann"), Pass)


@given(text=st.text(max_size=60))
def test_a_cut_text_loses_exactly_the_tokens_that_were_paid_for(text):
    effect = decide("prompt.truncate", text, tokens=4)
    if len(tokens(text)) <= 4:
        assert effect == PASS
    else:
        assert tokens(effect.value) == tokens(text)[:-4]
        assert text.startswith(effect.value)


@given(text=st.text(max_size=60), payload=st.sampled_from([point["payload"] for point in CATALOG["prompt.splice"].grid]))
def test_a_splice_adds_exactly_the_tokens_it_pays_for(text, payload):
    effect = decide("prompt.splice", text, payload=payload)
    assert isinstance(effect, Replace)
    assert tokens(effect.value)[: len(tokens(text))] == tokens(text)
    added = len(tokens(effect.value)) - len(tokens(text))
    choice = next(item for item in CATALOG["prompt.splice"].spec().choices if item.parameters == {"payload": payload})
    assert choice.cost == -(-added // 4)
