"""Operators as data for the search: what could be injected where, at what cost.

They are here because the search gets them without knowing the boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from mat.core.digest import digest
from mat.core.record import ActionKind, Record
from mat.core.site import Boundary
from mat.core.value import FrozenDict, FrozenList

Relevant: TypeAlias = Callable[[Record, FrozenDict, Sequence[Record]], bool]
"""(record of the unperturbed site, parameters, the records asked before it) -> whether the choice could matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One point of an operator's grid. `span` is how many calls of the port it covers; a span counts as one hook."""

    parameters: FrozenDict
    cost: int
    span: int = 1


def always_relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredBy:
    """An operator's claim that a search may leave it out at calls that are declared to change nothing, because another run of
    the search is equal to the run that it would give.

    `by`: the operator that gives the equal run at the same call; "" if it is the run without the injection. `when`: a further
    condition, with the arguments of `relevant`. `mat_search.covering` states what else must hold before a search relies on it.
    """

    by: str = ""
    when: Relevant = always_relevant


ERRORS: Final = "errors"
"""The parameter of a perturbation that names the client whose exceptions it injects; without it, the port decides."""


def with_errors(parameters: FrozenDict, client: str) -> FrozenDict:
    """The parameters with the exceptions of this client; "" leaves them as they are."""
    return FrozenDict({**parameters, ERRORS: client}) if client else parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator without its code. `choices` is the grid, cheapest first, in the operator's shrink order.

    `relevant(record, parameters, before)` says from the unperturbed record of a site whether the choice could change anything
    there; if not, the search counts the edge as inapplicable and does not execute it. It does not look at the declared effect:
    `covered` says where a declaration makes a point redundant. `phase` says whether the operator acts before the port is
    invoked or on its reply. `raises`: the kinds of failure that it injects; a point with the parameter `kind` injects that one.
    `aims`: a function of the unperturbed run's records that returns further points, made from what that run has called.
    """

    id: str
    boundary: Boundary
    kinds: frozenset[ActionKind]
    choices: tuple[GridPoint, ...]
    phase: str = "before"
    relevant: Relevant = field(default=always_relevant, compare=False)
    covered: CoveredBy | None = field(default=None, compare=False)
    raises: tuple[str, ...] = ()
    aims: Callable[[Sequence[Record]], tuple[GridPoint, ...]] | None = field(default=None, compare=False)

    def aimed(self, records: Sequence[Record]) -> OperatorSpec:
        """The operator with the points that are aimed at a run; it is the same for the same run."""
        points = () if self.aims is None else self.aims(records)
        return (
            replace(self, choices=tuple(sorted((*self.choices, *points), key=lambda choice: choice.cost))) if points else self
        )

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

    def failures(self, parameters: FrozenDict) -> tuple[str, ...]:
        """The kinds of failure that a point injects."""
        kind = parameters.get("kind")
        return (kind,) if isinstance(kind, str) else self.raises


def grid_data(operators: tuple[OperatorSpec, ...]) -> FrozenDict:
    """The grid as a certificate contains it: operator -> [[parameters, cost, span], ...]."""
    return FrozenDict(
        {
            operator.id: FrozenList(FrozenList((choice.parameters, choice.cost, choice.span)) for choice in operator.choices)
            for operator in sorted(operators, key=lambda item: item.id)
        }
    )


def grid_digest(operators: tuple[OperatorSpec, ...]) -> str:
    return digest(grid_data(operators))
