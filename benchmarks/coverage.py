"""Measures the coverage of every interval method of `mat.measure`, by enumeration or simulation.

Where the outcomes can be enumerated, coverage is exact: the mean over true values, and the least with the value it is at (L.
Brown, T. Cai, A. DasGupta, Statistical Science 16 (2001): Wilson's and Newcombe's hold on average over true values, exact ones
at every value). Otherwise runs are drawn repeatedly from a known distribution; `s.e.` is the Monte Carlo standard error.

"covers": not below 95 % by more than three of these standard errors; if enumerated, not below it at all: in the mean if the
method states that, otherwise at the least. An end that the data do not bound counts as infinite, so the samples with both ends
must pass the same test alone ("closed"). "below" is anything else. "no interval": too few runs to state one. Data that say
nothing (no success at all, all runs alike) state no interval and are left out.

Resampling methods get --simulations samples with --resamples resamples each: the test is where quantiles are taken, and fewer
resamples only make ends rougher. The analytic method gets ten times as many samples, all at once.

Run: python benchmarks/coverage.py [--simulations 2000] [--resamples 2000] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy
from scipy.stats import binom

from mat.core.curve import ScheduleResult
from mat.measure import analytic, bootstrap, noninferiority, robustness
from mat.measure.bootstrap import BootstrapMethod, mean_of, ratio_of, share_of
from mat.measure.claims import Labelled, agreement
from mat.measure.distribution import quantile
from mat.measure.drift import DriftRow, drift
from mat.measure.estimate import Estimate
from mat.measure.guard import LEAST
from mat.measure.interval import clopper_pearson, wilson
from mat.measure.paired import PairTable, difference, paired_contrast, paired_difference
from mat.measure.robustness import CurveRow, curves
from mat.measure.sampling import clustered
from mat.measure.sequential import sequential_estimate

NOMINAL = 0.95
ALLOWED = 3
"""Standard errors below the stated rate that chance explains."""
Draw = Callable[[numpy.random.Generator], Estimate]
Promise = Literal["mean", "least"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One method on one kind of data.

    `times`: samples, 0 where enumerated. `closed`: samples with both ends, and `both`: how often those cover. `least` is the
    lowest coverage over true values, found at `worst`; `promise`: whether the method states the mean or the least.
    """

    method: str
    data: str
    n: int
    coverage: float
    times: int = 0
    closed: int = 0
    both: float | None = None
    least: float | None = None
    worst: str = ""
    promise: Promise = "mean"

    @property
    def error(self) -> float:
        return _standard_error(self.times)

    @property
    def verdict(self) -> str:
        if self.times and not self.closed and self.both is None:
            return "no interval"
        judged = self.least if self.promise == "least" and self.least is not None else self.coverage
        covers = judged >= NOMINAL - ALLOWED * self.error - 1e-9
        if self.both is not None:
            covers = covers and self.both >= NOMINAL - ALLOWED * _standard_error(self.closed)
        return "covers" if covers else "below"


def _standard_error(times: int) -> float:
    """The standard error of a rate of 95 % in `times` samples."""
    return math.sqrt(NOMINAL * (1 - NOMINAL) / times) if times else 0.0


def covers(estimate: Estimate, truth: float) -> bool:
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    return low - 1e-12 <= truth <= high + 1e-12


# -- enumerated -------------------------------------------------------------------------------------------------------


def of_shares(name: str, method: Callable[[int, int], Estimate], n: int, promise: Promise) -> Line:
    """Coverage over true shares 0.0005, 0.0015, ... 0.9995, with equal weights."""
    found = [method(successes, n) for successes in range(n + 1)]
    low, high = (numpy.array([getattr(estimate, end) for estimate in found]) for end in ("low", "high"))
    p = (numpy.arange(1000) + 0.5) / 1000
    weights = binom.pmf(numpy.arange(n + 1)[:, None], n, p)
    rates = numpy.where((low[:, None] <= p + 1e-12) & (p - 1e-12 <= high[:, None]), weights, 0.0).sum(axis=0)
    place = int(rates.argmin())
    return Line(
        method=name, data="a share", n=n, coverage=float(rates.mean()), least=float(rates[place]), promise=promise,
        worst=f"{100 * min(p[place], 1 - p[place]):.1f} %",
    )  # fmt: skip


