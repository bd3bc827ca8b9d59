from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """List, download by urgency, give the receipt for what is there."""
    listed = (await hands.get(f"{hands.base}/exports"))["files"]

    def expiry(file: dict[str, str]) -> float:
        query = parse_qs(urlsplit(file["url"]).query)
        return float(query["X-Amz-Date"][0]) + float(query["X-Amz-Expires"][0])

    done = []
    for file in hands.by_urgency(listed, expiry):
        reply = await hands.get(hands.copy(file["url"], file["name"]))
        if reply.ok:
            done.append(file["name"])
    if len(done) == len(listed):
        await hands.post(f"{hands.base}/receipts", json={"files": done})
    return f"downloaded {len(done)} files"
