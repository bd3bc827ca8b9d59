"""Fault operators, a family a module. Each is a pure decision with a grid, a price and a plausibility note."""

from __future__ import annotations

from mat.boundary.catalog import Operator

__all__ = ["operators"]


def operators() -> tuple[Operator, ...]:
    """Every built-in operator; loaded through the `mat.operators` entry point."""
    return ()
