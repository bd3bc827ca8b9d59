from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The entries were read, the period closed, then the token revoked."""
    done = [event.label for event in events if event.label in ("ENTRIES", "CLOSED", "REVOKED")]
    if list(dict.fromkeys(done)) != ["ENTRIES", "CLOSED", "REVOKED"]:
        yield "OTHER"
