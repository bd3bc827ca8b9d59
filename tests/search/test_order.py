"""Races: who goes first is a perturbation like any other, found at its cheapest, shrunk and replayed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import mat
import mat_faults
from mat.core.run import Run
from mat.core.spec import RunSpec
from mat_search import Campaign, search

ORDER = tuple(item.spec() for item in mat_faults.operators() if item.boundary == "order")


@mat.trace_contract(start=(100, frozenset()), id="budget.kept")
def budget_kept(state: Any, record: Any) -> Any:
    left, seen = state
    if record.action.name != "spend" or record.effected != "yes":
        return state
    left -= record.action.arguments["amount"]
    return (left, seen) if left >= 0 else mat.Violated(f"{-left} more was spent than there is", state=(left, seen))


class Ledger:
    """A shared budget. `asynchronous` ports may suspend, as ones over a network do."""

    def __init__(self) -> None:
        self.left = 100

    @mat.tool(name="balance", effect="read", perturb=["order"])
    def balance(self) -> int:
        return self.left

    @mat.tool(name="spend", effect="write", perturb=["order"])
    def spend(self, amount: int) -> int:
        self.left -= amount
        return self.left

    @mat.tool(name="balance", effect="read", perturb=["order"])
    async def balance_async(self) -> int:
        return self.left

    @mat.tool(name="spend", effect="write", perturb=["order"])
    async def spend_async(self, amount: int) -> int:
        self.left -= amount
        return self.left


async def _buyers(buy: Callable[[Ledger, str], Awaitable[None]]) -> None:
    ledger = Ledger()
    await asyncio.gather(buy(ledger, "ann"), buy(ledger, "bob"))


async def _checks_then_spends(ledger: Ledger, name: str) -> None:
    with mat.agent(name):
        if await ledger.balance_async() >= 70:
            await ledger.spend_async(70)


async def _checks_and_spends_under_a_lock(ledger: Ledger, name: str) -> None:
    lock = _locks.setdefault(id(asyncio.get_running_loop()), asyncio.Lock())
    async with lock:
        await _checks_then_spends(ledger, name)


_locks: dict[int, asyncio.Lock] = {}


def tasks_race() -> None:
    asyncio.run(_buyers(_checks_then_spends))


def tasks_take_turns() -> None:
    _locks.clear()
    asyncio.run(_buyers(_checks_and_spends_under_a_lock))


def threads_race() -> None:
    ledger = Ledger()
    _in_threads(lambda name: _buy(ledger, name))


def threads_take_turns() -> None:
    ledger, lock = Ledger(), threading.Lock()

    def buy(name: str) -> None:
        with lock:
            _buy(ledger, name)

    _in_threads(buy)


def _buy(ledger: Ledger, name: str) -> None:
    with mat.agent(name):
        if ledger.balance() >= 70:
            ledger.spend(70)


def _in_threads(body: Callable[[str], None]) -> None:
    threads = [threading.Thread(target=body, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def jobs_race() -> None:
    async def body() -> None:
        ledger = Ledger()
        await asyncio.gather(asyncio.to_thread(_buy, ledger, "ann"), asyncio.to_thread(_buy, ledger, "bob"))

    asyncio.run(body())


def execute(body: Callable[[], None], spec: RunSpec) -> Run:
    with mat.run([budget_kept], schedule=spec.schedule, operators=mat_faults.operators(), states=True) as run:
        body()
    assert run.result is not None
    return run.result


def searched(body: Callable[[], None], **options: Any) -> Any:
    nominal = execute(body, RunSpec())
    assert nominal.failures == ()
    return search(nominal, lambda spec: execute(body, spec), Campaign(operators=ORDER, **options))


@pytest.mark.full
@pytest.mark.parametrize("body", [tasks_race, threads_race, jobs_race], ids=lambda body: body.__name__)
def test_a_race_for_a_shared_budget_is_found_with_one_hold_and_replayed(body):
    found = searched(body, budget=12)
    assert found.certificate.proven
    (counterexample,) = found.counterexamples
    schedule = counterexample.run.spec.schedule
    assert [(item.operator, str(item.site), dict(item.parameters), item.cost) for item in schedule] == [
        ("order.hold", "ann/order:service.spend#1", {"turns": 1}, 4)
    ]
    again = execute(body, RunSpec(schedule=schedule))
    assert again.head == counterexample.run.head
    assert [(item.contract, item.agent) for item in again.failures] == [("budget.kept", "bob")]


@pytest.mark.full
@pytest.mark.parametrize("body", [tasks_take_turns, threads_take_turns], ids=lambda body: body.__name__)
def test_a_system_that_locks_is_certified_over_all_orders_of_the_budget(body):
    found = searched(body, budget=12)
    assert (found.counterexamples, found.certificate.proven, found.certificate.bound) == ((), True, 12)
    assert found.certificate.executions > 2


def test_one_agent_alone_offers_nothing_to_hold():
    def alone() -> None:
        ledger = Ledger()
        for _ in range(3):
            _buy(ledger, "ann")

    found = searched(alone, budget=12)
    assert (found.certificate.states, found.certificate.proven) == (0, True)


@pytest.mark.full
def test_pruned_and_unpruned_search_agree_on_races():
    for body in (tasks_race, threads_race, tasks_take_turns):
        one, other = (searched(body, budget=9, prune=prune, stop="budget") for prune in (True, False))
        assert [item.cost for item in one.counterexamples] == [item.cost for item in other.counterexamples]


def test_every_order_of_three_independent_calls_is_reached_by_holds():
    """Delay-bounded scheduling is complete: with enough holds each of the six orders of effects is seen."""

    def body() -> None:
        @mat.tool(name="write", effect="write")
        async def write(tag: str) -> str:
            return tag

        async def agent(name: str) -> None:
            with mat.agent(name):
                await write(name)

        async def all_three() -> None:
            await asyncio.gather(*(agent(name) for name in "abc"))

        asyncio.run(all_three())

    seen = set()

    def run(spec: RunSpec) -> Run:
        made = execute(body, spec)
        sealed = sorted((record for record in made.records if record.action.name == "write"), key=lambda item: item.sealed_seq)
        seen.add("".join(record.agent for record in sealed))
        return made

    search(execute(body, RunSpec()), run, Campaign(operators=ORDER, budget=14))
    assert seen == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_a_hold_lets_no_time_pass_and_is_recorded_next_to_other_faults():
    async def body() -> None:
        ledger = Ledger()

        async def slow() -> None:
            await asyncio.sleep(5)
            await ledger.balance_async()

        async def quick(name: str) -> None:
            with mat.agent(name):
                await ledger.balance_async()

        await asyncio.gather(quick("ann"), slow(), quick("bob"))

    schedule = [mat.spec.perturbation("order.hold", "ann/order:service.balance#1", {"turns": 100})]
    with mat.run(schedule=schedule, operators=mat_faults.operators()) as run:
        asyncio.run(body())
    ann, bob, main = run.trace[:3]
    assert [(item.agent, item.at_ms, item.sealed_ms) for item in (ann, bob, main)] == [
        ("ann", 0, 0), ("bob", 0, 0), ("main", 5000, 5000),
    ]  # fmt: skip
    assert bob.sealed_seq < ann.sealed_seq
    assert [(note.operator, note.effect, note.changed) for note in ann.faults] == [("order.hold", "Hold", True)]


def test_a_hold_where_nobody_else_can_run_changes_nothing_but_says_that_it_was_there():
    with mat.run(
        schedule=[mat.spec.perturbation("order.hold", "main/order:service.balance#1", {"turns": 1})],
        operators=mat_faults.operators(),
    ) as run:
        Ledger().balance()
    assert [(note.effect, note.changed) for note in run.trace[0].faults] == [("Hold", False)]
    assert run.result is not None
    assert run.result.unreached == ()


def test_a_hold_and_a_fault_can_act_on_one_call():
    schedule = [
        mat.spec.perturbation("order.hold", "a/order:service.fetch#1", {"turns": 1}),
        mat.spec.perturbation("service.timeout", "a/service:fetch#1"),
    ]

    @mat.tool(name="fetch")
    def fetch() -> str:
        return "ok"

    def one(name: str) -> None:
        with mat.agent(name):
            try:
                fetch()
            except TimeoutError:
                time.sleep(1)

    with mat.run(schedule=schedule, operators=mat_faults.operators()) as run:
        threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [(note.operator, note.changed) for note in run.trace[0].faults] == [("order.hold", True), ("service.timeout", True)]
    assert run.trace[1].sealed_seq < run.trace[0].sealed_seq
