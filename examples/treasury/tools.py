"""The tools of the treasury: a budget, a bank, vendors' letters, an address book, a memory. Instrumented once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import mat

BUDGET_CENTS: Final = 100_000
"""The buyers' common budget for a month."""
ACCOUNTS: Final = {"Nordwind": "DE71500105170648489890", "Aster": "DE21500105179625862911", "Birke": "DE92500105177198324405"}
"""Each vendor's real account today."""
FORMER: Final = "DE44500105175407324931"
"""Nordwind's account before it changed banks; it now belongs to somebody else."""
DOWN: Final = (OSError, mat.errors.RateLimited)
"""The errors that the clients of these services raise when a service does not answer."""


class StaleFundsError(Exception):
    """The budget differs from what the buyer expected; nothing was spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A vendor's letter about its account."""

    vendor: str
    written: str
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    to: str
    cents: int
    reference: str


@dataclass(slots=True, kw_only=True)
class World:
    """Everything outside the team, made new for each run."""

    left_cents: int = BUDGET_CENTS
    bought: list[str] = field(default_factory=list)
    paid: list[Payment] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    letters: tuple[Letter, ...] = (
        Letter(vendor="Nordwind", written="2026-01", account=ACCOUNTS["Nordwind"]),
        Letter(vendor="Nordwind", written="2019-05", account=FORMER),
        Letter(vendor="Aster", written="2023-11", account=ACCOUNTS["Aster"]),
        Letter(vendor="Birke", written="2024-02", account=ACCOUNTS["Birke"]),
    )
    invoices: tuple[tuple[str, str, int], ...] = (
        ("INV-1", "Aster", 18_000), ("INV-2", "Birke", 24_500), ("INV-3", "Nordwind", 61_200),
    )  # fmt: skip


class Tools:
    """The boundaries of one team. `facts` is the memory that researcher and payer share, by vendor."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.facts = mat.memory(world.facts, name="facts")

    # -- the budget: once for threads, once for tasks -------------------------------------------------------------------

    @mat.tool(effect="read")
    def funds(self) -> int:
        """The remaining budget in cents."""
        return self._world.left_cents

    @mat.tool(effect="write", reversible=False)
    def spend(self, item: str, cents: int, if_left: int | None = None) -> None:
        """Buy something. With `if_left`, raise StaleFundsError and spend nothing unless exactly that much is left."""
        self._spend(item, cents, if_left)

    @mat.tool(name="funds", effect="read")
    async def funds_async(self) -> int:
        return self._world.left_cents

    @mat.tool(name="spend", effect="write", reversible=False)
    async def spend_async(self, item: str, cents: int, if_left: int | None = None) -> None:
        self._spend(item, cents, if_left)

    def _spend(self, item: str, cents: int, if_left: int | None) -> None:
        if if_left is not None and if_left != self._world.left_cents:
            raise StaleFundsError(f"{self._world.left_cents} are left, not {if_left}")
        self._world.left_cents -= cents  # the shop sells without checking: the budget is the buyers' concern
        self._world.bought.append(item)

    # -- payments -------------------------------------------------------------------------------------------------------

    @mat.tool(effect="write", impact="high", reversible=False)
    def transfer(self, to: str, cents: int, reference: str) -> None:
        """Send money to an account."""
        self._world.paid.append(Payment(to=to, cents=cents, reference=reference))

    @mat.tool(effect="read")
    def invoices(self) -> list[dict[str, Any]]:
        """The invoices due today: [{invoice, vendor, cents}]."""
        return [{"invoice": name, "vendor": vendor, "cents": cents} for name, vendor, cents in self._world.invoices]

    @mat.tool(effect="read")
    def account_of(self, vendor: str) -> dict[str, Any]:
        """{vendor, account} from the vendor's bank; costs a fee."""
        return {"vendor": vendor, "account": ACCOUNTS[vendor]}

    @mat.retriever("letters")
    def letters(self, vendor: str) -> list[mat.Passage]:
        """A vendor's letters about its account, newest first, numbered from the oldest."""
        found = [letter for letter in self._world.letters if letter.vendor == vendor]
        return [
            mat.Passage(
                text=f"{letter.vendor}, {letter.written}: please pay to the account below.", id=f"{vendor}-{letter.written}",
                metadata={"account": letter.account, "number": len(found) - place},
            )
            for place, letter in enumerate(found)
        ]  # fmt: skip
