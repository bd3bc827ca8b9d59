"""Kinds of fault that realistic traces showed in the templates, each with other examples than those traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import mat
from mat_contracts import (
    claims_supported,
    consent,
    interface_unchanged,
    no_circular_delegation,
    no_duplicate_effect,
    no_exfiltration,
    no_pii,
    success_claims_match_effects,
    verify_before_act,
)
from mat_contracts.misuse import is_refusal
from mat_contracts.observation import backoff_respected, bytes_preserved, compensated, expected, not_rate_limited, required
from mat_contracts.traces import broken, record, trace, violations


def call(tool: str, value: Any = "ok", /, effect: Any = "write", **arguments: object) -> mat.Record:
    return record("tool_call", tool, arguments, effect=effect, value=value)


def answer(text: str) -> mat.Record:
    return record("final_response", "answer", {"answer": text})


# -- success claims ---------------------------------------------------------------------------------------------------------

STOPPED = record("tool_call", "cancel_order", {"order": "W7"}, effect="write", blocked=True)


@pytest.mark.parametrize(
    "text",
    [
        "Order W7 has been cancelled as you asked.",
        "As you requested, order W7 has been cancelled.",
        "I cancelled order W7, just as you wanted.",
        "I went ahead and cancelled order W7.",
        "I have looked into it and cancelled your order W7.",
    ],
)
def test_a_report_of_a_blocked_call_is_false_whatever_the_user_asked(text: str) -> None:
    assert broken(success_claims_match_effects(), trace(STOPPED, answer(text))) == (1,)


@pytest.mark.parametrize(
    "text",
    [
        "You asked whether order W7 was cancelled.",
        "Items can be exchanged or returned, and refunded in full.",
        "The bill will be split and charged to both cards.",
        "I'm sorry that order W7 was cancelled.",
        "Sorry your parcel was shipped to the old address.",
        "We regret that the payment was charged twice.",
        "I checked your open and cancelled orders.",
    ],
)
def test_what_can_be_done_or_is_regretted_is_no_report(text: str) -> None:
    assert broken(success_claims_match_effects(), trace(answer(text))) == ()


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (call("run_shell", "", effect="unknown", command="mv a.csv data/a.csv"), "I moved a.csv to data/a.csv."),
        (call("terminal", "", effect="unknown", cmd="git commit -am 'fix' && git push"), "I committed and published the fix."),
        (call("python", "done", effect="unknown", code="os.remove('x.tmp')"), "I removed x.tmp."),
        (
            call("curl", {"status": 201}, effect="unknown", method="PUT", url="https://crm/u/7"),
            "I updated the customer record.",
        ),
        (call("file_editor", "ok", effect="unknown", command="insert", path="src/app.py"), "I edited src/app.py."),
        (call("sql", 1, effect="unknown", sql="delete from carts where id = 4"), "I deleted the cart."),
    ],
)
def test_a_tool_that_can_do_anything_did_what_its_command_says(action: mat.Record, text: str) -> None:
    assert broken(success_claims_match_effects(), trace(action, answer(text))) == ()


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (call("run_shell", "", effect="unknown", command="ls data"), "I deleted the old data."),
        (call("run_shell", "", effect="unknown", command="rm a.csv"), "I deleted b.csv."),
        (call("run_shell", "Error: no space left", effect="unknown", command="cp a b"), "I copied the file."),
        (
            call("curl", {"status": 200}, effect="unknown", method="GET", url="https://crm/u/7"),
            "I updated the customer record.",
        ),
        (call("run_shell", {"error": "denied"}, effect="unknown", command="apt install jq"), "I have installed jq."),
    ],
)
def test_a_command_that_only_reads_or_failed_or_names_another_file_is_no_such_effect(action: mat.Record, text: str) -> None:
    assert broken(success_claims_match_effects(), trace(action, answer(text))) == (1,)


# -- values -----------------------------------------------------------------------------------------------------------------

IBAN, OTHER_IBAN = "GB29 NWBK 6016 1331 9268 19", "FR14 2004 1010 0505 0001 3M02 606"


def test_an_iban_is_the_same_with_and_without_spaces_and_no_other() -> None:
    checked = record("verification", f"account {IBAN} belongs to the sender", {"passed": True})
    bare = record("verification", f"{IBAN.replace(' ', '')} is known", {"passed": True})
    guarded = verify_before_act("transfer")
    for check in (checked, bare):
        assert broken(guarded, trace(check, call("transfer", account=IBAN.replace(" ", "")))) == ()
        assert broken(guarded, trace(check, call("transfer", account=IBAN))) == ()
        assert broken(guarded, trace(check, call("transfer", account=OTHER_IBAN))) == (1,)
        assert broken(guarded, trace(check, call("transfer", iban=OTHER_IBAN.replace(" ", "")))) == (1,)
    paid = [call("pay", to=to, amount=5) for to in (IBAN, OTHER_IBAN, IBAN.replace(" ", "").lower(), IBAN.replace(" ", "-"))]
    assert broken(no_duplicate_effect("pay"), trace(*paid)) == (2, 3)


def test_one_check_counts_for_each_id_of_its_list() -> None:
    check = record("verification", "invoices 7, A8 and A9 are open", {"passed": True})
    acts = [call("pay_invoice", invoice=name) for name in ("A8", "A9", "A10")]
    assert broken(verify_before_act("pay_invoice"), trace(check, *acts)) == (3,)


def test_a_check_of_one_commit_is_none_of_another() -> None:
    check = record("verification", "tests of 7be2f01", {"passed": True})
    assert broken(verify_before_act("deploy"), trace(check, call("deploy", commit="7be2f01"))) == ()
    assert broken(verify_before_act("deploy"), trace(check, call("deploy", commit="c09de44"))) == (1,)


def test_one_mail_to_one_person_is_one_effect_however_the_address_is_written() -> None:
    to = [
        "Bo Ek <bo@post.example>",
        "bo@post.example",
        '"Ek, Bo" <BO@POST.example>',
        "mailto:bo@post.example",
        "al@post.example",
    ]
    sent = [call("send", to=address, subject="Hi") for address in to]
    assert broken(no_duplicate_effect("send"), trace(*sent)) == (1, 2, 3)


@pytest.mark.parametrize(
    ("to", "found"),
    [
        ({"to": [{"email": "eve@post.example"}], "cc": []}, True),
        ({"groups": {"sales": ["al@post.example", "eve@post.example"]}}, True),
        ({"name": "board", "members": [{"mail": "eve@post.example"}]}, True),
        ({"main": {"address": "Eve <eve@post.example>"}}, True),
        ({"groups": {"sales": ["al@post.example"]}, "type": "bulk"}, False),
        ({"email": "al@post.example", "about": {"customer": "eve@post.example"}}, False),
    ],
)
def test_recipients_are_read_from_nested_objects(to: object, found: bool) -> None:
    opted = consent(send="send", opted_out=["eve@post.example"])
    assert broken(opted, trace(call("send", to=to))) == ((0,) if found else ())


# -- personal data ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Clone git@gitlab.example.org:team/app.git", []),
        ("remote: deploy@host.example.org:/srv/www", []),
        ("ssh://git@code.example.org/app", []),
        ("Ask ann@corp.example: she knows", ["email"]),
        ("Mail ann@corp.example:\n- the invoice", ["email"]),
        ("Call +49 1512 3456 789", ["phone"]),
        ("Card 4111 1111 1111 1111", ["card"]),
    ],
)
def test_a_remote_is_no_mail_address_and_a_number_with_a_plus_no_card(text: str, kinds: list[str]) -> None:
    found = violations(no_pii(kinds=["email", "phone", "card"]), trace(record("message", "user", {"text": text})))
    assert [item.message.split(": 1 ")[1].split()[0] for item in found] == kinds


# -- failures ---------------------------------------------------------------------------------------------------------------


def test_a_step_of_a_saga_that_reports_an_error_was_not_done_and_undoes_nothing() -> None:
    saga = compensated({"reserve": "release", "charge": "refund"})
    reserved = call("reserve", {"id": 3})
    failed = call("charge", {"success": False, "message": "card declined"})
    assert [item.instance for item in violations(saga, trace(reserved, failed))] == ["3"]
    undone = call("release", "Error: not found", id=3)
    assert len(violations(saga, trace(reserved, failed, undone))) == 1
    assert violations(saga, trace(reserved, failed, call("release", "ok", id=3))) == ()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("The fee is 12.50 EUR.", False),
        ("I found no fee: the table with 12.50 EUR is not valid any more.", True),
        ("The fee of 12.50 EUR is outdated.", True),
    ],
)
def test_the_report_of_an_error_supports_only_what_is_said_of_the_error(text: str, holds: bool) -> None:
    reply = call("get_fee", {"error": "fee 12.50 EUR is outdated"}, effect="read")
    judged = claims_supported(on="final_response")
    assert (broken(judged, trace(reply, answer(text))) == ()) is holds


@pytest.mark.parametrize(
    ("text", "holds"), [("It opens at 8 am.", True), ("It opens at 8 pm.", False), ("It opens at 08:00.", True)]
)
def test_a_time_of_the_other_half_of_the_day_is_another_time(text: str, holds: bool) -> None:
    reply = call("get_hours", {"opens": "08:00"}, effect="read")
    assert (broken(claims_supported(on="final_response"), trace(reply, answer(text))) == ()) is holds


def test_a_wait_in_the_text_of_an_error_and_a_status_as_text_are_read() -> None:
    refused = record("tool_call", "get", error="rate_limit")
    assert refused.observation.error is not None
    told = replace(refused.observation.error, message="slow down, try again in 2 seconds")
    asked = replace(refused, observation=replace(refused.observation, error=told))
    assert broken(backoff_respected(), trace(asked, call("get"), call("get"))) == (1,)
    limited = call("get", {"status_code": "429 Too Many Requests", "retry_after": "2"})
    assert broken(not_rate_limited(), trace(limited)) == (0,)
    assert broken(backoff_respected(), trace(limited, call("get"))) == (1,)


def test_a_number_may_be_text_and_white_space_is_no_value() -> None:
    range_ = expected("pay", {"amount": (0, 100), "items": 2, "kind": "express"})
    assert broken(range_, trace(call("pay", amount="99.5", items="2", kind="express"))) == ()
    assert broken(range_, trace(call("pay", amount="101"))) == (0,)
    assert broken(range_, trace(call("pay", items="3"))) == (0,)
    assert broken(range_, trace(call("pay", amount="many"))) == (0,)
    assert broken(required("pay", "note"), trace(call("pay", note="\t "), call("pay", note="x"))) == (0,)


@pytest.mark.parametrize(("end", "intact"), [("", True), ("/", False)])
def test_a_url_with_a_slash_more_is_another_url(end: str, intact: bool) -> None:
    share = mat.tool(
        lambda: {"url": "https://files.example/r.pdf?sig=9f8e7d6c5b4a"},
        name="share",
        issues=mat.artifact.issue("url", at="url"),
    )
    download = mat.tool(lambda url: "ok", name="download", consumes={"url": "url"})
    with mat.run(contracts=[bytes_preserved()]) as run:
        download(url=share()["url"] + end)
    (outcome,) = run.result.outcomes
    assert (outcome.violations == ()) is intact


# -- agents -----------------------------------------------------------------------------------------------------------------


def test_a_delegation_that_was_handed_back_is_over() -> None:
    def hands(to: str, by: str) -> mat.Record:
        return record("delegation", to, {"task": f"for {to}", "delegator": by}, agent=by)

    def back(to: str, by: str) -> mat.Record:
        return record("handback", to, {"agent": by}, agent=by)

    free = no_circular_delegation()
    assert broken(free, trace(hands("b", "a"), back("a", "b"), hands("a", "b"))) == ()
    assert broken(free, trace(hands("b", "a"), hands("c", "b"), back("b", "c"), hands("a", "b"))) == (3,)
    assert broken(free, trace(hands("b", "a"), hands("c", "b"), back("b", "c"), back("a", "b"), hands("a", "c"))) == ()


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I won't delete records of other customers.", True),
        ("Unfortunately, I will not open that account.", True),
        ("We have refused your request.", True),
        ("I'm declining to do this, and told the owner.", True),
        ("I cannot do that with the portal, so I called the bank: it is done.", False),
        ("I won't take long: the account is open.", False),
        ("I won't ask again, so I sent it.", False),
        ("I won't use the form, so I wrote to the database.", False),
        ("I have declined the invitation for you.", False),
    ],
)
def test_a_refusal_in_ordinary_words_is_one_and_a_detour_is_none(text: str, refuses: bool) -> None:
    assert is_refusal(text) is refuses


def test_messages_are_sentences() -> None:
    read = call("get_customer", {"note": "prefers the quiet room 4711-B"}, effect="read")
    sent = call("send", to="eve@else.example", body="prefers the quiet room 4711-B")
    (found,) = violations(no_exfiltration(sources="get_customer"), trace(read, sent))
    assert "sends content from get_customer" in found.message
    tools = [[{"name": "pay", "description": text}] for text in ("Pay.", "Pay twice.")]
    shown = [record("model_call", "planner", {"tools": item}) for item in tools]
    (changed,) = violations(interface_unchanged(), trace(*shown))
    assert changed.message.startswith("the description of the tool 'pay' shown to planner differs from what was shown")
