"""Fault operators of the service boundary: faults of networks, services and caches in tool calls.

>>> from mat_faults import service
>>> [operator.id for operator in service.operators()][:2]
['service.corrupt_field', 'service.delay']

Source: A3.4, A4.1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Delay, Drop, Duplicate, Effect, Raise, Replace, Reply
from mat.core.operator import CoveredBy
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults import path, wire
from mat_faults.mutators import corrupted, duplicate, is_sequence, leaves, like_sequence, with_leaf
from mat_faults.schema import CHANGING, KEEPING, METADATA, changed_metadata, could_damage, damaged
from mat_faults.site import (
    ANSWERED_BY_A_CACHE,
    earlier_replies,
    has_older,
    has_reply,
    is_obscured,
    on_reply,
    raw_observation,
)
from mat_faults.toolbox import HOWS, poisoned, tool_price

_TIMEOUT_MS: Final = 1_000
"""How long a caller waits before a time-out error."""
_RETRY_AFTER_S: Final = 30.0
_PARTIAL_MOST: Final = 16
"""The largest number of items that a partial reply loses."""


def _timeout(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("timeout", delay_ms=_TIMEOUT_MS)


def _error(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    kind = str(call.parameters["kind"])
    return Raise(kind, retry_after_s=_RETRY_AFTER_S if kind == "rate_limit" else None)


def _outage(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("connection")


def _delay(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Delay(int(call.parameters["ms"]))


def _flap(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The first call of the range fails, the second is served, the third fails."""
    return Raise("connection") if call.index % 2 == 0 else PASS


