"""Read requested waits from errors."""

from __future__ import annotations

from mat.core import waits


def retry_after_ms(error: BaseException) -> int | None:
    """The wait that an exception asks for, in milliseconds: `retry_after_s` or `retry_after` (seconds), or the header of its
    response, in seconds or as a date after that of its header `Date`; None if there is none."""
    try:
        for name in ("retry_after_s", "retry_after"):
            stated = getattr(error, name, None)
            if stated is not None:
                return waits.retry_after_ms(stated)
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        found = {name: headers.get(name, headers.get(name.title())) for name in ("retry-after", "date")}
        return waits.retry_after_ms(found["retry-after"], sent=found["date"])
    except Exception:  # a property of the client's own that failed: no wait is known
        return None
