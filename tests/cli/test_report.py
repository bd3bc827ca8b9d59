"""`mat report`: one report in every form, and reports of other things that were recorded."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.__main__ import main
from mat.core.campaign import ItemResult
from mat.evidence import jsonl, replay_file, runlog
from mat.evidence.store import Store
from mat.measure.rows import Labels, row_of
from mat.report.build import build
from mat.report.files import FORMS, rendered, write
from mat.report.to_json import as_data

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["report", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def session(tmp_path: Path, file: Path) -> tuple[Path, Any]:
    """A report of one item with a counterexample, written next to its replay file, and the document it was made from."""
    replay = replay_file.read(file)
    found = replay.counterexample
    result = ItemResult(
        id=replay.item, status="counterexample", counterexamples=(found,), certificate=replay.certificate, executions=12,
        replays=(file.name,), category="refunds",
    )  # fmt: skip
    rows = [
        row_of(mat_run(retries), item=replay.item, condition="nominal", labels=Labels(category="refunds"))
        for retries in (0, 1, 2)
    ]
    rows.append(row_of(found.run, item=replay.item, condition="fault", labels=Labels(category="refunds")))
    document = build([result], rows)
    path = tmp_path / "report.json"
    write(document, path)
    return path, document


@mat.tool(effect="write", impact="high")
def look_up(order: str) -> str:
    return order


def mat_run(calls: int) -> Any:
    with mat.run(task="test_shop.py::test_refund", seed=calls) as run, mat.agent("mailer"):
        for _ in range(calls + 1):
            look_up("A-777")
        mat.finish("done")
    assert run.result is not None
    return run.result


@pytest.mark.parametrize("form", [form for form in FORMS if form != "json"])
def test_a_report_read_back_is_reported_as_the_session_told_it(
    session: tuple[Path, Any], report: Report, tmp_path: Path, form: str
) -> None:
    path, document = session
    out = tmp_path / f"again.{form}"
    assert report(path, "--out", out) == (0, f"{out}\n", "")
    assert out.read_bytes() == rendered(document, form)


def test_as_json_a_report_is_what_it_was(session: tuple[Path, Any], report: Report, tmp_path: Path) -> None:
    path, _ = session
    out = tmp_path / "again.json"
    assert report(path, "--out", out)[0] == 0
    assert out.read_bytes() == path.read_bytes()
    code, said, _ = report(path, "--json")
    assert (code, json.loads(said)) == (0, json.loads(path.read_text()))


def test_a_counterexample_without_its_replay_file_is_reported_without_its_steps(
    session: tuple[Path, Any], report: Report, file: Path, tmp_path: Path
) -> None:
    path, _ = session
    whole = report(path)[1]
    file.unlink()
    code, told, noted = report(path)
    assert code == 0
    assert told == whole  # the text tells no steps
    assert noted == (
        "mat: refund.once in test_shop.py::test_refund is shown without its steps: cannot find the replay file one.mat.json\n"
    )
    assert report(path, "--out", tmp_path / "x.html")[0] == 0
    assert "refund.once" in (tmp_path / "x.html").read_text()


def test_another_run_in_the_place_of_the_replay_file_is_not_taken_for_it(
    session: tuple[Path, Any], report: Report, file: Path, other_file: Path
) -> None:
    path, _ = session
    file.write_bytes(other_file.read_bytes())
    assert "one.mat.json now contains another run" in report(path)[2]
    file.write_text("{")
    assert "one.mat.json cannot be read" in report(path)[2]


def test_text_is_printed_by_default_and_any_form_on_request(session: tuple[Path, Any], report: Report) -> None:
    path, document = session
    code, said, noted = report(path)
    assert (code, noted) == (0, "")
    for part in ("Nominal runs", "Items of test_shop.py", "Counterexamples", "Replay: pytest --mat-replay one.mat.json"):
        assert part in said
    assert report(path, "--as", "md")[1] == rendered(document, "md").decode()
    lines = list(csv.DictReader(io.StringIO(report(path, "--as", "csv")[1])))
    (cost,) = [line for line in lines if (line["table"], line["name"]) == ("items", "cost")]
    assert (cost["item"], float(cost["value"])) == ("test_shop.py::test_refund", 4.0)


def test_a_folder_gets_a_file_for_each_table(session: tuple[Path, Any], report: Report, tmp_path: Path) -> None:
    path, _ = session
    code, said, _ = report(path, "--out", tmp_path / "tables", "--as", "csv")
    assert code == 0
    assert sorted(said.split()) == sorted(str(file) for file in (tmp_path / "tables").iterdir())
    (item,) = csv.DictReader((tmp_path / "tables" / "items.csv").open())
    assert (item["item"], item["status"], item["cost"]) == ("test_shop.py::test_refund", "counterexample", "4")
    told = json.loads(report(path, "--out", tmp_path / "typed", "--as", "parquet", "--json")[1])
    assert {Path(name).suffix for name in told["files"]} == {".parquet"}
    assert told["runs"] == 4


def test_a_baseline_is_compared_in_text_markdown_page_and_json(
    session: tuple[Path, Any], report: Report, tmp_path: Path
) -> None:
    path, document = session
    for form in ("txt", "md", "html"):
        out = tmp_path / f"compared.{form}"
        assert report(path, "--baseline", path, "--out", out)[0] == 0
        text = out.read_text()
        assert re.search(r"two\s+sides\s+of\s+whole\s+tests", text)
        assert not re.search(r"two\s+sides\s+of\s+whole\s+tests", rendered(document, form).decode())
    assert json.loads(report(path, "--baseline", path, "--json")[1])["comparison"]["regressed"] is False


def test_replay_files_are_a_report_of_their_counterexamples(
    report: Report, file: Path, other_file: Path, tmp_path: Path
) -> None:
    code, said, noted = report(file, other_file)
    assert (code, noted) == (0, "")
    assert said.count("refund.once: refunded twice") == 2
    assert f"Replay: pytest --mat-replay={file}" in said.replace("\n    ", " ")
    assert report(file, "--out", tmp_path / "x.html")[0] == 0
    data = json.loads(report(file, "--json")[1])
    assert [item["status"] for item in data["items"]] == ["counterexample"]
    assert data["counterexamples"][0]["head"] == replay_file.read(file).counterexample.run.head


def test_a_page_shows_the_suite_among_the_replays_on_request(
    session: tuple[Path, Any], report: Report, file: Path, other_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.html"
    assert report(file, other_file, "--suite", "--out", out)[0] == 0
    assert "Regression suite" in out.read_text()
    assert report(file, other_file, "--out", out)[0] == 0
    assert "Regression suite" not in out.read_text()
    path, _ = session
    file.unlink()
    code, _, said = report(path, "--suite", "--out", out)
    assert (code, "no replay file was found for --suite" in said) == (2, True)


def test_stored_traces_give_the_numbers_of_their_runs(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    for calls in (0, 3):
        run = mat_run(calls)
        jsonl.write(path, run.records, trace=f"task-{calls}", labels={"success": calls == 0})
    data = json.loads(report(path, "--json")[1])
    assert data["metrics"]["nominal.success"]["value"] == 0.5
    assert data["metrics"]["nominal.tool_calls"]["value"] == 2.5
    assert data["runs"] == 2
    assert "no contract judged these runs" in report(path)[2]
    assert report(path, "--out", tmp_path / "x.html")[0] == 0
    page = (tmp_path / "x.html").read_text()
    assert "task-0" in page
    assert "task-3" in page


def test_one_trace_is_a_page_of_the_viewer_alone(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "one.mat.jsonl"
    jsonl.write(path, mat_run(1).records, trace="alone")
    assert report(path, "--out", tmp_path / "x.html")[0] == 0
    page = (tmp_path / "x.html").read_text()
    assert "<title>alone, seed 0</title>" in page
    assert 'id="overview"' not in page


@pytest.mark.full
def test_a_log_gives_every_number_and_its_store_the_metrics_of_each_cell(report: Report, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with runlog.RunLog(folder, session="s") as log:
        for calls in range(4):
            labels = Labels(category="refunds" if calls % 2 else "mail", variant="none")
            log.append(runlog.RunEntry(item=f"t.py::test_{calls}", condition="nominal", run=mat_run(calls), labels=labels))
    with Store(folder / "store.duckdb") as store:
        store.merge(folder)
        store.export(tmp_path / "exported", machine="one")
    whole = json.loads(report(folder, "--json")[1])
    assert whole["metrics"]["nominal.tool_calls"]["value"] == 2.5
    for source in (folder / "store.duckdb", tmp_path / "exported"):
        code, said, noted = report(source, "--json")
        assert code == 0
        assert "items, counterexamples and curves are in the JSON report" in noted
        cells = {(cell["category"], cell["items"]): cell["metrics"] for cell in json.loads(said)["tables"]["evaluation"]}
        assert list(cells) == [("mail", 2), ("refunds", 2), ("all", 4)]
        assert cells["all", 4]["tool_calls"]["value"] == 2.5
        assert cells["refunds", 2]["tool_calls"]["value"] == 3.0
        text = report(source)[1]
        assert "Nominal runs by category" in text


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.json"], "no such file: missing.json"),
        (["report.json", "one.mat.json"], "files of several kinds"),
        (["report.json", "report.json"], "2 reports"),
        (["out.md"], "a report cannot be read from this format"),
        (["report.json", "--out", "x.doc"], "no report format ends in '.doc'"),
        (["report.json", "--out", "x"], "its name has no suffix"),
        (["report.json", "--as", "parquet"], "Parquet is a binary format"),
        (["report.json", "--json", "--as", "md"], "omit one of them"),
        (["report.json", "--contracts", "shop:ALL"], "--contracts with a report"),
        (["one.mat.json", "--baseline", "report.json"], "--baseline with a replay file"),
        (["report.json", "--baseline", "empty.json"], "share no runs"),
        (["broken.json"], "is not JSON"),
        (["later.json"], "is a report of format 99"),
        (["wrong.json"], "items.0.status"),
        (["nan.json", "--as", "html"], "a report cannot contain nan"),
        (["endless.json", "--as", "json"], "a report cannot contain inf"),
        (["huge.json", "--as", "csv"], "an integer of more than 64 bits"),
        (["ragged.json"], "a row with more or fewer cells than columns"),
        (["gap.json"], "points for other budgets than 0, 1, 2"),
        (["."], "contains no log and no exported runs"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_the_reason(
    session: tuple[Path, Any], report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path, _ = session
    data = json.loads(path.read_text())
    Path("out.md").write_text("# MAT report\n")
    Path("broken.json").write_text("{")
    Path("empty.json").write_text(json.dumps(as_data(build([], []))))
    Path("later.json").write_text(json.dumps({**data, "mat": 99}))
    Path("wrong.json").write_text(json.dumps({**data, "items": [{**data["items"][0], "status": "perfect"}]}))
    Path("nan.json").write_text(
        json.dumps({**data, "metrics": {"x": {**data["metrics"]["nominal.success"], "value": math.nan}}})
    )
    Path("endless.json").write_text(json.dumps({**data, "runs": math.inf}))
    Path("huge.json").write_text(json.dumps({**data, "items": [{**data["items"][0], "cost": 2**63}]}))
    ragged = {"title": "t", "down": "d", "across": "a", "columns": ["c"], "rows": [{"name": "r", "group": "", "cells": []}]}
    Path("ragged.json").write_text(json.dumps({**data, "heat_maps": [ragged]}))
    estimate = data["metrics"]["nominal.success"]
    curve = {"category": "all", "kind": "random", "measure": "success", "area": {**estimate, "proven": None}}
    gap = [
        {**{name: estimate[name] for name in ("value", "low", "high", "n", "method")}, "budget": at, "proven": None}
        for at in (0, 2)
    ]
    Path("gap.json").write_text(json.dumps({**data, "curves": [{**curve, "points": gap}]}))
    code, out, err = report(*arguments)
    assert (code, out.startswith("{")) == (2, "--json" in arguments)
    assert said in err
    assert "Traceback" not in err
    assert not Path("x").exists()


def test_the_help_says_what_can_be_reported_of_what() -> None:
    done = subprocess.run([sys.executable, "-m", "mat", "report", "--help"], capture_output=True, text=True, check=True)
    for part in ("replay files:", "a store or exported Parquet:", "every number, one per line", "exit codes:"):
        assert part in done.stdout


def test_the_certificate_of_the_report_is_reported_and_not_that_of_the_file(session: tuple[Path, Any], report: Report) -> None:
    path, _ = session
    data = json.loads(path.read_text())
    data["counterexamples"][0]["certificate"]["proven"] = False
    data["counterexamples"][0]["certificate"]["reason"] = "somebody looked again"
    path.write_text(json.dumps(data))
    assert "somebody looked again" in report(path)[1]


# -- a session of pytest ----------------------------------------------------------------------------------------------


def pytest_run(project: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.nightly
def test_a_session_writes_every_form_and_junit_properties_and_its_json_is_reported_the_same(project: Path) -> None:
    forms = [f"out.{form}" for form in FORMS]
    asked = [part for name in forms for part in ("--mat-report", name)]
    done = pytest_run(project, "--mat-stress", "--mat-store", "--junitxml", "junit.xml", *asked)  # a page shows kept runs too
    assert done.returncode == 1  # the counterexample fails the test
    assert [line for line in done.stdout.splitlines() if line.startswith("mat report:")] == [
        f"mat report: {name}" for name in forms
    ]
    assert "Coverage" not in done.stdout  # the closing section of a search stays short
    (suite,) = ElementTree.parse(project / "junit.xml").getroot().iter("testsuite")
    (case,) = suite.iter("testcase")
    metrics = json.loads((project / "out.json").read_text())["metrics"]
    written = {each.get("name"): each.get("value") for each in suite.findall("properties/property")}
    assert list(written) == [f"mat.{name}" for name in metrics]
    for name, metric in metrics.items():
        assert str(written[f"mat.{name}"]).startswith(f"{metric['value']:.4g} ["), name
    said = {each.get("name"): each.get("value") for each in case.iter("property")}
    item = json.loads((project / "out.json").read_text())["items"][0]
    assert (said["mat.status"], said["mat.cost"], said["mat.contract"]) == ("counterexample", "4", "refund.once")
    assert (said["mat.executions"], said["mat.bound"]) == (str(item["executions"]), str(item["bound"]))
    assert [said["mat.replay"]] == item["replays"]
    told = pytest_run_report(project, "out.json", *(part for name in forms for part in ("--out", f"again-{name}")))
    assert (told.returncode, told.stderr) == (0, "")
    for name in forms:
        assert (project / f"again-{name}").read_bytes() == (project / name).read_bytes(), name


def pytest_run_report(project: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mat", "report", *map(str, arguments)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.full
def test_a_report_that_cannot_be_written_is_a_message_and_an_exit_code(project: Path) -> None:
    (project / "conftest.py").write_text(
        "def pytest_collection_finish(session):\n    (session.config.rootpath / 'file').write_text('')\n"
    )
    done = pytest_run(project, "--mat-report", "file/out.json", "--mat-report", "out.md")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "cannot write the report" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert (project / "out.md").exists()
    (project / "conftest.py").unlink()
    done = pytest_run(project, "--mat-report", "file/out.json")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "cannot be written to" in done.stderr
    assert "passed" not in done.stdout
    done = pytest_run(project, "--mat-report", "out.doc")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "use a path that ends in .html, .md, .json, .csv, .parquet, .txt or .sarif" in done.stderr


@pytest.mark.full
def test_a_session_that_shows_no_numbers_computes_none(project: Path) -> None:
    code = (
        "import pytest, sys\n"
        "pytest.main(['-q', '-p', 'no:cacheprovider'])\n"
        "print([name for name in ('numpy', 'mat.report.build') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
