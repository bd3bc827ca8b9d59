"""Resampled intervals: of the data alone, honest about what they cannot say, by run or by task."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction
from typing import get_args

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, t

from mat.core.errors import SpecError
from mat.measure.bootstrap import (
    ALIKE,
    FEW,
    LARGE,
    RESAMPLES,
    BootstrapMethod,
    expanded,
    mean_of,
    ratio_of,
    resampled_ends,
    share_of,
)
from mat.measure.guard import LEAST
from mat.measure.interval import wilson

TOKENS = [int(number) for number in numpy.random.default_rng(1).lognormal(6, 0.7, 40)]
WON = [int(number) for number in numpy.random.default_rng(2).random(40) < 0.6]


def test_the_percentile_interval_is_scipys_at_the_expanded_level() -> None:
    ours = mean_of(TOKENS)
    theirs = bootstrap(
        (TOKENS,), numpy.mean, method="percentile", n_resamples=50_000, confidence_level=expanded(40, 0.95),
        rng=numpy.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    low, high = resampled_ends([(x, 1) for x in sorted(TOKENS)], lambda sums: sums[..., 0] / sums[..., 1], 0.95)
    assert (low, high) == (pytest.approx(theirs.low, rel=0.02), pytest.approx(theirs.high, rel=0.02))
    assert (ours.value, ours.n, ours.method) == (pytest.approx(sum(TOKENS) / 40), 40, "percentile bootstrap, guarded")
    assert ours.low == pytest.approx(theirs.low, rel=0.02)
    assert ours.high > theirs.high  # the far end of skewed numbers
    assert RESAMPLES == 10_000


def test_a_ratio_resamples_both_numbers_of_a_run_together() -> None:
    ours = ratio_of(zip(TOKENS, WON, strict=True))
    theirs = bootstrap(
        (TOKENS, WON), lambda x, y, axis: x.sum(axis=axis) / y.sum(axis=axis), paired=True, vectorized=True,
        method="percentile", n_resamples=50_000, confidence_level=expanded(40, 0.95), rng=numpy.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    assert ours.value == pytest.approx(sum(TOKENS) / sum(WON))
    assert ours.low == pytest.approx(theirs.low, rel=0.02)
    assert theirs.high < ours.high < 1.25 * theirs.high


@pytest.mark.parametrize("method", ["bca", "abc"])
def test_methods_for_skewed_data_lie_no_lower_than_percentiles(method: BootstrapMethod) -> None:
    plain, other = mean_of(TOKENS), mean_of(TOKENS, method=method)
    assert other.value == plain.value
    assert other.method.startswith(method)
    assert plain.low is not None
    assert plain.high is not None
    assert other.low is not None
    assert other.high is not None
    assert other.low > plain.low
    assert other.high >= plain.high


def test_the_order_of_runs_decides_nothing_and_the_data_everything() -> None:
    shuffled = random.Random(5).sample(TOKENS, len(TOKENS))
    assert mean_of(shuffled) == mean_of(TOKENS)
    assert mean_of(TOKENS) == mean_of(TOKENS)
    assert mean_of([*TOKENS[:-1], TOKENS[-1] + 1]) != mean_of(TOKENS)


@pytest.mark.full
def test_other_processes_and_hash_seeds_give_the_same_interval() -> None:
    code = "from mat.measure.bootstrap import *; print(mean_of([1, 5, 9, 2], by='abca'), mean_of([3, 1, 2]))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1


def test_by_task_all_runs_of_a_task_are_drawn_together() -> None:
    tasks = [100 * (index // 4) + index % 4 for index in range(40)]  # runs of a task are alike
    names = [index // 4 for index in range(40)]
    alone, together = mean_of(tasks), mean_of(tasks, by=names)
    assert together.value == pytest.approx(alone.value)
    assert (alone.n, together.n, together.method) == (40, 10, "percentile bootstrap by task, guarded")
    assert together.high - together.low > 1.8 * (alone.high - alone.low)  # type: ignore[operator]


def test_above_the_limit_nothing_is_resampled_unless_asked_for() -> None:
    many = [index % 7 for index in range(LARGE + 1)]
    assert mean_of(many).method == "abc, guarded"
    assert mean_of(many, method="percentile").method == "percentile bootstrap, guarded"
    assert mean_of(many[:LARGE]).method == "percentile bootstrap, guarded"
    assert mean_of(many).low == pytest.approx(mean_of(many, method="percentile").low, rel=0.01)


def test_what_the_data_do_not_say_is_none() -> None:
    assert (mean_of([]).value, mean_of([]).n) == (None, 0)
    none_won = ratio_of([(5, 0), (7, 0)])
    assert (none_won.value, none_won.low, none_won.high, none_won.n) == (None, None, None, 2)
    single = mean_of([3])
    assert (single.value, single.low, single.high, single.n) == (3.0, None, None, 1)
    for alike in (mean_of([3, 3, 3]), mean_of([3] * 50), ratio_of([(3, 1)] * 50)):
        assert (alike.value, alike.low, alike.high, alike.method) == (3.0, None, None, ALIKE)


@pytest.mark.parametrize("method", get_args(BootstrapMethod))
def test_too_few_runs_have_no_interval_and_the_method_says_so(method: BootstrapMethod) -> None:
    few, enough = mean_of(range(LEAST - 1), method=method), mean_of(range(LEAST), method=method)
    assert (few.value, few.low, few.high, few.n) == ((LEAST - 2) / 2, None, None, LEAST - 1)
    assert few.method.endswith(f", no interval below {LEAST}")
    assert None not in (enough.low, enough.high)
    tasks = mean_of(range(40), by=[index % (LEAST - 1) for index in range(40)], method=method)
    assert (tasks.low, tasks.high, tasks.n) == (None, None, LEAST - 1)  # tasks, not runs, are what is drawn


def test_one_success_of_twelve_is_paid_by_as_many_runs_as_wilsons_share_allows() -> None:
    one_won = ratio_of([(100, 1), *[(100, 0)] * 11])
    share = wilson(1, 12)
    assert one_won.value == 1200.0
    assert one_won.low <= 100 / share.high  # type: ignore[operator]
    assert one_won.high == pytest.approx(100 / share.low)  # resamples without a success know no price


def test_successes_without_a_failure_leave_room_for_failures() -> None:
    tokens = [190, 200, 210, 205, 195, 199, 201, 208, 192, 200]
    always, mean = ratio_of([(x, 1) for x in tokens]), mean_of(tokens)
    assert always.value == mean.value
    assert always.high > mean.high  # type: ignore[operator]
    assert always.high > 200 / wilson(10, 10).low  # type: ignore[operator]
    many = ratio_of([(x, 1) for x in tokens * 100])
    assert many.high < 1.01 * mean.value  # type: ignore[operator]


def test_a_ratio_is_alike_where_every_run_pays_the_same_price() -> None:
    assert ratio_of([(10, 1), (20, 2), (0, 0)]).method == ALIKE
    assert ratio_of([(10, 1), (20, 2), (1, 0)]).method == "percentile bootstrap, no interval below 10"


@pytest.mark.parametrize("n", [4, 10, 50, 500])
def test_the_level_is_that_of_a_t_interval(n: int) -> None:
    from statistics import NormalDist

    reach = NormalDist().inv_cdf((1 + expanded(n, 0.9)) / 2)
    assert reach == pytest.approx((n / (n - 1)) ** 0.5 * t.ppf(0.95, n - 1), rel=1e-4)


def test_a_mean_of_shares_is_a_proportion_where_all_are_whole() -> None:
    assert share_of([1, 0, 1, 1]) == wilson(3, 4)
    assert share_of([]) == wilson(0, 0)


def test_a_handful_of_shares_and_equal_ones_get_the_interval_of_a_coin_rounded_outwards() -> None:
    few = share_of([Fraction(1, 2), 1, 0, 0])
    assert (few.value, few.low, few.high) == (0.375, wilson(1, 4).low, wilson(2, 4).high)
    equal = share_of([Fraction(1, 4)] * 20)
    assert (equal.value, equal.low, equal.high) == (0.25, wilson(5, 20).low, wilson(5, 20).high)
    assert few.method == equal.method == "wilson, as if binary"


def test_many_shares_are_resampled_and_stay_between_zero_and_one() -> None:
    found = share_of([Fraction(1, 100), *[0] * FEW, 1, Fraction(1, 2)])
    assert found.method == "percentile bootstrap, guarded"
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(st.lists(st.fractions(0, 1), min_size=FEW, max_size=30))
def test_a_mean_of_shares_is_never_wider_than_that_of_a_coin(values: list[Fraction]) -> None:
    found, total = share_of(values), sum(values)
    assert found.low >= wilson(math.floor(total), len(values)).low  # type: ignore[operator]
    assert found.high <= wilson(math.ceil(total), len(values)).high  # type: ignore[operator]
    assert found.low <= found.value <= found.high  # type: ignore[operator]


@pytest.mark.parametrize("values", [[2], [-0.1, 0.5], [0.2, 1.01]])
def test_what_is_no_share_is_refused(values: list[float]) -> None:
    with pytest.raises(SpecError):
        share_of(values)


def test_a_negative_denominator_and_a_confidence_beyond_certainty_are_refused() -> None:
    with pytest.raises(SpecError):
        ratio_of([(1, -1), (2, 3)])
    with pytest.raises(SpecError):
        mean_of([1, 2], confidence=95)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1_000), min_size=2, max_size=30), st.sampled_from(["percentile", "abc"]))
def test_the_value_lies_in_its_interval(values: list[int], method: BootstrapMethod) -> None:
    found = mean_of(values, method=method)
    assert found.value == pytest.approx(sum(values) / len(values))
    assert found.low is None or found.low <= found.value  # type: ignore[operator]
    assert found.high is None or found.high >= found.value  # type: ignore[operator]
