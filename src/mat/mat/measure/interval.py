"""Intervals for proportions.

Source: A6.3.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from mat.core.errors import SpecError
from mat.core.extras import require
from mat.measure.estimate import Estimate, check_confidence

CONFIDENCE: Final = 0.95


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """The share of successes with Wilson's score interval, two-sided, without continuity correction.

    Source: E. B. Wilson, JASA 22 (1927). The closed form is written out because every summary needs it and scipy takes most
    of a second to import; the tests compare it with scipy.stats.binomtest(...).proportion_ci(method="wilson") within 1e-12.
    """
    _check(successes, n, confidence)
    if n == 0:
        return _no_data(confidence, "wilson")
    low, high = wilson_ends(successes / n, n, confidence)
    return Estimate(value=successes / n, low=low, high=high, n=n, confidence=confidence, method="wilson")


def wilson_ends(share: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The ends of Wilson's interval for a share, 0 to 1, of n > 0 runs; n need not be whole, as an effective number of runs."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    weight = 1 / (1 + z * z / n)
    centre = weight * (share + z * z / (2 * n))
    half = weight * z * math.sqrt(max(0.0, share * (1 - share)) / n + z * z / (4 * n * n))
    return 0.0 if share <= 0 else max(0.0, centre - half), 1.0 if share >= 1 else min(1.0, centre + half)


def clopper_pearson(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """The share of successes with the exact binomial interval, which never covers less often than stated.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934). scipy computes it.
    """
    _check(successes, n, confidence)
    if n == 0:
        return _no_data(confidence, "clopper-pearson")
    require("stats", "an exact interval", otherwise="use Wilson's")
    from scipy.stats import binomtest

    interval = binomtest(successes, n).proportion_ci(confidence_level=confidence, method="exact")
    return Estimate(
        value=successes / n, low=float(interval.low), high=float(interval.high), n=n, confidence=confidence,
        method="clopper-pearson",
    )  # fmt: skip


def exact(estimate: Estimate) -> Estimate:
    """A share with the exact interval instead of Wilson's. SpecError for an estimate of another method."""
    if estimate.method != "wilson":
        raise SpecError(
            what=f"an estimate by {estimate.method!r} has no exact interval", why="only counts of independent runs have one",
            fix="call exact() on shares whose method is 'wilson'",
        )  # fmt: skip
    return clopper_pearson(round((estimate.value or 0.0) * estimate.n), estimate.n, estimate.confidence)


@lru_cache(maxsize=256)
def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors a two-sided t interval reaches, with a whole number of degrees of freedom.

    It uses the finite series of the distribution (M. Abramowitz, I. Stegun, 26.7.3 and 26.7.4), inverted by bisection, and the
    expansion 26.7.5 above `_SERIES` degrees. Like Wilson's interval it is written out, because summaries need it and scipy is
    slow to import; the tests compare it with scipy.stats.t within 1e-9.
    """
    if degrees < 1:
        raise SpecError(
            what=f"a t interval cannot have {degrees} degrees of freedom",
            why="a spread needs two observations",
            fix="use two or more",
        )
    if degrees > _SERIES:
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / degrees + second / degrees**2 + third / degrees**3
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _central_probability(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


_SERIES: Final = 400


def _central_probability(angle: float, degrees: int) -> float:
    """Pr(|T| < sqrt(degrees) tan(angle)): the series in cos(angle)."""
    square, odd = math.cos(angle) ** 2, degrees % 2
    term = total = math.cos(angle) if odd else 1.0
    for factor in range(3 if odd else 2, degrees - 1, 2):
        term *= square * (factor - 1) / factor
        total += term
    if odd:
        return 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))
    return math.sin(angle) * total


def _no_data(confidence: float, method: str) -> Estimate:
    return Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method=method)


def _check(successes: int, n: int, confidence: float) -> None:
    if not 0 <= successes <= n:
        raise SpecError(
            what=f"successes={successes} is not between 0 and {n}, the number of runs",
            why="a share is the successes divided by the runs",
            fix="check the counts",
        )
    check_confidence(confidence)
