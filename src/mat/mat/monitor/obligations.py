"""Evaluate nested future operators in three values. The state, which steps still wait for what, is plain data.

A formula becomes a tree over leaves (the truth of past formulas at a step, given as a tuple of booleans) and future nodes,
numbered inner ones first. At every step a node that is needed is *begun* at that step; it is true, false, or open
until later steps settle it. A tree that is not settled is kept as a residual: a nested tuple whose leaves name begun nodes,
(node, step). Residuals are simplified at every step, so nothing refers to a node once it is settled, and the state is
bounded by the windows. The common case, one trigger and one future operator, never comes here: `emitter` writes it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mat.monitor.temporal import Window

Tree: TypeAlias = tuple[Any, ...]
"""("leaf", index) | ("not", tree) | ("and" | "or", tree, ...) | ("node", index)"""
Residual: TypeAlias = bool | tuple[Any, ...]
"""Settled, or ("begun", node, step) | ("not", residual) | ("and" | "or", residual, ...)"""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A future node. next has no window of its own; eventually(phi) is until(true, phi) with the left part None."""

    kind: Literal["until", "next"]
    left: Tree | None
    right: Tree
    window: Window
    whole: bool = False
    """Judged at every step of the trace, in the slice or not."""


@dataclass(frozen=True, slots=True)
class ObligationPlan:
    """The root tree and its future nodes, inner ones first."""

    root: Tree
    nodes: tuple[Ahead, ...]


class Obligations:
    """The open part of one formula on one trace, or on one slice of it."""

    __slots__ = ("_at", "_begun", "_cache", "_plan", "_settled", "_step", "_truth", "open")

    def __init__(self, plan: ObligationPlan, state: tuple[Any, ...] = ()) -> None:
        self._plan = plan
        roots, begun = state or ((), ((),) * len(plan.nodes))
        self.open: list[tuple[int, Residual]] = list(roots)
        """(step, residual) for every step at which the root formula is not settled."""
        self._begun: list[dict[int, list[Any]]] = [{start: [at, list(seen)] for start, at, seen in node} for node in begun]
        """For each node and step it was begun at: the time, and what its window has shown so far, (left, right) a step."""
        self._settled: dict[tuple[int, int], bool] = {}
        self._cache: dict[int, Residual] = {}
        self._truth: tuple[bool, ...] = ()
        self._step, self._at = -1, 0

    def save(self) -> tuple[Any, ...]:
        """The state as a value; () if nothing is open."""
        if not self.open:
            return ()
        begun = tuple(tuple((start, at, tuple(seen)) for start, (at, seen) in sorted(node.items())) for node in self._begun)
        return (tuple(self.open), begun)

    def step(self, step: int, at: int, truth: tuple[bool, ...]) -> list[int]:
        """Take one more step; return the steps whose formula is now known to be false."""
        self._truth, self._step, self._at = truth, step, at
        self._cache.clear()
        if self.open:
            for node in range(len(self._plan.nodes)):
                for start in list(self._begun[node]):
                    self._advance(node, start, present=True)
        self.open.append((step, self._value(self._plan.root)))
        return self._settle()

    def pass_by(self, step: int, at: int, truth: tuple[bool, ...]) -> list[int]:
        """Take a step outside the slice: windows can close, and nodes that are judged on the whole trace advance."""
        if step == self._step:
            return []
        self._truth, self._step, self._at = truth, step, at
        self._cache.clear()
        for node, ahead in enumerate(self._plan.nodes):
            for start in list(self._begun[node]):
                self._advance(node, start, present=ahead.whole)
        return self._settle()

    def close(self) -> list[int]:
        """Finish the trace: open nodes are decided as if nothing more happens. Return the steps whose formula is false then."""
        for node in range(len(self._plan.nodes)):
            for start in list(self._begun[node]):
                seen = self._begun[node].pop(start)[1]
                self._settled[node, start] = self._read(seen, still=False) is True
        return self._settle()

    def _settle(self) -> list[int]:
        broken: list[int] = []
        remaining: list[tuple[int, Residual]] = []
        for start, residual in self.open:
            value = self._simplify(residual)
            if value is False:
                broken.append(start)
            elif value is not True:
                remaining.append((start, value))
        self.open = remaining
        self._settled.clear()
        if not remaining:  # no residual waits for the begun nodes
            for node in self._begun:
                node.clear()
        return broken

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
            self._begun[node][self._step] = [self._at, []]
            if self._plan.nodes[node].kind == "until":
                self._advance(node, self._step, present=True)
            known = self._cache[node] = self._simplify(("begun", node, self._step))
        return known

    def _advance(self, node: int, start: int, *, present: bool) -> None:
        """Advance one begun node by this step, or only by its time."""
        spec = self._plan.nodes[node]
        at, seen = self._begun[node][start]
        if spec.kind == "next":
            if present and self._step != start and not seen:
                seen.append((False, self._value(spec.right)))
            seen[:] = [(left, self._simplify(right)) for left, right in seen]
            value: Residual | None = seen[0][1] if seen else None
            if isinstance(value, bool):
                self._conclude(node, start, value)
            return
        steps, milliseconds, window = self._step - start, self._at - at, spec.window
        over = _exceeds(steps, window.high) or _exceeds(milliseconds, window.high_ms)
        if present and not over:
            inside = steps >= window.low and milliseconds >= window.low_ms
            left = True if spec.left is None else self._value(spec.left)
            seen.append((left, self._value(spec.right) if inside else False))
        last = over or (window.high is not None and steps >= window.high)
        simpler = [(self._simplify(left), self._simplify(right)) for left, right in seen]
        seen[:] = [pair for pair in simpler if pair != (True, False)]
        value = self._read(seen, still=not last)
        if isinstance(value, bool):
            self._conclude(node, start, value)

    def _read(self, seen: list[tuple[Residual, Residual]], *, still: bool) -> bool | None:
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

    def _conclude(self, node: int, start: int, value: bool) -> None:
        del self._begun[node][start]
        self._settled[node, start] = value

    def _simplify(self, residual: Residual) -> Residual:
        if isinstance(residual, bool):
            return residual
        match residual:
            case ("begun", node, start):
                settled = self._settled.get((node, start))
                return residual if settled is None else settled
            case ("not", inner):
                return _not(self._simplify(inner))
            case (name, *parts):
                wanted: bool = name == "or"
                values = [self._simplify(part) for part in parts]
                if wanted in values:
                    return wanted
                return _connect(name, [value for value in values if not isinstance(value, bool)])
        raise AssertionError(residual)


def _exceeds(distance: int, bound: int | None) -> bool:
    return bound is not None and distance > bound


def _not(value: Residual) -> Residual:
    return (not value) if isinstance(value, bool) else ("not", value)


def _connect(name: str, parts: list[Residual]) -> Residual:
    if not parts:
        return name == "and"
    return parts[0] if len(parts) == 1 else (name, *parts)
