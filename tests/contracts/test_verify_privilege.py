from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat_contracts import least_privilege, verify_before_act
from mat_contracts.traces import broken, record, trace, violations

PASSED, FAILED = (record("verification", "row", {"passed": passed}) for passed in (True, False))
IDLE = record("message", "user")
REFUND = record("tool_call", "refund", {"order": "A"}, effect="write")
PAY = record("tool_call", "pay", effect="write")


def test_the_last_step_at_which_a_check_still_counts_is_the_bound() -> None:
    assert broken(verify_before_act("refund", within=3), trace(PASSED, IDLE, IDLE, REFUND)) == ()
    assert broken(verify_before_act("refund", within=3), trace(PASSED, IDLE, IDLE, IDLE, REFUND)) == (4,)


def test_a_failed_check_or_one_of_another_name_does_not_count() -> None:
    assert broken(verify_before_act("refund"), trace(FAILED, REFUND)) == (1,)
    assert broken(verify_before_act("refund", check="owner"), trace(PASSED, REFUND)) == (1,)
    assert broken(verify_before_act("refund", check="row"), trace(PASSED, REFUND)) == ()


def test_each_unverified_call_is_a_violation_and_a_blocked_one_is_attempted() -> None:
    blocked = record("tool_call", "refund", effect="write", blocked=True)
    found = violations(verify_before_act("refund", within=1), trace(blocked, PASSED, REFUND, REFUND))
    assert [(item.step, item.stage) for item in found] == [(0, "attempted"), (3, "effected")]
    assert found[0].message == "refund was called without a passed verification in the 1 steps before"


@given(st.lists(st.sampled_from([PASSED, FAILED, IDLE, REFUND, PAY]), max_size=14), st.integers(1, 5), st.booleans())
def test_it_agrees_with_looking_back_over_the_whole_trace(items: list[mat.Record], within: int, both: bool) -> None:
    tools = ["refund", "pay"] if both else ["refund"]
    expected = tuple(
        at for at, item in enumerate(items) if item.action.name in tools and PASSED not in items[max(0, at - within) : at]
    )
    assert broken(verify_before_act(tools, within=within), trace(*items)) == expected


def call(tool: str, agent: str = "clerk", **arguments: object) -> mat.Record:
    return record("tool_call", tool, arguments, agent=agent)


SETS = {
    "clerk": {"refund": {"amount": (0, 100), "order": {"A", "B"}, "reason": lambda text: len(text) > 2}, "track": None},
    "reader": ["track"],
}


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (call("track", parcel=7), ""),
        (call("track", agent="reader"), ""),
        (call("refund", amount=0, order="A", reason="lost"), ""),
        (call("refund", amount=100, order="B", reason="lost", extra=1), ""),
        (call("refund", amount=100.5, order="B", reason="lost"), "with amount=100.5: outside 0..100"),
        (call("refund", amount=True, order="B", reason="lost"), "with amount=True: outside 0..100"),
        (call("refund", amount="5", order="B", reason="lost"), "with amount='5': outside 0..100"),
        (call("refund", amount=5, order="AB", reason="lost"), "with order='AB': outside {'A', 'B'}"),
        (call("refund", amount=5, order="A", reason="x"), "with reason='x': outside what <lambda> allows"),
        (call("refund", amount=5, order="A"), "without reason"),
        (call("refunds", amount=5), "has no capability refunds"),
        (call("refund", agent="reader"), "reader has no capability refund"),
        (call("track", agent="stranger"), "stranger has no capability at all"),
    ],
)
def test_a_call_is_allowed_by_exact_name_and_allow_list_only(item: mat.Record, why: str) -> None:
    found = violations(least_privilege(SETS), trace(item))
    assert [why in violation.message for violation in found] == ([True] if why else [])


def test_an_unlisted_agent_may_act_only_where_the_default_says_so() -> None:
    assert broken(least_privilege(SETS, default="allow"), trace(call("track", agent="stranger"), call("pay"))) == (1,)


def test_other_kinds_of_action_are_not_limited() -> None:
    assert broken(least_privilege({}), trace(record("message", "user"), record("retrieval", "kb"))) == ()


def test_a_list_of_booleans_does_not_allow_the_numbers_equal_to_them() -> None:
    may = least_privilege({"clerk": {"refund": {"express": [True]}}})
    assert broken(may, trace(call("refund", express=True), call("refund", express=1))) == (1,)


def test_a_rewritten_call_is_judged_as_rewritten_and_a_blocked_one_is_attempted() -> None:
    @mat.tool(effect="write", name="refund")
    def refund(amount: int) -> int:
        return amount

    def clamp(proposed: mat.Record) -> mat.Rewrite | mat.Block | None:
        amount = proposed.action.arguments.get("amount", 0)
        if amount > 1000:
            return mat.Block("far too much")
        return mat.Rewrite({"amount": 100}) if amount > 100 else None

    with mat.run(
        [least_privilege({"main": {"refund": {"amount": (0, 100)}}})], governance=mat.Governance(rules=[clamp])
    ) as run:
        assert refund(500) == 100
        with pytest.raises(mat.Blocked):
            refund(5000)
        mat.finish("done")
    assert [(item.step, item.stage) for item in run.violations] == [(1, "attempted")]


def test_as_a_policy_it_blocks_before_the_effect() -> None:
    done: list[int] = []

    @mat.tool(effect="write", name="refund")
    def refund(amount: int) -> None:
        done.append(amount)

    with mat.run([least_privilege({"main": {"refund": {"amount": (0, 100)}}}, policy="block")]) as run:
        refund(50)
        with pytest.raises(mat.Blocked):
            refund(101)
        mat.finish("done")
    assert done == [50]
    assert [item.stage for item in run.violations] == ["attempted"]
