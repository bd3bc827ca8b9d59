"""Operators on model calls: limits, and replies that cannot be used (A3.4)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Raise, Replace, Reply
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.reshape import Path, leaves, with_leaf
from mat_faults.service import said

_CALL_KEYS = ("tool", "tool_name", "name", "function", "action", "intent", "command")
_ARGUMENT_KEYS = ("arguments", "args", "parameters", "input")


def _rate_limit(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("rate_limit", retry_after_s=30.0)


def _malformed(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    damaged = None if reply is None else damaged_call(reply.value)
    return PASS if damaged is None else Replace(damaged[0])


def damaged_call(value: Any) -> tuple[Any] | None:
    """The reply with its tool call unusable: JSON text cut short, or the name of the call (or its arguments) broken."""
    if isinstance(value, str):
        try:
            structured = isinstance(json.loads(value), dict | list)
        except ValueError:
            structured = False
        return (value[: len(value) // 2],) if structured else None
    found = _named_leaf(value, _CALL_KEYS) or _named_leaf(value, _ARGUMENT_KEYS)
    return None if found is None else (with_leaf(value, found[0], f"{found[1]}_"),)


def _named_leaf(value: Any, names: Sequence[str]) -> tuple[Path, str] | None:
    for name in names:
        for path, leaf in leaves(value):
            if path and path[-1] == name and isinstance(leaf, str):
                return path, leaf
    return None


def _empty(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return PASS if reply is None else Replace(type(reply.value)())


def _is_call(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return damaged_call(said(record)) is not None


def _can_be_empty(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return isinstance(said(record), str | dict | list) and bool(said(record))


def operators() -> tuple[Operator, ...]:
    return (
        operator("model.rate_limit", _rate_limit, plausible="a quota shared with others"),
        operator(
            "model.malformed_call", _malformed, phase="after", grid=[{"magnitude": 1}], relevant=_is_call,
            plausible="models write broken calls now and then",
        ),
        operator(
            "model.empty", _empty, phase="after", grid=[{"magnitude": 1}], relevant=_can_be_empty, default=False,
            plausible="a filter removed the whole reply",
        ),
    )  # fmt: skip
