from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every file was downloaded, then the receipt was given."""
    downloaded = {event.resource for event in events if event.label == "DOWNLOADED"}
    if downloaded != {name for name, _ in given["files"]} or not any(event.label == "RECEIPT" for event in events):
        yield "OTHER"
