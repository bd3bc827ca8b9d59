"""Webhooks signed as Stripe signs them (`t=...,v1=...` over `t.payload`): verify the raw bytes, re-derive for the receipt."""

from __future__ import annotations

import hmac
import re
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

FORGERIES = ("altered", "secret", "scheme")
"""How a delivery is not genuine: its payload was changed, another secret signed it, or only another scheme did."""
EPOCH = 1_767_225_600
"""The Unix time at which an episode begins."""


def parameters(rng: Random) -> dict[str, Any]:
    """The secret, the deliveries in their order, which are forged and how, and which one is made anew."""
    count, letters = rng.randint(5, 6), "abcdefghkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    forged = dict(zip(rng.sample(range(count), 2), rng.sample(FORGERIES, 2), strict=True))
    return {
        "secret": "whsec_" + "".join(rng.choice(letters) for _ in range(32)),
        "deliveries": [
            {
                "id": f"dlv_{''.join(rng.choice(letters) for _ in range(10))}",
                "forged": forged.get(at, ""),
                "payload": _payload(rng, at),
            }
            for at in range(count)
        ],
        "again": rng.choice([at for at in range(count) if at not in forged]),
        "pause": rng.randint(5, 9),
    }


def _payload(rng: Random, at: int) -> str:
    """JSON as its sender happened to write it: blanks, escapes and zeros that a parser would not give back."""
    note = rng.choice([r"caf\u00e9 / north", r"se\u00f1or A. -- paid", r"r\u00fcck  gabe"])
    return (
        f'{{"id": "evt_{rng.randint(10**8, 10**9)}",  "type":"{rng.choice(["charge.paid", "charge.refunded"])}", '
        f'"created":{EPOCH - rng.randint(60, 600)},\n "data": {{"amount":{rng.randint(10, 900)}.{at}0, "note": "{note}"}} }}\n'
    )


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    entries = {entry["id"]: entry for entry in given["deliveries"]}
    flaky = given["deliveries"][given["again"]]["id"]
    made: dict[str, int] = {}
    settled: set[str] = set()
    paused: dict[str, float] = {}
    early: set[str] = set()

    def attempt(id: str) -> tuple[int, str]:
        """(timestamp, raw body as it is delivered now). A delivery is made anew when its pause is over."""
        if id in paused and desk.now() >= paused[id]:
            made[id] = EPOCH + int(paused.pop(id))
        return made.setdefault(id, EPOCH - 30 + len(made)), entries[id]["payload"]

    def signature(id: str) -> str:
        stamp, payload = attempt(id)
        forged, secret = entries[id]["forged"], given["secret"]
        if forged == "altered":
            payload = payload.replace('"amount":', '"amount":9')
        if forged == "secret":
            secret = "whsec_" + secret[6:][::-1]
        signed = hexed(secret, f"{stamp}.{payload}")
        old = hexed(f"{secret}/v0", payload)
        if forged == "scheme":
            return f"t={stamp},v1={hexed(old, payload)},v0={signed}"
        return f"t={stamp},v1={signed},v0={old}"

    def unknown(request: Request) -> Response:
        return desk.answer(request, "UNKNOWN", {"error": "no such delivery"}, status=404)

    async def deliveries(request: Request) -> Response:
        return desk.answer(request, "LISTED", {"deliveries": [id for id in entries if id not in settled]})

    async def delivery(request: Request) -> Response:
        id = request.path_params["id"]
        if id not in entries:
            return unknown(request)
        attempt(id)
        if id in paused:
            asks, said = {"Retry-After": f"{paused[id] - desk.now():g}"}, {"error": "not delivered anew yet"}
            if id in early:
                return desk.refuse(request, "BACKOFF_VIOLATION", said, status=503, resource=id, headers=asks)
            early.add(id)
            return desk.answer(request, "PAUSED", said, status=503, resource=id, headers=asks)
        body = {"id": id, "signature": signature(id), "payload": attempt(id)[1]}
        return desk.answer(request, "DELIVERED", body, resource=id)

    async def accept(request: Request) -> Response:
        id = request.path_params["id"]
        if id not in entries:
            return unknown(request)
        stamp, payload = attempt(id)
        if id in settled:
            return desk.answer(request, "KNOWN", {"id": id, "status": "settled"}, resource=id)
        if id in paused:
            asks = {"Retry-After": f"{paused[id] - desk.now():g}"}
            return desk.refuse(request, "BACKOFF_VIOLATION", {"error": "try later"}, status=503, resource=id, headers=asks)
        receipt = request.headers.get("webhook-receipt", "")
        if not receipt:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "Webhook-Receipt is required"}, status=400, resource=id)
        if entries[id]["forged"]:
            return desk.refuse(
                request, "SIGNATURE_MISMATCH", {"error": "we never sent this"}, status=409, resource=id, forged=True
            )
        if parsed(receipt) != {"t": f"{stamp}", "v1": hexed(given["secret"], f"{stamp}.{payload}.accepted")}:
            return desk.refuse(request, "SIGNATURE_MISMATCH", {"error": "the receipt does not verify"}, status=401, resource=id)
        if id == flaky and id not in desk.seen:
            desk.seen[id] += 1
            paused[id] = desk.now() + given["pause"]
            asks = {"Retry-After": f"{given['pause']}"}
            return desk.answer(request, "DEFERRED", {"error": "try later"}, status=503, resource=id, headers=asks)
        settled.add(id)
        return desk.answer(request, "ACCEPTED", {"id": id, "status": "accepted"}, resource=id)

    async def reject(request: Request) -> Response:
        id = request.path_params["id"]
        if id not in entries:
            return unknown(request)
        if not (await fields(request)).get("reason"):
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "reason is required"}, status=400, resource=id)
        settled.add(id)
        if not entries[id]["forged"]:
            return desk.refuse(request, "WRONG_VALUE", {"id": id, "status": "rejected"}, status=200, resource=id)
        return desk.answer(request, "REJECTED", {"id": id, "status": "rejected"}, resource=id)

    return [
        Route("/deliveries", deliveries),
        Route("/deliveries/{id}", delivery),
        Route("/deliveries/{id}/accept", accept, methods=["POST"]),
        Route("/deliveries/{id}/reject", reject, methods=["POST"]),
    ]


def hexed(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()


def parsed(header: str) -> dict[str, str]:
    """The timestamp and the v1 signature of a header `t=...,v1=...`; other schemes do not count."""
    pairs = re.findall(r"(\w+)=([^,\s]*)", header)
    return {name: value for name, value in pairs if name in ("t", "v1")}
