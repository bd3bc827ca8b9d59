"""Templates compare values as people do: spelling, notation and type do not make two values of one."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat_contracts import (
    approved_before,
    consent,
    declared_unsafe,
    followed_by,
    in_order,
    least_privilege,
    never_concurrent,
    no_circular_delegation,
    no_duplicate_effect,
    no_exfiltration,
    no_oscillation,
    no_pii,
    no_retry_storm,
    precedes,
    progress,
    retries_bounded,
    untrusted_data_never_decides,
    verify_before_act,
)
from mat_contracts._values import address, normal, number_of, recipients, same
from mat_contracts.privilege import rate
from mat_contracts.traces import broken, record, trace


def call(tool: str, /, error: str = "", **arguments: object) -> mat.Record:
    return record("tool_call", tool, arguments, effect="write", error=error)


# -- the normal form ------------------------------------------------------------------------------------------------------

SAME: list[list[Any]] = [
    [30, 30.0, "30", "30.0", " 30.00 ", Decimal("30.0"), 3e1],
    [1250, "1250", "1,250.00", "1.250,00 EUR", "€1250", "EUR 1250", "1250 €", "1 250,00 EUR"],
    ["A17", "a17", " a17 ", "#A17", "\ta17\n", "Ａ17"],
    [
        "2024-05-15",
        "15 May 2024",
        "May 15, 2024",
        "15.05.2024",
        "05/15/2024",
        "2024-05-15T00:00:00",
        "Wed, 15 may 2024",
        "2024/5/15",
    ],
    ["2024-05-15T10:00:00Z", "2024-05-15T12:00+02:00", "2024-05-15 10:00:00.000+00:00"],
    ["Ann Smith", "ann  smith", "ANN SMITH"],
    [{"a": 1, "b": "X"}, {"b": "x ", "a": 1.0}, {"a": 1, "b": "x", "c": None}],
    [["A1", 2], [" a1", "2.0"]],
]


@pytest.mark.parametrize("values", SAME, ids=lambda values: str(values[0]))
def test_one_value_has_one_normal_form_however_it_is_written(values: list[Any]) -> None:
    assert [normal(value) for value in values] == [normal(values[0])] * len(values)


def test_different_values_have_different_normal_forms() -> None:
    values = [values[0] for values in SAME]
    values += [
        True,
        False,
        None,
        0,
        "007",
        7,
        "03/04/2024",
        "2024-04-03",
        "2024-03-04",
        "1.250",
        "A18",
        "-30",
        "true",
        "",
        [],
        "2 h",
    ]
    assert len({repr(normal(value)) for value in values}) == len(values)


def test_currencies_tell_amounts_apart_and_a_bare_amount_has_any() -> None:
    assert [same("30 EUR", 30), same("30 USD", 30), same("30 EUR", "30 USD")] == [True, True, False]


def test_a_version_is_no_number() -> None:
    assert normal({"version": "1.10"}) != normal({"version": "1.1"})


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_a_number_and_its_text_are_the_same(number: float) -> None:
    assert normal(number) == normal(repr(number)) or "e" in repr(number)
    assert number_of(number) == Decimal(str(number))


def test_long_ids_are_not_rounded_to_the_digits_that_decimals_keep() -> None:
    long = 10**28 + 1
    assert normal(long) == normal(f"{long}") == normal(f"{long}.0") == normal(Decimal(long)) != normal(f"{long - 1}")
    assert normal("0.10000000000000000000000000001") != normal("0.1") == normal("0.100")
    with localcontext(prec=3):
        assert normal("1234.5 EUR") == normal(1234.5)


@given(st.text(max_size=30))
def test_the_normal_form_of_a_text_is_its_own(text: str) -> None:
    found = normal(text)
    assert normal(found) == found


ANN = (
    "ann@example.com", "Ann@Example.COM", " ann@example.com ", "Ann <ann@example.com>", "<ann@example.com>",
    "mailto:ann@example.com",
    '"Smith, Ann" <ann@example.com>', "Smith, Ann <ann@example.com>", "ann@example.com (Ann)", "Ann Smith ann@example.com",
    "Ann <mailto:ann@example.com>", "ann@example.com.", "'ann@example.com'", "MAILTO:Ann@example.com?subject=Hello",
)  # fmt: skip
"""Ways to write one recipient."""


@pytest.mark.parametrize("text", ANN)
def test_a_recipient_is_read_however_it_is_written(text: str) -> None:
    assert recipients(text) == ("ann@example.com",)


@pytest.mark.parametrize(
    "value",
    [
        "bob@example.com, Ann <ann@example.com>", "bob@example.com;ann@example.com", "bob@example.com\nann@example.com",
        ["bob@example.com", "Ann <ann@example.com>"],
        [{"email": "bob@example.com"}, {"name": "Ann", "address": "ann@example.com"}],
        "bob@example.com ann@example.com", ["Bob <bob@example.com>; ann@example.com"],
    ],
)  # fmt: skip
def test_lists_of_recipients_are_read_whole(value: object) -> None:
    assert recipients(value) == ("bob@example.com", "ann@example.com")


def test_phone_numbers_are_the_same_however_they_are_grouped() -> None:
    assert len({address(text) for text in ("+49 30 123456", "+49 (30) 123-456", "tel:+4930123456", "0049 30 123456")}) == 1


# -- effects ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"order": "A17", "amount": 30}, {"order": "A17", "amount": 30.0}),
        ({"order": "A17", "amount": 30}, {"order": " a17 ", "amount": "30.00"}),
        ({"order": "A17", "amount": "1.250,00 EUR"}, {"order": "#A17", "amount": 1250}),
        ({"room": "12", "day": "15 May 2024"}, {"room": 12, "day": "2024-05-15"}),
        ({"order": "A17"}, {"order": "A17", "note": None}),
    ],
)
def test_an_effect_is_a_duplicate_however_its_values_are_written(one: dict[str, object], two: dict[str, object]) -> None:
    assert broken(no_duplicate_effect("pay"), trace(call("pay", **one), call("pay", **two))) == (1,)
    assert broken(no_duplicate_effect("pay", key=sorted(one)), trace(call("pay", **one), call("pay", **two))) == (1,)
    keyed = no_duplicate_effect("pay", idempotency="key")
    assert broken(keyed, trace(call("pay", **one, key="k1"), call("pay", **two, key="k1"))) == ()
    assert broken(keyed, trace(call("pay", **one, key="k1"), call("pay", **two, key="k2"))) == (1,)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"order": "A17", "amount": 30}, {"order": "A18", "amount": 30}),
        ({"order": "A17", "amount": "30 EUR"}, {"order": "A17", "amount": "30 USD"}),
        ({"room": "12", "day": "15 May 2024"}, {"room": 12, "day": "2024-05-16"}),
        ({"version": "1.1"}, {"version": "1.10"}),
        ({"account": "007"}, {"account": "7"}),
    ],
)
def test_another_effect_is_no_duplicate(one: dict[str, object], two: dict[str, object]) -> None:
    assert broken(no_duplicate_effect("pay"), trace(call("pay", **one), call("pay", **two))) == ()


# -- consent ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ANN)
@pytest.mark.parametrize("place", ["to", "cc", "bcc", "Cc"])
def test_who_opted_out_is_recognised_however_the_recipient_is_written(text: str, place: str) -> None:
    sent = call("mail", **{"to": "bob@example.com", place: text})
    assert broken(consent(send="mail", opted_out=["ann@example.com"]), trace(sent)) == (0,)
    assert broken(consent(send="mail", opted_out=[text]), trace(call("mail", to="ann@example.com"))) == (0,)
    assert broken(consent(send="mail", opted_out=["eve@example.com", "an@example.com"]), trace(sent)) == ()


def test_a_tag_does_not_get_round_an_opt_out() -> None:
    judged = consent(send="mail", opted_out=["ann@example.com", "bob+news@example.com"])
    tagged, other, plain = (call("mail", to=f"{name}@example.com") for name in ("ann+sale", "bob+orders", "bob+news"))
    assert broken(judged, trace(tagged, other, plain)) == (0, 2)


@pytest.mark.parametrize("empty", [None, "", [], ["", None]])
def test_empty_copies_are_no_recipients(empty: object) -> None:
    assert (
        broken(consent(send="mail", opted_out=["ann@example.com"]), trace(call("mail", to="bob@example.com", cc=empty))) == ()
    )


def test_a_recipient_inside_an_object_is_named_by_its_path() -> None:
    sent = call("mail", message={"to": [{"emailAddress": "bob@example.com"}], "bcc": "Ann <ann@example.com>"})
    assert broken(consent(send="mail", recipient="message.to", opted_out=["ann@example.com"]), trace(sent)) == (0,)


def test_consent_and_its_withdrawal_are_found_under_another_spelling() -> None:
    yes, no = (
        record("approval", "consent", {"to": text}, value=True) for text in ("Ann <ANN@example.com>", "mailto:ann@example.com")
    )
    gone = record("approval", "stop", {"to": "<ann@example.com>"}, value=True)
    judged = consent(send="mail", granted_by="consent", withdrawn_by="stop")
    for granted in (yes, no):
        assert broken(judged, trace(granted, call("mail", to="ann@example.com"), gone, call("mail", to="ANN@example.com"))) == (
            3,
        )


def test_each_recipient_of_a_list_needs_consent() -> None:
    judged = consent(send="mail", given=["ann@example.com", "Smith, Bob"])
    assert broken(judged, trace(call("mail", to="ann@example.com; eve@example.com"), call("mail", to="smith, bob"))) == (0,)


# -- order ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "two"), [(17, "17"), (17, 17.0), ("A17", " a17 "), ("15 May 2024", "2024-05-15")])
def test_ids_of_one_thing_are_one_id_for_order(one: object, two: object) -> None:
    check, pay = call("check", id=one), call("pay", id=two)
    assert broken(precedes(first="check", then="pay", key="id"), trace(check, pay)) == ()
    assert broken(followed_by(trigger="check", answer="pay", key="id"), trace(check, pay)) == ()
    assert broken(in_order(["check", "pay"], key="id", strict=True), trace(check, pay)) == ()
    first, second = trace(check, pay)
    overlapping = (mat_replace(first), second)
    assert broken(never_concurrent(["check", "pay"], key="id"), overlapping) == (1,)


def mat_replace(item: mat.Record) -> mat.Record:
    from dataclasses import replace

    return replace(item, sealed_seq=9)


def test_other_ids_are_other_things_for_order_and_messages_show_them_as_written() -> None:
    from mat_contracts.traces import violations

    judged = precedes(first="check", then="pay", key="id")
    (found,) = violations(judged, trace(call("check", id="A17"), call("pay", id="A18")))
    assert found.instance == "A18"


# -- rights -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [50, 50.0, "50", "50.00", "50,00 EUR"])
def test_an_amount_in_range_is_allowed_however_it_is_written(amount: object) -> None:
    assert broken(least_privilege({"main": {"refund": {"amount": (0, 100)}}}), trace(call("refund", amount=amount))) == ()


@pytest.mark.parametrize("amount", [900, "900", "1.250,00 EUR", "lots", True, None, "-1", "nan", "1e9"])
def test_an_amount_out_of_range_is_refused_however_it_is_written(amount: object) -> None:
    assert broken(least_privilege({"main": {"refund": {"amount": (2, 100)}}}), trace(call("refund", amount=amount))) == (0,)


def test_an_id_or_address_on_the_list_is_allowed_however_it_is_written() -> None:
    may = least_privilege({"main": {"mail": {"to": {"ann@example.com", "bob@example.com"}, "order": {"A17"}}}})
    inside = call("mail", to="Ann <ann@example.com>, bob@example.com", order=" a17")
    outside = call("mail", to="ann@example.com, eve@example.com", order="A17")
    assert broken(may, trace(inside, outside, call("mail", to="ann@example.com", order="A18"))) == (1, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "Eve <EVE@evil.example>"}, {"to": "ann@example.com; eve@evil.example"},
        {"to": ["ann@example.com", "eve@evil.example"]},
        {"to": "mailto:eve@evil.example"}, {"to": " eve@evil.example "},
    ],
)  # fmt: skip
def test_an_unsafe_value_is_unsafe_however_it_is_written(arguments: dict[str, object]) -> None:
    assert broken(declared_unsafe({"theft": {"mail": {"to": {"eve@evil.example"}}}}), trace(call("mail", **arguments))) == (0,)


@pytest.mark.parametrize(("count", "steps"), [("9", (0,)), (9.0, (0,)), ("1", ()), ("nine", ())])
def test_an_unsafe_number_is_unsafe_as_text_too(count: object, steps: tuple[int, ...]) -> None:
    assert broken(declared_unsafe({"bulk": {"delete": {"count": (2, 1000)}}}), trace(call("delete", count=count))) == steps


def test_an_unsafe_value_inside_an_object_is_named_by_its_path() -> None:
    judged = declared_unsafe({"theft": {"pay": {"body.to": {"EVE"}}}})
    assert broken(judged, trace(call("pay", body={"to": "eve"}), call("pay", body={"to": "ann"}), call("pay", body=None))) == (
        0,
    )


def test_a_rate_counts_one_id_however_it_is_written() -> None:
    may = least_privilege({"main": ["pay"]}, rates=[rate(1, steps=5, key="order")])
    assert broken(may, trace(call("pay", order="A17"), call("pay", order=" a17 "), call("pay", order="A18"))) == (1,)


def test_an_approval_holds_for_the_same_number_and_not_for_another_text() -> None:
    def asked(**arguments: object) -> mat.Record:
        return record("approval", "pay", arguments, value=True)

    judged = approved_before(tools="pay")
    assert broken(judged, trace(asked(order="A17", amount=5), call("pay", order="A17", amount=5.0))) == ()
    assert broken(judged, trace(asked(order="A17", amount=5), call("pay", order="A18", amount=5))) == (1,)
    assert broken(judged, trace(asked(path="/data"), call("pay", path="/Data"))) == (1,)  # an approval binds what runs


# -- requests and rounds ------------------------------------------------------------------------------------------------------


def test_a_retry_is_a_retry_however_its_values_are_written() -> None:
    tries = [
        call("track", error="timeout", id=item, amount=amount) for item, amount in (("A17", 30), (" a17", 30.0), ("a17", "30"))
    ]
    assert broken(no_retry_storm(times=2), trace(*tries)) == (2,)
    assert broken(no_retry_storm(times=2, key="id"), trace(*tries)) == (2,)
    assert broken(retries_bounded(attempts=2, idempotent="track"), trace(*tries)) == (2,)
    others = [call("track", error="timeout", id=item) for item in ("A17", "A18", "A19")]
    assert broken(no_retry_storm(times=2), trace(*others)) == ()


def test_a_round_is_a_round_however_its_values_are_written() -> None:
    rounds = [call(tool, id=item) for item in ("A17", " a17 ", "a17") for tool in ("open", "close")]
    assert broken(no_oscillation(times=3), trace(*rounds)) == (5,)


def test_a_task_goes_in_circles_however_it_is_written() -> None:
    down = record("delegation", "worker", {"task": "Count the parcels."}, agent="lead")
    up = record("delegation", "lead", {"task": " count  the parcels"}, agent="worker")
    assert broken(no_circular_delegation(along="task"), trace(down, up)) == (1,)


def test_signals_that_came_as_text_are_numbers() -> None:
    two, one = (record("tool_call", "work", state={"open_subtasks": left}) for left in ("2", "1.0"))
    assert broken(progress(window=2), trace(two, two, one)) == ()
    assert broken(progress(window=2), trace(two, two, two)) == (2,)


# -- what a check is about ----------------------------------------------------------------------------------------------------


def checked(what: str, passed: bool = True, supports: tuple[str, ...] = (), **about: object) -> mat.Record:
    return record("verification", what, {"passed": passed, **about}, supports=supports)


A17, A18 = call("refund", order="A17"), call("refund", order="A18")


@pytest.mark.parametrize(
    ("items", "steps"),
    [
        ([checked("owner"), checked("owner", False), A17], (2,)),
        ([checked("owner", False), checked("owner"), A17], ()),
        ([checked("owner"), checked("owner", False), checked("owner"), A17], ()),
        ([checked("order A17 belongs to the sender"), A17], ()),
        ([checked("order A18 belongs to the sender"), A17], (1,)),
        ([checked("order a17 is the sender's"), A17, A18], (2,)),
        ([checked("owner", order=" a17 "), A17, A18], (2,)),
        ([checked("owner", order_id="A17"), A17, A18], (2,)),
        ([checked("owner", order="A17"), checked("owner", False, order="A18"), A17, A18], (3,)),
        ([checked("customer ann@example.com is known"), A17], ()),
        ([checked("user u17 is signed in", user="u17"), A17], ()),
        ([checked("A18 is paid"), A17], (1,)),
        ([checked("order 17 is paid"), call("refund", order=17), call("refund", order=18)], (2,)),
        ([checked("a check of 3 rules in 30 days"), A17], ()),
        ([checked("order A17 of ann@example.com"), call("refund", order="A17", mail="bob@example.com")], ()),
    ],
)
def test_the_latest_check_of_the_same_thing_decides(items: list[mat.Record], steps: tuple[int, ...]) -> None:
    assert broken(verify_before_act("refund"), trace(*items)) == steps


def test_a_check_is_about_what_supports_it() -> None:
    row = record("tool_call", "get_order", {"order_id": "A18"}, value={"owner": "ann"}, effect="read")
    judged = verify_before_act("refund")
    assert broken(judged, trace(row, checked("belongs to the sender", supports=("step#0",)), A18, A17)) == (3,)


def test_a_call_about_several_ids_needs_a_check_of_each() -> None:
    both = call("refund", orders=["A17", "A18"])
    judged = verify_before_act("refund")
    assert broken(judged, trace(checked("order A17 is paid"), both)) == (1,)
    assert broken(judged, trace(checked("order A17 is paid"), checked("order A18 is paid"), both)) == ()


def test_the_message_says_what_the_check_was_about() -> None:
    from mat_contracts.traces import violations

    (other,) = violations(verify_before_act("refund"), trace(checked("order A18 is paid"), A17))
    assert other.message == "refund was called after the verification at step 0, which was about order a18"
    (failed,) = violations(verify_before_act("refund"), trace(checked("paid"), checked("paid", False), A17))
    assert (failed.message, failed.witness) == ("refund was called after the verification at step 1, which had failed", (1, 2))


# -- what leaves --------------------------------------------------------------------------------------------------------------


def test_personal_data_may_go_to_its_owner_however_the_recipient_is_written_and_to_nobody_in_copy() -> None:
    judged = no_pii(tools=["mail"], ignore=["to", "cc"], allow_for={"ann@example.com": ["+49 30 123456"]})
    text = "Call +49 (30) 123-456."
    assert broken(judged, trace(call("mail", to="Ann <ann@example.com>", body=text))) == ()
    assert broken(judged, trace(call("mail", to="ann@example.com", cc="eve@example.com", body=text))) == (0,)


def test_an_allowed_number_is_allowed_however_it_is_grouped() -> None:
    said = record("message", "user", {"text": "Your card 4111-1111-1111-1111."})
    assert broken(no_pii(allow=["4111 1111 1111 1111"]), trace(said)) == ()
    assert broken(no_pii(allow=["4111 1111 1111 1112"]), trace(said)) == (0,)


@pytest.mark.parametrize(
    ("asked", "written", "arguments"),
    [
        ("Book 15 May 2024 for me.", "Free on 2024-05-15.", {"day": "2024-05-15"}),
        ("Book it for May 15, 2024.", "15.05.2024 is free.", {"day": "2024-05-15"}),
        ("Pay the 1,250.00 euros.", "Amount due: 1250", {"amount": 1250}),
        ("Pay 1.250,00 EUR please.", "Amount due: 1250.00", {"amount": 1250.0}),
    ],
)
def test_what_the_user_said_vouches_for_a_value_in_any_notation(asked: str, written: str, arguments: dict[str, object]) -> None:
    user = record("message", "user", {"text": asked}, boundary="prompt")
    page = record("retrieval", "web", value=written)
    judged = untrusted_data_never_decides()
    assert broken(judged, trace(user, page, call("book", **arguments))) == ()
    assert broken(judged, trace(page, call("book", **arguments))) == (1,)


def test_an_allowed_recipient_is_allowed_however_it_is_listed_or_written() -> None:
    read = record("tool_call", "get_customer", value={"name": "Ann Smith-Miller"})
    for allowed, to in (("@shop.example", "desk@shop.example"), ("Desk <desk@shop.example>", "mailto:desk@shop.example")):
        sent = call("send", to=to, body="Ann Smith-Miller called.")
        assert broken(no_exfiltration(sources="get_customer", allow=[allowed]), trace(read, sent)) == ()
