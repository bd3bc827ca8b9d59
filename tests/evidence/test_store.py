"""The store: what runs become in it, that it can be made again from the log, and who may do what with it."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.core.errors import MatError, SpecError
from mat.core.run import Finding, Run
from mat.evidence.runlog import RunEntry, RunLog, shards
from mat.evidence.store import Store, Taken, bring_up_to_date
from mat.evidence.store.schema import CREATE, TABLES, VERSION
from mat.measure.rows import ClaimCount, Labels, Score
from mat_contracts.observation import present

TEXTS = "SELECT * FROM {} ORDER BY ALL"


def entry(run: Run, **more: Any) -> RunEntry:
    return RunEntry(item=run.spec.task, condition="nominal", run=run, **more)


def content(store: Store) -> dict[str, tuple[tuple[Any, ...], ...]]:
    """Every row of every table of runs."""
    return {table: store.query(TEXTS.format(table)).rows for table in TABLES}


@pytest.fixture
def runs(shop_tests: Any) -> list[Run]:
    return [shop_tests.run(seed=seed, schedule=[shop_tests.lost_ack()] if seed % 2 else ()) for seed in range(6)]


@pytest.fixture
def log(tmp_path: Path, runs: list[Run]) -> Path:
    for name, part in (("one", runs[:4]), ("other", runs[4:])):
        with RunLog(tmp_path / "log", session=name) as written:
            for run in part:
                written.append(entry(run, labels=Labels(category=name)))
    return tmp_path / "log"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as made:
        yield made


# -- what a run becomes -----------------------------------------------------------------------------------------------


def test_a_run_is_taken_apart_into_rows_of_every_table(store: Store, violating: Run) -> None:
    assert store.ingest([entry(violating, labels=Labels(category="pay", input="benign"), session="s")]) == Taken(new=1)
    found = store.query(
        "SELECT item, category, session, seed, success, outcome, termination, steps, tool_calls, hard, effected, "
        "first_failure, faults, detected, mitigated, contained, final_ok, faulted, head, spec, cost FROM runs"
    ).rows
    row = entry(violating).row()
    (fault,) = row.faults
    assert found == (
        (
            violating.spec.task, "pay", "s", 0, True, "fail", "completed", len(violating.records), 2, 1, 1,
            violating.failures[0].step, 1, fault.detected, fault.mitigated, 0, 0, True, violating.head, violating.id, 4,
        ),
    )  # fmt: skip
    steps = store.query("SELECT step, agent, role, kind, name, site, effected, error_kind FROM steps ORDER BY step").rows
    assert steps == tuple(
        (
            record.step, record.agent, record.role, record.action.kind, record.action.name, record.site, record.effected,
            None if record.observation.error is None else record.observation.error.kind,
        )
        for record in violating.records
    )  # fmt: skip
    assert store.query("SELECT contract, severity, stage, step, agent, action_kind, message FROM violations").rows == (
        ("refund.once", "hard", "effected", violating.failures[0].step, "mailer", "tool_call", "refunded twice"),
    )
    assert store.query("SELECT operator, site, cost, injected, reached, step, contained FROM perturbations").rows == (
        ("service.lost_ack", "mailer/service:refund#1", 4, True, True, fault.step, False),
    )
    assert store.query("SELECT contract, outcome FROM contracts").rows == (("refund.once", "fail"),)
    assert store.query("SELECT impact, proposed, mediated, decision FROM mediations").rows == (
        ("high", True, False, "allow"), ("high", True, False, "allow"),
    )  # fmt: skip


def unasked() -> Run:
    """A run in which a call lacks the token that it needs."""

    @mat.tool(consumes={"token": "access_token"})
    def report(token: str = "") -> str:
        return "ok"

    with mat.run([present("access_token")]) as run, mat.agent("a"):
        report()
    assert run.result is not None
    return run.result


def test_a_violation_has_the_label_of_its_failure_and_an_empty_text_without_one(store: Store, violating: Run) -> None:
    store.ingest([entry(unasked()), entry(violating)])
    assert store.query("SELECT contract, label FROM violations ORDER BY label").rows == (
        ("refund.once", ""),
        ("observation.present(access_token)", "MISSING_TOKEN"),
    )


def test_a_perturbation_that_was_not_reached_is_there_and_says_so(store: Store, shop_tests: Any) -> None:
    store.ingest([entry(shop_tests.run(schedule=[shop_tests.lost_ack(nth=9)]))])
    assert store.query("SELECT operator, injected, reached, step, detected FROM perturbations").rows == (
        ("service.lost_ack", True, False, None, None),
    )
    assert store.query("SELECT faults, cost, faulted FROM runs").rows == ((0, 4, False),)


def test_an_error_that_nobody_injected_is_a_perturbation_that_was_only_observed(store: Store) -> None:
    @mat.tool
    def look() -> None:
        raise TimeoutError("slow")

    with mat.run([]) as run, mat.agent("a"), pytest.raises(TimeoutError):
        look()
    assert run.result is not None
    store.ingest([entry(run.result)])
    assert store.query("SELECT operator, injected, reached, step FROM perturbations").rows == (
        ("observed.timeout", False, True, 0),
    )
    assert store.query("SELECT faults, faulted FROM runs").rows == ((0, True),)


def test_what_the_mediator_decided_is_in_mediations_and_counted_by_impact(store: Store) -> None:
    @mat.tool(effect="write", impact="high")
    def pay(amount: int) -> str:
        return "paid"

    @mat.tool(effect="read")
    def look(x: int) -> int:
        return x

    capped = mat.policy.Governance(capabilities={"a": [mat.policy.Capability(tool="look")]})
    with mat.run([], governance=capped) as run, mat.agent("a"):
        look(1)
        with pytest.raises(PermissionError):
            pay(3)
    assert run.result is not None
    store.ingest([entry(run.result)])
    assert store.query("SELECT name, decision, mediated FROM mediations ORDER BY step").rows == (
        ("look", "allow", True), ("pay", "block", True),
    )  # fmt: skip
    assert store.query("SELECT allowed, blocked, high_blocked, high_stopped FROM runs").rows == ((1, 1, 1, 1),)


def test_tokens_of_model_calls_are_in_usage_and_added_up(store: Store) -> None:
    @mat.model("planner")
    def plan(text: str) -> dict[str, Any]:
        return {"text": "ok", "usage": {"input_tokens": 30, "output_tokens": 12}}

    with mat.run([]) as run, mat.agent("a"):
        plan("x")
        plan("y")
    assert run.result is not None
    store.ingest([entry(run.result)])
    assert store.query("SELECT step, agent, name, input_tokens, output_tokens, tokens FROM usage ORDER BY step").rows == (
        (0, "a", "planner", 30, 12, 42), (1, "a", "planner", 30, 12, 42),
    )  # fmt: skip
    assert store.query("SELECT tokens, model_calls FROM runs").rows == ((84, 2),)


def test_claims_scores_and_findings_come_along(store: Store, violating: Run) -> None:
    noted = replace(violating, findings=(Finding(code="real-sleep", message="it slept", step=1),))
    claims = ClaimCount(final=4, unsupported=1, recorded=3, propagated=2, unknown=1)
    scores = (Score(name="faithful", value=0.5), Score(name="context", value=None, error="none"))
    store.ingest([entry(noted, claims=claims, scores=scores), entry(noted, repeat=1)])
    assert store.query("SELECT claims_final, claims_propagated, claims_unknown FROM runs ORDER BY repeat").rows == (
        (4, 2, 1), (None, None, None),
    )  # fmt: skip
    assert store.query("SELECT name, value, error FROM scores ORDER BY name").rows == (
        ("context", None, "none"), ("faithful", 0.5, ""),
    )  # fmt: skip
    assert store.query("SELECT DISTINCT code, message, step FROM findings").rows == (("real-sleep", "it slept", 1),)


def test_values_that_a_database_has_no_form_for_do_not_stop_it(store: Store) -> None:
    @mat.tool
    def look(text: str) -> str:
        return text

    with mat.run([], seed=2**80) as run, mat.agent("half \ud800 and \x00"):
        look("\udfff")
    assert run.result is not None
    store.ingest([entry(run.result)])
    assert store.query("SELECT seed FROM runs").rows == ((None,),)
    ((agent, arguments),) = store.query("SELECT agent, arguments FROM steps WHERE kind = 'tool_call'").rows
    assert agent == "half \\ud800 and \x00"
    assert arguments == '{"text":"\\udfff"}'


# -- taking in --------------------------------------------------------------------------------------------------------


def test_a_run_is_taken_in_once_however_often_it_is_given(store: Store, runs: list[Run]) -> None:
    assert store.ingest(map(entry, runs)) == Taken(new=6)
    before = content(store)
    assert store.ingest(map(entry, [*runs, *runs])) == Taken(new=0, known=12)
    assert store.ingest([entry(runs[0]), entry(runs[0], session="later"), entry(runs[0], session="later")]) == Taken(
        new=1, known=2
    )
    assert len(content(store)["runs"]) == 7
    assert set(before["steps"]) < set(content(store)["steps"])


def test_a_log_is_merged_as_far_as_it_goes_and_later_from_there(tmp_path: Path, log: Path, runs: list[Run]) -> None:
    path = shards(log)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with Store(tmp_path / "store.duckdb") as store:
        assert store.behind(log)
        first = store.merge(log)
        assert (first.new, first.known) == (5, 0)
        assert [finding.code for finding in first.findings] == ["log-torn"]
        assert store.query("SELECT code, shard, run FROM findings WHERE shard <> ''").rows == (
            ("log-torn", f"log/{path.name}", None),
        )
        assert not store.behind(log)  # there is nothing new, however torn it is
        assert store.merge(log) == Taken()
        path.write_bytes(whole)
        assert store.behind(log)
        assert store.merge(log) == Taken(new=1)
        assert store.query("SELECT count(*) FROM findings WHERE shard <> ''").rows == ((0,),)
        assert not store.behind(log)
        assert store.merge(log) == Taken()
        assert len(content(store)["runs"]) == 6


def test_damage_that_was_found_once_stays_in_the_findings(tmp_path: Path, log: Path) -> None:
    path = shards(log)[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:2], lines[2][:-9] + b"\n", *lines[3:])))
    with Store(tmp_path / "store.duckdb") as store:
        assert store.merge(log).new == 5
        with path.open("ab") as stream:
            stream.write(b"5 10 ")
        assert [finding.code for finding in store.merge(log).findings] == ["log-torn"]
        assert store.query("SELECT code FROM findings ORDER BY code").rows == (("log-damaged",), ("log-torn",))


def test_a_store_made_again_from_its_log_holds_the_same(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "store.duckdb"
    with Store(path) as store:
        store.merge(log)
        before = content(store)
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(MatError, match="cannot open the store"):
        Store(path)
    assert Store.rebuild(path, log).new == 6
    with Store(path, mode="read") as store:
        assert content(store) == before
        assert not store.behind(log)


def test_a_rebuild_that_fails_leaves_the_old_store(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "store.duckdb"
    with Store(path) as store:
        store.merge(log)
    with pytest.raises(SpecError, match="there is no run log"):
        Store.rebuild(path, log, tmp_path / "nothing")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "store.duckdb"]
    with Store(path) as store:
        assert len(content(store)["runs"]) == 6


@pytest.mark.full
def test_a_rebuild_that_would_lose_runs_of_another_version_is_refused(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "store.duckdb"
    with Store(path) as store:
        store.merge(log)
    content = b'{"mat": 1, "log": "", "layout": {}}'
    sum_of = sha256(b"0 " + content).hexdigest()[:16].encode()
    (log / "old.mat.log").write_bytes(b"0 %d %s %s\n" % (len(content), sum_of, content))
    (log / "odd.mat.log").write_bytes(b"0 %d %s %s\n" % (len(content), sum_of, content.replace(b"{}", b"[]")))
    assert [item.code for item in bring_up_to_date(path, log)] == ["log-damaged", "log-foreign"]
    with pytest.raises(MatError, match="would lack the runs of 1 files"):
        Store.rebuild(path, log)
    with Store(path) as store:
        assert len(store.query("FROM runs").rows) == 6
    (log / "old.mat.log").unlink()
    assert Store.rebuild(path, log).new == 6


@pytest.mark.full
def test_a_store_killed_while_it_takes_runs_in_holds_whole_runs_and_goes_on(tmp_path: Path, log: Path) -> None:
    """The child takes the same runs in again and again under new sessions, five to a transaction, and is killed."""
    path = tmp_path / "store.duckdb"
    script = f"""
