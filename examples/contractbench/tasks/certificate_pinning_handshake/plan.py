from __future__ import annotations

import hmac
from base64 import b64decode
from hashlib import sha256

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Find a node that is pinned, shake hands, read; shake hands anew when its certificate was renewed."""
    listed = await hands.get(f"{hands.base}/nodes")
    for node in listed["nodes"]:
        finished = await _handshake(hands, node)
        if finished is not None:
            break
    else:
        return "no node is pinned"
    records = list(listed["records"])
    while finished is not None and finished.ok and records:
        bearer = {"Authorization": f"Bearer {hands.copy(finished['session'], 'session')}"}
        reply = await hands.get(f"{hands.base}/nodes/{node}/records/{records[0]}", headers=bearer)
        if reply.ok:
            records.pop(0)
        elif reply.status == 421:
            finished = await _handshake(hands, node)
        else:
            return f"refused with {reply.status}"
    if finished is None or not finished.ok:
        return "no session"
    bearer = {"Authorization": f"Bearer {hands.copy(finished['session'], 'session')}"}
    names = [hands.retype(name) for name in listed["records"]]
    await hands.post(f"{hands.base}/nodes/{node}/close", headers=bearer, json={"records": names})
    return "read"


async def _handshake(hands: Hands, node: str) -> Reply | None:
    """The end of a handshake; None where the certificate presented is not pinned."""

    async def fresh() -> Reply:
        return await hands.post(f"{hands.base}/nodes/{node}/hello", json={})

    hello = await hands.current(f"hello {node}", fresh)
    lines = hello["certificate"].strip().splitlines()
    der = b64decode("".join(lines[1:-1])) if hands.complete("digest") else hello["certificate"].encode()
    fingerprint = sha256(der).hexdigest()
    pins = {hands.find(r"primary pin: `([^`]+)`"), hands.find(r"backup pin: `([^`]+)`")}
    if fingerprint not in pins and hands.complete("check"):
        return None
    client_id, key = hands.find(r"the client `([^`]+)`"), bytes.fromhex(hands.find(r"\(hexadecimal\) is `([^`]+)`"))
    signed = "\n".join([hands.retype(client_id), hello["nonce"], fingerprint])
    body = {
        "client_id": client_id,
        "nonce": hands.copy(hello["nonce"], "nonce"),
        "fingerprint": fingerprint,
        "proof": hmac.new(key, signed.encode(), sha256).hexdigest(),
    }
    return await hands.post(f"{hands.base}/nodes/{node}/finish", json=body)
