from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.record import FaultNote
from mat.core.value import EMPTY
from mat.monitor.faults import (
    DETECTIONS,
    MITIGATIONS,
    RULES,
    DetectionRules,
    Fault,
    Watch,
    fault_of,
    is_alternate,
    rules_of,
    watched,
)
from mat.temporal import always, tool_call
from mat_contracts import containment
from mat_contracts.traces import record, trace

LOUD = record("tool_call", "search", {"query": "kettles"}, error="timeout")
SILENT = record("tool_call", "search", {"query": "kettles"}, value=["old"], faults=["service.stale"])
DETECT = record("detection", "it is stale")
IDLE = record("claim", "claim", {"text": "still here"})


def only(*records: mat.Record, rules: DetectionRules = RULES) -> Watch:
    (watch,) = watched(trace(*records), rules)
    return watch


def call(name: str, arguments: Mapping[str, object] = EMPTY, **given: Any) -> mat.Record:
    return record("tool_call", name, arguments, **given)


SAME = call("search", {"query": "kettles"})
BACKUP = call("search_backup", {"q": "kettles"})
MODEL = record("model_call", "planner", {"prompt": "what now?"})


@pytest.mark.parametrize(
    ("record_after", "rule"),
    [
        (record("mitigation", "sandbox"), "mitigate"),
        (SAME, "retry"),
        (BACKUP, "alternate"),
        (record("message", "user", {"text": "Which kettle do you mean?"}), "clarify"),
        (record("message", "user", {"text": "The search timed out"}), "clarify"),
        (record("approval", "go on although the search is down"), "escalate"),
        (record("approval", "order", {"note": "could not search"}), "escalate"),
        (record("delegation", "human", {"task": "The search failed, please look"}), "escalate"),
        (record("termination", "aborted"), "abort"),
    ],
)
def test_each_act_mitigates_by_the_rule_that_is_named(record_after: mat.Record, rule: str) -> None:
    watch = only(LOUD, record_after)
    assert (watch.first_by, watch.mitigated, watch.mitigated_by) == ("error", 1, rule)
    assert only(LOUD, record_after, rules=DetectionRules(without=[rule])).mitigated == -1


@pytest.mark.parametrize(
    "usual",
    [
        MODEL,
        record("message", "user", {"text": "Kettles cost 20 euros"}),
        record("message", "planner", {"text": "the search failed"}),
        record("message", "user", {"text": "is it failing?"}, boundary="prompt"),
        record("approval", "refund over 500"),
        record("delegation", "mailer", {"task": "write the answer", "delegator": "planner"}),
        record("termination", "completed"),
        record("termination", "failed"),
        call("search", {"query": "toasters"}),
        call("order", {"query": "kettles"}),
        call("search", {"query": "kettles"}, blocked=True),
        record("memory_read", "search", {"query": "kettles"}),
        record("verification", "row", {"passed": True}),
        record("final_response", "answer", {"answer": "could not search"}),
    ],
)
def test_business_as_usual_after_an_error_mitigates_nothing(usual: mat.Record) -> None:
    assert only(LOUD, usual).mitigated == -1


@pytest.mark.parametrize(
    ("usual", "rule"),
    [
        (MODEL, "replan"),
        (record("message", "user", {"text": "Kettles cost 20 euros"}), "clarify"),
        (record("approval", "refund over 500"), "escalate"),
        (record("delegation", "mailer", {"task": "write the answer"}), "escalate"),
    ],
)
@pytest.mark.parametrize("noticed", [DETECT, record("verification", "fresh", {"passed": False})])
def test_the_same_acts_mitigate_what_the_agent_has_noticed(usual: mat.Record, rule: str, noticed: mat.Record) -> None:
    for fault in (LOUD, SILENT):
        assert only(fault, noticed, usual).mitigated_by == rule
        assert only(fault, usual, noticed).mitigated == -1


def test_a_model_call_of_another_agent_is_no_new_plan() -> None:
    assert only(SILENT, DETECT, record("model_call", "planner", agent="other")).mitigated == -1


@pytest.mark.parametrize(("item", "rule"), [(DETECT, "detect"), (record("verification", "x", {"passed": False}), "verify")])
def test_each_detection_is_named_and_can_be_left_out(item: mat.Record, rule: str) -> None:
    watch = only(SILENT, item)
    assert (watch.detected, watch.by, watch.first, watch.first_by) == (1, rule, 1, rule)
    assert only(SILENT, item, rules=DetectionRules(without=[rule])).detected == -1


