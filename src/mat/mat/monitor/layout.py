"""Lay out the state of formulas: the slots of each goal, in the fold itself or in the row of one id (see `compile`).

`JointGoals` is the result for all armed contracts; `Layout` is made for one of their goals, and names its slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from mat.monitor.normal_form import Canon, Goal, chain, compares_of, is_present, occurrences, pattern
from mat.monitor.obligations import Ahead, ObligationPlan, Obligations, Tree, leaves_of
from mat.monitor.temporal import (
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
    FormulaNode,
    Next,
    Not,
    Once,
    Or,
    Previous,
    Since,
    Started,
    Until,
    Variable,
    Window,
    children,
    contains,
    depth,
    looks_ahead,
    mentions,
    subformulas,
)
from mat.monitor.written import holds, matches

CompiledState: TypeAlias = tuple[Any, ...]
FAR: Final = -(1 << 40)
"""The step, or the time, of an occurrence that has not happened."""


def dig(value: Any, *path: str) -> Any:
    """The value at a path of nested mappings, or None."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


@dataclass(slots=True)
class StateSlot:
    """One variable of the state: a plain value, a queue, an `Obligations` object (form "engine"), or the table of a slice."""

    name: str
    start: Any
    form: str = "plain"
    plan: ObligationPlan | None = None
    slice: ParametricSlice | None = None


class Scope:
    """Where the slots of formulas live: in the fold itself, or in the state of one id."""

    def __init__(self, prefix: str, *, local: bool) -> None:
        self._prefix, self.local = prefix, local
        self.slots: list[StateSlot] = []
        self._known: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def slots_for(
        self, owner: Any, part: str, *starts: Any, plan: ObligationPlan | None = None, slice: ParametricSlice | None = None
    ) -> tuple[str, ...]:
        """The slots of a formula or goal, created on first use."""
        key = (id(owner), part)
        if key not in self._known:
            names = []
            for start in starts:
                form = "queue" if start == () else "engine" if plan else "slice" if slice else "plain"
                names.append(f"{self._prefix}{len(self.slots)}")
                self.slots.append(StateSlot(names[-1], start, form, plan, slice))
            self._known[key] = tuple(names)
        return self._known[key]


@dataclass(slots=True)
class ParametricSlice:
    """The states of one for_each, by id. An id untouched for `lasts` steps and `lasts_ms` is forgotten.

    -1: no window counts in that unit; None: it is never forgotten.
    """

    scope: Scope
    lasts: int | None = -1
    lasts_ms: int | None = -1
    due: Window | None = None
    pending: str = ""
    engine: bool = False

    @property
    def bare(self) -> bool:
        """Whether the state of an id is only the step of its last occurrence, which also decides when it is forgotten."""
        slots = self.scope.slots
        return len(slots) == 1 and slots[0].start == FAR and self.forgets and self.lasts_ms == -1

    @property
    def forgets(self) -> bool:
        """Whether an id is ever forgotten."""
        return self.lasts is not None and self.lasts_ms is not None

    def keep_for(self, window: Window) -> None:
        """Note that a slot matters for as long as this window."""
        if window.high is not None:
            self.lasts = None if self.lasts is None else max(self.lasts, window.high)
        elif window.high_ms is not None:
            self.lasts_ms = None if self.lasts_ms is None else max(self.lasts_ms, window.high_ms)
        else:
            self.lasts = self.lasts_ms = None


@dataclass(frozen=True, slots=True)
class FutureGoal:
    """A goal's formula as a plan for `Obligations`, and the past formulas that are its leaves.

    `around`: for each leaf the connectives around it, up to the next operator; () where it stands in several places.
    """

    plan: ObligationPlan
    leaves: tuple[FormulaNode, ...]
    around: tuple[tuple[FormulaNode, ...], ...]


