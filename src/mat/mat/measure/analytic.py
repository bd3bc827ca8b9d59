"""Intervals for means and ratios of many groups, from sums that a store can compute in one pass.

A smooth function of means needs no resampling. Its BCa bootstrap interval is approximated to second order by the ABC interval
(approximate bootstrap confidence), whose constants are derivatives; for a ratio of means they are closed forms in sums of
products up to the third degree:

    theta = sum x / sum y,   e_i = x_i - theta y_i,   U_i = e_i / ybar            (the influence of run i)
    sigma = sqrt(sum U_i^2) / n,   a = sum U_i^3 / (6 n^3 sigma^3)               (standard error, acceleration)
    bias = -sum e_i y_i / (n ybar)^2,   c = -sum e_i y_i / (n^2 sigma ybar^2)    (b; quadratic coefficient c_q)
    z0 = Phi^-1(2 Phi(a) Phi(-(bias / sigma - c)))                               (bias correction)
    end(z) = theta along the least favorable direction, lambda = w / (1 - a w)^2, w = z0 + z

Sources: T. DiCiccio, B. Efron, Biometrika 79 (1992); B. Efron, R. Tibshirani, An Introduction to the Bootstrap (1993), 14.4 and
22.6. Instead of z it uses sqrt(n / (n - 1)) t_{n-1}, which corrects the narrowness of every bootstrap with few runs
(T. Hesterberg, The American Statistician 69 (2015), the expanded interval).

An interval needs runs that differ. If all runs are equal, both ends are the value: the data do not show how far off others
could be. For a single run the ends are nan. An end that the data do not bound is nan too, such as that of tokens per success
with so few successes that none is plausible.

`mean` and `ratio` are the method as published. Reports and stores use `guarded_mean` and `guarded_ratio`: the same, but at
least as wide as `mat.measure.guard` requires for few or skewed runs, and open where it gives no bound.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from mat.core.errors import SpecError
from mat.core.extras import require
from mat.measure import guard
from mat.measure.estimate import check_confidence
from mat.measure.guard import IntervalEnds
from mat.measure.interval import CONFIDENCE

if TYPE_CHECKING:
    import numpy
    from numpy.typing import ArrayLike

Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"
METHOD: Final = "abc"
"""The method of estimates whose interval this module computes."""
_SAME: Final = 1e-13
"""A variance below this share of the sums it is the difference of is rounding error."""


class Bounds(NamedTuple):
    """A value and the ends of its interval, one entry per group; nan if there is none."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSums:
    """Sums over the runs of each group: n, x, y and their products up to the third degree. Arrays of one shape, or numbers.

    Sums of parts can be added in any order: `+` merges those of two machines.
    """

    n: Any
    x: Any
    y: Any
    xx: Any
    xy: Any
    yy: Any
    xxx: Any
    xxy: Any
    xyy: Any
    yyy: Any

    def __add__(self, other: PowerSums) -> PowerSums:
        names = (field.name for field in fields(self))
        return PowerSums(**{name: getattr(self, name) + getattr(other, name) for name in names})


def power_sums(x: ArrayLike, y: ArrayLike = 1.0, groups: ArrayLike | None = None, *, count: int = 0) -> PowerSums:
    """The sums of runs with the numbers `x` and `y`, by group.

    `groups` gives each run's group, from 0 to `count` - 1 (or to the largest that occurs); without it, all runs form one group.
    `x` and `y` have one entry per run, or are one number for all runs.
    """
    require("stats", "an analytic interval")
    import numpy

    one, other = numpy.broadcast_arrays(numpy.asarray(x, dtype=float), numpy.asarray(y, dtype=float))
    place = numpy.zeros(one.shape, dtype=numpy.intp) if groups is None else numpy.asarray(groups, dtype=numpy.intp)
    size = max(count, 1 if groups is None else 0)

    def total(values: Array) -> Array:
        found: Array = numpy.bincount(place, weights=values, minlength=size).astype(float)
        return found

    xx, yy = one * one, other * other
    return PowerSums(
        n=total(numpy.ones_like(one)), x=total(one), y=total(other), xx=total(xx), xy=total(one * other), yy=total(yy),
        xxx=total(xx * one), xxy=total(xx * other), xyy=total(one * yy), yyy=total(yy * other),
    )  # fmt: skip


def ratio(sums: PowerSums, confidence: float = CONFIDENCE) -> Bounds:
    """sum x / sum y of each group with its ABC interval; y must not be negative. nan where sum y is 0.

    A metric "x per y", such as tokens per success, is a ratio of means; a mean is the ratio to y = 1.
    """
    import numpy

    n, x, y, xx, xy, yy, xxx, xxy, xyy, yyy = _arrays(sums)
    check_confidence(confidence)
    with numpy.errstate(all="ignore"):
        value = numpy.where((n > 0) & (y > 0), x / y, numpy.nan)
        squares = xx - 2 * value * xy + value**2 * yy  # sum e^2
        cubes = xxx - 3 * value * xxy + 3 * value**2 * xyy - value**3 * yyy
        same = squares <= _SAME * (xx + value**2 * yy)
        squares = numpy.where(same, numpy.nan, squares)
        with_y, with_x = xy - value * yy, xx - value * xy  # sum e y, sum e x
        sigma = numpy.sqrt(squares) / y  # ybar n = y
        curvature = -with_y / (y * y * sigma)
        skew = cubes / (6 * squares**1.5)
        z0 = _bias(skew, -with_y / (y * y) / sigma - curvature)
        ends = [_interval_end(sums, with_x, with_y, sigma, skew, z0 + side * reach(n, confidence)) for side in (-1, 1)]
        low, high = (numpy.where(same, numpy.where(n > 1, value, numpy.nan), end) for end in ends)
    return Bounds(value, low, high)


