from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.record import Link
from mat.monitor.faults import DetectionRules
from mat.monitor.judge import Judge
from mat_contracts import containment
from mat_contracts.traces import broken, record, trace, violations

IDLE = record("memory_write", "notes")
LOUD = record("tool_call", "track", error="timeout")
SILENT = record("tool_call", "track", value={"eta": "old"}, faults=["service.stale"])
AGAIN = record("tool_call", "track", value={"eta": "Friday"})
BLOCKED = record("tool_call", "track", blocked=True)
DETECT = record("detection", "tracking is stale")
FAILED = record("verification", "tracking is fresh", {"passed": False})
PASSED = record("verification", "tracking is fresh", {"passed": True})
MITIGATE = record("mitigation", "alternate")
ASK = record("approval", "refund")
DELEGATE = record("delegation", "human")
USER = record("message", "user", {"text": "one moment"})
FROM_USER = record("message", "user", {"text": "hello"}, boundary="prompt")
PEER = record("message", "planner", {"text": "hm"})
END = record("final_response", "answer")


@pytest.mark.parametrize("detected", [DETECT, FAILED])
@pytest.mark.parametrize("mitigated", [MITIGATE, AGAIN, ASK, DELEGATE, USER])
def test_a_silent_fault_is_contained_by_a_detection_and_any_mitigation(detected: mat.Record, mitigated: mat.Record) -> None:
    assert broken(containment(), trace(SILENT, detected, mitigated, END)) == ()


@pytest.mark.parametrize("other", [PASSED, AGAIN, MITIGATE, USER, BLOCKED])
def test_a_silent_fault_is_not_detected_by_anything_less(other: mat.Record) -> None:
    assert broken(containment(), trace(SILENT, other, MITIGATE, END)) == (0,)


@pytest.mark.parametrize("other", [IDLE, PEER, FROM_USER, PASSED, BLOCKED, END])
def test_after_a_detection_anything_less_is_no_mitigation(other: mat.Record) -> None:
    assert broken(containment(), trace(SILENT, DETECT, other)) == (0,)


def test_calling_again_after_an_error_detects_and_mitigates_at_once() -> None:
    assert broken(containment(detect_within=1, mitigate_within=0), trace(LOUD, AGAIN)) == ()


def test_a_blocked_retry_is_none() -> None:
    assert broken(containment(), trace(LOUD, BLOCKED)) == (0,)


def test_a_retry_that_fails_is_a_new_fault() -> None:
    assert broken(containment(), trace(LOUD, LOUD, LOUD)) == (2,)


def test_both_windows_end_exactly_at_their_bounds() -> None:
    judged = containment(detect_within=2, mitigate_within=2)
    assert broken(judged, trace(SILENT, IDLE, DETECT, IDLE, MITIGATE)) == ()
    assert broken(judged, trace(SILENT, IDLE, IDLE, DETECT, MITIGATE)) == (0,)
    assert broken(judged, trace(SILENT, IDLE, DETECT, IDLE, IDLE, MITIGATE)) == (0,)


def test_a_later_detection_in_the_window_gives_mitigation_a_new_start() -> None:
    judged = containment(detect_within=3, mitigate_within=1)
    assert broken(judged, trace(SILENT, DETECT, IDLE, DETECT, MITIGATE)) == ()


def test_a_detection_or_mitigation_before_the_fault_serves_nothing() -> None:
    assert broken(containment(), trace(DETECT, MITIGATE, SILENT)) == (2,)


def test_one_detection_and_one_mitigation_serve_all_open_faults() -> None:
    assert broken(containment(), trace(SILENT, SILENT, DETECT, MITIGATE)) == ()


def test_several_faults_that_fail_are_each_blamed_with_their_boundary() -> None:
    read = record("memory_read", "notes", {"key": "a"}, value="x", faults=["memory.insert"], agent="reader")
    found = violations(containment(), trace(SILENT, read, END))
    assert [(item.step, item.agent, item.instance) for item in found] == [
        (0, "main", "main/service:track#1"),
        (1, "reader", "reader/memory:notes#1"),
    ]
    assert found[1].message == (
        "memory.insert entered at memory (reader/memory:notes#1, step 1) and was not detected by the end of the trace"
    )


