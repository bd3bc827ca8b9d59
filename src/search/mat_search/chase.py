"""Chasing: inject at the calls that a run makes only because of its last fault, and at those right after it.

Retries, fallbacks and recoveries exist only after a fault, and a fault in them needs several perturbations that are each worth
nothing alone. A call is *fresh* if the run under one perturbation less has no call of the same port with the same arguments
to match it. Runs that reacted in the same way form a class; classes that were chased least come first, those after longer
chains and those of ports that only faults reach earlier, and of each operator the last point before the others. Of places
that are alike, one comes next whose first fault was injected at a call from which chases went on least.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias

from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, Schedule
from mat_search.reactions import calls_of, compared, ending_of, record_port
from mat_search.strategy import EdgeOutcome
from mat_search.vocabulary import Vocabulary, first_ask, port_of

_FRESH: Final = 6
"""Fresh calls of a run at which something is injected."""
_WAITING: Final = 64
"""Places of one kind that wait; further ones are not chased."""
_REMEMBERED: Final = 4_000
"""Runs that can be gone on from by another lane."""
_UNANSWERED: Final = 3
"""How much more often a kind counts as chosen for a run in which nothing reacted."""

_Class: TypeAlias = tuple[tuple[bool, tuple[object, ...]], ...]
"""For each perturbation: whether its call was fresh, and how the run reacted to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Places that are alike: the same reactions led there, and the same is injected. `turn`: which of the points is next."""

    reactions: _Class
    fresh: bool
    port: str
    operator: str
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chased:
    """A run to go on from. `calls`: a number for each of its calls, equal for calls of one port with the same arguments.

    `ending`: how the run ended, and what became of its contracts. `fresh`: whether it goes on at a fresh call. `root`: the call
    at which the first fault of the chain was injected.
    """

    schedule: Schedule
    calls: array[int]
    ending: tuple[object, ...]
    reactions: _Class = ()
    fresh: bool = True
    root: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chasing:
    """A schedule to execute: the run it goes on from, with one more perturbation; `kind` is what it was drawn from."""

    schedule: Schedule
    parent: Chased
    kind: _Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """A run to go on from, in both ways, with the asks of the calls where a chase would."""

    fresh: Chased
    following: Chased
    fresh_asks: frozenset[str]
    following_asks: frozenset[str]


class Chase:
    def __init__(self, vocabulary: Vocabulary, nominal: Run, stream: Random) -> None:
        self._vocabulary, self._stream = vocabulary, stream
        self._nominal = Chased(schedule=NO_SCHEDULE, calls=calls_of(nominal), ending=ending_of(nominal))
        self._met: set[Schedule] = set()
        self._waiting: dict[_Kind, list[tuple[Chased, int]]] = {}
        self._chosen: Counter[_Kind] = Counter()
        self._usual = frozenset(record_port(record) for record in nominal.records if record.action.boundary)
        self._begun: Counter[str] = Counter()  # how often a chase went on from a first fault at this call
        self._grown: dict[Schedule, _Grown] = {}

    def learn_single(self, schedule: Schedule, outcome: EdgeOutcome) -> None:
        """Learn from the run of a single fault."""
        self._learn(schedule, outcome, self._nominal)

    def learn(self, chasing: Chasing, outcome: EdgeOutcome) -> None:
        if self._learn(chasing.schedule, outcome, chasing.parent):
            self._chosen[chasing.kind] += _UNANSWERED

    def learn_path(self, parent: Schedule, ask: str, schedule: Schedule, outcome: EdgeOutcome) -> None:
        """Learn from a run that another lane asked for, where it is a chase. `ask`: where `parent` was given one fault more."""
        grown = self._grown.get(parent)
        if grown is not None and ask in grown.fresh_asks:
            self._learn(schedule, outcome, grown.fresh)
        elif grown is not None and ask in grown.following_asks:
            self._learn(schedule, outcome, grown.following)

    def _learn(self, schedule: Schedule, outcome: EdgeOutcome, parent: Chased) -> bool:
        """Learn from the run of `parent` with one more perturbation, unless it failed; returns whether nothing reacted."""
        run = outcome.run
        if outcome.hit or run.unreached or schedule in self._met:
            return False
        self._met.add(schedule)
        added = next(item for item in schedule if item not in parent.schedule.perturbations)
        ask = first_ask(added)
        step = next((record.step for record in run.records if record.site == ask), None)
        if step is None:
            return False
        fresh, following, missing = compared(run, step, parent.calls)
        ending = ending_of(run)
        quiet = not fresh and not missing and ending == parent.ending
        if quiet and parent.reactions:
            return True
        reaction = (
            port_of(added),
            added.operator,
            tuple(sorted({record_port(record) for record in fresh})[:4]),
            min(missing, 3),
            *ending,
        )
        reactions = (*parent.reactions, (parent.fresh, reaction))
        next_to_fresh = following if all(known for known, _ in reactions) else []
        onward = Chased(
            schedule=schedule, calls=calls_of(run), ending=ending, reactions=reactions, fresh=True, root=parent.root or ask
        )
        beside = replace(onward, fresh=False)
        if fresh and len(self._grown) < _REMEMBERED:
            self._grown[schedule] = _Grown(
                fresh=onward, following=beside, fresh_asks=frozenset(record.site for record in fresh[:_FRESH]),
                following_asks=frozenset(record.site for record in next_to_fresh),
            )  # fmt: skip
        for grown, records in ((onward, fresh[:_FRESH]), (beside, next_to_fresh)):
            for record in records:
                port, nth = record_port(record), int(record.site.rpartition("#")[2])
                for operator in self._vocabulary.points.get(port, {}):
                    kind = _Kind(reactions=reactions, fresh=grown.fresh, port=port, operator=operator, turn=0)
                    self._wait(kind, grown, nth)
        return quiet

    def _wait(self, kind: _Kind, grown: Chased, nth: int) -> None:
        places = self._waiting.setdefault(kind, [])
        if len(places) < _WAITING:
            places.append((grown, nth))

    def draw(self, limit: int) -> Chasing | None:
        """The next schedule that costs at most `limit`; None if nothing waits."""
        while self._waiting:
            chosen = [(self._times_chosen(kind), kind) for kind in self._waiting]
            least = min(times for times, _ in chosen)
            kinds = [kind for times, kind in chosen if times == least]
            kind = kinds[self._stream.randrange(len(kinds))]
            places = self._waiting[kind]
            begun = [self._begun[grown.root] for grown, _ in places]
            least_begun = min(begun)
            fewest = [index for index, times in enumerate(begun) if times == least_begun]
            grown, nth = places.pop(fewest[self._stream.randrange(len(fewest))])
            if not places:
                del self._waiting[kind]
            points = self._vocabulary.points[kind.port][kind.operator]
            point = points[len(points) - 1 - kind.turn]
            if kind.turn + 1 < len(points):
                following = _Kind(
                    reactions=kind.reactions, fresh=kind.fresh, port=kind.port, operator=kind.operator, turn=kind.turn + 1
                )
                self._wait(following, grown, nth)
            added = point.at(kind.port, nth)
            if grown.schedule.cost + point.cost > limit or any(added.site.overlaps(item.site) for item in grown.schedule):
                continue
            schedule = grown.schedule.add(added)
            if schedule not in self._met:
                self._chosen[kind] += 1
                self._begun[grown.root] += 1
                return Chasing(schedule=schedule, parent=grown, kind=kind)
        return None

    def _times_chosen(self, kind: _Kind) -> int:
        """Kinds that were chosen less often come first."""
        weight = (1 if kind.fresh else 4) * (2 if kind.port in self._usual else 1)
        return self._chosen[kind] * weight * 2 // (1 + len(kind.reactions)) + 4 * kind.turn
