"""DRAFTED -> ACTIVE -> one of four ends: every transition is reached, every other one refused, and each contract ends once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final, get_args

import pytest

import mat
from mat.core.errors import MatError
from mat.resources import Criterion, Output, ResourceContract, Work
from mat.resources.ledger import ContractNode, Ledger
from mat.resources.lifecycle import TERMINAL_STATES, TRANSITIONS, LifecycleState

HISTORIES: Final = int(os.environ.get("MAT_EXAMPLES", "1000"))
STATES: Final[tuple[LifecycleState, ...]] = get_args(LifecycleState)
EVERY: Final = [(before, after) for before in STATES for after in STATES]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def brought_to(state: LifecycleState) -> tuple[Ledger, ContractNode]:
    ledger = Ledger(Clock())
    node = ledger.draft("work", "agent")
    if state != "drafted":
        ledger.activate(node, {"": {"calls": 2}})
    if state in TERMINAL_STATES:
        ledger.end(node, state, "so it is")
    assert node.state == state
    return ledger, node


def move(ledger: Ledger, node: ContractNode, to: LifecycleState) -> None:
    if to == "active":
        assert ledger.activate(node, {"": {"calls": 2}}) == ""
    else:
        ledger.end(node, to, "again")


@pytest.mark.parametrize(("before", "after"), [pair for pair in EVERY if pair[1] in TRANSITIONS[pair[0]]])
def test_what_the_lifecycle_allows_happens(before: LifecycleState, after: LifecycleState) -> None:
    ledger, node = brought_to(before)
    move(ledger, node, after)
    assert node.state == after


@pytest.mark.sweep(("before", "after"), [pair for pair in EVERY if pair[1] not in TRANSITIONS[pair[0]]])
def test_what_it_does_not_is_refused_and_changes_nothing(before: LifecycleState, after: LifecycleState) -> None:
    ledger, node = brought_to(before)
    ledger.take_notices()
    known = (node.state, node.cause, ledger.state(), ledger.numbered())
    with pytest.raises(MatError, match=f"cannot go from {before} to {after}"):
        move(ledger, node, after)
    assert (node.state, node.cause, ledger.state(), ledger.numbered()) == known
    assert ledger.take_notices() == []


def test_a_draft_that_asks_for_too_much_stays_one_and_may_begin_later() -> None:
    ledger = Ledger(Clock())
    above = ledger.draft("above", "boss")
    ledger.activate(above, {"": {"calls": 5}})
    first, second = (ledger.draft("below", "agent", parents=[above]) for _ in range(2))
    assert ledger.activate(first, {above.id: {"calls": 4}}) == ""
    assert "can allocate 1 of its calls, not 3" in ledger.activate(second, {above.id: {"calls": 3}})
    assert second.state == "drafted"
    ledger.end(first, "fulfilled")
    assert ledger.activate(second, {above.id: {"calls": 3}}) == ""


# -- how real work reaches each state ------------------------------------------------------------------------------------


@mat.model("writer")
def write(prompt: str, wrote: int) -> dict[str, Any]:
    return {"text": "so", "usage": {"input_tokens": 0, "output_tokens": wrote}}


def of(**terms: Any) -> ResourceContract:
    return ResourceContract(name="work", budgets={"tokens": 10}, **terms)


def _fulfilled(work: Work) -> None:
    write("x", 10)  # c = b is no breach
    assert work.deliver("done")


def _violated(work: Work) -> None:
    write("x", 11)


def _expired(work: Work) -> None:
    import time

    time.sleep(2)
    with pytest.raises(mat.budget.BudgetSpent, match="expired"):
        write("x", 1)


def _cancelled(work: Work) -> None:
    work.cancel("the user left")


def _undelivered(work: Work) -> None:
    assert not work.deliver("bad")


@pytest.mark.parametrize(
    ("acted", "state", "cause"),
    [
        (_fulfilled, "fulfilled", ""),
        (_violated, "violated", "the consumption of tokens is 11, over the budget of 10"),
        (_expired, "expired", "its time ended at 1000 ms"),
        (_cancelled, "terminated", "the user left"),
        (_undelivered, "terminated", "not fulfilled: criteria: 0 of 1, without good"),
    ],
)
def test_each_end_is_reached_by_what_agents_do_and_says_why(acted: Any, state: str, cause: str) -> None:
    good = Criterion(name="good", holds=lambda output, status: output != "bad")
    with mat.run() as run, mat.budget.contracted(of(duration_s=1, criteria=(good,))) as work:
        acted(work)
    assert (work.state, work.cause) == (state, cause)
    ends = [
        record.action.name for record in run.trace if record.action.kind == "contract" and record.action.name in TERMINAL_STATES
    ]
    assert ends == [state]


def test_a_good_output_after_an_overrun_is_not_accepted() -> None:
    contract = of(output=Output(quality=lambda output: 1.0, least_quality=0.5))
    with mat.run(), mat.budget.contracted(contract) as work:
        write("x", 11)
        delivery = work.deliver("perfect")
        assert not delivery
        assert delivery.problems == ("the contract is violated: the consumption of tokens is 11, over the budget of 10",)
        assert work.state == "violated"


def test_an_end_releases_all_but_what_was_used() -> None:
    with mat.run(), mat.budget.contracted(of()) as work:
        for state in ("fulfilled", "terminated"):
            with work.delegate(ResourceContract(name="part", budgets={"tokens": 4}), agent="helper") as part:
                write("x", 1)
                assert work.left("tokens") == (6 if state == "fulfilled" else 5)
                if state == "terminated":
                    part.cancel()
            assert part.state == state
        assert work.left("tokens") == 8


# -- random histories ----------------------------------------------------------------------------------------------------


def histories() -> Iterator[tuple[int, Ledger]]:
    """Contracts in trees, and acts upon them drawn at random, most of them forbidden; the run ends at some moment."""
    for number in range(HISTORIES):
        random, clock = Random(number), Clock()
        ledger = Ledger(clock)
        for _ in range(random.randrange(1, 25)):
            nodes = list(ledger.nodes.values())
            if not nodes or random.random() < 0.15:
                ledger.draft("work", "agent", parents=[random.choice(nodes)] if nodes and random.random() < 0.8 else [])
            elif random.random() < 0.15:
                clock.now_ms += random.randrange(4)
            else:
                with suppress(MatError):
                    _act(ledger, random.choice(nodes), random)
        ledger.close()
        yield number, ledger


def _act(ledger: Ledger, node: ContractNode, random: Random) -> None:
    act = random.choice(("begin", "begin", "end", "call", "settle"))
    if act == "begin":
        giver = node.parents[0].id if node.parents else ""
        ledger.activate(node, {giver: {"calls": random.randrange(4)}}, duration_ms=random.choice((None, 3)))
    elif act == "end":
        ledger.end(node, random.choice(STATES[2:]), "so it is")
    elif act == "call":
        need = {"calls": random.randrange(3)}
        if not ledger.refusal(node, need)[1]:
            ledger.hold(f"call {ledger.numbered()}", node, need)
    elif ledger.holds:
        ledger.settled(random.choice(list(ledger.holds)), random.choice((None, {"calls": random.randrange(6)})))


def test_every_contract_of_every_history_ends_exactly_once_and_each_way_to_end_is_taken() -> None:
    ways: Counter[tuple[str, str]] = Counter()
    for number, ledger in histories():
        known: dict[str, str] = {}
        for told in sorted(ledger.take_notices(), key=lambda item: item.facts["entry"]):
            contract, before = told.facts["contract"], known.get(told.facts["contract"], "")
            if told.event == "drafted":
                assert not before
                known[contract] = "drafted"
            elif told.event == "activated" or told.event in TERMINAL_STATES:
                after = "active" if told.event == "activated" else told.event
                assert after in TRANSITIONS[before], f"history {number}: {contract} went from {before} to {after}"  # type: ignore[index]
                ways[before, after] += 1
                known[contract] = after
        assert set(known.values()) <= TERMINAL_STATES, f"history {number}: {known}"
        assert known == {node.id: node.state for node in ledger.nodes.values()}
    assert set(ways) == {(before, after) for before, afters in TRANSITIONS.items() for after in afters}
