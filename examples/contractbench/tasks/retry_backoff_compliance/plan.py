from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...hands import Hands
from ...toolbox import Reply

TRIES = 5


async def plan(hands: Hands) -> str:
    """One parcel after the other; after each refusal wait as long as that very answer says."""
    parcels = hands.find(r"in any order: (.+)\.\n").replace("`", "").split(", ")
    for parcel in parcels:
        if not await _dispatch(hands, parcel):
            return f"{parcel} was refused"
    return "dispatched"


async def _dispatch(hands: Hands, parcel: str) -> bool:
    for attempt in range(1, TRIES + 1):
        headers = hands.parts("field", **{"X-Attempt": str(attempt)}) if attempt > 1 else {}
        reply = await hands.post(f"{hands.base}/dispatches", json={"parcel": parcel}, headers=headers)
        if reply.ok:
            return True
        if reply.status != 503:
            return False
        await hands.wait(await hands.current("backoff", _asked(reply)))
    return False


def _asked(reply: Reply) -> Callable[[], Awaitable[float]]:
    async def asked() -> float:
        return reply.retry_after()

    return asked
