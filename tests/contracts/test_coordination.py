from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.digest import plain as plain_data
from mat.core.errors import SpecError
from mat.core.record import Observation
from mat.monitor.contract import KEEP, Contract, Violated
from mat_contracts.coordination import (
    FAN_OUT,
    memory_collision,
    no_approval_deadlock,
    no_circular_delegation,
    no_oscillation,
    replanning_without_execution,
)
from mat_contracts.traces import broken, record, trace, violations


def sizes(contract: Contract, records: Iterable[mat.Record]) -> list[int]:
    """The size of the contract's state, as canonical text, after every record."""
    state, found = contract.start, []
    for item in records:
        new = contract.step(state, item)
        state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        found.append(len(canonical(plain_data(state))))
    return found


def letters(text: str, agent: str = "main") -> tuple[mat.Record, ...]:
    return trace(*(record("tool_call", letter, agent=agent) for letter in text))


def placed(item: mat.Record, step: int, asked: int, sealed: int) -> mat.Record:
    """A record at its place among concurrent ones."""
    return replace(item, step=step, at_ms=asked * 100, sealed_ms=sealed * 100, asked_seq=asked, sealed_seq=sealed)


# -- oscillation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ababab", (5,)),
        ("ababa", ()),
        ("xababab", (6,)),
        ("abcabcabc", (8,)),
        ("abcabcab", ()),
        ("abababababab", (5, 11)),
        ("ababacababab", (11,)),
        ("abxabxab", ()),
        ("abcdeabcdeabcde", ()),
        ("aaaaaaaaaaaa", ()),
        ("ababaabab", ()),
    ],
)
def test_a_cycle_counts_when_its_last_round_is_full_and_again_after_as_many_rounds(text: str, expected: Sequence[int]) -> None:
    assert broken(no_oscillation(), letters(text)) == tuple(expected)


def test_repetitions_count_where_asked_for_and_no_longer_cycle_is_made_of_them() -> None:
    assert broken(no_oscillation(min_period=1), letters("aaaaaa")) == (2, 5)
    found = violations(no_oscillation(min_period=1), letters("aaab" * 3))
    assert [(item.step, item.message.split()[4]) for item in found] == [(2, "1"), (6, "1"), (10, "1"), (11, "4")]


def test_a_cycle_names_its_period_its_rounds_and_where_it_began() -> None:
    (found,) = violations(no_oscillation(), letters("xyababab"))
    assert found.message == "a cycle of period 2 occurred 3 times in a row, since step 2: main:a -> main:b"
    assert (found.region, found.witness, found.wanted) == ((2, 7), (2, 6, 7), "at most 2 rounds in a row")


def test_the_same_actions_with_other_arguments_are_a_cycle_of_names_only() -> None:
    turns = trace(*(record("tool_call", "ab"[n % 2], {"page": n}) for n in range(6)))
    assert broken(no_oscillation(), turns) == ()
    assert broken(no_oscillation(compare="names"), turns) == (5,)


def test_states_are_compared_where_they_change_however_long_each_lasts() -> None:
    nodes = ["plan", "plan", "act", "plan", "act", "act", "act", "plan", "act"]
    steps = trace(*(record("tool_call", "t", state={"node": node, "n": n}) for n, node in enumerate(nodes)))
    assert broken(no_oscillation(compare="states", signals="node"), steps) == (8,)
    assert broken(no_oscillation(compare="states"), steps) == ()
    assert broken(no_oscillation(compare="states", signals="absent"), steps) == ()
    still = trace(*(record("tool_call", "t", state={"node": "plan"}) for _ in range(20)))
    assert broken(no_oscillation(compare="states", signals="node", min_period=1), still) == ()


def test_an_agents_own_cycle_is_seen_through_what_others_do_meanwhile() -> None:
    other = iter("pqrstuvwxyz")
    mixed = trace(
        *(item for letter in "ababab" for item in (record("tool_call", letter), record("tool_call", next(other), agent="bo")))
    )
    assert broken(no_oscillation(), mixed) == ()
    (found,) = violations(no_oscillation(by="agent"), mixed)
    assert (found.step, found.instance) == (10, "main")


