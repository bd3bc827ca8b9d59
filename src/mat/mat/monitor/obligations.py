"""Evaluate nested future operators in three values. The state, which steps still wait for what, is plain data.

A formula becomes a tree over leaves (the truth of past formulas at a step, given as a tuple of booleans) and future nodes,
numbered inner ones first. At every step a node that is needed is *begun* at that step; it is true, false, or open
until later steps settle it. A tree that is not settled is kept as a residual: a nested tuple whose leaves name begun nodes,
(node, step). Once a node is settled, the residuals that refer to it are simplified, so the state is bounded by the windows.
The common case, one trigger and one future operator, never comes here: `emitter` writes it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, Final, Literal, TypeAlias

from mat.core import limits
from mat.core.errors import SpecError
from mat.monitor.deep import SHALLOW, room_for
from mat.monitor.temporal import Window

Tree: TypeAlias = tuple[Any, ...]
"""("leaf", index) | ("not", tree) | ("and" | "or", tree, ...) | ("node", index)"""
Residual: TypeAlias = bool | tuple[Any, ...]
"""Settled, or ("begun", node, step) | ("not", residual) | ("and" | "or", residual, ...)"""
Reference: TypeAlias = tuple[int, int]
"""A begun node: (node, the step it was begun at)."""
Holder: TypeAlias = tuple[int, int]
"""Who waits for begun nodes: one of them, or a root, (-1, step)."""
Begun: TypeAlias = tuple[int, list[tuple[Residual, Residual]]]
"""(the time at which a node was begun, what its window has shown so far: (left, right) of each step)."""

_NOTHING: Final = (True, False)
"""What a step shows to an until that it neither ends nor fulfils."""
_NONE: Final[frozenset[Reference]] = frozenset()


@dataclass(frozen=True, slots=True)
class Ahead:
    """A future node. next has no window of its own; eventually(phi) is until(true, phi) with the left part None."""

    kind: Literal["until", "next"]
    left: Tree | None
    right: Tree
    window: Window
    whole: bool = False
    """Judged at every step of the trace, in the slice or not."""

    @property
    def endless(self) -> bool:
        """Whether its window is all that follows."""
        window = self.window
        return self.kind == "until" and not (window.bounded or window.low or window.low_ms)


@dataclass(frozen=True, slots=True)
class ObligationPlan:
    """The root tree and its future nodes, inner ones first."""

    root: Tree
    nodes: tuple[Ahead, ...]
    depth: int = 1
    """Levels of the formula."""

    @property
    def guard(self) -> tuple[int, ...]:
        """The leaves each of which alone makes the root true."""
        waiting, found = [self.root], list[int]()
        while waiting:
            tree = waiting.pop()
            if tree[0] == "leaf":
                found.append(tree[1])
            elif tree[0] == "or":
                waiting += tree[1:]
        return tuple(sorted(found))

    @property
    def outside(self) -> frozenset[int]:
        """The leaves that a step outside the slice is asked: those of nodes that are judged on the whole trace."""
        trees = [tree for ahead in self.nodes if ahead.whole for tree in (ahead.left, ahead.right) if tree is not None]
        return frozenset(leaf for tree in trees for leaf in leaves_of(tree))  # inside such a node all are

    def concerns_all(self, truth: tuple[bool, ...]) -> bool:
        """Whether a step with these leaves says anything to begun nodes that are judged on the whole trace."""
        return any(
            ahead.kind == "next" or (ahead.left is not None and not _certain(ahead.left, truth, True))
            or not _certain(ahead.right, truth, False)
            for ahead in self.nodes if ahead.whole
        )  # fmt: skip


class Obligations:
    """The open part of one formula on one trace, or on one slice of it.

    A step costs as much as it settles: a begun node is looked at again when its window closes, when the step says anything
    about nodes of its kind, or when a node that it waits for is settled; not at every step. What no later step can tell apart
    is kept once: begun nodes without a deadline that have seen the same, and roots that wait for the same.
    """

    __slots__ = (
        "_at", "_begun", "_by_residual", "_cache", "_changed", "_dependents", "_loose", "_plan", "_references", "_step",
        "_truth", "_values", "_waiting", "open", "queued",
    )  # fmt: skip

    def __init__(self, plan: ObligationPlan, state: tuple[Any, ...] = ()) -> None:
        self._plan = plan
        roots, begun = state or ((), ((),) * len(plan.nodes))
        self.open: dict[int, Residual] = {start: _unfolded(residual) for start, residual in roots}
        """By step: what the root formula of that step waits for, if it is not settled."""
        self.queued: tuple[float, float] = (inf, inf)
        """The earliest deadlines that `OpenSlices` has in its queues."""
        self._begun: list[dict[int, Begun]] = [
            {start: (at, [(_unfolded(left), _unfolded(right)) for left, right in seen]) for start, at, seen in node}
            for node in begun
        ]
        """For each node and step it was begun at: the time, and what its window has shown so far, (left, right) a step."""
        self._waiting: list[dict[int, Begun]] = [{} for _ in plan.nodes]
        """The same for begun nodes whose window has closed; they wait for nodes inside them."""
        self._by_residual = {residual: start for start, residual in self.open.items()}
        self._references: dict[Holder, set[Reference]] = {}
        """By holder, a root (-1, step) or a begun node (node, step): the begun nodes that it waits for."""
        self._dependents: dict[Reference, dict[Holder, None]] = {}
        self._values: dict[Reference, Residual] = {}
        """What was settled at this step: its value, or the begun node that stands for it from now on."""
        self._changed: list[Reference] = []
        self._loose: list[Reference] = []
        self._cache: dict[int, Residual] = {}
        self._truth: tuple[bool, ...] = ()
        self._step, self._at = -1, 0
        if not self.open:
            return
        with room_for(plan.depth):
            for start, residual in self.open.items():
                self._refer((-1, start), references(residual))
            for node, items in enumerate(self._begun):
                for start, (_, seen) in items.items():
                    self._refer((node, start), references_of(seen))

    def save(self) -> tuple[Any, ...]:
        """The state as a value; () if nothing is open."""
        if not self.open:
            return ()
        both = zip(self._begun, self._waiting, strict=True)
        begun = tuple(
            tuple(
                (start, at, tuple((_folded(left), _folded(right)) for left, right in seen))
                for start, (at, seen) in sorted({**running, **closed}.items())
            )
            for running, closed in both
        )
        return (tuple((start, _folded(self.open[start])) for start in sorted(self.open)), begun)

    def deadline(self) -> tuple[float, float]:
        """The step at which the next window closes, and the millisecond after which one does."""
        steps = milliseconds = inf
        for ahead, items in zip(self._plan.nodes, self._begun, strict=True):
            for start, (at, _) in items.items():
                if ahead.window.high is not None:
                    steps = min(steps, start + ahead.window.high)
                if ahead.window.high_ms is not None:
                    milliseconds = min(milliseconds, at + ahead.window.high_ms)
                break
        return steps, milliseconds

    def check_limit(self) -> None:
        """Raise SpecError if more steps are open than `limits.OPEN_OBLIGATIONS`."""
        if len(self.open) > limits.OPEN_OBLIGATIONS:
            raise SpecError(
                what=f"more than {limits.OPEN_OBLIGATIONS:,} steps wait for a formula with several future operators",
                why="each later step is compared with all of them, and none of them ever expires",
                fix="give its operators a shorter within= or within_ms=, or judge each id alone with for_each",
            )

    @property
    def looks_outside(self) -> bool:
        """Whether steps outside the slice can settle a begun node."""
        return any(ahead.whole and items for ahead, items in zip(self._plan.nodes, self._begun, strict=True))

    def step(self, step: int, at: int, truth: tuple[bool, ...]) -> list[int]:
        """Take one more step; return the steps whose formula is now known to be false."""
        if self._plan.depth <= SHALLOW:
            return self._take(step, at, truth)
        with room_for(self._plan.depth):
            return self._take(step, at, truth)

    def _take(self, step: int, at: int, truth: tuple[bool, ...]) -> list[int]:
        self._start_step(step, at, truth)
        broken: list[int] = []
        if self.open:
            for node in range(len(self._plan.nodes)):
                self._advance(node, broken, present=True)
        value = self._value(self._plan.root)
        if value is False:
            broken.append(step)
        elif value is not True:
            self._keep_root(step, value)
        return self._end_step(broken)

    def pass_by(self, step: int, at: int, truth: tuple[bool, ...]) -> list[int]:
        """Take a step outside the slice: windows can close, and nodes that are judged on the whole trace advance."""
        if step == self._step:
            return []
        with room_for(self._plan.depth):
            self._start_step(step, at, truth)
            broken: list[int] = []
            for node, ahead in enumerate(self._plan.nodes):
                self._advance(node, broken, present=ahead.whole)
            return self._end_step(broken)

    def close(self) -> list[int]:
        """Finish the trace: open nodes are decided as if nothing more happens. Return the steps whose formula is false then."""
        with room_for(self._plan.depth):
            return self._close()

    def _close(self) -> list[int]:
        broken: list[int] = []
        for node in range(len(self._plan.nodes)):
            for items in (self._begun[node], self._waiting[node]):
                for start in list(items):
                    if start in items:
                        self._conclude(node, start, self._value_of(items[start][1], still=False) is True)
            self._propagate(broken)
        return self._end_step(broken)

    def _start_step(self, step: int, at: int, truth: tuple[bool, ...]) -> None:
        self._truth, self._step, self._at = truth, step, at
        self._cache.clear()

    def _end_step(self, broken: list[int]) -> list[int]:
        self._propagate(broken)
        for node, ahead in enumerate(self._plan.nodes):
            if ahead.endless and len(self._begun[node]) > 1:
                self._merge(node)
                self._propagate(broken)
        self._forget_loose()
        self._values.clear()
        return sorted(broken)

    # -- what a step says to begun nodes ---------------------------------------------------------------------------------

    def _advance(self, node: int, broken: list[int], *, present: bool) -> None:
        """Advance the begun nodes of one kind by this step, or only by its time."""
        items, ahead = self._begun[node], self._plan.nodes[node]
        if not items:
            return
        if ahead.kind == "next":
            start = next(reversed(items))  # earlier ones have had their next step, and wait for what is inside
            if present and start != self._step and not items[start][1]:
                self._show(node, start, (False, self._value(ahead.right)))
        else:
            self._close_windows(node, present=present)
            if present and items:
                self._show_step(node)
        self._propagate(broken)

    def _close_windows(self, node: int, *, present: bool) -> None:
        """Decide the begun nodes whose window ends with this step, or has ended: the first to begin is the first to end."""
        items, window = self._begun[node], self._plan.nodes[node].window
        while items:
            start = next(iter(items))
            at, seen = items[start]
            steps, milliseconds = self._step - start, self._at - at
            over = _exceeds(steps, window.high) or _exceeds(milliseconds, window.high_ms)
            if not over and (window.high is None or steps < window.high):
                return
            if present and not over:
                self._add_shown(node, start, seen, self._pair(node, self._is_inside(node, start, at)))
            value = self._value_of(seen, still=False)
            if value is None:
                self._waiting[node][start] = items.pop(start)
            else:
                self._conclude(node, start, value)

    def _show_step(self, node: int) -> None:
        """Show this step to every begun node that it says anything to."""
        items, moved = self._begun[node], []
        for start, (at, _) in items.items():
            pair = self._pair(node, self._is_inside(node, start, at))
            if pair == _NOTHING:
                break  # it says nothing to those that began later, either
            moved.append((start, pair))
        for start, pair in moved:
            self._show(node, start, pair)

    def _is_inside(self, node: int, start: int, at: int) -> bool:
        window = self._plan.nodes[node].window
        return self._step - start >= window.low and self._at - at >= window.low_ms

    def _pair(self, node: int, inside: bool) -> tuple[Residual, Residual]:
        """(left, right) of an until at this step; outside of its window the right part does not count."""
        ahead = self._plan.nodes[node]
        return (True if ahead.left is None else self._value(ahead.left), self._value(ahead.right) if inside else False)

    def _show(self, node: int, start: int, pair: tuple[Residual, Residual]) -> None:
        seen = self._begun[node][start][1]
        self._add_shown(node, start, seen, pair)
        value = self._value_of(seen, still=self._plan.nodes[node].kind == "until")
        if value is not None:
            self._conclude(node, start, value)

    def _add_shown(self, node: int, start: int, seen: list[tuple[Residual, Residual]], pair: tuple[Residual, Residual]) -> None:
        if pair == _NOTHING or (self._plan.nodes[node].endless and pair[0] is True and pair in seen):
            return  # an earlier step has shown the same, and asks for less
        seen.append(pair)
        self._refer((node, start), references_of(seen))

    def _value_of(self, seen: list[tuple[Residual, Residual]], *, still: bool) -> bool | None:
        """The value of until over the steps seen; None if open. `still`: more steps may come."""
        held, unsure = True, False
        for left, right in seen:
            left, right = self._simplify(left), self._simplify(right)
            if right is True and held:
                return True
            if right is not False:
                unsure = True
            if left is False:
                return None if unsure else False
            held = held and left is True
        return None if unsure or still else False

    # -- values at this step ---------------------------------------------------------------------------------------------

    def _value(self, tree: Tree) -> Residual:
        """The value of a tree at this step."""
        match tree:
            case ("leaf", index):
                return self._truth[index]
            case ("not", part):
                return _not(self._value(part))
            case ("node", index):
                return self._begin(index)
            case (name, *parts):
                wanted: bool = name == "or"
                open_parts = []
                for part in parts:
                    value = self._value(part)
                    if value is wanted:
                        return wanted
                    if value is not (not wanted):
                        open_parts.append(value)
                return _connect(name, open_parts)
        raise AssertionError(tree)

    def _begin(self, node: int) -> Residual:
        """The value of a future node at this step; it is begun at most once."""
        known = self._cache.get(node)
        if known is None:
            ahead, step = self._plan.nodes[node], self._step
            self._begun[node][step] = (self._at, [])
            self._loose.append((node, step))
            if ahead.kind == "until":
                if ahead.window.high == 0:
                    self._close_windows(node, present=True)
                elif (pair := self._pair(node, self._is_inside(node, step, self._at))) != _NOTHING:
                    self._show(node, step, pair)
            known = self._cache[node] = ("begun", node, step)
        return self._simplify(known)

    # -- what is settled, and who waits for it ---------------------------------------------------------------------------

    def _conclude(self, node: int, start: int, value: Residual) -> None:
        """Settle a begun node, or replace it by another one."""
        self._begun[node].pop(start, None)
        self._waiting[node].pop(start, None)
        self._refer((node, start), set())
        self._values[node, start] = value
        self._changed.append((node, start))

    def _propagate(self, broken: list[int]) -> None:
        """Tell whoever waits for what was settled."""
        while self._changed:
            for node, start in self._dependents.pop(self._changed.pop(), {}):
                if node < 0:
                    self._settle_root(start, broken)
                else:
                    self._settle_begun(node, start)

    def _settle_root(self, start: int, broken: list[int]) -> None:
        residual = self.open.get(start)
        if residual is None:
            return
        value = self._simplify(residual)
        if value != residual:
            self._drop_root(start)
            if value is False:
                broken.append(start)
            elif value is not True:
                self._keep_root(start, value)

    def _keep_root(self, start: int, residual: Residual) -> None:
        """Keep a root, unless another one waits for the same: the first stands for all."""
        other = self._by_residual.get(residual)
        if other is not None:
            if other < start:
                return
            self._drop_root(other)
        self.open[start] = residual
        self._by_residual[residual] = start
        self._refer((-1, start), references(residual))

    def _drop_root(self, start: int) -> None:
        self._by_residual.pop(self.open.pop(start), None)
        self._refer((-1, start), set())

    def _settle_begun(self, node: int, start: int) -> None:
        closed = start in self._waiting[node]
        found = (self._waiting if closed else self._begun)[node].get(start)
        if found is None:
            return
        seen = found[1]
        simpler = [(self._simplify(left), self._simplify(right)) for left, right in seen]
        simpler = [pair for pair in simpler if pair != _NOTHING]
        if self._plan.nodes[node].endless:
            simpler = [pair for place, pair in enumerate(simpler) if pair[0] is not True or pair not in simpler[:place]]
        seen[:] = simpler
        self._refer((node, start), references_of(seen))
        still = not closed and self._plan.nodes[node].kind == "until"
        value = self._value_of(seen, still=still)
        if value is not None:
            self._conclude(node, start, value)

    def _merge(self, node: int) -> None:
        """Begun nodes without a deadline that have seen the same have the same future: the first stands for all."""
        firsts: dict[tuple[tuple[Residual, Residual], ...], int] = {}
        for start, (_, seen) in list(self._begun[node].items()):
            first = firsts.setdefault(tuple(seen), start)
            if first != start:
                self._conclude(node, start, ("begun", node, first))

    def _refer(self, holder: Holder, wanted: set[Reference]) -> None:
        """Note what a holder waits for from now on."""
        before = self._references.get(holder, _NONE)
        if wanted == before:
            return
        for reference in before - wanted:
            holders = self._dependents.get(reference)
            if holders is not None and holders.pop(holder, _NONE) is None and not holders:
                self._loose.append(reference)
        for reference in wanted - before:
            self._dependents.setdefault(reference, {})[holder] = None
        if wanted:
            self._references[holder] = wanted
        else:
            self._references.pop(holder, None)

    def _forget_loose(self) -> None:
        """Forget begun nodes that nobody waits for."""
        while self._loose:
            node, start = self._loose.pop()
            if self._dependents.get((node, start)):
                continue
            self._dependents.pop((node, start), None)
            self._begun[node].pop(start, None)
            self._waiting[node].pop(start, None)
            self._refer((node, start), set())

    def _simplify(self, residual: Residual) -> Residual:
        if isinstance(residual, bool) or not self._values:
            return residual
        match residual:
            case ("begun", node, start):
                settled = self._values.get((node, start))
                return residual if settled is None else self._simplify(settled)
            case ("not", inner):
                return _not(self._simplify(inner))
            case (name, *parts):
                wanted: bool = name == "or"
                values = [self._simplify(part) for part in parts]
                if wanted in values:
                    return wanted
                return _connect(name, [value for value in values if not isinstance(value, bool)])
        raise AssertionError(residual)


class OpenSlices:
    """The ids of one for_each with open obligations. A step looks only at those whose windows it closes or that it settles."""

    __slots__ = ("_count", "_crowded", "_engines", "_outside", "_plan", "_queues")

    def __init__(self, plan: ObligationPlan, engines: Iterable[tuple[Any, Obligations]] = ()) -> None:
        self._plan = plan
        self._engines: dict[Any, Obligations] = {}
        self._outside: dict[Any, Obligations] = {}
        """Those with begun nodes that are judged on the whole trace."""
        self._queues: tuple[list[tuple[float, int, Any]], ...] = ([], [])
        """(deadline, number, id), the earliest first: by step, and by millisecond. Entries that no longer hold are skipped."""
        self._count = 0
        self._crowded: Obligations | None = None
        for key, engine in engines:
            self.keep(key, engine)

    def __bool__(self) -> bool:
        return bool(self._engines)

    def keep(self, key: Any, engine: Obligations) -> None:
        """Note the present deadlines of an id; forget the id if nothing is open."""
        if not engine.open:
            self._engines.pop(key, None)
            self._outside.pop(key, None)
            engine.queued = (inf, inf)  # what is queued for it is skipped; the id may come back with the same engine
            return
        self._engines[key] = engine
        if len(engine.open) > limits.OPEN_OBLIGATIONS:
            self._crowded = engine
        if engine.looks_outside:
            self._outside[key] = engine
        else:
            self._outside.pop(key, None)
        deadlines = engine.deadline()
        for queue, deadline, queued in zip(self._queues, deadlines, engine.queued, strict=True):
            if deadline < queued:
                self._count += 1
                heappush(queue, (deadline, self._count, key))
        engine.queued = (min(deadlines[0], engine.queued[0]), min(deadlines[1], engine.queued[1]))

    def check_limit(self) -> None:
        """Raise SpecError if more steps of one id are open than `limits.OPEN_OBLIGATIONS`."""
        if self._crowded is not None:
            self._crowded.check_limit()

    def due(self, step: int, at: int, truth: tuple[bool, ...]) -> list[tuple[Any, Obligations]]:
        """The ids that a step can settle although it does not concern them, the longest open first. Keep each afterwards."""
        found: dict[Any, Obligations] = {}
        for unit, passed in enumerate((step, at - 1)):  # a window lasts until its last step, or to the end of a millisecond
            queue = self._queues[unit]
            while queue and queue[0][0] <= passed:
                deadline, _, key = heappop(queue)
                engine = self._engines.get(key)
                if engine is not None and engine.queued[unit] == deadline:
                    engine.queued = (inf, engine.queued[1]) if unit == 0 else (engine.queued[0], inf)
                    found[key] = engine
        if self._outside and self._plan.concerns_all(truth):
            found |= self._outside
        return sorted(found.items(), key=lambda item: (next(iter(item[1].open)), repr(item[0])))


def leaves_of(tree: Tree) -> Iterator[int]:
    """The leaves of a tree, without those inside its future nodes."""
    waiting = [tree]
    while waiting:
        name, *parts = waiting.pop()
        if name == "leaf":
            yield parts[0]
        elif name != "node":
            waiting += parts


def _folded(residual: Residual) -> Residual:
    """A residual as a flat tuple, for states: a tuple that is nested deeply can be neither compared nor digested."""
    if isinstance(residual, bool) or residual[0] == "begun":
        return residual
    tokens, waiting = list[Any](), [residual]
    while waiting:
        part = waiting.pop()
        if isinstance(part, bool) or part[0] == "begun":
            tokens.append(part)
        else:
            tokens.append((part[0], len(part) - 1))
            waiting += part[1:]
    return ("folded", *tokens)


def _unfolded(residual: Residual) -> Residual:
    if isinstance(residual, bool) or residual[0] == "begun":
        return residual
    parts: list[Residual] = []
    for token in reversed(residual[1:]):
        if isinstance(token, bool) or token[0] == "begun":
            parts.append(token)
        else:
            name, count = token
            inner = parts[-count:]
            del parts[-count:]
            parts.append((name, *inner))
    return parts[0]


def references(residual: Residual) -> set[Reference]:
    """The begun nodes that a residual names."""
    if isinstance(residual, bool):
        return set()
    if residual[0] == "begun":
        return {(residual[1], residual[2])}
    return {reference for part in residual[1:] for reference in references(part)}


def references_of(seen: Iterable[tuple[Residual, Residual]]) -> set[Reference]:
    return {reference for pair in seen for part in pair if not isinstance(part, bool) for reference in references(part)}


def _certain(tree: Tree, truth: tuple[bool, ...], wanted: bool) -> bool:
    """Whether a tree has this value whatever its future nodes are."""
    match tree:
        case ("leaf", index):
            return truth[index] is wanted
        case ("not", part):
            return _certain(part, truth, not wanted)
        case ("node", _):
            return False
        case (name, *parts):
            return (any if wanted is (name == "or") else all)(_certain(part, truth, wanted) for part in parts)
    raise AssertionError(tree)


def _exceeds(distance: int, bound: int | None) -> bool:
    return bound is not None and distance > bound


def _not(value: Residual) -> Residual:
    return (not value) if isinstance(value, bool) else ("not", value)


def _connect(name: str, parts: list[Residual]) -> Residual:
    if not parts:
        return name == "and"
    return parts[0] if len(parts) == 1 else (name, *parts)
