"""The agents of the treasury, scripted: their decisions are plain control flow. Guards tell the careful from the naive."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, Final, Literal

import mat
from treasury.tools import DOWN, Payment, StaleFundsError, Tools

TRIES: Final = 3
"""How often a buyer looks at the budget before it gives up."""

# -- buyers: one budget, several who spend it at the same time ---------------------------------------------------------

Spending = Literal["unguarded", "locked", "compared"]
"""unguarded: check, then spend. locked: one buyer at a time. compared: spend only if the budget has not changed."""


class Buyers:
    """Each buyer wants one item and checks the budget before it buys."""

    def __init__(self, tools: Tools, spending: Spending) -> None:
        self._tools, self._spending = tools, spending
        self._lock, self._lock_async = threading.Lock(), asyncio.Lock()

    def in_threads(self, wishes: dict[str, int]) -> None:
        """`wishes`: item -> cents. One thread per buyer."""
        buy = self._buy_alone if self._spending == "locked" else self._buy
        threads = [threading.Thread(target=buy, args=wish) for wish in wishes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def in_tasks(self, wishes: dict[str, int]) -> None:
        buy = self._buy_alone_async if self._spending == "locked" else self._buy_async
        await asyncio.gather(*(buy(item, cents) for item, cents in wishes.items()))

    def _buy_alone(self, item: str, cents: int) -> None:
        with self._lock:
            self._buy(item, cents)

    async def _buy_alone_async(self, item: str, cents: int) -> None:
        async with self._lock_async:
            await self._buy_async(item, cents)

    def _buy(self, item: str, cents: int) -> None:
        with mat.agent(f"{item}_buyer", role="buyer"), _may_fail("buying"):
            for _ in range(TRIES):
                left = self._tools.funds()
                if not enough(left, cents):
                    return
                try:
                    self._tools.spend(item, cents, if_left=left if self._spending == "compared" else None)
                except StaleFundsError:
                    mat.mitigate("retry")
                else:
                    return

    async def _buy_async(self, item: str, cents: int) -> None:
        with mat.agent(f"{item}_buyer", role="buyer"), _may_fail("buying"):
            for _ in range(TRIES):
                left = await self._tools.funds_async()
                if not enough(left, cents):
                    return
                try:
                    await self._tools.spend_async(item, cents, if_left=left if self._spending == "compared" else None)
                except StaleFundsError:
                    mat.mitigate("retry")
                else:
                    return


def enough(left: Any, cents: int) -> bool:
    """Whether the budget allows it; an answer that is not an amount allows nothing."""
    return isinstance(left, int) and left >= cents


class _may_fail:  # noqa: N801  (reads as a statement)
    """If a service does not answer, end the work inside and inform a person. Nothing is retried blindly."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, (*DOWN, mat.Blocked)):
            return False
        mat.detect(f"{self._what}: {type(error).__name__}")
        mat.mitigate("escalate", reason=self._what)
        return True


# -- the clerk: a large transfer needs approval ------------------------------------------------------------------------

APPROVAL_CENTS: Final = 50_000
"""Larger transfers need a person's approval."""


def clerk(tools: Tools, payment: Payment) -> str:
    """Asks first, then acts. The clerk cannot ensure that the approved transfer is the one that runs."""
    with mat.agent("clerk", role="clerk"):
        details = {"to": payment.to, "cents": payment.cents, "reference": payment.reference}
        if payment.cents > APPROVAL_CENTS and not mat.approval("transfer", **details):
            mat.finish("not approved", status="aborted")
            return "not approved"
        with _may_fail("transfer"):
            tools.transfer(**details)
            mat.finish("paid")
            return "paid"
        mat.finish("a person looks at it", status="aborted")
        return "a person looks at it"


# -- researcher and payer: a fact is found by one, kept in memory, and used by the other -------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What a careful team does and a naive one does not; each can be taken out by itself."""

    all_letters: bool = True
    """The researcher believes the newest letter only if all letters are there, and tells a person otherwise."""
    account_checked: bool = True
    """The payer asks the bank whose account it is before it pays, however sure the memory is."""


CAREFUL: Final = Guards()
NAIVE: Final = Guards(all_letters=False, account_checked=False)


def settle(tools: Tools, vendors: tuple[str, ...], guards: Guards = CAREFUL) -> None:
    """One day: the researcher finds out where vendors have their accounts, then the payer pays what is due."""
    with mat.agent("treasurer", role="planner"):
        with mat.delegate("researcher", task="find the accounts"):
            for vendor in vendors:
                with _may_fail(f"account of {vendor}"):
                    research(tools, vendor, guards)
        with mat.delegate("payer", task="pay the invoices"), _may_fail("invoices"):
            for invoice in tools.invoices():
                with _may_fail(f"invoice {invoice['invoice']}"):
                    pay(tools, invoice, guards)
        mat.finish("settled")


def research(tools: Tools, vendor: str, guards: Guards) -> None:
    letters = tools.letters(vendor)
    numbers = [letter.metadata["number"] for letter in letters]
    if guards.all_letters:
        complete = bool(numbers) and numbers == list(range(len(numbers), 0, -1))
        if not mat.verify(f"all letters of {vendor}, newest first", passed=complete, supports=letters):
            mat.mitigate("escalate", reason=f"letters of {vendor}")
            return
    if letters:
        tools.facts[vendor] = letters[0].metadata["account"]


def pay(tools: Tools, invoice: dict[str, Any], guards: Guards) -> None:
    account = tools.facts.get(invoice["vendor"])
    if account is None:
        mat.detect(f"no account of {invoice['vendor']}")
        mat.mitigate("escalate", reason=f"invoice {invoice['invoice']}")
        return
    if guards.account_checked:
        known = tools.account_of(invoice["vendor"])
        same = known == {"vendor": invoice["vendor"], "account": account}
        if not mat.verify(f"the account is that of {invoice['vendor']}", passed=same, supports=[known]):
            mat.mitigate("escalate", reason=f"invoice {invoice['invoice']}")
            return
    tools.transfer(to=account, cents=invoice["cents"], reference=invoice["invoice"])
