"""What the numbers of a report mean: tooltips of the page, and a table in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mat.core.campaign import ItemStatus
from mat.measure.metrics import METRICS
from mat.report.table import Column, Table

_OTHERS: Final = {
    "difference": "new share minus old share, over pairs; Newcombe's interval (Statistics in Medicine 17, 1998)",
    "p": "probability of a split of the pairs at least this uneven, if old and new were equal (exact test, two-sided)",
    "n": "what the number was computed from",
    "area": "mean of the curve over budgets 0 to B",
    "score": "share of an agent's actions outside its role, mean over runs (D_i, Sec. III-B F3)",
    "drifted": "share of the runs in which an agent acted outside its role (Sec. III-B F3)",
    "rate": "share of the proposed actions that are declared unsafe (Eq. 3, Sec. III-B F4)",
    "effected": "share of the proposed actions that are unsafe and were not stopped (Eq. 3, Sec. III-B F4)",
    "bound": "no counterexample costs at most this much, on the grid that was searched",
    "cost": "cost of the cheapest counterexample",
}
"""Columns that are no metrics -> their meaning."""
_IN_K: Final = re.compile(r"(success@|pass\^)\d+(\.unbiased)?")
_K: Final = {
    "success@": "tasks solved in at least one of k runs (Chen et al. 2021, Eq. 1)",
    "pass^": "tasks solved in all of k runs (Yao et al. 2024)",
}
RESULTS: Final[Mapping[ItemStatus, str]] = {
    "nominal": "the nominal runs break no contract; no search was asked for",
    "certified": "every schedule of the chosen faults up to the budget was executed, or leads to a state that was searched "
    "before; nothing broke. This says nothing about other faults, higher costs, or other replies of a live model",
    "counterexample": "a contract breaks under a schedule, which is shrunk and confirmed in a fresh process",
    "violated": "a contract breaks in a nominal run or in a replay",
    "expected": "exactly the contracts of expect= break",
    "missed": "a contract of expect= did not break; the search may have been too short",
    "accepted": "somebody accepted what breaks until a date",
    "known": "what breaks stands in the report that --mat-baseline names",
    "flaky": "a contract broke, and did not break again under the same schedule",
    "replayed": "a committed counterexample breaks nothing now; something else may",
    "stale": "the run no longer makes the calls that the replay disturbs; the failure may still be there",
    "vacuous": "a hard contract was never triggered, or no fault can change anything: nothing is said about the system",
    "not_proven": "nothing broke in what was executed, which is not all; something else may break",
    "not_judged": 'a hard contract could not judge a run, and allows that (on_error="unknown")',
    "evaluated": "the test was measured, not searched for what breaks it",
    "failed": "the test itself failed",
}
"""What each result of a test says, and what it does not."""
_OF_CURVE: Final = re.compile(r"robustness\.(?P<kind>\w+)\.(?P<measure>\w+)\.(?P<part>area|last)(\[|$)")
_MEASURED: Final = {"success": "share of tests whose task succeeds", "compliance": "share of tests that break no hard contract"}
_UNDER: Final = {"adversarial": "under every schedule of cost at most B", "random": "under random schedules of cost at most B"}
_POINTS: Final = {"area": "mean of the curve over B", "last": "its value at the largest B"}
_ALIASES: Final = {"steps_to_termination": "steps", "allowed": "p_allow", "rewritten": "p_rewrite", "blocked": "p_block"}


def definition_of(name: str) -> str:
    """The meaning of a column or a metric, with its source; "" if it has no definition.

    >>> definition_of("nominal.success")
    'runs whose task succeeded (share; Sec. V-C 1a)'
    >>> definition_of("pass^4")
    'tasks solved in all of k runs (Yao et al. 2024)'
    """
    match = _IN_K.fullmatch(name) or _IN_K.fullmatch(name.partition(".")[2])
    if match is not None:
        return _K[match[1]]
    if curve := _OF_CURVE.match(name):
        return f"{_MEASURED[curve['measure']]} {_UNDER[curve['kind']]}: {_POINTS[curve['part']]} (Sec. V-D)"
    if name.startswith("containment."):
        return f"{definition_of('containment')}, of this operator or boundary alone"
    for known in (name, name.partition(".")[2], _ALIASES.get(name, "")):
        if known in METRICS:
            metric = METRICS[known]
            return f"{metric.text} ({metric.unit}; {metric.source})"
    return _OTHERS.get(name, "")


def definitions(tables: Iterable[Table]) -> Table:
    """The definitions of what tables show: of their columns, and of the metrics that they name."""
    names = [name for table in tables for name in _named_in(table)]
    rows = {definition_of(name): name for name in reversed(names) if definition_of(name)}
    return Table(
        name="definitions", title="Definitions", columns=(Column(name="name", key=True), Column(name="meaning")),
        rows=tuple(sorted((name.replace("_", " "), meaning) for meaning, name in rows.items())),
    )  # fmt: skip


def _named_in(table: Table) -> Iterable[str]:
    yield from (column.name for column in table.columns)
    if table.name == "metrics":
        yield from (str(cell) for row in table.rows for cell in row[:1])
