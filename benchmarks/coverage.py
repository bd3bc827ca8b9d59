"""Do intervals cover as often as they state? Every interval method of `mat.measure`, by enumeration or simulation.

Where the outcomes can be enumerated, coverage is exact: the mean over true values, and the least of them. Elsewhere runs are
drawn from a known distribution again and again; `error` is then twice the Monte Carlo standard error of the coverage. The last
column judges: "nominal" within a point or three standard errors of what is stated, else "above" or "below" it. Above is the
safe side: exact methods and those that stand in for what a handful of runs cannot tell are there on purpose.

An end that the data do not bound counts as infinite. Data that say nothing (no success at all) state no interval and are left
out.

Run: python benchmarks/coverage.py [--simulations 1000] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy
from scipy.stats import binom

from mat.measure import analytic
from mat.measure.bootstrap import Method, mean_of, ratio_of, share_of
from mat.measure.containment import clustered
from mat.measure.distribution import quantile
from mat.measure.estimate import Estimate
from mat.measure.interval import clopper_pearson, wilson
from mat.measure.paired import PairTable, difference, paired_difference
from mat.measure.sequential import sequential_estimate

NOMINAL = 0.95
AT_ONCE = 20_000
"""Samples where all of them are measured in one call."""
SLACK = 0.01
"""Distance from the stated rate that counts as nominal: proportions jump from count to count, and a point harms nobody."""
Draw = Callable[[numpy.random.Generator], Estimate]


@dataclass(frozen=True)
class Line:
    """One method on one kind of data. `least`: over true values, where they were enumerated."""

    method: str
    data: str
    n: int
    coverage: float
    error: float
    least: float | None = None

    @property
    def verdict(self) -> str:
        slack = max(SLACK, 1.5 * self.error)
        return "nominal" if abs(self.coverage - NOMINAL) <= slack else "above" if self.coverage > NOMINAL else "below"


def covers(estimate: Estimate, truth: float) -> bool:
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    return low - 1e-12 <= truth <= high + 1e-12


# -- enumerated -------------------------------------------------------------------------------------------------------


def of_shares(name: str, method: Callable[[int, int], Estimate], n: int) -> Line:
    """Over true shares 0.005, 0.015, ... 0.995, weighed alike."""
    found = [method(successes, n) for successes in range(n + 1)]
    rates = []
    for index in range(100):
        p = (index + 0.5) / 100
        weights = binom.pmf(range(n + 1), n, p)
        rates.append(math.fsum(w for w, estimate in zip(weights, found, strict=True) if covers(estimate, p)))
    inner = rates[5:95]
    return Line(name, "a share", n, math.fsum(rates) / len(rates), 0.0, min(inner))


def of_differences(n: int) -> Line:
    """Newcombe's over pairs with cell probabilities on a grid of tenths, every table enumerated."""
    tables = [
        (a, b, c, n - a - b - c) for a in range(n + 1) for b in range(n + 1 - a) for c in range(n + 1 - a - b)
    ]  # fmt: skip
    ends = [difference(PairTable(both=a, only_old=b, only_new=c, neither=d)) for a, b, c, d in tables]
    low, high = numpy.array([end.low for end in ends]), numpy.array([end.high for end in ends])
    counts = numpy.array(tables)
    log_factorial = numpy.array([math.lgamma(count + 1) for count in range(n + 1)])
    ways = log_factorial[n] - log_factorial[counts].sum(axis=1)
    rates = []
    for tenths in product(range(1, 8), repeat=3):
        if sum(tenths) < 10:
            cells = numpy.array([*tenths, 10 - sum(tenths)]) / 10
            weights = numpy.exp(ways + counts @ numpy.log(cells))
            truth = cells[2] - cells[1]
            rates.append(float(weights[(low <= truth + 1e-12) & (truth - 1e-12 <= high)].sum()))
    return Line("newcombe", "paired shares", n, math.fsum(rates) / len(rates), 0.0, min(rates))


def of_quantile(percent: int, n: int) -> Line:
    """Of a continuous distribution: the ranks decide, so the coverage is a sum of binomial probabilities."""
    found = quantile(range(1, n + 1), percent)  # ranks as values
    below = 0 if found.low is None else int(found.low)
    above = n + 1 if found.high is None else int(found.high)
    rate = float(binom.cdf(above - 1, n, percent / 100) - binom.cdf(below - 1, n, percent / 100))
    return Line("order statistics", f"{percent} % quantile", n, rate, 0.0, rate)


