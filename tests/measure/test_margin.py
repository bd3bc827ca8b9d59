"""The exact test of a margin, against what it claims: its level, its power, and the best test there could be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm

from mat.measure.margin import critical, difference_of, kept, pairs_needed, power, score

ALPHA = Fraction(1, 20)
FIVE, FIFTEEN = Fraction(1, 20), Fraction(3, 20)


def passing(pairs: int, lost: float, gained: float, tolerance: Fraction) -> float:
    """How often the test passes, summed over all tables by the binomial distribution, without the code that is tried."""
    total = 0.0
    for losses in range(pairs + 1):
        chance = binom.pmf(losses, pairs, lost)
        if chance < 1e-12:
            continue
        for gains in range(pairs - losses + 1):
            more = binom.pmf(gains, pairs - losses, gained / (1 - lost)) if lost < 1 else 0.0
            if chance * more > 1e-12 and kept(losses, gains, pairs, tolerance=tolerance, alpha=ALPHA):
                total += chance * more
    return total


@pytest.mark.parametrize("tolerance", [FIVE, FIFTEEN])
@pytest.mark.parametrize("pairs", [1, 7, 20, 59, 100])
@pytest.mark.full
def test_what_is_worse_by_the_tolerance_passes_in_five_percent_at_most(pairs: int, tolerance: Fraction) -> None:
    for gained in (0.0, 0.003, 0.017, 0.06, 0.1, 0.21, 0.4):
        assert passing(pairs, gained + float(tolerance), gained, tolerance) <= 0.0505  # between the shares that are controlled


@pytest.mark.parametrize(("pairs", "tolerance"), [(1_000, FIVE), (500, FIFTEEN)])
def test_many_pairs_keep_the_level_too(pairs: int, tolerance: Fraction) -> None:
    draws = np.random.default_rng(7)
    for gained in (0.0, 0.01, 0.1, 0.3):
        share = float(tolerance)
        tables = draws.multinomial(pairs, [gained + share, gained, 1 - 2 * gained - share], size=4_000)
        found = np.mean([kept(int(a), int(b), pairs, tolerance=tolerance, alpha=ALPHA) for a, b, _ in tables])
        assert found <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4_000)


@pytest.mark.parametrize("tolerance", [FIVE, FIFTEEN])
@pytest.mark.parametrize("pairs", [59, 100, 300])
@pytest.mark.parametrize("differing", [0.02, 0.1, 0.18, 0.4])
def test_an_unchanged_system_passes_nearly_as_often_as_by_the_best_test_that_knows_its_noise(
    pairs: int, differing: float, tolerance: Fraction
) -> None:
    """The oracle knows how many pairs differ by chance, and takes the least sum that is improbable where t is lost."""
    draws = np.random.default_rng(11)
    half, t, size = differing / 2, float(tolerance), 200_000
    worse = draws.multinomial(pairs, [half + t, half, 1 - differing - t], size=size)
    same = draws.multinomial(pairs, [half, half, 1 - differing], size=size)
    sums, null = same[:, 1] - same[:, 0], worse[:, 1] - worse[:, 0]
    least = next(value for value in range(-pairs, pairs + 1) if np.mean(null >= value) <= 0.05)
    best = np.mean(sums >= least)
    assert power(pairs, tolerance=tolerance, alpha=ALPHA, differing=differing) >= best - 0.05


def test_a_system_that_does_the_same_every_time_passes_with_59_or_19_pairs() -> None:
    assert pairs_needed(tolerance=FIVE, alpha=ALPHA) == 59 == math.ceil(math.log(0.05) / math.log(0.95))
    assert pairs_needed(tolerance=FIFTEEN, alpha=ALPHA) == 19
    assert kept(0, 0, 59, tolerance=FIVE, alpha=ALPHA)
    assert not kept(0, 0, 58, tolerance=FIVE, alpha=ALPHA)
    assert not kept(0, 0, 0, tolerance=FIVE, alpha=ALPHA)
    assert critical(1, FIVE, ALPHA) == math.inf


@pytest.mark.parametrize("differing", [0.05, 0.18])
def test_as_many_pairs_as_it_says_pass_with_the_chance_that_was_asked_for(differing: float) -> None:
    needed = pairs_needed(tolerance=FIFTEEN, alpha=ALPHA, differing=differing, chance=0.8)
    assert needed is not None
    draws = np.random.default_rng(3)
    tables = draws.multinomial(needed, [differing / 2, differing / 2, 1 - differing], size=4_000)
    found = np.mean([kept(int(a), int(b), needed, tolerance=FIFTEEN, alpha=ALPHA) for a, b, _ in tables])
    assert 0.78 <= found <= 0.87
    assert pairs_needed(tolerance=Fraction(1, 1_000_000), alpha=ALPHA, differing=0.5) is None


def test_the_interval_is_where_the_score_reaches_the_quantile_and_shows_what_the_test_decides() -> None:
    found = difference_of(10, 5, 100, confidence=Fraction(19, 20))
    assert found.value == pytest.approx(-0.05)
    assert found.low is not None
    assert found.high is not None
    assert score(10, 5, 100, -found.low) == pytest.approx(norm.ppf(0.95), abs=1e-6)
    assert score(5, 10, 100, found.high) == pytest.approx(norm.ppf(0.95), abs=1e-6)
    same = difference_of(0, 0, 100, confidence=Fraction(19, 20))
    assert (same.low, same.high) == (pytest.approx(-0.0263, abs=1e-3), pytest.approx(0.0263, abs=1e-3))
    assert difference_of(0, 0, 0, confidence=Fraction(19, 20)).value is None
