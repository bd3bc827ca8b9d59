"""Texts for amounts, and the amounts that ledger entries hold as flat lists."""

from __future__ import annotations

from typing import Any

from mat.core.resources import shown
from mat.core.value import EMPTY
from mat_contracts.resource.books import BookAccount


def flat(amounts: Any) -> list[tuple[str, str, int]]:
    """Amounts by contract and resource as a list of (contract, resource, amount)."""
    return [
        (str(contract), str(resource), value)
        for contract, values in (amounts or EMPTY).items()
        for resource, value in values.items()
    ]  # fmt: skip


def transfers(moved: Any) -> list[tuple[str, str, str, int]]:
    """Returned or excess amounts as a list of (contract, contract above, resource, amount)."""
    return [(str(id), above, resource, value) for id, to in (moved or EMPTY).items() for above, resource, value in flat(to)]


def quantity(resource: str, value: int) -> str:
    """`1,200 tokens`, `2.5 seconds`, `1 call of tool:search`, `0.5 units of money`."""
    name, of = ("calls", f" of {resource}") if ":" in resource else (resource, "")
    if resource == "money":
        name, of = "units", " of money"
    amount = shown(resource, value)
    if amount == "1":
        name = "search" if name == "searches" else name.removesuffix("s") if not name.endswith("ss") else name
    return f"{amount} {name.replace('_', ' ')}{of}"


def at_most(resource: str, value: int) -> str:
    """The largest correct amount: `at most 1,200 tokens`."""
    return f"at most {quantity(resource, max(0, value))}"


def amount_list(amounts: Any) -> str:
    """`100 tokens of work#1 and 1 call of work#1`; amounts of zero are left out."""
    found = [f"{quantity(resource, value)} of {contract}" for contract, resource, value in flat(amounts) if value]
    return " and ".join(found) or "nothing"


def breakdown(resource: str, account: BookAccount) -> str:
    """How a budget was used: `30 spent, 0 reserved, 70 allocated`."""
    spent, held, out = (shown(resource, value) for value in (account.own, account.held, account.out))
    return f"{spent} spent, {held} reserved, {out} allocated"
