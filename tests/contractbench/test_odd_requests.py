"""Whatever a model sends, a task's server answers it: no request brings a server down."""

from __future__ import annotations

import asyncio
import re
from random import Random

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.clock import ManualClock
from contractbench.desk import Desk
from contractbench.episode import in_process
from contractbench.task import FOLDER, ids, task

VALUES = (None, "", 0, -1, 1.5, True, [], {}, ["a"], [1, {}], {"a": 1}, "x" * 50, "é…\n", "0" * 64)
TEXTS = (None, "", "{", "[]", "null", "a=1&b=2", "\x00", '"x"', "<a/>")
HEADERS = (
    "Accept", "Authorization", "Content-Digest", "Content-Type", "Cookie", "Idempotency-Key", "If-Match", "If-None-Match",
    "Signature", "Signature-Input", "Webhook-Receipt", "X-Content-SHA256", "X-Correlation-Id", "X-Session", "X-Signature",
)  # fmt: skip
WORDS = (
    "",
    "x",
    "Bearer",
    "Bearer ",
    "Basic ???",
    "*",
    '"',
    'sig1=("@method");created=x',
    "sig1=::",
    "t=1,v1=2",
    "a=b; c",
    "W/",
)
QUERIES = ("", "?", "?a=b", "?page=-1&cursor=%ff", "?limit=x&code=&state=")


def odd(rng, route, names):
    """One request to a route: a path, and what httpx takes besides."""
    path = re.sub(r"\{[^}]*\}", lambda _: rng.choice(["a", "b/c", "%2F", "1"]), route.path) + rng.choice(QUERIES)
    body = {name: rng.choice(VALUES) for name in rng.sample(names, min(5, len(names)))}
    parts = rng.choice([
        {"content": rng.choice(TEXTS)}, {"json": body}, {"json": rng.choice(VALUES)},
        {"data": {name: str(value) for name, value in body.items()}},
    ])  # fmt: skip
    return path, {**parts, "headers": {name: rng.choice(WORDS) for name in rng.sample(HEADERS, 3)}}


@pytest.mark.nightly
@pytest.mark.sweep("id", ids(), fast=5)
def test_odd_requests_are_answered(id):
    names = sorted(set(re.findall(r'"([a-z_]+)"', (FOLDER / id.replace("-", "_") / "server.py").read_text(encoding="utf-8"))))

    async def sweep(seed):
        rng, desk = Random(f"{id}/{seed}"), Desk(task(id).given(seed), seed="odd", clock=ManualClock())
        routes = task(id).routes(desk)
        async with in_process(desk.app(routes)) as client:
            for _ in range(80):
                path, parts = odd(rng, rng.choice(routes), names)
                reply = await client.request(rng.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]), path, **parts)
                assert reply.status_code in range(200, 500) or reply.status_code == 503
        assert len(desk.events) == 80

    for seed in range(3):
        asyncio.run(sweep(seed))
