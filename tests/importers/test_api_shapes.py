"""Replies as the references of the model APIs document them: server tools, hosted tools, errors, cut and failed replies.

The samples hold the fields that the published types require (openai 3.54, anthropic 2.12, inspect_ai 0.3.285).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mat.adapters.importers import StoredTrace
from mat.core.errors import MatError
from mat.core.record import Record

Imported = Callable[..., StoredTrace]

ANTHROPIC_REPLY: dict[str, Any] = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-8",
    "content": [
        {"type": "text", "text": "I look for it."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "kettle"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_search", "input": {"query": "kettles"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_2",
            "content": [
                {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "x"},
                {"type": "web_search_result", "url": "https://b.example", "title": "B", "encrypted_content": "y"},
            ],
        },
        {"type": "server_tool_use", "id": "srvtoolu_3", "name": "bash_code_execution", "input": {"command": "ls"}},
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "srvtoolu_3",
            "content": {
                "type": "bash_code_execution_result", "stdout": "a.txt\n", "stderr": "", "return_code": 0, "content": [],
            },
        },
        {"type": "server_tool_use", "id": "srvtoolu_4", "name": "tool_search_tool_regex", "input": {"query": "["}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_4",
            "content": {
                "type": "tool_search_tool_result_error", "error_code": "invalid_tool_input", "error_message": "not a pattern",
            },
        },
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "pay", "server_name": "bank", "input": {"amount": 5}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": True,
            "content": [{"type": "text", "text": "no funds"}],
        },
        {"type": "text", "text": "Two kettles."},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 20},
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1773140906,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "model": "gpt-5.4",
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "metadata": {},
    "output": [
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_order", "arguments": '{"order":"A1"}'},
        {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "get_price", "arguments": '{"item":"B"}'},
        {
            "type": "mcp_call", "id": "mcp_1", "server_label": "bank", "name": "pay", "arguments": '{"amount":5}',
            "error": {"type": "mcp_protocol_error", "code": 32600, "message": "Session terminated"},
        },
        {
            "type": "mcp_call", "id": "mcp_2", "server_label": "bank", "name": "pay", "arguments": '{"amount":6}',
            "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no funds"}]},
        },
        {"type": "file_search_call", "id": "fs_1", "status": "failed", "queries": ["kettle"], "results": None},
        {
            "type": "file_search_call", "id": "fs_2", "status": "completed", "queries": ["kettle"],
            "results": [{"file_id": "f1", "filename": "a.md", "score": 0.5, "text": "kettles"}],
        },
        {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Two kettles.", "annotations": []}],
        },
    ],
}  # fmt: skip
ITEMS: list[dict[str, Any]] = [  # what a client with local tools sends back
    {
        "type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    {"type": "local_shell_call_output", "id": "lsh_1", "output": '{"stdout": "a.txt"}'},
    {
        "type": "shell_call", "id": "sh_1", "call_id": "call_2", "status": "completed",
        "action": {"commands": ["ls", "pwd"], "max_output_length": None, "timeout_ms": None},
    },
    {
        "type": "shell_call_output", "id": "sho_1", "call_id": "call_2", "status": "completed", "max_output_length": None,
        "output": [
            {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
        ],
    },
    {
        "type": "apply_patch_call", "id": "apc_1", "call_id": "call_3", "status": "completed",
        "operation": {"type": "update_file", "path": "a.txt", "diff": "@@"},
    },
    {"type": "apply_patch_call_output", "id": "apo_1", "call_id": "call_3", "status": "failed", "output": "no such line"},
    {
        "type": "tool_search_call", "id": "ts_1", "call_id": "call_4", "status": "completed", "execution": "client",
        "arguments": {"query": "ship"},
    },
    {
        "type": "tool_search_output", "id": "tso_1", "call_id": "call_4", "status": "completed", "execution": "client",
        "tools": [{"type": "function", "name": "get_eta", "parameters": {}, "strict": True}],
    },
    {"type": "program", "id": "pr_1", "call_id": "call_5", "code": "1 + 1", "fingerprint": "x"},
    {"type": "program_output", "id": "po_1", "call_id": "call_5", "status": "completed", "result": "2"},
]  # fmt: skip
COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1773140906,
    "model": "gpt-5.4",
    "messages": [{"role": "user", "content": "Which kettle?"}],
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": "The red one.", "refusal": None, "annotations": []},
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}
ASKED = [{"role": "user", "content": "Which kettle?"}]


def calls(stored: StoredTrace) -> list[Record]:
    return [record for record in stored.records if record.action.kind == "tool_call"]


def failures(stored: StoredTrace) -> list[str | None]:
    return [None if call.observation.error is None else call.observation.error.message for call in calls(stored)]


def end(stored: StoredTrace) -> tuple[str, bool]:
    return tuple(stored.records)[-1].action.name, stored.finished


def answer(stored: StoredTrace) -> Any:
    (final,) = [record for record in stored.records if record.action.kind == "final_response"]
    return final.action.arguments["answer"]


def test_tools_that_anthropic_runs_are_calls_with_what_they_found_or_the_error_they_state(imported: Imported) -> None:
    stored = imported({**ANTHROPIC_REPLY, "messages": ASKED})
    assert failures(stored) == ["max_uses_exceeded", None, None, "not a pattern", "no funds"]
    found = [call.observation.value for call in calls(stored)]
    assert [page["title"] for page in found[1]] == ["A", "B"]
    assert found[2]["stdout"] == "a.txt\n"
    assert [call.action.name for call in calls(stored)][-2:] == ["tool_search_tool_regex", "pay"]
    assert answer(stored) == "Two kettles."
    assert end(stored) == ("completed", True)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", ("completed", True)),
        ("stop_sequence", ("completed", True)),
        ("max_tokens", ("horizon", True)),
        ("model_context_window_exceeded", ("horizon", True)),
        ("pause_turn", ("implicit", False)),
    ],
)
def test_a_reply_of_anthropic_ends_the_run_as_its_stop_reason_says(
    imported: Imported, reason: str, expected: tuple[str, bool]
) -> None:
    assert end(imported({**ANTHROPIC_REPLY, "messages": ASKED, "stop_reason": reason})) == expected


def test_hosted_tools_fail_with_the_message_the_text_or_the_status_that_says_so(imported: Imported) -> None:
    stored = imported({**RESPONSE, "input": "Which kettle?"})
    assert failures(stored) == [None, None, "Session terminated", "no funds", "file_search_call failed", None]
    assert calls(stored)[-1].observation.value == RESPONSE["output"][5]["results"]
    assert answer(stored) == "Two kettles."


def test_each_item_keeps_its_own_index_where_calls_of_one_reply_overlap(imported: Imported) -> None:
    stored = imported({**RESPONSE, "input": "Which kettle?"})
    assert stored.labels["source_steps"] == (0, 1, 2, 3, 4, 5, 6, 7, None)
    first, second = calls(stored)[:2]
    assert second.asked_seq < first.sealed_seq


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("completed", ("completed", True)),
        ("incomplete", ("horizon", True)),
        ("in_progress", ("implicit", False)),
        ("queued", ("implicit", False)),
        ("failed", ("exception", False)),
        ("cancelled", ("exception", False)),
    ],
)
def test_a_response_ends_the_run_as_its_status_says(imported: Imported, status: str, expected: tuple[str, bool]) -> None:
    assert end(imported({**RESPONSE, "input": "Which kettle?", "status": status})) == expected


def test_a_response_that_failed_ends_with_its_error(imported: Imported) -> None:
    error = {"code": "server_error", "message": "The model is overloaded."}
    for given, said in ((error, "The model is overloaded."), (None, "the response failed")):
        last = tuple(imported({**RESPONSE, "input": "x", "output": [], "status": "failed", "error": given}).records)[-1]
        assert last.observation.error is not None
        assert last.observation.error.message == said


def test_local_tools_get_the_results_that_the_client_sent_back(imported: Imported) -> None:
    stored = imported({"input": ITEMS})
    assert [call.action.name for call in calls(stored)] == ["local_shell", "shell", "apply_patch", "tool_search", "program"]
    assert failures(stored) == [None, None, "no such line", None, None]
    assert [call.observation.value for call in calls(stored)] == [
        {"stdout": "a.txt"}, ITEMS[3]["output"], None, ITEMS[7]["tools"], "2",
    ]  # fmt: skip


def test_a_completion_next_to_its_request_is_the_last_message_once(imported: Imported) -> None:
    stored = imported(COMPLETION)
    assert (answer(stored), end(stored)) == ("The red one.", ("completed", True))
    said = {"role": "assistant", "content": "The red one."}
    again = imported({**COMPLETION, "messages": [*ASKED, said]})
    assert [record.action for record in again.records] == [record.action for record in stored.records]
    (choice,) = COMPLETION["choices"]
    assert end(imported({**COMPLETION, "choices": [{**choice, "finish_reason": "length"}]})) == ("horizon", True)
    assert end(imported({**COMPLETION, "choices": []})) == ("implicit", False)


@pytest.mark.parametrize(
    "reply",
    [
        {"content": None, "audio": {"id": "a", "data": "UklGR", "expires_at": 1773140906, "transcript": "The red one."}},
        {"content": None, "refusal": "The red one."},
        {"content": "", "refusal": "The red one."},
    ],
)
def test_a_recording_and_a_refusal_are_said(imported: Imported, reply: Any) -> None:
    assert answer(imported({"messages": [*ASKED, {"role": "assistant", **reply}]})) == "The red one."


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_a_field_of_its_own_is_left_out_and_counted(imported: Imported, field: str) -> None:
    stored = imported({"messages": [*ASKED, {"role": "assistant", "content": "The red one.", field: "Look at both."}]})
    assert stored.labels["left_out"] == 1
    assert "Look at both." not in repr([record.action for record in stored.records])


def test_a_result_belongs_to_the_last_message_that_used_its_id(imported: Imported) -> None:
    def ask(name: str) -> dict[str, Any]:
        call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    result = {"role": "tool", "tool_call_id": "call_0", "content": "red"}
    first, second = calls(imported({"messages": [ask("get_one"), *ASKED, ask("get_two"), result]}))
    assert (first.observation.value, first.effected) == (None, "unknown")
    assert (second.observation.value, second.effected) == ("red", "yes")


def test_tools_that_a_provider_ran_for_inspect_and_a_result_without_its_call(imported: Imported) -> None:
    used = {
        "type": "tool_use",
        "tool_type": "mcp_call",
        "id": "t1",
        "name": "pay",
        "context": "bank",
        "arguments": '{"amount": 5}',
    }
    messages = [
        {"id": "m1", "role": "user", "content": "Pay 5.", "source": "input"},
        {
            "id": "m2", "role": "assistant", "source": "generate", "model": "gpt",
            "content": [
                {**used, "result": "", "error": "no funds"},
                {**used, "id": "t2", "tool_type": "web_search", "name": "web_search", "result": "found", "error": None},
                {"type": "text", "text": "It failed.", "refusal": None, "citations": None},
            ],
        },
        {"id": "m3", "role": "tool", "tool_call_id": "gone", "function": "bash", "content": "a.txt", "error": None},
    ]  # fmt: skip
    sample = {"id": 1, "epoch": 1, "input": "Pay 5.", "target": "", "messages": messages}
    row = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": [sample]}
    stored = imported(row)
    assert [call.action.name for call in calls(stored)] == ["pay", "web_search", "bash"]
    assert calls(stored)[0].action.arguments == {"amount": 5}
    assert failures(stored) == ["no funds", None, None]
    assert [call.observation.value for call in calls(stored)] == [None, "found", "a.txt"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "human", "content": "Which kettle?"},  # LangChain
        {"type": "human", "data": {"content": "Which kettle?", "type": "human"}},  # LangChain, messages_to_dict
        {"role": "user", "parts": [{"type": "text", "text": "Which kettle?"}]},  # AI SDK, Gemini
    ],
)
def test_messages_of_other_apis_are_an_error_instead_of_an_empty_run(imported: Imported, message: Any) -> None:
    with pytest.raises(MatError, match=r"messages\[0\] is a message of another API"):
        imported({"messages": [message]})


def test_a_row_whose_messages_are_null_is_read_from_its_items(imported: Imported) -> None:
    assert answer(imported({**RESPONSE, "messages": None})) == "Two kettles."


def test_a_deep_result_is_an_error_with_its_line(imported: Imported) -> None:
    deep = json.loads("[" * 400 + "]" * 400)
    block = {"type": "tool_result", "tool_use_id": "1", "content": {"deep": deep}}
    ask = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]}
    with pytest.raises(MatError, match=r"rows\.jsonl:1"):
        imported({"messages": [ask, {"role": "user", "content": [block]}]})
