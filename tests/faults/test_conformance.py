"""The conformance kit: our operators pass it; each way to be wrong is found in operators that are wrong so, and in no other."""

from __future__ import annotations

import asyncio
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.cost import DEFAULT_COST
from mat.boundary.effect import PASS, Delay, Drop, Duplicate, Hold, Raise, Replace, Rewrite, Truncate
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.operator import CoveredBy
from mat.core.site import BOUNDARIES
from mat.core.value import FrozenDict
from mat_faults import conformance
from mat_faults.conformance import FindingKind, OperatorProblem, Sample, Turn, assert_conforms, check, distance, token_distance
from mat_faults.samples import SAMPLES

OPERATORS = mat_faults.operators()
ACCEPTED = {"service.changed_after_approval": ["misses"]}
"""It is relevant only where something was approved; without that, its change is another operator's."""


@pytest.mark.nightly
@pytest.mark.sweep("operator", OPERATORS, ids=lambda item: item.id)
def test_every_operator_of_the_catalogue_conforms(operator):
    assert_conforms(operator, accept=ACCEPTED.get(operator.id, ()))


@pytest.mark.sweep("operator", OPERATORS, ids=lambda item: item.id)
def test_every_operator_of_the_catalogue_names_its_bounds(operator):
    assert operator.bounds


def test_the_samples_have_names_of_their_own_and_reach_every_boundary():
    assert len({item.name + item.kind for item in SAMPLES}) == len(SAMPLES)
    reached = {operator.boundary for operator in OPERATORS if any(conformance._fits(operator, item) for item in SAMPLES)}
    assert reached == set(BOUNDARIES)


# -- planted faults in operators -------------------------------------------------------------------------------------------


def is_dict(record: Any, parameters: Any, before: Any) -> bool:
    return isinstance(record.observation.value, dict) and bool(record.observation.value)


def is_list(record: Any, parameters: Any, before: Any) -> bool:
    return isinstance(record.observation.value, list)


def has_reply(record: Any, parameters: Any, before: Any) -> bool:
    return record.observation.value is not None


def first_key(value: Any) -> Any:
    return sorted(value)[0]


def blank(call: Any, reply: Any, stream: Any) -> Any:
    """One field of a mapping becomes None."""
    if not isinstance(reply.value, dict) or not reply.value:
        return PASS
    return Replace({**reply.value, first_key(reply.value): None})


def blank_all(call: Any, reply: Any, stream: Any) -> Any:
    if not isinstance(reply.value, dict) or not reply.value:
        return PASS
    return Replace(dict.fromkeys(reply.value, "?"))


def in_place(call: Any, reply: Any, stream: Any) -> Any:
    if not isinstance(reply.value, dict) or not reply.value:
        return PASS
    reply.value[first_key(reply.value)] = None
    return Replace(reply.value)


def quietly_in_place(call: Any, reply: Any, stream: Any) -> Any:
    if isinstance(reply.value, list):
        reply.value.reverse()
    return PASS


def spoil_history(call: Any, reply: Any, stream: Any) -> Any:
    for value in call.history:
        if isinstance(value, dict):
            value.clear()
    return Raise("timeout")


def spoil_arguments(call: Any, reply: Any, stream: Any) -> Any:
    call.given["order"] = "B"
    return PASS


def counting() -> Any:
    numbers = itertools.count()

    def decide(call: Any, reply: Any, stream: Any) -> Any:
        return Replace({"n": next(numbers)}) if reply.value is not None else PASS

    return decide


