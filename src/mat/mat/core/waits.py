"""The wait that Retry-After asks for, in seconds or as a date (RFC 9110, 10.2.3).

In core, because the recorder and contract templates read it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

EPOCH_S: Final = 1_767_225_600
"""The date at which the time of every run begins: 2026-01-01, in seconds since 1970."""
RESOLUTION_MS: Final = 1_000
"""HTTP dates are whole seconds, so a wait between two of them may be shorter by up to one."""
SKEW_MS: Final = 60_000
"""By how much the clocks of a service and of a run may differ, for an agent to use its own to wait for a date."""
_LONGEST_MS: Final = 86_400_000
"""A date further from the time of the run was not written by the run's clock, so the wait is unknown without a Date field."""


def retry_after_ms(stated: object, *, at_ms: int | None = None, sent: object = None) -> int | None:
    """The wait that a value of Retry-After asks for, in milliseconds; None if it states none, or none that can be known.

    stated: seconds, as a number or as text, or an HTTP-date. at_ms: when the reply came, in run time. sent: the reply's Date
    field. The wait until a date is counted from Date, and where the service's clock agrees with the run's within a minute, at
    most from `at_ms`, because an agent may use either. A date that is over asks for no wait.

    >>> retry_after_ms("2"), retry_after_ms("soon"), retry_after_ms("Thu, 01 Jan 2026 00:00:07 GMT", at_ms=2_000)
    (2000, None, 5000)
    >>> retry_after_ms("Fri, 31 Dec 1999 23:59:59 GMT", sent="Fri, 31 Dec 1999 23:59:49 GMT")
    9000
    """
    if isinstance(stated, bool) or stated is None:
        return None
    try:
        seconds = float(str(stated))
    except ValueError:
        return _until(stated, at_ms, sent)
    return math.ceil(seconds * 1000) if 0 <= seconds < 1e9 else None


def _until(stated: object, at_ms: int | None, sent: object) -> int | None:
    date_ms, sent_ms = _date_ms(stated), _date_ms(sent)
    if date_ms is None:
        return None
    own = None if at_ms is None else date_ms - EPOCH_S * 1000 - at_ms
    if sent_ms is None:
        return None if own is None or abs(own) > _LONGEST_MS else max(0, own)
    wait = date_ms - sent_ms - RESOLUTION_MS
    if own is not None and abs(date_ms - sent_ms - own) <= SKEW_MS:
        wait = min(wait, own)
    return max(0, wait)


def _date_ms(text: object) -> int | None:
    """An HTTP-date, in any of its three forms (RFC 9110, 5.6.7), in milliseconds since 1970."""
    if not isinstance(text, str) or not text[:1].isalpha():
        return None
    try:
        found: datetime = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return int(found.replace(tzinfo=found.tzinfo or UTC).timestamp()) * 1000
