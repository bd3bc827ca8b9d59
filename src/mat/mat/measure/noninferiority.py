"""Is the new configuration no worse than the old one by more than a tolerance, looked at after every unit?

A pair is one run under each configuration. It is -1 if the new one lost what the old one had, 1 if it gained it, else 0. A
unit is what is drawn independently: a pair, or all pairs under one seed, whose tests may share every random draw. D is the mean
of a unit's pairs, d the mean of D's expectations over the units looked at, t the tolerance. "Kept" claims d > -t, "lost" claims
d < -t. Each claim is a bet against its opposite. Of a capital of 1, the share f is staked on every unit, at odds that are
fair at the boundary of the opposite, d = -t:

    kept:  K = mean over f of  prod (1 - f + f (1 + D)/(1 - t))
    lost:  K = mean over f of  prod (1 - f + f (1 - D)/(1 + t))

If the opposite is true, K is at most a martingale of mean 1: the geometric mean of factors that are linear in D is at most
their arithmetic mean, so the units' expectations may differ from each other (tests are not alike) as long as their mean is d.
By Ville's inequality, K then ever reaches 1/alpha with probability alpha at most, so it is valid to look after every unit and
stop at the first answer. The values of d that neither bet refutes form a confidence sequence. f is averaged over a few fixed
shares, so K does not depend on the order of the units; decisions are exact, in whole numbers.

Sources: J. Ville (1939); I. Waudby-Smith, A. Ramdas, J. R. Statist. Soc. B 86 (2024) 1: means of bounded variables by betting,
there with f as a predictable sequence, here as in their mixture over a grid; S. Howard et al., Ann. Statist. 49 (2021), 3.

Source: A6.7.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.measure.estimate import Estimate

NonInferiority: TypeAlias = Literal["kept", "lost", ""]
"""The decision of the units on a tolerance; "" if they do not decide yet."""
Units: TypeAlias = Mapping[Fraction, int]
"""The number of units by D."""

METHOD: Final = "paired betting"
"""The method of these differences: a confidence sequence, valid at any number of units."""
CONFIDENCE: Final = Fraction(95, 100)
MOST_UNITS: Final = 100_000
"""The largest number of further units that is computed."""
_WHOLE: Final = 16
_STAKES: Final = ((16, 8), (12, 2), (8, 2), (4, 2), (2, 1), (1, 1))
"""Shares f of the capital with their weights, in sixteenths. The stake of everything decides soonest if nothing is lost."""


def units_of(pairs: Iterable[tuple[Hashable, int]]) -> dict[Fraction, int]:
    """The units of pairs, which are given as (unit, -1 | 0 | 1)."""
    parts: dict[Hashable, list[int]] = {}
    for unit, difference_of_pair in pairs:
        parts.setdefault(unit, []).append(difference_of_pair)
    found = Counter(Fraction(sum(part), len(part)) for part in parts.values())
    return {value: found[value] for value in sorted(found)}


def decision(units: Units, tolerance: Fraction, alpha: Fraction) -> NonInferiority:
    """The decision of the units so far; each direction is wrong with probability `alpha` at most, at any number of looks.

    SpecError unless 0 < tolerance < 1 and 0 < alpha < 1: no number of units shows that nothing at all is lost.
    """
    _check(tolerance, alpha)
    if _reaches(units, 1, 1 - tolerance, 1 / alpha):
        return "kept"
    return "lost" if worse(units, tolerance, alpha) else ""


def worse(units: Units, tolerance: Fraction, alpha: Fraction) -> bool:
    """Whether the bet against d >= -tolerance has reached 1/alpha, which claims d < -tolerance."""
    return _reaches(units, -1, 1 + tolerance, 1 / alpha)


def further(units: Units, tolerance: Fraction, alpha: Fraction) -> int | None:
    """How many more units without a difference decide "kept"; None if that would take more than MOST_UNITS."""
    _check(tolerance, alpha)
    least, aim, zero = _log_of(1 / alpha), float(1 - tolerance), Fraction(0)

    def reached(more: int) -> bool:
        return _log_capital({**units, zero: units.get(zero, 0) + more}, 1, aim) >= least

    if reached(0):
        return 0
    low, high = 0, 1
    while not reached(high):
        low, high = high, 2 * high
        if low > MOST_UNITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def difference(units: Units, confidence: Fraction = CONFIDENCE) -> Estimate:
    """d, with an interval that is valid after every unit, and half of 1 - confidence on each side."""
    _check(Fraction(1, 2), 1 - confidence)
    n = sum(units.values())
    if not n:
        return Estimate(value=None, low=None, high=None, n=0, confidence=float(confidence), method=METHOD)
    value = float(sum((size * count for size, count in units.items()), Fraction(0)) / n)
    least = _log_of(2 / (1 - confidence))
    return Estimate(
        value=value, low=_interval_end(units, 1, value, least), high=-_interval_end(units, -1, -value, least), n=n,
        confidence=float(confidence), method=METHOD,
    )  # fmt: skip


def _reaches(units: Units, side: int, fair: Fraction, least: Fraction) -> bool:
    """Whether the capital is `least` or more, in whole numbers: stakes and weights are sixteenths. `side` -1 negates D."""
    p, q = fair.numerator, fair.denominator
    sizes = [(1 + side * size, count) for size, count in units.items()]
    total, whole = 0, _WHOLE
    for size, count in sizes:
        whole *= pow(_WHOLE * p * size.denominator, count)
    for stake, weight in _STAKES:
        for size, count in sizes:
            weight *= pow((_WHOLE - stake) * p * size.denominator + stake * size.numerator * q, count)
        total += weight
    return total * least.denominator >= least.numerator * whole


def _interval_end(units: Units, side: int, value: float, least: float) -> float:
    """The lowest mean of D (of -D if `side` is -1) that the bet does not refute, by bisection between -1 and `value`."""
    outer, inner = -1.0, value
    while True:
        middle = (outer + inner) / 2
        if middle in (outer, inner):
            return outer
        if _log_capital(units, side, 1 + middle) < least:
            inner = middle
        else:
            outer = middle


def _log_capital(units: Units, side: int, fair: float) -> float:
    """The logarithm of the capital, for ends of intervals; -inf if all is lost."""
    parts = [_log_stake(units, side, fair, stake / _WHOLE, weight / _WHOLE) for stake, weight in _STAKES]
    most = max(parts)
    return most if math.isinf(most) else most + math.log(math.fsum(math.exp(part - most) for part in parts))


def _log_stake(units: Units, side: int, fair: float, share: float, weight: float) -> float:
    found = math.log(weight)
    for size, count in units.items():
        factor = 1 - share + share * float(1 + side * size) / fair
        if count and not factor:
            return -math.inf
        found += count * math.log(factor) if count else 0.0
    return found


def _log_of(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _check(tolerance: Fraction, alpha: Fraction) -> None:
    problems = [
        f"{what} {value} does not lie strictly between 0 and 1"
        for what, value in (("a tolerance of", tolerance), ("an error rate of", alpha))
        if not 0 < value < 1
    ]
    if problems:
        raise SpecError(
            what="; ".join(problems), why="tolerances and error rates are shares", fix="write Fraction(1, 20) for 5 %"
        )
