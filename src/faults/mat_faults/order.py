"""Fault operators of the order boundary: interleavings of concurrent tasks, threads and agents.

An operator does only what a scheduler could do: it holds a call that was asked while others that can run at that moment go on.
No time passes, and no task wakes early. From one fixed order, enough such delays produce every interleaving of the calls,
and a few of them reach most ordering bugs (Emmi, Qadeer and Rakamaric, "Delay-bounded scheduling", POPL 2011); the budget of a
search bounds their number.

>>> from mat_faults import order
>>> [operator.id for operator in order.operators()][:2]
['order.hold']

Source: A3.4, A1.2.
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
            plausible="a scheduler, a queue or the network lets other calls go first",
        ),
    )  # fmt: skip
