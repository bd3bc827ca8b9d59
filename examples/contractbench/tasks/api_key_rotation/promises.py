"""The contracts on traces of this task: keys and tickets are whole, tickets in time, the former key is given to nobody after
the rotation and is revoked when everybody has the new one, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.core.artifact import issued, used
from mat.core.value import EMPTY, FrozenDict
from mat_contracts.observation import compliant, exchange, expected, required

SWITCH = "PUT /consumers/{name}/key"
ISSUES = (
    mat.artifact.issue("api_key", at="body.key", when={"url": r"/rotate$"}),
    mat.artifact.issue("ticket", at="body.consumers.*.ticket", expires_in="closes_in", when={"url": r"/consumers$"}),
)
CONSUMES = (
    mat.artifact.consume("api_key", at="headers.x-api-key"),
    mat.artifact.consume("api_key", at="json.key", when={"url": r"/consumers/.+/key$"}, required=False),
    mat.artifact.consume("ticket", at="json.ticket", when={"url": r"/consumers/.+/key$"}, required=False),
)


def known(given: Mapping[str, Any]) -> dict[str, str]:
    return {"api_key": given["api_key"]}


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    names = [name for name, _ in given["consumers"]]
    return [
        compliant(["api_key", "ticket"]),
        required(SWITCH, ["body.key", "body.ticket"]),
        expected(SWITCH, {"path.name": names}),
        expected("POST /keys/{id}/rotate", {"path.id": given["key_id"]}),
        expected("DELETE /keys/{id}", {"path.id": given["key_id"]}),
        rotation(given["key_id"], frozenset(names)),
    ]


class Rotation(NamedTuple):
    """rotated_ms: when, -1 before. accepted_ms: for how long the former key is. tickets: artifact -> consumer."""

    rotated_ms: int = -1
    accepted_ms: int = 0
    tickets: FrozenDict = EMPTY
    switched: tuple[str, ...] = ()
    proven: bool = False
    revoked: bool = False


def rotation(key_id: str, names: frozenset[str]) -> mat.Contract:
    """The former key is the first one of the run: it came with the task. It opens doors until its time is over or it is
    revoked; nobody is switched over to it; and it is revoked once all have the new one and that one was seen to work.
    """

    def ended(state: Rotation) -> mat.Violated | None:
        if state.revoked or names - set(state.switched):
            return None
        return mat.Violated("everybody has the new key, but the former one was never revoked", label="MISSING_CONSTRAINT")

    @mat.trace_contract(start=Rotation(), finish=ended, id="rotation.in_order", label="MISSING_CONSTRAINT")
    def in_order(state: Rotation, record: mat.Record) -> Rotation | mat.Violated:
        found = exchange(record)
        if found is None:
            return state
        new, problems = state, []
        uses = [item for item in used(record) if item.name == "api_key" and item.intact]
        former = {item.at.partition(".")[0] for item in uses if item.id == "api_key#1"}
        over = state.revoked or 0 <= state.rotated_ms <= record.at_ms - state.accepted_ms
        if "headers" in former and over:
            problems.append(("EXPIRED_BEFORE_USE", "the former key is no longer accepted"))
        if found.path.endswith("/rotate") and found.status == 201:
            accepted = round(found.reply["former_key_accepted_for"] * 1000)
            new = state._replace(rotated_ms=record.sealed_ms, accepted_ms=accepted)
        elif found.path == "/consumers" and found.status == 200:
            at = {item.id: found.reply["consumers"][int(item.at.split(".")[2])]["name"] for item in issued(record)}
            new = state._replace(tickets=FrozenDict({**state.tickets, **at}))
        elif found.method == "PUT":
            problems += _switch(state, record, found.path.split("/")[2], "json" in former)
            if found.status == 200:
                new = state._replace(switched=(*state.switched, found.path.split("/")[2]))
        elif found.path == "/whoami" and found.status == 200 and "headers" not in former:
            new = state._replace(proven=True)
        elif found.method == "DELETE":
            if found.path.endswith(f"/{key_id}") and (names - set(state.switched) or not state.proven):
                problems.append(("MISSING_CONSTRAINT", "a key is revoked when nobody needs it and its successor is proven"))
            new = state._replace(revoked=found.status == 200)
        return _violated(problems, new) if problems else new

    return in_order


def _switch(state: Rotation, record: mat.Record, name: str, is_former: bool) -> list[tuple[str, str]]:
    """What is wrong with the key and the ticket of a switch."""
    problems = []
    if state.rotated_ms < 0:
        problems.append(("MISSING_CONSTRAINT", "there is no new key yet"))
    elif is_former:
        problems.append(("EXPIRED_BEFORE_USE", f"{name} was switched over to the key that goes"))
    if any(state.tickets.get(item.id, name) != name for item in used(record) if item.name == "ticket"):
        problems.append(("WRONG_VALUE", f"the ticket does not belong to {name}"))
    return problems


def _violated(problems: list[tuple[str, str]], state: Rotation) -> mat.Violated:
    (label, said), *rest = problems
    return mat.Violated(said, state=state, label=label, more=tuple(mat.Violated(text, label=of) for of, text in rest))
