"""What a strategy is: it is asked for the next edge to execute, and told what happened. It never executes anything itself."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from mat.core.run import Run
from mat_search.space import Edge, Key


class Strategy(Protocol):
    """Ask and tell. An edge that was asked for and never told counts as open."""

    skipped: list[Edge]

    def ask(self, most: int | None = None) -> Edge | None:
        """The next edge, or None where nothing is left. `most`: a hit of this cost is known, dearer edges are not wanted."""

    def tell(self, edge: Edge, run: Run, states: Sequence[str]) -> None:
        """The run of an edge, with its D by step (mat.core.run.prefixes)."""

    @property
    def seen(self) -> Set[Key]:
        """Keys of the edges that were told."""

    @property
    def bound(self) -> int:
        """The cost up to which nothing is left to execute; -1 while not even the empty schedule was told."""
