"""What a declaration saves, counted against two real searches: one without the declaration and one with it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import mat
import mat_faults
from mat.core.record import DeclaredEffect
from mat.core.spec import NO_SCHEDULE
from mat_contracts import no_duplicate_effect
from mat_search import Campaign, search
from mat_search.declarations import DeclarationSaving, savings, undeclared

OPERATORS = [item for item in mat_faults.service.operators() if item.default]


def desk(**effects: DeclaredEffect) -> Any:
    """An agent that looks twice at an order, asks for its parcel, and pays; each read is tried twice."""

    def body() -> None:
        @mat.tool(effect=effects.get("order", "unknown"))
        def order(id: str) -> dict[str, int]:
            return {"cents": 100}

        @mat.tool(effect=effects.get("parcel", "unknown"))
        def parcel(id: str) -> str:
            return "lost"

        @mat.tool(effect="write")
        def pay(cents: object) -> None: ...

        for read in (order, parcel, order):
            for _ in range(2):
                with suppress(OSError):
                    read("A17")
                    break
        pay(100)

    return body


def searched(lab: Any, body: Any, budget: int) -> tuple[Any, Any, dict[Any, Any]]:
    """A lab, the result of a search in it, and the runs that the search took."""
    made, runs = lab(body, [no_duplicate_effect(tool="pay")], (), OPERATORS), {}
    campaign = Campaign(operators=made.specs, budget=budget)
    result = search(
        made.nominal(), made.evaluate, campaign, note=lambda run: runs.setdefault(run.spec.schedule, run)
    )  # fmt: skip
    return made, result, runs


@pytest.mark.parametrize("budget", [4, 8])
def test_the_count_is_the_difference_of_two_searches(lab, budget):
    made, before, runs = searched(lab, desk(), budget)
    campaign = Campaign(operators=made.specs, budget=budget)
    counted = savings(runs[NO_SCHEDULE], runs, lambda schedule: made.evaluate(mat.spec.RunSpec(schedule=schedule)), campaign)

    def with_declaration(*names: str) -> int:
        return searched(lab, desk(**dict.fromkeys(names, "read")), budget)[1].executions

    expected = {names: before.executions - with_declaration(*names) for names in (("order",), ("parcel",), ("order", "parcel"))}
    assert {item.tools: item.saves for item in counted} == expected
    assert all(saves > 0 for saves in expected.values())
    assert {item.executions for item in counted} == {before.executions}


def test_nothing_is_counted_where_everything_is_declared(lab):
    made, _, runs = searched(lab, desk(order="read", parcel="read"), 4)
    assert undeclared(runs.values()) == ()
    assert savings(runs[NO_SCHEDULE], runs, made.evaluate, Campaign(operators=made.specs, budget=4)) == ()


def test_a_declaration_that_would_save_nothing_is_not_named(lab):
    """Without lost replies and stale replies in the grid, no point depends on the effect."""
    made = lab(desk(), [], ("service.timeout",))
    runs: dict[Any, Any] = {}
    campaign = Campaign(operators=made.specs, budget=8)
    search(made.nominal(), made.evaluate, campaign, note=lambda run: runs.setdefault(run.spec.schedule, run))
    assert undeclared(runs.values()) == ("order", "parcel")
    assert savings(runs[NO_SCHEDULE], runs, made.evaluate, campaign) == ()


def test_a_search_that_proves_nothing_is_not_counted(lab):
    made, _, runs = searched(lab, desk(), 4)
    campaign = Campaign(operators=made.specs, budget=4, strategy="random")
    assert savings(runs[NO_SCHEDULE], runs, made.evaluate, campaign) == ()


def test_a_saving_is_a_value():
    assert DeclarationSaving(tools=("order",), saves=2, executions=9).tools == ("order",)
