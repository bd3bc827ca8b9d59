from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every report was fetched, and the receipt was given."""
    fetched = {event.resource for event in events if event.label == "FETCHED"}
    if fetched != set(given["reports"]) or not any(event.label == "RECEIPT" for event in events):
        yield "OTHER"
