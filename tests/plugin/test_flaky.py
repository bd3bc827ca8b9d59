"""A violation that was seen once never ends green: what another process does not show is flaky, and fails."""

from __future__ import annotations

from typing import Any

import pytest

ID = "test_shop.py::test_refund"
AGENT = """
import os

IMPORTED = os.getpid()

@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    try:
        shop.refund("o1")
    except TimeoutError:
        if CONDITION:
            shop.refund("o1")
"""


@pytest.mark.full
def test_what_only_the_searching_process_shows_is_flaky_and_fails(shop: Any) -> None:
    shop.tests(AGENT.replace("CONDITION", "os.getpid() == IMPORTED"))
    session = shop.stress()
    item = session.items[ID]
    assert session.outcomes == {ID: "failed"}
    assert (item["status"], item["proven"], item["cost"]) == ("flaky", False, None)
    assert "flaky: no_double was broken under service.unconfirmed at main/service:refund#1" in session.failures[ID]
    assert "and again in 2 of 3 repetitions" in session.failures[ID]
    assert shop.replays == []
    assert "1 flaky" in session.text


@pytest.mark.full
def test_what_every_fresh_process_shows_and_this_one_does_not_is_a_counterexample(shop: Any) -> None:
    shop.tests(AGENT.replace("CONDITION", "os.getpid() != IMPORTED"))
    session = shop.stress()
    item = session.items[ID]
    assert session.outcomes == {ID: "failed"}
    assert (item["status"], item["proven"], item["cost"]) == ("counterexample", False, 4)
    assert "a run in a fresh process (service.unconfirmed at main/service:refund#1) differs at step" in item["reason"]
    assert len(shop.replays) == 1


@pytest.mark.full
def test_a_flaky_item_fails_whatever_is_expected(shop: Any) -> None:
    expecting = AGENT.replace("faults=FAULTS", 'faults=FAULTS, expect={"no_double"}')
    shop.tests(expecting.replace("CONDITION", "os.getpid() == IMPORTED"))
    session = shop.stress()
    assert session.outcomes == {ID: "failed"}
    assert session.items[ID]["status"] == "flaky"
