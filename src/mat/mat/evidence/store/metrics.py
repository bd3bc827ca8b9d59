"""Every metric of `mat.measure.metrics`, for many groups of runs at once, from sums that one SQL query computes.

The query adds up the runs of each task, and `mat.measure.sampling` makes intervals of these sums, as it does for rows. Where
runs are the unit (a single task, `RUNS`, lifetimes), the intervals of all groups are computed at once from sums of powers.

The numbers equal those that METRICS gives for the rows of each group, with two differences. Where runs are the unit, METRICS
resamples means and ratios of up to `bootstrap.LARGE` of them; the interval here is the analytic one that METRICS uses for more
runs, guarded and withheld by the same rule (`mat.measure.guard`). Shares of claims are rounded to 2^-32 before they are added.
The sums of a task are of integers and exact up to 127 bits, so that results depend neither on the order of rows nor on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from mat.core.errors import SpecError, did_you_mean
from mat.evidence.store.schema import RUNS
from mat.measure import analytic
from mat.measure.analytic import Bounds, PowerSums
from mat.measure.bootstrap import ALIKE, FEW, GUARDED, TOO_FEW
from mat.measure.estimate import Estimate
from mat.measure.guard import LEAST
from mat.measure.interval import CONFIDENCE
from mat.measure.metrics import METRICS
from mat.measure.rows import Misuse, RunCondition
from mat.measure.sampling import TASKS, Sampling, TaskTotal, Trials, described, mean_of_totals, ratio_of_totals, share

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, Any]"
Sums: TypeAlias = dict[str, Array]
"""`metric:power` -> the sum in each group. Powers are n, x, y, xx, xy, ... and k, the number of runs with any trial."""
GroupKey: TypeAlias = tuple[str, ...]
BY: Final = ("condition", "category", "variant")
_INPUTS: Final = ("benign", "misuse")
_UNIT: Final = 2**32
"""The integer that represents a share of claims of 1."""
_ROUNDING: Final = 1e-12
"""The relative difference of sums of squares below which they count as equal."""
_OWNER: Final = "owner"
_RUNS: Final = f"(SELECT *, rowid AS added, coalesce(nullif(task, ''), item) AS {_OWNER} FROM runs)"
"""The runs, the task of each, and the order in which they were added."""
_ARMED: Final = "armed IS NOT FALSE"
_PROPORTIONS: Final = {
    "success": ("success", "success IS NOT NULL"),
    "non_termination": ("termination IN ('horizon', 'deadlock')", "true"),
    "collapse": ("collapsed", "true"),
    "violations": ("hard > 0", _ARMED),
    "unknown": ("outcome = 'unknown'", _ARMED),
    "residual_harm": ("harmed", f"faulted AND {_ARMED}"),
    **{f"misuse.{outcome}": (f"misuse = '{outcome}'", "misuse <> ''") for outcome in get_args(Misuse)},
}
"""Metric -> (which runs count as a success, which runs are trials), as SQL conditions."""
_TRIALS: Final = {
    "faults": "faults",
    "judged": f"CASE WHEN {_ARMED} THEN faults ELSE 0 END",
    "cases": f"CASE WHEN {_ARMED} THEN cases ELSE 0 END",
    "all": "(allowed + rewritten + blocked)",
    "high": "(high_allowed + high_rewritten + high_blocked)",
    "low": "(allowed + rewritten + blocked - high_allowed - high_rewritten - high_blocked)",
}
"""Name -> SQL for the number of trials in a run: faults (of runs that a hard contract judged), cases, and proposed actions by
impact."""
_DECIDED: Final = {"allow": "allowed", "rewrite": "rewritten", "block": "blocked"}
_CLUSTERED: Final = {
    "detected": ("detected", "faults"),
    "mitigated": ("mitigated", "faults"),
    "containment": ("contained", "faults"),
    "final_ok": (f"CASE WHEN {_ARMED} THEN final_ok ELSE 0 END", "judged"),
    "case_violations": (f"CASE WHEN {_ARMED} THEN cases_broken ELSE 0 END", "cases"),
    "high_impact_stopped": ("high_stopped", "high"),
    **{f"p_{decision}": (column, "all") for decision, column in _DECIDED.items()},
    **{f"p_{decision}.high": (f"high_{column}", "high") for decision, column in _DECIDED.items()},
    **{f"p_{decision}.low": (f"({column} - high_{column})", "low") for decision, column in _DECIDED.items()},
}
"""Metric -> (SQL for the number of successes in a run, name of the trials)."""
_MEANS: Final = {"tokens": "tokens", "tool_calls": "tool_calls", "steps": "steps", "latency_ms": "elapsed_ms"}
_LIVES: Final = {"steps": ("steps", "first_failure + 1"), "ms": ("elapsed_ms", "coalesce(first_failure_ms, elapsed_ms)")}
"""Unit -> (SQL for the length of a run without a failure, SQL for the length until the failure)."""
_LIVED: Final = {"steps": _ARMED, "ms": f"{_ARMED} AND elapsed_ms IS NOT NULL"}
"""Unit -> the runs that have a lifetime, as an SQL condition."""
_RATIOS: Final = ("tokens_per_success",)
_SHARES: Final = {"h_rate": ("claims_unsupported", "claims_final"), "h_prop": ("claims_propagated", "claims_recorded")}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics:
    """The metrics of one group of runs, by name. `group` has the value of each column that was grouped by.

    `runs`: the number of runs without an infrastructure failure, which the metrics use. `left_out`: the number of other runs.
    """

    group: GroupKey
    runs: int
    left_out: int
    metrics: Mapping[str, Estimate]


def metrics(
    connection: Any,
    by: Sequence[str] = BY,
    *,
    condition: RunCondition | None = None,
    confidence: float = CONFIDENCE,
    sampling: Sampling = TASKS,
) -> tuple[GroupMetrics, ...]:
    """All metrics of each group of runs, ordered by group. `condition` restricts the runs to one condition.

    `sampling`: new tasks, or independent runs. SpecError if runs cannot be grouped by a column, or for another population.
    """
    _check(by, condition, sampling)
    where = f"condition = '{condition}'" if condition else "true"
    counts = _counts(connection, by, where)
    if not counts.groups:
        return ()
    alone = sampling.unit == "run"
    keys = tuple(by) if alone else (*by, _OWNER)
    of_tasks = counts if alone else _counts(connection, keys, where)
    task_sums = _sum_groups(connection, keys, where, of_tasks)
    group_of = _group_of_each([key[: len(by)] for key in of_tasks.groups], counts.groups)
    sums = {name: _total(values, group_of, len(counts.groups)) for name, values in task_sums.items()}
    for name, values in _episodes(connection, by, where, counts.groups).items() if counts.episodes else ():
        sums[name] = sums[name] + values
    found = dict(_estimates(sums, confidence))
    tasks = ["" if alone else key[-1] for key in of_tasks.groups]
    owned = [[(tasks[place], place) for place in places] for places in _places_of(group_of, len(counts.groups))]
    for name, estimates in found.items():
        if not name.startswith("mtbf"):  # lifetimes go through several tasks
            found[name] = [
                _sampled(_TaskSums.of(name, task_sums, those), by_run, sampling, confidence)
                for those, by_run in zip(owned, estimates, strict=True)
            ]
    return tuple(
        GroupMetrics(
            group=group, runs=counts.held[place], left_out=counts.given[place] - counts.held[place],
            metrics={name: found[name][place] for name in METRICS if name in found},
        )
        for place, group in enumerate(counts.groups)
    )  # fmt: skip


def _group_of_each(keys: Sequence[GroupKey], groups: Sequence[GroupKey]) -> Array:
    """The index of each key among the groups."""
    import numpy

    number = {group: place for place, group in enumerate(groups)}
    return numpy.array([number[key] for key in keys], dtype=numpy.intp)


def _places_of(group_of: Array, groups: int) -> list[list[int]]:
    """The indices of the tasks of each group."""
    found: list[list[int]] = [[] for _ in range(groups)]
    for place, group in enumerate(group_of.tolist()):
        found[group].append(place)
    return found


def _check(by: Sequence[str], condition: str | None, sampling: Sampling) -> None:
    if sampling.population != "new tasks":
        raise SpecError(
            what='a store has no intervals for the population "these tasks"',
            why="it adds up the runs of a task, and does not see how they vary",
            fix="make the report from the folder of its log",
        )  # fmt: skip
    texts = [name for name, kind in RUNS.items() if kind == "VARCHAR"]
    wrong = [f"runs cannot be grouped by {name!r}{did_you_mean(name, texts)}" for name in by if name not in texts]
    if condition is not None and condition not in get_args(RunCondition):
        wrong.append(f"unknown condition: {condition!r}{did_you_mean(condition, get_args(RunCondition))}")
    if wrong:
        raise SpecError(what="; ".join(wrong), fix=f"group by {', '.join(texts)}")


# -- sums -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """The groups in order, the numbers of all and of valid runs in each, whether any run is in an episode, and each maximum."""

    groups: list[GroupKey]
    given: list[int]
    held: list[int]
    episodes: bool
    most: Mapping[str, int]


def _counts(connection: Any, by: Sequence[str], where: str) -> _Counts:
    numbers = tuple(_MEANS.values())
    most = ", ".join(f"max(abs({name}))" for name in numbers)
    rows = connection.execute(
        f"SELECT {''.join(f'{name}, ' for name in _quote_names(by))}count(*), count(*) FILTER (WHERE infrastructure = ''), "
        f"count(*) FILTER (WHERE episode <> ''), {most} FROM {_RUNS} WHERE {where}{_group_clause(by)}"
    ).fetchall()
    rows = [row for row in rows if row[len(by)]]  # without columns to group by, an empty table gives one row
    tail = [row[len(by) :] for row in rows]
    return _Counts(
        groups=[tuple(map(str, row[: len(by)])) for row in rows],
        given=[row[0] for row in tail],
        held=[row[1] for row in tail],
        episodes=any(row[2] for row in tail),
        most={name: max((row[3 + place] or 0 for row in tail), default=0) for place, name in enumerate(numbers)},
    )


def _sum_groups(connection: Any, by: Sequence[str], where: str, counts: _Counts) -> Sums:
    """Every sum in each group. The query also groups by input, so that metrics of one input need no query of their own."""
    numbers, wanted = _sum_sql(counts.most, sum(counts.given))
    columns = (*by, "input")
    rows = connection.execute(
        f"WITH numbers AS (SELECT *, {', '.join(_select_terms(numbers))} FROM {_RUNS} WHERE {where} AND infrastructure = '') "
        f"SELECT {', '.join((*_quote_names(columns), *_select_terms(wanted)))} FROM numbers{_group_clause(columns)}"
    ).fetchnumpy()
    places = _places(rows, by, counts.groups)
    sums = {name: _total(rows[name], places, len(counts.groups)) for name in wanted}
    for kind in _INPUTS:
        chosen = [text == kind for text in rows["input"]]
        for decision in _DECIDED:
            for power in ("x", "xx", "xy"):
                column = rows[f"p_{decision}:{power}"]
                sums[f"p_{decision}.{kind}:{power}"] = _total(column, places, len(counts.groups), chosen)
        for power in ("k", "y", "yy"):
            sums[f"all.{kind}:{power}"] = _total(rows[f"all:{power}"], places, len(counts.groups), chosen)
    return sums


def _sum_sql(most: Mapping[str, int], rows: int) -> tuple[dict[str, str], dict[str, str]]:
    """(numbers of a run, sums over runs), each as name -> SQL."""
    numbers: dict[str, str] = {}
    found: dict[str, str] = {}
    for name, (fact, among) in _PROPORTIONS.items():
        found |= {f"{name}:n": f"count_if({among})", f"{name}:x": f"count_if({among} AND {fact})"}
    for name, trials in _TRIALS.items():
        numbers[f"{name}_trials"] = trials
        found |= _squares(name, f"{name}_trials") | {f"{name}:k": f"count_if({name}_trials > 0)"}
    for name, (won, among) in _CLUSTERED.items():
        found |= {f"{name}:x": f"sum({won})", f"{name}:xx": f"sum({won} * {won})", f"{name}:xy": f"sum({won} * {among}_trials)"}
    for name, column in _MEANS.items():
        numbers[f"{name}_x"] = _wide(column, most[column], rows)
        found |= _cubes(name)
    tokens = _wide("tokens", most["tokens"], rows)
    numbers["tokens_per_success_x"] = f"CASE WHEN success IS NOT NULL THEN {tokens} END"
    numbers["tokens_per_success_xy"] = f"CASE WHEN success THEN {tokens} END"
    found |= _cubes("tokens_per_success", fact=True)
    for unit, (whole, until) in _LIVES.items():
        alone = f"episode = '' AND {_LIVED[unit]}"
        failed = f"{alone} AND first_failure IS NOT NULL"
        length = _wide(f"CASE WHEN first_failure IS NULL THEN {whole} ELSE {until} END", most[whole] + 1, rows)
        numbers[f"life_{unit}_x"] = f"CASE WHEN {alone} THEN {length} END"
        numbers[f"life_{unit}_xy"] = f"CASE WHEN {failed} THEN {_wide(until, most[whole] + 1, rows)} END"
        found |= _cubes(f"life_{unit}", fact=True)
    for name, (top, bottom) in _SHARES.items():
        numbers[f"{name}_x"] = f"CAST(CASE WHEN {bottom} > 0 THEN round({top} / {bottom} * {_UNIT}) END AS HUGEINT)"
        found |= _cubes(name)
    return numbers, found


def _squares(name: str, y: str) -> dict[str, str]:
    return {f"{name}:y": f"sum({y})", f"{name}:yy": f"sum({y} * {y})"}


def _cubes(name: str, *, fact: bool = False) -> dict[str, str]:
    """The sums that a mean of the number `name`_x needs; with `fact`, also those of a ratio to a fact of each run (0 or 1).

    A power of a fact is the fact, so its product with x is x in runs with the fact: `name`_xy.
    """
    x, xy = f"{name}_x", f"{name}_xy"
    found = {"n": f"count({x})", "x": f"sum({x})", "xx": f"sum({x} * {x})", "xxx": f"sum({x} * {x} * {x})"}
    if fact:
        found |= {"y": f"count({xy})", "xy": f"sum({xy})", "xxy": f"sum({xy} * {xy})"}
    return {f"{name}:{power}": sql for power, sql in found.items()}


def _wide(number: str, most: int, rows: int) -> str:
    """SQL that casts a number to a type that holds the sum of its cubes over all rows. Beyond 127 bits, sums are rounded."""
    if most**3 < 2**63:
        return number
    return f"CAST({number} AS {'HUGEINT' if most**3 * max(rows, 1) < 2**127 else 'DOUBLE'})"


def _episodes(connection: Any, by: Sequence[str], where: str, groups: Sequence[GroupKey]) -> Sums:
    """The sums over lifetimes of episodes that carried state on, grouped as in `mat.measure.reliability.lifetimes`.

    The runs of an episode are ordered by `place`, and runs of one place in the order in which they were added.
    """
    keys = ", ".join(dict.fromkeys(_quote_names((*by, "condition", "variant", "config", "schedule", "episode", "seed"))))
    sums: Sums = {}
    for unit, (whole, until) in _LIVES.items():
        wanted = _cubes(f"life_{unit}", fact=True)
        length = f"CASE WHEN broken THEN 0 WHEN first_failure IS NULL THEN {whole} ELSE {until} END"
        rows = connection.execute(f"""
            WITH ordered AS (
                SELECT *, infrastructure <> '' AS broken,
                    count(*) FILTER (WHERE infrastructure <> '' OR first_failure IS NOT NULL) OVER (
                        PARTITION BY {keys} ORDER BY place, added ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    ) AS ended
                FROM {_RUNS} WHERE {where} AND episode <> '' AND {_LIVED[unit]}
            ), lengths AS (
                SELECT {keys}, CAST(sum({length}) AS HUGEINT) AS life_{unit}_x,
                    bool_or(first_failure IS NOT NULL AND NOT broken) AS failed
                FROM ordered WHERE ended = 0 GROUP BY {keys} HAVING NOT bool_and(broken)
            ), lives AS (SELECT *, CASE WHEN failed THEN life_{unit}_x END AS life_{unit}_xy FROM lengths)
            SELECT {", ".join((*_quote_names(by), *_select_terms(wanted)))} FROM lives{_group_clause(by)}
        """).fetchnumpy()
        places = _places(rows, by, groups)
        sums |= {name: _total(rows[name], places, len(groups)) for name in wanted}
    return sums


def _places(rows: Mapping[str, Any], by: Sequence[str], groups: Sequence[GroupKey]) -> Array:
    """The index of the group of each row of a result."""
    import numpy

    number = {group: place for place, group in enumerate(groups)}
    size = len(next(iter(rows.values())))
    columns = [list(map(str, rows[name])) for name in by]
    return numpy.array([number[tuple(column[row] for column in columns)] for row in range(size)], dtype=numpy.intp)


def _total(values: Any, places: Array, size: int, chosen: Sequence[bool] | None = None) -> Array:
    import numpy

    filled = numpy.ma.filled(values, 0).astype(float)  # an empty sum is NULL
    if chosen is not None:
        filled = filled * numpy.array(chosen, dtype=float)
    return numpy.bincount(places, weights=filled, minlength=size)


def _quote_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f'"{name}"' for name in names)


def _select_terms(wanted: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f'{sql} AS "{name}"' for name, sql in wanted.items())


def _group_clause(names: Sequence[str]) -> str:
    columns = ", ".join(_quote_names(names))
    return f" GROUP BY {columns} ORDER BY {columns}" if names else ""


# -- estimates by task ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskSums:
    """The sums of one metric over the runs of each task with any: its trials (or runs), the numerator, the denominator."""

    kind: Literal["share", "mean", "ratio"]
    tasks: tuple[str, ...]
    runs: tuple[int, ...]
    trials: tuple[int, ...]
    top: tuple[Fraction, ...]
    bottom: tuple[int, ...]

    @classmethod
    def of(cls, name: str, sums: Sums, owned: Sequence[tuple[str, int]]) -> _TaskSums:
        among = _trials_of(name)
        runs, trials = (f"{among}:k", f"{among}:y") if among else (f"{name}:n", f"{name}:n")
        ratio, unit = name in _RATIOS, _UNIT if name in _SHARES else 1
        kept = [(task, place) for task, place in owned if sums[trials][place]]
        places = [place for _, place in kept]

        def whole(column: str) -> tuple[int, ...]:
            return tuple(int(sums[column][place]) for place in places)

        return cls(
            kind="ratio" if ratio else "mean" if name in _MEANS else "share", tasks=tuple(task for task, _ in kept),
            runs=whole(runs), trials=whole(trials), top=tuple(Fraction(x, unit) for x in whole(f"{name}:x")),
            bottom=whole(f"{name}:y") if ratio else whole(trials),
        )  # fmt: skip


def _trials_of(name: str) -> str:
    """The name of the trials of a metric that counts several in a run; "" for the others."""
    kind = name.rpartition(".")[2]
    return _CLUSTERED[name][1] if name in _CLUSTERED else f"all.{kind}" if kind in _INPUTS else ""


def _sampled(sums: _TaskSums, by_run: Estimate, sampling: Sampling, confidence: float) -> Estimate:
    """A metric of one group. `by_run`: the estimate of independent runs."""
    if sampling.unit == "run" or len(sums.tasks) < 2:
        runs = (task for task, count in zip(sums.tasks, sums.runs, strict=True) for _ in range(count))
        return described(by_run, runs, sampling)
    if sums.kind == "share":
        columns = zip(sums.tasks, sums.top, sums.trials, strict=True)
        return share((Trials(task=task, won=won, trials=n) for task, won, n in columns), sampling, confidence=confidence)
    totals = [
        TaskTotal(task=task, x=int(x), y=y, runs=runs)
        for task, x, y, runs in zip(sums.tasks, sums.top, sums.bottom, sums.runs, strict=True)
    ]
    return (mean_of_totals if sums.kind == "mean" else ratio_of_totals)(totals, sampling, confidence=confidence)


# -- estimates of independent runs -------------------------------------------------------------------------------------


def _estimates(sums: Sums, confidence: float) -> Iterator[tuple[str, list[Estimate]]]:
    """(metric, its estimate in each group)."""
    for name in _PROPORTIONS:
        n = sums[f"{name}:n"]
        yield name, _as_estimates(analytic.wilson_many(sums[f"{name}:x"], n, confidence), n, confidence, "wilson")
    for name, (_, trials) in _CLUSTERED.items():
        yield name, _clustered(sums, name, trials, confidence)
    for decision in _DECIDED:
        for kind in _INPUTS:
            yield f"p_{decision}.{kind}", _clustered(sums, f"p_{decision}.{kind}", f"all.{kind}", confidence)
    for name in _MEANS:
        yield name, _mean(_mean_of(sums, name), confidence)
    yield "tokens_per_success", _ratio(_ratio_of(sums, "tokens_per_success"), confidence)
    for unit in _LIVES:
        yield f"mtbf_{unit}", _mean(_mean_of(sums, f"life_{unit}"), confidence)
        yield f"mtbf_{unit}_censored", _ratio(_ratio_of(sums, f"life_{unit}"), confidence)
    for name in _SHARES:
        yield name, _share(_mean_of(sums, name, unit=_UNIT), confidence)


def _clustered(sums: Sums, name: str, trials: str, confidence: float) -> list[Estimate]:
    """The same as `mat.measure.sampling.clustered`, from sums."""
    import numpy
    from scipy.special import ndtri, stdtrit

    level = (1 + confidence) / 2
    k, n, yy = sums[f"{trials}:k"], sums[f"{trials}:y"], sums[f"{trials}:yy"]
    x, xx, xy = (sums[f"{name}:{power}"] for power in ("x", "xx", "xy"))
    with numpy.errstate(all="ignore"):
        share = x / n
        squares = xx - 2 * share * xy + share * share * yy
        between = numpy.where(squares > _ROUNDING * xx, k / (k - 1) * squares / (n * n), 0.0)
        shown = numpy.where(between > 0, share * (1 - share) / between, n)
        for_few = (ndtri(level) / stdtrit(k - 1, level)) ** 2
        shown = numpy.where((k < 2) | (x == 0) | (x == n), 0.0, shown * for_few)
        effective = numpy.where(n == k, n, numpy.minimum(numpy.maximum(shown, k), n))
        won = numpy.where(n > 0, numpy.minimum(share * effective, effective), 0.0)
    found = analytic.wilson_many(won, effective, confidence)
    methods = ["wilson" if plain else "wilson-clustered" for plain in n == k]
    return _as_estimates(Bounds(share, found.low, found.high), n, confidence, methods)


def _mean_of(sums: Sums, name: str, *, unit: int = 1) -> PowerSums:
    n, x, xx, xxx = (sums[f"{name}:{power}"] for power in ("n", "x", "xx", "xxx"))
    x, xx, xxx = x / unit, xx / unit**2, xxx / unit**3
    return PowerSums(n=n, x=x, y=n, xx=xx, xy=x, yy=n, xxx=xxx, xxy=xx, xyy=x, yyy=n)


def _ratio_of(sums: Sums, name: str) -> PowerSums:
    """The power sums for a ratio of a number of each run to a fact of each run (0 or 1, so its powers are itself)."""
    n, x, xx, xxx, y, xy, xxy = (sums[f"{name}:{power}"] for power in ("n", "x", "xx", "xxx", "y", "xy", "xxy"))
    return PowerSums(n=n, x=x, y=y, xx=xx, xy=xy, yy=y, xxx=xxx, xxy=xxy, xyy=xy, yyy=y)


def _mean(sums: PowerSums, confidence: float) -> list[Estimate]:
    """The same as `mat.measure.bootstrap.mean_of` with the method "abc"."""
    return _analytic(analytic.mean(sums, confidence), analytic.guarded_mean(sums, confidence), sums.n, confidence)


def _ratio(sums: PowerSums, confidence: float) -> list[Estimate]:
    """The same as `mat.measure.bootstrap.ratio_of` with the method "abc"."""
    return _analytic(analytic.ratio(sums, confidence), analytic.guarded_ratio(sums, confidence), sums.n, confidence)


def _analytic(plain: Bounds, guarded: Bounds, n: Array, confidence: float) -> list[Estimate]:
    """Estimates of numbers that are not negative. `plain` has no width if the runs of a group are alike."""
    import numpy

    alike = (plain.low == plain.value) & (plain.high == plain.value)
    few = n < LEAST
    low, high = numpy.maximum(0.0, numpy.minimum(guarded.low, guarded.value)), numpy.maximum(guarded.high, guarded.value)
    low, high = (numpy.where(few, numpy.nan, end) for end in (low, high))
    methods = [
        analytic.METHOD if unknown else ALIKE if same else analytic.METHOD + (TOO_FEW if too_few else GUARDED)
        for unknown, same, too_few in zip(numpy.isnan(plain.value).tolist(), alike.tolist(), few.tolist(), strict=True)
    ]
    return _as_estimates(Bounds(guarded.value, low, high), n, confidence, methods)


def _share(sums: PowerSums, confidence: float) -> list[Estimate]:
    """The same as `mat.measure.bootstrap.share_of`, with the analytic interval instead of the resampled one."""
    import numpy

    total, n = sums.x, sums.n
    whole = numpy.isclose(sums.xx, total, rtol=1e-12, atol=0.0)  # x^2 = x only for 0 and 1
    with numpy.errstate(all="ignore"):
        alike = sums.xx * n - total * total <= 1e-9 * total * total
    few = (n < FEW) | alike
    found = analytic.guarded_mean(sums, confidence)
    below = analytic.wilson_many(numpy.where(whole, numpy.round(total), numpy.floor(total + 1e-6)), n, confidence).low
    above = analytic.wilson_many(numpy.where(whole, numpy.round(total), numpy.ceil(total - 1e-6)), n, confidence).high
    low = numpy.where(whole | few, below, numpy.fmax(below, found.low))
    high = numpy.where(whole | few, above, numpy.fmin(above, found.high))
    methods = [
        "wilson" if plain else "wilson, as if binary" if binary else analytic.METHOD + GUARDED
        for plain, binary in zip(whole.tolist(), few.tolist(), strict=True)
    ]
    return _as_estimates(Bounds(found.value, low, high), n, confidence, methods)


def _as_estimates(bounds: Bounds, n: Array, confidence: float, methods: str | Sequence[str]) -> list[Estimate]:
    method_list = [methods] * len(n) if isinstance(methods, str) else methods
    columns = [[None if value != value else value for value in bound.tolist()] for bound in bounds]
    return [
        Estimate(value=value, low=low, high=high, n=round(count), confidence=confidence, method=method)
        for value, low, high, count, method in zip(*columns, n.tolist(), method_list, strict=True)
    ]
