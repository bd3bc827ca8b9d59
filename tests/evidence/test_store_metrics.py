"""The store's metrics are those of `mat.measure.metrics`, for all groups at once."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mat.core.errors import SpecError
from mat.evidence.runlog import RunEntry
from mat.evidence.store import Store
from mat.evidence.store.columns import run_columns
from mat.measure import metrics as measured
from mat.measure.bootstrap import ALIKE, LARGE, mean_of, ratio_of
from mat.measure.estimate import Estimate
from mat.measure.guard import LEAST
from mat.measure.metrics import METRICS
from mat.measure.reliability import lifetimes
from mat.measure.rows import ActionCount, Case, ClaimCount, FaultRow, Misuse, RunCondition, RunRow, ViolationRow, counted
from mat.measure.sampling import RUNS, TASKS, Sampling

BY: Final = ("condition", "category", "variant")


def row(draw: random.Random, place: int, *, tokens: int = 3_000_000) -> RunRow:
    """A made-up run; nothing in it hangs together more than the definitions ask for."""
    steps = draw.randrange(1, 30)
    first = draw.randrange(steps) if draw.random() < 0.3 else None
    violation = ViolationRow(
        contract=draw.choice(["progress.replans", "policy.x"]), severity="hard", stage="effected", step=first or 0, agent="a",
        action_kind=draw.choice(["final_response", "tool_call"]),
    )  # fmt: skip
    claims = draw.randrange(4), draw.randrange(3)
    return RunRow(
        item=f"task-{draw.randrange(5)}",
        condition=draw.choice(["nominal", "fault"]),
        seed=draw.randrange(4),
        success=draw.choice([True, False, None]),
        outcome="pass" if first is None and draw.random() < 0.8 else "unknown" if first is None else "fail",
        termination=draw.choice(["completed", "completed", "horizon", "deadlock"]),
        steps=steps,
        tool_calls=draw.randrange(9),
        model_calls=1,
        tokens=draw.randrange(tokens) if draw.random() < 0.9 else None,
        violations=() if first is None else (violation,),
        faults=tuple(fault(draw, first is None) for _ in range(draw.choice([0, 0, 1, 2, 5]))),
        allowed=0,
        rewritten=0,
        blocked=0,
        elapsed_ms=None if first is None and draw.random() < 0.1 else draw.randrange(10**7),
        category=draw.choice(["plan", "tools"]),
        variant=draw.choice(["none", "shield"]),
        input=draw.choice(["benign", "misuse", ""]),
        config="c",
        run=str(place),
        first_failure=first,
        first_failure_ms=None if first is None else draw.randrange(10**6),
        actions=tuple(actions(draw)),
        judged=first is not None or draw.random() < 0.8,
        claims=None if draw.random() < 0.3 else ClaimCount(
            final=claims[0], unsupported=draw.randint(0, claims[0]), recorded=claims[1], propagated=draw.randint(0, claims[1])
        ),
        misuse=draw.choice(["", *get_args(Misuse)]),
        infrastructure=draw.choice(["", "", "", "model timeout"]),
        episode=draw.choice(["", "", "monday", "tuesday"]),
        place=place,
        cases=tuple(
            Case(name=str(number), step=0, steps=1, elapsed_ms=1, first_failure=draw.choice([None, 3]))
            for number in range(draw.choice([0, 0, 2, 4]))
        ),
    )  # fmt: skip


def fault(draw: random.Random, kept: bool) -> FaultRow:
    detected = draw.random() < 0.7
    mitigated = detected and draw.random() < 0.7
    return FaultRow(
        operator="service.timeout", injected=draw.random() < 0.8, step=draw.randrange(9), detected=detected,
        mitigated=mitigated, contained=mitigated and kept, final_ok=kept,
    )  # fmt: skip


def actions(draw: random.Random) -> Iterator[ActionCount]:
    for impact in ("high", "low"):
        for decision in ("allow", "rewrite", "block"):
            if draw.random() < 0.5:
                yield ActionCount(
                    impact=impact, decision=decision, routed=draw.random() < 0.3, sandboxed=False, count=draw.randrange(1, 4)
                )  # type: ignore[arg-type]  # fmt: skip


def stored(rows: Sequence[RunRow]) -> Store:
    store = Store(None)
    digits = (f"{place * 2654435761 % 2**64:016x}{place:048x}" for place in range(len(rows)))
    columns = [run_columns(one, key=key) for one, key in zip(rows, digits, strict=True)]
    if columns:
        store.append("runs", {name: [column[name] for column in columns] for name in columns[0]})
    return store


# what METRICS resamples, by the interval that the store has
ANALYTIC: Final = {
    "tokens_per_success": partial(measured.tokens_per_success, method="abc"),
    "tokens": partial(measured.mean_per_run, value=lambda one: one.tokens, method="abc"),
    "tool_calls": partial(measured.mean_per_run, value=lambda one: one.tool_calls, method="abc"),
    "steps": partial(measured.mean_per_run, value=lambda one: one.steps, method="abc"),
    "latency_ms": partial(measured.mean_per_run, value=lambda one: one.elapsed_ms, method="abc"),
    "mtbf_steps": lambda rows: mean_of((life.length for life in lifetimes(rows)), method="abc"),
    "mtbf_ms": lambda rows: mean_of((life.length for life in lifetimes(rows, unit="ms")), method="abc"),
    "mtbf_steps_censored": lambda rows: ratio_of(((life.length, life.failed) for life in lifetimes(rows)), method="abc"),
    "mtbf_ms_censored": lambda rows: ratio_of(
        ((life.length, life.failed) for life in lifetimes(rows, unit="ms")), method="abc"
    ),
}


def expected(name: str, rows: Sequence[RunRow], sampling: Sampling = RUNS) -> Estimate:
    if name.startswith("mtbf"):
        return ANALYTIC[name](rows)
    found = METRICS[name].function(rows, sampling)
    if name in ANALYTIC and (sampling.unit == "run" or found.population.startswith("this task")):
        return ANALYTIC[name](rows, sampling=sampling)
    return found


def same(found: Estimate, wanted: Estimate) -> bool:
    """Equal to nine digits; of claim shares, which METRICS resamples, the value and what interval stands there."""
    ends = [(found.value, wanted.value)]
    if not wanted.method.startswith("percentile"):
        ends += [(found.low, wanted.low), (found.high, wanted.high)]
        if found.method != wanted.method:
            return False
    close = all((a is None) == (b is None) and (a is None or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)) for a, b in ends)
    described = [(each.n, each.confidence, each.sampling_unit, each.population) for each in (found, wanted)]
    return close and described[0] == described[1]


def differing(store: Store, rows: Sequence[RunRow], by: Sequence[str], sampling: Sampling = RUNS) -> list[Any]:
    wrong: list[Any] = []
    for line in store.metrics(by, sampling=sampling):
        chosen = [one for one in rows if tuple(getattr(one, name) for name in by) == line.group]
        wrong += [] if line.runs == len(counted(chosen)) and line.runs + line.left_out == len(chosen) else [line.group]
        wrong += [
            (line.group, name, found, expected(name, chosen, sampling))
            for name, found in line.metrics.items()
            if not same(found, expected(name, chosen, sampling))
        ]
    return wrong


@pytest.mark.nightly
@pytest.mark.parametrize("sampling", [TASKS, RUNS], ids=["by task", "by run"])
@pytest.mark.parametrize("by", [BY, ("category",), (), ("item", "input")])
def test_every_metric_of_the_protocol_is_that_of_the_rows_of_its_group(by: tuple[str, ...], sampling: Sampling) -> None:
    draw = random.Random(6)
    rows = [row(draw, place) for place in range(1_500)]
    with stored(rows) as store:
        found = store.metrics(by)
        assert [line.group for line in found] == sorted({tuple(getattr(one, name) for name in by) for one in rows})
        assert all(list(line.metrics) == list(METRICS) for line in found)
        assert differing(store, rows, by, sampling) == []


@pytest.mark.nightly
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 12), sampling=st.sampled_from([TASKS, RUNS]))
def test_few_runs_and_empty_denominators_come_out_as_by_rows(seed: int, size: int, sampling: Sampling) -> None:
    draw = random.Random(seed)
    rows = [row(draw, place, tokens=5) for place in range(size)]
    with stored(rows) as store:
        assert differing(store, rows, ("condition",), sampling) == []
        assert bool(store.metrics()) == bool(rows)


@pytest.mark.full
def test_more_runs_than_are_resampled_have_the_very_intervals_of_the_protocol() -> None:
    draw = random.Random(11)
    rows = [replace(row(draw, place), episode="") for place in range(4 * LARGE)]
    with stored(rows) as store:
        (line,) = store.metrics((), condition="fault", sampling=RUNS)
    chosen = [one for one in rows if one.condition == "fault"]
    for name, metric in METRICS.items():
        if "claims" not in metric.text:
            wanted = metric.function(chosen, RUNS)
            assert wanted.method.startswith(("wilson", "abc")) or wanted.n <= LARGE
            if wanted.n > LARGE:
                assert same(line.metrics[name], wanted), name


def test_runs_that_are_all_alike_say_so(shop_tests: Any) -> None:
    alike = replace(row(random.Random(1), 0), success=True, tokens=70, first_failure=None, infrastructure="", episode="")
    with stored([alike] * 5) as store:
        (line,) = store.metrics((), sampling=RUNS)
    found = line.metrics["tokens_per_success"]
    assert (found.value, found.low, found.high, found.n, found.method) == (70, None, None, 5, ALIKE)


def test_the_store_withholds_the_intervals_that_reports_withhold() -> None:
    draw = random.Random(8)
    rows = [
        replace(row(draw, place), infrastructure="", episode="", success=place > 0, judged=True, tokens=place)
        for place in range(LEAST)
    ]
    for some, method in ((rows[1:], f"abc, no interval below {LEAST}"), (rows, "abc, guarded")):
        with stored(some) as store:
            (line,) = store.metrics((), sampling=RUNS)
        for name in ("tokens", "tokens_per_success", "mtbf_steps"):
            found = line.metrics[name]
            assert (found.method, found.low is None) == (method, len(some) < LEAST), name
            assert same(found, expected(name, some)), name


@pytest.mark.full
def test_numbers_whose_cubes_need_more_than_64_bits_are_added_exactly() -> None:
    draw = random.Random(2)
    rows = [replace(row(draw, place), tokens=10**9 + draw.randrange(10**6), episode="") for place in range(300)]
    with stored(rows) as store:
        assert differing(store, rows, ("condition",)) == []


@pytest.mark.full
def test_the_order_of_rows_and_the_number_of_threads_change_no_digit() -> None:
    draw = random.Random(4)
    rows = [row(draw, place) for place in range(900)]
    found = []
    for order, threads in ((rows, 1), (rows[::-1], 2), (sorted(rows, key=lambda one: one.steps), 4)):
        with stored(order) as store:
            store._connection.execute(f"SET threads = {threads}")
            found.append(store.metrics())
    assert found[0] == found[1] == found[2]


def test_runs_of_an_episode_without_places_come_as_they_were_taken_in() -> None:
    plain = replace(
        row(random.Random(1), 0), infrastructure="", episode="day", seed=0, steps=10, first_failure=None, judged=True
    )
    failing = replace(plain, first_failure=4, first_failure_ms=40)
    for order, length in (([plain, failing, plain], 15.0), ([failing, plain, plain], 5.0)):
        with stored(order) as store:
            (line,) = store.metrics((), sampling=RUNS)
        assert (line.metrics["mtbf_steps"].value, line.metrics["mtbf_steps"].n) == (length, 1)
        assert same(line.metrics["mtbf_steps"], expected("mtbf_steps", order))


def test_real_runs_give_the_numbers_of_their_rows(shop_tests: Any) -> None:
    conditions: list[RunCondition] = ["nominal", "fault"]
    entries = [
        RunEntry(
            item=shop_tests.item, condition=conditions[seed % 2],
            run=shop_tests.run(seed=seed, schedule=[shop_tests.lost_ack()] if seed % 2 else ()),
        )
        for seed in range(8)
    ]  # fmt: skip
    rows = [entry.row() for entry in entries]
    with Store(None) as store:
        store.ingest(entries)
        assert differing(store, rows, BY) == []
        nominal, fault = (store.metrics(("condition",), condition=condition)[0].metrics for condition in conditions)
    assert nominal["violations"].value == 0.0
    assert fault["violations"].value == 1.0
    assert (fault["containment"].value, fault["containment"].n) == (0.0, 4)


def test_what_runs_cannot_be_grouped_by_is_an_error_that_names_what_may_have_been_meant() -> None:
    with Store(None) as store:
        with pytest.raises(SpecError, match=r"cannot be grouped by 'categori'.*category"):
            store.metrics(("categori",))
        with pytest.raises(SpecError, match="unknown condition: 'normal'"):
            store.metrics(condition="normal")  # type: ignore[arg-type]
        assert store.metrics() == ()


def test_runs_without_a_contract_give_no_violations_rather_than_none() -> None:
    kept = replace(row(random.Random(1), 0), first_failure=None, violations=(), infrastructure="", episode="", judged=False)
    with stored([kept] * 4) as store:
        (line,) = store.metrics(())
        found = {name: line.metrics[name].value for name in ("violations", "unknown", "mtbf_steps", "case_violations")}
        assert found == dict.fromkeys(found)
        assert store.query("SELECT armed_runs, violations FROM by_variant").rows == ((0, None),)


def test_the_intervals_of_these_tasks_are_refused() -> None:
    with Store(None) as store, pytest.raises(SpecError, match='no intervals for the population "these tasks"'):
        store.metrics(sampling=Sampling(population="these tasks"))
