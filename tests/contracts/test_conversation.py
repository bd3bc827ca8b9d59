"""Templates of conversations: three ways to write messages, and what each template finds and lets be."""

from __future__ import annotations

from typing import Any

import pytest

from mat.core.errors import MatError
from mat.core.record import Record
from mat_contracts import (
    messages_well_formed,
    one_entry_per_attempt,
    tool_calls_well_formed,
    truncation_noticed,
    turns_bounded,
)
from mat_contracts.traces import broken, record, trace, violations

SHAPES = ("chat", "anthropic", "responses", "spans", "parts")


def call(shape: str, id: str = "c1", arguments: Any = "{}", name: str = "look") -> dict[str, Any]:
    made = {
        "chat": {"role": "assistant", "tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}}]},
        "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": arguments}]},
        "responses": {"type": "function_call", "call_id": id, "name": name, "arguments": arguments},
        "spans": {"role": "assistant", "tool_calls": [{"id": id, "name": name, "arguments": arguments}]},
        "parts": {"role": "assistant", "parts": [{"type": "tool_call", "id": id, "name": name, "arguments": arguments}]},
    }
    return made[shape]


def result(shape: str, id: str = "c1", text: str = "ok") -> dict[str, Any]:
    made: dict[str, dict[str, Any]] = {
        "chat": {"role": "tool", "tool_call_id": id, "content": text},
        "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]},
        "responses": {"type": "function_call_output", "call_id": id, "output": text},
        "spans": {"role": "tool", "tool_results": [{"id": id, "value": text}]},
        "parts": {"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": text}]},
    }
    return made[shape]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def asked(*messages: Any, port: str = "llm", **more: Any) -> Record:
    return record("model_call", port, {"messages": list(messages)}, **more)


def said(contract: Any, *records: Record) -> list[str]:
    return [item.message for item in violations(contract, trace(*records))]


@pytest.mark.parametrize("shape", SHAPES)
def test_results_answer_calls_in_every_shape(shape: str) -> None:
    one, two = call(shape, "c1"), call(shape, "c2")
    good = asked(user("hi"), one, result(shape, "c1"), two, result(shape, "c2"), user("go on"))
    assert said(messages_well_formed(), good) == []
    assert said(messages_well_formed(), asked(result(shape, "c9"))) == [
        "a tool result answers 'c9', which is not the id of an earlier call"
    ]
    assert said(messages_well_formed(), asked(one)) == ["the call of look has no result"]
    assert said(messages_well_formed(), asked(one, result(shape), result(shape))) == [
        "the call of look has a second or late result"
    ]
    assert said(messages_well_formed(), asked(one, user("well?"), result(shape))) == [
        "a message comes between the call of look and its result", "the call of look has a second or late result",
    ]  # fmt: skip
    assert "two calls have the id 'c1'" in said(messages_well_formed(), asked(one, result(shape), one, result(shape)))


def test_calls_of_one_message_may_be_answered_in_any_order_and_thoughts_between_items_are_no_messages() -> None:
    both = {"role": "assistant", "tool_calls": [{"id": id, "function": {"name": "look", "arguments": "{}"}} for id in "ab"]}
    assert said(messages_well_formed(), asked(both, result("chat", "b"), result("chat", "a"))) == []
    items = [call("responses"), {"type": "reasoning", "summary": []}, result("responses")]
    assert said(messages_well_formed(), record("model_call", "llm", {"input": items})) == []


@pytest.mark.parametrize("tool", ["computer", "local_shell", "shell", "apply_patch"])
def test_tools_of_the_provider_that_the_client_runs_are_calls_by_their_type(tool: str) -> None:
    item = {"type": f"{tool}_call", "id": "item_1", "call_id": "call_1", "status": "completed", "action": {"type": "exec"}}
    output = {"type": f"{tool}_call_output", "call_id": "call_1", "output": "ok"}
    reply = record("model_call", "llm", value={"output": [item]})
    assert said(messages_well_formed(), record("model_call", "llm", {"input": [user("hi"), item, output]})) == []
    assert said(messages_well_formed(), record("model_call", "llm", {"input": [item]})) == [f"the call of {tool} has no result"]
    assert said(tool_calls_well_formed(tools=["look", tool]), reply) == []
    assert said(tool_calls_well_formed(tools="look"), reply) == [f"unknown tool: {tool!r}"]


