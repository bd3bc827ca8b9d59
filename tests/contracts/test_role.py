from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.digest import plain as plain_data
from mat.core.errors import SpecError
from mat.core.record import ACTION_KINDS
from mat.monitor.contract import KEEP, Contract, Violated
from mat_contracts.role import (
    Role,
    cites_sources,
    drift_below,
    no_external_side_effects,
    only_proposes_external_calls,
    role,
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


def tool(name: str, *, by: str = "main", **more: Any) -> mat.Record:
    return record("tool_call", name, agent=by, **more)


# -- allowed actions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "action", "allowed"),
    [
        ("retrieval", record("retrieval", "kb"), True),
        ("retrieval", tool("kb"), False),
        ("tool_call:search", tool("search"), True),
        ("tool_call:search", tool("search_all"), False),
        ("tool_call:search*", tool("search_all"), True),
        ("tool_call:search", record("retrieval", "search"), False),
        ("search", record("retrieval", "search"), True),
        ("search", tool("research"), False),
        ("tool_call:mcp:search", tool("mcp:search"), True),
        ("rows[1]", tool("rows[1]"), True),
        ("rows[1]*", tool("rows[1]x"), True),
        ("rows[1]*", tool("rows1x"), False),
        ("message:writer", record("message", "writer", {"text": "x"}), True),
        ("message:writer", record("message", "user", {"text": "x"}), False),
        ("search", record("model_call", "gpt"), True),
        ("search", record("final_response", "answer"), False),
        ("search", record("message", "user", {"text": "hi"}, boundary="prompt"), True),
    ],
)  # fmt: skip
def test_an_action_is_allowed_by_its_kind_its_name_or_both(allow: str, action: mat.Record, allowed: bool) -> None:
    assert broken(role("main", allow=allow), trace(action)) == (() if allowed else (0,))


def test_a_denied_action_is_none_whatever_else_allows_it() -> None:
    contract = role("main", allow="tool_call", deny=["tool_call:delete*", "model_call:gpt"])
    assert broken(contract, trace(tool("list"), tool("delete_all"), record("model_call", "gpt"))) == (1, 2)
    assert broken(role("main", deny="refund"), trace(tool("refund"), tool("list"), record("retrieval", "kb"))) == (0,)
    assert broken(role("main", allow="retrieval", always=()), trace(record("claim", "claim"))) == (0,)


def test_a_predicate_sees_the_arguments() -> None:
    small = lambda item: item.action.name == "pay" and item.action.arguments.get("amount", 0) <= 50  # noqa: E731
    found = broken(
        role("main", allow=small), trace(*(record("tool_call", "pay", {"amount": n}) for n in (50, 51)))
    )  # fmt: skip
    assert found == (1,)


def test_what_is_remembered_of_a_name_does_not_decide_for_another_kind_or_other_arguments() -> None:
    named = role("main", allow=["tool_call:send", "kb"])
    steps = (tool("send"), record("delegation", "send"), tool("kb"), tool("send"), record("delegation", "send"))
    assert broken(named, trace(*steps)) == (1, 4)
    small = role("main", allow=[lambda item: item.action.arguments["amount"] < 9])
    assert broken(small, trace(*(record("tool_call", "pay", {"amount": amount}) for amount in (1, 10, 2, 10)))) == (1, 3)
    drifts = drift_below(Role(who=("main",), deny=(lambda item: item.action.arguments["amount"] > 9,)), eps=0.2, window=5)
    assert broken(drifts, trace(*(record("tool_call", "pay", {"amount": amount}) for amount in (1, 10, 2, 10)))) == (3,)


def test_a_role_is_held_by_whoever_acts_in_it_and_by_nobody_else() -> None:
    planner = role("planner", allow="delegation")
    acted = replace(tool("send", by="p-7"), role="planner")
    assert broken(planner, trace(acted, tool("send", by="planner"), tool("send", by="p-7"), tool("send", by="planner2"))) == (
        0,
        1,
    )
    (found,) = violations(planner, trace(acted))
    assert found.message == "p-7 (planner) performed tool_call send, which its role does not allow"
    assert (found.instance, found.wanted) == ("p-7", "one of delegation")


def test_a_blocked_action_was_attempted() -> None:
    (found,) = violations(role("main", allow="retrieval"), trace(tool("send", blocked=True)))
    assert found.stage == "attempted"


