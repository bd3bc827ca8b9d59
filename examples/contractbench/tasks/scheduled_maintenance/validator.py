from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every document was deposited."""
    if {event.resource for event in events if event.label == "DEPOSITED"} != set(given["documents"]):
        yield "OTHER"
