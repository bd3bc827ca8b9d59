"""Decides in one place what a number is drawn from: the sampling unit, the population, the interval, and whether there is data.

Seeds repeat a task, and runs of one task resemble each other. By default the sampling unit is therefore the task:

- "new tasks": the interval is for tasks like these, which were not run. It reflects how much the tasks differ.
- "these tasks": the interval is for these tasks under new seeds. It reflects how much the runs of one task differ.

The unit "run" assumes that all runs are independent, as if no task were harder than another (`check_independent`).

The interval of a share is Wilson's at an effective number of runs (`_new_tasks`, `_these_tasks`). `benchmarks/figures.py`
shows how often it covers, and how much wider it is than that of an oracle that knows how strongly runs of a task correlate.

Source: A6.3, DESIGN decisions 29 and 30.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.measure.bootstrap import BootstrapMethod, mean_of, mean_of_tasks, ratio_of, ratio_of_tasks, share_of
from mat.measure.estimate import Estimate, SamplingUnit
from mat.measure.interval import CONFIDENCE, clopper_pearson, t_quantile, wilson, wilson_ends
from mat.measure.rows import RunRow

Population: TypeAlias = Literal["new tasks", "these tasks"]
ShareMethod: TypeAlias = Literal["wilson", "clopper-pearson"]
Share: TypeAlias = "int | Fraction"
BY_TASK: Final = "wilson by task"
WITHIN_TASKS: Final = "wilson within tasks"
_TRUST: Final = 0.7
"""How much the spread of tasks counts if only a share of them shows the rarer outcome: that share to this power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What intervals are for. `interval`: the interval of a share of independent runs; `bootstrap`: the method for means."""

    unit: SamplingUnit = "task"
    population: Population = "new tasks"
    interval: ShareMethod = "wilson"
    bootstrap: BootstrapMethod | None = None


TASKS: Final = Sampling()
"""The default of reports and comparisons."""
RUNS: Final = Sampling(unit="run")
"""Independent runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What one run adds to a share: `won` of `trials`; `won` may be a share. Runs of one task with one `seed` share their
    draws; None: the run has a draw of its own."""

    task: str
    won: Share
    trials: int = 1
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """What one run adds to a mean (`x`) or a ratio (`x` over `y`); `task` and `seed` as in Trials."""

    task: str
    x: float
    y: float = 1.0
    seed: int | None = None


def task_of(row: RunRow) -> str:
    """The task of a run. Two tests of one workload share their task, and with it their draws."""
    return row.task or row.item


def population_in_words(tasks: int, runs: int, sampling: Sampling) -> str:
    """What an interval is for.

    >>> population_in_words(8, 160, TASKS), population_in_words(1, 20, TASKS)
    ('new tasks like these 8', 'this task on new seeds')
    """
    if not runs:
        return ""
    if sampling.unit == "run":
        return f"new runs like these {runs}, assumed independent"
    if tasks == 1:
        return "this task on new seeds"
    return f"new tasks like these {tasks}" if sampling.population == "new tasks" else f"these {tasks} tasks on new seeds"


def share(found: Iterable[Trials], sampling: Sampling, *, confidence: float = CONFIDENCE) -> Estimate:
    """The share of trials that were won; None with n = 0 without a trial. n counts trials."""
    kept = [each for each in found if each.trials]
    tasks: dict[str, list[Trials]] = {}
    for each in kept:
        tasks.setdefault(each.task, []).append(each)
    if sampling.unit == "run" or len(tasks) < 2:
        estimate = _of_runs(kept, sampling, confidence)
    else:
        if all(len(those) == 1 == those[0].trials for those in tasks.values()):
            estimate = _of_runs(kept, sampling, confidence)
        elif sampling.population == "new tasks":
            estimate = _new_tasks([_total(those) for those in tasks.values()], confidence)
        else:
            estimate = _these_tasks(list(tasks.values()), confidence)
    return described(estimate, (each.task for each in kept), sampling)


def mean(found: Iterable[Number], sampling: Sampling, *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of x over runs; n counts runs."""
    runs = list(found)
    by = _resampled(runs, sampling)
    if by is None:
        estimate = mean_of((run.x for run in runs), confidence=confidence, method=sampling.bootstrap)
    elif sampling.population == "these tasks":
        estimate = _within(runs, confidence)
    elif len(set(Counter(by).values())) == 1:
        estimate = mean_of((run.x for run in runs), by=by, confidence=confidence, method=sampling.bootstrap)
    else:  # tasks with different numbers of runs: a ratio of sums
        estimate = ratio_of(((run.x, 1.0) for run in runs), by=by, confidence=confidence, method=sampling.bootstrap)
    return described(replace(estimate, n=len(runs)), (run.task for run in runs), sampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTotal:
    """What the runs of one task add to a mean (the sum `x`) or to a ratio (the sums `x` and `y`, a fact of each run)."""

    task: str
    x: float
    y: float
    runs: int


def mean_of_totals(found: Iterable[TaskTotal], sampling: Sampling, *, confidence: float = CONFIDENCE) -> Estimate:
    """The same as `mean` for new tasks, from the sums of two or more tasks."""
    totals = list(found)
    estimate = mean_of_tasks(((each.x, each.runs) for each in totals), confidence=confidence, method=sampling.bootstrap)
    return _of_totals(estimate, totals, sampling)


def ratio_of_totals(found: Iterable[TaskTotal], sampling: Sampling, *, confidence: float = CONFIDENCE) -> Estimate:
    """The same as `ratio` for new tasks, from the sums of two or more tasks."""
    totals = list(found)
    sums = ((each.x, each.y, each.runs) for each in totals)
    return _of_totals(ratio_of_tasks(sums, confidence=confidence, method=sampling.bootstrap), totals, sampling)


def _of_totals(estimate: Estimate, totals: Sequence[TaskTotal], sampling: Sampling) -> Estimate:
    runs = sum(each.runs for each in totals)
    return replace(described(estimate, (each.task for each in totals), sampling), n=runs)


def ratio(found: Iterable[Number], sampling: Sampling, *, confidence: float = CONFIDENCE) -> Estimate:
    """sum x / sum y over runs, y >= 0; n counts runs."""
    runs = list(found)
    by = _resampled(runs, sampling)
    if by is not None and sampling.population == "these tasks":
        estimate = _within(runs, confidence)
    else:
        estimate = ratio_of(((run.x, run.y) for run in runs), by=by, confidence=confidence, method=sampling.bootstrap)
    return described(replace(estimate, n=len(runs)), (run.task for run in runs), sampling)


def _resampled(runs: Sequence[Number], sampling: Sampling) -> list[str] | None:
    """The task of each run, if there are several and they are the unit; None if runs are."""
    tasks = [run.task for run in runs]
    return tasks if sampling.unit == "task" and len(set(tasks)) > 1 else None


def described(estimate: Estimate, tasks: Iterable[str], sampling: Sampling) -> Estimate:
    """An estimate with its sampling unit and its population in words; `tasks` has one entry for each run."""
    names = list(tasks)
    if not names:
        return replace(estimate, n=0, sampling_unit="", population="")
    return replace(estimate, sampling_unit=sampling.unit, population=population_in_words(len(set(names)), len(names), sampling))


def check_independent(rows: Iterable[RunRow]) -> None:
    """SpecError if runs share their draws, because then they are not independent, whatever the tasks are like."""
    draws = Counter((row.condition, row.variant, task_of(row), row.seed) for row in rows if not row.infrastructure)
    shared = [key for key, count in draws.items() if count > 1]
    if shared:
        condition, _, task, seed = shared[0]
        raise SpecError(
            what=f"runs share their draws, as {draws[shared[0]]} {condition} runs of {task} at seed {seed} do",
            why="the unit 'run' assumes that runs are independent, and one task at one seed is one draw",
            fix="omit --unit run: the unit is then the task",
        )  # fmt: skip


# -- shares -----------------------------------------------------------------------------------------------------------


def _of_runs(found: Sequence[Trials], sampling: Sampling, confidence: float) -> Estimate:
    """Independent runs: a proportion, a mean of shares, or, with several trials in a run, clusters of them."""
    if any(each.trials != 1 for each in found):
        return clustered([(int(each.won), each.trials) for each in found], confidence)
    if all(each.won in (0, 1) for each in found):
        method = clopper_pearson if sampling.interval == "clopper-pearson" else wilson
        return method(int(sum(each.won for each in found)), len(found), confidence)
    return share_of((Fraction(each.won) for each in found), confidence=confidence)


def _new_tasks(clusters: Sequence[tuple[Fraction, int]], confidence: float) -> Estimate:
    """Wilson's interval at the effective number of runs, for tasks of (won, trials).

    n runs count as n / deff. deff is the variance of the share between tasks (the ratio estimator's) over that of independent
    runs; the effective number is scaled by (z / t_{k-1})^2, because k tasks estimate that variance (E. Korn, B. Graubard,
    Survey Methodology 24 (1998)). It is at least that at which each task is one run, and at most n. Few tasks that show the
    rarer outcome say little about how tasks differ: the effective number approaches its least with the share of tasks that
    show none of it. Without this, intervals at a success rate of 90 % cover in 86 %.
    """
    k, n, won = len(clusters), sum(trials for _, trials in clusters), sum((won for won, _ in clusters), Fraction(0))
    share = won / n
    least = n * n / sum(trials * trials for _, trials in clusters)
    between = Fraction(k, k - 1) * sum(((won - share * trials) / n) ** 2 for won, trials in clusters)
    few, effective = few_tasks(k, confidence), least
    if 0 < share < 1:
        found = float(share * (1 - share) / between) * few if between else n * few
        rare = sum(won < trials if 2 * share > 1 else won > 0 for won, trials in clusters) / k
        effective = trusted(found, least=least, most=n, shown=rare)
    return _wilson_at(float(share), effective, n, confidence, BY_TASK)


def trusted(found: float, *, least: float, most: float, shown: float) -> float:
    """An effective number of runs, as far as the share `shown` of the tasks tells how they differ."""
    return least + (min(max(found, least), most) - least) * math.pow(shown, _TRUST)


def few_tasks(tasks: int, confidence: float) -> float:
    """The factor by which few tasks reduce the effective number of runs, because their variance is itself estimated."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return (z / t_quantile(tasks - 1, confidence)) ** 2 if tasks > 1 else 0.0


def _these_tasks(tasks: Sequence[Sequence[Trials]], confidence: float) -> Estimate:
    """Wilson's interval at the effective number of runs, if only the runs within a task vary.

    The variance is that of a stratified mean, which is at most that of independent runs. It has sum (m_i - 1) degrees of
    freedom. A task with a single run shows no variance within it; then all runs count as independent.
    """
    draws = [_by_draw(those) for those in tasks]
    n = sum(trials for those in draws for _, trials in those)
    share = sum((won for those in draws for won, _ in those), Fraction(0)) / n
    degrees, variance = sum(len(those) - 1 for those in draws), Fraction(0)
    for those in draws:
        if len(those) > 1:
            total, size = sum((won for won, _ in those), Fraction(0)), sum(trials for _, trials in those)
            spread = sum((won - total / size * trials) ** 2 for won, trials in those)
            variance += Fraction(len(those), len(those) - 1) * spread / n**2
    few = few_tasks(degrees + 1, confidence) or 1.0
    independent = float(sum(map(len, draws)))
    alone = any(len(those) == 1 for those in draws)
    effective = independent if alone or not variance else max(float(share * (1 - share) / variance), independent)
    return _wilson_at(float(share), effective * few, n, confidence, WITHIN_TASKS)


def _total(those: Sequence[Trials]) -> tuple[Fraction, int]:
    won: Fraction = sum((Fraction(each.won) for each in those), Fraction(0))
    return won, sum(each.trials for each in those)


def _by_draw(those: Sequence[Trials]) -> list[tuple[Fraction, int]]:
    """(won, trials) of each draw of a task."""
    found: dict[object, tuple[Fraction, int]] = {}
    for place, each in enumerate(those):
        won, trials = found.get(_draw(each, place), (Fraction(0), 0))
        found[_draw(each, place)] = won + each.won, trials + each.trials
    return list(found.values())


def _wilson_at(share: float, effective: float, n: int, confidence: float, method: str) -> Estimate:
    low, high = wilson_ends(share, effective, confidence)
    return Estimate(value=share, low=low, high=high, n=n, confidence=confidence, method=method)


def clustered(clusters: Iterable[tuple[int, int]], confidence: float = CONFIDENCE) -> Estimate:
    """The share of successes in clusters of (successes, trials), with Wilson's interval at the effective sample size.

    Trials of one cluster (faults of one run) are dependent, so n of them count as n / deff: deff is the variance of the share
    between clusters (the ratio estimator's) over that of independent trials, at least 1 and at most the value that makes each
    cluster one trial; k clusters scale it by (z / t_{k-1})^2 as well. If the clusters do not show deff (a single cluster, or
    equal trials), each cluster is one trial. With one trial per cluster, this is plain Wilson, and `method` says so. Source:
    E. L. Korn, B. I. Graubard, Survey Methodology 24 (1998), with Wilson's interval instead of the exact one.
    """
    counted = [(won, trials) for won, trials in clusters if trials]
    n, successes = sum(trials for _, trials in counted), sum(won for won, _ in counted)
    plain = wilson(successes, n, confidence)
    if n == len(counted):
        return plain
    least = float(len(counted))
    effective = min(max(_effective(counted) * few_tasks(len(counted), confidence), least), float(n))
    return _wilson_at(successes / n, effective, n, confidence, "wilson-clustered")


def _effective(counted: Sequence[tuple[int, int]]) -> float:
    """n / deff, or 0 if the clusters do not show deff."""
    k, n = len(counted), sum(trials for _, trials in counted)
    successes = sum(won for won, _ in counted)
    if k < 2 or successes in (0, n):
        return 0.0
    spread = sum(
        (won * n - successes * trials) ** 2 for won, trials in counted
    )  # an integer, so that equal shares give exactly 0
    share, between = successes / n, k / (k - 1) * spread / n**4
    return share * (1 - share) / between if spread else float(n)


# -- means ------------------------------------------------------------------------------------------------------------


def _within(runs: Sequence[Number], confidence: float) -> Estimate:
    """A mean or ratio with the t interval of its influence within tasks, for these tasks under new seeds.

    Source: W. Cochran, Sampling Techniques (1977), 5.4 and 6.11, with sum (m_i - 1) degrees of freedom.
    """
    method = "stratified t"
    bottom = math.fsum(run.y for run in runs)
    if not bottom:
        return Estimate(value=None, low=None, high=None, n=len(runs), confidence=confidence, method=method)
    value = math.fsum(run.x for run in runs) / bottom
    tasks: dict[str, dict[object, float]] = {}
    for place, run in enumerate(runs):
        draws = tasks.setdefault(run.task, {})
        draw = _draw(run, place)
        draws[draw] = draws.get(draw, 0.0) + (run.x - value * run.y) / bottom
    degrees = sum(len(draws) - 1 for draws in tasks.values())
    variance = math.fsum(_variance(list(draws.values())) for draws in tasks.values() if len(draws) > 1)
    if min(map(len, tasks.values())) < 2 or variance <= _NOTHING * value * value:
        return Estimate(
            value=value, low=None, high=None, n=len(runs), confidence=confidence, method=f"{method}, no spread shown"
        )
    half = t_quantile(degrees, confidence) * math.sqrt(variance)
    low = value - half if any(run.x < 0 for run in runs) else max(0.0, value - half)
    return Estimate(value=value, low=low, high=value + half, n=len(runs), confidence=confidence, method=method)


def _draw(run: Trials | Number, place: int) -> object:
    """What the runs of a task that share a draw have in common."""
    return ("run", place) if run.seed is None else run.seed


_NOTHING: Final = 1e-24
"""The share of the squared value below which a variance is rounding error."""


def _variance(found: Sequence[float]) -> float:
    """The variance of a sum of independent numbers, estimated from them."""
    centre, m = math.fsum(found) / len(found), len(found)
    return m / (m - 1) * math.fsum((each - centre) ** 2 for each in found)
