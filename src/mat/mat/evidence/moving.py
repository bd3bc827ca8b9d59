"""Find the places of a recorded schedule again in runs of changed code.

A perturbation is in place if the call at its site has the recorded arguments. Otherwise its place is the call of the same port
with the same arguments. Of several such calls by the recorded agent it is the one that as many of them precede as in the
recording, else the nearest. If the recorded agent makes no such call, another agent's counts, provided that only one agent
makes it and did not make it in the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mat.core.digest import canonical
from mat.core.record import Record
from mat.core.run import Run
from mat.core.site import ABOUT_CALLS, Site, parse_site, site_about
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.evidence.replay_file import hit_step


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedSite:
    """A perturbation whose call is at another site now."""

    before: Site
    now: Site

    def __str__(self) -> str:
        return f"moved from {self.before} to {self.now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A recorded schedule at its present places."""

    schedule: Schedule
    moves: tuple[MovedSite, ...] = ()


def in_place(recorded: Run, again: Run) -> bool:
    """Whether each perturbation of the recorded schedule met the recorded call in a run under that schedule."""
    return all(_met(again, each) for each in _perturbed_calls(recorded))


def relocate(recorded: Run, again: Run, execute: Callable[[Schedule], Run | None]) -> Relocation:
    """The recorded schedule at its present places; a perturbation whose call is gone keeps its site.

    `again` is a run of today's code under the recorded schedule. A place is looked for in a run without the perturbations that
    disturb another call, because these change what follows: `execute` makes such a run, or returns None if it cannot.
    """
    settled, moves, run = NO_SCHEDULE, list[MovedSite](), again
    kept = [item for item in recorded.spec.schedule if hit_step(recorded, item) is None]
    calls = list(_perturbed_calls(recorded))
    while calls and _met(again, calls[0]):
        settled = settled.add(calls.pop(0).item)
    for each in calls:
        if _acting(run) != settled:
            executed = execute(settled)
            if executed is None:
                return Relocation(schedule=recorded.spec.schedule)
            run = executed
        place = _present_site(run, each, taken=[*settled, *kept])
        if place is None:
            kept.append(each.item)
            continue
        settled = settled.add(replace(each.item, site=place))
        if place != each.item.site:
            moves.append(MovedSite(before=each.item.site, now=place))
    if any(one.site.overlaps(other.site) for one in settled for other in kept):
        return Relocation(schedule=recorded.spec.schedule)
    return Relocation(schedule=Schedule((*settled, *kept)), moves=tuple(moves))


@dataclass(frozen=True, slots=True, kw_only=True)
class _PerturbedCall:
    """A perturbation of the recorded schedule, and the first call that it acted on.

    `rank`: how many equal calls of the same agent precede it. `others`: the other agents that make an equal call.
    """

    item: Perturbation
    record: Record
    rank: int
    others: frozenset[str]

    def equals(self, other: Record) -> bool:
        """Whether another record is a call of the same port with the same arguments, by whichever agent."""
        return _equal_calls(self.record, other)

    def site_at(self, record: Record) -> Site | None:
        """The site of the perturbation if it acts on this call first; None if there is none."""
        before, now = (_site(each, self.item) for each in (self.record, record))
        nth = now.nth - (before.nth - self.item.site.nth)
        return replace(now, nth=nth, last=nth + self.item.site.last - self.item.site.nth) if nth >= 1 else None


def _equal_calls(one: Record, other: Record) -> bool:
    first, second = one.action, other.action
    same = (first.boundary, first.name, first.kind) == (second.boundary, second.name, second.kind)
    return same and canonical(first.arguments) == canonical(second.arguments)


def _site(record: Record, item: Perturbation) -> Site:
    return parse_site(site_about(boundary, record.site) if (boundary := item.site.boundary) in ABOUT_CALLS else record.site)


def _perturbed_calls(recorded: Run) -> Iterator[_PerturbedCall]:
    """The perturbations that acted in the recording, in the order of their calls."""
    steps = ((hit_step(recorded, item), item) for item in recorded.spec.schedule)
    for step, item in sorted(((step, item) for step, item in steps if step is not None), key=lambda each: each[0]):
        record = recorded.records[step]
        equal = [each for each in recorded.records if _equal_calls(each, record)]
        yield _PerturbedCall(
            item=item, record=record, rank=_rank(equal, record),
            others=frozenset(each.agent for each in equal if each.agent != record.agent),
        )  # fmt: skip


def _rank(equal: Iterable[Record], record: Record) -> int:
    """How many of these calls the agent of a record makes before it."""
    return sum(each.agent == record.agent and each.step < record.step for each in equal)


def _met(run: Run, call: _PerturbedCall) -> bool:
    """Whether a perturbation acted on its call first, in a run under it."""
    step = hit_step(run, call.item)
    if step is None or not call.equals(run.records[step]):
        return False
    return _rank(filter(call.equals, run.records), run.records[step]) == call.rank


def _acting(run: Run) -> Schedule:
    """The perturbations that acted in a run: it went on as it would have done without the others."""
    return Schedule(tuple(item for item in run.spec.schedule if item not in run.unreached))


def _present_site(run: Run, call: _PerturbedCall, *, taken: Sequence[Perturbation]) -> Site | None:
    """The present site of a call; None if it is gone or cannot be distinguished from others."""
    equal = [record for record in run.records if call.equals(record)]
    own = [record for record in equal if record.agent == call.record.agent]
    if not own:
        agents = {record.agent for record in equal} - call.others
        own = [record for record in equal if record.agent in agents] if len(agents) == 1 else []
    return _nearest(((abs(index - call.rank), call.site_at(record)) for index, record in enumerate(own)), taken)


def _nearest(places: Iterable[tuple[int, Site | None]], taken: Sequence[Perturbation]) -> Site | None:
    """The nearest place that is free; None if there is none, or two are equally near."""
    free = [
        (distance, site)
        for distance, site in places
        if site is not None and not any(site.overlaps(item.site) for item in taken)
    ]
    if not free:
        return None
    least = min(distance for distance, _ in free)
    nearest = [site for distance, site in free if distance == least]
    return nearest[0] if len(nearest) == 1 else None
