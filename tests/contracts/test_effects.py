from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.redact import hashed
from mat.monitor.judge import judge
from mat_contracts.effects import (
    MAX_ACTIONS,
    VERBS,
    SuccessClaim,
    _files_in,
    forms_of,
    success_claims,
    success_claims_match_effects,
)
from mat_contracts.traces import broken, record, trace, violations

MATCH = success_claims_match_effects()


def act(name: str, /, value: object = "ok", *, high: bool = False, effect: str = "write", **arguments: object) -> mat.Record:
    given = {key: item for key, item in arguments.items() if key not in ("error", "blocked", "effected")}
    options = {key: item for key, item in arguments.items() if key not in given}
    made = record("tool_call", name, given, value=value, effect=effect, **options)  # type: ignore[arg-type]
    return replace(made, action=replace(made.action, impact="high")) if high else made


def says(text: object) -> mat.Record:
    return record("final_response", "answer", {"answer": text})


def tells(text: str) -> mat.Record:
    return record("message", "user", {"text": text, "sender": "main"})


def found_in(text: str) -> list[tuple[str, tuple[str, ...], list[str], bool]]:
    return [(item.verb, item.names, [str(amount) for amount in item.amounts], item.own) for item in success_claims(text)]


@pytest.mark.sweep(
    ("text", "found"),
    [
        ("I have refunded order 17.", [("refund", ("17",), [], True)]),
        ("I've already cancelled A1.", [("cancel", ("a1",), [], True)]),
        ("We sent the email to ann@example.com.", [("send", ("ann@example.com",), [], True)]),
        ("Order 17 has been canceled.", [("cancel", ("17",), [], False)]),
        ("Email sent.", [("send", (), [], False)]),
        ("Refunded $50 for order 17", [("refund", ("17",), ["50"], True)]),
        ("Your refund of 50 was processed.", [("refund", (), ["50"], False)]),
        ("The cancellation of W-1 is complete.", [("cancel", ("w-1",), [], False)]),
        ("Your booking is confirmed.", [("book", (), [], False)]),
        ("I can confirm that ticket 9 has been closed.", [("close", ("9",), [], False)]),
        ("I cancelled A1 and refunded B2.", [("cancel", ("a1",), [], True), ("refund", ("b2",), [], True)]),
        ("I refunded orders 17, 18 and 19.", [("refund", ("17", "18", "19"), [], True)]),
        ("I refunded A1 and B2, $80 in total.", [("refund", ("a1", "b2"), [], True)]),
        ("I could not refund it, but I cancelled order 17.", [("cancel", ("17",), [], True)]),
        ("I cancelled order 17; if you need more, write.", [("cancel", ("17",), [], True)]),
        ("I updated 3 records on May 20 within 2 days.", [("update", (), [], True)]),
        ("I updated booking A1 in May.", [("update", ("a1",), [], True)]),
        ("$5 was charged to your card ending in 7334.", [("charge", (), ["5"], False)]),
        ("You have been refunded 50 EUR.", [("refund", (), ["50"], False)]),
        ("It's been cancelled.", [("cancel", (), [], False)]),
    ],
)
def test_what_is_said_to_be_done_is_found(text: str, found: list[object]) -> None:
    assert found_in(text) == found


@pytest.mark.sweep(
    "text",
    [
        "I could not refund order 17.", "Order 17 was not cancelled.", "I haven't sent it.", "I was unable to cancel it.",
        "The refund failed to be issued.", "No refund was issued.", "I never sent it.", "I tried to cancel it.",
        "I will refund order 17.", "I'll cancel it.", "We are going to refund it.", "The order is to be cancelled.",
        "It can be cancelled.", "It may be refunded.", "It should have been sent.", "I would have sent it.",
        "If it was refunded, tell me.", "Once the order is cancelled, you get mail.", "When I have sent it, I write.",
        "Was order 17 refunded?", "Have I sent the email?", "Your order is being shipped.", "Refunds take 5 days.",
        "The refunded amount is 50.", "A cancelled order stays listed.", "The order you cancelled is old.",
        "Since it was booked a day ago, it stays.",
        "The order was placed on 2024-05-02.", "It was created within the last day.",
        "Total Paid: $5", "- Created At: 2024-05-02", "- Paid with Visa",
        "You have purchased insurance.", "You are scheduled to start.",
        "It stays because it was paid.", "The amount paid was high.",
        "I found and checked order 17.", "Please confirm.", "", "The parcel arrived on Friday.",
    ],
)  # fmt: skip
def test_negations_futures_conditions_questions_and_descriptions_are_no_success(text: str) -> None:
    assert found_in(text) == []


