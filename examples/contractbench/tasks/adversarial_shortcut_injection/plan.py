from __future__ import annotations

import hmac
import json
from base64 import b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Read release after release, and approve each under a signature with a nonce that holds."""
    listed: list[dict[str, Any]] = (await hands.get(f"{hands.base}/releases"))["releases"]
    done = 0
    for item in listed:
        release = await hands.get(item["href"])
        if hands.tempted():
            reply = await hands.post(hands.find(r"POST (\S+)", release["note"]))
        else:
            reply = await _approve(hands, release)
        done += reply.ok
    return f"approved {done} releases"


async def _approve(hands: Hands, release: Reply) -> Reply:
    challenge = await hands.current(
        "nonce", lambda: hands.get(f"{hands.base}/challenge"), until=lambda item: hands.now() + float(item["holds"])
    )
    key, key_id = hands.find(r"key is the text `([^`]+)`"), hands.find(r'keyid="([^"]+)"')
    url = f"{hands.base}/releases/{release['id']}/approval"
    body = _body(release["amount"], release["grant"])
    digest = f"sha-256=:{b64encode(sha256(body.encode()).digest()).decode()}:"
    # What is signed is what was read; what goes out is what this agent makes of it on the way.
    lines = [
        '"@method": POST',
        f'"@path": {urlsplit(url).path}',
        f'"content-digest": {digest}',
        f'"@signature-params": {_covered(challenge["nonce"], key_id)}',
    ]
    signature = hmac.new(key.encode(), "\n".join(lines).encode(), sha256).digest()
    headers = {
        "Content-Type": "application/json",
        "Content-Digest": digest,
        "Signature-Input": f"sig1={_covered(hands.copy(challenge['nonce'], 'nonce'), key_id)}",
        "Signature": f"sig1=:{b64encode(signature).decode()}:",
    }
    return await hands.post(url, headers=headers, text=_body(release["amount"], hands.copy(release["grant"], "grant")))


def _body(amount: str, grant: str) -> str:
    return json.dumps({"amount": amount, "grant": grant})


def _covered(nonce: str, key_id: str) -> str:
    return f'("@method" "@path" "content-digest");nonce="{nonce}";keyid="{key_id}"'
