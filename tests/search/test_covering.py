"""What a search leaves out: only where an executed run covers it, and only by declarations that the certificate names."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.core.record import DeclaredEffect
from mat.core.run import Run, prefixes
from mat.core.value import FrozenDict
from mat_contracts import no_duplicate_effect
from mat_search.covering import Covering, digest_assumptions
from mat_search.exhaust import Exhaustive
from mat_search.strategy import EdgeOutcome, SearchPlan

OPERATORS = {item.id: item for item in mat_faults.operators()}
ACK, TIMEOUT, STALE, TWICE = "service.lost_ack", "service.timeout", "service.stale", "service.duplicate"


def search(lab: Any, body: Callable[[], object], contract: Any, *ids: str, **options: Any) -> Any:
    return lab(body, [contract], (), [OPERATORS[id] for id in ids]).search(**options)


def outcome(result: Any) -> tuple[bool, tuple[str, ...], dict[str, int]]:
    """Whether it is proven, by which assumptions, and the cheapest cost of each broken contract."""
    broken = {item.verdict.contract: item.cost for item in result.counterexamples}
    return result.certificate.proven, result.certificate.assumptions, broken


# -- the examples of the finding ----------------------------------------------------------------------------------------


def refunding(effect: DeclaredEffect | None) -> Callable[[], object]:
    """An agent that repeats a refund whose reply does not come."""

    def body() -> None:
        @mat.tool(**({} if effect is None else {"effect": effect}))
        def refund(order: str) -> str:
            return "refunded"

        for _ in range(2):
            with suppress(OSError):
                refund("A17")
                break

    return body


def test_an_undeclared_refund_is_found_to_happen_twice(lab):
    once = no_duplicate_effect(tool="refund")
    undeclared = search(lab, refunding(None), once, TIMEOUT, ACK)
    assert outcome(undeclared)[2] == {"refund.no_duplicate_effect": 4}
    assert outcome(undeclared)[2] == outcome(search(lab, refunding("write"), once, TIMEOUT, ACK))[2]


def test_what_workers_begin_early_relies_on_no_declaration(lab):
    """The first call's children are worked out for the workers before their turn; only then may a declaration be noted."""
    made = lab(refunding("read"), [no_duplicate_effect(tool="refund")], (), [OPERATORS[TIMEOUT], OPERATORS[ACK]])
    plan = SearchPlan(operators=made.specs, budget=8, max_runs=100, stream=Random(0))
    strategy = Exhaustive(plan)
    edge = strategy.ask()
    run = made.nominal()
    strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run)))
    assert [each.schedule.cost for each in strategy.upcoming(10)] == [4]
    assert plan.grid.covering.assumptions == ()
    strategy.ask()
    assert plan.grid.covering.assumptions == ("reads that are declared to change nothing: refund",)


def test_whoever_declares_the_refund_a_read_gets_a_certificate_that_says_so(lab):
    proven, assumptions, broken = outcome(search(lab, refunding("read"), no_duplicate_effect(tool="refund"), TIMEOUT, ACK))
    assert (proven, assumptions, broken) == (True, ("reads that are declared to change nothing: refund",), {})


@mat.step_contract(on="tool_call", id="pays.right")
def pays_what_it_owes(record):
    return record.action.name != "pay" or record.action.arguments["cents"] == 100


def paying(effect: DeclaredEffect | None) -> Callable[[], object]:
    """An agent whose price comes from an iterator of canned replies: a reply that is lost is used up."""

    def body() -> None:
        replies = iter([100, 200])

        @mat.tool(**({} if effect is None else {"effect": effect}))
        def price() -> int:
            return next(replies)

        @mat.tool(effect="write")
        def pay(cents: int) -> None: ...

        cents = 100
        for _ in range(2):
            with suppress(OSError):
                cents = price()
                break
        pay(cents)

    return body


def test_a_lost_reply_that_was_consumed_is_executed_where_the_read_is_not_declared(lab):
    assert outcome(search(lab, paying(None), pays_what_it_owes, TIMEOUT, ACK)) == (True, (), {"pays.right": 4})
    said = "reads that are declared to change nothing: price"
    assert outcome(search(lab, paying("read"), pays_what_it_owes, TIMEOUT, ACK)) == (True, (said,), {})