def mean(sums: PowerSums, confidence: float = CONFIDENCE) -> Bounds:
    """The mean of x of each group with its ABC interval. It does not read the sums with y."""
    plain = PowerSums(
        n=sums.n, x=sums.x, y=sums.n, xx=sums.xx, xy=sums.x, yy=sums.n, xxx=sums.xxx, xxy=sums.xx, xyy=sums.x, yyy=sums.n
    )
    return ratio(plain, confidence)


def guarded_mean(sums: PowerSums, confidence: float = CONFIDENCE) -> Bounds:
    """The mean of x of each group, with the ABC interval or the guard's, whichever is wider.

    An end without bound is nan: both ends for fewer than `guard.LEAST` runs, and for runs that are all equal.
    """
    import numpy

    value, low, high = mean(sums, confidence)
    least = _mean_ends(sums, confidence)
    return Bounds(value, numpy.minimum(low, least.low), numpy.maximum(high, least.high))


def guarded_ratio(sums: PowerSums, confidence: float = CONFIDENCE) -> Bounds:
    """sum x / sum y of each group, like `guarded_mean`; x must not be negative, and y is 0 or 1 for each run."""
    import numpy

    n, x, y, xx, xy, yy = _arrays(sums)[:6]
    found = ratio(sums, confidence)
    with numpy.errstate(all="ignore"):
        spread = numpy.sqrt((xx - x * x / n) * (yy - y * y / n))
        correlation = numpy.where(spread > 0, numpy.clip((xy - x * y / n) / spread, -1, 1), 0.0)
        share = wilson_many(y, n, confidence)
        ends = guard.known(x / n, n, _mean_ends(sums, confidence))
        least = guard.ratio_ends(x / n, ends, y / n, IntervalEnds(share.low, share.high), correlation)
        unknown = numpy.isnan(found.value) | ((found.low == found.value) & (found.high == found.value))
        high = numpy.where(numpy.isnan(found.high), least.high, numpy.maximum(found.high, least.high))
        low = numpy.minimum(found.low, least.low)
    return Bounds(found.value, *(numpy.where(unknown, numpy.nan, end) for end in (low, high)))


def _mean_ends(sums: PowerSums, confidence: float) -> IntervalEnds:
    import numpy

    n, x, _, xx, _, _, xxx = _arrays(sums)[:7]
    with numpy.errstate(all="ignore"):
        middle = x / n
        squares = xx - x * middle
        squares = numpy.where(squares <= _SAME * xx, 0.0, squares)
        return guard.mean_ends(n, middle, squares, xxx - 3 * middle * xx + 2 * x * middle**2, reach(n, confidence))


def wilson_many(successes: ArrayLike, n: ArrayLike, confidence: float = CONFIDENCE) -> Bounds:
    """The share of successes of each group with Wilson's interval, as `mat.measure.interval.wilson`; nan if n is 0."""
    require("stats", "intervals of many groups")
    import numpy

    won, total = numpy.broadcast_arrays(numpy.asarray(successes, dtype=float), numpy.asarray(n, dtype=float))
    check_confidence(confidence)
    if bool(numpy.any((won < 0) | (won > total))):
        raise SpecError(what="a group has more successes than runs, or fewer than 0", fix="check the counts")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    with numpy.errstate(all="ignore"):
        share = numpy.where(total > 0, won / total, numpy.nan)
        weight = 1 / (1 + z * z / total)
        centre = weight * (share + z * z / (2 * total))
        half = weight * z * numpy.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
        low = numpy.where(won == 0, numpy.where(total > 0, 0.0, numpy.nan), numpy.maximum(0.0, centre - half))
        high = numpy.where(won == total, numpy.where(total > 0, 1.0, numpy.nan), numpy.minimum(1.0, centre + half))
    return Bounds(share, low, high)


def _arrays(sums: PowerSums) -> list[Array]:
    import numpy

    return list(numpy.broadcast_arrays(*(numpy.asarray(getattr(sums, field.name), dtype=float) for field in fields(sums))))


def _bias(skew: Array, curvature: Array) -> Array:
    """z0 in the module's docstring."""
    from scipy.special import ndtr, ndtri

    found: Array = ndtri(2 * ndtr(skew) * ndtr(-curvature))
    return found


def reach(n: Array, confidence: float) -> Array:
    """How many standard errors of n runs a t interval reaches: the fewer runs, the more it exceeds a normal interval."""
    import numpy
    from scipy.special import stdtrit

    found: Array = numpy.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + confidence) / 2)
    return found


def _interval_end(sums: PowerSums, with_x: Array, with_y: Array, sigma: Array, skew: Array, z: Array) -> Array:
    """The ratio at z along the least favorable direction: run i weighs 1/n + lambda U_i / (n^2 sigma).

    In that direction the sums of x and y move by lambda (sum e x, sum e y) / (y sigma). If 1 - a z or the sum of y would
    reach zero, the data do not bound that end.
    """
    import numpy

    x, y = numpy.asarray(sums.x, dtype=float), numpy.asarray(sums.y, dtype=float)
    step = z / (1 - skew * z) ** 2 / (y * sigma)
    below = y + step * with_y
    found: Array = numpy.where((1 - skew * z > 0) & (below > 0), (x + step * with_x) / below, numpy.nan)
    return found
