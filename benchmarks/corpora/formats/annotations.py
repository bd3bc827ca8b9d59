"""Annotations of people: which step, and which agent, they say went wrong, in terms of our records."""

from __future__ import annotations

from typing import Any

from mat.adapters.importers import RecordMaker


def numbered(stated: object) -> Any:
    """A step as a number, which annotations also write as text; what is none as it was stated."""
    try:
        return None if stated is None else int(str(stated).strip())
    except ValueError:
        return stated


def step_of(maker: RecordMaker, stated: object) -> int | None:
    """Our step of a source index, as a number or a text; None where the source has no such step."""
    index = numbered(stated)
    return maker.our_steps.get(index) if isinstance(index, int) else None


def agent_called(maker: RecordMaker, name: str) -> str:
    """The agent whose name differs from this one in case only, as the records have it; the name itself where none does."""
    names = {record.agent.casefold(): record.agent for record in maker.records}
    return names.get(name.strip().casefold(), name)
