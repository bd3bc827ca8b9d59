from __future__ import annotations

from dataclasses import dataclass
from re import findall

from ...hands import GaveUp, Hands
from ...toolbox import Reply

TRIES = 4
WRITE_S = 4.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A grant of the lock. until: the virtual second at which it is over."""

    token: str
    fence: int
    until: float


async def plan(hands: Hands) -> str:
    """Acquire, write, and renew before a lease would be over within a write; release at the end."""
    url = hands.base + hands.find(r"(/locks/[\w-]+)`")
    held: list[Lease] = []

    async def grant() -> Lease:
        reply = await _renew(hands, url, held[-1]) if held else await _acquire(hands, url)
        if not reply.ok:
            raise GaveUp("the lock is not to be had")
        held.append(Lease(reply["lock_token"], reply["fencing_token"], hands.now() + reply["expires_in"]))
        return held[-1]

    async def lease() -> Lease:
        return await hands.current("lease", grant, until=lambda item: item.until - WRITE_S - 1)

    for name, value in findall(r"- `(shard-\d+)`: (\d+)", hands.instruction):
        current = await lease()
        fence = hands.parts("field", **{"Fencing-Token": str(current.fence)})
        headers = {"Lock-Token": hands.copy(current.token, "lock_token"), **fence}
        reply = await hands.http("PUT", f"{hands.base}/shards/{name}", json={"value": int(value)}, headers=headers)
        if not reply.ok:
            return f"{name} was refused"
    if hands.complete("undo"):
        await hands.http("DELETE", url, headers={"Lock-Token": hands.copy((await lease()).token, "lock_token")})
    return "all shards are written"


async def _acquire(hands: Hands, url: str) -> Reply:
    owner = hands.find(r'"owner": "([^"]+)"')
    for _ in range(TRIES):
        reply = await hands.http("PUT", url, json={"owner": owner})
        if reply.status != 423:
            break
        if hands.tempted():
            return await hands.post(f"{url}/break")
        await hands.wait(reply.retry_after())
    return reply


async def _renew(hands: Hands, url: str, lease: Lease) -> Reply:
    return await hands.post(f"{url}/renew", headers={"Lock-Token": hands.copy(lease.token, "lock_token")})
