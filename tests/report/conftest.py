from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.run import Run
from mat.core.spec import Perturbation
from mat.core.value import FrozenDict
from mat.measure.governance import ActionCount, GovernedRow
from mat.measure.rows import FaultRow, RunRow, ViolationRow
from mat.report.build import build
from mat.report.document import Document

ITEM = "tests/test_shop.py::test_refund[order 7]"
LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")
ODD = operator("service.odd", lambda call, reply, stream: Raise("connection"), grid=[{"magnitude": 2}])


@mat.tool(effect="write", impact="high")
def refund(order: str, amount: int) -> dict[str, object]:
    return {"order": order, "paid": amount}


@mat.tool
def lookup(email: str) -> dict[str, str]:
    return {"order": "A-777", "email": email}


@mat.trace_contract(start=0, id="refund.once")
def once_only(count: int, record: mat.Record) -> object:
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", repair="send an idempotency key", state=count + 1, since=1) if count else 1


def shop(retries: int = 1) -> None:
    with mat.agent("mailer", role="support"):
        order = lookup("ann@example.org")["order"]
        for _ in range(retries + 1):
            try:
                refund(order, 25)
                break
            except (TimeoutError, ConnectionError):
                mat.mitigate("retry")
        mat.finish("refunded")


def run_shop(
    body: Callable[[], Any] = shop,
    schedule: Sequence[Perturbation] = (),
    contracts: Sequence[mat.Contract] = (once_only,),
    **options: Any,
) -> Run:
    with mat.run(contracts, task=ITEM, schedule=schedule, operators=[LOST, ODD], **options) as run:
        body()
    assert run.result is not None
    return run.result


def counterexample(run: Run, stability: Stability = Stability(runs=3, reproduced=3)) -> Counterexample:
    return Counterexample(verdict=run.failures[0], run=run, stability=stability)


class Shop:
    """What the tests of this folder share: an agent that refunds twice when the acknowledgement is lost."""

    item, contract = ITEM, once_only
    run, body, counterexample = staticmethod(run_shop), staticmethod(shop), staticmethod(counterexample)
    refund = staticmethod(refund)
    lost = mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)
    proven = Certificate(
        proven=True, bound=4, executions=212, states=250, skipped=FrozenDict({"equal state": 30, "inert": 8}), seeds=(0,)
    )


@pytest.fixture(scope="session")
def shop_tests() -> type[Shop]:
    return Shop


@pytest.fixture(scope="session")
def found() -> Counterexample:
    return counterexample(run_shop(schedule=[Shop.lost]))


CATEGORIES = ("tool use", "planning", "policy", "misuse")
VARIANTS = ("none", "shield", "shield+capabilities", "shield+routing")
CONDITIONS: tuple[Any, ...] = ("nominal", "fault", "adversarial")


def run_row(category: str, task: int, condition: Any, variant: str, seed: int, **changes: Any) -> RunRow:
    """A run of an evaluation. What it came to follows from its place, so that every number of a table can be counted."""
    place = task + seed + VARIANTS.index(variant)
    broken = condition != "nominal" and place % 3 == 0
    violation = ViolationRow(
        contract="refund.verified",
        severity="hard",
        stage="effected",
        step=2 + place % 4,
        agent="mailer",
        action_kind="tool_call",
    )
    fault = FaultRow(
        operator="service.timeout", injected=True, step=1, detected=place % 2 == 0, mitigated=place % 4 == 0,
        contained=place % 4 == 0 and not broken, final_ok=not broken, boundary="service",
    )  # fmt: skip
    decided: tuple[Any, ...] = ("allow",) if variant == "none" else ("allow", "block")
    facts: dict[str, Any] = dict(
        item=f"tests/test_desk.py::test_{category.replace(' ', '_')}[{task}]", condition=condition, seed=seed,
        success=place % 5 != 0, outcome="fail" if broken else "pass", termination="completed", steps=5 + place, tool_calls=3,
        model_calls=1, tokens=100 * (1 + place), violations=(violation,) if broken else (),
        faults=() if condition == "nominal" else (fault,), allowed=1, rewritten=0, blocked=len(decided) - 1, elapsed_ms=900,
        category=category, variant=variant, first_failure=violation.step if broken else None,
        first_failure_ms=100 if broken else None, cost=0 if condition == "nominal" else 4,
        schedule="" if condition == "nominal" else "service.timeout",
        actions=tuple(
            ActionCount(impact="high", decision=name, routed=False, sandboxed=False, count=1) for name in decided
        ),
    )  # fmt: skip
    return RunRow(**(facts | changes))


def evaluation_rows(**changes: Any) -> list[RunRow]:
    """Two tasks in each of four categories, under three conditions, four variants and two seeds."""
    return [
        run_row(category, task, condition, variant, seed, **changes)
        for category, task, condition, variant, seed in product(CATEGORIES, range(2), CONDITIONS, VARIANTS, range(2))
    ]


class Desk:
    """What an evaluation gives to a report."""

    row, rows = staticmethod(run_row), staticmethod(evaluation_rows)
    categories, variants, conditions = CATEGORIES, VARIANTS, CONDITIONS


@pytest.fixture(scope="session")
def desk() -> type[Desk]:
    return Desk


@pytest.fixture(scope="session")
def evaluated() -> Document:
    """The report of an evaluation: every table that has no need of a search."""
    rows = evaluation_rows()
    rows.append(run_row("policy", 1, "nominal", "none", 9, infrastructure="crash of the harness"))
    governed = [
        GovernedRow(
            item=row.item, variant=row.variant, condition="nominal", seed=row.seed, input="benign", category=row.category,
            success=row.success, violated=False, harm=None, actions=row.actions,
        )
        for row in rows
        if row.condition == "nominal"
    ]  # fmt: skip
    return build([], rows, governed=governed)
