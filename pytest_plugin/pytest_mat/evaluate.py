"""`--mat-evaluate`: a task under the three conditions of A6.1, on all its seeds and governance variants, as rows of numbers.

A part is one condition, one seed and one variant:

- nominal: the undisturbed run;
- fault: the fault matrix. Each operator that acts on services, retrieval or memory, and can act on the nominal run, acts once,
  at a call and a grid point that the seed draws alike among all it offers within the budget. Every variant gets the same
  schedules, so that rows can be paired: those of the run without governance, or of the item's own variant where that is not
  evaluated;
- adversarial: the run under what a search of all operators finds worst within the budget: the cheapest counterexample, or,
  where it finds none, a run that failed the task, or else the one that came nearest to breaking a contract.

A finished part is kept (`.mat/evaluations`) until its session has come to its end, so that an evaluation that was interrupted
goes on where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import pytest
from _pytest.skipping import evaluate_xfail_marks

from mat.core import limits
from mat.core.campaign import Counterexample
from mat.core.operator import OperatorSpec, grid_digest
from mat.core.run import Run, prefixes
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.core.workload import CATEGORIES, Workload
from mat.govern.variant import NONE
from mat.kernel.clock import real_monotonic
from mat.kernel.entropy import Entropy
from mat.measure.robustness import curve_row
from mat.measure.rows import Condition, Labels, RunRow, lost_row
from mat.measure.sequential import decided, interval
from mat_search import Campaign, SearchStopped, search
from mat_search.coverage import Nearness
from mat_search.space import Grid, edges
from pytest_mat import live
from pytest_mat.compare import measured, search_row
from pytest_mat.options import Settings
from pytest_mat.parts import Part, Parts, Progress, parts_path
from pytest_mat.runtime import NO_RUN, REFUSED, RESULT, VARIANT, VARIANTS, catalog_of, task_of, variant_of
from pytest_mat.store import kept_runs
from pytest_mat.tasks import GIVEN, is_task

CONDITIONS: Final[tuple[Condition, ...]] = ("nominal", "fault", "adversarial")
BOUNDARIES: Final = ("service", "retrieval", "memory")
"""Where structured faults are injected (paper IV.D); what acts elsewhere is for the search."""
Execute: TypeAlias = Callable[..., Run]
"""(seed, schedule, **how) -> Run."""


class Evaluation:
    """The evaluation of one item, which has just been evaluated once. `total` is what its parts add up to."""

    def __init__(self, item: pytest.Item, settings: Settings, execute: Execute) -> None:
        self._item, self._settings, self._execute = item, settings, execute
        self._variants: tuple[str, ...] = item.stash.get(VARIANTS, (NONE,))
        self._plainest = NONE if NONE in self._variants else self._variants[0]
        self._matrix: dict[int, list[Schedule]] = {}
        self._nominal_run: tuple[str, Run] | None = None
        self._part = Part()
        catalog = catalog_of(item.config)
        self._operators: tuple[OperatorSpec, ...] = tuple(operator.spec() for operator in catalog.select(settings.faults))
        self._log = kept_runs(item.config)
        session = self._log.session if self._log is not None else ""
        self._parts = Parts(parts_path(item), self._key(), session=session, fresh=item.config.getoption("mat_fresh"))
        self._kept: list[tuple[Run, RunRow]] = []
        self.task: Workload = item.stash[GIVEN]
        self.total = Part()
        outside = item.stash[RESULT].uncontrolled if settings.clock == "virtual" else ()
        self._uncontrolled = f"its runs are not controlled ({outside[0].code})" if outside else ""

    def _key(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "item": self._item.nodeid, "the first run": self._item.stash[RESULT].head, "variants": list(self._variants),
            "operators": grid_digest(self._operators), "budget": settings.budget, "horizon": settings.horizon,
            "max_runs": self._most, "strategy": self._strategy, "curve": settings.curve,
            "timeout": self._item.config.getoption("mat_timeout"), "shrink_runs": settings.shrink_runs,
        }  # fmt: skip

    def run(self) -> None:
        """Execute all parts: of each variant each seed, of each seed each condition. The matrix is drawn before it is used."""
        item, seeds = self._item, self._settings.seeds
        order = (self._plainest, *(name for name in self._variants if name != self._plainest))
        progress = Progress(item, len(order) * seeds * len(CONDITIONS))
        parts: dict[tuple[str, int, Condition], Part] = {}
        try:
            for variant in order:
                item.stash[VARIANT] = variant
                for seed in range(seeds):
                    for condition in CONDITIONS:
                        parts[variant, seed, condition] = self._one(variant, seed, condition)
                        progress.step(f"{condition}, seed {seed}, {variant}")
        finally:
            del item.stash[VARIANT]
        for variant in self._variants:  # the item's own first: it stands for the item in tables that know no variants
            for seed in range(seeds):
                for condition in CONDITIONS:
                    self.total.take(parts[variant, seed, condition])

    def said(self) -> dict[str, Any]:
        """What travels with the item's report: where its journal is, what was taken from it, and what the session sums up."""
        taken, parts = self._parts.recalled, len(self._variants) * self._settings.seeds * len(CONDITIONS)
        declared = {**dict.fromkeys(self.task.channels, "channel"), **dict.fromkeys(self.task.tools, "tool")}
        met = set(self.total.met)
        return {
            "item": self._item.nodeid, "path": str(self._parts.path), "recalled": 0,
            "said": f"resumed: {taken} of {parts} parts taken from an interrupted evaluation" if taken else "",
            "what": "evaluation", "category": self.task.category,
            "unfaulted": all(row.condition != "fault" for row in self.total.rows),
            "unmet": [f"{kind} {name!r}" for name, kind in declared.items() if name not in met],
        }  # fmt: skip

    def left(self) -> dict[str, Any]:
        """The same of an evaluation that was interrupted: there is something to go on with."""
        return {"item": self._item.nodeid, "path": str(self._parts.path), "recalled": 0, "said": "", "what": "evaluation"}

    @property
    def reason(self) -> str:
        """What a reader should know of how the parts were made."""
        return "; ".join(f"{note} ({count}x)" if count > 1 else note for note, count in Counter(self.total.notes).items())

    @property
    def _most(self) -> int:
        """Executions of one search: as many as the command line allows, or few enough for all seeds and variants."""
        given: int | None = self._item.config.getoption("mat_max_runs")
        return given if given is not None else min(self._settings.max_runs, limits.EVALUATION_RUNS)

    @property
    def _strategy(self) -> str:
        return self._item.config.getoption("mat_strategy") or "anytime"

    def _one(self, variant: str, seed: int, condition: Condition) -> Part:
        """One part: taken from the journal, or executed and kept there, its runs before it."""
        name = f"{variant}/{seed}/{condition}"
        part = self._parts.recall(name)
        if part is None:
            part, self._kept = Part(), []
            self._part = part
            getattr(self, f"_{condition}")(variant, seed)
            if self._log is not None:
                self._log.keep(self._item, self._kept, session=self._parts.session)
            self._parts.keep(name, part)
        if condition == "nominal" and variant == self._plainest and not any(row.infrastructure for row in part.rows):
            self._matrix[seed] = part.schedules
        return part

    # -- conditions -------------------------------------------------------------------------------------------------

    def _nominal(self, variant: str, seed: int) -> None:
        run = self._executed(seed, NO_SCHEDULE, "nominal")
        if run is None:
            return
        self._nominal_run = (variant, run)
        self._part.met = sorted({record.action.name for record in run.records if record.action.boundary})
        if variant == self._plainest:
            self._part.schedules = matrix(run, self._operators, budget=self._settings.budget)

    def _fault(self, variant: str, seed: int) -> None:
        if self._uncontrolled:  # under faults it may do anything, waiting for ever included
            self._lost(seed, "fault", self._uncontrolled)
        elif seed not in self._matrix:
            self._lost(seed, "fault", "no undisturbed run to draw faults from")
        for schedule in () if self._uncontrolled else self._matrix.get(seed, ()):
            self._executed(seed, schedule, "fault")

    def _adversarial(self, variant: str, seed: int) -> None:
        """Searched within the seed and the variant; only the item's own variant enters the robustness curves."""
        from pytest_mat.stress import EvaluationFailed

        if self._uncontrolled:
            self._lost(seed, "adversarial", self._uncontrolled)
            return
        settings, own = self._settings, variant == self._variants[0]
        campaign = Campaign(
            operators=self._operators, budget=settings.budget, max_runs=self._most, stop="cheapest", strategy=self._strategy,
            shrink_runs=settings.shrink_runs, curve=(settings.curve or limits.EVALUATION_CHAINS) if own else 0,
            interval=interval, decided=partial(decided, target=settings.target),
        )  # fmt: skip
        evaluate = self._evaluator()
        try:
            nominal = self._undisturbed(variant, seed)
            worst = _Worst(nominal)
            result = search(
                nominal, evaluate, campaign, vary=partial(evaluate, vary=True), note=worst.note,
                adapt=lambda spec, choose: evaluate(spec, adversary=choose),
            )  # fmt: skip
        except EvaluationFailed as failed:
            self._lost(seed, "adversarial", _no_run(self._item, failed.reports))
            return
        if result.interrupted:  # it would rather tell what it found; the next session finds it again, and the rest
            raise KeyboardInterrupt
        self._part.executions += result.executions
        first = min(result.counterexamples, key=lambda found: found.cost, default=None)
        chosen = worst.run.spec.schedule if first is None else first.run.spec.schedule
        self._executed(seed, chosen, "adversarial")
        self._part.searches.append(search_row(self._item, result))
        if own:
            curve = curve_row(
                item=task_of(self._item), category=self.task.category, budget=settings.budget,
                certificate=result.certificate, lives=result.lives, chains=result.chains,
            )  # fmt: skip
            self._part.curves.append(curve)
            if seed == 0:
                broken = next(iter(result.nominal.failures), None)
                if broken is not None:  # it needs no disturbance, and nothing is cheaper
                    first = Counterexample(verdict=broken, run=result.nominal, stability=result.nominal_stability)
                self._part.found += [] if first is None else [first]
                self._part.undisturbed += [result.nominal] if first is not None and len(first.run.spec.schedule) else []
                self._part.certificates.append(live.relative(self._item, result.certificate))
                self._part.covered.append(result.covered)

    def _undisturbed(self, variant: str, seed: int) -> Run:
        """The nominal run of a seed, executed once more only where it was taken from the journal."""
        known, self._nominal_run = self._nominal_run, None
        if known is not None and known[0] == variant and known[1].spec.seed == seed:
            return known[1]
        return self._execute(seed, NO_SCHEDULE)

    # -- executing --------------------------------------------------------------------------------------------------

    def _executed(self, seed: int, schedule: Schedule, condition: Condition) -> Run | None:
        """A run, measured; None where what is around the test failed, which is a row of its own."""
        from pytest_mat.stress import EvaluationFailed

        self._part.executions += 1
        try:
            run = self._execute(seed, schedule)
        except EvaluationFailed as failed:
            self._lost(seed, condition, _no_run(self._item, failed.reports))
            return None
        row, governed = measured(self._item, run, condition, claims=True)
        self._part.rows.append(row)
        self._part.governed += [] if governed is None else [governed]
        if self._log is not None:
            self._kept.append((run, row))
        return run

    def _evaluator(self) -> Callable[..., Run]:
        """What a search executes with: it ends where its time is over, or where what is around the test fails under faults."""
        from pytest_mat.stress import EvaluationFailed

        seconds = self._item.config.getoption("mat_timeout")
        deadline = None if seconds is None else real_monotonic() + seconds

        def evaluate(spec: RunSpec, **how: Any) -> Run:
            disturbed = len(spec.schedule) or how.get("adversary")
            if deadline is not None and disturbed and real_monotonic() > deadline:
                raise self._stopped(f"--mat-timeout: {seconds} s have passed")
            try:
                return self._execute(spec.seed, spec.schedule, **how)
            except EvaluationFailed as failed:
                if not disturbed:
                    raise
                raise self._stopped(f"a search ended early: {_no_run(self._item, failed.reports)}") from failed

        return evaluate

    def _stopped(self, why: str) -> SearchStopped:
        if why not in self._part.notes:
            self._part.notes.append(why)
        return SearchStopped(why)

    def _lost(self, seed: int, condition: Condition, why: str) -> None:
        """Infrastructure failures are counted apart: they say nothing of the contracts."""
        self._part.rows.append(_lost(self._item, self.task, condition, why, seed=seed))


