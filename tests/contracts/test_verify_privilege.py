from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.monitor.contract import KEEP, Violated
from mat_contracts import least_privilege, verify_before_act
from mat_contracts.privilege import endpoint, length, pattern, rate
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
    assert found[0].message == "refund was called without a passed verification in the 1 step before"


@given(st.lists(st.sampled_from([PASSED, FAILED, IDLE, REFUND, PAY]), max_size=14), st.integers(1, 5), st.booleans())
def test_it_agrees_with_looking_back_over_the_whole_trace(items: list[mat.Record], within: int, both: bool) -> None:
    tools = ["refund", "pay"] if both else ["refund"]
    expected = tuple(
        at
        for at, item in enumerate(items)
        if item.action.name in tools
        and [old for old in items[max(0, at - within) : at] if old in (PASSED, FAILED)][-1:] != [PASSED]
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
        (call("refund", amount="5", order="b ", reason="lost"), ""),
        (call("refund", amount="500", order="B", reason="lost"), "with amount='500': outside 0..100"),
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

    def clamp(proposed: mat.Record) -> mat.policy.Rewrite | mat.policy.Block | None:
        amount = proposed.action.arguments.get("amount", 0)
        if amount > 1000:
            return mat.policy.Block("far too much")
        return mat.policy.Rewrite({"amount": 100}) if amount > 100 else None

    with mat.run(
        [least_privilege({"main": {"refund": {"amount": (0, 100)}}})], governance=mat.policy.Governance(rules=[clamp])
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


def by(role: str, item: mat.Record) -> mat.Record:
    return replace(item, role=role)


def test_a_role_grants_what_its_members_may_do_besides_their_own_set() -> None:
    may = least_privilege({"clerk": ["track"]}, roles={"payer": {"refund": {"amount": (0, 100)}}})
    fine = [call("track"), by("payer", call("refund", amount=5)), by("payer", call("refund", agent="new", amount=5))]
    assert broken(may, trace(*fine)) == ()
    wrong = [call("refund", amount=5), by("payer", call("refund", amount=101)), by("other", call("track", agent="new"))]
    assert broken(may, trace(*wrong)) == (0, 1, 2)


def test_several_sets_of_parameters_are_alternatives_and_the_violation_says_what_would_do() -> None:
    may = least_privilege({"clerk": {"refund": [{"amount": (0, 10)}, {"amount": (0, 100), "order": {"A"}}]}})
    assert broken(may, trace(call("refund", amount=9, order="Z"), call("refund", amount=99, order="A"))) == ()
    (found,) = violations(may, trace(call("refund", amount=99, order="B")))
    assert found.wanted == "refund(amount in 0..10) or refund(amount in 0..100, order in {'A'})"
    (found,) = violations(may, trace(call("pay")))
    assert found.wanted == "one of refund"


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (length(1, 3), ["a", "abc", [1, 2]], ["", "abcd", 12, None, [1, 2, 3, 4]]),
        (pattern(r"[A-Z]\d+"), ["A1", "B22"], ["A", "xA1", "A1\n", "a1", 1]),
        (
            endpoint("api.shop.example", paths="/v1/orders"),
            ["https://api.shop.example/v1/orders", "https://api.shop.example/v1/orders/7?x=1", "https://api.shop.example:443/v1/orders"],
            [
                "http://api.shop.example/v1/orders", "https://api.shop.example/v1/ordersx", "https://evil.example/v1/orders",
                "https://api.shop.example.evil.example/v1/orders", "https://api.shop.example@evil.example/v1/orders",
                "https://evil.example\\@api.shop.example/v1/orders", "https://api.shop.example/v1/orders/../admin",
                "https://api.shop.example/v1/orders/%2e%2e/admin", "https://api.shop.example:8443/v1/orders",
                "https://api.shop.example/v1/orders\n", "https://x.api.shop.example/v1/orders", 3,
                "https://user@api.shop.example/v1/orders",
            ],
        ),
        (endpoint("a.example", schemes=["http", "https"], port=8080), ["http://a.example:8080/"], ["http://a.example/", "http://a.example:80/"]),
    ],
    ids=["length", "pattern", "endpoint", "port"],
)  # fmt: skip
def test_lengths_patterns_and_endpoints_hold_exactly(allowed: object, inside: list[object], outside: list[object]) -> None:
    may = least_privilege({"clerk": {"fetch": {"value": allowed}}})  # type: ignore[dict-item]
    for value in inside:
        assert broken(may, trace(call("fetch", value=value))) == (), value
    for value in outside:
        (found,) = violations(may, trace(call("fetch", value=value)))
        assert "outside what " in found.message
        assert "<lambda>" not in found.message


REFUND_A, REFUND_B = call("refund", order="A"), call("refund", order="B")


def limited(*records: mat.Record, **given: object) -> tuple[int, ...]:
    most = given.pop("most", 2)
    limit = rate(most, **given)  # type: ignore[arg-type]
    return broken(least_privilege({}, default="allow", rates=[limit]), trace(*records))


