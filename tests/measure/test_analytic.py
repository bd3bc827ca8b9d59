"""Intervals from power sums: the same as from the data, for every group at once, and as good as resampling."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, norm, t

from mat.core.errors import SpecError
from mat.measure.analytic import PowerSums, mean, power_sums, ratio, wilson_many
from mat.measure.interval import wilson

TOKENS = numpy.random.default_rng(1).lognormal(5, 1, 40)
WON = (numpy.random.default_rng(2).random(40) < 0.6).astype(float)


def by_differences(x: Sequence[float], y: Sequence[float], confidence: float) -> tuple[float, float]:
    """ABC of any function of weights, by numerical derivatives (Efron and Tibshirani 1993, program abcnon)."""
    one, other = numpy.array(x), numpy.array(y)
    n = len(one)
    even, step = numpy.full(n, 1 / n), 0.001 / n

    def value(weights: numpy.ndarray) -> float:
        return float(weights @ one) / float(weights @ other)

    towards = numpy.eye(n) - even
    up, down, here = [value(even + step * row) for row in towards], [value(even - step * row) for row in towards], value(even)
    first = (numpy.array(up) - down) / (2 * step)
    second = (numpy.array(up) - 2 * here + down) / step**2
    sigma = math.sqrt((first**2).sum()) / n
    skew = (first**3).sum() / (6 * n**3 * sigma**3)
    line = first / (n**2 * sigma)
    curve = (value(even + step * line) - 2 * here + value(even - step * line)) / (2 * sigma * step**2)
    z0 = norm.ppf(2 * norm.cdf(skew) * norm.cdf(-(second.sum() / (2 * n * n) / sigma - curve)))
    reach = math.sqrt(n / (n - 1)) * t.ppf((1 + confidence) / 2, n - 1)
    return tuple(value(even + (z0 + z) / (1 - skew * (z0 + z)) ** 2 * line) for z in (-reach, reach))  # type: ignore[return-value]


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("y", [WON, numpy.ones(40), TOKENS[::-1] + 3])
def test_the_closed_form_is_what_numerical_derivatives_give(y: numpy.ndarray, confidence: float) -> None:
    value, low, high = (float(part[0]) for part in ratio(power_sums(TOKENS, y), confidence))
    assert value == pytest.approx(TOKENS.sum() / y.sum())
    assert (low, high) == pytest.approx(by_differences(TOKENS, y, confidence), rel=1e-5)


def test_many_runs_give_the_interval_of_bca_by_resampling() -> None:
    stream = numpy.random.default_rng(3)
    tokens, won = stream.gamma(2, 500, 400), (stream.random(400) < 0.6).astype(float)
    resampled = bootstrap(
        (tokens, won), lambda x, y, axis: x.sum(axis=axis) / y.sum(axis=axis), paired=True, vectorized=True, rng=stream,
        n_resamples=10_000,
    ).confidence_interval  # fmt: skip
    value, low, high = (float(part[0]) for part in ratio(power_sums(tokens, won)))
    assert low == pytest.approx(resampled.low, abs=0.08 * (high - low))
    assert high == pytest.approx(resampled.high, abs=0.08 * (high - low))
    assert low < value < high


def test_groups_are_measured_as_if_each_were_alone() -> None:
    groups = numpy.arange(40) % 3
    together = ratio(power_sums(TOKENS, WON, groups))
    for group in range(3):
        alone = ratio(power_sums(TOKENS[groups == group], WON[groups == group]))
        assert [float(part[group]) for part in together] == pytest.approx([float(part[0]) for part in alone])


def test_sums_of_two_machines_add_up_to_those_of_all_runs() -> None:
    merged = power_sums(TOKENS[:13], WON[:13]) + power_sums(TOKENS[13:], WON[13:])
    assert [float(part[0]) for part in ratio(merged)] == pytest.approx(
        [float(part[0]) for part in ratio(power_sums(TOKENS, WON))]
    )


def test_a_mean_is_the_ratio_to_one_run() -> None:
    assert [float(part[0]) for part in mean(power_sums(TOKENS, WON))] == pytest.approx(
        [float(part[0]) for part in ratio(power_sums(TOKENS))]
    )


def test_plain_numbers_will_do_for_one_group() -> None:
    numbers = PowerSums(n=3, x=6, y=3, xx=14, xy=6, yy=3, xxx=36, xxy=14, xyy=6, yyy=3)  # 1, 2, 3 to one each
    assert [float(part) for part in ratio(numbers)] == pytest.approx([float(part[0]) for part in mean(power_sums([1, 2, 3]))])


def test_what_the_data_do_not_say_is_nan() -> None:
    empty = power_sums([], [], [], count=1)
    assert [math.isnan(part[0]) for part in ratio(empty)] == [True, True, True]
    none_won = ratio(power_sums([5.0, 6.0], [0.0, 0.0]))
    assert [math.isnan(part[0]) for part in none_won] == [True, True, True]
    single = ratio(power_sums([5.0], [1.0]))
    assert float(single.value[0]) == 5.0
    assert math.isnan(single.low[0])
    assert math.isnan(single.high[0])


def test_few_successes_leave_the_high_end_of_tokens_per_success_open() -> None:
    found = ratio(power_sums([100.0] * 8, [1.0] + [0.0] * 7))
    assert float(found.value[0]) == 800.0
    assert 0 < float(found.low[0]) < 800
    assert math.isnan(found.high[0])


def test_runs_that_are_all_alike_have_no_width_whatever_their_size() -> None:
    for number in (3.0, 0.1, 1234567.89, 1e12):
        found = mean(power_sums([number] * 7))
        assert [float(part[0]) for part in found] == pytest.approx([number] * 3, rel=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.booleans()), min_size=2, max_size=60),
    st.floats(0.5, 0.999),
)
def test_an_interval_holds_its_value_and_widens_with_confidence(pairs: list[tuple[int, bool]], confidence: float) -> None:
    sums = power_sums([float(x) for x, _ in pairs])
    value, low, high = (float(part[0]) for part in mean(sums, confidence))
    assert math.isnan(low) or low <= value + 1e-9 * abs(value)
    assert math.isnan(high) or high >= value - 1e-9 * abs(value)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=20), st.floats(0.5, 0.999))
def test_shares_of_many_groups_are_those_of_each(counts: list[tuple[int, int]], confidence: float) -> None:
    won, total = [min(pair) for pair in counts], [max(pair) for pair in counts]
    found = wilson_many(won, total, confidence)
    for place, (successes, n) in enumerate(zip(won, total, strict=True)):
        one = wilson(successes, n, confidence)
        got = [float(part[place]) for part in found]
        if n:
            assert got == pytest.approx([one.value, one.low, one.high], abs=1e-12)
        else:
            assert all(map(math.isnan, got))


def test_impossible_counts_and_confidences_are_refused() -> None:
    with pytest.raises(SpecError):
        wilson_many([3], [2])
    with pytest.raises(SpecError):
        wilson_many([-1], [2])
    for confidence in (0, 1, 95):
        with pytest.raises(SpecError):
            ratio(power_sums([1.0, 2.0]), confidence)
        with pytest.raises(SpecError):
            wilson_many([1], [2], confidence)


def test_importing_it_imports_neither_numpy_nor_scipy() -> None:
    code = "import sys, mat.measure.metrics; sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
