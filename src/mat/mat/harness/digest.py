"""State digests: what a user vouches for about a system's state, so that the search can merge states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The state of agents and services as plain data, read at each ask; the fixture `mat_state_digest` returns one.

    `function` takes nothing and returns the data. By itself it adds to what the search compares. `complete=True` lets it
    replace the history: the user vouches that the data, with the monitors' states, decides everything that follows.
    `clock=False` says, in addition, that neither agents nor contracts look at the time, so that states at different times can
    be equal. `concolic=True` says that what ports reply stays in Python code: numbers in perturbed replies may then be
    delivered as proxies that record the decisions taken on them. The search checks all of this on samples.

    >>> orders = {"A17": "paid"}
    >>> digest = mat.spec.StateDigest(lambda: sorted(orders.items()), complete=True)
    >>> digest.function(), digest.complete, digest.clock
    ([('A17', 'paid')], True, True)

    Source: A3.2.
    """

    function: Callable[[], object]
    complete: bool = False
    clock: bool = True
    concolic: bool = False
