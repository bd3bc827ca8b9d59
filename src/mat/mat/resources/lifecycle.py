"""The lifecycle of a resource contract: DRAFTED -> ACTIVE -> one of four terminal states (Sec. 4.3).

The papers' conditions overlap: with a budget used up exactly, a contract would be VIOLATED and may be FULFILLED at once; out
of time, it is both VIOLATED and EXPIRED. Here they do not overlap. While consumption equals the budget, further calls are
blocked, but the contract is not violated. If consumption is larger, which only a call in flight can cause, it is VIOLATED.
When its time has run out, it is EXPIRED. When the success criteria are met within all budgets and in time, it is FULFILLED.
Anything else that ends a contract makes it TERMINATED, with a cause.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from mat.core.errors import SpecError

LifecycleState: TypeAlias = Literal["drafted", "active", "fulfilled", "violated", "expired", "terminated"]
TERMINAL_STATES: Final[frozenset[LifecycleState]] = frozenset(("fulfilled", "violated", "expired", "terminated"))
TRANSITIONS: Final[dict[LifecycleState, frozenset[LifecycleState]]] = {
    "drafted": frozenset(("active", "terminated")),
    "active": TERMINAL_STATES,
    "fulfilled": frozenset(),
    "violated": frozenset(),
    "expired": frozenset(),
    "terminated": frozenset(),
}
"""state -> the states that may follow it. A draft that is never activated ends TERMINATED: every contract ends once."""


def transition(state: LifecycleState, to: LifecycleState, contract: str) -> LifecycleState:
    """The new state; SpecError if the lifecycle has no such transition."""
    if to not in TRANSITIONS[state]:
        after = ", ".join(sorted(TRANSITIONS[state]))
        raise SpecError(
            what=f"contract {contract} cannot go from {state} to {to}",
            why=f"from {state} it can only go to {after}" if after else f"{state} is terminal: a contract ends once",
            fix="draft a new contract for new work" if not after else "see mat.resources.lifecycle.TRANSITIONS",
        )
    return to
