"""Amounts and entries in words, and the amounts that entries hold."""

from __future__ import annotations

from typing import Any

from mat.core.resources import shown
from mat.core.value import EMPTY
from mat_contracts.resource.books import BookAccount


def flat(amounts: Any) -> list[tuple[str, str, int]]:
    """(contract, resource, amount) of amounts by contract."""
    return [
        (str(contract), str(resource), value)
        for contract, given in (amounts or EMPTY).items()
        for resource, value in given.items()
    ]  # fmt: skip


def moves(moved: Any) -> list[tuple[str, str, str, int]]:
    """(contract, contract above, resource, amount) of what came back, or was taken."""
    return [(str(id), above, resource, value) for id, to in (moved or EMPTY).items() for above, resource, value in flat(to)]


def of(resource: str, value: int) -> str:
    """`1,200 tokens`, `2.5 seconds`, `1 call of tool:search`."""
    name, port = ("calls", f" of {resource}") if ":" in resource else (resource, "")
    amount = shown(resource, value)
    if amount == "1":
        name = "search" if name == "searches" else name.removesuffix("s") if not name.endswith("ss") else name
    return f"{amount} {name.replace('_', ' ')}{port}"


def most(resource: str, value: int) -> str:
    """What would have been in order: `at most 1,200 tokens`."""
    return f"at most {of(resource, max(0, value))}"


def listed(amounts: Any) -> str:
    """`100 tokens of work#1, 1 call of work#1`, without what is nothing."""
    found = [f"{of(resource, value)} of {contract}" for contract, resource, value in flat(amounts) if value]
    return ", ".join(found) or "nothing"


def parts(resource: str, account: BookAccount) -> str:
    """What became of a budget: `30 spent, 0 reserved, 70 allocated`."""
    spent, held, out = (shown(resource, value) for value in (account.own, account.held, account.out))
    return f"{spent} spent, {held} reserved, {out} allocated"
