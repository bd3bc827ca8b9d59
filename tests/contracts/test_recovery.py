from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.record import FaultNote
from mat.core.value import EMPTY
from mat.monitor.faults import DetectionRules, rules_of
from mat.monitor.judge import Judge
from mat.temporal import always, eventually, once, tool_call, verification
from mat_contracts.containment import containment
from mat_contracts.recovery import recovers
from mat_contracts.traces import STEP_MS, broken, record, trace, violations

LOUD = record("tool_call", "track", error="timeout")
SILENT = record("tool_call", "track", value={"eta": "old"}, faults=["service.stale"])
AGAIN = record("tool_call", "track", value={"eta": "Friday"})
OTHER = record("tool_call", "refund")
IDLE = record("claim", "claim")
END = record("final_response", "answer")
NOISE = record("claim", "noise")
no_noise = mat.step_contract(on="claim", id="no.noise")(lambda item: item.action.name != "noise")


@pytest.mark.parametrize("fault", [LOUD, SILENT])
@pytest.mark.parametrize("back", [AGAIN, END])
def test_a_system_that_gets_back_to_work_in_time_has_recovered(fault: mat.Record, back: mat.Record) -> None:
    assert broken(recovers(within=3), trace(fault, IDLE, IDLE, back, IDLE, IDLE)) == ()
    assert broken(recovers(within=2), trace(fault, IDLE, IDLE, back, IDLE, IDLE)) == (0,)


@pytest.mark.parametrize(
    "other",
    [
        IDLE,
        OTHER,
        record("tool_call", "track", blocked=True),
        record("tool_call", "track", error="not_found"),
        record("tool_call", "track", effected="no"),
        record("memory_read", "track"),
        record("mitigation", "retry"),
        record("termination", "aborted"),
        replace(AGAIN, observation=replace(AGAIN.observation, cancelled=True)),
    ],
)
def test_nothing_less_is_a_return_to_work(other: mat.Record) -> None:
    assert broken(recovers(within=2), trace(LOUD, other, IDLE, IDLE)) == (0,)


def test_each_fault_begins_the_budget_anew_and_only_the_last_one_counts() -> None:
    assert broken(recovers(within=2), trace(LOUD, IDLE, LOUD, IDLE, SILENT, IDLE, AGAIN)) == ()
    assert broken(recovers(within=2), trace(LOUD, AGAIN, LOUD, IDLE, IDLE, AGAIN)) == (2,)


def test_while_faults_go_on_nothing_is_owed() -> None:
    court = Judge([recovers(within=2)])
    assert [len(court.step(item).violations) for item in trace(*[LOUD] * 20, IDLE, IDLE, IDLE)] == [0] * 21 + [1, 0]


def test_a_budget_that_ran_out_is_said_once_and_the_next_fault_opens_another() -> None:
    found = violations(recovers(within=1), trace(LOUD, IDLE, IDLE, IDLE, LOUD, IDLE, IDLE))
    assert [(item.step, item.witness, item.instance) for item in found] == [
        (0, (0, 1), "main/service:track#1"), (4, (4, 5), "main/service:track#1"),
    ]  # fmt: skip
    assert found[0].message == (
        "timeout entered at service (main/service:track#1, step 0); it was the last fault, and the system was not back at work "
        "within 1 step (by step 1)"
    )


def test_what_is_open_at_the_end_is_a_violation_and_on_a_prefix_an_obligation() -> None:
    assert broken(recovers(within=10), trace(LOUD, IDLE)) == (0,)
    court, items = Judge([recovers(within=10)]), trace(LOUD, IDLE, AGAIN)
    for item in items[:2]:
        court.step(item)
    (standing,) = court.outcomes_so_far(items[1])
    assert (standing.standing, standing.outcome) == ("presumably_false", "unknown")
    assert [(item.since, item.met) for item in standing.open] == [(0, False)]
    court.step(items[2])
    (standing,) = court.outcomes_so_far(items[2])
    assert (standing.standing, standing.open) == ("presumably_true", ())


def test_a_run_without_faults_owes_nothing() -> None:
    assert broken(recovers(within=1, quiet=no_noise), trace(IDLE, AGAIN, NOISE)) == ()


def test_disturbances_of_order_and_prompt_are_no_faults() -> None:
    held = replace(AGAIN, faults=(FaultNote(operator="order.hold", parameters=EMPTY, effect="Hold"),))
    spliced = record("message", "user", {"text": "x"}, boundary="prompt", faults=["prompt.splice"])
    assert broken(recovers(within=1), trace(held, spliced, IDLE, IDLE)) == ()


