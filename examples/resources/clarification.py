"""Two agents that ask each other to be clearer, for eleven days: in virtual time, and what it would have cost.

Neither agent has a fault, but their exchange never ends. Every question makes the next one longer, up to what a model can
read. If the same two agents work under a contract with a budget of money, the mediator stops them before the first call that
would exceed it. The trace shows when.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import mat
from mat.core.resources import Price, consumed
from mat.core.run import Run
from mat.resources import ResourceContract, Skill

from .scripted import reply

PRICE: Final = Price(input=3, output=15)
"""Price of a million tokens, in any currency."""
DAYS: Final = 11
DAY_MS: Final = 86_400_000
EXCHANGE_S: Final = 240
"""Time from one question to the next: reading, looking things up, writing."""
CONTEXT: Final = 150_000
"""Tokens that a model can read; older ones are dropped."""
MOST_TOKENS: Final = 1_500
MOST_MONEY: Final = Fraction(PRICE.of({"input_tokens": CONTEXT, "output_tokens": MOST_TOKENS}), 1_000_000)
"""The largest cost of a call. It is reserved before each call, so no call begins that might exceed the budget."""
RESEARCH: Final = ResourceContract(
    name="research", budgets={"money": 50}, prices={"model": PRICE}, warn_at=(50, 80),
    skills=(Skill(name="model:clarifier", cost={"money": MOST_MONEY}),),
)  # fmt: skip


@mat.model("clarifier", tape="inprocess")
def clarify(question: str, context: int, max_tokens: int = 0) -> dict[str, Any]:
    """A question back. `context`: tokens of the conversation so far, which the model reads again."""
    time.sleep(EXCHANGE_S)
    found = reply(
        question, "Before I go on, could you clarify what exactly you mean by that?", thought=1_200, max_tokens=max_tokens
    )
    return {**found, "usage": {**found["usage"], "input_tokens": context}}


def talk() -> None:
    """Analyst and verifier take turns. The loop never ends on its own."""
    said, context = "What is the market doing?", 500
    while True:
        for name in ("analyst", "verifier"):
            with mat.agent(name, role="researcher"):
                found = clarify(said, context, max_tokens=MOST_TOKENS)
            said = found["text"]
            context = min(CONTEXT, context + found["usage"]["output_tokens"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    calls: int
    money: int
    """in millionths"""
    days: float
    ended: str


def bill(run: Run) -> Bill:
    """Measured from the trace, with or without a contract."""
    paid = [consumed(record, {"model": PRICE}) for record in run.records]
    last = max(record.sealed_ms for record in run.records)
    return Bill(
        calls=sum(item.get("model_calls", 0) for item in paid), money=sum(item.get("money", 0) for item in paid),
        days=last / DAY_MS, ended=str(run.termination),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    uncontracted: Bill
    contracted: Bill
    stopped: str
    """the mediator's reason"""
    violations: tuple[str, ...]


def unbounded() -> Run:
    with mat.run(horizon=20_000, horizon_ms=DAYS * DAY_MS, task="clarification") as run:
        talk()
    assert run.result is not None
    return run.result


def bounded(contracts: Iterable[mat.Contract] = ()) -> tuple[Run, str]:
    """Governance puts everybody who acts in the run under the contract; the agents do not know about it."""
    stopped = ""
    governance = mat.policy.Governance(name="budget", contracts={"*": RESEARCH})
    with mat.run(contracts, governance=governance, horizon=20_000, horizon_ms=DAYS * DAY_MS, task="clarification") as run:
        try:
            talk()
        except mat.budget.BudgetSpent as spent:
            stopped = str(spent)
            mat.finish("stopped: nothing came of it", status="aborted")
    assert run.result is not None
    return run.result, stopped


def experiment(contracts: Iterable[mat.Contract] = ()) -> Result:
    found, stopped = bounded(contracts)
    return Result(
        uncontracted=bill(unbounded()), contracted=bill(found), stopped=stopped,
        violations=tuple(item.contract for item in found.violations),
    )  # fmt: skip


def text(result: Result) -> str:
    lines = [f"The clarification loop: two agents, {EXCHANGE_S} s an exchange, up to {DAYS} days of virtual time"]
    for name, found in (("UNCONTRACTED", result.uncontracted), ("CONTRACTED", result.contracted)):
        lines.append(f"{name:12}  {found.calls:>6,} calls  {found.days:>5.2f} days  {found.money / 1_000_000:>9,.2f} of money")
    return "\n".join(
        [*lines, f"Stopped: {result.stopped}", f"Laws and limits broken: {', '.join(result.violations) or 'none'}."]
    )
