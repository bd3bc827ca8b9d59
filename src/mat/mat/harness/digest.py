"""State digests: what a user vouches for about a system's state, so that the search can merge states (DESIGN decision 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The state of agents and services as plain data, read at each ask; the fixture `mat_state_digest` returns one.

    By itself it adds to what the search compares. `complete=True` lets it replace the history: the user vouches
    that the data, with the monitors' states, decides everything that follows. `clock=False` says, in addition, that neither
    agents nor contracts look at the time (no clock, no time-outs), so that states at different times can be equal.
    `concolic=True` says that what ports reply stays in Python code: numbers in perturbed replies may then be delivered as
    proxies that record the decisions taken on them. The search checks all of this on samples.
    """

    function: Callable[[], object]
    complete: bool = False
    clock: bool = True
    concolic: bool = False
