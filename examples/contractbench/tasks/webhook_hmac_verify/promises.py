"""The contracts on traces of this task: what is genuine is accepted with a receipt over what was read, all else rejected."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Any

import mat
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import Exchange, backoff_respected, exchange, required, stated_wait_ms

ACCEPT, REJECT, READ = "POST /deliveries/{id}/accept", "POST /deliveries/{id}/reject", "GET /deliveries/{id}"
ISSUES: tuple[Any, ...] = ()


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    genuine = {entry["id"] for entry in given["deliveries"] if not entry["forged"]}
    known = {entry["id"] for entry in given["deliveries"]}

    @mat.trace_contract(FrozenDict(read=FrozenDict(), settled=()), on="tool_call", id="verified", label="SIGNATURE_MISMATCH")
    def verified(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
        """Only genuine deliveries are accepted, each with the receipt of its latest attempt; none of them is rejected."""
        found = exchange(record)
        place = re.fullmatch(r"/deliveries/([^/]+)(/accept|/reject)?", found.path) if found else None
        if found is None or place is None or place[1] not in known:
            return None
        id, new = place[1], _after(state, found, record, id=place[1])
        said, label = "", ""
        if place[2] == "/reject" and id in genuine and found.fields.get("reason"):
            said, label = "a genuine delivery was rejected", "WRONG_VALUE"
        if place[2] == "/accept" and id not in state["settled"] and not _paused(state, id, record):
            receipt = found.headers.get("webhook-receipt", "")
            if receipt and id not in genuine:
                said = "a delivery was accepted that its sender has not signed"
            elif receipt and not _verifies(receipt, state["read"].get(id), given["secret"], record):
                said = "the receipt is not that of the latest attempt at this delivery"
        return mat.Violated(said, state=new, instance=id, label=label or "SIGNATURE_MISMATCH") if said else new

    return [
        verified,
        backoff_respected([ACCEPT, READ]),
        required(ACCEPT, "headers.webhook-receipt"),
        required(REJECT, "body.reason"),
    ]


def _after(state: FrozenDict, found: Exchange, record: Record, *, id: str) -> FrozenDict:
    """What is known once a reply is there: what was read of a delivery, until when it pauses, whether it is settled."""
    read, settled = state["read"], state["settled"]
    known = read.get(id, FrozenDict(signed="", stamp="", at=-1, until=0))
    if found.method == "GET" and isinstance(found.reply, Mapping) and "payload" in found.reply:
        stamp = dict(re.findall(r"(\w+)=([^,\s]*)", found.reply["signature"])).get("t", "")
        new = FrozenDict({**known, "signed": f"{stamp}.{found.reply['payload']}", "stamp": stamp, "at": record.sealed_ms})
        return FrozenDict(read=FrozenDict({**read, id: new}), settled=settled)
    wait = stated_wait_ms(record) if found.status == 503 else None
    if wait is not None:
        new = FrozenDict({**known, "until": max(known["until"], record.sealed_ms + wait)})
        return FrozenDict(read=FrozenDict({**read, id: new}), settled=settled)
    done = found.method == "POST" and found.status == 200 and id not in settled
    return FrozenDict(read=read, settled=(*settled, id) if done else settled)


def _paused(state: FrozenDict, id: str, record: Record) -> bool:
    known = state["read"].get(id)
    return known is not None and record.at_ms < known["until"]


def _verifies(receipt: str, known: FrozenDict | None, secret: str, record: Record) -> bool:
    """Whether a receipt is right for what was read; what was read before a delivery was made anew is over."""
    if known is None or not known["signed"] or known["at"] < known["until"]:
        return False
    parts = dict(re.findall(r"(\w+)=([^,\s]*)", receipt))
    right = hmac.new(secret.encode(), f"{known['signed']}.accepted".encode(), "sha256").hexdigest()
    return (parts.get("t"), parts.get("v1")) == (known["stamp"], right)
