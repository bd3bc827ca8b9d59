from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import mat
from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import Raise
from mat.boundary.tape import Tape
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.run import Run
from mat.core.spec import Perturbation
from mat.core.value import FrozenDict
from mat.evidence.replay_file import Replay

ITEM = "tests/test_shop.py::TestRefunds::test_refund[order 7]"
LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")


@mat.tool(effect="write", impact="high")
def refund(order: str, amount: int) -> dict[str, object]:
    return {"order": order, "paid": amount}


@mat.trace_contract(start=0, id="refund.once")
def once_only(count: int, record: mat.Record) -> object:
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", repair="send an idempotency key", state=count + 1, since=0) if count else 1


def shop(retries: int = 1, amount: int = 25) -> None:
    with mat.agent("mailer", role="support"):
        for _ in range(retries + 1):
            try:
                refund("A-7", amount)
                break
            except TimeoutError:
                mat.mitigate("retry")
        mat.finish("refunded")


def run_shop(
    body: Callable[[], None] = shop,
    *,
    schedule: Sequence[Perturbation] = (),
    operators: Sequence[Operator] = (LOST,),
    contracts: Sequence[mat.Contract] = (once_only,),
    tape: Tape | None = None,
    task: str = ITEM,
    seed: int = 0,
) -> Run:
    with mat.run(contracts, task=task, schedule=schedule, operators=operators, tape=tape, seed=seed) as run:
        body()
    assert run.result is not None
    return run.result


def lost_ack(nth: int = 1) -> Perturbation:
    return mat.spec.perturbation("service.lost_ack", f"mailer/service:refund#{nth}", cost=4)


def replay_of(run: Run, *, expected: bool = False) -> Replay:
    return Replay(
        item=run.spec.task,
        counterexample=Counterexample(verdict=run.failures[0], run=run, stability=Stability(runs=3, reproduced=3)),
        certificate=Certificate(
            proven=True, bound=3, executions=212, states=250, skipped=FrozenDict({"equal state": 38}), seeds=(0,),
            checks=FrozenDict({"sampled": 8}),
        ),
        expected=expected,
    )  # fmt: skip


class Shop:
    """What the tests of this folder share: an agent that refunds twice when the acknowledgement is lost."""

    item, operator, contract = ITEM, LOST, once_only
    run = staticmethod(run_shop)
    body = staticmethod(shop)
    lost_ack = staticmethod(lost_ack)
    replay_of = staticmethod(replay_of)
    refund = staticmethod(refund)


@pytest.fixture
def shop_tests() -> type[Shop]:
    return Shop


@pytest.fixture
def violating(shop_tests: type[Shop]) -> Run:
    return shop_tests.run(schedule=[lost_ack()])


@pytest.fixture
def replay(violating: Run) -> Replay:
    return replay_of(violating)
