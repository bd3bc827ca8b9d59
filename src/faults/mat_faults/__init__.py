"""Fault operators, a boundary a module. Each is a pure decision with a grid, a price and a plausibility note.

`operators()` lists the built-in ones; those with `default=True` make the default grid. `prompt.splice` and `memory.insert`
are functions, so that a user can add payloads of their own.
"""

from __future__ import annotations

from mat.boundary.catalog import Operator
from mat_faults import delegation, memory, model, order, prompt, retrieval, service

__all__ = ["delegation", "memory", "model", "operators", "order", "prompt", "retrieval", "service"]


def operators() -> tuple[Operator, ...]:
    """Every built-in operator, by id; loaded through the `mat.operators` entry point."""
    families = (prompt, service, retrieval, memory, model, delegation, order)
    return tuple(sorted((item for family in families for item in family.operators()), key=lambda item: item.id))
