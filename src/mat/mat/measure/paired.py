"""Two conditions on the same tasks and seeds: McNemar's exact test with its table, and differences with intervals.

A pair is one run under each condition. Pairs of one task are dependent, so the sampling unit is the task
(`mat.measure.sampling`): the test flips the signs of whole tasks, and the interval counts pairs as far as tasks agree. With one
pair for each task, these are McNemar's test and Newcombe's interval. A crash outside the system is not an effect of a
condition: a pair with such a run is counted separately, by side and reason, and enters no other number. So is a pair with a
run that nothing judges.

Source: A6.3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from mat.core.errors import SpecError
from mat.core.extras import is_installed, require
from mat.measure import guard
from mat.measure.bootstrap import ALIKE, GUARDED, TOO_FEW, WITHOUT_STATS, outwards, resampled_ends
from mat.measure.estimate import Estimate
from mat.measure.guard import LEAST, IntervalEnds
from mat.measure.interval import CONFIDENCE, wilson, wilson_ends
from mat.measure.rows import RunRow
from mat.measure.sampling import TASKS, Sampling, Trials, described, few_tasks, share, task_of, trusted

Side: TypeAlias = Literal["old", "new"]
Fact: TypeAlias = Callable[[RunRow], bool | None]
"""The fact of a run to compare; None if nothing judges it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """Pairs by whether each side has the fact: both, the old one only, the new one only, neither."""

    both: int
    only_old: int
    only_new: int
    neither: int

    @property
    def pairs(self) -> int:
        return self.both + self.only_old + self.only_new + self.neither


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedPairs:
    """Pairs excluded because of one side: an infrastructure failure by its reason, or "unjudged"."""

    side: Side
    reason: str
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedShares:
    """One fact under two conditions.

    `difference` is new minus old, over pairs; `p_value` that of `sign_flip`, None if no pair differs. `apart`: excluded pairs;
    one with two excluded sides counts under each. `unpaired_old` and `unpaired_new` count runs without a partner.
    """

    table: PairTable
    old: Estimate
    new: Estimate
    difference: Estimate
    p_value: float | None
    apart: tuple[ExcludedPairs, ...] = ()
    unpaired_old: int = 0
    unpaired_new: int = 0


def mcnemar(lost: int, gained: int) -> float | None:
    """McNemar's exact test, two-sided: the probability of so uneven a split of differing pairs by chance.

    Source: Q. McNemar, Psychometrika 12 (1947), in its exact binomial form. None if no pair differs. Summed in
    integers; the tests compare it with scipy.stats.binomtest.
    """
    n, least = lost + gained, min(lost, gained)
    if n == 0:
        return None
    if n > _EXACT:
        require("stats", f"a test of {n} differing pairs")
        from scipy.special import bdtr

        return min(1.0, 2 * float(bdtr(least, n, 0.5)))
    term = total = 1
    for count in range(least):
        term = term * (n - count) // (count + 1)
        total += term
    return min(1.0, float(Fraction(2 * total, 2**n)))


_EXACT = 1_000
"""The number of differing pairs up to which the test is summed in integers."""


def paired_shares(pairs: Iterable[tuple[bool, bool]], *, confidence: float = CONFIDENCE) -> PairedShares:
    """The table of (old, new), McNemar's exact test and the difference of the shares with its interval."""
    counts = Counter((bool(old), bool(new)) for old, new in pairs)
    table = PairTable(
        both=counts[True, True], only_old=counts[True, False], only_new=counts[False, True], neither=counts[False, False]
    )
    return PairedShares(
        table=table,
        old=wilson(table.both + table.only_old, table.pairs, confidence),
        new=wilson(table.both + table.only_new, table.pairs, confidence),
        difference=difference(table, confidence),
        p_value=mcnemar(table.only_old, table.only_new),
    )


