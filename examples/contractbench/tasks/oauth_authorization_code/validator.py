from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every sign-in is complete."""
    if {event.resource for event in events if event.label == "SIGNED_IN"} != {name for name, _ in given["sign_ins"]}:
        yield "OTHER"
