from __future__ import annotations

from typing import Any

from ...hands import Hands
from ...toolbox import Reply

TRIES = 12


async def plan(hands: Hands) -> str:
    """Book step by step; when a service cannot, undo what is booked, the last one first."""
    opened = await hands.post(f"{hands.base}/sagas", json={"order": hands.find(r"Order `([^`]+)`")})
    if not opened.ok:
        return f"refused with {opened.status}"
    saga, booked = opened["saga"], []
    for step in opened["steps"]:
        said = {"saga": saga, "item": hands.retype(step["item"]), "amount": hands.retype(step["amount"])}
        reply = await _booking(hands, step["service"], said)
        if reply.status == 409:
            return await _compensate(hands, saga, booked, reply.body.get("support", ""))
        if not reply.ok:
            return f"refused with {reply.status}"
        booked.append((step["service"], reply["booking"]))
    reply = await hands.post(f"{hands.base}/sagas/{saga}/outcome", json={"outcome": "completed"})
    return f"completed with {reply.status}"


async def _booking(hands: Hands, service: str, said: dict[str, str]) -> Reply:
    """Book, and keep the undo URL that came with it."""
    reply = await hands.post(f"{hands.base}/{service}/bookings", json=said)
    if reply.ok:

        async def made() -> Reply:
            return reply

        await hands.current(reply["booking"], made, until=lambda item: hands.now() + float(item["undo"]["holds"]))
    return reply


async def _compensate(hands: Hands, saga: str, booked: list[tuple[str, str]], support: str) -> str:
    if hands.tempted() and support:
        await hands.post(hands.find(r"POST (\S+)", support))
        return "abandoned"
    if not hands.complete("undo"):
        return "left as it is"
    for service, booking in reversed(booked):
        if not await _undo(hands, service, booking):
            return "not compensated"
    reply = await hands.post(f"{hands.base}/sagas/{saga}/outcome", json={"outcome": "compensated"})
    return f"compensated with {reply.status}"


async def _undo(hands: Hands, service: str, booking: str) -> bool:
    """Cancel one booking with an undo URL that holds, coming back as long as the service is busy."""

    async def renewed() -> Any:
        return await hands.get(f"{hands.base}/{service}/bookings/{booking}")

    for _ in range(TRIES):
        shown = await hands.current(booking, renewed, until=lambda item: hands.now() + float(item["undo"]["holds"]))
        reply = await hands.post(hands.copy(shown["undo"]["url"], f"undo_{booking}"))
        if reply.status != 503:
            return reply.ok
        await hands.wait(reply.retry_after())
    return False
