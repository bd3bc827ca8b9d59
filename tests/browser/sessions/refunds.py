"""A refund agent that pays twice when the reply of its payment is lost."""

from contextlib import suppress

import pytest

import mat
from mat_contracts import no_duplicate_effect


@mat.tool(effect="read")
def find_order(email):
    return {"order": "A17", "amount": 30, "email": email}


@mat.tool(effect="write", impact="high")
def pay(order, amount):
    return {"paid": amount, "order": order}


@mat.model("planner")
def plan(prompt):
    return {"text": "refund order A17", "usage": {"input_tokens": 31, "output_tokens": 6}}


def handle(email):
    with mat.agent("clerk"):
        plan(f"A customer writes: {email}. What should be done?")
        found = find_order(email)
        for _ in range(2):
            try:
                return pay(found["order"], found["amount"])
            except (TimeoutError, ConnectionError):
                mat.mitigate("retry")
    return None


@pytest.fixture
def paid_once():
    return no_duplicate_effect("pay", key="order")


@pytest.mark.mat(faults=["service.lost_ack", "service.timeout"], budget=4)
def test_refund_is_paid_once(mat_run, paid_once):
    handle("ann@example.org")


@pytest.mark.mat(faults=["service.timeout"], budget=4)
def test_an_order_is_found(mat_run, paid_once):
    with mat.agent("clerk"):
        with suppress(TimeoutError):
            find_order("ann@example.org")
        pay("A17", 30)
