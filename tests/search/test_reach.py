"""What live calls of a search would cost, and how far recorded replies reach."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

import mat
import mat_faults
from mat.core.campaign import LiveCost, MissingReply
from mat.core.errors import SpecError
from mat.core.resources import price_list
from mat.core.run import Run, prefixes
from mat.core.spec import NO_SCHEDULE
from mat.core.value import FrozenDict
from mat_search import Campaign
from mat_search.reach import RecordedReach, cost_in_words, in_words, planned
from mat_search.space import Grid, Offers

PRICES = price_list(["small = 2/8 EUR", "large = 20/80 EUR"])


@mat.tool(effect="write")
def refund(order: str) -> str:
    return "refunded"


@mat.model("small")
def small(prompt: str) -> dict[str, Any]:
    return {"text": "yes", "usage": {"input_tokens": 100, "output_tokens": 10}}


@mat.model("large")
def large(prompt: str) -> dict[str, Any]:
    return {"text": "yes", "usage": {"input_tokens": 300, "output_tokens": 30}}


def nominal() -> Run:
    with mat.run(states=True) as run:
        small("what is wanted?")
        refund("A17")
        small("what now?")
        refund("A18")
        large("what do we say?")
    assert run.result is not None
    return run.result


def campaign(budget: int, **more: Any) -> Campaign:
    wanted = ("service.timeout", "service.lost_ack", "service.latency", "model.empty")
    operators = tuple(item.spec() for item in mat_faults.operators() if item.id in wanted)
    return Campaign(operators=operators, budget=budget, prices=PRICES, **more)


def counted(run: Run, plan: Campaign) -> tuple[int, int]:
    """The model calls after the last perturbation of each schedule, counted schedule by schedule; and how many those are."""
    offers = list(Offers(run, NO_SCHEDULE, -1, Grid(plan.operators), prefixes(run), budget=plan.budget))
    models = [record.step for record in run.records if record.action.kind == "model_call"]
    calls = schedules = 0
    for size in range(1, plan.budget + 1):
        for chosen in combinations(offers, size):
            steps = [edge.step for edge in chosen]
            if len(set(steps)) == size and sum(edge.cost for edge in chosen) <= plan.budget:
                schedules += 1
                calls += sum(step > max(steps) for step in models)
    return calls, schedules


@pytest.mark.parametrize("budget", [0, 2, 4, 8])
def test_the_estimate_counts_the_calls_after_the_last_perturbation_of_every_schedule(budget: int) -> None:
    run, plan = nominal(), campaign(budget)
    calls, schedules = counted(run, plan)
    assert schedules >= {0: 0, 2: 0, 4: 4, 8: 10}[budget]
    found = planned(run, plan)
    assert found is not None
    assert found.calls == 3 + calls  # three of the undisturbed run


def test_the_estimate_ends_at_the_largest_number_of_runs_cheapest_schedules_first() -> None:
    run = nominal()
    few, all_of_them = planned(run, campaign(8, max_runs=5)), planned(run, campaign(8))
    assert few is not None
    assert all_of_them is not None
    assert 3 < few.calls <= 3 + 5 * 2 < all_of_them.calls


def test_a_run_without_models_needs_no_live_calls() -> None:
    with mat.run(states=True) as run:
        refund("A17")
    assert run.result is not None
    assert planned(run.result, campaign(4)) is None


def missing(port: str, request: str, **asked: int) -> MissingReply:
    return MissingReply(key=(0, port, request, 1), asked=FrozenDict({f"model:{name}": count for name, count in asked.items()}))


def test_schedules_that_lack_one_request_need_it_once_and_what_follows_it_in_the_undisturbed_run() -> None:
    run = nominal()
    schedules = list(Offers(run, NO_SCHEDULE, -1, Grid(campaign(8).operators), prefixes(run), budget=8))
    lost = [
        missing("model:small", "a", small=2),
        missing("model:small", "a", small=2),
        missing("model:large", "b", small=2, large=1),
    ]
    reach = RecordedReach(reached=3, unanswered={edge.schedule: each for edge, each in zip(schedules, lost, strict=False)})
    found = reach.result(run, PRICES)
    assert found is not None
    # "a" and the large model's call after it; "b", which is that model's last
    assert found.missing == LiveCost(calls=3, tokens=110 + 2 * 330, price=280 + 2 * 8_400, currency="EUR")
    text = in_words(found, "no reply")
    assert text == (
        "3 of 6 schedules (50%) were reached with recorded replies; the others ask models something new: at least 3 live "
        "calls, 770 tokens, 0.02 EUR; first: no reply"
    )
    assert RecordedReach(reached=3).result(run, PRICES) is None


def test_a_price_says_which_models_it_leaves_out() -> None:
    run = nominal()
    found = planned(run, Campaign(operators=(), prices=price_list(["large = 20/80"])))
    assert found == LiveCost(calls=3, tokens=550, price=8_400, unpriced=("model:small",))
    assert cost_in_words(found) == "3 live calls, 550 tokens, 0.0084, without the price of model:small"
    unpriced = planned(run, Campaign(operators=()))
    assert unpriced == LiveCost(calls=3, tokens=550)
    star = planned(run, Campaign(operators=(), prices=price_list(["large = 20/80", "* = 1/1"])))
    assert star is not None
    assert (star.price, star.unpriced) == (8_620, ())


@pytest.mark.parametrize("line", ["gpt 1/2", "gpt = 1", "gpt = 1/x", "gpt = 1.2.3/4", "gpt = -1/2", "= 1/2"])
def test_a_line_that_is_no_price_is_refused_with_its_text(line: str) -> None:
    with pytest.raises(SpecError) as refused:
        price_list([line])
    assert repr(line) in str(refused.value)
    assert "per million tokens" in str(refused.value)