def test_a_function_compares_what_it_likes_and_passes_over_the_rest() -> None:
    asked = lambda item: item.action.arguments.get("q")  # noqa: E731
    steps = [record("retrieval", "kb", {"q": q}) for q in ("x", "y") * 3]
    mixed = trace(*(item for step in steps for item in (step, record("claim", "claim", {"text": "t"}))))
    assert broken(no_oscillation(compare=asked), mixed) == (10,)
    assert broken(no_oscillation(kinds="retrieval"), mixed) == (10,)
    assert broken(no_oscillation(kinds="claim", min_period=1), mixed) == (5, 11)


@given(st.text("ab", max_size=40) | st.text("abc", max_size=40), st.integers(1, 5), st.integers(2, 4))
def test_cycles_are_those_that_a_look_back_over_the_whole_trace_finds(text: str, longest: int, times: int) -> None:
    def period_of(part: str) -> int:
        return next(p for p in range(1, len(part) + 1) if all(part[n] == part[n - p] for n in range(p, len(part))))

    expected = []
    for end in range(1, len(text) + 1):
        for period in range(1, longest + 1):
            length = next((n for n in range(end, 0, -1) if n >= period and period_of_divides(text[end - n : end], period)), 0)
            full, rest = divmod(length, period * times)
            primitive = full and period_of(text[end - period * times : end]) == period
            if full and rest == 0 and primitive:
                expected.append(end - 1)
    assert list(broken(no_oscillation(min_period=1, max_period=longest, times=times), letters(text))) == expected


def period_of_divides(part: str, period: int) -> bool:
    return all(part[n] == part[n - period] for n in range(period, len(part)))


@pytest.mark.full
def test_the_state_of_a_cycle_is_as_large_after_a_hundred_thousand_actions_as_after_a_thousand() -> None:
    contract = no_oscillation(max_period=6, times=5)
    found = sizes(contract, (replace(item, step=0) for item in letters("ab" * 10_000)))
    assert max(found[1_000:]) <= max(found[:1_000])


# -- delegation -----------------------------------------------------------------------------------------------------------


def hand(agent: str, to: str, task: str = "") -> mat.Record:
    return record("delegation", to, {"task": task, "delegator": agent}, agent=agent)


def act(agent: str) -> mat.Record:
    return record("model_call", "gpt", agent=agent)


def say(agent: str, to: str) -> mat.Record:
    return record("message", to, {"text": "..."}, agent=agent)


OPEN = no_circular_delegation(along="open")
TASK = no_circular_delegation(along="task")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([hand("a", "b"), hand("b", "a")], (1,)),
        ([hand("a", "b"), act("b"), hand("b", "c"), act("c"), hand("c", "a")], (4,)),
        ([hand("a", "b"), hand("b", "c"), hand("c", "b")], (2,)),
        ([hand("a", "a")], (0,)),
        ([hand("a", "b"), hand("b", "a"), hand("a", "b"), hand("b", "a")], (1, 3)),
        ([hand("a", "b"), say("b", "a"), hand("b", "a")], ()),
        ([hand("a", "b"), say("b", "user"), hand("b", "a")], (2,)),
        ([hand("a", "b"), act("b"), act("a"), hand("b", "a")], ()),
        ([hand("a", "b"), hand("b", "c"), act("a"), hand("c", "b")], ()),
        ([hand("a", "b"), hand("b", "c"), act("b"), hand("b", "c")], ()),
        ([hand("a", "b"), hand("a", "c"), act("c"), act("b"), hand("b", "a")], (4,)),
        ([hand("m", "a"), hand("a", "b"), hand("m", "b"), hand("b", "a")], ()),
        ([hand("m", "a"), hand("m", "c"), act("a"), hand("a", "b"), hand("m", "d"), act("b"), hand("b", "m")], (6,)),
    ],
    ids=[
        "back", "back in three", "not from the top", "to itself", "every round", "answered", "answered somebody else",
        "the first goes on", "all below ends with it", "asked again", "fan-out", "one after the other", "fan-out, deeper",
    ],
)  # fmt: skip
def test_a_circle_of_open_delegations_is_found_as_it_closes(steps: list[mat.Record], expected: tuple[int, ...]) -> None:
    assert broken(OPEN, trace(*steps)) == expected


