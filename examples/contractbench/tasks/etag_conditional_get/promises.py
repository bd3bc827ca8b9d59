"""The contracts on traces of this task: entity tags as they came, conditions where they are due, writes on what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.core.artifact import issued, used
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Violated
from mat_contracts.observation import compliant, exchange, expected, required

CONDITIONS = {"GET": "headers.if-none-match", "PUT": "headers.if-match"}
READ, WRITE = "GET /documents/{name}", "PUT /documents/{name}"
ISSUES = (mat.artifact.issue("etag", at="headers.etag", integrity=mat.artifact.etag(), when={"url": "/documents/"}),)
CONSUMES = (
    mat.artifact.consume("etag", at="headers.if-match", when={"headers.if-match": r"[^*\s]"}, required=False),
    mat.artifact.consume("etag", at="headers.if-none-match", required=False),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant("etag"),
        required(WRITE, "headers.if-match"),
        expected(WRITE, {"headers.if-match": lambda tag: str(tag).strip() != "*"}, label="MISSING_CONSTRAINT"),
        expected([READ, WRITE], {"path.name": given["documents"]}),
        _read_again_conditionally(),
        _writes_on_what_is_there(),
    ]


def _read_again_conditionally() -> mat.Contract:
    @mat.trace_contract(start=(), on="tool_call", id="read again conditionally", label="MISSING_CONSTRAINT")
    def conditional(have: tuple[str, ...], record: mat.Record) -> tuple[str, ...] | Violated:
        """A document that was read once is only asked for again with If-None-Match."""
        found = exchange(record)
        if found is None or found.method != "GET":
            return have
        if found.path in have and not found.headers.get("if-none-match"):
            return Violated(f"{found.path} was already read, but is requested again without a condition", state=have)
        return (*have, found.path) if found.status == 200 and found.path not in have else have

    return conditional


class _Versions(NamedTuple):
    latest: FrozenDict = EMPTY
    """Document -> the number of the tag seen last."""
    seen: FrozenDict = EMPTY
    """Number of a tag -> (document, its content)."""


def _writes_on_what_is_there() -> mat.Contract:
    @mat.trace_contract(start=_Versions(), on="tool_call", id="writes on what is there", label="VERSION_CONFLICT")
    def fresh(state: _Versions, record: mat.Record) -> _Versions | Violated:
        """A write names the current version, and changes only the state of that version."""
        found = exchange(record)
        if found is None:
            return state
        new = _noted(state, found.path, found.reply, found.status, [_number(item.id) for item in issued(record)])
        condition = CONDITIONS.get(found.method, "")
        named = [_number(item.id) for item in used(record) if item.at.lower() == condition and item.intact]
        if not named:
            return new
        document, content = state.seen.get(str(named[0]), ("", None))
        if document != found.path:
            return Violated(f"the tag of {document} is sent to {found.path}", state=new, label="WRONG_VALUE")
        if found.method != "PUT":
            return new
        # What others have written in between shows in nothing but the answer.
        if named[0] != state.latest.get(document) or found.status == 412:
            return Violated(f"the version of {document} that was named had been replaced", state=new)
        if isinstance(content, Mapping) and dict(found.fields) != {**content, "state": "approved"}:
            return Violated(f"more than the state of {document} was changed", state=new, label="WRONG_VALUE")
        return new

    return fresh


def _number(artefact: str) -> int:
    return int(artefact.partition("#")[2])


def _noted(state: _Versions, path: str, said: object, status: int, numbers: list[int]) -> _Versions:
    """The state after an answer, which may have brought a version, or said that the known one is current."""
    for number in numbers:
        known = state.seen.get(str(state.latest.get(path)), ("", None))[1]
        seen = {**state.seen, str(number): (path, known if status == 304 else said)}
        state = _Versions(FrozenDict({**state.latest, path: number}), FrozenDict(seen))
    return state
