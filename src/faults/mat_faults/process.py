"""The fault operator of the process boundary: the agent's process ends after an effect, before it has noted it.

The call has had its effect, its reply is lost, and so is what the agent kept in memory. What `mat_resume` returns then goes on:
the service that starts again, or the framework's check-pointer. A search uses the operator unasked where a test has
`mat_resume`.

>>> from mat_faults import process
>>> [operator.id for operator in process.operators()]
['process.crash']

Source: A4.1.
"""

from __future__ import annotations

import random

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import Call, Crash, Effect, Reply


def _crash(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Crash()


def operators() -> tuple[Operator, ...]:
    return (
        operator(
            "process.crash", _crash, default=False, bounds={"count": 1},
            plausible="a deployment, a full memory or a lost machine ends the process; it is restarted",
        ),
    )  # fmt: skip
