from __future__ import annotations

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Sign in, then step by step with the cookies that were set last."""
    jar: dict[str, str] = {}

    def keep(reply: Reply) -> Reply:
        if "set-cookie" in reply.headers:
            name, value = reply.headers["set-cookie"].split(";")[0].split("=", 1)
            jar[name] = value
        return reply

    async def latest() -> str:
        return jar["session"]

    async def cookies() -> dict[str, str]:
        text = f"session={hands.copy(await hands.current('session', latest), 'session')}"
        if "checkout" in jar and hands.complete("token"):
            text += f"; checkout={hands.copy(jar['checkout'], 'checkout')}"
        return {"Cookie": text}

    user = {"username": hands.find(r"customer `([^`]+)`"), "password": hands.find(r"password `([^`]+)`")}
    reply = keep(await hands.post(f"{hands.base}/login", form={name: hands.retype(text) for name, text in user.items()}))
    quantity = int(hands.find(r'"quantity": (\d+)'))
    steps = (
        ("PUT", "cart", {"article": hands.retype(hands.find(r'"article": "([^"]+)"')), "quantity": quantity}),
        ("PUT", "address", {"street": hands.retype(hands.find(r'"street": "([^"]+)"'))}),
        ("GET", "quote", None),
    )
    for method, step, body in steps:
        if not reply.ok:
            return f"refused with {reply.status}"
        reply = keep(await hands.http(method, f"{hands.base}/{step}", headers=await cookies(), json=body))
    if not reply.ok:
        return f"refused with {reply.status}"
    total = hands.retype(reply["total"])
    reply = await hands.post(f"{hands.base}/order", headers=await cookies(), json={"total": total})
    return f"ended with {reply.status}"
