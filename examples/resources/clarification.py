"""Two agents that ask each other to be clearer, for eleven days: in virtual time, and what it would have cost.

Nothing is wrong with either of them, and nothing in what they do ever ends. Every exchange makes the next one longer, up to
what a model can read. The same two under a contract with a budget of money are stopped by the mediator before the first call
that would not fit, and the trace says when.
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
"""Of a million tokens. Any currency."""
DAYS: Final = 11
DAY_MS: Final = 86_400_000
EXCHANGE_S: Final = 240
"""From one question to the next: reading, looking things up, writing."""
CONTEXT: Final = 150_000
"""Tokens that a model can read: older ones fall out of its sight."""
MOST_TOKENS: Final = 1_500
MOST_MONEY: Final = Fraction(PRICE.of({"input_tokens": CONTEXT, "output_tokens": MOST_TOKENS}), 1_000_000)
"""What a call can cost: it is reserved before each, so that none begins that might not fit."""
RESEARCH: Final = ResourceContract(
    name="research", budgets={"money": 50}, prices={"model": PRICE}, warn_at=(50, 80),
    skills=(Skill(name="model:clarifier", cost={"money": MOST_MONEY}),),
)  # fmt: skip


@mat.model("clarifier", tape="inprocess")
def clarify(question: str, context: int, max_tokens: int = 0) -> dict[str, Any]:
    """A question back. `context`: tokens of what was said before, which the model reads all over again."""
    time.sleep(EXCHANGE_S)
    found = reply(
        question, "Before I go on, could you clarify what exactly you mean by that?", thought=1_200, max_tokens=max_tokens
    )
    return {**found, "usage": {**found["usage"], "input_tokens": context}}


def talk() -> None:
    """Analyst and verifier, in turns. It has no other end than somebody else's."""
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
    """From the trace: the same for a run with a contract and without one."""
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
    """why, as the mediator said"""
    violations: tuple[str, ...]


def unbounded() -> Run:
    with mat.run(horizon=20_000, horizon_ms=DAYS * DAY_MS, task="clarification") as run:
        talk()
    assert run.result is not None
    return run.result


def bounded(contracts: Iterable[mat.Contract] = ()) -> tuple[Run, str]:
    """The agents know nothing of it: governance has whoever acts in the run work under the contract."""
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