def of_differences(n: int) -> Line:
    """Coverage of Newcombe's interval for pairs, with every table enumerated, over an even grid of cell probabilities."""
    tables = [(a, b, c, n - a - b - c) for a in range(n + 1) for b in range(n + 1 - a) for c in range(n + 1 - a - b)]
    ends = [difference(PairTable(both=a, only_old=b, only_new=c, neither=d)) for a, b, c, d in tables]
    low, high = numpy.array([end.low for end in ends]), numpy.array([end.high for end in ends])
    counts = numpy.array(tables)
    log_factorial = numpy.array([math.lgamma(count + 1) for count in range(n + 1)])
    ways = log_factorial[n] - log_factorial[counts].sum(axis=1)
    rates: dict[str, float] = {}
    for parts in product(range(10), repeat=3):
        if sum(parts) < 10:
            cells = (numpy.array([*parts, 9 - sum(parts)]) + 0.5) / 11
            weights = numpy.exp(ways + counts @ numpy.log(cells))
            truth = cells[2] - cells[1]
            place = f"{100 * (cells[0] + cells[1]):.0f} and {100 * (cells[0] + cells[2]):.0f} %"
            rate = float(weights[(low <= truth + 1e-12) & (truth - 1e-12 <= high)].sum())
            rates[place] = min(rate, rates.get(place, 1.0))
            rates.setdefault("sum", 0.0)
            rates["sum"] += rate
    mean = rates.pop("sum") / 220
    worst = min(rates, key=lambda place: rates[place])
    return Line(method="newcombe", data="paired shares", n=n, coverage=mean, least=rates[worst], worst=worst)


def of_quantile(percent: int, n: int) -> Line:
    """Coverage for a continuous distribution: only ranks matter, so it is a sum of binomial probabilities."""
    found = quantile(range(1, n + 1), percent)  # ranks as values
    below = 0 if found.low is None else int(found.low)
    above = n + 1 if found.high is None else int(found.high)
    rate = float(binom.cdf(above - 1, n, percent / 100) - binom.cdf(below - 1, n, percent / 100))
    return Line(method="order statistics", data=f"{percent} % quantile", n=n, coverage=rate, least=rate, promise="least")


# -- simulated --------------------------------------------------------------------------------------------------------


def simulated(name: str, data: str, n: int, truth: float, draw: Draw, times: int) -> Line:
    stream = numpy.random.default_rng([n, *f"{name}/{data}".encode()])
    found = [estimate for estimate in (draw(stream) for _ in range(times)) if estimate.known and "alike" not in estimate.method]
    hits = numpy.array([covers(estimate, truth) for estimate in found])
    closed = numpy.array([estimate.low is not None and estimate.high is not None for estimate in found])
    return _line_of(name, data, n, hits, closed)


def _line_of(name: str, data: str, n: int, hits: Any, closed: Any) -> Line:
    both = float(hits[closed].mean()) if closed.any() else None
    return Line(
        method=name, data=data, n=n, coverage=float(hits.mean()), times=len(hits), closed=int(closed.sum()), both=both
    )  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """The distribution of one number of a run, and its mean."""

    name: str
    draw: Callable[[numpy.random.Generator, Any], Any]
    mean: float


