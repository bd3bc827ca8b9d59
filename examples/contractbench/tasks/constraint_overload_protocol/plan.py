from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Read the rules, then one settlement after the other, each in a session that still holds."""
    rules = "\n".join((await hands.get(f"{hands.base}/protocol"))["rules"])
    batch = await hands.get(f"{hands.base}/batch")
    for item in batch["items"]:
        reply = await _settle(hands, rules, batch["batch"], item)
        if not reply.ok:
            return f"item {item['item']} was refused with {reply.status}"
    return "settled"


async def _open(hands: Hands) -> tuple[Reply, float]:
    """A session, and the moment from which it no longer holds."""
    reply = await hands.post(f"{hands.base}/sessions", json={"client": hands.find(r'"client": "([^"]+)"')})
    return reply, hands.now() + reply["expires_in"]


async def _settle(hands: Hands, rules: str, batch: str, item: dict[str, Any]) -> Reply:
    session, _ = await hands.current("session", lambda: _open(hands), until=lambda opened: opened[1])
    minor, correlation = item["amount_minor"], f"{batch}-{item['item']}"
    body = json.dumps({
        "amount": hands.retype(f"{minor // 100}.{minor % 100:02d}"),
        "currency": item["currency"].upper(),
        "payee": hands.retype(item["payee"]),
        "reference": f"{batch}/{item['item']}",
        **hands.parts("field", reason_code=hands.find(r"`reason_code` as `([^`]+)`", rules)),
        "schema": hands.find(r"`schema` as `([^`]+)`", rules),
    })  # fmt: skip
    key = hands.find(r"signing key is `([^`]+)`")
    version, digest = hands.find(r"X-Protocol-Version: ([^`]+)`", rules), sha256(body.encode()).hexdigest()
    signed = f"{version}\n{correlation}\n{digest}"
    optional = {
        "X-Client-Region": hands.find(r"X-Client-Region: ([^`]+)`", rules),
        "X-Lane": hands.find(r"X-Lane: ([^`]+)`", rules),
        "Prefer": hands.find(r"Prefer: ([^`]+)`", rules),
    }
    headers = {
        "Content-Type": "application/json",
        "X-Protocol-Version": version,
        "X-Correlation-Id": correlation,
        "X-Session": hands.copy(session["session"], "session"),
        "X-Content-SHA256": digest,
        "X-Signature": hmac.new(key.encode(), signed.encode(), "sha256").hexdigest(),
        **hands.parts("field", **optional),
    }
    return await hands.post(f"{hands.base}/settlements", headers=headers, text=body)
