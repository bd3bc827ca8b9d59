"""The contracts on traces of this task: the bookings of a failed saga are undone, in reverse, by undo URLs that are valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import (
    Exchange,
    backoff_respected,
    compensated,
    compliant,
    exchange,
    expected,
    no_shortcut,
    required,
)

ISSUES = (mat.artifact.issue("undo_url", at="body.undo.url", expires_in="holds"),)
CONSUMES = (mat.artifact.consume("undo_url", at="url", when={"url": r"/undo", "method": "POST"}),)
BOOK, UNDO, OUTCOME = "POST /{service}/bookings", "POST /{service}/bookings/{booking}/undo", "POST /sagas/{saga}/outcome"


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant("undo_url"),
        no_shortcut("POST /sagas/{saga}/abandon"),
        compensated({BOOK: UNDO}, completed=OUTCOME, key="booking"),
        backoff_respected(UNDO),
        required("POST /sagas", "body.order"),
        expected("POST /sagas", {"body.order": given["order"]}),
        required(BOOK, ["body.saga", "body.item", "body.amount"]),
        required(OUTCOME, "body.outcome"),
        in_sequence,
    ]


@mat.trace_contract(FrozenDict(saga="", steps=(), standing=(), undone=0), on="tool_call", id="in_sequence", label="WRONG_VALUE")
def in_sequence(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """Steps are booked one by one in the listed order and undone in reverse; the report is true."""
    found = exchange(record)
    if found is None or found.method != "POST":
        return None
    place, said = found.path.strip("/").split("/"), found.reply if isinstance(found.reply, Mapping) else {}
    if found.path == "/sagas" and found.succeeded:
        steps = tuple(FrozenDict(step) for step in said["steps"])
        return FrozenDict(state, saga=said["saga"], steps=steps)
    if place[-1] == "bookings":
        return _booked(state, found, place[0], said)
    if said.get("state") == "cancelled":  # known by what came back: the URL may stand behind a handle
        return _undone(state, found, said["booking"])
    if place[-1] == "undo" and len(place) == 4:
        return _undone(state, found, place[2])
    if place[-1] != "outcome" or (outcome := found.value("body.outcome")) is None:
        return None
    complete = len(state["standing"]) == len(state["steps"]) and not state["undone"]
    if outcome == "compensated" and state["standing"]:
        return mat.Violated("reported as compensated, but bookings remain", label="COMPENSATION_FAILURE")
    if outcome != "compensated" and not (outcome == "completed" and complete):
        return mat.Violated(f"reported as {outcome}, but it is not")
    return None


def _booked(state: FrozenDict, found: Exchange, service: str, said: Mapping[str, Any]) -> FrozenDict | mat.Violated | None:
    step = next((item for item in state["steps"] if item["service"] == service), None)
    sent = {name: found.value(f"body.{name}") for name in ("saga", "item", "amount")}
    if step is None or None in sent.values():
        return None
    if sent != {"saga": state["saga"], "item": step["item"], "amount": step["amount"]}:
        return mat.Violated(f"the step of {service} has another saga, item or amount")
    at = len(state["standing"])
    if state["undone"] or at == len(state["steps"]) or state["steps"][at]["service"] != service:
        return mat.Violated(f"{service} is not the next step")
    return FrozenDict(state, standing=(*state["standing"], said["booking"])) if found.succeeded else None


def _undone(state: FrozenDict, found: Exchange, booking: str) -> FrozenDict | mat.Violated | None:
    standing = state["standing"]
    if booking in standing and booking != standing[-1]:
        return mat.Violated(f"{booking} is undone before a later one", label="COMPENSATION_FAILURE")
    if booking not in standing or not found.succeeded:
        return None
    return FrozenDict(state, standing=standing[:-1], undone=state["undone"] + 1)
