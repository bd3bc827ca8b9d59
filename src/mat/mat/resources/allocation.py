"""Divide a budget among contracts exactly: the parts never add up to more than the whole (Sec. 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from mat.core.errors import SpecError

Refunds: TypeAlias = Literal["last_first", "proportional"]
"""Which of several givers gets back what is left: the last one first, because the first pays first, or all in proportion."""
REFUNDS: tuple[Refunds, ...] = ("last_first", "proportional")


def proportional(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide by weights: b_j = w_j / sum(w) * total. What rounding leaves goes to the largest remainders, in order.

    `total` is the amount to divide, B - B_reserve, in smallest units.

    >>> proportional(100, {"researcher": 2, "analyst": 1})
    {'researcher': 67, 'analyst': 33}
    """
    wrong = [name for name, weight in weights.items() if type(weight) is not int or weight < 0]
    if wrong or (weights and not sum(weights.values())) or total < 0:
        raise SpecError(
            what=f"cannot divide {total} by weights {dict(weights)!r}",
            why="weights are integers >= 0, and at least one is positive",
            fix='give, for example, {"researcher": 3, "analyst": 1}',
        )  # fmt: skip
    whole = sum(weights.values())
    parts = {name: total * weight // whole for name, weight in weights.items()}
    rest = total - sum(parts.values())
    first = {name: place for place, name in enumerate(weights)}
    by_remainder = sorted(weights, key=lambda name: (-(total * weights[name] % whole), first[name]))
    for name in by_remainder[:rest]:
        parts[name] += 1
    return parts


def equal(total: int, names: Iterable[str]) -> dict[str, int]:
    """Divide equally: b_j = total / n. What rounding leaves goes to the first names."""
    return proportional(total, dict.fromkeys(names, 1))


def negotiated(total: int, requests: Mapping[str, int], caps: Mapping[str, int] | int | None = None) -> dict[str, int]:
    """Give each name what it requests, up to its cap; divide in proportion if the requests exceed the total.

    A cap is applied before the division, so that an excessive request does not crowd out the others.

    >>> negotiated(100, {"honest": 40, "greedy": 1000}, caps=60)
    {'honest': 40, 'greedy': 60}
    """
    limits = {name: caps if isinstance(caps, int) else None if caps is None else caps.get(name) for name in requests}
    wrong = [name for name, wanted in requests.items() if type(wanted) is not int or wanted < 0]
    if wrong or total < 0:
        raise SpecError(
            what=f"{', '.join(wrong) or total}: not an amount", why="requests are integers >= 0", fix="request smallest units"
        )
    wanted = {name: asked if limits[name] is None else min(asked, limits[name] or 0) for name, asked in requests.items()}
    if sum(wanted.values()) <= total:
        return wanted
    return proportional(total, wanted)


def paid(used: int, parts: Sequence[int]) -> list[int]:
    """What each giver has paid, in proportion to its part, when `used` of all parts is used. The last one pays any excess.

    The result adds up to `used`, nobody but the last pays more than its part, and no payment decreases when `used` increases.

    >>> paid(50, [60, 40]), paid(101, [60, 40])
    ([30, 20], [60, 41])
    """
    whole, rest = sum(parts), used
    found = []
    for part in parts[:-1]:
        share = part * min(rest, whole) // whole if whole else 0
        found.append(share)
        whole, rest = whole - part, rest - share
    return [*found, rest]


def charges(more: int, parts: Sequence[int], used: Sequence[int], refunds: Refunds) -> list[int]:
    """How several givers share the next `more` that is used. `used`: what each has paid so far. The last one pays any excess.

    A part may have grown since, and no payment is taken back; who has paid too little for its part pays first.
    """
    due = list(parts) if refunds == "last_first" else paid(sum(used) + more, parts)
    found = []
    for wanted, before in zip(due[:-1], used, strict=False):
        share = min(more, max(0, wanted - before))
        found.append(share)
        more -= share
    return [*found, more]


def returns(surplus: int, parts: Sequence[int], used: Sequence[int], refunds: Refunds) -> list[int]:
    """How a surplus goes back to several givers: at most what each gave and nobody used."""
    keep = list(used) if refunds == "last_first" else paid(sum(parts) - surplus, parts)
    found = [0] * len(parts)
    for least in (keep, used):  # first down to what is to be kept, then down to what was used
        for place in reversed(range(len(parts))):
            share = min(surplus, max(0, parts[place] - found[place] - max(least[place], used[place])))
            found[place] += share
            surplus -= share
    return found
