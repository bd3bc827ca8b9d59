from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every record was read, and the session was closed."""
    read = {event.resource for event in events if event.label == "READ"}
    if read != set(given["records"]) or not any(event.label == "CLOSED" for event in events):
        yield "OTHER"
