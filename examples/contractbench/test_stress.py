"""Which cheapest disturbance breaks each oracle, and whose fault is it?

The oracle is played with a careful HTTP client, which asks again where no reply came if that cannot do anything twice. What
is left to break it is a path that damages what is handed on, and a write without an idempotency key whose reply is lost.
"""

from __future__ import annotations

import asyncio

import pytest

import mat
from contractbench.blame import CHECK
from contractbench.careful import careful
from contractbench.episode import persona, play
from contractbench.task import ids, task

PATH = ("service.path_truncate", "service.path_wrap", "service.path_reencode", "service.path_reorder", "service.path_label")
SERVICE = ("service.timeout", "service.lost_ack", "service.delay", "service.duplicate", "service.stale")
SHORT = (
    "api-rate-limit-patience", "constraint-overload-protocol", "content-negotiation-chain", "cumulative-hash-chain",
    "etag-conditional-get", "retry-backoff-compliance", "scheduled-maintenance", "webhook-hmac-verify",
)  # fmt: skip
"""What these hand out is shorter than a line, needs no escapes and has no query."""


def done(task_id):
    """Play the oracle with a careful client, and have the server's verdict in the trace."""
    found, success = task(task_id), False
    try:
        result, _ = asyncio.run(play(found, 0, careful(persona("oracle", found, 0)), name="oracle"))
        success = result.success
    finally:
        mat.verify(CHECK, success)
    return success


def known(task_id):
    """The task as a parameter, with what is known to be broken: where no path can damage an artifact, the task alone is."""
    broken = {"task.done"} if task_id in SHORT else {"task.done", "path.bytes"}
    return pytest.param(task_id, marks=pytest.mark.mat(expect=broken))


@pytest.mark.parametrize("task_id", [known(task_id) for task_id in ids()])
@pytest.mark.mat(faults=[*PATH, *SERVICE], budget=5)
def test_what_breaks_an_oracle(mat_run, promises, task_id):
    assert done(task_id)
