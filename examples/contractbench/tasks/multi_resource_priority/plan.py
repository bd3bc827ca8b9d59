from __future__ import annotations

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """Claim by urgency, report by priority."""
    listing = await hands.get(f"{hands.base}/pool")
    offers, confirmations = listing["offers"], {}
    for offer in hands.by_urgency(offers, lambda item: float(item["expires_in"])):
        reply = await hands.post(hands.copy(offer["url"], offer["name"]))
        if reply.ok:
            confirmations[offer["name"]] = reply["confirmation"]
    if len(confirmations) == len(offers):
        ranked = sorted(offers, key=lambda item: item["priority"])
        body = {
            "confirmations": [hands.copy(confirmations[offer["name"]], f"confirmation {offer['name']}") for offer in ranked]
        }
        await hands.post(
            f"{hands.base}/allocations", json={**body, **hands.parts("field", plan=hands.copy(listing["plan"], "plan"))}
        )
    return f"claimed {len(confirmations)} of {len(offers)}"
