"""The operators that a process knows: the built-in ones and those that users register."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from mat.boundary.cost import DEFAULT_COST, CostModel
from mat.boundary.effect import Call, Effect, Reply
from mat.core.errors import SpecError, enumeration
from mat.core.operator import ERRORS, CoveredBy, GridPoint, OperatorSpec, Relevant, always_relevant
from mat.core.record import ActionKind, Record
from mat.core.site import ABOUT_CALLS, BOUNDARIES, Boundary, Site, site_about
from mat.core.spec import Perturbation
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments

Decide: TypeAlias = Callable[[Call, Reply | None, random.Random], Effect]
CostFunction: TypeAlias = Callable[[FrozenDict, CostModel], int]
Aims: TypeAlias = Callable[[Sequence[Record]], Sequence[Mapping[str, object]]]
"""(the records of the unperturbed run) -> further parameters of an operator, which name what that run has called."""

KINDS: Final[dict[Boundary, frozenset[ActionKind]]] = {
    "service": frozenset({"tool_call"}),
    "retrieval": frozenset({"retrieval"}),
    "memory": frozenset({"memory_read", "memory_write"}),
    "prompt": frozenset({"message"}),
    "model": frozenset({"model_call"}),
    "delegation": frozenset({"delegation", "message"}),
    "order": frozenset({"tool_call", "retrieval", "memory_read", "memory_write", "model_call", "delegation", "message"}),
    "process": frozenset({"tool_call", "retrieval", "memory_read", "memory_write", "model_call", "delegation", "message"}),
}
BOUNDS: Final = ("latency_ms", "magnitude", "staleness", "count", "tokens", "turns")
"""Bounds that an operator may name: milliseconds added to a call; leaves or items changed in it; how many replies back a stale
one lies; calls or deliveries affected; tokens changed (edit distance); calls of others that go first."""


def one_hook(parameters: FrozenDict, model: CostModel) -> int:
    """The default price: one activated hook, and `magnitude` if the grid point has one."""
    return model.of(hooks=1, magnitude=int(parameters.get("magnitude", 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A fault operator: a pure decision with its grid, price and plausibility note; `mat.spec.operator` makes one.

    - `id`: boundary and name. `decide`: a function of (call, reply, stream) that returns an effect of `mat.boundary.effect`.
      `phase="before"`: decided with reply None, before the port is invoked; "after": decided on its reply.
    - `grid`: points, each parameter -> value, simplest first, which is the shrink order; a point with `calls` covers that
      many calls. `price`: a function of (parameters, cost model) that returns an integer.
    - `kinds`: action kinds, by default all of the boundary. `relevant(record, point, before)`: returns whether a point
      could change a record, after the records `before`. `default`: whether searches use it unasked.
    - `covered`: where another run makes the point redundant at calls that are declared to change nothing.
    - `raises`: the kinds of failure that it injects ("timeout", ...). If it is not clear which client a port calls, a search
      tries such a point with the exceptions of each. A point with the parameter `kind` injects that kind.
    - `aims`: a function of the unperturbed run's records that returns further parameters, such as the name of a tool that it
      called. Searches use it where a framework is attached.
    - `plausible`: who or what would do this. `bounds`: magnitude, tokens, count, latency_ms, ... -> how far any point goes;
      `mat_faults.conformance` holds an operator to them.

    >>> timeout = next(item for item in __import__("mat_faults").operators() if item.id == "service.timeout")
    >>> timeout.boundary, timeout.phase, timeout.plausible
    ('service', 'before', 'the request is lost on the way')

    Source: A3.4, A4.1.
    """

    id: str
    decide: Decide
    grid: tuple[FrozenDict, ...] = (FrozenDict(),)
    phase: Literal["before", "after"] = "before"
    kinds: frozenset[ActionKind] = frozenset()
    price: CostFunction = one_hook
    relevant: Relevant = field(default=always_relevant, compare=False)
    plausible: str = ""
    default: bool = True
    bounds: FrozenDict = EMPTY
    covered: CoveredBy | None = field(default=None, compare=False)
    raises: tuple[str, ...] = ()
    aims: Aims | None = field(default=None, compare=False)

    @property
    def boundary(self) -> Boundary:
        return self.id.partition(".")[0]  # type: ignore[return-value]

    def spec(self, model: CostModel = DEFAULT_COST) -> OperatorSpec:
        """The operator as data for the search; choices cheapest first, ties in grid order."""

        def choice(point: FrozenDict) -> GridPoint:
            return GridPoint(parameters=point, cost=self.price(point, model), span=int(point.get("calls", 1)))

        def aimed(records: Sequence[Record]) -> tuple[GridPoint, ...]:
            assert self.aims is not None
            return tuple(choice(snapshot_arguments(point, self.id)) for point in self.aims(records))

        return OperatorSpec(
            id=self.id, boundary=self.boundary, kinds=self.kinds or KINDS[self.boundary],
            choices=tuple(sorted(map(choice, self.grid), key=lambda point: point.cost)), phase=self.phase,
            relevant=self.relevant, covered=self.covered, raises=self.raises, aims=None if self.aims is None else aimed,
        )  # fmt: skip


