"""Operators on model calls: limits, and replies that cannot be used (A3.4)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Raise, Replace, Reply
from mat.core.value import FrozenDict, Value
from mat_faults.reshape import Path, is_sequence, leaves, like_sequence, text_path, with_leaf
from mat_faults.site import on_reply

_CALL_KEYS: Final = ("tool", "tool_name", "name", "function", "action", "intent", "command")
_ARGUMENT_KEYS: Final = ("arguments", "args", "parameters", "input")


def _rate_limit(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("rate_limit", retry_after_s=30.0)


def _malformed(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    damaged = None if reply is None else damaged_call(reply.value)
    return PASS if damaged is None else Replace(damaged[0])


def damaged_call(value: Any) -> tuple[Any] | None:
    """The reply with its tool call unusable: JSON text cut short, or the name of the call (or its arguments) broken."""
    found = _named_leaf(value, _CALL_KEYS) or _named_leaf(value, _ARGUMENT_KEYS)
    if found is not None:
        return (with_leaf(value, found[0], f"{found[1]}_"),)
    for path, leaf in leaves(value):
        if isinstance(leaf, str) and _is_json(leaf):
            half = leaf.strip()[: len(leaf.strip()) // 2]  # never JSON: its bracket stays open
            return (with_leaf(value, path, half),)
    return None


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object or array."""
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _named_leaf(value: Any, names: Sequence[str]) -> tuple[Path, str] | None:
    for name in names:
        for path, leaf in leaves(value):
            if path and path[-1] == name and isinstance(leaf, str) and leaf:
                return path, leaf
    return None


def _empty(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    empty = None if reply is None else emptied(reply.value)
    return PASS if empty is None else Replace(empty[0])


def emptied(value: Any) -> tuple[Any] | None:
    """The reply without its content; an object of the client keeps everything but its text."""
    if isinstance(value, dict):
        return ({},) if value else None
    if is_sequence(value, 0):
        return (like_sequence(value, []),) if value else None
    found = text_path(value)
    return None if found is None or not found[1] else (with_leaf(value, found[0], ""),)


def _is_call(value: Value, parameters: FrozenDict) -> bool:
    return damaged_call(value) is not None


def _can_be_empty(value: Value, parameters: FrozenDict) -> bool:
    return emptied(value) is not None


def operators() -> tuple[Operator, ...]:
    return (
        operator("model.rate_limit", _rate_limit, plausible="a quota shared with others"),
        operator(
            "model.malformed_call", _malformed, phase="after", grid=[{"magnitude": 1}], relevant=on_reply(_is_call),
            plausible="models write broken calls now and then",
        ),
        operator(
            "model.empty", _empty, phase="after", grid=[{"magnitude": 1}], relevant=on_reply(_can_be_empty), default=False,
            plausible="a filter removed the whole reply",
        ),
    )  # fmt: skip