# -- simulated --------------------------------------------------------------------------------------------------------


def simulated(name: str, data: str, n: int, truth: float, draw: Draw, times: int) -> Line:
    stream = numpy.random.default_rng([n, *f"{name}/{data}".encode()])
    found = [estimate for estimate in (draw(stream) for _ in range(times)) if estimate.known]
    return _line(name, data, n, sum(covers(estimate, truth) for estimate in found), len(found))


def _line(name: str, data: str, n: int, hits: int, times: int) -> Line:
    rate = hits / times
    return Line(name, data, n, rate, 2 * math.sqrt(max(rate * (1 - rate), NOMINAL * (1 - NOMINAL)) / times))


@dataclass(frozen=True)
class Numbers:
    """A distribution of a number of a run, and its mean."""

    name: str
    draw: Callable[[numpy.random.Generator, int], Any]
    mean: float


NUMBERS = (
    Numbers("steps, bell-shaped", lambda stream, n: numpy.rint(stream.normal(200, 40, n)), 200.0),
    Numbers("tool calls, geometric", lambda stream, n: stream.geometric(0.2, n).astype(float), 5.0),
    Numbers("tokens, skewed (gamma 2)", lambda stream, n: stream.gamma(2, 500, n), 1000.0),
    Numbers("tokens, heavy tail (lognormal 1)", lambda stream, n: stream.lognormal(0, 1, n), math.exp(0.5)),
)
SUCCESS = 0.7


def tokens_and_success(numbers: Numbers, stream: numpy.random.Generator, n: int) -> list[tuple[float, float]]:
    """Runs that fail use half as much again."""
    won = (stream.random(n) < SUCCESS).astype(float)
    return list(zip((numbers.draw(stream, n) * (1.5 - 0.5 * won)).tolist(), won.tolist(), strict=True))


def per_success(numbers: Numbers) -> float:
    return numbers.mean * (SUCCESS + 1.5 * (1 - SUCCESS)) / SUCCESS


def resampled(method: Method, n: int, times: int) -> Iterator[Line]:
    for numbers in NUMBERS:
        if method == "abc":
            yield from _at_once(numbers, n, AT_ONCE)
            continue
        yield simulated(
            f"{method}, mean", numbers.name, n, numbers.mean,
            lambda stream, numbers=numbers: mean_of(numbers.draw(stream, n).tolist(), method=method), times,
        )  # fmt: skip
        yield simulated(
            f"{method}, ratio", numbers.name, n, per_success(numbers),
            lambda stream, numbers=numbers: ratio_of(tokens_and_success(numbers, stream, n), method=method), times,
        )  # fmt: skip


def _at_once(numbers: Numbers, n: int, times: int) -> Iterator[Line]:
    """All simulations as groups of one call."""
    stream = numpy.random.default_rng([n, *numbers.name.encode()])
    groups = numpy.repeat(numpy.arange(times), n)
    pairs = numpy.array(tokens_and_success(numbers, stream, n * times))
    alone = numbers.draw(stream, n * times)
    bounds = analytic.mean(analytic.power_sums(alone, groups=groups))
    yield _bounded("abc, mean", numbers.name, n, numbers.mean, bounds)
    bounds = analytic.ratio(analytic.power_sums(pairs[:, 0], pairs[:, 1], groups))
    yield _bounded("abc, ratio", numbers.name, n, per_success(numbers), bounds)


def _bounded(name: str, data: str, n: int, truth: float, bounds: analytic.Bounds) -> Line:
    known = ~numpy.isnan(bounds.value)
    low, high = (numpy.nan_to_num(end, nan=side) for end, side in ((bounds.low, -math.inf), (bounds.high, math.inf)))
    hits = int((known & (low <= truth) & (truth <= high)).sum())
    return _line(name, data, n, hits, int(known.sum()))


