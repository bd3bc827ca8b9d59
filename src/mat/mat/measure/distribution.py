"""Distributions of numbers over runs: histograms as data, and quantiles with exact intervals. Source: A6.2."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mat.core.errors import SpecError
from mat.measure.estimate import Estimate, check_confidence
from mat.measure.interval import CONFIDENCE, wilson

QUANTILES: Final = (10, 25, 50, 75, 90, 99)
"""The reported quantiles, in per cent."""
BINS: Final = 20
"""The largest number of bars of a histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """`count` values from `least` to `most`, both included."""

    least: int
    most: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """The value that `percent` per cent of runs do not exceed."""

    percent: int
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Whole numbers of `n` runs. `without`: runs without a number (never failed, or cut off), not included."""

    n: int
    without: int
    bins: tuple[Bin, ...]
    quantiles: tuple[Quantile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOf:
    """The share of one of several alternatives."""

    name: str
    count: int
    share: Estimate


def distribution(values: Iterable[int | None], *, confidence: float = CONFIDENCE) -> Distribution:
    """The distribution of whole numbers; None is a run without one."""
    given = list(values)
    ordered = sorted(value for value in given if value is not None)
    quantiles = tuple(
        Quantile(percent=percent, estimate=quantile(ordered, percent, confidence=confidence)) for percent in QUANTILES
    )
    return Distribution(
        n=len(ordered), without=len(given) - len(ordered), bins=bins(ordered), quantiles=quantiles if ordered else ()
    )


def quantile(values: Sequence[float], percent: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """The smallest value that at least `percent` per cent do not exceed, between two order statistics.

    The number of values below the true quantile is binomial for any distribution, so the interval covers at least as
    often as stated (H. A. David, H. N. Nagaraja, Order Statistics (2003), 7.1). The bootstrap of a quantile approximates the
    same interval without the guarantee. An end is None if there are too few values to bound it.
    """
    if not 0 < percent < 100:
        raise SpecError(
            what=f"a percentage of {percent} is out of range",
            why="it must lie strictly between 0 and 100",
            fix="write 50 for the median",
        )
    ordered, method = sorted(values), "order statistics"
    n = len(ordered)
    if not n:
        return Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method=method)
    check_confidence(confidence)
    below, above = _ranks(n, percent / 100, (1 - confidence) / 2)
    return Estimate(
        value=float(ordered[-(-n * percent // 100) - 1]), low=float(ordered[below - 1]) if below else None,
        high=float(ordered[above - 1]) if above <= n else None, n=n, confidence=confidence, method=method,
    )  # fmt: skip


def _ranks(n: int, p: float, tail: float) -> tuple[int, int]:
    """The largest r with Pr(X < r) <= tail and the smallest s with Pr(X >= s) <= tail, X binomial; r is 0 without one."""
    below = above = 0
    total = 0.0
    for count in range(n + 1):
        before = total  # Pr(X < count)
        total = before + _binomial(n, count, p)
        if before <= tail:
            below = count
        if 1 - before > tail:
            above = count + 1
    return below, above


def _binomial(n: int, count: int, p: float) -> float:
    chosen = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
    return math.exp(chosen + count * math.log(p) + (n - count) * math.log1p(-p))


def bins(values: Iterable[int]) -> tuple[Bin, ...]:
    """A histogram of whole numbers in bars of equal width, 1, 2 or 5 times a power of ten, at most `BINS`, with empty bars."""
    counts = Counter(values)
    if not counts:
        return ()
    least, most = min(counts), max(counts)
    width = 1
    while (most // width) - (least // width) >= BINS:
        width = next(step for step in (2, 5, 10) if step * 10 ** (len(str(width)) - 1) > width) * 10 ** (len(str(width)) - 1)
    bars = Counter[int]()
    for value, count in counts.items():
        bars[value // width] += count
    return tuple(
        Bin(least=bar * width, most=bar * width + width - 1, count=bars[bar])
        for bar in range(least // width, most // width + 1)
    )


def shares(names: Iterable[str], *, confidence: float = CONFIDENCE) -> tuple[ShareOf, ...]:
    """The share of each name, most frequent first, then by name, with Wilson's interval."""
    counts = Counter(names)
    total = sum(counts.values())
    return tuple(
        ShareOf(name=name, count=count, share=wilson(count, total, confidence))
        for name, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    )
