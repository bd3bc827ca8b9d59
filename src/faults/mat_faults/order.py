"""Fault operators of the order boundary: interleavings of concurrent tasks, threads and agents (A3.4, A1.2).

Nothing is forced on a system but what its scheduler might do by itself: a call that was asked is held while others, who could
run at that moment, go on. No time passes, and nobody is woken early. Starting from one fixed order, every interleaving of the
calls of a system can be had by enough such delays, and few of them already reach most ordering bugs (Emmi, Qadeer and
Rakamaric, "Delay-bounded scheduling", POPL 2011); the budget of a search bounds how many.

>>> from mat_faults import order
>>> [operator.id for operator in order.operators()][:2]
['order.hold']
"""

from __future__ import annotations

import random

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import Call, Effect, Hold, Reply


def _hold(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Hold(int(call.parameters["turns"]))


def operators() -> tuple[Operator, ...]:
    return (
        operator(
            "order.hold", _hold, grid=[{"turns": 1}, {"turns": 100, "magnitude": 1}], bounds={"turns": 100},
            plausible="a scheduler, a queue or the network lets somebody else go first",
        ),
    )  # fmt: skip