class JointGoals:
    """The goals of several contracts with equal subformulas as one object, the layout of their joint state, and the objects
    that the code refers to."""

    def __init__(self, goals: Sequence[Goal]) -> None:
        canon = Canon()
        self._canon = canon  # keeps the objects alive whose ids are in the layout
        self.goals = tuple(
            replace(goal, body=canon(goal.body), touches=None if goal.touches is None else canon(goal.touches))
            for goal in goals
        )
        self.scope = Scope("s", local=False)
        self.slices: dict[int, ParametricSlice] = {}
        self.plans: dict[int, FutureGoal] = {}
        self.used: list[list[str]] = [[] for _ in goals]
        """Per goal the slots of the trace it needs, in the order of its formula: the same in every program it is part of."""
        self.constants: dict[str, Any] = {"dig": dig, "holds": holds, "matches": matches, "Obligations": Obligations}
        self._constant_names: dict[int, str] = {}
        atoms = [_atoms(goal) for goal in self.goals]
        self.kinds = frozenset(kind for found in atoms for atom in found for kind in atom.kinds or ())
        """The action kinds that need lines of their own; all others share some."""
        self.goals_with = Counter(id(atom) for found in atoms for atom in found)
        """In how many goals each atom occurs, so that a user's function is called once."""
        self.uses: Counter[int] = Counter()
        """How often each formula occurs in other formulas and in goals."""
        self.fields: Counter[Any] = Counter()
        for goal in self.goals:
            self._count(goal.body)
        self.witnesses = tuple(tuple(occurrences(goal.body)) for goal in self.goals)
        """For each goal, the operators whose last occurrences explain a violation."""
        for index in range(len(self.goals)):
            self._lay_out(index)

    def _count(self, node: FormulaNode) -> None:
        self.uses[id(node)] += 1
        if self.uses[id(node)] > 1:
            return
        if isinstance(node, Atom | Compare):
            sides = [side for item in compares_of(node) for side in (item.left, item.right) if isinstance(side, Field)]
            self.fields.update((side.paths, side.function) for side in sides)
        for part in children(node):
            self._count(part)

    def _lay_out(self, index: int) -> None:
        """Slots in a fixed order, whichever action kind comes first."""
        goal = self.goals[index]
        scope = self.scope
        if goal.key is not None:
            part = self.slices[index] = ParametricSlice(scope=Scope(f"a{index}_", local=True))
            scope = part.scope
        layout = Layout(self, index, scope)
        layout.goal()
        if goal.key is not None:
            self.used[index] += self.scope.slots_for(goal, "table", None, slice=self.slices[index])

    def constant(self, value: Any) -> str:
        """The expression of a constant: a literal if it is plain, else a name."""
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = self._constant_names.get(id(value))
        if name is None:
            name = self._constant_names[id(value)] = f"c{len(self.constants)}"
            self.constants[name] = value
        return name


def _atoms(goal: Goal) -> set[Atom]:
    bodies = (goal.body,) if goal.touches is None else (goal.body, goal.touches)
    return {node for body in bodies for node in subformulas(body) if isinstance(node, Atom)}


class Layout:
    """The slots that the formulas of one goal need, and how long they matter to an id."""

    def __init__(self, joint: JointGoals, index: int, scope: Scope) -> None:
        self.joint, self.index, self.scope = joint, index, scope
        self.of_goal = joint.goals[index]
        self.part = joint.slices.get(index)

    def scope_of(self, node: FormulaNode) -> Scope:
        """The scope of a formula: parts without the variable of a for_each are judged on the whole trace."""
        key = self.of_goal.key
        if isinstance(key, Variable) and not mentions(node, key) and not contains(node, Started):
            return self.joint.scope
        return self.scope

    def goal(self) -> None:
        goal = self.of_goal
        self.node(goal.body)
        if goal.when == "last":
            start = -1 if self.scope.local else value_on_empty_trace(goal.body)
            self._note_used(self.scope, self.scope.slots_for(goal, "last", start))
            self._note_lifetime(Window())
        if not goal.ahead:
            return
        found = pattern(goal)
        if found is None and chain(goal) is not None:
            self._note_used(self.scope, self.chained())
            return
        if found is None:
            self._note_used(self.scope, self.scope.slots_for(goal, "engine", None, plan=self.future_goal().plan))
            if self.part is not None:
                self.part.engine = True
                self._note_lifetime(obligation_window(goal.body))
            return
        _, operator, _ = found
        names = self.pending(operator)
        self._note_used(self.scope, names)
        if self.part is None:
            return
        if isinstance(operator, Next) or not operator.window.bounded:
            self._note_lifetime(Window())
            return
        self.part.due, self.part.pending = operator.window, names[0]
        self._note_lifetime(operator.window)

    def future_goal(self) -> FutureGoal:
        """The goal's plan: always the same object."""
        if self.index not in self.joint.plans:
            self.joint.plans[self.index] = future_goal(self.of_goal)
        return self.joint.plans[self.index]

    def chained(self) -> tuple[str, ...]:
        """For a trigger with two answers in a row: the queue of open triggers, and that of first answers without the second."""
        return self.scope.slots_for(self.of_goal, "chained", (), ())

    def pending(self, operator: Eventually | Until | Next) -> tuple[str, ...]:
        """Steps whose obligation is open: a queue, or only the first if there is no deadline."""
        alone = isinstance(operator, Next) or not (operator.window.bounded or operator.window.low or operator.window.low_ms)
        return self.scope.slots_for(self.of_goal, "pending", -1 if alone else ())

    def _note_used(self, scope: Scope, names: tuple[str, ...]) -> None:
        if scope is self.joint.scope:
            self.joint.used[self.index] += names

    def _note_lifetime(self, window: Window) -> None:
        if self.part is not None:
            self.part.keep_for(window)

    def node(self, node: FormulaNode) -> None:
        for part in children(node):
            self.node(part)
        if isinstance(node, Started) and self.scope_of(node) is self.scope:
            self._note_lifetime(Window())
        names = self.slots(node)
        self._note_used(self.scope if isinstance(node, Started) else self.scope_of(node), names)
        if names and self.scope_of(node) is self.scope:
            self._note_lifetime(node.window if isinstance(node, Once | Since | AtMost) else Window())

    def slots(self, node: FormulaNode) -> tuple[str, ...]:
        """The slots of one operator. The first holds the step of an occurrence, or its queue."""
        scope = self.scope_of(node)
        match node:
            case Once(window=window) | Since(window=window):
                names = scope.slots_for(node, "seen", FAR)
                if window.timed:
                    names += scope.slots_for(node, "seen_ms", FAR)
                if delayed(window):
                    names += scope.slots_for(node, "young", ())
                return names
            case AtMost(window=window):
                return scope.slots_for(node, "hits", () if window.bounded else 0)
            case Previous():
                return scope.slots_for(node, "previous", False if scope.local else -2)
            case Started():
                return scope.slots_for(self.of_goal, "started", False)
            case Compare() | Atom():
                names = ()
                for compare in compares_of(node):
                    for side in (compare.left, compare.right):
                        if isinstance(side, Field) and side.before:
                            names += scope.slots_for(compare, "left" if side is compare.left else "right", None)
                return names
        return ()


