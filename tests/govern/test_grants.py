"""Delegation takes authority away and never adds any; only a recorded grant widens, and only what its grantor holds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.boundary.emit import grant, grant_async
from mat.core.errors import SpecError
from mat.core.run import Run
from mat.govern.capability import capability, endpoint, rate
from mat.govern.mediator import Governance, NeedsApproval


@mat.tool(effect="write")
def pay(amount: int = 5) -> str:
    return "paid"


@mat.tool(effect="write")
def send(to: str = "ann") -> str:
    return "sent"


@mat.tool(effect="write")
async def wire(amount: int = 5) -> str:
    await asyncio.sleep(1)
    return "wired"


def can(call: Any, *arguments: Any) -> bool:
    try:
        call(*arguments)
    except mat.Blocked:
        return False
    return True


PAY, SEND, TO_B, TO_C, TO_BOSS = "pay", "send", "delegation:b", "delegation:c", "delegation:boss"


def sets(**capabilities: Any) -> Governance:
    return Governance(capabilities=capabilities)


def mediation(record: mat.Record) -> Any:
    assert record.mediation is not None
    return record.mediation


def of(run: Any, name: str) -> list[mat.Record]:
    return [item for item in run.trace if item.action.name == name and item.action.kind != "approval"]


def test_who_acts_on_a_delegated_task_may_do_only_what_delegator_and_agent_may() -> None:
    governance = sets(a=[PAY, TO_B], b=[PAY, SEND])
    with mat.run(governance=governance) as run:
        with mat.agent("b"):
            assert (can(pay), can(send)) == (True, True)
        with mat.agent("a"), mat.delegate("b", "do it"):
            assert (can(pay), can(send)) == (True, False)
        with mat.agent("b"):
            assert can(send), "the task is handed back"
    blocked = of(run, "send")[1]
    assert mediation(blocked).reason == "b acts for a (step 2): a has no capability send"
    assert mediation(blocked).under == ("step#2",)
    assert mediation(of(run, "pay")[1]).under == ("step#2",)


def test_parameters_and_rates_of_the_delegator_hold_for_those_who_act_for_it() -> None:
    governance = sets(a=[capability("pay", rate(1), amount=(0, 10)), TO_B], b=[PAY])
    with mat.run(governance=governance), mat.agent("a"):
        with mat.delegate("b"):
            assert [can(pay, 11), can(pay, 10), can(pay, 1)] == [False, True, False]
        assert not can(pay, 1), "its delegate has used it up"


def test_a_chain_of_delegations_allows_what_all_in_it_allow() -> None:
    governance = sets(a=[PAY, TO_B, TO_C], b=[PAY, SEND, TO_C], c=[PAY, SEND])
    with mat.run(governance=governance) as run:
        with mat.agent("a"), mat.delegate("b"), mat.delegate("c"):
            assert (can(pay), can(send)) == (True, False)
        with mat.agent("b"), mat.delegate("c"):
            assert can(send)
    assert mediation(of(run, "pay")[0]).under == ("step#0", "step#1")


def test_a_delegation_that_its_delegator_may_not_make_is_blocked() -> None:
    governance = sets(a=[TO_B], b=[TO_C], c=[])
    with mat.run(governance=governance), mat.agent("a"):
        with pytest.raises(mat.Blocked):
            mat.delegate("c")
        with mat.delegate("b"), pytest.raises(mat.Blocked, match="a has no capability delegation:c"):
            mat.delegate("c")


def test_another_agent_that_acts_inside_a_delegated_task_is_bound_by_it_too() -> None:
    with mat.run(governance=sets(a=[TO_B], b=[PAY], c=[PAY])), mat.agent("a"), mat.delegate("b"), mat.agent("c"):
        assert not can(pay)


def test_a_delegation_that_is_never_taken_up_in_a_block_binds_its_agent_until_it_hands_back() -> None:
    from mat.boundary.emit import hand_back

    with mat.run(governance=sets(a=[TO_B], b=[PAY])):
        with mat.agent("a"):
            mat.delegate("b", "later")
        with mat.agent("b"):
            assert not can(pay)
            hand_back("a")
            assert can(pay)


def test_a_hand_back_of_one_task_ends_no_other() -> None:
    with mat.run(governance=sets(a=[TO_B], b=[PAY])):
        with mat.agent("a"):
            mat.delegate("b", "later")
            with mat.delegate("b", "now"):
                assert not can(pay)
        with mat.agent("b"):
            assert not can(pay)


def test_concurrent_delegations_to_one_agent_are_distinguished() -> None:
    went: dict[str, bool] = {}

    async def task(delegator: str) -> None:
        with mat.agent(delegator), mat.delegate("b"):
            await asyncio.sleep(0.5)
            try:
                await wire()
                went[delegator] = True
            except mat.Blocked:
                went[delegator] = False

    async def body() -> None:
        await asyncio.gather(task("rich"), task("poor"))

    with mat.run(governance=sets(rich=["wire", TO_B], poor=[TO_B], b=["wire"])):
        asyncio.run(body())
    assert went == {"rich": True, "poor": False}


def test_a_handed_over_call_is_bound_while_it_runs_and_when_it_is_delivered_twice() -> None:
    from mat.boundary.effect import Duplicate

    went: list[bool] = []

    @mat.handoff("b")  # type: ignore[attr-defined,untyped-decorator,unused-ignore]
    def work() -> None:
        went.append(can(pay))

    twice = mat.spec.operator("delegation.twice", lambda call, reply, stream: Duplicate(1))
    schedule = [mat.spec.perturbation("delegation.twice", "a/delegation:b#1", cost=1)]
    with mat.run(governance=sets(a=[TO_B], b=[PAY]), operators=[twice], schedule=schedule):
        with mat.agent("a"):
            work()
        with mat.agent("b"):
            went.append(can(pay))
    assert went == [False, False, True]


# -- grants ---------------------------------------------------------------------------------------------------------------


def granted_by(grantor: str, holder: str, tool: str, /, **options: Any) -> bool:
    with mat.agent(grantor):
        return grant(holder, tool, **options)


def test_a_grant_is_a_record_that_is_mediated_and_the_action_names_it() -> None:
    with mat.run(governance=sets(a=[capability("pay", amount=(0, 100))], b=[])) as run:
        assert granted_by("a", "b", "pay", calls=1, amount=(0, 10))
        with mat.agent("b"):
            assert [can(pay, 11), can(pay, 10), can(pay, 10)] == [False, True, False]
    given, _, used, spent = run.trace[:4]
    assert (given.action.kind, given.action.name, given.agent) == ("grant", "b", "a")
    assert given.action.arguments == {
        "tool": "pay", "parameters": {"amount": {"range": [0, 10]}}, "calls": 1, "within_ms": None
    }  # fmt: skip
    assert mediation(given).decision == "allow"
    assert mediation(used).grant == "step#0"
    assert "the grant at step 0 was for 1 call and is used up" in mediation(spent).reason


@pytest.mark.parametrize(
    ("tool", "parameters", "given"),
    [
        ("pay", {"amount": (0, 100)}, True),
        ("pay", {"amount": {1, 100}}, True),
        ("pay", {"amount": (0, 101)}, False),
        ("pay", {"amount": {1, 101}}, False),
        ("pay", {}, False),
        ("send", {}, False),
        ("retrieval:pay", {}, False),
        ("fetch", {"url": endpoint("a.example", paths="/v1/x")}, True),
        ("fetch", {"url": endpoint("a.example", paths="/v2")}, False),
        ("fetch", {"url": endpoint("a.example")}, False),
        ("fetch", {"url": {"https://a.example/v1/y"}}, True),
        ("fetch", {"url": {"https://a.example.evil.example/v1"}}, False),
    ],
)
def test_nobody_can_grant_what_it_does_not_hold_and_a_refused_grant_is_recorded(
    tool: str, parameters: dict[str, Any], given: bool
) -> None:
    held = [capability("pay", amount=(0, 100)), capability("fetch", url=endpoint("a.example", paths="/v1"))]
    with mat.run(governance=sets(a=held, b=[])) as run:
        assert granted_by("a", "b", tool, **parameters) is given
    record = run.trace[0]
    assert record.blocked is not given
    assert (record.effected, mediation(record).rule) == ("yes" if given else "no", "" if given else "capability")


def test_a_grant_ends_with_its_time_and_with_the_delegation_it_was_made_in() -> None:
    governance = Governance(capabilities={"a": [TO_B, TO_BOSS], "b": [TO_BOSS], "boss": []}, granters={"boss": [PAY]})
    with mat.run(governance=governance):
        assert granted_by("boss", "b", "pay", within_ms=1000)
        with mat.agent("b"):
            time.sleep(1)
            assert can(pay)
            time.sleep(0.001)
            assert not can(pay)
        with mat.agent("a"), mat.delegate("b"):
            assert not can(pay)
            assert not granted_by("boss", "b", "pay"), "b has only called itself boss"
            with mat.delegate("boss", "may I?"):
                assert grant("b", "pay")
            assert can(pay), "made in this delegation, it goes beyond what the delegator may do"
        with mat.agent("b"):
            assert not can(pay)
        with mat.agent("a"), mat.delegate("b"):
            assert not can(pay)


def test_a_grant_from_elsewhere_does_not_go_beyond_the_delegators_limits() -> None:
    governance = Governance(capabilities={"a": [TO_B], "b": [], "rich": [PAY, TO_B]}, granters={"boss": [PAY]})
    with mat.run(governance=governance):
        assert granted_by("boss", "b", "pay")
        with mat.agent("a"), mat.delegate("b"):
            assert not can(pay)
        with mat.agent("rich"), mat.delegate("b"):
            assert can(pay)


def test_a_declared_granter_gives_to_its_delegate_what_it_does_not_hold_itself() -> None:
    governance = Governance(capabilities={"a": [TO_B], "b": []}, granters={"a": [capability("pay", amount=(0, 9))]})
    with mat.run(governance=governance), mat.agent("a"):
        assert not grant("b", "pay")
        assert grant("b", "pay", amount=(0, 9))
        assert not can(pay)
        with mat.delegate("b"):
            assert (can(pay, 9), can(pay, 10)) == (True, False)


def test_who_acts_for_another_can_grant_only_what_both_hold_and_nothing_that_was_granted() -> None:
    governance = Governance(capabilities={"a": [TO_B], "b": [PAY], "c": []}, granters={"boss": [SEND]})
    with mat.run(governance=governance):
        with mat.agent("a"), mat.delegate("b"):
            assert not grant("c", "pay")
            assert not grant("b", "pay"), "not even to itself"
        assert granted_by("boss", "b", "send")
        assert granted_by("b", "c", "pay")
        assert not granted_by("b", "c", "send")


def test_calls_on_a_grant_count_against_the_rate_of_what_it_rests_on() -> None:
    with mat.run(governance=sets(a=[capability("pay", rate(2))], b=[])):
        assert granted_by("a", "b", "pay")
        with mat.agent("b"):
            assert can(pay)
        with mat.agent("a"):
            assert can(pay)
        with mat.agent("b"):
            assert not can(pay)


def test_a_blocked_call_uses_no_grant() -> None:
    def no_one(record: mat.Record) -> Any:
        return mat.policy.Block("not one") if record.action.arguments.get("amount") == 1 else None

    def asks(record: mat.Record) -> Any:
        return NeedsApproval("two") if record.action.arguments.get("amount") == 2 else None

    governance = Governance(capabilities={"a": [PAY], "b": []}, rules=(no_one, asks), approver=lambda what, arguments: False)
    with mat.run(governance=governance):
        assert granted_by("a", "b", "pay", calls=1)
        with mat.agent("b"):
            assert [can(pay, amount) for amount in (1, 2, 3, 4)] == [False, False, True, False]


def test_a_rule_and_an_async_approver_have_a_word_in_a_grant() -> None:
    async def approver(what: str, arguments: Any) -> bool:
        return bool(arguments["calls"] == 1)

    def asks(record: mat.Record) -> Any:
        return NeedsApproval("grant") if record.action.kind == "grant" else None

    async def body() -> list[bool]:
        with mat.agent("a"):
            return [await grant_async("b", "pay", calls=1), await grant_async("b", "pay", calls=2)]

    with mat.run(governance=Governance(capabilities={"a": [PAY], "b": []}, rules=(asks,), approver=approver)):
        assert asyncio.run(body()) == [True, False]


def test_without_sets_and_outside_a_run_a_grant_changes_nothing() -> None:
    assert grant("b", "pay") is True
    with mat.run() as run:
        assert grant("b", "pay", calls=1) is True
    assert run.trace[0].action.kind == "grant"
    with pytest.raises(SpecError, match="is a function"), mat.run():
        grant("b", "pay", amount=lambda amount: True)
    with pytest.raises(SpecError, match="calls=0"), mat.run():
        grant("b", "pay", calls=0)


def test_with_default_deny_an_agent_without_a_set_can_grant_nothing() -> None:
    with mat.run(governance=Governance(default="deny", capabilities={"b": []})):
        assert not granted_by("nobody", "b", "pay")


# -- attenuation as a law --------------------------------------------------------------------------------------------------

AGENTS = ("a", "b", "c")
TOOLS = {"pay": pay, "send": send}


@given(
    held=st.fixed_dictionaries({agent: st.sets(st.sampled_from(sorted(TOOLS))) for agent in AGENTS}),
    chain=st.lists(st.sampled_from(AGENTS), min_size=1, max_size=4),
    tool=st.sampled_from(sorted(TOOLS)),
)
def test_no_chain_of_delegations_does_what_one_of_it_may_not(held: dict[str, set[str]], chain: list[str], tool: str) -> None:
    everyone = [f"delegation:{agent}" for agent in AGENTS]
    governance = sets(**{agent: [*sorted(tools), *everyone] for agent, tools in held.items()})

    def act(rest: list[str]) -> bool:
        if not rest:
            return can(TOOLS[tool])
        with mat.delegate(rest[0]):
            return act(rest[1:])

    with mat.run(governance=governance) as run, mat.agent(chain[0]):
        went = act(chain[1:])
    assert went is all(tool in held[agent] for agent in chain)
    assert run.result is not None
    assert len(mediation(of(run, tool)[0]).under) == len(chain) - 1


def heads(governance: Governance) -> str:
    with mat.run(governance=governance) as run:
        granted_by("a", "b", "pay", calls=1)
        with mat.agent("a"), mat.delegate("b"):
            can(pay)
            can(pay)
    result = run.result
    assert isinstance(result, Run)
    return result.head


def test_what_one_run_granted_and_counted_is_unknown_to_the_next() -> None:
    governance = sets(a=[capability("pay", rate(3)), TO_B], b=[])
    assert heads(governance) == heads(governance)


# -- the same, offline ------------------------------------------------------------------------------------------------------


def violated(governance: Governance | None, body: Any, **capabilities: Any) -> list[str]:
    """What a contract on delegated authority says of the trace of some body, judged offline."""
    from mat.monitor.judge import judge
    from mat_contracts.privilege import delegated_authority

    with mat.run(governance=governance) as run:
        body()
    assert run.result is not None
    return [item.message for item in judge(run.result.records, [delegated_authority(capabilities)])[1][0].violations]


def test_a_contract_finds_in_an_ungoverned_trace_the_delegate_that_did_more_than_its_delegator_may() -> None:
    def body() -> None:
        with mat.agent("a"), mat.delegate("b"):
            can(pay, 5)
            can(send)
        with mat.agent("b"):
            can(send)

    assert violated(None, body, a=["pay"]) == ["b called send on a task of a, which may not make this call itself"]
    assert violated(None, body, a=["pay", "send"]) == []
    assert violated(None, body, other=[]) == []
    assert len(violated(None, body, a={"pay": {"amount": (0, 4)}})) == 2


def test_a_contract_counts_what_grants_allow_and_ends_them_with_their_task() -> None:
    def body() -> None:
        with mat.agent("a"), mat.delegate("b"):
            with mat.agent("boss"):
                grant("b", "pay", calls=1, amount=(0, 9))
        with mat.agent("a"), mat.delegate("b"):
            can(pay, 1)
            with mat.agent("boss"):
                grant("b", "pay")

    def inside() -> None:
        with mat.agent("a"):
            grant("b", "pay", calls=1, amount=(0, 9))
            with mat.delegate("b"):
                can(pay, 10)
                can(pay, 9)
                can(pay, 9)

    assert len(violated(None, body, a=[])) == 1
    assert len(violated(None, inside, a=[])) == 2


@pytest.mark.full
@given(
    held=st.fixed_dictionaries({agent: st.sets(st.sampled_from(sorted(TOOLS))) for agent in AGENTS}),
    chain=st.lists(st.sampled_from(AGENTS), min_size=1, max_size=3),
    tool=st.sampled_from(sorted(TOOLS)),
)
def test_mediator_and_contract_agree_on_every_chain(held: dict[str, set[str]], chain: list[str], tool: str) -> None:
    everyone = [f"delegation:{agent}" for agent in AGENTS]

    def act(rest: list[str]) -> None:
        if not rest:
            can(TOOLS[tool])
            return
        with mat.delegate(rest[0]):
            act(rest[1:])

    def body() -> None:
        with mat.agent(chain[0]):
            act(chain[1:])

    capabilities = {agent: sorted(tools) for agent, tools in held.items()}
    governance = sets(**{agent: [*tools, *everyone] for agent, tools in capabilities.items()})
    assert violated(governance, body, **capabilities) == []
    others = {agent for agent in chain[:-1] if agent != chain[-1] and tool not in held[agent]}
    assert bool(violated(None, body, **capabilities)) is bool(others)


def test_a_parameter_may_have_any_name_in_a_grant() -> None:
    with mat.run(governance=sets(a=[SEND], b=[])):
        assert granted_by("a", "b", "send", **{"to": {"ann"}})
        with mat.agent("b"):
            assert (can(send, "ann"), can(send, "eve")) == (True, False)


# -- blocks in blocks -------------------------------------------------------------------------------------------------


def test_an_agent_in_the_block_of_another_may_do_only_what_both_may() -> None:
    with mat.run(governance=sets(clerk=[SEND], boss=[PAY, SEND], audit=[PAY])) as run:
        with mat.agent("clerk"), mat.agent("boss"):
            assert (can(pay), can(send)) == (False, True)
            with mat.agent("audit"):
                assert (can(pay), can(send)) == (False, False)
            with mat.agent("clerk"):
                assert (can(pay), can(send)) == (False, True)
        with mat.agent("boss"):
            assert can(pay), "main is the program, and limits nobody"
            with mat.agent("boss"):
                assert can(pay)
    reason = "boss acts inside a `with mat.agent` block of clerk: clerk has no capability pay"
    assert mediation(of(run, "pay")[0]).reason == reason
    assert mediation(of(run, "pay")[0]).under == ()


def test_an_unlisted_agent_lends_itself_no_rights_by_another_name() -> None:
    with mat.run(governance=sets(boss=[PAY])) as run, mat.agent("stranger"), mat.agent("boss"):
        assert not can(pay)
    assert "stranger has no capability set and no rule allows pay" in mediation(of(run, "pay")[0]).reason
    open_by_default = Governance(capabilities={"boss": [PAY]}, default="allow")
    with mat.run(governance=open_by_default), mat.agent("stranger"), mat.agent("boss"):
        assert can(pay)


def test_the_blocks_around_limit_tasks_and_delegates_as_well() -> None:
    governance = sets(clerk=[SEND, TO_B], boss=[PAY, SEND, TO_B], b=[PAY, SEND])

    async def body() -> None:
        with mat.agent("clerk"), mat.agent("boss"):
            with mat.delegate("b", "do it"):
                assert (can(pay), can(send)) == (False, True)
            assert not await asyncio.create_task(asyncio.to_thread(can, pay))
        with mat.agent("boss"), mat.delegate("b", "do it"):
            assert can(pay)

    with mat.run(governance=governance):
        asyncio.run(body())


def test_a_grant_by_the_agent_around_lifts_its_limit_for_the_agent_inside() -> None:
    governance = Governance(capabilities={"clerk": [SEND], "boss": [SEND]}, granters={"clerk": [PAY]})
    with mat.run(governance=governance), mat.agent("clerk"):
        with mat.agent("boss"):
            assert not can(pay)
        assert grant("boss", "pay", calls=1)
        with mat.agent("boss"):
            assert (can(pay), can(pay)) == (True, False)
