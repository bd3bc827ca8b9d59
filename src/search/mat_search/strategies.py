"""Hypothesis strategies for schedules, to be drawn inside a user's own `@given` test and shrunk by Hypothesis.

    with mat.run(contracts) as run:
        agent()

    @given(schedule=schedules(run.result, OPERATORS))
    def test_agent(schedule):
        with mat.run(contracts, schedule=schedule, operators=OPERATORS) as run:
            agent()
        assert run.result.failures == ()

Drawn schedules are valid: within the budget, no call carries two perturbations, ports that restrict operators are respected,
and perturbations without effect (as declared by their operator) are left out. They shrink towards the empty schedule, fewer
perturbations, earlier calls, and at one call towards lower cost, fewer covered calls and earlier points of the operator's grid,
like mat_search.shrink. Only this module of the room needs Hypothesis, which is imported when a strategy is made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from mat.core import limits
from mat.core.errors import SpecError
from mat.core.extras import require
from mat.core.operator import OperatorSpec
from mat.core.run import Run, prefixes
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat_search.adversary import first_ask
from mat_search.shrink import order
from mat_search.space import Grid, edges

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = ["perturbations", "schedules"]

Asks: TypeAlias = tuple[tuple[Perturbation, ...], ...]
"""The possible injections into a run, simplest first, for each of its calls in order; some calls have none."""


class Described(Protocol):
    """An object with an OperatorSpec: an operator of a catalog."""

    def spec(self) -> OperatorSpec: ...


Operators: TypeAlias = Iterable[OperatorSpec | Described]
"""A catalog, operators, or their specs. The room has no catalog of its own, so callers pass one."""
EvaluateSchedule: TypeAlias = Callable[[Schedule], Run]


def schedules(
    run: Run,
    operators: Operators,
    *,
    budget: int = limits.BUDGET,
    max_size: int | None = None,
    evaluate: EvaluateSchedule | None = None,
) -> SearchStrategy[Schedule]:
    """Schedules of at most `max_size` perturbations that cost at most `budget` in all.

    `run` is a nominal run of the system: its calls are the sites. `operators` are those that the test passes to `mat.run`.
    A site that exists only after a fault (a retry, a fallback) can be drawn only with `evaluate`, which executes a
    schedule: perturbations are then drawn one after the other, each at a call after the last one in the run under the
    previous ones. So all of them are reached; without `evaluate`, one can keep another from being reached. The offers of
    these runs are cached, so a schedule is executed once. Raises `mat.MatError` without Hypothesis, for a run with a
    schedule, a limit below 0 or an invalid operator.

    >>> import hypothesis, mat_faults
    >>> from mat_search.strategies import schedules
    >>> @mat.tool
    ... def track(parcel): return "Friday"
    >>> with mat.run() as run:
    ...     reply = track(17)
    >>> found = hypothesis.find(schedules(run.result, mat_faults.operators(), budget=4), lambda schedule: schedule.cost > 0)
    >>> found.cost <= 4
    True

    Source: A3.3.
    """
    specs = _specs(run, operators, budget=budget, max_size=max_size)
    offered = _NominalOffers(run, specs, budget) if evaluate is None else _TreeOffers(run, specs, budget, evaluate)
    most = offered.most if max_size is None else min(max_size, offered.most)
    require("hypothesis", "a strategy of schedules")
    from hypothesis import strategies

    more = strategies.sampled_from((False, True, True))

    @strategies.composite
    def schedule(draw: DrawFn) -> Schedule:
        drawn = NO_SCHEDULE
        while most and draw(more):  # drawn once more at the end, so that shrinking can remove one from a full schedule
            asks = offered.after(drawn)
            here = asks[draw(strategies.sampled_from(range(len(asks))))]  # Hypothesis hashes what it samples from, at each draw
            if here and len(drawn) < most:
                drawn = _add_if_it_fits(drawn, here[draw(strategies.sampled_from(range(len(here))))], budget)
        return drawn

    return schedule()


def perturbations(run: Run, operators: Operators, *, budget: int = limits.BUDGET) -> SearchStrategy[Perturbation]:
    """Single perturbations of a nominal run that cost at most `budget`.

    `run` and `operators` are as in `schedules`. Raises `mat.MatError` where `schedules` does, and if no perturbation costs
    so little.

    >>> import mat_faults
    >>> from mat_search.strategies import perturbations
    >>> @mat.tool
    ... def track(parcel): return "Friday"
    >>> with mat.run() as run:
    ...     reply = track(17)
    >>> perturbations(run.result, mat_faults.operators(), budget=4) is not None
    True

    Source: A3.3.
    """
    offered = _NominalOffers(run, _specs(run, operators, budget=budget, max_size=None), budget)
    asks = [here for here in offered.after(NO_SCHEDULE) if here]
    if not asks:
        raise SpecError(
            what="no perturbation can be drawn",
            why=f"no operator can act on any call of the run within a budget of {budget}",
            fix="use other operators, a larger budget, or a run that crosses their boundaries",
        )
    require("hypothesis", "a strategy of schedules")
    from hypothesis import strategies

    return strategies.sampled_from(asks).flatmap(strategies.sampled_from)


def _add_if_it_fits(schedule: Schedule, item: Perturbation, budget: int) -> Schedule:
    """The schedule with one more perturbation if it fits, else unchanged, so that draws keep their meaning."""
    if schedule.cost + item.cost > budget or any(item.site.overlaps(other.site) for other in schedule):
        return schedule
    return schedule.add(item)


class _NominalOffers:
    """Offers the calls of the nominal run, regardless of earlier draws."""

    def __init__(self, run: Run, specs: tuple[OperatorSpec, ...], budget: int) -> None:
        grid = Grid(specs)
        self._by_call = _offers_by_call(run, NO_SCHEDULE, grid, specs, budget)
        self.most = budget // grid.least if any(self._by_call) else 0

    def after(self, schedule: Schedule) -> Asks:
        return self._by_call


class _TreeOffers:
    """Offers the calls after the last perturbation in the run under the previous draws."""

    def __init__(self, run: Run, specs: tuple[OperatorSpec, ...], budget: int, evaluate: EvaluateSchedule) -> None:
        self._grid, self._specs, self._budget, self._evaluate = Grid(specs), specs, budget, evaluate
        self.most = budget // self._grid.least
        self._known: OrderedDict[Schedule, Asks] = OrderedDict()
        self._known[NO_SCHEDULE] = _offers_by_call(run, NO_SCHEDULE, self._grid, specs, budget)

    def after(self, schedule: Schedule) -> Asks:
        found = self._known.get(schedule)
        if found is None:
            run = self._evaluate(schedule)
            found = self._known[schedule] = _offers_by_call(run, schedule, self._grid, self._specs, self._budget)
            if len(self._known) > limits.RUNS_KEPT:
                self._known.popitem(last=False)
        return found


def _offers_by_call(run: Run, schedule: Schedule, grid: Grid, specs: Sequence[OperatorSpec], budget: int) -> Asks:
    """What the dynamic tree offers after the last perturbation of a run (mat_search.space), by call.

    Earlier calls keep their places, so that removing a perturbation does not move later ones to other calls.
    """
    by_site: dict[str, list[Perturbation]] = {record.site: [] for record in run.records if record.action.boundary}
    last = _last_injection_step(run, schedule)
    for edge in edges(run, schedule, last, grid, prefixes(run), budget=budget):
        if edge.added is not None:
            by_site.setdefault(edge.site, []).append(edge.added)
    return tuple(tuple(sorted(found, key=lambda item: order(Schedule((item,)), specs))) for found in by_site.values())


def _last_injection_step(run: Run, schedule: Schedule) -> int:
    """The step at which the last reached perturbation began; -1 without one."""
    begun = {first_ask(item.site) for item in schedule}
    return max((record.step for record in run.records if record.site in begun), default=-1)


def _specs(run: Run, operators: Operators, *, budget: int, max_size: int | None) -> tuple[OperatorSpec, ...]:
    problems = [] if not len(run.spec.schedule) else ["the run has a schedule of its own"]
    problems += [
        f"{name}={value!r} is below 0" for name, value in (("budget", budget), ("max_size", max_size or 0)) if value < 0
    ]
    specs = []
    for item in operators:
        if isinstance(item, OperatorSpec):
            specs.append(item)
        elif callable(getattr(item, "spec", None)):
            specs.append(item.spec())
        else:
            problems.append(f"{item!r} is not an operator")
    if problems:
        raise SpecError(
            what=f"schedules: {'; '.join(problems)}",
            why="schedules are drawn for a nominal run, from operators or their specs",
            fix="pass the result of a mat.run without a schedule, and the operators themselves (mat_faults.operators())",
        )
    return tuple(specs)
