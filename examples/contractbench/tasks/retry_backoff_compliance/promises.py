"""The contracts on traces of this task: waits are kept, and a repeated request says which attempt it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Violated
from mat_contracts.observation import backoff_respected, exchange, expected, required, stated_wait_ms

DISPATCH = "POST /dispatches"
ISSUES: tuple[Any, ...] = ()


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        backoff_respected(DISPATCH),
        required(DISPATCH, "body.parcel", label="WRONG_VALUE"),
        expected(DISPATCH, {"body.parcel": given["parcels"]}),
        _attempts_named(),
    ]


class _Attempts(NamedTuple):
    quiet_ms: int = 0
    """Until when the endpoint wants to be left alone."""
    counted: FrozenDict = EMPTY
    """Parcel -> how many of its attempts counted."""


def _attempts_named() -> mat.Contract:
    @mat.trace_contract(start=_Attempts(), on="tool_call", id="attempts named", label="MISSING_CONSTRAINT")
    def named(state: _Attempts, record: mat.Record) -> _Attempts | Violated:
        """A repeated request carries its number in X-Attempt; requests that came too early do not count."""
        found = exchange(record)
        if found is None or found.path != "/dispatches" or found.method != "POST":
            return state
        early, wait = record.at_ms < state.quiet_ms, stated_wait_ms(record)
        quiet_ms = state.quiet_ms if wait is None else record.sealed_ms + wait
        parcel, said = str(found.fields.get("parcel")), found.headers.get("x-attempt")
        due = state.counted.get(parcel, 0) + 1
        if early or (said is not None and said.strip() == str(due)) or (said is None and due == 1):
            answered = not early and (found.succeeded or found.status == 503)
            counted = FrozenDict({**state.counted, parcel: due}) if answered else state.counted
            return _Attempts(quiet_ms, counted)
        if found.status == 409:  # dispatched before: no attempt at all
            return state
        if said is None:
            return Violated(f"attempt {due} at {parcel} carries no X-Attempt", state=state)
        return Violated(f"attempt {due} at {parcel} says it is {said}", state=state, label="WRONG_VALUE")

    return named
