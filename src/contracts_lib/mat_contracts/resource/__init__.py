"""Contracts on what agents consume (Agent Contracts, Sec. 4 to 6): budgets, conservation, lifecycle, delegation, deadlines.

Those that audit a ledger read nothing but its entries in the trace (`mat.core.resources.entries_of`): the `contract` records,
and what calls' own records say was reserved and settled. They share no code with the ledger that wrote them. `within_budget`
and `deadline_met` also judge traces that know no resource contracts, such as imported ones.
"""

from mat_contracts.resource.audit import (
    conserved,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
)
from mat_contracts.resource.limits import deadline_met, within_budget

__all__ = [
    "conserved",
    "deadline_met",
    "delegation_within_parent",
    "exactly_one_terminal_state",
    "no_spend_after_terminal",
    "reserve_kept",
    "utilisation_monotone",
    "within_budget",
]
