"""`mat query`, `mat import` and `mat export` from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.__main__ import main
from mat.commands.query import table
from mat.evidence import jsonl, replay_file
from mat.evidence.runlog import RunEntry, RunLog, read
from mat.evidence.store import QueryResult, Store
from mat.measure.rows import Labels

CONTRACTS = """
import mat


@mat.trace_contract(start=0, id="refund.once", on="tool_call")
def once(count, record):
    if record.action.name != "refund":
        return None
    return mat.Violated("refunded twice") if count else 1
"""
TOKEN = "sk-ABCDEFGHIJKLMNOP123456"


@mat.tool(effect="write", impact="high")
def refund(order: str, note: str = "") -> str:
    return f"refunded {note}"


def run_of(times: int, *, seed: int = 0, note: str = "") -> mat.Run:
    with mat.run([], task="test_shop.py::test_refund", seed=seed) as run, mat.agent("mailer"):
        for _ in range(times):
            refund("A-7", note)
        mat.finish("done")
    assert run.result is not None
    return run.result


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of three runs, and the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_contracts.py").write_text(CONTRACTS)
    with RunLog(".mat/store", session="nightly") as log:
        for seed in range(3):
            entry = RunEntry(item="t", condition="nominal", run=run_of(2, seed=seed), labels=Labels(category="pay"))
            log.append(entry)
    return tmp_path


def traces(path: Path, *runs: mat.Run) -> Path:
    for number, run in enumerate(runs):
        jsonl.write(path, run, trace=f"case {number}")
    return path


def asked(capsys: pytest.CaptureFixture[str], sql: str, *options: str) -> Any:
    assert main(["query", sql, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


# -- query ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_query_shows_what_the_log_holds_without_any_other_step(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT category, count(*) AS runs, sum(steps) AS steps, NULL AS none FROM runs GROUP BY ALL"]) == 0
    assert capsys.readouterr().out == (
        "category  runs  steps  none\n"
        "--------  ----  -----  ----\n"
        "pay          3      9     -\n"
        "(1 row)\n"
    )  # fmt: skip
    with RunLog(".mat/store") as log:
        log.append(RunEntry(item="t", condition="nominal", run=run_of(1)))
    assert asked(capsys, "SELECT count(*) FROM runs") == [[4]]


def test_json_has_names_types_and_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT seed, success, 1.5::DOUBLE AS x, 'nan'::DOUBLE AS y, [1, 2] AS z FROM runs ORDER BY seed LIMIT 1"
    assert main(["query", sql, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"][:2] == [{"name": "seed", "type": "BIGINT"}, {"name": "success", "type": "BOOLEAN"}]
    assert found["rows"] == [[0, True, 1.5, None, [1, 2]]]
    assert found["more"] is False


@pytest.mark.full
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM rums", 'Did you mean "runs"'),
        ("DROP TABLE runs", "a DROP statement instead of one SELECT"),
        ("SELECT * FROM read_text('shop_contracts.py')", "disabled by configuration"),
        ("SELECT * FROM 'shop_contracts.py'", ""),
    ],
)
def test_a_wrong_query_is_a_message_and_exit_code_2(
    here: Path, capsys: pytest.CaptureFixture[str], sql: str, said: str
) -> None:
    assert main(["query", sql]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mat: ")
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert main(["query", sql, "--json"]) == 2
    assert said in json.loads(capsys.readouterr().out)["error"]["what"]


def test_without_a_store_and_a_log_there_is_an_error_that_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["query", "SELECT 1"]) == 2
    assert "there is no store .mat/store/store.duckdb" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_rows_beyond_the_limit_are_said_to_be_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT range FROM range(9)", "--limit", "2"]) == 0
    assert capsys.readouterr().out.endswith("1\n(the first 2 rows; raise --limit to show more)\n")
    assert len(asked(capsys, "SELECT range FROM range(900)", "--limit", "0")) == 900


def test_what_a_log_lost_is_said_and_the_query_answered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shard,) = Path(".mat/store").glob("*.mat.log")
    shard.write_bytes(shard.read_bytes()[:-5])
    assert main(["query", "SELECT count(*) AS n FROM runs"]) == 0
    captured = capsys.readouterr()
    assert "(1 row)" in captured.out
    assert captured.err.startswith("mat: log-torn: ")
    assert asked(capsys, "SELECT count(*) FROM runs") == [[2]]


def test_a_table_fits_the_terminal_and_shows_nothing_that_one_would_obey() -> None:
    answer = QueryResult(columns=("name", "n"), kinds=("VARCHAR", "BIGINT"), rows=(("x" * 50, 3), ("\x1b[31mred", None)))
    assert table(answer, width=20).splitlines() == [
        "name               n",
        "-----------------  -",
        "xxxxxxxxxxxxxxxx…  3",
        "\\x1b[31mred        -",
        "(2 rows)",
    ]
    assert table(answer).splitlines()[2].startswith("x" * 50)
    assert table(QueryResult(columns=("a",), kinds=("INTEGER",), rows=())) == "a\n-\n(0 rows)\n"


@pytest.mark.full
def test_the_command_leaves_no_stack_trace_in_a_process_of_its_own(here: Path) -> None:
    found = subprocess.run([sys.executable, "-m", "mat", "query", "SELEC"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert found.stderr.startswith("mat: Parser Error")
    assert "Traceback" not in found.stderr


# -- export -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_export_is_asked_by_query_and_taken_in_by_import(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "out", "--machine", "m1"]) == 0
    assert capsys.readouterr().out == "3 runs in 9 files in out\n"
    assert (here / "out" / "runs-m1.parquet").is_file()
    assert asked(capsys, "SELECT count(*) FROM steps", "--parquet", "out/*.parquet") == [[9]]
    assert main(["import", "out", "--store", "elsewhere"]) == 0
    assert capsys.readouterr().out == "out: 3 new runs\nelsewhere: 3 runs\n"
    assert asked(capsys, "SELECT count(*) FROM runs", "--store", "elsewhere") == [[3]]


def test_an_export_as_csv_names_its_files_in_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "out", "--machine", "m1", "--format", "csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 3
    assert "out/runs-m1.csv" in found["files"]
    assert len((here / "out" / "runs-m1.csv").read_text().splitlines()) == 4


def test_exported_files_that_are_not_there_are_a_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT 1", "--parquet", "nowhere"]) == 2
    assert "no exported runs match nowhere" in capsys.readouterr().err


# -- import -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_recorded_traces_are_taken_in_once_and_judged(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces(here / "runs.mat.jsonl", run_of(1), run_of(2), run_of(2, seed=1))
    given = ["import", "runs.mat.jsonl", "--contracts", "shop_contracts:once", "--category", "refunds", "--input", "benign"]
    assert main(given) == 0
    assert capsys.readouterr().out == "runs.mat.jsonl: 3 new runs\n.mat/store: 6 runs\n"
    assert main(given) == 0
    assert capsys.readouterr().out == "runs.mat.jsonl: 0 new runs, 3 already in the store\n.mat/store: 6 runs\n"
    rows = asked(
        capsys, "SELECT item, category, input, success, outcome, hard FROM runs WHERE category = 'refunds' ORDER BY item"
    )  # fmt: skip
    assert rows == [
        ["case 0", "refunds", "benign", True, "pass", 0],
        ["case 1", "refunds", "benign", True, "fail", 1],
        ["case 2", "refunds", "benign", True, "fail", 1],
    ]
    assert asked(capsys, "SELECT DISTINCT contract FROM violations") == [["refund.once"]]
    assert main([*given, "--session", "again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["new"] == 3


@pytest.mark.full
def test_two_recordings_that_are_alike_are_two_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "runs.mat.jsonl"
    for _ in range(3):
        jsonl.write(path, run_of(1), trace="same")
    for _ in range(2):
        assert main(["import", "runs.mat.jsonl"]) == 0
    assert asked(capsys_cleared(capsys), "SELECT repeat FROM runs WHERE item = 'same' ORDER BY repeat") == [[0], [1], [2]]


def capsys_cleared(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    capsys.readouterr()
    return capsys


@pytest.mark.full
def test_what_was_imported_is_there_after_a_rebuild(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces(here / "runs.mat.jsonl", run_of(1))
    assert main(["import", "runs.mat.jsonl"]) == 0
    Path(".mat/store/store.duckdb").write_bytes(b"broken")
    assert main(["query", "SELECT 1"]) == 2
    assert "mat import --rebuild" in capsys.readouterr().err
    assert main(["import", "--rebuild"]) == 0
    assert asked(capsys_cleared(capsys), "SELECT count(*) FROM runs") == [[4]]


@pytest.mark.full
def test_what_was_imported_from_exports_is_there_after_a_rebuild(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a store that cannot be read any more, and of one that can but was filled before exports were kept."""
    with Store(here / "other.duckdb") as other:
        other.ingest([RunEntry(item="theirs", condition="nominal", run=run_of(1), session="runner-7")])
        other.export(here / "exports", machine="runner-7")
    assert main(["import", "exports"]) == 0
    assert main(["import", "exports"]) == 0
    before = asked(capsys_cleared(capsys), "SELECT count(*), count(*) FILTER (WHERE item = 'theirs') FROM runs")
    assert before[0][1] == 1
    kept = list(Path(".mat/store/imported").iterdir())
    assert len(kept) == 1
    Path(".mat/store/store.duckdb").write_bytes(b"broken")
    assert main(["import", "--rebuild"]) == 0
    assert "store-damaged" in capsys.readouterr().err
    assert asked(capsys_cleared(capsys), "SELECT count(*), count(*) FILTER (WHERE item = 'theirs') FROM runs") == before
    shutil.rmtree(kept[0])
    assert main(["import", "--rebuild"]) == 0
    assert "store-damaged" not in capsys.readouterr().err
    assert asked(capsys_cleared(capsys), "SELECT count(*), count(*) FILTER (WHERE item = 'theirs') FROM runs") == before


