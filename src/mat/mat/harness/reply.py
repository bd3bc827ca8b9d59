"""Read token usage from replies, and requested waits from errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from mat.core.value import EMPTY, FrozenDict

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
    """The wait that an exception asks for, in milliseconds: `retry_after_s` or `retry_after` (seconds), or the header of its
    response; None if there is none, or it is a date."""
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
