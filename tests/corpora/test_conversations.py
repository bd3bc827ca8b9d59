"""Conversations of tau-bench, its descendants and AgentDojo: what each message becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from corpora.formats.tau_bench import effect_of

from mat.adapters.importers import StoredTrace
from mat.core.errors import MatError
from mat.core.record import Record

Imported = Callable[..., StoredTrace]


def call(name: str, arguments: object, id: str | None = "c1") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return found if id is None else {**found, "id": id}


def asks(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def answers(content: Any, *, id: str | None = "c1", name: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": id, "name": name}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tau(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"task_id": 3, "trial": 1, "reward": 0.0, "info": {}, "traj": list(messages), **fields}


def steps(stored: StoredTrace) -> list[tuple[str, str, str]]:
    return [(record.agent, record.action.kind, record.action.name) for record in stored.records]


def only_call(stored: StoredTrace) -> Record:
    (found,) = (record for record in stored.records if record.action.kind == "tool_call")
    return found


STOP = user("Thanks! ###STOP###")


def test_each_message_of_a_whole_run_becomes_its_kind_of_step(imported: Imported) -> None:
    stored = imported(
        tau(
            {"role": "system", "content": "the policy"},
            user("cancel order 7"),
            {"role": "assistant", "content": "Sure?"},
            user("yes"),
            asks(call("cancel_pending_order", '{"order_id": "#7"}'), content="I will cancel"),
            answers('{"status": "cancelled"}'),
            {"role": "assistant", "content": "Order 7 is cancelled."},
            STOP,
        )
    )
    assert steps(stored) == [
        ("system", "message", "assistant"),
        ("user", "message", "user"),
        ("assistant", "message", "user"),
        ("user", "message", "user"),
        ("assistant", "model_call", "model"),
        ("assistant", "tool_call", "cancel_pending_order"),
        ("assistant", "final_response", "answer"),
        ("user", "message", "user"),
        ("harness", "termination", "completed"),
    ]
    records = list(stored.records)
    assert [record.step for record in records] == list(range(9))
    assert [record.action.boundary for record in records[:4]] == ["delegation", "prompt", "delegation", "prompt"]
    assert records[1].action.arguments == {"text": "cancel order 7", "sender": "user"}
    assert records[2].action.arguments == {"text": "Sure?", "sender": "assistant"}
    assert records[4].observation.value == "I will cancel"
    assert records[5].action.arguments == {"order_id": "#7"}
    assert records[5].observation.value == {"status": "cancelled"}
    assert (records[5].action.effect, records[5].effected) == ("write", "yes")
    assert records[6].action.arguments == {"answer": "Order 7 is cancelled."}
    assert [record.site for record in records[1:4]] == [
        "user/prompt:user#1",
        "assistant/delegation:user#1",
        "user/prompt:user#2",
    ]
    assert stored.finished


def test_source_steps_translate_both_ways_and_a_result_is_the_step_of_its_call(imported: Imported) -> None:
    stored = imported(tau(user("hi"), asks(call("get_user_details", "{}"), content="thinking"), answers("{}"), STOP))
    assert stored.labels["source_steps"] == (0, 1, 1, 3, None)
    assert stored.labels["our_steps"] == {0: 0, 1: 2, 2: 2, 3: 3}


def test_labels_hold_what_the_row_states(imported: Imported) -> None:
    task = {"user_id": "ann", "actions": [{"name": "think", "kwargs": {}}], "outputs": ["10"], "instruction": "..."}
    stored = imported(tau(user("hi"), reward=1.0, info={"task": task}))
    assert stored.id == "task-3/trial-1"
    labels = {name: stored.labels[name] for name in ("task_id", "trial", "reward", "user_id", "expected_outputs", "timed")}
    assert labels == {"task_id": 3, "trial": 1, "reward": 1.0, "user_id": "ann", "expected_outputs": ("10",), "timed": False}
    assert stored.labels["expected_actions"] == ({"name": "think", "kwargs": {}},)
    assert stored.labels["origin"].endswith("rows.jsonl:1")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error: user not found", "not_found"),
        ("Error: payment amount does not add up", "rejected"),
        ("Unknown action buy", "rejected"),
    ],
)
def test_a_refusal_is_an_error_with_its_kind_and_had_no_effect(imported: Imported, text: str, kind: str) -> None:
    record = only_call(imported(tau(asks(call("book_reservation", "{}")), answers(text))))
    assert record.observation.error is not None
    assert (record.observation.error.message, record.observation.error.kind) == (text, kind)
    assert (record.observation.value, record.effected) == (None, "no")


@pytest.mark.parametrize("text", ["Errors were fixed", "no Error: here", "", '{"error": null}'])
def test_a_result_that_only_mentions_errors_is_a_value(imported: Imported, text: str) -> None:
    record = only_call(imported(tau(asks(call("get_order_details", "{}")), answers(text))))
    assert record.observation.error is None
    assert record.effected == "yes"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("{'a': 'it\\'s', 'b': None}", {"a": "it's", "b": None}),
        ('{"a": 1', {"unparsed": '{"a": 1'}),
        ("[1, 2]", {"unparsed": "[1, 2]"}),
        ("{1: 2}", {"unparsed": "{1: 2}"}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ("", {}),
        (7, {"unparsed": 7}),
    ],
)
def test_arguments_are_parsed_and_what_does_not_parse_is_kept_whole(
    imported: Imported, given: object, expected: object
) -> None:
    assert only_call(imported(tau(asks(call("get_it", given)), answers("ok")))).action.arguments == expected


def test_calls_of_one_message_overlap_and_take_their_own_results_by_id(imported: Imported) -> None:
    stored = imported(
        tau(
            asks(call("get_a", "{}", "1"), call("get_b", "{}", "2")),
            answers("b", id="2"),
            answers("a", id="1"),
            asks(call("get_c", "{}", "3")),
            answers("c", id="3"),
        )
    )
    a, b, c, _ = stored.records
    assert [record.observation.value for record in (a, b, c)] == ["a", "b", "c"]
    assert not a.happened_before(b)
    assert not b.happened_before(a)
    assert b.sealed_seq < a.sealed_seq
    assert a.happened_before(c)
    assert b.happened_before(c)


def test_results_without_ids_go_to_the_next_call_of_their_name(imported: Imported) -> None:
    stored = imported(
        tau(
            asks(call("get_a", "{}", None), call("get_b", "{}", None), call("get_a", '{"n": 2}', None)),
            answers("b", id=None, name="get_b"),
            answers("a1", id=None, name="get_a"),
            answers("a2", id=None),
        )
    )
    assert [record.observation.value for record in stored.records][:3] == ["a1", "b", "a2"]


def test_a_call_without_a_result_and_a_result_without_a_call_both_stay(imported: Imported) -> None:
    stored = imported(tau(asks(call("cancel_it", "{}", "1"), call("get_b", "{}", "2")), answers("x", id="other", name="get_x")))
    lost, also_lost, orphan, _ = stored.records
    assert [record.effected for record in (lost, also_lost, orphan)] == ["unknown", "unknown", "yes"]
    assert (orphan.action.name, orphan.action.arguments, orphan.observation.value) == ("get_x", {}, "x")
    assert [record.asked_seq for record in stored.records] == sorted(record.asked_seq for record in stored.records)


def test_a_call_that_was_never_answered_keeps_its_place_among_those_of_its_message(imported: Imported) -> None:
    both = asks(call("get_a", "{}", "1"), call("get_b", "{}", "2"))
    a, b, c, _ = imported(tau(both, answers("a", id="1"), asks(call("get_c", "{}", "3")))).records
    assert [record.effected for record in (a, b, c)] == ["yes", "unknown", "unknown"]
    assert a.asked_seq < b.asked_seq < c.asked_seq
    assert not a.happened_before(b)
    assert a.happened_before(c)
    assert b.happened_before(c)


@pytest.mark.parametrize(
    ("messages", "ends", "final"),
    [
        ([{"role": "assistant", "content": "done"}, STOP], "completed", True),
        ([asks(call("get_a", "{}")), answers("a"), STOP], "completed", False),
        ([asks(call("transfer_to_human_agents", "{}")), answers("Transfer successful")], "completed", False),
        ([{"role": "assistant", "content": "still here"}, user("and?")], "horizon", False),
        ([], "implicit", False),
    ],
)
def test_a_run_ends_as_its_last_messages_say(imported: Imported, messages: list[Any], ends: str, final: bool) -> None:
    stored = imported(tau(*messages))
    assert steps(stored)[-1] == ("harness", "termination", ends)
    assert ("assistant", "final_response", "answer") in steps(stored) or not final
    assert any(kind == "final_response" for _, kind, _ in steps(stored)) == final


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("x", "x"), ([{"type": "text", "text": "a"}, {"type": "text", "content": "b"}], "a\nb"), (7, "7")],
)
def test_contents_of_any_shape_have_a_text(imported: Imported, content: object, text: str) -> None:
    stored = imported(tau({"role": "user", "content": content}))
    assert next(iter(stored.records)).action.arguments["text"] == text


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (tau("text"), r"traj\[0\]"),
        (tau({"content": "x"}), r"traj\[0\]\.role"),
        (tau({"role": "assistant", "tool_calls": "x"}), r"traj\[0\]\.tool_calls"),
        (tau({"role": "assistant", "tool_calls": [{"function": {}}]}), r"traj\[0\]\.tool_calls\[0\]"),
        (tau(traj="x"), "traj"),
        (tau(info=[]), "info"),
        (tau(reward="much"), "reward"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_line_and_field(imported: Imported, row: Any, field: str) -> None:
    with pytest.raises(MatError, match=rf"rows\.jsonl:1: {field} "):
        imported(row)


def test_effects_of_the_tools_follow_the_documented_table() -> None:
    reads = ("get_user_details", "find_user_id_by_email", "list_all_airports", "search_direct_flight", "calculate", "think")
    assert {effect_of(tool) for tool in reads} == {"read"}
    writes = (
        "cancel_reservation",
        "modify_user_address",
        "return_delivered_order_items",
        "send_certificate",
        "book_reservation",
    )
    assert {effect_of(tool) for tool in writes} == {"write"}
    assert effect_of("transfer_to_human_agents") == "none"


# -- tau-contract-agents ----------------------------------------------------------------------------------------------


def contract_row(*messages: Any, **fields: Any) -> dict[str, Any]:
    return tau(*messages, **{"condition": "assertions-pre-only", "crashed": False, "records": {}, **fields})


def test_a_list_written_as_text_in_python_arguments_is_the_list_the_tool_got(imported: Imported) -> None:
    python = "{'order_id': '#W1', 'item_ids': \"['17', '18']\", 'note': '[sic]', 'zip': '[1] x'}"
    record = only_call(imported(contract_row(asks(call("return_delivered_order_items", python, None)), answers("{}", id=None))))
    assert record.action.arguments == {"order_id": "#W1", "item_ids": ["17", "18"], "note": "[sic]", "zip": "[1] x"}


def test_a_list_written_as_text_in_json_arguments_stays_text(imported: Imported) -> None:
    record = only_call(imported(contract_row(asks(call("think", '{"thought": "[1, 2]"}')), answers(""))))
    assert record.action.arguments == {"thought": "[1, 2]"}


def test_an_assigned_error_is_an_error(imported: Imported) -> None:
    text = '# var_3 = "Error: user not found"'
    record = only_call(
        imported(contract_row(asks(call("find_user_id_by_email", "{}", None)), {"role": "tool", "content": text}))
    )
    assert record.observation.error is not None
    assert (record.observation.error.message, record.observation.error.kind) == ("Error: user not found", "not_found")
    assert record.effected == "no"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("('Connection aborted.', ConnectionResetError(10054, 'closed by the remote host'))", "connection"),
        ("(None) Token limit is exceeded. Try again in 2 seconds.", "rate_limit"),
        ("Operation returned an invalid status 'TRAPI: Forbidden'", "auth"),
        ("Syntax error while parsing: invalid syntax", "harness"),
    ],
)
def test_a_crash_is_distinguished_from_a_failure_of_the_agent(imported: Imported, error: str, kind: str) -> None:
    stored = imported(contract_row(crashed=True, info={"error": error}))
    (record,) = stored.records
    assert (record.action.kind, record.action.name, record.agent) == ("termination", "exception", "harness")
    assert record.observation.error is not None
    assert (stored.labels["crashed"], stored.labels["crash_kind"], stored.labels["crash_error"]) == (True, kind, error)
    assert not stored.finished
    assert stored.labels["reward"] == 0.0


def test_a_run_that_did_not_crash_says_so_and_keeps_its_checks(imported: Imported) -> None:
    stored = imported(contract_row(user("hi"), records={"preconditions_outputs": [True, False]}))
    assert (stored.labels["crashed"], stored.labels["crash_kind"], stored.finished) == (False, "", True)
    assert stored.labels["preconditions_passed"] == (True, False)
    assert stored.labels["condition"] == "assertions-pre-only"
    assert stored.id == "assertions-pre-only/task-3/trial-1"


# -- agentrx, conversations -------------------------------------------------------------------------------------------


def test_the_root_cause_is_found_at_our_step_of_the_message_it_names(imported: Imported) -> None:
    failures = [
        {"failure_id": 1, "step_number": 2, "failed_agent": "User", "failure_category": "c", "step_reason": "r"},
        {"failure_id": 5, "step_number": "4", "failed_agent": "Assistant", "failure_category": "d", "step_reason": "s"},
        {"failure_id": 6, "step_number": 99, "failed_agent": None},
    ]
    messages = [
        {"role": "system", "content": "p", "index": 1},
        {"role": "user", "content": "hi", "index": 2},
        {**asks(call("get_a", "{}"), content="hm"), "index": 3},
        {**answers("a"), "index": 4},
    ]
    stored = imported(tau(*messages, annotation={"failures": failures, "root_cause": {"failure_id": "5"}}))
    labels = stored.labels
    assert (labels["annotated_step"], labels["annotated_source_step"], labels["annotated_agent"]) == (3, 4, "assistant")
    assert list(stored.records)[3].action.name == "get_a"
    assert [(item["step"], item["source_step"], item["agent"]) for item in labels["annotated_failures"]] == [
        (1, 2, "user"), (3, 4, "assistant"), (None, 99, ""),
    ]  # fmt: skip
    assert labels["source_steps"] == (1, 2, 3, 3, None)


def test_annotated_conversations_without_an_index_are_counted_from_one(imported: Imported) -> None:
    failures = [{"failure_id": 1, "step_number": 2, "failed_agent": "Assistant"}]
    messages = [user("hi"), {"role": "assistant", "content": "no"}]
    stored = imported(tau(*messages, annotation={"failures": failures, "root_cause": {"failure_id": 1}}))
    assert stored.labels["source_steps"] == (1, 2, None)
    assert (stored.labels["annotated_step"], stored.labels["annotated_agent"]) == (1, "assistant")


def test_a_root_cause_that_is_not_among_the_failures_leaves_the_step_open(imported: Imported) -> None:
    stored = imported(tau(user("hi"), annotation={"failures": [], "root_cause": {"failure_id": 1}}))
    assert (stored.labels["annotated_step"], stored.labels["annotated_source_step"]) == (None, None)


# -- agentdojo --------------------------------------------------------------------------------------------------------


def dojo(*messages: Any, **fields: Any) -> dict[str, Any]:
    row = {"suite": "banking", "version": "v1", "kind": "user", "task_id": "user_task_0", "prompt": "Pay Ann"}
    return {**row, "utility": True, "ground_truth_output": "", "messages": list(messages), "error": None, **fields}


def part(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def dojo_call(function: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"function": function, "args": args, "id": None, "placeholder_args": None}


def test_a_reference_solution_of_agentdojo_is_prompt_calls_and_answer(imported: Imported) -> None:
    pay, read = dojo_call("send_money", {"to": "Ann"}), dojo_call("get_balance", {})
    stored = imported(
        dojo(
            {"role": "assistant", "tool_calls": [pay, read], "content": part("")},
            {"role": "tool", "content": part("sent"), "tool_call": pay, "tool_call_id": None, "error": None},
            {
                "role": "tool",
                "content": part(""),
                "tool_call": read,
                "tool_call_id": None,
                "error": "ValueError: no such account",
            },
            {"role": "assistant", "content": part("Paid."), "tool_calls": None},
        )
    )
    assert steps(stored) == [
        ("user", "message", "user"),
        ("assistant", "tool_call", "send_money"),
        ("assistant", "tool_call", "get_balance"),
        ("assistant", "final_response", "answer"),
        ("harness", "termination", "completed"),
    ]
    _, paid, looked, answer, _ = stored.records
    assert (paid.action.effect, paid.action.impact, paid.observation.value) == ("write", "high", "sent")
    assert (looked.action.effect, looked.action.impact) == ("read", "low")
    assert looked.observation.error is not None
    assert (looked.observation.error.kind, looked.effected) == ("not_found", "unknown")
    assert answer.action.arguments == {"answer": "Paid."}
    assert stored.labels["source_steps"] == (None, 0, 0, 3, None)
    assert stored.labels["reference"] is True


def test_a_row_of_agentdojo_with_an_error_ends_with_it(imported: Imported) -> None:
    stored = imported(dojo(error="boom"))
    assert steps(stored)[-1] == ("harness", "termination", "exception")


def test_a_prompt_or_name_of_the_wrong_type_is_read_or_named(imported: Imported) -> None:
    assert steps(imported(dojo(prompt=None))) == [("harness", "termination", "completed")]
    with pytest.raises(MatError, match=r"messages\[0\]\.tool_calls\[0\]\.function"):
        imported(dojo({"role": "assistant", "tool_calls": [{"function": 3}]}))


def test_the_same_row_gives_the_same_records(imported: Imported) -> None:
    row = json.loads(json.dumps(tau(user("hi"), asks(call("get_a", "{}")), answers("a"), STOP)))
    assert tuple(imported(row).records) == tuple(imported(row).records)
