"""The contracts of every run under resource contracts. They judge the trace; none of them stops anything."""

from __future__ import annotations

import mat
from mat_contracts.resource import (
    conserved,
    deadline_met,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
    within_budget,
)


def laws() -> tuple[mat.Contract, ...]:
    """Contracts that hold whatever the agents do. A violation is a fault of the ledger."""
    return (
        conserved(id="law.conserved"),
        exactly_one_terminal_state(id="law.one_end"),
        no_spend_after_terminal(id="law.nothing_after_the_end"),
        utilisation_monotone(id="law.monotone"),
        delegation_within_parent(id="law.within_parent"),
        reserve_kept(id="law.reserve"),
    )


def limits() -> tuple[mat.Contract, ...]:
    """Contracts that a call in flight can break, because its consumption and duration are not known in advance."""
    return within_budget(id="limit.budget"), deadline_met(id="limit.time")


def promises() -> tuple[mat.Contract, ...]:
    return (*laws(), *limits())
