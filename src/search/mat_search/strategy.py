"""What a strategy is: it is asked for the next edge to execute, and told what happened. It never executes anything itself."""

from __future__ import annotations

from typing import Protocol

from mat.core.run import Run
from mat_search.space import Edge


class Strategy(Protocol):
    """Ask and tell. `bound` is the cost up to which nothing is left to execute."""

    def ask(self) -> Edge | None: ...
    def tell(self, edge: Edge, run: Run) -> None: ...

    @property
    def bound(self) -> int: ...
    @property
    def complete(self) -> bool:
        """Whether an answer of None from `ask` means that nothing is left within the budget."""
