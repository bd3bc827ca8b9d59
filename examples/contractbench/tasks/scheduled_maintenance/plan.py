from __future__ import annotations

from typing import Any

from ...hands import Hands

EARLY_S = 2.0
"""How long before a maintenance the last request may go out: reading and sending take a second each."""


async def plan(hands: Hands) -> str:
    """Before each deposit look into the calendar, and wait while the archive is down; the end may have been put off."""

    async def calendar() -> list[dict[str, Any]]:
        return (await hands.get(f"{hands.base}/maintenance"))["maintenance"]  # type: ignore[no-any-return]

    async def clear() -> None:
        for _ in range(4):
            down = [window for window in await hands.current("calendar", calendar) if _near(window, hands.now())]
            if not down:
                return
            await hands.wait(down[0]["ends_at"] - hands.now())

    waiting, refused = hands.find(r"in any order: (.+)\.\n").replace("`", "").split(", "), 0
    while waiting and refused < 3:
        await clear()
        reply = await hands.post(f"{hands.base}/deposits", json={"document": waiting[0]})
        if reply.ok:
            waiting.pop(0)
        else:
            refused += 1
            await hands.wait(reply.retry_after())
    return f"{len(waiting)} documents are left"


def _near(window: dict[str, Any], now: float) -> bool:
    return bool(window["starts_at"] - EARLY_S <= now < window["ends_at"])
