"""How often does a random schedule break a contract, looked at after every run?

An interval such as Wilson's is valid for a number of runs fixed beforehand. Whoever looks after each run and stops at a
convenient interval is wrong far more often than the interval states. A confidence sequence is valid at all numbers of runs at
once, so one may stop at any time, for any reason.

The one here is Robbins's mixture for a share p: of n runs f broke a contract. Under p the ratio

    M(p) = B(1 + f, 1 + n - f) / (p^f (1 - p)^(n - f))        (B: the beta function)

of the likelihood averaged evenly over all shares to that of p is a martingale of mean 1. By Ville's inequality, it ever
reaches 1/alpha with probability alpha at most. The interval consists of all p with M(p) < 1/alpha, without approximation.

Sources: H. Robbins, Ann. Math. Statist. 41 (1970); J. Ville (1939); S. Howard et al., Ann. Statist. 49 (2021), 3.

Source: A6.3.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.core.value import FrozenDict
from mat.measure.estimate import Estimate, check_confidence
from mat.measure.interval import CONFIDENCE

SequentialDecision: TypeAlias = Literal["below", "above", ""]

METHOD: Final = "beta-binomial"
"""The method of these estimates: a confidence sequence, valid at any number of runs."""
TARGET: Final = Fraction(1, 20)
"""The default target: a share of random schedules that break a contract."""
_NINETY_FIVE: Final = Fraction(95, 100)


def sequential_estimate(failures: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """The share of runs that break a contract, with an interval that is valid after every run.

    `failures` of `n` independent runs of one distribution. SpecError if these are not counts.
    """
    _check(failures, n)
    check_confidence(confidence)
    if n == 0:
        return Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method=METHOD)
    share = failures / n
    return Estimate(
        value=share,
        low=0.0 if failures == 0 else _interval_end(failures, n, confidence, 0.0, share),
        high=1.0 if failures == n else _interval_end(failures, n, confidence, 1.0, share),
        n=n,
        confidence=confidence,
        method=METHOD,
    )


def estimate_data(failures: int, n: int) -> FrozenDict:
    """The 95 % interval as data, for a certificate without a proof."""
    found = sequential_estimate(failures, n)
    return FrozenDict(
        value=found.value, low=found.low, high=found.high, n=found.n, confidence=found.confidence, method=found.method
    )


def decided(failures: int, n: int, target: Fraction | None = None, confidence: Fraction = _NINETY_FIVE) -> SequentialDecision:
    """Whether the interval lies below the target, above it, or contains it (""): then more runs are needed.

    `target` None stands for TARGET. Stopping at the first answer is wrong with probability 1 - confidence at most.
    """
    _check(failures, n)
    target = TARGET if target is None else target
    given = (("target", target), ("confidence", confidence))
    wrong = [f"{name}={value} does not lie strictly between 0 and 1" for name, value in given if not 0 < value < 1]
    if wrong:
        raise SpecError(what="; ".join(wrong), why="targets and confidences are shares", fix="write Fraction(1, 20) for 5 %")
    kept = n - failures
    mixed = math.factorial(failures) * math.factorial(kept) * (1 - confidence) * target.denominator**n
    alone = math.factorial(n + 1) * target.numerator**failures * (target.denominator - target.numerator) ** kept
    if mixed < alone:
        return ""
    return "below" if failures < target * n else "above"


def _interval_end(failures: int, n: int, confidence: float, outer: float, share: float) -> float:
    """The share between `outer` and the observed share at which M reaches 1/alpha, by bisection.

    It is written out because the plugin needs it in every such search, and scipy takes most of a second to import. The tests
    compare it with scipy.special.betaln.
    """
    mixed = math.lgamma(1 + failures) + math.lgamma(1 + n - failures) - math.lgamma(2 + n)
    most = -math.log1p(-confidence)
    while True:
        middle = (outer + share) / 2
        if middle in (outer, share):
            return outer
        if mixed - _log_likelihood(failures, n, middle) < most:
            share = middle
        else:
            outer = middle


def _log_likelihood(failures: int, n: int, p: float) -> float:
    found = failures * math.log(p) if failures else 0.0
    return found + (n - failures) * math.log1p(-p) if n > failures else found


def _check(failures: int, n: int) -> None:
    if not 0 <= failures <= n:
        raise SpecError(
            what=f"failures={failures} is not between 0 and {n}, the number of runs",
            why="a share is the failures divided by the runs",
            fix="check the counts",
        )