NUMBERS = (
    Numbers("steps, bell-shaped", lambda stream, size: numpy.rint(stream.normal(200, 40, size)), 200.0),
    Numbers("tool calls, geometric", lambda stream, size: stream.geometric(0.2, size).astype(float), 5.0),
    Numbers("steps cut at 60, left tail", lambda stream, size: 60.0 - numpy.minimum(59, stream.geometric(0.2, size)),
            60 - 5 * (1 - 0.8**59)),
    Numbers("tokens, skewed (gamma 2)", lambda stream, size: stream.gamma(2, 500, size), 1000.0),
    Numbers("tokens, heavy tail (lognormal 1)", lambda stream, size: stream.lognormal(0, 1, size), math.exp(0.5)),
)  # fmt: skip
FEW_CALLS = Numbers("calls, one and seldom more", lambda stream, size: 1.0 + stream.poisson(0.3, size), 1.3)
RETRIES = Numbers(
    "one in ten three times as large",
    lambda stream, size: stream.normal(200, 40, size) * (1 + 2 * (stream.random(size) < 0.1)), 240.0,
)  # fmt: skip
RATES = (0.7, 0.95)
"""Shares of runs that succeed."""


def tokens_and_success(numbers: Numbers, rate: float, stream: numpy.random.Generator, size: Any) -> tuple[Any, Any]:
    """Failing runs use 50 % more tokens."""
    won = (stream.random(size) < rate).astype(float)
    return numbers.draw(stream, size) * (1.5 - 0.5 * won), won


def per_success(numbers: Numbers, rate: float) -> float:
    return numbers.mean * (rate + 1.5 * (1 - rate)) / rate


def resampled(method: BootstrapMethod, numbers: Numbers, n: int, times: int) -> Iterator[Line]:
    yield simulated(
        f"{method}, mean", numbers.name, n, numbers.mean,
        lambda stream: mean_of(numbers.draw(stream, n).tolist(), method=method), times,
    )  # fmt: skip
    for rate in RATES if n < 100 else RATES[:1]:

        def draw(stream: numpy.random.Generator, rate: float = rate) -> Estimate:
            tokens, won = tokens_and_success(numbers, rate, stream, n)
            return ratio_of(zip(tokens.tolist(), won.tolist(), strict=True), method=method)

        yield simulated(
            f"{method}, ratio", f"{numbers.name}; {100 * rate:.0f} % succeed", n, per_success(numbers, rate), draw, times
        )  # fmt: skip


def at_once(numbers: Numbers, n: int, times: int) -> Iterator[Line]:
    """Like a store: all samples are groups of one call, computed from sums."""

    def mean(stream: numpy.random.Generator, size: int) -> analytic.Bounds:
        return analytic.guarded_mean(sums_of(numbers.draw(stream, (size, n)), numpy.ones((size, n))))

    yield _grouped("abc, mean", numbers.name, n, numbers.mean, mean, times)
    for rate in RATES:

        def ratio(stream: numpy.random.Generator, size: int, rate: float = rate) -> analytic.Bounds:
            return analytic.guarded_ratio(sums_of(*tokens_and_success(numbers, rate, stream, (size, n))))

        data = f"{numbers.name}; {100 * rate:.0f} % succeed"
        yield _grouped("abc, ratio", data, n, per_success(numbers, rate), ratio, times)


def sums_of(x: Any, y: Any) -> analytic.PowerSums:
    """The sums of samples, one row per sample."""

    def total(values: Any) -> Any:
        return values.sum(axis=1)

    return analytic.PowerSums(
        n=numpy.full(len(x), float(x.shape[1])), x=total(x), y=total(y), xx=total(x * x), xy=total(x * y), yy=total(y * y),
        xxx=total(x**3), xxy=total(x * x * y), xyy=total(x * y * y), yyy=total(y**3),
    )  # fmt: skip


