"""What the recorder reads out of replies: parts that somebody may cite, token usage, links of memories."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from mat.boundary.port import Port
from mat.core.digest import canonical
from mat.core.record import Link, Observation
from mat.core.value import EMPTY, FrozenDict, Value

ORIGIN_CHARS: Final = 4
"""Texts shorter than this are too common to say where they came from."""
ORIGIN_TEXTS: Final = 64
"""Texts of one reply that provenance follows."""


def if_changed(raw: Observation | None, delivered: Observation) -> Observation | None:
    """What the port said, only where something else was delivered: an inert perturbation leaves no trace in the facts."""
    if raw is None or canonical([raw.value, raw.opaque]) != canonical([delivered.value, delivered.opaque]):
        return raw
    return None if (raw.error is None) == (delivered.error is None) else raw


def kept(value: Any) -> Any:
    """A reply as it was when it came: the agent may change its own copy."""
    try:
        return deepcopy(value)
    except Exception:  # an open handle, a live object: kept as it is
        return value


def parts(value: Value, depth: int = 3) -> Iterator[Value]:
    """A reply and the parts of it that somebody may cite, down to rows in a table in a reply."""
    kind = type(value)
    if kind is str:
        if len(value) >= ORIGIN_CHARS:  # type: ignore[arg-type]
            yield value
    elif isinstance(value, dict | list):
        yield value
        if depth:
            for part in value.values() if isinstance(value, dict) else value:
                yield from parts(part, depth - 1)


def memory_link(port: Port, arguments: FrozenDict, step: int) -> Link:
    cell = f"memory:{port.name}/{arguments.get('key', '*')}"
    if port.kind == "memory_read":
        return Link(src=cell, rel="returns", dst=f"step#{step}")
    return Link(src=f"step#{step}", rel="derived_from", dst=cell)


_USAGE: Final = {
    "input_tokens": "input_tokens", "prompt_tokens": "input_tokens", "request_tokens": "input_tokens",
    "output_tokens": "output_tokens", "completion_tokens": "output_tokens", "response_tokens": "output_tokens",
    "reasoning_tokens": "reasoning_tokens", "total_tokens": "total_tokens",
}  # fmt: skip


def usage_of(reply: Any) -> FrozenDict:
    """Token usage of a model's reply, from a `usage` field or attribute of the common clients."""
    try:
        usage = reply.get("usage") if isinstance(reply, Mapping) else getattr(reply, "usage", None)
        if callable(usage):
            usage = usage()
    except Exception:  # a client's own property failed: the usage is unknown, the reply stands
        return EMPTY
    if usage is None:
        return EMPTY
    found: dict[str, int] = {}
    for name, ours in _USAGE.items():
        value = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            found[ours] = value
    return FrozenDict(found)


def retry_after_ms(error: BaseException) -> int | None:
    """The wait that an exception names, in milliseconds: `retry_after_s` or `retry_after` (seconds), or the header of its
    response; None where it names none, or gives a date."""
    try:
        for name in ("retry_after_s", "retry_after"):
            seconds = getattr(error, name, None)
            if seconds is not None:
                break
        else:
            headers = getattr(getattr(error, "response", None), "headers", None)
            seconds = None if headers is None else headers.get("retry-after", headers.get("Retry-After"))
        if seconds is None or isinstance(seconds, bool):
            return None
        wait = float(seconds)
        return math.ceil(wait * 1000) if 0 <= wait < 1e12 else None
    except Exception:  # a date, or a property of the client's own that failed: no wait is known
        return None
