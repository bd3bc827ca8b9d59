from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Every invoice is known to be paid."""
    if {event.resource for event in events if event.label == "PAID"} != {invoice["id"] for invoice in given["invoices"]}:
        yield "OTHER"
