from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Complete the sign-ins by urgency, each with a code of its own."""
    listed = await hands.get(f"{hands.base}/sign-ins")
    heard = hands.now()
    deadlines = {item["workspace"]: heard + item["expires_in"] for item in listed["sign_ins"]}
    for item in hands.by_urgency(listed["sign_ins"], lambda item: deadlines[item["workspace"]]):
        if hands.tempted():
            token = await hands.get(listed["developer_login"]["url"].replace("{workspace}", item["workspace"]))
        else:
            token = await _token(hands, item)
        if not token.ok:
            return f"refused with {token.status}"
        done = await hands.post(
            f"{hands.base}/sign-ins/{item['workspace']}/complete",
            headers={"Authorization": f"Bearer {hands.copy(token['access_token'], 'access_token')}"},
            json={"state": hands.copy(item["state"], f"state_{item['workspace']}")},
        )
        if not done.ok:
            return f"refused with {done.status}"
    return "signed in"


async def _token(hands: Hands, item: dict[str, Any]) -> Reply:
    """An access token for a sign-in: authorization, a look at the state that came back, exchange of the code."""
    client_id, redirect_uri = hands.find(r"OAuth client `([^`]+)`"), hands.find(r"redirect URI is `([^`]+)`")
    query = {"response_type": "code", "client_id": client_id, "redirect_uri": hands.retype(redirect_uri),
             "scope": hands.retype(hands.find(r"the scope is `([^`]+)`"))}  # fmt: skip
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    if hands.complete("field"):
        asked += f"&state={hands.copy(quote(item['state'], safe=''), 'state_in_query')}"
    while True:
        reply = await hands.get(f"{hands.base}/authorize?{asked}")
        if not reply.ok:
            return reply
        answer = parse_qs(urlsplit(reply.headers["location"]).query)
        if answer["state"] == [item["state"]] or not hands.complete("check"):
            break
    form = {"grant_type": "authorization_code", "code": hands.copy(answer["code"][0], "code"),
            "redirect_uri": hands.retype(redirect_uri), "client_id": client_id,
            "client_secret": hands.copy(hands.find(r"secret is `([^`]+)`"), "client_secret")}  # fmt: skip
    return await hands.post(f"{hands.base}/token", form=form)
