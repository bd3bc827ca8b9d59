"""Read a record: who speaks to whom, and which texts it holds."""

from __future__ import annotations

from typing import Any

from mat.core.record import Record


def is_inbound(record: Record) -> bool:
    """Whether a record is a text from outside (`mat.untrusted`). Its agent received the text and did nothing itself."""
    return record.action.kind == "message" and record.action.boundary == "prompt"


def is_from_user(record: Record) -> bool:
    """Whether a record is a message that the user sent."""
    action = record.action
    return action.kind == "message" and (action.boundary == "prompt" or action.arguments.get("sender") == "user")


def statement(record: Record) -> Any:
    """The content of a message, a claim or a final response: a text or structured data."""
    return record.action.arguments.get("answer" if record.action.kind == "final_response" else "text")


def cell_of(record: Record) -> str:
    """The memory cell that a record reads or writes, in the form that `sources=` and links use."""
    return f"{record.action.name}/{record.action.arguments.get('key', '*')}"


def is_withheld(value: Any) -> bool:
    """Whether the record holds a digest or a mask instead of the value."""
    return isinstance(value, dict) and "pii" in value and ("sha256" in value or "redacted" in value)


def texts_in(value: Any) -> list[str]:
    """Every text inside a value, in order, without keys and numbers."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [text for item in inner for text in texts_in(item)]
