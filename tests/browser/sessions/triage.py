"""A triage agent with more calls than the search may try, and one that fails under faults."""

import pytest

import mat
from mat_contracts import no_duplicate_effect


@mat.tool(effect="read")
def look_up(ticket):
    return {"ticket": ticket, "state": "open"}


@mat.tool(effect="write")
def close(ticket):
    return {"closed": ticket}


@pytest.fixture
def closed_once():
    return no_duplicate_effect("close", key="ticket")


@pytest.mark.mat(budget=12)
def test_many_tickets_are_closed(mat_run, closed_once):
    with mat.agent("triage"):
        for number in range(12):
            try:
                if look_up(number).get("state") == "open":
                    close(number)
            except Exception:
                mat.mitigate("alternate")


@pytest.mark.mat(budget=4)
def test_a_ticket_is_closed(mat_run, closed_once):
    with mat.agent("triage"):
        ticket = look_up(7)["ticket"]
        assert close(ticket)["closed"] == 7


@pytest.mark.mat(budget=4)
def test_two_tickets_are_closed(mat_run, closed_once):
    with mat.agent("triage"):
        for number in (1, 2):
            look_up(number)
            close(number)
