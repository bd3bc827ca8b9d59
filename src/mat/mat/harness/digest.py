"""What a user vouches for about the state of a system, so that the search may take two states for one (DESIGN decision 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The state of agents and services as plain data, read at each ask: what the fixture `mat_state_digest` may give.

    By itself it adds to what the search compares. `complete=True` lets it take the place of the history: the user vouches
    that the data, with the monitors' states, decides everything that follows. `clock=False` says besides that neither agents
    nor contracts look at the time (no clock, no time-outs), so that states at different times may be one.
    `concolic=True` says that what ports reply stays in Python code: numbers in perturbed replies may then be delivered as
    proxies that record the decisions taken on them. What is vouched for is checked on samples, and never taken on trust alone.
    """

    function: Callable[[], object]
    complete: bool = False
    clock: bool = True
    concolic: bool = False
