"""Soft enforcement: a model reads what it may still use, in the same words for the same state; no name poses as an order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.resources import ResourceContract, Skill
from mat.resources.modes import BALANCED, URGENT
from mat.resources.prompting import advice, fragment, prompt, reminder, warnings

CONTRACT = ResourceContract(
    name="review", budgets={"tokens": 1_000, "iterations": 3, "tool:search": 2, "money": "0.5"}, duration_s=30,
    skills=(Skill(name="search", cost={"seconds": "1.5"}), Skill(name="model:planner")), warn_at=(50, 80),
)  # fmt: skip


@mat.model("planner")
def ask(prompt: str, max_tokens: int = 0, wrote: int = 90) -> dict[str, Any]:
    return {"text": "so", "usage": {"input_tokens": 10, "output_tokens": wrote}}


@mat.tool
def search(query: str) -> list[str]:
    return [query]


def test_the_fragment_tells_budget_time_skills_and_what_happens_at_a_limit() -> None:
    with mat.run(), mat.budget.contracted(CONTRACT) as work:
        next(work.iterations())
        ask("go")
        search("x")
        assert prompt(work) == "\n".join(
            (
                'You work under the resource contract "review".',
                "Budget: 1/3 iterations, 0/0.5 money, 100/1,000 tokens, 1/2 calls of search; time: 0/30 s",
                "- iterations: 2 of 3 left",
                "- money: 0.5 of 0.5 left",
                "- tokens: 900 of 1,000 left",
                "- tool:search: 1 of 2 left",
                "- time: 30 s left; after that nothing is started",
                "You may call:",
                "- search (about 1.5 seconds a call; 1 of 2 calls left)",
                "- model:planner",
                "Every other call is refused.",
                "A call that does not fit into what is left is refused. A call that uses more than is left once it has begun "
                "ends the work.",
                "Warning: 50 % of tool:search is used, 1 left",
            )
        )


def test_it_changes_with_what_is_spent_and_with_nothing_else() -> None:
    with mat.run(), mat.budget.contracted(CONTRACT) as work:
        first = prompt(work)
        assert prompt(work) == first
        ask("go")
        assert prompt(work) != first
        assert "900 of 1,000" in prompt(work)


def test_two_runs_show_a_model_the_same() -> None:
    def once() -> str:
        with mat.run(), mat.budget.contracted(CONTRACT) as work:
            ask("go", wrote=400)
            return prompt(work, mode=BALANCED) + reminder(CONTRACT, work.status(), mode=URGENT)

    assert once() == once()


def test_the_highest_threshold_that_is_passed_is_reported() -> None:
    with mat.run(), mat.budget.contracted(replace(CONTRACT, skills=None)) as work:
        ask("go", wrote=389)
        assert warnings(CONTRACT, work.status()) == ()
        ask("go", wrote=91)
        assert warnings(CONTRACT, work.status()) == ("50 % of tokens is used, 500 left",)
        ask("go", wrote=290)
        assert warnings(CONTRACT, work.status()) == ("80 % of tokens is used, 200 left",)


def test_the_time_has_its_thresholds_too() -> None:
    import asyncio

    async def body() -> tuple[str, ...]:
        async with mat.budget.contracted(CONTRACT) as work:
            await asyncio.sleep(24)
            return warnings(CONTRACT, work.status())

    with mat.run():
        assert asyncio.run(body()) == ("80 % of the time is over, 6 s left",)


def test_what_calls_under_way_hold_is_named() -> None:
    with mat.run(), mat.budget.contracted(CONTRACT) as work, work.reserve(tokens=300):
        assert "- tokens: 700 of 1,000 left, with 300 held by calls under way" in prompt(work)


def test_an_ended_contract_says_so_and_plans_nothing() -> None:
    with mat.run():
        with mat.budget.contracted(CONTRACT) as work:
            work.cancel("the user left")
        told = prompt(work, mode=BALANCED)
        assert told.endswith("The contract is terminated: call nothing more.")
        assert "explore" not in told


def test_no_skills_is_nothing_to_call_and_no_list_is_anything() -> None:
    with mat.run():
        with mat.budget.contracted(ResourceContract(name="mute", skills=())) as work:
            assert "You may call nothing." in prompt(work)
        with mat.budget.contracted(ResourceContract(name="free")) as work:
            assert "call" not in prompt(work)


def test_a_plan_is_a_sentence() -> None:
    with mat.run(), mat.budget.contracted(ResourceContract(name="work", budgets={"tokens": 1_000})) as work:
        assert advice(BALANCED.plan(work.status())) == (
            "Explore alternatives where they may pay, use at most 500 tokens in the next answer: 0 % of what was given is used."
        )
        ask("go", wrote=850)
        assert advice(BALANCED.plan(work.status())) == (
            "Be concise and finish with what you have, use at most 70 tokens in the next answer, do not reason at length: "
            "86 % of tokens is used."
        )
        ask("go", wrote=130)
        assert advice(BALANCED.plan(work.status())) == "Stop and deliver what you have: tokens spent."


def test_a_reminder_begins_with_the_status_line() -> None:
    with mat.run(), mat.budget.contracted(CONTRACT) as work:
        ask("go", wrote=890)
        lines = reminder(CONTRACT, work.status(), mode=BALANCED).splitlines()
        assert lines[0] == work.status().line()
        assert lines[1] == "Warning: 80 % of tokens is used, 100 left"
        assert lines[2].startswith("Be concise")


@given(name=st.text(min_size=1).filter(lambda text: "#" not in text))
def test_no_name_can_pose_as_a_line_of_its_own(name: str) -> None:
    contract = ResourceContract(name=name, budgets={f"tool:{name}": 3}, skills=(Skill(name=f"tool:{name}"),))
    with mat.run(), mat.budget.contracted(contract) as work:
        told = fragment(contract, work.status())
    assert len(told.splitlines()) == 7
