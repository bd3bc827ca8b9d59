"""An overloaded endpoint that says when to come back: 503 with Retry-After (RFC 9110, section 10.2.3), longer each time."""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields


def parameters(rng: Random) -> dict[str, Any]:
    """Three parcels and five refusals, spread over them; each wait is at least three seconds longer than the one before."""
    parcels = [f"P{rng.randint(10_000, 99_999)}" for _ in range(3)]
    refusals = [1, 1, 1]
    for _ in range(2):
        refusals[rng.randrange(3)] += 1
    first, longer = rng.randint(3, 5), rng.randint(3, 4)
    return {
        "parcels": parcels, "listed": ", ".join(f"`{name}`" for name in parcels), "refusals": refusals,
        "waits": [first + longer * at for at in range(sum(refusals))],
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    left, attempts = dict(zip(given["parcels"], given["refusals"], strict=True)), dict.fromkeys(given["parcels"], 0)
    dispatched: list[str] = []
    waits, quiet = iter(given["waits"]), [0.0, 0.0]  # until when the endpoint wants to be left alone, and how long that is

    def overloaded(request: Request, name: str, *, label: str = "") -> Response:
        after = ceil(quiet[1])
        quiet[0] = desk.now() + after
        body, headers = {"error": "overloaded", "parcel": name}, {"Retry-After": str(after)}
        if label:
            return desk.refuse(request, label, body, status=503, resource=name, headers=headers, time_of_attempt=desk.now())
        return desk.answer(request, "OVERLOADED", body, status=503, resource=name, headers=headers, retry_after=after)

    async def dispatch(request: Request) -> Response:
        name = str((await fields(request)).get("parcel"))
        if name not in left:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such parcel"}, status=422, resource=name)
        if desk.now() < round(quiet[0], 3):
            return overloaded(request, name, label="BACKOFF_VIOLATION")
        if name in dispatched:
            return desk.answer(request, "ALREADY_DISPATCHED", {"parcel": name}, status=409, resource=name)
        attempt, due = request.headers.get("x-attempt"), attempts[name] + 1
        if due > 1 and attempt is None:
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": "a repeated request needs X-Attempt"}, status=400, resource=name
            )
        if attempt is not None and attempt.strip() != str(due):
            return desk.refuse(request, "WRONG_VALUE", {"error": f"this is attempt {due}"}, status=400, resource=name)
        attempts[name] = due
        if left[name]:
            left[name] -= 1
            quiet[1] = next(waits)
            return overloaded(request, name)
        dispatched.append(name)
        return desk.answer(request, "DISPATCHED", {"parcel": name, "attempts": due}, status=201, resource=name)

    return [Route("/dispatches", dispatch, methods=["POST"])]
