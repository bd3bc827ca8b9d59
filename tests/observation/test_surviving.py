"""Facts about artefacts come back from every form a run is kept in, the same in every process, and old files still load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.boundary.effect import Rewrite
from mat.boundary.tape import Tape
from mat.core.artifact import issued, lacking, reached, used
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.run import Run
from mat.evidence import jsonl, replay_file
from mat.evidence.replay import compare, judge_strict
from mat.evidence.runlog import RunEntry, RunLog, read, shards
from mat.monitor.judge import judge
from mat_contracts import observation as obs

ITEM = "tests/test_files.py::test_files"
URL = "https://files.example.test/a%2Fb.csv?expires=10&sig=4f3a9b2c1d8e7f60aa"
SITE = "main/service:fetch#1"
store = mat.artifact.handles()
CUT = mat.spec.operator("service.cut", lambda call, reply, stream: Rewrite({"url": URL[:-9]}))


@mat.tool(issues=mat.artifact.issue("url", at="url", expires_in="ttl", supersedes=True))
def listing() -> dict[str, object]:
    return {"url": URL, "ttl": 10}


@mat.tool(handles=store, consumes={"url": "url"})
def fetch(url: str = "", note: str = "") -> str:
    return "content"


def agent() -> None:
    listing()
    fetch(URL)
    fetch(store.put("u", URL))
    listing()
    fetch(URL[:-9], note=f"was {URL}")
    fetch("Bearer nothing-of-it-0000")
    time.sleep(12)
    fetch(URL.replace("%2F", "/"))
    fetch()
    mat.finish("done")


def contracts() -> list[mat.Contract]:
    return [obs.compliant("url"), obs.bytes_preserved("url", id="reached", form="reached"), obs.version_fresh("url")]


def run_files(*, tape: Tape | None = None, seed: int = 0) -> Run:
    with mat.run(
        contracts(), task=ITEM, seed=seed, operators=[CUT], schedule=[mat.spec.perturbation(CUT.id, SITE, cost=4)], tape=tape
    ) as run:
        agent()
    assert run.result is not None
    return run.result


@pytest.fixture
def kept() -> Run:
    """A run with facts of every kind: issued, used, lacking and reached; whole, damaged, late, by a handle."""
    run = run_files()
    assert {name for record in run.records for name in record.artefacts} == {"issued", "used", "lacking", "reached"}
    assert {item.damage for record in run.records for item in used(record)} == {"", "truncated", "reencoded"}
    assert [item.handle for item in used(run.records[2])] == [True]
    return run


def facts(run: Run) -> list[tuple[Any, ...]]:
    return [(issued(record), used(record), reached(record), lacking(record)) for record in run.records]


def test_what_is_kept_is_judged_again_as_it_was(kept: Run) -> None:
    _, outcomes = judge(kept.records, contracts())
    assert [outcome.violations for outcome in outcomes] == [
        tuple(item for item in kept.violations if item.contract == outcome.contract) for outcome in outcomes
    ]
    assert {item.label for item in kept.violations} == {
        "OTHER", "WRONG_VALUE", "EXPIRED_BEFORE_USE", "MISSING_TOKEN", "MUTATED_TOKEN",
    }  # fmt: skip


def test_facts_come_back_from_jsonl(kept: Run, tmp_path: Path) -> None:
    jsonl.write(tmp_path / "runs.jsonl", kept)
    (records,) = [tuple(trace.records) for trace in jsonl.read(tmp_path / "runs.jsonl")]
    assert records == kept.records
    assert facts(replace(kept, records=records)) == facts(kept)


def replay_of(run: Run) -> replay_file.Replay:
    return replay_file.Replay(
        item=run.spec.task,
        counterexample=Counterexample(verdict=run.failures[0], run=run, stability=Stability(runs=3, reproduced=3)),
        certificate=Certificate(proven=True, bound=4, executions=1, states=1, seeds=(0,)),
        expected=False,
    )


def test_facts_come_back_from_a_replay_file_and_a_strict_replay_has_the_same_head(kept: Run) -> None:
    back = replay_file.unpack(replay_file.pack(replay_of(kept)), where="x.mat.json")
    run = back.counterexample.run
    assert (run.head, run.records, facts(run)) == (kept.head, kept.records, facts(kept))
    assert [item.label for item in run.violations] == [item.label for item in kept.violations]
    again = run_files(tape=Tape(run.tape) if run.tape else None)
    assert compare(run, again) is None
    assert again.head == kept.head
    assert not judge_strict(back, again).divergence


def test_facts_come_back_from_the_log_of_runs_and_the_store_takes_them(kept: Run, tmp_path: Path) -> None:
    from mat.evidence.store import Store

    with RunLog(tmp_path / "log", session="one") as log:
        log.append(RunEntry(item=ITEM, condition="nominal", run=kept))
    (entry,) = [item for shard in shards(tmp_path / "log") for item in read(shard) if isinstance(item, RunEntry)]
    assert (entry.run.head, facts(entry.run)) == (kept.head, facts(kept))
    with Store(None) as made:
        made.ingest([entry])
        found = made.query("SELECT step, contract FROM violations ORDER BY ALL").rows
    assert [tuple(row) for row in found] == sorted((item.step, item.contract) for item in kept.violations)


def test_facts_come_back_from_spans(kept: Run) -> None:
    from mat.adapters.otel import from_otlp_json, to_otlp_json

    (back,) = from_otlp_json(json.loads(json.dumps(to_otlp_json(kept))))
    assert facts(back) == facts(kept)
    assert back.head == kept.head


def test_facts_come_back_from_a_journal(kept: Run) -> None:
    from mat.core import packed

    text = packed.pack(kept, kept.spec)
    back = packed.unpack(json.loads(text), kept.spec)
    assert (back.head, facts(back)) == (kept.head, facts(kept))


def test_no_form_holds_a_planted_secret(tmp_path: Path) -> None:
    from mat.adapters.otel import to_otlp_json
    from mat.core import packed

    secret = mat.secret("S3cr3t-9f8a7b6c5d4e3f21")
    with mat.run([obs.compliant()], task=ITEM) as run:
        mat.artifact.observed(secret, name="key", ttl_ms=5)
        fetch(f"https://h.test/?key={secret}")
        fetch(secret[:-4], note=secret.lower())
    result = run.result
    assert result is not None
    assert result.violations
    jsonl.write(tmp_path / "runs.jsonl", result)
    forms = [
        (tmp_path / "runs.jsonl").read_text(), replay_file.pack(replay_of(result)), packed.pack(result, result.spec),
        json.dumps(to_otlp_json(result)),
    ]  # fmt: skip
    assert [secret in form for form in forms] == [False] * 4


def test_a_record_without_artefacts_is_written_and_hashed_as_before(tmp_path: Path) -> None:
    @mat.tool
    def plain(text: str) -> str:
        return text

    with mat.run(task=ITEM) as run:
        plain("a")
    result = run.result
    assert result is not None
    jsonl.write(tmp_path / "runs.jsonl", result)
    text = (tmp_path / "runs.jsonl").read_text()
    assert "artefacts" not in text
    assert '"label"' not in text
    assert [tuple(trace.records) for trace in jsonl.read(tmp_path / "runs.jsonl")] == [result.records]


def test_facts_of_a_place_that_older_files_do_not_name_are_read(kept: Run) -> None:
    old = [
        {name: item for name, item in fact.items() if name != "place"}
        for record in kept.records
        for fact in record.artefacts.get("used", ())
    ]
    from mat.core.artifact import Used

    assert [Used(**item).place for item in old] == [""] * len(old)


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_surviving
run = test_surviving.run_files(seed=3)
print(json.dumps([run.head, [item.label for item in run.violations], repr(test_surviving.facts(run))]))
"""


@pytest.mark.full
def test_every_process_and_hash_seed_gives_the_same_facts() -> None:
    def once(hash_seed: str) -> list[Any]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found: list[Any] = json.loads(done.stdout)
        return found

    first = once("0")
    assert [once(hash_seed) for hash_seed in ("1", "424242")] == [first, first]


def test_the_same_run_twice_is_the_same(kept: Run) -> None:
    again: Callable[[], Run] = run_files
    assert again().head == kept.head
    assert facts(again()) == facts(kept)
