from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Order and stock were read, then the order was released."""
    end = next((at for at, event in enumerate(events) if event.label == "RELEASED"), 0)
    if not {"ORDER", "STOCK"} <= {event.label for event in events[:end]}:
        yield "OTHER"
