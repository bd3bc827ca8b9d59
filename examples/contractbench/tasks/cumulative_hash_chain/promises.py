"""The contracts on traces of this task: ledgers are written while they are open, and each digest is chained to the last."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import mat
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import Exchange, exchange, required

ISSUES: tuple[Any, ...] = ()
LINKS, SEAL = "POST /ledgers/{name}/links", "POST /ledgers/{name}/seal"


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [required(LINKS, ["body.n", "body.digest"]), required(SEAL, "body.head"), open_when_used, chained]


def _about(found: Exchange | None) -> tuple[str, str]:
    """(ledger, what is done with it), both empty where a request is about none."""
    place = found.path.strip("/").split("/") if found is not None else []
    return (place[1], place[2]) if len(place) > 2 and place[0] == "ledgers" else ("", "")


@mat.trace_contract(FrozenDict(), on="tool_call", id="open_when_used", label="EXPIRED_BEFORE_USE")
def open_when_used(closes: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """A ledger is read and written before it closes, as the listing said."""
    found = exchange(record)
    if found is not None and found.path == "/ledgers" and found.succeeded:
        told = {item["name"]: record.sealed_ms + round(item["closes_in"] * 1000) for item in found.reply["ledgers"]}
        return FrozenDict({**told, **closes})
    name, _ = _about(found)
    if name in closes and record.at_ms >= closes[name]:
        return mat.Violated(f"{name} was closed {(record.at_ms - closes[name]) / 1000:g} s before")
    return None


@mat.trace_contract(FrozenDict(), on="tool_call", id="chained", label="WRONG_HASH")
def chained(ledgers: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """Each digest is the SHA-256 of the one before it and of the entry that was read; the seal bears the last one."""
    found = exchange(record)
    if found is not None and found.path == "/ledgers" and found.succeeded:
        fresh = {item["name"]: FrozenDict(head=item["genesis"], linked=0, of=item["entries"], entries=FrozenDict())
                 for item in found.reply["ledgers"]}  # fmt: skip
        return FrozenDict({**fresh, **ledgers})
    name, act = _about(found)
    if found is None or name not in ledgers:
        return None
    ledger = ledgers[name]
    if act == "entries" and found.succeeded:
        entries = FrozenDict({**ledger["entries"], str(found.reply["n"]): found.reply["entry"]})
        return FrozenDict({**ledgers, name: FrozenDict(ledger, entries=entries)})
    if act == "links":
        return _linked(ledgers, name, found)
    if act == "seal" and ledger["linked"] < ledger["of"]:
        return mat.Violated("sealed before all entries were linked", label="MISSING_CONSTRAINT")
    if act == "seal" and found.value("body.head") not in (None, ledger["head"]):
        return mat.Violated("the head is not the last digest")
    return None


def _linked(ledgers: FrozenDict, name: str, found: Exchange) -> FrozenDict | mat.Violated | None:
    ledger, n, digest = ledgers[name], found.value("body.n"), found.value("body.digest")
    if n is None or digest is None:
        return None
    if n != ledger["linked"] + 1 or n > ledger["of"]:
        return mat.Violated(f"entry {n} is linked after entry {ledger['linked']}", label="WRONG_VALUE")
    entry = ledger["entries"].get(str(n))
    hidden = entry is not None and "[redacted:" in entry  # the trace does not show it
    if entry is None or (not hidden and digest != sha256((ledger["head"] + entry).encode()).hexdigest()):
        return mat.Violated(f"digest {n} of {name} is not the chained digest")
    if not found.succeeded:
        return None
    return FrozenDict({**ledgers, name: FrozenDict(ledger, head=digest, linked=n)})