def test_a_report_of_the_folder_says_that_exports_are_elsewhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(here / "other.duckdb") as other:
        other.ingest([RunEntry(item="theirs", condition="nominal", run=run_of(1), session="runner-7")])
        other.export(here / "exports", machine="runner-7")
    assert main(["import", "exports"]) == 0
    assert main(["report", ".mat/store"]) == 0
    assert "imported from exports are not in this report" in " ".join(capsys.readouterr().err.split())


def test_replay_files_are_taken_in_as_replays(here: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay = replay_file.read(file)
    assert main(["import", str(file)]) == 0
    rows = asked(capsys_cleared(capsys), "SELECT item, condition, head, hard FROM runs WHERE condition = 'replay'")
    assert rows == [[replay.item, "replay", replay.counterexample.run.head, 1]]


def test_the_log_of_another_machine_is_taken_in_with_its_sessions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunLog(here / "theirs", session="runner-2") as log:
        log.append(RunEntry(item="t", condition="fault", run=run_of(1), labels=Labels(variant="shield")))
    assert main(["import", "theirs"]) == 0
    assert asked(capsys_cleared(capsys), "SELECT session, variant FROM runs WHERE session <> 'nightly'") == [
        ["runner-2", "shield"]
    ]
    assert sorted({entry.session for entry in read(".mat/store")}) == ["nightly", "runner-2"]
    assert main(["import", ".mat/store"]) == 0
    assert "0 new runs, 4 already in the store" in capsys.readouterr().out


def test_a_recorded_secret_is_cut_before_it_is_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(1, note="x")
    record = run.records[0]
    from dataclasses import replace

    from mat.core.value import FrozenDict

    leaking = replace(
        record,
        action=replace(record.action, arguments=FrozenDict({"order": "A-7", "note": f"key {TOKEN}", "password": "hunter2"})),
        observation=replace(record.observation, value=f"got {TOKEN}"),
    )
    jsonl.write(here / "leak.mat.jsonl", [leaking, *run.records[1:]], trace="leak")
    assert main(["import", "leak.mat.jsonl"]) == 0
    assert main(["export", "out"]) == 0
    (arguments,) = asked(
        capsys_cleared(capsys), "SELECT arguments FROM steps JOIN runs USING (run) WHERE item = 'leak' AND step = 0"
    )
    assert "redacted:" in arguments[0]
    kept = [path for path in (*Path(".mat").rglob("*"), *Path("out").rglob("*")) if path.is_file()]
    assert len(kept) > 4
    assert all(hidden not in path.read_bytes() for path in kept for hidden in (TOKEN.encode(), b"hunter2"))


def test_what_stands_before_the_damage_of_a_file_is_taken_in(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = traces(here / "runs.mat.jsonl", run_of(1), run_of(2))
    with path.open("a") as stream:
        stream.write('{"nonsense": 1}\n{"more": 2}\n')
    assert main(["import", "runs.mat.jsonl"]) == 2
    captured = capsys.readouterr()
    assert "runs.mat.jsonl:" in captured.err
    assert captured.out == "runs.mat.jsonl: 2 new runs\n.mat/store: 5 runs\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to import"),
        (["nothing.jsonl", "none.jsonl"], "no such file: nothing.jsonl; no such file: none.jsonl"),
        (["shop_contracts.py"], ""),
        (["--format", "tau", "shop_contracts.py"], "unknown format: 'tau'"),
        (["--format", "shop_contracts:onse", "shop_contracts.py"], "has no 'onse'"),
        (["--format", "shop_contracts:once", "shop_contracts.py"], "shop_contracts:once is not a format"),
        (["shop_contracts.py", "--contracts", "shop_contracts:onse"], "has no 'onse'"),
    ],
)
def test_a_wrong_import_is_a_message_and_exit_code_2(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["import", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("mat: ")
    assert "Traceback" not in captured.err


# -- recorded corpora -------------------------------------------------------------------------------------------------


def corpora() -> Path | None:
    """The folder of recorded runs, next to the project or one of its parents."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared" / "data" / "tau-bench").is_dir():
            return parent / "shared" / "data"
    return None


@pytest.mark.full
@pytest.mark.skipif(corpora() is None, reason="the recorded corpora are not next to the project")
def test_recorded_corpora_are_taken_in_whole(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = corpora()
    assert folder is not None
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    given = (
        (["tau-bench/gpt-4o-airline"], ["--format", "corpora.formats.tau_bench:FORMAT"]),
        (["tau-contract-agents/agentverify-retail-4conditions"], ["--format", "corpora.formats.tau_contract:FORMAT"]),
        (["otel-genai/openai_v2-cassettes-otlp", "otel-genai/pydantic_ai-otlp"], []),
    )
    new = []
    for names, options in given:
        assert main(["import", *(str(folder / f"{name}.jsonl.gz") for name in names), *options, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        new += [file["new"] for file in found["files"]]
        assert found["problems"] == []
    assert new[:2] == [124, 220]
    assert new[2] + new[3] >= 125
    rows = asked(
        capsys,
        "SELECT variant, count(*), count_if(success), count_if(infrastructure <> '') FROM runs "
        "WHERE session LIKE '%agentverify%' GROUP BY variant ORDER BY variant",
    )
    assert [row[1] for row in rows] == [55, 55, 55, 55]
    assert sum(row[3] for row in rows) > 0
    assert (
        asked(capsys, "SELECT count(DISTINCT item), count(DISTINCT seed) FROM runs WHERE session LIKE '%airline%'")[0][1] == 4
    )
    with Store(".mat/store/store.duckdb", mode="read") as store:
        for line in store.metrics(("variant",)):
            assert line.metrics["success"].n <= line.runs
