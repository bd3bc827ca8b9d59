"""Sandboxed ports: writes of agents that are not trusted reach nothing; everything else goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import mat
from mat.core.errors import SpecError
from mat.govern.sandbox import StandIns, dry_run, sandbox


class Bank:
    """A real port's world: what was written, and what was read."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

        @mat.tool(effect="write", impact="high")
        def pay(to: str, amount: int = 1) -> dict[str, object]:
            self.paid.append((to, amount))
            return {"paid": to, "amount": amount}

        @mat.tool(effect="read")
        def balance() -> int:
            return 100 - sum(amount for _, amount in self.paid)

        self.pay, self.balance = pay, balance


def run(rule: Any, body: Any, **options: Any) -> mat.Run:
    with mat.run(governance=mat.policy.Governance(rules=(rule,)), **options) as made:
        body()
    assert made.result is not None
    return made.result


def test_writes_of_a_sandboxed_agent_are_executed_nowhere_and_recorded_as_such() -> None:
    bank, got = Bank(), []

    def body() -> None:
        with mat.agent("intern"):
            got.append(bank.pay("eve", 5))
            got.append(bank.balance())

    write, read = (item for item in run(sandbox("intern"), body).records if item.action.kind == "tool_call")
    assert (bank.paid, got) == ([], [dry_run("pay"), 100])
    assert (write.effected, write.invoked, write.executed) == ("no", 0, None)
    assert write.mediation is not None
    assert (write.mediation.decision, write.mediation.rule) == ("rewrite", "sandbox")
    assert write.mediation.reason.startswith("sandbox: intern is not trusted")
    assert (read.effected, read.invoked) == ("yes", 1)


def test_other_agents_write_as_always_and_names_match_exactly() -> None:
    bank = Bank()

    def body() -> None:
        for name in ("interns", "Intern", "clerk"):
            with mat.agent(name):
                bank.pay(name)

    run(sandbox(["intern"]), body)
    assert [to for to, _ in bank.paid] == ["interns", "Intern", "clerk"]


def test_a_fake_answers_with_the_arguments_by_name_and_keeps_its_own_books() -> None:
    bank, books = Bank(), []

    def fake(to: str, amount: int) -> dict[str, object]:
        books.append((to, amount))
        return {"paid": to, "amount": amount}

    got = []
    run(sandbox("main", {"pay": fake}), lambda: got.append(bank.pay("eve", amount=7)))
    assert (bank.paid, books, got) == ([], [("eve", 7)], [{"paid": "eve", "amount": 7}])


def test_a_plain_value_answers_as_it_is() -> None:
    bank, got = Bank(), []
    run(sandbox("main", {"pay": {"paid": "nobody"}}), lambda: got.append(bank.pay("eve")))
    assert got == [{"paid": "nobody"}]


def test_what_a_fake_raises_is_what_the_agent_meets_and_the_port_stays_untouched() -> None:
    bank = Bank()

    def broke(to: str, amount: int) -> None:
        raise TimeoutError("bank is slow")

    def body() -> None:
        with pytest.raises(TimeoutError, match="bank is slow"):
            bank.pay("eve")

    record = next(item for item in run(sandbox("main", {"pay": broke}), body).records if item.action.name == "pay")
    assert (bank.paid, record.effected, record.invoked) == ([], "no", 0)


def test_without_a_stand_in_a_call_can_be_blocked_instead() -> None:
    bank = Bank()

    def body() -> None:
        with pytest.raises(mat.Blocked, match="there is no stand-in for pay"):
            bank.pay("eve")

    run(sandbox("main", {"other": 1}, otherwise="block"), body)
    assert bank.paid == []


def test_an_async_port_may_have_an_async_fake() -> None:
    paid, got = [], []

    @mat.tool(effect="write")
    async def wire(to: str) -> str:
        paid.append(to)
        return to

    async def fake(to: str) -> str:
        await asyncio.sleep(3_600)
        return f"pretended {to}"

    async def body() -> None:
        got.append(await wire("eve"))

    run(sandbox("main", {"wire": fake}), lambda: asyncio.run(body()))
    assert (paid, got) == ([], ["pretended eve"])


def test_a_write_to_memory_is_forgotten() -> None:
    notes = mat.memory({}, name="notes")

    def body() -> None:
        notes["plan"] = "steal"
        assert "plan" not in notes

    run(sandbox("main"), body)


def test_a_sandboxed_call_is_never_perturbed() -> None:
    from mat.boundary.effect import Raise

    bank = Bank()
    down = mat.spec.operator("service.down", lambda call, reply, stream: Raise("timeout"))
    fault = mat.spec.perturbation("service.down", "main/service:pay#1", cost=4)
    result = run(sandbox("main"), lambda: bank.pay("eve"), schedule=[fault], operators=[down])
    assert result.unreached == (fault,)
    assert result.success


def test_a_sandbox_that_means_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="did you mean 'dry_run'"):
        StandIns(otherwise="dryrun")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="does not map"):
        StandIns(replies=["pay"])  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="no agent"):
        sandbox([])
