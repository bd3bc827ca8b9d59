from __future__ import annotations

from decimal import Decimal

from ...hands import Hands
from ...toolbox import Reply

TRIES = 12


async def plan(hands: Hands) -> str:
    """Look at both streams; withdraw and deposit, each at the stream's version of that moment; read the balances, report."""
    source, target = hands.find(r"from `([^`]+)`"), hands.find(r"to `([^`]+)`")
    floor = Decimal(hands.find(r"above \*\*([^*]+)\*\*"))
    for name in (source, target):
        await _stream(hands, name)
    present = await _stream(hands, source)
    amount = f"{_balance(present) - floor:.2f}"
    withdrawn = await _append(hands, source, "Withdrawn", amount, present)
    if not withdrawn.ok:
        return f"refused with {withdrawn.status}"
    cause = {"causation_id": hands.copy(withdrawn["event_id"], "event_id")}
    deposited = await _append(hands, target, "Deposited", amount, await _stream(hands, target), **cause)
    if not deposited.ok:
        return f"refused with {deposited.status}"
    balances = {}
    for name in (source, target):
        shown = await _projected(hands, name, deposited["consistency_token"])
        if not shown.ok:
            return f"refused with {shown.status}"
        balances[name] = hands.retype(shown["balance"])
    reply = await hands.post(f"{hands.base}/reports", json={"balances": balances})
    return "moved" if reply.ok else f"refused with {reply.status}"


async def _stream(hands: Hands, name: str) -> Reply:
    return await hands.current(name, lambda: hands.get(f"{hands.base}/streams/{name}"))


def _balance(stream: Reply) -> Decimal:
    signed = [Decimal(event["amount"]) * (1 if event["type"] == "Deposited" else -1) for event in stream["events"]]
    return sum(signed, Decimal(0))


async def _append(hands: Hands, name: str, kind: str, amount: str, present: Reply, **more: str) -> Reply:
    said = {**hands.parts("field", expected_version=present["version"]), "type": kind, "amount": hands.retype(amount), **more}
    return await hands.post(f"{hands.base}/streams/{name}", json=said)


async def _projected(hands: Hands, name: str, token: str) -> Reply:
    """A balance that contains the agent's own writes, asked for again as long as the projection is behind."""
    for _ in range(TRIES):
        reply = await hands.get(
            f"{hands.base}/balances/{name}", headers={"Consistency-Token": hands.copy(token, "consistency_token")}
        )
        if reply.status != 503:
            break
        await hands.wait(reply.retry_after())
    return reply