def test_a_blocking_role_stops_the_call_of_a_real_run() -> None:
    sent: list[str] = []

    @mat.tool(effect="write")
    def send_out(text: str) -> str:
        sent.append(text)
        return text

    with mat.run(contracts=[role("planner", allow="delegation", policy="block")]) as run:
        with mat.agent("p", role="planner"), pytest.raises(PermissionError):
            send_out(text="x")
        with mat.agent("m", role="mailer"):
            send_out(text="y")
    assert sent == ["y"]
    assert [(item.step, item.stage) for item in run.result.violations] == [(0, "attempted")]


# -- drift over a window --------------------------------------------------------------------------------------------------

READER = Role(who=("main",), allow=("retrieval",))


def acts(pattern: str) -> tuple[mat.Record, ...]:
    return trace(*(tool("send") if letter == "x" else record("retrieval", "kb") for letter in pattern))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("xx........", ()),
        ("xxx.......", (2,)),
        ("x.x.......x", ()),
        ("x........xx", ()),
        ("x.......xx", (9,)),
        ("xxxxxx....", (2, 5)),
        ("..........", ()),
        ("x.........x.........x", ()),
    ],
)
def test_drift_is_the_share_outside_the_role_among_the_last_actions(pattern: str, expected: tuple[int, ...]) -> None:
    assert broken(drift_below(READER, eps=0.2, window=10), acts(pattern)) == expected


@given(st.text(".x", max_size=60), st.integers(1, 12), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.29]))
def test_drift_agrees_with_a_count_over_the_whole_trace(pattern: str, window: int, eps: float) -> None:
    expected, begin = [], 0
    for end in range(1, len(pattern) + 1):
        if round(pattern[max(begin, end - window) : end].count("x") - eps * window, 9) > 0:
            expected.append(end - 1)
            begin = end
    assert list(broken(drift_below(READER, eps=eps, window=window), acts(pattern))) == expected


def test_each_agent_drifts_by_itself_and_who_has_no_role_does_not() -> None:
    roles = [READER, Role(who=("bo",), allow=("tool_call",))]
    steps = [tool("send"), tool("send", by="bo"), tool("send", by="al"), tool("send"), record("retrieval", "kb", agent="bo")]
    (found,) = violations(drift_below(roles, eps=0.25, window=4), trace(*steps))
    assert (found.step, found.instance, found.witness) == (3, "main", (0, 3))
    assert found.message == "main acted outside its role in 2 of its last 4 actions (at most 1 allowed): steps 0, 3"


def test_29_percent_of_100_actions_are_29() -> None:
    assert broken(drift_below(READER, eps=0.29, window=100), acts("x" * 29 + "." * 71)) == ()
    assert broken(drift_below(READER, eps=0.29, window=100), acts("x" * 30 + "." * 70)) == (29,)


@pytest.mark.full
def test_the_window_of_drift_is_bounded() -> None:
    found = sizes(drift_below(READER, eps=0.5, window=20), (replace(item, step=0) for item in acts("x.." * 4_000)))
    assert max(found[1_000:]) <= 1.2 * max(found[:1_000])  # a count grows by its digits
    assert sizes(drift_below(READER), acts("." * 100))[-1] == 2


# -- obligations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "cited"),
    [
        (record("message", "user", {"text": "It is in Lille."}), False),
        (record("message", "user", {"text": "It is in Lille [1]."}), True),
        (record("message", "user", {"text": "It is in Lille [1, 2]."}), True),
        (record("message", "user", {"text": "It is in Lille [kb: page 3]."}), True),
        (record("message", "user", {"text": "See https://post.example/17"}), True),
        (record("message", "user", {"text": "It is in Lille (passage:17)."}), True),
        (record("message", "user", {"text": "It is in [Lille]."}), False),
        (record("message", "user", {"text": "  "}), True),
        (record("message", "user", {"text": "It is in Lille."}, boundary="prompt"), True),
        (record("claim", "claim", {"text": "It is in Lille."}, supports=["passage:1"]), True),
        (record("claim", "claim", {"text": "It is in Lille."}), False),
        (record("final_response", "answer", {"answer": {"text": "Lille", "sources": ["kb"]}}), True),
        (record("final_response", "answer", {"answer": {"text": "Lille", "sources": []}}), False),
        (record("final_response", "answer", {"answer": ["Lille"]}), False),
        (record("final_response", "answer", {"answer": 17}), True),
        (record("tool_call", "write", {"text": "It is in Lille."}), True),
    ],
)
def test_what_a_role_says_has_a_link_or_a_citation(said: mat.Record, cited: bool) -> None:
    assert broken(cites_sources("main"), trace(said)) == (() if cited else (0,))


