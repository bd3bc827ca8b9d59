"""Shrinking: remove perturbations, then lower parameters, until nothing more can be taken away.

The total order of "simpler"; the first difference decides: cost, number of perturbations, calls covered, positions in the
operators' grids, then the schedule's canonical text. Every accepted step is simpler in that order and keeps (contract, stage)
at least, so shrinking ends, never costs more, is 1-minimal (no single removal and no single simpler grid point keeps the
violation) and idempotent. A perturbation that a candidate did not reach is removed and the rest executed again, so that
everything in the final schedule acted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mat.core.errors import SpecError
from mat.core.operator import ERRORS, OperatorSpec, with_errors
from mat.core.run import Run
from mat.core.spec import Perturbation, Schedule
from mat.core.verdict import Violation

Judged = tuple[Run, tuple[Violation, ...]]
Shows = Callable[[Run, Sequence[Violation]], bool]
"""Whether a run, with its verdicts, still fails in the way that shrinking must keep."""
Order = tuple[int, int, int, tuple[int, ...], tuple[tuple[str, str, str], ...]]


class ShrinkStopped(Exception):  # noqa: N818  (it is no error: the simplest schedule so far is kept)
    """`execute` may raise it to end shrinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The simplest schedule found with its run. `finished` is False if shrinking ended before 1-minimality."""

    schedule: Schedule
    run: Run
    executions: int
    finished: bool


def shrink(
    schedule: Schedule,
    run: Run,
    shows: Shows,
    *,
    operators: Sequence[OperatorSpec],
    execute: Callable[[Schedule], Judged],
    most: int,
) -> Shrunk:
    """A 1-minimal schedule for which `shows` is true, in at most `most` executions: each step takes the first simpler one.

    If `execute` raises ShrinkStopped or is interrupted, the simplest schedule so far is returned.
    """
    tried: dict[Schedule, Run | None] = {schedule: run}
    executions = 0

    def run_if_shown(candidate: Schedule) -> Run | None:
        """The candidate's run if it shows the violation; each candidate is executed once."""
        nonlocal executions
        if candidate not in tried:
            if executions >= most:
                raise ShrinkStopped
            executions += 1
            again, violations = execute(candidate)
            tried[candidate] = again if shows(again, violations) else None
        return tried[candidate]

    finished = True
    try:
        while (better := _simpler_that_shows(schedule, operators, run_if_shown)) is not None:
            schedule, run = better
    except (ShrinkStopped, KeyboardInterrupt):
        finished = False
    return Shrunk(schedule=schedule, run=run, executions=executions, finished=finished)


def _simpler_that_shows(
    schedule: Schedule, operators: Sequence[OperatorSpec], run_if_shown: Callable[[Schedule], Run | None]
) -> tuple[Schedule, Run] | None:
    for candidate in simpler(schedule, operators):
        again = run_if_shown(candidate)
        while again is not None and again.unreached:
            for idle in again.unreached:
                candidate = candidate.without(idle)
            again = run_if_shown(candidate)
        if again is not None:
            return candidate, again
    return None


def order(schedule: Schedule, operators: Sequence[OperatorSpec]) -> Order:
    """The key of the total order. A perturbation whose parameters are not in the grid comes after all that are."""
    by_id = {operator.id: operator for operator in operators}
    covered = sum(item.site.last - item.site.nth + 1 for item in schedule)
    places = tuple(_grid_index(item, by_id.get(item.operator)) for item in schedule)
    return (schedule.cost, len(schedule), covered, places, tuple(item.key for item in schedule))


def _grid_index(item: Perturbation, operator: OperatorSpec | None) -> int:
    client = str(item.parameters.get(ERRORS, ""))
    points = [] if operator is None else [with_errors(choice.parameters, client) for choice in operator.choices]
    return points.index(item.parameters) if item.parameters in points else len(points)


def simpler(schedule: Schedule, operators: Sequence[OperatorSpec]) -> Iterator[Schedule]:
    """The schedules one step simpler: first each removal (the most expensive first), then each simpler grid point."""
    by_id = {operator.id: operator for operator in operators}
    for item in sorted(schedule, key=lambda found: (-found.cost, found.key)):
        yield schedule.without(item)
    here = order(schedule, operators)
    for item in schedule:
        operator = by_id.get(item.operator)
        for choice in operator.choices if operator is not None else ():
            site = replace(item.site, last=item.site.nth + choice.span - 1)
            parameters = with_errors(choice.parameters, str(item.parameters.get(ERRORS, "")))
            lowered = replace(item, parameters=parameters, cost=choice.cost, site=site)
            try:
                candidate = schedule.without(item).add(lowered)
            except SpecError:  # a longer, cheaper range overlaps another perturbation
                continue
            if order(candidate, operators) < here:
                yield candidate
