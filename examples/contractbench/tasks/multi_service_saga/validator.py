from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """No booking stands, and the saga that failed was reported as compensated."""
    booked = {event.resource for event in events if event.label == "BOOKED"}
    undone = {event.resource for event in events if event.label == "UNDONE"}
    labels = {event.label for event in events}
    if booked - undone:
        yield "COMPENSATION_FAILURE"
    if not {"FAILED", "COMPENSATED"} <= labels:
        yield "OTHER"
