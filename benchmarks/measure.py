"""How fast the store is with very many runs: appending rows, all rates and ratios with intervals, and sums over steps.

Runs are synthetic: 100 groups (a category and a governance variant each) with rates of their own. They are appended as
columns, lists of Python values as they come from runs, to a store in a file; then every metric of `mat.measure.metrics` is
queried for all groups at once. For comparison, scipy's bootstrap (percentile and BCa) computes one ratio, tokens per success,
of one group in the same process. `scipy_ratio` is how many times longer scipy would take for that one ratio in all groups than
the store takes for all of them. Steps are rolled up by agent and kind, and by run. Times are the best of three, because other
programs on the machine only ever add to them. Each comes with the processor time of all threads together, which is the one to
compare on a busy machine. Run: python benchmarks/measure.py [RUNS [STEPS]]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import numpy
from scipy.stats import bootstrap

from mat.evidence.store import Store
from mat.evidence.store.schema import TABLES
from mat.kernel import clock
from mat.measure import sampling
from mat.measure.bootstrap import RESAMPLES
from mat.measure.metrics import METRICS

RUNS, STEPS, BATCH = 1_000_000, 10_000_000, 500_000
"""DuckDB writes rows by groups of 122,880; what comes in smaller batches is written twice."""
CATEGORIES, VARIANTS = 25, ("none", "shield", "shield + capabilities", "shield + routing")
GROUPS = CATEGORIES * len(VARIANTS)
STEPS_A_RUN = 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Wall-clock seconds and processor seconds."""

    wall: float
    cpu: float

    def __add__(self, other: Took) -> Took:
        return Took(wall=self.wall + other.wall, cpu=self.cpu + other.cpu)


def timed(function: Callable[[], T]) -> tuple[Took, T]:
    began, used = clock.real_perf_counter_ns(), process_time()
    found = function()
    return Took(wall=(clock.real_perf_counter_ns() - began) / 1e9, cpu=process_time() - used), found


def best_of_three(function: Callable[[], T]) -> tuple[Took, Took, T]:
    """The times of the best and of the first of three calls, and the result of the function."""
    times = [timed(function) for _ in range(3)]
    return min((took for took, _ in times), key=lambda took: took.wall), times[0][0], times[-1][1]


# -- made-up runs -----------------------------------------------------------------------------------------------------


def some_runs(start: int, count: int, draw: numpy.random.Generator) -> dict[str, list[Any]]:
    """Columns of the table runs."""
    group = draw.integers(0, GROUPS, count)
    good = draw.random(count) < 0.5 + group / (3 * GROUPS)
    steps = draw.integers(3, 40, count)
    broken = draw.random(count) < 0.2
    first = (draw.random(count) * steps).astype(int)
    faults, high = draw.integers(0, 4, count), draw.integers(0, 4, count)
    final, recorded = draw.integers(0, 5, count), draw.integers(0, 5, count)
    actions = high + draw.integers(0, 10, count)
    stopped = (high * draw.random(count)).astype(int)
    contained = (faults * draw.random(count)).astype(int)
    numbers: dict[str, Any] = {
        "run": numbers_of_runs(start, count), "place": numpy.zeros(count, int), "repeat": numpy.zeros(count, int),
        "seed": numpy.arange(count) % 10, "cost": faults, "steps": steps, "tool_calls": actions, "model_calls": steps - 2,
        "tokens": draw.integers(100, 200_000, count), "elapsed_ms": draw.integers(10, 500_000, count),
        "hard": broken.astype(int), "soft": faults,
        "effected": broken.astype(int), "final_step": steps - 1, "faults": faults, "detected": faults,
        "mitigated": numpy.maximum(contained, faults - 1), "contained": contained, "final_ok": numpy.where(broken, 0, faults),
        "allowed": actions - stopped, "rewritten": numpy.zeros(count, int), "blocked": stopped, "high_allowed": high - stopped,
        "high_rewritten": numpy.zeros(count, int), "high_blocked": stopped, "high_stopped": stopped, "claims_final": final,
        "claims_unsupported": (final * draw.random(count)).astype(int), "claims_recorded": recorded,
        "claims_propagated": (recorded * draw.random(count)).astype(int), "claims_unknown": numpy.zeros(count, int),
        "success": good, "collapsed": draw.random(count) < 0.05, "faulted": faults > 0, "harmed": broken & (faults > 0),
    }  # fmt: skip
    none = [None] * count
    columns = {name: values.tolist() for name, values in numbers.items()} | {
        "first_failure": [step if bad else None for step, bad in zip(first.tolist(), broken, strict=True)],
        "first_failure_ms": [step * 100 if bad else None for step, bad in zip(first.tolist(), broken, strict=True)],
        "key": [f"{number:064x}" for number in numbers["run"].tolist()],
        "category": [f"category-{number // len(VARIANTS):02}" for number in group.tolist()],
        "variant": [VARIANTS[number % len(VARIANTS)] for number in group.tolist()],
        "item": [f"test_shop.py::test_{number % 50}" for number in range(count)],
        "input": ["misuse" if number % 4 == 3 else "benign" for number in range(count)],
        "misuse": [
            ("refusal", "harmful", "partial", "other")[number % 3] if number % 4 == 3 else "" for number in range(count)
        ],
        "termination": ["horizon" if number % 25 == 0 else "completed" for number in range(count)],
        "outcome": ["fail" if bad else "pass" for bad in broken],
        "infrastructure": ["model timeout" if number % 97 == 0 else "" for number in range(count)],
    }
    constant = {"session": "nightly", "condition": "fault", "head": "0" * 64, "spec": "0" * 64, "config": "c" * 64}
    return {
        name: columns.get(name, none if kind != "VARCHAR" else [constant.get(name, "")] * count)
        for name, kind in TABLES["runs"].items()
    }