def obligation_window(node: FormulaNode) -> Window:
    """How long the obligations of nested future operators can stay open."""
    future = [part for part in subformulas(node) if isinstance(part, Eventually | Until | Next)]
    if any(isinstance(part, Next) for part in future):
        return Window()
    windows = [part.window for part in future if not isinstance(part, Next)]
    steps, milliseconds = [window.high for window in windows], [window.high_ms for window in windows]
    if None not in steps:
        return Window(high=sum(bound for bound in steps if bound is not None))
    if None not in milliseconds:
        return Window(high_ms=sum(bound for bound in milliseconds if bound is not None))
    return Window()


def delayed(window: Window) -> bool:
    """Whether an occurrence counts only after some steps (a distance of exactly 1 is read before the update instead)."""
    return window.low_ms > 0 or window.low > 1


def value_on_empty_trace(node: FormulaNode) -> bool:
    """The value on an empty trace, where no atom is true and nothing was true before."""
    match node:
        case Not(part=part):
            return not value_on_empty_trace(part)
        case And(parts=parts):
            return all(value_on_empty_trace(part) for part in parts)
        case Or(parts=parts):
            return any(value_on_empty_trace(part) for part in parts)
        case AtMost():
            return True
        case _:
            return False


def future_goal(goal: Goal) -> FutureGoal:
    """The plan of a goal with several future operators, or one inside another."""
    nodes: list[Ahead] = []
    leaves: list[FormulaNode] = []
    around: list[tuple[FormulaNode, ...]] = []
    known: dict[int, Tree] = {}

    def about_id(node: FormulaNode) -> bool:
        return isinstance(goal.key, Variable) and mentions(node, goal.key)

    def whole(node: FormulaNode) -> bool:
        return isinstance(goal.key, Variable) and not mentions(node, goal.key)

    def tree(node: FormulaNode, place: tuple[FormulaNode, ...] = ()) -> Tree:
        if id(node) not in known:
            known[id(node)] = build(node, place)
        else:
            for leaf in leaves_of(known[id(node)]):
                around[leaf] = ()
        return known[id(node)]

    def build(node: FormulaNode, place: tuple[FormulaNode, ...]) -> Tree:
        match node:
            case _ if not looks_ahead(node):
                leaves.append(node)
                around.append(place)
                return ("leaf", len(leaves) - 1)
            case Not(part=part):
                return ("not", tree(part, (*place, node)))
            case And(parts=parts) | Or(parts=parts):
                alone = [part for part in parts if is_present(part) and not about_id(part)]
                joined = [type(node)(parts=tuple(alone))] if len(alone) > 1 else alone  # asked together: see reads.ask_all
                rest = [part for part in parts if part not in alone]
                inside = (*place, node)
                return ("and" if isinstance(node, And) else "or", *[tree(part, inside) for part in (*joined, *rest)])
            case Eventually(part=part, window=window):
                ahead = Ahead("until", None, tree(part), window, whole(node))
            case Until(left=left, right=right, window=window):
                ahead = Ahead("until", tree(left), tree(right), window, whole(node))
            case Next(part=part):
                ahead = Ahead("next", None, tree(part), Window(), whole(node))
            case _:
                raise AssertionError(node)
        nodes.append(ahead)
        return ("node", len(nodes) - 1)

    root = tree(goal.body)
    return FutureGoal(ObligationPlan(root, tuple(nodes), depth(goal.body)), tuple(leaves), tuple(around))
