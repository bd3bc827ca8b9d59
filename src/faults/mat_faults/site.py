"""Read from the unperturbed record of a site what an operator needs to know about the reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from mat.boundary.effect import Call, Past
from mat.core import limits
from mat.core.digest import canonical
from mat.core.operator import Relevant
from mat.core.record import Observation, Record
from mat.core.value import FrozenDict, Value


def heard(record: Record) -> Observation:
    """The port's reply, before any fault."""
    return record.raw or record.observation


def said(record: Record) -> Value:
    return heard(record).value


def replied(record: Record) -> bool:
    """Whether the port gave a reply; where it raised, or was cancelled, nothing can be decided on one."""
    return heard(record).error is None and not heard(record).cancelled


def unclear(record: Record) -> bool:
    """Whether the record does not show the reply itself: without canonical form, or hashed or redacted, if only in part."""
    return heard(record).opaque or hidden(said(record))


def hidden(value: Value) -> bool:
    """Whether a recorded value, or a part of it, is kept as its digest, or had something cut out of it."""
    if isinstance(value, str):
        return "[redacted:" in value
    if isinstance(value, dict):
        kept = ("sha256" in value or "redacted" in value) and "pii" in value
        return kept or any(hidden(item) for item in value.values())
    return isinstance(value, list) and any(hidden(item) for item in value)


def on_reply(test: Callable[[Value, FrozenDict], bool]) -> Relevant:
    """Relevant where the port replied and the reply passes the test, or cannot be seen well enough to rule it out."""

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return replied(record) and (test(said(record), parameters) or unclear(record))

    return relevant


def asked(record: Record) -> FrozenDict:
    """The arguments that the port got, in recorded form."""
    return record.executed or record.action.arguments


def on_arguments(test: Callable[[FrozenDict, FrozenDict], bool]) -> Relevant:
    """Relevant where the arguments, as governance let them through, pass the test or are not shown."""

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return test(asked(record), parameters) or hidden(asked(record))

    return relevant


def past_of(record: Record, before: Sequence[Record]) -> tuple[Past, ...]:
    """The port's earlier calls as `Call.past` would hold them, from the records."""
    port = (record.action.boundary, record.action.name)
    same = [item for item in before if (item.action.boundary, item.action.name) == port and item.invoked and replied(item)]
    return tuple(
        Past(kind=item.action.kind, agent=item.agent, arguments=asked(item), value=said(item), at_ms=item.at_ms)
        for item in same[-limits.HISTORY :]
    )


def older_differs(record: Record, same: Sequence[Record], age: int) -> bool:
    """Whether the reply `age` back among `same` differs from today's; a stale copy of the same is no change.

    Of a write it is one all the same, because nothing is written. Replies in flight at the same time are heard in an order of
    their own: then any that differs will do.
    """
    replies = [item for item in same if replied(item) and item.invoked]
    if len(replies) < age:
        return False
    if not replied(record) or unclear(record) or record.action.effect == "write":
        return True
    ordered = all(item.happened_before(record) for item in replies) and all(
        one.happened_before(other) for one, other in pairwise(replies)
    )
    return any(
        unclear(item) or canonical(said(item)) != canonical(said(record))
        for item in (replies[-age:][:1] if ordered else replies)
    )


def same_request(one: Record, other: Record) -> bool:
    """Whether two calls make the same request to the same port."""
    mine, others = one.action, other.action
    return (mine.kind, mine.boundary, mine.name, asked(one)) == (others.kind, others.boundary, others.name, asked(other))


def earlier(call: Call) -> list[Any]:
    """What the port replied to the same request before, oldest first."""
    return [item.value for item in call.past if item.kind == call.kind and item.arguments == call.arguments]
