"""Each metric that a report shows has its definition at hand: a tooltip in the page, a row in Markdown."""

from __future__ import annotations

import re
from html import unescape

from mat.measure.metrics import METRICS
from mat.report.definitions import definition_of, definitions
from mat.report.document import Document
from mat.report.files import rendered
from mat.report.markdown import to_markdown
from mat.report.tables import tables_of


def test_every_metric_has_a_definition_with_its_source() -> None:
    for name, metric in METRICS.items():
        assert metric.source in definition_of(name)
        assert definition_of(f"nominal.{name}") == definition_of(name)
    assert definition_of("success@3.unbiased").startswith("tasks solved in at least one of k runs")
    assert definition_of("nominal.pass^2").startswith("tasks solved in all of k runs")
    assert definition_of("nominal.success@1.unbiased") == definition_of("success@1")
    area = definition_of("robustness.adversarial.success.area[tool_use]")
    assert area.startswith(
        "share of tests whose task succeeds under every schedule of cost at most B: mean of the curve over B"
    )
    assert definition_of("robustness.random.compliance.last").startswith("share of tests that break no hard contract")
    assert definition_of("containment.service").startswith(definition_of("containment"))
    assert definition_of("colour") == ""


def test_a_page_shows_them_as_tooltips(evaluated: Document) -> None:
    tips = {unescape(tip) for tip in re.findall(r'<th scope="col"[^>]* title="([^"]+)"', rendered(evaluated, "html").decode())}
    assert {definition_of(name) for name in ("success", "violations", "containment", "difference")} <= tips


def test_markdown_ends_with_those_that_it_uses(evaluated: Document) -> None:
    text = to_markdown(evaluated)
    _, _, last = text.rpartition("## Definitions")
    assert "runs whose task succeeded (share; Sec. V-C 1a)" in last
    shown = definitions(tables_of(evaluated))
    assert len({meaning for _, meaning in shown.rows}) == len(shown.rows)
