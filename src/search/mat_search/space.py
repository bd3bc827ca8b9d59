"""The dynamic tree: which injections a finished run offers, and the key by which equal ones are skipped.

A child injects one perturbation after the last one, at a site its parent's run really reached. So every schedule has one
parent and is visited once, and sites that exist only after a fault (a retry, a fallback) appear by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mat.core.digest import digest
from mat.core.errors import SpecError
from mat.core.operator import OperatorSpec
from mat.core.record import Record
from mat.core.run import Run, prefixes
from mat.core.site import BOUNDARIES, Site, parse_site
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.core.value import FrozenDict


@dataclass(frozen=True, slots=True)
class Edge:
    """One injection into one parent. `state` is D at the site (DESIGN decision 8), `step` where it will be decided.

    `key` identifies what will happen: two edges with one key lead to the same run from there on.
    """

    schedule: Schedule
    added: Perturbation | None
    step: int
    state: str
    key: str
    lineage: tuple[str, ...]

    @property
    def cost(self) -> int:
        return self.schedule.cost


ROOT = Edge(NO_SCHEDULE, None, -1, "", "", ())


def edges(run: Run, edge: Edge, operators: Sequence[OperatorSpec], *, budget: int) -> Iterator[Edge]:
    """The children of a run within the budget, in decision order; irrelevant grid points are left out (see `offers`)."""
    states = prefixes(run)
    for record, operator, site, parameters, cost in offers(run, operators):
        if record.step <= edge.step or edge.cost + cost > budget:
            continue
        added = Perturbation(operator=operator.id, site=site, parameters=parameters, cost=cost)
        try:
            schedule = edge.schedule.add(added)
        except SpecError:  # the site lies in the range of an earlier perturbation
            continue
        state = states[record.step]
        yield Edge(schedule, added, record.step, state, _key(run, edge, record, added, state), states)


def _key(run: Run, edge: Edge, record: Record, added: Perturbation, state: str) -> str:
    """Everything the future depends on: D, what is injected, and ranges of earlier perturbations that are still open."""
    open_ranges = [
        [item.operator, str(item.site), item.parameters]
        for item in edge.schedule
        if item.site.last > _asked(run, item.site, record.step)
    ]
    return digest([state, record.site, record.action.arguments, added.operator, str(added.site), added.parameters, open_ranges])


def _asked(run: Run, site: Site, before: int) -> int:
    """How often a site's port had been asked before a step."""
    count = 0
    for record in run.records[:before]:
        found = site_of(record)
        if found is not None and found.port == site.port:
            count += 1
    return count


def offers(run: Run, operators: Sequence[OperatorSpec]) -> Iterator[tuple[Record, OperatorSpec, Site, FrozenDict, int]]:
    """Every (record, operator, site, parameters, cost) of the grid that could change something in this run.

    Left out, each soundly: operators of another boundary or kind; ports that do not allow them; sites that governance
    blocked before the fault layer; grid points for which the operator itself says that the reply cannot change.
    """
    for record in run.records:
        site = site_of(record)
        if site is None or record.blocked:
            continue
        allowed = run.restricted.get(f"{site.boundary}:{site.name}")
        before = run.records[: record.step]
        for operator in operators:
            if operator.boundary != site.boundary or record.action.kind not in operator.kinds:
                continue
            if allowed is not None and operator.id not in allowed and operator.boundary not in allowed:
                continue
            for choice in operator.choices:
                if operator.relevant(record, choice.parameters, before):
                    bound = Site(
                        agent=site.agent,
                        boundary=site.boundary,
                        name=site.name,
                        nth=site.nth,
                        last=site.nth + choice.span - 1,
                    )
                    yield record, operator, bound, choice.parameters, choice.cost


def site_of(record: Record) -> Site | None:
    """The record's site, or None where it crossed no boundary."""
    return parse_site(record.site) if record.action.boundary in BOUNDARIES else None
