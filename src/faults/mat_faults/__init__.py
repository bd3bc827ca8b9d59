"""Fault operators, one module per boundary. Each is a pure decision with a grid, a price and a plausibility note.

`operators()` lists the built-in ones; those with `default=True` make the default grid. `prompt.splice` and `memory.insert`
are functions, so that users can add their own payloads. `conformance` checks a user's operator against what it
declares, on the calls of `samples`; `path` has the path mutations and the labels that servers answer them with.
"""

from __future__ import annotations

from mat.boundary.catalog import Operator
from mat_faults import (
    approval,
    conformance,
    delegation,
    memory,
    model,
    order,
    path,
    payloads,
    process,
    prompt,
    retrieval,
    samples,
    service,
    streams,
)

__all__ = [
    "approval", "conformance", "delegation", "memory", "model", "operators", "order", "path", "payloads", "process", "prompt",
    "retrieval", "samples", "service", "streams",
]  # fmt: skip


def operators() -> tuple[Operator, ...]:
    """Every built-in operator, by id; loaded through the `mat.operators` entry point. Returns `mat.spec.Operator`s.

    >>> from mat_faults import operators
    >>> [operator.id for operator in operators() if operator.default and operator.boundary == "service"][:2]
    ['service.corrupt_field', 'service.lost_ack']

    Source: A3.4, A4.1.
    """
    families = (prompt, service, approval, retrieval, memory, model, streams, delegation, order, process)
    return tuple(sorted((item for family in families for item in family.operators()), key=lambda item: item.id))
