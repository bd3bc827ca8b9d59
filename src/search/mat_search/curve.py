"""Random schedules within a budget: nested chains for robustness curves, and a policy that injects at random while it runs.

Two declared distributions over schedules; both draw integers from named streams, so equal seeds give equal schedules.

Chains (`Chains`, `chains`), for deterministic systems. A chain begins with the empty schedule and grows one injection at a
time, from the run under its schedule so far: it draws uniformly one of the calls at which an injection fits the rest of the
budget, then one of the operators that can act there, then one of its grid points. Calls that carry an injection already are
left out, and so is what an operator declares to have no effect. A chain ends when nothing is left to draw. So a schedule of one
injection is drawn evenly over the calls of the nominal run, and each further one evenly over the calls of the run it is added
to, before or after the injections that are there: chains that only moved on to later calls would crowd at the end and leave
most of the budget unspent. An injection may keep a later one from being reached; that one stays in the schedule, does nothing,
and still costs its price.

For a budget B a chain gives its longest prefix that costs at most B. Prefixes are nested, so one chain gives a schedule for
every B, and each distinct prefix is executed once.

The policy (`RandomPolicy`), for other systems: it decides at each crossing and needs no earlier run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import TypeAlias

from mat.core.adversary import Adaptive, Seen
from mat.core.curve import Chain, ScheduleResult, schedule_result
from mat.core.errors import SpecError
from mat.core.operator import GridPoint, OperatorSpec
from mat.core.run import Run, prefixes
from mat.core.site import parse_site
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.kernel.entropy import Entropy, stream_seed
from mat_search.space import Grid, edges, sites

Execute: TypeAlias = Callable[[Schedule], Run]
Offered: TypeAlias = tuple[tuple[tuple[Perturbation, ...], ...], ...]
"""What may be injected into a run: by call, by operator, by grid point."""


# -- chains -----------------------------------------------------------------------------------------------------------


def chains(
    operators: Sequence[OperatorSpec], run: Execute, *, budget: int, count: int, seed: int | str = 0
) -> tuple[Chain, ...]:
    """`count` random chains within the budget; `run` executes each distinct schedule of theirs once."""
    return Chains(operators, budget=budget, count=count, seed=seed).finish(run)


def chain_seed(nominal: Run) -> int:
    """The seed of the chains that grow from a run."""
    return Entropy.of(nominal.spec).seed_of("search/chain")


class Chains:
    """Random chains that grow along with a campaign, from the runs that it executes anyway.

    `executions` counts the executions of `finish`. The chains depend only on the seed and on the runs, not on the order in
    which runs are noted: each draws from a stream of its own.
    """

    def __init__(self, operators: Sequence[OperatorSpec], *, budget: int, count: int, seed: int | str = 0) -> None:
        _check_limits(budget=budget, count=count)
        self._grid, self._budget = Grid(operators), budget
        self._chains = [_GrowingChain(Random(stream_seed(seed, f"search/chain/{index}"))) for index in range(count)]
        self._waiting: dict[Schedule, list[_GrowingChain]] = {NO_SCHEDULE: list(self._chains)} if count else {}
        self._known: dict[Schedule, tuple[ScheduleResult, Offered]] = {}
        self.executions = 0

    def note(self, run: Run) -> None:
        """Note a finished run: chains that wait for its schedule grow. Other runs are ignored."""
        self._note(run.spec.schedule, run)

    def finish(self, run: Execute) -> tuple[Chain, ...]:
        """All chains, complete; executes missing runs, chain by chain. An exception of `run` leaves the chains unchanged."""
        for chain in self._chains:
            while not chain.complete:
                schedule = chain.wanted
                self.executions += 1
                self._note(schedule, run(schedule))
        return self.grown

    @property
    def grown(self) -> tuple[Chain, ...]:
        """The complete chains up to the first incomplete one.

        Later ones are left out even if they are complete: chains that are done early are short, which would bias the sample.
        """
        found: list[Chain] = []
        for chain in self._chains:
            if not chain.complete:
                break
            found.append(tuple(chain.links))
        return tuple(found)

    def _note(self, schedule: Schedule, run: Run) -> None:
        waiting = self._waiting.pop(schedule, None)
        if waiting is None:
            return
        offered = offered_by(run, schedule, self._grid, self._budget)
        self._known[schedule] = (schedule_result(run), offered)
        for chain in waiting:
            self._grow(chain)

    def _grow(self, chain: _GrowingChain) -> None:
        """Grow a chain as far as possible without executing anything."""
        while (known := self._known.get(chain.wanted)) is not None:
            result, offered = known
            chain.links.append(result)
            if not offered:
                chain.complete = True
                return
            chain.wanted = chain.wanted.add(drawn_from(offered, chain.stream))
        self._waiting.setdefault(chain.wanted, []).append(chain)


class _GrowingChain:
    """A chain so far, and the schedule whose run it waits for."""

    __slots__ = ("complete", "links", "stream", "wanted")

    def __init__(self, stream: Random) -> None:
        self.stream, self.wanted, self.complete = stream, NO_SCHEDULE, False
        self.links: list[ScheduleResult] = []


def offered_by(run: Run, schedule: Schedule, grid: Grid, budget: int) -> Offered:
    """What may be added anywhere in the run of a schedule, before or after its injections."""
    rest = budget - schedule.cost
    if rest < grid.least:
        return ()
    by_ask: dict[str, dict[str, list[Perturbation]]] = {}
    for edge in edges(run, NO_SCHEDULE, -1, grid, prefixes(run), budget=rest):
        added = edge.added
        if added is None or any(added.site.overlaps(item.site) for item in schedule):
            continue
        by_ask.setdefault(edge.site, {}).setdefault(added.operator, []).append(added)
    return tuple(tuple(tuple(points) for points in by_operator.values()) for by_operator in by_ask.values())


def drawn_from(offered: Offered, stream: Random) -> Perturbation:
    operators = offered[stream.randrange(len(offered))]
    points = operators[stream.randrange(len(operators))]
    return points[stream.randrange(len(points))]


def _check_limits(*, budget: int, count: int = 0) -> None:
    wrong = [f"{name}={value!r}" for name, value in (("budget", budget), ("count", count)) if value < 0]
    if wrong:
        raise SpecError(what=f"{' and '.join(wrong)} must not be below 0", fix="use 0 or more")


# -- the policy -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One operator as a policy knows it: plain data, cheapest grid point first."""

    operator: str
    choices: tuple[GridPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPolicy:
    """Injects at random: a `Choose` (mat.core.adversary) for each call of one episode that an operator can act on.

    At a call at which some operator can act within the rest of the budget, it injects in `hit` of `of` cases; it draws one of
    these operators uniformly, then one of its affordable grid points. It does not leave out what an operator declares to have
    no effect, because the reply is not known yet. The policy has no state: its answer is a function of seed, episode and what
    it sees, so it can be asked again and sent to another process.
    """

    offers: tuple[Offer, ...]
    hit: int
    of: int
    seed: int | str = 0
    episode: int = 0

    def __call__(self, seen: Seen) -> Perturbation | None:
        offered = [
            (offer.operator, choices)
            for offer in self.offers
            if offer.operator in seen.operators
            and (choices := [choice for choice in offer.choices if choice.cost <= seen.rest])
        ]
        stream = Random(stream_seed(self.seed, f"search/random/{self.episode}/{seen.site}"))
        if not offered or stream.randrange(self.of) >= self.hit:
            return None
        operator, choices = offered[stream.randrange(len(offered))]
        choice = choices[stream.randrange(len(choices))]
        site = parse_site(seen.site)
        return Perturbation(
            operator=operator, site=replace(site, last=site.nth + choice.span - 1), parameters=choice.parameters,
            cost=choice.cost,
        )  # fmt: skip


def random_policy(
    nominal: Run, operators: Sequence[OperatorSpec], *, budget: int, seed: int | str = 0, episode: int = 0
) -> Adaptive:
    """The policy of one episode, with odds under which it is expected to spend its budget.

    With n calls of the nominal run at which an affordable operator can act, and c the mean cost of what would be drawn there,
    it injects in budget / (n c) of the cases: budget / c times in all, if nothing cuts the run short. If that is 1 or more, it
    injects at every call.
    """
    _check_limits(budget=budget)
    affordable = [
        (operator, choices)
        for operator in sorted(operators, key=lambda item: item.id)
        if (choices := tuple(choice for choice in operator.choices if choice.cost <= budget))
    ]
    means = {operator.id: _mean([choice.cost for choice in choices]) for operator, choices in affordable}
    costs = [
        _mean([means[operator.id] for operator in here])
        for here in _operators_by_site(nominal, [operator for operator, _ in affordable])
        if here
    ]
    odds = min(Fraction(1), budget / sum(costs, Fraction(0))) if costs else Fraction(0)
    offers = tuple(Offer(operator=operator.id, choices=choices) for operator, choices in affordable)
    policy = RandomPolicy(offers=offers, hit=odds.numerator, of=odds.denominator, seed=seed, episode=episode)
    return Adaptive(choose=policy, budget=budget)


def _operators_by_site(run: Run, operators: Sequence[OperatorSpec]) -> Iterator[list[OperatorSpec]]:
    """At each site of a run, the operators that can act there."""
    contended = frozenset(run.contended)
    for record in run.records:
        action = record.action
        if not action.boundary or record.blocked:
            continue
        allowed = run.restricted.get(f"{action.boundary}:{action.name}") if run.restricted else None
        fitting = [
            operator
            for operator in operators
            if action.kind in operator.kinds and (allowed is None or operator.id in allowed or operator.boundary in allowed)
        ]
        for _, boundary in sites(record, contended):
            yield [operator for operator in fitting if operator.boundary == boundary]


def _mean(values: Sequence[int | Fraction]) -> Fraction:
    return Fraction(sum(values)) / len(values)
