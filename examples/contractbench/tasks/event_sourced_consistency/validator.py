from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...desk import Event


def validate(events: Sequence[Event], given: Mapping[str, Any]) -> Iterator[str]:
    """Both events were appended, both balances were read after that, and reported."""
    seen = [(event.label, event.resource) for event in events]
    done = {("APPENDED", given["source"]), ("APPENDED", given["target"]), ("REPORTED", "")}
    read = {("BALANCE", given["source"]), ("BALANCE", given["target"])}
    if not done | read <= set(seen):
        yield "OTHER"
