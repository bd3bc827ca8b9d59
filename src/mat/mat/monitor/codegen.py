"""From the formulas of all armed contracts to code: lines for each action kind, that share their state (`fused` joins them).

Why code: a fold runs at every step of every run of a search. For one action kind most atoms are constants, so most of a
formula folds away; subformulas that contracts have in common are evaluated once. The lines have two halves. First all that
asks the record (fields, predicates of users: whatever can raise), then the updates of the state and the verdicts, which
cannot raise. So a crash leaves the state as it was, and the judge can go on without the contract that crashed.

Numbers, plain constants as literals and our own identifiers enter the code; everything else is passed by reference.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from mat.core.record import ActionKind
from mat.monitor.goals import Canon, Goal, chain, compares_of, pattern
from mat.monitor.obligations import Ahead, Obligations, Plan, Tree
from mat.monitor.temporal import (
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
    Next,
    Node,
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
    looks_ahead,
    mentions,
)

State: TypeAlias = tuple[Any, ...]
FAR: Final = -(1 << 40)
"""The step, or the time, of what has not occurred."""


def dig(value: Any, *path: str) -> Any:
    """What stands at a path of nested mappings, or None."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


# --- the layout of the state -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Slot:
    """One variable of the state: a plain value, a queue, an engine of obligations, or the table of a slice."""

    name: str
    start: Any
    form: str = "plain"
    plan: Plan | None = None
    slice: Slice | None = None


class Scope:
    """Where the slots of formulas live: in the fold itself, or in the state of one id."""

    def __init__(self, prefix: str, *, local: bool) -> None:
        self._prefix, self.local = prefix, local
        self.slots: list[Slot] = []
        self._known: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def own(self, owner: Any, part: str, *starts: Any, plan: Plan | None = None, slice: Slice | None = None) -> tuple[str, ...]:
        """The slots of a formula or goal, made when first asked for."""
        key = (id(owner), part)
        if key not in self._known:
            names = []
            for start in starts:
                form = "queue" if start == () else "engine" if plan else "slice" if slice else "plain"
                names.append(f"{self._prefix}{len(self.slots)}")
                self.slots.append(Slot(names[-1], start, form, plan, slice))
            self._known[key] = tuple(names)
        return self._known[key]


@dataclass(slots=True)
class Slice:
    """The states of one for_each, by id. An id untouched for `lasts` steps and `lasts_ms` is as one never seen.

    -1: nothing is counted in that unit; None: it matters for ever.
    """

    scope: Scope
    lasts: int | None = -1
    lasts_ms: int | None = -1
    due: Window | None = None
    pending: str = ""
    engine: bool = False

    @property
    def bare(self) -> bool:
        """Whether the state of an id is the step of one last occurrence, which says as well how long it can matter."""
        slots = self.scope.slots
        return len(slots) == 1 and slots[0].start == FAR and self.forgets and self.lasts_ms == -1

    @property
    def forgets(self) -> bool:
        return self.lasts is not None and self.lasts_ms is not None

    def matters(self, window: Window) -> None:
        """A slot that matters as long as this window."""
        if window.high is not None:
            self.lasts = None if self.lasts is None else max(self.lasts, window.high)
        elif window.high_ms is not None:
            self.lasts_ms = None if self.lasts_ms is None else max(self.lasts_ms, window.high_ms)
        else:
            self.lasts = self.lasts_ms = None


@dataclass(frozen=True, slots=True)
class Open:
    """An obligation of a goal, for an id, open since a step (None: judged at the last step). `met`: if nothing more comes."""

    goal: int
    key: Any
    since: int | None
    met: bool