def _lost(item: pytest.Item, task: Workload, condition: Condition, why: str, *, seed: int) -> RunRow:
    labels = Labels(
        category=task.category, input=task.input, variant=variant_of(item), episode=task.episode, infrastructure=why
    )
    return lost_row(item=task_of(item), condition=condition, seed=seed, labels=labels)


def _no_run(item: pytest.Item, reports: Sequence[pytest.TestReport]) -> str:
    """Why an execution gave no run, in words that are the same each time."""
    said = next((each for each in reports if not each.passed), None)
    if said is None:
        return "no run"
    if said.skipped:
        return "skipped"
    if said.when in _AROUND:
        return _AROUND[said.when]
    known = item.stash.get(NO_RUN, "")
    return known if known and known != REFUSED else "body failed"


_AROUND: Final = {"setup": "set-up failed", "teardown": "tear-down failed"}


def lost_at_once(item: pytest.Item, task: Workload, reports: Sequence[pytest.TestReport]) -> tuple[str, list[RunRow]]:
    """A task whose very first run did not come about, which is an error of its test (--mat-evaluate goes on with the next).

    The same failure in a later run is a row of its own, so it is one here: of seed 0 and the item's own variant, under each
    condition. Gives why, and the rows; none for a test that is skipped, or that asks for what cannot be had.
    """
    why = _no_run(item, reports)
    refused = item.stash.get(NO_RUN, "") == REFUSED and not any(each.when in _AROUND and not each.passed for each in reports)
    if why == "skipped" or refused or not is_task(task):
        return why, []
    whys: dict[Condition, str] = {
        "nominal": why, "fault": "no undisturbed run to draw faults from", "adversarial": "no undisturbed run to search from",
    }  # fmt: skip
    return why, [_lost(item, task, condition, said, seed=0) for condition, said in whys.items()]


