"""The reference session keeps every guarantee, whatever happens to it, in all three transports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mat
from mat_contracts import one_entry_per_attempt, tool_calls_well_formed
from mat_contracts.traces import broken, violations
from session.checking import check
from session.configuration import MissingVariableError, Places, QueueError, load
from session.contracts import GUARANTEES, session_config, session_contracts
from session.orchestrator import Keeps, Session
from session.provider import Provider, Says
from session.scenarios import CONFIG, SCENARIOS, TOOLS, Scenario
from session.transports import TagStream

TRANSPORTS = ("native", "xml-final", "xml")
CASES = [
    pytest.param(name, transport, id=f"{name}, {transport}") for name in SCENARIOS for transport in SCENARIOS[name].transports
]
EVERYTHING = ("result", "request", "log")


class TestEveryScenario:
    @pytest.fixture
    def scenario(self, name: str) -> Scenario:
        return SCENARIOS[name]

    @pytest.fixture
    def mat_contracts(self, scenario: Scenario, transport: str) -> list[mat.Contract]:
        return session_contracts(scenario.config(transport), observable=EVERYTHING)

    @pytest.mark.parametrize(("name", "transport"), CASES)
    def test_the_session_keeps_all_its_guarantees(self, mat_run: Any, scenario: Scenario, transport: str) -> None:
        result = scenario.run(transport)
        report = result.final_report or {}
        assert result.success is scenario.success
        assert result.exit_code == (0 if scenario.success else 1)
        assert (report.get("metadata") or {}).get("reason", "") == scenario.reason

    @pytest.mark.parametrize(("name", "transport"), CASES)
    def test_its_result_alone_passes_too(self, scenario: Scenario, transport: str) -> None:
        with mat.run():
            result = scenario.run(transport)
        checked = check(json.dumps(result.as_dict()), scenario.config(transport), GUARANTEES)
        assert checked.violations == ()
        assert [item.error for item in checked.outcomes if item.error] == []


def played(name: str, transport: str = "native") -> tuple[Any, tuple[mat.Record, ...]]:
    with mat.run() as run:
        result = SCENARIOS[name].run(transport)
    return result, run.trace


def attempts(trace: tuple[mat.Record, ...]) -> list[mat.Record]:
    return [record for record in trace if record.action.kind == "model_call"]


def answers(result: Any) -> list[str]:
    return [item["content"] for item in result.conversation if item["role"] == "tool"]


def test_what_the_library_says_of_any_session_holds_of_this_one() -> None:
    for name in SCENARIOS:
        _, trace = played(name)
        entries = one_entry_per_attempt("llm", entry="accounting", fields={"type": "llm"})
        assert broken(entries, trace) == (), name
        garbled = [item.message for item in violations(tool_calls_well_formed(), trace) if "are not an object" in item.message]
        assert bool(garbled) == (name in ("unreadable arguments", "repaired arguments")), (name, garbled)


# -- the scenarios do what their names say -----------------------------------------------------------------------------------


def test_attempts_go_round_robin_and_limited_targets_rest() -> None:
    _, trace = played("all limited")
    asked = [(record.action.arguments["provider"], record.at_ms) for record in attempts(trace)]
    assert asked == [("alpha", 0), ("beta", 200), ("alpha", 7_400), ("beta", 7_600), ("alpha", 9_800)]


def test_back_off_doubles_up_to_a_minute() -> None:
    _, trace = played("one target limited")
    starts = [record.at_ms for record in attempts(trace)]
    assert [later - earlier - 200 for earlier, later in pairwise(starts)] == [
        1_000,
        2_000,
        4_000,
        8_000,
        16_000,
        32_000,
        60_000,
        60_000,
    ]


def test_a_fatal_error_ends_the_session_with_its_reason() -> None:
    result, trace = played("auth")
    assert (result.success, result.final_report, result.exit_code) == (False, None, 1)
    assert "invalid API key" in result.error
    assert len(attempts(trace)) == 2


def test_failed_attempts_are_no_turns() -> None:
    result, trace = played("failed turns")
    assert [record.action.arguments["session"]["turn"] for record in attempts(trace)] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert result.final_report["metadata"] == {"reason": "max_turns_exhausted"}


def test_a_response_above_the_limit_is_cut_with_its_notice() -> None:
    result, _ = played("truncation")
    assert answers(result)[0].startswith("[TRUNCATED] Original size 1800 bytes; truncated to 1024 bytes.\nää")
    assert answers(result)[1] == "b" * 1_024


def test_a_slow_tool_is_aborted_and_the_other_one_answers() -> None:
    result, trace = played("timeout")
    assert answers(result) == ["kettles boil water", "(tool failed: timeout)"]
    assert [record.sealed_ms - record.at_ms for record in trace if record.action.name == "search"] == [5_000]


def test_an_overflow_forces_the_final_turn() -> None:
    result, trace = played("overflow")
    assert "(tool failed: context window budget exceeded)" in answers(result)
    assert [[tool["name"] for tool in record.action.arguments["tools"]] for record in attempts(trace)][1:] == [
        ["agent__final_report"]
    ] * 2
    (entry,) = [item for item in result.accounting if "originalTokens" in item]
    assert entry["originalTokens"] > 3_000 > entry["replacementTokens"]


def test_no_tool_starts_after_an_overflow_though_it_waited_for_its_slot() -> None:
    result, trace = played("overflow while others wait")
    assert [record.action.name for record in trace if record.action.kind == "tool_call"] == ["search", "agent__final_report"]
    assert answers(result).count("(tool failed: no further tools may start)") == 2


def test_a_prompt_that_is_too_long_goes_out_restricted() -> None:
    _, trace = played("preflight")
    assert [tool["name"] for tool in attempts(trace)[0].action.arguments["tools"]] == ["agent__final_report"]


def test_empty_replies_are_retried_with_a_notice_that_is_never_stored() -> None:
    result, trace = played("empty")
    notices = [
        [item["content"] for item in record.action.arguments["messages"] if item["content"].startswith("System notice:")]
        for record in attempts(trace)
    ]
    assert [len(item) for item in notices] == [0, 1, 1]
    assert "System notice" not in json.dumps(result.conversation)


def test_slots_go_on_from_turn_to_turn_and_the_nonce_stays() -> None:
    _, trace = played("plain", "xml")
    ids = [record.action.arguments["call_id"] for record in trace if record.action.kind == "tool_call"]
    assert ids == ["5e551011-0001", "5e551011-0002", "5e551011-0003", "5e551011-FINAL"]


@pytest.mark.parametrize(
    ("transport", "tools", "choice"), [("native", 4, "required"), ("xml-final", 3, "auto"), ("xml", 0, "auto")]
)
def test_each_transport_shows_the_provider_what_it_should(transport: str, tools: int, choice: str) -> None:
    _, trace = played("plain", transport)
    first = attempts(trace)[0].action.arguments
    assert (len(first["tools"]), first["tool_choice"]) == (tools, choice)


def test_a_report_that_was_cut_off_is_asked_for_again() -> None:
    result, trace = played("cut off", "xml")
    assert len(attempts(trace)) == 2
    assert result.final_report["content"] == "Kettles boil water."


def test_the_last_of_two_reports_counts() -> None:
    result, _ = played("two reports", "xml-final")
    assert result.final_report["content"] == "The answer."


def test_the_user_sees_the_report_grow_without_markup() -> None:
    _, trace = played("long report", "xml")
    shown = "".join(record.action.arguments["text"] for record in trace if record.action.kind == "message")
    assert shown == "Kettles. " * 400


@pytest.mark.parametrize("size", [1, 3, 7, 200])
def test_a_stream_shows_the_same_however_it_is_cut(size: int) -> None:
    text = 'Well, <ai-agent-00000000-FINAL tool="x">a < b and </ai-agent-0 c</ai-agent-00000000-FINAL> done'
    stream = TagStream("00000000-FINAL")
    shown = "".join(stream.feed(text[start : start + size]) for start in range(0, len(text), size)) + stream.rest()
    assert shown == "a < b and </ai-agent-0 c"


def test_the_session_is_plain_code_outside_a_run() -> None:
    scenario = Scenario(script=(Says(report=("Hello.",)),))
    assert scenario.run("native").success


def test_one_promise_that_is_not_kept_is_one_contract_broken() -> None:
    scenario = SCENARIOS["network"]
    with mat.run(session_contracts(scenario.config("native"))) as run:
        scenario.run("native", Keeps(round_robin=False))
    assert {violation.contract for violation in run.violations} == {"session.limits.round_robin"}


# -- a configuration from files ----------------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("cwd", "prompt", "binary", "home/.ai-agent", "etc/ai-agent"):
        (tmp_path / name).mkdir(parents=True)
    return Places(
        cwd=tmp_path / "cwd", prompt=tmp_path / "prompt", binary=tmp_path / "binary", home=tmp_path / "home", root=tmp_path
    )


@pytest.fixture
def write(places: Places) -> Callable[..., None]:
    def writes(source: str, values: dict[str, Any], env: str = "") -> None:
        path = dict(places.files())[source]
        path.write_text(json.dumps(values))
        (path.parent / ".ai-agent.env").write_text(env)

    return writes


LOADS = session_contracts(session_config({}), observable=EVERYTHING)


def test_higher_layers_win_and_three_keys_are_merged_deeply(places: Places, write: Callable[..., None]) -> None:
    write("cwd", {"maxTurns": 3, "providers": {"alpha": {"url": "http://${HOST}"}}, "limits": {"a": 1}}, env="HOST=inner")
    write(
        "home",
        {"maxTurns": 9, "maxRetries": 2, "providers": {"alpha": {"url": "x", "key": "k"}, "beta": {}}, "limits": {"b": 2}},
    )
    write(
        "system", {"mcpServers": {"web": {"env": {"A": "${NOT_SET}"}, "queue": "slow"}}, "queues": {"slow": {"concurrent": 1}}}
    )
    with mat.run(LOADS) as run:
        merged = load(places, {"HOST": "outer"})
    assert (merged["maxTurns"], merged["maxRetries"], merged["limits"]) == (3, 2, {"a": 1})
    assert merged["providers"] == {"alpha": {"url": "http://inner", "key": "k"}, "beta": {}}
    assert merged["mcpServers"]["web"]["env"] == {"A": "${NOT_SET}"}
    assert merged["queues"] == {"slow": {"concurrent": 1}, "default": {"concurrent": 4}}
    assert run.violations == ()


def test_a_parameter_of_a_rest_tool_is_left_to_the_runtime(places: Places, write: Callable[..., None]) -> None:
    write("binary", {"restTools": {"find": {"body": "q=${parameters.q}&k=${KEY}"}}})
    with mat.run(LOADS) as run:
        assert load(places, {"KEY": "7"})["restTools"]["find"]["body"] == "q=${parameters.q}&k=7"
    assert run.violations == ()


def test_an_unresolved_name_stops_the_start_and_names_its_layer(places: Places, write: Callable[..., None]) -> None:
    write("prompt", {"x": "${NOPE}"})
    with mat.run(LOADS) as run:
        with pytest.raises(MissingVariableError, match=r"NOPE .*prompt"):
            load(places, {})
        result = Session(CONFIG, Provider(()), TOOLS).refused("NOPE is not defined", exit_code=4)
    assert result.exit_code == 4
    assert run.violations == ()


def test_a_binding_to_a_queue_that_does_not_exist_stops_the_start(places: Places, write: Callable[..., None]) -> None:
    write("cwd", {"restTools": {"find": {"queue": "slow"}}})
    with mat.run(LOADS) as run, pytest.raises(QueueError, match="slow"):
        load(places, {})
    assert run.violations == ()


def test_a_loaded_configuration_drives_a_session(places: Places, write: Callable[..., None]) -> None:
    write(
        "cwd",
        {"maxTurns": 1, "maxRetries": 1, "expectedOutputFormat": "markdown", "targets": [{"provider": "alpha", "model": "a1"}]},
    )
    merged = load(places, {})
    config = session_config({name: item for name, item in merged.items() if name != "queues"})
    with mat.run(session_contracts(config)) as run:
        result = asyncio.run(Session(config, Provider((Says(report=("Hello.",)),)), {}).run("Say hello."))
    assert result.success
    assert run.violations == ()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_run_is_the_same_every_time(transport: str) -> None:
    heads = set()
    for _ in range(2):
        with mat.run() as run:
            SCENARIOS["overflow"].run(transport)
        assert run.result is not None
        heads.add(run.result.head)
    assert len(heads) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "fault", [{"operator": "service.timeout"}, {"operator": "service.error", "kind": "server_error"}], ids=["timeout", "error"]
)
def test_a_final_report_that_cannot_be_executed_is_accounted_told_and_tried_once_more(
    transport: str, fault: dict[str, str]
) -> None:
    scenario = Scenario(script=(Says(report=("Hello.",)), Says(report=("Hello again.",))))
    operator, parameters = fault["operator"], {name: item for name, item in fault.items() if name != "operator"}
    lost = mat.spec.perturbation(operator, "main/service:agent__final_report#1", parameters)
    with mat.run(session_contracts(scenario.config(transport), observable=EVERYTHING), schedule=[lost]) as run:
        result = scenario.run(transport)
    assert run.result is not None
    assert run.result.unreached == ()
    assert run.violations == ()
    assert [item["status"] for item in result.accounting if item["type"] == "tool"] == ["failed", "ok"]
    assert result.final_report is not None
    assert result.final_report["content"] == "Hello again."
