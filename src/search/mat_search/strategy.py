"""The interface of strategies: `ask` returns the next edge to execute, `tell` takes its outcome. Strategies execute nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Literal, Protocol, TypeAlias

from mat.core.adversary import Choose
from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat_search.campaign import Layer
from mat_search.covering import Covering
from mat_search.space import Edge, Grid, GridKey

Why: TypeAlias = Literal["equal state", "equal effect", "equal decisions"]
"""Why an edge is skipped: its future was searched from an equal edge."""


@dataclass(slots=True)
class Skips:
    """Skipped edges, each with the reason and the key of the executed edge that it equals."""

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
    """The outcome of an edge. An edge adds one perturbation to a schedule.

    `states`: the digest of everything that decides what follows, before each step (mat.core.run.prefixes); `broken`: the
    searched contracts that broke.
    """

    run: Run
    states: Sequence[str]
    broken: frozenset[str] = frozenset()

    @property
    def hit(self) -> bool:
        return bool(self.broken)


class Strategy(Protocol):
    """Chooses edges. An edge that `ask` returned and `tell` has not received counts as open."""

    skipped: Skips
    proves: bool
    """Whether its bound is a proof: only its open edges are left to execute."""

    def ask(self, most: int | None = None) -> Edge | None:
        """The next edge, or None if nothing is left. `most`: a hit of this cost is known, so no edge may cost more."""

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        """Take the outcome of an edge that `ask` returned."""

    def upcoming(self, count: int) -> Sequence[Edge]:
        """Up to `count` edges that `ask` will probably return next, so that workers can start; changes nothing."""

    def policy(self, edge: Edge) -> Choose | None:
        """The policy that chooses further perturbations while the edge is executed; None for fixed schedules."""

    @property
    def seen(self) -> Set[GridKey]:
        """Keys of the executed edges, and of edges equivalent to them."""

    @property
    def bound(self) -> int:
        """The cost up to which nothing is left to execute; -1 before the empty schedule was executed, 0 without a proof."""

    @property
    def layer(self) -> Layer | None:
        """How far it came above `bound`; None if nothing is left there, or without a proof."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The inputs of a strategy. `stream` is its own random stream, `max_runs` its limit. Choices compare
    integers and digests, never floats, so that they are the same on every machine.

    `prune=False`: nothing is skipped, and no point is left out because another covers it.
    """

    operators: tuple[OperatorSpec, ...]
    budget: int
    max_runs: int
    stream: Random
    prune: bool = True

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.operators, Covering(self.operators, active=self.prune))


Factory: TypeAlias = Callable[[SearchPlan], Strategy]