def sign_flip(sums: Sequence[int]) -> float | None:
    """The exact test of equal conditions, two-sided: how often so large a sum occurs if each sign were a toss-up.

    `sums`: the pairs gained less the pairs lost in each unit. If old and new are interchangeable, so is the sign of each unit,
    however its pairs depend on each other. With one pair in each unit, this is McNemar's exact test. None if no pair differs.
    All 2^k signs are counted in integers, by convolution.

    Source: R. A. Fisher, The Design of Experiments (1935), 21; E. Pitman, JRSS Supplement 4 (1937).
    """
    sizes = [abs(each) for each in sums if each]
    if not sizes:
        return None
    if max(sizes) == 1:
        lost = sum(each < 0 for each in sums)
        return mcnemar(lost, len(sizes) - lost)
    observed, ways = abs(sum(sums)), {0: 1}
    for size in sizes:
        grown: dict[int, int] = {}
        for total, count in ways.items():
            for reached in (total - size, total + size):
                grown[reached] = grown.get(reached, 0) + count
        ways = grown
    extreme = sum(count for total, count in ways.items() if abs(total) >= observed)
    return float(Fraction(extreme, 2 ** len(sizes)))


def difference(table: PairTable, confidence: float = CONFIDENCE, *, effective: float | None = None) -> Estimate:
    """New minus old over pairs, with the score interval for paired proportions.

    `effective`: the number of independent pairs that they are worth; None for all of them.

    Source: R. G. Newcombe, Statistics in Medicine 17 (1998) 2635, method 10: the Wilson intervals of both shares, added in
    squares with their correlation. It has a width even if no pair differs.
    """
    n, method = table.pairs, "newcombe"
    if not n:
        return Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method=method)
    worth = n if effective is None else effective
    old, new = (
        (share, *wilson_ends(share, worth, confidence))
        for share in ((table.both + table.only_old) / n, (table.both + table.only_new) / n)
    )
    value = (table.only_new - table.only_old) / n
    phi = _correlation(table, worth / n)
    below, above = (
        math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))
        for one, other in (
            (new[0] - new[1], old[2] - old[0]),
            (new[2] - new[0], old[0] - old[1]),
        )
    )
    return Estimate(
        value=value, low=max(-1.0, value - below), high=min(1.0, value + above), n=n, confidence=confidence, method=method
    )


