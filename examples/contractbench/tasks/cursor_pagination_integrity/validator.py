from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every page was read by its cursor, and both feeds are reconciled."""
    read = {(event.resource, event.detail["page"]) for event in events if event.label == "PAGE"}
    there = {(feed, page) for feed, pages in given["pages"].items() for page in range(len(pages))}
    if read != there or {event.resource for event in events if event.label == "RECONCILED"} != set(given["pages"]):
        yield "OTHER"
