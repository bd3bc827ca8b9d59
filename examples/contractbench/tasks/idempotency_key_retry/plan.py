from __future__ import annotations

from typing import Any

from ...hands import Hands

TRIES = 4


async def plan(hands: Hands) -> str:
    """One key for each invoice, the same for every attempt to pay it."""
    paid = 0
    for invoice in (await hands.get(f"{hands.base}/invoices"))["invoices"]:
        intent = await hands.post(f"{hands.base}/intents", json={"invoice": invoice["id"]})
        if not intent.ok:
            return "no key"
        paid += await _pay(hands, invoice, intent["idempotency_key"])
    return f"paid {paid} invoices"


async def _pay(hands: Hands, invoice: dict[str, Any], key: str) -> bool:
    body = {"amount": hands.retype(invoice["amount"]), "currency": invoice["currency"]}
    for _ in range(TRIES):
        headers = hands.parts("field", **{"Idempotency-Key": hands.copy(key, f"key {invoice['id']}")})
        reply = await hands.post(f"{hands.base}/invoices/{invoice['id']}/payment", json=body, headers=headers)
        if reply.ok:
            return True
        if reply.status not in (409, 503, 504):
            return False
        await hands.wait(reply.retry_after())
    return False