def giving_up() -> None:
    """An agent that pays nothing where it cannot read the price."""

    @mat.tool(effect="read")
    def price() -> int:
        return 100

    @mat.tool(effect="write")
    def pay(cents: int) -> None: ...

    cents = 0
    with suppress(OSError):
        cents = price()
    pay(cents)


def test_a_lost_reply_to_a_read_is_executed_where_time_outs_are_not_in_the_grid(lab):
    assert outcome(search(lab, giving_up, pays_what_it_owes, ACK)) == (True, (), {"pays.right": 4})


def test_a_lost_reply_to_a_read_is_executed_where_the_port_allows_no_time_outs(lab):
    def body() -> None:
        @mat.tool(effect="read", perturb=[ACK])
        def price() -> int:
            return 100

        @mat.tool(effect="write")
        def pay(cents: int) -> None: ...

        with suppress(OSError):
            pay(price())
            return
        pay(0)

    proven, assumptions, broken = outcome(search(lab, body, pays_what_it_owes, TIMEOUT, ACK))
    assert (proven, assumptions, broken) == (True, ("faults that perturb= excludes at price",), {"pays.right": 4})


def popping(effect: DeclaredEffect | None) -> Callable[[], object]:
    """An agent that takes three replies from a stack: the first two are equal, the third is the price, and then comes a 0."""

    def body() -> None:
        replies = [0, 100, 7, 7]

        @mat.tool(**({} if effect is None else {"effect": effect}))
        def take() -> int:
            return replies.pop()

        @mat.tool(effect="write")
        def pay(cents: int) -> None: ...

        pay([take() for _ in range(3)][-1])

    return body


def test_a_stale_reply_that_equals_todays_is_executed_where_replies_are_consumed(lab):
    """With the stale reply in the place of the second, the third call gets the second 7."""
    assert outcome(search(lab, popping(None), pays_what_it_owes, STALE, budget=5))[2] == {"pays.right": 5}
    assert outcome(search(lab, popping("write"), pays_what_it_owes, STALE, budget=5))[2] == {"pays.right": 5}


def test_a_second_delivery_is_executed_where_replies_are_consumed(lab):
    assert outcome(search(lab, popping(None), pays_what_it_owes, TWICE, budget=4))[2] == {"pays.right": 4}
    proven, assumptions, broken = outcome(search(lab, giving_up, pays_what_it_owes, TWICE, budget=4))
    assert (proven, assumptions, broken) == (True, ("reads that are declared to change nothing: price",), {})


# -- the rules ----------------------------------------------------------------------------------------------------------


@mat.step_contract(on="tool_call", id="pays.intime")
def pays_in_time(record):
    return record.action.name != "pay" or record.at_ms < 1_200


def slow_body() -> None:
    @mat.tool(effect="read")
    def price() -> int:
        time.sleep(0.5)
        return 100

    @mat.tool(effect="write")
    def pay(cents: int) -> None: ...

    with suppress(OSError):
        price()
    pay(100)


def test_a_reply_that_is_lost_after_a_slow_read_comes_later_than_a_time_out(lab):
    assert outcome(search(lab, slow_body, pays_in_time, TIMEOUT, ACK))[2] == {"pays.intime": 4}


def nested_body() -> None:
    @mat.tool(effect="write")
    def bill(cents: int) -> None: ...

    @mat.tool(effect="read")
    def price() -> int:
        bill(5)
        return 100

    for _ in range(2):
        with suppress(OSError):
            price()
            break


def test_a_read_that_calls_another_port_is_not_left_out(lab):
    once = no_duplicate_effect(tool="bill")
    proven, assumptions, broken = outcome(search(lab, nested_body, once, TIMEOUT, ACK, budget=4))
    assert (proven, assumptions, broken) == (True, (), {"bill.no_duplicate_effect": 4})


def test_the_lost_reply_of_a_read_is_in_no_cache(lab):
    """Otherwise {lost reply, stale reply} would be a run that no schedule with a time-out makes."""
    seen: list[int] = []

    def body() -> None:
        count = iter(range(9))

        @mat.tool(effect="read")
        def look() -> int:
            return next(count)

        for _ in range(3):
            with suppress(OSError):
                seen.append(look())

    made = lab(body, [], (), [OPERATORS[ACK], OPERATORS[STALE]])
    lost = mat.spec.perturbation(ACK, "main/service:look#1", cost=4)
    stale = mat.spec.perturbation(STALE, "main/service:look#2", {"age": 1, "magnitude": 1}, 5)
    run = made.evaluate(mat.spec.RunSpec(schedule=mat.spec.Schedule([lost, stale])))
    assert (seen, run.records[1].faults[0].effect) == ([1, 2], "Pass")


