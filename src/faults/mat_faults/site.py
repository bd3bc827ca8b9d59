"""What operators need to know about a site, read from its record in the unperturbed run: the reply, the arguments, the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from mat.boundary.effect import Call, Past
from mat.core import limits
from mat.core.digest import canonical
from mat.core.operator import CoveredBy, Relevant
from mat.core.record import Observation, Record
from mat.core.value import FrozenDict, Value


def raw_observation(record: Record) -> Observation:
    """The port's reply, before any fault."""
    return record.raw or record.observation


def reply_value(record: Record) -> Value:
    return raw_observation(record).value


def has_reply(record: Record) -> bool:
    """Whether the port returned a reply: it neither raised nor was cancelled."""
    return raw_observation(record).error is None and not raw_observation(record).cancelled


def is_obscured(record: Record) -> bool:
    """Whether the record does not show the whole reply: it has no canonical form, or is hashed or redacted in part."""
    return raw_observation(record).opaque or is_hidden(reply_value(record))


def is_hidden(value: Value) -> bool:
    """Whether a recorded value, or a part of it, is hashed or redacted."""
    if isinstance(value, str):
        return "[redacted:" in value
    if isinstance(value, dict):
        kept = ("sha256" in value or "redacted" in value) and "pii" in value
        return kept or any(is_hidden(item) for item in value.values())
    return isinstance(value, list) and any(is_hidden(item) for item in value)


def on_reply(test: Callable[[Value, FrozenDict], bool]) -> Relevant:
    """Relevant if the port replied and the reply passes the test, or the record does not show the whole reply."""

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return has_reply(record) and (test(reply_value(record), parameters) or is_obscured(record))

    return relevant


def arguments_of(record: Record) -> FrozenDict:
    """The arguments that the port received, in recorded form."""
    return record.executed or record.action.arguments


def on_arguments(test: Callable[[FrozenDict, FrozenDict], bool]) -> Relevant:
    """Relevant if the arguments, as governance let them through, pass the test or are hidden."""

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return test(arguments_of(record), parameters) or is_hidden(arguments_of(record))

    return relevant


def past_of(record: Record, before: Sequence[Record]) -> tuple[Past, ...]:
    """The port's earlier calls, in the form of `Call.past`, from the records."""
    port = (record.action.boundary, record.action.name)
    same = [item for item in before if (item.action.boundary, item.action.name) == port and is_past(item)]
    return tuple(
        Past(kind=item.action.kind, agent=item.agent, arguments=arguments_of(item), value=reply_value(item), at_ms=item.at_ms)
        for item in same[-limits.HISTORY :]
    )


def is_past(record: Record) -> bool:
    """Whether a call's reply is among the earlier replies of its port: it replied, and no read's reply was lost on the way."""
    lost = record.action.changes_nothing and any(note.effect == "Raise" for note in record.faults)
    return bool(record.invoked) and has_reply(record) and not lost


def has_older(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Whether a cache has a reply to the same request, `age` replies back; it answers, and the port is not invoked."""
    replies = sum(is_past(item) for item in before if same_request(item, record))
    return replies >= int(parameters.get("age", 1))


def older_is_equal(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Whether the reply `age` back equals today's, so that the agent gets the same from the cache and from the port.

    If replies were in flight at the same time, their order is not decided, and all must equal it.
    """
    age, replies = int(parameters.get("age", 1)), [item for item in before if same_request(item, record) and is_past(item)]
    if len(replies) < age or not has_reply(record) or is_obscured(record):
        return False
    ordered = all(item.happened_before(record) for item in replies) and all(
        one.happened_before(other) for one, other in pairwise(replies)
    )
    return not any(
        is_obscured(item) or canonical(reply_value(item)) != canonical(reply_value(record))
        for item in (replies[-age:][:1] if ordered else replies)
    )


ANSWERED_BY_A_CACHE: Final = CoveredBy(when=older_is_equal)
"""A stale reply that equals today's: at a read, the run without it."""


def same_request(one: Record, other: Record) -> bool:
    """Whether two calls make the same request to the same port."""
    mine, others = one.action, other.action
    return (mine.kind, mine.boundary, mine.name, arguments_of(one)) == (
        others.kind,
        others.boundary,
        others.name,
        arguments_of(other),
    )


def earlier_replies(call: Call) -> list[Any]:
    """The port's earlier replies to the same request, oldest first."""
    return [item.value for item in call.past if item.kind == call.kind and item.arguments == call.arguments]
