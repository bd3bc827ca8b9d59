"""The tables of docs/reference/metrics.md are made from the definitions in the code; run this file to write them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mat.core.record import Impact
from mat.measure.metrics import METRICS, Metric
from mat.measure.rows import ActionCount, Case, ClaimCount, FaultRow, RunRow
from mat.report.definitions import _OTHERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
TABLES = ("metrics", "columns")


def interval_of(metric: Metric) -> str:
    """The row of the table of intervals that a metric belongs to."""
    if metric.name.startswith("mtbf"):
        return "episodes"
    if metric.unit == "share":
        return "share"
    return "ratio" if metric.name == "tokens_per_success" else "mean"


def families() -> dict[str, list[str]]:
    """Metric -> the endings of its variants: `p_allow` has `.low` and others, which are `p_allow` of some actions only."""
    found: dict[str, list[str]] = {}
    for name in METRICS:
        whole, _, ending = name.partition(".")
        if ending and whole in METRICS:
            found[whole].append(f"`.{ending}`")
        else:
            found[name] = []
    return found


def metrics() -> str:
    rows = []
    for name, endings in families().items():
        metric = METRICS[name]
        names = f"`{name}`" + (f", {', '.join(endings)}" if endings else "")
        rows.append(f"| {names} | {metric.text} | {metric.unit} | {interval_of(metric)} | {metric.source} |\n")
    return "".join(rows)


def columns() -> str:
    return "".join(f"| {name} | {meaning} |\n" for name, meaning in _OTHERS.items())


def made(name: str) -> str:
    return {"metrics": metrics, "columns": columns}[name]()


def marks(name: str) -> tuple[str, str]:
    return f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_made_from_the_definitions(name: str) -> None:
    begin, end = marks(name)
    found = PAGE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    rows = found.partition("|---|")[2].partition("\n")[2]
    assert rows == made(name) + "\n", "write it again: python tests/repo/test_metrics_page.py"


def test_every_metric_is_in_the_table_by_itself_or_as_an_ending() -> None:
    assert {whole + ending.strip("`") for whole, endings in families().items() for ending in ["", *endings]} == set(METRICS)


METHODS = {"share": "wilson", "ratio": "percentile bootstrap by task", "mean": "percentile bootstrap by task"}


def test_a_metric_has_the_interval_that_its_row_names() -> None:
    rows = [_row(task, seed) for task in range(12) for seed in range(2)]
    for metric in METRICS.values():
        estimate = metric.function(rows)
        kind = interval_of(metric)
        assert estimate.n, metric.name
        if kind == "episodes":
            assert estimate.method.startswith("percentile bootstrap"), metric.name
            assert "task" not in estimate.method, metric.name
        else:
            assert estimate.method.startswith(METHODS[kind]), (metric.name, estimate.method)


def _row(task: int, seed: int) -> RunRow:
    odd = (task * 7 + seed * 3) % 3 == 0
    fault = FaultRow(
        operator="service.timeout", injected=True, step=1, detected=True, mitigated=odd, contained=odd, final_ok=odd
    )  # fmt: skip
    row = RunRow(
        item=f"t{task}", condition="fault", seed=seed, success=not odd, outcome="pass", termination="completed",
        steps=4 + task * task % 5, tool_calls=1 + task % 3, model_calls=1, tokens=100 + 13 * task + seed, violations=(),
        faults=(fault,), allowed=1, rewritten=1, blocked=1, elapsed_ms=10 + task, input="misuse" if task % 2 else "benign",
        misuse=("refusal", "harmful", "partial", "other")[task % 4] if task % 2 else "",
        cases=tuple(Case(name=name, step=step, steps=2, elapsed_ms=5) for step, name in enumerate("ab")),
        claims=ClaimCount(final=2, unsupported=int(odd), recorded=2, propagated=int(odd)), actions=_actions("low", "high"),
    )  # fmt: skip
    return replace(row, outcome="fail", first_failure=2, first_failure_ms=5) if odd else row


def _actions(*impacts: Impact) -> Sequence[ActionCount]:
    return tuple(
        ActionCount(impact=impact, decision=decision, routed=False, sandboxed=False, count=1)
        for impact in impacts
        for decision in ("allow", "rewrite", "block")
    )


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for table in TABLES:
        begin, end = marks(table)
        before, _, rest = text.partition(begin)
        inside, _, after = rest.partition(end)
        head = inside[: inside.index("\n", inside.index("|---|")) + 1]
        text = before + begin + head + made(table) + "\n" + end + after
    PAGE.write_text(text, encoding="utf-8")
