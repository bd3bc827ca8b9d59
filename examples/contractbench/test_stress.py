"""Which cheapest disturbance breaks each oracle, and whose fault is it?

The oracle is played with a careful HTTP client, which asks again where no reply came if that cannot do anything twice. What
is left to break it is a path that damages what is handed on, and a write without an idempotency key whose reply is lost.
"""

from __future__ import annotations

import asyncio

import pytest

import mat
from contractbench.blame import repeatable
from contractbench.episode import persona, play
from contractbench.task import ids, task

PATH = ("service.path_truncate", "service.path_wrap", "service.path_reencode", "service.path_reorder", "service.path_label")
SERVICE = (
    "service.timeout",
    "service.lost_ack",
    "service.delay",
    "service.duplicate",
    "service.corrupt_field",
    "service.stale",
)
TRIES = 3


class Careful:
    """Tools whose requests are sent again where no reply came, if they may be."""

    def __init__(self, tools):
        self._tools = tools

    def __getattr__(self, name):
        return getattr(self._tools, name)

    async def http(self, method, url, **parts):
        left = TRIES if repeatable(method, parts.get("headers")) else 1
        while True:
            left -= 1
            try:
                return await self._tools.http(method, url, **parts)
            except OSError:
                if not left:
                    raise


def done(task_id):
    """Play the oracle with a careful client, and have the server's verdict in the trace."""
    found, success = task(task_id), False
    oracle = persona("oracle", found, 0)

    async def careful(instruction, tools):
        return await oracle(instruction, Careful(tools))

    try:
        success = asyncio.run(play(found, 0, careful, name="oracle"))[0].success
    finally:
        mat.verify("the task is done", success)
    return success


@pytest.mark.parametrize("task_id", ids())
@pytest.mark.mat(faults=[*PATH, *SERVICE], budget=5)
def test_what_breaks_an_oracle(mat_run, promises, task_id):
    assert done(task_id)
