"""Odd rows: whatever one field of a row holds, the row imports or the error names its line; nothing else escapes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from corpora.formats import FORMATS, read_traces

from mat.core.errors import MatError

CALL = {"id": "1", "type": "function", "function": {"name": "get_it", "arguments": '{"a": 1}'}}
TALK = [
    {"role": "system", "content": "policy", "index": 1},
    {"role": "user", "content": "hi", "index": 2},
    {"role": "assistant", "content": "hm", "tool_calls": [CALL], "index": 3},
    {"role": "tool", "content": "Error: user not found", "tool_call_id": "1", "name": "get_it", "index": 4},
    {"role": "assistant", "content": "bye", "index": 5},
    {"role": "user", "content": "###STOP###", "index": 6},
]
TAU = {
    "task_id": 1, "trial": 0, "reward": 1.0, "traj": TALK,
    "info": {"task": {"user_id": "u", "actions": [{"name": "get_it", "kwargs": {}}], "outputs": ["1"]}, "error": "boom"},
}  # fmt: skip
FAILURE = {"failure_id": 1, "step_number": 3, "failed_agent": "Assistant", "failure_category": "c", "step_reason": "r"}
NOTE = {"failures": [FAILURE], "root_cause": {"failure_id": 1, "reason_for_root_cause": "r"}, "failure_summary": "s"}
LEDGER = 'Updated Ledger:\n{"is_in_loop": {"reason": "r", "answer": true}}'
TEAM = [
    {"role": "human", "content": "q"},
    {"role": "Orchestrator (thought)", "content": LEDGER},
    {"role": "Orchestrator (-> Coder)", "content": "do"},
    {"role": "Coder", "content": "done"},
    {"role": "Orchestrator (termination condition)", "content": "FINAL ANSWER: 1"},
]
CHAT = [
    {"role": "user", "name": "A", "content": "```\nx\n```"},
    {"role": "user", "name": "Computer_terminal", "content": "exitcode: 1 (failed)\nCode output: KeyError: 1"},
    {"role": "user", "name": "A", "content": "TERMINATE"},
]
BLAME = {"question": "q", "question_ID": "i", "ground_truth": "1", "mistake_agent": "A", "mistake_step": "0", "_subset": "s"}
SPAN = {
    "name": "s", "span_id": "1", "parent_span_id": "0", "start_time_unix_ns": 5, "end_time_unix_ns": 9,
    "status": {"status_code": "ERROR", "description": "d"},
    "events": [{"name": "task_delegated", "attributes": {"target_agent": "B"}}],
    "attributes": {
        "experiment.step_index": 1, "gen_ai.agent.name": "A", "experiment.operation_type": "agent_llm", "agent.role": "r",
        "gen_ai.request.model": "m", "gen_ai.operation.name": "build_answer", "plan.query_json": "{}", "tool.name": "T",
        "tool.args_json": "{}", "validation.status": "APPROVED", "gen_ai.usage.input_tokens": 1, "agent.output_message": "o",
    },
}  # fmt: skip
TOOL_SPAN = {**SPAN, "span_id": "2", "attributes": {**SPAN["attributes"], "experiment.operation_type": "tool_call"}}
ROWS: dict[str, Any] = {
    "tau-bench": TAU,
    "tau-contract-agents": {**TAU, "condition": "c", "crashed": False, "records": {"preconditions_outputs": [True]}},
    "agentrx": {**TAU, "annotation": NOTE},
    "agentrx teams": {"trajectory_id": "t", "trajectory": TEAM, "annotation": NOTE},
    "whowhen": {**BLAME, "history": TEAM},
    "whowhen chats": {**BLAME, "history": CHAT},
    "massim-otel": {
        "run_id": "r",
        "otel": {"task": "t", "status": "FAILED", "task_metadata": {"success_criteria": ["c"]}, "spans": [SPAN, TOOL_SPAN]},
    },
    "agentdojo-groundtruth": {
        "suite": "s", "version": "v", "kind": "user", "task_id": "t", "prompt": "p", "utility": True, "error": None,
        "messages": [
            {"role": "assistant", "tool_calls": [{"function": "get_it", "args": {"a": 1}, "id": None}], "content": []},
            {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call": {"function": "get_it"}, "error": None},
            {"role": "assistant", "content": [{"type": "text", "text": "bye"}], "tool_calls": None},
        ],
    },
    "bfcl-multiturn": {
        "category": "c", "ground_truth": [["f(a=1)"]],
        "question": {"id": "i", "question": [[{"role": "user", "content": "x"}]], "involved_classes": ["C"]},
    },
    "tau2-tasks": {
        "id": "1", "_domain": "retail", "user_scenario": {"instructions": {"domain": "retail"}},
        "evaluation_criteria": {
            "actions": [{"name": "get_it", "arguments": {"a": 1}, "compare_args": ["a"]}], "reward_basis": ["DB"],
        },
    },
}  # fmt: skip
NEEDED = {  # what tells a format, or holds the run
    "annotation", "condition", "evaluation_criteria", "ground_truth", "history", "messages", "mistake_step", "otel", "question",
    "suite", "task_id", "traj", "trajectory", "user_scenario",
}  # fmt: skip
ODD: tuple[Any, ...] = (None, "", "x", -7, 2.5, True, [], {}, [None], {"a": []}, [[1]], "\ud800")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path into a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(row: Any, path: tuple[Any, ...], odd: Any) -> Any:
    row = copy.deepcopy(row)
    inner = row
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    return row


def removed(row: Any, path: tuple[Any, ...]) -> Any:
    row = copy.deepcopy(row)
    inner = row
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return row


def refusal(row: Any, name: str) -> str:
    """What is said of a row, empty where it imports as a sound trace."""
    (format,) = (item for item in FORMATS if item.name == name.removesuffix(" teams").removesuffix(" chats"))
    try:
        (stored,) = format.traces(iter([("rows.jsonl:1", row)]))
    except MatError as error:
        return str(error)
    records = tuple(stored.records)
    assert [record.step for record in records] == list(range(len(records)))
    assert [record.asked_seq for record in records] == sorted({record.asked_seq for record in records})
    assert all(0 <= record.at_ms <= record.sealed_ms and record.asked_seq < record.sealed_seq for record in records)
    assert len(stored.labels["source_steps"]) == len(records)
    return ""


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_whatever_one_field_holds_the_row_imports_or_the_error_names_its_line(name: str) -> None:
    row = ROWS[name]
    odd_rows = [changed(row, path, odd) for path in places(row) for odd in ODD] + [removed(row, path) for path in places(row)]
    refused = 0
    for odd in odd_rows:
        said = refusal(odd, name)
        assert not said or "rows.jsonl:1" in said, said
        refused += bool(said)
    assert 0 < refused < len(odd_rows)


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_absent_and_null_optional_fields_import(name: str) -> None:
    row = ROWS[name]
    for field in row.keys() - NEEDED:
        assert not refusal(changed(row, (field,), None), name), field
        assert not refusal(removed(row, (field,)), name), field


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_each_format_is_detected_by_its_own_rows(written: Callable[..., Path], name: str) -> None:
    (stored,) = read_traces(written(ROWS[name]))
    assert stored.labels["format"] == name.removesuffix(" teams").removesuffix(" chats")


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_a_second_row_of_another_format_is_an_error_with_its_line(written: Callable[..., Path], name: str) -> None:
    other = ROWS["whowhen" if not name.startswith("whowhen") else "tau2-tasks"]
    path = written(ROWS[name], other)
    stored = read_traces(path)
    next(stored)
    with pytest.raises(MatError, match=f"{path}:2"):
        next(stored)