def test_a_call_that_was_in_flight_when_the_fault_became_known_is_no_recovery() -> None:
    fault, flight, later = trace(LOUD, AGAIN, IDLE)
    fault = replace(fault, sealed_seq=3)
    flight = replace(flight, asked_seq=1, sealed_seq=2)
    assert broken(recovers(within=2), [fault, flight, later]) == (0,)


def test_the_budget_counts_from_when_the_fault_was_known_and_the_one_known_last_counts() -> None:
    items = trace(LOUD, IDLE, IDLE, IDLE, AGAIN)
    assert broken(recovers(within=1), items) == (0,)
    assert broken(recovers(within=1), (replace(items[0], sealed_seq=items[3].sealed_seq), *items[1:])) == ()
    both = trace(LOUD, record("tool_call", "refund", error="timeout"), AGAIN)
    both = (replace(both[0], sealed_seq=3), replace(both[1], asked_seq=1, sealed_seq=2), both[2])
    assert broken(recovers(within=1), both) == ()
    assert broken(recovers(within=1), trace(LOUD, record("tool_call", "refund", error="timeout"), AGAIN)) == (1,)


def test_the_budget_can_be_run_time_from_when_the_fault_was_known() -> None:
    assert broken(recovers(within_ms=2 * STEP_MS), trace(LOUD, IDLE, AGAIN)) == ()
    assert broken(recovers(within_ms=2 * STEP_MS - 1), trace(LOUD, IDLE, AGAIN)) == (0,)
    slow = trace(LOUD, AGAIN, IDLE)
    slow = (slow[0], replace(slow[1], sealed_ms=10 * STEP_MS), replace(slow[2], at_ms=10 * STEP_MS, sealed_ms=10 * STEP_MS))
    assert broken(recovers(within_ms=2 * STEP_MS), slow) == (0,)
    late = tuple(replace(item, sealed_ms=5 * STEP_MS) if item.step == 0 else item for item in trace(LOUD, IDLE, AGAIN))
    assert broken(recovers(within_ms=STEP_MS), late) == ()


def test_both_budgets_hold_where_both_are_given() -> None:
    assert broken(recovers(within=5, within_ms=STEP_MS), trace(LOUD, IDLE, AGAIN)) == (0,)
    assert broken(recovers(within=1, within_ms=5 * STEP_MS), trace(LOUD, IDLE, AGAIN)) == (0,)
    assert broken(recovers(within=2, within_ms=2 * STEP_MS), trace(LOUD, IDLE, AGAIN)) == ()


# -- the goal ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "goal",
    [
        lambda item: item.action.name == "refund",
        tool_call("refund"),
        tool_call("refund") & ~tool_call("x"),
    ],
)
def test_the_goal_can_be_a_predicate_or_a_pattern(goal: Any) -> None:
    assert broken(recovers(within=2, goal=goal), trace(LOUD, AGAIN, OTHER)) == ()
    assert broken(recovers(within=2, goal=goal), trace(OTHER, LOUD, AGAIN, END, OTHER)) == (1,)


def test_a_goal_with_a_memory_sees_what_was_before_the_fault() -> None:
    goal = tool_call("refund") & once(verification(passed=True), within=3)
    checked = record("verification", "row", {"passed": True})
    assert broken(recovers(within=2, goal=goal), trace(checked, LOUD, OTHER)) == ()
    assert broken(recovers(within=2, goal=goal), trace(checked, IDLE, IDLE, LOUD, OTHER, IDLE)) == (3,)


def test_a_goal_that_a_new_fault_reaches_is_not_reached() -> None:
    assert broken(recovers(within=2, goal=tool_call("track")), trace(LOUD, LOUD)) == (1,)


# -- quiet ------------------------------------------------------------------------------------------------------------


def test_a_relapse_blames_its_own_step_and_says_what_was_broken() -> None:
    found = violations(recovers(within=2, quiet=[no_noise]), trace(LOUD, AGAIN, IDLE, IDLE, NOISE, NOISE))
    assert [item.step for item in found] == [4, 5]
    assert found[0].witness == (0, 1, 4)
    assert found[0].message.endswith("the system was back at work at step 1, and then broke no.noise: no.noise does not hold")


def test_noise_before_the_fault_and_in_the_window_is_left_to_its_own_contract() -> None:
    assert broken(recovers(within=3, quiet=[no_noise]), trace(NOISE, LOUD, NOISE, AGAIN, IDLE)) == ()


