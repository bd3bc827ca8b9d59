"""Operators on retrieved passages, bounded by how many are touched (A3.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.payloads import PASSAGES
from mat_faults.reshape import can_take_note, is_sequence, with_note
from mat_faults.service import said


def _shuffle(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The order is reversed: the strongest shuffle, and the same in every run."""
    return PASS if reply is None else Replace(type(reply.value)(reversed(reply.value)))


def _drop(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    index = int(call.parameters["passage"])
    if reply is None or len(reply.value) <= index:
        return PASS
    return Replace(type(reply.value)([*reply.value[:index], *reply.value[index + 1 :]]))


def _poison(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None:
        return PASS
    poisoned = with_note(reply.value, PASSAGES[int(call.parameters["payload"])])
    return PASS if poisoned is None else Replace(poisoned)


def _several(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return is_sequence(said(record), 2)


def _has_passage(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return is_sequence(said(record), int(parameters["passage"]) + 1)


def _takes_note(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return can_take_note(said(record))


def operators() -> tuple[Operator, ...]:
    return (
        operator(
            "retrieval.shuffle", _shuffle, phase="after", grid=[{"magnitude": 1}], relevant=_several,
            plausible="scores are close and the index was rebuilt",
        ),
        operator(
            "retrieval.drop", _drop, phase="after", relevant=_has_passage,
            grid=[{"passage": 0, "magnitude": 1}, {"passage": 1, "magnitude": 1}], plausible="a document was not indexed",
        ),
        operator(
            "retrieval.poison", _poison, phase="after", relevant=_takes_note, default=False,
            grid=[{"payload": index, "magnitude": 1} for index in range(len(PASSAGES))],
            plausible="somebody can add documents to the index",
        ),
    )  # fmt: skip