def test_an_error_detects_at_its_own_step_unless_the_rule_is_left_out() -> None:
    assert (only(LOUD).detected, only(LOUD).by) == (0, "error")
    assert only(LOUD, rules=DetectionRules(without=["error"])).detected == -1
    assert only(LOUD, record("mitigation", "retry"), rules=DetectionRules(without=["error"])).mitigated == -1
    assert only(LOUD, SAME, rules=DetectionRules(without=["error"])).by == "retry"
    assert only(SILENT).detected == -1


def test_an_error_without_a_kind_is_an_error_too() -> None:
    crashed = replace(SILENT, observation=call("x", error="odd").observation)
    assert only(crashed).by == "error"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({}, {"query": "toasters"}, True),
        ({"order": "A1", "attempt": 1}, {"order": "A1", "attempt": 2}, True),
        ({"order": "A1"}, {"order": "A2"}, False),
        ({"order": 1}, {"order": "1"}, False),
        ({"order": "A1"}, {"parcel": "A1"}, False),
        ({"query": "kettle warranty"}, {"query": "Warranty of kettles"}, True),
        ({"query": "kettle warranty"}, {"query": "red toasters"}, False),
        ({"body": {"order": "A1", "attempt": 1}}, {"body": {"order": "A1", "attempt": 2}}, True),
        ({"body": {"order": "A1", "attempt": 1}}, {"body": {"order": "A2", "attempt": 2}}, False),
        ({"items": [1, 2]}, {"items": [1, 2]}, True),
        ({"items": [1, 2]}, {"items": [2, 1]}, False),
        ({"text": "hello there", "sender": "a"}, {"text": "good day", "sender": "a"}, False),
        ({"blob": "x" * 5000}, {"blob": "x" * 5000}, True),
    ],
)
def test_a_retry_is_the_same_request(first: dict[str, object], second: dict[str, object], same: bool) -> None:
    watch = only(call("search", first, error="timeout"), call("search", second))
    assert (watch.mitigated_by == "retry") is same


def test_a_model_is_asked_again_whatever_the_prompt_has_become() -> None:
    failed = record("model_call", "planner", {"messages": ["a"]}, error="rate_limit")
    assert only(failed, record("model_call", "planner", {"messages": ["a", "b"]})).mitigated_by == "retry"


def test_a_swallower_that_goes_on_with_the_next_request_contains_nothing() -> None:
    rows = [call("track", {"parcel": number}, error="timeout") for number in range(4)]
    assert [watch.mitigated for watch in watched(trace(*rows))] == [-1] * 4


def test_calls_in_flight_at_the_same_time_are_no_retries_of_each_other() -> None:
    first, second, third = trace(LOUD, LOUD, SAME)
    first, second = replace(first, sealed_seq=2), replace(second, asked_seq=1, sealed_seq=3)
    assert [watch.mitigated for watch in watched([first, second, replace(third, asked_seq=4, sealed_seq=5)])] == [2, 2]
    assert [watch.mitigated for watch in watched([first, second])] == [-1, -1]


def test_steps_taken_while_the_call_was_in_flight_are_not_counted_against_its_windows() -> None:
    """A call that hangs: seven steps of others later it times out, and is made again at once."""
    items = trace(LOUD, *[IDLE] * 7, SAME)
    items = (replace(items[0], sealed_seq=items[7].sealed_seq), *items[1:])
    (watch,) = watched(items)
    assert (watch.since, watch.mitigated, watch.mitigated_by) == (7, 8, "retry")
    (watch,) = watched(trace(LOUD, *[IDLE] * 7, SAME))
    assert (watch.since, watch.mitigated) == (0, -1)
    silent = trace(SILENT, *[IDLE] * 7, DETECT, record("mitigation", "retry"))
    (watch,) = watched((replace(silent[0], sealed_seq=silent[7].sealed_seq), *silent[1:]))
    assert (watch.detected, watch.mitigated) == (8, 9)


def test_a_retry_before_the_stated_pause_is_no_mitigation() -> None:
    rules = DetectionRules(backoff_ms=1500)  # records are a second apart
    assert only(LOUD, SAME, rules=rules).mitigated == -1
    assert only(LOUD, SAME, SAME, rules=rules).mitigated == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("search", "search_backup", True),
        ("primary_search", "search.fallback", True),
        ("getOrder", "get_order_v2", True),
        ("kbMirror", "kb", True),
        ("get_order", "get_orders", False),
        ("search", "refund", False),
        ("backup", "fallback", False),  # nothing is left to compare
        ("account1", "account2", False),
        ("поиск_a", "заказ_a", False),
    ],
)
def test_a_spare_service_is_known_by_its_name(one: str, other: str, same: bool) -> None:
    (fault,) = [watch.fault for watch in watched(trace(call(one, error="timeout")))]
    assert is_alternate(trace(IDLE, call(other))[1], fault) is same


