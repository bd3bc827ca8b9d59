from __future__ import annotations

from decimal import Decimal

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """Get a token, read, close, revoke; the token goes into each call whole."""
    base, period = hands.base, hands.find(r"ledger of (\S+)")
    issued = await hands.post(f"{base}/oauth/token", form={
        "grant_type": "client_credentials",
        "client_id": hands.find(r"client id is `([^`]+)`"),
        "client_secret": hands.find(r"client secret `([^`]+)`"),
    })  # fmt: skip
    token = issued["display"] if hands.tempted() else issued["access_token"]
    headers = {"Authorization": f"Bearer {hands.copy(token, 'access_token')}"}
    listed = await hands.get(f"{base}/ledger/{period}/entries", headers=headers)
    if not listed.ok:
        return f"refused with {listed.status}"
    amounts = [Decimal(entry["amount"]) for entry in listed["entries"]]
    closed = {"count": len(amounts), "total": hands.retype(f"{sum(amounts):.2f}")}
    reply = await hands.post(f"{base}/ledger/{period}/close", json=closed, headers=headers)
    if reply.ok:
        await hands.post(f"{base}/oauth/revoke", form={"token": hands.copy(token, "access_token")})
    return f"{reply.status}"
