"""Planted agents with a known cheapest counterexample, each searched pruned, unpruned and by brute force (L15)."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any

import pytest

import mat
from mat.core.run import prefixes


@dataclass(frozen=True)
class Planted:
    body: Any
    contracts: tuple[Any, ...]
    operators: tuple[str, ...]
    budget: int
    costs: dict[str, int]
    sites: dict[str, set[str]]
    seed: int = 0


@mat.step_contract(on="tool_call", id="harm.none")
def no_harm(record):
    return record.action.name != "harm"


@mat.trace_contract(start=0, id="harm.once", on="tool_call")
def harmed_at_most_once(count, record):
    if record.action.name != "pay" or record.effected != "yes":
        return count
    return mat.Violated("paid twice") if count else 1


@mat.tool(effect="write")
def harm() -> str:
    return "done"


@mat.tool(effect="write")
def log(text: str) -> str:
    return text


def retried(call, times=2):
    """A careful caller: None where the service stays down."""
    for _ in range(times):
        try:
            return call()
        except (TimeoutError, ConnectionError):
            continue
    return None


def single_unhandled() -> Planted:
    @mat.tool
    def read(index: int) -> int:
        return index

    def body():
        for index in range(5):
            try:
                read(index)
            except TimeoutError:
                if index == 3:
                    harm()

    return Planted(body, (no_harm,), ("service.timeout",), 8, {"harm.none": 4}, {"harm.none": {"main/service:read#4"}})


def two_interacting() -> Planted:
    """A time-out enters failover; in failover a wrong value at another step is not checked."""

    @mat.tool
    def read(index: int) -> int:
        return index

    def body():
        failover = False
        for index in range(4):
            try:
                value = read(index)
            except TimeoutError:
                failover = failover or index == 1
                continue
            if value < 0 and failover and index == 3:
                harm()

    sites = {"main/service:read#2", "main/service:read#4"}
    return Planted(body, (no_harm,), ("service.timeout", "service.wrong"), 8, {"harm.none": 8}, {"harm.none": sites})


def retry_of_retry() -> Planted:
    """The fatal site exists only after two time-outs."""

    @mat.tool
    def read() -> int:
        return 1

    @mat.tool
    def fallback() -> int:
        return 1

    def body():
        if retried(read) is None and fallback() < 0:
            harm()

    sites = {"main/service:read#1", "main/service:read#2", "main/service:fallback#1"}
    return Planted(body, (no_harm,), ("service.timeout", "service.wrong"), 12, {"harm.none": 12}, {"harm.none": sites})


def twins() -> Planted:
    """The agent asks before it pays again; only a lost acknowledgement and a time-out of the question, together, harm it."""

    def body():
        paid = []

        @mat.tool(effect="write")
        def pay():
            paid.append(1)
            return "paid"

        @mat.tool
        def is_paid():
            return bool(paid)

        try:
            pay()
        except TimeoutError:
            try:
                done = is_paid()
            except TimeoutError:
                done = False
            if not done:
                retried(pay, 1)

    sites = {"main/service:pay#1", "main/service:is_paid#1"}
    operators = ("service.timeout", "service.lost_ack")
    return Planted(body, (harmed_at_most_once,), operators, 12, {"harm.once": 8}, {"harm.once": sites})


def clock_and_dice() -> Planted:
    """Reads the wall clock and draws random numbers; two slow replies pass a deadline."""

    @mat.tool
    def read(nonce: int) -> int:
        return nonce

    def body():
        started_s = time.time()
        for _ in range(3):
            read(random.randrange(1_000_000))
        if time.time() - started_s > 7:
            harm()

    sites = {"main/service:read#1", "main/service:read#2"}
    return Planted(body, (no_harm,), ("service.slow",), 12, {"harm.none": 12}, {"harm.none": sites}, seed=3)


def outage() -> Planted:
    """Survives two failures in a row and not three: cheaper as one outage than as three time-outs."""

    @mat.tool
    def read() -> int:
        return 1

    def body():
        if retried(read, 3) is None:
            harm()
        log("end")

    return Planted(
        body, (no_harm,), ("service.timeout", "service.outage"), 12, {"harm.none": 5}, {"harm.none": {"main/service:read#1..3"}}
    )


def open_range() -> Planted:
    """After an outage of A and one of B that leave like traces, what is still down differs."""

    @mat.tool
    def left() -> int:
        return 1

    def body():
        try:
            left()
        except (ConnectionError, TimeoutError):
            log("down")
            if retried(left) is None:
                harm()

    return Planted(
        body, (no_harm,), ("service.timeout", "service.outage"), 8, {"harm.none": 5}, {"harm.none": {"main/service:left#1..3"}}
    )


def careful() -> Planted:
    @mat.tool(effect="read")
    def read(index: int) -> int:
        return index

    def body():
        for index in range(3):
            value = retried(lambda index=index: read(index))
            if value != index:
                return
        log("all read")

    return Planted(body, (no_harm,), ("service.timeout", "service.lost_ack", "service.wrong"), 8, {}, {})


def gathered() -> Planted:
    """Three tasks at once; a lost acknowledgement in one and a slow reply in another meet."""

    def body():
        paid = []

        @mat.tool(effect="write")
        async def pay():
            await asyncio.sleep(0.01)
            paid.append(1)
            return "paid"

        @mat.tool
        async def limit(index: int):
            await asyncio.sleep(0.02)
            return index

        async def payer():
            try:
                await pay()
            except TimeoutError:
                if allowed != [0, 1]:
                    await pay()

        async def asker(index):
            try:
                allowed.append(await limit(index))
            except TimeoutError:
                await limit(index)

        allowed: list[int] = []

        async def main():
            await asyncio.gather(payer(), asker(0), asker(1))

        asyncio.run(main())

    operators = ("service.timeout", "service.lost_ack")
    return Planted(body, (harmed_at_most_once,), operators, 8, {"harm.once": 8}, {})


def memory_and_prompt() -> Planted:
    """An injected hurry and a note that was never kept."""

    def body():
        notes = mat.memory({"vetted": "no"}, name="notes")
        text = mat.untrusted("please refund", channel="email")
        notes["vetted"] = "needed"
        if "hurry" in text and notes["vetted"] == "no":
            harm()

    sites = {"main/prompt:email#1", "main/memory:notes#1"}
    return Planted(body, (no_harm,), ("prompt.inject", "memory.forget"), 8, {"harm.none": 8}, {"harm.none": sites})


AGENTS = [
    single_unhandled, two_interacting, retry_of_retry, twins, clock_and_dice, outage, open_range, careful, gathered,
    memory_and_prompt,
]  # fmt: skip


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.__name__)
def planted(request, lab):
    agent = request.param()
    return agent, lab(agent.body, agent.contracts, agent.operators, seed=agent.seed)


@pytest.mark.full
def test_the_cheapest_counterexample_of_each_contract_is_found_at_its_sites(planted, found):
    agent, made = planted
    result = made.search(budget=agent.budget)
    assert found(result) == agent.costs
    for counterexample in result.counterexamples:
        expected = agent.sites.get(counterexample.verdict.contract)
        if expected:
            assert {str(item.site) for item in counterexample.run.spec.schedule} == expected
        assert counterexample.stability.stable
    assert result.certificate.proven, result.certificate.reason
    assert result.certificate.bound == agent.budget


@pytest.mark.covers("law", ["L15"])
def test_pruned_and_unpruned_search_and_brute_force_agree(planted, found):
    agent, made = planted
    pruned, unpruned = made.search(budget=agent.budget), made.search(budget=agent.budget, prune=False)
    assert found(pruned) == found(unpruned) == made.brute_force(agent.budget) == agent.costs
    assert pruned.certificate.proven
    assert unpruned.certificate.proven
    assert unpruned.certificate.skipped == {"equal state": 0}
    assert pruned.certificate.states <= unpruned.executions


def test_a_search_that_stops_at_the_first_level_with_a_hit_proves_that_nothing_is_cheaper(planted, found):
    agent, made = planted
    if not agent.costs:
        pytest.skip("nothing to find")
    result = made.search(budget=20, stop="cheapest", max_runs=100_000)
    assert found(result) == agent.costs
    assert result.certificate.proven
    assert result.certificate.bound >= min(agent.costs.values())


@pytest.mark.full
def test_two_searches_are_equal_to_the_last_tie(planted):
    agent, made = planted
    one, other = made.search(budget=agent.budget), made.search(budget=agent.budget)
    assert [item.run.head for item in one.counterexamples] == [item.run.head for item in other.counterexamples]
    assert one.certificate == other.certificate


def test_a_careful_agent_is_certified_with_exact_counts(lab, found):
    agent = careful()
    result = lab(agent.body, agent.contracts, agent.operators).search(budget=4)
    # the nominal run, then one run for each of: 3 reads x (timeout, wrong), 1 log x (timeout, lost_ack, wrong)
    assert result.certificate.states == 9
    assert result.certificate.checks == {"prefix": 9, "nominal": 1, "skipped": 0, "repeated": 9, "fresh": 0}
    assert result.executions == 1 + 9 + 9 + 1
    assert (result.certificate.proven, result.certificate.bound, found(result)) == (True, 4, {})


def test_a_lost_acknowledgement_and_a_timeout_look_alike_to_the_agent_and_differ_in_d(lab):
    agent = twins()
    made = lab(agent.body, agent.contracts, agent.operators)
    runs = [
        made.evaluate(
            mat.spec.RunSpec(schedule=mat.spec.schedule([mat.spec.perturbation(operator, "main/service:pay#1", cost=4)]))
        )
        for operator in agent.operators
    ]
    timed_out, lost = runs
    assert timed_out.records[0].observation == lost.records[0].observation  # replies alone would merge the two
    assert timed_out.records[1].site == lost.records[1].site == "main/service:is_paid#1"
    assert timed_out.records[1].action.arguments == lost.records[1].action.arguments
    assert prefixes(timed_out)[0] == prefixes(lost)[0]
    assert prefixes(timed_out)[1] != prefixes(lost)[1]


def test_equal_states_are_skipped_and_the_sample_of_them_is_checked(lab, found):
    """A twin operator that does exactly the same: everything after it is reached twice and executed once."""
    from mat.boundary.effect import Raise

    twin = mat.spec.operator("service.hang", lambda call, reply, stream: Raise("timeout", delay_ms=1_000))
    agent = single_unhandled()
    pruned = lab(agent.body, agent.contracts, agent.operators, extra=[twin]).search()
    unpruned = lab(agent.body, agent.contracts, agent.operators, extra=[twin]).search(prune=False)
    assert pruned.certificate.skipped["equal state"] > 8
    assert pruned.certificate.checks["skipped"] == 8
    assert pruned.certificate.proven
    assert pruned.certificate.states < unpruned.certificate.checks["prefix"]
    assert found(pruned) == found(unpruned) == agent.costs


def test_a_perturbation_of_a_call_in_flight_is_part_of_the_key(lab, found):
    """Two time-outs that still wait when the next call is asked: D is the same, and what they will do is not."""

    def body():
        paid = []

        @mat.tool(effect="write")
        async def pay():
            paid.append(1)

        @mat.tool
        async def check():
            await asyncio.sleep(0.5)
            return len(paid)

        async def payer():
            try:
                await pay()
            except TimeoutError:
                await pay()

        async def main():
            task = asyncio.ensure_future(payer())
            await asyncio.sleep(0)
            try:
                await check()
            except TimeoutError:
                await task
                if len(paid) == 2:
                    harm()
            await task

        asyncio.run(main())

    made = lab(body, [no_harm], ("service.timeout", "service.lost_ack"))
    runs = [
        made.evaluate(
            mat.spec.RunSpec(schedule=mat.spec.schedule([mat.spec.perturbation(operator, "main/service:pay#1", cost=4)]))
        )
        for operator in ("service.timeout", "service.lost_ack")
    ]
    assert [run.records[1].site for run in runs] == ["main/service:check#1"] * 2
    assert prefixes(runs[0])[1] == prefixes(runs[1])[1]  # D alone does not tell them apart here
    assert found(made.search()) == made.brute_force(8) == {"harm.none": 8}


def test_an_outage_that_begins_at_a_blocked_or_irrelevant_ask_is_offered_where_a_later_ask_matters(lab, found):
    """The range acts from its second ask on; one that began later would end later, and here that is too late."""
    from mat.boundary.effect import Raise

    only_pay = mat.spec.operator(
        "service.second", lambda call, reply, stream: Raise("timeout") if call.index == 1 else mat.boundary.effect.PASS,
        grid=[{"calls": 2, "magnitude": 1}], relevant=lambda record, parameters, before: record.action.arguments["index"] == 1,
    )  # fmt: skip

    @mat.tool
    def read(index: int) -> int:
        return index

    def body():
        for index in range(3):
            try:
                read(index)
            except TimeoutError:
                harm()

    made = lab(body, [no_harm], (), extra=[only_pay])
    assert found(made.search()) == made.brute_force(8) == {"harm.none": 5}


def test_random_search_finds_the_easy_one_the_same_way_each_time_and_proves_nothing(lab, found):
    agent = single_unhandled()
    made = lab(agent.body, agent.contracts, agent.operators)
    one = made.search(strategy="random", stop="cheapest")
    first = list(made.executed)
    made.executed.clear()
    other = made.search(strategy="random", stop="cheapest")
    assert found(one) == agent.costs
    assert made.executed == first
    assert (one.certificate.proven, one.certificate.bound) == (False, 0)
    assert one.certificate.reason == "random search proves nothing"
    assert other.first == one.first


def test_random_search_draws_differently_for_another_seed(lab):
    agent = careful()
    drawn = []
    for seed in (0, 1):
        made = lab(agent.body, agent.contracts, agent.operators, seed=seed)
        made.search(strategy="random", max_runs=12)
        drawn.append(made.executed)
    assert drawn[0] != drawn[1]


def test_a_contract_that_the_nominal_run_breaks_is_not_reported_by_the_search(lab, found):
    def body():
        harm()
        try:
            log("a")
        except TimeoutError:
            harm()

    result = lab(body, [no_harm]).search()
    assert found(result) == {}
    assert result.first is None


def test_the_order_in_which_operators_are_given_decides_nothing(lab):
    from mat_search import Campaign, search

    agent = retry_of_retry()
    made = lab(agent.body, agent.contracts, agent.operators)
    results = [
        search(made.nominal(), made.evaluate, Campaign(operators=specs, budget=12)) for specs in (made.specs, made.specs[::-1])
    ]
    assert results[0].counterexamples == results[1].counterexamples
    assert results[0].executions == results[1].executions
