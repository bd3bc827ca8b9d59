"""Results of sessions as traces: what is observable in them, what is not, and what is rejected."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from session.checking import Checked, NotObservable, check, classified, read
from session.contracts import GUARANTEES, session_config

CONFIG = session_config(
    {
        "maxTurns": 2,
        "maxToolCallsPerTurn": 2,
        "maxRetries": 2,
        "toolResponseMaxBytes": 40,
        "toolTimeout": 1000,
        "expectedOutputFormat": "markdown",
        "targets": [{"provider": "alpha", "model": "a1"}, {"provider": "beta", "model": "b1"}],
        "contextWindow": 1000,
    }
)
RESULT: dict[str, Any] = {
    "success": True,
    "finalReport": {"status": "success", "format": "markdown", "ts": 1_700_000_003_000, "content": "Kettles boil water."},
    "exitCode": 0,
    "conversation": [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "What do kettles do?"},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "c1", "name": "search", "parameters": {"query": "kettles"}}]},
        {"role": "tool", "toolCallId": "c1", "content": "three pages"},
        {
            "role": "assistant",
            "content": "",
            "toolCalls": [
                {
                    "id": "c2",
                    "name": "agent__final_report",
                    "parameters": {"report_content": "Kettles boil water.", "format": "markdown"},
                },
            ],
        },
    ],
    "accounting": [
        {
            "type": "llm",
            "provider": "alpha",
            "model": "a1",
            "status": "failed",
            "latency": 100,
            "timestamp": 1_700_000_000_000,
            "error": "429 too many requests",
            "tokens": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0},
        },
        {
            "type": "llm",
            "provider": "beta",
            "model": "b1",
            "status": "ok",
            "latency": 100,
            "timestamp": 1_700_000_000_200,
            "tokens": {"inputTokens": 20, "outputTokens": 5, "totalTokens": 25},
            "stopReason": "tool_use",
        },
        {
            "type": "tool",
            "mcpServer": "web",
            "command": "search",
            "status": "ok",
            "latency": 50,
            "timestamp": 1_700_000_000_300,
            "charactersIn": 9,
            "charactersOut": 11,
        },
        {
            "type": "llm",
            "provider": "alpha",
            "model": "a1",
            "status": "ok",
            "latency": 100,
            "timestamp": 1_700_000_000_400,
            "tokens": {"inputTokens": 40, "outputTokens": 9, "totalTokens": 49},
        },
        {
            "type": "tool",
            "mcpServer": "agent",
            "command": "agent__final_report",
            "status": "ok",
            "latency": 1,
            "timestamp": 1_700_000_000_500,
            "charactersIn": 30,
            "charactersOut": 0,
        },
    ],
}


def changed(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    result = copy.deepcopy(RESULT)
    edit(result)
    return result


def broken(result: object) -> list[str]:
    checked = check(result, CONFIG, GUARANTEES)
    assert [item.error for item in checked.outcomes if item.error] == []
    return sorted({violation.contract for violation in checked.violations})


# -- reading -----------------------------------------------------------------------------------------------------------------


def test_a_result_becomes_requests_messages_and_executions_in_their_order() -> None:
    found = [(record.action.kind, record.action.name) for record in read(RESULT).records if record.action.name != "accounting"]
    assert found == [
        ("memory_write", "conversation"),
        ("memory_write", "conversation"),
        ("model_call", "llm"),
        ("model_call", "llm"),
        ("memory_write", "conversation"),
        ("tool_call", "search"),
        ("memory_write", "conversation"),
        ("model_call", "llm"),
        ("memory_write", "conversation"),
        ("tool_call", "agent__final_report"),
        ("final_response", "answer"),
    ]


def test_times_usage_and_errors_are_read_from_the_accounting() -> None:
    first, second, third = [record for record in read(RESULT).records if record.action.kind == "model_call"]
    assert [(item.at_ms, item.sealed_ms) for item in (first, second, third)] == [(0, 100), (200, 300), (400, 500)]
    assert first.observation.error is not None
    assert first.observation.error.kind == "rate_limit"
    assert second.observation.value == {
        "usage": {"inputTokens": 20, "outputTokens": 5, "totalTokens": 25},
        "stop_reason": "tool_use",
    }


def test_an_execution_is_linked_to_its_call_and_claims_no_more_than_is_known() -> None:
    (search, _) = [record for record in read(RESULT).records if record.action.kind == "tool_call"]
    assert dict(search.action.arguments) == {"call_id": "c1", "server": "web"}
    assert search.observation.value is None


def test_json_text_reads_as_the_mapping_does() -> None:
    assert read(json.dumps(RESULT)) == read(RESULT) == read(json.dumps(RESULT).encode())


def test_executions_that_overlap_keep_the_order_in_which_they_began() -> None:
    def edit(result: dict[str, Any]) -> None:
        calls = result["conversation"][2]["toolCalls"]
        calls.append({"id": "c9", "name": "slow", "parameters": {}})
        entry = {**result["accounting"][2], "command": "slow", "timestamp": 1_700_000_000_290, "latency": 500}
        result["accounting"].insert(3, entry)
        result["conversation"].insert(4, {"role": "tool", "toolCallId": "c9", "content": "at last"})

    names = [record.action.name for record in read(changed(edit)).records if record.action.kind == "tool_call"]
    assert names == ["slow", "search", "agent__final_report"]
    assert broken(changed(edit)) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("401 Unauthorized", "auth"),
        ("You exceeded your current quota", "quota"),
        ("Rate limit reached", "rate_limit"),
        ("request timed out", "timeout"),
        ("connection reset", "network"),
        ("503 overloaded", "model"),
        ("malformed reply", "invalid"),
        ("maximum context length is 8192", "context"),
        ("something went wrong", ""),
        ("429: quota exceeded", ""),
        ("", ""),
    ],
)
def test_an_error_text_has_a_kind_only_where_one_rule_fits(text: str, kind: str) -> None:
    assert classified(text) == kind


# -- judging -----------------------------------------------------------------------------------------------------------------


def test_a_good_result_breaks_nothing_and_many_guarantees_are_judged() -> None:
    checked = check(RESULT, CONFIG, GUARANTEES)
    assert checked.violations == ()
    assert {item.outcome for item in checked.outcomes} == {"pass"}
    assert len(checked.outcomes) > 40


@pytest.mark.parametrize(
    ("edit", "contract"),
    [
        (lambda result: result.pop("finalReport"), "session.result.success_has_report"),
        (lambda result: result.update(exitCode=1), "session.result.exit_zero_is_success"),
        (lambda result: result["finalReport"].update(format="html"), "session.result.format"),
        (lambda result: result["finalReport"].update(content="Kettles whistle."), "session.result.report_is_the_models"),
        (lambda result: result["conversation"][3].update(content="x" * 41), "session.tools.truncation"),
        (lambda result: result["conversation"][3].update(toolCallId="c7"), "session.conversation.tool_linked"),
        (lambda result: result["conversation"].pop(3), "session.conversation.tool_answered"),
        (
            lambda result: (
                result["conversation"].reverse() or result["conversation"].sort(key=lambda item: item["role"] != "user")
            ),
            "session.conversation.order",
        ),
        (lambda result: result["accounting"][1].update(provider="alpha", model="a1"), "session.limits.round_robin"),
        (lambda result: result["accounting"][2].pop("charactersOut"), "session.accounting.tool_fields"),
        (lambda result: result["accounting"].pop(2), "session.accounting.tool_entry"),
        (lambda result: result["accounting"][2].update(latency=1100), "session.tools.timeout_aborts"),
        (lambda result: result["accounting"][2].update(status="failed", error="no host"), "session.conversation.failed_format"),
        (lambda result: result["accounting"][2].update(status="failed"), "session.accounting.tool_failure_error"),
        (lambda result: result["accounting"][0].update(error="401 unauthorized"), "session.errors.auth_is_fatal"),
        (
            lambda result: result["conversation"].insert(
                2, {"role": "user", "content": "System notice: plain text responses ..."}
            ),
            "session.conversation.ephemeral",
        ),
    ],
)
def test_a_bad_result_breaks_what_it_should(edit: Callable[[dict[str, Any]], object], contract: str) -> None:
    assert contract in broken(changed(edit))


@pytest.mark.parametrize(
    "edit",
    [
        lambda result: result["conversation"][3].update(content="x" * 40),
        lambda result: result["accounting"][2].update(latency=1000),
        lambda result: result["accounting"][1].update(costUsd=0.1, actualProvider="gamma", agentId="a"),
        lambda result: result["accounting"][0].pop("error") and result["accounting"][0].update(error="network error"),
        lambda result: result["conversation"][2].update(content="Let me look.", reasoning="hm"),
        lambda result: result["finalReport"].update(metadata={"x": 1}),
        lambda result: result.update(error=None),
    ],
)
def test_a_near_miss_breaks_nothing(edit: Callable[[dict[str, Any]], object]) -> None:
    assert broken(changed(edit)) == []


# -- what is not observable --------------------------------------------------------------------------------------------------


def unseen(checked: Checked) -> dict[str, str]:
    return {item.what: item.why for item in checked.not_observable}


def test_every_guarantee_is_judged_or_listed_with_a_reason() -> None:
    checked = check(RESULT, CONFIG, GUARANTEES)
    mine = {item.id for item in GUARANTEES if CONFIG.transport in item.transports}
    judged = {item.contract for item in checked.outcomes}
    assert judged | (set(unseen(checked)) & mine) == mine
    assert judged & set(unseen(checked)) == set()
    assert "request" not in {item.observable for item in GUARANTEES if item.id in judged}


def test_a_setting_that_is_not_given_is_named() -> None:
    checked = check(RESULT, session_config({}), GUARANTEES)
    assert unseen(checked)["session.limits.max_turns"] == "the configuration does not say max_turns"


def failed(error: str, code: int) -> dict[str, Any]:
    return {"success": False, "error": error, "exitCode": code, "conversation": [], "accounting": []}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("configuration error: NOPE is not defined", 4), ("invalid arguments: --turns", 4), ("validation failed: maxTurns", 4),
        ("schema validation failed for tool search", 5), ("MCP server files could not be started", 3),
        ("failed to initialize the cache", 3), ("configuration error: the MCP server files has no command", 4),
        ("Fatal error: Configuration error: invalid schema of the tool search", 4),
    ],
)  # fmt: skip
def test_the_exit_code_of_a_refusal_is_that_of_its_error(error: str, code: int) -> None:
    assert check(failed(error, code), CONFIG, GUARANTEES).violations == ()
    for wrong in {1, 3, 4, 5} - {code}:
        found = check(failed(error, wrong), CONFIG, GUARANTEES).violations
        assert [item.contract for item in found] == ["session.result.exit_code_category"]


def test_words_of_a_provider_are_not_the_category_of_a_session_that_ran() -> None:
    result = changed(
        lambda result: result.update(failed("400 invalid argument: temperature", 1), accounting=result["accounting"])
    )
    assert "session.result.exit_code_category" not in {item.contract for item in check(result, CONFIG, GUARANTEES).violations}


def test_a_failure_of_unknown_category_may_have_any_exit_code_of_a_failure() -> None:
    for code in (1, 3, 4, 5):
        assert check(failed("it did not work", code), CONFIG, GUARANTEES).violations == ()


def test_without_an_exit_code_no_exit_code_is_judged() -> None:
    checked = check(changed(lambda result: result.pop("exitCode")), CONFIG, GUARANTEES)
    assert unseen(checked)["session.result.exit_zero_is_success"] == "the result has none"
    assert "session.result.exit_zero_is_success" not in {item.contract for item in checked.outcomes}


def test_an_error_of_unknown_kind_is_listed_and_blames_nobody() -> None:
    result = changed(lambda result: result["accounting"][0].update(error="something went wrong"))
    checked = check(result, CONFIG, GUARANTEES)
    assert (
        NotObservable(what="the kind of an LLM error", why="the error text 'something went wrong' does not tell")
        in checked.not_observable
    )
    assert checked.violations == ()


def test_a_caller_can_say_what_its_error_texts_mean() -> None:
    result = changed(lambda result: result["accounting"][0].update(error="E17"))
    checked = check(result, CONFIG, GUARANTEES, error_kind=lambda text: "auth" if text == "E17" else "")
    assert {violation.contract for violation in checked.violations} == {"session.errors.auth_is_fatal"}


def test_two_calls_of_one_tool_are_not_told_apart_by_guessing() -> None:
    def edit(result: dict[str, Any]) -> None:
        result["conversation"][2]["toolCalls"].append({"id": "c9", "name": "search", "parameters": {}})
        result["conversation"].insert(4, {"role": "tool", "toolCallId": "c9", "content": "(tool failed: timeout)"})
        entry = {**result["accounting"][2], "status": "failed", "error": "timeout"}
        result["accounting"].insert(2, entry)

    checked = check(changed(edit), CONFIG, GUARANTEES)
    assert checked.violations == ()
    assert "which accounting entry belongs to which call" in unseen(checked)
    assert [record.action.arguments["call_id"] for record in checked.records if record.action.name == "search"] == ["", ""]


def test_more_successful_requests_than_messages_leave_attempts_uncounted() -> None:
    def edit(result: dict[str, Any]) -> None:
        result["accounting"][0].update(status="ok")
        result["accounting"][0].pop("error")

    checked = check(changed(edit), CONFIG, GUARANTEES)
    assert "which request gave which message" in unseen(checked)
    assert checked.violations == ()


# -- rejected data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "where"),
    [
        ([], "result"),
        ({**RESULT, "success": "yes"}, "result.success"),
        ({**RESULT, "conversation": None}, "result.conversation"),
        ({**RESULT, "conversation": [{"role": "robot"}]}, "result.conversation[0].role"),
        ({**RESULT, "conversation": ["hello"]}, "result.conversation[0]"),
        ({**RESULT, "conversation": [{"role": "assistant", "content": 7}]}, "result.conversation[0].content"),
        ({**RESULT, "conversation": [{"role": "assistant", "toolCalls": "search"}]}, "result.conversation[0].toolCalls"),
        ({**RESULT, "accounting": [{"provider": "alpha"}]}, "result.accounting[0].type"),
        ({**RESULT, "accounting": {}}, "result.accounting"),
        ({**RESULT, "finalReport": "done"}, "result.finalReport"),
        ({**RESULT, "error": {"code": 1}}, "result.error"),
        ({**RESULT, "exitCode": "0"}, "result.exitCode"),
    ],
)
def test_a_malformed_result_is_refused_with_its_place(result: object, where: str) -> None:
    with pytest.raises(mat.MatError) as caught:
        read(result)
    assert caught.value.where == where
    assert caught.value.why
    assert caught.value.fix


def test_all_problems_are_named_in_one_go() -> None:
    with pytest.raises(mat.MatError, match=r"success.*conversation\[0\].*accounting"):
        read({"success": None, "conversation": [7]})


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(mat.MatError):
        read("{")


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
NAMES = st.sampled_from(
    [
        "id",
        "name",
        "arguments",
        "function",
        "status",
        "latency",
        "timestamp",
        "tokens",
        "command",
        "error",
        "content",
        "provider",
        "toolCallId",
    ]
)
ITEMS = st.dictionaries(
    NAMES, SCALARS | st.dictionaries(NAMES, SCALARS, max_size=2) | st.just("ok") | st.just("agent__final_report"), max_size=6
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["llm", "tool", "note"]), ITEMS), max_size=6),
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), ITEMS, st.lists(ITEMS, max_size=2)), max_size=6
    ),
    st.booleans(),
    st.sampled_from(["native", "xml-final", "xml"]),
)
def test_whatever_a_result_holds_it_is_judged_or_refused(
    accounting: Any, conversation: Any, success: bool, transport: str
) -> None:
    result = {
        "success": success,
        "accounting": [{**item, "type": kind} for kind, item in accounting],
        "conversation": [{**item, "role": role, "toolCalls": calls} for role, item, calls in conversation],
    }
    config = session_config(
        {"maxTurns": 2, "maxRetries": 2, "transport": transport, "targets": [{"provider": "alpha", "model": "a1"}]}
    )
    try:
        checked = check(result, config, GUARANTEES)
    except mat.MatError:
        return
    assert [item.error for item in checked.outcomes if item.error] == []
