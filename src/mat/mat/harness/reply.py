"""Read requested waits from errors."""

from __future__ import annotations

import math


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