def test_tools_that_the_provider_runs_need_no_result_of_the_client() -> None:
    remote = {"type": "mcp_call", "id": "m", "server_label": "bank", "name": "pay", "arguments": "{}", "output": "ok"}
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "a"}}
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    ]
    assert said(messages_well_formed(), record("model_call", "llm", {"input": [remote, search, user("go on")]})) == []
    assert said(messages_well_formed(), asked({"role": "assistant", "content": blocks}, user("go on"))) == []


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_a_request_that_continues_a_stored_conversation_answers_calls_it_does_not_hold(field: str) -> None:
    output = result("responses", "c1")
    assert said(messages_well_formed(), record("model_call", "llm", {"input": [output], field: "resp_1"})) == []
    assert said(messages_well_formed(), record("model_call", "llm", {"input": [output], field: None})) != []
    open_ = record("model_call", "llm", {"input": [output, call("responses", "c2")], field: "resp_1"})
    assert said(messages_well_formed(), open_) == ["the call of look has no result"]


@pytest.mark.parametrize(
    "made",
    [
        {"type": "custom_tool_call", "call_id": "1", "name": "sql", "input": "SELECT 1"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}]},
    ],
)
def test_a_custom_tool_takes_any_text(made: Any) -> None:
    reply = record("model_call", "llm", value={"output": [made]})
    assert said(tool_calls_well_formed(tools="sql"), reply) == []
    assert said(tool_calls_well_formed(tools="look"), reply) == ["unknown tool: 'sql'"]


def test_the_older_function_call_of_a_chat_message_is_a_call() -> None:
    made = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{"}}
    assert said(tool_calls_well_formed(tools="pay"), record("model_call", "llm", value=made)) == [
        "unknown tool: 'look'", "the arguments of look are not an object: {",
    ]  # fmt: skip


def test_arguments_too_deep_to_parse_are_no_object() -> None:
    (message,) = said(tool_calls_well_formed(), record("model_call", "llm", value=call("chat", arguments="[" * 100_000)))
    assert message.startswith("the arguments of look are not an object: [[[")


def test_only_the_named_models_are_judged_and_what_was_not_recorded_says_nothing() -> None:
    bad = asked(result("chat"))
    assert broken(messages_well_formed("planner"), trace(bad)) == ()
    assert broken(messages_well_formed(["planner", "llm"]), trace(bad)) == (0,)
    assert broken(messages_well_formed(), trace(record("model_call", "llm", {"messages": "sha256:0"}))) == ()
    assert broken(messages_well_formed(), trace(record("model_call", "llm", {"prompt": "hi"}))) == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_of_a_reply_are_judged_in_every_shape(shape: str) -> None:
    contract = tool_calls_well_formed(tools=["look", "pay"])

    def reply(*calls: Any) -> Record:
        return record("model_call", "llm", value={"output": list(calls)})

    assert said(contract, reply(call(shape, "c1"), call(shape, "c2", {"a": 1}))) == []
    assert said(contract, reply(call(shape, "c1", "[1]"))) == ["the arguments of look are not an object: [1]"]
    assert said(contract, reply(call(shape, "c1", name="dance"))) == ["unknown tool: 'dance'"]
    assert said(contract, reply(call(shape, name=""))) == ["a tool call has no name"]
    assert said(contract, reply(call(shape)), reply(call(shape))) == ["a call of look has the id of an earlier call"]
    assert said(contract, reply(call(shape, "c1"), call(shape, ""))) == ["a call of look has no id"]
    assert said(contract, reply(call(shape, ""), call(shape, ""))) == []


def test_an_id_is_known_again_many_replies_later() -> None:
    replies = [record("model_call", "llm", value=call("chat", f"c{number}")) for number in (*range(200), 0)]
    assert said(tool_calls_well_formed(), *replies) == ["a call of look has the id of an earlier call"]


def test_a_choice_of_a_chat_completion_is_a_reply() -> None:
    value = {"choices": [{"index": 0, "message": call("chat", arguments="{")}]}
    assert said(tool_calls_well_formed(), record("model_call", "llm", value=value)) == [
        "the arguments of look are not an object: {"
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_result_is_known_by_how_it_begins(shape: str) -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    page = record("tool_call", "fetch", value=text)

    def found(shown: str, **options: Any) -> list[str]:
        return said(truncation_noticed(limit=200, **options), page, asked(call(shape), result(shape, text=shown)))

    assert found(text[:200] + "\n[Truncated: 790 characters in all]") == []
    assert found("[TRUNCATED] of 790\n\n" + text[:200]) == []
    assert found("see page 2") == []
    assert found(text[:200]) == ["a result of fetch was truncated from 790 characters without a notice to the model"]
    assert found(text) == ["a result of fetch reached the model with 790 characters; 200 are allowed"]
    assert found(text + "truncated") == ["a result of fetch reached the model with 799 characters; 200 are allowed"]
    assert found(text[:200] + " (shortened)", notice="shortened") == []
    assert found(text, tool="search") == []


def test_a_result_of_a_span_stands_in_response_or_in_result() -> None:
    page = record("tool_call", "fetch", value="x" * 300)
    for field in ("response", "result"):
        shown = {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "name": "fetch", field: "x" * 200}]}
        assert len(said(truncation_noticed(limit=200), page, asked(shown))) == 1