class Program:
    """The goals of several contracts as lines of code, and the layout of their state."""

    def __init__(self, goals: Sequence[Goal]) -> None:
        from mat.monitor.writer import body_of

        canon = Canon()
        self._canon = canon  # keeps what the ids in the layout stand for
        self.goals = tuple(
            replace(goal, body=canon(goal.body), touches=None if goal.touches is None else canon(goal.touches))
            for goal in goals
        )
        self.scope = Scope("s", local=False)
        self.slices: dict[int, Slice] = {}
        self.used: list[list[str]] = [[] for _ in goals]
        """Per goal the slots of the trace it needs, in the order of its formula: the same in every program it is part of."""
        self.constants: dict[str, Any] = {"dig": dig, "Obligations": Obligations}
        self._constant_names: dict[int, str] = {}
        self.asked = _counts(self.goals)
        self.uses: Counter[int] = Counter()
        """How often each formula stands in others, and in goals."""
        self.fields: Counter[Any] = Counter()
        for goal in self.goals:
            self._count(goal.body)
        self.witnesses = tuple(tuple(occurrences(goal.body)) for goal in self.goals)
        """Per goal the operators whose last occurrences explain a violation."""
        for index in range(len(self.goals)):
            self._lay_out(index)
        self.kinds = frozenset(
            kind for goal in self.goals for atom in _all_atoms(goal) if atom.kinds is not None for kind in atom.kinds
        )
        """The action kinds that need lines of their own; all others share some."""
        self._bodies = {kind: body_of(self, kind) for kind in [*sorted(self.kinds), None]}
        self.initial: State = tuple(_saved_start(slot) for slot in self.scope.slots)

    def _count(self, node: Node) -> None:
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
            part = self.slices[index] = Slice(scope=Scope(f"a{index}_", local=True))
            scope = part.scope
        layout = Layout(self, index, scope)
        layout.goal()
        if goal.key is not None:
            self.used[index] += self.scope.own(goal, "table", None, slice=self.slices[index])

    def holding(self, old: Sequence[Any], new: Sequence[Any]) -> Program:
        """The same program for goals of the same shape that hold other objects."""
        if old == new:
            return self
        changed = {id(before): after for before, after in zip(old, new, strict=True)}
        made = copy(self)
        made.constants = {name: changed.get(id(value), value) for name, value in self.constants.items()}
        return made

    def constant(self, value: Any) -> str:
        """A literal for plain constants, a name for anything else."""
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = self._constant_names.get(id(value))
        if name is None:
            name = self._constant_names[id(value)] = f"c{len(self.constants)}"
            self.constants[name] = value
        return name

    @property
    def extra(self) -> list[str]:
        """Variables beside the slots, which follow from them: the order and the deadlines of the ids of each slice."""
        return [f"{kind}{slot.name}" for slot in self.scope.slots if slot.form == "slice" for kind in ("order_", "due_")]

    def body(self, kind: ActionKind | None) -> tuple[list[str], set[str]]:
        """(lines, slots they assign) for records of one kind, or (None) of a kind that no formula mentions."""
        return self._bodies[kind]

    def exchange(self, state: State, offset: int, other: Program, goals: int) -> State:
        """The state of `other`, a program of `goals` goals of this one from `offset` on, as it is in this one's state."""
        values = dict(zip((slot.name for slot in self.scope.slots), state, strict=True))
        names = {slot.name: place for place, slot in enumerate(other.scope.slots)}
        made = list(other.initial)
        for goal in range(goals):
            for mine, theirs in zip(self.used[offset + goal], other.used[goal], strict=True):
                made[names[theirs]] = values[mine]
        return tuple(made)

    def joined(self, parts: Sequence[tuple[Program, State]]) -> State:
        """The state of this program from those of the programs it is made of, in order."""
        names = {slot.name: place for place, slot in enumerate(self.scope.slots)}
        made, offset = list(self.initial), 0
        for program, state in parts:
            values = dict(zip((slot.name for slot in program.scope.slots), state, strict=True))
            for goal in range(len(program.goals)):
                for mine, theirs in zip(self.used[offset + goal], program.used[goal], strict=True):
                    made[names[mine]] = values[theirs]
            offset += len(program.goals)
        return tuple(made)

    def live(self, state: State) -> tuple[list[Any], list[Any]]:
        """The variables of a fold from a saved state: (slots, orders and deadlines of the slices)."""
        slots: list[Any] = []
        extra: list[Any] = []
        for slot, value in zip(self.scope.slots, state, strict=True):
            if slot.slice is not None:
                slots.append(dict(value) if slot.slice.bare else {key: _live_row(slot.slice, row) for key, row in value})
                extra += [deque(_order(slot.slice, slots[-1])), _due(slot.slice, slots[-1])]
            elif slot.form == "engine":
                assert slot.plan is not None
                slots.append(Obligations(slot.plan, value))
            else:
                slots.append(deque(value) if slot.form == "queue" else value)
        return slots, extra

    def open(self, state: State) -> Iterator[Open]:
        """What is open in a state, goal by goal, and how it ends if nothing more comes."""
        slots, _ = self.live(state)
        values = {slot.name: value for slot, value in zip(self.scope.slots, slots, strict=True)}
        for index, goal in enumerate(self.goals):
            part = self.slices.get(index)
            if part is None:
                yield from self._open(index, None, values)
                continue
            (table,) = self.scope.own(goal, "table", None)
            names = [slot.name for slot in part.scope.slots]
            for key, row in values[table].items():
                yield from self._open(index, key, dict(zip(names, (row,) if part.bare else row, strict=False)))

    def _open(self, index: int, key: Any, values: Mapping[str, Any]) -> Iterator[Open]:
        goal, part = self.goals[index], self.slices.get(index)
        scope = self.scope if part is None else part.scope
        if goal.when == "last":
            last = values[scope.own(goal, "last", False)[0]]
            if part is None:
                yield Open(index, key, None, last)
            elif last >= 0:
                yield Open(index, key, last, met=False)
        if goal.when == "first" and part is None and not values[scope.own(goal, "started", False)[0]]:
            yield Open(index, None, None, _of_nothing(goal.body.parts[1]))  # nothing has happened
        if not goal.ahead:
            return
        found = pattern(goal)
        if found is None and chain(goal) is not None:
            yield from (Open(index, key, start, met=False) for start in values[scope.own(goal, "chained", ())[0]])
            return
        if found is None:
            engine = values[scope.own(goal, "engine", None)[0]]
            starts = [start for start, _ in engine.open]
            broken = set(engine.close())
            yield from (Open(index, key, start, start not in broken) for start in starts)
            return
        absent = found[2]
        waiting = values[scope.own(goal, "pending", -1)[0]]
        if isinstance(waiting, int):
            waiting = () if waiting < 0 else (waiting,)
        for entry in waiting:
            yield Open(index, key, entry[0] if isinstance(entry, tuple) else entry, absent)

    def saved(self, slots: Sequence[Any]) -> State:
        """The canonical state: plain values, tuples and frozensets."""
        made: list[Any] = []
        for slot, value in zip(self.scope.slots, slots, strict=True):
            if slot.slice is not None:
                made.append(frozenset((key, _saved_row(slot.slice, row)) for key, row in value.items()))
            elif slot.form == "engine":
                made.append(value.save())
            else:
                made.append(tuple(value) if slot.form == "queue" else value)
        return tuple(made)


