"""A reply that reports a failure is a failure, for every template that asks whether a call was done."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import mat
from mat_contracts import (
    approved_before,
    backoff_respected,
    consent,
    followed_by,
    no_duplicate_effect,
    no_external_side_effects,
    no_retry_storm,
    one_entry_per_attempt,
    precedes,
    recovers,
    replanning_without_execution,
    retries_bounded,
    success_claims_match_effects,
    turns_bounded,
)
from mat_contracts._outcome import effect_of, failed, reported_failure
from mat_contracts.traces import broken, record, trace

FAILURES: list[object] = [
    {"error": "order not found"}, {"error": {"code": 402, "message": "card declined"}}, {"errors": ["no such order"]},
    {"Error": "no such order"},
    {"exception": "KeyError"}, {"success": False}, {"ok": False, "reason": "closed"}, {"succeeded": False}, {"success": 0},
    {"success": "false"}, {"isError": True, "content": [{"type": "text", "text": "no"}]}, {"is_error": True}, {"failed": True},
    {"status": 404}, {"status": 403, "body": ""}, {"status_code": 422}, {"statusCode": "409"}, {"code": 400, "message": "bad"},
    {"status": "error", "message": "no"}, {"status": "failed"}, {"status": "declined"}, {"status": "payment_failed"},
    {"type": "error", "error": {"type": "invalid_request_error"}}, {"detail": "Not found."}, {"message": "Failed to send"},
    {"result": "Error: no such order"},
    "Error: no such order", "error", "ERROR 42: no", "[ERROR] no such order", "Failed to send the mail", "Failed",
    "Failure: no",
    "404 Not Found", "HTTP 403", "HTTP/1.1 400 Bad Request", "status code 409", "KeyError: 'A17'", "ValueError",
    "Invalid card number",
    "Traceback (most recent call last):\n  File", "Access denied", "Permission denied: /data", "Not authorized", "Unauthorized",
    "Order A17 not found.", "No such order", "Could not cancel a delivered order", "Couldn't find it",
    "Unable to process the refund",
    "Cannot refund a pending order", "Payment failed: insufficient funds", "The request was rejected", "The card was declined.",
    "An error occurred while saving", "There was an error processing your request", "Something went wrong.",
    json.dumps({"error": "order not found"}), json.dumps({"success": False}), json.dumps({"status": 404}),
]  # fmt: skip
UNCERTAIN: list[object] = [
    {"error": "timeout"}, {"status": 500}, {"status": 503, "retry_after": 2}, {"status_code": 504},
    "Error: connection reset by peer",
    "504 Gateway Timeout", "HTTP 502", "Internal Server Error", "Request timed out", "Service Unavailable", "Timeout",
    {"error": {"message": "The server did not answer: deadline exceeded"}}, json.dumps({"error": "request timed out"}),
]  # fmt: skip
RESULTS: list[object] = [
    None, True, 0, 1, 404, 500, "", "ok", "done", "Refunded.", "404", "Order A17 was cancelled.", "Errors are rare.", "500 EUR",
    "404 Main Street", "Error handling in Python is a wide field", "forbidden cities of China",
    "Failure is the mother of success",
    "Locked", "Timeout settings are on page 3", "I cannot recommend it enough", "Conflict resolution at work",
    "No refund is due.",
    {"error": None}, {"error": ""}, {"error": False}, {"error": "none"}, {"errors": []}, {"errors": 0}, {"success": True},
    {"ok": 1},
    {"isError": False, "content": []}, {"status": 200}, {"status": "cancelled"}, {"status": "delivered"}, {"status": "pending"},
    {"code": 404}, {"code": "A404"}, {"failed": 0, "sent": 3}, {"failed": ["A17"], "sent": 2}, {"error_rate": 0.3}, [], {},
    [404],
    {"message": "Your order is on its way"}, {"id": "A17", "message": "Failed items will be sent again", "status": "open"},
    json.dumps({"error": None}), json.dumps({"status": "ok"}), "{not json", {"type": "refund"},
    {"http_status": 201}, {"statusCode": 302}, {"detail": "12 items"},
]  # fmt: skip


@pytest.mark.parametrize("reply", [*FAILURES, *UNCERTAIN], ids=repr)
def test_a_reply_that_reports_a_failure_is_recognised(reply: object) -> None:
    found = reported_failure(record("tool_call", "pay", value=reply).observation.value)
    assert found is not None
    assert found.uncertain is (reply in UNCERTAIN)


@pytest.mark.parametrize("reply", RESULTS, ids=repr)
def test_any_other_reply_is_a_result(reply: object) -> None:
    item = record("tool_call", "pay", value=reply)
    assert (reported_failure(item.observation.value), failed(item), effect_of(item)) == (None, False, "yes")


def pay(reply: object = "ok", **given: object) -> mat.Record:
    return record("tool_call", "pay", {"order": "A17"}, effect="write", value=reply, **given)  # type: ignore[arg-type]


REFUSED, PAID, LOST = pay({"error": "card declined"}), pay(), pay({"error": "gateway timeout"})


def test_a_call_that_returned_an_error_is_no_effect() -> None:
    assert broken(no_duplicate_effect("pay"), trace(REFUSED, PAID)) == ()
    assert broken(no_duplicate_effect("pay"), trace(PAID, REFUSED)) == ()
    assert broken(no_duplicate_effect("pay"), trace(REFUSED, PAID, PAID)) == (2,)
    assert broken(no_duplicate_effect("pay", idempotency="key"), trace(REFUSED, PAID)) == ()
    assert broken(no_duplicate_effect("pay"), trace(pay(False), PAID)) == ()


def test_an_effect_that_may_have_happened_is_mentioned_and_counts_for_a_new_idempotency_key() -> None:
    from mat_contracts.traces import violations

    (found,) = violations(no_duplicate_effect("pay"), trace(LOST, PAID, PAID))
    assert found.message == "pay had the same effect at steps 1 and 2; the call at step 0 may have had it as well"
    assert broken(no_duplicate_effect("pay", idempotency="key"), trace(LOST, PAID)) == (1,)


def test_a_failure_that_only_a_fault_reported_hides_no_effect() -> None:
    hidden = record(
        "tool_call", "pay", {"order": "A17"}, effect="write", value={"error": "refused"}, raw="ok", faults=["reply.corrupt"]
    )
    assert broken(no_duplicate_effect("pay"), trace(hidden, PAID)) == (1,)


def test_a_call_that_ran_twice_and_was_refused_the_second_time_is_no_second_effect() -> None:
    twice = pay({"error": "already paid"}, invoked=2)
    assert broken(no_duplicate_effect("pay"), trace(twice)) == ()
    assert broken(no_duplicate_effect("pay"), trace(pay(invoked=2))) == (0,)


def test_a_claim_of_a_refused_call_is_no_success() -> None:
    said = record("final_response", "answer", {"answer": "I have paid order A17."})
    for reply in FAILURES:
        assert broken(success_claims_match_effects(), trace(pay(reply), said)) == (1,), reply
    assert broken(success_claims_match_effects(), trace(PAID, said)) == ()


def test_retries_of_calls_that_answer_with_an_error_are_retries() -> None:
    assert broken(no_retry_storm(times=2), trace(REFUSED, REFUSED, PAID)) == (2,)
    assert broken(no_retry_storm(times=2), trace(PAID, PAID, PAID)) == ()
    assert broken(no_retry_storm(times=1, errors="timeout"), trace(REFUSED, REFUSED, LOST, LOST)) == (3,)
    assert broken(retries_bounded(attempts=2), trace(REFUSED, REFUSED, PAID)) == (2,)


def test_a_write_that_answered_with_a_time_out_is_checked_before_it_is_repeated() -> None:
    look = record("tool_call", "get_order", {"order": "A17"}, effect="read", value="open")
    blind = record("tool_call", "get_order", {"order": "A17"}, effect="read", value={"error": "unavailable"})
    assert broken(retries_bounded("pay"), trace(LOST, PAID)) == (1,)
    assert broken(retries_bounded("pay"), trace(LOST, look, PAID)) == ()
    assert broken(retries_bounded("pay"), trace(LOST, blind, PAID)) == (2,)
    assert broken(retries_bounded("pay"), trace(REFUSED, PAID)) == ()  # nothing was written


def test_a_reply_that_reports_an_overload_asks_to_wait() -> None:
    busy = record("tool_call", "track", value="Error: rate limit exceeded")
    again = replace(busy, at_ms=1, sealed_ms=1)
    first, second = trace(busy, again)
    assert broken(backoff_respected(base_ms=1000), (first, replace(second, at_ms=1, sealed_ms=1))) == (1,)


def test_a_refused_call_carries_out_no_plan() -> None:
    replan = record("mitigation", "replan")
    assert broken(replanning_without_execution(times=2), trace(replan, REFUSED, replan)) == (2,)
    assert broken(replanning_without_execution(times=2), trace(replan, PAID, replan)) == ()


def test_a_refused_call_is_no_recovery() -> None:
    fault = pay(error="timeout")
    idle = record("claim", "claim")
    assert broken(recovers(within=2), trace(fault, REFUSED, idle)) == (0,)
    assert broken(recovers(within=2), trace(fault, PAID, idle)) == ()


def test_a_refused_first_did_not_succeed() -> None:
    check, bad = (record("tool_call", "check", value=reply) for reply in ("ok", {"error": "not found"}))
    assert broken(precedes(first="check", then="pay", effected=True), trace(bad, PAID)) == (1,)
    assert broken(precedes(first="check", then="pay", effected=True), trace(check, PAID)) == ()
    assert broken(followed_by(trigger="pay", answer="check", effected=True), trace(PAID, bad)) == (0,)


def test_a_refused_lookup_is_no_consultation_and_a_refused_subscription_no_consent() -> None:
    mail = record("tool_call", "mail", {"to": "ann@example.com"}, effect="write")
    for reply, steps in (({"error": "down"}, (1,)), ([], ())):
        lookup = record("tool_call", "opted_out", value=reply)
        assert broken(consent(send="mail", check="opted_out"), trace(lookup, mail)) == steps
        subscribed = record("tool_call", "subscribe", {"to": "ann@example.com"}, value=reply, effect="write")
        assert broken(consent(send="mail", granted_by="subscribe"), trace(subscribed, mail)) == steps


def test_a_refused_call_uses_no_approval_and_changes_nothing() -> None:
    asked = record("approval", "pay", {"order": "A17"}, value=True)
    assert broken(approved_before(tools="pay"), trace(asked, REFUSED, PAID)) == ()
    assert broken(approved_before(tools="pay"), trace(asked, PAID, PAID)) == (2,)
    assert broken(approved_before(tools="pay"), trace(REFUSED)) == (0,)
    assert broken(no_external_side_effects("main"), trace(REFUSED, PAID)) == (1,)


def test_a_refused_entry_is_no_entry() -> None:
    ask = record("model_call", "llm")
    for reply, steps in (({"error": "disk full"}, (0,)), ("ok", ())):
        assert broken(one_entry_per_attempt("llm", entry="log"), trace(ask, record("tool_call", "log", value=reply))) == steps


def test_what_a_model_says_about_errors_is_an_answer() -> None:
    said = record("model_call", "llm", value={"content": "Error: I cannot do that"})
    refused = record("model_call", "llm", value={"status": "failed"})
    assert broken(turns_bounded(1), trace(said, said)) == (1,)
    assert broken(turns_bounded(1), trace(refused, said)) == ()