def matrix(run: Run, operators: Sequence[OperatorSpec], *, budget: int) -> list[Schedule]:
    """The fault matrix of a nominal run: one schedule for each operator of BOUNDARIES that can act on it within the budget.

    Where it acts, and how, is drawn alike among all that it offers, from a stream of the run's own seed named by the operator.
    """
    structured = tuple(operator for operator in operators if operator.boundary in BOUNDARIES)
    offered: dict[str, list[Schedule]] = {}
    for edge in edges(run, NO_SCHEDULE, -1, Grid(structured), prefixes(run), budget=budget):
        if edge.added is not None:
            offered.setdefault(edge.added.operator, []).append(edge.schedule)
    entropy = Entropy(run.spec.base)
    return [
        schedules[entropy.stream(f"evaluate/{operator}").randrange(len(schedules))]
        for operator, schedules in sorted(offered.items())
    ]


class _Worst:
    """The worst disturbed run that breaks no further contract; the nominal one where nothing was disturbed.

    A run may fail its task and keep its contracts (paper V.A reports both), so that comes first; then how near it came to
    breaking a contract, then what it cost.
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


# -- around it ------------------------------------------------------------------------------------------------------------


def disregard_xfail(item: pytest.Item) -> None:
    """A task that is marked to fail is measured like any other: its failures are data. Until `as_configured` ends."""
    if evaluate_xfail_marks(item) is not None:
        item.config.option.runxfail = True


@contextmanager
def as_configured(item: pytest.Item) -> Iterator[None]:
    """The items to come have their own marks."""
    kept = item.config.option.runxfail
    try:
        yield
    finally:
        item.config.option.runxfail = kept


def summed_up(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """For the end of the session: what was evaluated and what was not, and whether the tasks are what A6.1 asks for."""
    categories = Counter(dict.fromkeys(CATEGORIES, 0))
    categories.update(each["category"] for each in told if "category" in each)
    tasks, others = sum(categories.values()), sum("untasked" in each for each in told)
    failed = sum("unevaluated" in each for each in told)
    if not tasks and not others and not failed:
        return []
    found = [f"evaluated {_counted(tasks, 'task')}"]
    if others:
        found[0] += f"; {_counted(others, 'test')} without a workload {'was' if others == 1 else 'were'} run as usual"
    if failed:
        found[0] += f"; {_counted(failed, 'test')} could not be evaluated: skipped, or its first run did not come about"
    if tasks and len(set(categories.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in sorted(categories.items()))
        found.append(f"the categories have unequal numbers of tasks, and weigh in totals by them: {listed}")
    spared = [str(each["item"]) for each in told if each.get("unfaulted")]
    if spared:
        found.append(f"no structured fault within the budget could act on {_counted(len(spared), 'task')}: {', '.join(spared)}")
    unmet = [(each["item"], ", ".join(each["unmet"])) for each in told if each.get("unmet")]
    return [*found, *(f"{item}: declares {names}, which no undisturbed run met" for item, names in unmet)]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
