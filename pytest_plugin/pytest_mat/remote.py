"""The tasks of a cluster, which its workers import by name (`mat_study.remote`)."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from mat.core.errors import MatError
from mat_study.remote import RemoteItems, RemoteReply, facts_digest, with_worker
from mat_study.sources import installed_versions
from pytest_mat.reused import versions_of

_ITEMS: Final = RemoteItems(sys.executable)


def versions() -> dict[str, str]:
    """The versions in this process that must be those of the session: Python, platform, and every distribution."""
    return {**versions_of(options=False), **installed_versions()}


def execute(expected: str, item: bytes, plan: bytes) -> RemoteReply:
    """Execute a plan; `expected` is the digest of the session's versions, compared before anything else is read."""
    try:
        known = versions()
        if facts_digest(known) != expected:
            return "differs", {**known, **with_worker()}, b""
        return _ITEMS.execute(item, plan)
    except Exception as error:  # whatever it is, another worker need not have it
        why = error.why or error.what if isinstance(error, MatError) else f"{type(error).__name__}: {error}"
        return "failed", with_worker(why=why), b""


async def release(client: str) -> None:
    """A client is gone. In a thread, because a worker calls this in the one that talks to the scheduler."""
    await asyncio.to_thread(_ITEMS.release, client)
