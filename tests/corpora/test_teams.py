"""Multi-agent runs: Magentic-One teams, group chats, and the spans of MAS-SIM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora.formats import read_traces

from mat.adapters.importers import StoredTrace
from mat.core.errors import MatError

Imported = Callable[..., StoredTrace]


def said(role: str, content: Any, name: str | None = None) -> dict[str, Any]:
    return {"role": role, "content": content} if name is None else {"role": role, "content": content, "name": name}


def whowhen(*history: Any, **fields: Any) -> dict[str, Any]:
    row = {"question": "q?", "ground_truth": "8", "question_ID": "id-1", "is_correct": False, "_subset": "S", "_file": "1.json"}
    return {**row, "mistake_agent": "Coder", "mistake_step": "1", "mistake_reason": "why", "history": list(history), **fields}


def steps(stored: StoredTrace) -> list[tuple[str, str, str]]:
    return [(record.agent, record.action.kind, record.action.name) for record in stored.records]


LEDGER = json.dumps(
    {
        "is_request_satisfied": {"reason": "no", "answer": False},
        "is_in_loop": {"reason": "yes", "answer": True},
        "is_progress_being_made": {"reason": "?", "answer": "maybe"},
        "next_speaker": {"answer": "WebSurfer"},
    }
)


def test_roles_of_a_team_say_who_thought_delegated_reported_and_ended(imported: Imported) -> None:
    stored = imported(
        whowhen(
            said("human", "How many?"),
            said("Orchestrator (thought)", "Updated Ledger:\n" + LEDGER),
            said("Orchestrator (-> WebSurfer)", "Search it"),
            said("WebSurfer", "I clicked 'Next'."),
            said("Orchestrator (termination condition)", "No agent selected.\nFINAL ANSWER: 5\nSCENARIO.PY COMPLETE !#!#\n"),
            mistake_step="3",
            mistake_agent="websurfer",
        )
    )
    assert steps(stored) == [
        ("human", "message", "user"),
        ("Orchestrator", "model_call", "model"),
        ("Orchestrator", "delegation", "WebSurfer"),
        ("WebSurfer", "message", "Orchestrator"),
        ("Orchestrator", "final_response", "answer"),
        ("harness", "termination", "completed"),
    ]
    records = list(stored.records)
    assert records[0].action.boundary == "prompt"
    assert [dict(record.state) for record in records[:3]] == [{}, *2 * [{"is_request_satisfied": False, "is_in_loop": True}]]
    assert records[2].action.arguments == {"task": "Search it", "delegator": "Orchestrator"}
    assert records[4].action.arguments == {"answer": "5"}
    labels = stored.labels
    assert (labels["annotated_step"], labels["annotated_source_step"], labels["annotated_agent"]) == (3, 3, "WebSurfer")
    assert labels["source_steps"] == (0, 1, 2, 3, 4, None)


@pytest.mark.parametrize(
    ("text", "ends", "answer"),
    [
        ("Max rounds (30) reached.\nFINAL ANSWER: nine\nRUN.SH COMPLETE !#!#", "horizon", "nine"),
        ("No agent selected.\nFINAL ANSWER: a, b", "completed", "a, b"),
        ("No agent selected.", "completed", None),
    ],
)
def test_a_termination_condition_ends_the_run_as_it_says(imported: Imported, text: str, ends: str, answer: str | None) -> None:
    stored = imported(whowhen(said("human", "q"), said("Orchestrator (termination condition)", text)))
    assert steps(stored)[-1] == ("harness", "termination", ends)
    found = [record.action.arguments["answer"] for record in stored.records if record.action.kind == "final_response"]
    assert found == ([] if answer is None else [answer])


def test_a_traceback_in_a_thought_is_an_error_of_the_runtime(imported: Imported) -> None:
    log = (
        'Next speaker X\nTraceback (most recent call last):\n  File "a.py", line 1\n    x\nasyncio.TimeoutError: it timed out\n'
    )
    records = list(imported(whowhen(said("human", "q"), said("Orchestrator (thought)", log))).records)
    assert records[1].observation.error is not None
    assert (records[1].observation.error.type, records[1].observation.error.kind) == ("asyncio.TimeoutError", "timeout")
    assert records[1].observation.value == log
    assert records[2].action.name == "implicit"


CODE = "Run this:\n```python\nprint(1)\n```"


def test_a_group_chat_has_messages_executed_code_and_an_end(imported: Imported) -> None:
    stored = imported(
        whowhen(
            said("assistant", "the task", "Coder"),
            said("user", CODE, "Checker"),
            said("user", "exitcode: 0 (execution succeeded)\nCode output: 1\n", "Computer_terminal"),
            said("user", CODE, "Checker"),
            said("user", "exitcode: 1 (execution failed)\nCode output: Traceback\nKeyError: 'x'\n\n", "Computer_terminal"),
            said("user", "There is no code from the last 1 message", "Computer_terminal"),
            said("user", "TERMINATE", "Checker"),
        )
    )
    assert steps(stored) == [
        ("Coder", "message", "group_chat"),
        ("Checker", "message", "group_chat"),
        ("Computer_terminal", "tool_call", "execute_code"),
        ("Checker", "message", "group_chat"),
        ("Computer_terminal", "tool_call", "execute_code"),
        ("Computer_terminal", "message", "group_chat"),
        ("Checker", "termination", "completed"),
    ]
    records = list(stored.records)
    assert records[2].action.arguments == {"code": "print(1)\n", "written_by": "Checker"}
    assert (records[2].observation.error, records[2].observation.value) == (None, "1\n")
    assert records[4].observation.error is not None
    assert (records[4].observation.error.type, records[4].observation.error.message) == ("KeyError", "KeyError: 'x'")
    assert records[4].effected == "unknown"
    assert (stored.labels["annotated_step"], stored.labels["annotated_source_step"]) == (1, 1)


def test_an_answer_that_ends_the_chat_is_the_final_response(imported: Imported) -> None:
    stored = imported(whowhen(said("user", "TERMINATE is a word", "A"), said("user", "It is 8.\n\nTERMINATE", "B")))
    assert steps(stored) == [
        ("A", "message", "group_chat"), ("B", "final_response", "answer"), ("harness", "termination", "completed"),
    ]  # fmt: skip
    assert list(stored.records)[1].action.arguments == {"answer": "It is 8."}


def test_a_chat_that_goes_on_was_not_ended_by_a_word(imported: Imported) -> None:
    stored = imported(whowhen(said("user", "Then say TERMINATE", "A"), said("user", "TERMINATE", "B"), said("user", "ok", "A")))
    assert steps(stored) == [*[(name, "message", "group_chat") for name in "ABA"], ("harness", "termination", "implicit")]


@pytest.mark.parametrize(("stated", "source"), [("7", 7), (None, None), ("early", "early"), (0, 0)])
def test_an_annotation_without_a_step_of_ours_still_imports(imported: Imported, stated: object, source: object) -> None:
    stored = imported(whowhen(said("user", "x", "A"), mistake_step=stated, mistake_agent=None))
    assert stored.labels["annotated_source_step"] == source
    assert stored.labels["annotated_step"] == (0 if stated == 0 else None)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (whowhen("text"), r"history\[0\]"),
        (whowhen(history="x"), "history"),
        (whowhen({"role": 7, "content": "x"}), r"history\[0\]\.role"),
    ],
)
def test_a_history_that_cannot_be_read_is_an_error_that_names_it(imported: Imported, row: Any, field: str) -> None:
    with pytest.raises(MatError, match=rf"rows\.jsonl:1: {field} "):
        imported(row)


def test_a_team_of_agentrx_counts_its_messages_from_one(imported: Imported) -> None:
    failures = [{"failure_id": 2, "step_number": 2, "failed_agent": "Websurfer", "failure_category": "c"}]
    row = {
        "trajectory_id": "t", "trajectory": [said("human", "q"), said("WebSurfer", "I clicked")],
        "annotation": {"failures": failures, "root_cause": {"failure_id": 2}, "failure_summary": "s"},
    }  # fmt: skip
    stored = imported(row)
    assert stored.id == "magentic-one/t"
    assert stored.labels["source_steps"] == (1, 2, None)
    assert (stored.labels["annotated_step"], stored.labels["annotated_agent"]) == (1, "WebSurfer")


# -- MAS-SIM ----------------------------------------------------------------------------------------------------------

T0 = 1_783_394_786_347_034_811


def span(name: str, start_ms: int, end_ms: int, step: int | None, kind: str, events: Any = (), **fields: Any) -> dict[str, Any]:
    status = fields.pop("status", {"status_code": "OK", "description": None})
    attributes = {"experiment.operation_type": kind, "gen_ai.agent.name": name, **fields}
    if step is not None:
        attributes["experiment.step_index"] = step
    return {
        "name": name, "span_id": name, "parent_span_id": None if step is None else "run", "status": status,
        "start_time_unix_ns": T0 + start_ms * 1_000_000, "end_time_unix_ns": T0 + end_ms * 1_000_000,
        "attributes": attributes, "events": list(events),
    }  # fmt: skip


ARGS = {"tool.name": "Search", "tool.args_json": '{"q": "kettle"}'}
RUN = span("run", 0, 100, None, "workflow", **{"task.input": "Cheapest?"})
PLANNED = span("Planner", 1, 20, 1, "agent_llm", **ARGS, **{
    "gen_ai.request.model": "m", "agent.role": "planning", "agent.output_message": "I will search",
    "plan.query_json": '{"q": 1}', "gen_ai.usage.input_tokens": 5, "task.expected_result": "SECRET",
})  # fmt: skip
FOUND = span(
    "Search", 21, 30, 2, "tool_call", **ARGS, **{"gen_ai.operation.name": "catalog.search", "tool.result_json": '{"n": 1}'}
)
BUILT = span("Writer", 31, 40, 3, "agent_llm", **{"gen_ai.operation.name": "build_answer", "agent.output_message": "It is 1."})


def massim(*spans: Any, **fields: Any) -> dict[str, Any]:
    task = {"expected_result": "SECRET", "expected_answer": {"n": "SECRET"}, "tool_operation": "catalog.search"}
    otel = {"schema": "x", "task": "Cheapest?", "task_metadata": task, "status": "SUCCESS", "spans": list(spans)}
    return {"run_id": "r1", "otel": {**otel, **fields}, "trajectory_log": {}}


def test_spans_become_steps_by_start_time(imported: Imported) -> None:
    delegated = {"name": "task_delegated", "attributes": {"target_agent": "Writer"}}
    checked = span("Checker", 41, 50, 4, "agent_llm", **{"validation.status": "REJECTED", "validation.reason": "no"})
    stored = imported(massim(FOUND, {**PLANNED, "events": [delegated]}, checked, BUILT, RUN))
    assert steps(stored) == [
        ("user", "message", "user"),
        ("Planner", "model_call", "m"),
        ("Planner", "delegation", "Writer"),
        ("Planner", "tool_call", "Search"),
        ("Writer", "model_call", "model"),
        ("Writer", "final_response", "answer"),
        ("Checker", "model_call", "model"),
        ("Checker", "verification", "answer"),
        ("harness", "termination", "completed"),
    ]
    records = list(stored.records)
    assert [(record.at_ms, record.sealed_ms) for record in records[:4]] == [(0, 0), (1, 20), (20, 20), (21, 30)]
    assert records[1].observation.value["query"] == {"q": 1}
    assert records[1].observation.value["tool_arguments"] == {"q": "kettle"}
    assert (records[1].role, records[1].observation.usage) == ("planning", {"input_tokens": 5})
    assert (records[3].action.arguments, records[3].action.effect) == ({"q": "kettle"}, "read")
    assert records[3].observation.value == {"n": 1}
    assert records[5].action.arguments == {"answer": "It is 1."}
    assert records[7].action.arguments["passed"] is False
    assert stored.labels["source_steps"] == (None, 1, 1, 2, 3, 3, 4, 4, None)
    assert stored.labels["timed"] is True
    assert stored.labels["status"] == "SUCCESS"


def test_spans_that_overlap_are_not_ordered_by_happens_before(imported: Imported) -> None:
    late = span("Late", 22, 60, 4, "tool_call", **{"gen_ai.operation.name": "catalog.update", "tool.name": "Update"})
    stored = imported(massim(RUN, PLANNED, FOUND, late))
    found, updated = (record for record in stored.records if record.action.kind == "tool_call")
    assert (found.action.name, updated.action.name) == ("Search", "Update")
    assert not found.happened_before(updated)
    assert not updated.happened_before(found)
    assert (updated.action.effect, updated.agent) == ("write", "run")


@pytest.mark.parametrize(
    ("error", "message", "kind"),
    [("ServiceTimeoutError", "timed out after 30000ms", "timeout"), ("SchemaError", "requires a string q", "rejected")],
)
def test_a_failed_span_is_an_error_with_type_text_and_kind(imported: Imported, error: str, message: str, kind: str) -> None:
    failed = {**FOUND, "status": {"status_code": "ERROR", "description": message}}
    failed["attributes"] = {**FOUND["attributes"], "error.type": error, "error.message": message}
    stored = imported(massim(RUN, PLANNED, failed, status="FAILED"))
    record = list(stored.records)[2]
    assert record.observation.error is not None
    assert (record.observation.error.type, record.observation.error.message, record.observation.error.kind) == (
        error,
        message,
        kind,
    )
    assert (record.observation.value, record.effected) == (None, "unknown")
    assert steps(stored)[-1] == ("harness", "termination", "failed")


def test_injected_faults_and_expected_results_are_labels_that_no_record_shows(imported: Imported) -> None:
    injected = {"name": "fault.injected", "attributes": {"category": "SECRET", "node": "Planner"}}
    stored = imported(massim(RUN, {**PLANNED, "events": [injected]}, FOUND, BUILT))
    assert "SECRET" not in repr(tuple(stored.records))
    assert stored.labels["injected"] == ({"source_step": 1, "category": "SECRET", "node": "Planner"},)
    assert (stored.labels["expected_result"], stored.labels["expected_answer"]) == ("SECRET", {"n": "SECRET"})
    assert all(not record.faults for record in stored.records)


def truth(run: str, step: object) -> dict[str, Any]:
    return {
        "run_id": run,
        "ground_truth": {"critical_failure_step": step, "failed_component": "Writer", "fault_mode": "invention"},
    }


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.jsonl.gz"])
def test_labels_next_to_the_file_are_joined_by_run(written: Callable[..., Path], name: str) -> None:
    path = written(massim(RUN, PLANNED, BUILT), {**massim(RUN), "run_id": "r2"}, name="traces.jsonl.gz")
    written(truth("other", 1), truth("r1", 3), name=name)
    first, second = read_traces(path)
    assert (first.labels["annotated_source_step"], first.labels["annotated_agent"]) == (3, "Writer")
    assert list(first.records)[first.labels["annotated_step"]].action.kind == "final_response"
    assert first.labels["fault_mode"] == "invention"
    assert "annotated_step" not in second.labels


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (massim("x"), r"otel\.spans\[0\]"),
        (massim({**FOUND, "start_time_unix_ns": "soon"}), r"otel\.spans\[0\]\.start_time_unix_ns"),
        (massim({**FOUND, "attributes": []}), r"otel\.spans\[0\]\.attributes"),
        (massim({**PLANNED, "events": [3]}), r"otel\.spans\[0\]\.events\[0\]"),
        (massim(spans={}), r"otel\.spans"),
    ],
)
def test_a_span_that_cannot_be_read_is_an_error_that_names_it(imported: Imported, row: Any, field: str) -> None:
    with pytest.raises(MatError, match=rf"rows\.jsonl:1: {field} "):
        imported(row)
