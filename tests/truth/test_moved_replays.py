"""A replay finds its call again after ordinary edits, says so, and is stale where it cannot tell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests.plugin import conftest as plugin

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Certificate, Counterexample
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.evidence import replay_file
from mat.evidence.moving import in_place, relocate

shop = plugin.shop
LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")
Call = tuple[str, str]
"""The agent that calls `pay`, and the order that it pays."""


@mat.tool(effect="write")
def pay(order: str) -> str:
    return "paid"


def executed(calls: Sequence[Call], schedule: Schedule | Sequence[Any] = ()) -> Run:
    """A run of an agent that makes these calls, whatever they answer."""
    with mat.run(schedule=schedule, operators=[LOST]) as run:
        for agent, order in calls:
            with mat.agent(agent), suppress(TimeoutError):
                pay(order)
    assert run.result is not None
    return run.result


def recorded(calls: Sequence[Call], *sites: str) -> Run:
    return executed(calls, [mat.spec.perturbation("service.lost_ack", site, cost=4) for site in sites])


def moves(before: Run, now: Sequence[Call]) -> tuple[list[str], list[str]]:
    """How the schedule moves when the agent makes other calls: the moves, and the sites of the new schedule."""
    found = relocate(before, executed(now, before.spec.schedule), lambda schedule: executed(now, schedule))
    return [str(move) for move in found.moves], [str(item.site) for item in found.schedule]


A, B = ("clerk", "a"), ("clerk", "b")
FIRST = "clerk/service:pay#1"


@pytest.mark.parametrize(
    ("before", "site", "now", "place"),
    [
        ([A], FIRST, [B, A], "clerk/service:pay#2"),
        ([B, A], "clerk/service:pay#2", [A], FIRST),
        ([A], FIRST, [("agent2", "b"), ("agent2", "a")], "agent2/service:pay#2"),
        ([A], FIRST, [("teller", "a"), ("clerk", "b")], "teller/service:pay#1"),
        ([A, B, A], "clerk/service:pay#3", [B, A, B, B, A], "clerk/service:pay#5"),
        ([A, A, A], "clerk/service:pay#3", [A, B, A], "clerk/service:pay#3"),
        ([A, A, A], "clerk/service:pay#3", [A, A], "clerk/service:pay#2"),
        ([A, A], "clerk/service:pay#2", [B, A, A], "clerk/service:pay#3"),
        ([A, B], "clerk/service:pay#1..2", [B, A, B], "clerk/service:pay#2..3"),
    ],
)
def test_a_call_is_found_again_by_port_arguments_and_order(before: list[Call], site: str, now: list[Call], place: str) -> None:
    moved, sites = moves(recorded(before, site), now)
    assert sites == [place]
    assert moved == ([] if place == site else [f"moved from {site} to {place}"])


@pytest.mark.parametrize(
    "now",
    [
        [],
        [B],
        [("one", "a"), ("two", "a")],
        [("auditor", "a")],
    ],
    ids=["gone", "other arguments", "two agents make it", "another agent made it before"],
)
def test_a_call_that_cannot_be_told_from_others_keeps_its_site(now: list[Call]) -> None:
    assert moves(recorded([A, ("auditor", "a")], FIRST), now) == ([], [FIRST])


def test_two_perturbations_move_one_after_the_other_and_never_share_a_call() -> None:
    before = recorded([A, A], "clerk/service:pay#1", "clerk/service:pay#2")
    assert moves(before, [B, A, A])[1] == ["clerk/service:pay#2", "clerk/service:pay#3"]
    assert moves(before, [A]) == ([], ["clerk/service:pay#1", "clerk/service:pay#2"])


def test_a_place_is_looked_for_in_a_run_that_no_misplaced_perturbation_disturbs() -> None:
    def body(first: str | None, schedule: Schedule | Sequence[Any]) -> Run:
        """An agent that gives up at the first error."""
        with mat.run(schedule=schedule, operators=[LOST]) as run, mat.agent("clerk"), suppress(TimeoutError):
            if first is not None:
                pay(first)
            pay("a")
        assert run.result is not None
        return run.result

    before = body(None, [mat.spec.perturbation("service.lost_ack", FIRST, cost=4)])
    again = body("b", before.spec.schedule)
    assert len(again.unreached) == 0
    assert not in_place(before, again)
    found = relocate(before, again, lambda schedule: body("b", schedule))
    assert [str(move) for move in found.moves] == [f"moved from {FIRST} to clerk/service:pay#2"]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_edited_a_moved_perturbation_meets_a_call_with_the_recorded_arguments(seed: int) -> None:
    draw = random.Random(seed)

    def calls() -> list[Call]:
        return [(draw.choice(["clerk", "agent2"]), draw.choice("abc")) for _ in range(draw.randrange(1, 7))]

    before = executed(calls())
    sites = sorted({record.site for record in before.records if record.action.name == "pay"})
    made = [(each.agent, each.action.arguments["order"]) for each in before.records if each.action.name == "pay"]
    before = recorded(made, *draw.sample(sites, draw.randrange(1, len(sites) + 1)))
    now = calls()
    found = relocate(before, executed(now, before.spec.schedule), lambda schedule: executed(now, schedule))
    assert len(found.schedule) == len(before.spec.schedule)
    again = executed(now, found.schedule)
    orders = {each.site: each.action.arguments.get("order") for each in before.records}
    present = {each.site: each.action.arguments.get("order") for each in again.records}
    for move in found.moves:
        assert present[str(move.now)] == orders[str(move.before)]


def test_nothing_moves_while_the_code_is_unchanged() -> None:
    calls = [A, B, ("agent2", "a"), A]
    before = recorded(calls, "clerk/service:pay#3", "agent2/service:pay#1")
    assert in_place(before, executed(calls, before.spec.schedule))


# -- in a session -----------------------------------------------------------------------------------------------------

TEST = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
ID = "test_shop.py::test_refund"
RENAMED = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    with mat.agent("agent2"):
        shop.refund("o2")
        shop.naive(TRIES)
"""


