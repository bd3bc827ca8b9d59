"""Means and ratios with bootstrap intervals, for metrics that are neither proportions nor quantiles. Source: A6.3.

The percentile bootstrap draws runs, or tasks with all their runs, repeatedly with replacement, computes the metric of each
resample, and takes the interval from its quantiles. Its intervals are too narrow for few runs, like a normal interval with
divisor n instead of a t interval with n - 1; so the quantiles are taken at Phi(-sqrt(n / (n - 1)) t_{n-1}), which corrects
both (T. Hesterberg, The American Statistician 69 (2015), "expanded percentile"). BCa is scipy's. Above `LARGE` runs the
analytic interval (`mat.measure.analytic`) replaces resampling: to second order it equals that of BCa.

None of them sees the tail that a sample hides, so each is "guarded": at least as wide as `mat.measure.guard` requires.

The seed of the resamples depends on the data alone, not on its order: equal runs give equal intervals.

An end that the data do not bound is None. Both ends are None for fewer than `guard.LEAST` runs, and for runs that are all
equal, because these do not show what other runs could be; `method` then says so. Resampling needs the extra `stats`: without
it both ends are None, too, and `method` names the extra.

Sources: B. Efron, R. Tibshirani, An Introduction to the Bootstrap (1993); A. Davison, D. Hinkley, Bootstrap Methods (1997),
for resampling whole tasks.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.core.extras import is_installed
from mat.kernel.entropy import stream_seed
from mat.measure import analytic, guard
from mat.measure.estimate import Estimate, check_confidence
from mat.measure.guard import LEAST, IntervalEnds
from mat.measure.interval import CONFIDENCE, t_quantile, wilson

if TYPE_CHECKING:
    import numpy

BootstrapMethod: TypeAlias = Literal["percentile", "bca", "abc"]
Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"
RESAMPLES: Final = 10_000
LARGE: Final = 1_000
"""The number of runs above which the default method does not resample."""
FEW: Final = LEAST
"""The number of shares below which a mean is not resampled: resamples of a few values vary too little."""
ALIKE: Final = "all equal"
GUARDED: Final = ", guarded"
WITHOUT_STATS: Final = ", no interval without pytest-mat[stats]"
TOO_FEW: Final = f", no interval below {LEAST}"
_CELLS: Final = 2_000_000
"""How many numbers are drawn at once."""
_ROUNDING: Final = 1e-9
_NAMES: Final[dict[BootstrapMethod, str]] = {
    "percentile": "percentile bootstrap",
    "bca": "bca bootstrap",
    "abc": analytic.METHOD,
}


def ratio_of(
    pairs: Iterable[tuple[float, float]],
    *,
    by: Iterable[Hashable] | None = None,
    confidence: float = CONFIDENCE,
    method: BootstrapMethod | None = None,
) -> Estimate:
    """sum x / sum y over (x, y) of each run, y >= 0, with its interval; None if sum y is 0.

    `by` names the task of each run: then tasks are resampled with all their runs, and n counts tasks. `method` None: percentile
    up to `LARGE` runs or tasks, the analytic interval above. y is treated as a fact that a run may lack, such
    as success: if every run has it, the interval allows for runs without it. For a mean over runs use `mean_of`.
    """
    runs, tasks = list(pairs), None if by is None else list(by)
    most = max((y for _, y in runs), default=0) * max(Counter(tasks).values(), default=1)
    return _ratio(_units(runs, tasks), most, confidence, method, by_task=tasks is not None)


def mean_of(
    values: Iterable[float],
    *,
    by: Iterable[Hashable] | None = None,
    confidence: float = CONFIDENCE,
    method: BootstrapMethod | None = None,
) -> Estimate:
    """The mean over runs with its interval, like `ratio_of`. For values in [0, 1], `share_of` gives tighter intervals."""
    units = _units([(value, 1) for value in values], by)
    return _mean(units, confidence, method, by_task=by is not None)


def ratio_of_tasks(
    totals: Iterable[tuple[float, float, int]], *, confidence: float = CONFIDENCE, method: BootstrapMethod | None = None
) -> Estimate:
    """The same as `ratio_of` by task for facts y of 0 or 1, from (sum x, sum y, runs) of each task."""
    tasks = list(totals)
    most = max((runs for _, _, runs in tasks), default=1)
    return _ratio(sorted((x, y) for x, y, _ in tasks), most, confidence, method, by_task=True)


def mean_of_tasks(
    totals: Iterable[tuple[float, int]], *, confidence: float = CONFIDENCE, method: BootstrapMethod | None = None
) -> Estimate:
    """The mean over runs, from (sum x, runs) of each task: `mean_of` by task, or `ratio_of` if tasks differ in runs."""
    tasks = sorted(totals)
    if len({runs for _, runs in tasks}) > 1:
        return ratio_of_tasks(((x, runs, runs) for x, runs in tasks), confidence=confidence, method=method)
    return _mean(tasks, confidence, method, by_task=True)


def _ratio(
    units: _Units, most: float, confidence: float, method: BootstrapMethod | None, *, by_task: bool
) -> Estimate:  # fmt: skip
    return _estimate(units, confidence, method, lambda those: _ratio_guard(those, most, confidence), by_task=by_task)


def _mean(units: _Units, confidence: float, method: BootstrapMethod | None, *, by_task: bool) -> Estimate:
    return _estimate(units, confidence, method, lambda those: _mean_guard(those, confidence), by_task=by_task)


def _estimate(
    units: _Units,
    confidence: float,
    method: BootstrapMethod | None,
    least: Callable[[_Units], IntervalEnds],
    *,
    by_task: bool,
) -> Estimate:
    """sum x / sum y over units, with the interval of `method`, extended to that of `least`."""
    n, top, bottom = len(units), _total(x for x, _ in units), _total(y for _, y in units)
    name = method or ("percentile" if n <= LARGE else "abc")
    method_text = _NAMES[name] + (" by task" if by_task else "")
    _check(confidence, units)
    if not bottom:
        return Estimate(value=None, low=None, high=None, n=n, confidence=confidence, method=method_text)
    value = float(top / bottom)
    if n > 1 and all(Fraction(x) * bottom == Fraction(y) * top for x, y in units):
        return Estimate(value=value, low=None, high=None, n=n, confidence=confidence, method=ALIKE)
    if n < LEAST:
        return Estimate(value=value, low=None, high=None, n=n, confidence=confidence, method=method_text + TOO_FEW)
    if not is_installed("stats"):
        return Estimate(value=value, low=None, high=None, n=n, confidence=confidence, method=method_text + WITHOUT_STATS)
    guarded, ends = least(units), _ENDS[name](units, confidence)
    found = [
        _finite(bound) if end is None else end for end, bound in zip(ends, guarded, strict=True)
    ]  # None if a resample has no y
    low, high = outwards(found, guarded, value)
    if low is not None and low < 0 and all(x >= 0 for x, _ in units):
        low = 0.0
    return Estimate(value=value, low=low, high=high, n=n, confidence=confidence, method=method_text + GUARDED)


def share_of(values: Iterable[Fraction | float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of values in [0, 1], such as a share in each run, with its interval.

    Wilson's interval if all values are 0 or 1, a proportion. For fewer than `FEW` values, or if all are equal, Wilson's as if
    each value were 0 or 1, rounded outwards: of all values in [0, 1] with a given mean these vary most, so that interval is
    too wide rather than too narrow. Otherwise the guarded percentile bootstrap, clipped to that interval. SpecError for a
    value outside [0, 1]. Without the extra `stats`, Wilson's as if binary, too.
    """
    shares = sorted(Fraction(value) for value in values)  # the order of runs does not change the interval
    n, total = len(shares), sum(shares, Fraction(0))
    if n and not (shares[0] >= 0 and shares[-1] <= 1):
        raise SpecError(
            what=f"the values range from {float(shares[0])} to {float(shares[-1])}, so they are not shares",
            fix="use values between 0 and 1",
        )
    if all(share.denominator == 1 for share in shares):
        return wilson(int(total), n, confidence)
    low, high = wilson(math.floor(total), n, confidence).low, wilson(math.ceil(total), n, confidence).high
    method = "wilson, as if binary"
    binary = Estimate(value=float(total / n), low=low, high=high, n=n, confidence=confidence, method=method)
    if n < FEW or shares[0] == shares[-1] or not is_installed("stats"):
        return binary
    found = mean_of(map(float, shares), confidence=confidence)
    return clipped(binary, (found.low, found.high), found.method)


