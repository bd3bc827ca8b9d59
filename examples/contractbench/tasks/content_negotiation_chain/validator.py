from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """The editable representation in the language asked for was read, and the document was amended."""
    read = any(event.label == "REPRESENTATION" and event.resource == given["language"] for event in events)
    if not read or not any(event.label == "AMENDED" for event in events):
        yield "OTHER"
