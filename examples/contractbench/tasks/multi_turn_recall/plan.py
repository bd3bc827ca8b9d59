from __future__ import annotations

import re
from hashlib import sha256

from ...hands import Hands

TRIES = 16


async def plan(hands: Hands) -> str:
    """Talk to the end, keeping the link; wait until the archive is open; fetch it; give the receipt."""
    message = await hands.post(f"{hands.base}/conversations")
    at, link, reference = f"{hands.base}/conversations/{message['id']}", message["archive_url"], message["reference"]
    while message.ok and "question" in message.body:
        numbers = re.findall(r"\d+", message["question"])
        answer = str(sum(int(number) for number in numbers)) if numbers else reference
        message = await hands.post(f"{at}/turns", json={"answer": answer})
    for _ in range(TRIES):
        await hands.wait(message.retry_after())
        message = await hands.get(hands.copy(link, "archive_url"))
        if message.status != 425:
            break
    if not message.ok:
        return f"refused with {message.status}"
    digest = sha256(message.body.encode()).hexdigest()
    await hands.post(f"{at}/receipt", json=hands.parts("digest", sha256=digest))
    return "fetched"
