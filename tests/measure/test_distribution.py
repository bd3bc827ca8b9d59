"""Distributions as data: bars that hold every value, quantiles whose intervals cover whatever is measured."""

from __future__ import annotations

from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from mat.core.errors import SpecError
from mat.measure.distribution import BINS, QUANTILES, Bin, distribution, quantile, shares
from mat.measure.interval import wilson


@settings(deadline=None)
@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=200))
def test_every_value_is_in_one_bar_and_bars_are_few_and_alike(values: list[int]) -> None:
    found = distribution(values).bins
    assert sum(bar.count for bar in found) == len(values)
    for bar in found:
        assert bar.count == sum(bar.least <= value <= bar.most for value in values)
    widths = {bar.most - bar.least + 1 for bar in found}
    assert len(widths) == 1
    assert str(widths.pop()).rstrip("0") in ("1", "2", "5")
    assert len(found) <= BINS
    assert all(one.most + 1 == other.least for one, other in pairwise(found))
    assert found[0].count
    assert found[-1].count


def test_small_numbers_have_a_bar_each_and_gaps_stand() -> None:
    assert distribution([3, 3, 5]).bins == (
        Bin(least=3, most=3, count=2),
        Bin(least=4, most=4, count=0),
        Bin(least=5, most=5, count=1),
    )


def test_runs_without_the_number_stand_apart() -> None:
    found = distribution([None, 4, None, 6])
    assert (found.n, found.without) == (2, 2)
    nothing = distribution([None])
    assert (nothing.n, nothing.without, nothing.bins, nothing.quantiles) == (0, 1, (), ())


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=80), st.sampled_from(QUANTILES))
def test_a_quantile_is_a_value_that_was_seen_between_its_ends(values: list[int], percent: int) -> None:
    found = quantile(values, percent)
    expected = numpy.quantile(values, percent / 100, method="inverted_cdf")
    assert found.value == expected
    assert found.low is None or found.low <= found.value  # type: ignore[operator]
    assert found.high is None or found.high >= found.value  # type: ignore[operator]


@pytest.mark.parametrize("percent", [10, 50, 90])
@pytest.mark.parametrize("n", [5, 30, 300])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_its_interval_covers_at_least_at_its_rate_and_no_tighter_ranks_would(percent: int, n: int, confidence: float) -> None:
    found = quantile(range(1, n + 1), percent, confidence=confidence)
    low, high = int(found.low or 0), int(found.high or n + 1)
    p, tail = percent / 100, (1 - confidence) / 2
    assert binom.cdf(low - 1, n, p) <= tail + 1e-12  # Pr(the true quantile lies below rank low)
    assert binom.sf(high - 1, n, p) <= tail + 1e-12
    assert binom.cdf(low, n, p) > tail
    assert binom.sf(high - 2, n, p) > tail


def test_a_high_quantile_of_few_runs_has_no_upper_end() -> None:
    assert quantile([1, 2, 3], 90).high is None
    assert quantile([], 50).value is None


@pytest.mark.parametrize("percent", [0, 100, -1])
def test_an_extreme_is_no_quantile(percent: int) -> None:
    with pytest.raises(SpecError):
        quantile([1], percent)


def test_shares_are_ranked_and_ties_go_by_name() -> None:
    found = shares(["b", "a", "c", "b", "a"])
    assert [(item.name, item.count) for item in found] == [("a", 2), ("b", 2), ("c", 1)]
    assert found[0].share == wilson(2, 5)
    assert shares([]) == ()