def _correlation(table: PairTable, scale_to: float = 1.0) -> float:
    """Phi of the table, with Newcombe's continuity correction if it is positive. `scale_to`: what each pair counts as."""
    a, b, c, d = (
        count * scale_to if scale_to != 1 else count for count in (table.both, table.only_old, table.only_new, table.neither)
    )
    scale = (a + b) * (c + d) * (a + c) * (b + d)
    if not scale:
        return 0.0
    cross: float = a * d - b * c
    return (max(cross - (a + b + c + d) / 2, 0.0) if cross > 0 else cross) / math.sqrt(scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One fact under both conditions, for a task and a draw of it."""

    task: str
    seed: int
    old: bool
    new: bool


def paired_by_task(pairs: Iterable[Pair], sampling: Sampling = TASKS, *, confidence: float = CONFIDENCE) -> PairedShares:
    """The table, the test and the difference with its interval, for the population of `sampling`.

    new tasks: signs of tasks are flipped, and the interval reflects how much the difference varies between tasks. These tasks:
    signs of draws (a task at a seed) are flipped, and it reflects how much the difference varies within tasks. Unit "run": each
    pair counts as independent. Where the test does not reject equality, the interval reaches 0, so that the two agree.
    """
    found = list(pairs)
    table = _table(found)
    units: dict[object, int] = {}
    for place, pair in enumerate(found):
        unit = _unit(pair, place, sampling)
        units[unit] = units.get(unit, 0) + pair.new - pair.old
    tasks = len({pair.task for pair in found})
    by = "" if sampling.unit == "run" or tasks < 2 else " by task" if sampling.population == "new tasks" else " within tasks"
    estimate = difference(table, confidence, effective=_effective_pairs(found, sampling, confidence) if by else None)
    if by and len(found) > tasks:
        estimate = replace(estimate, method=estimate.method + by)
    p_value = sign_flip(list(units.values()))
    if p_value is None or p_value > 1 - confidence:
        estimate = _reaching_zero(estimate)
    old = (Trials(task=pair.task, seed=pair.seed, won=int(pair.old)) for pair in found)
    new = (Trials(task=pair.task, seed=pair.seed, won=int(pair.new)) for pair in found)
    return PairedShares(
        table=table, old=share(old, sampling, confidence=confidence), new=share(new, sampling, confidence=confidence),
        p_value=p_value, difference=described(estimate, (pair.task for pair in found), sampling),
    )  # fmt: skip


def _reaching_zero(estimate: Estimate) -> Estimate:
    if estimate.low is None or estimate.high is None or estimate.low <= 0 <= estimate.high:
        return estimate
    return replace(estimate, low=min(estimate.low, 0.0), high=max(estimate.high, 0.0), method=f"{estimate.method}, to 0")


def _table(pairs: Iterable[Pair]) -> PairTable:
    counts = Counter((pair.old, pair.new) for pair in pairs)
    return PairTable(
        both=counts[True, True], only_old=counts[True, False], only_new=counts[False, True], neither=counts[False, False]
    )


def _unit(pair: Pair, place: int, sampling: Sampling) -> object:
    """What is interchanged as a whole under the hypothesis that old and new are equal."""
    if sampling.unit == "run":
        return place
    return pair.task if sampling.population == "new tasks" else (pair.task, pair.seed)


def _effective_pairs(pairs: Sequence[Pair], sampling: Sampling, confidence: float) -> float:
    """How many independent pairs the pairs of several tasks are worth, as `mat.measure.sampling` counts runs."""
    table, n = _table(pairs), len(pairs)
    gained, lost = table.only_new, table.only_old
    centre = Fraction(gained - lost, n)
    independent = (Fraction(gained + lost, n) - centre * centre) / n
    tasks: dict[str, dict[int, list[int]]] = {}
    for pair in pairs:
        tasks.setdefault(pair.task, {}).setdefault(pair.seed, []).append(pair.new - pair.old)
    if n == len(tasks):
        return float(n)
    if sampling.population == "new tasks":
        sizes = [sum(map(len, draws.values())) for draws in tasks.values()]
        sums = [sum(map(sum, draws.values())) for draws in tasks.values()]
        k, least = len(tasks), n * n / sum(size * size for size in sizes)
        spread = Fraction(k, k - 1) * sum(((total - centre * size) / n) ** 2 for total, size in zip(sums, sizes, strict=True))
        if not gained + lost:
            return least
        found = n * few_tasks(k, confidence) * (float(independent / spread) if spread else 1.0)
        differing = sum(any(any(draw) for draw in draws.values()) for draws in tasks.values()) / k
        return trusted(found, least=least, most=float(n), shown=differing)
    count = sum(map(len, tasks.values()))
    spread, degrees = Fraction(0), count - len(tasks)
    for draws in tasks.values():
        size, total, m = sum(map(len, draws.values())), sum(map(sum, draws.values())), len(draws)
        if m > 1:
            parts = sum((sum(draw) - Fraction(total, size) * len(draw)) ** 2 for draw in draws.values())
            spread += Fraction(m, m - 1) * parts / n**2
    alone = any(len(draws) == 1 for draws in tasks.values())
    found = float(count) if alone or not spread else max(n * float(independent / spread), float(count))
    return found * (few_tasks(degrees + 1, confidence) or 1.0)


def compare_rows(
    old: Iterable[RunRow],
    new: Iterable[RunRow],
    *,
    fact: Fact = lambda row: row.success,
    key: Callable[[RunRow], Hashable] = lambda row: (row.item, row.seed, row.schedule),
    sampling: Sampling = TASKS,
    confidence: float = CONFIDENCE,
) -> PairedShares:
    """Runs of two conditions, paired by `key` (item, seed and schedule). SpecError for two runs of one side with one key.

    If each side chose its own schedules, as an adversary does, use `same_draw` as the key: pairs with equal schedules would be
    selected by their outcome.
    """
    before, after = _by_key(old, key, "old"), _by_key(new, key, "new")
    pairs: list[Pair] = []
    apart: Counter[tuple[Side, str]] = Counter()
    for place in [place for place in before if place in after]:
        facts: list[bool] = []
        for side, row in (("old", before[place]), ("new", after[place])):
            value = None if row.infrastructure else fact(row)
            if value is None:
                apart["old" if side == "old" else "new", row.infrastructure or "unjudged"] += 1
            else:
                facts.append(value)
        if len(facts) == 2:
            row = before[place]
            pairs.append(Pair(task=task_of(row), seed=row.seed, old=facts[0], new=facts[1]))
    return replace(
        paired_by_task(pairs, sampling, confidence=confidence),
        apart=tuple(ExcludedPairs(side=side, reason=reason, pairs=apart[side, reason]) for side, reason in sorted(apart)),
        unpaired_old=len(before.keys() - after.keys()), unpaired_new=len(after.keys() - before.keys()),
    )  # fmt: skip


def same_draw(row: RunRow) -> Hashable:
    """The key of a pair whose sides chose their own schedules: the item and the seed."""
    return row.item, row.seed


def _by_key(rows: Iterable[RunRow], key: Callable[[RunRow], Hashable], side: str) -> dict[Hashable, RunRow]:
    found: dict[Hashable, RunRow] = {}
    for row in rows:
        if found.setdefault(key(row), row) is not row:
            raise SpecError(
                what=f"two runs of the {side} side have the key {key(row)!r}", why="a pair is one run under each condition",
                fix="compare one condition with one other, or use a key= that separates them",
            )  # fmt: skip
    return found


def paired_difference(
    pairs: Iterable[tuple[float, float]], *, by: Iterable[Hashable] | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """The mean of new minus old over pairs (old, new), by the paired bootstrap over pairs, or over tasks with their pairs."""
    return paired_contrast(((old, 1, new, 1) for old, new in pairs), by=by, confidence=confidence)


def paired_contrast(
    pairs: Iterable[tuple[float, float, float, float]], *, by: Iterable[Hashable] | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """The difference of two ratios, new minus old, over pairs (x, y, x', y'): sum x' / sum y' - sum x / sum y.

    For example, tokens per success before and after. It uses the paired percentile bootstrap, expanded and guarded as in
    `mat.measure.bootstrap`. The value is None if a denominator is 0; ends are as in that module.
    """
    units = _units(pairs, by)
    n, method = len(units), "paired bootstrap" + (" by task" if by is not None else "")
    x, y, other_x, other_y = (sum((Fraction(unit[place]) for unit in units), Fraction(0)) for place in range(4))
    if not y or not other_y:
        return Estimate(value=None, low=None, high=None, n=n, confidence=confidence, method=method)
    value = float(other_x / other_y - x / y)
    if n > 1 and all(
        Fraction(unit[0]) * y == Fraction(unit[1]) * x and Fraction(unit[2]) * other_y == Fraction(unit[3]) * other_x
        for unit in units
    ):
        return Estimate(value=value, low=None, high=None, n=n, confidence=confidence, method=ALIKE)
    if n < LEAST:
        return Estimate(value=value, low=None, high=None, n=n, confidence=confidence, method=method + TOO_FEW)
    if not is_installed("stats"):
        return Estimate(value=value, low=None, high=None, n=n, confidence=confidence, method=method + WITHOUT_STATS)
    ends = resampled_ends(units, lambda sums: sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1], confidence)
    low, high = outwards(ends, _guard(units, confidence), value)
    return Estimate(value=value, low=low, high=high, n=n, confidence=confidence, method=method + GUARDED)


def _guard(units: Sequence[tuple[float, float, float, float]], confidence: float) -> IntervalEnds:
    """The least interval, from the influence of each unit on the difference."""
    import numpy

    x, y, other_x, other_y = numpy.array(units, dtype=float).T
    old, new = x.sum() / y.sum(), other_x.sum() / other_y.sum()
    return guard.of_values(new - old + (other_x - new * other_y) / other_y.mean() - (x - old * y) / y.mean(), confidence)


def _units(
    pairs: Iterable[tuple[float, float, float, float]], by: Iterable[Hashable] | None
) -> Sequence[tuple[float, float, float, float]]:
    if by is None:
        return sorted(pairs)
    sums: dict[Hashable, tuple[float, float, float, float]] = {}
    for pair, task in zip(pairs, by, strict=True):
        old = sums.get(task, (0, 0, 0, 0))
        sums[task] = old[0] + pair[0], old[1] + pair[1], old[2] + pair[2], old[3] + pair[3]
    return sorted(sums.values())
