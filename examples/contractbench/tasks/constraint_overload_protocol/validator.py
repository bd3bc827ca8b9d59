from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every item of the batch was settled."""
    settled = {event.resource for event in events if event.label == "SETTLED"}
    if settled != {f"{given['batch']}-{item['item']}" for item in given["items"]}:
        yield "OTHER"