UNCONFIRMED = operator("service.unconfirmed", lambda call, reply, stream: Raise("timeout"), phase="after")


@mat.tool(effect="write", impact="high")
def refund(order: str) -> dict[str, str]:
    return {"refunded": order}


@mat.trace_contract(start=0, id="no_double")
def no_double(count: int, record: mat.Record) -> object:
    if record.action.name != "refund":
        return None
    return mat.Violated("o1 was refunded twice", state=count + 1) if count else 1


def found(shop: Any) -> str:
    """Write the replay file that a search of the test finds; its short id."""
    lost = mat.spec.perturbation("service.unconfirmed", "main/service:refund#1", cost=4)
    with mat.run([no_double], task=ID, schedule=[lost], operators=[UNCONFIRMED]) as run:
        with suppress(TimeoutError):
            refund("o1")
        refund("o1")
    assert run.result is not None
    counterexample = Counterexample(verdict=run.result.failures[0], run=run.result)
    replay = replay_file.Replay(item=ID, counterexample=counterexample, certificate=Certificate(proven=False))
    replay_file.write(shop.path / "mat_replays" / replay_file.name_of(replay), replay)
    return replay_file.short_id(replay)


@pytest.mark.full
def test_a_replay_moves_with_its_call_and_fails_until_the_agent_is_mended(shop: Any) -> None:
    replayed = f"{ID}[replay-{found(shop)}]"
    shop.tests(RENAMED.replace("TRIES", "3"))
    session = shop.run()
    assert session.statuses == {ID: "nominal", replayed: "violated"}
    moved = "moved from main/service:refund#1 to agent2/service:refund#2"
    assert moved in session.failures[replayed]
    shop.tests(RENAMED.replace("TRIES", "1"))
    session = shop.run()
    assert session.statuses == {ID: "nominal", replayed: "replayed"}
    assert session.items[replayed]["reason"] == moved
    assert f"the replay was {moved}; `pytest --mat-stress` writes it anew" in session.text


@pytest.mark.full
def test_a_strict_replay_does_not_move(shop: Any) -> None:
    short = found(shop)
    shop.tests(RENAMED.replace("TRIES", "3"))
    session = shop.run("--mat-replay", f"mat_replays/test_refund-{short}.mat.json")
    assert "ReplayDivergence" in session.failures[f"{ID}[replay-{short}]"]


def test_a_disturbed_call_that_is_gone_leaves_the_replay_stale(shop: Any) -> None:
    replayed = f"{ID}[replay-{found(shop)}]"
    shop.tests(TEST.replace("shop.naive()", "shop.check('o1')"))
    session = shop.run()
    assert session.statuses == {ID: "vacuous", replayed: "stale"}
    assert "the run no longer reaches any site of its schedule (main/service:refund#1)" in session.failures[replayed]
