"""A search that ends early names the largest complete layer, however it ends, and what it needs to get further."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.plugin import conftest as plugin

import mat
import mat_faults
import mat_study.searches
from mat.boundary.catalog import Catalog
from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat.core.spec import RunSpec
from mat.measure.workload import Workload
from mat_search import Campaign, CampaignResult, search
from mat_search.campaign import Layer
from mat_study.evaluation import Evaluated, Plan
from mat_study.progress import how_far
from mat_study.searches import SearchEvaluator
from mat_study.settings import ItemSettings
from mat_study.tasks import Judged

shop = plugin.shop

CATALOG = Catalog(item for item in mat_faults.operators() if item.id in ("service.timeout", "service.outage"))
OPERATORS = tuple(item.spec() for item in CATALOG)
NEVER = mat.step_contract(on="message", id="never")(lambda record: False)


@mat.tool(effect="write")
def book(place: int) -> str:
    return "booked"


@mat.tool
def look(place: int) -> str:
    return "free"


def agent(calls: int) -> None:
    for place in range(calls):
        with suppress(TimeoutError, ConnectionError):
            look(place)
        with suppress(TimeoutError, ConnectionError):
            book(place)


def run_of(spec: RunSpec, calls: int = 3) -> Run:
    with mat.run([NEVER], schedule=spec.schedule, states=True, operators=CATALOG) as run:
        agent(calls)
    assert run.result is not None
    return run.result


def searched(evaluate: Callable[[RunSpec], Run] = run_of, **options: Any) -> CampaignResult:
    enough = options.pop("enough", None)
    campaign = Campaign(operators=OPERATORS, budget=12, **options)
    return search(evaluate(RunSpec()), evaluate, campaign, enough=enough)


def text(result: CampaignResult, **settings: Any) -> str:
    return how_far(result, result.certificate, ItemSettings(budget=12, **settings))


def test_a_limit_of_executions_names_the_complete_layer_and_the_share_of_the_next() -> None:
    result = searched(max_runs=10)
    assert result.certificate.proven
    assert result.complete == result.certificate.bound
    layer = result.layer
    assert layer is not None
    assert layer.cost == result.complete + 1
    assert text(result, max_runs=10) == (
        f"cost {result.complete} is complete, nothing found; "
        f"cost {layer.cost}: {100 * layer.done // layer.known}% of what is known; "
        f"to get further, it needs more runs (--mat-max-runs), a smaller budget ({result.complete} is covered), "
        f"declaring the effects of look or a mat_state_digest; what helps most is {most(layer, result)}"
    )


def most(layer: Layer, result: CampaignResult) -> str:
    """More runs if as many again complete the next cost, otherwise what merges schedules."""
    left = layer.known - layer.done
    if left > result.searched:
        return "a mat_state_digest"
    return f"more runs (--mat-max-runs): about {left} executions are left at cost {layer.cost}"


@pytest.mark.parametrize(("done", "helps"), [(95, "more runs (--mat-max-runs): about 5 executions"), (5, "a mat_state_digest")])
def test_what_would_help_most_depends_on_what_is_left(done: int, helps: str) -> None:
    result = replace(searched(max_runs=10), searched=10, layer=Layer(cost=5, done=done, known=100))
    assert f"what helps most is {helps}" in text(result, max_runs=10)


def test_an_interrupted_search_says_how_far_it_came() -> None:
    result = replace(searched(max_runs=10), limited=False, interrupted=True)
    assert "what helps most is" in text(result, max_runs=10)


@pytest.mark.parametrize("prune", [True, False])
def test_the_share_of_a_layer_grows_with_every_execution_and_ends_at_all_of_it(prune: bool) -> None:
    seen: dict[int, int] = {}
    totals: dict[int, int] = {}
    for runs in (1, 2, 5, 9, 14, 20):
        result = searched(max_runs=runs, prune=prune)
        layer = result.layer
        if layer is None:
            continue
        assert 0 <= layer.done < layer.known
        assert layer.done >= seen.get(layer.cost, 0)
        seen[layer.cost] = layer.done
        totals[layer.cost] = max(totals.get(layer.cost, 0), layer.known)
    assert len(totals) > 1
    for cost, known in totals.items():
        assert seen[cost] <= known


def test_a_search_that_covers_its_budget_says_nothing() -> None:
    result = searched(lambda spec: run_of(spec, calls=1))
    assert result.certificate.bound == 12
    assert (result.layer, text(result)) == (None, "")


def test_an_unfinished_search_that_could_not_be_checked_still_names_its_layer() -> None:
    count = [0]

    def evaluate(spec: RunSpec) -> Run:
        count[0] += 1
        if count[0] > 25:
            raise mat_study.searches.SearchStopped("out of quota")
        return run_of(spec)

    result = searched(evaluate, max_runs=24)
    assert not result.certificate.proven
    assert result.certificate.reason.endswith("the checks that a proof needs could not run")
    assert text(result).startswith(f"cost {result.complete} is complete, nothing found, but not proven; cost ")


@pytest.mark.parametrize("strategy", ["random", "beam", "evolutionary"])
def test_strategies_that_do_not_go_by_cost_name_no_layer(strategy: str) -> None:
    result = searched(strategy=strategy, max_runs=10)
    assert (result.complete, result.layer, text(result)) == (-1, None, "")


# -- time -------------------------------------------------------------------------------------------------------------


class Timed:
    """A search under a time limit, on a clock that moves with each execution."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, duration_s: Callable[[int], float]) -> None:
        self.at_s, self.executions, self._duration_s = 0.0, 0, duration_s
        monkeypatch.setattr(mat_study.searches, "real_monotonic", lambda: self.at_s)

    def _evaluate(self, plan: Plan) -> Evaluated:
        self.at_s += self._duration_s(self.executions)
        self.executions += 1
        run = run_of(RunSpec(schedule=plan.schedule))
        return Evaluated(plan=plan, run=run, outcome="passed", task=Workload(), judged=Judged())

    def search(self, timeout_s: float, *, set_aside: bool = True, operators: tuple[OperatorSpec, ...] = OPERATORS) -> Any:
        first = self._evaluate(Plan())
        self.at_s = 0.0
        evaluate = SearchEvaluator(self._evaluate, first, timeout_s=timeout_s, stopped=lambda lost, disturbed: "")
        campaign = Campaign(operators=operators, budget=12)
        return search(first.run, evaluate, campaign, enough=evaluate.enough if set_aside else None)


