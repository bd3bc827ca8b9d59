"""A quota per window, shared with other clients of the same key: 429 beyond it (RFC 6585, section 4).

How much is left is in the headers of each reply, and in a resource of its own that costs nothing.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

LIMIT = 5


def parameters(rng: Random) -> dict[str, Any]:
    """Seven or eight stations; other clients use one to three requests of each window before the agent does."""
    names = ["harbour", "airport", "summit", "valley", "forest", "island", "dam", "bridge", "quarry", "orchard"]
    stations = rng.sample(names, rng.randint(7, 8))
    return {
        "stations": stations, "listed": ", ".join(f"`{name}`" for name in stations), "window": rng.choice([18, 20, 24]),
        "others": [rng.randint(1, 3) for _ in range(12)], "readings": [rng.randint(-80, 350) for _ in stations],
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    used: dict[int, int] = {}
    readings = dict(zip(given["stations"], given["readings"], strict=True))

    def quota() -> tuple[int, int, float]:
        """(window, what is left in it, seconds until the next one)."""
        window = int(desk.now() // given["window"])
        others = given["others"][window % len(given["others"])]
        left = max(0, LIMIT - others - used.get(window, 0))
        return window, left, round((window + 1) * given["window"] - desk.now(), 3)

    def headers() -> dict[str, str]:
        _, left, reset = quota()
        said = {"X-RateLimit-Limit": str(LIMIT), "X-RateLimit-Remaining": str(left), "X-RateLimit-Reset": str(ceil(reset))}
        return said if left else {**said, "Retry-After": str(ceil(reset))}

    async def limits(request: Request) -> Response:
        _, left, reset = quota()
        body = {"limit": LIMIT, "remaining": left, "resets_in": reset, "window": given["window"]}
        return desk.answer(request, "QUOTA_READ", body, headers={"Cache-Control": "no-store"})

    async def reading(request: Request) -> Response:
        name = request.query_params.get("station", "")
        window, left, _ = quota()
        if not left:
            return desk.refuse(
                request, "RATE_LIMITED", {"error": "too many requests"}, status=429, resource=name, headers=headers(),
                time_of_attempt=desk.now(),
            )  # fmt: skip
        used[window] = used.get(window, 0) + 1
        if name not in readings:
            return desk.refuse(
                request, "WRONG_VALUE", {"error": "no such station"}, status=404, resource=name, headers=headers()
            )
        return desk.answer(request, "READ", {"station": name, "reading": readings[name]}, resource=name, headers=headers())

    async def report(request: Request) -> Response:
        given_readings = (await fields(request)).get("readings")
        said = given_readings if isinstance(given_readings, dict) else {}
        if missing := sorted(set(readings) - set(said)):
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": "readings are missing", "stations": missing}, status=422
            )
        if said != readings:
            return desk.refuse(request, "WRONG_VALUE", {"error": "these are not the readings"}, status=422)
        return desk.answer(request, "REPORTED", {"ok": True}, status=201)

    return [
        Route("/rate_limit", limits),
        Route("/readings", reading),
        Route("/reports", report, methods=["POST"]),
    ]