def test_a_circle_is_named_with_its_steps() -> None:
    (found,) = violations(OPEN, trace(act("a"), hand("a", "b"), act("b"), hand("b", "c"), hand("c", "a")))
    assert found.message == "a -> b -> c -> a: a cycle of delegations that are all open"
    assert (found.instance, found.witness, found.step) == ("a -> b -> c -> a", (1, 3, 4), 4)


def test_a_delegation_that_failed_hands_over_nothing_and_a_blocked_one_was_an_attempt() -> None:
    lost = record("delegation", "b", {"task": ""}, agent="a", error="connection")
    assert broken(OPEN, trace(lost, hand("b", "a"))) == ()
    stopped = record("delegation", "a", {"task": ""}, agent="b", blocked=True)
    (found,) = violations(OPEN, trace(hand("a", "b"), stopped))
    assert (found.step, found.stage) == (1, "attempted")
    first = record("delegation", "b", {"task": ""}, agent="a", blocked=True)
    assert broken(no_circular_delegation(), trace(first, hand("b", "a"))) == ()


def test_the_name_of_a_span_that_says_nothing_of_its_delegator_is_no_circle() -> None:
    assert broken(no_circular_delegation(), trace(record("delegation", "a", agent="a"))) == ()
    assert broken(no_circular_delegation(), trace(record("delegation"), record("delegation", "", {"task": 7}))) == ()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([hand("a", "b", "Sum"), act("a"), hand("b", "a", " sum ")], (2,)),
        ([hand("a", "b", "sum"), act("a"), hand("b", "c", "sum"), act("b"), hand("c", "a", "sum")], (4,)),
        ([hand("a", "b", "sum"), act("a"), hand("b", "a", "count")], ()),
        ([hand("a", "b", ""), act("a"), hand("b", "a", "")], ()),
        ([hand("a", "b", "sum"), say("b", "a"), hand("b", "a", "sum")], ()),
        ([hand("a", "b", "sum"), hand("a", "b", "sum"), hand("a", "c", "sum"), hand("c", "b", "sum")], ()),
        (
            [hand("a", "b", "sum"), hand("b", "c", "sum"), hand("c", "b", "sum"), hand("b", "c", "sum"), hand("c", "b", "sum")],
            (2, 4),
        ),
    ],
    ids=["back", "in three", "another task", "without a task", "answered", "taken back and handed anew", "to and fro"],
)
def test_a_circle_of_one_task_is_found_though_its_delegators_go_on(steps: list[mat.Record], expected: tuple[int, ...]) -> None:
    assert broken(TASK, trace(*steps)) == expected


def test_a_circle_that_is_both_is_one_violation_and_a_task_left_alone_is_forgotten() -> None:
    assert broken(no_circular_delegation(), trace(hand("a", "b", "sum"), hand("b", "a", "sum"))) == (1,)
    wait = [act("a")] * 5
    assert broken(no_circular_delegation(along="task", within=6), trace(hand("a", "b", "s"), *wait, hand("b", "a", "s"))) == (
        6,
    )
    assert broken(no_circular_delegation(along="task", within=5), trace(hand("a", "b", "s"), *wait, hand("b", "a", "s"))) == ()


def test_delegations_of_a_real_run_are_followed_through_their_blocks() -> None:
    def team(depth: int) -> None:
        with mat.agent("lead"):
            with mat.delegate("worker", "count"):
                if depth:
                    with mat.delegate("lead", "add"):
                        mat.verify("done", passed=True)
            mat.verify("all", passed=True)
            with mat.delegate("checker", "check"), mat.delegate("worker", "recount"):
                pass

    for depth, expected in ((0, []), (1, [1])):
        with mat.run(contracts=[no_circular_delegation()]) as run:
            team(depth)
        assert [item.step for item in run.result.violations] == expected


