"""Reports as files: every form by its suffix, equal reports as equal bytes, and nothing in a cell that a program would run."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mat.core.campaign import Counterexample, Covered, ItemResult
from mat.core.curve import ScheduleResult
from mat.core.errors import MatError, SpecError
from mat.measure.regression import compare
from mat.measure.robustness import CurveRow
from mat.measure.suite import candidates, select
from mat.report.build import build
from mat.report.document import Document
from mat.report.files import FORMS, ReportExtras, check_path, rendered, write, write_folder
from mat.report.flat import FIELDS, numbers
from mat.report.from_json import reported, restored
from mat.report.markdown import to_markdown
from mat.report.sarif import sarif_text
from mat.report.source_lines import REPOSITORY_ROOT
from mat.report.table import Column, Table, shown
from mat.report.table_csv import harmless, numbers_csv, table_csv
from mat.report.tables import tables_of
from mat.report.terminal import report_text
from mat.report.to_json import as_data, to_json


@pytest.fixture(scope="module")
def document(shop_tests: Any, found: Counterexample, desk: Any) -> Document:
    """A report of everything: a search with its coverage and curve, and the runs of an evaluation."""
    results = [
        ItemResult(
            id=shop_tests.item, status="counterexample", counterexamples=(found,), certificate=shop_tests.proven,
            executions=215, replays=("mat_replays/x.mat.json",), category="misuse",
            covered=Covered(contracts=("refund.once",), idle=("other",), interfaces=("service:refund",)),
        ),
        ItemResult(id="t.py::test_c", status="vacuous", reason="no contract armed"),
    ]  # fmt: skip
    executed = (ScheduleResult(cost=0, success=True), ScheduleResult(cost=4, success=False))
    drawn = [CurveRow(item=name, category="misuse", budget=8, bound=5, executed=executed) for name in ("a", "b")]
    return build(results, desk.rows(), curves=drawn)


@pytest.mark.nightly
def test_reports_are_written_in_the_form_of_their_suffix(document: Document, tmp_path: Path) -> None:
    texts = {"json": to_json(document), "md": to_markdown(document), "txt": report_text(document)}
    texts["sarif"] = sarif_text(document, folders=REPOSITORY_ROOT)
    for form in FORMS:
        path = tmp_path / "deep" / f"out.{form.upper()}"
        check_path(path)
        write(document, path)
        assert path.read_bytes() == rendered(document, form)
        assert path.read_text() == texts[form] if form in texts else path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x.doc", "no report format ends in '.doc'"),
        ("x.jsn", "did you mean"),
        ("x", "its name has no suffix"),
        (".md", "suffix"),
    ],
)
def test_another_suffix_is_refused_before_and_after_the_session(
    document: Document, tmp_path: Path, name: str, why: str
) -> None:
    for refuse in (lambda path: write(document, path), check_path):
        with pytest.raises(MatError) as caught:
            refuse(tmp_path / name)
        assert why in caught.value.why
        assert caught.value.fix == "use a path that ends in .html, .md, .json, .csv, .parquet, .txt or .sarif"
    assert not (tmp_path / name).exists()


def test_a_folder_is_no_report_and_a_form_nobody_writes_is_refused(document: Document, tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises(MatError, match="is a folder"):
        check_path(tmp_path / "x.json")
    with pytest.raises(MatError, match="cannot write the report"):
        write(document, tmp_path / "x.json")
    with pytest.raises(SpecError, match="unknown report format 'doc'"):
        rendered(document, "doc")
    with pytest.raises(SpecError, match="cannot write a folder of md tables"):
        write_folder(document, tmp_path, "md")


_EQUAL = """
import hashlib, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from mat.report.from_json import read_data
from mat.report.files import FORMS, rendered
from mat.report.from_json import restored
document = restored(read_data(Path({file!r})), where="x").document
print([hashlib.sha256(rendered(document, form)).hexdigest() for form in FORMS])
"""


@pytest.mark.nightly
def test_equal_reports_give_equal_bytes_in_every_form_whatever_the_hash_seed(document: Document, tmp_path: Path) -> None:
    write(document, tmp_path / "r.json")
    source = _EQUAL.format(file=str(tmp_path / "r.json"), paths=[path for path in sys.path if path])
    said = {
        subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_a_document_comes_back_from_its_json(document: Document) -> None:
    data = json.loads(to_json(document))
    found = restored(data, where="x.json")
    again = as_data(found.document)
    for name in ("runs", "items", "tables", "metrics", "curves"):
        assert again[name] == data[name], name
    assert found.document.metrics == document.metrics
    assert found.document.evaluation == document.evaluation
    assert found.document.curves == document.curves
    (said,), (was,) = again["counterexamples"], data["counterexamples"]
    for name in ("verdict", "violations", "cost", "certificate", "spec", "stability", "expected"):
        assert said[name] == was[name]
    assert [item["site"] for item in said["schedule"]] == [item["site"] for item in was["schedule"]]
    assert found.missing == (
        f"refund.once in {document.items[0].id} is shown without its steps: cannot find the replay file mat_replays/x.mat.json",
    )


@pytest.mark.full
def test_a_comparison_is_reported_in_text_markdown_and_page(document: Document) -> None:
    found = compare(document.outcomes, document.outcomes, under="nominal")
    extras = ReportExtras(regression=found, names=("old|er.json", "new.json"))
    for form in ("txt", "md", "html"):
        assert "No regression" in rendered(document, form, extras).decode() or form == "html"
        assert rendered(document, form, extras) != rendered(document, form)
    assert "old\\|er.json" in rendered(document, "md", extras).decode()
    for form in ("csv", "parquet"):
        assert rendered(document, form, extras) == rendered(document, form)


@pytest.mark.full
def test_json_holds_the_comparison_and_the_suite_behind_the_report_and_is_read_back_as_it_was(
    document: Document, found: Counterexample
) -> None:
    plain = json.loads(rendered(document, "json"))
    extras = ReportExtras(
        regression=compare(document.outcomes, document.outcomes, under="nominal"),
        suite=select(candidates({"a.json": found, "b.json": found})), nodes={"a.json": "t.py::test[replay-1]"},
    )  # fmt: skip
    data = json.loads(rendered(document, "json", extras))
    comparison, suite = data.pop("comparison"), data.pop("suite")
    assert data == plain
    assert comparison["regressed"] is False
    assert [(item["id"], item["file"]) for item in suite["replays"]] == [("t.py::test[replay-1]", "a.json")]
    assert [item["id"] for item in suite["left_out"]] == ["b.json"]
    whole = {**plain, "comparison": comparison, "suite": suite}
    assert restored(whole, where="x.json").document == restored(plain, where="x.json").document


# -- CSV and Parquet --------------------------------------------------------------------------------------------------


def lines_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_csv_report_is_one_table_with_every_number(document: Document) -> None:
    lines = lines_of(rendered(document, "csv").decode())
    assert list(lines[0]) == [name for name, _ in FIELDS]
    facts = list(numbers(tables_of(document)))
    assert len(lines) == len(facts)
    for line, fact in zip(lines, facts, strict=True):
        assert (line["value"] == "" and fact.value is None) or float(line["value"]) == fact.value
        assert (line["n"] == "" and fact.n is None) or int(line["n"]) == fact.n
    found = {(line["table"], line["subject"], line["name"]): line for line in lines}
    assert float(found["robustness", "success / adversarial / 8", "R"]["value"]) == 0.0
    assert found["robustness", "compliance / adversarial / 8", "R"]["method"].endswith(", at most")
    assert found["metrics", "nominal.success", "value"]["n"] == str(
        len([1 for line in document.outcomes if line.condition == "nominal" and line.item.startswith("tests")])
    )
    assert {line["table"] for line in lines} >= {
        "items",
        "coverage",
        "evaluation",
        "nominal",
        "faults",
        "violations",
        "histograms",
    }


def test_parquet_holds_the_same_lines_typed(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    write(document, path)
    connection = duckdb.connect()
    columns = connection.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    assert tuple((column[0], column[1]) for column in columns) == FIELDS
    rows = connection.execute(f"SELECT * FROM '{path}'").fetchall()
    facts = list(numbers(tables_of(document)))
    names = [name for name, _ in FIELDS]
    assert [dict(zip(names, row, strict=True)) for row in rows] == [
        {name: getattr(fact, name) for name in names} for fact in facts
    ]


@pytest.mark.full
def test_tables_apart_have_an_estimate_in_columns_of_its_own(document: Document, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        paths = write_folder(document, tmp_path / form, form)
        assert [path.name for path in paths] == [f"{table.name}.{form}" for table in shown(tables_of(document), "files")]
    (fault,) = lines_of((tmp_path / "csv" / "faults.csv").read_text())
    profile = document.faults[0]
    assert (fault["operator"], float(fault["detected"]), int(fault["detected_n"])) == (
        profile.operator, profile.detected.value, profile.detected.n,
    )  # fmt: skip
    typed = duckdb.connect().execute(f"SELECT detected_low, runs FROM '{tmp_path / 'parquet' / 'faults.parquet'}'").fetchall()
    assert typed == [(profile.detected.low, profile.runs)]


@pytest.mark.full
@pytest.mark.parametrize("begin", ["=", "+", "-", "@", " =", "\t=", "\r=", "＝"])
def test_a_text_that_a_spreadsheet_would_run_is_only_shown(document: Document, begin: str) -> None:
    evil = f'{begin}HYPERLINK("http://x","y")'
    item = replace(document.items[1], id=evil, reason=evil)
    text = rendered(replace(document, items=(item,)), "csv").decode()
    fields = [field for row in csv.reader(io.StringIO(text)) for field in row]
    assert not any(field.lstrip().startswith(("=", "+", "@", "＝", "-H")) for field in fields)
    assert any("HYPERLINK" in field for field in fields)


def test_numbers_below_zero_stay_numbers() -> None:
    table = Table(name="t", title="T", columns=(Column(name="key", key=True), Column(name="value")), rows=(("-1", -1),))
    assert lines_of(table_csv(table)) == [{"key": "'-1", "value": "-1"}]


@given(st.text())
def test_any_text_is_one_field_of_one_line(text: str) -> None:
    table = Table(name="t", title="T", columns=(Column(name=f"x{text}"), Column(name="y")), rows=((text, 1),))
    content = numbers_csv([table])
    assert content.count("\n") == len(content.splitlines()) == 1 + len(list(numbers([table])))
    (row,) = list(csv.reader(io.StringIO(table_csv(table))))[1:]
    assert row == [harmless(text), "1"]
    assert not harmless(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_an_empty_report_is_a_report_in_every_form(tmp_path: Path) -> None:
    for form in FORMS:
        write(build([], []), tmp_path / f"x.{form}")
    assert (tmp_path / "x.csv").read_text().startswith(",".join(name for name, _ in FIELDS) + "\n")
    rows = duckdb.connect().execute(f"SELECT subject, value, n FROM '{tmp_path / 'x.parquet'}'").fetchall()
    assert rows == [("containment", None, 0)]


@pytest.mark.full
def test_writing_text_loads_neither_duckdb_nor_pytest() -> None:
    code = (
        "import sys\n"
        "from mat.report.build import build\n"
        "from mat.report.files import rendered\n"
        "[rendered(build([], []), form) for form in ('md', 'csv', 'txt', 'json', 'html')]\n"
        "print([name for name in ('duckdb', 'pytest', 'numpy', 'scipy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.full
@pytest.mark.parametrize("form", ["txt", "md", "html"])
def test_a_report_says_whose_numbers_it_gives_and_that_some_are_missing(document: Document, form: str) -> None:
    plain = rendered(document, form).decode()
    assert "was interrupted" not in plain
    assert "governance variant shield" not in plain
    told = rendered(replace(document, variant="shield", interrupted=True), form).decode()
    assert "The session was interrupted" in told
    assert "Tables without a variant column show the governance variant shield." in " ".join(told.split())


def test_what_a_report_says_of_itself_comes_back_from_its_json(document: Document) -> None:
    told = json.loads(to_json(replace(document, variant="shield", interrupted=True)))
    assert reported(told, where="x.json").interrupted
    back = restored(told, where="x.json").document
    assert (back.variant, back.interrupted) == ("shield", True)
    assert not reported(json.loads(to_json(document)), where="x.json").interrupted