def test_a_new_fault_ends_the_quiet() -> None:
    assert broken(recovers(within=3, quiet=[no_noise]), trace(LOUD, AGAIN, LOUD, NOISE, AGAIN)) == ()


def test_a_quiet_contract_with_a_memory_is_folded_from_the_beginning() -> None:
    @mat.trace_contract(start=0, id="refund.once", on="tool_call")
    def once_only(count: int, item: mat.Record) -> Any:
        if item.action.name != "refund":
            return None
        return mat.Violated("twice", state=count + 1) if count else 1

    assert broken(recovers(within=2, quiet=once_only), trace(OTHER, LOUD, AGAIN, OTHER)) == (3,)
    assert broken(recovers(within=2, quiet=once_only), trace(LOUD, AGAIN, OTHER)) == ()
    formula = mat.contract(
        "refund.checked",
        always(tool_call("refund").implies(once(tool_call("check")))),
    )
    assert broken(recovers(within=2, quiet=[formula]), trace(LOUD, AGAIN, OTHER)) == (2,)
    assert broken(recovers(within=2, quiet=[formula]), trace(record("tool_call", "check"), LOUD, AGAIN, OTHER)) == ()


# -- what is refused, what it costs, and a run ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: recovers(within=0),
        lambda: recovers(within_ms=-1),
        lambda: recovers(within_ms=True),
        lambda: recovers(goal="refund"),  # type: ignore[arg-type]
        lambda: recovers(goal=eventually(tool_call("refund"))),
        lambda: recovers(quiet=["no.noise"]),  # type: ignore[list-item]
        lambda: recovers(quiet=[mat.step_contract(id="raw", raw=True)(lambda item: True)]),
    ],
)
def test_an_option_that_cannot_mean_anything_is_refused_with_a_way_out(wrong: Callable[[], mat.Contract]) -> None:
    with pytest.raises(SpecError) as caught:
        wrong()
    assert caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize("goal", [None, tool_call("refund") & once(tool_call("track"), within=4)])
def test_the_state_stays_small_over_a_long_trace(goal: Any) -> None:
    contract = recovers(within=4, goal=goal, quiet=[no_noise], rules=DetectionRules())
    state, sizes = contract.start, []
    for item in trace(*[LOUD, IDLE, AGAIN, OTHER, NOISE, SILENT] * 200):
        new = contract.step(state, item)
        state = new.state if isinstance(new, mat.Violated) else new
        sizes.append(len(canonical(state)))
    assert max(sizes[600:]) <= max(sizes[:600]) + 20


POOL = [LOUD, SILENT, AGAIN, IDLE, END, OTHER, NOISE]


@given(st.lists(st.sampled_from(POOL), max_size=16), st.integers(1, 4))
def test_it_agrees_with_its_sentence_over_the_whole_trace(items: list[mat.Record], within: int) -> None:
    faults = [at for at, item in enumerate(items) if item in (LOUD, SILENT)]
    expected = []
    for fault, until in zip(faults, [*faults, len(items)][1:], strict=True):
        goals = [at for at in range(fault + 1, until) if items[at] in (AGAIN, END)]
        if goals and goals[0] <= fault + within:
            expected += [at for at in range(goals[0] + 1, until) if items[at] is NOISE]
        elif until == len(items) or until > fault + within:
            expected.append(fault)
    assert sorted(broken(recovers(within=within, quiet=[no_noise]), trace(*items))) == sorted(expected)


OUTAGE = operator("service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"calls": 3}])


@mat.tool(name="track")
def track(parcel: str) -> str:
    return "Friday"


def polled(times: int) -> mat.Run:
    outage = mat.spec.perturbation("service.outage", "main/service:track#1..3", {"calls": 3}, cost=4)
    with mat.run([recovers(within=2)], schedule=[outage], operators=[OUTAGE]) as run:
        for _ in range(times):
            try:
                track("17")
            except ConnectionError:
                mat.mitigate("retry")
    assert run.result is not None
    return run.result


def test_in_a_run_a_system_that_asks_until_the_outage_is_over_recovers_and_one_that_gives_up_does_not() -> None:
    assert polled(4).violations == ()
    assert [(item.step, item.agent, item.instance) for item in polled(3).violations] == [(4, "main", "main/service:track#3")]


def test_the_rates_of_a_report_follow_containment_and_not_what_is_armed_next_to_it():
    own = DetectionRules(detect_within=9)
    assert rules_of([recovers(within=4), containment(rules=own)]) == own
    assert rules_of([recovers(within=4, rules=own)]) == own
