"""Operators on tool calls: what networks, services and caches do (A3.4, A4.1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Delay, Duplicate, Effect, Raise, Replace, Reply
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.reshape import corrupted, duplicate, is_sequence, leaves, like_sequence, with_leaf
from mat_faults.site import earlier, older_differs, on_reply, replied, same_request

_TIMEOUT_MS: Final = 1_000
"""How long a caller waits before a time-out is raised."""


def _timeout(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("timeout", delay_ms=_TIMEOUT_MS)


def _error(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    kind = str(call.parameters["kind"])
    return Raise(kind, retry_after_s=30.0 if kind == "rate_limit" else None)


def _outage(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("connection")


def _delay(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Delay(int(call.parameters["ms"]))


def _duplicate(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Duplicate(1)


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """What the same request was answered before: no cache answers with what another one was told."""
    age, replies = int(call.parameters["age"]), earlier(call)
    return Replace(duplicate(replies[-age])) if len(replies) >= age else PASS


def _corrupt(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None:
        return PASS
    found = list(leaves(reply.value))
    index = int(call.parameters["field"])
    if index >= len(found):
        return PASS
    path, leaf = found[index]
    return Replace(with_leaf(reply.value, path, corrupted(leaf, str(call.parameters["how"]))))


def _partial(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    value: Any = None if reply is None else reply.value
    if isinstance(value, dict) and value:
        last = sorted(value, key=str)[-1]
        return Replace({key: item for key, item in value.items() if key != last})
    if is_sequence(value, 1):
        return Replace(like_sequence(value, list(value[: len(value) // 2])))
    return PASS


def _writes(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return record.action.effect == "write"


def _acknowledges(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Losing the acknowledgement of a read is a time-out."""
    return record.action.effect == "write" and replied(record)


def _has_older(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return older_differs(record, [item for item in before if same_request(item, record)], int(parameters["age"]))


def operators() -> tuple[Operator, ...]:
    return (
        operator("service.timeout", _timeout, plausible="the request is lost on the way"),
        operator(
            "service.lost_ack", _timeout, phase="after", relevant=_acknowledges, plausible="the reply is lost on the way back"
        ),
        operator(
            "service.stale", _stale, grid=[{"age": 1, "magnitude": 1}, {"age": 2, "magnitude": 2}], relevant=_has_older,
            plausible="a cache answers with what was true before",
        ),
        operator(
            "service.corrupt_field", _corrupt, phase="after",
            relevant=on_reply(lambda value, parameters: len(list(leaves(value))) > int(parameters["field"])),
            grid=[{"field": field, "how": how, "magnitude": 1} for field in range(3) for how in ("empty", "wrong")],
            plausible="one field is missing or wrong after a change of schema",
        ),
        operator(
            "service.outage", _outage, grid=[{"calls": 3, "magnitude": 1}, {"calls": 100, "magnitude": 2}],
            plausible="the service is down for a while, or for good",
        ),
        operator(
            "service.error", _error, grid=[{"kind": "server_error"}, {"kind": "rate_limit"}, {"kind": "auth"}], default=False,
            plausible="5xx, 429 and expired credentials",
        ),
        operator(
            "service.delay", _delay, grid=[{"ms": 1_000, "magnitude": 1}, {"ms": 60_000, "magnitude": 2}], default=False,
            plausible="slow replies",
        ),
        operator(
            "service.partial", _partial, phase="after", grid=[{"magnitude": 1}], default=False,
            relevant=on_reply(lambda value, parameters: isinstance(value, dict | list) and bool(value)),
            plausible="a page or a field is missing",
        ),
        operator("service.duplicate", _duplicate, relevant=_writes, default=False, plausible="at-least-once delivery"),
    )  # fmt: skip
