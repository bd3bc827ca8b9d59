"""Is the new configuration no worse than the old one by more than a tolerance, looked at after every pair (A6.7)?

A pair is one run under each configuration; D = new - old is -1 (lost), 0 or 1 (gained). d is the mean of D's expectations over
the pairs looked at, t the tolerance. "Kept" claims d > -t, "lost" claims d < -t. Each claim is a bet against its opposite. Of a
capital of 1 the share f is staked on every pair, at odds that are fair where the opposite holds at its nearest, d = -t:

    kept:  K = mean over f of  prod (1 - f + f (1 + D)/(1 - t))
    lost:  K = mean over f of  prod (1 - f + f (1 - D)/(1 + t))

Where the opposite is true K is at most a martingale of mean 1: the geometric mean of factors that are linear in D is at most
their arithmetic mean, so the pairs' expectations may differ from each other (tests are not alike) as long as their mean is
d. By Ville's inequality K then reaches 1/alpha at any time with probability alpha at most: one may look after every pair, and
stop at the first answer. All d that neither bet refutes are a confidence sequence. f is averaged over a few fixed shares, so
K depends on the three counts alone, and not on the order of the pairs; decisions are exact, in whole numbers.

Sources: J. Ville (1939); I. Waudby-Smith, A. Ramdas, J. R. Statist. Soc. B 86 (2024) 1: means of bounded variables by betting,
there with f as a predictable sequence, here as in their mixture over a grid; S. Howard et al., Ann. Statist. 49 (2021), 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.measure.estimate import Estimate
from mat.measure.paired import PairTable

Standing: TypeAlias = Literal["kept", "lost", ""]
"""What pairs say of a tolerance; "" where they do not decide it yet."""

METHOD: Final = "paired betting"
"""Of differences estimated here: a confidence sequence, valid at whatever number of pairs one stops."""
CONFIDENCE: Final = Fraction(95, 100)
MOST_PAIRS: Final = 100_000
"""Pairs beyond which it is not worked out how many more would decide."""
_WHOLE: Final = 16
_STAKES: Final = ((16, 8), (12, 2), (8, 2), (4, 2), (2, 1), (1, 1))
"""Shares f of the capital with their weights, in sixteenths. All of it on half: where no pair is lost, that decides soonest."""


def standing(table: PairTable, tolerance: Fraction, alpha: Fraction) -> Standing:
    """What the pairs decide so far, each way wrong with probability `alpha` at most, whenever one looks.

    A tolerance of 0 is no question of statistics (no number of pairs shows d >= 0): one lost pair decides it, and without one
    it is kept so far. SpecError unless 0 <= tolerance < 1 and 0 < alpha < 1.
    """
    _check(tolerance, alpha)
    if not table.pairs:
        return ""
    if not tolerance:
        return "lost" if table.only_old else "kept"
    if no_worse(table, tolerance, alpha):
        return "kept"
    return "lost" if worse(table, tolerance, alpha) else ""


def no_worse(table: PairTable, tolerance: Fraction, alpha: Fraction) -> bool:
    """Whether the bet against d <= -tolerance has brought in 1/alpha: then d > -tolerance is claimed."""
    return _brought(_counts(table), 1 - tolerance, 1 / alpha)


def worse(table: PairTable, tolerance: Fraction, alpha: Fraction) -> bool:
    """Whether the bet against d >= -tolerance has brought in 1/alpha: then d < -tolerance is claimed."""
    return _brought(_counts(table)[::-1], 1 + tolerance, 1 / alpha)


def further(table: PairTable, tolerance: Fraction, alpha: Fraction) -> int | None:
    """How many more pairs that do not differ decide "kept"; None where more than MOST_PAIRS would be needed, or none can."""
    _check(tolerance, alpha)
    if not tolerance:
        return 0 if not table.only_old else None
    lost, alike, gained = _counts(table)
    least, aim = _log_of(1 / alpha), float(1 - tolerance)

    def reached(more: int) -> bool:
        return _log_capital((lost, alike + more, gained), aim) >= least

    if reached(0):
        return 0
    low, high = 0, 1
    while not reached(high):
        low, high = high, 2 * high
        if low > MOST_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def difference(table: PairTable, confidence: Fraction = CONFIDENCE) -> Estimate:
    """New minus old over pairs, with an interval that may be looked at after every pair. Half of 1 - confidence a side."""
    _check(Fraction(0), 1 - confidence)
    n = table.pairs
    if not n:
        return Estimate(value=None, low=None, high=None, n=0, confidence=float(confidence), method=METHOD)
    value, least, counts = (table.only_new - table.only_old) / n, _log_of(2 / (1 - confidence)), _counts(table)
    return Estimate(
        value=value, low=_end(counts, value, least), high=-_end(counts[::-1], -value, least), n=n,
        confidence=float(confidence), method=METHOD,
    )  # fmt: skip


_Counts: TypeAlias = tuple[int, int, int]
"""Pairs with 1 + D = 0, 1 and 2; the other way round they are those of 1 - D."""


def _counts(table: PairTable) -> _Counts:
    return table.only_old, table.both + table.neither, table.only_new


def _brought(counts: _Counts, fair: Fraction, least: Fraction) -> bool:
    """Whether the capital is `least` or more, in whole numbers: stakes and weights are sixteenths."""
    p, q = fair.numerator, fair.denominator
    total: int = 0
    for stake, weight in _STAKES:
        for size, count in enumerate(counts):
            weight *= pow((_WHOLE - stake) * p + stake * size * q, count)
        total += weight
    unit: int = _WHOLE * pow(_WHOLE * p, sum(counts))
    return total * least.denominator >= least.numerator * unit


def _end(counts: _Counts, value: float, least: float) -> float:
    """The lowest mean of D that the bet does not refute, by halving between -1 and the observed one."""
    outer, inner = -1.0, value
    while True:
        middle = (outer + inner) / 2
        if middle in (outer, inner):
            return outer
        if _log_capital(counts, 1 + middle) < least:
            inner = middle
        else:
            outer = middle


def _log_capital(counts: _Counts, fair: float) -> float:
    """The logarithm of the capital, for ends of intervals; -inf where all is lost."""
    parts = [_log_stake(counts, fair, stake / _WHOLE, weight / _WHOLE) for stake, weight in _STAKES]
    most = max(parts)
    return most if math.isinf(most) else most + math.log(math.fsum(math.exp(part - most) for part in parts))


def _log_stake(counts: Sequence[int], fair: float, share: float, weight: float) -> float:
    found = math.log(weight)
    for size, count in enumerate(counts):
        factor = 1 - share + share * size / fair
        if count and not factor:
            return -math.inf
        found += count * math.log(factor) if count else 0.0
    return found


def _log_of(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _check(tolerance: Fraction, alpha: Fraction) -> None:
    problems = []
    if not 0 <= tolerance < 1:
        problems.append(f"a tolerance of {tolerance} is not at least 0 and below 1")
    if not 0 < alpha < 1:
        problems.append(f"an error rate of {alpha} does not lie strictly between 0 and 1")
    if problems:
        raise SpecError(what="; ".join(problems), why="both are shares", fix="write Fraction(1, 20) for 5 %")
