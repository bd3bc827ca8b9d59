from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.run import Run
from mat.core.spec import Perturbation
from mat.core.value import FrozenDict

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
    lost = mat.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)
    proven = Certificate(
        proven=True, bound=4, executions=212, states=250, skipped=FrozenDict({"equal state": 30, "inert": 8}), seeds=(0,)
    )


@pytest.fixture
def shop_tests() -> type[Shop]:
    return Shop


@pytest.fixture
def found() -> Counterexample:
    return counterexample(run_shop(schedule=[Shop.lost]))
