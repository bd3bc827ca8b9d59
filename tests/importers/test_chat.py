"""Conversations in the shapes of the model APIs, and Inspect's logs: one run written in three ways gives the same steps."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mat.adapters.importers import StoredTrace, formats, read_traces
from mat.adapters.importers.conversation import Dialect, conversation
from mat.core.errors import MatError, SpecError
from mat.core.record import Record

Imported = Callable[..., StoredTrace]

ASKED = {"order": "A1"}
OPENAI: dict[str, Any] = {
    "id": "run-1",
    "model": "gpt",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Refund A1."},
        {
            "role": "assistant",
            "content": "I look it up.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": json.dumps(ASKED)}},
                {"id": "c2", "type": "function", "function": {"name": "refund", "arguments": json.dumps(ASKED)}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"paid": 30}'},
        {"role": "tool", "tool_call_id": "c2", "content": "too late"},
        {"role": "assistant", "content": "It is too late."},
    ],
}
ANTHROPIC: dict[str, Any] = {
    "id": "run-1",
    "model": "claude",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Refund A1."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "first look", "signature": "x"},
                {"type": "text", "text": "I look it up."},
                {"type": "tool_use", "id": "c1", "name": "get_order", "input": ASKED},
                {"type": "tool_use", "id": "c2", "name": "refund", "input": ASKED},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": '{"paid": 30}'}]},
                {"type": "tool_result", "tool_use_id": "c2", "content": "too late", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It is too late."}]},
    ],
}
RESPONSES: dict[str, Any] = {
    "id": "run-1",
    "model": "gpt",
    "instructions": "Be brief.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Refund A1."}]}],
    "output": [
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "first look"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look it up."}]},
        {"type": "function_call", "id": "f1", "call_id": "c1", "name": "get_order", "arguments": json.dumps(ASKED)},
        {"type": "function_call", "id": "f2", "call_id": "c2", "name": "refund", "arguments": json.dumps(ASKED)},
        {"type": "function_call_output", "call_id": "c1", "output": '{"paid": 30}'},
        {"type": "function_call_output", "call_id": "c2", "output": "too late"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is too late."}]},
    ],
}
INSPECT: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {"task": "shop", "model": "openai/gpt"},
    "samples": [
        {
            "id": 7,
            "epoch": 2,
            "input": "Refund A1.",
            "target": "too late",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Refund A1."},
                {
                    "role": "assistant",
                    "content": [{"type": "reasoning", "reasoning": "first look"}, {"type": "text", "text": "I look it up."}],
                    "tool_calls": [
                        {"id": "c1", "function": "get_order", "arguments": ASKED, "type": "function"},
                        {"id": "c2", "function": "refund", "arguments": ASKED, "type": "function"},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "function": "get_order", "content": '{"paid": 30}'},
                {
                    "role": "tool",
                    "tool_call_id": "c2",
                    "function": "refund",
                    "content": "",
                    "error": {"type": "timeout", "message": "too late"},
                },
                {"role": "assistant", "content": "It is too late."},
            ],
            "scores": {"match": {"value": "C", "answer": "too late"}},
        }
    ],
}
SHAPES = {"openai": OPENAI, "anthropic": ANTHROPIC, "responses": RESPONSES, "inspect": INSPECT}


def told(records: Any) -> list[Any]:
    return [(record.agent, record.action.kind, record.action.name, record.action.arguments) for record in records]


def calls(stored: StoredTrace) -> list[Record]:
    return [record for record in stored.records if record.action.kind == "tool_call"]


def test_one_run_is_the_same_steps_in_every_shape(imported: Imported) -> None:
    expected = [
        ("system", "message", "assistant"),
        ("user", "message", "user"),
        ("assistant", "model_call", "model"),
        ("assistant", "tool_call", "get_order"),
        ("assistant", "tool_call", "refund"),
        ("assistant", "final_response", "answer"),
        ("harness", "termination", "completed"),
    ]
    steps = {name: told(imported(row).records) for name, row in SHAPES.items()}
    assert [step[:3] for step in steps["openai"]] == expected
    assert steps["anthropic"] == steps["inspect"] == steps["openai"]
    said = [step for step in steps["responses"] if step[1] != "model_call"]  # an item of its own, said to the user
    assert [step[:3] for step in said] == [*expected[:2], ("assistant", "message", "user"), *expected[3:]]


@pytest.mark.parametrize("name", SHAPES)
def test_calls_have_their_arguments_their_own_results_and_overlap(imported: Imported, name: str) -> None:
    order, refund = calls(imported(SHAPES[name]))
    assert order.action.arguments == refund.action.arguments == ASKED
    assert order.observation.value == {"paid": 30}
    assert (order.action.effect, refund.action.effect) == ("read", "write")
    assert refund.asked_seq < order.sealed_seq
    failure = refund.observation.error
    if name in ("openai", "responses"):  # these do not say that a result is an error
        assert (failure, refund.observation.value, refund.effected) == (None, "too late", "yes")
    else:
        assert failure is not None
        assert (failure.message, refund.effected) == ("too late", "unknown")


@pytest.mark.parametrize("name", SHAPES)
def test_labels_state_the_row_and_what_was_left_out(imported: Imported, name: str) -> None:
    stored = imported(SHAPES[name])
    assert stored.finished
    assert stored.labels["left_out"] == (0 if name == "openai" else 1)
    if name == "inspect":
        assert stored.id == "shop/7/epoch-2"
        assert (stored.labels["task_id"], stored.labels["trial"], stored.labels["success"]) == ("shop/7", 2, True)
    else:
        assert (stored.id, stored.labels["format"]) == ("run-1", "chat")
        assert stored.labels["model"] == SHAPES[name]["model"]


def test_a_name_that_says_that_much_is_at_stake_gives_a_high_impact(imported: Imported) -> None:
    asked = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in ("delete_order", "rename_order")]
    high, low = calls(imported({"messages": [{"role": "assistant", "content": None, "tool_calls": asked}]}))
    assert [(call.action.effect, call.action.impact) for call in (high, low)] == [("write", "high"), ("write", "low")]


def test_a_row_cannot_state_the_labels_that_the_reader_gives(imported: Imported) -> None:
    row = {
        **OPENAI,
        "format": "mine",
        "origin": "elsewhere",
        "timed": True,
        "left_out": 9,
        "source_steps": "x",
        "our_steps": "y",
    }
    plain, stored = imported(OPENAI), imported(row)
    assert stored.labels == plain.labels


def test_an_index_that_a_message_states_is_a_number_or_not_taken() -> None:
    dialect = Dialect(effect_of=lambda tool: "read", error_of=lambda result, text: None, ending=lambda said: ("implicit", None))
    call = {"id": "1", "function": {"name": "look", "arguments": "{}"}}
    for odd in (["x"], [[]], "x", [True], [None]):
        message = {"role": "assistant", "content": None, "tool_calls": [call], "call_indices": odd}
        assert conversation("rows.jsonl:1", [message], dialect, path="messages").source_steps == [0, None]


@pytest.mark.parametrize("last", [2, 3, 4, 5])
def test_a_conversation_that_does_not_end_with_a_text_of_the_assistant_is_not_finished(imported: Imported, last: int) -> None:
    stored = imported({**OPENAI, "messages": OPENAI["messages"][:last]})
    assert not stored.finished
    assert tuple(stored.records)[-1].action.name == "implicit"


def test_items_of_hosted_tools_are_calls_with_the_result_that_they_hold(imported: Imported) -> None:
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "kettles"}}
    code = {"type": "code_interpreter_call", "id": "i", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]}
    remote = {"type": "mcp_call", "id": "m", "name": "pay", "arguments": '{"amount": 5}', "error": "no funds", "output": None}
    first, second, third = calls(imported({"input": "Look.", "output": [search, code, remote]}))
    assert (first.action.name, first.effected) == ("web_search", "unknown")
    assert first.action.arguments["action"]["query"] == "kettles"
    assert (second.action.name, second.action.arguments, second.effected) == ("code_interpreter", {"code": "1+1"}, "yes")
    assert (third.action.name, third.action.arguments) == ("pay", {"amount": 5})
    assert third.observation.error is not None
    assert third.observation.error.message == "no funds"


def test_custom_tools_take_their_text_and_refusals_are_said(imported: Imported) -> None:
    made = {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}}]}
    (call,) = calls(imported({"messages": [made]}))
    assert (call.action.name, call.action.arguments) == ("sql", {"input": "SELECT"})
    (call,) = calls(imported({"output": [{"type": "custom_tool_call", "call_id": "1", "name": "sql", "input": "SELECT"}]}))
    assert (call.action.name, call.action.arguments) == ("sql", {"input": "SELECT"})
    final, _ = imported({"messages": [{"role": "assistant", "content": None, "refusal": "I cannot."}]}).records
    assert final.action.arguments["answer"] == "I cannot."


def test_a_result_next_to_a_text_keeps_its_place(imported: Imported) -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}, {"type": "text", "text": "Go on."}]
    ask = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
    stored = imported({"messages": [ask, {"role": "user", "content": blocks}]})
    assert [step[1:3] for step in told(stored.records)][:2] == [("tool_call", "look"), ("message", "user")]
    assert calls(stored)[0].observation.value == "ok"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"messages": [{"role": "user", "content": "x"}, 7]}, "messages[1]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[0]"),
        ({"messages": [{"role": 7, "content": "x"}]}, "messages[0]"),
        ({"input": "x", "output": [{"type": "function_call", "call_id": "1"}]}, "output[0]"),
        ({**INSPECT, "samples": [{"id": 1, "messages": [{"role": "user"}, "x"]}]}, "samples[0].messages[1]"),
        ({**INSPECT, "samples": [{"id": 1}]}, "samples[0].messages"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_line_and_field(imported: Imported, row: Any, field: str) -> None:
    with pytest.raises(MatError) as caught:
        imported(row)
    assert ":1" in str(caught.value)
    assert field in str(caught.value)


def test_samples_that_failed_or_were_cut_say_so(written: Callable[..., Path]) -> None:
    (sample,) = INSPECT["samples"]
    failed = {**sample, "error": {"message": "ran out of memory"}, "scores": {"a": {"value": "I"}, "b": {"value": 0}}}
    cut = {**sample, "limit": {"type": "message", "limit": 10}, "scores": {"a": {"value": 0.5}}}
    first, second = read_traces(written({**INSPECT, "samples": [failed, cut]}))
    end = tuple(first.records)[-1]
    assert (end.action.name, end.observation.error and end.observation.error.message) == ("exception", "ran out of memory")
    assert (first.finished, first.labels["success"]) == (False, False)
    assert (second.finished, tuple(second.records)[-1].action.name) == (True, "horizon")
    assert "success" not in second.labels


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("name", SHAPES)
def test_whatever_one_field_holds_the_row_imports_or_the_error_names_its_line(name: str) -> None:
    reader = next(item for item in formats() if item.name == ("inspect" if name == "inspect" else "chat"))
    for path in places(SHAPES[name]):
        for odd in (None, "", "x", -7, 2.5, True, [], {}, [None], {"a": []}, [[1]], "\ud800"):
            row = inner = copy.deepcopy(SHAPES[name])
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            said = ""
            try:
                for stored in reader.traces(iter([("rows.jsonl:1", row)])):
                    assert [record.step for record in stored.records] == list(range(len(tuple(stored.records)))), (path, odd)
            except MatError as error:
                said = str(error)
            assert not said or "rows.jsonl:1" in said, (path, odd)


MINE = """
from mat.adapters.importers import Format
FORMAT = Format(name="mine", text="one object with mine", accepts=lambda row: "mine" in row, traces=lambda rows: iter(()))
YOURS = Format(name="yours", text="one object with yours", accepts=lambda row: False, traces=lambda rows: iter(()))
"""


def install(folder: Path, value: str, module: str = MINE) -> None:
    """What an installer leaves behind of a package with one format."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mat.importers]\nyours = mine_formats:YOURS\nmine = {value}\n")
    (folder / "mine_formats.py").write_text(module)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "site"
    sys.modules.pop("mine_formats", None)


def test_formats_of_installed_packages_are_found_and_come_first(site: Path, written: Callable[..., Path]) -> None:
    install(site, "mine_formats:FORMAT")
    assert [item.name for item in formats()] == ["mine", "yours", "otlp", "inspect", "chat"]
    assert list(read_traces(written({"mine": 1, "messages": []}))) == []


@pytest.mark.parametrize(
    ("value", "module", "said"),
    [
        ("mine_formats:FORMAT", "FORMAT = 'chat'", "is not a Format"),
        ("mine_formats:FORM", MINE, "cannot be loaded: module 'mine_formats' has no attribute 'FORM'"),
        ("mine_formats:FORMAT", "import absent_of_this_name", "cannot be loaded: No module named 'absent_of_this_name'"),
        ("mine_elsewhere:FORMAT", MINE, "cannot be loaded: No module named 'mine_elsewhere'"),
    ],
)
def test_an_installed_package_without_its_format_is_an_error_that_names_it(
    site: Path, value: str, module: str, said: str
) -> None:
    install(site, value, module)
    with pytest.raises(SpecError) as caught:
        formats()
    assert caught.value.what == f"the entry point mine = {value} {said}"
