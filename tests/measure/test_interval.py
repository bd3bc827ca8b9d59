from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, t

from mat.core.errors import SpecError
from mat.measure.estimate import Spread, spread
from mat.measure.interval import clopper_pearson, exact, t_quantile, wilson


@pytest.mark.sweep("n", [1, 2, 3, 7, 30, 1_000, 100_000])
@pytest.mark.sweep("confidence", [0.5, 0.9, 0.95, 0.999])
def test_wilson_agrees_with_scipy_to_twelve_places(n: int, confidence: float) -> None:
    for successes in sorted({0, 1, n // 3, n // 2, n - 1, n}):
        ours = wilson(successes, n, confidence)
        theirs = binomtest(successes, n).proportion_ci(confidence_level=confidence, method="wilson")
        assert ours.low == pytest.approx(theirs.low, abs=1e-12, rel=0)
        assert ours.high == pytest.approx(theirs.high, abs=1e-12, rel=0)
        assert (ours.value, ours.n, ours.method) == (successes / n, n, "wilson")


@settings(deadline=None)
@given(n=st.integers(0, 5_000), share=st.floats(0, 1))
def test_any_share_can_have_the_exact_interval_in_place_of_wilsons(n: int, share: float) -> None:
    successes = round(share * n)
    assert exact(wilson(successes, n, 0.9)) == clopper_pearson(successes, n, 0.9)


def test_an_estimate_that_is_no_plain_share_has_no_exact_interval() -> None:
    with pytest.raises(SpecError):
        exact(clopper_pearson(1, 2))


@pytest.mark.sweep("confidence", [0.5, 0.8, 0.95, 0.999])
@pytest.mark.sweep("degrees", [1, 2, 3, 4, 5, 6, 9, 10, 29, 30, 199, 400, 401, 5_000])
def test_a_t_interval_reaches_as_far_as_scipys(degrees: int, confidence: float) -> None:
    assert t_quantile(degrees, confidence) == pytest.approx(t.ppf((1 + confidence) / 2, degrees), rel=1e-9)


def test_a_single_observation_has_no_t_interval() -> None:
    with pytest.raises(SpecError):
        t_quantile(0)


@settings(deadline=None)
@given(n=st.integers(1, 500), share=st.floats(0, 1), confidence=st.floats(0.01, 0.999))
def test_an_interval_holds_its_value_and_stays_between_zero_and_one(n: int, share: float, confidence: float) -> None:
    successes = round(share * n)
    for estimate in (wilson(successes, n, confidence), clopper_pearson(successes, n, confidence)):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.value is not None
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@cache
def intervals(method: Callable[..., Any], n: int, confidence: float) -> list[Any]:
    return [method(successes, n, confidence) for successes in range(n + 1)]


def coverage(method: Callable[..., Any], n: int, p: float, confidence: float) -> float:
    """The exact probability that the interval covers p, summed over all outcomes."""
    weights = binom.pmf(range(n + 1), n, p)
    found = zip(intervals(method, n, confidence), weights, strict=True)
    return math.fsum(float(weight) for estimate, weight in found if estimate.low <= p <= estimate.high)


@pytest.mark.parametrize("n", [10, 30, 100])
def test_wilson_covers_at_its_rate_on_average_over_shares(n: int) -> None:
    shares = [(index + 0.5) / 200 for index in range(200)]
    mean = math.fsum(coverage(wilson, n, p, 0.95) for p in shares) / len(shares)
    assert mean == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("n", [5, 20, 60])
def test_wilson_never_covers_far_below_its_rate(n: int) -> None:
    assert min(coverage(wilson, n, index / 100, 0.95) for index in range(5, 96)) > 0.83


@pytest.mark.parametrize("n", [5, 20, 60])
def test_clopper_pearson_never_covers_below_its_rate(n: int) -> None:
    assert min(coverage(clopper_pearson, n, index / 100, 0.95) for index in range(1, 100)) >= 0.95


def test_a_naive_interval_would_fail_the_coverage_test() -> None:
    def wald(successes: int, n: int, confidence: float) -> object:
        estimate = wilson(successes, n, confidence)
        share = successes / n
        half = 1.959964 * math.sqrt(share * (1 - share) / n)
        return type(estimate)(
            value=share, low=share - half, high=share + half, n=n, confidence=confidence, method="wald"
        )  # fmt: skip

    assert min(coverage(wald, 20, index / 100, 0.95) for index in range(5, 96)) < 0.83


@pytest.mark.parametrize("method", [wilson, clopper_pearson])
def test_no_data_is_no_value(method: object) -> None:
    estimate = method(0, 0)  # type: ignore[operator]
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (None, None, None, 0)
    assert not estimate.known


@pytest.mark.parametrize(("successes", "n", "confidence"), [(2, 1, 0.95), (-1, 3, 0.95), (0, -1, 0.9), (1, 2, 95), (1, 2, 0)])
def test_a_share_that_cannot_be_is_refused(successes: int, n: int, confidence: float) -> None:
    for method in (wilson, clopper_pearson):
        with pytest.raises(SpecError):
            method(successes, n, confidence)


def test_wilson_does_not_import_scipy() -> None:
    code = "import sys; from mat.measure.interval import wilson; wilson(1, 2); sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_spread_is_a_median_that_was_seen() -> None:
    assert spread([]) == Spread(n=0, least=None, median=None, most=None)
    assert spread([3, 1, 2, 9]) == Spread(n=4, least=1, median=2, most=9)
