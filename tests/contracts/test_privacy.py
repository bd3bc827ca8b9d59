from __future__ import annotations

import pytest

import mat
from mat.core.redact import Redactor, hashed
from mat.core.value import FrozenDict
from mat.monitor.judge import judge
from mat_contracts import consent, no_pii
from mat_contracts.traces import broken, record, trace, violations

EMAIL, IBAN, CARD, SSN, PHONE = (
    "ann@example.com",
    "DE89 3704 0044 0532 0130 00",
    "4111 1111 1111 1111",
    "078-05-1120",
    "+49 30 901820",
)


def said(text: object, kind: str = "message", **given: object) -> mat.Record:
    return record(kind, "user", {"text": text}, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "kind"), [(EMAIL, "email"), (IBAN, "iban"), (CARD, "card"), (SSN, "ssn"), (PHONE, "phone")])
def test_every_kind_is_found_and_named_but_never_repeated(text: str, kind: str) -> None:
    (found,) = violations(no_pii(), trace(said(f"Hello, it is {text} as you know")))
    assert found.message == f"message 'user' holds personal data: 1 {kind} in text"
    assert broken(no_pii(kinds=[kind]), trace(said(text))) == (0,)
    others = {"email", "iban", "card", "ssn", "phone"} - {kind}
    assert broken(no_pii(kinds=sorted(others)), trace(said(text))) == ()


def test_order_numbers_dates_and_amounts_are_no_personal_data() -> None:
    assert broken(no_pii(), trace(said("Order 4711-22 of 2024-05-03, 1,250.00 EUR, card 4111 1111 1111 1112"))) == ()


def test_allowed_values_match_whole_and_without_case() -> None:
    support = no_pii(allow=["Help@Shop.example"])
    assert broken(support, trace(said("Write to help@shop.EXAMPLE."))) == ()
    assert broken(support, trace(said("Write to not.help@shop.example."))) == (0,)
    assert broken(support, trace(said(f"Write to help@shop.example or {EMAIL}."))) == (0,)


def test_nested_arguments_are_read_and_counted_by_argument() -> None:
    item = record("final_response", "answer", {"answer": {"rows": [{"mail": EMAIL}, EMAIL], EMAIL: 1}, "note": PHONE})
    (found,) = violations(no_pii(), trace(item))
    assert found.message.endswith("3 email in answer, 1 phone in note")


def test_only_what_leaves_is_read() -> None:
    silent = [said(EMAIL, boundary="prompt"), said(EMAIL, "tool_call"), said(EMAIL, "memory_write"), said(EMAIL, "claim")]
    assert broken(no_pii(), trace(*silent)) == ()
    assert broken(no_pii(on="memory_write"), trace(*silent, said(EMAIL))) == (2,)


def test_named_tools_are_read_and_ignored_arguments_are_not() -> None:
    mail = record("tool_call", "mail", {"to": EMAIL, "body": "hello"})
    leaking = record("tool_call", "mail", {"to": EMAIL, "body": PHONE})
    other = record("tool_call", "log", {"body": PHONE})
    assert broken(no_pii(tools=["mail"]), trace(mail, leaking, other)) == (0, 1)
    assert broken(no_pii(tools=["mail"], ignore=["to"]), trace(mail, leaking, other)) == (1,)


def test_hashed_and_redacted_arguments_count_by_the_kinds_noted_on_them() -> None:
    redacted = Redactor().apply("redact", f"{EMAIL} {PHONE}")
    (found,) = violations(no_pii(), trace(said(redacted)))
    assert found.message.endswith("1 email in text, 1 phone in text")
    assert broken(no_pii(), trace(said(hashed(EMAIL)))) == (0,)
    assert broken(no_pii(), trace(said(hashed("nothing")))) == ()
    assert broken(no_pii(allow=[EMAIL]), trace(said(hashed(EMAIL)))) == (0,)


def test_each_leak_is_a_violation_and_a_blocked_one_is_attempted() -> None:
    found = violations(no_pii(), trace(said(EMAIL, blocked=True), said("fine"), said(EMAIL)))
    assert [(item.step, item.stage) for item in found] == [(0, "attempted"), (2, "effected")]


