"""The three conditions of an evaluation: each fills the cell of a task, a seed and a governance variant. Source: A6.1.

- nominal: the run without faults;
- fault: the fault matrix. Each operator of services, retrieval or memory that can act on the nominal run acts once, at a call
  and a grid point that the seed draws uniformly from all within the budget. Every variant gets the same schedules, so that
  rows can be paired: the schedules of the run without governance, or of the item's own variant if that one is not evaluated;
- adversarial: the worst run that a search of all operators finds within the budget: the cheapest counterexample, else a run
  that failed the task, else the run that came nearest to breaking a contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from mat.core import limits
from mat.core.campaign import Counterexample
from mat.core.operator import OperatorSpec
from mat.core.run import Run, prefixes
from mat.core.spec import NO_SCHEDULE, Schedule
from mat.kernel.entropy import Entropy
from mat.measure.rows import RunCondition, RunRow
from mat.measure.sequential import decided, estimate_data
from mat_search import Campaign, CampaignResult, search
from mat_search.coverage import Nearness
from mat_search.space import Grid, edges
from mat_study.cell_results import CellResults
from mat_study.evaluation import Evaluated, EvaluationLost, Lost, Plan
from mat_study.means import Means, Subject
from mat_study.measuring import curve, lost, measured, search_row
from mat_study.searches import OutlivesRunError, SearchEvaluator, in_forks_if_needed, needs_forks

CONDITIONS: Final[tuple[RunCondition, ...]] = ("nominal", "fault", "adversarial")
BOUNDARIES: Final = ("service", "retrieval", "memory")
"""Where structured faults are injected; only the search uses operators of other boundaries. Source: paper IV.D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTask:
    """A task under measurement: `first` is one of its executions. `uncontrolled`: why its runs are not controlled, or ""."""

    subject: Subject
    means: Means
    first: Evaluated
    operators: tuple[OperatorSpec, ...]
    uncontrolled: str = ""


@dataclass(slots=True, kw_only=True)
class EvaluationCell:
    """One condition of a task, one seed and one variant, with its results. `runs` are the runs to store."""

    task: MeasuredTask
    condition: RunCondition
    seed: int
    variant: str
    results: CellResults = field(default_factory=CellResults)
    runs: list[tuple[Run, RunRow]] = field(default_factory=list)

    def execute(self, schedule: Schedule) -> Evaluated | None:
        """Execute and measure a schedule. None if the test's surroundings failed, which is noted as a row of its own."""
        self.results.executions += 1
        plan = Plan(mode="search", seed=self.seed, schedule=schedule, variant=self.variant)
        given = self.task.means.evaluate(plan)
        if isinstance(given, Lost):
            self.lost(given.why)
            return None
        row, governed = measured(given, self.task.subject.task, self.condition, claims=True)
        self.results.rows.append(row)
        self.results.governed += [] if governed is None else [governed]
        self.runs.append((given.run, row))
        return given

    def lost(self, why: str) -> None:
        """Note an infrastructure failure, which is counted separately because it says nothing about the contracts."""
        task, workload = self.task.subject.task, self.task.first.task
        self.results.rows.append(lost(task, workload, self.condition, why, seed=self.seed, variant=self.variant))


def nominal(cell: EvaluationCell, *, draw: bool) -> Evaluated | None:
    """Execute the nominal run; with `draw`, also draw the fault matrix of its seed."""
    given = cell.execute(NO_SCHEDULE)
    if given is not None:
        cell.results.met = sorted({record.action.name for record in given.run.records if record.action.boundary})
        if draw:
            cell.results.schedules = matrix(given.run, cell.task.operators, budget=cell.task.subject.settings.budget)
    return given


def fault(cell: EvaluationCell, schedules: Sequence[Schedule] | None) -> None:
    """Execute each schedule of the matrix, which is None if there was no nominal run to draw it from."""
    if cell.task.uncontrolled:  # under faults such a run may wait forever
        cell.lost(cell.task.uncontrolled)
    elif schedules is None:
        cell.lost("no nominal run to draw faults from")
    else:
        for schedule in schedules:
            cell.execute(schedule)


