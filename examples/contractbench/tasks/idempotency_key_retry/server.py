"""Payments with idempotency keys: the answer to a payment may be lost, never the payment (draft-ietf-httpapi-idempotency-key).

400 where the key is missing, 409 while the first request is under way, 422 where the same key comes with another payment;
keys are given out with payment intents, and up to 255 characters long, as with Stripe.
"""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

FATES = {"lost": (504,), "slow": (504, 409), "down": (503,)}
ERRORS = {
    503: "the payment service is not available",
    504: "no answer in time; the payment may have been made or not",
    409: "a payment with this key is under way",
}
KEEPS_S = 120


def parameters(rng: Random) -> dict[str, Any]:
    """Three invoices, one for each way in which the first answer fails to arrive."""
    names, fates = rng.sample(range(1000, 9999), 3), list(FATES)
    rng.shuffle(fates)
    return {
        "invoices": [
            {"id": f"INV-{name}", "amount": f"{rng.randint(20, 900)}.00", "currency": rng.choice(["EUR", "USD", "GBP"])}
            for name in names
        ],
        "fates": fates, "waits": [rng.randint(3, 7) for _ in range(8)], "key_length": rng.randint(220, 255),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    invoices = {invoice["id"]: invoice for invoice in given["invoices"]}
    fates = {name: list(FATES[fate]) for name, fate in zip(invoices, given["fates"], strict=True)}
    first: dict[str, tuple[dict[str, Any], str]] = {}
    paid: dict[str, dict[str, Any]] = {}
    quiet: dict[str, float] = {}
    waits = iter(given["waits"])

    async def list_invoices(request: Request) -> Response:
        return desk.answer(request, "LISTED", {"invoices": list(invoices.values())})

    async def intend(request: Request) -> Response:
        name = str((await fields(request)).get("invoice"))
        if name not in invoices:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such invoice"}, status=422, resource=name)
        key = desk.issue(name, desk.token(given["key_length"]), KEEPS_S)
        body = {"invoice": name, "idempotency_key": key, "expires_in": KEEPS_S}
        return desk.answer(request, "INTENDED", body, status=201, resource=name, holds={"idempotency_key": name})

    def wrong(name: str, body: dict[str, Any], key: str) -> tuple[str, str, dict[str, Any]]:
        """(label, what is said, detail) of a payment that does not do; no label where it does."""
        due = {"invoice": name, **{field: invoices[name][field] for field in ("amount", "currency")}}
        if missing := [field for field in due if field not in body]:
            return "MISSING_CONSTRAINT", f"{missing[0]} is missing", {}
        if any(item.value == key for other in invoices if other != name for item in desk.issued.get(other, ())):
            return "WRONG_VALUE", "this key was used with another payment", {}
        label, detail = desk.check(name, key)
        if label:
            return label, "this key is unknown or no longer kept", detail
        if name in first and key != first[name][1]:
            return "WRONG_VALUE", "a payment of this invoice is known under another key", {}
        if {field: body[field] for field in due} != due or (name in first and body != first[name][0]):
            return "WRONG_VALUE", "this is not what is due, or not what was sent with this key before", {}
        return "", "", {}

    async def pay(request: Request) -> Response:
        body, key = await fields(request), request.headers.get("idempotency-key", "")
        name = str(body.get("invoice"))
        if name not in invoices:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such invoice"}, status=422, resource=name)
        if not key:
            said = {"error": "Idempotency-Key is missing"}
            return desk.refuse(request, "MISSING_CONSTRAINT", said, status=400, resource=name)
        label, said_of_it, detail = wrong(name, body, key)
        if label:
            return desk.refuse(request, label, {"error": said_of_it}, status=422, resource=name, **detail)
        if (left := round(quiet.get(name, 0.0) - desk.now(), 3)) > 0:
            headers = {"Retry-After": str(int(left) + 1)}
            quiet[name] = desk.now() + int(left) + 1
            return desk.refuse(
                request, "BACKOFF_VIOLATION", {"error": "too early"}, status=409, resource=name, headers=headers,
                time_of_attempt=desk.now(),
            )  # fmt: skip
        first.setdefault(name, (body, key))
        if fates[name]:
            status, after = fates[name].pop(0), next(waits)
            quiet[name] = desk.now() + after
            headers = {"Retry-After": str(after)}
            return desk.answer(request, "UNANSWERED", {"error": ERRORS[status]}, status=status, resource=name, headers=headers)
        paid.setdefault(name, {"payment": f"pay_{desk.token(14)}", **body})
        return desk.answer(request, "PAID", paid[name], status=201, resource=name)

    return [
        Route("/invoices", list_invoices),
        Route("/intents", intend, methods=["POST"]),
        Route("/payments", pay, methods=["POST"]),
    ]
