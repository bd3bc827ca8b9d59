from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.effect import Raise
from mat.monitor.judge import judge
from mat.monitor.triggers import Triggers
from mat_contracts import no_duplicate_effect
from mat_contracts.idempotency import BUFFERED, MAX_EFFECTS
from mat_contracts.traces import broken, record, trace, violations


def refund(order: str = "A", amount: int = 5, tool: str = "refund", **given: object) -> mat.Record:
    return record("tool_call", tool, {"order": order, "amount": amount}, effect="write", **given)  # type: ignore[arg-type]


LOST = refund(error="timeout")
BLOCKED = refund(blocked=True)


def test_by_default_all_arguments_make_the_effect() -> None:
    items = trace(refund(), refund(amount=6), refund("B"), refund())
    assert broken(no_duplicate_effect("refund"), items) == (3,)
    assert broken(no_duplicate_effect("refund", key="order"), items) == (1, 3)
    assert broken(no_duplicate_effect("refund", key=["amount", "order"]), items) == (3,)
    assert broken(no_duplicate_effect("refund", key=lambda arguments: arguments["amount"] > 5), items) == (2, 3)


def test_the_message_and_the_witness_name_both_steps() -> None:
    found = violations(no_duplicate_effect("refund"), trace(refund(), refund("B"), refund(), refund()))
    assert [(item.message, item.witness, item.region) for item in found] == [
        ("refund had the same effect at steps 0 and 2", (0, 2), (0, 2)),
        ("refund had the same effect at steps 2 and 3", (2, 3), (2, 3)),
    ]


@pytest.mark.parametrize("key", [None, "order", lambda arguments: arguments["order"], lambda arguments: [arguments["order"]]])
def test_values_of_different_types_and_long_ones_make_different_effects(key: object) -> None:
    values = [1, True, None, [1], {"n": 1}, 2**80, 2**80 + 1, "x" * 65, "x" * 64, "x" * 64 + "y", "1" * 65, "01", "1 EUR-cent"]
    once = [record("tool_call", "refund", {"order": value}, effect="write") for value in values]
    judged = no_duplicate_effect("refund", key=key)  # type: ignore[arg-type]
    assert broken(judged, trace(*once)) == ()
    assert broken(judged, trace(*once, *once)) == tuple(range(len(once), 2 * len(once)))


