"""Tabs of a real Chromium, and what they are shown.

The tests of this folder skip where there is none: install it (Debian: `apt-get install chromium`), or name one in MAT_CHROMIUM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import NO_CHROMIUM, Chromium, Page, chromium_path, running

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Certificate, Counterexample, Covered, ItemResult, Stability
from mat.core.curve import schedule_result
from mat.core.errors import Blocked
from mat.core.run import Run
from mat.govern.mediator import Governance
from mat.measure.governance import governed_row
from mat.measure.regression import Regression, compare
from mat.measure.robustness import CurveRow
from mat.measure.rows import row_of
from mat.measure.suite import Cover, candidates, select
from mat.report.build import build
from mat.report.document import Document
from mat.report.page import Traced, render, trace_page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    if os.name != "posix":
        pytest.skip("the browser is driven over inherited pipes, which this system does not have")
    path = chromium_path()
    if path is None:
        pytest.skip(NO_CHROMIUM)
    with running(path) as browser:
        yield browser


@pytest.fixture
def tab(chromium: Chromium) -> Iterator[Page]:
    """A tab of its own; a test that leaves a complaint behind fails."""
    page = Page(chromium)
    yield page
    found = page.complaints()
    page.close()
    assert found == [], found


@pytest.fixture
def opened(tab: Page, tmp_path: Path) -> Callable[..., Page]:
    """Write a page and open it."""

    def open_(html: str, fragment: str = "") -> Page:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8", errors="strict")
        return tab.open(path, fragment)

    return open_


# -- what is shown ----------------------------------------------------------------------------------------------------

ITEM = "tests/test_desk.py::test_desk_answers[order 7]"
LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")
OUTAGE = operator("service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"magnitude": 2}])


@mat.tool(effect="write", impact="high")
def refund(order: str, amount: int) -> dict[str, object]:
    return {"order": order, "paid": amount}


@mat.tool
def lookup(email: str) -> dict[str, str]:
    return {"order": "A-777", "email": email}


@mat.retriever("kb")
def articles(query: str) -> list[mat.Passage]:
    return [mat.Passage(id="kb-1", text="Refunds take two days.\nSay so."), mat.Passage(id="kb-2", text="Parcels are tracked.")]


@mat.trace_contract(start=0, id="refund.once")
def once_only(count: int, record: mat.Record) -> object:
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", repair="send an idempotency key", state=count + 1, since=1) if count else 1


@mat.step_contract(on="tool_call", id="refund.small", severity="soft")
def small_refunds(record: mat.Record) -> bool:
    return record.action.arguments.get("amount", 0) <= 20


def desk() -> None:
    notes = mat.memory({}, name="notes")
    with mat.agent("triage", role="planner"):
        email = mat.untrusted("Order A-777 arrived broken. Please refund it.", channel="email")
        found = articles(email)
        notes["case"] = "broken parcel"
        mat.claim("Refunds take two days", supports=[found[0]])
        mat.delegate("mailer", task="refund order A-777")
    with mat.agent("mailer", role="support"):
        reason = notes["case"]
        order = lookup("ann@example.org")["order"]
        for _ in range(3):
            try:
                refund(order, 25)
                break
            except (TimeoutError, ConnectionError):
                mat.mitigate("retry")
            except Blocked:
                break
        mat.message("triage", f"done: {reason}")
        mat.finish("refunded")


def run_desk(schedule: Sequence[mat.spec.Perturbation] = (), **options: Any) -> Run:
    options = {"task": ITEM, **options}
    with mat.run([once_only, small_refunds], schedule=schedule, operators=[LOST, OUTAGE], **options) as run:
        desk()
    assert run.result is not None
    return run.result


@dataclass(frozen=True)
class Shown:
    """A whole report: its document, the nominal run, and a comparison with an earlier report."""

    document: Document
    nominal: Run
    regression: Regression
    suite: Cover

    @property
    def html(self) -> str:
        traces = [Traced.of(self.nominal, name="nominal")]
        return render(self.document, regression=self.regression, suite=self.suite, traces=traces)


@pytest.fixture(scope="session")
def shown() -> Shown:
    """Real runs of a small team, governed and not, searched and compared, as a report has them."""
    lost = mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)
    nominal, broken = run_desk(), run_desk([lost])
    proven = Certificate(proven=True, bound=4, executions=212, states=250, seeds=(0,))
    found = Counterexample(verdict=broken.failures[0], run=broken, stability=Stability(runs=3, reproduced=3))
    other = "tests/test_desk.py::test_desk_is_fast"
    results = [
        ItemResult(
            id=ITEM, status="counterexample", counterexamples=(found,), certificate=proven, executions=215,
            replays=("mat_replays/x.mat.json",), category="refunds",
            covered=Covered(contracts=("refund.once",), idle=("idle",), interfaces=("service:refund", "retrieval:kb")),
        ),
        ItemResult(id=other, status="certified", certificate=proven, executions=9, category="speed", reason="searched"),
    ]  # fmt: skip
    rows = [row_of(run_desk(seed=seed), item=item, condition="nominal") for item in (ITEM, other) for seed in range(3)]
    rows.append(row_of(broken, item=ITEM, condition="fault"))
    policies = (("none", None), ("shield", Governance(rules=(no_refund_above_20,))))
    governed = [governed_row(run_desk(governance=policy), item=ITEM, variant=name) for name, policy in policies]
    executed = (schedule_result(nominal), schedule_result(broken))
    chains = (executed, executed[:1] * 2)
    curves = [
        CurveRow(item=item, budget=4, bound=4 if item == ITEM else 2, executed=executed, chains=chains)
        for item in (ITEM, other)
    ]
    document = build(results, rows, governed=governed, curves=curves)
    worse = [replace(row, success=False, outcome="fail", broken=("refund.once",)) for row in document.outcomes]
    return Shown(
        document=document,
        nominal=nominal,
        regression=compare(document.outcomes, worse),
        suite=select(candidates({"x.mat.json": found, "y.mat.json": found})),
    )


def no_refund_above_20(record: mat.Record) -> mat.policy.Block | None:
    return mat.policy.Block("too much") if record.action.arguments.get("amount", 0) > 20 else None


@pytest.fixture
def long_values() -> str:
    """A trace whose one reply is long, in characters and in entries."""

    @mat.tool
    def search(query: str) -> dict[str, object]:
        return {"text": "word " * 1000, "rows": list(range(300))}

    with mat.run([], task="long") as run, mat.agent("reader"):
        search("all")
    assert run.result is not None
    return trace_page(run.result)
