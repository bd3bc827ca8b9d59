"""Operators on retrieved passages, bounded by how many are touched (A3.4)."""

from __future__ import annotations

import random

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.value import FrozenDict, Value
from mat_faults.payloads import PASSAGES
from mat_faults.reshape import can_take_note, is_sequence, like_sequence, with_note
from mat_faults.site import on_reply


def _shuffle(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The order is reversed: the strongest shuffle, and the same in every run."""
    if reply is None or not is_sequence(reply.value, 2):
        return PASS
    return Replace(like_sequence(reply.value, list(reversed(reply.value))))


def _drop(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    index = int(call.parameters["passage"])
    if reply is None or not is_sequence(reply.value, index + 1):
        return PASS
    return Replace(like_sequence(reply.value, [*reply.value[:index], *reply.value[index + 1 :]]))


def _poison(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None or not is_sequence(reply.value, 1):
        return PASS  # where nothing was found, nothing shows what a passage of this index looks like
    poisoned = with_note(reply.value, PASSAGES[int(call.parameters["payload"])])
    return PASS if poisoned is None else Replace(poisoned)


def _order_matters(value: Value, parameters: FrozenDict) -> bool:
    return is_sequence(value, 2) and list(reversed(value)) != value  # type: ignore[arg-type]


def _has_passage(value: Value, parameters: FrozenDict) -> bool:
    return is_sequence(value, int(parameters["passage"]) + 1)


def _takes_note(value: Value, parameters: FrozenDict) -> bool:
    return is_sequence(value, 1) and can_take_note(value)


def operators() -> tuple[Operator, ...]:
    return (
        operator(
            "retrieval.shuffle", _shuffle, phase="after", grid=[{"magnitude": 1}], relevant=on_reply(_order_matters),
            plausible="scores are close and the index was rebuilt",
        ),
        operator(
            "retrieval.drop", _drop, phase="after", relevant=on_reply(_has_passage),
            grid=[{"passage": 0, "magnitude": 1}, {"passage": 1, "magnitude": 1}], plausible="a document was not indexed",
        ),
        operator(
            "retrieval.poison", _poison, phase="after", relevant=on_reply(_takes_note), default=False,
            grid=[{"payload": index, "magnitude": 1} for index in range(len(PASSAGES))],
            plausible="somebody can add documents to the index",
        ),
    )  # fmt: skip
