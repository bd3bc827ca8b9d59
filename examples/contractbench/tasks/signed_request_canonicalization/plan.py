from __future__ import annotations

import base64
import hmac
from hashlib import sha256
from urllib.parse import urlsplit

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Two signed reads, then the signed release; each with a nonce that still holds."""
    targets = [hands.find(rf"{step}\. `[A-Z]+ https?://[^/]+([^`]+)`") for step in (2, 3, 4)]
    order = await _signed(hands, "GET", targets[0])
    stock = await _signed(hands, "GET", targets[1]) if order.ok else order
    if not stock.ok:
        return f"refused with {stock.status}"
    reply = await _signed(hands, "POST", targets[2], stock["release"])
    return "released" if reply.ok else f"refused with {reply.status}"


async def _signed(hands: Hands, method: str, target: str, body: str = "") -> Reply:
    nonce = await hands.current(
        "nonce", lambda: hands.get(f"{hands.base}/nonce"), until=lambda reply: reply["now"] + reply["expires_in"]
    )
    path, _, query = target.partition("?")
    values = {
        "@method": method,
        "@authority": urlsplit(hands.base).netloc,
        "@path": path,
        "@query": f"?{query}",
        "x-request-class": hands.find(r"X-Request-Class: ([^`]+)`"),
    }
    headers = {"X-Request-Class": values["x-request-class"]}
    if body:
        headers["Content-Type"] = "application/json"
        if hands.complete("digest"):
            values["content-digest"] = f"sha-256=:{_base64(sha256(body.encode()).digest())}:"
            headers["Content-Digest"] = values["content-digest"]
    covered = " ".join(f'"{name}"' for name in values)
    keyid, key = hands.find(r"key id is `([^`]+)`"), base64.b64decode(hands.find(r"shared key\s+`([^`]+)`"))
    params = f'({covered});created={int(hands.now())};keyid="{keyid}";alg="hmac-sha256";nonce='
    lines = [*(f'"{name}": {value}' for name, value in values.items()), f'"@signature-params": {params}"{nonce["nonce"]}"']
    headers["Signature-Input"] = f'sig1={params}"{hands.copy(nonce["nonce"], "nonce")}"'
    signature = hmac.digest(key, "\n".join(lines).encode(), "sha256")
    headers["Signature"] = f"sig1=:{_base64(signature)}:"
    return await hands.http(
        method, f"{hands.base}{target}", headers=headers, text=hands.copy(body, "release") if body else None
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
