"""How far intervals of means and ratios reach: with the skewness that a sample hides, and open where nothing bounds them."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import t

from mat.measure import analytic
from mat.measure.analytic import guarded_mean, guarded_ratio, power_sums
from mat.measure.bootstrap import mean_of, ratio_of
from mat.measure.guard import FLOOR, HIDDEN, LEAST, IntervalEnds, mean_ends, of_values, ratio_ends, reach
from mat.measure.interval import wilson

numbers = st.lists(st.integers(0, 10_000), min_size=LEAST, max_size=60)


def ends(values: Any, confidence: float = 0.95) -> tuple[float, float]:
    found = of_values(numpy.array(values, dtype=float), confidence)
    return float(found.low), float(found.high)


def outside(wide: float, narrow: float, side: int) -> bool:
    """Whether an end lies no further in than another; nan is an open one, the furthest there is."""
    return math.isnan(wide) or side * (wide - narrow) >= -1e-9 * max(1.0, abs(narrow))


@pytest.mark.parametrize("n", [2, 10, 30, 1000])
def test_it_reaches_as_far_as_a_t_interval_of_the_same_standard_error(n: int) -> None:
    assert reach(n, 0.9) / math.sqrt(n) == pytest.approx(t.ppf(0.95, n - 1) / math.sqrt(n - 1), rel=1e-9)
    assert reach(1) == math.inf


@settings(deadline=None)
@given(numbers, st.floats(0.5, 0.99))
def test_the_ends_hold_the_mean_and_the_analytic_interval(values: list[int], confidence: float) -> None:
    assume(len(set(values)) > 1)
    low, high = ends(values, confidence)
    value, near, far = (float(part[0]) for part in analytic.mean(power_sums(values), confidence))
    assert math.isnan(low) or low < value
    assert math.isnan(high) or high > value
    assert outside(low, near, -1)
    assert outside(high, far, 1)


@settings(deadline=None)
@given(numbers)
def test_ends_turn_and_move_with_the_numbers(values: list[int]) -> None:
    assume(len(set(values)) > 1)
    low, high = ends(values)
    assert ends([-value for value in values]) == pytest.approx((-high, -low), rel=1e-6, abs=1e-6, nan_ok=True)
    moved = ends([2 * value + 7 for value in values])
    assert moved == pytest.approx((2 * low + 7, 2 * high + 7), rel=1e-6, abs=1e-6, nan_ok=True)


@settings(deadline=None)
@given(numbers, st.floats(0.5, 0.97), st.floats(0.001, 0.02))
def test_ends_move_outwards_with_confidence(values: list[int], confidence: float, more: float) -> None:
    assume(len(set(values)) > 1)
    low, high = ends(values, confidence)
    lower, higher = ends(values, confidence + more)
    assert outside(lower, low, -1)
    assert outside(higher, high, 1)


@given(st.lists(st.integers(0, 10), max_size=LEAST - 1), st.integers(0, 10**9))
def test_few_or_equal_numbers_bound_nothing(few: list[int], number: int) -> None:
    assert not few or all(map(math.isnan, ends(few)))
    assert all(map(math.isnan, ends([number] * 20)))
    assert all(map(math.isnan, ends([number / 7] * 20)))


def test_the_far_end_is_that_of_exponential_numbers_at_least_and_of_more_than_the_sample_shows() -> None:
    n, scale = 50, 1.0

    def far(skewness: float) -> float:
        """The high end of n numbers with mean 0, standard error 1 and this skewness."""
        squares = (n * scale) ** 2
        return float(mean_ends(n, 0.0, squares, skewness * squares**1.5 / math.sqrt(n), reach(n)).high)

    def along(skewness: float) -> float:
        a = skewness / (6 * math.sqrt(n))
        w = a + reach(n)
        return w / (1 - a * w) ** 2

    adjusted = math.sqrt(n * (n - 1)) / (n - 2)
    assert far(0.1) == pytest.approx(along(FLOOR), rel=1e-6)
    assert far(1.5) == pytest.approx(along(HIDDEN * 1.5 * adjusted), rel=1e-6)
    assert far(-0.1) == pytest.approx(along(-0.1), rel=1e-6)  # the near end of numbers that lean the other way
    assert far(0.0) == pytest.approx(along(FLOOR), rel=1e-6)  # leaning to neither side they may lean to both


def test_one_run_that_makes_out_most_of_the_spread_leaves_its_end_open() -> None:
    low, high = ends([200.0] * 99 + [90_000.0])
    assert low < 200.0
    assert math.isnan(high)
    assert mean_of([200] * 99 + [90_000]).high is None
    low, high = ends([0.0] + [90_000.0] * 99)
    assert math.isnan(low)
    assert high > 90_000.0


@settings(deadline=None)
@given(st.tuples(*[st.floats(0.01, 10)] * 4), st.floats(0.01, 0.9), st.floats(0, 1), st.floats(-0.9, 0.9))
def test_the_ends_of_a_ratio_solve_its_quadratic(parts: Any, y: float, share: float, correlation: float) -> None:
    x, up, low_part, _ = parts
    low_x, high_x = x * min(low_part / 10, 0.99), x + up
    low_y, high_y = y * (0.05 + 0.9 * share), y + (1 - y) * share
    found = ratio_ends(x, IntervalEnds(low_x, high_x), y, IntervalEnds(low_y, high_y), correlation)  # type: ignore[arg-type]
    for end, off_x, off_y in ((found.low, x - low_x, high_y - y), (found.high, high_x - x, y - low_y)):
        end = float(end)
        rest = off_x**2 + end**2 * off_y**2 - 2 * correlation * end * off_x * off_y
        assert (x - end * y) ** 2 == pytest.approx(rest, rel=1e-6, abs=1e-9)
    assert 0 <= float(found.low) <= x / y * (1 + 1e-9)
    assert float(found.high) >= x / y * (1 - 1e-9)


def test_a_ratio_to_something_certain_is_a_mean_and_one_to_what_may_be_nought_has_no_high_end() -> None:
    found = ratio_ends(6.0, IntervalEnds(5.0, 8.0), 0.5, IntervalEnds(0.5, 0.5), 0.0)  # type: ignore[arg-type]
    assert (float(found.low), float(found.high)) == (pytest.approx(10.0), pytest.approx(16.0))
    assert math.isnan(ratio_ends(6.0, IntervalEnds(5.0, 8.0), 0.5, IntervalEnds(0.0, 0.9), 0.0).high)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5_000), st.booleans()), min_size=1, max_size=40))
def test_the_rule_is_one_for_runs_and_for_sums(runs: list[tuple[int, bool]]) -> None:
    """What a report says with the method "abc" is what a store says from power sums."""
    x, y = [float(size) for size, _ in runs], [float(won) for _, won in runs]
    for found, bounds in (
        (mean_of(x, method="abc"), guarded_mean(power_sums(x))),
        (ratio_of(zip(x, y, strict=True), method="abc"), guarded_ratio(power_sums(x, y))),
    ):
        for stated, from_sums in ((found.low, float(bounds.low[0])), (found.high, float(bounds.high[0]))):
            assert (stated is None) == math.isnan(from_sums)
            if stated is not None:
                assert stated == pytest.approx(max(0.0, from_sums), rel=1e-6, abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 5_000), min_size=LEAST, max_size=40), st.integers(1, 39))
def test_failures_that_may_come_widen_the_price_of_a_success(tokens: list[int], failures: int) -> None:
    """The price of a success reaches as far up as the tokens of a run over Wilson's low end of the share."""
    assume(len(set(tokens)) > 1)
    won = [index >= failures for index in range(len(tokens))]
    assume(any(won))
    found = ratio_of(zip(tokens, won, strict=True), method="abc")
    share = wilson(sum(won), len(won))
    assert found.high is None or found.high >= found.value  # type: ignore[operator]
    if all(won):
        assert found.high is None or found.high >= sum(tokens) / len(tokens) / share.low  # type: ignore[operator]
