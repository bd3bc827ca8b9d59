"""What a record says: who speaks, to whom, with what outcome, and the texts in it."""

from __future__ import annotations

from typing import Any

from mat.core.record import Record


def is_inbound(record: Record) -> bool:
    """Whether it came in from outside (`mat.untrusted`): it is recorded with whoever took it, and is no act of theirs."""
    return record.action.kind == "message" and record.action.boundary == "prompt"


def is_from_user(record: Record) -> bool:
    action = record.action
    return action.kind == "message" and (action.boundary == "prompt" or action.arguments.get("sender") == "user")


def answered(record: Record) -> bool:
    """Whether a reply came: no block, no error, not cancelled."""
    return not record.blocked and record.observation.error is None and not record.observation.cancelled


def succeeded(record: Record) -> bool:
    """Whether it took effect as far as anybody can tell: no block, no error, not cancelled."""
    return record.effected == "yes" and record.observation.error is None and not record.observation.cancelled


def statement(record: Record) -> Any:
    """What a message, a claim or a final response says: a text, or structured data."""
    return record.action.arguments.get("answer" if record.action.kind == "final_response" else "text")


def cell_of(record: Record) -> str:
    """The memory cell that a read or a write concerns, as `sources=` and links name it."""
    return f"{record.action.name}/{record.action.arguments.get('key', '*')}"


def is_withheld(value: Any) -> bool:
    """Whether only a digest or a mark of a value was kept."""
    return isinstance(value, dict) and "pii" in value and ("sha256" in value or "redacted" in value)


def texts_in(value: Any) -> list[str]:
    """Every text inside a value, in its order; neither keys nor numbers."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [text for item in inner for text in texts_in(item)]
