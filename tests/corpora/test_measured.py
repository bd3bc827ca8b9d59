"""Metrics on runs that others recorded, against values computed here from the raw rows with numpy and scipy alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import pytest
from corpora.formats import read_traces
from scipy.stats import binom, binomtest

from mat.adapters.importers import StoredTrace
from mat.core.run import Run
from mat.core.spec import RunSpec
from mat.measure import reliability
from mat.measure.metrics import METRICS
from mat.measure.paired import PairTable, compare_rows
from mat.measure.rows import Labels, RunRow, row_of
from mat.measure.sampling import RUNS

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
AIRLINE = "tau-bench/gpt-4o-airline.jsonl.gz"
RETAIL = "tau-contract-agents/agentverify-retail-4conditions.jsonl.gz"


def raw(name: str) -> list[Mapping[str, Any]]:
    """The rows of a file as they are, read by nothing of ours."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def row_of_stored(stored: StoredTrace) -> RunRow:
    """An imported run as a row: the task is its item, the trial its seed, its reward says whether it succeeded."""
    labels = stored.labels
    records = tuple(stored.records)
    run = Run(
        spec=RunSpec(task=str(labels["task_id"]), seed=labels["trial"]), records=records, success=labels["reward"] == 1.0,
        termination="exception" if labels.get("crashed") else records[-1].action.name,  # type: ignore[arg-type]
    )  # fmt: skip
    crash = str(labels["crash_kind"] or "crashed") if labels.get("crashed") else ""
    return row_of(
        run, item=run.spec.task, condition="nominal",
        labels=Labels(variant=str(labels.get("condition", "")), infrastructure=crash),
    )  # fmt: skip


def rows_of(name: str) -> list[RunRow]:
    raw(name)
    return [row_of_stored(stored) for stored in read_traces(DATA / name)]


@pytest.fixture(scope="module")
def airline() -> list[RunRow]:
    return rows_of(AIRLINE)


@pytest.fixture(scope="module")
def rewards() -> dict[int, numpy.ndarray]:
    """Task -> rewards of its trials in their order."""
    found: dict[int, dict[int, float]] = {}
    for item in raw(AIRLINE):
        found.setdefault(item["task_id"], {})[item["trial"]] = item["reward"]
    return {task: numpy.array([trials[trial] for trial in sorted(trials)]) for task, trials in found.items()}


# -- tau-bench --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_success_is_the_recorded_one_with_wilsons_interval(airline: list[RunRow], rewards: dict[int, numpy.ndarray]) -> None:
    every = numpy.concatenate(list(rewards.values()))
    won = int((every == 1.0).sum())
    theirs = binomtest(won, len(every)).proportion_ci(method="wilson")
    ours = reliability.success(airline, RUNS)
    assert (len(airline), ours.n, ours.method) == (124, 124, "wilson")
    assert ours.value == pytest.approx(every.mean(), abs=1e-15)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=1e-12), pytest.approx(theirs.high, abs=1e-12))


@pytest.mark.full
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pass_hat_and_success_at_k_are_those_of_all_subsets_of_trials(
    k: int, airline: list[RunRow], rewards: dict[int, numpy.ndarray]
) -> None:
    subsets = list(combinations(range(4), k))
    solved = numpy.array([[trials[list(chosen)] for chosen in subsets] for trials in rewards.values()])  # task, subset, trial
    all_of, any_of = solved.min(axis=2).mean(axis=1), solved.max(axis=2).mean(axis=1)
    found = reliability.pass_hat(airline, k)
    assert (found.value, found.n) == (pytest.approx(all_of.mean(), abs=1e-12), 31)
    found = reliability.success_at_unbiased(airline, k)
    assert (found.value, found.n) == (pytest.approx(any_of.mean(), abs=1e-12), 31)
    first = numpy.array([trials[:k].max() for trials in rewards.values()])
    literal = reliability.success_at(airline, k)
    theirs = binomtest(int(first.sum()), len(first)).proportion_ci(method="wilson")
    assert literal.value == pytest.approx(first.mean(), abs=1e-15)
    assert (literal.low, literal.high) == (pytest.approx(theirs.low, abs=1e-12), pytest.approx(theirs.high, abs=1e-12))


@pytest.mark.full
def test_intervals_over_tasks_are_those_of_an_independent_bootstrap(
    airline: list[RunRow], rewards: dict[int, numpy.ndarray]
) -> None:
    values = numpy.array([trials[list(pair)].min() for trials in rewards.values() for pair in combinations(range(4), 2)])
    values = values.reshape(31, 6).mean(axis=1)
    stream = numpy.random.default_rng(0)
    means = values[stream.integers(0, 31, (50_000, 31))].mean(axis=1)
    low, high = numpy.quantile(means, [0.025, 0.975])
    found = reliability.pass_hat(airline, 2)
    assert found.method == "percentile bootstrap, guarded"
    width = high - low
    assert low - 0.3 * width < found.low <= low + 0.02 * width  # type: ignore[operator]
    assert high - 0.02 * width <= found.high < high + 0.3 * width  # type: ignore[operator]
    assert found.high - found.low >= width  # type: ignore[operator]  # expanded, and the far end further out