def test_the_order_of_the_arguments_makes_no_other_effect() -> None:
    one, two = (record("tool_call", "pay", arguments, effect="write") for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert broken(no_duplicate_effect("pay"), trace(one, two)) == (1,)


@pytest.mark.parametrize("idempotency", ["", "amount"])
def test_an_effect_is_remembered_however_many_came_after_it(idempotency: str) -> None:
    many = [refund(str(number), amount=number) for number in range(BUFFERED * 5)]
    judged = no_duplicate_effect("refund", key="order", idempotency=idempotency)
    again = [
        refund(str(number), amount=number + 10_000) for number in (0, BUFFERED - 1, BUFFERED, BUFFERED * 4, BUFFERED * 5 - 1)
    ]
    assert broken(judged, trace(*many, *again)) == tuple(range(len(many), len(many) + len(again)))
    found = violations(judged, trace(*many, *again))
    assert [item.witness[0] for item in found] == [0, BUFFERED - 1, BUFFERED, BUFFERED * 4, BUFFERED * 5 - 1]


def test_another_tool_has_another_effect() -> None:
    judged = no_duplicate_effect(["refund", "pay"])
    assert broken(judged, trace(refund(), refund(tool="pay"), refund(tool="log"), refund(tool="log"))) == ()
    assert broken(judged, trace(refund(), refund(tool="pay"), refund(tool="pay"))) == (2,)


def test_blocked_and_failed_calls_have_no_effect() -> None:
    assert broken(no_duplicate_effect("refund"), trace(BLOCKED, refund(), BLOCKED, refund(effected="no"))) == ()


def test_an_unknown_effect_is_no_violation_until_two_are_sure_and_then_it_is_named() -> None:
    judged = no_duplicate_effect("refund")
    assert broken(judged, trace(LOST, refund())) == ()
    assert broken(judged, trace(refund(), LOST)) == ()
    (found,) = violations(judged, trace(LOST, refund(), refund()))
    assert found.message == "refund had the same effect at steps 1 and 2; the call at step 0 may have had it as well"
    assert found.witness == (1, 2)


def test_one_call_that_ran_its_port_twice_did_it_twice() -> None:
    (found,) = violations(no_duplicate_effect("refund"), trace(refund(invoked=2)))
    assert (found.message, found.witness) == ("the one call at step 0 ran refund 2 times", (0,))
    assert broken(no_duplicate_effect("refund"), trace(refund(invoked=2, error="timeout"), refund())) == (0, 1)


def test_a_lost_acknowledgement_whose_effect_is_known_counts() -> None:
    assert broken(no_duplicate_effect("refund"), trace(refund(error="timeout", effected="yes"), refund())) == (1,)


def test_a_key_that_is_not_there_fails() -> None:
    _, (outcome,) = judge(trace(refund()), [no_duplicate_effect("refund", key="orders")])
    assert outcome.outcome == "fail"
    assert "a call has no argument 'orders'; it has amount, order" in outcome.error


def test_more_effects_than_it_remembers_fail_never_passed() -> None:
    items = trace(*[refund(str(number)) for number in range(MAX_EFFECTS + 1)])
    assert broken(no_duplicate_effect("refund"), items[:-1]) == ()
    _, (outcome,) = judge(items, [no_duplicate_effect("refund")])
    assert outcome.outcome == "fail"
    assert f"more than {MAX_EFFECTS} different effects" in outcome.error


def keyed(order: str = "A", amount: int = 5, key: object = "k1", **given: object) -> mat.Record:
    arguments = {"order": order, "amount": amount} | ({} if key is None else {"key": key})
    return record("tool_call", "refund", arguments, effect="write", **given)  # type: ignore[arg-type]


def repeats(*records: mat.Record, key: object = None) -> tuple[int, ...]:
    return broken(no_duplicate_effect("refund", key=key, idempotency="key"), trace(*records))  # type: ignore[arg-type]


def test_calls_with_one_idempotency_key_are_one_effect_however_often_they_are_sent() -> None:
    assert repeats(keyed(), keyed(), keyed(invoked=3)) == ()
    assert repeats(keyed(invoked=2), keyed(error="timeout", invoked=2)) == ()
    assert repeats(keyed(error="timeout"), keyed(), keyed()) == ()
    assert broken(no_duplicate_effect("refund", key="order"), trace(keyed(), keyed())) == (1,)  # nobody said what the key is


def test_another_key_or_none_repeats_an_effect_that_was_or_may_have_been_done() -> None:
    assert repeats(keyed(), keyed(key="k2")) == (1,)
    assert repeats(keyed(), keyed(key=None)) == (1,)
    assert repeats(keyed(key=None), keyed(key=None)) == (1,)
    assert repeats(keyed(key=""), keyed(key="")) == (1,)
    assert repeats(keyed(), keyed("B", key="k2"), keyed(amount=6, key="k3")) == ()
    assert repeats(keyed(), keyed(amount=6, key="k3"), key="order") == (1,)
    assert repeats(keyed(blocked=True), keyed(key="k2"), keyed(effected="no", key="k3")) == ()
    assert repeats(keyed(error="timeout"), keyed(key="k2")) == (1,)
    assert repeats(keyed(error="timeout"), keyed(key=None)) == (1,)
    assert repeats(keyed(key=None, invoked=2)) == (0,)


def test_one_key_for_two_different_calls_is_a_violation_that_names_both() -> None:
    contract = no_duplicate_effect("refund", idempotency="key")
    (found,) = violations(contract, trace(keyed(), keyed("B")))
    assert found.message == "refund at step 1 carries the key of step 0 with other arguments"
    assert (found.witness, found.wanted) == ((0, 1), "a new key for another effect, or the arguments of step 0")
    assert repeats(keyed(), keyed("B"), keyed("B"), keyed()) == (1, 2)
    other = record("tool_call", "pay", {"order": "B", "key": "k1"}, effect="write")
    assert broken(no_duplicate_effect(["refund", "pay"], idempotency="key"), trace(keyed(), other)) == ()


def test_the_message_says_whether_the_first_was_done_or_may_have_been() -> None:
    contract = no_duplicate_effect("refund", idempotency="key")
    (sure,) = violations(contract, trace(keyed(error="timeout"), keyed(), keyed(key="k2")))
    (doubt,) = violations(contract, trace(keyed(error="timeout"), keyed(key=None)))
    assert sure.message == "refund at step 2, sent with another key, repeats an effect that the call at step 0 had"
    assert doubt.message == "refund at step 1, sent with no key, repeats an effect that the call at step 0 may have had"


def test_keys_are_bounded_like_effects_and_retries_take_no_room() -> None:
    contract = no_duplicate_effect("refund", key="order", idempotency="key")
    assert broken(contract, trace(*[keyed() for _ in range(MAX_EFFECTS * 2)])) == ()
    _, (outcome,) = judge(trace(*[keyed(str(at), key=f"k{at}") for at in range(MAX_EFFECTS + 1)]), [contract])
    assert (outcome.outcome, "different effects" in outcome.error) == ("fail", True)


def test_a_name_of_no_parameter_is_refused() -> None:
    with pytest.raises(mat.MatError, match="is not a parameter"):
        no_duplicate_effect("refund", idempotency=3)  # type: ignore[arg-type]


calls = st.builds(
    refund, st.sampled_from("AB"), st.integers(1, 2), st.sampled_from(["refund", "pay"]),
    effected=st.sampled_from(["yes", "no", "unknown"]), invoked=st.sampled_from([1, 1, 1, 2]),
)  # fmt: skip


@pytest.mark.full
@settings(max_examples=300)
@given(st.lists(calls, max_size=12), st.sampled_from([None, "order"]))
def test_it_agrees_with_comparing_every_pair_of_the_trace(items: list[mat.Record], key: str | None) -> None:
    def same(one: mat.Record, two: mat.Record) -> bool:
        if key is None:
            return one.action.arguments == two.action.arguments
        return bool(one.action.arguments[key] == two.action.arguments[key])

    def done(item: mat.Record) -> bool:
        return item.action.name == "refund" and item.effected != "no" and (item.effected == "yes" or item.invoked > 1)

    expected = tuple(
        at
        for at, item in enumerate(items)
        if done(item) and (item.invoked > 1 or any(done(other) and same(item, other) for other in items[:at]))
    )
    assert broken(no_duplicate_effect("refund", key=key), trace(*items)) == expected


def test_in_a_run_a_retry_after_a_lost_acknowledgement_is_found_with_its_fault() -> None:
    paid: list[str] = []

    @mat.tool(effect="write", name="refund")
    def pay_back(order: str) -> str:
        paid.append(order)
        return "ok"

    lost = mat.spec.operator("service.lost", lambda call, reply, stream: Raise("timeout"), phase="after")
    fault = mat.spec.perturbation("service.lost", "main/service:refund#1")
    with mat.run([no_duplicate_effect("refund", key="order")], schedule=[fault], operators=[lost]) as run:
        with pytest.raises(TimeoutError):
            pay_back("A")
        pay_back("A")
        mat.finish("done")
    assert paid == ["A", "A"]
    assert [(item.step, item.witness) for item in run.violations] == [(1, (0, 1))]


def test_as_a_policy_it_stops_the_second_effect_before_it_happens() -> None:
    paid: list[str] = []

    @mat.tool(effect="write", name="refund")
    def pay_back(order: str) -> str:
        paid.append(order)
        return "ok"

    with mat.run([no_duplicate_effect("refund", policy="block")]) as run:
        pay_back("A")
        pay_back("B")
        with pytest.raises(mat.Blocked):
            pay_back("A")
        mat.finish("done")
    assert paid == ["A", "B"]
    assert run.violations == ()


BOOK = "POST flights.test/bookings"


def booked(header_key: str, **body: str) -> mat.Record:
    header = {"idempotency-key": header_key} if header_key else {}
    return record("tool_call", BOOK, {"path": "/bookings", "body": body, **header}, effect="write")


def test_the_header_of_an_http_request_is_an_idempotency_key_in_any_spelling() -> None:
    once = no_duplicate_effect(BOOK, key="body.offer", idempotency="Idempotency-Key")
    assert broken(once, trace(booked("k1", offer="LH1"), booked("k1", offer="LH1"), booked("k2", offer="LH2"))) == ()
    assert broken(once, trace(booked("k1", offer="LH1"), booked("k2", offer="LH1"))) == (1,)
    assert broken(once, trace(booked("k1", offer="LH1"), booked("", offer="LH1"))) == (1,)


def test_a_member_of_an_argument_identifies_an_effect_or_a_retry() -> None:
    by_offer = no_duplicate_effect(BOOK, key="body.offer")
    assert broken(by_offer, trace(booked("", offer="LH1", note="a"), booked("", offer="LH1", note="b"))) == (1,)
    for key in (None, "body", "body.offer"):
        keyed = no_duplicate_effect(BOOK, key=key, idempotency="body.key")
        assert broken(keyed, trace(booked("", offer="LH1", key="k1"), booked("", offer="LH1", key="k1"))) == ()
        assert broken(keyed, trace(booked("", offer="LH1", key="k1"), booked("", offer="LH1", key="k2"))) == (1,)
        assert broken(keyed, trace(booked("", offer="LH1", key="k1"), booked("", offer="LH2", key="k2"))) == ()


def test_a_contract_on_a_misspelt_endpoint_is_vacuous_and_one_on_a_member_of_a_body_is_not() -> None:
    right = no_duplicate_effect(BOOK, key="body.offer")
    wrong = no_duplicate_effect(BOOK[:-1], key="body.offer", id="misspelt")
    triggers = Triggers([right, wrong])
    triggers.note(trace(booked("", offer="LH1")))
    assert triggers.waiting == ("misspelt",)
    assert f"did you mean {BOOK!r}?" in triggers.vacuous([])[0].reason