def test_which_builtin_operators_state_what_covers_them():
    assert {item.id: item.covered.by for item in OPERATORS.values() if item.covered is not None} == {
        ACK: TIMEOUT, TWICE: "", STALE: "", "memory.stale_read": "", "retrieval.stale": "", "delegation.duplicate": "",
    }  # fmt: skip


def _point_at(run: Run, active: bool = True) -> bool:
    specs = [OPERATORS[TIMEOUT].spec(), OPERATORS[ACK].spec()]
    covering = Covering(specs, active=active)
    return covering.covers(specs[1], specs[1].choices[0], run.records[0], (), run)


@pytest.mark.parametrize(("effect", "covered"), [("read", True), ("none", True), ("write", False), ("unknown", False)])
def test_only_a_call_that_is_declared_to_change_nothing_is_covered(effect, covered):
    @mat.tool(effect=effect)
    def look() -> int:
        return 1

    with mat.run() as run:
        look()
    assert _point_at(run.result) is covered
    assert not _point_at(run.result, active=False)


def test_what_the_state_digest_vouches_for_is_an_assumption():
    def assumed(**claims: bool) -> tuple[str, ...]:
        with mat.run(states=True, state_digest=mat.spec.StateDigest(lambda: 1, **claims)) as run:
            mat.finish("done")
        return digest_assumptions(run.result)

    assert assumed() == ()
    assert assumed(complete=True) == ("the state digest is complete",)
    assert assumed(complete=True, clock=False) == ("the state digest is complete", "no result depends on time")


# -- L15 ----------------------------------------------------------------------------------------------------------------

STATES = 3
cells = st.tuples(st.integers(0, STATES - 1), st.booleans())
tables = st.tuples(*[st.tuples(st.tuples(st.integers(0, 1), st.just(False)), cells, cells)] * STATES)


@mat.step_contract(on="tool_call", id="ends.well")
def ends_well(record):
    return record.action.name != "end" or record.action.arguments["state"] != STATES - 1


def reader(table: Any, effects: tuple[DeclaredEffect, DeclaredEffect]) -> Callable[[], object]:
    """An agent that looks and draws in turn. A look changes nothing; a draw that is not declared a read uses its reply up."""

    def body() -> None:
        world = [0]

        @mat.tool(effect=effects[0])
        def look(key: int) -> int:
            return world[0]

        @mat.tool(effect=effects[1])
        def draw(key: int) -> int:
            world[0] += 1
            return world[0] % 2

        @mat.tool(effect="write")
        def end(state: int) -> None: ...

        state = 0
        for call in (look, draw, look):
            for _ in range(2):
                try:
                    outcome = 1 if call(0) else 0
                except OSError:
                    outcome = 2
                state, again = table[state][outcome]
                if not again:
                    break
        end(state)

    return body


@pytest.mark.full
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(table=tables, look=st.sampled_from(["read", "none", "unknown", "write"]), draw=st.sampled_from(["unknown", "write"]))
def test_l15_pruned_unpruned_and_brute_force_agree_for_declared_and_undeclared_effects(lab, table, look, draw):
    made = lab(reader(table, (look, draw)), [ends_well], (), [OPERATORS[id] for id in (TIMEOUT, ACK, STALE)])
    if made.nominal().failures:
        return
    pruned, unpruned = made.search(budget=10), made.search(budget=10, prune=False)
    brute = made.brute_force(10)
    assert [outcome(found)[2] for found in (pruned, unpruned)] == [brute, brute]
    assert pruned.certificate.proven
    assert unpruned.certificate.proven
    assert unpruned.certificate.assumptions == ()
    assert pruned.certificate.executions <= unpruned.certificate.executions


def test_the_grid_of_a_certificate_holds_what_was_left_out(lab):
    """Leaving a point out does not take it out of the grid: the certificate is about it, too."""
    certificate = search(lab, giving_up, pays_what_it_owes, TIMEOUT, ACK).certificate
    assert certificate.grid == FrozenDict({ACK: [[{}, 4, 1]], TIMEOUT: [[{}, 4, 1]]})