def test_the_message_says_where_it_was_detected_when_only_the_mitigation_is_missing() -> None:
    (found,) = violations(containment(), trace(SILENT, DETECT, END))
    assert found.message.endswith("was detected at step 1 (rule detect), and was not mitigated by the end of the trace")
    assert found.witness == (0, 1)


def test_it_is_reported_at_the_first_step_at_which_it_is_certain() -> None:
    court = Judge([containment(detect_within=2)])
    assert [len(court.step(item).violations) for item in trace(SILENT, IDLE, IDLE, IDLE)] == [0, 0, 1, 0]
    court = Judge([containment(detect_within=2, mitigate_within=2)])
    items = trace(SILENT, IDLE, DETECT, IDLE, IDLE, IDLE)
    assert [len(court.step(item).violations) for item in items] == [0, 0, 0, 0, 1, 0]


def test_it_says_in_which_step_it_was_certain_and_which_rule_detected_it() -> None:
    (found,) = violations(containment(detect_within=2), trace(SILENT, IDLE, IDLE))
    assert found.message.endswith("and was not detected in time, by step 2")
    assert found.witness == (0, 2)
    (found,) = violations(containment(detect_within=2, mitigate_within=1), trace(SILENT, FAILED, IDLE))
    assert "was detected at step 1 (rule verify), and was not mitigated in time, by step 2" in found.message
    (found,) = violations(containment(), trace(LOUD))
    assert found.message.endswith("gave the agent an error, and was not mitigated by the end of the trace")


def test_it_says_where_the_fault_had_got_to_meanwhile() -> None:
    link = Link(src="step#0", rel="derived_from", dst="step#1")
    mail = replace(record("tool_call", "mail", {"text": "old"}, agent="mailer"), links=(link,))
    first, second, third = trace(SILENT, mail, IDLE)
    (found,) = violations(containment(detect_within=2), [first, replace(second, links=(link,)), third])
    assert found.message.endswith(
        "by recorded provenance it had reached: step 0 main: tool_call track -> step 1 mailer: tool_call mail (from step#0)"
    )


def test_what_is_open_on_a_prefix_is_an_obligation() -> None:
    court, items = Judge([containment()]), trace(SILENT, DETECT, MITIGATE)
    waiting = []
    for item in items:
        court.step(item)
        (standing,) = court.outcomes_so_far(item)
        waiting.append([(open_one.since, open_one.text) for open_one in standing.open])
    fault = "the fault service.stale at main/service:track#1"
    assert waiting == [[(0, f"{fault} must be detected and mitigated")], [(0, f"{fault} must be mitigated")], []]


def test_windows_boundaries_and_alternates_take_the_place_of_what_the_rules_say() -> None:
    rules = DetectionRules(detect_within=1, boundaries=["memory"])
    assert broken(containment(rules=rules), trace(SILENT)) == ()
    assert broken(containment(rules=rules, boundaries=["service"]), trace(SILENT, IDLE, DETECT, MITIGATE)) == (0,)
    wide = containment(rules=rules, boundaries=["service"], detect_within=2)
    assert broken(wide, trace(SILENT, IDLE, DETECT, MITIGATE)) == ()
    other = record("tool_call", "carrier")
    assert broken(containment(), trace(LOUD, other)) == (0,)
    assert broken(containment(alternates={"track": {"carrier"}}), trace(LOUD, other)) == ()


def test_disturbances_of_order_are_no_faults() -> None:
    (note,) = SILENT.faults
    held = replace(AGAIN, faults=(replace(note, operator="order.hold", effect="Hold"),))
    assert broken(containment(), trace(held)) == ()
    both = replace(SILENT, faults=(*held.faults, note))
    (found,) = violations(containment(), trace(both))
    assert found.message.startswith("service.stale entered at service")


