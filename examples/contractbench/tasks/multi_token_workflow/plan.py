from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """Publish by urgency with the workflow token of each step, then commit with all receipts."""
    listed = await hands.get(f"{hands.base}/workflow")
    heard, sessions, receipts = hands.now(), [str(listed["workflow_token"])], dict[str, str]()

    async def latest() -> str:
        return sessions[-1]

    def expiry(file: dict[str, Any]) -> float:
        return float(heard + file["expires_in"])

    for file in hands.by_urgency(listed["files"], expiry):
        url, session = f"{hands.base}/files/{file['name']}/publish", await hands.current("workflow", latest)
        headers = {
            "Authorization": f"Bearer {hands.copy(file['token'], file['name'])}",
            **_headers(hands, url, session, file["token"]),
        }
        reply = await hands.post(url, headers=headers)
        if not reply.ok:
            return f"refused with {reply.status}"
        receipts[file["name"]] = reply["receipt"]
        sessions.append(reply["workflow_token"])
    url, session = f"{hands.base}/workflow/commit", await hands.current("workflow", latest)
    covered = [receipts[name] for name in sorted(receipts)]
    body = {"receipts": {name: hands.copy(receipt, f"receipt_{name}") for name, receipt in receipts.items()}}
    reply = await hands.post(url, headers=_headers(hands, url, session, *covered), json=body)
    return f"ended with {reply.status}"


def _headers(hands: Hands, url: str, session: str, *covered: str) -> dict[str, str]:
    """The workflow token and the signature of a POST. An agent that takes shortcuts signs only method and path."""
    key = bytes.fromhex(hands.find(r"\(hexadecimal\) is `([^`]+)`"))
    lines = ["POST", urlsplit(url).path, *([session, *covered] if hands.complete("digest") else [])]
    signature = hmac.new(key, "\n".join(lines).encode(), sha256).hexdigest()
    return {"X-Workflow-Token": hands.copy(session, "workflow"), "X-Signature": signature}
