"""Shrinking (L7): remove perturbations, then lower parameters, until nothing more can be taken away.

Total order of "simpler", first difference decides: cost, number of perturbations, asks covered, then the schedule's
canonical text. Every accepted step is simpler in that order and keeps (contract, stage), so shrinking ends, never costs
more, is 1-minimal (no single removal and no single cheaper grid point keeps the violation) and idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mat.core.operator import OperatorSpec
from mat.core.run import Run, same_violation
from mat.core.spec import Perturbation, Schedule
from mat.core.verdict import Violation


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The simplest schedule found with its run. `finished` is False where the budget of executions ended first."""

    schedule: Schedule
    run: Run
    executions: int
    finished: bool


def order(schedule: Schedule) -> tuple[int, int, int, tuple[tuple[str, str, str], ...]]:
    """The total order of simpler."""
    covered = sum(item.site.last - item.site.nth + 1 for item in schedule)
    return (schedule.cost, len(schedule), covered, tuple(item.key for item in schedule))


def shrink(
    schedule: Schedule,
    run: Run,
    wanted: Violation,
    *,
    operators: Sequence[OperatorSpec],
    execute: Callable[[Schedule], tuple[Run, tuple[Violation, ...]]],
    most: int,
) -> Shrunk:
    """The simplest schedule reachable by single steps that still shows `wanted`. At most `most` executions."""
    executions = 0
    tried = {order(schedule)}
    progress = True
    while progress:
        progress = False
        for candidate in simpler(schedule, operators):
            if order(candidate) in tried:
                continue
            if executions >= most:
                return Shrunk(schedule, run, executions, False)
            tried.add(order(candidate))
            executions += 1
            again, violations = execute(candidate)
            if any(same_violation(wanted, found) for found in violations) and not again.unreached:
                schedule, run, progress = candidate, again, True
                break
    return Shrunk(schedule, run, executions, True)


def simpler(schedule: Schedule, operators: Sequence[OperatorSpec]) -> Iterator[Schedule]:
    """Single steps, most gain first: each removal (dearest first), then each cheaper or earlier grid point."""
    by_id = {operator.id: operator for operator in operators}
    for item in sorted(schedule, key=lambda found: (-found.cost, found.key)):
        yield schedule.without(item)
    for item in schedule:
        operator = by_id.get(item.operator)
        for choice in operator.choices if operator is not None else ():
            lowered: Perturbation = replace(
                item,
                parameters=choice.parameters,
                cost=choice.cost,
                site=replace(item.site, last=item.site.nth + choice.span - 1),
            )
            candidate = schedule.without(item).add(lowered)
            if order(candidate) < order(schedule):
                yield candidate
