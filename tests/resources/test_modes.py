"""Contract modes are the paper's, and their rule of spending never does more with less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.errors import MatError
from mat.resources import ContractStatus, ResourceContract
from mat.resources.modes import BALANCED, ECONOMICAL, EFFORTS, MODES, URGENT, Band, ContractMode, mode, plan


@mat.model("planner")
def ask(prompt: str, max_tokens: int = 100) -> dict[str, Any]:
    """A scripted model that writes as much as it may."""
    return {"text": "so", "usage": {"input_tokens": 10, "output_tokens": max_tokens}}


@mat.tool
def search(query: str) -> list[str]:
    return [query]


def status(
    duration_ms: int | None = None, elapsed_ms: int = 0, state: Any = "active", **used: tuple[int, int]
) -> ContractStatus:
    """A status with (used, budget) by resource."""
    budgets = {name: budget for name, (_, budget) in used.items()}
    consumed = {name: spent for name, (spent, _) in used.items()}
    left = {name: max(0, budget - spent) for name, (spent, budget) in used.items()}
    return ContractStatus(
        contract="work#1", state=state, cause="", at_ms=elapsed_ms, elapsed_ms=elapsed_ms, duration_ms=duration_ms,
        budgets=budgets, consumed=consumed, reserved=dict.fromkeys(used, 0), left=left, metered={},
    )  # fmt: skip


class TestPresets:
    @pytest.mark.parametrize(("version", "seconds"), [("full", (30, 60, 90)), ("first", (8, 10, 30))])
    def test_the_time_outs_are_those_of_both_versions_of_the_paper(self, version: str, seconds: tuple[int, ...]) -> None:
        assert tuple(mode(name, version=version).duration_s for name in ("urgent", "economical", "balanced")) == seconds

    def test_the_reasoning_efforts_are_the_same_in_both(self) -> None:
        for version in MODES:
            assert [item.effort for item in MODES[version].values()] == ["none", "low", "medium"]

    def test_a_preset_is_the_full_version_by_default(self) -> None:
        assert (mode("urgent"), mode("economical"), mode("balanced")) == (URGENT, ECONOMICAL, BALANCED)

    def test_what_is_no_mode_is_reported_in_one_go(self) -> None:
        with pytest.raises(MatError, match=r"unknown version: 'ful'; did you mean 'full'.*unknown mode: 'urgnt'") as caught:
            mode("urgnt", version="ful")
        assert "did you mean 'urgent'" in str(caught.value)

    def test_presets_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            URGENT.duration_s = 99  # type: ignore[misc]
        with pytest.raises(TypeError):
            MODES["full"]["urgent"] = BALANCED  # type: ignore[index]


class TestModeOfAContract:
    def test_a_contract_gets_the_time_of_its_mode(self) -> None:
        contract = ResourceContract(name="puzzle", budgets={"tokens": 500})
        assert URGENT.of(contract) == replace(contract, duration_s=30, mode="urgent")

    def test_a_mode_gives_nobody_more_time(self) -> None:
        contract = ResourceContract(name="puzzle", duration_s="29.5")
        assert URGENT.of(contract).duration_ms == 29_500
        assert URGENT.of(replace(contract, duration_s="30.5")).duration_ms == 30_000

    def test_nothing_starts_after_the_time_of_the_mode(self) -> None:
        import asyncio

        async def body() -> str:
            async with mat.budget.contracted(mode("urgent", version="first").of(ResourceContract(name="puzzle"))) as work:
                await asyncio.sleep(8)
                search("in time")
                await asyncio.sleep(0.001)
                with pytest.raises(mat.budget.BudgetSpent, match="expired"):
                    search("too late")
            return work.state

        with mat.run():
            assert asyncio.run(body()) == "expired"


class TestPlans:
    def test_it_explores_while_there_is_much_and_is_concise_where_it_gets_tight(self) -> None:
        ample, middle, tight = (BALANCED.plan(status(tokens=(used, 1_000))) for used in (0, 500, 800))
        assert [(item.explore, item.concise, item.effort) for item in (ample, middle, tight)] == [
            (True, False, "medium"), (False, False, "low"), (False, True, "none"),
        ]  # fmt: skip
        assert [item.max_tokens for item in (ample, middle, tight)] == [500, 250, 100]

    def test_the_threshold_belongs_to_the_tighter_side(self) -> None:
        assert BALANCED.plan(status(tokens=(499, 1_000))).explore
        assert not BALANCED.plan(status(tokens=(500, 1_000))).explore

    def test_the_tightest_resource_counts_and_the_time_is_one(self) -> None:
        assert BALANCED.plan(status(tokens=(0, 1_000), calls=(9, 10))).reason == "90 % of calls is used"
        late = BALANCED.plan(status(duration_ms=1_000, elapsed_ms=850, tokens=(0, 1_000)))
        assert (late.concise, late.reason) == (True, "85 % of the time is used")

    def test_what_calls_in_flight_hold_is_not_there(self) -> None:
        held = replace(status(tokens=(0, 1_000)), reserved={"tokens": 900}, left={"tokens": 100})
        assert (BALANCED.plan(held).concise, BALANCED.plan(held).max_tokens) == (True, 50)

    def test_what_is_spent_stops(self) -> None:
        done = BALANCED.plan(status(tokens=(1_000, 1_000)))
        assert (done.stop, done.explore, done.max_tokens, done.reason) == (True, False, 0, "tokens spent")

    @pytest.mark.parametrize("state", ["drafted", "fulfilled", "violated", "expired", "terminated"])
    def test_what_is_not_active_stops(self, state: str) -> None:
        assert BALANCED.plan(status(state=state, tokens=(0, 9))).stop

    def test_the_last_round_is_a_round(self) -> None:
        last = BALANCED.plan(status(iterations=(3, 3), tokens=(0, 9)))
        assert (last.stop, last.concise) == (False, True)

    def test_a_spent_limit_of_a_tool_does_not_stop_a_model(self) -> None:
        assert not BALANCED.plan(status(**{"tool:search": (6, 6), "tokens": (0, 9)})).stop
        assert BALANCED.plan(status(**{"model:planner": (6, 6), "tokens": (0, 9)})).stop

    def test_the_time_stops_only_once_it_is_over(self) -> None:
        assert not URGENT.plan(status(duration_ms=1_000, elapsed_ms=1_000)).stop
        assert URGENT.plan(status(duration_ms=1_000, elapsed_ms=1_001)).stop

    def test_a_prompt_that_leaves_no_token_to_write_with_stops(self) -> None:
        assert BALANCED.plan(status(tokens=(900, 1_000)), prompt_tokens=99).max_tokens == 1
        assert BALANCED.plan(status(tokens=(900, 1_000)), prompt_tokens=100).stop

    def test_without_a_budget_of_tokens_nothing_limits_an_answer(self) -> None:
        free = BALANCED.plan(status(calls=(0, 10)))
        assert (free.max_tokens, free.explore) == (None, True)

    @given(
        budget=st.integers(0, 10_000), first=st.integers(0, 12_000), more=st.integers(0, 12_000), time=st.integers(0, 2_000),
        later=st.integers(0, 2_000), name=st.sampled_from(["urgent", "economical", "balanced"]),
    )  # fmt: skip
    def test_who_has_less_never_does_more(self, budget: int, first: int, more: int, time: int, later: int, name: str) -> None:
        before = plan(status(duration_ms=1_000, elapsed_ms=time, tokens=(first, budget)), mode(name))
        after = plan(status(duration_ms=1_000, elapsed_ms=time + later, tokens=(first + more, budget)), mode(name))
        assert EFFORTS.index(after.effort) <= EFFORTS.index(before.effort) <= EFFORTS.index(mode(name).effort)
        assert (after.max_tokens or 0) <= (before.max_tokens or 0) <= max(0, budget - first)
        assert (after.explore, before.concise, before.stop) <= (before.explore, after.concise, after.stop)

    @given(budget=st.integers(0, 3_000), name=st.sampled_from(["urgent", "economical", "balanced"]))
    def test_an_agent_that_follows_its_plans_stays_within_its_budget(self, budget: int, name: str) -> None:
        contract = ResourceContract(name="puzzle", budgets={"tokens": budget})
        with mat.run(), mat.budget.contracted(contract) as work:
            for _ in range(10_000):
                chosen = mode(name).plan(work.status(), prompt_tokens=10)
                if chosen.stop:
                    break
                ask("go", max_tokens=chosen.max_tokens or 0)
            else:
                pytest.fail("it never stopped")
            assert work.status().consumed["tokens"] <= budget
            assert work.state == "active"


class TestModesOfOnesOwn:
    def test_no_band_thinks_more_than_its_mode(self) -> None:
        calm = ContractMode(name="calm", duration_s=60, effort="low", bands=(Band(below=100, effort="high", share=100),))
        assert calm.plan(status(tokens=(0, 9))).effort == "low"

    def test_a_tighter_band_cannot_allow_more(self) -> None:
        with pytest.raises(MatError, match=r"effort rises from low to medium.*share rises from 20 to 40 %.*explores"):
            ContractMode(
                name="odd", duration_s=5, effort="low",
                bands=(Band(below=50, effort="low", share=20, concise=True), Band(below=100, effort="medium", share=40)),
            )  # fmt: skip

    def test_everything_wrong_is_said_in_one_go(self) -> None:
        with pytest.raises(MatError) as caught:
            ContractMode(name="odd", duration_s=0, effort="lo", bands=(Band(below=0, effort="low", share=101),))  # type: ignore[arg-type]
        for said in ("duration_s=0", "'lo' is not one of", "did you mean 'low'", "below 0 %"):
            assert said in caught.value.what
