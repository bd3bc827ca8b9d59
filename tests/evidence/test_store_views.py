"""The views of the store agree with counts by hand, and a file that brings views or macros of its own is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mat.core.errors import SpecError
from mat.core.run import Run
from mat.evidence.runlog import RunEntry
from mat.evidence.store import Store
from mat.evidence.store.views import VIEWS
from mat.measure.rows import Labels


@pytest.fixture
def entries(shop_tests: Any) -> list[RunEntry]:
    found = []
    for seed in range(6):
        run: Run = shop_tests.run(seed=seed, schedule=[shop_tests.lost_ack()] if seed % 3 else ())
        lost = "network" if seed == 5 else ""
        labels = Labels(category="pay" if seed < 3 else "ask", variant="shield" if seed == 4 else "", infrastructure=lost)
        found.append(RunEntry(item=f"test_{seed % 2}", condition="fault" if seed % 3 else "nominal", run=run, labels=labels))
    return found


@pytest.fixture
def store(entries: list[RunEntry]) -> Iterator[Store]:
    with Store(None) as made:
        made.ingest(entries)
        yield made


def table(store: Store, view: str) -> list[dict[str, Any]]:
    found = store.query(f"FROM {view}")
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_the_columns_and_comments_that_it_states(store: Store, view: str) -> None:
    assert store.query(f"FROM {view}").columns == tuple(VIEWS[view].columns)
    said = dict(store.query(f"SELECT column_name, comment FROM duckdb_columns() WHERE table_name = '{view}'").rows)
    assert said == VIEWS[view].columns
    assert store.query(f"SELECT comment FROM duckdb_views() WHERE view_name = '{view}'").rows == ((VIEWS[view].comment,),)
    assert table(store, view), "the runs here fill every view"


@pytest.mark.parametrize(
    ("view", "keys"),
    [
        ("by_task", ("item", "category", "condition", "variant")),
        ("by_category", ("category", "condition", "variant")),
        ("by_variant", ("condition", "variant")),
        ("by_session", ("session", "condition", "variant")),
    ],
)
def test_rates_are_those_of_a_count_by_hand(store: Store, entries: list[RunEntry], view: str, keys: tuple[str, ...]) -> None:
    groups: dict[tuple[str, ...], list[Any]] = {}
    for entry in entries:
        row = entry.row()
        if not row.infrastructure:
            of = {"item": row.item, "category": row.category, "condition": row.condition, "variant": row.variant}
            groups.setdefault(tuple({**of, "session": entry.session}[key] for key in keys), []).append(row)
    found = {tuple(row[key] for key in keys): row for row in table(store, view)}
    assert found.keys() == groups.keys()
    for key, rows in groups.items():
        judged = [row.success for row in rows if row.success is not None]
        violating = sum(any(each.severity == "hard" for each in row.violations) for row in rows)
        assert (found[key]["runs"], found[key]["judged"], found[key]["succeeded"]) == (len(rows), len(judged), sum(judged))
        assert found[key]["success"] == (sum(judged) / len(judged) if judged else None)
        assert (found[key]["violating"], found[key]["violations"]) == (violating, violating / len(rows))
        assert found[key]["steps"] == sum(row.steps for row in rows) / len(rows)


def test_operators_contracts_tools_and_agents_are_counted(store: Store, entries: list[RunEntry]) -> None:
    runs = [entry.run for entry in entries if not entry.row().infrastructure]
    faults = [fault for entry in entries if not entry.row().infrastructure for fault in entry.row().faults]
    (operator,) = table(store, "by_operator")
    assert (operator["operator"], operator["faults"]) == ("service.lost_ack", len(faults))
    assert operator["contained"] == sum(fault.contained for fault in faults)
    contracts = table(store, "by_contract")
    assert sum(row["armed"] for row in contracts) == len(runs)
    assert sum(row["violated"] for row in contracts) == sum(bool(run.failures) for run in runs)
    records = [record for run in runs for record in run.records]
    kinds = Counter((record.agent, record.action.kind) for record in records)
    assert {(row["agent"], row["kind"]): row["steps"] for row in table(store, "by_agent")} == dict(kinds)
    (tool,) = table(store, "by_tool")
    calls = [record for record in records if record.action.kind == "tool_call"]
    assert (tool["calls"], tool["errors"]) == (len(calls), sum(record.observation.error is not None for record in calls))


def test_first_violations_are_the_earliest_of_each_run(store: Store, entries: list[RunEntry]) -> None:
    wanted = sorted(
        min(failure.step for failure in entry.run.failures)
        for entry in entries
        if entry.run.failures and not entry.row().infrastructure
    )
    assert wanted, "some runs are broken"
    assert sorted(row["step"] for row in table(store, "first_violations")) == wanted


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("view", "DROP TABLE findings; CREATE VIEW findings AS SELECT content AS message FROM read_text('{secret}')"),
        ("view", "CREATE VIEW more AS SELECT 1"),
        ("macro", "CREATE MACRO count(x) AS (SELECT content FROM read_text('{secret}'))"),
        ("macro", "CREATE MACRO leak() AS TABLE SELECT content FROM read_text('{secret}')"),
    ],
)
def test_a_store_of_somebody_else_with_a_view_or_a_macro_is_refused(tmp_path: Path, kind: str, statement: str) -> None:
    import duckdb

    secret, path = tmp_path / "secret.txt", tmp_path / "store.duckdb"
    secret.write_text("sesame")
    Store(path).close()
    connection = duckdb.connect(str(path))
    connection.execute(statement.format(secret=secret))
    connection.close()
    for mode in ("read", "write"):
        with pytest.raises(SpecError, match=f"contains the {kind}") as refused:
            Store(path, mode=mode)  # type: ignore[arg-type]
        assert "sesame" not in str(refused.value)
