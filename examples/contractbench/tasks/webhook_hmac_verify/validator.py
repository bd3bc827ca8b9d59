from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every genuine delivery was accepted, every other one rejected."""
    outcome = {event.resource: event.label for event in events if event.label in ("ACCEPTED", "REJECTED")}
    if outcome != {entry["id"]: "REJECTED" if entry["forged"] else "ACCEPTED" for entry in given["deliveries"]}:
        yield "OTHER"
