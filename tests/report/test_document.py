from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mat.core.campaign import Counterexample, ItemResult
from mat.core.errors import MatError
from mat.core.run import Finding
from mat.evidence import artifact
from mat.measure.rows import RunRow, row_of
from mat.report.build import build
from mat.report.document import Document, check_path, to_json, write
from mat.report.markdown import escape, to_markdown
from mat.report.terminal import summary


@pytest.fixture
def results(shop_tests: Any, found: Counterexample) -> list[ItemResult]:
    return [
        ItemResult(
            id=shop_tests.item, status="counterexample", counterexamples=(found,), certificate=shop_tests.proven,
            executions=215, replays=("mat_replays/x.mat.json",), category="misuse",
        ),
        ItemResult(id="t.py::test_b", status="certified", certificate=shop_tests.proven, executions=9),
        ItemResult(id="t.py::test_c", status="vacuous", reason="no contract armed", findings=(Finding(code="x", message="y"),)),
    ]  # fmt: skip


@pytest.fixture
def rows(shop_tests: Any, found: Counterexample) -> list[RunRow]:
    nominal = shop_tests.run()
    return [
        row_of(nominal, item=shop_tests.item, condition="nominal"),
        row_of(nominal, item="t.py::test_b", condition="nominal"),
        row_of(nominal, item="t.py::test_b", condition="nominal"),
        row_of(found.run, item=shop_tests.item, condition="fault"),
    ]


@pytest.fixture
def document(results: list[ItemResult], rows: list[RunRow]) -> Document:
    return build(results, rows)


def test_the_json_has_the_names_of_the_format(document: Document) -> None:
    data = json.loads(to_json(document))
    assert list(data) == ["mat", "runs", "items", "tables", "counterexamples", "metrics", "curves"]
    assert list(data["tables"])[:4] == ["nominal", "faults", "governance", "violations"]
    assert list(data["items"][0])[:5] == ["id", "status", "cost", "executions", "bound"]
    for metric in data["metrics"].values():
        assert list(metric) == ["value", "low", "high", "n", "confidence", "method"]
    assert data["runs"] == 4


def test_a_counterexample_is_as_in_its_replay_file_without_tape_and_records(
    document: Document, results: list[ItemResult], found: Counterexample
) -> None:
    assert results[0].certificate is not None
    file = json.loads(
        artifact.pack(
            artifact.Replay(item=results[0].id, counterexample=found, certificate=results[0].certificate.below(found.cost))
        )
    )
    for key in ("result", "tape", "records"):
        del file[key]
    assert json.loads(to_json(document))["counterexamples"] == [file]


def test_items_carry_cost_bound_and_first_violating_step(document: Document) -> None:
    first, second, third = json.loads(to_json(document))["items"]
    assert (first["status"], first["cost"], first["executions"], first["bound"]) == ("counterexample", 4, 215, 4)
    assert (first["contract"], first["step"], first["agent"], first["category"]) == ("refund.once", 3, "mailer", "misuse")
    assert (second["status"], second["cost"], second["proven"]) == ("certified", None, True)
    assert (third["bound"], third["proven"], third["reason"], third["findings"]) == (None, None, "no contract armed", ["x: y"])


def test_numbers_are_taken_from_the_runs(document: Document) -> None:
    data = json.loads(to_json(document))
    nominal = {line["item"]: line for line in data["tables"]["nominal"]}
    assert {item: line["runs"] for item, line in nominal.items()} == {
        document.items[0].id: 1, "t.py::test_b": 2, "all": 3,
    }  # fmt: skip
    assert data["metrics"]["nominal.success"]["n"] == 3
    assert data["metrics"]["nominal.violations"]["value"] == 0.0
    assert data["metrics"]["fault.violations"]["value"] == 1.0
    (fault,) = data["tables"]["faults"]
    assert (fault["operator"], fault["detected"]["value"], fault["contained"]["value"]) == ("service.lost_ack", 1.0, 0.0)
    assert data["metrics"]["containment.service.lost_ack"] == fault["contained"]
    assert data["metrics"]["containment.service"] == fault["contained"]
    assert list(fault)[:6] == ["operator", "injected", "detected", "mitigated", "contained", "final_ok"]
    assert (fault["boundary"], fault["runs"]) == ("service", 1)
    assert fault["detected_by"] == [{"rule": "error", "faults": 1}]
    assert fault["mitigated_by"] == [{"rule": "mitigate", "faults": 1}]
    (contract,) = data["tables"]["violations"]
    assert (contract["contract"], contract["frequency"]["value"], contract["first_step"]) == ("refund.once", 0.25, 3)


def test_expected_items_mark_their_counterexamples(shop_tests: Any, found: Counterexample) -> None:
    item = ItemResult(id=shop_tests.item, status="expected", counterexamples=(found,), certificate=shop_tests.proven)
    assert json.loads(to_json(build([item], [])))["counterexamples"][0]["expected"] is True


def test_an_item_that_was_not_searched_claims_no_proof(shop_tests: Any, found: Counterexample) -> None:
    item = ItemResult(id=shop_tests.item, status="violated", counterexamples=(found,))
    (data,) = json.loads(to_json(build([item], [])))["counterexamples"]
    assert data["certificate"]["proven"] is False
    assert data["certificate"]["reason"]


