from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The archive was fetched, then its receipt was given."""
    labels = [event.label for event in events]
    if "FETCHED" not in labels or "RECEIPT" not in labels[labels.index("FETCHED") :]:
        yield "OTHER"
