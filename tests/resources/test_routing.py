"""Routing takes a budget for each branch and gives back what is not chosen; who fits a task is found by what contracts say;
agents are made to a contract; and contracts on contracting hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.errors import MatError, SpecError
from mat.core.resources import entries_of
from mat.resources import Criterion, Output, ResourceContract, Skill, Work
from mat.resources.contract import HandsOn
from mat.resources.modes import BALANCED, ECONOMICAL, URGENT
from mat.resources.routing import Requirement, Routing, Specialist, assign, match, spawn


@mat.tool
def search(query: str) -> list[str]:
    return [query]


@mat.tool
def pay(amount: int) -> int:
    return amount


def of(name: str = "work", /, **budgets: Any) -> ResourceContract:
    return ResourceContract(name=name, budgets=budgets)


def skilled(name: str, *skills: Skill | str, **more: Any) -> ResourceContract:
    made = tuple(Skill(name=item) if isinstance(item, str) else item for item in skills)
    return ResourceContract(name=name, skills=made, **more)


def endings(run: mat.run) -> dict[str, tuple[str, str]]:
    """contract -> (how it ended, why)"""
    found = [entry for record in run.trace for entry in entries_of(record)]
    terminal = ("fulfilled", "violated", "expired", "terminated")
    return {entry.contract: (entry.event, entry.facts.get("cause", "")) for entry in found if entry.event in terminal}


class TestRouting:
    def test_every_branch_has_its_budget_before_one_is_chosen_and_the_others_give_theirs_back_at_once(self) -> None:
        with mat.run() as run, mat.budget.contracted(of("desk", tokens=300)) as work:
            with Routing(work, {"clerk": of("clerk", tokens=100), "lawyer": of("lawyer", tokens=150)}) as routing:
                assert work.left("tokens") == 50
                with routing.choose("lawyer", task="read it") as child:
                    assert (routing.chosen, child.agent, work.left("tokens")) == ("lawyer", "lawyer", 150)
                    child.spend(tokens=30)
            assert work.left("tokens") == 270
        assert endings(run)["clerk#1"] == ("terminated", "not chosen")
        assert endings(run)["lawyer#1"] == ("fulfilled", "")

    def test_the_task_is_handed_over_in_the_trace(self) -> None:
        with mat.run() as run, mat.budget.contracted(of(calls=9), agent="desk") as work:
            with Routing(work, {"clerk": of("clerk", calls=2)}, agents={"clerk": "ann"}) as routing:
                with routing.choose("clerk", task="find it"):
                    search("x")
        handed = [record for record in run.trace if record.action.kind == "delegation"]
        assert [(record.agent, record.action.name, record.action.arguments["task"]) for record in handed] == [
            ("desk", "ann", "find it")
        ]
        assert [record.agent for record in run.trace if record.action.kind == "tool_call"] == ["ann"]

    def test_branches_that_cannot_all_be_paid_are_not_begun(self) -> None:
        with mat.run() as run, mat.budget.contracted(of("desk", tokens=200)) as work:
            with pytest.raises(mat.budget.BudgetSpent, match="can allocate 100 of its tokens, not 101"):
                with Routing(work, {"a": of("a", tokens=100), "b": of("b", tokens=101), "c": of("c", tokens=1)}):
                    pytest.fail("it began")
            assert work.left("tokens") == 200
        assert {name: endings(run)[name][0] for name in ("a#1", "b#1", "c#1")} == dict.fromkeys(
            ("a#1", "b#1", "c#1"), "terminated"
        )

    def test_without_a_choice_everything_comes_back(self) -> None:
        with mat.run() as run, mat.budget.contracted(of("desk", tokens=200)) as work:
            with Routing(work, {"a": of("a", tokens=100)}):
                pass
            with pytest.raises(KeyError), Routing(work, {"b": of("b", tokens=100)}):
                raise KeyError("the classifier failed")
            assert work.left("tokens") == 200
        assert endings(run)["a#1"][1] == "no branch was chosen"
        assert endings(run)["b#1"][1] == "KeyError before a branch was chosen"

    def test_choosing_is_paid_by_the_router_of_what_the_branches_leave(self) -> None:
        with mat.run(), mat.budget.contracted(of("desk", calls=5)) as work:
            with Routing(work, {"a": of("a", calls=2), "b": of("b", calls=2)}) as routing:
                search("which one?")
                with pytest.raises(mat.budget.BudgetSpent, match="4 of it allocated"):
                    search("really?")
                with routing.choose("a") as child:
                    search("x")
                    assert child.left("calls") == 1
            assert work.left("calls") == 3

    def test_a_choice_is_made_once_and_of_what_there_is(self) -> None:
        with mat.run(), mat.budget.contracted(of(tokens=300)) as work:
            with Routing(work, {"clerk": of("clerk"), "lawyer": of("lawyer")}) as routing:
                with pytest.raises(SpecError, match="has no branch 'lawer'; did you mean 'lawyer'"):
                    routing.choose("lawer")
                with routing.choose("clerk"):
                    pass
                with pytest.raises(SpecError, match="cannot choose lawyer after clerk"):
                    routing.choose("lawyer")
            with pytest.raises(SpecError, match="there is no branch"):
                Routing(work, {})
            with pytest.raises(SpecError, match="unknown branch: 'clark'; did you mean 'clerk'"):
                Routing(work, {"clerk": of("clerk")}, agents={"clark": "ann"})

    def test_a_branch_that_cannot_be_drafted_leaves_no_draft_behind(self) -> None:
        with mat.run() as run, mat.budget.contracted(skilled("desk", "search")) as work:
            with pytest.raises(SpecError, match="no skill tool:pay"):
                Routing(work, {"a": skilled("a", "search"), "b": skilled("b", "pay")})
        assert endings(run)["a#1"] == ("terminated", "branch b cannot be drafted")

    def test_parallel_routings_cannot_take_the_same_budget(self) -> None:
        async def one(work: Work) -> str:
            try:
                async with Routing(work, {"a": of("a", tokens=40), "b": of("b", tokens=40)}) as routing:
                    await asyncio.sleep(1)
                    async with routing.choose("a") as child:
                        child.spend(tokens=40)
            except mat.budget.BudgetSpent:
                return "refused"
            return "ran"

        async def body() -> tuple[list[str], int | None]:
            async with mat.budget.contracted(of("desk", tokens=250)) as work:
                return await asyncio.gather(*(one(work) for _ in range(5))), work.left("tokens")

        with mat.run():
            assert asyncio.run(body()) == (["ran", "ran", "ran", "refused", "refused"], 130)

    @given(
        budget=st.integers(0, 400), branches=st.lists(st.integers(0, 150), min_size=1, max_size=4), data=st.data(),
        reserve=st.sampled_from([0, 10, 15]),
    )  # fmt: skip
    def test_whatever_is_routed_nothing_is_lost_or_counted_twice(
        self, budget: int, branches: list[int], data: st.DataObject, reserve: int
    ) -> None:
        names = [f"b{place}" for place in range(len(branches))]
        contracts = {name: of(name, tokens=part) for name, part in zip(names, branches, strict=True)}
        with (
            mat.run() as run,
            mat.budget.contracted(ResourceContract(name="desk", budgets={"tokens": budget}, reserve_percent=reserve)) as work,
        ):
            fits = sum(branches) <= budget - budget * reserve // 100
            spent = 0
            try:
                with Routing(work, contracts) as routing:
                    assert work.left("tokens") == budget - sum(branches)
                    chosen = data.draw(st.sampled_from([*names, ""]))
                    if chosen:
                        with routing.choose(chosen) as child:
                            part = contracts[chosen].units["tokens"]
                            assert work.left("tokens") == budget - part
                            spent = data.draw(st.integers(0, part))
                            if spent:
                                child.spend(tokens=spent)
                assert fits
            except mat.budget.BudgetSpent:
                assert not fits
            assert work.left("tokens") == budget - spent
            assert work.status().consumed["tokens"] == spent
        assert set(endings(run)) == {f"{name}#1" for name in ("desk", *names)}


NEEDS = Requirement(skills=("search",), budgets={"tokens": 500}, duration_s=20, criteria=("reviewed",), least_quality=0.8)
REVIEWED = Criterion(name="reviewed", holds=lambda output, status: True)


def held(name: str, *skills: Skill | str, **more: Any) -> ResourceContract:
    """One that NEEDS fits."""
    terms: dict[str, Any] = {"criteria": (REVIEWED,), "output": Output(quality=len, least_quality=0.8), **more}
    return skilled(name, *skills, **terms)


class TestMatch:
    def test_what_does_not_fit_says_why(self) -> None:
        found = match(
            NEEDS,
            {
                "unskilled": held("a", "serch"), "poor": held("b", "search", budgets={"tokens": 499}),
                "hasty": held("c", "search", duration_s="19.999"), "unreviewed": held("d", "search", criteria=()),
                "sloppy": held("e", "search", output=Output(quality=len, least_quality=0.7)), "fit": held("f", "search"),
            },
        )  # fmt: skip
        said = {item.name: item.reasons for item in found if not item}
        assert said == {
            "unskilled": ("it has no skill tool:search; did you mean 'tool:serch'?",),
            "poor": ("its budget of tokens is 499, but the task needs 500",),
            "hasty": ("it has 19.999 s, but the task needs 20 s",),
            "unreviewed": ("it is not accepted by reviewed",),
            "sloppy": ("it requires a quality of 0.7, but the task needs 0.8",),
        }
        assert [item.name for item in found if item] == ["fit"]
        assert found[0].name == "fit"

    def test_the_limits_themselves_fit(self) -> None:
        assert match(NEEDS, {"a": held("a", "search", budgets={"tokens": 500}, duration_s=20)})[0].fits

    def test_what_is_not_limited_fits(self) -> None:
        assert match(NEEDS, {"a": replace(held("a"), skills=None)})[0].reasons == (
            "it may call any port, tool:search included", "it is accepted by reviewed",
        )  # fmt: skip

    def test_they_are_ranked_by_success_then_cost_then_focus_then_thrift(self) -> None:
        def named(*contracts: ResourceContract) -> list[str]:
            return [item.name for item in match(Requirement(skills=("search",)), {item.name: item for item in contracts})]

        surest = skilled("surest", Skill(name="search", success=0.9, cost={"money": 9}))
        cheap = skilled("cheap", Skill(name="search", success=0.8, cost={"money": "0.01"}), "pay")
        focused = skilled("focused", Skill(name="search", success=0.8, cost={"money": "0.02"}))
        broad = skilled("broad", Skill(name="search", success=0.8, cost={"money": "0.02"}), "pay")
        assert named(broad, focused, cheap, surest) == ["surest", "cheap", "focused", "broad"]
        small, large = skilled("small", "search", budgets={"tokens": 5}), skilled("large", "search", budgets={"tokens": 50})
        assert named(large, small) == ["small", "large"]

    def test_equals_keep_their_order(self) -> None:
        twins = {"b": skilled("x", "search"), "a": skilled("x", "search")}
        assert [item.name for item in match(Requirement(skills=("search",)), twins)] == ["b", "a"]

    def test_probabilities_are_multiplied_exactly(self) -> None:
        def able(name: str, *success: float) -> ResourceContract:
            ports = zip(("search", "pay", "lookup"), success, strict=True)
            return skilled(name, *(Skill(name=port, success=value) for port, value in ports))

        assert 0.1 * 0.2 * 0.3 > 0.3 * 0.2 * 0.1
        needs = Requirement(skills=("search", "pay", "lookup"))
        found = match(needs, {"first": able("x", 0.3, 0.2, 0.1), "second": able("x", 0.1, 0.2, 0.3)})
        assert [item.name for item in found] == ["first", "second"]

    def test_what_pays_must_be_able_to_now(self) -> None:
        contracts = {"big": of("big", tokens=200), "small": of("small", tokens=100)}
        with mat.run(), mat.budget.contracted(of("desk", tokens=250)) as work:
            assert [item.fits for item in match(Requirement(), contracts, within=work)] == [True, True]
            work.spend(tokens=100)
            found = match(Requirement(), contracts, within=work)
        assert [(item.name, item.fits) for item in found] == [("small", True), ("big", False)]
        assert found[1].reasons == ("desk#1 can allocate 150 of its tokens, not 200",)

    def test_what_a_contract_may_not_give_does_not_fit(self) -> None:
        desk = skilled("desk", "search", budgets={"subcontracts": 1}, depth=1)
        pool = {"payer": skilled("payer", "pay"), "any": of("any"), "ok": skilled("ok", "search")}
        with mat.run(), mat.budget.contracted(desk) as work:
            assert [item.name for item in match(Requirement(), pool, within=work) if item] == ["ok"]
            with work.delegate(pool["ok"], agent="ok") as child:
                (deeper,) = match(Requirement(), {"ok": pool["ok"]}, within=child)
                assert deeper.reasons[-1].startswith("desk#1 allows 1")
            (more,) = match(Requirement(), {"ok": pool["ok"]}, within=work)
            assert more.reasons == ("subcontracts of desk#1: the budget of 1 is spent",)

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10)), min_size=1, max_size=5), st.randoms())
    def test_the_order_of_a_pool_of_different_contracts_does_not_matter(self, pool: list[tuple[int, int]], random: Any) -> None:
        contracts = {
            f"{tokens}-{success}": skilled("x", Skill(name="search", success=success / 10), budgets={"tokens": tokens})
            for tokens, success in pool
        }
        shuffled = list(contracts.items())
        random.shuffle(shuffled)
        needs = Requirement(skills=("search",), budgets={"tokens": 3})
        assert [item.name for item in match(needs, contracts)] == [item.name for item in match(needs, dict(shuffled))]


def agent_for(contract: ResourceContract) -> Callable[[str], list[str]]:
    """Makes an agent that calls what its contract says, and nothing else."""
    tools = {"search": search, "pay": pay}
    chosen = [tools[item.name] for item in contract.skills or ()]

    def run(task: str) -> list[str]:
        return [str(call(task)) for call in chosen]  # type: ignore[operator]

    return run


class TestInstantiation:
    def test_an_agent_is_made_of_its_contract_and_held_to_it(self) -> None:
        with mat.run() as run, mat.budget.contracted(of("desk", calls=9), agent="desk") as work:
            with spawn(work, skilled("finder", "search", budgets={"calls": 1}), agent_for, task="find it") as made:
                assert made.agent("x") == ["['x']"]
                with pytest.raises(mat.budget.BudgetSpent, match="the budget of 1 is spent"):
                    made.agent("y")
                assert made.task == "find it"
        assert endings(run)["finder#1"] == ("fulfilled", "")
        assert {record.agent for record in run.trace if record.action.kind == "tool_call"} == {"finder"}

    def test_what_making_an_agent_takes_is_its_own(self) -> None:
        def make(contract: ResourceContract) -> str:
            search("documentation")
            return contract.name

        with mat.run(), mat.budget.contracted(of("desk", calls=9)) as work, spawn(work, of("a", calls=3), make) as made:
            assert (made.agent, made.work.left("calls"), work.status().consumed["calls"]) == ("a", 2, 1)

    def test_an_agent_that_cannot_be_made_ends_its_contract(self) -> None:
        def broken(contract: ResourceContract) -> None:
            raise RuntimeError("no such model")

        with mat.run() as run, mat.budget.contracted(of("desk", tokens=9)) as work:
            with pytest.raises(RuntimeError), spawn(work, of("a", tokens=3), broken):
                pass
            assert work.left("tokens") == 9
        assert endings(run)["a#1"] == ("terminated", "RuntimeError: no such model")

    def test_nobody_is_made_without_a_budget(self) -> None:
        def make(contract: ResourceContract) -> None:
            pytest.fail("it was made")

        with mat.run(), mat.budget.contracted(of("desk", tokens=9)) as work:
            with pytest.raises(mat.budget.BudgetSpent), spawn(work, of("a", tokens=10), make):
                pass
            with pytest.raises(SpecError, match="has no agent yet"):
                _ = spawn(work, of("a", tokens=1), make).agent

    def test_the_best_of_a_pool_gets_the_task(self) -> None:
        pool = {
            "sure": Specialist(contract=skilled("s", Skill(name="search", success=0.9)), make=agent_for),
            "unsure": Specialist(contract=skilled("u", Skill(name="search", success=0.5)), make=agent_for),
        }
        with (
            mat.run(),
            mat.budget.contracted(of("desk", calls=9)) as work,
            assign(work, Requirement(skills=("search",)), pool) as made,
        ):
            assert (made.work.agent, made.work.contract.name) == ("sure", "s")

    def test_where_nobody_fits_an_agent_is_made_to_what_the_task_asks_for(self) -> None:
        pool = {"payer": Specialist(contract=skilled("p", "pay"), make=agent_for)}
        needs = Requirement(skills=("search",), budgets={"calls": 2}, duration_s=5)
        with mat.run(), mat.budget.contracted(of("desk", calls=9)) as work:
            with assign(work, needs, pool, make=agent_for) as made:
                assert made.work.contract == skilled("specialist", "search", budgets={"calls": 2}, duration_s=5)
                assert made.agent("x") == ["['x']"]
                with pytest.raises(mat.budget.BudgetSpent, match="no skill tool:pay"):
                    pay(3)
            with pytest.raises(SpecError, match="no agent for the task; payer: it has no skill tool:search"):
                assign(work, needs, pool)

    def test_criteria_are_not_made_of_their_names(self) -> None:
        with pytest.raises(SpecError, match=r"criteria are missing: reviewed; it needs an output of quality 0\.8"):
            NEEDS.contract("specialist")
        made = NEEDS.contract("specialist", criteria=(REVIEWED,), output=Output(quality=len, least_quality=0.8))
        assert match(NEEDS, {"specialist": made})[0].fits


class TestContractsOnContracting:
    def test_the_number_of_contracts_is_a_budget_of_the_whole_tree(self) -> None:
        with mat.run(), mat.budget.contracted(of("top", subcontracts=3)) as work:
            made = 0

            def grow(parent: Work, depth: int) -> None:
                nonlocal made
                for _ in range(2):
                    try:
                        with parent.delegate(of("below"), agent="below") as child:
                            made += 1
                            if depth:
                                grow(child, depth - 1)
                    except mat.budget.BudgetSpent:
                        pass

            grow(work, 3)
            assert made == 3

    def test_routing_counts_every_branch(self) -> None:
        with mat.run(), mat.budget.contracted(of("top", subcontracts=2)) as work:
            with pytest.raises(mat.budget.BudgetSpent, match="subcontracts of top#1: the budget of 2 is spent"):
                with Routing(work, {"a": of("a"), "b": of("b"), "c": of("c")}):
                    pass

    def test_the_depth_holds_at_every_level(self) -> None:
        with mat.run(), mat.budget.contracted(ResourceContract(name="top", depth=2)) as work:
            with spawn(work, of("one"), agent_for) as one, spawn(one.work, of("two"), agent_for) as two:
                with pytest.raises(MatError, match=r"top#1 allows 2 levels"):
                    spawn(two.work, of("three"), agent_for)

    def test_a_skill_that_is_not_handed_on_is_not_to_be_had_at_any_depth(self) -> None:
        top = skilled("top", "search", "pay", hands_on=HandsOn(skills=("search",)))
        with mat.run(), mat.budget.contracted(top) as work:
            pay(3)
            for wrong in (skilled("one", "search", "pay"), of("one")):
                with pytest.raises(MatError, match=r"top#1 does not hand on tool:pay|contract 'one' must give skills="):
                    spawn(work, wrong, agent_for)
            with spawn(work, skilled("one", "search"), agent_for) as one:
                with pytest.raises(MatError, match="top#1 does not hand on tool:pay"):
                    spawn(one.work, skilled("two", "pay"), agent_for)
                with pytest.raises(mat.budget.BudgetSpent, match="no skill tool:pay"):
                    pay(3)

    def test_a_mode_that_is_not_handed_on_is_not_to_be_had_at_any_depth(self) -> None:
        top = ResourceContract(name="top", hands_on=HandsOn(modes=("urgent", "economical")))
        with mat.run(), mat.budget.contracted(top) as work:
            for wrong in (BALANCED.of(of("one")), of("one")):
                with pytest.raises(MatError, match=r"top#1 hands on only the modes urgent and economical, but contract"):
                    work.draft(wrong, agent="one")
            with spawn(work, ECONOMICAL.of(of("one")), agent_for) as one:
                with pytest.raises(MatError, match="top#1 hands on"):
                    one.work.draft(BALANCED.of(of("two")), agent="two")
                one.work.draft(URGENT.of(of("two")), agent="two")
