from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...hands import Hands
from ...toolbox import Reply

Version = tuple[dict[str, Any], str]
"""A document and its ETag."""


async def plan(hands: Hands) -> str:
    """Read all, then revalidate and approve one by one."""
    names = hands.find(r"Approve these: (.+)\.\n").replace("`", "").split(", ")
    have: dict[str, Version] = {}
    for name in names:
        await hands.current(name, _reader(hands, name, have))
    approved = 0
    for name in names:
        document, tag = await hands.current(name, _reader(hands, name, have))
        reply = await hands.http(
            "PUT", f"{hands.base}/documents/{name}", json={**document, "state": "approved"},
            headers={"If-Match": hands.copy(tag, f"etag {name}")},
        )  # fmt: skip
        approved += reply.ok
    return f"approved {approved} of {len(names)}"


def _reader(hands: Hands, name: str, have: dict[str, Version]) -> Callable[[], Awaitable[Version]]:
    """Reads a document: in full the first time, then only if it has changed."""

    async def read() -> Version:
        condition = {"If-None-Match": hands.copy(have[name][1], f"etag {name}")} if name in have else {}
        reply: Reply = await hands.get(f"{hands.base}/documents/{name}", headers=hands.parts("field", **condition))
        if reply.status == 200:
            have[name] = (reply.body, reply.headers["etag"])
        return have[name]

    return read