def operator(
    id: str,
    decide: Decide,
    *,
    grid: Iterable[Mapping[str, object]] = ({},),
    phase: Literal["before", "after"] = "before",
    kinds: Iterable[ActionKind] = (),
    price: CostFunction = one_hook,
    relevant: Relevant = always_relevant,
    plausible: str = "",
    default: bool = True,
    bounds: Mapping[str, int] = EMPTY,
    covered: CoveredBy | None = None,
    raises: Iterable[str] = (),
    aims: Aims | None = None,
) -> Operator:
    """Make a fault operator from one function; see `mat.spec.Operator` for the arguments.

    Raises `mat.MatError` if its id names no boundary, if its grid is empty or costs nothing, and for unknown bounds or kinds,
    all at once.

    >>> from mat.boundary.effect import Replace
    >>> def shout(call, reply, stream):
    ...     return Replace(reply.value.upper())
    >>> @mat.tool
    ... def track(parcel): return "friday"
    >>> loud = mat.spec.operator("service.shout", shout, phase="after", plausible="a service in a bad mood")
    >>> with mat.run(operators=[loud], schedule=[mat.spec.perturbation("service.shout", "main/service:track#1", cost=4)]):
    ...     track(17)
    'FRIDAY'

    Source: A3.4.
    """
    made = Operator(
        id=id, decide=decide, grid=tuple(snapshot_arguments(point, id) for point in grid), phase=phase,
        kinds=frozenset(kinds), price=price, relevant=relevant, plausible=plausible, default=default,
        bounds=snapshot_arguments(bounds, id), covered=covered, raises=tuple(raises), aims=aims,
    )  # fmt: skip
    problems = [
        f"bounds={{{name!r}: {value!r}}} is not one of {', '.join(BOUNDS)} with an integer >= 0"
        for name, value in made.bounds.items()
        if name not in BOUNDS or not isinstance(value, int) or isinstance(value, bool) or value < 0
    ]
    if any(ERRORS in point for point in made.grid):
        problems.append(f"the parameter {ERRORS!r} of a grid point is taken: it names the client whose exceptions are injected")
    if not callable(decide):
        problems.append("decide is not a function of (call, reply, stream)")
    if phase not in ("before", "after"):
        problems.append(f"phase={phase!r} is neither 'before' nor 'after'")
    unknown = sorted(made.kinds - KINDS.get(made.boundary, frozenset()))
    if unknown and made.boundary in BOUNDARIES:
        problems.append(f"no call at the {made.boundary} boundary is of kind {enumeration([*map(repr, unknown)], 'or')}")
    if made.boundary not in BOUNDARIES or "." not in id:
        problems.append(f"its id must be of the form boundary.name, where boundary is one of {', '.join(BOUNDARIES)}")
    if not made.grid:
        problems.append("its grid is empty")
    elif made.boundary in BOUNDARIES and any(
        not isinstance(choice.cost, int) or choice.cost < 1 for choice in made.spec().choices
    ):
        problems.append("the cost of every grid point must be an integer >= 1")
    if problems:
        raise SpecError(
            what=f"operator {id!r}: {'; '.join(problems)}",
            fix="correct the arguments; the operators of mat_faults are examples",
        )
    return made


class Catalog:
    """Operators by id."""

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        self._operators: dict[str, Operator] = {}
        for item in operators:
            self.register(item)

    def register(self, operator: Operator) -> Operator:
        if operator.id in self._operators and self._operators[operator.id] != operator:
            raise SpecError(
                what=f"operator {operator.id!r} is registered twice",
                why="schedules and replay files name operators by id",
                fix="choose another id",
            )
        self._operators[operator.id] = operator
        return operator

    def __getitem__(self, id: str) -> Operator:
        if id not in self._operators:
            from difflib import get_close_matches

            close = get_close_matches(id, self._operators, n=1)
            boundary = id.partition(".")[0]
            near = [name for name in sorted(self._operators) if name.partition(".")[0] == boundary] or sorted(self._operators)
            raise SpecError(
                what=f"unknown operator: {id!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
                why="a schedule names an operator that is not registered in this process",
                fix=f"register it with the pytest_mat_operators hook, or use one of: {', '.join(near)}",
            )
        return self._operators[id]

    def __contains__(self, id: object) -> bool:
        return id in self._operators

    def __iter__(self) -> Iterator[Operator]:
        return iter(self._operators[id] for id in sorted(self._operators))

    def select(self, wanted: Iterable[str] | None = None) -> tuple[Operator, ...]:
        """The operators a search uses: the default ones, or those named by id or by boundary ("service")."""
        if wanted is None:
            return tuple(item for item in self if item.default)
        names = list(wanted)
        chosen = []
        for name in names:
            if name in BOUNDARIES:
                chosen += [item for item in self if item.boundary == name]
            else:
                chosen.append(self[name])
        return tuple({item.id: item for item in sorted(chosen, key=lambda item: item.id)}.values())

    def check(self, perturbation: Perturbation) -> None:
        """Raise SpecError if a perturbation's operator is unknown or belongs to another boundary."""
        found = self[perturbation.operator]
        if found.boundary != perturbation.site.boundary:
            raise SpecError(
                what=f"{perturbation.operator} cannot bind to {perturbation.site}",
                why=f"it acts at the {found.boundary} boundary",
                fix=f"write {_site_for(found.boundary, perturbation.site)}",
            )


def _site_for(boundary: str, site: Site) -> str:
    """What to write in the place of a site at another boundary."""
    if boundary in ABOUT_CALLS and site.boundary not in ABOUT_CALLS:
        return site_about(boundary, str(site))
    return f"a site of the form agent/{boundary}:name#n"