@pytest.mark.nightly
def test_the_graph_stays_small_however_many_delegations_end() -> None:
    many = [item for n in range(3_000) for item in (hand("lead", f"w{n}", f"task {n}"), act(f"w{n}"))]
    found = sizes(no_circular_delegation(within=50), trace(*many))
    assert max(found[2_000:]) <= 1.2 * max(found[:2_000])
    state: Any = no_circular_delegation().start
    for item in trace(*many):
        state = no_circular_delegation().step(state, item)
    assert len(state.edges) <= FAN_OUT + 1


# -- approvals ------------------------------------------------------------------------------------------------------------


def ask(agent: str, of: str = "", what: str = "pay", *, answer: object = None) -> mat.Record:
    return record("approval", what, {"approver": of} if of else {}, agent=agent, value=answer)


def test_a_request_answered_in_its_own_reply_waits_for_nothing() -> None:
    steps = trace(ask("a", "b", answer=True), *[act("a")] * 30, ask("b", "a", answer=False), *[act("b")] * 30)
    assert broken(no_approval_deadlock(within=3), steps) == ()


def test_a_request_must_be_answered_within_its_bound_and_is_blamed_once() -> None:
    assert broken(no_approval_deadlock(within=3), trace(ask("a", "b"), *[act("a")] * 2, say("b", "a"), *[act("a")] * 9)) == ()
    assert broken(no_approval_deadlock(within=3), trace(ask("a", "b"), *[act("a")] * 9, say("b", "a"))) == (0,)
    (found,) = violations(no_approval_deadlock(within=3), trace(ask("a", "b"), *[act("a")] * 9))
    assert found.message == "a asked b for a/pay at step 0 and got no answer within 3 steps"
    assert (found.agent, found.witness) == ("a", (0, 4))


def test_time_bounds_the_wait_too_also_where_no_step_was_taken_meanwhile() -> None:
    quick = trace(ask("a", "b"), act("c"), say("b", "a"))  # one step a second
    assert broken(no_approval_deadlock(within_ms=2_000), quick) == ()
    assert broken(no_approval_deadlock(within_ms=1_999), quick) == (0,)
    slow = placed(ask("a", "b", answer=True), 0, 0, 50)
    assert broken(no_approval_deadlock(within_ms=5_000), (slow,)) == ()
    assert broken(no_approval_deadlock(within_ms=4_999), (slow,)) == (0,)


def test_what_is_never_answered_is_open_on_a_prefix_and_broken_at_the_end() -> None:
    contract = no_approval_deadlock()
    steps = trace(ask("a", "b"), act("a"))
    state = contract.start
    for item in steps:
        state = contract.step(state, item)
    assert contract.obligations is not None
    (waits,) = contract.obligations(state)
    assert (waits.instance, waits.since, waits.met) == ("a/pay", 0, False)
    (found,) = violations(contract, steps)
    assert (found.step, found.instance) == (0, "a/pay")
    assert contract.obligations(contract.start) == ()


def test_asking_again_does_not_begin_the_wait_anew() -> None:
    again = [item for _ in range(5) for item in (ask("a", "b"), act("a"))]
    assert broken(no_approval_deadlock(within=4), trace(*again, say("b", "a")))[0] == 0


def test_an_error_answers_and_a_cancelled_wait_is_withdrawn_when_its_asker_goes_on() -> None:
    failed = record("approval", "pay", {"approver": "b"}, agent="a", error="timeout")
    assert broken(no_approval_deadlock(), trace(failed, act("c"))) == ()
    cancelled = replace(ask("a", "b"), observation=Observation(cancelled=True))
    assert broken(no_approval_deadlock(), trace(cancelled, act("a"))) == ()
    assert broken(no_approval_deadlock(), trace(cancelled, act("c"))) == (0,)


