from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mat.core.campaign import Counterexample, Covered, ItemResult
from mat.core.errors import MatError
from mat.core.run import Finding
from mat.evidence import replay_file
from mat.measure.interval import wilson
from mat.measure.metrics import tokens_per_success
from mat.measure.paired import PairTable
from mat.measure.rows import Labels, RunRow, lost_row, row_of
from mat.report.build import build
from mat.report.document import Document
from mat.report.files import write
from mat.report.markdown import escape, to_markdown
from mat.report.terminal import summary
from mat.report.to_json import to_json


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
        assert list(metric) == ["value", "low", "high", "n", "confidence", "method", "sampling_unit", "population"]
    assert data["runs"] == 4


def test_a_counterexample_is_as_in_its_replay_file_without_tape_and_records(
    document: Document, results: list[ItemResult], found: Counterexample
) -> None:
    assert results[0].certificate is not None
    file = json.loads(
        replay_file.pack(
            replay_file.Replay(item=results[0].id, counterexample=found, certificate=results[0].certificate.below(found.cost))
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
        "containment": {
            "value": None,
            "low": None,
            "high": None,
            "n": 0,
            "confidence": 0.95,
            "method": "wilson",
            "sampling_unit": "",
            "population": "",
        }
    }  # fmt: skip
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
    assert line.replace("\\|", "").count("|") == 10
    assert not any(line.startswith("# Title") for line in lines)


# -- the evaluation ---------------------------------------------------------------------------------------------------


@pytest.fixture
def evaluated(shop_tests: Any, found: Counterexample) -> list[RunRow]:
    """Two tasks of two categories, two seeds each, under two variants and three conditions; one crash."""
    nominal, broken = shop_tests.run(), found.run

    def made(item: str, category: str, variant: str, condition: Any, seed: int, **facts: Any) -> RunRow:
        labels = Labels(category=category, variant=variant, input="misuse" if category == "misuse" else "benign")
        run = nominal if condition == "nominal" else broken
        return replace(row_of(run, item=item, condition=condition, labels=labels), seed=seed, **facts)

    rows = [
        made(item, category, variant, condition, seed, tokens=100 + 10 * seed, success=seed == 1)
        for variant in ("none", "shield")
        for item, category in (("a", "tools"), ("b", "misuse"))
        for condition in ("nominal", "fault", "adversarial")
        for seed in (0, 1)
    ]
    rows.append(made("c", "tools", "none", "nominal", 0, infrastructure="model connection"))
    return rows


def test_the_evaluation_has_a_line_for_each_condition_category_and_variant(evaluated: list[RunRow]) -> None:
    lines = build([], evaluated).evaluation
    assert [(line.condition, line.category, line.variant) for line in lines] == [
        (condition, category, variant)
        for condition in ("nominal", "fault", "adversarial")
        for category in ("misuse", "tools", "all")
        for variant in ("none", "shield")
    ]
    cell = next(line for line in lines if (line.condition, line.category, line.variant) == ("nominal", "tools", "none"))
    assert (cell.items, cell.runs, cell.infrastructure, cell.k) == (2, 3, 1, 2)
    assert cell.get("success") == wilson(1, 2)
    assert cell.get("success@2") == wilson(1, 1)
    assert cell.get("pass^2") == wilson(0, 1)
    assert cell.get("tokens_per_success") == tokens_per_success([row for row in evaluated if row.item == "a"][:2])
    assert cell.get("containment") is None  # no fault: nothing is known of it
    faulty = next(line for line in lines if (line.condition, line.category, line.variant) == ("fault", "all", "shield"))
    assert (faulty.runs, faulty.get("detected"), faulty.get("containment")) == (4, wilson(4, 4), wilson(0, 4))
    assert faulty.get("p_allow") is not None


def test_variants_next_to_the_deciding_one_are_in_the_evaluation_alone(evaluated: list[RunRow]) -> None:
    own = [row for row in evaluated if row.variant == "none"]
    both, alone = build([], evaluated), build([], own)
    assert both.metrics == alone.metrics
    assert (both.violations, both.faults, both.distributions) == (alone.violations, alone.faults, alone.distributions)
    assert len(both.evaluation) == 2 * len(alone.evaluation)


def test_the_order_of_variants_and_rows_within_a_cell_decides_no_number(evaluated: list[RunRow]) -> None:
    def cells(rows: list[RunRow]) -> dict[Any, Any]:
        return {(line.condition, line.category, line.variant): line.metrics for line in build([], rows).evaluation}

    assert cells(evaluated) == cells(list(reversed(evaluated)))


def test_variants_are_compared_in_pairs_of_runs_with_crashes_apart(evaluated: list[RunRow]) -> None:
    rows = [
        replace(row, success=True, tokens=row.tokens + 7)
        if (row.condition, row.variant, row.item) == ("nominal", "shield", "a")
        else row
        for row in evaluated
    ]
    crash = replace(rows[-1], variant="shield", infrastructure="")
    found = build([], [*rows, rows[0], crash]).variant_pairs
    assert [(line.condition, line.aspect, line.old, line.new) for line in found] == [
        (condition, aspect, "none", "shield")
        for condition in ("nominal", "fault", "adversarial")
        for aspect in ("success", "compliance")
    ]
    success = found[0].paired
    assert success.table == PairTable(both=2, only_old=0, only_new=1, neither=1)
    assert success.p_value == 1.0
    assert [(item.side, item.reason, item.pairs) for item in success.apart] == [("old", "model connection", 1)]
    assert (found[0].tokens.value, found[0].tokens.n) == (3.5, 4)
    assert found[3].paired.table == PairTable(both=0, only_old=0, only_new=0, neither=4)  # under faults both break it


def test_one_variant_is_compared_with_none(evaluated: list[RunRow]) -> None:
    assert build([], [row for row in evaluated if row.variant == "none"]).variant_pairs == ()


def test_replays_are_in_no_evaluation(evaluated: list[RunRow]) -> None:
    replayed = [replace(row, condition="replay") for row in evaluated]
    assert build([], replayed).evaluation == ()


def test_crashes_are_reported_by_condition_and_reason(evaluated: list[RunRow]) -> None:
    (line,) = build([], evaluated).infrastructure
    assert (line.condition, line.reason, line.runs) == ("nominal", "model connection", 1)


def test_a_crash_around_a_run_is_no_run_of_the_nominal_table_and_no_outcome(evaluated: list[RunRow]) -> None:
    lost = lost_row(item="a", condition="nominal", seed=2, labels=Labels(variant="none", infrastructure="set-up failed"))
    document, without = build([], [*evaluated, lost]), build([], evaluated)
    assert document.nominal == without.nominal
    assert {line.item: line.runs for line in document.nominal} == {"a": 2, "b": 2, "all": 4}
    assert document.outcomes == without.outcomes
    assert {outcome.item for outcome in document.outcomes} == {"a", "b"}
    assert {(line.reason, line.runs) for line in document.infrastructure} == {("model connection", 1), ("set-up failed", 1)}


def test_distributions_and_first_violations_are_reported_by_condition(evaluated: list[RunRow]) -> None:
    document = build([], evaluated)
    names = {(line.condition, line.name) for line in document.distributions}
    assert ("nominal", "steps_to_termination") in names
    assert ("nominal", "steps_to_failure") not in names  # no nominal run fails
    steps = next(line for line in document.distributions if (line.condition, line.name) == ("fault", "first_violation"))
    assert [(bar.least, bar.count) for bar in steps.distribution.bins] == [(3, 4)]
    agents = next(line for line in document.first_violations if (line.condition, line.by) == ("fault", "agent"))
    assert [(share.name, share.count) for share in agents.shares] == [("mailer", 4)]


def test_the_fault_table_says_what_was_decided_in_runs_with_that_fault(evaluated: list[RunRow]) -> None:
    (line,) = build([], evaluated).faults
    assert line.allow.value == 1.0
    assert line.allow.n > 0
    assert line.block.value == line.rewrite.value == 0.0


def test_new_tables_stand_behind_those_of_the_format(evaluated: list[RunRow]) -> None:
    data = json.loads(to_json(build([], evaluated)))
    assert list(data["tables"]) == [
        "nominal", "faults", "governance", "violations", "outcomes", "evaluation", "distributions", "first_violations",
        "infrastructure", "variant_pairs", "tasks", "other_outcomes", "drift", "agency",
    ]  # fmt: skip
    line = data["tables"]["evaluation"][0]
    assert list(line) == ["condition", "category", "variant", "items", "runs", "infrastructure", "k", "metrics"]
    for estimate in line["metrics"].values():
        assert list(estimate) == ["value", "low", "high", "n", "confidence", "method", "sampling_unit", "population"]
        assert estimate["n"] > 0
    assert list(data["tables"]["distributions"][0]) == ["condition", "name", "unit", "distribution"]


def test_every_metric_of_a_condition_is_in_the_metrics_with_its_unit(evaluated: list[RunRow]) -> None:
    found = {metric.name: metric for metric in build([], evaluated).metrics}
    assert found["nominal.tokens_per_success"].unit == "tokens"
    assert found["fault.containment"].estimate.n == 4
    assert found["adversarial.violations"].estimate.value == 1.0
    assert found["nominal.success@2"].estimate.n == 2
    assert "nominal.misuse.refusal" not in found  # nobody judged it


def test_what_a_search_covered_is_reported_of_its_item(shop_tests: Any) -> None:
    covered = Covered(contracts=("refund.once",), interfaces=("service:refund",), risks=("high/",))
    item = ItemResult(id="t", status="certified", certificate=shop_tests.proven, covered=covered)
    first, second = json.loads(to_json(build([item, ItemResult(id="u", status="nominal")], [])))["items"]
    assert first["covered"] == {
        "contracts": ["refund.once"], "idle": [], "boundaries": [], "interfaces": ["service:refund"], "perturbed": [],
        "failing": [], "risks": ["high/"],
    }  # fmt: skip
    assert second["covered"] is None


def test_an_end_that_the_data_do_not_bound_is_null_and_no_infinity(shop_tests: Any) -> None:
    rows = [
        replace(row_of(shop_tests.run(), item="t", condition="nominal"), seed=seed, tokens=100 + seed, success=seed == 0)
        for seed in range(6)
    ]
    found = json.loads(to_json(build([], rows)))["metrics"]["nominal.tokens_per_success"]
    assert found["value"] == 615.0
    assert found["low"] is None
    assert found["high"] is None