@given(st.sampled_from(sorted(VERBS)), st.integers(1, 10**6))
def test_every_verb_is_found_in_the_perfect_and_never_in_the_future_or_negated(verb: str, number: int) -> None:
    form = forms_of(verb)[-1]
    assert [(item.verb, item.names) for item in success_claims(f"I have {form} ticket {number}.")] == [(verb, (str(number),))]
    for text in (f"I will {verb} ticket {number}.", f"I have not {form} ticket {number}.", f"I could have {form} it."):
        assert success_claims(text) == ()


# -- the ledger ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("refund_order", "I have refunded it."), ("refundOrder", "I have refunded it."),
        ("cancel_pending_order", "It is cancelled."),
        ("send_email", "I have emailed you."), ("notify_customer", "I have sent a note."),
        ("create_booking", "I have booked it."),
        ("update_reservation_flights", "I have changed your flights."),
        ("return_delivered_order_items", "Your return was processed."),
        ("transfer_to_human_agents", "I have escalated it."), ("exchange_items", "I exchanged them."),
        ("delete_file", "Deleted the file."),
    ],
)  # fmt: skip
def test_tools_are_known_by_the_words_of_their_names(name: str, text: str) -> None:
    assert broken(MATCH, trace(act(name), says(text))) == ()
    assert broken(MATCH, trace(act("unrelated_thing"), says(text))) == (1,)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (act("refund", order=17, error="timeout"), "refund at step 0 has an unknown outcome (timeout)"),
        (act("refund", order=17, error="invalid", effected="no"), "refund at step 0 failed (invalid)"),
        (act("refund", order=17, blocked=True), "refund at step 0 was blocked"),
        (act("refund", order=17, effected="unknown"), "refund at step 0 has an unknown outcome"),
        (act("refund", {"error": "no funds"}, order=17), "refund at step 0 reported a failure"),
        (act("refund", {"success": False}, order=17), "refund at step 0 reported a failure"),
        (act("refund", "Error: order not found", order=17), "refund at step 0 reported a failure"),
        (act("refund", order=18), "refund at step 0 does not name 17"),
        (act("refund_policy", effect="read", order=17), "no action in the trace performs 'refund'"),
        (act("cancel", order=17), "no action in the trace performs 'refund'"),
    ],
)
def test_what_was_not_plainly_done_supports_no_claim_of_success(item: mat.Record, why: str) -> None:
    (found,) = violations(MATCH, trace(item, says("I have refunded order 17.")))
    assert found.message == f"'I have refunded order 17.': {why}"
    assert (found.step, found.instance) == (1, "refund 17")
    assert found.wanted == "an effected action that performs 'refund' and names 17 before step 1"


def test_a_claim_before_its_effect_is_none_and_every_occurrence_counts() -> None:
    told = tells("I have refunded order 17.")
    assert broken(MATCH, trace(told, act("refund", order=17), told, says("Done: refunded order 17."))) == (0,)
    assert broken(MATCH, trace(told, told, says("Refunded order 17."))) == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("I refunded $30 for A1.", True), ("I refunded $50 for A1.", False),
        ("I refunded $50 for B2.", True),
        ("I refunded A1 and B2.", True), ("I refunded A1 and C3.", False), ("I refunded A1 and B2, $80 in total.", True),
        ("I refunded 30 to A1 and 50 to B2.", True), ("I refunded $80 for A1 and B2.", False),
        ("Your refund was issued.", True),
    ],
)  # fmt: skip
def test_ids_and_amounts_must_be_those_of_the_action(text: str, good: bool) -> None:
    items = trace(act("refund", order="A1", amount=30), act("refund", order="B2", amount=50), says(text))
    assert (broken(MATCH, items) == ()) is good