import sys
from dataclasses import replace
from mat.evidence.runlog import read
from mat.evidence.store import Store, database

database.BATCH = 5
entries = list(read({str(log)!r}))

def endless():
    number = 0
    while True:
        for one in entries[:5]:
            sys.stdout.write(".")
            sys.stdout.flush()
            yield replace(one, session=str(number))
        number += 1

Store({str(path)!r}).ingest(endless())
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert len(child.stdout.read(48)) == 48
    child.kill()
    child.wait()
    child.stdout.close()
    with Store(path) as store:
        ((count,),) = store.query("SELECT count(*) FROM runs").rows
        assert count >= 40  # what the child had begun to take after five more was committed
        assert count % 5 == 0
        wrong = store.query(
            "SELECT count(*) FROM runs WHERE steps <> (SELECT count(*) FROM steps WHERE steps.run = runs.run)"
        ).rows
        assert wrong == ((0,),)
        assert store.merge(log).new == 6


# -- who may do what --------------------------------------------------------------------------------------------------

OPEN = """
import sys
from mat.core.errors import MatError
from mat.evidence.store import Store
try:
    with Store(sys.argv[1], mode=sys.argv[2]) as store:
        print(store.query("SELECT count(*) FROM runs").rows[0][0])
except MatError as error:
    print(type(error).__name__, error.what)
"""