def test_a_result_within_the_limit_is_shown_as_it_is() -> None:
    page = record("tool_call", "fetch", value="x" * 100)
    assert broken(truncation_noticed(limit=100), trace(page, asked(result("chat", text="x" * 100)))) == ()


def test_turns_are_answered_calls_of_each_agent() -> None:
    reply = record("model_call", "llm", value="a")
    other = record("model_call", "llm", value="a", agent="critic")
    small = record("model_call", "embedder", value="a")
    assert broken(turns_bounded(2), trace(reply, other, other, reply)) == ()
    assert broken(turns_bounded(2), trace(reply, reply, reply, reply)) == (2, 3)
    assert broken(turns_bounded(1, model="llm"), trace(small, small, reply)) == ()


def test_every_attempt_has_one_entry_even_where_attempts_overlap() -> None:
    contract = one_entry_per_attempt("llm", entry=["accounting", "log_entry"])
    attempt, blocked = record("model_call", "llm", error="timeout"), record("model_call", "llm", blocked=True)
    write = record("memory_write", "accounting", {"key": "1"})
    call = record("tool_call", "log_entry")
    read = record("memory_read", "accounting", {"key": "1"})
    assert broken(contract, trace(attempt, attempt, write, call, blocked, read)) == ()
    assert said(contract, attempt) == ["an attempt at llm has no entry"]
    assert said(contract, write) == ["accounting has an entry without an attempt at llm"]
    assert broken(contract, trace(*[attempt] * 66)) == tuple(range(66))


def test_entries_of_other_things_in_the_same_memory_do_not_count() -> None:
    contract = one_entry_per_attempt("llm", entry="accounting", fields={"type": "llm"})
    attempt = record("model_call", "llm", value="hi")
    ours, other = (record("memory_write", "accounting", {"key": "1", "value": {"type": of}}) for of in ("llm", "tool"))
    assert broken(contract, trace(attempt, other, ours, other)) == ()
    assert broken(contract, trace(attempt, other)) == (0,)
    assert broken(contract, trace(attempt, ours, ours)) == (2,)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: turns_bounded(0),
        lambda: truncation_noticed(limit=3),
        lambda: truncation_noticed(limit=100, notice=""),
        lambda: one_entry_per_attempt("llm", entry="llm"),
        lambda: messages_well_formed(""),
    ],
)
def test_an_option_that_cannot_mean_anything_is_refused(wrong: Any) -> None:
    with pytest.raises(MatError):
        wrong()
