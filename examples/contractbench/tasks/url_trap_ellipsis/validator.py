from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every document was read, then all were acknowledged."""
    end = next((at for at, event in enumerate(events) if event.label == "ACKNOWLEDGED"), 0)
    if {event.resource for event in events[:end] if event.label == "DOCUMENT"} != {name for name, _ in given["documents"]}:
        yield "OTHER"
