"""An archive with a maintenance calendar: 503 and Retry-After while it is down (RFC 9110, sections 10.2.3 and 15.6.4).

The calendar changes: half-way through the maintenance its end is put off.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

DEPOSIT_S = 3.0


def parameters(rng: Random) -> dict[str, Any]:
    """Four documents, no more than three of which can be deposited before the maintenance begins."""
    names = rng.sample(["minutes", "contract", "survey", "blueprint", "appraisal", "inventory", "permit"], 4)
    documents = [f"{name}-{rng.randint(1980, 2025)}" for name in names]
    begins = rng.randint(9, 12)
    ends = begins + rng.randint(12, 18)
    return {
        "documents": documents, "listed": ", ".join(f"`{name}`" for name in documents), "begins": begins, "ends": ends,
        "put_off": rng.randint(7, 12),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    begins, announced = given["begins"], (given["begins"] + given["ends"]) / 2
    deposited: list[str] = []

    def end() -> float:
        """When the maintenance ends, as far as is known by now."""
        return float(given["ends"] + (given["put_off"] if desk.now() >= announced else 0))

    async def calendar(request: Request) -> Response:
        window = {"service": "archive", "starts_at": begins, "ends_at": end()}
        body = {"now": desk.now(), "maintenance": [window] if desk.now() < end() else []}
        return desk.answer(request, "CALENDAR", body, headers={"Cache-Control": "no-store"})

    async def deposit(request: Request) -> Response:
        name = str((await fields(request)).get("document"))
        if name not in given["documents"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such document is due"}, status=422, resource=name)
        if begins <= desk.now() < end():
            return desk.refuse(
                request, "SCHEDULED_UNAVAILABLE", {"error": "the archive is down for maintenance"}, status=503,
                resource="archive", headers={"Retry-After": str(ceil(end() - desk.now()))}, time_of_attempt=desk.now(),
            )  # fmt: skip
        if name in deposited:
            return desk.answer(request, "ALREADY_DEPOSITED", {"document": name}, status=409, resource=name)
        await desk.work(DEPOSIT_S)
        deposited.append(name)
        return desk.answer(request, "DEPOSITED", {"document": name}, status=201, resource=name)

    return [Route("/maintenance", calendar), Route("/deposits", deposit, methods=["POST"])]
