"""A session's time, shared out among the items that wait for their search (`--mat-session-timeout`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An item that waits for its search.

    `needs_s`: the seconds that it will need, None if nobody knows. `first`: it goes before the others, because its sources
    changed, because it is new, or because its last search found something.
    """

    needs_s: float | None
    first: bool = False


def share(left_s: float, own: Waiting, others: Sequence[Waiting]) -> float:
    """The seconds for one item, of those that are left for it and for the others.

    Those that go first get what they need, as far as the time allows; then the others do. Where it does not allow for all of
    them, the time is divided evenly, and nobody gets more than it needs. What is left after that belongs to all alike, because
    needs are estimates.
    """
    everyone = [own, *others]
    known = [each.needs_s for each in everyone if each.needs_s is not None]
    even = max(0.0, left_s) / len(everyone)
    usual = max(even, sum(known) / len(known)) if known else even
    remaining, own_share = max(0.0, left_s), 0.0
    for first in (True, False):
        group = [each for each in everyone if each.first == first]
        needs = [usual if each.needs_s is None else each.needs_s for each in group]
        shares = _evenly(remaining, needs)
        remaining -= sum(shares)
        if own.first == first:
            own_share = shares[0]
    return own_share + max(0.0, remaining) / len(everyone)


def _evenly(amount: float, needs: Sequence[float]) -> list[float]:
    """An amount divided so that nobody gets more than it needs, and those who get less get the same."""
    shares = [0.0] * len(needs)
    left = amount
    order = sorted(range(len(needs)), key=lambda place: (needs[place], place))
    for done, place in enumerate(order):
        shares[place] = min(needs[place], left / (len(needs) - done))
        left -= shares[place]
    return shares
