"""`process.crash` and `mat_resume`: the end of the agent's process after an effect, and what its next process does."""

from __future__ import annotations

from typing import Any

import pytest

import mat

PAID: list[str] = []


@mat.tool(effect="write")
def pay(order: str) -> str:
    PAID.append(order)
    return "paid"


@mat.tool(effect="read")
def look(order: str) -> bool:
    return order in PAID


def crash(site: str) -> mat.spec.Perturbation:
    return mat.spec.perturbation("process.crash", site, cost=4)


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()


def test_the_effect_has_happened_and_no_call_reaches_a_port_until_the_run_is_resumed() -> None:
    with mat.run(schedule=[crash("main/process:service.pay#1")]) as run:
        try:
            pay("A")
        except mat.errors.ProcessCrashed:
            with pytest.raises(mat.errors.ProcessCrashed):
                pay("B")  # in a `finally`, say
            assert run.crashed
        run.resume()
        assert pay("C") == "paid"
    assert PAID == ["A", "C"]
    assert run.result is not None
    ended, resumed = run.result.records[:2]
    assert (ended.effected, ended.observation.error.kind, ended.faults[0].effect) == ("yes", "crash", "Crash")  # type: ignore[union-attr]
    assert ended.raw is not None
    assert ended.raw.value == "paid"
    assert (resumed.site, resumed.action.arguments["order"]) == ("main/service:pay#2", "C")


def test_an_agent_cannot_catch_the_end_of_its_process_as_an_exception() -> None:
    def stubborn() -> None:
        try:
            pay("A")
        except Exception:
            pay("B")

    with mat.run(schedule=[crash("main/process:service.pay#1")]), pytest.raises(mat.errors.ProcessCrashed):
        stubborn()
    assert PAID == ["A"]


def test_a_call_that_slept_when_the_process_ended_does_not_happen() -> None:
    import asyncio

    @mat.tool(effect="write")
    async def book(order: str) -> None:
        PAID.append(order)

    async def both() -> None:
        await asyncio.gather(book("slow"), other())

    async def other() -> None:
        await asyncio.sleep(1)
        pay("A")

    late = mat.spec.perturbation("service.delay", "main/service:book#1", {"ms": 5000})
    with (
        mat.run(schedule=[crash("main/process:service.pay#1"), late]),
        pytest.raises(mat.errors.ProcessCrashed),
    ):
        asyncio.run(both())
    assert PAID == ["A"]


WORK = """
    from mat_contracts import no_duplicate_effect
    PAID, SAVED = [], set()

    @mat.tool(effect="write")
    def pay(order): PAID.append(order)

    def work(careful):
        for order in ("A", "B"):
            if order in SAVED or (careful and order in PAID):
                continue
            pay(order)
            SAVED.add(order)

    async def work_async(careful): work(careful)

    @pytest.fixture
    def paid_once(): return no_duplicate_effect("pay", key="order")

    RESUME

    @pytest.mark.mat(budget=8, faults=["process.crash"])
    def test_pay(mat_run, paid_once):
        PAID.clear(), SAVED.clear()
        work(CAREFUL)
"""
RESUMES = {
    "sync": "@pytest.fixture\n    def mat_resume(): return lambda: work(CAREFUL)",
    "async": "@pytest.fixture\n    def mat_resume(): return lambda: work_async(CAREFUL)",
}
ID = "test_shop.py::test_pay"


@pytest.mark.nightly
@pytest.mark.parametrize("how", RESUMES)
def test_a_service_that_pays_before_it_notes_so_pays_twice(shop: Any, how: str) -> None:
    shop.tests(WORK.replace("RESUME", RESUMES[how]).replace("CAREFUL", "False"))
    session = shop.stress()
    assert session.statuses == {ID: "counterexample"}
    assert "takes effect, then the process ends and is started again" in " ".join(session.text.split())
    assert shop.run().outcomes[ID] == "passed"


@pytest.mark.full
def test_one_that_asks_what_was_paid_is_certified_also_where_it_ends_twice(shop: Any) -> None:
    shop.tests(WORK.replace("RESUME", RESUMES["sync"]).replace("CAREFUL", "True"))
    session = shop.stress()
    assert session.statuses == {ID: "certified"}
    assert session.items[ID]["bound"] == 8


@pytest.mark.full
def test_the_fault_is_among_the_default_ones_where_a_test_can_be_resumed(shop: Any) -> None:
    without = WORK.replace(', faults=["process.crash"]', ", search=mat.Search(max_runs=60)")
    shop.tests(without.replace("RESUME", RESUMES["sync"]).replace("CAREFUL", "False"))
    assert "then the process ends" in " ".join(shop.stress().text.split())
    shop.tests(without.replace("RESUME", "").replace("CAREFUL", "False"))
    assert "then the process ends" not in " ".join(shop.stress().text.split())


@pytest.mark.full
@pytest.mark.parametrize("isolate", ["none", "fork"])
def test_without_mat_resume_the_test_is_refused_with_what_to_write(shop: Any, isolate: str) -> None:
    work = WORK.replace("budget=8,", f"budget=8, isolate={isolate!r},")
    shop.tests(work.replace("RESUME", "").replace("CAREFUL", "False"))
    session = shop.stress()
    assert session.outcomes == {ID: "failed"}
    assert "write a fixture mat_resume" in " ".join(session.text.split())