def test_in_a_run_a_message_that_governance_cleaned_passes() -> None:
    def clean(proposed: mat.Record) -> mat.Rewrite | None:
        text = proposed.action.arguments.get("text", "")
        return mat.Rewrite({"text": "[removed]"}) if "@" in text else None

    with mat.run([no_pii()], governance=mat.Governance(rules=[clean])) as run:
        mat.message("user", f"ask {EMAIL}")
    assert run.violations == ()
    with mat.run([no_pii()]) as run:
        mat.untrusted(f"I am {EMAIL}")
        mat.message("user", f"ask {EMAIL}")
        mat.finish("done")
    assert [item.step for item in run.violations] == [1]


def mail(to: object, **given: object) -> mat.Record:
    return record("tool_call", "mail", {"to": to}, effect="write", **given)  # type: ignore[arg-type]


LOOKUP = record("tool_call", "opt_outs", value=["bob@example.com"])
OUT = consent(send=["mail", "post"], opted_out=["Bob@example.com "])


def test_a_list_of_recipients_is_read_through() -> None:
    assert broken(OUT, trace(mail(["ann@example.com"]), mail([EMAIL, "BOB@example.com"]), mail([]))) == (1,)


def test_other_tools_are_not_sends() -> None:
    assert broken(OUT, trace(record("tool_call", "look_up", {"to": "bob@example.com"}))) == ()


def test_a_blocked_send_is_attempted_and_later_ones_are_counted() -> None:
    found = violations(OUT, trace(mail("bob@example.com", blocked=True), mail("bob@example.com"), mail("bob@example.com")))
    assert [(item.step, item.stage) for item in found] == [(0, "attempted"), (1, "effected"), (2, "effected")]
    assert "bob" not in found[0].message


def test_a_function_is_asked_at_every_send() -> None:
    listed: list[str] = []
    judged = consent(send="mail", opted_out=lambda: listed)
    assert broken(judged, trace(mail("bob@example.com"))) == ()
    listed.append("bob@example.com")
    assert broken(judged, trace(mail("bob@example.com"))) == (0,)


@pytest.mark.parametrize(
    ("consult", "counts"),
    [
        (LOOKUP, True),
        (record("verification", "opt_outs", {"passed": True}), True),
        (record("retrieval", "opt_outs", value=[]), True),
        (record("memory_read", "opt_outs", {"key": "all"}, value=[]), True),
        (record("tool_call", "opt_outs", blocked=True), False),
        (record("tool_call", "opt_outs", error="timeout"), False),
        (record("tool_call", "opt_out"), False),
        (record("message", "opt_outs"), False),
    ],
)
def test_the_list_must_be_consulted_before_the_first_send(consult: mat.Record, counts: bool) -> None:
    judged = consent(send="mail", check="opt_outs")
    assert broken(judged, trace(consult, mail(EMAIL), mail(EMAIL))) == (() if counts else (1, 2))
    assert broken(judged, trace(mail(EMAIL), LOOKUP, mail(EMAIL))) == (0,)


def test_a_consult_stands_after_a_send_that_was_wrong() -> None:
    judged = consent(send="mail", opted_out=["bob@example.com"], check="opt_outs")
    assert broken(judged, trace(LOOKUP, mail("bob@example.com"), mail(EMAIL), mail("bob@example.com"))) == (1, 3)


def test_both_reasons_are_said_at_once() -> None:
    judged = consent(send="mail", opted_out=["bob@example.com"], check="opt_outs")
    (found,) = violations(judged, trace(mail("bob@example.com")))
    assert found.message == "mail goes to a recipient who opted out; mail was called before 'opt_outs' was consulted"


@pytest.mark.parametrize("to", [None, 7, hashed(EMAIL), FrozenDict({"redacted": "[redacted:field#1]", "pii": ["email"]})])
def test_a_recipient_that_cannot_be_read_makes_the_outcome_unknown(to: object) -> None:
    _, (outcome,) = judge(trace(mail(to)), [OUT])
    assert outcome.outcome == "unknown"
    assert "no recipient to read in 'to'" in outcome.error