@pytest.mark.full
def test_runs_of_a_task_hang_together_and_the_interval_by_task_says_so(airline: list[RunRow]) -> None:
    alone, together = reliability.success(airline, RUNS), reliability.success(airline)
    assert together.value == alone.value
    assert together.high - together.low > 1.2 * (alone.high - alone.low)  # type: ignore[operator]


@pytest.mark.full
def test_tool_calls_and_steps_are_those_of_the_conversations(airline: list[RunRow]) -> None:
    calls = [
        sum(len(message.get("tool_calls") or ()) for message in item["traj"] if message["role"] == "assistant")
        for item in raw(AIRLINE)
    ]
    found = METRICS["tool_calls"].function(airline)
    assert (found.value, found.n) == (pytest.approx(numpy.mean(calls)), 124)
    assert found.low < found.value < found.high  # type: ignore[operator]


@pytest.mark.full
def test_a_median_of_steps_has_the_exact_interval(airline: list[RunRow]) -> None:
    steps = sorted(row.steps for row in airline if row.termination != "horizon")
    found = reliability.steps_to_termination(airline)
    assert (found.n, found.n + found.without) == (len(steps), 124)
    median = next(item.estimate for item in found.quantiles if item.percent == 50)
    rank = int(binom.ppf(0.025, len(steps), 0.5))  # Pr(X < rank) <= 2.5 % < Pr(X <= rank)
    assert median.value == numpy.quantile(steps, 0.5, method="inverted_cdf")
    assert (median.low, median.high) == (steps[rank - 1], steps[len(steps) - rank])


# -- tau-contract-agents ----------------------------------------------------------------------------------------------


def conditions() -> dict[str, dict[int, Mapping[str, Any]]]:
    """Condition -> task -> raw row."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for item in raw(RETAIL):
        assert found.setdefault(item["condition"], {}).setdefault(item["task_id"], item) is item
    return found


def paired_by_hand(old: Mapping[int, Any], new: Mapping[int, Any]) -> tuple[PairTable, int]:
    """The table over the tasks that both conditions ran to an end, and how many pairs a crash took."""
    shared = old.keys() & new.keys()
    whole = [task for task in shared if not (old[task]["crashed"] or new[task]["crashed"])]
    counts = Counter((old[task]["reward"] == 1.0, new[task]["reward"] == 1.0) for task in whole)
    table = PairTable(
        both=counts[True, True], only_old=counts[True, False], only_new=counts[False, True], neither=counts[False, False]
    )
    return table, len(shared) - len(whole)


CONDITIONS = ("tool-calling", "preconditions-advice", "assertions-pre-only", "assertions-pre+post")


@pytest.fixture(scope="module")
def retail() -> dict[str, list[RunRow]]:
    found: dict[str, list[RunRow]] = {}
    for row in rows_of(RETAIL):
        found.setdefault(row.variant, []).append(row)
    return found


@pytest.mark.full
@pytest.mark.parametrize("new", CONDITIONS[1:])
@pytest.mark.parametrize("old", CONDITIONS[:1])
def test_conditions_are_compared_in_pairs_with_crashes_apart(old: str, new: str, retail: dict[str, list[RunRow]]) -> None:
    table, crashed = paired_by_hand(conditions()[old], conditions()[new])
    found = compare_rows(retail[old], retail[new])
    assert found.table == table
    assert found.table.pairs + crashed + found.unpaired_old == len(retail[old])
    assert sum(item.pairs for item in found.apart) >= crashed
    expected = binomtest(table.only_old, table.only_old + table.only_new, 0.5).pvalue
    assert found.p_value == pytest.approx(expected, abs=1e-12)
    assert found.difference.value == pytest.approx((table.only_new - table.only_old) / table.pairs)
    assert found.difference.low < found.difference.value < found.difference.high  # type: ignore[operator]


@pytest.mark.full
def test_crashes_are_counted_by_their_reason_and_in_no_success_rate(retail: dict[str, list[RunRow]]) -> None:
    every = [row for rows in retail.values() for row in rows]
    crashed = [item for item in raw(RETAIL) if item["crashed"]]
    assert len(every) == 220
    assert sum(item.count for item in reliability.infrastructure(every)) == len(crashed) == 20
    for condition, rows in retail.items():
        kept = [item for item in conditions()[condition].values() if not item["crashed"]]
        found = reliability.success(rows)
        assert (found.n, found.value) == (len(kept), pytest.approx(numpy.mean([item["reward"] == 1.0 for item in kept])))


@pytest.mark.full
def test_counting_crashes_as_failures_would_have_said_something_else(retail: dict[str, list[RunRow]]) -> None:
    from dataclasses import replace

    def blind(rows: Sequence[RunRow]) -> list[RunRow]:
        return [replace(row, infrastructure="") for row in rows]

    pairs = [(retail[CONDITIONS[0]], retail[name]) for name in CONDITIONS[1:]]
    assert any(compare_rows(old, new).table != compare_rows(blind(old), blind(new)).table for old, new in pairs)
    for old, new in pairs:
        lost, crashed = compare_rows(old, new).table.only_old, compare_rows(blind(old), blind(new)).table.only_old
        assert crashed >= lost
