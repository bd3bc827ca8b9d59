"""Contracts on what agents consume (Agent Contracts, Sec. 4 to 6): budgets, conservation, lifecycle, delegation, deadlines.

The contracts that audit a ledger read only its entries in the trace (`mat.core.resources.entries_of`): the `contract` records,
and the reservations and settlements in the records of calls. They share no code with the ledger that wrote the entries.
`within_budget` and `deadline_met` also judge traces without resource contracts, such as imported ones.
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
