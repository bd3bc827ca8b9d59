"""Pairs of runs: McNemar's table and test, the difference with its interval, and what is counted apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap

from mat.core.errors import SpecError
from mat.measure.bootstrap import ALIKE, expanded
from mat.measure.paired import (
    ExcludedPairs,
    Pair,
    PairTable,
    compare_rows,
    difference,
    mcnemar,
    paired_by_task,
    paired_contrast,
    paired_difference,
    paired_shares,
)
from mat.measure.rows import RunRow
from mat.measure.sampling import TASKS, Sampling

Made = Callable[..., RunRow]


@pytest.mark.parametrize(("lost", "gained"), [(1, 0), (0, 1), (3, 3), (7, 2), (40, 61), (600, 500), (5_000, 5_200)])
def test_the_test_is_the_exact_binomial_one(lost: int, gained: int) -> None:
    assert mcnemar(lost, gained) == pytest.approx(binomtest(lost, lost + gained, 0.5).pvalue, rel=1e-9)
    assert mcnemar(lost, gained) == mcnemar(gained, lost)


def test_without_a_pair_that_differs_there_is_no_p_value() -> None:
    assert mcnemar(0, 0) is None
    assert paired_shares([(True, True), (False, False)]).p_value is None


def test_the_table_counts_each_kind_of_pair() -> None:
    found = paired_shares([(True, True)] * 4 + [(True, False)] * 3 + [(False, True)] * 2 + [(False, False)])
    assert found.table == PairTable(both=4, only_old=3, only_new=2, neither=1)
    assert (found.old.value, found.new.value, found.old.n) == (0.7, 0.6, 10)
    assert found.difference.value == pytest.approx(-0.1)
    assert found.p_value == pytest.approx(binomtest(3, 5, 0.5).pvalue)


# R. G. Newcombe (1998), table II, method 10: 50 pairs of which 14 differ
@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [((36, 12, 2, 0), 0.0569, 0.3404), ((20, 12, 2, 16), 0.0562, 0.3292)],
)
def test_the_difference_has_the_published_interval(cells: tuple[int, int, int, int], low: float, high: float) -> None:
    a, b, c, d = cells
    found = difference(PairTable(both=a, only_old=c, only_new=b, neither=d))
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


@settings(deadline=None)
@given(st.tuples(*[st.integers(0, 30)] * 4), st.floats(0.5, 0.999))
def test_a_difference_lies_in_its_interval_and_turns_with_the_sides(cells: tuple[int, ...], confidence: float) -> None:
    a, b, c, d = cells
    table, turned = (PairTable(both=a, only_old=b, only_new=c, neither=d), PairTable(both=a, only_old=c, only_new=b, neither=d))
    found, other = difference(table, confidence), difference(turned, confidence)
    if not table.pairs:
        assert found.value is None
        return
    assert -1 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]
    assert found.low < found.high  # type: ignore[operator]
    assert (other.low, other.high) == (pytest.approx(-found.high, abs=1e-12), pytest.approx(-found.low, abs=1e-12))  # type: ignore[operator]


def test_pairs_are_runs_of_one_item_and_seed_and_the_rest_is_counted(row: Made) -> None:
    old = [row(item="a"), row(item="a", seed=1, success=False), row(item="b"), row(item="gone")]
    new = [row(item="a", success=False), row(item="a", seed=1), row(item="b"), row(item="new"), row(item="new", seed=1)]
    found = compare_rows(old, new)
    assert found.table == PairTable(both=1, only_old=1, only_new=1, neither=0)
    assert (found.unpaired_old, found.unpaired_new, found.apart) == (1, 2, ())


def test_a_crash_around_a_run_is_no_effect_of_its_condition(row: Made) -> None:
    old = [row(item=name, success=True) for name in "abcd"]
    crashed: Any = {"success": False, "infrastructure": "connection"}
    new = [row(item="a", success=True), row(item="b", **crashed), row(item="c", success=None), row(item="d", **crashed)]
    found = compare_rows(old, new)
    assert found.table == PairTable(both=1, only_old=0, only_new=0, neither=0)
    assert found.apart == (
        ExcludedPairs(side="new", reason="connection", pairs=2),
        ExcludedPairs(side="new", reason="unjudged", pairs=1),
    )
    counted_as_failures = compare_rows(old, [row(item=name, success=name == "a") for name in "abcd"])
    assert counted_as_failures.table.only_old == 3  # what the mistake would look like


def test_another_fact_and_another_key_can_be_compared(row: Made) -> None:
    old, new = [row(item="a", variant="none")], [row(item="a", variant="shield", broken=2)]
    assert compare_rows(old, new, fact=lambda one: not one.hard).table.only_old == 1
    assert compare_rows(old, new, key=lambda one: one.variant).unpaired_old == 1


def test_two_runs_under_one_key_are_no_pair(row: Made) -> None:
    with pytest.raises(SpecError, match="new side"):
        compare_rows([row()], [row(), row()])


def test_the_paired_bootstrap_is_scipys() -> None:
    stream = numpy.random.default_rng(4)
    old = stream.gamma(2, 500, 30).round()
    new = (old + stream.normal(50, 80, 30)).round()
    ours = paired_difference(zip(old.tolist(), new.tolist(), strict=True))
    theirs = bootstrap(
        (old, new), lambda a, b, axis: (b - a).mean(axis=axis), paired=True, vectorized=True, method="percentile",
        n_resamples=50_000, confidence_level=expanded(30, 0.95), rng=stream,
    ).confidence_interval  # fmt: skip
    assert ours.value == pytest.approx((new - old).mean())
    near, far = ("low", "high") if ours.high > theirs.high + 2 else ("high", "low")
    assert getattr(ours, near) == pytest.approx(getattr(theirs, near), abs=2)
    assert abs(getattr(ours, far) - ours.value) > abs(getattr(theirs, far) - ours.value) > 0  # type: ignore[operator]
    assert ours.method == "paired bootstrap, guarded"


def test_pairs_of_the_same_tasks_tell_more_than_their_runs_apart() -> None:
    stream = numpy.random.default_rng(4)
    old = stream.gamma(2, 500, 30)
    new = old + stream.normal(50, 10, 30)
    paired = paired_difference(zip(old.tolist(), new.tolist(), strict=True))
    shuffled = paired_difference(zip(sorted(old.tolist()), new.tolist(), strict=True))
    assert paired.value == pytest.approx(shuffled.value)
    assert paired.high - paired.low < (shuffled.high - shuffled.low) / 5  # type: ignore[operator]


def test_a_contrast_compares_two_ratios_over_the_same_pairs() -> None:
    pairs = [(100, 1, 80, 1), (120, 1, 90, 0), (90, 0, 70, 1), (100, 1, 100, 1)]
    found = paired_contrast(pairs)
    assert found.value == pytest.approx(340 / 3 - 410 / 3)
    assert paired_contrast([(100, 0, 80, 1), (1, 0, 1, 1)]).value is None
    assert paired_contrast([]).value is None
    assert paired_contrast([(1, 1, 2, 1)]).low is None
    alike = paired_difference([(1, 3), (1, 3)])
    assert (alike.value, alike.low, alike.high, alike.method) == (2.0, None, None, ALIKE)
    by_task = paired_contrast(pairs, by=["a", "a", "b", "b"])
    assert (by_task.value, by_task.n, by_task.method) == (
        pytest.approx(found.value),
        2,
        "paired bootstrap by task, no interval below 10",
    )


def test_a_contrast_with_few_successes_has_an_open_end() -> None:
    found = paired_contrast([(100 + size, size == 0, 90 + size * size, 1) for size in range(10)])
    assert found.value == pytest.approx((900 + 285) / 10 - (1000 + 45) / 1)
    assert found.low is None  # resamples without the one success know no old price


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([TASKS, Sampling(population="these tasks"), Sampling(unit="run")]),
)
def test_an_interval_without_0_has_a_test_that_rejects(
    drawn: list[tuple[str, int, bool, bool]], sampling: Sampling
) -> None:  # fmt: skip
    """Three tasks that all flip the same way have p = 0.25, and the score interval alone would not contain 0."""
    pairs = [Pair(task=task, seed=seed, old=old, new=new) for task, seed, old, new in drawn]
    for found in (paired_by_task(pairs, sampling), paired_by_task([Pair(task=t, seed=0, old=False, new=True) for t in "abc"])):
        low, high = found.difference.low, found.difference.high
        assert low is not None
        assert high is not None
        assert low <= 0 <= high or (found.p_value is not None and found.p_value <= 0.05)
    assert found.difference.method == "newcombe, to 0"