def test_links_only_own_patterns_and_texts_that_owe_nothing() -> None:
    numbered = trace(record("message", "user", {"text": "Lille [1]"}), record("message", "user", {"text": "Lille <a>"}))
    assert broken(cites_sources("main", pattern=None), numbered) == (0, 1)
    assert broken(cites_sources("main", pattern="<.>"), numbered) == (0,)
    greets = trace(record("message", "user", {"text": "Hello"}), record("message", "user", {"text": "17 parcels"}))
    assert broken(cites_sources("main", needs=lambda text: any(letter.isdigit() for letter in text)), greets) == (1,)
    assert broken(cites_sources("main", on="claim"), greets) == ()
    assert broken(cites_sources("writer"), greets) == ()


def test_a_derived_text_is_no_cited_one() -> None:
    derived = record("message", "user", {"text": "Lille"}, supports=["step#0"])
    linked = replace(derived, links=tuple(replace(link, rel="derived_from") for link in derived.links))
    assert broken(cites_sources("main"), trace(linked)) == (0,)


def test_external_calls_are_reported_by_name_or_effect_and_proposing_them_is_fine() -> None:
    ask = record("approval", "refund", {"order": "A1"}, value=True)
    steps = trace(ask, record("delegation", "cashier"), tool("refund", effect="write"), tool("look_up", effect="read"))
    assert broken(only_proposes_external_calls("main"), steps) == (2, 3)
    assert broken(only_proposes_external_calls("main", external="ref*"), steps) == (2,)
    assert broken(only_proposes_external_calls("main", effects="write"), steps) == (2,)
    assert broken(only_proposes_external_calls("main", external="look_up", effects="write"), steps) == (2, 3)
    assert broken(only_proposes_external_calls("main", external="other"), steps) == ()
    assert broken(only_proposes_external_calls("cashier"), steps) == ()
    (found,) = violations(only_proposes_external_calls("main"), trace(tool("refund", blocked=True)))
    assert (found.stage, found.message) == ("attempted", "main called refund, which it may only propose")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tool("pay", effect="write"), "main changed something outside by calling pay"),
        (tool("pay", effect="write", error="timeout"), "main may have changed something outside by calling pay"),
        (tool("pay", effect="write", error="timeout", invoked=0), ""),
        (tool("pay", effect="write", blocked=True), ""),
        (tool("pay", effect="read"), ""),
        (tool("pay", effect="write", by="bo"), ""),
        (record("memory_write", "notes", {"key": "k", "value": 1}, effect="write"), ""),
    ],
)
def test_a_side_effect_is_a_write_that_took_effect_or_may_have(call: mat.Record, message: str) -> None:
    found = violations(no_external_side_effects("main"), trace(call))
    assert [item.message for item in found] == ([message] if message else [])


def test_shared_memories_count_as_outside_where_asked_for() -> None:
    note = trace(record("memory_write", "notes", {"key": "k", "value": 1}, effect="write"))
    assert broken(no_external_side_effects("main", kinds=("tool_call", "memory_write")), note) == (0,)


# -- all ------------------------------------------------------------------------------------------------------------------


def test_records_without_the_usual_fields_are_passed_over() -> None:
    bare = trace(*(record(kind) for kind in ACTION_KINDS))
    contracts = [
        role("other", allow="message"), drift_below(Role(who=("other",), deny=("message",))), cites_sources("main"),
        only_proposes_external_calls("main", external="pay"), no_external_side_effects("main"),
    ]  # fmt: skip
    for contract in contracts:
        assert broken(contract, bare) == ()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: role("planner"), "allows everything"),
        (lambda: role("", allow="message"), "is empty or contains an empty name"),
        (lambda: role("planner", allow=[""]), "is not a kind, a name or a predicate"),
        (lambda: role("planner", allow=[7]), "is not a kind, a name or a predicate"),  # type: ignore[list-item]
        (lambda: role("planner", allow=["tool_cal:search"]), "did you mean 'tool_call'?"),
        (lambda: role("planner", deny=["tool_call:"]), "no name after its kind"),
        (lambda: drift_below([]), "is not a role"),
        (lambda: drift_below(READER, eps=1), "not a share below 1"),
        (lambda: drift_below(READER, window=0), "not an integer >= 1"),
        (lambda: cites_sources("a", pattern="("), "not a regular expression"),
        (lambda: only_proposes_external_calls("a", effects="writes"), "did you mean 'write'?"),  # type: ignore[arg-type]
        (lambda: no_external_side_effects("a", kinds="tools"), "unknown action kind"),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_mean_nothing_are_refused(make: Any, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        make()
    assert said in str(refused.value)
