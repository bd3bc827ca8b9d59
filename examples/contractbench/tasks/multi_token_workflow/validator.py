from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every file was published, and the workflow was committed."""
    published = {event.resource for event in events if event.label == "PUBLISHED"}
    if published != {name for name, _ in given["files"]} or not any(event.label == "COMMITTED" for event in events):
        yield "OTHER"