def _saved_start(slot: Slot) -> Any:
    if slot.form == "slice":
        return frozenset()
    return () if slot.form in ("engine", "queue") else slot.start


def _live_row(part: Slice, row: tuple[Any, ...]) -> tuple[Any, ...]:
    if not part.engine:
        return row
    held = len(part.scope.slots)
    slots = zip(part.scope.slots, row[:held], strict=True)
    return (*[Obligations(slot.plan, value) if slot.plan is not None else value for slot, value in slots], *row[held:])


def _saved_row(part: Slice, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.save() if isinstance(value, Obligations) else value for value in row) if part.engine else row


def _order(part: Slice, table: Mapping[Any, tuple[Any, ...]]) -> list[tuple[Any, Any]]:
    """(touched, id) as the fold would have queued them."""
    if not part.forgets:
        return []
    return sorted(((row if part.bare else row[-1], key) for key, row in table.items()), key=lambda entry: entry[0])


def _due(part: Slice, table: Mapping[Any, tuple[Any, ...]]) -> Any:
    """What the passing of time can break: (start, id) of obligations with a deadline, oldest first; engines by id."""
    slots = part.scope.slots
    if part.engine:
        place = next(index for index, slot in enumerate(slots) if slot.plan is not None)
        return {key: row[place] for key, row in table.items() if row[place].open}
    if part.due is None:
        return deque()
    place = next(index for index, slot in enumerate(slots) if slot.name == part.pending)
    waiting = [(start, key) for key, row in table.items() for start in row[place]]
    return deque(sorted(waiting, key=lambda entry: entry[0]))