def _grouped(
    name: str, data: str, n: int, truth: float, draw: Callable[[numpy.random.Generator, int], analytic.Bounds], times: int
) -> Line:
    stream = numpy.random.default_rng([n, *f"{name}/{data}".encode()])
    hits, closed = [], []
    for _ in range(10):
        found = draw(stream, times // 10)
        known = ~numpy.isnan(found.value)
        low, high = numpy.nan_to_num(found.low, nan=-math.inf), numpy.nan_to_num(found.high, nan=math.inf)
        hits.append(((low <= truth) & (truth <= high))[known])
        closed.append((numpy.isfinite(low) & numpy.isfinite(high))[known])
    return _line_of(name, data, n, numpy.concatenate(hits), numpy.concatenate(closed))


# -- runs that hang together, pairs, and the rest ---------------------------------------------------------------------


def by_task(tasks: int, times: int) -> Iterator[Line]:
    """Four correlated runs per task: success with a rate of the task's own (beta 2, 1), tokens around the task's own mean."""
    owner = numpy.arange(tasks).repeat(4).tolist()

    def rates(stream: numpy.random.Generator) -> Estimate:
        won = stream.binomial(4, stream.beta(2, 1, tasks))
        return clustered([(int(count), 4) for count in won])

    def means(stream: numpy.random.Generator) -> Estimate:
        tokens = stream.normal(stream.normal(1000, 300, tasks).repeat(4), 100)
        return mean_of(tokens.tolist(), by=owner)

    def prices(stream: numpy.random.Generator) -> Estimate:
        tokens = stream.normal(stream.normal(1000, 300, tasks).repeat(4), 100)
        won = stream.random(4 * tasks) < stream.beta(2, 1, tasks).repeat(4)
        return ratio_of(zip(tokens.tolist(), won.tolist(), strict=True), by=owner)

    yield simulated("wilson-clustered", "success, 4 runs of each task", tasks, 2 / 3, rates, times)
    yield simulated("percentile by task", "tokens, 4 runs of each task", tasks, 1000, means, times)
    yield simulated("percentile by task", "tokens per success, 4 runs of each", tasks, 1500, prices, times)


def of_task_shares(tasks: int, times: int) -> Iterator[Line]:
    """Means over tasks of a share of four runs: as it is, pass^2 and success@2; tasks of which few fail at all; and drift."""
    kinds: dict[str, tuple[float, list[float]]] = {
        "share of 4 runs": (1.0, [0, 0.25, 0.5, 0.75, 1]),
        "pass^2 of 4 runs": (1.0, [math.comb(count, 2) / 6 for count in range(5)]),
        "success@2 of 4 runs": (1.0, [1 - math.comb(4 - count, 2) / 6 for count in range(5)]),
        "share of 4 runs, few fail": (0.1, [0, 0.25, 0.5, 0.75, 1]),
        "success@2 of 4 runs, few fail": (0.25, [1 - math.comb(4 - count, 2) / 6 for count in range(5)]),
    }
    for name, (b, value) in kinds.items():
        truth = math.fsum(chance * value[count] for count, chance in enumerate(_beta_binomial(2, b)))

        def draw(stream: numpy.random.Generator, b: float = b, value: list[float] = value) -> Estimate:
            return share_of([value[count] for count in stream.binomial(4, stream.beta(2, b, tasks))])

        yield simulated("mean of shares", name, tasks, truth, draw, times)

    def drifting(stream: numpy.random.Generator) -> Estimate:
        rows = [DriftRow(agent="a", steps=4, outside=int(count)) for count in stream.binomial(4, stream.beta(2, 1, tasks))]
        return drift(rows)[0].score

    yield simulated("wilson-mean", "drift, 4 actions a run", tasks, 2 / 3, drifting, times)


def _beta_binomial(a: float, b: float) -> list[float]:
    """The probabilities of 0 to 4 successes in 4 runs, if the rate has the distribution beta(a, b)."""

    def log_beta(p: float, q: float) -> float:
        return math.lgamma(p) + math.lgamma(q) - math.lgamma(p + q)

    return [math.comb(4, count) * math.exp(log_beta(a + count, b + 4 - count) - log_beta(a, b)) for count in range(5)]


def of_curves(items: int, times: int) -> Line:
    """R(B) at the largest budget under random schedules: two chains an item, each kept at the item's own rate (beta 2, 1)."""

    def draw(stream: numpy.random.Generator) -> Estimate:
        kept = stream.binomial(2, stream.beta(2, 1, items))
        rows = [_curve_row(item, [chain < count for chain in range(2)]) for item, count in enumerate(kept)]
        found = (each for each in curves(rows) if (each.kind, each.measure, each.category) == ("random", "success", "all"))
        return next(found).last.estimate

    return simulated("robustness, over items", "R(1), 2 chains of each item", items, 2 / 3, draw, times)


def _curve_row(item: int, answers: list[bool]) -> CurveRow:
    start = ScheduleResult(cost=0, success=True, broken=(), unjudged=False)
    chains = tuple((start, ScheduleResult(cost=1, success=answer, broken=(), unjudged=False)) for answer in answers)
    return CurveRow(item=str(item), category="", budget=1, bound=1, executed=(), chains=chains)


def of_pairs(n: int, times: int) -> Iterator[Line]:
    def means(stream: numpy.random.Generator) -> Estimate:
        task = stream.gamma(2, 500, n)
        return paired_difference(zip(task.tolist(), (task + stream.normal(50, 100, n)).tolist(), strict=True))

    def heavy(stream: numpy.random.Generator) -> Estimate:
        return paired_difference((0.0, float(more)) for more in stream.lognormal(0, 1, n))

    def prices(stream: numpy.random.Generator) -> Estimate:
        task, old, new = stream.gamma(2, 500, n), stream.random(n) < 0.7, stream.random(n) < 0.8
        return paired_contrast(zip(task.tolist(), old.tolist(), (1.1 * task).tolist(), new.tolist(), strict=True))

    yield simulated("paired bootstrap", "tokens, same tasks", n, 50, means, times)
    yield simulated("paired bootstrap", "difference with a heavy tail", n, math.exp(0.5), heavy, times)
    yield simulated("paired bootstrap", "tokens per success, same tasks", n, 1100 / 0.8 - 1000 / 0.7, prices, times)


def of_betting(n: int, times: int) -> Line:
    """An anytime-valid interval, read once: one pair in ten lost, one in twenty gained."""

    def draw(stream: numpy.random.Generator) -> Estimate:
        signs = stream.choice([-1, 0, 1], n, p=[0.1, 0.85, 0.05])
        return noninferiority.difference(noninferiority.units_of((place, int(sign)) for place, sign in enumerate(signs)))

    return simulated("paired betting (anytime)", "10 % lost, 5 % gained", n, -0.05, draw, times)


def of_lifetimes(n: int, times: int) -> Line:
    """Each step fails with a probability of 2 %; episodes end at 60 steps. The mean time is 50 steps."""

    def draw(stream: numpy.random.Generator) -> Estimate:
        until = stream.geometric(0.02, n)
        return ratio_of((min(int(steps), 60), int(steps <= 60)) for steps in until)

    return simulated("mtbf, censored", "2 % a step, 60 steps at most", n, 50, draw, times)


def of_judges(n: int, times: int) -> Line:
    """Cohen's kappa of a judge who repeats the label in 85 of 100 cases, and otherwise picks one of the other words evenly."""
    words: tuple[Any, ...] = ("supported", "unsupported", "unknown")
    labels = numpy.array([0.6, 0.3, 0.1])
    said = 0.85 * labels + 0.15 * (1 - labels) / 2
    chance = float(labels @ said)

    def draw(stream: numpy.random.Generator) -> Estimate:
        label = stream.choice(3, n, p=labels)
        answer = numpy.where(stream.random(n) < 0.85, label, (label + stream.integers(1, 3, n)) % 3)
        items = [Labelled(claim=words[said], texts=(), label=words[one]) for one, said in zip(label, answer, strict=True)]
        return agreement(lambda claim, texts: claim, items).kappa  # type: ignore[arg-type, return-value]

    return simulated("cohen, wilson", "a judge right in 85 %", n, (0.85 - chance) / (1 - chance), draw, times)


def lines(times: int) -> Iterator[Line]:
    for n in (5, 10, 30, 100):
        yield of_shares("wilson", wilson, n, "mean")
        yield of_shares("clopper-pearson", clopper_pearson, n, "least")
        yield of_shares("beta-binomial (anytime)", sequential_estimate, n, "least")
    for n in (10, 25):
        yield of_differences(n)
    for percent, n in ((50, 10), (50, 100), (90, 50), (90, 200), (99, 1000)):
        yield of_quantile(percent, n)
    yield from at_once(NUMBERS[0], LEAST - 1, 10 * times)
    for numbers in (*NUMBERS, FEW_CALLS):
        for n in (LEAST, 30, 100, 1000):
            yield from at_once(numbers, n, 10 * times)
    yield from resampled("percentile", NUMBERS[0], LEAST - 1, times)
    for numbers in NUMBERS:
        for n in (LEAST, 30, 100):
            yield from resampled("percentile", numbers, n, times)
    for numbers in (NUMBERS[0], *NUMBERS[3:]):
        for n in (30, 100):
            yield from resampled("bca", numbers, n, times)
    for tasks in (10, 30):
        yield from by_task(tasks, times)
        yield from of_task_shares(tasks, times)
        yield of_curves(tasks, times)
        yield from of_pairs(tasks, times)
        yield of_lifetimes(tasks, times)
    yield of_betting(50, times // 4)
    for n in (30, 100):
        yield of_judges(n, times)


def beyond(times: int) -> Iterator[Line]:
    """A tail that samples may miss: a third of all samples of ten contain none of the large values."""
    for n in (10, 30, 100):
        yield next(at_once(RETRIES, n, 10 * times))


HEADER = ("method", "data", "n", "coverage %", "s.e.", "least", "open %", "closed %", "verdict")
TEXT = "{:<25} {:<49} {:>5} {:>10} {:>5} {:<22} {:>6} {:>8}  {}"
MARKDOWN = "| " + " | ".join(["{}"] * len(HEADER)) + " |"


def row(line: Line) -> tuple[str, ...]:
    least = "" if line.least is None else f"{100 * line.least:.1f}" + (f" at {line.worst}" if line.worst else "")
    refused = line.verdict == "no interval"
    said = line.method, line.data, str(line.n), "" if refused else f"{100 * line.coverage:.1f}"
    if not line.times:
        return *said, "exact", least, "", "", line.verdict
    both = "" if line.both is None or line.closed == line.times else f"{100 * line.both:.1f}"
    return *said, f"{100 * line.error:.2f}", least, f"{100 * (1 - line.closed / line.times):.0f}", both, line.verdict


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of every interval method.")
    parser.add_argument("--simulations", type=int, default=2_000, help="samples of each kind of data that are resampled")
    parser.add_argument("--resamples", type=int, default=2_000, help="resamples of each sample")
    parser.add_argument("--markdown", action="store_true", help="print the tables as in the documentation")
    given = parser.parse_args()
    bootstrap.RESAMPLES = robustness.RESAMPLES = given.resamples  # type: ignore[misc]
    form = MARKDOWN if given.markdown else TEXT
    head = form.format(*HEADER) + ("\n|" + "---|" * len(HEADER) if given.markdown else "")
    found = []
    for part in (lines, beyond):
        print(head if part is lines else "\nbeyond what runs show:\n" + head)
        for line in part(given.simulations):
            found += [line] if part is lines else []
            print(form.format(*row(line)), flush=True)
    data = [
        {"method": line.method, "data": line.data, "n": line.n, "coverage": line.coverage, "verdict": line.verdict}
        for line in found
    ]
    print(json.dumps({"nominal": NOMINAL, "simulations": given.simulations, "lines": data}))


if __name__ == "__main__":
    main()
