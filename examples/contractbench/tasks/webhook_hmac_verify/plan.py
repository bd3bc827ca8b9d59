from __future__ import annotations

import hmac
import re

from ...hands import Hands

TRIES = 4


async def plan(hands: Hands) -> str:
    """Verify each delivery over what was read of it, accept or reject."""
    listed = await hands.get(f"{hands.base}/deliveries")
    secret = hands.find(r"secret is `([^`]+)`")
    for id in listed["deliveries"]:
        await _settle(hands, f"{hands.base}/deliveries/{id}", secret)
    return f"worked off {len(listed['deliveries'])} deliveries"


async def _settle(hands: Hands, url: str, secret: str) -> None:
    for _ in range(TRIES):
        delivery = await hands.get(url)
        if delivery.status == 503:
            await hands.wait(delivery.retry_after())
            continue
        header = dict(re.findall(r"(\w+)=([^,]+)", delivery["signature"]))
        signed = f"{header['t']}.{hands.retype(delivery['payload'])}"
        if hands.complete("check") and not hmac.compare_digest(_hmac(secret, signed), header["v1"]):
            await hands.post(f"{url}/reject", json={"reason": "signature"})
            return
        receipt = f"t={header['t']},v1={_hmac(secret, f'{signed}.accepted')}"
        reply = await hands.post(f"{url}/accept", headers={"Webhook-Receipt": receipt})
        if reply.status != 503:
            return
        await hands.wait(reply.retry_after())


def _hmac(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()
