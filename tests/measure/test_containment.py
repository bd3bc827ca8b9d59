from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Hold, Raise, Replace
from mat.measure.containment import RuleCount, containment, fault_profile
from mat.measure.interval import wilson
from mat.measure.rows import RunRow, row_of
from mat.measure.sampling import clustered
from mat.monitor.faults import DetectionRules

OPERATORS = (
    operator("service.timeout", lambda call, reply, stream: Raise("timeout")),
    operator("retrieval.stale", lambda call, reply, stream: Replace([]), phase="after"),
    operator("order.hold", lambda call, reply, stream: Hold(1)),
)


@mat.tool
def track(parcel: str) -> str:
    return "Friday"


@mat.tool
def down(parcel: str) -> str:
    raise TimeoutError("slow")


@mat.retriever("kb")
def search(query: str) -> list[mat.Passage]:
    return [mat.Passage(text="two years", id="p")]


def attempt(tool: Callable[[str], object] = track, times: int = 1) -> None:
    for _ in range(times):
        try:
            tool("17")
        except TimeoutError:
            continue


never = mat.step_contract(on="final_response", id="never")(lambda record: False)


def row(body: Callable[[], Any], *faults: tuple[str, str], rules: DetectionRules | None = None, **options: Any) -> RunRow:
    schedule = [mat.spec.perturbation(name, site, cost=4) for name, site in faults]
    with mat.run(options.pop("contracts", ()), schedule=schedule, operators=OPERATORS, task="t", **options) as run:
        body()
    assert run.result is not None
    return row_of(run.result, item="t", condition="fault", **({} if rules is None else {"rules": rules}))


FIRST = ("service.timeout", "main/service:track#1")
SECOND = ("service.timeout", "main/service:track#2")
STALE = ("retrieval.stale", "main/retrieval:kb#1")


def test_the_rate_counts_injected_and_reached_faults_only() -> None:
    rows = [
        row(lambda: attempt(times=2), FIRST),
        row(attempt, FIRST),
        row(lambda: attempt(down)),
        row(lambda: None, FIRST),
    ]
    estimate = containment(rows)
    assert (estimate.value, estimate.n, estimate.method) == (0.5, 2, "wilson")
    injected, observed = fault_profile(rows)
    assert (injected.operator, injected.boundary, injected.runs) == ("service.timeout", "service", 2)
    assert (injected.detected.value, injected.mitigated.value, injected.contained.n) == (1.0, 0.5, 2)
    assert (injected.detected_by, injected.mitigated_by) == (
        (RuleCount(rule="error", faults=2),),
        (RuleCount(rule="retry", faults=1),),
    )
    assert (observed.operator, observed.injected, observed.contained.value) == ("observed.timeout", False, 0.0)


def test_the_order_in_which_concurrent_calls_go_is_no_fault() -> None:
    import asyncio

    @mat.tool(name="ask")
    async def ask(parcel: str) -> str:
        return parcel

    async def act(name: str) -> None:
        with mat.agent(name):
            await ask(name)

    async def both() -> None:
        await asyncio.gather(act("ann"), act("bob"))

    held = mat.spec.perturbation("order.hold", "ann/order:service.ask#1", cost=4)
    with mat.run([], schedule=[held], operators=OPERATORS, task="t") as run:
        asyncio.run(both())
    assert run.result is not None
    assert [note.operator for record in run.trace for note in record.faults if note.changed] == ["order.hold"]
    assert row_of(run.result, item="t", condition="fault").faults == ()


def test_a_mitigated_fault_is_contained_only_where_the_final_contracts_hold() -> None:
    def body() -> None:
        attempt(times=2)
        mat.finish("done")

    (profile,) = fault_profile([row(body, FIRST), row(body, FIRST, contracts=[never])])
    assert (profile.mitigated.value, profile.final_ok.value, profile.contained.value) == (1.0, 0.5, 0.5)


def test_faults_are_grouped_by_operator_boundary_or_kind() -> None:
    def body() -> None:
        attempt(times=2)
        search("warranty")
        attempt(down, times=2)

    rows = [row(body, FIRST, STALE)]
    by: dict[Any, list[str]] = {
        grouping: [f"{item.operator} {item.injected} {item.detected.n}" for item in fault_profile(rows, by=grouping)]
        for grouping in ("operator", "boundary", "kind")
    }
    assert by == {
        "operator": ["retrieval.stale True 1", "service.timeout True 1", "observed.timeout False 2"],
        "boundary": ["retrieval True 1", "service True 1", "service False 2"],
        "kind": ["stale True 1", "timeout True 1", "timeout False 2"],
    }


