"""Run specifications: task, configuration, seed and schedule. The id of a run is their digest.

Source: the run parameters x, kappa, z and delta of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from mat.core import limits
from mat.core.digest import digest
from mat.core.errors import SpecError
from mat.core.site import Site, parse_site
from mat.core.value import EMPTY, EXACT_FIELDS, FrozenDict, snapshot_arguments

ClockKind: TypeAlias = Literal["virtual", "real"]


class _WithKey:
    """Room for a perturbation's key, which is computed once: a search sorts the same ones all the time."""

    __slots__ = ("_key",)
    _key: tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation(_WithKey):
    """One operator with its parameters, bound to a site; `mat.spec.perturbation` makes one.

    `operator`: its id. `site`: the calls that it acts on. `parameters`: parameter -> value, a point of the operator's grid.
    `cost`: an integer, in units of cost. `key`: what schedules are ordered by.

    >>> delay = mat.spec.perturbation("service.delay", "main/service:refund#1", {"ms": 1000}, cost=5)
    >>> delay.operator, str(delay.site), dict(delay.parameters), delay.cost
    ('service.delay', 'main/service:refund#1', {'ms': 1000}, 5)

    Source: A3.1 (Eq. 8).
    """

    __pydantic_config__ = EXACT_FIELDS
    operator: str
    site: Site
    parameters: FrozenDict = EMPTY
    cost: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        try:
            return self._key
        except AttributeError:
            object.__setattr__(self, "_key", (str(self.site), self.operator, digest(self.parameters)))
            return self._key


@dataclass(frozen=True, slots=True)
class Schedule:
    """The perturbations of one run: at most one at each call, in canonical order, so equal sets are equal schedules.

    `cost`: the sum of their costs. `add(perturbation)` and `without(perturbation)` return another schedule; `within(budget)`
    returns this one. It can be iterated and has a length. Raises `mat.MatError` for two perturbations that share a call, and
    in `within` if it costs more than the budget.

    >>> lost = mat.spec.perturbation("service.lost_ack", "main/service:refund#1", cost=4)
    >>> slow = mat.spec.perturbation("service.delay", "main/service:track#1", {"ms": 1000}, cost=5)
    >>> mat.spec.Schedule((lost, slow)) == mat.spec.Schedule((slow, lost)), mat.spec.Schedule((lost,)).add(slow).cost
    (True, 9)

    Source: A3.1, A3.2.
    """

    perturbations: tuple[Perturbation, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.perturbations, key=lambda item: item.key))
        for index, one in enumerate(ordered if len(ordered) < _MANY or _overlap(ordered) else ()):
            for other in ordered[index + 1 :]:
                if one.site.overlaps(other.site):
                    raise SpecError(
                        what=overlap_text(one.site, other.site),
                        why="only one perturbation can act on a call",
                        fix="merge them, or move one to another call",
                    )
        object.__setattr__(self, "perturbations", ordered)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        items = handler.generate_schema(tuple[Perturbation, ...])
        return core_schema.no_info_after_validator_function(_from_items, items)

    @property
    def cost(self) -> int:
        return sum(item.cost for item in self.perturbations)

    def __len__(self) -> int:
        return len(self.perturbations)

    def __iter__(self) -> Any:
        return iter(self.perturbations)

    def add(self, perturbation: Perturbation) -> Schedule:
        return Schedule((*self.perturbations, perturbation))

    def without(self, perturbation: Perturbation) -> Schedule:
        return Schedule(tuple(item for item in self.perturbations if item != perturbation))

    def within(self, budget: int) -> Schedule:
        """This schedule; SpecError if it costs more than the budget."""
        if self.cost > budget:
            raise SpecError(
                what=f"the schedule costs {self.cost}; the budget is {budget}",
                why="the budget keeps disturbances small and comparable",
                fix=f"raise budget to {self.cost} or remove a perturbation",
            )
        return self


_MANY: Final = 9
"""From this many perturbations on, sorting them is cheaper than comparing each with each."""


