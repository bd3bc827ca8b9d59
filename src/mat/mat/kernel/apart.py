"""The state of other tests' modules: compared now and then, because around each execution it would take longer than that.

A process that has one test only does not import them, and the walk enters those to which something leads (`mat.kernel.reach`).
A walk cannot see all that code can find: a registry of a library, an import by a name that is data. So whatever has changed in
them was changed by an execution that found a way, and the executions go on where there are no other tests: in forks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Final

from mat.core import limits
from mat.kernel.clock import real_monotonic
from mat.kernel.comparison import NodeComparison
from mat.kernel.nodes import Change
from mat.kernel.reach import Reached

_SHARE: Final = 20
"""A comparison takes at most one in this many parts of the time."""


class ApartState:
    """What is reachable from these modules, when this is made and after each `keep`. `full`: it is too much to be compared."""

    def __init__(self, modules: Collection[ModuleType]) -> None:
        self.modules = tuple(modules)
        self._reach = Reached([module.__name__ for module in modules], most=limits.APART_NODES)
        for module in modules:
            self._reach.enter_module(module)
        self._comparison = NodeComparison(self._reach.nodes)
        self.looks = 0
        """How often nothing had changed."""
        self._due_s: float | None = None

    def without(self, root: object) -> list[ModuleType]:
        """The modules but for this one, and for those of which another one has the name."""
        names = Counter(module.__name__ for module in self.modules)
        return [module for module in self.modules if module is not root and names[module.__name__] == 1]

    @property
    def full(self) -> bool:
        return self._reach.full or bool(self._reach.unreadable)

    def keep(self) -> None:
        """Take what the modules hold now as what they should hold: the tests in them may have been executed."""
        for index in self._comparison.differing():
            self._reach.keep(index)
        self._reach.walk()
        self._due_s = None

    @contextmanager
    def settling(self) -> Iterator[None]:
        """What changes in here belongs to the state."""
        before = set(self._comparison.differing())
        yield
        for index in self._comparison.differing():
            if index not in before:
                self._reach.keep(index)
        self._reach.walk()

    def is_due(self) -> bool:
        """Whether the last comparison is long enough ago. Asked before each execution: the first changed nothing yet."""
        if self._due_s is None:
            self._due_s = 0.0
            return False
        return real_monotonic() >= self._due_s

    def restore(self, *, known: Container[int]) -> list[tuple[str, Change]]:
        """Put back what has changed; returns it, by name. `known`: the ids of objects that are compared elsewhere."""
        began_s = real_monotonic()
        nodes, found = self._reach.nodes, []
        for index in self._comparison.differing():
            if self._reach.held(index) in known:
                continue
            changes = nodes[index].changes()
            found += [(self._reach.name(index, change.label), change) for change in changes]
            if changes:
                with suppress(Exception):  # an object that refuses it stays as it is
                    nodes[index].put_back()
        self.looks += not found
        ended_s = real_monotonic()
        self._due_s = ended_s + _SHARE * (ended_s - began_s)
        return found