def opened_elsewhere(path: Path, mode: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", OPEN, str(path), mode], capture_output=True, text=True, timeout=60, check=True
    )
    return found.stdout.strip()


@pytest.mark.nightly
def test_a_store_open_for_writing_is_refused_to_others_with_the_reason(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "store.duckdb"
    with Store(path) as store:
        store.merge(log)
        said = f"StoreInUse the store {path} is open in another process"
        assert opened_elsewhere(path, "write") == said
        assert opened_elsewhere(path, "read") == said
    assert opened_elsewhere(path, "write") == "6"


@pytest.mark.nightly
def test_several_read_at_once_and_what_is_newer_waits_in_the_log(tmp_path: Path, log: Path, runs: list[Run]) -> None:
    path = tmp_path / "store.duckdb"
    assert bring_up_to_date(path, log) == ()
    with Store(path, mode="read") as store:
        assert opened_elsewhere(path, "read") == "6"
        assert opened_elsewhere(path, "write").startswith("StoreInUse")
        with RunLog(log, session="third") as written:
            written.append(entry(runs[0]))
        script = f"from mat.evidence.store import *; print([x.code for x in bring_up_to_date({str(path)!r}, {str(log)!r})])"
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout
        assert said.strip() == "['store-behind']"
        assert len(content(store)["runs"]) == 6
    assert bring_up_to_date(path, log) == ()
    with Store(path, mode="read") as store:
        assert len(content(store)["runs"]) == 7


def test_without_a_log_there_is_nothing_to_bring_up_to_date(tmp_path: Path) -> None:
    assert bring_up_to_date(tmp_path / "store.duckdb", tmp_path / "log") == ()
    assert not (tmp_path / "store.duckdb").exists()


@pytest.mark.nightly
def test_two_workers_of_one_session_append_at_once_and_one_merges(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import os, pathlib, pytest
        from mat.evidence.runlog import RunEntry, RunLog

        LOG = RunLog(pathlib.Path(__file__).parent / "log", session="shared")

        @pytest.fixture
        def keep(request):
            def kept(run):
                LOG.append(RunEntry(item=request.node.nodeid, condition="nominal", run=run))
            return kept

        def pytest_sessionfinish(session):
            LOG.close()
        """
    )
    pytester.makepyfile(
        """
        import os, pathlib, time
        import mat, pytest

        @mat.tool
        def look(x):
            return x

        @pytest.mark.parametrize("half", [0, 1])
        def test_both(half, keep):
            here = pathlib.Path(__file__).parent
            (here / f"there-{half}").touch()
            for seed in range(200):
                with mat.run([], task=f"t{half}", seed=seed) as run:
                    look(seed)
                keep(run.result)
        """
    )
    pytester.runpytest_subprocess("-p", "xdist", "-n", "2", "--dist", "load").assert_outcomes(passed=2)
    log = pytester.path / "log"
    assert len(shards(log)) == 2
    with Store(None) as store:
        assert store.merge(log) == Taken(new=400)
        assert store.query("SELECT task, count(DISTINCT seed) FROM runs GROUP BY task ORDER BY task").rows == (
            ("t0", 200), ("t1", 200),
        )  # fmt: skip


# -- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM runs", "nothing"),
        ("SELECT * FROM run", 'Did you mean "runs"'),
        ("DELETE FROM runs", "a DELETE statement"),
        ("COPY runs TO 'x.csv'", "a COPY statement"),
        ("SELECT 1; DROP TABLE runs", "2 statements"),
        ("", "0 statements"),
        ("SELECT CAST('x' AS INT)", "Could not convert"),
    ],
)
def test_a_wrong_query_is_an_error_that_says_what_is_wrong_and_changes_nothing(
    store: Store, runs: list[Run], sql: str, said: str
) -> None:
    store.ingest(map(entry, runs))
    with pytest.raises(SpecError, match=said):
        store.query(sql)
    assert store.query("SELECT count(*) FROM runs").rows == ((6,),)


@pytest.mark.parametrize(
    "sql", ["DESCRIBE runs", "SUMMARIZE runs", "SHOW TABLES", "EXPLAIN SELECT 1", "FROM runs", "VALUES (1)"]
)
def test_whatever_only_reads_is_answered(store: Store, sql: str) -> None:
    assert store.query(sql).columns


def test_an_answer_has_names_types_and_says_where_it_was_cut(store: Store) -> None:
    answer = store.query("SELECT range AS n, range > 1 AS big FROM range(5) ORDER BY n", limit=3)
    assert (answer.columns, answer.kinds, answer.more) == (("n", "big"), ("BIGINT", "BOOLEAN"), True)
    assert answer.rows == ((0, False), (1, False), (2, True))
    assert not store.query("SELECT 1", limit=1).more


def test_sealed_the_store_reaches_no_file(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hidden")
    sql = f"SELECT content FROM read_text('{tmp_path / 'secret.txt'}')"
    assert store.query(sql).rows == (("hidden",),)
    store.seal()
    for closed in (sql, f"SELECT * FROM glob('{tmp_path}/*')", f"SELECT * FROM '{tmp_path}/x.parquet'"):
        with pytest.raises(SpecError):
            store.query(closed)
    assert store.query("SELECT count(*) FROM runs").rows == ((0,),)


def test_no_variable_of_the_program_is_taken_for_a_table(store: Store) -> None:
    runs_of_mine = {"a": [1]}
    with pytest.raises(SpecError, match="runs_of_mine does not exist"):
        store.query("SELECT * FROM runs_of_mine")
    assert runs_of_mine


def test_steps_roll_up_by_any_of_their_columns(store: Store, runs: list[Run]) -> None:
    store.ingest(map(entry, runs))
    found = store.rollup(("kind",))
    expected: dict[str, int] = {}
    for record in (record for run in runs for record in run.records):
        expected[record.action.kind] = expected.get(record.action.kind, 0) + 1
    assert {row[0]: row[1] for row in found.rows} == expected
    assert sum(row[1] for row in store.rollup(("run",)).rows) == sum(len(run.records) for run in runs)
    with pytest.raises(SpecError, match="steps have no column 'kin'"):
        store.rollup(("kin",))


# -- versions ---------------------------------------------------------------------------------------------------------

FIRST = """
CREATE TABLE meta ("name" VARCHAR, "value" VARCHAR);
INSERT INTO meta VALUES ('schema', '1');
CREATE TABLE runs ("run" UBIGINT, "key" VARCHAR, "session" VARCHAR, "item" VARCHAR, "condition" VARCHAR, "category" VARCHAR,
    "input" VARCHAR, "variant" VARCHAR, "repeat" BIGINT, "written_at" VARCHAR, "spec" VARCHAR, "head" VARCHAR, "task" VARCHAR,
    "config" VARCHAR, "seed" BIGINT, "schedule" VARCHAR, "cost" BIGINT, "success" BOOLEAN, "outcome" VARCHAR,
    "termination" VARCHAR, "error" VARCHAR, "infrastructure" VARCHAR, "misuse" VARCHAR, "steps" BIGINT, "tool_calls" BIGINT,
    "model_calls" BIGINT, "tokens" BIGINT, "elapsed_ms" BIGINT, "hard" BIGINT, "soft" BIGINT, "first_failure" BIGINT,
    "first_failure_ms" BIGINT, "final_step" BIGINT, "faults" BIGINT, "detected" BIGINT, "mitigated" BIGINT,
    "contained" BIGINT, "final_ok" BIGINT, "allowed" BIGINT, "rewritten" BIGINT, "blocked" BIGINT, "claims_final" BIGINT,
    "claims_unsupported" BIGINT, "claims_recorded" BIGINT, "claims_propagated" BIGINT, "claims_unknown" BIGINT);
"""
"""The schema as version 1 had it; its other tables have not changed since, but for the labels of violations."""
KEPT = ("steps", "violations", "perturbations", "mediations", "usage")
LATER = {"violations": " EXCLUDE (label)"}


@pytest.fixture
def first_version(tmp_path: Path, log: Path) -> Path:
    """A file of version 1 that holds the runs of the log."""
    import duckdb

    new, old = tmp_path / "new.duckdb", tmp_path / "old.duckdb"
    with Store(new) as store:
        store.merge(log)
    connection = duckdb.connect(str(old))
    for statement in filter(str.strip, FIRST.split(";")):
        connection.execute(statement)
    connection.execute(f"ATTACH '{new}' AS new (READ_ONLY)")
    columns = ", ".join(f'"{row[0]}"' for row in connection.execute("DESCRIBE runs").fetchall())
    connection.execute(f"INSERT INTO runs SELECT {columns} FROM new.runs")
    for table in KEPT:
        connection.execute(f"CREATE TABLE {table} AS SELECT *{LATER.get(table, '')} FROM new.{table}")
    connection.close()
    return old


@pytest.mark.full
def test_a_store_of_version_1_is_migrated_and_counts_what_it_did_not_have(
    first_version: Path, tmp_path: Path, log: Path
) -> None:
    with Store(first_version) as store, Store(tmp_path / "new.duckdb", mode="read") as new:
        assert store.query("SELECT value FROM meta").rows == ((str(VERSION),),)
        names = ", ".join(f'"{name}"' for name in TABLES["runs"] if name != "armed")  # not known of version 1
        expected = new.query(f"SELECT {names} FROM runs ORDER BY run").rows
        assert store.query(f"SELECT {names} FROM runs ORDER BY run").rows == expected
        for table in TABLES:
            described = f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY ALL"
            assert store.query(described).rows == new.query(described).rows
        assert [line.metrics["violations"] for line in store.metrics(())] == [
            line.metrics["violations"] for line in new.metrics(())
        ]
        assert store.merge(log) == Taken(new=0, known=6)


def test_a_store_of_version_1_is_migrated_for_a_reader_too(first_version: Path) -> None:
    with Store(first_version, mode="read") as store:
        assert store.query("SELECT count(effected) FROM runs").rows == ((6,),)


def test_a_store_of_version_2_gains_the_labels_of_what_comes_and_has_none_of_what_was(tmp_path: Path, log: Path) -> None:
    import duckdb

    path = tmp_path / "store.duckdb"
    with Store(path) as store:
        store.merge(log)
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE violations DROP COLUMN label")
        connection.execute("ALTER TABLE runs DROP COLUMN armed")
        connection.execute("UPDATE meta SET value = '2'")
    with Store(path) as store:
        assert store.query("SELECT value FROM meta WHERE name = 'schema'").rows == ((str(VERSION),),)
        assert store.query("SELECT DISTINCT label FROM violations").rows == ((None,),)
        assert store.query("SELECT DISTINCT armed FROM runs").rows == ((True,),)
        assert store.ingest([entry(unasked())]) == Taken(new=1)
        assert store.query("SELECT DISTINCT label FROM violations ORDER BY label NULLS FIRST").rows == (
            (None,),
            ("MISSING_TOKEN",),
        )


def test_a_store_of_a_later_version_is_refused_untouched(tmp_path: Path, log: Path) -> None:
    import duckdb

    path = tmp_path / "store.duckdb"
    with Store(path) as store:
        store.merge(log)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"UPDATE meta SET value = '{VERSION + 1}'")
    before = path.read_bytes()
    for mode in ("write", "read"):
        with pytest.raises(
            SpecError, match=f"the store has schema {VERSION + 1}; this pytest-mat reads up to {VERSION}"
        ) as caught:
            Store(path, mode=mode)  # type: ignore[arg-type]
        assert caught.value.fix.startswith("upgrade pytest-mat")
    assert path.read_bytes() == before


def test_a_database_of_somebody_else_is_refused_untouched(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "theirs.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE customers (name VARCHAR)")
    with pytest.raises(SpecError, match="is not a store of pytest-mat"):
        Store(path)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("customers",)]


def test_a_store_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no store"):
        Store(tmp_path / "store.duckdb", mode="read")


def test_the_schema_has_the_tables_that_are_asked_for() -> None:
    assert {"runs", "steps", "violations", "perturbations", "mediations", "usage"} <= set(TABLES)
    assert all("run" in columns for columns in TABLES.values())
    assert len(CREATE) == len(TABLES) + 3


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_exports_of_several_machines_are_one_store_again(tmp_path: Path, runs: list[Run], store: Store) -> None:
    folder = tmp_path / "exports [of] all"
    with Store(None) as one, Store(None) as other:
        one.ingest(map(entry, runs[:4]))
        other.ingest(map(entry, runs[2:]))  # two runs are on both machines
        files = one.export(folder, machine="runner 1")
        assert [file.name for file in files] == [f"{table}-runner-1.parquet" for table in TABLES]
        other.export(folder, machine="runner-2")
    assert store.read_parquet(folder) == Taken(new=6, known=2)
    assert store.read_parquet(folder) == Taken(new=0, known=8)
    with Store(None) as whole:
        whole.ingest(map(entry, runs))
        assert content(store) == content(whole)


@pytest.mark.full
def test_exports_are_read_by_a_pattern(tmp_path: Path, runs: list[Run], store: Store) -> None:
    for number, run in enumerate(runs[:3]):
        with Store(None) as one:
            one.ingest([entry(run)])
            one.export(tmp_path / f"day-{number}", machine="same")
    assert store.read_parquet(f"{tmp_path}/day-*/*.parquet") == Taken(new=3)
    ((steps,),) = store.query("SELECT count(*) FROM steps").rows
    assert steps == sum(len(run.records) for run in runs[:3])


def test_exported_files_can_be_asked_where_they_lie(tmp_path: Path, runs: list[Run]) -> None:
    import duckdb

    with Store(None) as one:
        one.ingest(map(entry, runs))
        one.export(tmp_path, machine="m")
    joined = f"SELECT count(*) FROM '{tmp_path}/runs-*.parquet' JOIN '{tmp_path}/steps-*.parquet' USING (run)"
    assert duckdb.connect().execute(joined).fetchall() == [(sum(len(run.records) for run in runs),)]


def test_an_export_says_the_same_however_runs_were_taken_in(tmp_path: Path, runs: list[Run]) -> None:
    found = []
    for order in (runs, runs[::-1]):
        with Store(None) as one:
            one.ingest(map(entry, order))
            found.append([path.read_bytes() for path in one.export(tmp_path, machine="m", file_format="csv")])
    assert found[0] == found[1]


def test_texts_that_a_spreadsheet_would_execute_are_texts_in_csv(tmp_path: Path) -> None:
    texts = ["=HYPERLINK(1)", " +1", "-2", "@SUM(A1)", "＝1", "order 17", "", "a=b"]
    with Store(None) as store:
        nothing = [None] * len(texts)
        store.append("findings", {"run": nothing, "code": texts, "message": texts, "step": nothing, "shard": texts})
        store.export(tmp_path, machine="m", file_format="csv")
    with (tmp_path / "findings-m.csv").open(encoding="utf-8", newline="") as lines:
        found = {row["code"] for row in csv.DictReader(lines)}
    assert found == {"'=HYPERLINK(1)", "' +1", "'-2", "'@SUM(A1)", "'＝1", "order 17", "", "a=b"}


def test_csv_has_a_line_for_each_row_and_the_names_of_the_columns(tmp_path: Path, runs: list[Run], store: Store) -> None:
    store.ingest(map(entry, runs))
    store.export(tmp_path, machine="m", file_format="csv")
    with (tmp_path / "runs-m.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == list(TABLES["runs"])
    assert sorted(int(row["seed"]) for row in rows) == list(range(6))


def test_an_export_of_a_later_version_or_of_somebody_else_is_refused_whole(
    tmp_path: Path, runs: list[Run], store: Store
) -> None:
    import duckdb

    with Store(None) as one:
        one.ingest(map(entry, runs))
        one.export(tmp_path, machine="m")
    path = tmp_path / "steps-m.parquet"
    later = f"COPY (FROM '{path}') TO '{path}' (FORMAT parquet, KV_METADATA {{mat_schema: '{VERSION + 1}'}})"
    for statement, said in ((later, f"has schema {VERSION + 1}"), (f"COPY (SELECT 1 AS run) TO '{path}'", "is not an export")):
        duckdb.connect().execute(statement)
        with pytest.raises(SpecError, match=said):
            store.read_parquet(tmp_path)
        assert store.query("SELECT count(*) FROM runs").rows == ((0,),)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(SpecError, match="cannot read the export"):
        store.read_parquet(tmp_path)
    with pytest.raises(SpecError, match="no exported runs match"):
        store.read_parquet(tmp_path / "nothing")


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path, store: Store) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MatError, match="cannot write to"):
        store.export(tmp_path / "file")
    with pytest.raises(SpecError, match="unknown file format: 'xls'"):
        store.export(tmp_path / "out", file_format="xls")  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


# -- secrets ----------------------------------------------------------------------------------------------------------

SECRET, TOKEN = "correct horse battery", "sk-ABCDEFGHIJKLMNOP123456"


def test_a_planted_secret_is_in_no_log_no_store_and_no_export(tmp_path: Path) -> None:
    @mat.tool(effect="write", impact="high")
    def login(user: str, password: str, note: str) -> str:
        if user == "bad":
            raise ValueError(f"no entry with {note}")
        return f"welcome {note}"

    @mat.step_contract(on="tool_call", id="short")
    def short(record: mat.Record) -> object:
        return mat.Violated(f"said {record.action.arguments['note']}")

    with mat.run([short], task="login") as run, mat.agent("a"):
        mat.secret(SECRET)
        login("a", SECRET, f"with {SECRET} and {TOKEN}")
        with pytest.raises(ValueError):
            login("bad", "x", f"{SECRET} {TOKEN}")
        mat.finish(f"done with {SECRET}")
    assert run.result is not None
    with RunLog(tmp_path / "log") as log:
        log.append(RunEntry(item="login", condition="nominal", run=run.result))
    with Store(tmp_path / "store.duckdb") as store:
        assert store.merge(tmp_path / "log").new == 1
        assert store.query("SELECT count(*) FROM violations").rows == ((2,),)
        store.export(tmp_path / "exports")
        store.export(tmp_path / "exports", file_format="csv")
        text = repr(content(store))
    assert "[redacted:" in text
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2 + 2 * len(TABLES)
    for hidden in (SECRET, TOKEN, SECRET.replace(" ", "%20")):
        assert hidden not in text
        assert all(hidden.encode() not in body for body in written)


@pytest.mark.full
def test_nothing_heavy_is_imported_before_a_store_is_opened() -> None:
    script = (
        "import sys, mat.evidence.runlog, mat.evidence.store, mat.commands.query, mat.commands.import_, mat.commands.export\n"
        "print(sorted({'duckdb', 'numpy', 'scipy', 'pydantic'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"
