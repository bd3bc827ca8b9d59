from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from ...hands import Hands
from ...toolbox import Reply

ATTEMPTS = 4


async def plan(hands: Hands) -> str:
    """Authorize, exchange, then fetch each photo with a token that still holds."""
    client_id = hands.find(r"OAuth client `([^`]+)`")
    tokens = await _exchange(hands, client_id)
    if not tokens.ok:
        return f"refused with {tokens.status}"
    held: dict[str, Any] = {"tokens": tokens, "end": hands.now() + tokens["expires_in"], "new": True}

    async def fresh() -> tuple[str, float]:
        if not held["new"]:
            reply = await _refresh(hands, client_id, held["tokens"]["refresh_token"])
            if not reply.ok:
                return "", 0.0
            held.update(tokens=reply, end=hands.now() + reply["expires_in"])
        held["new"] = False
        return held["tokens"]["access_token"], held["end"]

    listed = await hands.get(f"{hands.base}/photos")
    for name in listed["photos"]:
        token, _ = await hands.current("access token", fresh, until=lambda got: got[1])
        if not token:
            return "no token"
        bearer = {"Authorization": f"Bearer {hands.copy(token, 'access_token')}"}
        reply = await hands.get(f"{hands.base}/photos/{name}", headers=bearer)
        if not reply.ok:
            return f"refused with {reply.status}"
    await hands.post(f"{hands.base}/album", json={"photos": [hands.retype(name) for name in listed["photos"]]})
    return "fetched"


async def _exchange(hands: Hands, client_id: str) -> Reply:
    redirect_uri, verifier = hands.find(r"redirect URI is `([^`]+)`"), hands.find(r"RFC 7636\) is `([^`]+)`")
    hashed = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {"response_type": "code", "client_id": client_id, "redirect_uri": redirect_uri,
             "scope": hands.find(r"scope is `([^`]+)`"), "code_challenge_method": "S256"}  # fmt: skip
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    challenge = hands.copy(hashed if hands.complete("digest") else verifier, "challenge")
    reply = await hands.get(f"{hands.base}/authorize?{asked}&code_challenge={challenge}")
    if not reply.ok:
        return reply
    code = parse_qs(urlsplit(reply.headers["location"]).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": hands.copy(code, "code"), "redirect_uri": redirect_uri,
            "client_id": client_id, "code_verifier": hands.copy(verifier, "verifier")}  # fmt: skip
    return await hands.post(f"{hands.base}/token", form=form)


async def _refresh(hands: Hands, client_id: str, token: str) -> Reply:
    form = {"grant_type": "refresh_token", "refresh_token": hands.copy(token, "refresh_token"), "client_id": client_id}
    for _ in range(ATTEMPTS):
        reply = await hands.post(f"{hands.base}/token", form=form)
        if reply.status != 429:
            break
        await hands.wait(reply.retry_after())
    return reply
