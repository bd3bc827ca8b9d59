from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """All stations were read, then reported."""
    read = {event.resource for event in events if event.label == "READ"}
    if read != set(given["stations"]) or not any(event.label == "REPORTED" for event in events):
        yield "OTHER"
