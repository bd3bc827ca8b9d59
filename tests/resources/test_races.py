"""Who spends first: a budget that user code checks and then spends is overspent in some order, a ledger's in none."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import mat
import mat_faults
from mat.core.run import Run
from mat.core.spec import RunSpec
from mat.resources import ResourceContract, Work
from mat_contracts.resource import (
    conserved,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
    within_budget,
)
from mat_search import Campaign, search

TOKENS, NEED = 100, 70
ORDER = tuple(item.spec() for item in mat_faults.operators() if item.boundary == "order")
SERVICE = tuple(item.spec() for item in mat_faults.operators() if item.boundary in ("model", "order", "service"))
LAWS = (
    conserved(), exactly_one_terminal_state(), no_spend_after_terminal(), reserve_kept(), utilisation_monotone(),
    delegation_within_parent(),
)  # fmt: skip
OVERSPENT = within_budget({"tokens": TOKENS}, id="budget.kept")


def _reply() -> dict[str, Any]:
    return {"text": "so", "usage": {"input_tokens": 0, "output_tokens": NEED}}


@mat.model("thinker")
def think(max_tokens: int = NEED) -> dict[str, Any]:
    return _reply()


@mat.model("thinker")
async def think_async(max_tokens: int = NEED) -> dict[str, Any]:
    return _reply()


@mat.tool(effect="write")
async def note(text: str) -> str:
    return text


class Counter:
    """The naive ledger: what is left, and nobody who holds it between the look and the spending."""

    def __init__(self) -> None:
        self.left = TOKENS

    def buy(self) -> None:
        if self.left >= NEED:
            self.left -= think()["usage"]["output_tokens"]

    async def buy_async(self) -> None:
        if self.left >= NEED:
            self.left -= (await think_async())["usage"]["output_tokens"]


def _in_threads(body: Callable[[], object]) -> None:
    def one(name: str) -> None:
        with mat.agent(name):
            body()

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(one, name)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _in_tasks(body: Callable[[], Any]) -> None:
    async def one(name: str) -> None:
        with mat.agent(name):
            await body()

    await asyncio.gather(one("ann"), one("bob"))


def naive_tasks() -> None:
    asyncio.run(_in_tasks(Counter().buy_async))


def naive_threads() -> None:
    _in_threads(Counter().buy)


@contextmanager
def _what_may_happen() -> Iterator[None]:
    """A budget that is spent, and whatever a service fails with."""
    try:
        yield
    except mat.budget.BudgetSpent:
        pass
    except Exception as error:
        if isinstance(error, mat.MatError):
            raise


def _shared() -> Work:
    return mat.budget.contracted(ResourceContract(name="shared", budgets={"tokens": TOKENS}, reserve_percent=10))


def contracted_tasks() -> None:
    async def buy() -> None:
        with _what_may_happen():
            await note("begun")
            await think_async()

    async def body() -> None:
        async with _shared():
            await _in_tasks(buy)

    asyncio.run(body())


def contracted_threads() -> None:
    def buy() -> None:
        with _what_may_happen():
            think()

    with _shared():
        _in_threads(buy)


def delegated_tasks() -> None:
    """Each takes a part of the budget first: only one finds enough."""

    async def body() -> None:
        async with _shared() as above:

            async def buy() -> None:
                contract = ResourceContract(name="part", budgets={"tokens": NEED})
                with _what_may_happen():
                    async with above.delegate(contract, agent="helper") as work:
                        await note("begun")
                        await think_async()
                        work.deliver("bought")

            await _in_tasks(buy)

    asyncio.run(body())


def execute(body: Callable[[], None], spec: RunSpec, contracts: Any = (OVERSPENT, *LAWS)) -> Run:
    with mat.run(contracts, schedule=spec.schedule, operators=mat_faults.operators(), states=True) as run:
        body()
    assert run.result is not None
    return run.result


def searched(body: Callable[[], None], **options: Any) -> Any:
    nominal = execute(body, RunSpec())
    assert nominal.failures == ()
    return search(nominal, lambda spec: execute(body, spec), Campaign(**{"operators": ORDER, "budget": 12, **options}))


@pytest.mark.parametrize("body", [naive_tasks, naive_threads], ids=lambda body: body.__name__)
def test_a_budget_that_is_checked_and_then_spent_is_overspent_with_one_hold_and_replayed(body: Callable[[], None]) -> None:
    found = searched(body)
    assert found.certificate.proven
    (counterexample,) = found.counterexamples
    schedule = counterexample.run.spec.schedule
    assert [(item.operator, str(item.site), dict(item.parameters), item.cost) for item in schedule] == [
        ("order.hold", "ann/order:model.thinker#1", {"turns": 1}, 4)
    ]
    again = execute(body, RunSpec(schedule=schedule))
    assert again.head == counterexample.run.head
    assert {item.contract for item in again.failures} == {"budget.kept"}


@pytest.mark.full
@pytest.mark.parametrize("body", [contracted_tasks, contracted_threads, delegated_tasks], ids=lambda body: body.__name__)
def test_the_ledger_is_certified_over_all_orders_of_the_budget(body: Callable[[], None]) -> None:
    found = searched(body)
    assert (found.counterexamples, found.certificate.proven, found.certificate.bound) == ((), True, 12)
    assert found.certificate.executions > 2


@pytest.mark.nightly
@pytest.mark.parametrize("body", [contracted_tasks, delegated_tasks], ids=lambda body: body.__name__)
def test_no_fault_of_a_service_breaks_a_law_of_the_ledger(body: Callable[[], None]) -> None:
    """A model that writes without end is in flight when it overruns: that is reported, and no law is broken by it."""
    nominal = execute(body, RunSpec(), LAWS)
    found = search(nominal, lambda spec: execute(body, spec, LAWS), Campaign(operators=SERVICE, budget=5))
    assert (found.counterexamples, found.certificate.proven) == ((), True)
    assert found.certificate.executions > 10


@pytest.mark.full
def test_under_stress_the_naive_item_fails_and_the_contracted_one_is_certified(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_budget="""
        import asyncio
        import mat, pytest
        from mat.resources import ResourceContract
        from mat_contracts.resource import conserved, within_budget

        @mat.model("thinker")
        async def think(max_tokens=70):
            return {"text": "so", "usage": {"input_tokens": 0, "output_tokens": 70}}

        @pytest.fixture
        def budget_kept():
            return within_budget({"tokens": 100}, id="budget.kept")

        @pytest.fixture
        def books():
            return conserved()

        async def both(buy):
            async def one(name):
                with mat.agent(name):
                    await buy()
            await asyncio.gather(one("ann"), one("bob"))

        @pytest.mark.mat(faults=["order.hold"])
        def test_naive(mat_run, budget_kept):
            left = [100]
            async def buy():
                if left[0] >= 70:
                    left[0] -= (await think())["usage"]["output_tokens"]
            asyncio.run(both(buy))

        @pytest.mark.mat(faults=["order.hold", "service.timeout"])
        def test_contracted(mat_run, budget_kept, books):
            async def buy():
                try:
                    await think()
                except (mat.budget.BudgetSpent, TimeoutError):
                    pass
            async def body():
                async with mat.budget.contracted(ResourceContract(name="shared", budgets={"tokens": 100})):
                    await both(buy)
            asyncio.run(body())
        """
    )
    result = pytester.runpytest("--mat-stress", "-v", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*others go first: the 1st call of model thinker by ann waits for 1 other*",
            "*No cheaper counterexample exists*",
            "certified *test_contracted",
        ]
    )