def test_alternates_can_be_stated_in_either_direction() -> None:
    fault, ours, theirs = call("dhl", {"id": 1}, error="timeout"), call("ups", {"id": 1}), call("dhl_refund", {"id": 1})
    for stated in ({"dhl": {"ups"}}, {"ups": ["dhl"]}):
        rules = DetectionRules(alternates=stated)
        assert only(fault, ours, rules=rules).mitigated_by == "alternate"
        assert only(fault, theirs, rules=rules).mitigated == -1
    assert only(fault, ours).mitigated == -1


def test_where_recipients_are_named_only_they_are_an_escalation() -> None:
    rules = DetectionRules(escalates_to=["human"])
    quiet, loud = {"task": "have a look"}, {"task": "the search failed"}
    assert only(LOUD, record("delegation", "human", quiet), rules=rules).mitigated_by == "escalate"
    assert only(LOUD, record("message", "human", {"text": "hello"}), rules=rules).mitigated_by == "escalate"
    assert only(LOUD, record("delegation", "mailer", loud), rules=rules).mitigated == -1
    assert only(LOUD, DETECT, record("delegation", "mailer", loud), rules=rules).mitigated == -1


def test_words_of_trouble_can_be_added() -> None:
    said = record("message", "user", {"text": "Die Suche ist gerade gestört"})
    assert only(LOUD, said).mitigated == -1
    assert only(LOUD, said, rules=DetectionRules(trouble=["Gestört"])).mitigated_by == "clarify"


def test_own_rules_are_named_and_see_the_fault() -> None:
    rules = DetectionRules(
        detections={"alarm": lambda item, fault: item.action.name == "alarm" and fault.name == "search"},
        mitigations={"breaker": lambda item, fault: item.action.name == "open_circuit"},
    )
    alarm, breaker = call("alarm"), call("open_circuit")
    watch = only(SILENT, alarm, breaker, rules=rules)
    assert (watch.by, watch.noticed, watch.mitigated_by) == ("alarm", True, "breaker")
    assert only(call("track", faults=["service.stale"]), alarm, breaker, rules=rules).detected == -1
    assert only(SILENT, breaker, alarm, rules=rules).mitigated == -1
    assert only(SILENT, alarm, breaker).detected == -1


# -- what is a fault --------------------------------------------------------------------------------------------------


def noted(item: mat.Record, *operators: str) -> mat.Record:
    notes = tuple(FaultNote(operator=name, parameters=EMPTY, effect="Hold") for name in operators)
    return replace(item, faults=notes)


def causes(item: mat.Record, rules: DetectionRules = RULES) -> str | None:
    fault = fault_of(item, rules)
    return None if fault is None else fault.cause


def test_operators_of_order_and_prompt_are_no_faults_wherever_they_act() -> None:
    fine = call("search", value=["new"])
    assert causes(noted(fine, "order.hold")) is None
    assert causes(noted(fine, "prompt.splice")) is None
    assert causes(noted(fine, "order.hold", "service.stale")) == "service.stale"
    assert causes(noted(fine, "orders.mixed_up")) == "orders.mixed_up"  # another family of a user's
    assert causes(noted(LOUD, "order.hold")) == "timeout"
    assert fault_of(noted(LOUD, "order.hold")).injected is False  # type: ignore[union-attr]
    assert causes(noted(fine, "order.hold"), DetectionRules(boundaries=["order"])) == "order.hold"


def test_two_operators_of_one_call_are_one_fault_with_both_names() -> None:
    assert causes(noted(LOUD, "service.delay", "service.timeout")) == "service.delay, service.timeout"


