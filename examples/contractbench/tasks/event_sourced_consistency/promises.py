"""The contracts on traces of this task: writes are made on the present version, and what is read contains them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import mat
from mat.core.artifact import issued, used
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import (
    Exchange,
    backoff_respected,
    bytes_preserved,
    compliant,
    exchange,
    expected,
    present,
    required,
)

ISSUES = (
    mat.artifact.issue("consistency_token", at="body.consistency_token", expires_in="token_holds"),
    mat.artifact.issue("event_id", at="body.event_id"),
)
CONSUMES = (
    mat.artifact.consume("consistency_token", at="headers.consistency-token", when={"url": r"/balances/"}, required=False),
    mat.artifact.consume("event_id", at="json.causation_id", required=False),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    source, target = (f"POST /streams/{given[name]}" for name in ("source", "target"))
    both = ["body.expected_version", "body.type", "body.amount"]
    return [
        compliant("consistency_token"),
        bytes_preserved("event_id"),
        present("event_id"),
        required("GET /balances/{name}", "headers.consistency-token"),
        backoff_respected("GET /balances/{name}"),
        required(source, both, id="withdrawal"),
        required(target, [*both, "body.causation_id"], id="deposit"),
        expected(source, {"body.type": "Withdrawn"}, id="withdrawn"),
        expected(target, {"body.type": "Deposited"}, id="deposited"),
        required("POST /reports", [f"body.balances.{given[name]}" for name in ("source", "target")]),
        present_version,
        moved(given["source"], Decimal(given["floor"])),
        reported,
    ]


@mat.trace_contract(FrozenDict(), on="tool_call", id="present_version", label="VERSION_CONFLICT")
def present_version(versions: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """An event is appended to the version that the stream has: it was that one when it was read, and nobody was faster."""
    found, name = exchange(record), _stream(exchange(record))
    if found is None or not name:
        return None
    if found.succeeded and isinstance(found.reply, Mapping):
        return FrozenDict({**versions, name: found.reply["version"]})
    version = found.value("body.expected_version")
    if found.method != "POST" or found.status != 409 or version is None:
        return None
    if isinstance(version, int) and 0 <= version <= versions.get(name, -1):
        return mat.Violated(f"{name} has gone on since version {version}")
    return mat.Violated(f"{name} never had version {version}", label="WRONG_VALUE")


def moved(source: str, floor: Decimal) -> mat.Contract:
    """What is withdrawn is what the stream as it was read has above the floor; the same is deposited, for that reason."""

    @mat.trace_contract(FrozenDict(above="", amount="0.00"), on="tool_call", id="moved", label="WRONG_VALUE")
    def judged(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
        found, name = exchange(record), _stream(exchange(record))
        if found is None or not name:
            return None
        if found.method == "GET":
            read = name == source and found.succeeded
            return FrozenDict(state, above=f"{_balance(found.reply['events']) - floor:.2f}") if read else None
        amount = found.value("body.amount")
        at_a_version = found.value("body.expected_version") not in (None, "") and found.status != 409
        if amount not in (None, "") and at_a_version and amount != (state["above"] if name == source else state["amount"]):
            return mat.Violated(f"{amount} is not what is to be moved")
        if name == source and found.succeeded:
            return FrozenDict(state, amount=amount)
        return None

    return judged


@mat.trace_contract(
    FrozenDict(shown=FrozenDict(), due=FrozenDict(), latest=""), on="tool_call", id="reported", label="WRONG_VALUE"
)
def reported(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """The balances reported are those that the projection showed, with the agent's own writes in them."""
    found, name = exchange(record), _stream(exchange(record))
    if found is None:
        return None
    if name and found.succeeded:
        own = Decimal(found.value("body.amount")) if found.method == "POST" else Decimal(0)
        signed = -own if found.value("body.type") == "Withdrawn" else own
        total = _balance(found.reply["events"]) if found.method == "GET" else Decimal(state["due"].get(name, "0"))
        latest = next((item.id for item in issued(record) if item.name == "consistency_token"), state["latest"])
        return FrozenDict(state, due=FrozenDict({**state["due"], name: f"{total + signed:.2f}"}), latest=latest)
    if found.path.startswith("/balances/") and found.succeeded:
        certain = any(item.id == state["latest"] for item in used(record))  # the token promises all of its own writes
        said = FrozenDict(balance=found.reply["balance"], certain=certain)
        return FrozenDict(state, shown=FrozenDict({**state["shown"], found.reply["stream"]: said}))
    balances = found.value("body.balances") if found.path == "/reports" else None
    for stream, balance in balances.items() if isinstance(balances, Mapping) else ():
        shown = state["shown"].get(stream)
        if shown is None or balance != shown["balance"]:
            return mat.Violated(f"the balance of {stream} differs from the one that was shown")
        if not shown["certain"] and balance != state["due"].get(stream, balance):
            return mat.Violated(f"the balance of {stream} lacks the agent's own writes")
    return None


def _stream(found: Exchange | None) -> str:
    """The stream that a request is about."""
    return found.path.removeprefix("/streams/") if found is not None and found.path.startswith("/streams/") else ""


def _balance(events: Any) -> Decimal:
    signed = (Decimal(event["amount"]) * (1 if event["type"] == "Deposited" else -1) for event in events)
    return sum(signed, Decimal(0))
