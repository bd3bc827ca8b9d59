"""How far recorded replies reach: the share of schedules that they answer, and what live calls for the others would cost.

Both estimates come from the nominal run: a run under faults asks its models about as often, and with as many tokens a call. A
schedule changes what is asked after its last perturbation only, because up to there its run is that of a smaller schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from mat.core.campaign import CallKey, LiveCost, MissingReply, Recorded
from mat.core.errors import plural
from mat.core.record import Record
from mat.core.resources import PriceList, price_of, shown, tokens_of
from mat.core.run import Run, prefixes
from mat.core.site import parse_site
from mat.core.spec import NO_SCHEDULE, Schedule
from mat_search.campaign import Campaign
from mat_search.space import Grid, Offers

_KINDS: Final = ("input_tokens", "output_tokens", "reasoning_tokens")
_RESOURCES: Final = {"service": "tool", "retrieval": "retriever"}
_CENT: Final = 10_000
"""A hundredth of a currency's unit, in millionths."""


@dataclass(slots=True)
class RecordedReach:
    """What a search met so far: how many schedules were `reached`, and what each of the others lacked."""

    reached: int = 0
    unanswered: dict[Schedule, MissingReply | None] = field(default_factory=dict)

    def result(self, nominal: Run, prices: PriceList) -> Recorded | None:
        """None if every request was answered."""
        if not self.unanswered:
            return None
        missing = _calls_of(self.unanswered.values(), nominal)
        return Recorded(reached=self.reached, unreached=len(self.unanswered), missing=_cost_of(missing, nominal, prices))


def in_words(found: Recorded, first: str) -> str:
    """The reason of a search that met requests without a recorded reply. `first`: what the first such schedule lacked."""
    whole = found.reached + found.unreached
    share = f"{found.reached} of {whole} schedules ({100 * found.reached // whole}%) were reached with recorded replies"
    asks = "the other asks" if found.unreached == 1 else "the others ask"
    return f"{share}; {asks} models something new: at least {cost_in_words(found.missing)}; first: {first}"


def cost_in_words(cost: LiveCost) -> str:
    """An estimate as "40 live calls, 90,000 tokens, 0.93 USD"."""
    parts = [plural(cost.calls, "live call")]
    if cost.tokens is not None:
        parts.append(f"{cost.tokens:,} tokens")
    if cost.price is not None:
        cents = -(-cost.price // _CENT) * _CENT
        parts.append(" ".join(filter(None, (shown("money", cost.price if cents == _CENT else cents), cost.currency))))
        parts += [f"without the price of {', '.join(cost.unpriced)}"] if cost.unpriced else []
    return ", ".join(parts)


def planned(nominal: Run, campaign: Campaign) -> LiveCost | None:
    """What all live calls of a search would cost, if each of its schedules changed every later request and added none.

    None if the nominal run has no call of an external port. The schedules counted are those of the calls that the nominal run
    made, cheapest first, up to `max_runs`.
    """
    steps = _external_steps(nominal)
    if not steps:
        return None
    by_cost = _schedules_by_cost(nominal, campaign, steps)
    calls, left = Counter(port for port, _ in steps), campaign.max_runs
    for count, later in by_cost:
        taken = min(count, left)
        if taken:
            calls.update({port: number * taken // count for port, number in later.items()})
        left -= taken
    return _cost_of(calls, nominal, campaign.prices)


def _schedules_by_cost(
    nominal: Run, campaign: Campaign, steps: Sequence[tuple[str, int]]
) -> list[tuple[int, Mapping[str, int]]]:
    """For each cost up to the budget: how many schedules the nominal run offers, and the external calls after their last call.

    A schedule has at most one perturbation a call, so they are counted call by call: `before` holds the number of schedules of
    each cost on the calls so far.
    """
    budget, grid = campaign.budget, Grid(campaign.operators)
    before = [1] + [0] * budget
    counts, later = [0] * (budget + 1), [Counter[str]() for _ in range(budget + 1)]
    offers = Offers(nominal, NO_SCHEDULE, -1, grid, prefixes(nominal), budget=budget)
    for step, edges in groupby(offers, key=lambda edge: edge.step):
        costs = Counter(edge.cost for edge in edges)
        after = Counter(port for port, at in steps if at > step)
        new = [0] * (budget + 1)
        for cost, points in costs.items():
            for whole in range(cost, budget + 1):
                new[whole] += points * before[whole - cost]
        for whole, count in enumerate(new):
            before[whole] += count
            counts[whole] += count
            later[whole].update({port: number * count for port, number in after.items()})
    return list(zip(counts, later, strict=True))


def _external_steps(run: Run) -> list[tuple[str, int]]:
    """The calls of external ports of a run: port and step, in order."""
    external = {entry.site for entry in run.tape if entry.mode == "external"}
    return [(_port_of(record), record.step) for record in run.records if record.site in external]


def _port_of(record: Record) -> str:
    site = parse_site(record.site)
    return f"{site.boundary}:{site.name}"


def _calls_of(missing: Iterable[MissingReply | None], nominal: Run) -> Counter[str]:
    """The calls that requests without a reply need: each of them, and what the nominal run still asks after as many.

    Schedules that lack the same request need it once.
    """
    usual = Counter(port for port, _ in _external_steps(nominal))
    calls: Counter[str] = Counter()
    known: set[CallKey] = set()
    for each in missing:
        if each is None:
            calls["model"] += 1
        elif each.key not in known:
            known.add(each.key)
            calls[each.port] += 1
            calls.update({port: max(0, count - int(each.asked.get(port, 0))) for port, count in usual.items()})
    return calls


def _cost_of(calls: Mapping[str, int], nominal: Run, prices: PriceList) -> LiveCost:
    """The cost of calls by port, with the mean usage of the nominal run's calls of that port, or of all its model calls."""
    usages: dict[str, list[Mapping[str, int]]] = {}
    for record in nominal.records:
        if record.observation.usage:
            usages.setdefault(_port_of(record), []).append(tokens_of(record.observation.usage))
    everywhere = [usage for found in usages.values() for usage in found]
    tokens, money, unpriced = 0, 0, []
    for port, count in sorted(calls.items()):
        known = usages.get(port) or everywhere
        tokens += count * sum(usage.get("tokens", 0) for usage in known) // max(1, len(known))
        price = price_of(prices.prices, _resource_of(port))
        if price is None:
            unpriced += [port] if count else []
        else:
            money += price.of({name: count * sum(each.get(name, 0) for each in known) // max(1, len(known)) for name in _KINDS})
    priced = len(unpriced) < len(calls)
    return LiveCost(
        calls=sum(calls.values()), tokens=tokens if everywhere else None, price=money if priced else None,
        currency=prices.currency if priced else "", unpriced=tuple(unpriced) if priced else (),
    )  # fmt: skip


def _resource_of(port: str) -> str:
    """A port as prices name it: the boundary of a tool is "service"."""
    boundary, _, name = port.partition(":")
    return f"{_RESOURCES.get(boundary, boundary)}:{name}"