def test_agents_that_wait_for_each_other_are_named_as_the_circle_closes() -> None:
    three = trace(ask("a", "b"), ask("b", "c"), ask("c", "a"), say("a", "c"), say("c", "b"), say("b", "a"))
    (found,) = violations(no_approval_deadlock(), three)
    assert (found.step, found.witness) == (2, (0, 1, 2))
    assert found.message == "a -> b -> c -> a: each waits for the approval of the next"
    chain = trace(ask("a", "b"), ask("b", "c"), say("c", "b"), say("b", "a"))
    assert broken(no_approval_deadlock(), chain) == ()


def test_requests_that_overlap_in_time_wait_for_each_other_and_answered_ones_do_not() -> None:
    one, other = ask("a", "b", answer=True), ask("b", "a", answer=True)
    assert broken(no_approval_deadlock(), (placed(one, 0, 0, 3), placed(other, 1, 1, 2))) == (1,)
    assert broken(no_approval_deadlock(), (placed(one, 0, 0, 1), placed(other, 1, 2, 3))) == ()


def test_own_readers_say_what_asks_whom_and_what_answers() -> None:
    def asks(item: mat.Record) -> str | None:
        return str(item.action.arguments["ticket"]) if item.action.name == "request" else None

    def answers(item: mat.Record) -> str | None:
        return str(item.action.arguments["ticket"]) if item.action.name in ("grant", "withdraw") else None

    contract = no_approval_deadlock(within=4, asks=asks, answers=answers)
    request = record("tool_call", "request", {"ticket": 7})
    for last in ("grant", "withdraw"):
        assert broken(contract, trace(request, act("main"), record("tool_call", last, {"ticket": 7}))) == ()
    assert broken(contract, trace(request, act("main"), record("tool_call", "grant", {"ticket": 8}))) == (0,)


def test_a_real_run_answers_a_request_at_once_also_without_an_approver() -> None:
    with mat.run(contracts=[no_approval_deadlock(within=1)]) as run:
        for _ in range(3):
            mat.approval("refund over 500")
            mat.verify("x", passed=True)
            mat.verify("y", passed=True)
    assert run.result.violations == ()


@pytest.mark.full
def test_requests_are_dropped_when_they_are_answered_or_late() -> None:
    steps = trace(*(ask("a", "b", f"pay {n}") for n in range(2_000)))
    found = sizes(no_approval_deadlock(within=10), steps)
    assert max(found[1_000:]) <= 1.1 * max(found[:1_000])
    assert len(broken(no_approval_deadlock(within=10), steps)) == 2_000


# -- plans ----------------------------------------------------------------------------------------------------------------

PLAN, CALL = record("mitigation", "replan"), record("tool_call", "book")


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (CALL, ()),
        (record("memory_write", "notes", {"key": "k", "value": 1}), ()),
        (record("delegation", "b"), ()),
        (record("tool_call", "book", blocked=True), (4,)),
        (record("tool_call", "book", error="timeout"), (4,)),
        (record("model_call", "gpt"), (4,)),
        (record("mitigation", "retry"), (4,)),
        (record("message", "b", {"text": "soon"}), (4,)),
    ],
)
def test_plans_need_an_action_that_took_effect_between_them(between: mat.Record, expected: tuple[int, ...]) -> None:
    assert broken(replanning_without_execution(), trace(PLAN, between, PLAN, between, PLAN)) == expected


def test_one_action_among_the_plans_begins_the_count_anew_and_each_further_row_counts() -> None:
    assert broken(replanning_without_execution(), trace(PLAN, PLAN, CALL, PLAN, PLAN)) == ()
    found = violations(replanning_without_execution(), trace(*[PLAN] * 7))
    assert [(item.step, item.witness) for item in found] == [(2, (0, 1, 2)), (5, (3, 4, 5))]
    assert found[0].message == "3 plans (steps 0, 1, 2) without an action that took effect between them"


