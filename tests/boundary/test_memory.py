"""The memory wrapper: a mapping like any other, whose reads and writes cross a boundary."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.errors import SpecError

KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers()),
    st.tuples(st.sampled_from(["get", "read", "in", "del", "pop", "setdefault"]), KEYS, st.just(0)),
    st.tuples(st.sampled_from(["list", "len", "clear"]), st.just(""), st.just(0)),
)


def perform(target: Any, step: tuple[str, str, int]) -> Any:
    verb, key, value = step
    try:
        match verb:
            case "set":
                target[key] = value
                return None
            case "get":
                return target.get(key, -1)
            case "read":
                return target[key]
            case "in":
                return key in target
            case "del":
                del target[key]
                return None
            case "pop":
                return target.pop(key)
            case "setdefault":
                return target.setdefault(key, 7)
            case "list":
                return list(target)
            case "len":
                return len(target)
            case _:
                return target.clear()
    except KeyError as error:
        return repr(error)


@given(steps=st.lists(STEPS, max_size=12), inside=st.booleans())
def test_a_memory_behaves_as_the_mapping_it_wraps_inside_a_run_and_outside(steps, inside):
    plain: dict[str, int] = {"a": 1}
    store: dict[str, int] = {"a": 1}
    notes = mat.memory(store, name="notes")
    expected = [perform(plain, step) for step in steps]
    if inside:
        with mat.run():
            got = [perform(notes, step) for step in steps]
    else:
        got = [perform(notes, step) for step in steps]
    assert (got, store) == (expected, plain)


@pytest.mark.parametrize("inside", [False, True])
def test_asking_whether_a_key_is_there_makes_no_value(inside):
    store: defaultdict[str, list[str]] = defaultdict(list)
    notes = mat.memory(store, name="notes")

    def ask() -> tuple[Any, ...]:
        return ("a" in notes, notes.get("a"), notes.get("a", 5))

    if inside:
        with mat.run():
            answers = ask()
    else:
        answers = ask()
    assert (answers, dict(store)) == ((False, None, 5), {})
    assert notes["a"] == []


def test_reads_and_writes_are_steps_that_name_the_cell():
    notes = mat.memory({}, name="notes")
    with mat.run() as run:
        notes["a"] = {"text": "x"}
        assert notes["a"] == {"text": "x"}
        assert len(notes) == 1
        del notes["a"]
    write, read, keys, delete = run.trace[:4]
    assert [(item.action.kind, dict(item.action.arguments), item.action.effect) for item in run.trace[:4]] == [
        ("memory_write", {"key": "a", "value": {"text": "x"}}, "write"), ("memory_read", {"key": "a"}, "read"),
        ("memory_read", {"keys": True}, "read"), ("memory_write", {"key": "a", "deleted": True}, "write"),
    ]  # fmt: skip
    assert [(link.src, link.rel, link.dst) for item in (write, read) for link in item.links] == [
        ("step#0", "derived_from", "memory:notes/a"), ("memory:notes/a", "returns", "step#1"),
    ]  # fmt: skip
    assert (keys.observation.value, delete.effected) == (["a"], "yes")


def test_what_a_memory_cannot_do_is_refused_before_a_step_is_taken():
    reads_only = mat.memory(get={"a": 1}.__getitem__, put=None, name="log")  # type: ignore[call-overload]
    with mat.run() as run:
        assert reads_only["a"] == 1
        for attempt in (lambda: list(reads_only), lambda: reads_only.__delitem__("a"), lambda: reads_only.__setitem__("a", 2)):
            with pytest.raises(SpecError) as caught:
                attempt()
            assert caught.value.fix
    assert [item.action.kind for item in run.trace if item.action.boundary] == ["memory_read"]


@pytest.mark.parametrize("given_parts", [{}, {"store": {}, "get": dict().get}])
def test_a_memory_needs_a_store_or_callables_and_not_both(given_parts):
    with pytest.raises(SpecError, match="needs a store"):
        mat.memory(given_parts.get("store"), name="notes", **{key: item for key, item in given_parts.items() if key != "store"})


def test_a_rewritten_write_keeps_the_class_of_what_the_rule_left_alone():
    store: dict[str, Any] = {}
    notes = mat.memory(store, name="notes")
    passage = mat.Passage(text="x")

    def moved(record: mat.Record) -> mat.policy.Rewrite | None:
        return mat.policy.Rewrite({"key": "b"}) if record.action.kind == "memory_write" else None

    with mat.run(governance=mat.policy.Governance(rules=(moved,))) as run:
        notes["a"] = passage
    assert store["b"] is passage
    assert (run.trace[0].action.arguments["key"], run.trace[0].executed["key"]) == ("a", "b")


@pytest.mark.parametrize("inside_store", [True, False], ids=["mapping", "callables"])
def test_a_rewritten_key_is_the_one_that_is_read_and_deleted(inside_store):
    store = {"a": 1, "b": 2}
    if inside_store:
        notes = mat.memory(store, name="notes")
    else:
        notes = mat.memory(get=store.__getitem__, put=store.__setitem__, name="notes")
    with mat.run(governance=mat.policy.Governance(rules=(lambda record: mat.policy.Rewrite({"key": "b"}),))) as run:
        assert notes["a"] == 2
        if inside_store:
            del notes["a"]
    assert run.trace[0].executed == {"key": "b"}
    assert store == ({"a": 1} if inside_store else {"a": 1, "b": 2})


@pytest.mark.parametrize("missing", ["None", "KeyError"])
def test_nothing_is_put_into_a_read_that_found_nothing(missing):
    notes = mat.memory({"a": None} if missing == "None" else {}, name="notes")
    poison = [mat.spec.perturbation("memory.insert", "main/memory:notes#1", {"note": 0}, 6)]
    with mat.run(schedule=poison) as run:
        assert notes.get("a", None) is None
    assert (run.trace[0].observation.error is None) is (missing == "None")
    assert not any(note.changed for note in run.trace[0].faults)


def test_a_write_that_is_lost_is_confirmed_and_has_no_effect():
    store: dict[str, int] = {"a": 1}
    notes = mat.memory(store, name="notes")
    with mat.run(schedule=[mat.spec.perturbation("memory.lost_write", "main/memory:notes#1", {}, 4)]) as run:
        notes["a"] = 2
        assert notes["a"] == 1
    assert (run.trace[0].effected, run.trace[0].invoked, run.trace[0].observation.error) == ("no", 0, None)
