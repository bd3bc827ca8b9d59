from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mat
from mat.__main__ import main
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import ItemResult
from mat.measure.rows import RunRow, row_of
from mat.report.build import build
from mat.report.files import write

TIMEOUT = operator("service.timeout", lambda call, reply, stream: Raise("timeout"))
FAULT = [mat.spec.perturbation("service.timeout", "main/service:pay#1", cost=4)]


@mat.tool(effect="write", impact="high")
def pay(amount: int) -> str:
    return "paid"


small = mat.step_contract(on="tool_call", id="pay.small")(lambda record: record.action.arguments.get("amount", 0) <= 100)


def row(
    item: str = "t.py::test", *, amount: int = 10, tries: int = 1, blocked: bool = False, condition: str = "nominal",
    seed: int = 0, fault: bool = False,
) -> RunRow:  # fmt: skip
    def rule(record: mat.Record) -> mat.policy.Block | None:
        return mat.policy.Block("no") if record.action.name == "pay" else None

    governance = mat.policy.Governance(rules=[rule], default="allow") if blocked else None
    made = mat.run([small], task=item, governance=governance, seed=seed, schedule=FAULT if fault else [], operators=[TIMEOUT])
    try:
        with made:
            for left in reversed(range(tries)):
                try:
                    pay(amount)
                    break
                except TimeoutError:
                    if not left:
                        raise
    except (TimeoutError, mat.Blocked):
        pass  # the run has failed, which is what is compared
    assert made.result is not None
    return row_of(made.result, item=item, condition=condition)  # type: ignore[arg-type]


def report(path: Path, *rows: RunRow) -> str:
    items = [ItemResult(id=name, status="nominal") for name in sorted({one.item for one in rows})]
    write(build(items, rows), path)
    return str(path)


def test_no_regression_is_0_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = report(tmp_path / "old.json", row()), report(tmp_path / "new.json", row())
    assert main(["diff", old, new]) == 0
    assert capsys.readouterr().out.endswith("No regression.\n")


def test_a_lost_contract_is_1_and_is_distinguished_from_task_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = report(tmp_path / "old.json", row("t.py::a"), row("t.py::b"))
    new = report(tmp_path / "new.json", row("t.py::a", amount=500), row("t.py::b"))
    assert main(["diff", old, new]) == 1
    text = capsys.readouterr().out
    assert "2 runs of 2 items in both, without faults" in text.replace("\n", " ")
    (kept,) = [line for line in text.splitlines() if line.startswith("contracts kept")]
    assert "50% [9-91] n=2" in kept
    (success,) = [line for line in text.splitlines() if line.startswith("task success")]
    assert "0% [0-66] n=2" in success
    assert "Regressions: contracts kept\n  t.py::a seed 0: breaks pay.small\n" in text
    assert "Regressions: task success" not in text
    assert text.endswith("Regressions: 1 of contracts.\n")
    assert main(["diff", new, old]) == 0
    assert "Improvements: contracts kept\n  t.py::a seed 0: before: breaks pay.small\n" in capsys.readouterr().out


def test_governance_that_lets_more_happen_is_a_regression_with_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = report(tmp_path / "old.json", row(blocked=True)), report(tmp_path / "new.json", row())
    assert main(["diff", old, new]) == 1
    text = capsys.readouterr().out
    (block,) = [line.split() for line in text.splitlines() if line.startswith("block ")]
    assert block == ["block", "1", "0", "0"]
    assert "main/service:pay#1 (high impact): block -> allow, loosened" in text
    assert "1 of governance" in text
    assert main(["diff", "--json", new, old]) == 1  # the task fails where its payment is blocked
    data = json.loads(capsys.readouterr().out)
    assert data["regressed"] is True
    assert [pair["why"] for pair in data["success"]["regressed"]] == ["the task fails"]
    assert data["high"]["tightened"]["value"] == 1.0
    assert len(data["high"]["table"]) == 9
    assert {"value", "low", "high", "n", "confidence", "method", "sampling_unit", "population"} == set(data["success"]["rate"])


def test_faults_are_compared_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = report(tmp_path / "old.json", row(), row(tries=2, condition="replay", fault=True))
    new = report(tmp_path / "new.json", row(), row(tries=1, condition="replay", fault=True))
    assert main(["diff", old, new]) == 0
    assert "1 run under faults in both reports, not compared here: add --under faults" in capsys.readouterr().out
    assert main(["diff", old, new, "--under", "faults"]) == 1
    text = capsys.readouterr().out
    assert "not compared here" not in text
    assert "t.py::test seed 0 under service.timeout at main/service:pay#1: the task fails" in text


def test_what_is_in_one_report_only_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = report(tmp_path / "old.json", row("t.py::a"), row("t.py::gone"))
    new = report(tmp_path / "new.json", row("t.py::a"), row("t.py::\x1b[31mnew"))
    assert main(["diff", old, new]) == 0
    text = capsys.readouterr().out
    assert "only in the old report: t.py::gone" in text
    assert "only in the new report: t.py::" in text
    assert "\x1b" not in text


def test_reports_without_a_run_in_common_and_unlike_files_are_mistakes(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = report(tmp_path / "old.json", row("a")), report(tmp_path / "new.json", row("b"))
    for arguments, said in (
        ([old, new], "share no runs"),
        ([old, old, "--under", "faults"], "share no runs"),
        ([old, str(tmp_path / "gone.json")], "no such file: "),
        ([old, str(file)], "old.json is a report and one.mat.json is a replay file"),
        ([str(file), str(file), "--under", "faults"], "--under cannot be combined with two replay files"),
    ):
        assert main(["diff", *arguments]) == 2
        assert said in capsys.readouterr().err
    older = tmp_path / "older.json"
    data = json.loads(Path(old).read_text())
    del data["tables"]["outcomes"]
    older.write_text(json.dumps(data))
    assert main(["diff", str(older), old]) == 2
    assert "another version of pytest-mat" in capsys.readouterr().err


def test_a_report_keeps_the_cheapest_runs_of_a_search_and_counts_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from mat.core import limits

    monkeypatch.setattr(limits, "FAULT_OUTCOMES", 2)
    fault = row(tries=2, condition="fault", fault=True)
    rows = [row(), *(replace(fault, cost=cost, schedule=f"s{cost}") for cost in (9, 4, 7, 5))]
    for given in (rows, rows[::-1]):
        data = json.loads(Path(report(tmp_path / "out.json", *given)).read_text())
        kept = data["tables"]["outcomes"]
        assert [line["cost"] for line in kept if line["condition"] == "fault"] == [4, 5]
        assert data["items"][0]["outcomes_left_out"] == 2
        assert len(kept) == 3


@pytest.mark.nightly
def test_two_sessions_of_pytest_are_compared(project: Path) -> None:
    """The test of the project refunds once, and after a change twice."""
    test = project / "test_shop.py"
    for name, change in (("old.json", ""), ("new.json", "\n    refund('A-777')\n")):
        test.write_text(test.read_text() + change)
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--mat-report", name], cwd=project,
            capture_output=True, check=False, timeout=120,
        )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "mat", "diff", "old.json", "new.json"], cwd=project, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "test_shop.py::test_refund seed 0: breaks refund.once" in done.stdout
