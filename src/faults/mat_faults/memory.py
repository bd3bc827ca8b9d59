"""Operators on memories that agents share, bounded by the number and size of what is touched (A3.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Drop, Effect, Replace, Reply
from mat.core.cost import CostModel, tokens
from mat.core.record import Record
from mat.core.value import FrozenDict, Value
from mat_faults.payloads import NOTES
from mat_faults.reshape import can_take_note, duplicate, is_sequence, like_sequence, with_note
from mat_faults.site import earlier, older_differs, on_reply, same_request


def insert(notes: Sequence[str] = NOTES, *, id: str = "memory.insert", default: bool = True) -> Operator:
    """A note that nobody of the team wrote stands in what is read. One hook, and the tokens of the note."""
    texts = tuple(notes)

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        listing = "keys" in call.arguments and "key" not in call.arguments  # a note is no key
        poisoned = None if reply is None or listing else with_note(reply.value, texts[int(call.parameters["note"])])
        return PASS if poisoned is None else Replace(poisoned)

    def price(parameters: FrozenDict, model: CostModel) -> int:
        return model.of(hooks=1, changed=len(tokens(texts[int(parameters["note"])])))

    takes_note = on_reply(lambda value, parameters: can_take_note(value))

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        listing = "keys" in record.action.arguments and "key" not in record.action.arguments
        return not listing and takes_note(record, parameters, before)

    return operator(
        id, decide, phase="after", kinds=["memory_read"], grid=[{"note": index} for index in range(len(texts))],
        price=price, relevant=relevant, default=default, plausible="whoever can write to the memory can leave a note",
    )  # fmt: skip


def _reorder(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None or not is_sequence(reply.value, 2):
        return PASS
    return Replace(like_sequence(reply.value, list(reversed(reply.value))))


def _order_matters(value: Value, parameters: FrozenDict) -> bool:
    return is_sequence(value, 2) and list(reversed(value)) != value  # type: ignore[arg-type]


def _lost(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Drop()


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """What the same read gave the last time; writes and other keys are no answer to it."""
    replies = earlier(call)
    return Replace(duplicate(replies[-1])) if replies else PASS


def _older_read(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return older_differs(record, [item for item in before if same_request(item, record)], 1)


def operators() -> tuple[Operator, ...]:
    return (
        insert(),
        operator(
            "memory.reorder", _reorder, phase="after", kinds=["memory_read"], grid=[{"magnitude": 1}],
            relevant=on_reply(_order_matters), plausible="two writers, one list",
        ),
        operator("memory.lost_write", _lost, kinds=["memory_write"], default=False, plausible="a write that nobody confirms"),
        operator(
            "memory.stale_read", _stale, kinds=["memory_read"], grid=[{"magnitude": 1}], relevant=_older_read, default=False,
            plausible="a replica that lags",
        ),
    )  # fmt: skip