def test_a_rate_counts_the_calls_of_any_window_of_steps_or_time() -> None:
    calls = [REFUND_A] * 3
    assert limited(*calls, steps=3) == (2,)
    assert limited(*calls, steps=2) == ()
    assert limited(REFUND_A, REFUND_A, IDLE, REFUND_A, steps=3) == ()
    assert limited(*calls, within_ms=2001) == (2,)
    assert limited(*calls, within_ms=2000) == ()  # one a second: the first has just left the window
    assert limited(*[REFUND_A] * 6, steps=3) == (2, 3, 4, 5)
    assert limited(REFUND_A, most=0, steps=3) == (0,)


def test_a_rate_is_counted_per_agent_role_tool_or_argument() -> None:
    other = call("refund", agent="reader", order="A")
    mixed = [REFUND_A, call("track"), other, REFUND_B]
    assert limited(*mixed, steps=9) == ()
    assert limited(*mixed, steps=9, per="agent") == (3,)
    assert limited(*mixed, steps=9, per=()) == (2, 3)
    assert limited(*mixed, steps=9, per="tool") == (3,)
    assert limited(*mixed, steps=9, per=(), key="order") == ()
    assert limited(*mixed, REFUND_A, steps=9, per=(), key="order", tools="refund") == (4,)
    assert limited(*mixed, steps=9, per=(), agents="clerk") == (3,)
    assert limited(*[by("payer", item) for item in mixed], steps=9, per="role") == (2, 3)


def test_a_blocked_call_counts_for_nothing_and_a_failed_one_does() -> None:
    blocked, failed = (
        record("tool_call", "refund", agent="clerk", blocked=True),
        record("tool_call", "refund", agent="clerk", error="timeout"),
    )
    assert limited(blocked, blocked, blocked, REFUND_A, REFUND_A, steps=9) == ()
    assert limited(failed, failed, REFUND_A, steps=9) == (2,)


def test_a_rate_and_a_missing_capability_are_two_violations_of_one_call() -> None:
    may = least_privilege({"clerk": ["track"]}, rates=[rate(1, steps=9)])
    found = violations(may, trace(REFUND_A, REFUND_A))
    assert [(item.step, item.witness) for item in found] == [(0, (0,)), (1, (1,)), (1, (0, 1))]
    assert found[2].message == "refund was called more than 1 time in 9 steps by clerk"
    assert (found[2].wanted, found[2].instance) == ("at most 1 call in any 9 steps", "clerk/refund")


def test_the_state_of_a_rate_holds_only_what_its_window_holds() -> None:
    may = least_privilege({}, default="allow", rates=[rate(3, steps=20, key="order"), rate(2, within_ms=5000)])
    state, sizes = may.start, []
    for item in trace(*[call("refund", order=f"order-{at}") for at in range(1000)]):
        new = may.step(state, item)
        state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        sizes.append(len(canonical(state)))
    assert max(sizes[500:]) <= max(sizes[:500]) * 1.1


@pytest.mark.full
@given(st.lists(st.sampled_from([REFUND_A, REFUND_B, call("track"), IDLE]), max_size=20), st.integers(0, 3), st.integers(1, 6))
def test_a_rate_agrees_with_counting_over_the_whole_trace(items: list[mat.Record], most: int, steps: int) -> None:
    def same(at: int, other: int) -> bool:
        return items[at].action.name == items[other].action.name and items[other].action.kind == "tool_call"

    expected = tuple(
        at
        for at, item in enumerate(items)
        if item.action.kind == "tool_call" and sum(same(at, other) for other in range(max(0, at - steps + 1), at)) >= most
    )
    assert limited(*items, most=most, steps=steps) == expected


def test_as_a_policy_a_rate_stops_the_call_that_is_too_much() -> None:
    done: list[int] = []

    @mat.tool(effect="write", name="refund")
    def refund(amount: int) -> None:
        done.append(amount)

    with mat.run([least_privilege({"main": ["refund"]}, rates=[rate(2, steps=10)], policy="block")]) as run:
        refund(1)
        refund(2)
        with pytest.raises(mat.Blocked):
            refund(3)
        mat.finish("done")
    assert done == [1, 2]
    assert [item.stage for item in run.violations] == ["attempted"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rate(1),
        lambda: rate(1, steps=3, within_ms=3),
        lambda: rate(-1, steps=3),
        lambda: rate(1, steps=0),
        lambda: rate(1, steps=3, per="agents"),
        lambda: least_privilege({}, rates=[3]),  # type: ignore[list-item]
        lambda: least_privilege({}, roles={"r": "refund"}),
        lambda: least_privilege({"a": {"refund": "amount"}}),  # type: ignore[dict-item]
        lambda: least_privilege({"a": {"refund": [{"amount": 5}]}}),  # type: ignore[dict-item,list-item]
        lambda: length(3, 2),
        lambda: pattern("("),
        lambda: endpoint(()),
    ],
)
def test_a_limit_that_cannot_mean_anything_is_refused(wrong: object) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()  # type: ignore[operator]
    assert caught.value.fix