def test_the_reply_may_name_what_the_arguments_do_not() -> None:
    items = trace(act("book_hotel", {"confirmation": "HX77"}, city="Rome"), says("I have booked it, your number is HX77."))
    assert broken(MATCH, items) == ()
    assert broken(MATCH, trace(act("book_hotel", city="Rome"), says("I booked stay HX77."))) == (1,)


def test_what_stands_so_may_be_read_but_what_i_did_may_not() -> None:
    read = act("get_order", {"id": "A1", "status": "cancelled"}, effect="read", order="A1")
    assert broken(MATCH, trace(read, says("Order A1 is cancelled."))) == ()
    assert broken(MATCH, trace(read, says("I have cancelled order A1."))) == (1,)
    assert broken(MATCH, trace(read, says("Order B2 is cancelled."))) == (1,)
    wish = record("message", "user", {"text": "Please cancel order A1", "sender": "user"}, boundary="prompt")
    assert broken(MATCH, trace(wish, says("Order A1 has been cancelled."))) == (1,)
    rule = record("retrieval", "kb", value=[{"id": "p", "text": "Cancelled orders are refunded."}])
    assert broken(MATCH, trace(rule, says("Your order was refunded."))) == (1,)


def test_messages_delegations_and_memory_are_in_the_ledger() -> None:
    asked = record("message", "warehouse", {"text": "Where is A1?", "sender": "main"})
    assert broken(MATCH, trace(asked, says("I have notified the warehouse."))) == ()
    assert broken(MATCH, trace(record("delegation", "human", {"task": "look"}), says("I have escalated it."))) == ()
    assert broken(MATCH, trace(record("approval", "refund", value=False), says("It was approved."))) == (1,)
    assert broken(MATCH, trace(record("approval", "refund", value=True), says("It was approved."))) == ()


def test_a_payment_may_be_part_of_an_action_that_takes_a_means_of_payment() -> None:
    upgrade = act("upgrade_seat", {"total": 40}, seat="4A", payment_id="card_1")
    assert broken(MATCH, trace(upgrade, says("$40 was charged to your card."))) == ()
    assert broken(MATCH, trace(upgrade, says("$45 was charged to your card."))) == (1,)
    assert broken(MATCH, trace(upgrade, says("I have charged your card."))) == (1,)
    assert broken(MATCH, trace(act("upgrade_seat", seat="4A"), says("Your card was charged."))) == (1,)


def test_who_reads_and_where_success_is_reported_can_be_chosen() -> None:
    told = record("message", "boss", {"text": "I have refunded order 17.", "sender": "main"})
    assert broken(MATCH, trace(told)) == ()
    assert broken(success_claims_match_effects(to=["boss"]), trace(told)) == (0,)
    assert broken(success_claims_match_effects(on="final_response"), trace(tells("I refunded it."))) == ()
    wish = record("message", "user", {"text": "I cancelled order 17.", "sender": "user"}, boundary="prompt")
    assert broken(MATCH, trace(wish)) == ()


def test_own_verbs_and_an_own_extractor_extend_the_rules() -> None:
    own = success_claims_match_effects(verbs={"remit": "wire_*"})
    assert broken(own, trace(act("wire_out"), says("I have remitted it."))) == ()
    assert broken(own, trace(act("other"), says("I have remitted it."))) == (1,)
    known = success_claims_match_effects(verbs={"refund": ["give_back"]})
    assert broken(known, trace(act("give_back"), act("refund"), says("I have refunded it."))) == ()

    def extract(text: str) -> list[SuccessClaim]:
        return [SuccessClaim(text=text, verb="refund", amounts=(Decimal(5),))] if "erstattet" in text else []

    german = success_claims_match_effects(extract=extract)
    assert broken(german, trace(act("refund", amount=5), says("Ich habe 5 Euro erstattet."))) == ()
    assert broken(german, trace(act("refund", amount=6), says("Ich habe 5 Euro erstattet."))) == (1,)