def numbers_of_runs(start: int, count: int) -> numpy.ndarray[Any, numpy.dtype[numpy.uint64]]:
    """Numbers spread like digests; no two are equal, because the multiplier is odd."""
    return (numpy.arange(start, start + count, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(11400714819323198485)


def some_steps(start: int, count: int) -> dict[str, list[Any]]:
    """Columns of the table steps: ten a run. Every batch holds the same steps, of other runs."""
    runs = numpy.repeat(numbers_of_runs(start // STEPS_A_RUN, count // STEPS_A_RUN), STEPS_A_RUN).tolist()
    return {**one_batch_of_steps(count), "run": runs}


@lru_cache(maxsize=2)
def one_batch_of_steps(count: int) -> dict[str, list[Any]]:
    rows = range(count)
    tools = [f"tool_{number}" for number in range(20)]
    kinds = ("model_call", "tool_call", "tool_call", "retrieval", "message")
    columns: dict[str, list[Any]] = {
        "run": [],
        "step": [row % STEPS_A_RUN for row in rows],
        "at_ms": [row % STEPS_A_RUN * 120 for row in rows],
        "sealed_ms": [row % STEPS_A_RUN * 120 + 80 for row in rows],
        "agent": ["planner" if row % 3 else "worker" for row in rows],
        "role": ["support" if row % 3 else "" for row in rows],
        "kind": [kinds[row % 5] for row in rows],
        "name": [tools[row % 20] for row in rows],
        "boundary": ["service" if row % 5 else "model" for row in rows],
        "site": [f"planner/service:{tools[row % 20]}#{row % 10}" for row in rows],
        "effect": ["write" if row % 4 == 0 else "read" for row in rows],
        "impact": ["high" if row % 11 == 0 else "low" for row in rows],
        "effected": ["unknown" if row % 30 == 0 else "yes" for row in rows],
        "arguments": [f'{{"order":"A-{row % 5000}","amount":{row % 500}}}' for row in rows],
        "decision": ["block" if row % 40 == 0 else "allow" if row % 2 else None for row in rows],
        "error": ["TimeoutError: timed out" if row % 30 == 0 else None for row in rows],
        "error_kind": ["timeout" if row % 30 == 0 else None for row in rows],
        "invoked": [1] * count,
        "faults": [int(row % 30 == 0) for row in rows],
        "tokens": [row % 900 for row in rows],
    }
    assert list(columns) == list(TABLES["steps"])
    return columns


def fill(store: Store, runs: int, steps: int) -> tuple[Took, Took]:
    """Append all rows in batches, and return the times for runs and for steps, including the write to disk."""
    draw, took = numpy.random.default_rng(7), [Took(wall=0, cpu=0)] * 2
    for start in range(0, runs, BATCH):
        columns = some_runs(start, min(BATCH, runs - start), draw)
        took[0] += timed(partial(store.append, "runs", columns))[0]
    for start in range(0, steps, BATCH):
        columns = some_steps(start, min(BATCH, steps - start))
        took[1] += timed(partial(store.append, "steps", columns))[0]
    return took[0], took[1]


# -- scipy for comparison ---------------------------------------------------------------------------------------------


def scipy_took(store: Store, method: str) -> tuple[Took, int]:
    """The time that scipy takes for one ratio over the runs of one group, and the number of those runs."""
    rows = store.query(
        "SELECT tokens, success FROM runs "
        "WHERE category = 'category-00' AND variant = 'none' AND infrastructure = '' ORDER BY run"
    ).rows
    tokens, success = numpy.array(rows, dtype=float).T
    took, _ = timed(
        lambda: bootstrap(
            (tokens, success), lambda x, y, axis: x.sum(axis=axis) / y.sum(axis=axis), paired=True, vectorized=True,
            n_resamples=RESAMPLES, method=method, batch=max(1, 2_000_000 // len(rows)), rng=numpy.random.default_rng(1),
        )
    )  # fmt: skip
    return took, len(rows)


def main() -> None:
    runs, steps = ([int(text) for text in sys.argv[1:]] + [RUNS, STEPS][len(sys.argv) - 1 :])[:2]
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "store.duckdb")) as store:
        took_runs, took_steps = fill(store, runs, steps)
        measured, cold, found = best_of_three(lambda: store.metrics(("category", "variant")))
        assert len(found) == GROUPS
        assert all(list(group.metrics) == list(METRICS) for group in found)
        assert all(group.metrics["tokens_per_success"].method.endswith(" by task, guarded") for group in found)
        by_run_unit, _, found = best_of_three(lambda: store.metrics(("category", "variant"), sampling=sampling.RUNS))
        assert all(group.metrics["tokens_per_success"].method == "abc, guarded" for group in found)
        by_kind, _, lines = best_of_three(lambda: store.rollup(("agent", "kind")))
        assert sum(row[2] for row in lines.rows) == steps
        by_run, _, ((counted,),) = best_of_three(lambda: rolled_up_by_run(store))
        assert counted == steps // STEPS_A_RUN
        percentile, group_runs = scipy_took(store, "percentile")
        bca, _ = scipy_took(store, "BCa")
        size = Path(folder, "store.duckdb").stat().st_size
    taken = took_runs + took_steps
    lines_of_times = [
        (f"{len(METRICS)} metrics x {GROUPS} groups of {runs:,} runs", measured, 0),
        ("the same, the first time", cold, 0),
        ("the same, with runs as the unit", by_run_unit, 0),
        (f"{steps:,} steps rolled up by agent and kind", by_kind, 0),
        (f"{steps:,} steps rolled up by run", by_run, 0),
        (f"rows of runs taken in ({len(TABLES['runs'])} columns)", took_runs, runs),
        (f"rows of steps taken in ({len(TABLES['steps'])} columns)", took_steps, steps),
        ("all rows taken in", taken, runs + steps),
        (f"scipy, percentile bootstrap, 1 ratio x 1 group of {group_runs:,} runs", percentile, 0),
        ("scipy, BCa, the same", bca, 0),
    ]
    print(f"{'':68}{'s':>9}{'CPU s':>9}{'rows/s':>12}{'rows/CPU s':>12}")
    for name, took, rows in lines_of_times:
        rates = f"{rows / took.wall:12,.0f}{rows / took.cpu:12,.0f}" if rows else ""
        print(f"{name:68}{took.wall:9.3f}{took.cpu:9.3f}{rates}")
    print(f"{'the file, MB':68}{size / 1e6:9.1f}")
    said = {
        "runs": runs,
        "groups": GROUPS,
        "seconds": round(measured.wall, 3),
        "ingest_rows_per_s": round((runs + steps) / taken.wall),
        "rollup_s": round(max(by_kind.wall, by_run.wall), 3),
        "scipy_ratio": round(percentile.wall * GROUPS / measured.wall, 1),
    }
    print(json.dumps(said))


def rolled_up_by_run(store: Store) -> tuple[tuple[int], ...]:
    """Sum up steps, tokens and calls of every run from its steps, and return the number of runs."""
    return store.query(
        "SELECT count(*) FROM (SELECT run, count(*) AS steps, sum(tokens) AS tokens, "
        "count_if(kind = 'tool_call') AS calls, max(sealed_ms) AS until_ms FROM steps GROUP BY run) WHERE steps > 0"
    ).rows  # type: ignore[return-value]


if __name__ == "__main__":
    main()
