"""L15 under resource contracts: what calls cost and how long they take is part of the state that the search compares."""

from __future__ import annotations

import inspect
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import mat
from mat.core.resources import consumed
from mat.resources import ResourceContract

SITES = 3


@mat.trace_contract(start=0, on="tool_call", id="writes.few")
def writes_stay_few(count: int, record: mat.Record) -> Any:
    count += record.action.effect == "write" and record.effected == "yes"
    return mat.Violated("too many writes", state=0) if count > 3 else count


@mat.step_contract(on="contract", id="never.violated")
def nothing_is_overrun(record: mat.Record) -> bool:
    return record.action.name != "violated"


@mat.step_contract(on="tool_call", id="report.made")
def the_report_is_made(record: mat.Record) -> bool:
    return not (record.action.name == "report" and record.blocked)


@dataclass(frozen=True)
class Spender:
    """Asks `retries` times at each site, waits between, and delegates every second site under a contract of its own."""

    budgets: tuple[tuple[str, Any], ...]
    duration_s: int | None
    below: int
    retries: int
    wait_s: int

    def body(self) -> None:
        @mat.tool(effect="write")
        def act(site: int) -> int:
            time.sleep(1)
            return site

        @mat.tool
        def report(seen: int) -> int:
            return seen

        def tried(site: int) -> int:
            for _ in range(self.retries):
                try:
                    return act(site)
                except (TimeoutError, ConnectionError):
                    time.sleep(self.wait_s)
            return -1

        contract = ResourceContract(name="all", budgets=dict(self.budgets), duration_s=self.duration_s)
        with mat.budget.contracted(contract) as work:
            seen = 0
            for site in range(SITES):
                with suppress(mat.budget.BudgetSpent):
                    if site % 2:
                        with work.delegate(ResourceContract(name="part", budgets={"calls": self.below}), agent="helper"):
                            seen += tried(site)
                    else:
                        seen += tried(site)
            with suppress(mat.budget.BudgetSpent):
                report(seen)


spenders = st.builds(
    Spender,
    budgets=st.tuples(st.tuples(st.just("calls"), st.integers(3, 7)), st.tuples(st.just("seconds"), st.integers(2, 12))),
    duration_s=st.one_of(st.none(), st.integers(3, 12)), below=st.integers(1, 3), retries=st.integers(1, 3),
    wait_s=st.integers(0, 2),
)  # fmt: skip
many = settings(
    max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)
CONTRACTS = [writes_stay_few, nothing_is_overrun, the_report_is_made]


@pytest.mark.full
@many
@given(spender=spenders)
def test_pruned_unpruned_and_brute_force_agree_where_calls_are_metered(lab: Any, found: Any, spender: Spender) -> None:
    made = lab(spender.body, CONTRACTS, ("service.timeout", "service.lost_ack", "service.slow"))
    pruned, unpruned = made.search(budget=8), made.search(budget=8, prune=False)
    nominal = {violation.contract for violation in made.nominal().failures}
    brute = {contract: cost for contract, cost in made.brute_force(8).items() if contract not in nominal}
    assert found(pruned) == found(unpruned) == brute
    assert (pruned.certificate.proven, unpruned.certificate.proven) == (True, True)


@pytest.mark.full
@many
@given(spender=spenders)
def test_they_agree_where_the_user_vouches_for_the_state_and_forgets_the_ledger(lab: Any, found: Any, spender: Spender) -> None:
    plain = lab(spender.body, CONTRACTS, ("service.timeout", "service.slow"))
    vouched = lab(
        spender.body, CONTRACTS, ("service.timeout", "service.slow"),
        digest=mat.spec.StateDigest(lambda: progress(), complete=True, clock=False, concolic=True),
    )  # fmt: skip
    assert found(vouched.search(budget=8, vary=True)) == found(plain.search(budget=8, prune=False))


def progress() -> object:
    """All that the agent keeps: how far it is. What its ledger keeps it does not know of."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "tried":
        frame = frame.f_back
    return "outside" if frame is None else [frame.f_locals["site"], frame.f_locals.get("_", 0)]


@pytest.mark.parametrize("calls", [4, 5])
def test_the_search_finds_the_fault_that_eats_the_budget(lab: Any, found: Any, calls: int) -> None:
    """Every retry is a call: with one to spare it takes two failures before the report is not made."""
    spender = Spender(budgets=(("calls", calls), ("seconds", 99)), duration_s=None, below=2, retries=2, wait_s=0)
    result = lab(spender.body, CONTRACTS, ("service.timeout",)).search(budget=12)
    assert found(result) == {"report.made": 4 if calls == 4 else 8}


def test_what_records_say_was_consumed_is_what_the_ledger_settled() -> None:
    spender = Spender(budgets=(("calls", 9), ("seconds", 99)), duration_s=None, below=2, retries=2, wait_s=0)
    with mat.run() as run:
        spender.body()
    assert run.result is not None
    for record in run.result.records:
        for charged in (record.observation.charged or {}).get("amounts", {}).values():
            assert {name: consumed(record)[name] for name in charged} == charged
