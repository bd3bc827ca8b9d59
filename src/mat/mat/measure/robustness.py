"""Robustness as a function of the perturbation budget: R(B), its area and its value at the largest budget.

    R(B) = 1 / (N S) sum_i sum_s Y(x_i, z_s, delta*(B)),  cost(delta*(B)) <= B

over items i and searches s of each item. There are two ways to select delta*(B), and two meanings of Y: success of the task,
and compliance (no hard contract is broken).

random: delta*(B) is the longest part within B of a random chain (mat_search.curve); an item's value is the mean over chains.
adversarial: delta*(B) is the worst executed schedule that costs at most B, so the curve never rises.

Unproven items: an item that did not fail within B, and whose search did not cover everything up to B, may fail under a schedule
that was not tried: the curve counts it as kept, so its value is an upper bound of R ("not worse than searched"). Its interval
is still valid: the low end is that of the curve on which all such items fail.

Intervals are over items, because runs of one item are dependent:
- if every item's value is 0 or 1: Wilson's.
- means of other values: the percentile bootstrap over items (scipy), at the level that makes up for its narrowness with few
  items: its quantiles are taken at Phi(-sqrt(n / (n - 1)) t) (T. Hesterberg, The American Statistician 69 (2015), the expanded
  percentile interval). It is at least as wide as `mat.measure.guard` requires, and at most as wide as
  Wilson's as if each value were 0 or 1.
- means of fewer than `FEW` items, or of equal values: Wilson's as if each value were 0 or 1, rounded outwards. Of all values in
  [0, 1] with a given mean these vary most, so this interval is too wide rather than too narrow.
Each interval holds for its point, not for the whole curve at once.

Source: A6.4, Sec. V-D.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal, TypeAlias, get_args

from mat.core.campaign import Certificate
from mat.core.curve import Chain, ScheduleResult, frontier
from mat.core.errors import SpecError, enumeration
from mat.core.extras import is_installed
from mat.kernel.entropy import stream_seed
from mat.measure.bootstrap import FEW, GUARDED, clipped, expanded, outwards
from mat.measure.estimate import Estimate
from mat.measure.guard import of_values
from mat.measure.interval import CONFIDENCE, wilson

ScheduleKind: TypeAlias = Literal["random", "adversarial"]
Measure: TypeAlias = Literal["success", "compliance"]
KINDS: Final[tuple[ScheduleKind, ...]] = get_args(ScheduleKind)
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
ALL: Final = "all"
"""The category of the curve over all items."""
RESAMPLES: Final = 9_999
_CELLS: Final = 2_000_000
"""How many numbers a bootstrap draws at once."""
_PESSIMIST: Final = ", unproven items fail at the low end"
_Values: TypeAlias = tuple[Fraction, ...]
"""An item's value at each budget from 0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """The contribution of one search of one item to the curves.

    `budget`: the largest cost that was searched. `bound`: the cost up to which the search is proven complete, -1
    without a proof. `executed`: executed schedules, or their frontier. `chains`: random schedules, extended up to `budget`.
    """

    item: str
    category: str = ""
    budget: int
    bound: int = -1
    executed: tuple[ScheduleResult, ...] = ()
    chains: tuple[Chain, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """R at one budget. `proven`: the value is R itself, not an upper bound; None on random curves."""

    budget: int
    estimate: Estimate
    proven: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """R(B) of one category at every whole budget from 0 to the largest.

    `area`: the area under R over [0, Bmax], as a share of Bmax. Costs are whole numbers, so R is a step function and the area
    is the mean of R(0), ..., R(Bmax - 1); R(0) if Bmax is 0. `area_proven` is like `proven`, for these points.
    """

    category: str
    kind: ScheduleKind
    measure: Measure
    points: tuple[CurvePoint, ...]
    area: Estimate
    area_proven: bool | None = None

    @property
    def last(self) -> CurvePoint:
        """R at the largest budget."""
        return self.points[-1]

    @property
    def largest(self) -> int:
        return self.last.budget

    def at(self, budget: int) -> CurvePoint:
        """R(B). SpecError beyond the searched budget."""
        if not 0 <= budget <= self.largest:
            raise SpecError(
                what=f"the curve has no point at budget {budget}",
                why=f"the curve covers budgets from 0 to {self.largest}",
                fix="search with a larger budget",
            )
        return self.points[budget]


def curve_row(
    *,
    item: str,
    category: str = "",
    budget: int,
    certificate: Certificate | None,
    executed: Iterable[ScheduleResult],
    chains: Iterable[Chain] = (),
) -> CurveRow:
    """The row of a finished search. To stay small, it keeps only the results that decide the curve.

    Executions of chains count too, so the worst of all is never above the random schedules.
    """
    chains = tuple(chains)
    bound = certificate.bound if certificate is not None and certificate.proven else -1
    executed = frontier([*executed, *(result for chain in chains for result in chain)])
    return CurveRow(item=item, category=category, budget=budget, bound=bound, executed=executed, chains=chains)


def curves(rows: Iterable[CurveRow], *, budget: int | None = None, confidence: float = CONFIDENCE) -> tuple[Curve, ...]:
    """The curves of each category and of all items, for success and for compliance; random curves only if there are chains.

    They end at the smallest budget to which any item was searched, or at `budget`. An item takes part in a curve only if it has
    a value at every budget, so that all points are about the same items. Several rows of one item count as one item, whose
    value is their mean. A category without such an item has None, with n = 0. Categories are ordered by name, with "all" last;
    items without a category, or with a category called "all", count only in "all".
    """
    found = sorted((row for row in rows if row.executed or row.chains), key=lambda row: (row.category, row.item))
    if not found:
        return ()
    largest = min(row.budget for row in found) if budget is None else budget
    _check(found, largest, confidence)
    kinds = tuple(kind for kind in KINDS if any(row.chains if kind == "random" else row.executed for row in found))
    categories = dict.fromkeys(row.category for row in found if row.category not in ("", ALL))
    return tuple(
        _curve(_rows_of(found, category), category, kind, measure, largest, confidence)
        for category in (*categories, ALL)
        for measure in MEASURES
        for kind in kinds
    )


def _rows_of(rows: Sequence[CurveRow], category: str) -> list[CurveRow]:
    return [row for row in rows if category in (ALL, row.category)]


def _check(rows: Sequence[CurveRow], largest: int, confidence: float) -> None:
    problems = [f"budget={largest} is negative"] if largest < 0 else []
    short = sorted({f"{row.item} ({row.budget})" for row in rows if row.budget < largest})
    if short:
        problems.append(f"budget={largest} is larger than the budget that was searched for {enumeration(short)}")
    if not 0 < confidence < 1:
        problems.append(f"confidence={confidence} is not between 0 and 1")
    if problems:
        raise SpecError(what="; ".join(problems), fix="leave `budget` out: curves end where the shortest search ended")


def _curve(
    rows: Sequence[CurveRow], category: str, kind: ScheduleKind, measure: Measure, largest: int, confidence: float
) -> Curve:  # fmt: skip
    if kind == "random":
        values = _by_item([(row.item, _random(row, measure, largest)) for row in rows])
        return _random_curve(category, measure, values, largest, confidence)
    searched = _by_item([(row.item, _worst(row, measure, largest)) for row in rows])
    sure = _by_item([(row.item, _guaranteed(row, measure, largest)) for row in rows])
    return _adversarial_curve(category, measure, searched, sure, largest, confidence)


# -- the value of an item ---------------------------------------------------------------------------------------------


def _answer(result: ScheduleResult, measure: Measure) -> bool | None:
    return result.success if measure == "success" else result.complied


def _random(row: CurveRow, measure: Measure, largest: int) -> _Values | None:
    """The mean at each budget over the row's chains that could be judged; None if at some budget none could be."""
    found = []
    for budget in range(largest + 1):
        answers = [
            answer for chain in row.chains if chain and (answer := _answer(_longest(chain, budget), measure)) is not None
        ]
        if not answers:
            return None
        found.append(Fraction(sum(answers), len(answers)))
    return tuple(found)


