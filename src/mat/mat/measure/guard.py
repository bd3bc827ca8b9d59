"""The least width of an interval for a mean or a ratio of few or skewed numbers. Source: A6.3, L11.

Resampling sees only the tail that the sample shows. With few runs that is too little: ten lognormal numbers show a fifth of
their skewness, and the percentile interval of their mean covers the mean in 86 % of samples, BCa and ABC in 88 %. The error is
at the far end, on the side of the long tail. So every interval of a mean or a ratio, by any method, reaches at least as far
as:

    end(w) = mean + w / (1 - a w)^2 s,   w = a +- sqrt(n / (n - 1)) t_{n-1},   a = g / (6 sqrt n),   s = sqrt(sum e^2) / n

That is the ABC interval of a mean (`mat.measure.analytic`). At the near end g is the sample's skewness. At the far end it is
`HIDDEN` times that (corrected for n), because a sample hides its tail, and `FLOOR` at least: a little more than the skewness of
exponential numbers, which describe events at a constant rate, as tokens, calls and waiting times roughly are. If 1 - a w is not
positive, one run causes most of the spread, and the end is open. Both ends are open for fewer than `LEAST` runs, and for runs
that are all equal: they do not show how far off another could be.

A ratio x / y of sums, with y a fact of each run (tokens per success), takes its ends from those of the mean of x and from
Wilson's for the share of y (A. Donner, G. Zou, Statistical Methods in Medical Research 21 (2012), Eq. 9, MOVER-R), with the
correlation r of both, as the difference of paired shares has it:

    low  = (A - sqrt(A^2 - l_x (2 x - l_x) u_y (2 y - u_y))) / (u_y (2 y - u_y)),   A = x y - r (x - l_x) (u_y - y)
    high = (B + sqrt(B^2 - u_x (2 x - u_x) l_y (2 y - l_y))) / (l_y (2 y - l_y)),   B = x y - r (u_x - x) (y - l_y)

Eighteen successes of eighteen do not exclude failures; Wilson's interval bounds how many there may be.

Sources: T. DiCiccio, B. Efron, Biometrika 79 (1992), for the form; W. Cochran, Sampling Techniques (1977), 2.15, for how many
runs skewed numbers take. The two constants were chosen by simulation and hold for the kinds of numbers in
benchmarks/coverage.py. No interval can allow for a tail that the runs do not show (R. Bahadur, L. Savage,
Ann. Math. Statist. 27 (1956)).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from mat.measure.interval import CONFIDENCE, t_quantile

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"
LEAST: Final = 10
"""The number of runs or tasks below which a mean or a ratio has no interval."""
FLOOR: Final = 2.25
"""The least skewness assumed. Exponential numbers have 2; a ninth more covers lognormal samples that look symmetric."""
HIDDEN: Final = 2.5
"""The factor by which numbers may be more skewed than a sample of them."""
_EVEN: Final = 1e-9
"""The skewness below which numbers count as symmetric."""
_SAME: Final = 1e-13
"""A sum of squared differences below this share of the sum of squares is rounding error."""


class IntervalEnds(NamedTuple):
    """The ends of an interval, one entry per group; nan if the data do not bound the end."""

    low: Array
    high: Array


def reach(n: int, confidence: float = CONFIDENCE) -> float:
    """How many plug-in standard errors a t interval of n units reaches; infinite for fewer than two."""
    return math.sqrt(n / (n - 1)) * t_quantile(n - 1, confidence) if n > 1 else math.inf


def mean_ends(n: Any, mean: Array, squares: Array, cubes: Array, reach: Any) -> IntervalEnds:
    """The least interval of a mean of n numbers with these sums of squared and cubed differences from the mean.

    `reach`: the function `reach` of n at the wanted confidence. All arguments are arrays of one shape, or numbers.
    """
    import numpy

    with numpy.errstate(all="ignore"):
        lean = cubes / (6 * squares**1.5)
        shown = 6 * abs(lean) * numpy.sqrt(n) * numpy.sqrt(n * (n - 1.0)) / (n - 2.0)
        far = numpy.maximum(HIDDEN * shown, FLOOR) / (6 * numpy.sqrt(n))
        scale = numpy.sqrt(squares) / n

        def end(side: int) -> Array:
            near = _curved(lean, side * reach)
            leaning = _curved(side * far, side * reach)
            further = side * numpy.maximum(side * near, side * leaning)  # an open end stays open
            found: Array = mean + scale * numpy.where(side * lean >= -_EVEN, further, near)
            return numpy.where((n < LEAST) | (squares <= 0), numpy.nan, found)

        return IntervalEnds(end(-1), end(1))


def _curved(lean: Array, reach: Any) -> Array:
    """w / (1 - a w)^2, nan if 1 - a w is not positive."""
    import numpy

    w = lean + reach
    rest = 1 - lean * w
    found: Array = numpy.where(rest > 0, w / rest**2, numpy.nan)
    return found


def of_values(values: Array, confidence: float = CONFIDENCE) -> IntervalEnds:
    """`mean_ends` of numbers, along the last axis."""
    import numpy

    n = values.shape[-1]
    mean = values.mean(axis=-1)
    off = values - mean[..., None]
    squares = (off**2).sum(axis=-1)
    squares = numpy.where(squares <= _SAME * (values**2).sum(axis=-1), 0.0, squares)
    return mean_ends(n, mean, squares, (off**3).sum(axis=-1), reach(n, confidence))


def known(mean: Array, n: Any, ends: IntervalEnds) -> IntervalEnds:
    """The ends of a mean. If all numbers are equal, both ends are the mean, because another number of the ratio differs."""
    import numpy

    alike = numpy.isnan(ends.low) & numpy.isnan(ends.high) & (n >= LEAST)
    return IntervalEnds(*(numpy.where(alike, mean, end) for end in ends))


def ratio_ends(x: Array, of_x: IntervalEnds, y: Array, of_y: IntervalEnds, correlation: Array) -> IntervalEnds:
    """The least interval of the ratio of two means, x / y (MOVER-R). x must not be negative, and y must be positive.

    `of_x` and `of_y` are the ends of the means. If y may be 0, the ratio has no high end.
    """
    import numpy

    with numpy.errstate(all="ignore"):
        low_x, high_x = numpy.maximum(of_x.low, 0.0), of_x.high
        middle = x * y - correlation * (x - low_x) * (of_y.high - y)
        whole = low_x * (2 * x - low_x)
        low = whole / (middle + numpy.sqrt(numpy.maximum(middle**2 - whole * of_y.high * (2 * y - of_y.high), 0.0)))
        middle = x * y - correlation * (high_x - x) * (y - of_y.low)
        scale = of_y.low * (2 * y - of_y.low)
        high = (middle + numpy.sqrt(numpy.maximum(middle**2 - high_x * (2 * x - high_x) * scale, 0.0))) / scale
        return IntervalEnds(numpy.where(numpy.isnan(of_x.low), numpy.nan, low), numpy.where(scale > 0, high, numpy.nan))