def test_a_group_over_several_boundaries_names_none() -> None:
    made = row(lambda: attempt(down), FIRST)
    mixed = replace(made, faults=(made.faults[0], replace(made.faults[0], boundary="model", site="main/model:m#1")))
    (profile,) = fault_profile([mixed], by="kind")
    assert profile.boundary == ""


def test_own_rules_reach_the_rates() -> None:
    body = lambda: (search("warranty"), mat.state(alarm=1), mat.claim("odd"))  # noqa: E731
    rules = DetectionRules(detections={"alarm": lambda record, fault: "alarm" in record.state})
    (profile,) = fault_profile([row(body, STALE, rules=rules)])
    assert profile.detected_by == (RuleCount(rule="alarm", faults=1),)
    (profile,) = fault_profile([row(body, STALE)])
    assert (profile.detected.value, profile.detected_by) == (0.0, ())


def test_without_faults_there_is_no_rate_and_no_profile() -> None:
    for rows in ([], [row(attempt)]):
        assert (containment(rows).value, containment(rows).n) == (None, 0)
        assert fault_profile(rows) == ()


# -- intervals of clustered faults ------------------------------------------------------------------------------------


def test_with_one_fault_a_run_the_interval_is_wilsons() -> None:
    assert clustered([(1, 1)] * 7 + [(0, 1)] * 3) == wilson(7, 10)


def test_faults_of_one_run_count_as_one() -> None:
    alone = clustered([(4, 4)])
    assert (alone.value, alone.n, alone.method) == (1.0, 4, "wilson-clustered")
    assert (alone.low, alone.high) == (wilson(1, 1).low, 1.0)
    assert clustered([(0, 3), (0, 3)]).high == wilson(0, 2).high


def test_clusters_that_agree_within_count_as_their_number_and_those_that_do_not_as_their_faults() -> None:
    apart = clustered([(4, 4)] * 5 + [(0, 4)] * 5)
    assert apart.low == pytest.approx(wilson(5, 10).low, abs=0.02)
    mixed = clustered([(2, 4)] * 10)
    effective = 40 * (norm.ppf(0.975) / t.ppf(0.975, 9)) ** 2  # how they vary is only estimated, from ten of them
    assert mixed.low == pytest.approx(wilson(effective / 2, effective).low, rel=1e-9)  # type: ignore[arg-type]
    assert (apart.value, mixed.value, apart.n, mixed.n) == (0.5, 0.5, 40, 40)


@pytest.mark.full
@settings(deadline=None)
@given(st.lists(st.integers(0, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=20))
def test_the_interval_holds_the_share_and_lies_between_that_of_runs_and_that_of_faults(found: list[tuple[int, int]]) -> None:
    estimate, n = clustered(found), sum(trials for _, trials in found)
    assert estimate.n == n
    if not n:
        assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
        return
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    plain = wilson(sum(won for won, _ in found), n)
    assert plain.low is not None
    assert plain.high is not None
    assert estimate.high - estimate.low >= plain.high - plain.low - 1e-12


def test_the_interval_covers_where_faults_of_a_run_hang_together_and_wilsons_does_not() -> None:
    dice, rounds, runs = random.Random(7), 800, 40
    ours = plain = 0
    for _ in range(rounds):
        clusters = []
        for _ in range(runs):
            chance = dice.betavariate(1.4, 0.6)  # mean 0.7, and runs differ a lot
            trials = dice.randint(1, 6)
            clusters.append((sum(dice.random() < chance for _ in range(trials)), trials))
        estimate = clustered(clusters)
        simple = wilson(sum(won for won, _ in clusters), sum(trials for _, trials in clusters))
        ours += estimate.low is not None and estimate.high is not None and estimate.low <= 0.7 <= estimate.high
        plain += simple.low is not None and simple.high is not None and simple.low <= 0.7 <= simple.high
    assert ours / rounds >= 0.93
    assert plain / rounds < 0.9
