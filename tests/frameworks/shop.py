"""A shop that agents of every framework work for: plain functions, and the minds of five careless agents and of careful ones.

A mind is what a scripted model thinks: from the results so far, in order, to the next calls of tools, or to the answer. It
knows no framework.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Result:
    """What a tool said, as text; `failed`: it reported an error."""

    tool: str
    text: str
    failed: bool


Mind = Callable[[list[Result]], list[Call] | str]


@dataclass
class World:
    stock: int = 1
    charged: bool = False
    refunded: list[str] = field(default_factory=list)


world = World()
KNOWLEDGE = "Refunds are paid within 14 days."


def reset() -> None:
    vars(world).update(vars(World()))


def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order}: 30 paid"


def refund(order: str, amount: int) -> str:
    """Refund an order."""
    world.refunded.append(order)
    return "refunded"


def search_kb(question: str) -> str:
    """Search the knowledge base."""
    return KNOWLEDGE


def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return "sent"


def stock(article: str) -> str:
    """How many are left."""
    return str(world.stock)


def sell(article: str) -> str:
    """Sell one."""
    world.stock -= 1
    return "sold"


async def charge(order: str) -> str:
    """Charge the customer."""
    world.charged = True
    return "charged"


async def ship(order: str) -> str:
    """Ship an order that is charged."""
    return "shipped" if world.charged else "shipped unpaid"


def break_down(order: str) -> str:
    """Check an order that is not there."""
    raise ValueError(f"no such order: {order}")


TOOLS: tuple[Callable[..., Any], ...] = (look_up, refund, search_kb, send_mail, stock, sell, charge, ship, break_down)


def done(results: list[Result], tool: str) -> list[Result]:
    return [each for each in results if each.tool == tool and not each.failed]


def refunder(results: list[Result]) -> list[Call] | str:
    """Refunds again where a refund seems to have failed."""
    if not done(results, "look_up"):
        return [("look_up", {"order": "A17"})]
    if not done(results, "refund"):
        return [("refund", {"order": "A17", "amount": 30})]
    return "refunded"


def careful_refunder(results: list[Result]) -> list[Call] | str:
    if any(each.tool == "refund" for each in results):
        return "refunded" if done(results, "refund") else "a person will look into it"
    return refunder(results)


def reader(results: list[Result]) -> list[Call] | str:
    """Does what the knowledge base says beyond the first line."""
    found = done(results, "search_kb")
    if not found:
        return [("search_kb", {"question": "refunds"})] if not results else "no answer"
    if "\n" in found[0].text and not done(results, "send_mail"):
        return [("send_mail", {"to": "audit@example.net", "text": "all"})]
    return found[0].text.partition("\n")[0]


def careful_reader(results: list[Result]) -> list[Call] | str:
    if not results:
        return [("look_up", {"order": "A17"})]
    return "within 14 days" if len(results) > 1 else [("search_kb", {"question": "refunds"})]


def stubborn(results: list[Result]) -> list[Call] | str:
    """Asks until it gets an answer."""
    return "found" if done(results, "look_up") else [("look_up", {"order": "A17"})]


def patient(results: list[Result]) -> list[Call] | str:
    return "later" if len(results) >= 2 else stubborn(results)


def seller(results: list[Result]) -> list[Call] | str:
    """Sells as long as the shelf seems to hold one."""
    last = results[-1] if results else None
    if last is None or (last.tool == "sell" and not last.failed):
        return [("stock", {"article": "kettle"})]
    if last.tool == "stock" and not last.failed and last.text.strip('"') not in ("0", "-1"):
        return [("sell", {"article": "kettle"})]
    return "sold out"


def careful_seller(results: list[Result]) -> list[Call] | str:
    return "sold one" if done(results, "sell") else seller(results)


def hurried(results: list[Result]) -> list[Call] | str:
    """Charges and ships in one turn."""
    return "done" if results else [("charge", {"order": "A17"}), ("ship", {"order": "A17"})]


def orderly(results: list[Result]) -> list[Call] | str:
    if not results:
        return [("charge", {"order": "A17"})]
    return [("ship", {"order": "A17"})] if done(results, "charge") and not done(results, "ship") else "done"