def overlap_text(one: Site, other: Site) -> str:
    """What is wrong with two perturbations at sites that overlap."""
    return f"two perturbations share {one}" if one == other else f"two perturbations overlap: {one} and {other}"


def _overlap(items: Sequence[Perturbation]) -> bool:
    """Whether two of these share a call."""
    ends: dict[tuple[str, str, str], int] = {}
    for site in sorted([item.site for item in items]):
        if site.nth <= ends.get(site.port, 0):
            return True
        ends[site.port] = max(site.last, ends.get(site.port, 0))
    return False


def _from_items(items: tuple[Perturbation, ...]) -> Schedule:
    try:
        return Schedule(items)
    except SpecError as error:
        raise ValueError(error.what) from None


NO_SCHEDULE = Schedule()


def perturbation(operator: str, site: str | Site, parameters: Mapping[str, object] = EMPTY, cost: int = 0) -> Perturbation:
    """Make a perturbation from plain values, as people write them.

    `operator`: its id. `site`: a `mat.spec.Site` or its text, `agent/boundary:name#n` or `#n..m`. `parameters`: parameter
    -> value, a point of the operator's grid, plain data. `cost`: an integer. Raises `mat.MatError` for a text that is not a
    site, and for parameters that are not plain data. An unknown operator is reported when a run begins.

    >>> @mat.tool
    ... def track(parcel): return "Friday"
    >>> late = mat.spec.perturbation("service.delay", "main/service:track#1", {"ms": 1000}, cost=5)
    >>> with mat.run(schedule=[late]) as run:
    ...     reply = track(17)
    >>> run.trace[0].sealed_ms
    1000

    Source: A3.1.
    """
    return Perturbation(
        operator=operator,
        site=parse_site(site) if isinstance(site, str) else site,
        parameters=snapshot_arguments(parameters, operator),
        cost=cost,
    )


def schedule(items: Iterable[Perturbation] | Schedule) -> Schedule:
    """The `mat.spec.Schedule` of these perturbations; a schedule is returned as it is.

    Raises `mat.MatError` for two perturbations that share a call.

    `items`: perturbations in any order, or a schedule.

    >>> lost = mat.spec.perturbation("service.lost_ack", "main/service:refund#1", cost=4)
    >>> mat.spec.schedule([lost]).cost
    4

    Source: A3.1.
    """
    return items if isinstance(items, Schedule) else Schedule(tuple(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a run is made from: task, configuration, seed and schedule. Equal specifications give equal runs.

    `config`: name -> setting: model ids, prompts, topology, contract ids, governance variant. `seed`: any integer. `clock`:
    "virtual" or "real". `horizon_steps` and `horizon_ms`: where the run is stopped, in steps and in milliseconds of run
    time. `id`: the digest of all; `base`: that of everything but the schedule. `under(schedule)`: the same with another
    schedule.

    >>> spec = mat.spec.RunSpec(task="refund A17", seed=7)
    >>> lost = mat.spec.schedule([mat.spec.perturbation("service.lost_ack", "main/service:refund#1", cost=4)])
    >>> spec.under(lost).base == spec.base, spec.under(lost).id == spec.id
    (True, False)

    Source: A3.1.
    """

    __pydantic_config__ = EXACT_FIELDS
    task: str = ""
    config: FrozenDict = EMPTY
    seed: int = 0
    schedule: Schedule = NO_SCHEDULE
    clock: ClockKind = "virtual"
    horizon_steps: int = limits.HORIZON_STEPS
    horizon_ms: int = limits.HORIZON_MS

    @property
    def base(self) -> str:
        """The digest of everything but the schedule."""
        return digest([self.task, self.config, self.seed, self.clock, self.horizon_steps, self.horizon_ms])

    @property
    def id(self) -> str:
        return digest([self.base, [[str(item.site), item.operator, item.parameters] for item in self.schedule]])

    def under(self, schedule: Schedule) -> RunSpec:
        return replace(self, schedule=schedule)
