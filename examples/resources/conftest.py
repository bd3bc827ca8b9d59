"""The contracts of the runs, as fixtures. A test arms the contracts that it requests."""

from __future__ import annotations

from typing import Any

import pytest

import mat
from mat_contracts.resource import conserved, exactly_one_terminal_state, no_spend_after_terminal, within_budget
from resources.quota import SEARCHES


@pytest.fixture
def searches_are_limited() -> mat.Contract:
    """Checks the world, not a ledger: the search engine must not be asked more often, whoever counts."""

    @mat.trace_contract(start=0, on="tool_call", id="searches.limited", repair="reserve the search before it begins")
    def judged(done: int, record: mat.Record) -> Any:
        """The search engine is asked three times at most."""
        if record.action.name != "web_search":
            return done
        done += record.invoked
        return done if done <= SEARCHES else mat.Violated(f"it was asked {done} times", state=done)

    return judged


@pytest.fixture
def budget_is_conserved() -> mat.Contract:
    return conserved(id="budget.conserved")


@pytest.fixture
def budgets_are_kept() -> mat.Contract:
    return within_budget(id="budgets.kept")


@pytest.fixture
def contracts_end_once() -> mat.Contract:
    return exactly_one_terminal_state(id="contracts.end_once")


@pytest.fixture
def nothing_is_spent_after_the_end() -> mat.Contract:
    return no_spend_after_terminal(id="end.is_the_end")
