from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The job was finished everywhere and the incident closed; no derived token is left alive."""
    finished = {event.resource for event in events if event.label == "FINISHED"}
    derived = {event.detail["token"] for event in events if event.label == "DERIVED"}
    ended = {token for event in events if event.label == "REVOKED" for token in event.detail["ended"]}
    if finished != {given["first"], given["second"], given["third"]} or not any(event.label == "CLOSED" for event in events):
        yield "OTHER"
    elif derived - ended:
        yield "MISSING_CONSTRAINT"
