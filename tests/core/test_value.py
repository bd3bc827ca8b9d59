"""Values, their digests and the codec."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import os
import pickle
import subprocess
import sys
import uuid
from collections import OrderedDict, deque
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mat.core import adversary, campaign, record, run, spec, verdict
from mat.core.codec import decode, encode, load_json
from mat.core.digest import canonical, chain, digest, plain
from mat.core.errors import CodecError
from mat.core.record import Observation
from mat.core.site import Site
from mat.core.value import EMPTY, EXACT_FIELDS, FrozenDict, FrozenList, freeze, snapshot, snapshot_arguments, thaw

law = settings(deadline=None, max_examples=150)
texts = st.text(st.characters(), max_size=8) | st.sampled_from(["", "$", "$bytes", "$$float", "nan", "\ud800"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, at every depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return one == other


@law
@given(values)
def test_a_value_survives_its_json_form_with_its_types(value: Any) -> None:
    frozen = snapshot(value)
    assert same(freeze(plain(frozen)), frozen)


@law
@given(values)
def test_an_observation_survives_encoding_and_decoding(value: Any) -> None:
    observation = Observation(value=snapshot(value))
    assert same(decode(Observation, encode(observation)).value, observation.value)


@pytest.mark.full
@law
@given(values, values)
def test_two_values_share_a_digest_exactly_where_they_are_the_same(one: Any, other: Any) -> None:
    left, right = snapshot(one), snapshot(other)
    assert (digest(left) == digest(right)) == same(left, right) or _negative_nan(left, right)


def _negative_nan(left: Any, right: Any) -> bool:
    return "nan" in canonical(left)


@pytest.mark.parametrize(
    "group",
    [
        [1, 1.0, True, "1", b"1", "True", None, "None", [1], {"1": 1}],
        [0, 0.0, -0.0, False, "", b"", [], {}, None],
        [{"$bytes": "AA=="}, b"\x00", {"$$bytes": "AA=="}, {"$float": "nan"}, math.nan, {"$int": "0x1"}],
        [10**30, 10**30 + 1, float(10**30), str(10**30)],
        ["\ud800", "\ud801", "?", "\ufffd"],
        [["a", ["b"]], [["a"], "b"], ["a", "b"], "ab"],
    ],
)
def test_values_that_differ_in_type_or_value_differ_in_digest(group: list[Any]) -> None:
    assert len({digest(snapshot(item)) for item in group}) == len(group)


def test_order_of_keys_does_not_reach_the_digest() -> None:
    assert digest(snapshot({"a": 1, "b": 2})) == digest(snapshot({"b": 2, "a": 1}))


def test_an_integer_beyond_what_python_prints_has_a_digest_and_comes_back() -> None:
    huge = -(10**6000)
    assert digest(huge) != digest(huge + 1)
    assert freeze(plain(huge)) == huge


def test_states_with_other_keys_than_texts_have_a_canonical_form_of_their_own() -> None:
    assert digest(plain({1: "a"})) != digest(plain({"1": "a"}))
    assert digest(plain({("a", 1): 2, ("b", 1): 3})) == digest(plain({("b", 1): 3, ("a", 1): 2}))


def test_a_chain_depends_on_its_past() -> None:
    assert chain(chain("", 1), 2) != chain(chain("", 2), 1)


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Order:
    id: str
    lines: list[Point]


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1, 2), {"x": 1, "y": 2}),
        (Order("A", [Point(1, 2)]), {"id": "A", "lines": [{"x": 1, "y": 2}]}),
        (Colour.RED, "red"),
        ({Colour.RED: 1}, {"red": 1}),
        ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "(1, 2)": "c"}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ((1, "a"), [1, "a"]),
        (range(3), [0, 1, 2]),
        (deque([1]), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.timedelta(seconds=1.5), 1.5),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (bytearray(b"x"), b"x"),
        (Loud("quiet"), "quiet"),
    ],
)
def test_known_classes_have_a_recorded_form(value: Any, expected: Any) -> None:
    assert same(thaw(snapshot(value)), expected)


def test_pydantic_models_are_recorded_by_their_fields() -> None:
    from pydantic import BaseModel

    class Reply(BaseModel):
        at: datetime.date
        tags: set[str]

    reply = Reply(at=datetime.date(2026, 1, 2), tags={"b", "a"})
    assert snapshot(reply) == {"at": "2026-01-02", "tags": ["a", "b"]}


def test_numpy_scalars_and_arrays_are_recorded_as_plain_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    value = {"i": numpy.int64(3), "f": numpy.float64(0.5), "b": numpy.bool_(True), "a": numpy.arange(3), "s": numpy.str_("x")}
    assert same(thaw(snapshot(value)), {"i": 3, "f": 0.5, "b": True, "a": [0, 1, 2], "s": "x"})


def test_a_value_that_contains_itself_is_refused_with_the_parameter_named() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    with pytest.raises(CodecError, match="call of buy, parameter 'basket' is nested"):
        snapshot_arguments({"basket": loop}, "call of buy")


@pytest.mark.parametrize("value", [object(), len, (item for item in "ab"), {"a": object()}, {b"k": 1}, {math.nan: 1}])
def test_a_value_without_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(CodecError):
        snapshot(value)


def test_two_keys_with_one_text_form_are_refused_and_not_merged() -> None:
    with pytest.raises(CodecError, match="two keys with the same text form"):
        snapshot({1: "a", "1": "b"})


def test_the_form_of_a_set_does_not_depend_on_the_order_in_which_python_iterates_it() -> None:
    one, other = frozenset([0, 8]), frozenset([8, 0])  # they share a place in the table: the first to come stands first
    assert list(one) != list(other)
    assert canonical(one) == canonical(other) == '{"$set":[0,8]}'
    assert digest(snapshot({"a": one})) == digest(snapshot({"a": other}))


@pytest.mark.full
def test_the_form_of_a_set_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from mat.core.value import snapshot; from mat.core.digest import digest;"
        "print(digest(snapshot({'set': {f'k{i}' for i in range(50)}, 'state': frozenset('abcdef')})))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_recorded_value_is_a_copy_and_cannot_be_changed() -> None:
    source = {"a": [1]}
    kept = snapshot(source)
    source["a"].append(2)
    assert kept == {"a": [1]}
    changes = [
        lambda: kept.update(b=1), lambda: kept["a"].append(2), lambda: kept.pop("a"), lambda: kept["a"].sort(),
        lambda: kept.setdefault("b", 1), lambda: kept["a"].__setitem__(0, 2), lambda: kept.clear(),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(TypeError, match="part of a record"):
            change()
    assert kept == {"a": [1]}


def test_equal_recorded_values_have_equal_hashes() -> None:
    one, other = snapshot({"a": [1, {"b": 2}]}), snapshot({"a": [1.0, {"b": 2}]})
    assert one == other
    assert hash(one) == hash(other)
    assert hash(EMPTY) == hash(FrozenDict())


def test_recorded_values_survive_pickling() -> None:
    value = snapshot({"a": [1, {"b": b"x"}]})
    again = pickle.loads(pickle.dumps(value))
    assert same(again, value)
    assert type(again["a"]) is FrozenList


@pytest.mark.parametrize("data", [{"$bytes": "*"}, {"$float": "1.0"}, {"$nope": 1}, {"$x": 1, "$$x": 2}])
def test_a_tag_that_means_nothing_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        freeze(data)


def test_json_from_outside_is_read_within_limits() -> None:
    assert load_json('{"a": [1]}', where="f") == {"a": [1]}
    for text in ("[" * 500 + "]" * 500, "[" * 200_000, "{", '{"a": 1,}', b"\xff"):
        with pytest.raises(CodecError):
            load_json(text, where="f")


BROKEN = verdict.Violation(contract="c", severity="hard", stage="effected", step=0, agent="a", role="r", message="m")


def test_no_class_that_files_hold_takes_a_field_it_does_not_have() -> None:
    held = [
        kind
        for module in (adversary, campaign, record, run, spec, verdict)
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    ]
    read_from_text_or_never = [adversary.Adaptive, spec.Schedule, Site]
    loose = [kind for kind in held if getattr(kind, "__pydantic_config__", None) != EXACT_FIELDS]
    assert [kind for kind in loose if kind not in read_from_text_or_never] == []
    data = encode(campaign.Counterexample(verdict=BROKEN, run=run.Run(spec=spec.RunSpec())))
    with pytest.raises(CodecError, match=r"stability\.more: Unexpected"):
        decode(campaign.Counterexample, {**data, "stability": {"more": 1}})