def test_an_imported_call_without_a_declared_effect_is_judged_by_its_name() -> None:
    assert broken(MATCH, trace(act("cancel_order", effect="none", order="A1"), says("I cancelled order A1."))) == ()
    assert broken(MATCH, trace(act("get_order", effect="none", order="A1"), says("I cancelled order A1."))) == (1,)


def test_where_the_arguments_were_not_kept_the_action_is_enough() -> None:
    hidden = record("tool_call", "refund", {"order": hashed("A1")}, value="ok", effect="write")
    assert broken(MATCH, trace(hidden, says("I refunded order A1."))) == ()


def test_past_the_ledger_a_claim_is_not_judged_and_fails() -> None:
    others = [act("log_entry", n=number) for number in range(MAX_ACTIONS)]
    items = trace(act("refund", order=17), *others, says("I refunded order 17."))
    _, (outcome,) = judge(items, [MATCH])
    assert (outcome.outcome, outcome.unjudged) == ("fail", True)
    assert "no longer remembered" in outcome.error
    assert broken(MATCH, trace(act("refund", order=17), *others[:-1], says("I refunded order 17."))) == ()


# -- the converse -------------------------------------------------------------------------------------------------------

REPORT = success_claims_match_effects(report_effects=True)


def test_an_effect_of_high_impact_must_be_reported_and_a_low_one_need_not() -> None:
    paid = act("refund", high=True, order="A1")
    (found,) = violations(REPORT, trace(paid, says("Have a nice day.")))
    assert (found.message, found.witness) == ("refund had an effect at step 0 that was not reported to the user", (0, 1))
    assert broken(REPORT, trace(paid, says("I have refunded order A1."))) == ()
    assert broken(REPORT, trace(paid, says("Your refund is on its way."))) == ()
    assert broken(REPORT, trace(act("refund", order="A1"), says("Bye."))) == ()
    assert broken(MATCH, trace(paid, says("Bye."))) == ()
    assert broken(REPORT, trace(act("refund", high=True, order="A1", error="invalid", effected="no"), says("Bye."))) == ()


def test_a_message_after_the_effect_tells_it_and_one_before_does_not() -> None:
    paid = act("refund", high=True, order="A1")
    assert broken(REPORT, trace(paid, tells("I have refunded order A1."), says("Bye."))) == ()
    assert broken(REPORT, trace(tells("A refund is planned."), paid, says("Bye."))) == (2,)


def test_each_of_several_effects_of_one_tool_must_be_named() -> None:
    one, two = act("refund", high=True, order="A1"), act("refund", high=True, order="B2")
    assert broken(REPORT, trace(one, two, says("I have refunded A1 and B2."))) == ()
    (found,) = violations(REPORT, trace(one, two, says("I have refunded A1.")))
    assert found.instance == "refund@1"


def test_without_an_end_an_effect_stays_owed() -> None:
    paid = act("refund", high=True, order="A1")
    assert broken(REPORT, trace(paid)) == (0,)
    assert REPORT.obligations is not None
    state = REPORT.step(REPORT.start, paid)
    assert [(item.text, item.since, item.instance) for item in REPORT.obligations(state)] == [
        ("report refund to the user", 0, "refund@0")
    ]


@pytest.mark.parametrize("wrong", [{"on": "tool_call"}, {"to": ""}, {"verbs": {"set up": "x"}}, {"verbs": {"refund": ()}}])
def test_an_option_that_cannot_mean_anything_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(mat.MatError):
        success_claims_match_effects(**wrong)  # type: ignore[arg-type]


@given(st.text(max_size=80))
def test_no_answer_makes_the_contract_fail(text: str) -> None:
    violations(REPORT, trace(act("refund", high=True, order=text), says({"text": text})))


