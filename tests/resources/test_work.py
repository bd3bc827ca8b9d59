"""Working under a resource contract: what is metered, what is blocked, how it ends, and what the trace keeps of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import mat
from mat.core.errors import MatError
from mat.core.resources import entries_of
from mat.govern.variant import Policy
from mat.harness.execute import installed_operators
from mat.resources import Criterion, Inputs, Output, Price, ResourceContract, Skill, Work
from mat.resources.ledger import Account
from mat_contracts.resource import conserved, exactly_one_terminal_state, within_budget


@mat.model("planner")
def plan(prompt: str, max_tokens: int = 100, wrote: int = 40) -> dict[str, Any]:
    return {"text": "a plan", "usage": {"input_tokens": 10, "output_tokens": wrote}}


@mat.model("planner")
async def plan_async(prompt: str, max_tokens: int = 100, wrote: int = 40) -> dict[str, Any]:
    await asyncio.sleep(1)
    return {"text": "a plan", "usage": {"input_tokens": 10, "output_tokens": wrote}}


@mat.tool
def search(query: str) -> list[str]:
    return [query]


@mat.tool
def fails(query: str) -> list[str]:
    raise ConnectionError("down")


def of(**budgets: Any) -> ResourceContract:
    return ResourceContract(name="work", budgets=budgets)


def events(run: mat.run) -> list[str]:
    return [record.action.name for record in run.trace if record.action.kind == "contract"]


class TestMetering:
    def test_a_call_consumes_itself_and_the_tokens_its_reply_names(self) -> None:
        with mat.run(), mat.budget.contracted(of(tokens=500, calls=9, model_calls=9, tool_calls=9)) as work:
            plan("go")
            search("x")
            status = work.status()
        assert dict(status.consumed) == {"calls": 2, "model_calls": 1, "tokens": 50, "tool_calls": 1}

    def test_an_attempt_that_fails_is_a_call(self) -> None:
        with mat.run(), mat.budget.contracted(of(calls=2)) as work:
            for _ in range(2):
                with pytest.raises(ConnectionError):
                    fails("x")
            with pytest.raises(mat.budget.BudgetSpent, match="the budget of 2 is spent"):
                fails("x")
            assert work.status().consumed["calls"] == 2

    def test_money_is_counted_by_the_prices(self) -> None:
        prices = {"model:planner": Price(input="3", output=15), "tool": Price(call="0.005")}
        contract = ResourceContract(name="work", budgets={"money": "1"}, prices=prices)
        with mat.run(), mat.budget.contracted(contract) as work:
            plan("go")
            search("x")
            assert work.status().consumed["money"] == 30 + 600 + 5_000

    def test_an_attempt_that_reached_nobody_is_a_call_without_tokens_and_money(self) -> None:
        needs = {"calls": 1, "model_calls": 1, "tokens": 100, "output_tokens": 100, "money": 7}
        work = mat.budget.contracted(of(tokens=500))
        said = {"kind": "model_call", "name": "planner", "elapsed_ms": 0, "usage": {}, "needs": needs}
        reached, unreached = (work.consumption(invoked=invoked, **said) for invoked in (1, 0))
        assert {name: reached.get(name, 0) for name in needs} == needs
        assert {name: unreached.get(name, 0) for name in needs} == {**needs, "tokens": 0, "output_tokens": 0, "money": 0}

    @pytest.mark.parametrize(("ends", "tokens"), [("whole", 310), ("closed", 510), ("broken", 510)])
    def test_a_stream_consumes_what_its_chunks_name_and_no_less_than_was_reserved_if_it_ends_early(
        self, ends: str, tokens: int
    ) -> None:
        @mat.model("writer")
        def write(prompt: str, max_tokens: int) -> Iterator[dict[str, Any]]:
            yield {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}
            if ends == "broken":
                raise ConnectionError("down")
            yield {"type": "message_delta", "usage": {"output_tokens": 300}}

        with mat.run([conserved()]) as run, mat.budget.contracted(of(tokens=5_000)) as work:
            stream = write("go", max_tokens=500)
            next(stream)
            with nullcontext() if ends != "broken" else pytest.raises(ConnectionError):
                stream.close() if ends == "closed" else list(stream)
            assert work.status().consumed["tokens"] == tokens
        assert run.result is not None
        assert run.result.failures == ()

    def test_seconds_are_those_spent_in_calls(self) -> None:
        async def body() -> None:
            async with mat.budget.contracted(of(seconds=10)) as work:
                await asyncio.gather(plan_async("a"), plan_async("b"))
                await asyncio.sleep(5)
                assert work.status().consumed["seconds"] == 2_000

        with mat.run():
            asyncio.run(body())


class TestHardEnforcement:
    def test_a_budget_that_is_spent_blocks_and_is_no_breach(self) -> None:
        with mat.run() as run:
            with mat.budget.contracted(of(calls=1)) as work:
                search("x")
                with pytest.raises(mat.budget.BudgetSpent) as caught:
                    search("y")
            assert (caught.value.contract, caught.value.resource) == ("work#1", "calls")
            assert work.state == "fulfilled"
        blocked = run.trace[4]
        assert blocked.blocked
        assert blocked.invoked == 0
        assert blocked.mediation is not None
        assert blocked.mediation.rule == "budget"

    def test_a_call_in_flight_that_overruns_violates_and_halts(self) -> None:
        with mat.run() as run:
            with mat.budget.contracted(of(tokens=100), agent="runaway") as work:
                plan("go", max_tokens=0, wrote=300)
                assert work.state == "violated"
                with pytest.raises(mat.budget.BudgetSpent, match="is violated"):
                    search("x")
        told = next(record for record in run.trace if record.action.name == "violated")
        assert told.action.arguments["overrun"] == {"tokens": 210}
        assert told.action.arguments["allocated_by"] == {"tokens": ["runaway"]}

    def test_parallel_calls_cannot_spend_the_same_budget_twice(self) -> None:
        async def one() -> str:
            try:
                await plan_async("go", max_tokens=100)
            except mat.budget.BudgetSpent:
                return "blocked"
            return "ran"

        async def body() -> list[str]:
            async with mat.budget.contracted(of(tokens=250)):
                return await asyncio.gather(*(one() for _ in range(5)))

        with mat.run():
            assert asyncio.run(body()).count("ran") == 2

    def test_what_is_no_skill_is_refused(self) -> None:
        contract = ResourceContract(name="work", skills=(Skill(name="search"),))
        with mat.run(), mat.budget.contracted(contract):
            search("x")
            with pytest.raises(mat.budget.BudgetSpent, match="no skill model:planner"):
                plan("go")

    def test_nothing_starts_after_the_time_is_over(self) -> None:
        async def body() -> Work:
            async with mat.budget.contracted(ResourceContract(name="work", duration_s=2)) as work:
                await plan_async("a")
                await plan_async("b")  # at 1,000 ms of 2,000: ends at the last moment
                await asyncio.sleep(0.001)
                with pytest.raises(mat.budget.BudgetSpent, match="expired"):
                    await plan_async("c")
            return work

        with mat.run():
            assert asyncio.run(body()).state == "expired"


class TestDelegation:
    def test_a_limit_on_a_parent_holds_in_the_whole_tree(self) -> None:
        def nested(depth: int) -> int:
            if depth == 0:
                done = 0
                for _ in range(3):
                    try:
                        search("x")
                        done += 1
                    except mat.budget.BudgetSpent:
                        pass
                return done
            with mat.budget.contracted(of()):
                return nested(depth - 1) + nested(depth - 1)

        with mat.run(), mat.budget.contracted(of(calls=3)):
            assert nested(3) == 3

    def test_what_a_child_leaves_comes_back(self) -> None:
        with mat.run(), mat.budget.contracted(of(tokens=300)) as work:
            with work.delegate(of(tokens=200), agent="helper") as child:
                assert work.left("tokens") == 100
                plan("go")
                assert child.left("tokens") == 150
            assert work.left("tokens") == 250
            assert work.status().consumed["tokens"] == 50

    def test_more_than_the_parent_has_is_not_to_be_had(self) -> None:
        with mat.run() as run, mat.budget.contracted(of(tokens=100)) as work:
            with (
                pytest.raises(mat.budget.BudgetSpent, match="can allocate 100 of its tokens, not 101"),
                work.delegate(of(tokens=101), agent="a"),
            ):
                pass
            with work.delegate(of(tokens=100), agent="a"):
                pass
        assert "refused" in events(run)

    def test_the_reserve_is_kept_from_children(self) -> None:
        contract = ResourceContract(name="work", budgets={"tokens": 100}, reserve_percent=10)
        with mat.run(), mat.budget.contracted(contract) as work:
            with pytest.raises(mat.budget.BudgetSpent, match="with 10 in reserve"), work.delegate(of(tokens=91), agent="a"):
                pass
            with work.delegate(of(tokens=90), agent="a"):
                plan("for myself", max_tokens=0, wrote=0)

    def test_an_overrun_below_shrinks_the_pool_above(self) -> None:
        with mat.run(), mat.budget.contracted(of(tokens=300)) as work:
            with work.delegate(of(tokens=100), agent="runaway") as child:
                plan("go", max_tokens=0, wrote=190)
            assert child.state == "violated"
            assert work.left("tokens") == 100
            assert work.state == "active"

    def test_who_comes_after_an_overrun_does_not_begin(self) -> None:
        with mat.run(), mat.budget.contracted(of(tokens=300)) as work:
            with work.delegate(of(tokens=100), agent="runaway") as first:
                plan("go", max_tokens=0, wrote=190)
            second = work.draft(of(tokens=10), agent="next", after=[first])
            with pytest.raises(mat.budget.BudgetSpent, match="which comes before it, is violated"):
                second.activate()
            assert second.state == "terminated"

    def test_what_ends_above_ends_below(self) -> None:
        with mat.run(), mat.budget.contracted(of(calls=9)) as work:
            child = work.draft(of(), agent="helper").activate()
            work.cancel("the user left")
            assert (child.state, child.cause) == ("terminated", "work#1 is terminated")

    def test_a_cancelled_branch_is_settled_late_and_nothing_is_lost(self) -> None:
        async def branch(work: Work) -> None:
            async with work.delegate(of(tokens=200), agent="slow"):
                await plan_async("go", max_tokens=100)

        async def body() -> None:
            async with mat.budget.contracted(of(tokens=300)) as work:
                task = asyncio.create_task(branch(work))
                await asyncio.sleep(0.5)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert work.left("tokens") == 300 - 101  # nobody knows what it used: what was reserved counts

        with mat.run():
            asyncio.run(body())


def test_what_two_contracts_give_of_one_resource_is_one_budget() -> None:
    with mat.run():
        one, other = (Work(of(tokens=100), agent=name).activate() for name in ("ann", "bob"))
        shares = {one.id: {"tokens": 30}, other.id: {"tokens": 20}}
        work = Work(of(tokens=50), agent="helper", parents=(one, other), shares=shares).activate()
        assert (work.status().budgets["tokens"], work.left("tokens")) == (50, 50)
        work.spend(tokens=40)
        assert work.left("tokens") == 10


class TestTheEnd:
    def test_what_meets_the_criteria_within_its_budgets_is_fulfilled(self) -> None:
        contract = ResourceContract(
            name="work", output=Output(schema=list[str], quality=len, least_quality=1),
            criteria=(
                Criterion(name="found", holds=lambda output, status: "x" in output, weight=2),
                Criterion(name="cheap", holds=lambda output, status: status.utilization < 0.5),
            ),
            threshold=2,
        )  # fmt: skip
        with mat.run(), mat.budget.contracted(contract) as work:
            wrong = work.deliver("x")
            assert not wrong
            assert "valid list" in wrong.problems[0]
            unmet = work.deliver(["y"])
            assert unmet.problems == ("criteria: 1 of 2, without found",)
            assert work.live
            assert work.deliver(["x"])
            assert work.state == "fulfilled"

    def test_an_error_terminates_with_its_cause(self) -> None:
        with mat.run():
            with pytest.raises(KeyError), mat.budget.contracted(of(calls=3)) as work:
                raise KeyError("lost")
            assert (work.state, work.cause) == ("terminated", "KeyError: 'lost'")

    def test_it_ends_once(self) -> None:
        with mat.run() as run:
            with mat.budget.contracted(of(calls=3)) as work:
                work.deliver("done")
                work.cancel("too late")
            with pytest.raises(mat.budget.BudgetSpent, match="is fulfilled"):
                work.activate()
        assert events(run) == ["drafted", "activated", "fulfilled"]

    def test_the_entries_of_a_run_have_numbers_without_a_gap(self) -> None:
        with mat.run() as run, mat.budget.contracted(of(tokens=300)) as work:
            for _ in range(2):
                with work.delegate(of(tokens=100), agent="helper"):
                    plan("go", max_tokens=20)
        numbers = sorted(entry.number for record in run.trace for entry in entries_of(record))
        assert numbers == list(range(1, len(numbers) + 1))

    def test_two_runs_have_one_head(self) -> None:
        def once() -> str:
            with mat.run() as run, mat.budget.contracted(of(tokens=300)) as work, work.delegate(of(tokens=100), agent="helper"):
                plan("go", max_tokens=20)
            assert run.result is not None
            return run.result.head

        assert once() == once()


def test_input_that_breaks_its_rules_is_no_contract() -> None:
    contract = ResourceContract(name="review", inputs=Inputs(schema=dict[str, int], prepare=lambda given: given["pr"]))
    with mat.run():
        with pytest.raises(MatError, match="valid integer"):
            mat.budget.contracted(contract, inputs={"pr": "seven"})
        with mat.budget.contracted(contract, inputs={"pr": 7}) as work:
            assert work.inputs == 7


def test_outside_a_run_what_is_declared_is_counted() -> None:
    with mat.budget.contracted(of(iterations=2)) as work:
        assert list(work.iterations()) == [1, 2]
        assert search("x") == ["x"]
        assert work.status().consumed == {"iterations": 2}


def test_what_was_approved_too_late_is_released_and_stands_in_the_trace_as_reserved() -> None:
    @mat.tool(effect="write")
    def pay(to: str) -> str:
        return "paid"

    late = next(item for item in installed_operators() if item.id == "service.delay")
    schedule = [mat.spec.perturbation(late.id, "main/service:pay#1", late.grid[-1], cost=1)]
    governance = mat.policy.Governance(
        rules=(lambda record: mat.policy.NeedsApproval("payment"),), approver=lambda what, arguments: True, approve_within_ms=1
    )
    with mat.run(governance=governance, schedule=schedule) as run, mat.budget.contracted(of(calls=3)) as work:
        with pytest.raises(mat.Blocked, match="expired"):
            pay("ann")
        assert work.status().consumed["calls"] == 0
        assert work.left("calls") == 3
    numbers = sorted(entry.number for record in run.trace for entry in entries_of(record))
    assert numbers == list(range(1, len(numbers) + 1))


class TestStandingContracts:
    """Contracts that governance has agents work under, without a word in their code."""

    def test_an_agent_is_bound_from_its_first_call_on(self) -> None:
        governance = mat.policy.Governance(contracts={"clerk": of(calls=2)})
        with mat.run(governance=governance) as run:
            with mat.agent("clerk"):
                search("a")
                search("b")
                with pytest.raises(mat.budget.BudgetSpent, match="the budget of 2 is spent"):
                    search("c")
            search("of somebody else")
        assert events(run) == ["drafted", "activated", "warned", "fulfilled"]

    def test_those_of_agents_are_parts_of_the_one_for_the_run(self) -> None:
        team = ResourceContract(name="team", budgets={"calls": 5})
        governance = mat.policy.Governance(contracts={"*": team, "clerk": of(calls=2), "greedy": of(calls=4)})
        with mat.run(governance=governance):
            for _ in range(3):
                search("free")
            with mat.agent("clerk"):
                search("a")
            with mat.agent("greedy"), pytest.raises(mat.budget.BudgetSpent, match="can allocate 0 of its calls, not 4"):
                search("b")
            with mat.agent("greedy"), pytest.raises(mat.budget.BudgetSpent, match="terminated"):
                search("b")

    def test_what_an_agent_contracts_itself_is_a_part_of_it(self) -> None:
        with mat.run(governance=mat.policy.Governance(contracts={"clerk": of(calls=2)})), mat.agent("clerk"):
            with mat.budget.contracted(of(calls=2)) as work:
                search("a")
                assert work.parents[0].contract.units == {"calls": 2}
            with (
                pytest.raises(mat.budget.BudgetSpent, match="can allocate 1 of its calls, not 2"),
                mat.budget.contracted(of(calls=2)),
            ):
                pass

    def test_one_whose_time_is_over_is_expired_and_not_fulfilled_at_the_end(self) -> None:
        async def body() -> None:
            search("a")
            await asyncio.sleep(3)

        with mat.run(governance=mat.policy.Governance(contracts={"*": ResourceContract(name="team", duration_s=2)})) as run:
            asyncio.run(body())
        assert events(run) == ["drafted", "activated", "expired"]

    def test_the_variant_without_governance_has_none(self) -> None:
        policy = Policy(contracts={"*": of(calls=1)})
        assert policy.variants()["none"] is None
        assert dict(policy.variant("shield").contracts) == {"*": of(calls=1)}  # type: ignore[union-attr]


class TestTheHorizon:
    def test_rounds_without_a_call_end_at_it(self) -> None:
        with mat.run(horizon=20) as run, mat.budget.contracted(of()) as work:
            for _ in work.iterations():
                pass
        assert run.result is not None
        assert run.result.termination == "horizon"
        assert len(run.result.records) < 25

    def test_each_contract_reaches_its_end_in_a_run_that_is_cut_off(self) -> None:
        with mat.run(horizon=12) as run, mat.budget.contracted(of(calls=99)) as work:
            with work.delegate(of(), agent="helper"):
                while True:
                    search("again")
        told = [record.action.arguments["cause"] for record in run.trace if record.action.name == "terminated"]
        assert told == ["work#1 is terminated", "the run ended"]


@pytest.mark.parametrize(("slip", "meant"), [("token", "tokens"), ("iteration", "iterations"), ("search", "searches")])
def test_a_slip_in_a_name_is_no_limit_that_nobody_counts(slip: str, meant: str) -> None:
    with pytest.raises(MatError, match=f"did you mean '{meant}'"):
        of(**{slip: 5})
    assert of(credits=5).units == {"credits": 5}


def test_an_ended_contract_is_not_entered_again() -> None:
    with mat.run():
        work = mat.budget.contracted(of(calls=3))
        work.cancel()
        with pytest.raises(mat.budget.BudgetSpent, match="is terminated"), work:
            pass
        with pytest.raises(mat.budget.BudgetSpent, match="nothing to divide"):
            work.split(["a", "b"])


@pytest.mark.parametrize("terms", [{"criteria": ("done",)}, {"inputs": 3}, {"output": dict}, {"skills": ("search",)}])
def test_terms_of_another_kind_are_reported(terms: dict[str, Any]) -> None:
    with pytest.raises(MatError, match=r"is not|must be an"):
        ResourceContract(name="work", **terms)


def test_what_is_no_contract_is_reported() -> None:
    with pytest.raises(MatError, match="is not a resource contract"):
        mat.budget.contracted("review")  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [object(), "Review", lambda: None])
def test_a_schema_that_nothing_can_be_checked_by_is_reported_when_the_contract_is_written(schema: Any) -> None:
    with pytest.raises(MatError, match=r"cannot be used for checking|is not a type"):
        ResourceContract(name="work", output=Output(schema=schema))


class TestWhatIsAllocatedIsNotFree:
    @staticmethod
    def team(budget: int, *shares: int) -> tuple[Work, list[Work]]:
        team = mat.budget.contracted(ResourceContract(name="team", budgets={"tokens": budget}), agent="boss")
        team.activate()
        return team, [
            team.draft(ResourceContract(name=f"part{number}", budgets={"tokens": share}), agent=f"member{number}").activate()
            for number, share in enumerate(shares)
        ]

    def test_a_call_that_takes_what_a_sub_contract_holds_violates_at_once_and_is_named(self) -> None:
        with mat.run([within_budget(), conserved()]) as run:
            team, (part,) = self.team(5_000, 4_000)
            with team:
                plan("go", max_tokens=0, wrote=1_290)
                assert team.state == "violated"
                with pytest.raises(mat.budget.BudgetSpent, match="is violated"):
                    search("x")
        assert team.cause == (
            "model:planner at step 4 of boss took 300 tokens that were not free: 1,300 spent here and 4,000 allocated below "
            "exceed the budget of 5,000"
        )
        assert (part.state, part.cause) == ("terminated", f"team#1 is violated: {team.cause}")
        told = next(record.action.arguments for record in run.trace if record.action.name == "violated")
        assert (told["overrun"], told["call"]) == ({"tokens": 300}, "model:planner at step 4")
        assert run.result is not None
        (violation,) = run.result.failures
        assert (violation.contract, violation.step) == ("resource.within_budget", 4)
        assert violation.message == (
            "team#1 of boss consumed 1,300 tokens and allocated 4,000, 300 more than the 5,000 that it had"
        )

    def test_the_audit_finds_it_in_a_trace_of_a_ledger_that_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Account, "overrun", property(lambda self: max(0, self.used - self.budget)))
        with mat.run([within_budget(), exactly_one_terminal_state()]) as run:
            team, _ = self.team(5_000, 4_000)
            with team:
                plan("go", max_tokens=0, wrote=1_290)
                assert team.state == "active"
        assert run.result is not None
        assert {(item.contract, item.step) for item in run.result.failures} == {
            ("resource.within_budget", 4),
            ("resource.exactly_one_terminal_state", 6),
        }

    def test_the_overrun_of_one_sub_contract_into_another_is_that_of_the_contract_above(self) -> None:
        with mat.run():
            team, (first, second) = self.team(1_000, 300, 600)
            with first:
                plan("go", max_tokens=0, wrote=490)
            assert (first.state, team.state, second.state) == ("violated", "violated", "terminated")
        assert "of member0 took 100 tokens that were not free: 0 spent here and 1,100 allocated below" in team.cause

    def test_what_calls_in_flight_hold_is_no_overrun(self) -> None:
        with mat.run(), mat.budget.contracted(of(tokens=1_000)) as work, work.reserve(tokens=600) as held:
            plan("go", max_tokens=100, wrote=490)
            assert (work.state, work.left("tokens")) == ("active", 0)
            held.settle(tokens=100)
            assert (work.state, work.left("tokens")) == ("active", 400)
