from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """All shards are written; a lock that was acquired is released at the end."""
    labels = [event.label for event in events]
    if {event.resource for event in events if event.label == "WRITTEN"} != set(given["shards"]):
        yield "OTHER"
    elif "RELEASED" not in labels:
        yield "MISSING_CONSTRAINT"
