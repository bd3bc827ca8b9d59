from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every offer was claimed, then allocated."""
    claimed = {event.resource for event in events if event.label == "CLAIMED"}
    if claimed != {offer["name"] for offer in given["offers"]} or not any(event.label == "ALLOCATED" for event in events):
        yield "OTHER"