def test_time_for_the_checks_is_set_aside_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, lambda number: 1.0)
    result = timed.search(60)
    assert result.certificate.proven
    assert result.certificate.bound >= 4
    assert result.certificate.reason == "--mat-timeout: the limit of 60 s is reached"
    assert timed.at_s <= 60
    assert how_far(result, result.certificate, ItemSettings(budget=12, timeout_s=60)).startswith(
        f"cost {result.complete} is complete, nothing found; cost {result.complete + 1}: "
    )
    without = Timed(monkeypatch, lambda number: 1.0).search(60, set_aside=False)
    assert not without.certificate.proven


@pytest.mark.full
@pytest.mark.parametrize("timeout_s", [30, 45, 90])
@pytest.mark.parametrize("pace", ["even", "slower", "uneven"])
def test_whatever_the_pace_the_checks_have_run_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, timeout_s: int, pace: str
) -> None:
    paces: dict[str, Callable[[int], float]] = {
        "even": lambda number: 0.5,
        "slower": lambda number: 0.4 + number / 400,
        "uneven": lambda number: (0.1, 1.0)[number % 2],
    }  # fmt: skip
    timed = Timed(monkeypatch, paces[pace])
    result = timed.search(timeout_s)
    assert result.certificate.proven
    assert timed.at_s <= timeout_s + 1


@pytest.mark.full
def test_the_result_of_an_item_says_how_far_its_search_came(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS, search=mat.Search(max_runs=2))
        def test_refund(mat_run, no_double):
            shop.careful()
        """
    )
    item = shop.stress().items["test_shop.py::test_refund"]
    assert item["reason"] == (
        "2 executions do not cover the budget of 8; cost 3 is complete, nothing found; cost 4: 33% of what is known; "
        "to get further, it needs more runs (--mat-max-runs), a smaller budget (3 is covered), declaring the effects of check "
        "or a mat_state_digest; what helps most is more runs (--mat-max-runs): about 2 executions are left at cost 4"
    )
