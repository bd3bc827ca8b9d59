from __future__ import annotations

import json
from dataclasses import replace

import pytest
from corpora import reference
from corpora import report as reporting
from corpora.formats import read_traces
from corpora.measure import DATA, by_contracts, by_first_error, flags, judged, located
from corpora.report import corpora, report

from mat.adapters.importers.base import read_rows
from mat.monitor.judge import judge

NAMES = [corpus.name for corpus in corpora()]
REFERENCES = [corpus.name for corpus in corpora() if corpus.reference]


def of(name):
    return next(corpus for corpus in corpora() if corpus.name == name)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_judged_and_no_contract_raises(runs, name):
    found = runs(name)
    rows = sum(1 for _ in read_rows(DATA / of(name).path))
    kept = sum(of(name).keep(stored.labels) for stored in read_traces(DATA / of(name).path))
    assert len(found) == kept
    assert kept == rows or name.startswith("whowhen")
    assert [error for run in found for error in run.errors] == []


@pytest.mark.full
def test_the_two_parts_of_whowhen_are_all_of_its_rows(runs):
    parts = runs("whowhen group chats"), runs("whowhen magentic-one")
    assert sum(map(len, parts)) == sum(1 for _ in read_rows(DATA / "whowhen/whowhen.jsonl.gz"))


def hits(runs, namer):
    estimate = located(runs, namer).near[0]
    return round(estimate.value * estimate.n)


@pytest.mark.full
def test_contracts_name_the_faulty_step_more_often_than_the_first_error_span(runs):
    found = runs("massim-otel")
    assert hits(found, by_first_error) == 5
    assert hits(found, by_contracts) >= 16
    unseen = [run for run in found if run.half == "report"]
    assert hits(unseen, by_contracts) >= 10


@pytest.mark.full
def test_silent_faults_that_no_error_span_shows_are_named(runs):
    silent = [run for run in runs("massim-otel") if run.first_error is None]
    assert len(silent) == 9
    assert hits(silent, by_contracts) >= 9


@pytest.mark.full
def test_no_step_before_the_fault_is_blamed(runs):
    early = [
        (run.id, finding) for run in runs("massim-otel") for finding in run.findings if run.steps[finding.step][0] < run.truth
    ]
    assert early == []


@pytest.mark.full
def test_runs_repaired_by_what_was_expected_break_nothing(runs):
    runs("massim-otel")
    corpus = of("massim-otel")
    for stored in read_traces(DATA / corpus.path):
        failed = any(record.observation.error for record in stored.records)
        left = broken(reporting.repaired(stored), corpus.contracts(stored))
        assert left == ({"catalog.tool_answers"} if failed else set()), stored.id


@pytest.mark.full
@pytest.mark.parametrize("name", REFERENCES)
def test_reference_solutions_break_no_hard_contract(runs, name):
    assert [(run.id, finding) for run in runs(name) for finding in run.findings if finding.hard] == []


@pytest.mark.full
def test_words_of_the_user_ask_for_the_writes_of_most_reference_solutions(runs):
    loud = {run.id for run in runs("agentdojo reference") if run.findings}
    assert len(loud) <= 4


def gold(path, wanted):
    for stored in read_traces(DATA / path):
        records = list(stored.records)
        if wanted(records):
            return records
    pytest.fail("no such gold sequence")


def names(records):
    return [record.action.name for record in records]


def broken(records, contracts):
    """Ids of contracts that the records break, numbered anew."""
    placed = [replace(item, step=step, asked_seq=2 * step, sealed_seq=2 * step + 1) for step, item in enumerate(records)]
    return {outcome.contract for outcome in judge(placed, contracts)[1] if outcome.violations}


@pytest.mark.full
def test_a_gold_sequence_without_its_brake_is_caught(runs):
    runs("bfcl reference")
    records = gold("bfcl-multiturn/bfcl_v4_multi_turn.jsonl.gz", lambda records: "startEngine" in names(records))
    assert broken(records, reference.bfcl()) == set()
    without = [record for record in records if record.action.name != "pressBrakePedal"]
    assert broken(without, reference.bfcl()) == {"order.brake_before_engine"}


@pytest.mark.full
def test_a_gold_sequence_whose_cancellation_comes_first_is_caught(runs):
    runs("tau2 reference")
    path = "tau2-tasks/tau2-tasks-airline-retail.jsonl.gz"
    records = gold(path, lambda records: "modify_pending_order_items" in names(records))
    change = next(record for record in records if record.action.name == "modify_pending_order_items")
    assert broken(records, reference.tau2()) == set()
    assert "order.items_last" in broken([*records, change], reference.tau2())


@pytest.mark.full
def test_a_call_of_another_suite_is_caught(runs):
    runs("agentdojo reference")
    path = "agentdojo-groundtruth/groundtruth-traces-v1.2.2.jsonl.gz"
    banking = gold(path, lambda records: "send_money" in names(records))
    assert "privilege.suite" not in broken(banking, reference.agentdojo("banking", user_task=False))
    assert "privilege.suite" in broken(banking, reference.agentdojo("travel", user_task=False))


@pytest.mark.full
def test_crashed_runs_are_counted_apart(runs):
    found = runs("tau-contract-agents retail")
    crashed = [run for run in found if run.labels["crashed"]]
    assert len(crashed) == 20
    assert {run.failed for run in crashed} == {None}
    assert flags(found).base.n == len(found) - len(crashed)


@pytest.mark.full
def test_verdicts_do_not_depend_on_labels(runs):
    runs("massim-otel")
    corpus = of("massim-otel")
    for stored in read_traces(DATA / corpus.path):
        without = replace(stored, labels={"source_steps": stored.labels["source_steps"]})
        told = judged(stored, corpus.contracts(stored), corpus.failed)
        assert judged(without, corpus.contracts(without), corpus.failed).findings == told.findings


@pytest.mark.full
def test_the_report_prints_tables_and_gives_the_same_numbers(runs, capsys):
    runs("massim-otel")
    numbers = report(of("massim-otel"))
    printed = capsys.readouterr().out
    assert json.loads(json.dumps(numbers)) == numbers
    assert numbers["faults"]["kinds"]["all"]["exact"] >= 16
    assert f"{numbers['rows']} rows imported" in printed


@pytest.mark.full
def test_an_absent_corpus_is_skipped_with_its_path(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reporting, "DATA", tmp_path)
    assert "skipped" in report(of("massim-otel"))
    assert "massim-otel/traces.jsonl.gz is absent" in capsys.readouterr().out
