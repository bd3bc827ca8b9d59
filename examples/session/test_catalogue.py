"""The catalogue and its settings, and properties of all session contracts."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
import session.contracts
from mat.core.digest import canonical, plain
from mat.core.record import ACTION_KINDS, ErrorFact, Observation
from mat.core.value import snapshot
from mat.monitor.judge import judge
from mat_contracts.traces import record, trace
from session.__main__ import main
from session.contracts import (
    GUARANTEES,
    SessionConfig,
    SessionTool,
    Target,
    session_config,
    session_contract,
    session_contracts,
)
from session.contracts.markup import instructions, responses, tags
from session.contracts.parsing import parsed, repaired, schema_problem, unfolded
from session.scenarios import CONFIG, SCENARIOS

MODULES = [
    importlib.import_module(f"session.contracts.{info.name}") for info in pkgutil.iter_modules(session.contracts.__path__)
]
EVERYTHING = ("result", "request", "log")


@pytest.mark.parametrize("module", [session.contracts, *MODULES], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_run(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_ids_are_family_and_name_and_texts_are_sentences() -> None:
    for item in GUARANTEES:
        assert re.fullmatch(r"session\.[a-z]+\.[a-z0-9_]+", item.id), item.id
        assert len(item.text) > 20, item.id
        assert len(item.repair) > 10, item.id
        assert re.match(r"(?:[1-7]|9|11) ?", item.section), item.id


def test_the_catalogue_that_is_printed_has_every_guarantee_with_its_mark(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    rows = re.findall(r"^(session\.[a-z_.0-9]+)  \[(result|request|log)\] section ", capsys.readouterr().out, re.MULTILINE)
    assert sorted(rows) == sorted((item.id, item.observable) for item in GUARANTEES)
    assert len(rows) > 150


def test_every_contract_has_an_id_a_text_and_a_repair_that_can_be_given() -> None:
    made = session_contract("session.limits.max_turns", config=CONFIG)
    assert (made.id, made.severity, made.weight, made.policy) == ("session.limits.max_turns", "hard", 10.0, "observe")
    own = session_contract(
        "session.limits.max_turns", config=CONFIG, id="own", severity="soft", weight=3.0, policy="block", repair="stop"
    )
    assert (own.id, own.severity, own.weight, own.policy, own.repair) == ("own", "soft", 3.0, "block", "stop")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SessionConfig(max_turns=0),
        lambda: SessionConfig(max_retries=True),
        lambda: SessionConfig(context_window=100, max_output_tokens=100),
        lambda: SessionConfig(transport="soap"),  # type: ignore[arg-type]
        lambda: SessionConfig(targets=(Target(provider="a", model="m"), Target(provider="a", model="m"))),
        lambda: SessionConfig(tools=(SessionTool(name="a"), SessionTool(name="a"))),
        lambda: SessionConfig(queues={"web": 0}),  # type: ignore[arg-type]
        lambda: SessionConfig(reasoning={"reasonning_effort": "high"}),  # type: ignore[arg-type]
        lambda: session_config({"maxTurn": 3}),
        lambda: session_config({"targets": [{"provider": "a"}]}),
        lambda: session_contracts(SessionConfig(), observable="results"),  # type: ignore[arg-type]
        lambda: session_contract("session.limits.max_turn", config=CONFIG),
        lambda: session_contract("session.limits.max_turns", config=SessionConfig()),
        lambda: session_contract("session.transport.tags_run", config=CONFIG),
    ],
)
def test_a_setting_that_cannot_mean_anything_is_refused_with_a_way_out(wrong: Any) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()
    assert caught.value.what
    assert caught.value.fix


def test_several_mistakes_are_named_in_one_go() -> None:
    with pytest.raises(mat.MatError, match=r"max_turns.*max_retries.*transport"):
        SessionConfig(max_turns=0, max_retries=-1, transport="soap")  # type: ignore[arg-type]


def test_the_documents_own_names_are_understood() -> None:
    assert session_config({"maxTurns": 3, "toolTimeout": 500, "contextWindowBufferTokens": 7}) == SessionConfig(
        max_turns=3, tool_timeout_ms=500, buffer_tokens=7
    )


def test_what_is_not_configured_and_what_belongs_to_another_transport_is_not_armed() -> None:
    bare = {contract.id for contract in session_contracts(SessionConfig(), observable=EVERYTHING)}
    assert "session.limits.max_turns" not in bare
    assert "session.result.always" in bare
    native = {contract.id for contract in session_contracts(CONFIG, observable=EVERYTHING)}
    assert "session.transport.tags_run" not in native
    assert "session.transport.tags_run" in {contract.id for contract in session_contracts(replace(CONFIG, transport="xml"))}


def test_a_trace_that_is_no_session_breaks_nothing() -> None:
    other = trace(
        record("tool_call", "refund", {"order": "A1"}, value={"ok": True}),
        record("memory_write", "notes", {"key": "a", "value": {"role": "x"}}),
        record("message", "user", {"text": "hello"}),
        record("final_response", "answer", {"answer": "done"}),
        record("termination", "implicit"),
    )
    for transport in ("native", "xml-final", "xml"):
        _, outcomes = judge(other, session_contracts(replace(CONFIG, transport=transport), observable=EVERYTHING))
        wrong = {item.contract: item.violations for item in outcomes if item.violations or item.error}
        assert set(wrong) <= {"session.accounting.tool_entry"}  # a tool that ran in a session without an accounting entry


# -- robustness: whatever a record contains, a contract passes or reports a violation, and never raises ------------------------

SCALARS = st.none() | st.booleans() | st.integers(-9, 99) | st.floats(allow_nan=False) | st.text(max_size=8)
NAMES = st.sampled_from(
    [
        "role",
        "content",
        "toolCalls",
        "toolCallId",
        "id",
        "name",
        "arguments",
        "type",
        "status",
        "tokens",
        "inputTokens",
        "latency",
        "error",
        "event",
        "provider",
        "model",
        "messages",
        "tools",
        "session",
        "turn",
        "context",
        "current",
        "pending",
        "schema",
        "usage",
        "layers",
        "merged",
        "values",
        "source",
        "env",
        "queues",
        "mcpServers",
        "success",
        "finalReport",
        "exitCode",
        "metadata",
        "output",
        "results",
    ]
)
TEXTS = st.sampled_from(
    [
        "assistant",
        "tool",
        "user",
        "system",
        "ok",
        "failed",
        "llm",
        "[TRUNCATED] Original size",
        "(tool failed: x)",
        "${A}",
        "default",
        "json",
        '<ai-agent-5e551011-0001 tool="search">{"query": 1',
        '<ai-agent-5e551011-FINAL tool="agent__final_report">',
        "agent__final_report",
        "System Notice: tool response for 5e551011-0001 (search)\nresponse:\nx",
        "cwd",
        "agent__batch",
        "{",
        "context_guard",
        "llm_request_prepared",
    ]
)
VALUES = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)


@st.composite
def _records(draw: Any) -> mat.Record:
    kind = draw(
        st.sampled_from(["model_call", "tool_call", "memory_write", "final_response", "termination", "message", *ACTION_KINDS])
    )
    name = draw(
        st.sampled_from(["conversation", "accounting", "log", "configuration", "user", "search", "llm", "agent__final_report"])
    )
    key = {"memory_write": "value", "final_response": "answer", "termination": "answer"}.get(kind)
    arguments = (
        draw(st.dictionaries(NAMES, VALUES, max_size=6))
        if key is None
        else {key: draw(st.dictionaries(NAMES, VALUES, max_size=6))}
    )
    made = record(kind, name, arguments)
    error = draw(st.none() | st.sampled_from(["auth", "rate_limit", "timeout", ""]))
    observation = Observation(value=snapshot(draw(st.dictionaries(NAMES, VALUES, max_size=6) | VALUES)))
    if error is not None:
        observation = Observation(error=ErrorFact(type="E", message="Retry-After: 3", kind=error))
    return replace(made, observation=observation)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(_records(), max_size=12),
    st.sampled_from(["native", "xml-final", "xml"]),
    st.sampled_from(["json", "markdown", "slack"]),
)
def test_no_record_makes_a_contract_raise(records: list[mat.Record], transport: str, format: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    config = replace(CONFIG, transport=transport, expected_output_format=format, output_schema=schema)
    _, outcomes = judge(trace(*records), session_contracts(config, observable=EVERYTHING))
    assert [item.error for item in outcomes if item.error] == []


# -- laws of the folds ---------------------------------------------------------------------------------------------------------


def _cases() -> Iterator[Any]:
    for name in ("plain", "overflow", "all limited", "cut off", "batch"):
        for transport in SCENARIOS[name].transports:
            yield pytest.param(name, transport, id=f"{name}, {transport}")


@pytest.mark.parametrize(("name", "transport"), list(_cases()))
def test_judging_online_and_offline_says_the_same(name: str, transport: str) -> None:
    armed = session_contracts(
        replace(SCENARIOS[name].config(transport), max_turns=1, tool_response_max_bytes=5), observable=EVERYTHING
    )
    with mat.run(armed) as run:
        SCENARIOS[name].run(transport)
    assert run.result is not None
    _, offline = judge(run.trace, armed)
    assert run.result.outcomes == offline
    assert run.result.violations


def test_a_state_has_a_canonical_form_and_does_not_grow_with_the_session() -> None:
    with mat.run() as run:
        SCENARIOS["plain"].run("native")
    turn = [item for item in run.trace if item.action.kind not in ("final_response", "termination")]
    long = [replace(item, step=step) for step, item in enumerate(turn * 30)]
    for contract in session_contracts(CONFIG, observable=EVERYTHING):
        state, sizes = contract.start, []
        for count, item in enumerate(long):
            if contract.kinds is not None and item.action.kind not in contract.kinds:
                continue
            new = contract.step(state, item)
            state = new.state if isinstance(new, mat.Violated) else new
            if count % 20 == 0:
                sizes.append(len(canonical(plain(state))))
        half = len(sizes) // 2
        assert max(sizes[half:]) <= max(sizes[:half]) * 1.2 + 40, contract.id


def test_two_sessions_judged_in_turn_do_not_mix() -> None:
    armed = {
        transport: session_contracts(replace(CONFIG, transport=transport), observable=EVERYTHING)
        for transport in ("native", "xml")
    }
    traces = {}
    for transport in armed:
        with mat.run() as run:
            SCENARIOS["plain"].run(transport)
        traces[transport] = run.trace
    states = {transport: [contract.start for contract in found] for transport, found in armed.items()}
    for pair in zip(traces["native"], traces["xml"], strict=False):
        for transport, item in zip(armed, pair, strict=True):
            for index, contract in enumerate(armed[transport]):
                if contract.kinds is None or item.action.kind in contract.kinds:
                    new = contract.step(states[transport][index], item)
                    assert not isinstance(new, mat.Violated), (contract.id, new)
                    states[transport][index] = new


def test_an_open_session_says_what_it_waits_for() -> None:
    with mat.run() as run:
        SCENARIOS["plain"].run("native")
    contracts = {contract.id: contract for contract in session_contracts(CONFIG)}
    always = contracts["session.result.always"]
    state = always.start
    for item in run.trace[:-1]:
        if always.kinds is not None and item.action.kind in always.kinds:
            state = always.step(state, item)
    assert always.obligations is not None
    assert [item.text for item in always.obligations(state)] == ["an AIAgentResult"]
    assert always.obligations(always.start) == ()


# -- the texts -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1', {"a": 1}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": "b', {"a": "b"}),
        ("{'a': 'b'}", {"a": "b"}),
        ("{a: 1,}", {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure! {"a": {"b": 2}} and more', {"a": {"b": 2}}),
        ("number one", None),
        ('{"a" 1}', None),
        ('["a"]', None),
    ],
)
def test_repair_mends_what_has_one_meaning_and_nothing_else(raw: str, wanted: dict[str, Any] | None) -> None:
    found = parsed(raw) or repaired(raw)
    assert found == wanted


def test_json_comes_before_repair() -> None:
    assert parsed('{"a": "x,}"}') == {"a": "x,}"}
    assert parsed("{a: 1}") is None


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        ({"a": 1}, {"type": "object", "required": ["a"]}, ""),
        ({}, {"type": "object", "required": ["a"]}, "a is missing"),
        ({"a": True}, {"properties": {"a": {"type": "integer"}}}, "a is no integer"),
        ({"a": [1, "b"]}, {"properties": {"a": {"items": {"type": "integer"}}}}, "a[1] is no integer"),
        ({"a": 1}, {"properties": {}, "additionalProperties": False}, "a is not known"),
        ("x", {"enum": ["y"]}, "the value is none of ['y']"),
        (1, {"type": ["integer", "null"]}, ""),
        (1, None, ""),
    ],
)
def test_the_schema_check_names_the_first_problem(value: Any, schema: Any, problem: str) -> None:
    assert schema_problem(value, schema) == problem


def test_stringified_json_is_unfolded_only_where_the_schema_wants_it() -> None:
    schema = {"properties": {"a": {"type": "object"}, "b": {"type": "string"}}}
    assert unfolded({"a": '{"x": 1}', "b": '{"x": 1}'}, schema) == {"a": {"x": 1}, "b": '{"x": 1}'}


def test_tags_are_found_by_substring_and_an_open_one_ends_at_the_next() -> None:
    closed = 'a <ai-agent-5e551011-0001 tool="x">1 <b> & 2</ai-agent-5e551011-0001>'
    text = closed + ' <ai-agent-5e551011-0002 tool="y">3 <ai-agent-5e551011-FINAL tool="z">4'
    assert [(tag.slot, tag.tool, tag.payload.strip(), tag.closed) for tag in tags(text)] == [
        ("5e551011-0001", "x", "1 <b> & 2", True),
        ("5e551011-0002", "y", "3", False),
        ("5e551011-FINAL", "z", "4", False),
    ]


def test_a_user_message_may_carry_several_responses() -> None:
    notice = "System Notice: tool response for 5e551011"
    text = f"{notice}-0001 (a)\nresponse:\none\n{notice}-0002 (b)\nresponse:\ntwo"
    assert [(item.slot, item.tool, item.text.split()[-1]) for item in responses(text)] == [
        ("5e551011-0001", "a", "one"),
        ("5e551011-0002", "b", "two"),
    ]


def test_instructions_are_known_by_their_final_slot() -> None:
    found = instructions('<ai-agent-5e551011-0004 tool="NAME"> <ai-agent-5e551011-FINAL tool="agent__final_report">')
    assert found is not None
    assert (found.nonce, found.slots, found.progress) == ("5e551011", ("5e551011-0004",), False)
    assert instructions("nothing of that kind") is None
