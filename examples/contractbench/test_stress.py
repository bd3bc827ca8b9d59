"""Which cheapest disturbance breaks each oracle, and whose fault is it?"""

from __future__ import annotations

import asyncio

import pytest

from contractbench.episode import persona, play
from contractbench.task import ids, task

PATH = ("service.path_truncate", "service.path_wrap", "service.path_reencode", "service.path_reorder", "service.path_label")
SERVICE = ("service.timeout", "service.lost_ack", "service.delay", "service.duplicate", "service.corrupt_field", "service.stale")
SAFE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")


class Careful:
    """Tools that ask again where no reply came, if that cannot do anything twice (RFC 9110, 9.2.2)."""

    def __init__(self, tools, tries=3):
        self._tools, self._tries = tools, tries

    def __getattr__(self, name):
        return getattr(self._tools, name)

    async def http(self, method, url, **parts):
        keyed = any(name.lower() == "idempotency-key" for name in parts.get("headers") or {})
        for left in reversed(range(self._tries)):
            try:
                return await self._tools.http(method, url, **parts)
            except OSError:
                if not left or not (keyed or method in SAFE):
                    raise


def careful(agent):
    async def acting(instruction, tools):
        return await agent(instruction, Careful(tools))

    return acting


@pytest.mark.parametrize("task_id", ids())
@pytest.mark.mat(faults=[*PATH, *SERVICE], budget=5, stop="cheapest", objective="task")
def test_what_breaks_an_oracle(mat_run, promises, task_id):
    found = task(task_id)
    result, _ = asyncio.run(play(found, 0, careful(persona("oracle", found, 0)), name="oracle"))
    assert result.success
