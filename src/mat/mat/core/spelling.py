"""How a boundary and the kinds of action there are spelled, and the hint where one is written in the place of the other.

A capability or a site names the boundary (`model:planner`, `clerk/model:planner#1`); a record, a contract and a rule of a
policy name the kind of action (`model_call`).
"""

from __future__ import annotations

from typing import Final

from mat.core.record import ActionKind

KINDS_AT: Final[dict[str, tuple[ActionKind, ...]]] = {
    "service": ("tool_call",), "retrieval": ("retrieval",), "memory": ("memory_read", "memory_write"), "model": ("model_call",),
    "delegation": ("delegation",),
}  # fmt: skip
"""The kinds of action at each boundary."""
_BOUNDARY_OF: Final = {kind: boundary for boundary, kinds in KINDS_AT.items() for kind in kinds}


def as_boundary(word: str) -> str:
    """For an error about a boundary: the right spelling, if the word is a kind of action; else "".

    >>> as_boundary("model_call")
    "; capabilities and sites name the boundary: write 'model' (model_call is the kind of action, as in records and contracts)"
    """
    boundary = _BOUNDARY_OF.get(word, "")  # type: ignore[call-overload]
    if not boundary or boundary == word:
        return ""
    return (
        f"; capabilities and sites name the boundary: write {boundary!r} "
        f"({word} is the kind of action, as in records and contracts)"
    )


def as_kind(word: str) -> str:
    """For an error about a kind of action: the right spelling, if the word is a boundary; else "".

    >>> as_kind("service")
    "; contracts and rules name the kind of action: write 'tool_call' (service is the boundary, as in capabilities and sites)"
    """
    kinds = [kind for kind in KINDS_AT.get(word, ()) if kind != word]
    if not kinds:
        return ""
    return (
        f"; contracts and rules name the kind of action: write {' or '.join(map(repr, kinds))} "
        f"({word} is the boundary, as in capabilities and sites)"
    )
