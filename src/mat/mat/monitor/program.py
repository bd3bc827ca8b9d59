"""Generated code that judges several goals (requirements of contracts), for each action kind, and the state of these goals:
saved as a value, or live as the variables of a fold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from mat.core.record import ActionKind
from mat.monitor.deep import room_for
from mat.monitor.emitter import GoalEmitter, RecordCode
from mat.monitor.explain import Explained, explained
from mat.monitor.layout import CompiledState, JointGoals, Layout, ParametricSlice, StateSlot, value_on_empty_trace
from mat.monitor.normal_form import Goal, chain, pattern, shape
from mat.monitor.obligations import Obligations, OpenSlices
from mat.monitor.parametric import SliceEmitter


@dataclass(frozen=True, slots=True)
class OpenObligation:
    """An obligation of a goal, for an id, open since a step (None: judged at the last step).

    `met`: whether it is met if nothing more happens.
    """

    goal: int
    key: Any
    since: int | None
    met: bool


def _emit(goals: JointGoals, kind: ActionKind | None) -> tuple[list[str], set[str]]:
    """(lines, slots they assign) for records of one kind (None: a kind that no formula mentions). The lines add
    violations to the variable `found`.
    """
    function = RecordCode(goals, kind)
    made: list[str] = []
    for index, goal in enumerate(goals.goals):
        if goal.kinds is not None and (kind is None or kind not in goal.kinds):
            continue
        if goal.key is not None:
            made += SliceEmitter(function, index).lines()
            continue
        trace = function.trace
        trace.layout = Layout(goals, index, goals.scope)
        lines = GoalEmitter(function, trace.layout, trace, None).lines()
        made += [*trace.take(), *lines]
    return function.lines(made), function.assigned


class Program:
    """The goals of several contracts as lines of code, and the layout of their state."""

    def __init__(self, goals: Sequence[Goal]) -> None:
        self._joint = JointGoals(goals)
        self._bodies = {kind: _emit(self._joint, kind) for kind in [*sorted(self._joint.kinds), None]}
        self.goals, self.kinds, self.used = self._joint.goals, self._joint.kinds, self._joint.used
        self.slots, self.constants = tuple(self._joint.scope.slots), self._joint.constants
        self.initial: CompiledState = tuple(_saved_start(slot) for slot in self.slots)

    def holding(self, old: Sequence[Any], new: Sequence[Any]) -> Program:
        """The same program for goals of the same shape: each constant of `old` is replaced by that of `new`."""
        if old == new:
            return self
        changed = {id(before): after for before, after in zip(old, new, strict=True)}
        made = copy(self)
        made.constants = {name: changed.get(id(value), value) for name, value in self.constants.items()}
        return made

    @property
    def extra(self) -> list[str]:
        """Variables that are derived from the slots: the order and the deadlines of the ids of each slice."""
        return [f"{kind}{slot.name}" for slot in self.slots if slot.form == "slice" for kind in ("order_", "due_")]

    def body(self, kind: ActionKind | None) -> tuple[list[str], set[str]]:
        """(lines, slots they assign) for records of one kind, or (None) of a kind that no formula mentions."""
        return self._bodies[kind]

    def extracted(self, state: CompiledState, offset: int, other: Program, goals: int) -> CompiledState:
        """The inverse of `joined`: the state of `other`, a program of `goals` of these goals, from `offset` on."""
        values = dict(zip((slot.name for slot in self.slots), state, strict=True))
        names = {slot.name: place for place, slot in enumerate(other.slots)}
        made = list(other.initial)
        for goal in range(goals):
            for mine, theirs in zip(self.used[offset + goal], other.used[goal], strict=True):
                made[names[theirs]] = values[mine]
        return tuple(made)

    def joined(self, parts: Sequence[tuple[Program, CompiledState]]) -> CompiledState:
        """The state of this program from the states of the programs that it joins, in order."""
        names = {slot.name: place for place, slot in enumerate(self.slots)}
        made, offset = list(self.initial), 0
        for program, state in parts:
            values = dict(zip((slot.name for slot in program.slots), state, strict=True))
            for goal in range(len(program.goals)):
                for mine, theirs in zip(self.used[offset + goal], program.used[goal], strict=True):
                    made[names[mine]] = values[theirs]
            offset += len(program.goals)
        return tuple(made)

    def live(self, state: CompiledState) -> tuple[list[Any], list[Any]]:
        """The variables of a fold from a saved state: (slots, orders and deadlines of the slices)."""
        slots: list[Any] = []
        extra: list[Any] = []
        for slot, value in zip(self.slots, state, strict=True):
            if slot.slice is not None:
                slots.append(dict(value) if slot.slice.bare else {key: _live_row(slot.slice, row) for key, row in value})
                extra += [deque(_order(slot.slice, slots[-1])), _deadlines(slot.slice, slots[-1])]
            elif slot.form == "engine":
                assert slot.plan is not None
                slots.append(Obligations(slot.plan, value))
            else:
                slots.append(deque(value) if slot.form == "queue" else value)
        return slots, extra

    def open(self, state: CompiledState) -> Iterator[OpenObligation]:
        """The open obligations of a state, by goal, and how they end if nothing more happens."""
        slots, _ = self.live(state)
        values = {slot.name: value for slot, value in zip(self.slots, slots, strict=True)}
        for index, goal in enumerate(self.goals):
            part = self._joint.slices.get(index)
            if part is None:
                yield from self._open_of_goal(index, None, values)
                continue
            (table,) = self._joint.scope.slots_for(goal, "table", None)
            names = [slot.name for slot in part.scope.slots]
            for key, row in values[table].items():
                yield from self._open_of_goal(index, key, dict(zip(names, (row,) if part.bare else row, strict=False)))

    def _open_of_goal(self, index: int, key: Any, values: Mapping[str, Any]) -> Iterator[OpenObligation]:
        goal, part = self.goals[index], self._joint.slices.get(index)
        scope = self._joint.scope if part is None else part.scope
        if goal.when == "last":
            last = values[scope.slots_for(goal, "last", False)[0]]
            if part is None:
                yield OpenObligation(index, key, None, last)
            elif last >= 0:
                yield OpenObligation(index, key, last, met=False)
        if goal.when == "first" and part is None and not values[scope.slots_for(goal, "started", False)[0]]:
            yield OpenObligation(index, None, None, value_on_empty_trace(goal.body.parts[1]))  # nothing has happened
        if not goal.ahead:
            return
        found = pattern(goal)
        if found is None and chain(goal) is not None:
            starts = values[scope.slots_for(goal, "chained", ())[0]]
            yield from (OpenObligation(index, key, start, met=False) for start in starts)
            return
        if found is None:
            engine = values[scope.slots_for(goal, "engine", None)[0]]
            starts = list(engine.open)
            broken = set(engine.close())
            yield from (OpenObligation(index, key, start, start not in broken) for start in starts)
            return
        absent = found[2]
        waiting = values[scope.slots_for(goal, "pending", -1)[0]]
        if isinstance(waiting, int):
            waiting = () if waiting < 0 else (waiting,)
        for entry in waiting:
            yield OpenObligation(index, key, entry[0] if isinstance(entry, tuple) else entry, absent)

    def saved(self, slots: Sequence[Any]) -> CompiledState:
        """The canonical state: plain values, tuples and frozensets."""
        made: list[Any] = []
        for slot, value in zip(self.slots, slots, strict=True):
            if slot.slice is not None:
                made.append(frozenset((key, _saved_row(slot.slice, row)) for key, row in value.items()))
            elif slot.form == "engine":
                made.append(value.save())
            else:
                made.append(tuple(value) if slot.form == "queue" else value)
        return tuple(made)


def _saved_start(slot: StateSlot) -> Any:
    if slot.form == "slice":
        return frozenset()
    return () if slot.form in ("engine", "queue") else slot.start


def _live_row(part: ParametricSlice, row: tuple[Any, ...]) -> tuple[Any, ...]:
    if not part.engine:
        return row
    held = len(part.scope.slots)
    slots = zip(part.scope.slots, row[:held], strict=True)
    return (*[Obligations(slot.plan, value) if slot.plan is not None else value for slot, value in slots], *row[held:])


def _saved_row(part: ParametricSlice, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.save() if isinstance(value, Obligations) else value for value in row) if part.engine else row


def _order(part: ParametricSlice, table: Mapping[Any, tuple[Any, ...]]) -> list[tuple[Any, Any]]:
    """(touched, id) as the fold would have queued them."""
    if not part.forgets:
        return []
    return sorted(((row if part.bare else row[-1], key) for key, row in table.items()), key=lambda entry: entry[0])


def _deadlines(part: ParametricSlice, table: Mapping[Any, tuple[Any, ...]]) -> Any:
    """Obligations that can expire: (start, id) of those with a deadline, oldest first; nested ones by id."""
    slots = part.scope.slots
    if part.engine:
        place, plan = next((index, slot.plan) for index, slot in enumerate(slots) if slot.plan is not None)
        return OpenSlices(plan, [(key, row[place]) for key, row in table.items()])
    if part.due is None:
        return deque()
    place = next(index for index, slot in enumerate(slots) if slot.name == part.pending)
    waiting = [(start, key) for key, row in table.items() for start in row[place]]
    return deque(sorted(waiting, key=lambda entry: entry[0]))


class CompiledFormula:
    """A contract's goals, and how each of them is explained."""

    def __init__(self, goals: tuple[Goal, ...], message: str, repair: str, depth: int) -> None:
        self.goals, self.depth = goals, depth
        self._message, self._repair = message, repair
        self.key, self.objects = shape(goals)

    @property
    def ahead(self) -> bool:
        """Whether any part of the formula is decided by later steps."""
        return any(goal.ahead for goal in self.goals)

    @cached_property
    def texts(self) -> tuple[Explained, ...]:
        with room_for(self.depth):
            return tuple(explained(goal, self._message, self._repair) for goal in self.goals)


_PROGRAMS: Final = 512
_programs: dict[Any, tuple[Program, tuple[Any, ...]]] = {}
"""Programs by shape: fixtures create new contracts for every run of a search, with the same few shapes."""


def program_of(formulas: Sequence[CompiledFormula]) -> Program:
    objects = tuple(held for item in formulas for held in item.objects)
    key = shape_of(formulas, objects)
    known = _programs.get(key)
    if known is None:
        if len(_programs) >= _PROGRAMS:
            _programs.clear()
        with room_for(max((item.depth for item in formulas), default=0)):
            known = _programs[key] = (Program([goal for item in formulas for goal in item.goals]), objects)
    program, held_before = known
    return program if held_before == objects else program.holding(held_before, objects)


def shape_of(formulas: Sequence[CompiledFormula], objects: Sequence[Any]) -> tuple[Any, ...]:
    """A key that is equal for formulas that differ only in their objects, if the same objects are in the same places."""
    seen: dict[int, int] = {}
    return (tuple(item.key for item in formulas), tuple(seen.setdefault(id(held), len(seen)) for held in objects))