def rarely() -> Any:
    """Decides the same twice in a row, and something else the third time."""
    numbers = itertools.count()

    def decide(call: Any, reply: Any, stream: Any) -> Any:
        return Delay(1 + next(numbers) // 2)

    return decide


def drawing(call: Any, reply: Any, stream: Any) -> Any:
    return Delay(stream.randrange(1, 1000))


BLANK: dict[str, Any] = dict(phase="after", relevant=is_dict, bounds={"magnitude": 1}, plausible="a filter")
NOTED: dict[str, Any] = dict(plausible="somebody does it")


def made(decide: Any, **options: Any) -> mat.spec.Operator:
    return mat.spec.operator("service.mine", decide, **{**NOTED, **options})


def late(call: Any, reply: Any, stream: Any) -> Any:
    return Delay(int(call.parameters.get("ms", 1_000)))


PLANTED: list[tuple[str, mat.spec.Operator]] = [
    ("changes nothing", made(lambda *_: PASS)),
    ("changes nothing", made(lambda *_: Truncate(9), relevant=lambda *_: False)),
    ("changes nothing", made(lambda *_: Delay(0))),
    ("changes nothing", made(lambda call, *_: Replace(call.history[-9]) if len(call.past) > 8 else PASS)),
    ("breaks a bound", made(blank_all, **BLANK)),
    ("breaks a bound", made(late, grid=[{"ms": 1_001}], bounds={"latency_ms": 1_000})),
    ("breaks a bound", made(lambda *_: Raise("timeout", delay_ms=70), bounds={"latency_ms": 69})),
    ("breaks a bound", made(lambda *_: Raise("auth"), grid=[{"calls": 4}], bounds={"count": 3})),
    ("breaks a bound", made(lambda *_: Duplicate(3), bounds={"count": 2})),
    (
        "breaks a bound",
        mat.spec.operator("order.mine", lambda *_: Hold(3), bounds={"turns": 2}, **NOTED),
    ),
    (
        "breaks a bound",
        mat.spec.operator(
            "prompt.mine", lambda call, reply, stream: Replace(f"{reply.value} one two three"), phase="after",
            bounds={"tokens": 2}, **NOTED,
        ),
    ),
    (
        "breaks a bound",
        made(
            lambda call, reply, stream: Replace(call.history[0]) if len(call.past) > 2 else PASS, bounds={"staleness": 1},
            relevant=lambda record, parameters, before: len(before) > 2,
        ),
    ),
    ("breaks a bound", made(
        lambda call, reply, stream: Rewrite(FrozenDict({"order": "Z", "cents": 1})) if "cents" in call.given else PASS,
        relevant=lambda record, parameters, before: "cents" in record.action.arguments, bounds={"magnitude": 1},
    )),
    ("names no bound", made(blank, **{**BLANK, "bounds": {}})),
    ("names no bound", made(blank, **{**BLANK, "bounds": {"latency_ms": 5, "staleness": 1}})),
    ("names no bound", made(late)),
    ("names no bound", made(lambda *_: Raise("auth"), grid=[{"calls": 2}])),
    ("names no bound", made(lambda *_: Duplicate(1))),
    ("names no bound", mat.spec.operator("order.mine", lambda *_: Hold(1), **NOTED)),
    ("names no bound", made(lambda call, reply, stream: Replace({"made": "up"}))),
    ("alters in place", made(in_place, **BLANK)),
    ("alters in place", made(quietly_in_place, **{**BLANK, "relevant": is_list})),
    ("alters in place", made(spoil_history)),
    ("alters in place", made(spoil_arguments)),
    ("not deterministic", made(counting(), phase="after", bounds={"magnitude": 99}, relevant=has_reply)),
    ("not deterministic", made(rarely(), bounds={"latency_ms": 10**9})),
    ("crashes", made(lambda *_: 1 // 0)),
    ("crashes", made(lambda *_: None)),
    ("crashes", made(lambda *_: "drop")),
    ("crashes", made(lambda *_: Rewrite(FrozenDict({"order": "Z"})), phase="after", bounds={"magnitude": 1})),
    ("crashes", made(lambda *_: Hold(1), bounds={"turns": 1})),
    ("crashes", made(lambda *_: Raise("auth"), relevant=lambda *_: 1 // 0)),
    ("misses", made(blank, **{**BLANK, "relevant": lambda *_: False})),
    ("misses", made(lambda *_: Raise("timeout"), relevant=lambda record, *_: record.action.effect == "write")),
    ("misses", made(lambda *_: Duplicate(1), bounds={"count": 1}, relevant=lambda record, *_: record.action.effect == "read")),
    ("always relevant", made(blank, **{**BLANK, "relevant": lambda *_: True})),
    ("grid order", made(late, grid=[{"ms": 50}, {"ms": 10}], bounds={"latency_ms": 50})),
    ("grid order", made(late, grid=[{"ms": 10}, {"ms": 10}], bounds={"latency_ms": 50})),
    ("grid order", made(late, grid=[{"ms": 10, "magnitude": 2}, {"ms": 20, "magnitude": 1}], bounds={"latency_ms": 50})),
    (
        "grid order",
        made(
            late, grid=[{"ms": 10}, {"ms": 20}], bounds={"latency_ms": 50},
            price=lambda point, model: model.of(hooks=1, magnitude=30 - int(point["ms"])),
        ),
    ),
    ("parameters", made(lambda *_: Raise("auth"), grid=[{"mark": b"x"}])),
    ("parameters", made(lambda *_: Raise("auth"), grid=[{"rate": float("nan")}])),
    ("parameters", made(lambda *_: Raise("auth"), grid=[{"calls": 0}])),
    ("implausible", made(lambda *_: Raise("auth"), plausible=" ")),
]  # fmt: skip


@pytest.mark.sweep(("kind", "operator"), PLANTED, ids=[f"{kind}-{index}" for index, (kind, _) in enumerate(PLANTED)], fast=6)
def test_what_is_wrong_with_an_operator_is_found_and_nothing_else(kind, operator):
    report = check(operator)
    assert report.kinds() == (kind,), str(report)
    with pytest.raises(AssertionError, match=re.escape(kind)):
        assert_conforms(operator)


def test_the_example_of_the_kit_runs_as_it_is_written():
    text = str(conformance.__doc__)
    example = textwrap.dedent(text[text.index("    import mat\n") : text.index("`check` runs")])
    names: dict[str, Any] = {}
    exec(example, names)
    names["test_shouting_conforms"]()


def test_every_kind_of_finding_is_planted():
    assert {kind for kind, _ in PLANTED} == set(get_args(FindingKind))


FINE: list[mat.spec.Operator] = [
    made(blank, **BLANK),
    made(blank, **{**BLANK, "bounds": {"tokens": 40}}),
    made(blank_all, **{**BLANK, "bounds": {"magnitude": 9}}),
    made(late, grid=[{"ms": 10}, {"ms": 1_000}], bounds={"latency_ms": 1_000}),
    made(late, bounds={"latency_ms": 1_000}, phase="after"),
    made(drawing, bounds={"latency_ms": 1_000}),
    made(lambda *_: Raise("auth")),
    made(lambda *_: Raise("timeout", delay_ms=69), bounds={"latency_ms": 69}),
    made(lambda *_: Raise("auth"), grid=[{"calls": 3}, {"calls": 3, "why": "quota"}], bounds={"count": 3}),
    made(lambda *_: Drop()),
    made(lambda *_: Duplicate(2), bounds={"count": 2}),
    made(lambda *_: Duplicate(2), bounds={"count": 2}, covered=CoveredBy()),
    made(
        lambda call, reply, stream: Rewrite(FrozenDict({"cents": 1})) if "cents" in call.given else PASS,
        relevant=lambda record, parameters, before: "cents" in record.action.arguments, bounds={"magnitude": 1},
    ),
    mat.spec.operator("order.mine", lambda *_: Hold(1), bounds={"turns": 1}, **NOTED),
    mat.spec.operator(
        "prompt.mine", lambda call, reply, stream: Replace(f"{reply.value} now"), phase="after", bounds={"tokens": 1}, **NOTED
    ),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("operator", FINE, ids=lambda item: item.id)
def test_an_operator_that_keeps_its_word_conforms(operator):
    assert check(operator).findings == ()


def test_a_sample_of_ones_own_reaches_what_the_library_does_not_know():
    def thaw(call: Any, reply: Any, stream: Any) -> Any:
        found = isinstance(reply.value, dict) and reply.value.get("state") == "frozen"
        return Replace({**reply.value, "state": "open"}) if found else PASS

    def is_frozen(record: Any, parameters: Any, before: Any) -> bool:
        value = record.observation.value
        return isinstance(value, dict) and value.get("state") == "frozen"

    operator = made(thaw, phase="after", relevant=is_frozen, bounds={"magnitude": 1})
    assert check(operator).kinds() == ("changes nothing",)
    account = Sample(name="an account", kind="tool_call", arguments={"id": 3}, reply={"id": 3, "state": "frozen"})
    assert_conforms(operator, samples=[account])


def test_the_calls_before_a_sample_are_its_past():
    seen: list[tuple[str, Any]] = []

    def watch(call: Any, reply: Any, stream: Any) -> Any:
        if call.kind == "memory_write":
            seen.append((call.agent, [(item.kind, item.agent, item.value) for item in call.past]))
        return Drop()

    cell = {"key": "zoe", "value": 2}
    past = (Turn(kind="memory_read", arguments={"key": "zoe"}, reply=1), Turn(agent="other", arguments=cell, reply=None))
    sample = Sample(name="a cell", kind="memory_write", effect="write", arguments=cell, past=past)
    check(mat.spec.operator("memory.mine", watch, **NOTED), samples=[sample])
    assert ("main", [("memory_read", "main", 1), ("memory_write", "other", None)]) in seen


def test_a_report_says_where_and_on_what():
    report = check(made(blank_all, **BLANK))
    assert report.conforms is False
    assert report.runs > report.changed > 0
    assert str(report).splitlines()[0] == f"service.mine: 1 findings, {report.changed} of {report.runs} runs changed"
    (found,) = report.findings
    assert found == OperatorProblem(
        kind="breaks a bound", message="magnitude 8, and its bound is 1", sample="an order", parameters=FrozenDict()
    )
    assert str(found) == "breaks a bound: magnitude 8, and its bound is 1 on 'an order'"


def test_findings_that_are_meant_so_can_be_accepted_and_nothing_else():
    operator = made(blank, **{**BLANK, "relevant": lambda *_: False})
    assert_conforms(operator, accept=["misses"])
    with pytest.raises(AssertionError, match="misses"):
        assert_conforms(operator, accept=["grid order"])
    for wrong in (["mises"], "misses"):
        with pytest.raises(SpecError, match="did you mean \\['misses'\\]"):
            check(operator, accept=wrong)


def test_the_kit_is_refused_where_it_cannot_make_runs_of_its_own():
    operator = made(lambda *_: Raise("auth"))
    with mat.run(), pytest.raises(SpecError, match="inside a run"):
        check(operator)

    async def inside() -> None:
        check(operator)

    with pytest.raises(SpecError, match="in a running event loop"):
        asyncio.run(inside())


# -- how far ---------------------------------------------------------------------------------------------------------------


@pytest.mark.sweep(
    ("before", "after", "items", "tokens"),
    [
        (1, 1, 0, 0), (1, 2, 1, 0), ("a b", "a c", 1, 1), ("a b", "", 1, 2), ({"a": 1, "b": 2}, {"a": 1, "b": 3}, 1, 0),
        ({"a": 1, "b": 2}, {"a": 1}, 1, 0), ({"a": 1}, {"a": 1, "b": "x y"}, 1, 2), ({"a": "x"}, {"b": "x"}, 2, 2),
        ([1, 2, 3], [3, 2, 1], 1, 0), ([1, 2, 3], [1, 3], 1, 0), ([1, 2, 3], [1], 2, 0), ([1, 2, 3], [], 1, 0),
        ([{"t": "a b"}, {"t": "c"}], [{"t": "a x"}, {"t": "c"}], 1, 1), ([{"t": 1, "u": 2}], [{"t": 2, "u": 3}], 2, 0),
        ([1, 2, 3], [1, 2, 3, 4], 1, 0), ([1, 2, 3], [9, 1, 2, 3], 1, 0), ([1, 2], [2, 1, 3], 2, 0),
        ([None, True, None, True], [None, None, True], 1, 0), ([1, 2, 3], [1, 3, 3], 1, 0),
        ([{"id": 1, "s": 9}, {"id": 2, "s": 8}], [{"id": 2, "s": 9}, {"id": 1, "s": 8}], 2, 0),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, 1, 0), ({"a": 1}, None, 1, 0),
        (None, {"a": 1, "b": 2}, 1, 0), ("x", ["x"], 1, 2),
        ([{"t": "a b", "by": "x y z"}], [{"t": "a b", "by": "x y z"}, {"t": "c", "by": "x y z"}], 1, 2),
    ],
)  # fmt: skip
def test_a_distance_counts_what_a_person_would_count(before, after, items, tokens):
    assert distance(before, after) == items
    assert token_distance(before, after) == tokens


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(one=VALUES, other=VALUES)
def test_only_what_is_equal_is_no_distance_apart(one, other):
    assert distance(one, one) == token_distance(one, one) == 0
    assert (distance(one, other) == 0) == (canonical(mat.core.value.snapshot(one)) == canonical(mat.core.value.snapshot(other)))
    assert token_distance(one, other) >= 0


# -- the catalogue in the documentation ------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"


def catalogue() -> str:
    """The table of docs/reference/faults.md, from the operators themselves."""
    lines = []
    for boundary in BOUNDARIES:
        lines += [f"### {boundary}", "", "| operator | phase | grid, simplest first | cost | bounds | plausible because |",
                  "|---|---|---|---|---|---|"]  # fmt: skip
        for item in Catalog(OPERATORS).select([boundary]):
            costs = sorted({choice.cost for choice in item.spec().choices})
            cost = str(costs[0]) if len(costs) == 1 else f"{costs[0]} to {costs[-1]}"
            name = f"**`{item.id}`**" if item.default else f"`{item.id}`"
            bounds = ", ".join(f"{name} {value}" for name, value in sorted(item.bounds.items()))
            lines.append(f"| {name} | {item.phase} | {grid_in_words(item)} | {cost} | {bounds} | {item.plausible} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def grid_in_words(item: mat.spec.Operator) -> str:
    """Parameters as name=value, those equal at all points left out after the first."""
    if item.grid == (FrozenDict(),):
        return "one point"
    shown = [
        ", ".join(f"{name}={value}" for name, value in point.items() if name != "magnitude") or "one point"
        for point in item.grid
    ]
    return "; ".join(f"`{text}`" if "=" in text else text for text in shown)


BEGIN, END = "<!-- catalogue -->\n", "\n<!-- end of catalogue -->"


def test_the_documented_catalogue_is_the_catalogue():
    text = DOCUMENT.read_text(encoding="utf-8")
    found = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert found == catalogue(), "write it again: python tests/faults/test_conformance.py"


def test_costs_in_the_catalogue_are_those_of_the_cost_model():
    for item in OPERATORS:
        assert [item.price(point, DEFAULT_COST) for point in item.grid] == [choice.cost for choice in item.spec().choices]


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{catalogue()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
