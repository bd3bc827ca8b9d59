from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The object was downloaded, then the receipt was given."""
    done = [event.label for event in events if event.label in ("DOWNLOADED", "RECEIPT")]
    if list(dict.fromkeys(done)) != ["DOWNLOADED", "RECEIPT"]:
        yield "OTHER"