def test_callers_say_what_plans_and_what_carries_out() -> None:
    think, look = record("model_call", "planner"), record("tool_call", "look", effect="read")
    planning = lambda item: item.action.name == "planner"  # noqa: E731
    writes = lambda item: item.action.effect == "write" and item.effected == "yes"  # noqa: E731
    assert broken(replanning_without_execution(planning=planning), trace(think, look, think, look, think)) == ()
    contract = replanning_without_execution(planning=planning, effective=writes)
    assert broken(contract, trace(think, look, think, look, think)) == (4,)
    assert broken(contract, trace(think, look, think, record("tool_call", "pay", effect="write"), think)) == ()


def test_another_agent_may_carry_out_unless_each_is_judged_by_itself() -> None:
    other = record("tool_call", "book", agent="bo")
    assert broken(replanning_without_execution(times=2), trace(PLAN, other, PLAN)) == ()
    (found,) = violations(replanning_without_execution(times=2, by="agent"), trace(PLAN, other, PLAN))
    assert (found.step, found.instance) == (2, "main")


def test_the_count_of_plans_is_bounded() -> None:
    found = sizes(replanning_without_execution(), (replace(item, step=0) for item in trace(*[PLAN] * 5_000)))
    assert max(found[100:]) <= max(found[:100])


# -- memory ---------------------------------------------------------------------------------------------------------------


def write(agent: str, value: object = "", key: str = "k", **more: Any) -> mat.Record:
    return record("memory_write", "notes", {"key": key, "value": value or agent}, agent=agent, effect="write", **more)


def read(agent: str, value: object = None, key: str = "k", **more: Any) -> mat.Record:
    return record("memory_read", "notes", {"key": key}, agent=agent, value=value, **more)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([write("a"), write("b")], (1,)),
        ([read("a"), read("b"), write("a"), write("b")], (3,)),
        ([write("a"), read("b"), write("b")], ()),
        ([write("a"), read("b"), write("b"), write("a", "again")], (3,)),
        ([write("a"), read("c"), write("b")], (2,)),
        ([write("a"), read("b", key="other"), write("b")], (2,)),
        ([write("a"), write("b", key="other")], ()),
        ([write("a", 1), write("b", 1)], ()),
        ([write("a"), write("a", "more")], ()),
        ([write("a", blocked=True), write("b")], ()),
        ([write("a", error="timeout"), write("b")], ()),
        ([write("a"), write("b", blocked=True)], ()),
        ([write("a"), write("b", error="timeout")], (1,)),
        ([write("a"), read("b", error="timeout"), write("b")], (2,)),
        ([write("a"), read("b", "stale", raw="a", faults=["memory.stale"]), write("b")], (2,)),
        ([write("a"), read("b", "a", raw="x", faults=["memory.x"]), write("b")], ()),
        ([write("a"), write("b"), write("c")], (1, 2)),
    ],
    ids=[
        "unread", "both read before", "read", "the first again, unread", "another read it", "another key read", "another key",
        "the same value", "their own", "the first blocked", "the first may have failed", "the second blocked",
        "the second may have failed", "the read failed", "the read was stale", "the read had the value", "every one counts",
    ],
)  # fmt: skip
def test_an_update_is_lost_where_it_is_overwritten_unread(steps: list[mat.Record], expected: tuple[int, ...]) -> None:
    assert broken(memory_collision(), trace(*steps)) == expected


def test_deleting_what_another_wrote_loses_it_too() -> None:
    gone = record("memory_write", "notes", {"key": "k", "deleted": True}, agent="b", effect="write")
    assert broken(memory_collision(), trace(write("a"), gone)) == (1,)
    assert broken(memory_collision(), trace(write("a"), read("b", "a"), gone)) == ()


