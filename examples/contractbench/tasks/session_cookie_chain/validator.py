from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The order was placed."""
    if not any(event.label == "ORDER" for event in events):
        yield "OTHER"