def test_an_empty_session_has_no_numbers_and_an_empty_summary() -> None:
    data = json.loads(to_json(build([], [])))
    assert (data["runs"], data["items"]) == (0, [])
    assert data["metrics"] == {
        "containment": {"value": None, "low": None, "high": None, "n": 0, "confidence": 0.95, "method": "wilson"}
    }
    assert summary(build([], [])) == ""


def test_equal_sessions_give_equal_bytes(results: list[ItemResult], rows: list[RunRow]) -> None:
    assert to_json(build(results, rows)) == to_json(build(list(results), list(rows)))


def test_the_summary_shows_the_tables_and_the_items(document: Document) -> None:
    text = summary(document)
    for title in ("Nominal runs", "Faults", "Contracts broken", "Items"):
        assert title in text
    assert "100% [44-100] n=3" in text
    assert "service.lost_ack" in text
    (line,) = [line for line in text.splitlines() if line.endswith("t.py::test_c")]
    assert line.startswith("vacuous")
    assert max(len(line) for line in text.splitlines() if "tests/test_shop.py" not in line) <= 110
    assert "Governance" not in text  # nothing was mediated


def test_the_file_that_all_items_share_is_said_once_and_a_long_name_stays_whole() -> None:
    names = [f"tests/test_shop.py::test_{'long_' * 30}{number}" for number in range(2)]
    text = summary(build([ItemResult(id=name, status="certified", reason="why") for name in names], []))
    assert text.count("tests/test_shop.py") == 1
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("certified")] == [
        name.partition("::")[2] for name in names
    ]


def test_the_summary_tells_each_counterexample_in_words(document: Document, found: Counterexample) -> None:
    text = summary(document)
    part = text[text.index("Counterexamples\n") :]
    assert f"{found.verdict.contract}: {found.verdict.message} (step {found.verdict.step}, by {found.verdict.agent})" in part
    assert f"cost {found.cost}: the reply of the 1st refund call" in part
    assert "No cheaper counterexample exists on this grid" in part
    assert "It was reproduced in" in part


def test_an_item_with_several_counterexamples_says_so_and_markdown_names_the_file_of_each(found: Counterexample) -> None:
    files = ("tests/mat_replays/a-1.mat.json", "tests/mat_replays/b 2.mat.json")
    result = ItemResult(id="t.py::test", status="counterexample", counterexamples=(found, found), replays=files)
    document = build([result], [])
    assert f"{found.verdict.contract} (+1)" in summary(document)
    text = to_markdown(document)
    assert f"{escape(found.verdict.contract)} (+1)" in text
    told = [line for line in text.splitlines() if "Replay:" in line]
    assert told == [f"  - Replay: `pytest --mat-replay {name}`" for name in (files[0], f"'{files[1]}'")]
    evil = build([ItemResult(id="t.py::test", status="counterexample", counterexamples=(found,), replays=("`<b>",))], [])
    assert "Replay: pytest --mat-replay '\\`&lt;b&gt;'" in to_markdown(evil)
    alone = build([ItemResult(id="t.py::test", status="counterexample", counterexamples=(found,), replays=files[:1])], [])
    assert "(+" not in summary(alone)


def test_an_unproven_bound_is_not_printed_as_a_number(shop_tests: Any) -> None:
    from dataclasses import replace

    result = ItemResult(
        id="t.py::test", status="not_proven", certificate=replace(shop_tests.proven, proven=False, bound=7, reason="max runs")
    )
    text = summary(build([result], []))
    assert "not proven" in text.replace("not_proven", "")
    assert " 7 " not in text


def test_reports_are_written_by_their_suffix(document: Document, tmp_path: Path) -> None:
    write(document, tmp_path / "deep" / "out.json")
    assert (tmp_path / "deep" / "out.json").read_text() == to_json(document)
    write(document, tmp_path / "out.MD")
    assert (tmp_path / "out.MD").read_text() == to_markdown(document)


@pytest.mark.parametrize(
    ("name", "said"), [("x.html", "Measurement"), ("x.csv", "Measurement"), ("x.doc", "no report format"), ("x", "no")]
)
def test_another_suffix_is_refused_with_what_comes_when(document: Document, tmp_path: Path, name: str, said: str) -> None:
    for refuse in (lambda path: write(document, path), check_path):
        with pytest.raises(MatError) as caught:
            refuse(tmp_path / name)
        assert said in caught.value.why
        assert ".json or .md" in caught.value.fix
    assert not (tmp_path / name).exists()


def test_a_report_that_cannot_be_written_is_a_message(document: Document, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MatError, match="cannot write the report"):
        write(document, tmp_path / "file" / "out.json")


def test_markdown_escapes_what_came_from_a_run(shop_tests: Any, document: Document) -> None:
    text = to_markdown(document)
    assert "## Counterexamples" in text
    assert "refund.once" in text
    assert escape("a|b <script>\n[x](y) `z`") == "a\\|b &lt;script&gt;\\\\n\\[x\\](y) \\`z\\`"
    evil = ItemResult(id="t.py::test[<img src=x>|]", status="failed", reason="| x |\n# Title")
    lines = to_markdown(build([evil], [])).splitlines()
    (line,) = [line for line in lines if "img" in line]
    assert "<img" not in line
    assert line.replace("\\|", "").count("|") == 9
    assert not any(line.startswith("# Title") for line in lines)
