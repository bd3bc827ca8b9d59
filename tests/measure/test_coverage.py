"""Intervals cover at their stated rate (L11), and an interval planted too narrow is noticed.

Where outcomes can be enumerated the coverage is exact. Elsewhere samples are drawn from fixed streams, so each test gives the
same answer every time; `holds` allows three standard errors. The report of benchmarks/coverage.py has more of everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy
import pytest
from scipy.stats import binom

from mat.measure import analytic, bootstrap, paired
from mat.measure.analytic import Bounds, power_sums
from mat.measure.bootstrap import mean_of, ratio_of, resampled_ends, share_of
from mat.measure.estimate import Estimate
from mat.measure.guard import LEAST
from mat.measure.paired import PairTable, difference, paired_difference
from mat.measure.reliability import pass_hat, success_at_unbiased
from mat.measure.sampling import RUNS, clustered

NOMINAL = 0.95


def holds(rate: float, times: int, *, nominal: float = NOMINAL) -> bool:
    """Whether an observed rate is not below the stated one by more than chance explains."""
    return rate >= nominal - 3 * math.sqrt(nominal * (1 - nominal) / times)


def covers(estimate: Estimate, truth: float) -> bool:
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    return low <= truth <= high


def observed(draw: Callable[[numpy.random.Generator], Estimate], truth: float, times: int) -> float:
    stream = numpy.random.default_rng(20)
    return sum(covers(draw(stream), truth) for _ in range(times)) / times


def share_of_groups(bounds: Bounds, truth: float) -> float:
    low, high = numpy.nan_to_num(bounds.low, nan=-math.inf), numpy.nan_to_num(bounds.high, nan=math.inf)
    known = ~numpy.isnan(bounds.value)
    return float(((low <= truth) & (truth <= high))[known].mean())


# -- analytic: many groups at once ------------------------------------------------------------------------------------

DRAWS: dict[str, tuple[Callable[..., Any], float]] = {
    "bell": (lambda stream, size: stream.normal(200, 40, size), 200.0),
    "gamma": (lambda stream, size: stream.gamma(3, 100, size), 300.0),
}
TIMES = 20_000


def grouped(name: str, n: int) -> tuple[analytic.PowerSums, float]:
    """Runs of which seven in ten succeed and cost as drawn, whatever comes of them."""
    draw, mean = DRAWS[name]
    stream = numpy.random.default_rng([n, len(name)])
    won = (stream.random(TIMES * n) < 0.7).astype(float)
    return power_sums(draw(stream, TIMES * n), won, numpy.repeat(numpy.arange(TIMES), n)), mean


@pytest.mark.full
@pytest.mark.parametrize(("name", "n"), [("bell", 10), ("bell", 50), ("gamma", 50), ("gamma", 200)])
def test_analytic_means_and_ratios_cover_at_their_rate(name: str, n: int) -> None:
    sums, mean = grouped(name, n)
    assert share_of_groups(analytic.mean(sums), mean) == pytest.approx(NOMINAL, abs=0.01)
    ratios = share_of_groups(analytic.ratio(sums), mean / 0.7)  # some of ten runs leave an end open: above
    assert NOMINAL - 0.01 <= ratios <= NOMINAL + 0.02


@pytest.mark.parametrize("confidence", [0.8, 0.99])
def test_they_do_at_other_confidences(confidence: float) -> None:
    sums, mean = grouped("bell", 30)
    assert share_of_groups(analytic.mean(sums, confidence), mean) == pytest.approx(confidence, abs=0.01)


def test_analytic_intervals_with_normal_quantiles_are_noticed_as_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytic, "reach", lambda n, confidence: 1.96 * n**0)
    sums, mean = grouped("bell", 10)
    assert not holds(share_of_groups(analytic.mean(sums), mean), TIMES)


HARD: dict[str, Callable[..., Any]] = {
    "geometric": lambda stream, size: stream.geometric(0.2, size) / 5,
    "gamma": lambda stream, size: stream.gamma(2, 0.5, size),
    "lognormal": lambda stream, size: stream.lognormal(0, 1, size) / math.exp(0.5),
    "left": lambda stream, size: 3 - stream.exponential(2, size),
}
"""Numbers of mean 1, in which few runs show too little of the tail."""


def rates(bounds: Bounds, truth: float) -> tuple[float, float, int]:
    """How often all intervals cover, and those with both ends alone, and how many these are."""
    closed = ~(numpy.isnan(bounds.low) | numpy.isnan(bounds.high))
    alone = Bounds(bounds.value[closed], bounds.low[closed], bounds.high[closed])
    return share_of_groups(bounds, truth), share_of_groups(alone, truth), int(closed.sum())


@pytest.mark.full
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("n", [LEAST, 15, 40])
def test_guarded_means_cover_where_those_of_the_plain_method_do_not(name: str, n: int) -> None:
    stream = numpy.random.default_rng([n, len(name)])
    groups = numpy.repeat(numpy.arange(TIMES), n)
    sums = power_sums(HARD[name](stream, TIMES * n), groups=groups)
    everywhere, closed, times = rates(analytic.guarded_mean(sums), 1.0)
    assert holds(everywhere, TIMES)
    assert holds(closed, times)
    if name == "lognormal" or n < 40:
        assert not holds(share_of_groups(analytic.mean(sums), 1.0), TIMES)


@pytest.mark.full
@pytest.mark.parametrize("n", [LEAST, 15, 40])
@pytest.mark.parametrize("rate", [0.5, 0.8, 0.9])
def test_guarded_prices_of_a_success_cover_where_failures_are_dear_and_rare(rate: float, n: int) -> None:
    stream = numpy.random.default_rng([n, int(100 * rate)])
    won = (stream.random(TIMES * n) < rate).astype(float)
    tokens = stream.normal(1, 0.1, TIMES * n) * (1.5 - 0.5 * won)
    sums, truth = power_sums(tokens, won, numpy.repeat(numpy.arange(TIMES), n)), (rate + 1.5 * (1 - rate)) / rate
    assert holds(rates(analytic.guarded_ratio(sums), truth)[0], TIMES)
    if (rate, n) in ((0.8, LEAST), (0.9, LEAST), (0.9, 15)):  # in a tenth of the samples, or more, nothing fails
        assert not holds(share_of_groups(analytic.ratio(sums), truth), TIMES)


# -- resampled --------------------------------------------------------------------------------------------------------

SAMPLES = 400


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,999 resamples: what is tested is where the quantiles are taken, not how finely they are drawn."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 1_999)


def bell_mean(stream: numpy.random.Generator) -> Estimate:
    return mean_of(stream.normal(200, 40, 10).tolist())


def alike_by_task(stream: numpy.random.Generator) -> tuple[list[float], list[int]]:
    """Ten tasks of four runs; what differs is the task."""
    return stream.normal(stream.normal(1_000, 300, 10).repeat(4), 100).tolist(), list(range(10)) * 4


@pytest.mark.covers("law", ["L11"])
@pytest.mark.usefixtures("fewer")
def test_percentile_means_cover_at_their_rate() -> None:
    assert holds(observed(bell_mean, 200, SAMPLES), SAMPLES)


def heavy_mean(stream: numpy.random.Generator) -> Estimate:
    return mean_of(stream.lognormal(0, 1, 10).tolist())


def few_fail(stream: numpy.random.Generator) -> Estimate:
    """success@2 over twelve tasks of four runs that succeed with rates of their own (beta 2, 1)."""
    return share_of([1 - math.comb(4 - int(count), 2) / 6 for count in stream.binomial(4, stream.beta(2, 1, 12))])


def per_failure(stream: numpy.random.Generator) -> Estimate:
    return paired_difference((0.0, float(more)) for more in stream.lognormal(0, 1, 10))


@pytest.mark.nightly
@pytest.mark.usefixtures("fewer")
@pytest.mark.parametrize(("draw", "truth"), [(heavy_mean, math.exp(0.5)), (few_fail, 5 / 6), (per_failure, math.exp(0.5))])
def test_resampled_means_of_skewed_numbers_cover_with_the_guard_and_not_without(
    draw: Callable[[numpy.random.Generator], Estimate], truth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holds(observed(draw, truth, SAMPLES), SAMPLES)
    for module in (bootstrap, paired):
        monkeypatch.setattr(module, "outwards", lambda found, least, value: tuple(found))
    assert not holds(observed(draw, truth, 2 * SAMPLES), 2 * SAMPLES)


def test_runs_that_are_all_alike_claim_no_certainty() -> None:
    """One call a run, and a second in one of twenty: a third of all samples show one call only."""

    def draw(stream: numpy.random.Generator) -> Estimate:
        return mean_of(1 + (stream.random(20) < 0.05), method="abc")

    assert holds(observed(draw, 1.05, SAMPLES), SAMPLES)


@pytest.mark.usefixtures("fewer")
def test_percentiles_that_are_not_expanded_are_noticed_as_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(stream: numpy.random.Generator) -> Estimate:
        units = [(number, 1.0) for number in stream.normal(200, 40, 10).tolist()]
        low, high = resampled_ends(units, lambda sums: sums[..., 0] / sums[..., 1], NOMINAL)
        return Estimate(value=200.0, low=low, high=high, n=10, confidence=NOMINAL, method="percentile")

    assert holds(observed(alone, 200, SAMPLES), SAMPLES)
    monkeypatch.setattr(bootstrap, "expanded", lambda n, confidence: confidence)
    assert not holds(observed(alone, 200, 2 * SAMPLES), 2 * SAMPLES)


@pytest.mark.full
@pytest.mark.usefixtures("fewer")
def test_percentile_ratios_cover_at_their_rate() -> None:
    def draw(stream: numpy.random.Generator) -> Estimate:
        won = stream.random(40) < 0.7
        return ratio_of(zip(stream.normal(200, 40, 40).tolist(), won.tolist(), strict=True))

    assert holds(observed(draw, 200 / 0.7, SAMPLES), SAMPLES)


@pytest.mark.full
@pytest.mark.usefixtures("fewer")
def test_means_by_task_cover_where_runs_of_a_task_are_alike_and_by_run_do_not() -> None:
    def by_task(stream: numpy.random.Generator) -> Estimate:
        values, _ = alike_by_task(stream)
        return mean_of(values, by=[index // 4 for index in range(40)])

    def by_run(stream: numpy.random.Generator) -> Estimate:
        return mean_of(alike_by_task(stream)[0])

    assert holds(observed(by_task, 1_000, SAMPLES), SAMPLES)
    assert not holds(observed(by_run, 1_000, SAMPLES), SAMPLES)


@pytest.mark.usefixtures("fewer")
def test_paired_differences_cover_at_their_rate() -> None:
    def draw(stream: numpy.random.Generator) -> Estimate:
        old = stream.gamma(2, 500, 12)
        return paired_difference(zip(old.tolist(), (old + stream.normal(50, 100, 12)).tolist(), strict=True))

    assert holds(observed(draw, 50, SAMPLES), SAMPLES)


@pytest.mark.usefixtures("fewer")
def test_bca_covers_at_its_rate() -> None:
    def draw(stream: numpy.random.Generator) -> Estimate:
        return mean_of(stream.gamma(3, 100, 40).tolist(), method="bca")

    assert holds(observed(draw, 300, 200), 200)


@pytest.mark.full
@pytest.mark.usefixtures("fewer")
def test_the_time_between_failures_covers_at_its_rate_and_its_plain_mean_does_not() -> None:
    """A failure at any step with 2 %, episodes of 60 steps at most: 50 steps between failures."""

    def until(stream: numpy.random.Generator) -> Any:
        return stream.geometric(0.02, 40)

    def censored(stream: numpy.random.Generator) -> Estimate:
        return ratio_of((min(int(steps), 60), int(steps <= 60)) for steps in until(stream))

    def plain(stream: numpy.random.Generator) -> Estimate:
        return mean_of(min(int(steps), 60) for steps in until(stream))

    assert holds(observed(censored, 50, SAMPLES), SAMPLES)
    assert not holds(observed(plain, 50, SAMPLES), SAMPLES)


# -- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_success_of_alike_runs_covers_by_task_and_not_by_run(row: Any) -> None:
    """Twenty tasks with success rates of their own, five runs each."""
    from mat.measure import reliability

    def rows(stream: numpy.random.Generator) -> list[Any]:
        won = stream.binomial(5, stream.beta(0.5, 0.25, 20))
        return [row(item=str(task), seed=seed, success=seed < count) for task, count in enumerate(won) for seed in range(5)]

    by_task = observed(lambda stream: reliability.success(rows(stream)), 2 / 3, SAMPLES)
    by_run = observed(lambda stream: reliability.success(rows(stream), RUNS), 2 / 3, SAMPLES)
    assert holds(by_task, SAMPLES)
    assert not holds(by_run, SAMPLES)


def test_clusters_of_actions_cover_at_their_rate() -> None:
    def draw(stream: numpy.random.Generator) -> Estimate:
        sizes = stream.integers(1, 9, 30)
        return clustered(
            [(int(stream.binomial(size, p)), int(size)) for size, p in zip(sizes, stream.beta(2, 2, 30), strict=True)]
        )

    assert holds(observed(draw, 0.5, 2_000), 2_000)


@pytest.mark.full
@pytest.mark.usefixtures("fewer")
@pytest.mark.parametrize("tasks", [5, 30])
def test_the_estimators_over_several_runs_of_a_task_cover_at_their_rate(tasks: int, row: Any) -> None:
    """pass^2 and success@2 of tasks with rates p of their own (beta 2, 1): E p^2 = 1/2, E 1 - (1 - p)^2 = 5/6."""

    def rows(stream: numpy.random.Generator) -> list[Any]:
        won = stream.binomial(4, stream.beta(2, 1, tasks))
        return [row(item=str(task), seed=seed, success=seed < count) for task, count in enumerate(won) for seed in range(4)]

    assert holds(observed(lambda stream: pass_hat(rows(stream), 2), 1 / 2, 200), 200)
    assert holds(observed(lambda stream: success_at_unbiased(rows(stream), 2), 5 / 6, 200), 200)


# -- enumerated -------------------------------------------------------------------------------------------------------


def covered_pairs(n: int) -> list[float]:
    """The exact coverage of the paired difference for cell probabilities on a grid, over every table of n pairs."""
    cells = [(a, b, c, n - a - b - c) for a in range(n + 1) for b in range(n + 1 - a) for c in range(n + 1 - a - b)]
    ends = [difference(PairTable(both=a, only_old=b, only_new=c, neither=d)) for a, b, c, d in cells]
    low, high = numpy.array([end.low for end in ends]), numpy.array([end.high for end in ends])
    ways = math.lgamma(n + 1) - numpy.array([sum(math.lgamma(count + 1) for count in cell) for cell in cells])
    rates = []
    for tenths in product((1, 2, 4, 6), repeat=3):
        if sum(tenths) < 10:
            p = numpy.array([*tenths, 10 - sum(tenths)]) / 10
            weights = numpy.exp(ways + numpy.array(cells) @ numpy.log(p))
            truth = p[2] - p[1]
            rates.append(float(weights[(low <= truth + 1e-12) & (truth - 1e-12 <= high)].sum()))
    return rates


@pytest.mark.parametrize("n", [8, 15])
def test_paired_shares_cover_at_their_rate_on_average_and_never_far_below(n: int) -> None:
    rates = covered_pairs(n)
    assert math.fsum(rates) / len(rates) == pytest.approx(NOMINAL, abs=0.015)
    assert min(rates) > 0.89


def test_paired_shares_by_a_normal_approximation_are_noticed_as_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def wald(table: PairTable, confidence: float = NOMINAL) -> Estimate:
        n, b, c = table.pairs, table.only_old, table.only_new
        value, half = (c - b) / n, 1.96 * math.sqrt(max(0.0, b + c - (b - c) ** 2 / n)) / n
        return Estimate(value=value, low=value - half, high=value + half, n=n, confidence=confidence, method="wald")

    monkeypatch.setitem(globals(), "difference", wald)
    rates = covered_pairs(8)
    assert math.fsum(rates) / len(rates) < NOMINAL - 0.03
    assert min(rates) < 0.87
    assert paired.difference is not wald


def test_a_mean_of_few_shares_never_covers_below_its_rate() -> None:
    """Three tasks whose share is 0, 1/2 or 1: all outcomes enumerated, for many laws."""
    for weights in ((0.2, 0.6, 0.2), (0.05, 0.9, 0.05), (0.6, 0.1, 0.3), (0.1, 0.3, 0.6)):
        truth = weights[1] / 2 + weights[2]
        rate = sum(
            math.prod(weights[int(2 * value)] for value in values)
            for values in product((0, 0.5, 1), repeat=3)
            if covers(share_of(values), truth)
        )
        assert rate >= NOMINAL - 1e-9


def test_a_share_taken_one_standard_error_wide_is_noticed() -> None:
    """The checker itself: an interval at 68 % that calls itself 95 %."""
    from mat.measure.interval import wilson

    rates = []
    for p in (0.2, 0.5, 0.7):
        found = [wilson(successes, 40, 0.68) for successes in range(41)]
        rates.append(sum(float(binom.pmf(count, 40, p)) for count, one in enumerate(found) if covers(one, p)))
    assert all(not holds(rate, 400) for rate in rates)
