from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """All stages were done, in their order."""
    if [event.resource for event in events if event.label == "STAGE_DONE"] != list(given["stages"]):
        yield "OTHER"