def _atoms(node: Node) -> Iterator[Atom]:
    if isinstance(node, Atom):
        yield node
    for part in children(node):
        yield from _atoms(part)


def _all_atoms(goal: Goal) -> set[Atom]:
    return {*_atoms(goal.body), *(_atoms(goal.touches) if goal.touches is not None else ())}


def occurrences(node: Node) -> Iterator[Once | Since]:
    for part in children(node):
        yield from occurrences(part)
    if isinstance(node, Once | Since):
        yield node


def _counts(goals: Sequence[Goal]) -> dict[int, int]:
    """How often each atom with a function of a user stands in the goals, to call it once."""
    found: dict[int, int] = {}
    for goal in goals:
        for atom in _all_atoms(goal):
            found[id(atom)] = found.get(id(atom), 0) + 1
    return found


# --- slots of formulas and goals ---------------------------------------------------------------------------------------


class Layout:
    """The slots that the formulas of one goal need, and how long they matter to an id."""

    def __init__(self, program: Program, index: int, scope: Scope) -> None:
        self.program, self.index, self.scope = program, index, scope
        self.of_goal = program.goals[index]
        self.part = program.slices.get(index)

    def scope_of(self, node: Node) -> Scope:
        """Parts without the variable of a for_each are judged on the whole trace."""
        key = self.of_goal.key
        if isinstance(key, Variable) and not mentions(node, key) and not _within(node, Started):
            return self.program.scope
        return self.scope

    def goal(self) -> None:
        goal = self.of_goal
        self.node(goal.body)
        if goal.when == "last":
            self._uses(self.scope, self.scope.own(goal, "last", -1 if self.scope.local else _of_nothing(goal.body)))
            self._matters(Window())
        if not goal.ahead:
            return
        found = pattern(goal)
        if found is None and chain(goal) is not None:
            self._uses(self.scope, self.chained())
            return
        if found is None:
            self._uses(self.scope, self.scope.own(goal, "engine", None, plan=planned(goal)[0]))
            if self.part is not None:
                self.part.engine = True
                for window in reaches(goal.body):
                    self._matters(window)
            return
        _, operator, _ = found
        names = self.pending(operator)
        self._uses(self.scope, names)
        if self.part is None:
            return
        if isinstance(operator, Next) or not operator.window.bounded:
            self._matters(Window())
            return
        self.part.due, self.part.pending = operator.window, names[0]
        self._matters(operator.window)

    def chained(self) -> tuple[str, ...]:
        """Open triggers, and first answers that can still be followed."""
        return self.scope.own(self.of_goal, "chained", (), ())

    def pending(self, operator: Eventually | Until | Next) -> tuple[str, ...]:
        """Steps whose obligation is open: a queue, or the first of them where there is no deadline to tell them apart by."""
        alone = isinstance(operator, Next) or not (operator.window.bounded or operator.window.low or operator.window.low_ms)
        return self.scope.own(self.of_goal, "pending", -1 if alone else ())

    def _uses(self, scope: Scope, names: tuple[str, ...]) -> None:
        if scope is self.program.scope:
            self.program.used[self.index] += names

    def _matters(self, window: Window) -> None:
        if self.part is not None:
            self.part.matters(window)

    def node(self, node: Node) -> None:
        for part in children(node):
            self.node(part)
        if isinstance(node, Started) and self.scope_of(node) is self.scope:
            self._matters(Window())
        names = self.slots(node)
        self._uses(self.scope if isinstance(node, Started) else self.scope_of(node), names)
        if names and self.scope_of(node) is self.scope:
            self._matters(node.window if isinstance(node, Once | Since | AtMost) else Window())

    def slots(self, node: Node) -> tuple[str, ...]:
        """The slots of one operator. The first holds the step of an occurrence, or its queue."""
        scope = self.scope_of(node)
        match node:
            case Once(window=window) | Since(window=window):
                names = scope.own(node, "seen", FAR)
                if window.timed:
                    names += scope.own(node, "seen_ms", FAR)
                if delayed(window):
                    names += scope.own(node, "young", ())
                return names
            case AtMost(window=window):
                return scope.own(node, "hits", () if window.bounded else 0)
            case Previous():
                return scope.own(node, "previous", False if scope.local else -2)
            case Started():
                return scope.own(self.of_goal, "started", False)
            case Compare() | Atom():
                names = ()
                for compare in compares_of(node):
                    for side in (compare.left, compare.right):
                        if isinstance(side, Field) and side.before:
                            names += scope.own(compare, "left" if side is compare.left else "right", None)
                return names
        return ()


