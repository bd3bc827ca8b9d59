"""Intervals that hold at every moment at once, and the rule that stops by them."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln, xlog1py, xlogy

from mat.core.errors import SpecError
from mat.measure.interval import wilson
from mat.measure.sequential import decided, estimate_data, sequential_estimate

COUNTS = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
CAMPAIGNS, RUNS = 400, 400


def _missed(method, share, *, seed):
    """The share of campaigns in which an interval leaves out the truth at some moment: that is where one would stop."""
    stream, missed = Random(seed), 0
    known = {}
    for _ in range(CAMPAIGNS):
        failures = 0
        for n in range(1, RUNS + 1):
            failures += stream.random() < share
            if (failures, n) not in known:
                found = method(failures, n)
                known[failures, n] = found.low <= share <= found.high
            if not known[failures, n]:
                missed += 1
                break
    return missed / CAMPAIGNS


@pytest.mark.full
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_the_interval_covers_at_its_stated_rate_whenever_one_stops(share):
    assert _missed(sequential_estimate, share, seed=1) <= 0.05


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_an_interval_for_a_fixed_number_of_runs_does_not_cover_when_one_stops_at_will(share):
    assert _missed(wilson, share, seed=1) > 0.15


@settings(deadline=None)
@given(COUNTS)
def test_the_ends_solve_the_equation_that_defines_them(counts):
    failures, n = counts
    found = sequential_estimate(failures, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    for end in (found.low, found.high):
        if 0 < end < 1:
            ratio = betaln(1 + failures, 1 + n - failures) - xlogy(failures, end) - xlog1py(n - failures, -end)
            assert ratio == pytest.approx(2.995732273553991, abs=1e-6)  # log 20


@settings(deadline=None)
@given(COUNTS, st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_the_exact_rule_agrees_with_the_interval(counts, target):
    failures, n = counts
    found = sequential_estimate(failures, n)
    if min(abs(found.low - target), abs(found.high - target)) < 1e-9:
        return  # closer than floats can tell
    expected = "below" if found.high < target else "above" if found.low > target else ""
    assert decided(failures, n, target) == expected


def test_158_runs_without_a_failure_are_the_fewest_that_say_less_than_five_percent():
    assert [decided(0, n, Fraction(1, 20)) for n in (157, 158)] == ["", "below"]
    assert sequential_estimate(0, 158).high < 0.05 <= sequential_estimate(0, 157).high


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_stopping_by_the_rule_is_wrong_in_few_campaigns(share):
    """At the target itself every decision is wrong; it must come in no more campaigns than 1 in 20."""
    stream, target, wrong = Random(2), Fraction(share).limit_denominator(100), 0
    for _ in range(CAMPAIGNS):
        failures = 0
        for n in range(1, RUNS + 1):
            failures += stream.random() < share
            if decided(failures, n, target):
                wrong += 1
                break
    assert wrong / CAMPAIGNS <= 0.05


def test_more_runs_of_the_same_share_narrow_the_interval():
    widths = [(found.high - found.low) for found in (sequential_estimate(n // 10, n) for n in (10, 100, 1000, 10000))]
    assert widths == sorted(widths, reverse=True)


def test_no_runs_are_no_data_and_the_certificate_form_carries_all_of_an_estimate():
    assert sequential_estimate(0, 0).value is None
    assert estimate_data(0, 0) == {
        "value": None, "low": None, "high": None, "n": 0, "confidence": 0.95, "method": "beta-binomial",
    }  # fmt: skip
    found = sequential_estimate(3, 40)
    assert estimate_data(3, 40)["low"] == found.low
    assert estimate_data(3, 40)["high"] == found.high


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sequential_estimate(2, 1),
        lambda: sequential_estimate(-1, 1),
        lambda: sequential_estimate(0, 1, 1.0),
        lambda: decided(0, 1, Fraction(0)),
        lambda: decided(0, 1, Fraction(1, 2), Fraction(1)),
    ],
)
def test_what_is_no_count_or_share_is_refused(wrong):
    with pytest.raises(SpecError):
        wrong()
