from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The key was rotated, every consumer has the new one, and the old one was revoked: left alive it is a loose end."""
    switched = {event.resource for event in events if event.label == "SWITCHED"}
    if switched != {name for name, _ in given["consumers"]}:
        yield "OTHER"
    elif not any(event.label == "REVOKED" for event in events):
        yield "MISSING_CONSTRAINT"