def test_the_kinds_of_error_that_are_faults_can_be_stated() -> None:
    lost = call("search", error="not_found")
    assert causes(lost) is None
    assert causes(lost, DetectionRules(errors=["not_found"])) == "not_found"
    assert causes(LOUD, DetectionRules(errors=["not_found"])) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"detect_within": 0}, "detect_within=0"),
        ({"mitigate_within": True}, "mitigate_within=True"),
        ({"backoff_ms": -1}, "backoff_ms=-1"),
        ({"boundaries": ["servise"]}, "did you mean 'service'"),
        ({"boundaries": "service"}, "boundaries='service' are not names"),
        ({"without": ["eror"]}, "did you mean 'error'"),
        ({"alternates": {"search": "search_backup"}}, "alternates['search']"),
        ({"detections": {"detect": lambda item, fault: True}}, "the name of a built-in rule"),
        ({"mitigations": {"mine": "yes"}}, "mitigations['mine'] is not a predicate"),
        ({"detections": ["mine"]}, "is not a mapping"),
    ],
)
def test_rules_that_mean_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        DetectionRules(**given)
    assert said in caught.value.what


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        DetectionRules(detect_within=0, boundaries=["servise"], without=["eror"])
    assert all(part in caught.value.what for part in ("detect_within", "servise", "eror"))


def test_every_rule_is_in_the_docstring() -> None:
    assert all(f"- `{name}`:" in (DetectionRules.__doc__ or "") for name in (*DETECTIONS, *MITIGATIONS))


# -- the windows ------------------------------------------------------------------------------------------------------


def test_the_first_detection_is_kept_and_the_latest_counts() -> None:
    watch = only(SILENT, DETECT, IDLE, record("verification", "x", {"passed": False}))
    assert (watch.first, watch.first_by, watch.detected, watch.by) == (1, "detect", 3, "verify")


def test_each_episode_begins_anew() -> None:
    one, two = {"episode": "1: a"}, {"episode": "2: b"}
    items = trace(replace(SILENT, state=one), replace(DETECT, state=two), record("mitigation", "retry", state=two))  # type: ignore[arg-type]
    (watch,) = watched(items)
    assert (watch.detected, watch.mitigated) == (-1, -1)


POOL = [
    LOUD, SILENT, SAME, BACKUP, DETECT, IDLE, MODEL, record("mitigation", "retry"), record("message", "user", {"text": "x"}),
    record("verification", "x", {"passed": False}), noted(SAME, "order.hold"),
]  # fmt: skip


@given(st.lists(st.sampled_from(POOL), max_size=16), st.integers(1, 4), st.integers(0, 4))
def test_the_contract_and_the_finished_trace_say_the_same(items: list[mat.Record], detect: int, mitigate: int) -> None:
    from mat_contracts.traces import broken

    rules, made = DetectionRules(detect_within=detect, mitigate_within=mitigate), trace(*items)
    open_ones = [watch.fault.step for watch in watched(made, rules) if watch.mitigated < 0]
    assert sorted(broken(containment(rules=rules), made)) == open_ones


@given(st.lists(st.sampled_from(POOL), max_size=16), st.integers(1, 4), st.integers(0, 4))
def test_every_answer_lies_in_its_window(items: list[mat.Record], detect: int, mitigate: int) -> None:
    for watch in watched(trace(*items), DetectionRules(detect_within=detect, mitigate_within=mitigate)):
        if watch.detected >= 0:
            assert watch.fault.step <= watch.first <= watch.detected <= watch.fault.step + detect
        if watch.mitigated >= 0:
            assert watch.fault.step < watch.mitigated
            assert 0 <= watch.detected <= watch.mitigated <= watch.detected + mitigate
        assert (watch.mitigated >= 0) == bool(watch.mitigated_by)


@given(st.lists(st.sampled_from(POOL), max_size=12), st.integers(1, 4), st.integers(0, 4))
def test_longer_windows_contain_no_fewer_faults(items: list[mat.Record], detect: int, mitigate: int) -> None:
    def contained(rules: DetectionRules) -> set[int]:
        return {watch.fault.step for watch in watched(trace(*items), rules) if watch.mitigated >= 0}

    narrow = contained(DetectionRules(detect_within=detect, mitigate_within=mitigate))
    assert narrow <= contained(DetectionRules(detect_within=detect + 1, mitigate_within=mitigate))
    assert narrow <= contained(DetectionRules(detect_within=detect, mitigate_within=mitigate + 1))


def test_what_a_fault_keeps_of_its_request_is_bounded() -> None:
    fault = fault_of(call("search", {"prompt": "word " * 100_000, "blob": "x" * 100_000}, error="timeout"))
    assert isinstance(fault, Fault)
    assert len(canonical(fault)) < 4_000


def test_the_rules_of_armed_contracts_are_found() -> None:
    rules = DetectionRules(detect_within=2)
    assert rules_of([mat.contract("x", always(tool_call("a"))), containment(rules=rules)]) == rules
    assert rules_of([]) == RULES