def test_the_state_stays_small_however_wide_the_windows_and_long_the_path() -> None:
    from mat.core.digest import canonical

    judged = containment(detect_within=10_000)
    state, sizes = judged.start, []
    for item in trace(SILENT, *[IDLE] * 400):
        link = Link(src=f"step#{item.step - 1}", rel="derived_from", dst=item.artefact)
        state = judged.step(state, replace(item, links=(link,)))
        sizes.append(len(canonical(state)))
    assert sizes[400] == sizes[100]


def test_an_operator_that_changed_nothing_is_no_fault() -> None:
    (note,) = SILENT.faults
    assert broken(containment(), trace(replace(SILENT, faults=(replace(note, changed=False),)))) == ()


@pytest.mark.parametrize(
    ("item", "is_fault"),
    [
        (record("tool_call", "track", error="connection"), True),
        (record("tool_call", "track", error="rate_limit"), True),
        (record("model_call", "planner", error="server_error"), True),
        (record("retrieval", "kb", value=[], faults=["retrieval.drop"]), True),
        (record("message", "mailer", faults=["delegation.drop"]), True),
        (record("tool_call", "track", error="not_found"), False),
        (record("tool_call", "track", error="auth"), False),
        (record("tool_call", "track", error=""), False),
        (BLOCKED, False),
        (record("message", "user", {"text": "x"}, boundary="prompt", faults=["prompt.splice"]), False),
    ],
)
def test_what_is_a_fault(item: mat.Record, is_fault: bool) -> None:
    assert broken(containment(), trace(item)) == ((0,) if is_fault else ())


def test_boundaries_can_be_chosen() -> None:
    spliced = record("message", "user", {"text": "x"}, boundary="prompt", faults=["prompt.splice"])
    assert broken(containment(boundaries=["prompt"]), trace(spliced, SILENT)) == (0,)


def is_detection(fault: mat.Record, item: mat.Record) -> bool:
    again = item.action.kind == "tool_call" and not item.blocked
    return item is DETECT or item is FAILED or (again and fault is LOUD)


def is_mitigation(item: mat.Record) -> bool:
    return item in (MITIGATE, AGAIN, LOUD, SILENT, ASK, DELEGATE, USER)


def is_own_answer(item: mat.Record) -> bool:
    """What mitigates an error that nothing else has detected."""
    return item in (MITIGATE, AGAIN, LOUD, SILENT)


@pytest.mark.full
@settings(max_examples=400)
@given(
    st.lists(st.sampled_from([IDLE, LOUD, SILENT, AGAIN, BLOCKED, DETECT, FAILED, PASSED, MITIGATE, USER, PEER]), max_size=14),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_it_agrees_with_equation_10_over_the_whole_trace(items: list[mat.Record], detect: int, mitigate: int) -> None:
    def contained(fault: int) -> bool:
        reach = range(fault + 1, min(fault + mitigate, len(items) - 1) + 1)
        return (items[fault] is LOUD and any(is_own_answer(items[acted]) for acted in reach)) or any(
            is_detection(items[fault], items[found])
            and any(is_mitigation(items[acted]) for acted in range(found, min(found + mitigate, len(items) - 1) + 1))
            for found in range(fault + 1, min(fault + detect, len(items) - 1) + 1)
        )

    expected = [at for at, item in enumerate(items) if item in (LOUD, SILENT) and not contained(at)]
    assert sorted(broken(containment(detect_within=detect, mitigate_within=mitigate), trace(*items))) == expected


def test_in_a_run_an_agent_that_retries_contains_and_one_that_swallows_does_not() -> None:
    failures = [TimeoutError("carrier"), None]

    @mat.tool(name="track")
    def track() -> str:
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure
        return "Friday"

    with mat.run([containment()]) as run:
        with pytest.raises(TimeoutError):
            track()
        mat.finish(track())
    assert run.violations == ()
    failures[:] = [TimeoutError("carrier")]
    with mat.run([containment()]) as run:
        with pytest.raises(TimeoutError):
            track()
        mat.finish("probably Friday")
    assert [(item.step, item.agent, item.instance) for item in run.violations] == [(0, "main", "main/service:track#1")]