def test_after_its_window_a_write_is_old_news_but_concurrent_ones_always_collide() -> None:
    wait = [act("c")] * 3
    assert broken(memory_collision(within=4), trace(write("a"), *wait, write("b"))) == (4,)
    assert broken(memory_collision(within=3), trace(write("a"), *wait, write("b"))) == ()
    apart = (placed(write("a"), 0, 0, 1), placed(write("b"), 1, 2, 3))
    across = (placed(write("a"), 0, 0, 3), placed(write("b"), 1, 1, 2))
    assert broken(memory_collision(within=0), apart) == ()
    assert broken(memory_collision(within=0), across) == (1,)


def test_a_read_counts_only_if_it_was_back_before_the_write_was_asked() -> None:
    late = (placed(write("a"), 0, 0, 1), placed(read("b", "a"), 1, 2, 5), placed(write("b"), 2, 3, 4))
    assert broken(memory_collision(), late) == (2,)
    early = (placed(write("a"), 0, 0, 5), placed(read("b", "old"), 1, 1, 2), placed(write("b"), 2, 6, 7))
    assert broken(memory_collision(), early) == (2,)
    seen = (placed(write("a"), 0, 0, 5), placed(read("b", "a"), 1, 1, 2), placed(write("b"), 2, 6, 7))
    assert broken(memory_collision(), seen) == ()


def test_a_collision_names_key_and_steps_and_other_memories_can_be_left_out() -> None:
    (found,) = violations(memory_collision(), trace(write("a"), write("b")))
    assert found.message == "b wrote notes/k at step 1 over the value that a wrote at step 0, without having read it"
    assert (found.instance, found.witness, found.agent) == ("notes/k", (0, 1), "b")
    assert broken(memory_collision("notes"), trace(write("a"), write("b"))) == (1,)
    assert broken(memory_collision("other"), trace(write("a"), write("b"))) == ()
    assert memory_collision("notes").id == "notes.collision"


def test_lost_updates_of_a_real_memory_are_found_and_checked_ones_are_not() -> None:
    def shared(check: bool) -> tuple[int, ...]:
        with mat.run(contracts=[memory_collision()]) as run:
            notes = mat.memory({}, name="notes")
            with mat.agent("al"):
                notes["total"] = 1
            with mat.agent("bo"):
                notes["total"] = (notes["total"] if check else 0) + 2
        return tuple(item.step for item in run.result.violations)

    assert shared(check=True) == ()
    assert shared(check=False) == (1,)


@pytest.mark.full
def test_cells_are_dropped_when_their_window_is_over() -> None:
    steps = trace(*(write("ab"[n % 2], n, key=f"k{n}") for n in range(3_000)))
    found = sizes(memory_collision(within=10), steps)
    assert max(found[1_000:]) <= 1.1 * max(found[:1_000])


def test_records_without_the_usual_fields_are_passed_over() -> None:
    bare = [record(kind) for kind in mat.core.record.ACTION_KINDS]
    contracts = [
        no_oscillation(), no_oscillation(compare="states"), no_circular_delegation(), replanning_without_execution(),
        memory_collision(),
    ]  # fmt: skip
    for contract in contracts:
        assert broken(contract, trace(*bare)) == ()
    assert broken(no_approval_deadlock(), trace(*bare)) == (bare.index(record("approval")),)  # no answer is recorded


@pytest.mark.parametrize(
    "make",
    [
        lambda: no_oscillation(times=1),
        lambda: no_oscillation(max_period=1),
        lambda: no_oscillation(compare="state"),  # type: ignore[arg-type]
        lambda: no_oscillation(signals="node"),
        lambda: no_oscillation(by="role"),  # type: ignore[arg-type]
        lambda: no_oscillation(kinds="tool"),  # type: ignore[arg-type]
        lambda: no_circular_delegation(along="closed"),  # type: ignore[arg-type]
        lambda: no_circular_delegation(within=0),
        lambda: no_approval_deadlock(within=0),
        lambda: no_approval_deadlock(within_ms=-1),
        lambda: replanning_without_execution(times=0),
        lambda: replanning_without_execution(by="all"),  # type: ignore[arg-type]
        lambda: memory_collision(within=-1),
        lambda: memory_collision(""),
    ],
)
def test_arguments_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(SpecError):
        make()
