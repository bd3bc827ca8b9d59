"""Operators on shared memories: what is read, what is lost, and what two agents who write one cell leave behind."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import DEFAULT_COST, Catalog
from mat.boundary.effect import PASS, Call, Past, Reply
from mat.boundary.instrument import instrument
from mat.core.value import FrozenDict, snapshot, thaw
from mat_faults.memory import SIZE, collided, forgotten
from mat_faults.merging import leaves_changed, unseen

CATALOG = Catalog(mat_faults.operators())
OPERATORS = [item for item in CATALOG if item.boundary == "memory"]
COLLISION = CATALOG["memory.collision"]
OTHER, SELF = {"winner": "other"}, {"winner": "self"}


def merged(base: Any, theirs: Any, mine: Any) -> Any:
    return thaw(unseen(snapshot(base), snapshot(theirs), snapshot(mine)))


@pytest.mark.sweep(
    ("base", "theirs", "mine", "left"),
    [
        (["a"], ["a", "b"], ["a", "b", "c"], ["a", "c"]),
        (None, ["b"], ["b", "c"], ["c"]),
        (["a"], ["b", "a"], ["b", "a", "c"], ["a", "c"]),
        (["a", "b"], ["b"], ["b", "c"], ["a", "b", "c"]),
        (["a", "b"], ["a", "x"], ["a", "x", "c"], ["a", "b", "c"]),
        (["x"], ["x", "x"], ["x", "x", "y"], ["x", "y"]),
        (["a"], ["a", "b"], ["z"], ["z"]),
        (["a"], ["a", {"n": 1}], ["a", {"n": 1}, {"n": 2}], ["a", {"n": 2}]),
        ({"x": 0}, {"x": 1, "y": 2}, {"x": 1, "y": 2, "z": 3}, {"x": 0, "z": 3}),
        ({"x": 0}, {"x": 1}, {"x": 5}, {"x": 4}),
        ({"x": "a"}, {"x": "b"}, {"x": "c"}, {"x": "c"}),
        ({"x": 0, "y": 1}, {"x": 0}, {"x": 0, "z": 1}, {"x": 0, "y": 1, "z": 1}),
        ({"log": ["a"]}, {"log": ["a", "b"]}, {"log": ["a", "b", "c"]}, {"log": ["a", "c"]}),
        (None, {"ann": 1}, {"ann": 1, "bob": 2}, {"bob": 2}),
        ("likes tea.", "likes tea. Agreed to offers.", "likes tea. Agreed to offers. Moved.", "likes tea. Moved."),
        ("status: open", "status: closed", "status: closed, paid", "status: open, paid"),
        ("likes tea", "likes green tea", "wants a refund", "wants a refund"),
        (None, "likes tea", "likes tea\nhas a cat", "\nhas a cat"),
        (100, 80, 50, 70),
        (None, 80, 50, 50),
        (True, False, False, True),
        ("a", ["a"], ["a", "b"], ["b"]),
        (["a"], ["a", "b"], "a, b", "a, b"),
    ],
)
def test_what_the_other_agent_changed_is_not_seen(base, theirs, mine, left):
    assert merged(base, theirs, mine) == left


ENTRIES = st.lists(st.sampled_from("abc") | st.integers(0, 3), max_size=5)


@given(base=ENTRIES, added=ENTRIES, own=ENTRIES)
def test_of_a_list_that_both_appended_to_exactly_the_others_entries_are_lost(base, added, own):
    assert merged(base, [*base, *added], [*base, *added, *own]) == [*base, *own]


@given(
    base=st.dictionaries(st.sampled_from("abcd"), st.integers()),
    theirs=st.dictionaries(st.sampled_from("abcd"), st.text("x")),
    own=st.dictionaries(st.sampled_from("efgh"), st.integers()),
)
def test_of_a_mapping_the_others_keys_fall_back_and_the_own_ones_stay(base, theirs, own):
    assert merged(base, {**base, **theirs}, {**base, **theirs, **own}) == {**base, **own}


@given(
    base=st.lists(st.from_regex("[a-f]{3,6}", fullmatch=True), max_size=5), added=st.from_regex("[g-l]{3,6}", fullmatch=True),
    own=st.from_regex("[m-r]{3,6}", fullmatch=True),
)  # fmt: skip
def test_of_a_text_that_both_wrote_on_exactly_the_others_line_is_lost(base, added, own):
    text = "\n".join(base)
    assert merged(text, f"{text}\n{added}", f"{text}\n{added}\n{own}") == f"{text}\n{own}"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text("ab ", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@given(base=VALUES, theirs=VALUES, mine=VALUES)
def test_no_three_values_break_a_collision_and_nothing_is_altered_in_place(base, theirs, mine):
    before = copy.deepcopy((base, theirs, mine))
    left = merged(base, theirs, mine)
    assert repr((base, theirs, mine)) == repr(before)
    assert type(left) is type(mine) or mine is None or isinstance(mine, bool | int | float)
    for winner in ("other", "self"):
        found = collided(
            FrozenDict({"key": "k", "value": snapshot(mine)}), past_of_cell(base, theirs), agent="main", winner=winner
        )
        assert found is None or 0 < leaves_changed(snapshot(mine), found[0]) <= SIZE


def past_of_cell(base: Any, theirs: Any) -> tuple[Past, ...]:
    def write(agent: str, value: Any) -> Past:
        return Past(
            kind="memory_write", agent=agent, arguments=FrozenDict({"key": "k", "value": snapshot(value)}), value=None, at_ms=0
        )

    return (write("main", base), write("other", theirs))


class Team:
    """Two agents at one memory, in plain or in async code. Each reads the cell, changes its copy and writes it back."""

    def __init__(self, store: dict[str, Any], *, asynchronous: bool) -> None:
        self.store = store
        self.asynchronous = asynchronous
        self.plain = mat.memory(store, name="notes")

    async def change(self, agent: str, key: str, change: Any) -> Any:
        with mat.agent(agent):
            if not self.asynchronous:
                found = change(copy.deepcopy(self.plain.get(key)))
                self.plain[key] = found
                return found

            async def get(key: str) -> Any:
                await asyncio.sleep(0.01)
                return copy.deepcopy(self.store.get(key))

            async def put(key: str, value: Any) -> None:
                await asyncio.sleep(0.01)
                self.store[key] = value

            ways: dict[str, Any] = dict(boundary="memory", name="notes")
            read = instrument(get, kind="memory_read", **ways, options={})
            write = instrument(put, kind="memory_write", **ways, options={"effect": "write"})
            found = change(await read(key))
            await write(key, found)
            return found


def budget(*schedule: mat.spec.Perturbation, asynchronous: bool) -> tuple[Any, dict[str, Any]]:
    """A planted shared budget: both agents spend from it, each after a look at what is left."""
    store: dict[str, Any] = {"left": 100, "log": ["opened"]}
    team = Team(store, asynchronous=asynchronous)

    async def work() -> None:
        for agent, cents in (("ann", 30), ("bob", 60)):
            await team.change(agent, "left", lambda left, cents=cents: left - cents)
            await team.change(agent, "log", lambda log, agent=agent, cents=cents: [*log, f"{agent} spent {cents}"])

    with mat.run(schedule=schedule) as run:
        asyncio.run(work())
    return run.result, store


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_shared_budget_is_overspent_where_two_writes_collide(asynchronous):
    nominal, usual = budget(asynchronous=asynchronous)
    assert usual == {"left": 10, "log": ["opened", "ann spent 30", "bob spent 60"]}
    writes = [item for item in nominal.records if item.action.kind == "memory_write"]
    for point in (OTHER, SELF):
        relevant = [COLLISION.relevant(item, FrozenDict(point), nominal.records[: item.step]) for item in writes]
        assert relevant == [False, False, True, True], "only bob writes what another agent wrote before"
    expected = [
        (writes[2], OTHER, {"left": 70, "log": usual["log"]}),
        (writes[2], SELF, {"left": 40, "log": usual["log"]}),
        (writes[3], OTHER, {"left": 10, "log": ["opened", "ann spent 30"]}),
        (writes[3], SELF, {"left": 10, "log": ["opened", "bob spent 60"]}),
    ]
    for record, point, left in expected:
        run, store = budget(mat.spec.perturbation(COLLISION.id, record.site, point, 4), asynchronous=asynchronous)
        assert store == left
        assert run.records[record.step].faults[0].changed
        assert run.records[record.step].action.arguments == record.action.arguments
        assert run.records[record.step].executed["value"] == left[record.action.arguments["key"]]
        assert run.unreached == ()


def writes(*steps: tuple[str, str, Any], record: Any = "keep", schedule: Any = ()) -> tuple[Any, ...]:
    """The records of agents who write, read or delete cells: (agent, key, value), "read" or "gone" for the value."""
    store: dict[str, Any] = {}
    notes = mat.memory(store, name="notes", record=record)
    with mat.run(schedule=schedule) as run:
        for agent, key, value in steps:
            with mat.agent(agent):
                if value == "read":
                    notes.get(key)
                elif value == "gone":
                    del notes[key]
                else:
                    notes[key] = value
    return run.result.records[:-1]


@pytest.mark.parametrize(
    ("steps", "other", "own"),
    [
        ([("ann", "k", ["a"]), ("bob", "k", ["a", "b"])], True, True),
        ([("ann", "k", ["a"]), ("bob", "k", ["b"])], True, False),
        ([("ann", "k", ["a"]), ("bob", "k", ["a"])], False, True),
        ([("ann", "k", ["a"]), ("ann", "k", ["a", "b"])], False, False),
        ([("ann", "j", ["a"]), ("bob", "k", ["a", "b"])], False, False),
        ([("bob", "k", ["a", "b"])], False, False),
        ([("ann", "k", ["a"]), ("bob", "k", "read"), ("bob", "k", "gone")], False, False),
        ([("ann", "k", ["a"]), ("bob", "k", ["a", "b"]), ("bob", "k", ["a", "b", "c"])], True, True),
        ([("bob", "k", ["a"]), ("ann", "k", ["a", "x"]), ("bob", "k", ["a", "x", "b"])], True, True),
        ([("ann", "k", list(range(40))), ("bob", "k", "read"), ("bob", "k", [*range(40), 1])], True, False),
        ([("ann", "k", list(range(40))), ("bob", "k", ["b"])], False, False),
        ([("ann", "k", ["a"]), *[("bob", "j", number) for number in range(15)], ("bob", "k", ["b"])], True, False),
        ([("ann", "k", ["a"]), *[("bob", "j", number) for number in range(16)], ("bob", "k", ["b"])], False, False),
    ],
)
def test_a_collision_needs_another_agents_write_to_the_same_cell_that_differs_a_little(steps, other, own):
    records = writes(*steps)
    found = [COLLISION.relevant(records[-1], FrozenDict(point), records[:-1]) for point in (OTHER, SELF)]
    assert found == [other, own]
    for point, matters in zip((OTHER, SELF), found, strict=True):
        collided_records = writes(*steps, schedule=[mat.spec.perturbation(COLLISION.id, records[-1].site, point, 4)])
        assert collided_records[-1].faults[0].changed is matters


def test_what_an_agent_wrote_itself_collides_with_nothing():
    for point in (OTHER, SELF):
        notes = mat.memory({}, name="notes")
        with mat.run(schedule=[mat.spec.perturbation(COLLISION.id, "main/memory:notes#2", point, 4)]) as run:
            notes["k"] = ["a"]
            notes["k"] = ["a", "b"]
            assert notes["k"] == ["a", "b"]
        assert not any(note.changed for item in run.trace for note in item.faults)


def test_a_collision_is_never_ruled_out_where_the_record_hides_the_values():
    for policy in ("hash", {"value": "redact"}):
        records = writes(("ann", "k", ["a"]), ("bob", "k", ["b"]), record=policy)
        assert all(COLLISION.relevant(records[-1], FrozenDict(point), records[:-1]) for point in (OTHER, SELF))


def test_a_memory_of_objects_gets_no_data_in_their_place():
    @dataclasses.dataclass
    class Note:
        text: str

    notes = mat.memory({}, name="notes")
    with mat.run(schedule=[mat.spec.perturbation(COLLISION.id, "bob/memory:notes#2", OTHER, 4)]) as run:
        with mat.agent("ann"):
            notes["k"] = Note("a")
        with mat.agent("bob"):
            notes["k"] = Note(notes["k"].text + "b")
            assert notes["k"] == Note("ab")
    assert not any(note.changed for item in run.trace for note in item.faults)


@pytest.mark.parametrize(
    ("value", "oldest", "newest"),
    [
        (["a", "b", "c"], ["b", "c"], ["a", "b"]),
        (("a", "b"), ("b",), ("a",)),
        (["a"], [], []),
        ({"x": 1, "y": 2}, {"y": 2}, {"x": 1}),
        ("one\ntwo\nthree", "two\nthree", "one\ntwo"),
        ("He came. He saw. He left.", "He saw. He left.", "He came. He saw."),
        ("likes green tea", "green tea", "likes green"),
        ("tea", "", ""),
        ("", "", ""), ([], [], []), ({}, {}, {}), (5, 5, 5), (None, None, None),
    ],
)  # fmt: skip
def test_a_truncated_memory_loses_an_entry_at_one_end_and_keeps_its_shape(value, oldest, newest):
    before = copy.deepcopy(value)
    found = (forgotten(value, part="oldest", items=1), forgotten(value, part="newest", items=1))
    assert found == (oldest, newest)
    assert [type(item) for item in found] == [type(value)] * 2
    assert value == before


def decide(operator: mat.spec.Operator, value: Any, point: Any) -> Any:
    call = Call(
        port="notes", kind="memory_read", agent="main", site="", arguments=FrozenDict({"key": "k"}), at_ms=0,
        parameters=FrozenDict(point),
    )  # fmt: skip
    effect = operator.decide(call, Reply(value), random.Random(0))
    return value if effect == PASS else effect.value


@given(entries=st.lists(st.integers(), max_size=30))
def test_what_is_read_changes_by_no_more_than_the_bounds_say(entries):
    reordered = decide(CATALOG["memory.reorder"], entries, {"magnitude": 1})
    assert Counter(reordered) == Counter(entries)
    moved = sum(one != other for one, other in zip(entries, reordered, strict=True))
    assert moved <= CATALOG["memory.reorder"].bounds["magnitude"]
    for point in CATALOG["memory.truncate"].grid:
        cut = decide(CATALOG["memory.truncate"], entries, point)
        lost = point["items"] if len(entries) >= point["items"] else 0
        assert len(entries) - len(cut) == lost <= CATALOG["memory.truncate"].bounds["magnitude"]
    for point in CATALOG["memory.insert"].grid:
        assert decide(CATALOG["memory.insert"], list(map(str, entries)), point)[:-1] == list(map(str, entries))


def consent(*schedule: mat.spec.Perturbation, asynchronous: bool) -> tuple[Any, list[str]]:
    """A planted assistant that offers something to whoever has not said no, or whose last word was yes."""
    store: dict[str, Any] = {"ann": ["short answers", "no offers", "likes tea"]}
    notes = mat.memory(store, name="notes")

    async def get(key: str) -> Any:
        await asyncio.sleep(0.01)
        return list(store[key])

    read = instrument(get, kind="memory_read", boundary="memory", name="notes", options={})
    seen: list[str] = []
    with mat.run(schedule=schedule) as run:
        for _ in range(2):
            found = asyncio.run(read("ann")) if asynchronous else list(notes["ann"])
            words = [item for item in found if "offers" in item]
            seen.append("keep quiet" if words and words[-1] == "no offers" else "offer")
            if not asynchronous:
                notes["ann"] = [*store["ann"], "agreed to offers"]
            else:
                store["ann"] = [*store["ann"], "agreed to offers"]
    return run.result, seen


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("id", "point", "nth", "seen"),
    [
        ("memory.insert", {"note": "false_consent"}, 1, ["offer", "offer"]),
        ("memory.truncate", {"part": "oldest", "items": 1, "magnitude": 1}, 1, ["keep quiet", "offer"]),
        ("memory.truncate", {"part": "oldest", "items": 2, "magnitude": 2}, 1, ["offer", "offer"]),
        ("memory.truncate", {"part": "newest", "items": 2, "magnitude": 2}, 1, ["offer", "offer"]),
        ("memory.truncate", {"part": "newest", "items": 1, "magnitude": 1}, 2, ["keep quiet", "keep quiet"]),
        ("memory.reorder", {"magnitude": 1}, 2, ["keep quiet", "keep quiet"]),
        ("memory.stale_read", {"magnitude": 1}, 2, ["keep quiet", "keep quiet"]),
    ],
)
def test_an_assistant_that_trusts_its_memory_is_seen_failing_where_it_does(id, point, nth, seen, asynchronous):
    nominal, usual = consent(asynchronous=asynchronous)
    assert usual == ["keep quiet", "offer"]
    reads = [item for item in nominal.records if item.action.kind == "memory_read"]
    assert CATALOG[id].relevant(reads[nth - 1], FrozenDict(point), nominal.records[: reads[nth - 1].step])
    cost = CATALOG[id].price(FrozenDict(point), DEFAULT_COST)
    run, found = consent(mat.spec.perturbation(id, reads[nth - 1].site, point, cost), asynchronous=asynchronous)
    assert found == seen
    record = run.records[reads[nth - 1].step]
    assert (record.faults[0].operator, record.faults[0].changed, run.unreached) == (id, True, ())


@pytest.mark.sweep("operator", [item for item in OPERATORS if item.phase == "after"], ids=lambda item: item.id)
@pytest.mark.sweep("value", [[], ["a"], ["a", "a"], ["a", "b"], "", "one two", {"x": "y"}, {}, None, 5])
def test_an_operator_on_reads_says_yes_exactly_where_it_changes_something(operator, value):
    notes = mat.memory({"k": value}, name="notes")
    with mat.run() as run:
        notes["k"]
    for point in operator.grid:
        relevant = operator.relevant(run.result.records[0], point, ())
        assert relevant == (decide(operator, copy.deepcopy(value), point) != value)


def test_a_stale_read_is_answered_with_a_read_never_with_a_write_of_equal_arguments():
    cells = {"k": 1}
    read = instrument(lambda key: cells[key], kind="memory_read", boundary="memory", name="notes", options={})
    touch = instrument(lambda key: "touched", kind="memory_write", boundary="memory", name="notes", options={"effect": "write"})
    with mat.run(schedule=[mat.spec.perturbation("memory.stale_read", "main/memory:notes#3", {"magnitude": 1}, 5)]) as run:
        assert (read("k"), touch("k")) == (1, "touched")
        cells["k"] = 2
        assert read("k") == 1
    point = FrozenDict({"magnitude": 1})
    assert not CATALOG["memory.stale_read"].relevant(run.result.records[2], point, run.result.records[1:2])
