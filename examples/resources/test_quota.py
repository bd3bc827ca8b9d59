"""Three searches in total for concurrent finders."""

from __future__ import annotations

import asyncio

import pytest

from resources.quota import Notes, by_contract, by_contract_in_tasks, by_counter


def in_threads(notes):
    by_contract(notes)


def in_tasks(notes):
    asyncio.run(by_contract_in_tasks(notes))


concurrently = pytest.mark.parametrize("working", [in_threads, in_tasks], ids=["threads", "tasks"])


@pytest.mark.mat(faults=["order.hold"], budget=5, expect={"searches.limited"})
def test_a_counter_that_is_looked_at_first_and_lowered_later_can_be_overdrawn(mat_run, searches_are_limited):
    notes = Notes()
    by_counter(notes)
    assert (len(notes.found), notes.missing) == (3, ["returns"])


@concurrently
@pytest.mark.mat(faults=["order.hold", "service.timeout", "service.lost_ack"], budget=9)
def test_a_limit_on_a_parent_holds_in_its_whole_tree_in_any_order_and_under_faults(
    mat_run, working, searches_are_limited, budget_is_conserved
):
    notes = Notes()
    working(notes)
    assert (len(notes.found), len(notes.missing)) == (3, 1)
