from __future__ import annotations

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """List, then fetch each report with a token that still holds, then give the receipt."""
    client = {
        "client_id": hands.find(r"the client `([^`]+)`"),
        "client_secret": hands.find(r"client secret is `([^`]+)`"),
        "scope": hands.find(r"The scope is `([^`]+)`"),
    }
    refused: list[Reply] = []

    async def fresh() -> tuple[str, float]:
        form = {"grant_type": "client_credentials", **client}
        form["client_secret"] = hands.copy(client["client_secret"], "client_secret")
        form["scope"] = hands.retype(client["scope"])
        reply = await hands.post(f"{hands.base}/oauth/token", form=form)
        if not reply.ok:
            refused.append(reply)
            return "", 0.0
        return reply["access_token"], hands.now() + reply["expires_in"]

    async def headers() -> dict[str, str]:
        if not hands.complete("token"):
            return {}
        token, _ = await hands.current("access token", fresh, until=lambda got: got[1])
        return {"Authorization": f"Bearer {hands.copy(token, 'access_token')}"}

    references: dict[str, str] = {}
    listed = await hands.get(f"{hands.base}/reports")
    for name in listed["reports"]:
        known = await headers()
        reply = refused[0] if refused else await hands.get(f"{hands.base}/reports/{name}", headers=known)
        if not reply.ok:
            return f"refused with {reply.status}"
        references[name] = reply["reference"]
    known = await headers()
    await hands.post(f"{hands.base}/receipts", headers=known, json={"references": references})
    return f"fetched {len(references)} reports"