def clipped(binary: Estimate, ends: tuple[float | None, float | None], method: str) -> Estimate:
    """The mean of shares with the given ends, no further out than those of `binary`, the estimate as if all were 0 or 1."""
    (low, high), (least, most) = ends, (binary.low, binary.high)
    return replace(
        binary, low=least if low is None or least is None else max(low, least),
        high=most if high is None or most is None else min(high, most), method=method,
    )  # fmt: skip


def expanded(n: int, confidence: float) -> float:
    """The level at which percentiles of resampled means of n units span a t interval."""
    return 2 * NormalDist().cdf(math.sqrt(n / (n - 1)) * t_quantile(n - 1, confidence)) - 1


# -- units ------------------------------------------------------------------------------------------------------------

_Units: TypeAlias = Sequence[tuple[float, float]]


def _units(pairs: Iterable[tuple[float, float]], by: Iterable[Hashable] | None) -> _Units:
    """The units to resample: each run, or the sums of each task. Sorted, so that the order of runs does not matter."""
    if by is None:
        return sorted(pairs)
    sums: dict[Hashable, tuple[float, float]] = {}
    for (x, y), task in zip(pairs, by, strict=True):
        before = sums.get(task, (0, 0))
        sums[task] = before[0] + x, before[1] + y
    return sorted(sums.values())