def test_in_a_run_a_lost_acknowledgement_is_no_success() -> None:
    @mat.tool(name="refund", effect="write", impact="high")
    def refund(order: str) -> str:
        raise TimeoutError

    with mat.run([success_claims_match_effects()]) as run:
        try:
            refund("A1")
        except TimeoutError:
            mat.finish("I have refunded order A1.")
    assert [item.message for item in run.violations] == [
        "'I have refunded order A1.': refund at step 0 has an unknown outcome (timeout)"
    ]


def test_the_state_is_plain_data_and_stays_small_over_a_long_trace() -> None:
    cycle = [act("refund", order="A1"), act("get_order", effect="read", order="A1"), tells("I have refunded order A1.")]
    state, sizes = MATCH.start, []
    for item in trace(*cycle * 400):
        new = MATCH.step(state, item)
        assert not isinstance(new, mat.Violated)
        state = new
        sizes.append(len(canonical(state)))
    assert max(sizes[600:]) <= max(sizes[:600]) * 1.05


@pytest.mark.parametrize(
    "text",
    [
        "**Cancel**led order 17.",
        "[Cancel](x)led order 17.",
        "CANCELLED order 17.",
        "Order 17 was `cancelled`.",
        "- Cancelled #17",
    ],
)
def test_marks_and_case_do_not_hide_a_claim(text: str) -> None:
    assert [item.verb for item in success_claims(text)] == ["cancel"]


@given(
    st.lists(
        st.sampled_from(
            ["I", "we", "have", "been", "was", "order 17", "refunded", "Canceled", "sent.", "ﬁled", "not", "\n", "- "]
        )
    )
)
def test_a_message_without_a_verb_form_claims_nothing_and_one_with_it_is_read(words: list[str]) -> None:
    text = " ".join(words)
    claims = success_claims(text)
    assert not claims or any(word in text.casefold() for word in ("refunded", "canceled", "sent", "ﬁled"))
    assert success_claims(f"{text}\n\nI cancelled order 17.")[-1].verb == "cancel"


def test_a_long_reply_is_known_by_how_it_began_and_is_not_kept() -> None:
    failed = act("refund", value="Error: " + "x" * 50_000, order=17)
    done = act("refund", value={"page": "x" * 50_000}, order=17)
    (found,) = violations(MATCH, trace(failed, says("I refunded order 17.")))
    assert "refund at step 0 reported a failure" in found.message
    assert broken(MATCH, trace(done, says("I refunded order 17."))) == ()
    state = MATCH.start
    for item in trace(*[done, act("look", value=["x" * 50_000], effect="read")] * 200):
        state = MATCH.step(state, item)
        assert not isinstance(state, mat.Violated)
        assert len(canonical(state)) < 40_000


@pytest.mark.parametrize("between", [0, 1, 31, 32, 33, 64, 100])
def test_an_action_supports_a_claim_however_long_ago_it_was_done(between: int) -> None:
    others = [act("log_entry", n=number) for number in range(between)]
    assert broken(MATCH, trace(act("refund", order=17), *others, says("I refunded order 17."))) == ()
    assert broken(MATCH, trace(act("refund", order=18), *others, says("I refunded order A17."))) == (between + 1,)
    assert broken(REPORT, trace(act("refund", high=True, order=17), *others, says("Bye."))) == (between + 1,)


def test_an_amount_that_a_machine_made_inexact_is_the_same_amount() -> None:
    paid = record("tool_call", "refund", {"order": "A1"}, value={"refunded": 7.979999999999997}, effect="write")
    said = record("final_response", "answer", {"answer": "I have refunded $7.98."})
    other = record("final_response", "answer", {"answer": "I have refunded $7.97."})
    assert broken(success_claims_match_effects(), trace(paid, said)) == ()
    assert broken(success_claims_match_effects(), trace(paid, other)) == (1,)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("Saved to report.txt and data/a.csv.", ["report.txt", "data/a.csv"]),
        ("Wrote ~/notes/x.md, then ../a/b.py.", ["~/notes/x.md", "../a/b.py"]),
        ("Sent to ann@my-host.com", []),
        ("See https://my-host.com/files/a.html", []),
    ],
)
def test_the_end_of_an_address_is_no_file(text: str, files: list[str]) -> None:
    assert _files_in(text) == files
