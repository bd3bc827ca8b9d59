"""Code that is made in the block of one agent and runs in that of another acts for the block it runs in, and gains nothing."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import mat
from mat.govern.mediator import Governance

DONE: list[str] = []
BOTH = {"boss": ["refund"], "intern": []}


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@mat.tool(effect="write")
def refund(order: str) -> str:
    DONE.append(order)
    return "refunded"


def stream() -> Iterator[int]:
    for number in range(2):
        refund(f"item {number}")
        yield number


def streams_as_boss() -> Iterator[int]:
    with mat.agent("boss"):
        for number in range(2):
            refund(f"item {number}")
            yield number


async def later() -> str:
    return refund("later")


def governed(act: Callable[[], object], **capabilities: list[str]) -> list[tuple[str, str]]:
    """(who acted, what came of it) of each call of the tool."""

    def go() -> list[tuple[str, str]]:
        with mat.run(governance=Governance(capabilities=capabilities or BOTH)) as run:
            act()
        return [
            (item.agent, "blocked" if item.mediation and item.mediation.decision == "block" else "ran")
            for item in run.trace
            if item.action.kind == "tool_call"
        ]

    return contextvars.copy_context().run(go)


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(mat.Blocked):
        act()


def test_a_generator_acts_for_whoever_asks_it_for_the_next_item() -> None:
    def act() -> None:
        with mat.agent("boss"):
            items = stream()
            next(items)
        with mat.agent("intern"):
            refused(lambda: next(items))

    assert governed(act) == [("boss", "ran"), ("intern", "blocked")]
    assert DONE == ["item 0"]


def test_an_async_generator_acts_for_whoever_asks_it_for_the_next_item() -> None:
    async def items() -> AsyncIterator[int]:
        for number in range(2):
            refund(f"item {number}")
            yield number

    async def program() -> None:
        made: Any = items()
        with mat.agent("boss"):
            await anext(made)
        with mat.agent("intern"), pytest.raises(mat.Blocked):
            await anext(made)

    assert governed(lambda: asyncio.run(program())) == [("boss", "ran"), ("intern", "blocked")]


def test_a_block_in_a_generator_that_is_suspended_gives_an_agent_no_rights() -> None:
    def act() -> None:
        with mat.agent("intern"):
            items = streams_as_boss()
            refused(lambda: next(items))
            refused(lambda: refund("between"))

    governed(act)
    assert DONE == []


def test_a_block_in_a_generator_that_was_begun_elsewhere_gives_an_agent_no_rights() -> None:
    def act() -> None:
        items = streams_as_boss()
        next(items)
        with mat.agent("intern"):
            refused(lambda: next(items))
            refused(lambda: refund("own"))

    governed(act)
    assert DONE == ["item 0"]


@pytest.mark.parametrize(("maker", "starter", "expected"), [("boss", "intern", "blocked"), ("intern", "boss", "ran")])
@pytest.mark.parametrize("how", ["partial", "coroutine", "closure"])
def test_a_deferred_call_belongs_to_whoever_starts_it(how: str, maker: str, starter: str, expected: str) -> None:
    def made() -> Callable[[], object]:
        if how == "partial":
            return functools.partial(refund, "A17")
        if how == "closure":
            return lambda: refund("A17")
        waiting = later()
        return lambda: asyncio.run(waiting)

    def act() -> None:
        with mat.agent(maker):
            deferred = made()
        with mat.agent(starter):
            try:
                deferred()
            except mat.Blocked:
                assert expected == "blocked"

    assert governed(act) == [(starter, expected)]


def test_a_task_belongs_to_whoever_created_it_wherever_it_is_awaited() -> None:
    async def program() -> None:
        with mat.agent("intern"):
            task = asyncio.create_task(later())
        with mat.agent("boss"), pytest.raises(mat.Blocked):
            await task

    assert governed(lambda: asyncio.run(program())) == [("intern", "blocked")]


def test_a_delegation_that_nobody_takes_up_does_not_limit_its_delegator() -> None:
    def act() -> None:
        with mat.agent("boss"):
            mat.delegate("intern", task="look into it")
            refund("A17")

    assert governed(act, boss=["refund", "delegation:intern"], intern=[]) == [("boss", "ran")]


def test_a_delegation_that_nobody_takes_up_limits_its_delegate_until_it_is_entered_and_left() -> None:
    def act() -> None:
        with mat.agent("intern"):
            handed = mat.delegate("boss", task="refund A17")
        with mat.agent("boss"):
            refused(lambda: refund("A17"))
        with handed:
            pass
        with mat.agent("boss"):
            refund("B4")

    assert governed(act, boss=["refund"], intern=["delegation:boss"]) == [("boss", "blocked"), ("boss", "ran")]


def test_a_delegation_whose_task_is_cancelled_limits_nobody_any_more() -> None:
    async def child() -> None:
        with mat.delegate("intern", task="wait"):
            await asyncio.sleep(100)

    async def program() -> None:
        with mat.agent("boss"):
            task = asyncio.create_task(child())
            await asyncio.sleep(0.01)
            refund("meanwhile")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            refund("afterwards")

    assert governed(lambda: asyncio.run(program()), boss=["refund", "delegation:intern"], intern=[]) == [("boss", "ran")] * 2
