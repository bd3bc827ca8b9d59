"""Retrievers that return one text: at the boundary it is a list with one passage, which faults can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FORM: Final = "text"


def as_passages(reply: Any) -> Any:
    """A text as a list with one passage; any other reply as it is."""
    return [{"text": reply, "form": _FORM}] if type(reply) is str else reply


def from_passages(reply: Any) -> Any:
    """The text again, of all passages in their order; any other reply as it is."""
    if not isinstance(reply, list) or not any(isinstance(item, Mapping) and item.get("form") == _FORM for item in reply):
        return reply
    return "\n".join(item["text"] if isinstance(item, Mapping) and "text" in item else str(item) for item in reply)


__all__ = ["as_passages", "from_passages"]