def _longest(chain: Chain, budget: int) -> ScheduleResult:
    """The longest part of a chain that costs at most the budget. The first part costs nothing."""
    return [result for result in chain if result.cost <= budget][-1]


def _worst(row: CurveRow, measure: Measure, largest: int) -> _Values | None:
    """The worst executed schedule within each budget; None if at some budget none could be judged."""
    judged = [(result.cost, answer) for result in row.executed if (answer := _answer(result, measure)) is not None]
    if not any(cost == 0 for cost, _ in judged):
        return None
    return tuple(Fraction(all(answer for cost, answer in judged if cost <= budget)) for budget in range(largest + 1))


def _guaranteed(row: CurveRow, measure: Measure, largest: int) -> _Values | None:
    """Like `_worst`, but failed if the search may have left something out or could not judge a run."""
    worst = _worst(row, measure, largest)
    if worst is None:
        return None
    unjudged = min((result.cost for result in row.executed if _answer(result, measure) is None), default=largest + 1)
    until = min(row.bound, unjudged - 1)
    return tuple(value if budget <= until else Fraction(0) for budget, value in enumerate(worst))


def _by_item(rows: Iterable[tuple[str, _Values | None]]) -> list[_Values]:
    """The mean over the rows of each item, ordered by item, so that the order of rows does not matter."""
    by_item: dict[str, list[_Values]] = {}
    for item, values in rows:
        if values is not None:
            by_item.setdefault(item, []).append(values)
    return [
        tuple(sum(column, Fraction(0)) / len(found) for column in zip(*found, strict=True))
        for _, found in sorted(by_item.items())
    ]


