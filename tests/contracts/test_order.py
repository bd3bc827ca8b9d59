"""Order over happens-before: what had sealed before what was asked. Step numbers alone prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.record import Record
from mat.monitor.contract import KEEP
from mat.monitor.judge import Judge
from mat.monitor.temporal import Formula
from mat.temporal import always, field, once, predicate, previous, tool_call, variable, verification
from mat_contracts.order import MAX_OPEN, followed_by, in_order, never_concurrent, precedes
from mat_contracts.traces import broken, record, trace, violations


def call(name: str, order: int | None = 1, **options: object) -> Record:
    return record("tool_call", name, {} if order is None else {"order": order}, **options)  # type: ignore[arg-type]


def spans(*calls: tuple[Record, int, int]) -> tuple[Record, ...]:
    """Calls with the moments they were asked and sealed: one clock for order and milliseconds."""
    placed = trace(*(item for item, _, _ in calls))
    return tuple(
        replace(item, asked_seq=asked, sealed_seq=sealed, at_ms=asked, sealed_ms=sealed)
        for item, (_, asked, sealed) in zip(placed, calls, strict=True)
    )


# -- precedes ---------------------------------------------------------------------------------------------------------


def test_a_check_still_in_flight_does_not_come_first() -> None:
    contract = precedes(first="check", then="pay")
    assert broken(contract, spans((call("check"), 0, 1), (call("pay"), 2, 3))) == ()
    (violation,) = violations(contract, spans((call("check"), 0, 3), (call("pay"), 1, 2)))
    assert (violation.step, violation.witness) == (1, (0, 1))
    assert violation.message == "pay began before check at step 0 had finished"
    assert violation.wanted == "a check that finished before it"


def test_every_occurrence_counts_not_only_the_first() -> None:
    late = call("pay", 2)
    contract = precedes(first="check", then="pay", key="order")
    assert broken(contract, trace(call("check"), call("pay"), late, call("pay"), late)) == (2, 4)
    assert [item.instance for item in violations(contract, trace(late))] == ["2"]


def test_one_check_serves_many_payments_unless_each_needs_its_own() -> None:
    several = trace(call("check"), call("pay"), call("pay"))
    assert broken(precedes(first="check", then="pay"), several) == ()
    each = precedes(first="check", then="pay", once_each=True)
    assert [(item.step, item.message) for item in violations(each, several)] == [(2, "no unused check came before pay")]
    assert broken(each, trace(call("check"), call("pay", blocked=True), call("pay"))) == ()
    paired = trace(call("check"), call("check"), call("pay"), call("pay"))
    assert broken(precedes(first="check", then="pay", once_each=True), paired) == ()


def test_of_several_checks_the_one_that_expires_soonest_is_used_up() -> None:
    contract = precedes(first="check", then="pay", within=3, once_each=True)
    asked = spans(
        (call("check"), 0, 5), (call("check"), 1, 2), (call("look"), 6, 7), (call("pay"), 8, 9), (call("pay"), 10, 11)
    )
    assert broken(contract, asked) == ()


def test_a_failed_check_counts_only_where_success_is_not_asked_for() -> None:
    for failed in (call("check", error="timeout"), call("check", effected="unknown"), call("check", effected="no")):
        assert broken(precedes(first="check", then="pay"), trace(failed, call("pay"))) == ()
        assert broken(precedes(first="check", then="pay", effected=True), trace(failed, call("pay"))) == (1,)
    assert broken(precedes(first="check", then="pay", effected=True), trace(call("check"), call("pay"))) == ()


def test_a_blocked_check_is_none_and_a_blocked_payment_was_attempted() -> None:
    contract = precedes(first="check", then="pay")
    assert broken(contract, trace(call("check", blocked=True), call("pay"))) == (1,)
    (violation,) = violations(contract, trace(call("pay", blocked=True)))
    assert violation.stage == "attempted"


def test_windows_count_steps_from_the_check_and_time_from_its_end() -> None:
    near = trace(call("check"), call("look"), call("pay"))
    far = trace(call("check"), call("look"), call("look"), call("pay"))
    assert broken(precedes(first="check", then="pay", within=2), near) == ()
    assert broken(precedes(first="check", then="pay", within=2), far) == (3,)
    slow = spans((call("check"), 0, 100), (call("pay"), 105, 106), (call("pay"), 111, 112))
    assert broken(precedes(first="check", then="pay", within_ms=10), slow) == (2,)


def test_where_steps_and_time_are_bounded_the_check_that_was_done_last_is_kept_besides_the_one_asked_last() -> None:
    contract = precedes(first="check", then="pay", within=5, within_ms=4)
    asked = spans((call("check"), 0, 10), (call("check"), 1, 8), (call("pay"), 11, 12), (call("pay"), 14, 15))
    assert broken(contract, asked) == ()
    assert broken(precedes(first="check", then="pay", within=5, within_ms=3), asked) == (3,)


def test_atoms_and_predicates_select_records_too() -> None:
    checked, failed = (record("verification", "owner", {"passed": passed}) for passed in (True, False))
    big, small = (record("tool_call", "pay", {"amount": amount}) for amount in (900, 9))
    contract = precedes(
        first=verification("owner", passed=True),
        then=tool_call("pay") & (field("arguments.amount") > 500),
    )
    assert contract.id == "owner.precedes.pay"
    assert broken(contract, trace(failed, small, big, checked, big)) == (2,)
    own = precedes(first=lambda item: item.action.kind == "verification", then="pay")
    assert broken(own, trace(failed, big)) == ()
    assert broken(own, trace(big)) == (0,)


def test_ids_are_read_from_arguments_replies_and_agents_and_compared_as_texts() -> None:
    found = record("tool_call", "find", value={"order": "17"})
    pay = record("tool_call", "pay", {"order": 17})
    by_path = precedes(first="find", then="pay", key=field(lambda item: _order_of(item)))
    assert broken(by_path, trace(found, pay)) == ()
    assert broken(by_path, trace(found, record("tool_call", "pay", {"order": 18}))) == (1,)
    assert broken(precedes(first="find", then="pay", key="value.order"), trace(found, pay)) == ()  # pay has no such id
    ann, bob = call("check", agent="ann"), call("pay", agent="bob")
    assert broken(precedes(first="check", then="pay", key="agent"), trace(ann, bob)) == (1,)
    assert broken(precedes(first="check", then="pay", key=["order", "agent"]), trace(ann, replace(bob, agent="ann"))) == ()


def _order_of(item: Record) -> object:
    value = item.observation.value
    return value["order"] if isinstance(value, dict) else item.action.arguments.get("order")


def test_a_record_without_the_id_is_not_judged() -> None:
    assert broken(precedes(first="check", then="pay", key="order"), trace(call("pay", None))) == ()


# -- never_concurrent -------------------------------------------------------------------------------------------------


def test_calls_that_overlap_are_found_whoever_makes_them() -> None:
    one, two = call("pay", agent="ann"), call("refund", agent="bob")
    overlapping = spans((one, 0, 5), (two, 1, 2), (one, 3, 4), (two, 6, 7))
    contract = never_concurrent(["pay", "refund"])
    assert broken(contract, overlapping) == (1, 2)
    (first, second) = violations(contract, overlapping)
    assert (first.witness, second.witness) == ((0, 1), (0, 2))  # the call of step 1 was done before step 2
    assert second.agent == "ann"
    assert first.wanted == "refund after pay at step 0 is done"
    assert broken(never_concurrent(["pay", "refund"], by="agent"), overlapping) == (2,)


def test_calls_for_different_ids_may_overlap() -> None:
    contract = never_concurrent("pay", key="order")
    assert broken(contract, spans((call("pay", 1), 0, 4), (call("pay", 2), 1, 5), (call("pay", 1), 6, 7))) == ()
    assert broken(contract, spans((call("pay", 1), 0, 4), (call("pay", 2), 1, 5), (call("pay", 1), 3, 7))) == (2,)


def test_a_call_that_ends_as_the_next_begins_does_not_overlap() -> None:
    assert broken(never_concurrent("pay"), spans((call("pay"), 0, 1), (call("pay"), 2, 3))) == ()


def test_a_blocked_call_is_never_in_flight() -> None:
    contract = never_concurrent("pay")
    assert broken(contract, spans((call("pay", blocked=True), 0, 5), (call("pay"), 1, 2))) == ()
    (violation,) = violations(contract, spans((call("pay"), 0, 5), (call("pay", blocked=True), 1, 2)))
    assert violation.stage == "attempted"


# -- in_order ---------------------------------------------------------------------------------------------------------

STAGES = ("plan", "act", "check")


def test_no_stage_begins_before_all_calls_of_the_stage_before_have_sealed() -> None:
    fan_out = spans(
        (call("plan"), 0, 1), (call("act"), 2, 4), (call("act"), 3, 9), (call("check"), 5, 6), (call("check"), 10, 11)
    )
    (violation,) = violations(in_order(STAGES), fan_out)
    assert (violation.step, violation.witness) == (3, (2, 3))
    assert violation.message == "check began before the previous stage had finished its call at step 2"


def test_the_longest_call_of_a_stage_counts_not_the_latest() -> None:
    fan_out = spans((call("plan"), 0, 1), (call("act"), 2, 9), (call("act"), 3, 4), (call("check"), 5, 6))
    (violation,) = violations(in_order(STAGES), fan_out)
    assert (violation.step, violation.witness) == (3, (1, 3))


def test_each_call_of_a_stage_that_began_too_early_is_one_violation() -> None:
    early = spans((call("plan"), 0, 9), (call("act"), 1, 2), (call("act"), 3, 4), (call("act"), 10, 11))
    assert broken(in_order(STAGES), early) == (1, 2)


def test_a_stage_left_out_is_found_for_each_id() -> None:
    mixed = trace(call("plan", 1), call("plan", 2), call("act", 1), call("check", 2), call("check", 1))
    (violation,) = violations(in_order(STAGES, key="order"), mixed)
    assert (violation.step, violation.instance, violation.message) == (3, "2", "check began without act")
    assert broken(in_order(STAGES), trace(call("act"))) == (0,)


def test_going_back_begins_anew_unless_there_is_one_pass() -> None:
    again = trace(*(call(name) for name in ("plan", "act", "plan", "act", "check")))
    assert broken(in_order(STAGES), again) == ()
    assert broken(in_order(STAGES), trace(*(call(name) for name in ("plan", "act", "plan", "check")))) == (3,)
    assert broken(in_order(STAGES, strict=True), again) == (2,)


def test_a_pass_that_stops_halfway_is_open_and_broken_at_the_end_where_it_is_strict() -> None:
    halfway = trace(call("plan", 1), call("act", 1), call("plan", 2))
    assert broken(in_order(STAGES, key="order"), halfway) == ()
    strict = in_order(STAGES, key="order", strict=True)
    assert broken(strict, halfway) == (1, 2)
    court = Judge([strict])
    for item in halfway:
        court.step(item)
    (outcome,) = court.outcomes_so_far(halfway[-1])
    assert outcome.standing == "presumably_false"
    assert [(item.text, item.since, item.instance) for item in outcome.open] == [
        ("check must come", 1, "1"),
        ("act must come", 2, "2"),
    ]


def test_a_blocked_stage_was_not_reached() -> None:
    assert broken(in_order(STAGES), trace(call("plan"), call("act", blocked=True), call("check"))) == (2,)


# -- followed_by ------------------------------------------------------------------------------------------------------


def test_every_trigger_needs_an_answer_and_what_is_open_at_the_end_is_broken() -> None:
    contract = followed_by(trigger="lock", answer="release", key="order")
    open_ones = trace(call("lock", 1), call("lock", 2), call("release", 1), call("lock", 1))
    assert broken(contract, open_ones) == (1, 3)
    assert [item.instance for item in violations(contract, open_ones)] == ["2", "1"]
    court = Judge([contract])
    for item in open_ones:
        court.step(item)
    (outcome,) = court.outcomes_so_far(open_ones[-1])
    assert [(item.since, item.instance, item.met) for item in outcome.open] == [(1, "2", False), (3, "1", False)]


def test_an_answer_that_ran_next_to_its_trigger_answers_nothing() -> None:
    contract = followed_by(trigger="lock", answer="release")
    assert broken(contract, spans((call("lock"), 0, 1), (call("release"), 2, 3))) == ()
    (violation,) = violations(contract, spans((call("lock"), 0, 3), (call("release"), 1, 2)))
    assert (violation.step, violation.witness) == (0, (0, 1))
    assert "release at step 1 began before lock was done" in violation.message


def test_a_late_answer_is_found_at_its_deadline_and_blames_the_trigger() -> None:
    contract = followed_by(trigger="lock", answer="release", within=2)
    late = trace(call("lock"), record("claim"), record("claim"), call("release"))
    assert broken(contract, trace(call("lock"), record("claim"), call("release"))) == ()
    court = Judge([contract])
    assert [[violation.step for violation in court.step(item).violations] for item in late] == [[], [], [0], []]
    (violation,) = violations(contract, late)
    assert (violation.step, violation.agent) == (0, "main")


def test_time_counts_from_when_the_trigger_was_done() -> None:
    contract = followed_by(trigger="lock", answer="release", within_ms=10)
    assert broken(contract, spans((call("lock"), 0, 100), (call("release"), 110, 111))) == ()
    assert broken(contract, spans((call("lock"), 0, 100), (call("release"), 111, 112))) == (0,)


def test_one_answer_serves_all_that_were_done_before_it_or_one_each() -> None:
    twice = trace(call("lock"), call("lock"), call("release"))
    assert broken(followed_by(trigger="lock", answer="release"), twice) == ()
    assert broken(followed_by(trigger="lock", answer="release", once_each=True), twice) == (1,)


def test_a_blocked_trigger_obliges_to_nothing_and_a_blocked_or_failed_answer_is_none() -> None:
    assert broken(followed_by(trigger="lock", answer="release"), trace(call("lock", blocked=True))) == ()
    assert broken(followed_by(trigger="lock", answer="release"), trace(call("lock"), call("release", blocked=True))) == (0,)
    failed = trace(call("lock"), call("release", error="timeout"))
    assert broken(followed_by(trigger="lock", answer="release"), failed) == ()
    assert broken(followed_by(trigger="lock", answer="release", effected=True), failed) == (0,)


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: precedes(first=(), then="pay"),
        lambda: precedes(first="check", then="pay", within=0),
        lambda: precedes(first="check", then="pay", within_ms=-1),
        lambda: precedes(first="check", then="pay", key=[]),
        lambda: precedes(first=once(tool_call("check")), then="pay"),
        lambda: precedes(first="check", then=tool_call("pay", order=variable("order"))),
        lambda: precedes(first="check", then="pay", key=previous(field("arguments.order"))),
        lambda: never_concurrent("pay", by="team"),  # type: ignore[arg-type]
        lambda: in_order(["plan"]),
        lambda: in_order("plan"),
        lambda: followed_by(trigger="lock", answer="release", within=True),
    ],
)
def test_what_cannot_mean_anything_is_refused_with_a_way_out(wrong: Callable[[], mat.Contract]) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()
    assert caught.value.what
    assert caught.value.fix


def test_a_run_in_virtual_time_shows_which_calls_overlapped() -> None:
    import asyncio

    @mat.tool(name="check")
    async def check(order: int) -> bool:
        await asyncio.sleep(1)
        return True

    @mat.tool(name="pay", effect="write")
    async def pay(order: int) -> None:
        await asyncio.sleep(1)

    async def one_after_the_other() -> None:
        await check(1)
        await pay(1)

    async def together() -> None:
        await asyncio.gather(check(1), pay(1))

    def run(body: Callable[[], object]) -> list[tuple[str, int]]:
        armed = [precedes(first="check", then="pay"), never_concurrent(["check", "pay"]), in_order(["check", "pay"])]
        with mat.run(contracts=armed) as done:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(body())  # type: ignore[arg-type]
        return sorted((violation.contract, violation.step) for violation in done.violations)

    assert run(one_after_the_other) == []
    assert run(together) == [("check+pay.never_concurrent", 1), ("check.pay.in_order", 1), ("check.precedes.pay", 1)]


def test_a_proposed_call_is_blocked_while_the_one_it_needs_is_in_flight() -> None:
    import asyncio

    paid = []

    @mat.tool(name="check")
    async def check() -> bool:
        await asyncio.sleep(1)
        return True

    @mat.tool(name="pay", effect="write")
    async def pay() -> None:
        paid.append(1)

    async def hasty() -> None:
        checking = asyncio.create_task(check())
        await asyncio.sleep(0.5)
        with pytest.raises(mat.Blocked):
            await pay()
        await checking
        await pay()

    with mat.run(contracts=[precedes(first="check", then="pay", policy="block")]) as done:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(hasty())
    assert [(violation.step, violation.stage) for violation in done.violations] == [(1, "attempted")]
    assert paid == [1]


@pytest.mark.parametrize(
    ("contract", "calls"),
    [
        (precedes(first="check", then="pay"), ["check", "check"]),
        (precedes(first="check", then="pay", within=5, once_each=True), ["check", "check"]),
        (precedes(first="check", then="pay", within_ms=9_000), ["check", "pay"]),
        (never_concurrent("check"), ["check", "check"]),
        (in_order(["check", "pay"]), ["check", "pay"]),
        (followed_by(trigger="check", answer="pay"), ["check", "pay"]),
        (followed_by(trigger="check", answer="pay", within=5), ["check", "look"]),
    ],
)
def test_a_state_is_bounded_by_windows_and_calls_in_flight(contract: mat.Contract, calls: list[str]) -> None:
    state, sizes = contract.start, []
    for item in trace(*[call(name) for name in calls] * 300):
        new = contract.step(state, item)
        state = new if not isinstance(new, mat.Violated) else state if new.state is KEEP else new.state
        sizes.append(len(canonical(state)))
    assert max(sizes[300:]) <= max(sizes[:300]) + 20


@pytest.mark.full
def test_ids_whose_window_has_passed_are_forgotten() -> None:
    contract = precedes(first="check", then="pay", within=5, key="order")
    state, sizes = contract.start, []
    for item in trace(*(call("check", order) for order in range(6_000))):
        state = contract.step(state, item)
        sizes.append(state.count)
    assert max(sizes[3_000:]) <= 600  # one or two for each bucket, however many ids there were
    assert sizes[-1] < sizes[2_000] * 1.5


def test_a_limit_reached_fails_and_says_so() -> None:
    from mat.monitor.judge import judge

    _, (outcome,) = judge(trace(*[call("lock")] * (MAX_OPEN + 1)), [followed_by(trigger="lock", answer="release")])
    assert outcome.outcome == "fail"
    assert str(MAX_OPEN) in outcome.error


# -- against a slow, obviously right reading of the whole trace -------------------------------------------------------


@dataclass(frozen=True)
class Options:
    within: int | None
    within_ms: int | None
    keyed: bool
    once_each: bool
    effected: bool


@st.composite
def concurrent_traces(draw: st.DrawFn) -> tuple[Record, ...]:
    """Calls that are asked and sealed in any interleaving; the clock may stand still."""
    asked: list[list[int]] = []
    running: list[int] = []
    made: list[Record] = []
    clock = 0
    for seq, (start, pick, pause) in enumerate(
        draw(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 2)), max_size=40))
    ):
        clock += pause
        if start or not running:
            name = draw(st.sampled_from("aabbcx"))
            how = draw(st.sampled_from(["", "", "", "blocked", "failed"]))
            order = draw(st.sampled_from([1, 2, 2, None]))
            agent = draw(st.sampled_from(["ann", "bob"]))
            made.append(call(name, order, agent=agent, blocked=how == "blocked", error="timeout" if how == "failed" else ""))
            asked.append([seq, -1, clock, -1])
            running.append(len(asked) - 1)
        else:
            index = running.pop(pick % len(running))
            asked[index][1], asked[index][3] = seq, clock
    for offset, index in enumerate(running):
        asked[index][1], asked[index][3] = 100 + offset, clock
    placed = trace(*made)
    return tuple(
        replace(item, asked_seq=times[0], sealed_seq=times[1], at_ms=times[2], sealed_ms=times[3])
        for item, times in zip(placed, asked, strict=True)
    )


options = st.builds(
    Options,
    within=st.sampled_from([None, 1, 2, 5]),
    within_ms=st.sampled_from([None, 0, 1, 4]),
    keyed=st.booleans(),
    once_each=st.booleans(),
    effected=st.booleans(),
)


def owner(item: Record, keyed: bool) -> object:
    return item.action.arguments.get("order") if keyed else 0


def fine(item: Record, effected: bool) -> bool:
    return not item.blocked and (not effected or item.observation.error is None)


def near(one: Record, two: Record, chosen: Options) -> bool:
    """Whether `two` was asked after `one` had sealed, and within the windows."""
    return (
        one.happened_before(two)
        and (chosen.within is None or two.step - one.step <= chosen.within)
        and (chosen.within_ms is None or two.at_ms - one.sealed_ms <= chosen.within_ms)
    )


def slow_precedes(records: Sequence[Record], chosen: Options) -> list[int]:
    found, used = [], set()
    for then in (item for item in records if item.action.name == "b" and owner(item, chosen.keyed) is not None):
        firsts = [
            item for item in records
            if item.action.name == "a" and fine(item, chosen.effected) and item.step not in used
            and owner(item, chosen.keyed) == owner(then, chosen.keyed) and near(item, then, chosen)
        ]  # fmt: skip
        if not firsts:
            found.append(then.step)
        elif chosen.once_each and not then.blocked:
            used.add(min(firsts, key=lambda item: item.step if chosen.within is not None else item.sealed_seq).step)
    return found


def slow_followed(records: Sequence[Record], chosen: Options) -> list[int]:
    triggers = [
        item for item in records if item.action.name == "a" and not item.blocked and owner(item, chosen.keyed) is not None
    ]
    served: set[int] = set()
    for answer in (item for item in records if item.action.name == "b" and fine(item, chosen.effected)):
        mine = [
            item.step for item in triggers
            if item.step not in served
            and owner(item, chosen.keyed) == owner(answer, chosen.keyed)
            and near(item, answer, chosen)
        ]  # fmt: skip
        served.update(mine[:1] if chosen.once_each else mine)
    return [item.step for item in triggers if item.step not in served]


def slow_concurrent(records: Sequence[Record], keyed: bool, by_agent: bool) -> list[int]:
    calls = [item for item in records if item.action.name in ("a", "b") and owner(item, keyed) is not None]
    return [
        two.step for two in calls
        if any(
            one.step < two.step and not one.blocked and not one.happened_before(two) and owner(one, keyed) == owner(two, keyed)
            and (not by_agent or one.agent == two.agent)
            for one in calls
        )
    ]  # fmt: skip


def slow_in_order(records: Sequence[Record], keyed: bool, strict: bool) -> list[int]:
    """Each call with all calls of its pass; a pass begins where a call goes back."""
    found, passes = [], {}
    for item in records:
        who = owner(item, keyed)
        if item.action.name not in "abc" or who is None:
            continue
        stage, current = "abc".index(item.action.name), passes.setdefault(who, [])
        top = max((place for place, _ in current), default=-1)
        earlier = [other for place, other in current if place < stage]
        if stage < top:
            if strict:
                found.append(item.step)
            elif not item.blocked:
                passes[who] = [(stage, item)]
            continue
        if stage > top + 1 or not all(other.happened_before(item) for other in earlier):
            found.append(item.step)
        if not item.blocked:
            current.append((stage, item))
    if strict:
        found += sorted(
            max(item.step for _, item in current) for current in passes.values() if current and max(current, key=_place)[0] < 2
        )
    return found


def _place(pair: tuple[int, Record]) -> int:
    return pair[0]


ATOMS = (
    tool_call("a"),
    tool_call("b", order=1),
    tool_call(order=None),
    tool_call(order=lambda order: order == 2),
    tool_call(where=lambda item: item.step % 2 == 0),
    verification(passed=True),
    predicate(lambda item: item.blocked),
    field("arguments.order") == 2,
    field("arguments.order") != None,  # noqa: E711
    field("arguments.order") >= 2,
    field("arguments.order", "name") == (1, "a"),
    field("arguments.order") == field("step"),
    field("error.kind") == "timeout",
    field("value.eta") == "Friday",
    field("name").among(["b", "c"]),
    field(lambda item: item.agent) == "ann",
)
formulas = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        inner.map(lambda part: ~part),
        st.tuples(inner, inner).map(lambda parts: parts[0] & parts[1]),
        st.tuples(inner, inner).map(lambda parts: parts[0] | parts[1]),
    ),
    max_leaves=4,
)


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(records=concurrent_traces(), formula=formulas)
def test_a_formula_selects_the_records_that_the_language_says_it_is_true_of(
    records: tuple[Record, ...], formula: Formula
) -> None:
    others = (record("verification", "owner", {"passed": True}), record("tool_call", "track", value={"eta": "Friday"}))
    mixed = trace(*records, *others)
    says = broken(mat.contract("language", always(~formula)), mixed)
    assert broken(never_before(formula), mixed) == says


def never_before(formula: Formula) -> mat.Contract:
    """Broken at every record that the formula selects."""
    return precedes(first="nothing", then=formula)


def key_of(keyed: bool) -> str | None:
    return "order" if keyed else None


def steps(found: Iterable[int]) -> list[int]:
    return sorted(found)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(records=concurrent_traces(), chosen=options)
def test_precedes_says_what_a_slow_reading_of_the_trace_says(records: tuple[Record, ...], chosen: Options) -> None:
    contract = precedes(
        first="a", then="b", within=chosen.within, within_ms=chosen.within_ms, key=key_of(chosen.keyed),
        once_each=chosen.once_each, effected=chosen.effected,
    )  # fmt: skip
    assert list(broken(contract, records)) == slow_precedes(records, chosen)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(records=concurrent_traces(), chosen=options)
def test_followed_by_says_what_a_slow_reading_of_the_trace_says(records: tuple[Record, ...], chosen: Options) -> None:
    contract = followed_by(
        trigger="a", answer="b", within=chosen.within, within_ms=chosen.within_ms, key=key_of(chosen.keyed),
        once_each=chosen.once_each, effected=chosen.effected,
    )  # fmt: skip
    assert steps(broken(contract, records)) == slow_followed(records, chosen)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(records=concurrent_traces(), keyed=st.booleans(), by_agent=st.booleans())
def test_never_concurrent_says_what_a_slow_reading_of_the_trace_says(
    records: tuple[Record, ...], keyed: bool, by_agent: bool
) -> None:
    contract = never_concurrent(["a", "b"], key=key_of(keyed), by="agent" if by_agent else "run")
    assert list(broken(contract, records)) == slow_concurrent(records, keyed, by_agent)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(records=concurrent_traces(), keyed=st.booleans(), strict=st.booleans())
def test_in_order_says_what_a_slow_reading_of_the_trace_says(records: tuple[Record, ...], keyed: bool, strict: bool) -> None:
    contract = in_order(["a", "b", "c"], key=key_of(keyed), strict=strict)
    assert steps(broken(contract, records)) == steps(slow_in_order(records, keyed, strict))
