"""Resources that agents consume: names, units and exact amounts, and what one call consumed.

The set is open (R of a resource contract): the code that spends an unknown resource counts it. Amounts are
integers in a resource's smallest unit, so that divided and returned amounts always add up: `seconds` in milliseconds,
`money` in millionths of its currency, everything else in whole units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import Record

Amounts: TypeAlias = Mapping[str, int]
"""resource -> amount in its smallest unit"""
AmountInput: TypeAlias = int | float | str | Decimal | Fraction
"""An amount as people write it: only seconds and money may have a fraction."""

SCALES: Final[Mapping[str, int]] = {"seconds": 1_000, "money": 1_000_000}
"""The number of smallest units in one unit, for the resources that can have fractions."""
METERED: Final[Mapping[str, str]] = {
    "tokens": "tokens of model calls, all kinds together, as the provider counts them",
    "input_tokens": "tokens that models read",
    "reasoning_tokens": "tokens that models used for reasoning, if the provider reports them",
    "output_tokens": "tokens that models wrote",
    "calls": "calls of tools, models and retrievers, failed attempts included",
    "tool_calls": "calls of tools",
    "model_calls": "calls of models",
    "searches": "calls of retrievers",
    "seconds": "time spent in calls",
    "money": "price of calls and tokens, by the contract's prices",
    "iterations": "rounds that an agent declares",
    "subcontracts": "contracts made under this one, at any depth",
}
"""Resources that are counted automatically."""
PER_PORT: Final[Mapping[str, str]] = {"tool_call": "tool", "model_call": "model", "retrieval": "retriever"}
"""Kinds of call that are also counted by port: `tool:web_search`, `model:planner`, `retriever:kb`."""
_BY_KIND: Final = {"tool_call": "tool_calls", "model_call": "model_calls", "retrieval": "searches"}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


def resource_problem(name: object) -> str:
    """Say why a name is not a resource, or give an empty text."""
    if not isinstance(name, str):
        return f"{name!r} is not a string"
    kind, mark, port = name.partition(":")
    if mark:
        known = sorted(PER_PORT.values())
        return (
            ""
            if kind in known and port
            else f"{name!r} does not name a port; write one of {', '.join(f'{item}:name' for item in known)}"
        )
    return "" if _NAME.fullmatch(name) else f"{name!r} is not a resource name: use lower-case letters, digits and _"


def amount(resource: str, given: AmountInput) -> int:
    """An amount in the smallest unit, exactly; SpecError if it is negative, not finite, or too finely divided.

    A float means the number it is written as: 0.1 is a tenth.
    """
    wrong = resource_problem(resource)
    if wrong:
        raise SpecError(what=wrong, fix="correct the name of the resource")
    least = "0.001" if resource == "seconds" else "0.000001" if resource == "money" else "1"
    if isinstance(given, bool) or not isinstance(given, int | float | str | Decimal | Fraction):
        problem = f"{resource}={given!r} is not a number"
    else:
        try:
            exact = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
            scaled = exact * SCALES.get(resource, 1)
        except (ValueError, OverflowError, ZeroDivisionError):
            problem = f"{resource}={given!r} is not a number"
        else:
            if scaled < 0:
                problem = f"{resource}={given!r} is negative"
            elif scaled.denominator != 1:
                problem = f"{resource}={given!r} is not a multiple of {least}"
            else:
                return int(scaled)
    raise SpecError(
        what=problem, why="amounts are exact, so that nothing is lost when they are divided",
        fix=f"give a number >= 0 that is a multiple of {least}",
    )  # fmt: skip


def amounts(given: Mapping[str, AmountInput], where: str) -> dict[str, int]:
    """Several amounts, sorted by resource; every problem in one SpecError."""
    found, problems = {}, []
    for resource, value in given.items():
        try:
            found[resource] = amount(resource, value)
        except SpecError as error:
            problems.append(error.what)
    if problems:
        raise SpecError(
            what=f"{where}: {'; '.join(problems)}", fix='give resources and amounts, such as {"tokens": 50_000, "calls": 6}'
        )
    return dict(sorted(found.items()))


def shown(resource: str, value: int) -> str:
    """An amount for people to read: `1,200`, `2.5`."""
    scale = SCALES.get(resource, 1)
    if scale == 1:
        return f"{value:,}"
    sign, value = ("-", -value) if value < 0 else ("", value)
    digits = len(str(scale)) - 1
    part = f"{value % scale:0{digits}d}".rstrip("0")
    return f"{sign}{value // scale:,}" + (f".{part}" if part else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a port costs, per call and per million tokens of each kind, in units of the currency; see `amount`.

    `reasoning`: for reasoning tokens that are counted apart from output; if the provider counts them as output, leave it at 0.
    """

    call: AmountInput = 0
    input: AmountInput = 0
    output: AmountInput = 0
    reasoning: AmountInput = 0

    def __post_init__(self) -> None:
        for name in ("call", "input", "output", "reasoning"):
            amount("money", getattr(self, name))

    def of(self, usage: Mapping[str, Any]) -> int:
        """The price of a call with this usage, in millionths, rounded up."""
        tokens = sum(
            amount("money", getattr(self, name)) * int(usage.get(f"{name}_tokens", 0))
            for name in ("input", "output", "reasoning")
        )
        return amount("money", self.call) - (-tokens // 1_000_000)


Prices: TypeAlias = Mapping[str, Price]
"""port, as `model:planner` or `tool:search`, -> its price; `model`, `tool` and `retriever` price all others of the kind"""


def price_of(prices: Prices, port: str) -> Price | None:
    return prices.get(port, prices.get(port.partition(":")[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of models in one currency, "" if it is not named."""

    prices: Prices = field(default_factory=dict)
    currency: str = ""


_PRICE: Final = re.compile(r"(?P<model>\S+)\s*=\s*(?P<input>[\d.]+)\s*/\s*(?P<output>[\d.]+)(\s+(?P<currency>[A-Za-z]+))?")


def price_list(lines: Iterable[str]) -> PriceList:
    """The prices that lines such as "gpt-4o = 2.50/10 USD" name; SpecError lists every line that is not one.

    The numbers are the prices of a million tokens of input and of output; the model "*" stands for all others.

    >>> price_list(["gpt-4o = 2.50/10 USD"]).prices["model:gpt-4o"]
    Price(call=0, input='2.50', output='10', reasoning=0)
    """
    prices: dict[str, Price] = {}
    problems, currencies = [], dict[str, None]()
    for line in lines:
        found = _PRICE.fullmatch(line.strip())
        if found is None:
            problems.append(f"{line.strip()!r} is not a price")
            continue
        port = "model" if found["model"] == "*" else f"model:{found['model']}"
        currencies[(found["currency"] or "").upper()] = None
        try:
            prices[port] = Price(input=found["input"], output=found["output"])
        except SpecError as error:
            problems.append(f"{line.strip()!r}: {error.what}")
    if len(currencies) > 1:
        problems.append(f"several currencies: {', '.join(name or 'none' for name in currencies)}")
    if problems:
        raise SpecError(
            what="; ".join(problems), fix='write lines such as "gpt-4o = 2.50/10 USD": per million tokens read/written'
        )
    return PriceList(prices=prices, currency=next(iter(currencies), ""))


def tokens_of(usage: Mapping[str, Any]) -> dict[str, int]:
    """Tokens by kind and in total, as far as a usage names them; never negative. The total is the provider's own, else input
    and output."""
    kinds = ("input_tokens", "reasoning_tokens", "output_tokens")
    found = {name: max(0, int(usage[name])) for name in kinds if name in usage}
    total = usage.get("total_tokens")
    if total is None and found:
        total = found.get("input_tokens", 0) + found.get("output_tokens", 0)
    if total is not None:
        found["tokens"] = max(0, int(total))
    return found


def metered(kind: str, name: str, elapsed_ms: int, usage: Mapping[str, Any], prices: Prices) -> dict[str, int]:
    """What a call consumed: resource -> amount. Empty for kinds of action that are not metered."""
    counted = _BY_KIND.get(kind)
    if counted is None:
        return {}
    port = f"{PER_PORT[kind]}:{name}"
    found = {"calls": 1, counted: 1, port: 1, "seconds": elapsed_ms}
    if usage:
        found.update(tokens_of(usage))
    if prices:
        price = price_of(prices, port)
        if price is not None:
            found["money"] = price.of(found)
    return found


def consumed(record: Record, prices: Prices = {}) -> dict[str, int]:  # noqa: B006  (read only)
    """What a recorded step consumed: a blocked call nothing, a failed attempt one call.

    A call that the network delivers twice counts as one call. Tokens are the ones that the reply names.
    """
    action = record.action
    if action.kind not in _BY_KIND or record.blocked or _stood_in(record):
        return {}
    return metered(action.kind, action.name, record.sealed_ms - record.at_ms, record.observation.usage, prices)


def _stood_in(record: Record) -> bool:
    """Whether governance delivered a reply instead of the port."""
    mediation = record.mediation
    return (
        mediation is not None and mediation.decision == "rewrite" and not record.invoked
        and record.observation.error is None and not record.faults
    )  # fmt: skip


# -- the audit log ------------------------------------------------------------------------------------------------------

EVENTS: Final = (
    "drafted", "activated", "refused", "reserved", "settled", "spent", "reallocated", "warned", "unmetered",
    "fulfilled", "violated", "expired", "terminated",
)  # fmt: skip
"""The events that a record of kind `contract` can report; `reserved` and `settled` of a call are in the call's own record."""
TERMINAL: Final = ("fulfilled", "violated", "expired", "terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One entry of a ledger, read from a trace.

    `number` orders the entries of a run without a gap, `step` is the record that holds it. `facts` are the entry's own:

    drafted: name, agent, parents, budgets, reserve, deadline. activated: allocations {parent: {resource: amount}}, due_ms.
    reserved, settled, spent: amounts {account: {resource: amount}}, an account being a contract's; settled also reserved,
    returned and excess. reallocated: allocations, from_reserve. unmetered: resources, of which the call consumed an unknown
    amount. A terminal event: cause, consumed, overrun and its call, returned, excess {parent: {resource: amount}}.
    """

    number: int
    step: int
    at_ms: int
    event: str
    contract: str
    facts: Mapping[str, Any]


def entries_of(record: Record) -> Iterator[LedgerEntry]:
    """The ledger entries that one record holds."""
    action = record.action
    if action.kind == "contract":
        number, contract = action.arguments.get("entry"), action.arguments.get("contract")
        if type(number) is int and isinstance(contract, str):
            yield LedgerEntry(
                number=number,
                step=record.step,
                at_ms=record.at_ms,
                event=action.name,
                contract=contract,
                facts=action.arguments,
            )
        return
    for event, facts in (
        ("reserved", record.mediation.reserved if record.mediation is not None else None),
        ("settled", record.observation.charged),
    ):
        if facts:
            yield LedgerEntry(
                number=facts["entry"], step=record.step, at_ms=record.at_ms if event == "reserved" else record.sealed_ms,
                event=event, contract=facts["contract"], facts=facts,
            )  # fmt: skip
