"""Payments with idempotency keys: the answer to a payment may be lost, never the payment (draft-ietf-httpapi-idempotency-key).

400 where the key is missing, 409 while the first request is under way, 422 where the same key comes with another payment;
keys are given out with payment intents, and up to 255 characters long, as with Stripe.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import OTHER, SEVERITY

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

    def problems(name: str, body: dict[str, Any], key: str) -> list[tuple[str, int, str, dict[str, Any]]]:
        """(label, status, what is said, detail) of all that is wrong with a payment."""
        due, found = {field: invoices[name][field] for field in ("amount", "currency")}, []
        theirs = any(item.value == key for other in invoices if other != name for item in desk.issued.get(other, ()))
        label, detail = desk.check(name, key) if key and not theirs else ("", {})
        if label:
            found.append((label, 422, "this key is unknown or no longer kept", detail))
        if theirs or (key and name in first and key != first[name][1]):
            found.append(("WRONG_VALUE", 422, "this is not the key of this payment", {}))
        known = {field: item for field, item in body.items() if field in due and item not in (None, "")}
        another = name in first and body != first[name][0]
        if another or any(due[field] != item for field, item in known.items()):
            found.append(("WRONG_VALUE", 422, "this is not what is due, or not what was sent with this key before", {}))
        if len(known) < len(due):
            found.append(("MISSING_CONSTRAINT", 422, "amount and currency are required", {}))
        if not key:
            found.append(("MISSING_CONSTRAINT", 400, "Idempotency-Key is missing", {}))
        return found

    async def pay(request: Request) -> Response:
        name, key = request.path_params["invoice"], request.headers.get("idempotency-key", "")
        body = await fields(request)
        if name not in invoices:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such invoice"}, status=404, resource=name)
        if found := problems(name, body, key):
            label, status, said, detail = min(found, key=lambda item: SEVERITY.index(item[0] if item[0] in SEVERITY else OTHER))
            return desk.refuse(request, label, {"error": said}, status=status, resource=name, **detail)
        if (left := round(quiet.get(name, 0.0) - desk.now(), 3)) > 0:
            quiet[name] = desk.now() + ceil(left)
            return desk.refuse(
                request, "BACKOFF_VIOLATION", {"error": "too early"}, status=409, resource=name,
                headers={"Retry-After": str(ceil(left))}, time_of_attempt=desk.now(),
            )  # fmt: skip
        first.setdefault(name, (body, key))
        if fates[name]:
            status, after = fates[name].pop(0), next(waits)
            quiet[name] = desk.now() + after
            headers = {"Retry-After": str(after)}
            return desk.answer(request, "UNANSWERED", {"error": ERRORS[status]}, status=status, resource=name, headers=headers)
        paid.setdefault(name, {"payment": f"pay_{desk.token(14)}", "invoice": name, **body})
        return desk.answer(request, "PAID", paid[name], status=201, resource=name)

    return [
        Route("/invoices", list_invoices),
        Route("/intents", intend, methods=["POST"]),
        Route("/invoices/{invoice}/payment", pay, methods=["POST"]),
    ]