def by_task(tasks: int, each: int, times: int) -> Iterator[Line]:
    """Runs of a task are alike: success with a rate of the task's own (beta 2, 1), tokens around the task's own mean."""

    def rates(stream: numpy.random.Generator) -> Estimate:
        won = stream.binomial(each, stream.beta(2, 1, tasks))
        return clustered([(int(count), each) for count in won])

    def means(stream: numpy.random.Generator) -> Estimate:
        tokens = stream.normal(stream.normal(1000, 300, tasks).repeat(each), 100)
        return mean_of(tokens.tolist(), by=numpy.arange(tasks).repeat(each).tolist())

    def shares(stream: numpy.random.Generator) -> Estimate:
        return share_of((stream.binomial(each, stream.beta(2, 1, tasks)) / each).tolist())

    said = f"{each} runs of each task"
    yield simulated("wilson-clustered", f"success, {said}", tasks, 2 / 3, rates, times)
    yield simulated("percentile by task", f"tokens, {said}", tasks, 1000, means, times)
    yield simulated("mean of shares", f"share of {each}", tasks, 2 / 3, shares, times)


def of_pairs(n: int, times: int) -> Line:
    def draw(stream: numpy.random.Generator) -> Estimate:
        task = stream.gamma(2, 500, n)
        return paired_difference(zip(task.tolist(), (task + stream.normal(50, 100, n)).tolist(), strict=True))

    return simulated("paired bootstrap", "tokens, same tasks", n, 50, draw, times)


def of_lifetimes(n: int, times: int) -> Line:
    """Failures as likely at every step, 2 %; episodes end at 60 steps. The mean time is 50 steps."""

    def draw(stream: numpy.random.Generator) -> Estimate:
        until = stream.geometric(0.02, n)
        return ratio_of((min(int(steps), 60), int(steps <= 60)) for steps in until)

    return simulated("mtbf, censored", "2 % a step, 60 steps at most", n, 50, draw, times)


def of_first_runs(tasks: int, times: int) -> Line:
    """pass^2 over tasks of four runs, with rates of their own (beta 2, 1): E p^2 = 1/2."""

    def draw(stream: numpy.random.Generator) -> Estimate:
        won = stream.binomial(4, stream.beta(2, 1, tasks))
        return share_of([_pass_2(int(count)) for count in won])

    return simulated("mean of shares", "pass^2, 4 runs of each task", tasks, 0.5, draw, times)


def _pass_2(won: int) -> float:
    return math.comb(won, 2) / math.comb(4, 2)


def lines(times: int) -> Iterator[Line]:
    for n in (5, 10, 30, 100):
        yield of_shares("wilson", wilson, n)
        yield of_shares("clopper-pearson", clopper_pearson, n)
        yield of_shares("beta-binomial (anytime)", sequential_estimate, n)
    for n in (10, 25):
        yield of_differences(n)
    for percent, n in ((50, 10), (50, 100), (90, 50), (90, 200), (99, 1000)):
        yield of_quantile(percent, n)
    for n in (10, 30, 100):
        yield from resampled("percentile", n, times)
    for n in (30, 100):
        yield from resampled("bca", n, times)
    for n in (10, 30, 100, 1000):
        yield from resampled("abc", n, times)
    for tasks in (10, 30):
        yield from by_task(tasks, 4, times)
        yield of_pairs(tasks, times)
        yield of_first_runs(tasks, times)
        yield of_lifetimes(tasks, times)


def row(line: Line) -> tuple[str, ...]:
    error = f"{100 * line.error:.1f}" if line.error else "exact"
    least = "-" if line.least is None else f"{100 * line.least:.1f}"
    return line.method, line.data, str(line.n), f"{100 * line.coverage:.1f}", error, least, line.verdict


HEADER = ("method", "data", "n", "coverage %", "error", "least", "verdict")


TEXT = "{:<24} {:<34} {:>5} {:>11} {:>6} {:>6}  {}"
MARKDOWN = "| " + " | ".join(["{}"] * len(HEADER)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of every interval method.")
    parser.add_argument("--simulations", type=int, default=1_000, help="samples of each kind of data that are resampled")
    parser.add_argument("--markdown", action="store_true", help="the table as it stands in the documentation")
    given = parser.parse_args()
    form = MARKDOWN if given.markdown else TEXT
    print(form.format(*HEADER) + ("\n|" + "---|" * len(HEADER) if given.markdown else ""))
    found = []
    for line in lines(given.simulations):
        found.append(line)
        print(form.format(*row(line)), flush=True)
    kept = {"method", "data", "n", "coverage", "verdict"}
    data = [{name: getattr(line, name) for name in sorted(kept)} for line in found]
    print(json.dumps({"nominal": NOMINAL, "simulations": given.simulations, "lines": data}))


if __name__ == "__main__":
    main()
