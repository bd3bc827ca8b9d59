"""What a strategy is: it is asked for the next edge to execute, and told what happened. It never executes anything itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol, TypeAlias

from mat.core.adversary import Choose
from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat_search.space import Edge, GridKey

Why: TypeAlias = Literal["equal state", "equal effect", "equal decisions"]
"""Why an edge need not be executed: what follows it was searched from an equal one."""


@dataclass(slots=True)
class Skips:
    """Edges that were not executed, each with its reason and the key of the executed edge that it equals."""

    edges: list[tuple[Edge, Why, GridKey]] = field(default_factory=list)

    def add(self, edge: Edge, why: Why, of: GridKey) -> None:
        self.edges.append((edge, why, of))

    def __len__(self) -> int:
        return len(self.edges)

    def __iter__(self) -> Iterator[tuple[Edge, Why, GridKey]]:
        return iter(self.edges)

    def by_reason(self) -> dict[str, int]:
        counts: dict[str, int] = {"equal state": 0}
        for _, why, _ in self.edges:
            counts[why] = counts.get(why, 0) + 1
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOutcome:
    """What became of an edge. `states` is D by step (mat.core.run.prefixes); `broken` the contracts, searched for, it broke."""

    run: Run
    states: Sequence[str]
    broken: frozenset[str] = frozenset()

    @property
    def hit(self) -> bool:
        return bool(self.broken)


class Strategy(Protocol):
    """Ask and tell. An edge that was asked for and never told counts as open."""

    skipped: Skips
    proves: bool
    """Whether what it leaves open is all that is left: a bound of its own means something."""

    def ask(self, most: int | None = None) -> Edge | None:
        """The next edge, or None where nothing is left. `most`: a hit of this cost is known, dearer edges are not wanted."""

    def tell(self, edge: Edge, told: EdgeOutcome) -> None:
        """The run of an edge."""

    def ahead(self, count: int) -> Sequence[Edge]:
        """Up to `count` edges that will probably be asked for next, so that workers can begin; it changes nothing."""

    def policy(self, edge: Edge) -> Choose | None:
        """Who chooses further perturbations while the edge is executed; None for strategies whose schedules are fixed."""

    @property
    def seen(self) -> Set[GridKey]:
        """Keys of the edges that were told, and of those that are exchangeable with them."""

    @property
    def bound(self) -> int:
        """The cost up to which nothing is left to execute; -1 while not even the empty schedule was told, 0 for no proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """What a strategy is made from. `stream` is its own, `max_runs` what it may spend; no float decides anything."""

    operators: tuple[OperatorSpec, ...]
    budget: int
    max_runs: int
    stream: Random
    prune: bool = True


Factory: TypeAlias = Callable[[SearchPlan], Strategy]