def _total(values: Iterable[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


def _check(confidence: float, units: _Units) -> None:
    check_confidence(confidence)
    if any(y < 0 for _, y in units):
        raise SpecError(what="a denominator is below 0", why="the denominator of a ratio is a count", fix="check the counts")


# -- ends -------------------------------------------------------------------------------------------------------------


def _percentile(units: _Units, confidence: float) -> tuple[float | None, float | None]:
    return resampled_ends(units, lambda sums: sums[..., 0] / sums[..., 1], confidence)


def resampled_ends(
    units: Sequence[Sequence[float]], statistic: Callable[[Array], Array], confidence: float
) -> tuple[float | None, float | None]:
    """The ends of the percentile interval of a function of column sums, for at least two units.

    `units`: a row of numbers for each unit, in an order that does not depend on the order of the runs. `statistic` maps the
    sums of many resamples, (resamples, columns), to one value each.
    """
    import numpy

    data, n = numpy.array(units, dtype=float), len(units)
    draw, rows = _generator(data), max(1, _CELLS // data.size)
    parts = []
    for done in range(0, RESAMPLES, rows):
        chosen = draw.integers(0, n, (min(rows, RESAMPLES - done), n))
        sums = numpy.stack([column[chosen].sum(axis=1) for column in data.T], axis=-1)
        with numpy.errstate(all="ignore"):
            parts.append(statistic(sums))
    found = numpy.sort(numpy.concatenate(parts))  # nan (a resample without y) comes last, like infinity
    tail = (1 - expanded(n, confidence)) / 2
    first = max(1, math.floor((RESAMPLES + 1) * tail))
    return _finite(found[first - 1]), _finite(found[RESAMPLES - first])


def _bca(units: _Units, confidence: float) -> tuple[float | None, float | None]:
    import warnings

    import numpy
    from scipy.stats import bootstrap

    data = numpy.array(units, dtype=float)
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a degenerate distribution gives nan, which is handled
        interval = bootstrap(
            (data[:, 0], data[:, 1]), lambda x, y, axis: x.sum(axis=axis) / y.sum(axis=axis), paired=True, vectorized=True,
            n_resamples=RESAMPLES, confidence_level=expanded(len(units), confidence), method="BCa",
            batch=max(1, _CELLS // len(units)), rng=_generator(data),
        ).confidence_interval  # fmt: skip
    return _finite(interval.low), _finite(interval.high)


def _abc(units: _Units, confidence: float) -> tuple[float | None, float | None]:
    found = analytic.ratio(analytic.power_sums([x for x, _ in units], [y for _, y in units]), confidence)
    return _finite(found.low[0]), _finite(found.high[0])


def outwards(found: Sequence[float | None], least: IntervalEnds, value: float) -> tuple[float | None, float | None]:
    """The computed ends or the guard's, whichever are further out. An end is None if either is open."""
    (low, high), (least_low, least_high) = found, map(_finite, least)
    return (
        None if low is None or least_low is None else min(low, least_low, value),
        None if high is None or least_high is None else max(high, least_high, value),
    )


def _mean_guard(units: _Units, confidence: float) -> IntervalEnds:
    """The guard for a ratio to a fixed number, from the influence of each unit. If y is 1 for each unit, this is the mean."""
    import numpy

    x, y = numpy.array(units, dtype=float).T
    value = x.sum() / y.sum()
    return guard.of_values(value + (x - value * y) / y.mean(), confidence)


def _ratio_guard(units: _Units, most: float, confidence: float) -> IntervalEnds:
    """`guard.ratio_ends`. `most`: the largest y that a unit could have."""
    import numpy

    x, y = numpy.array(units, dtype=float).T
    if x.min() < 0:
        return _mean_guard(units, confidence)
    n, share = len(x), y.sum() / most
    low, high = (
        wilson(math.floor(share + _ROUNDING), n, confidence).low,
        wilson(math.ceil(share - _ROUNDING), n, confidence).high,
    )
    of_y = IntervalEnds(most * numpy.array(low), most * numpy.array(high))
    if not numpy.isin(y, (0, most)).all():
        inner = guard.of_values(y, confidence)
        of_y = IntervalEnds(numpy.fmax(of_y.low, inner.low), numpy.fmin(of_y.high, inner.high))
    spread = float(x.std() * y.std())
    correlation = float(((x - x.mean()) * (y - y.mean())).mean()) / spread if spread > 0 else 0.0
    of_x = guard.known(x.mean(), n, guard.of_values(x, confidence))
    return guard.ratio_ends(x.mean(), of_x, y.mean(), of_y, numpy.array(max(-1.0, min(1.0, correlation))))


_ENDS: Final = {"percentile": _percentile, "bca": _bca, "abc": _abc}


def _finite(end: Any) -> float | None:
    return float(end) if math.isfinite(end) else None


def _generator(data: Array) -> numpy.random.Generator:
    """The random generator of these data: equal data give an equal stream."""
    import numpy

    name = hashlib.sha256(data.astype("<f8").tobytes()).hexdigest()
    return numpy.random.Generator(numpy.random.PCG64(stream_seed(name, "measure/bootstrap")))
