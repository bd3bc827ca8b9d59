"""An item under its governance variants (A5.5): one decides the outcome, the others are run beside it and reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mat.core.run import Run
from mat.core.workload import Workload
from mat.measure.claims import count_claims
from mat.measure.governance import GovernedRow, SearchRow, governed_row
from mat.measure.rows import Condition, RunRow, row_of
from mat.measure.scores import scored
from mat.monitor.faults import rules_of
from mat_contracts.claims import claims_in
from pytest_mat.options import Settings
from pytest_mat.runtime import ARMED, PLAN, RESULT, VARIANT, VARIANTS, Plan, task_of, variant_of
from pytest_mat.tasks import GIVEN, JUDGED, Judged


class Governed:
    """What the runs of one item say of governance, under each variant; empty for an item that nothing governs."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self.rows: list[GovernedRow] = []
        self.searches: list[SearchRow] = []

    def searched(self, result: Any) -> None:
        """Keep what a search under the present variant found."""
        self.searches.append(search_row(self._item, result))


def measured(item: pytest.Item, run: Run, condition: Condition, *, claims: bool = False) -> tuple[RunRow, GovernedRow | None]:
    """A run of the item in numbers, and what it says of governance. `claims`: judge its claims as well, which takes time."""
    task, armed = item.stash.get(GIVEN, Workload()), item.stash.get(ARMED, ())
    row = row_of(
        run, item=task_of(item), condition=condition, rules=rules_of(armed),
        labels=replace(item.stash.get(JUDGED, Judged()).labels, variant=variant_of(item)),
        claims=count_claims(run, claims_in) if claims else None, scores=scored(run, task.scorers),
    )  # fmt: skip
    return row, governance_row(item, run, condition)


def governance_row(item: pytest.Item, run: Run, condition: Condition) -> GovernedRow | None:
    """What a run says of governance; None where nothing governs the item and nothing was decided."""
    ungoverned = item.stash.get(VARIANTS, ("none",)) == ("none",)
    if ungoverned and all(record.mediation is None for record in run.records):
        return None
    said = item.stash.get(JUDGED, Judged())
    return governed_row(
        run, item=task_of(item), variant=variant_of(item), condition=condition, misuse=said.misuse, harm=said.harm,
        category=said.labels.category,
    )  # fmt: skip


def search_row(item: pytest.Item, result: Any) -> SearchRow:
    """What a search under the present variant found; a run that breaks a contract undisturbed costs nothing."""
    broken = next(iter(result.nominal.failures), None)
    first = min(result.counterexamples, key=lambda found: found.cost, default=None)
    cost, contract = (None, "") if first is None else (first.cost, first.verdict.contract)
    if broken is not None:
        cost, contract = 0, broken.contract
    return SearchRow(
        item=task_of(item), variant=variant_of(item), cost=cost, contract=contract, executions=result.executions,
        proven=result.certificate.proven,
    )  # fmt: skip


def compare(
    item: pytest.Item,
    settings: Settings,
    *,
    protocol: Callable[[], Any],
    note: Callable[[Run, Condition], None],
    search: Callable[[Run], Any] | None,
) -> list[str]:
    """Run the item under its other variants: all seeds, and a search each where one is asked for. Returns what went wrong.

    `protocol` runs the whole item once by its plan, `note` keeps a run, `search` searches from a nominal run. The item is left
    as it was: its own run and its own variant.
    """
    own, plan = item.stash.get(RESULT, None), item.stash.get(PLAN, None)
    problems = []
    try:
        for variant in item.stash.get(VARIANTS, ("none",))[1:]:
            item.stash[VARIANT] = variant
            first = _nominal(item, settings, protocol, note)
            if first is None:
                problems.append(f"the governance variant {variant} was not compared: the test did not run to its end under it")
            elif search is not None:
                search(first)
    finally:
        if VARIANT in item.stash:
            del item.stash[VARIANT]
        if own is not None:
            item.stash[RESULT] = own
        if plan is not None:
            item.stash[PLAN] = plan
    return problems


def _nominal(
    item: pytest.Item, settings: Settings, protocol: Callable[[], Any], note: Callable[[Run, Condition], None]
) -> Run | None:
    """All seeds under the present variant; the first run, or None where a seed gave none."""
    first: Run | None = None
    for seed in range(settings.seeds):
        item.stash[PLAN] = Plan(mode="compare", seed=seed)
        reports = protocol()
        run = item.stash.get(RESULT, None)
        if run is None or any(not report.passed for report in reports):
            return None
        note(run, "nominal")
        first = first or run
    return first
