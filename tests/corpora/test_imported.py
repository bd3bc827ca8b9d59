"""The recorded corpora next to the repository: every row imports, and says in our terms what its source says."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora.formats import FORMATS, read_traces

from mat.adapters.importers import StoredTrace
from mat.core.digest import canonical
from mat.core.record import Record, facts
from mat.core.site import BOUNDARIES, parse_site
from mat.core.value import thaw

Corpus = Callable[[str], Path]
TAU = "tau-bench/gpt-4o-airline.jsonl.gz"
CONTRACT = "tau-contract-agents/agentverify-retail-4conditions.jsonl.gz"
AGENTRX_TAU = "agentrx/tau-retail-failed-annotated.jsonl.gz"
AGENTRX_TEAMS = "agentrx/magentic-one-annotated.jsonl.gz"
WHOWHEN = "whowhen/whowhen.jsonl.gz"
MASSIM = "massim-otel/traces.jsonl.gz"
DOJO = "agentdojo-groundtruth/groundtruth-traces-v1.2.2.jsonl.gz"
BFCL = "bfcl-multiturn/bfcl_v4_multi_turn.jsonl.gz"
TAU2 = "tau2-tasks/tau2-tasks-airline-retail.jsonl.gz"
ROWS = {
    TAU: ("tau-bench", 124), CONTRACT: ("tau-contract-agents", 220), AGENTRX_TAU: ("agentrx", 19),
    AGENTRX_TEAMS: ("agentrx", 23), WHOWHEN: ("whowhen", 88), MASSIM: ("massim-otel", 16), DOJO: ("agentdojo-groundtruth", 71),
    BFCL: ("bfcl-multiturn", 396), TAU2: ("tau2-tasks", 91),
}  # fmt: skip


def source(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def pairs(path: Path) -> list[tuple[dict[str, Any], StoredTrace]]:
    return list(zip(source(path), read_traces(path), strict=True))


def calls_of(stored: StoredTrace) -> list[Record]:
    return [record for record in stored.records if record.action.kind == "tool_call"]


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_every_row_imports_as_a_sound_trace(corpus: Corpus, name: str) -> None:
    format, count = ROWS[name]
    ids = []
    for stored in read_traces(corpus(name)):
        records = tuple(stored.records)
        ids.append(stored.id)
        assert stored.labels["format"] == format
        assert [record.step for record in records] == list(range(len(records)))
        assert [record.asked_seq for record in records] == sorted({record.asked_seq for record in records})
        assert all(record.asked_seq < record.sealed_seq and record.at_ms <= record.sealed_ms for record in records)
        assert records[-1].action.kind == "termination"
        assert Counter(record.action.kind for record in records)["termination"] == 1
        assert len(stored.labels["source_steps"]) == len(records)
        for record in records:
            canonical(facts(record))
            if record.action.boundary in BOUNDARIES:
                assert parse_site(record.site).name == record.action.name
    assert len(ids) == count
    assert len(set(ids)) == count


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_each_file_is_of_exactly_one_format(corpus: Corpus, name: str) -> None:
    row = source(corpus(name))[0]
    assert [item.name for item in FORMATS if item.accepts(row)] == [ROWS[name][0]]


@pytest.mark.full
@pytest.mark.parametrize("name", [TAU, MASSIM, WHOWHEN])
def test_reading_twice_gives_the_same_traces(corpus: Corpus, name: str) -> None:
    path = corpus(name)
    for first, second in zip(read_traces(path), read_traces(path), strict=True):
        assert (first.id, first.labels, tuple(first.records)) == (second.id, second.labels, tuple(second.records))


@pytest.mark.full
@pytest.mark.parametrize("name", [TAU, CONTRACT, AGENTRX_TAU])
def test_every_message_and_call_of_a_conversation_is_in_a_step(corpus: Corpus, name: str) -> None:
    for row, stored in pairs(corpus(name)):
        first = 1 if name == AGENTRX_TAU else 0
        assert sorted(stored.labels["our_steps"]) == list(range(first, len(row["traj"]) + first))
        asked = [call["function"]["name"] for message in row["traj"] for call in message.get("tool_calls") or []]
        calls = calls_of(stored)
        assert [record.action.name for record in calls] == asked
        assert all("unparsed" not in record.action.arguments for record in calls)
        assert all(record.effected != "unknown" for record in calls)
        assert stored.labels["reward"] == row["reward"]


@pytest.mark.full
def test_refused_calls_of_tau_bench_are_those_whose_result_says_error(corpus: Corpus) -> None:
    for row, stored in pairs(corpus(TAU)):
        refused = sum(message["role"] == "tool" and message["content"].startswith("Error:") for message in row["traj"])
        found = [record for record in calls_of(stored) if record.observation.error is not None]
        assert len(found) == refused
        assert all(record.effected == "no" for record in found)


@pytest.mark.full
def test_crashes_of_the_contract_agents_are_labelled_and_nothing_else_is(corpus: Corpus) -> None:
    crashed = Counter()
    for row, stored in pairs(corpus(CONTRACT)):
        assert stored.labels["crashed"] == (not stored.finished) == row["crashed"]
        crashed[stored.labels["condition"]] += stored.labels["crashed"]
        if row["crashed"]:
            assert [record.action.name for record in stored.records] == ["exception"]
    assert crashed == {
        "tool-calling": 0, "preconditions-advice": 0, "assertions-pre-only": 4, "assertions-pre+post": 16,
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("name", "agree"), [(AGENTRX_TAU, 18), (AGENTRX_TEAMS, 23), (WHOWHEN, 87)])
def test_annotated_steps_are_steps_of_the_annotated_agent(corpus: Corpus, name: str, agree: int) -> None:
    """The two left over blame, in the source too, another agent than the one whose message they number."""
    found = 0
    for _, stored in pairs(corpus(name)):
        step, records = stored.labels["annotated_step"], tuple(stored.records)
        index = stored.labels["annotated_source_step"]
        assert stored.labels["our_steps"][index] == step
        assert records[step].agent != "harness"
        found += records[step].agent == stored.labels["annotated_agent"]
    assert found == agree


@pytest.mark.full
def test_annotated_steps_of_a_team_are_the_messages_the_source_counts(corpus: Corpus) -> None:
    for row, stored in pairs(corpus(WHOWHEN)):
        message = row["history"][int(row["mistake_step"])]
        record = tuple(stored.records)[stored.labels["annotated_step"]]
        texts = [*record.action.arguments.values(), record.observation.value]
        code = record.action.name == "execute_code"
        assert message["content"] in texts or code or record.action.kind in ("final_response", "termination")


@pytest.mark.full
def test_runs_of_mas_sim_carry_their_labels_and_times_but_no_sign_of_the_fault(corpus: Corpus) -> None:
    modes = Counter()
    for row, stored in pairs(corpus(MASSIM)):
        assert stored.id == row["run_id"]
        labels, records = stored.labels, tuple(stored.records)
        modes[labels["fault_mode"]] += 1
        assert labels["source_steps"][labels["annotated_step"]] == labels["annotated_source_step"]
        assert [item["source_step"] for item in labels["injected"]] == [labels["annotated_source_step"]]
        assert labels["injected"][0]["category"] not in repr(records)
        assert records[-1].sealed_ms > 1000
        assert [record.action.kind for record in records].count("model_call") == 4
    assert modes == {"system_failure": 5, "invalid_invocation": 2, "misinterpretation": 3, "invention": 2, "plan_adherence": 4}


@pytest.mark.full
def test_mas_sim_without_labels_next_to_has_no_annotation(corpus: Corpus, tmp_path: Path) -> None:
    alone = tmp_path / "traces.jsonl.gz"
    alone.write_bytes(corpus(MASSIM).read_bytes())
    assert all("annotated_step" not in stored.labels for stored in read_traces(alone))


@pytest.mark.full
def test_reference_solutions_of_agentdojo_hold_all_their_calls_with_results(corpus: Corpus) -> None:
    for row, stored in pairs(corpus(DOJO)):
        asked = [(call["function"], call["args"]) for message in row["messages"] for call in message.get("tool_calls") or []]
        calls = calls_of(stored)
        assert [(record.action.name, record.action.arguments) for record in calls] == asked
        assert all(record.effected == "yes" for record in calls)
        assert stored.labels["utility"] == row["utility"]


@pytest.mark.full
def test_reference_calls_of_bfcl_and_tau2_are_all_read(corpus: Corpus) -> None:
    for row, stored in pairs(corpus(BFCL)):
        calls = calls_of(stored)
        assert len(calls) == sum(map(len, row["ground_truth"]))
        assert all("unparsed" not in record.action.arguments for record in calls)
        turns = [turn for turn, texts in enumerate(row["ground_truth"]) for _ in texts]
        assert [stored.labels["source_steps"][record.step] for record in calls] == turns
    for row, stored in pairs(corpus(TAU2)):
        asked = [(action["name"], action["arguments"]) for action in row["evaluation_criteria"]["actions"]]
        assert [(record.action.name, record.action.arguments) for record in calls_of(stored)] == asked


@pytest.mark.full
def test_a_whole_file_as_one_array_gives_the_same_traces(corpus: Corpus, tmp_path: Path) -> None:
    array = tmp_path / "airline.json"
    array.write_text(json.dumps(source(corpus(TAU)), indent=2))
    for one, other in zip(read_traces(corpus(TAU)), read_traces(array), strict=True):
        assert (one.id, tuple(one.records)) == (other.id, tuple(other.records))


@pytest.mark.full
def test_one_run_of_tau_bench_reads_as_the_source_tells_it(corpus: Corpus) -> None:
    row, stored = pairs(corpus(TAU))[0]
    assert stored.id == f"task-{row['task_id']}/trial-{row['trial']}"
    for record, index in zip(stored.records, stored.labels["source_steps"], strict=True):
        if index is None:
            assert (record.agent, record.action.kind) == ("harness", "termination")
            continue
        message = row["traj"][index]
        if record.action.kind == "tool_call":
            assert message["tool_calls"][0]["function"]["name"] == record.action.name
            assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == record.action.arguments
        elif record.action.kind in ("message", "final_response"):
            assert message["content"] in record.action.arguments.values()
            assert message["role"] == record.agent


def test_conversations_of_a_real_model_give_each_call_its_arguments_and_its_result(corpus: Corpus) -> None:
    from mat.adapters.importers.chat import FORMAT

    total = 0
    for number, row in enumerate(source(corpus(TAU))):
        (stored,) = FORMAT.traces(iter([(f"rows:{number}", {"messages": row["traj"]})]))
        asked = [call["function"] for message in row["traj"] for call in message.get("tool_calls") or ()]
        answers = [message["content"] for message in row["traj"] if message["role"] == "tool"]
        for call, made, answer in zip(calls_of(stored), asked, answers, strict=True):  # one call a message, answered at once
            assert (call.action.name, thaw(call.action.arguments)) == (made["name"], json.loads(made["arguments"]))
            value = thaw(call.observation.value)
            assert value == answer or value == json.loads(answer), f"run {number}"
        total += len(asked)
    assert total == 607
