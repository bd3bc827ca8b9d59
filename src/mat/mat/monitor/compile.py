"""Contracts from formulas: what they say when they are broken, and the fold they share with all others (`codegen`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.verdict import Obligation, Severity
from mat.monitor.codegen import Open, Program, State
from mat.monitor.contract import Contract, ContractPolicy, Margin, Violated
from mat.monitor.explain import Explained, explained
from mat.monitor.goals import Goal, goals_of, shape, union
from mat.monitor.temporal import Formula, _node, text


def contract(
    id: str,
    formula: Formula,
    *,
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
    message: str = "",
    margin: Margin | None = None,
) -> Contract:
    """A contract from a formula.

    always(phi) is judged at every step; a formula that looks ahead (eventually, until, next) at the first step; any other
    at the last. Parts joined by & at the top are judged each in its way. `policy="block"` needs a formula of the past: the
    others are settled only after the action. `message` replaces the generated text of violations.
    """
    node = _node(formula)
    goals = goals_of(node)
    if policy == "block" and any(goal.ahead for goal in goals):
        raise SpecError(
            what=f"contract {id!r} is to block actions, and looks ahead: {text(node)}",
            why="eventually, until and next are settled by later steps, when the action has been done",
            fix="say it by past operators, such as always(paid.implies(once(verified))), or use policy='observe'",
        )
    if policy == "block" and all(goal.when == "last" for goal in goals):
        raise SpecError(
            what=f"contract {id!r} is to block actions, and is judged at the end: {text(node)}",
            why="it has no verdict while the run goes on",
            fix="write always(...) around what must hold at every step",
        )
    spoken = Spoken(goals, message, repair)
    return Contract(
        id=id,
        step=_Step(spoken),
        start=program_of((spoken,)).initial,
        finish=_Finish(spoken) if any(goal.ahead or goal.when == "last" for goal in goals) else None,
        obligations=_Waiting(spoken),
        kinds=union(*[goal.kinds for goal in goals]),
        severity=severity,
        weight=weight,
        policy=policy,
        repair=repair,
        text=text(node),
        formula=spoken,
        margin=margin,
    )


class Spoken:
    """A contract's goals, and how it speaks of each."""

    def __init__(self, goals: tuple[Goal, ...], message: str, repair: str) -> None:
        self.goals = goals
        self._message, self._repair = message, repair
        self.key, self.objects = shape(goals)

    @property
    def ahead(self) -> bool:
        """Whether later steps settle any of it."""
        return any(goal.ahead for goal in self.goals)

    @cached_property
    def texts(self) -> tuple[Explained, ...]:
        return tuple(explained(goal, self._message, self._repair) for goal in self.goals)


_PROGRAMS: Final = 512
_programs: dict[Any, tuple[Program, tuple[Any, ...]]] = {}
"""Generated once for all contracts of one shape: fixtures make contracts anew for every run of a search."""


def program_of(spoken: Sequence[Spoken]) -> Program:
    objects = tuple(held for item in spoken for held in item.objects)
    seen: dict[int, int] = {}
    same = tuple(seen.setdefault(id(held), len(seen)) for held in objects)
    key = (tuple(item.key for item in spoken), same)
    known = _programs.get(key)
    if known is None:
        if len(_programs) >= _PROGRAMS:
            _programs.clear()
        known = _programs[key] = (Program([goal for item in spoken for goal in item.goals]), objects)
    program, held_before = known
    return program if held_before == objects else program.holding(held_before, objects)


def _joined(found: Sequence[Violated], **changes: Any) -> Violated | None:
    """Several violations of one step as one with more."""
    return replace(found[0], more=tuple(found[1:]), **changes) if found else None


@dataclass(frozen=True, slots=True)
class _Step:
    """One contract's fold as a pure function of its state, for proposed actions and unit tests; judges fold all together."""

    spoken: Spoken

    def __call__(self, state: State, record: Record) -> State | Violated:
        from mat.monitor.fused import fold_alone

        found, after = fold_alone(self.spoken, state, record)
        return _joined(found, state=after) or (state if after == state else after)


@dataclass(frozen=True, slots=True)
class _Finish:
    """What is still open on a finished trace is broken."""

    spoken: Spoken

    def __call__(self, state: State) -> Violated | None:
        open_ones = sorted(program_of((self.spoken,)).open(state), key=_by_age)
        return _joined([self.spoken.texts[item.goal].closed(item.key, item.since) for item in open_ones if not item.met])


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What a state still waits for. What must hold at the last step waits only where it does not hold now."""

    spoken: Spoken

    def __call__(self, state: State) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(
                text=self.spoken.texts[item.goal].waiting,
                since=0 if item.since is None else item.since,
                instance="" if item.key is None else str(item.key),
                met=item.met,
            )
            for item in sorted(program_of((self.spoken,)).open(state), key=_by_age)
            if item.since is not None or not item.met
        )


def _by_age(item: Open) -> tuple[int, int, str]:
    return (item.goal, -1 if item.since is None else item.since, str(item.key))