def _slow(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """Each call of the range takes longer than the one before."""
    return Delay(int(call.parameters["ms"]) * (call.index + 1))


def _drop(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The call or the reply is lost."""
    return Drop()


def _duplicate(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Duplicate(1)


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The previous reply to the same request: a cache never answers with the reply to another one."""
    age, replies = int(call.parameters["age"]), earlier_replies(call)
    return Replace(duplicate(replies[-age])) if len(replies) >= age else PASS


def _corrupt(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """Change one field and keep its type. `how`: "empty" or "wrong", or a kind of `schema.KEEPING`."""
    if reply is None:
        return PASS
    index, how = int(call.parameters["field"]), str(call.parameters["how"])
    if how in KEEPING:
        return _replace_or_pass(damaged(reply.value, how, index))
    found = list(leaves(reply.value))
    if index >= len(found):
        return PASS
    spot, leaf = found[index]
    return Replace(with_leaf(reply.value, spot, corrupted(leaf, how)))


def _replace_or_pass(changed: tuple[Any] | None) -> Effect:
    return PASS if changed is None else Replace(changed[0])


def _mismatch(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None:
        return PASS
    return _replace_or_pass(damaged(reply.value, str(call.parameters["how"]), int(call.parameters["field"])))


def _metadata(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return PASS if reply is None else _replace_or_pass(changed_metadata(reply.value, str(call.parameters["how"]), call.history))


def _poison(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return PASS if reply is None else _replace_or_pass(poisoned(reply.value, str(call.parameters["how"])))


def _partial(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    value: Any = None if reply is None else reply.value
    if isinstance(value, dict) and value:
        last = sorted(value, key=str)[-1]
        return Replace({key: item for key, item in value.items() if key != last})
    if is_sequence(value, 1):
        return Replace(like_sequence(value, list(value[: max(len(value) // 2, len(value) - _PARTIAL_MOST)])))
    return PASS


def _replies_at_all(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return has_reply(record)


def _has_content(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Whether there is a reply to lose: None, or a stream without chunks, is not."""
    found = raw_observation(record)
    return has_reply(record) and (is_obscured(record) or not (found.value is None or found.chunks == 0))


def _can_mismatch(value: Any, parameters: FrozenDict) -> bool:
    return could_damage(value, str(parameters["how"]), int(parameters["field"]))


def _can_corrupt(value: Any, parameters: FrozenDict) -> bool:
    index = int(parameters["field"])
    return (
        could_damage(value, str(parameters["how"]), index)
        if parameters.get("how") in KEEPING
        else len(list(leaves(value))) > index
    )


def _has_metadata(value: Any, parameters: FrozenDict) -> bool:
    return changed_metadata(value, str(parameters["how"])) is not None


def _has_tools(value: Any, parameters: FrozenDict) -> bool:
    return poisoned(value, str(parameters["how"])) is not None


def operators() -> tuple[Operator, ...]:
    return tuple(
        sorted((*_failures(), *_delays(), *_replies(), *path.operators(), *wire.operators()), key=lambda item: item.id)
    )


def _failures() -> tuple[Operator, ...]:
    """The call or its acknowledgement is lost or fails."""
    return (
        operator(
            "service.timeout", _timeout, plausible="the request is lost on the way", raises=["timeout"],
            bounds={"count": 1, "latency_ms": _TIMEOUT_MS},
        ),
        operator(
            "service.lost_ack", _timeout, phase="after", relevant=_replies_at_all, covered=CoveredBy(by="service.timeout"),
            plausible="the reply is lost on the way back", raises=["timeout"], bounds={"count": 1, "latency_ms": _TIMEOUT_MS},
        ),
        operator(
            "service.drop", _drop, default=False, plausible="a queue or a proxy drops the request and reports nothing",
            bounds={"count": 1},
        ),
        operator(
            "service.drop_reply", _drop, phase="after", relevant=_has_content, default=False,
            plausible="the request was served and an empty body came back", bounds={"count": 1, "magnitude": 1},
        ),
        operator(
            "service.outage", _outage, grid=[{"calls": 3, "magnitude": 1}, {"calls": 100, "magnitude": 2}],
            plausible="the service is down for a while, or for good", raises=["connection"], bounds={"count": 100},
        ),
        operator(
            "service.flapping", _flap, grid=[{"calls": 3, "magnitude": 1}, {"calls": 100, "magnitude": 2}], default=False,
            plausible="one of two instances behind a balancer is down", raises=["connection"], bounds={"count": 100},
        ),
        operator(
            "service.error", _error, default=False,
            grid=[{"kind": kind} for kind in ("server_error", "rate_limit", "auth", "not_found", "invalid")],
            plausible="5xx, 429 with Retry-After, expired credentials, 404 and 422", bounds={"count": 1},
        ),
        operator(
            "service.duplicate", _duplicate, relevant=_replies_at_all, covered=CoveredBy(), default=False,
            plausible="at-least-once delivery", bounds={"count": 1},
        ),
    )  # fmt: skip


def _delays() -> tuple[Operator, ...]:
    return (
        operator(
            "service.delay", _delay, grid=[{"ms": 1_000, "magnitude": 1}, {"ms": 60_000, "magnitude": 2}], default=False,
            plausible="slow replies", bounds={"count": 1, "latency_ms": 60_000},
        ),
        operator(
            "service.slow", _slow, default=False,
            grid=[{"calls": 3, "ms": 1_000, "magnitude": 1}, {"calls": 10, "ms": 10_000, "magnitude": 2}],
            plausible="a queue fills up: each reply takes longer than the last", bounds={"count": 10, "latency_ms": 100_000},
        ),
    )  # fmt: skip


def _replies() -> tuple[Operator, ...]:
    """The delivered reply differs from the port's reply."""
    one = {"magnitude": 1}
    return (
        operator(
            "service.stale", _stale, grid=[{"age": 1, "magnitude": 1}, {"age": 2, "magnitude": 2}], relevant=has_older,
            covered=ANSWERED_BY_A_CACHE, bounds={"count": 1, "staleness": 2},
            plausible="a cache answers with an outdated value",
        ),
        operator(
            "service.corrupt_field", _corrupt, phase="after",
            relevant=on_reply(_can_corrupt),
            grid=[{"field": field, "how": how, "magnitude": 1} for field in range(3) for how in ("empty", "wrong")],
            plausible="one field is missing or wrong after a change of schema", bounds={"count": 1, "magnitude": 1},
        ),
        operator(
            "service.invalid_field", _mismatch, phase="after", relevant=on_reply(_can_mismatch), default=False,
            grid=[{"field": field, "how": how, **one} for field in range(2) for how in KEEPING],
            plausible="one field holds what its schema does not allow: a range, an enumeration, a length, a date, an encoding",
            bounds={"count": 1, "magnitude": 1},
        ),
        operator(
            "service.schema_mismatch", _mismatch, phase="after", relevant=on_reply(_can_mismatch), default=False,
            grid=[{"field": field, "how": how, **one} for field in range(2) for how in CHANGING],
            plausible="the service was deployed with another schema than the caller knows", bounds={"count": 1, "magnitude": 1},
        ),
        operator(
            "service.metadata", _metadata, phase="after", relevant=on_reply(_has_metadata), default=False,
            grid=[{"how": how, **one} for how in METADATA],
            plausible="a proxy or a new release sets other headers, versions, tags and times",
            bounds={"count": 1, "magnitude": 1},
        ),
        operator(
            "service.tool_description", _poison, phase="after", relevant=on_reply(_has_tools), default=False, price=tool_price,
            grid=[{"how": how, "magnitude": 1 if how in ("enum", "instruction") else 2} for how in HOWS],
            plausible="the publisher of a tool writes its description and schema", bounds={"count": 1, "magnitude": 2},
        ),
        operator(
            "service.partial", _partial, phase="after", grid=[one], default=False,
            relevant=on_reply(lambda value, parameters: isinstance(value, dict | list) and bool(value)),
            plausible="a page or a field is missing", bounds={"count": 1, "magnitude": _PARTIAL_MOST},
        ),
    )  # fmt: skip
