from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every page was read, then the codes of all were sent."""
    end = next((at for at, event in enumerate(events) if event.label == "READ"), 0)
    if len({event.resource for event in events[:end] if event.label == "PAGE"}) != given["pages"]:
        yield "OTHER"
