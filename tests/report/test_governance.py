"""The comparison of governance variants, as text, Markdown and JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mat.measure.governance import ActionCount, GovernedRow, SearchRow, by_variant
from mat.report import governance
from mat.report.build import build
from mat.report.markdown import to_markdown
from mat.report.terminal import in_text, summary
from mat.report.to_json import to_json


def text_of(lines: Any) -> str:
    return in_text(governance.tables(lines))


def row(
    variant: str, decision: Any, *, misuse: bool = False, harm: bool | None = None, condition: Any = "nominal"
) -> GovernedRow:
    count = ActionCount(impact="high", decision=decision, routed=False, sandboxed=False, count=2)
    return GovernedRow(
        item="t", variant=variant, condition=condition, seed=0, input="misuse" if misuse else "benign", category="",
        success=True, violated=bool(harm), harm=harm, actions=(count,),
    )  # fmt: skip


@pytest.fixture
def rows() -> list[GovernedRow]:
    return [
        row("shield", "block", misuse=True, harm=False), row("none", "allow", misuse=True, harm=True),
        row("shield", "rewrite"), row("none", "allow"),
    ]  # fmt: skip


def test_the_table_has_a_line_for_each_variant_with_its_rates_and_intervals(rows: list[GovernedRow]) -> None:
    text = text_of(by_variant(rows))
    lines = text.splitlines()
    header = next(line for line in lines if line.startswith("variant"))
    assert all(word in header for word in ("runs", "success", "violations", "high impact stopped", "attack success"))
    none, shield = (next(line for line in lines if line.startswith(name)) for name in ("none", "shield"))
    assert "0% [0-66] n=4" in none
    assert none.rstrip().endswith("100% [21-100] n=1")
    assert "50% [9-91] n=4" in shield
    assert shield.rstrip().endswith("0% [0-79] n=1")
    assert lines.index(none) < lines.index(shield)
    assert max(map(len, lines)) <= 110


def test_mediation_is_reported_by_risk_and_by_input(rows: list[GovernedRow]) -> None:
    text = text_of(by_variant(rows))
    for part in ("high impact", "benign input", "misuse input"):
        assert text.count(part) >= 2
    assert "low impact" not in text  # no such action was proposed


def test_what_was_searched_under_each_variant_has_a_table_of_its_own(rows: list[GovernedRow]) -> None:
    searches = [SearchRow(item="t", variant="none", cost=3, contract="c", executions=9, proven=True)]
    faults = [*rows, row("none", "allow", condition="fault")]
    text = text_of(by_variant(faults, searches))
    table = text.partition("under search")[2].splitlines()
    assert table[2].split() == ["none", "100%", "[21-100]", "n=1", "3"]
    assert max(map(len, text.splitlines())) <= 110
    assert "under search" not in text_of(by_variant(rows))


def test_the_report_carries_the_table_in_every_format(rows: list[GovernedRow]) -> None:
    document = build([], [], governed=rows)
    data = json.loads(to_json(document))["tables"]["governance"]
    assert [line["variant"] for line in data] == ["none", "shield"]
    assert data[0]["attack_success"]["value"] == 1.0
    assert data[0]["attack_success"]["method"] == "wilson"
    assert {part["name"] for part in data[1]["by_input"]} == {"benign", "misuse"}
    assert set(data[1]["shares"]) == {"allow", "rewrite", "block"}
    assert "Governance variants" in summary(document)
    markdown = to_markdown(document)
    assert "## Governance variants" in markdown
    assert "| none | 2 |" in markdown


def test_a_session_that_nothing_governs_has_no_table() -> None:
    document = build([], [], governed=[row("none", "allow")])
    assert document.governance == ()
    assert summary(document) == ""
    assert text_of(()) == ""


def test_a_variants_name_is_shown_and_not_read() -> None:
    document = build([], [], governed=[row("a|b<script>\n\x1b[31m", "block")])
    markdown = to_markdown(document)
    assert "<script>" not in markdown
    assert "a|b" not in markdown
    assert "\x1b" not in summary(document)
    assert "\x1b" not in markdown
