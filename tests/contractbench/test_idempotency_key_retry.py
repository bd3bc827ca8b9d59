from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "idempotency-key-retry"


def invoice(fate):
    """The invoice whose first answer is lost, slow or down."""
    given = the_task(ID).given(0)
    return given["invoices"][given["fates"].index(fate)]


async def key_of(tools, of):
    return (await tools.http("POST", f"{BASE}/intents", json={"invoice": of["id"]}))["idempotency_key"]


async def pay(tools, of, key, **change):
    body = {"amount": of["amount"], "currency": of["currency"], **change}
    headers = {} if key is None else {"Idempotency-Key": key}
    whole = {name: value for name, value in body.items() if value is not None}
    return await tools.http("POST", f"{BASE}/invoices/{of['id']}/payment", json=whole, headers=headers)


def paying(early=0.0, invoices=None):
    """An agent that repeats until a reply says that an invoice is paid, at the very end of each wait or before."""

    async def agent(instruction, tools):
        for of in the_task(ID).given(0)["invoices"] if invoices is None else invoices:
            key = await key_of(tools, of)
            for _ in range(5):
                reply = await pay(tools, of, key)
                if reply.ok:
                    break
                await tools.wait(reply.retry_after() - 2 - early)

    return agent


def test_a_retry_at_the_very_end_of_the_wait_is_accepted(play_with):
    assert play_with(ID, paying())[0].success


def test_a_retry_a_moment_too_early_violates_the_backoff(play_with):
    result, events = play_with(ID, paying(early=0.5))
    assert result.failure_label == "BACKOFF_VIOLATION"
    assert next(event for event in events if event.failure).status == 409


@pytest.mark.parametrize(("fate", "statuses"), [("lost", [504]), ("slow", [504, 409]), ("down", [503])])
def test_each_invoice_has_another_way_in_which_its_answer_is_lost(play_with, fate, statuses):
    _, events = play_with(ID, paying(invoices=[invoice(fate)]))
    assert [event.status for event in events] == [201, *statuses, 201]


def test_paying_once_more_with_a_new_key_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        await paying()(instruction, tools)
        await pay(tools, invoice("lost"), await key_of(tools, invoice("lost")))

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == ("WRONG_VALUE", 422)


def test_the_same_key_is_answered_the_same_however_often_it_comes(play_with):
    replies = []

    async def agent(instruction, tools):
        of = invoice("down")
        key = await key_of(tools, of)
        await pay(tools, of, key)
        await tools.wait(20)
        replies.extend([await pay(tools, of, key), await pay(tools, of, key)])

    play_with(ID, agent)
    assert replies[0].ok
    assert replies[0].body == replies[1].body


@pytest.mark.parametrize(
    ("change", "label", "status"),
    [
        (lambda key: None, "MISSING_CONSTRAINT", 400),
        (lambda key: key[:200], "OTHER", 422),
        (lambda key: key.lower(), "MUTATED_TOKEN", 422),
        (lambda key: "a-key-of-my-own", "WRONG_VALUE", 422),
        (lambda key: key, "OTHER", 503),
    ],
    ids=["none", "clipped", "lower case", "made up", "as it was"],
)
def test_a_key_is_labeled_by_what_became_of_it(play_with, change, label, status):
    async def agent(instruction, tools):
        await pay(tools, invoice("down"), change(await key_of(tools, invoice("down"))))

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, status)


def test_the_key_of_another_invoice_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        key = await key_of(tools, invoice("lost"))
        await key_of(tools, invoice("down"))
        await pay(tools, invoice("down"), key)

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_another_key_for_the_same_payment_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        of = invoice("lost")
        reply = await pay(tools, of, await key_of(tools, of))
        key = await key_of(tools, of)
        await tools.wait(reply.retry_after())
        await pay(tools, of, key)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == ("WRONG_VALUE", 422)


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.5, "OTHER")])
def test_a_key_is_kept_for_its_seconds_and_no_moment_less(play_with, early, label, monkeypatch):
    from contractbench.tasks.idempotency_key_retry import server

    monkeypatch.setattr(server, "KEEPS_S", 30)  # the episode ends before a key does

    async def agent(instruction, tools):
        key = await key_of(tools, invoice("down"))
        await tools.wait(30 - 2 - early)
        await pay(tools, invoice("down"), key)

    assert play_with(ID, agent)[0].failure_label == label


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"amount": "1.00"}, "WRONG_VALUE"),
        ({"currency": "XXX"}, "WRONG_VALUE"),
        ({"amount": None}, "MISSING_CONSTRAINT"),
        ({"currency": ["EUR"]}, "WRONG_VALUE"),
        ({"note": "thanks"}, "OTHER"),
    ],
)
def test_a_payment_is_what_the_invoice_says(play_with, change, label):
    async def agent(instruction, tools):
        await pay(tools, invoice("down"), await key_of(tools, invoice("down")), **change)

    assert play_with(ID, agent)[0].failure_label == label


def test_another_body_under_the_same_key_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        of = invoice("down")
        key = await key_of(tools, of)
        reply = await pay(tools, of, key)
        await tools.wait(reply.retry_after())
        await pay(tools, of, key, note="again")

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


@pytest.mark.parametrize("body", [None, [1], "INV-1", {"invoice": {}}])
def test_an_intent_that_says_no_invoice_is_a_wrong_value(play_with, body):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/intents", json=body)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[0].status) == ("WRONG_VALUE", 422)


@pytest.mark.parametrize("body", [None, [1], "120.00", {}])
def test_a_payment_without_its_fields_is_a_missing_constraint(play_with, body):
    async def agent(instruction, tools):
        headers = {"Idempotency-Key": await key_of(tools, invoice("down"))}
        await tools.http("POST", f"{BASE}/invoices/{invoice('down')['id']}/payment", json=body, headers=headers)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == ("MISSING_CONSTRAINT", 422)


@pytest.mark.parametrize(
    ("damage", "label"), [(lambda key: key[:200], "WRONG_VALUE"), (str.lower, "MUTATED_TOKEN"), (str, "OTHER")]
)
def test_a_key_that_is_damaged_between_attempts_is_another_key_as_well(play_with, damage, label):
    async def agent(instruction, tools):
        of = invoice("down")
        key = await key_of(tools, of)
        reply = await pay(tools, of, key)
        await tools.wait(reply.retry_after())
        await pay(tools, of, damage(key))

    assert play_with(ID, agent)[0].failure_label == label


def test_a_request_that_was_refused_may_be_mended_with_the_same_key(play_with):
    async def agent(instruction, tools):
        of = invoice("down")
        key = await key_of(tools, of)
        await pay(tools, of, key, amount=None)
        await pay(tools, of, key)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == ("MISSING_CONSTRAINT", 503)


def test_two_invoices_of_three_are_not_the_task(play_with):
    assert play_with(ID, paying(invoices=[invoice("lost"), invoice("slow")]))[0].failure_label == "OTHER"
