"""Divide a budget among contracts exactly: the parts never add up to more than the whole (Sec. 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mat.core.errors import SpecError


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
