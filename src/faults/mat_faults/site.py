"""What the unperturbed record of a site tells an operator about the reply it would act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from mat.boundary.effect import Call
from mat.core.digest import canonical
from mat.core.operator import Relevant
from mat.core.record import Observation, Record
from mat.core.value import FrozenDict, Value


def heard(record: Record) -> Observation:
    """What the port said, before any fault."""
    return record.raw or record.observation


def said(record: Record) -> Value:
    return heard(record).value


def replied(record: Record) -> bool:
    """Whether the port gave a reply; where it raised, or was cancelled, nothing can be decided on one."""
    return heard(record).error is None and not heard(record).cancelled


def unclear(record: Record) -> bool:
    """Whether the record does not show the reply itself: without canonical form, or kept hashed or redacted."""
    value = said(record)
    return heard(record).opaque or (isinstance(value, dict) and ("sha256" in value or "redacted" in value) and "pii" in value)


def on_reply(test: Callable[[Value, FrozenDict], bool]) -> Relevant:
    """Relevant where the port replied and the reply passes the test, or cannot be seen well enough to rule it out."""

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return replied(record) and (unclear(record) or test(said(record), parameters))

    return relevant


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
    """Whether two calls asked the same of the same port."""
    mine, others = one.action, other.action
    asked, wanted = one.executed or mine.arguments, other.executed or others.arguments
    return (mine.kind, mine.boundary, mine.name, asked) == (others.kind, others.boundary, others.name, wanted)


def earlier(call: Call) -> list[Any]:
    """What the port replied to the same request before, oldest first."""
    return [reply for asked, reply in zip(call.asked, call.history, strict=True) if asked == call.arguments]
