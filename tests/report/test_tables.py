"""The tables of a report as values: which there are, and what each cell holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mat.core.campaign import Counterexample, Covered, ItemResult
from mat.measure.estimate import Estimate
from mat.measure.metrics import METRICS
from mat.measure.rows import Score
from mat.report import words
from mat.report.build import build
from mat.report.document import Document, unit_of
from mat.report.files import rendered
from mat.report.flat import numbers
from mat.report.markdown import to_markdown
from mat.report.table import Column, Reworded, Table, UnitEstimate, cell_text, shown
from mat.report.tables import tables_of
from mat.report.terminal import in_text, summary, whole


def table(document: Document, name: str) -> Table:
    (found,) = [each for each in tables_of(document) if each.name == name]
    return found


def column(found: Table, name: str) -> list[Any]:
    place = [each.name for each in found.columns].index(name)
    return [row[place] for row in found.rows]


def test_the_nominal_table_has_a_row_for_each_category_and_variant_with_what_a66_asks_for(
    evaluated: Document, desk: Any
) -> None:
    found = table(evaluated, "evaluation_nominal")
    assert found.title == "Nominal runs by category and variant"
    assert list(zip(column(found, "category"), column(found, "variant"), strict=True)) == [
        (category, variant) for category in (*sorted(desk.categories), "all") for variant in desk.variants
    ]
    names = {each.name for each in found.columns}
    assert names >= {"success", "success@2", "collapse", "non_termination", "steps", "tool_calls", "tokens", "infrastructure"}
    rows = [row for row in desk.rows() if (row.condition, row.category, row.variant) == ("nominal", "tool use", "shield")]
    place = column(found, "category").index("tool use") + 1
    assert column(found, "success")[place] == METRICS["success"].function(rows)
    assert column(found, "steps")[place].value == sum(row.steps for row in rows) / len(rows)


def test_infrastructure_failures_stand_apart_from_the_runs_that_rates_rest_on(evaluated: Document) -> None:
    found = table(evaluated, "evaluation_nominal")
    lost = {
        (category, variant): (runs, lost)
        for category, variant, runs, lost in zip(
            *(column(found, name) for name in ("category", "variant", "runs", "infrastructure")), strict=True
        )
    }
    assert lost["policy", "none"] == (4, 1)
    assert lost["policy", "shield"] == (4, 0)
    assert column(found, "success")[column(found, "category").index("policy")].n == 4
    assert table(evaluated, "infrastructure").rows == (("nominal", "crash of the harness", 1, "all"),)
    assert "lost: runs whose infrastructure failed" in whole(evaluated)


def test_the_fault_tables_tell_detection_mitigation_containment_the_final_response_and_decisions(evaluated: Document) -> None:
    for condition, title in (("fault", "Runs under faults"), ("adversarial", "Runs under adversarial schedules")):
        found = table(evaluated, f"evaluation_{condition}")
        assert found.title == f"{title} by category and variant"
        names = [each.heading for each in found.columns]
        for name in ("detected", "mitigated", "contained", "final harmful", "allowed", "rewritten", "blocked"):
            assert name in names
        shield = column(found, "variant").index("shield")
        assert column(found, "p_block")[shield].value == 0.5
        assert column(found, "p_block")[0].value == 0.0


def test_whose_decisions_stood_against_an_action_are_reported_next_to_its_faults(desk: Any) -> None:
    def told(variant: str) -> str:
        rows = [desk.row("tool use", task, "fault", variant, 0) for task in range(4)]
        return in_text([table(build([], rows), "faults")])

    assert "blocked" not in told("none")
    assert "50% [" in told("shield").partition("blocked")[2]


@pytest.mark.full
def test_metrics_that_are_none_everywhere_and_seldom_of_interest_have_no_column(desk: Any) -> None:
    rows = desk.rows()
    assert "unknown" not in whole(build([], rows))
    odd = [replace(row, outcome="unknown") if row.seed else row for row in rows]
    assert "unknown" in whole(build([], odd))


def test_a_page_of_one_category_and_variant_needs_no_column_for_the_variant(desk: Any) -> None:
    rows = [desk.row("", task, "nominal", "none", seed) for task in range(3) for seed in range(2)]
    found = table(build([], rows), "evaluation_nominal")
    assert found.title == "Nominal runs, all"
    assert [each.name for each in found.columns][:3] == ["category", "items", "runs"]


def test_variants_are_compared_in_pairs_of_equal_runs(evaluated: Document) -> None:
    found = table(evaluated, "variant_pairs")
    lines = evaluated.variant_pairs
    assert column(found, "pairs") == [line.paired.table.pairs for line in lines]
    assert set(column(found, "old")) == {"none"}
    text = in_text([found], width=200)
    assert "swaps" in text
    facts = [number for number in numbers([found]) if number.name == "p"]
    assert [number.value for number in facts] == [line.paired.p_value for line in lines if line.paired.p_value is not None]
    differences = [number for number in numbers([found]) if number.name == "difference"]
    assert [number.value for number in differences] == [line.paired.difference.value for line in lines]


def test_first_violations_have_a_histogram_and_who_and_what_they_were(evaluated: Document) -> None:
    text = whole(evaluated)
    assert "First violating step" in text
    assert "=====" in text
    found = table(evaluated, "first_violations")
    assert ("fault", "agent", "mailer") in {row[:3] for row in found.rows}
    counted = sum(row[2] for row in table(evaluated, "first_violation_histogram").rows if row[0] == "fault")
    assert counted == sum(row[3] for row in found.rows if row[:2] == ("fault", "agent"))
    assert "<td" not in to_markdown(evaluated)


def test_distributions_show_open_ends_and_what_has_no_number(evaluated: Document) -> None:
    text = in_text([table(evaluated, "distributions")], width=200)
    (line,) = [line for line in text.splitlines() if line.startswith("steps to failure") and " fault " in line]
    assert "-...]" in line
    found = table(evaluated, "distributions")
    assert {row[1] for row in found.rows} == {"nominal", "fault", "adversarial"}


def test_coverage_counts_what_a_search_met_and_names_what_was_idle(found: Counterexample) -> None:
    covered = Covered(
        contracts=("a", "b"), idle=tuple(f"idle.{number}" for number in range(6)), boundaries=("service",),
        interfaces=("service:refund", "service:lookup"), perturbed=("service:refund",), risks=("high/", "low/"),
    )  # fmt: skip
    results = [
        ItemResult(id="t.py::test_a", status="certified", covered=covered),
        ItemResult(id="t.py::test_b", status="certified"),
    ]
    document = build(results, [])
    coverage = table(document, "coverage")
    assert [row[0] for row in coverage.rows] == ["t.py::test_a"]
    assert "idle.0, idle.1, idle.2, idle.3 and 2 more" in in_text([coverage])
    assert "Coverage" not in summary(document)  # a search's closing section stays short
    facts = {number.name: number.text for number in numbers([coverage])}
    assert facts["interfaces"] == "service:refund; service:lookup"
    assert facts["idle"].endswith("idle.5")


@pytest.mark.full
def test_the_short_summary_has_none_of_the_tables_of_an_evaluation(evaluated: Document) -> None:
    text = summary(evaluated)
    assert "by category" not in text
    assert "Distributions" not in text
    assert "Governance variants" in text
    assert len(text) < len(whole(evaluated)) / 2


def test_media_take_tables_and_columns_away_and_nothing_else(evaluated: Document) -> None:
    tables = tables_of(evaluated)
    for medium in ("terminal", "markdown", "files"):
        for found in shown(tables, medium):
            assert all(medium in each.media for each in found.columns)
            assert all(len(row) == len(found.columns) for row in found.rows)
    assert {each.name for each in shown(tables, "files")} >= {"evaluation", "metrics", "histograms", "distributions"}
    assert "metrics" not in {each.name for each in shown(tables, "terminal")}


def estimate(value: float | None, low: float | None, high: float | None, n: int = 7) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=n, confidence=0.95, method="wilson")


@pytest.mark.parametrize(
    ("cell", "unit", "text"),
    [
        (estimate(0.5, 0.25, 0.75), "share", "50% [25-75] n=7"),
        (estimate(0.5, None, 0.75), "share", "50% [...-75] n=7"),
        (estimate(0.5, 0.25, None), "share", "50% [25-...] n=7"),
        (estimate(0.002, 0.0, 0.01), "share", "0.2% [0-1] n=7"),
        (estimate(0.0001, 0.0, 0.9999), "share", "<0.1% [0->99.9] n=7"),
        (estimate(1.0, 0.996, 1.0), "share", "100% [99.6-100] n=7"),
        (estimate(None, None, None, 0), "share", "-"),
        (estimate(3.14159, 2.5, None), "steps", "3.14 [2.5-...] n=7"),
        (estimate(12345.6, 999.9, 123456.0), "tokens", "12,346 [1,000-123,456] n=7"),
        (UnitEstimate(estimate=estimate(0.5, 0.25, 0.75), at_most=True), "share", "<= 50% [25-75] n=7"),
        (UnitEstimate(estimate=estimate(None, None, None, 0), at_most=True), "share", "-"),
        (UnitEstimate(estimate=estimate(3.0, 2.0, 4.0), unit="steps"), "share", "3 [2-4] n=7"),
        (Reworded(text="in words", value=3), "share", "in words"),
        (estimate(-0.12, -0.3, 0.05), "share", "-12% [-30 to 5] n=7"),
        (estimate(-250.0, -300.0, None), "tokens", "-250 [-300 to ...] n=7"),
        ("", "share", "-"),
        (None, "share", "-"),
        (0, "share", "0"),
    ],
)
def test_a_cell_is_reported_with_its_interval_and_its_n(cell: Any, unit: str, text: str) -> None:
    assert cell_text(cell, unit) == text


def test_n_is_not_said_again_where_the_row_says_it() -> None:
    assert cell_text(estimate(0.5, 0.25, 0.75), n=7) == "50% [25-75]"
    assert cell_text(estimate(0.5, 0.25, 0.75), n=8) == "50% [25-75] n=7"


def test_units_are_found_again_by_name() -> None:
    names = (
        "nominal.steps",
        "fault.tokens_per_success",
        "nominal.score.tone",
        "score.tone",
        "nominal.success@3",
        "containment",
    )
    assert [unit_of(name) for name in names] == ["steps", "tokens", "score", "score", "share", "share"]


def test_every_number_of_a_report_is_a_line_with_its_interval_and_method(evaluated: Document) -> None:
    lines = list(numbers(tables_of(evaluated)))
    metrics = {line.subject: line for line in lines if line.table == "metrics"}
    assert list(metrics) == [metric.name for metric in evaluated.metrics]
    for metric in evaluated.metrics:
        line, said = metrics[metric.name], metric.estimate
        assert (line.value, line.low, line.high, line.n) == (said.value, said.low, said.high, said.n)
        assert (line.confidence, line.method, line.unit) == (said.confidence, said.method, metric.unit)
    cells = [line for line in lines if line.table == "evaluation" and line.name == "success"]
    assert [(line.condition, line.category, line.variant) for line in cells] == [
        (line.condition, line.category, line.variant) for line in evaluated.evaluation
    ]


# -- layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("width", [60, 80, 110, 120, 200])
def test_no_line_is_wider_than_the_terminal_but_for_names_of_tests(evaluated: Document, width: int) -> None:
    for found in shown(tables_of(evaluated), "terminal"):
        name = max((each.whole for each in found.columns), default=False)
        for line in in_text([found], width=width).splitlines():
            assert len(line.rpartition("  ")[0] if name else line) <= width


@pytest.mark.full
@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_column_is_shown_at_any_width(evaluated: Document, width: int) -> None:
    text = whole(evaluated, width=width)
    found = table(evaluated, "evaluation_fault")
    part = text[text.index(found.title) : text.index("Runs under adversarial")]
    for each in found.columns[2:]:
        assert set(each.heading.split()) <= set(part.split())
    for row in found.rows:
        assert cell_text(row[4], n=row[3]) in part


def test_a_table_that_is_too_wide_names_its_rows_again() -> None:
    columns = [Column(name="who", key=True), *(Column(name=f"column_with_{number}_words") for number in range(8))]
    rows = tuple((name, *(f"text of {number} characters" for number in range(8))) for name in ("first", "second"))
    text = in_text([Table(name="t", title="Title", columns=tuple(columns), rows=rows)], width=60)
    assert text.count("Title, continued") == text.count("second") - 1 == 3
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.full
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_estimate_stands_without_its_n_however_narrow_the_terminal_is(evaluated: Document, width: int) -> None:
    for found in shown(tables_of(evaluated), "terminal"):
        for block in in_text([found], width=width).split("\n\n"):
            lines = [line for line in block.splitlines() if "% [" in line]
            counted = {"n", "runs", "pairs"} & set(block.split("% [")[0].split())
            assert all("n=" in line for line in lines) or counted


def test_a_narrow_table_says_n_once_and_folds_its_headings_before_it_goes_on_below(desk: Any) -> None:
    rows = [desk.row("tool use", task, "fault", "none", 0) for task in range(4)]
    found = table(build([], rows), "faults")
    wide, narrow = (in_text([found], width=width) for width in (110, 70))
    assert "n=4" in wide
    assert "continued" not in narrow
    assert "n=" not in narrow
    (line,) = [line for line in narrow.splitlines() if line.startswith("service.timeout")]
    assert line.split()[1] == "4"
    unequal = replace(found, rows=((*found.rows[0][:4], estimate(0.5, 0.2, 0.8, n=3), *found.rows[0][5:]),))
    assert in_text([unequal], width=70).count("n=") == in_text([unequal], width=70).count("n=3") == 1


def test_a_name_that_takes_more_than_its_share_is_folded() -> None:
    columns = (Column(name="who", key=True), Column(name="share"))
    rows = (("long name " * 40, estimate(0.5, 0.25, 0.75)),)
    text = in_text([Table(name="t", title="Title", columns=columns, rows=rows)], width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "7  50% [25-75]" in text


@pytest.mark.full
def test_text_from_a_run_cannot_write_to_the_terminal_by_any_table(desk: Any) -> None:
    evil = "\x1b[31m[red]x[/red]\x07\u202e\r\nnext"
    rows = [replace(row, category=evil, variant=f"{evil}{row.variant}") for row in desk.rows()]
    rows.append(desk.row(evil, 0, "nominal", "none", 7, infrastructure=evil))
    text = whole(build([], rows))
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "[red]x[/red]" in text


def test_markdown_stays_in_its_cells_whatever_a_run_says(desk: Any) -> None:
    evil = "a|b\n\n# Title <script>alert(1)</script> [x](javascript:y)"
    rows = [replace(row, category=evil, variant=evil) for row in desk.rows()]
    rows.append(desk.row(evil, 0, "nominal", "none", 7, infrastructure=evil))
    text = to_markdown(build([], rows))
    assert "<script>" not in text
    assert "](" not in text.replace("\\](", "")
    for block in text.split("\n\n"):
        lines = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
    assert not any(line.startswith("# Title") for line in text.splitlines())


def test_a_width_wraps_sentences_too(found: Counterexample) -> None:
    result = ItemResult(id="t.py::test", status="counterexample", counterexamples=(found,), reason="because " * 30)
    for width in (70, 110):
        assert max(map(len, summary(build([result], []), width=width).splitlines())) <= width
    assert words.WIDTH == 110


# -- what is not known, and what failed -------------------------------------------------------------------------------------


def _tokens(document: Document) -> list[str]:
    """The headings of every table for people that speak of tokens, in a terminal, Markdown and on a page."""
    said = [column.heading for medium in ("terminal", "markdown") for each in shown(tables_of(document), medium)
            for column in each.columns]  # fmt: skip
    html = rendered(document, "html").decode()
    tables = html[html.index('<section id="nominal"') :] + html[html.index('data-name="evaluation-nominal"') :]
    headers = [part.partition("</th>")[0].rpartition(">")[2] for part in tables.split("<th")[1:]]
    return [heading for heading in (*said, *headers) if "tokens" in heading]


@pytest.mark.full
def test_where_no_model_reports_its_usage_no_table_speaks_of_tokens(desk: Any) -> None:
    assert {"tokens", "tokens per success", "more tokens"} <= set(_tokens(build([], desk.rows())))
    silent = build([], desk.rows(tokens=0))
    assert _tokens(silent) == []
    assert "0 [0-0]" not in to_markdown(silent)


@pytest.mark.full
def test_a_test_whose_model_reports_nothing_next_to_one_that_does_says_so(desk: Any) -> None:
    rows = desk.rows()
    first = rows[0].item
    document = build([], [replace(row, tokens=0) if row.item == first else row for row in rows])
    found = table(document, "nominal")
    said = dict(zip(column(found, "item"), (cell_text(cell, "tokens") for cell in column(found, "tokens")), strict=True))
    assert said.pop(first) == "not reported"
    assert "not reported" not in said.values()
    assert rendered(document, "html").decode().count(">not reported<") == 1
    written = [each for each in numbers([found]) if each.name == "tokens" and each.item == first]
    assert written == []  # a file holds no number that nobody knows


@pytest.mark.full
def test_scorers_that_fail_are_counted_by_scorer_and_kind_of_error_and_lose_no_run(desk: Any) -> None:
    errors = [
        "KeyError: 'a'",
        "KeyError: 'b'",
        "ValueError: no",
        "inf is not a finite number",
        "{'x: 1'} is not a finite number",
    ]
    rows = desk.rows()
    plain = build([], rows)
    rows[: len(errors)] = [
        replace(row, scores=(Score(name="tone", value=None, error=error), Score(name="silent", value=None)))
        for row, error in zip(rows, errors, strict=False)
    ]
    document = build([], rows)
    assert sum(line.runs for line in document.infrastructure) == len(errors)
    assert {line.left_out_of for line in document.infrastructure} == {"score.tone"}
    lost = replace(rows[0], infrastructure="set-up failed")  # of a lost run nobody asks for its score
    again = build([], [lost, *rows[1:]])
    first = again.infrastructure[0]
    assert (first.reason, first.left_out_of) == ("set-up failed", "")
    one = [
        replace(rows[0], seed=seed, scores=(Score(name="tone", value=None, error=error),)) for seed, error in enumerate(errors)
    ]
    assert {line.reason: line.runs for line in build([], one).infrastructure} == {
        "scorer tone: KeyError: 'a'": 2, "scorer tone: ValueError: no": 1, "scorer tone: inf is not a finite number": 2,
    }  # fmt: skip
    same = ("success", "violations", "steps")
    assert [cell.get(name) for cell in document.evaluation for name in same] == [
        cell.get(name) for cell in plain.evaluation for name in same
    ]


def test_what_failed_around_runs_is_reported_of_every_variant(desk: Any) -> None:
    rows = [replace(row, infrastructure="gone") if row.variant == "shield" and row.seed == 0 else row for row in desk.rows()]
    document = build([], rows)
    lost = sum(line.infrastructure for line in document.evaluation if line.category == "all")
    assert sum(line.runs for line in document.infrastructure) == lost > 0
