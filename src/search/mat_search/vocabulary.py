"""What a search can inject anywhere: the ports met so far, how often they are asked, and the grid points that matter there.

A schedule made from it need not be a path of the tree of `mat_search.space`: its calls may not exist, or exist only because
of its other perturbations. The run shows which of them were reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from mat.core.run import Run, prefixes
from mat.core.site import Site, parse_site
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.core.value import FrozenDict
from mat_search.space import Edge, Grid, edges


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A grid point of an operator, as it can be injected at the calls of a port."""

    operator: str
    parameters: FrozenDict
    cost: int
    span: int

    def at(self, port: str, nth: int) -> Perturbation:
        site = replace(_first_site(port), nth=nth, last=nth + self.span - 1)
        return Perturbation(operator=self.operator, site=site, parameters=self.parameters, cost=self.cost)


_first_site = lru_cache(maxsize=10_000)(lambda port: parse_site(f"{port}#1"))


class Vocabulary:
    """By port: the most calls that a run made of it (`asks`), and its points by operator, in the order of the grid."""

    def __init__(self, grid: Grid, budget: int) -> None:
        self._grid, self._budget = grid, budget
        self.asks: dict[str, int] = {}
        self.points: dict[str, dict[str, list[Point]]] = {}

    def learn(self, run: Run) -> None:
        """Learn from a run. The points of a port are those of the first run that has it."""
        new = False
        for record in run.records:
            if record.action.boundary:
                port, _, nth = record.site.rpartition("#")
                new = new or port not in self.points
                self.asks[port] = max(self.asks.get(port, 0), int(nth))
        if new:
            self.learn_edges(edges(run, NO_SCHEDULE, -1, self._grid, prefixes(run), budget=self._budget))
            for port in self.asks:
                self.points.setdefault(port, {})

    def learn_edges(self, found: Iterable[Edge]) -> None:
        known = set(self.points)
        for edge in found:
            port, _, nth = edge.site.rpartition("#")
            if port in known or edge.option is None:
                continue
            self.asks[port] = max(self.asks.get(port, 0), int(nth))
            option = edge.option
            point = Point(
                operator=option.operator.id, parameters=option.parameters, cost=option.choice.cost, span=option.choice.span
            )
            points = self.points.setdefault(port, {}).setdefault(point.operator, [])
            if point not in points:
                points.append(point)

    @property
    def ports(self) -> list[str]:
        """The ports at which something can be injected."""
        return sorted(port for port, operators in self.points.items() if operators)

    def points_at(self, port: str) -> list[Point]:
        """All points at a port, cheapest first."""
        return sorted((each for points in self.points.get(port, {}).values() for each in points), key=lambda each: each.cost)


def port_of(item: Perturbation) -> str:
    """The text of a perturbation's site up to its number."""
    return first_ask(item).rpartition("#")[0]


def first_ask(item: Perturbation) -> str:
    """The first call that a perturbation covers, as records name it."""
    site: Site = item.site
    return str(replace(site, last=site.nth))


def reached(schedule: Schedule, run: Run) -> Schedule:
    """The part of a schedule that its run reached."""
    gone = set(run.unreached)
    return Schedule(tuple(item for item in schedule if item not in gone)) if gone else schedule
