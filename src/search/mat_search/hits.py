"""Runs that break a contract: which are new, the cheapest of each failure signature, and their ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mat.core.campaign import Counterexample, Signature
from mat.core.run import Run, same_violation
from mat.core.spec import Schedule
from mat.core.verdict import Violation
from mat_search.space import Edge

JudgeRun: TypeAlias = Callable[[Run], tuple[Violation, ...]]
"""The failures of a run: its hard violations by default, and the task if that is the objective."""
_RANK: Final = {"hard": 0, "soft": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A run with a violation that none of its parent schedules shows. `plain`: the run had no concolic values."""

    schedule: Schedule
    run: Run
    violation: Violation
    plain: bool = False

    @property
    def signature(self) -> Signature:
        return self.counterexample.signature

    @property
    def counterexample(self) -> Counterexample:
        return Counterexample(verdict=self.violation, run=self.run)


class Hits:
    """The cheapest hit of each failure signature.

    A schedule that contains a failing one usually fails in the same way, though its operators' families would give another
    signature. So a failure that a run's parents show in the same way is not new.
    """

    def __init__(self, judge: JudgeRun, nominal: Run) -> None:
        self._judge = judge
        self.nominal = frozenset(violation.contract for violation in judge(nominal))
        self._ways: dict[Schedule, frozenset[_Way]] = {}
        self._best: dict[Signature, Hit] = {}

    def note(self, edge: Edge, run: Run) -> tuple[Hit, ...]:
        """The new hits of a run: another signature, or a known one at a lower cost."""
        schedule = run.spec.schedule
        if not len(schedule):
            return ()
        inherited = self._parent_ways(edge, schedule)
        found: list[Hit] = []
        ways = set(inherited)
        for violation in self._judge(run):
            if violation.contract in self.nominal:
                continue
            hit = Hit(schedule=schedule, run=run, violation=violation)
            signature = hit.signature
            way = _Way(violation.contract, violation.stage, signature.action_kind, signature.interface, signature.risk)
            if way in ways:
                continue
            ways |= {way, replace(way, stage="attempted")}  # attempting what was effected before is no new failure
            known = self._best.get(signature)
            if known is None or schedule.cost < known.schedule.cost:
                self._best[signature] = hit
                found.append(hit)
        if ways:
            self._ways[schedule] = frozenset(ways)
        return tuple(found)

    def repeated(self, run: Run) -> None:
        """Note the failures of a repeated plain run that the search missed: by chance, or by an incomplete state digest."""
        for violation in self._judge(run):
            hit = Hit(schedule=run.spec.schedule, run=run, violation=violation, plain=True)
            known = self._best.get(hit.signature)
            if violation.contract not in self.nominal and (known is None or hit.schedule.cost < known.schedule.cost):
                self._best[hit.signature] = hit

    def _parent_ways(self, edge: Edge, schedule: Schedule) -> frozenset[_Way]:
        if edge.added is not None:
            return self._ways.get(edge.parent, frozenset())
        parts = (schedule.without(item) for item in schedule)
        return frozenset(way for part in parts for way in self._ways.get(part, ()))

    def broken(self, run: Run) -> frozenset[str]:
        """The contracts searched for that a run breaks."""
        return frozenset(violation.contract for violation in self._judge(run)) - self.nominal

    def replace(self, hit: Hit, better: Hit) -> None:
        """Replace a hit by one with a simpler schedule."""
        self.drop(hit)
        other = self._best.get(better.signature)
        if other is None or better.schedule.cost < other.schedule.cost:
            self._best[better.signature] = better

    def drop(self, hit: Hit) -> None:
        """Remove a hit that turned out not to be one."""
        if self._best.get(hit.signature) is hit:
            del self._best[hit.signature]

    @property
    def cost(self) -> int | None:
        """The cost of the cheapest hit."""
        return min((hit.schedule.cost for hit in self._best.values()), default=None)

    @property
    def cheapest(self) -> dict[str, int]:
        """By contract, the least cost of its hits."""
        found: dict[str, int] = {}
        for hit in self._best.values():
            contract = hit.violation.contract
            found[contract] = min(found.get(contract, hit.schedule.cost), hit.schedule.cost)
        return found

    def __len__(self) -> int:
        return len(self._best)

    def ranked(self) -> tuple[Hit, ...]:
        """The hits, severest first, then cheapest; ties by contract and schedule, so that the order is unique."""
        return tuple(sorted(self._best.values(), key=lambda hit: _rank(hit.violation, hit.schedule)))


@dataclass(frozen=True, slots=True)
class _Way:
    """How a contract was broken, regardless of the operators."""

    contract: str
    stage: str
    action_kind: str
    interface: str
    risk: str


def _rank(violation: Violation, schedule: Schedule) -> tuple[int, int, int, str, tuple[tuple[str, str, str], ...]]:
    keys = tuple(item.key for item in schedule)
    return (_RANK[violation.severity], schedule.cost, len(schedule), violation.contract, keys)


def matching_violation(run: Run, judged: Sequence[Violation], wanted: Counterexample) -> Violation | None:
    """The violation by which another run shows a counterexample, None if it does not: contract and stage decide.

    A run may break one contract at several interfaces. Each is a failure signature of its own, so among several this
    returns that of the counterexample, regardless of the operators it needs now.
    """
    same = [violation for violation in judged if same_violation(violation, wanted.verdict)]
    return next(iter(_same_signature(run, same, wanted)), same[0] if same else None)


def same_failure(run: Run, judged: Sequence[Violation], wanted: Counterexample) -> bool:
    """Whether a run fails as a counterexample does: contract, stage, and all of the signature but the operators' families."""
    return bool(_same_signature(run, [violation for violation in judged if same_violation(violation, wanted.verdict)], wanted))


def _same_signature(run: Run, same: Sequence[Violation], wanted: Counterexample) -> list[Violation]:
    like = replace(wanted.signature, operator_family="")
    return [each for each in same if replace(Counterexample(verdict=each, run=run).signature, operator_family="") == like]


def distinct(found: Sequence[Counterexample]) -> tuple[Counterexample, ...]:
    """One counterexample per signature, the first of each in rank order."""
    ordered = sorted(found, key=lambda item: _rank(item.verdict, item.run.spec.schedule))
    firsts: dict[Signature, Counterexample] = {}
    for item in ordered:
        firsts.setdefault(item.signature, item)
    return tuple(firsts.values())