def adversarial(cell: EvaluationCell, nominal_run: Evaluated | None) -> None:
    """Search under this seed and variant; only the item's own variant enters the robustness curves.

    `nominal_run`: the nominal run of the seed; if None, the search executes it again.
    """
    task, results = cell.task, cell.results
    if task.uncontrolled:
        cell.lost(task.uncontrolled)
        return
    subject = task.subject
    own = cell.variant == task.first.variants[0]
    first = _with_variant(task.first, cell.variant)

    def searched(*, forked: bool) -> tuple[CampaignResult, _Worst]:
        execute = task.means.forked(first) if forked else task.means.evaluate
        evaluate = SearchEvaluator(execute, first, timeout_s=subject.settings.timeout_s, stopped=_stop_reason, forked=forked)
        try:
            run = nominal_run.run if nominal_run is not None else evaluate.execute(cell.seed, NO_SCHEDULE)
            worst = _Worst(run)
            vary = partial(evaluate, vary=True)
            result = search(run, evaluate, _campaign(task, own), vary=vary, note=worst.note, adapt=evaluate.adapt)
            if not forked and not result.interrupted and needs_forks(task.means.look_apart()):
                raise OutlivesRunError
            return result, worst
        finally:
            results.notes += evaluate.reasons

    try:
        result, worst = in_forks_if_needed(searched, subject.settings, first)
    except EvaluationLost as ended:
        cell.lost(ended.lost.why)
        return
    if result.interrupted:  # an interrupted search returns what it found; the next session finds that again
        raise KeyboardInterrupt
    results.executions += result.executions
    found = min(result.counterexamples, key=lambda each: each.cost, default=None)
    cell.execute(worst.run.spec.schedule if found is None else found.run.spec.schedule)
    results.searches.append(search_row(subject.task, cell.variant, result))
    if own:
        results.curves.append(curve(subject.task, task.first.task.category, subject.settings.budget, result))
        if cell.seed == 0:
            _conclude(cell, result, found)


def _conclude(cell: EvaluationCell, result: CampaignResult, first: Counterexample | None) -> None:
    """Set the item's own result, from its own variant on the first seed."""
    results = cell.results
    broken = next(iter(result.nominal.failures), None)
    if broken is not None:  # no counterexample is cheaper than the nominal run
        first = Counterexample(verdict=broken, run=result.nominal, stability=result.nominal_stability)
    results.found += [] if first is None else [first]
    results.undisturbed += [result.nominal] if first is not None and len(first.run.spec.schedule) else []
    results.certificates.append(cell.task.means.live.relative(result.certificate, result.nominal))
    results.covered.append(result.covered)


def _campaign(task: MeasuredTask, own: bool) -> Campaign:
    settings = task.subject.settings
    return Campaign(
        operators=task.operators, budget=settings.budget, max_runs=settings.evaluation_runs, stop="cheapest",
        strategy=settings.evaluation_strategy, shrink_runs=settings.shrink_runs,
        curve=(settings.curve or limits.EVALUATION_CHAINS) if own else 0,
        interval=estimate_data, decided=partial(decided, target=settings.target), prices=settings.prices,
    )  # fmt: skip


def _with_variant(first: Evaluated, variant: str) -> Evaluated:
    return replace(first, plan=replace(first.plan, variant=variant))


def _stop_reason(given: Lost, disturbed: bool) -> str:
    return f"a search ended early: {given.why}" if disturbed else ""


def matrix(run: Run, operators: Sequence[OperatorSpec], *, budget: int) -> list[Schedule]:
    """The fault matrix of a nominal run: one schedule for each operator of BOUNDARIES that can act on it within the budget.

    Its call and grid point are drawn uniformly, from a stream of the run's seed and task that is named after the operator.
    """
    structured = tuple(operator for operator in operators if operator.boundary in BOUNDARIES)
    offered: dict[str, list[Schedule]] = {}
    for edge in edges(run, NO_SCHEDULE, -1, Grid(structured), prefixes(run), budget=budget):
        if edge.added is not None:
            offered.setdefault(edge.added.operator, []).append(edge.schedule)
    entropy = Entropy.of(run.spec)
    return [
        schedules[entropy.stream(f"evaluate/{operator}").randrange(len(schedules))]
        for operator, schedules in sorted(offered.items())
    ]


class _Worst:
    """The worst of the runs under faults, used if the search finds no counterexample; the nominal run if there were none.

    Worst is, in this order: a run that fails its task (which may keep its contracts), then the run nearest to breaking a
    contract, then the cheapest. Source: paper V.A.
    """

    def __init__(self, nominal: Run) -> None:
        self._nearness = Nearness(nominal)
        self._rank: tuple[bool, int, int, str] | None = None
        self.run = nominal

    def note(self, run: Run) -> None:
        if not len(run.spec.schedule):
            return
        rank = (run.success is not False, self._nearness.least(run), run.spec.schedule.cost, run.id)
        if self._rank is None or rank < self._rank:
            self._rank, self.run = rank, run
