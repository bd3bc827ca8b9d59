"""Reference call sequences: BFCL's Python calls and tau2's actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from corpora.formats.bfcl import called, effect_of

from mat.adapters.importers import StoredTrace
from mat.core.errors import MatError

Imported = Callable[..., StoredTrace]


def bfcl(turns: Any, calls: Any, **fields: Any) -> dict[str, Any]:
    question = {"id": "multi_turn_base_0", "question": turns, "initial_config": {}, "involved_classes": ["FileSystem"]}
    return {"category": "multi_turn_base", "question": {**question, **fields}, "ground_truth": calls}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_turns_are_messages_followed_by_their_calls(imported: Imported) -> None:
    stored = imported(bfcl([said("go"), [], said("done?")], [["cd(folder='a')", "rm(file_name='b')"], ["ls(a=True)"], []]))
    assert [(record.agent, record.action.kind, record.action.name) for record in stored.records] == [
        ("user", "message", "user"),
        ("assistant", "tool_call", "cd"),
        ("assistant", "tool_call", "rm"),
        ("assistant", "tool_call", "ls"),
        ("user", "message", "user"),
        ("harness", "termination", "completed"),
    ]
    records = list(stored.records)
    assert [record.action.arguments for record in records[1:4]] == [{"folder": "a"}, {"file_name": "b"}, {"a": True}]
    assert [record.action.effect for record in records[1:4]] == ["none", "write", "read"]
    assert {record.effected for record in records[1:4]} == {"unknown"}
    assert stored.labels["source_steps"] == (0, 0, 0, 1, 2, None)
    assert (stored.id, stored.labels["involved_classes"], stored.labels["reference"]) == (
        "multi_turn_base_0",
        ("FileSystem",),
        True,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(a=[1, {'b': None}], c=-1.5)", ("f", {"a": [1, {"b": None}], "c": -1.5})),
        (" get('x', 2, y=3) ", ("get", {"0": "x", "1": 2, "y": 3})),
        ("f(a=g(1), b=x)", ("f", {"a": "g(1)", "b": "x"})),
        ("Api.f()", ("Api.f", {})),
        ("f(a='it's')", ("f", {"unparsed": "f(a='it's')"})),
        ("nothing", ("unparsed", {"unparsed": "nothing"})),
        ("f(**rest)", ("f", {"**": "rest"})),
    ],
)
def test_calls_are_read_as_python_and_what_is_none_is_kept_whole(text: str, expected: object) -> None:
    assert called(text) == expected


def test_effects_of_the_simulated_services_follow_the_documented_table() -> None:
    reads = ("cat", "ls", "get_stock_info", "displayCarStatus", "view_messages_sent", "mean", "liter_to_gallon", "find")
    assert {effect_of(name) for name in reads} == {"read"}
    writes = ("rm", "mv", "touch", "place_order", "post_tweet", "startEngine", "listen_in", "getaway", "book_flight")
    assert {effect_of(name) for name in writes} == {"write"}
    assert effect_of("echo", {"content": "x"}) == "read"
    assert effect_of("echo", {"content": "x", "file_name": "f"}) == "write"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (bfcl([said("x")], [[3]]), r"ground_truth\[0\]\[0\]"),
        (bfcl([said("x")], ["ls()"]), r"ground_truth\[0\]"),
        (bfcl(["x"], [[]]), r"question\.question\[0\]"),
        (bfcl([["x"]], [[]]), r"question\.question\[0\]\[0\]"),
    ],
)
def test_turns_that_cannot_be_read_are_an_error_that_names_them(imported: Imported, row: Any, field: str) -> None:
    with pytest.raises(MatError, match=rf"rows\.jsonl:1: {field} "):
        imported(row)


def tau2(actions: Any, **fields: Any) -> dict[str, Any]:
    criteria = {"actions": actions, "communicate_info": ["10"], "nl_assertions": None, "reward_basis": ["DB"]}
    return {"id": "5", "user_scenario": {"instructions": {"domain": "retail"}}, "evaluation_criteria": criteria, **fields}


def test_reference_actions_of_a_task_are_its_calls(imported: Imported) -> None:
    actions = [
        {"action_id": "5_0", "name": "get_order_details", "arguments": {"order_id": "#1"}, "info": None},
        {"action_id": "5_1", "name": "cancel_pending_order", "arguments": {"order_id": "#1"}, "compare_args": ["order_id"]},
        {"action_id": "5_2", "name": "toggle_data", "arguments": None, "requestor": "user"},
    ]
    stored = imported(tau2(actions))
    assert [(record.agent, record.action.name, record.action.effect, record.effected) for record in stored.records] == [
        ("assistant", "get_order_details", "read", "unknown"),
        ("assistant", "cancel_pending_order", "write", "unknown"),
        ("user", "toggle_data", "write", "unknown"),
        ("harness", "completed", "none", "yes"),
    ]
    assert stored.id == "retail/task-5"
    labels = {name: stored.labels[name] for name in ("communicate_info", "nl_assertions", "reward_basis", "compare_args")}
    expected = {"communicate_info": ("10",), "nl_assertions": (), "reward_basis": ("DB",), "compare_args": {1: ("order_id",)}}
    assert labels == expected
    assert stored.labels["source_steps"] == (0, 1, 2, None)


def test_a_task_without_actions_still_imports(imported: Imported) -> None:
    for row in (tau2(None), tau2([], evaluation_criteria=None)):
        assert [record.action.kind for record in imported(row).records] == ["termination"]


@pytest.mark.parametrize(
    ("actions", "field"), [(["x"], r"evaluation_criteria\.actions\[0\]"), ([{}], r"evaluation_criteria\.actions\[0\]\.name")]
)
def test_an_action_that_cannot_be_read_is_an_error_that_names_it(imported: Imported, actions: Any, field: str) -> None:
    with pytest.raises(MatError, match=rf"rows\.jsonl:1: {field} "):
        imported(tau2(actions))
