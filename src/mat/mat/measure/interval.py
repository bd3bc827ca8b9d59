"""Intervals for proportions (A6.3)."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from mat.core.errors import SpecError
from mat.measure.estimate import Estimate

CONFIDENCE: Final = 0.95


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """The share of successes with Wilson's score interval, two-sided, without continuity correction.

    Source: E. B. Wilson, JASA 22 (1927). The closed form stands here because every summary needs it and scipy takes most
    of a second to import; the tests hold it to scipy.stats.binomtest(...).proportion_ci(method="wilson") within 1e-12.
    """
    _check(successes, n, confidence)
    if n == 0:
        return _no_data(confidence, "wilson")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    weight = 1 / (1 + z * z / n)
    centre = weight * (share + z * z / (2 * n))
    half = weight * z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Estimate(
        value=share,
        low=0.0 if successes == 0 else max(0.0, centre - half),
        high=1.0 if successes == n else min(1.0, centre + half),
        n=n,
        confidence=confidence,
        method="wilson",
    )


def clopper_pearson(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """The share of successes with the exact binomial interval, which never covers less often than stated.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934), by scipy.
    """
    _check(successes, n, confidence)
    if n == 0:
        return _no_data(confidence, "clopper-pearson")
    from scipy.stats import binomtest

    interval = binomtest(successes, n).proportion_ci(confidence_level=confidence, method="exact")
    return Estimate(
        value=successes / n, low=float(interval.low), high=float(interval.high), n=n, confidence=confidence,
        method="clopper-pearson",
    )  # fmt: skip


def _no_data(confidence: float, method: str) -> Estimate:
    return Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method=method)


def _check(successes: int, n: int, confidence: float) -> None:
    if not 0 <= successes <= n:
        raise SpecError(what=f"{successes} successes of {n}", why="a share needs 0 <= successes <= n", fix="count again")
    if not 0 < confidence < 1:
        raise SpecError(what=f"confidence {confidence}", why="it lies strictly between 0 and 1", fix="write 0.95 for 95 %")
