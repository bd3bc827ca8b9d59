"""Operators on memories that agents share, bounded by the number and size of what is touched (A3.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Drop, Effect, Replace, Reply
from mat.core.cost import CostModel, tokens
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.payloads import NOTES
from mat_faults.reshape import can_take_note, duplicate, is_sequence, with_note
from mat_faults.service import has_older, said


def insert(notes: Sequence[str] = NOTES, *, id: str = "memory.insert", default: bool = True) -> Operator:
    """A note that nobody of the team wrote stands in what is read. One hook, and the tokens of the note."""
    texts = tuple(notes)

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        poisoned = None if reply is None else with_note(reply.value, texts[int(call.parameters["note"])])
        return PASS if poisoned is None else Replace(poisoned)

    def price(parameters: FrozenDict, model: CostModel) -> int:
        return model.of(hooks=1, changed=len(tokens(texts[int(parameters["note"])])))

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return record.observation.error is None and can_take_note(said(record))

    return operator(
        id, decide, phase="after", kinds=["memory_read"], grid=[{"note": index} for index in range(len(texts))],
        price=price, relevant=relevant, default=default, plausible="whoever can write to the memory can leave a note",
    )  # fmt: skip


def _reorder(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None or not is_sequence(reply.value, 2):
        return PASS
    return Replace(type(reply.value)(reversed(reply.value)))


def _several(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return is_sequence(said(record), 2)


def _lost(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Drop()


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Replace(duplicate(call.history[-1])) if call.history else PASS


def _older_read(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    same = [item for item in before if item.action.kind == "memory_read" and item.action.arguments == record.action.arguments]
    return has_older(record, FrozenDict({"age": 1}), same)


def operators() -> tuple[Operator, ...]:
    return (
        insert(),
        operator(
            "memory.reorder", _reorder, phase="after", kinds=["memory_read"], grid=[{"magnitude": 1}], relevant=_several,
            plausible="two writers, one list",
        ),
        operator("memory.lost_write", _lost, kinds=["memory_write"], default=False, plausible="a write that nobody confirms"),
        operator(
            "memory.stale_read", _stale, kinds=["memory_read"], grid=[{"magnitude": 1}], relevant=_older_read, default=False,
            plausible="a replica that lags",
        ),
    )  # fmt: skip
