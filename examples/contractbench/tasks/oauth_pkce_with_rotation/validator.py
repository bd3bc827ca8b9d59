from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every photo was fetched, and the album was confirmed."""
    fetched = {event.resource for event in events if event.label == "FETCHED"}
    if fetched != set(given["photos"]) or not any(event.label == "RECEIPT" for event in events):
        yield "OTHER"
