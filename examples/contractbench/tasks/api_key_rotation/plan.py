from __future__ import annotations

from typing import Any

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """Rotate, switch the consumers over by urgency, prove the new key, revoke the old one."""
    key_id, keys = hands.find(r"The key `([^`]+)`"), [hands.find(r"key itself is `([^`]+)`")]

    async def latest() -> str:
        return keys[-1]

    async def known() -> dict[str, str]:
        return {"X-Api-Key": hands.copy(await hands.current("api key", latest), "api_key")}

    rotated = await hands.post(f"{hands.base}/keys/{key_id}/rotate", headers=await known())
    if not rotated.ok:
        return f"refused with {rotated.status}"
    keys.append(rotated["key"])
    listed = await hands.get(f"{hands.base}/consumers", headers=await known())
    heard = hands.now()

    def closing(consumer: dict[str, Any]) -> float:
        return float(heard + consumer["closes_in"])

    for consumer in hands.by_urgency(listed["consumers"], closing):
        name, key = consumer["name"], await hands.current("api key", latest)
        body = {"key": hands.copy(key, "api_key"), "ticket": hands.copy(consumer["ticket"], f"ticket_{name}")}
        reply = await hands.http("PUT", f"{hands.base}/consumers/{name}/key", headers=await known(), json=body)
        if not reply.ok:
            return f"refused with {reply.status}"
    if hands.complete("check"):
        await hands.get(f"{hands.base}/whoami", headers=await known())
    if hands.complete("undo"):
        await hands.http("DELETE", f"{hands.base}/keys/{key_id}", headers=await known())
    return "rotated"