# -- curves over items ------------------------------------------------------------------------------------------------


def _random_curve(category: str, measure: Measure, values: Sequence[_Values], largest: int, confidence: float) -> Curve:
    *estimates, area = _estimates(values, largest, confidence)
    points = tuple(CurvePoint(budget=budget, estimate=item, proven=None) for budget, item in enumerate(estimates))
    return Curve(category=category, kind="random", measure=measure, points=points, area=area)


def _adversarial_curve(
    category: str, measure: Measure, searched: Sequence[_Values], sure: Sequence[_Values], largest: int, confidence: float
) -> Curve:
    pairs = zip(_estimates(searched, largest, confidence), _estimates(sure, largest, confidence), strict=True)
    merged = [(_merged_estimate(at_most, at_least), at_most.value == at_least.value) for at_most, at_least in pairs]
    *points, (area, area_proven) = merged
    return Curve(
        category=category,
        kind="adversarial",
        measure=measure,
        points=tuple(
            CurvePoint(budget=budget, estimate=item, proven=proven and bool(searched))
            for budget, (item, proven) in enumerate(points)
        ),
        area=area,
        area_proven=area_proven and bool(searched),
    )


def _merged_estimate(at_most: Estimate, at_least: Estimate) -> Estimate:
    """The searched value, with an interval that contains R even if something was left out."""
    if at_most == at_least:
        return at_most
    return replace(at_most, low=at_least.low, method=at_most.method + _PESSIMIST)


def _estimates(values: Sequence[_Values], largest: int, confidence: float) -> list[Estimate]:
    """The mean over items at each budget, and last the mean of the areas."""
    if not values:
        nothing = Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method="wilson over items")
        return [nothing] * (largest + 2)
    areas = [sum(item[: max(1, largest)], Fraction(0)) / max(1, largest) for item in values]
    columns = [*zip(*values, strict=True), tuple(areas)]
    resampled = _resampled([column for column in columns if _varies(column)], confidence)
    return [resampled[column] if _varies(column) else _wilson(column, confidence) for column in columns]


def _is_binary(column: _Values) -> bool:
    return all(value.denominator == 1 for value in column)


def _varies(column: _Values) -> bool:
    """Whether the bootstrap has something to resample."""
    return not _is_binary(column) and len(column) >= FEW and len(set(column)) > 1


def _wilson(column: _Values, confidence: float) -> Estimate:
    """Wilson's interval for values of 0 and 1; for other values as if each were 0 or 1, rounded outwards."""
    n, total = len(column), sum(column, Fraction(0))
    low, high = wilson(math.floor(total), n, confidence), wilson(math.ceil(total), n, confidence)
    method = "wilson over items" if _is_binary(column) else "wilson over items, as if binary"
    return Estimate(value=float(total / n), low=low.low, high=high.high, n=n, confidence=confidence, method=method)


def _resampled(columns: Sequence[_Values], confidence: float) -> dict[_Values, Estimate]:
    """The bootstrap over items, for all columns with the same resamples."""
    if not columns:
        return {}
    if not is_installed("stats"):
        return {column: _wilson(column, confidence) for column in columns}
    import numpy
    from scipy.stats import bootstrap

    n = len(columns[0])
    data = numpy.array([[float(value) for value in column] for column in columns])
    interval = bootstrap(
        (data,), numpy.mean, axis=-1, vectorized=True, n_resamples=RESAMPLES, method="percentile",
        confidence_level=expanded(n, confidence), batch=max(1, _CELLS // data.size),
        rng=numpy.random.Generator(numpy.random.PCG64(stream_seed(0, "measure/robustness"))),
    ).confidence_interval  # fmt: skip
    found = {}
    for column, low, high in zip(columns, interval.low, interval.high, strict=True):
        binary = _wilson(column, confidence)
        assert binary.value is not None
        least = of_values(numpy.array([float(one) for one in column]), confidence)
        ends = outwards((float(low), float(high)), least, binary.value)
        found[column] = clipped(binary, ends, "percentile bootstrap over items, expanded" + GUARDED)
    return found