def reaches(node: Node) -> Iterator[Window]:
    """How long the obligations of nested future operators can stay open, as a window."""
    windows = [item.window for item in _future(node) if not isinstance(item, Next)]
    bounds = [item.high for item in windows], [item.high_ms for item in windows]
    if any(isinstance(item, Next) for item in _future(node)):
        yield Window()
    elif None not in bounds[0]:
        yield Window(high=sum(bound for bound in bounds[0] if bound is not None))
    elif None not in bounds[1]:
        yield Window(high_ms=sum(bound for bound in bounds[1] if bound is not None))
    else:
        yield Window()


def _future(node: Node) -> Iterator[Eventually | Until | Next]:
    if isinstance(node, Eventually | Until | Next):
        yield node
    for part in children(node):
        yield from _future(part)


def delayed(window: Window) -> bool:
    """Whether an occurrence counts only some time later (distance 1 alone is read before the update instead)."""
    return window.low_ms > 0 or window.low > 1


def _within(node: Node, kind: type) -> bool:
    return isinstance(node, kind) or any(_within(part, kind) for part in children(node))


def _of_nothing(node: Node) -> bool:
    """The value on an empty trace: nothing happened, so no atom is true and nothing was true before."""
    match node:
        case Not(part=part):
            return not _of_nothing(part)
        case And(parts=parts):
            return all(_of_nothing(part) for part in parts)
        case Or(parts=parts):
            return any(_of_nothing(part) for part in parts)
        case AtMost():
            return True
        case _:
            return False


def planned(goal: Goal) -> tuple[Plan, tuple[Node, ...]]:
    """A goal's formula as a plan for `Obligations`, and the past formulas that are its leaves."""
    nodes: list[Ahead] = []
    leaves: list[Node] = []
    known: dict[int, Tree] = {}

    def whole(node: Node) -> bool:
        return isinstance(goal.key, Variable) and not mentions(node, goal.key)

    def tree(node: Node) -> Tree:
        if id(node) not in known:
            known[id(node)] = grown(node)
        return known[id(node)]

    def grown(node: Node) -> Tree:
        match node:
            case _ if not looks_ahead(node):
                leaves.append(node)
                return ("leaf", len(leaves) - 1)
            case Not(part=part):
                return ("not", tree(part))
            case And(parts=parts):
                return ("and", *[tree(part) for part in parts])
            case Or(parts=parts):
                return ("or", *[tree(part) for part in parts])
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

    return Plan(tree(goal.body), tuple(nodes)), tuple(leaves)
