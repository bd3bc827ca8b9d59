"""Compare many places with what they held, in as few calls as possible: most of them never change.

Places of one kind are compared in chunks: the members of all of them, one after the other, with those kept. Only the nodes of a
chunk that differs are asked one by one. A node is kept anew only after it was found to differ (`mat.kernel.isolation`), so the
chunks that held one are made again before the next comparison, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Any, Final, Protocol

from mat.kernel.nodes import (
    CellNode,
    ClassNode,
    DictNode,
    FunctionNode,
    InstanceNode,
    ListNode,
    Node,
    SetNode,
    WatchNode,
    parts_of,
)

_CHUNK: Final = 64
"""Places in a chunk: one that differs has all of its chunk asked."""
_contents = attrgetter("cell_contents")


class _Chunk(Protocol):
    """Several places of one kind."""

    def same(self) -> bool:
        """Whether all hold what was kept."""


class _Tables:
    """Dicts, and the attributes of classes."""

    def __init__(self, nodes: Sequence[DictNode | ClassNode]) -> None:
        kept = [node.kept() for node in nodes]
        self._tables = [table for table, _, _ in kept]
        self._views = [table.values() for table in self._tables]
        self._lengths = [len(keys) for _, keys, _ in kept]
        self._keys = tuple(chain.from_iterable(keys for _, keys, _ in kept))
        self._values = tuple(chain.from_iterable(values for _, _, values in kept))

    def same(self) -> bool:
        return (
            list(map(len, self._tables)) == self._lengths
            and all(map(is_, chain.from_iterable(self._views), self._values))
            and all(map(is_, chain.from_iterable(self._tables), self._keys))
        )


class _Members:
    """Lists, or sets."""

    def __init__(self, nodes: Sequence[ListNode | SetNode]) -> None:
        kept = [node.kept() for node in nodes]
        self._containers = [container for container, _ in kept]
        self._lengths = [len(members) for _, members in kept]
        self._kept = tuple(chain.from_iterable(members for _, members in kept))

    def same(self) -> bool:
        return list(map(len, self._containers)) == self._lengths and all(
            map(is_, chain.from_iterable(self._containers), self._kept)
        )


class _Cells:
    def __init__(self, nodes: Sequence[CellNode]) -> None:
        self._cells, self._kept = zip(*[node.kept() for node in nodes], strict=True)

    def same(self) -> bool:
        try:
            return all(map(is_, map(_contents, self._cells), self._kept))
        except ValueError:  # one of them is empty
            return False


class _Counts:
    """Attributes of libraries none of which the program sets: only new ones count."""

    def __init__(self, nodes: Sequence[WatchNode]) -> None:
        kept = [node.kept() for node in nodes]
        self._attributes, self._counts = [each for each, _ in kept], [count for _, count in kept]

    def same(self) -> bool:
        return list(map(len, self._attributes)) == self._counts


class _Functions:
    def __init__(self, nodes: Sequence[FunctionNode]) -> None:
        kept = [node.kept() for node in nodes]
        self._functions = [function for function, _ in kept]
        self._parts = tuple(chain.from_iterable(parts for _, parts in kept))

    def same(self) -> bool:
        return all(map(is_, chain.from_iterable(map(parts_of, self._functions)), self._parts))


class _Instances:
    """Instances with attributes: their classes, and their attribute dicts."""

    def __init__(self, nodes: Sequence[InstanceNode]) -> None:
        self._instances, self._kinds, self._dicts = zip(*[node.kept() for node in nodes], strict=True)

    def same(self) -> bool:
        try:
            return all(map(is_, map(type, self._instances), self._kinds)) and all(
                map(is_, map(object.__getattribute__, self._instances, repeat("__dict__")), self._dicts)
            )
        except (AttributeError, TypeError):  # one has no attributes any more
            return False


_KINDS: Final[dict[type[Node], Callable[[Any], _Chunk]]] = {
    DictNode: _Tables, ClassNode: _Tables, ListNode: _Members, SetNode: _Members, CellNode: _Cells, WatchNode: _Counts,
    FunctionNode: _Functions, InstanceNode: _Instances,
}  # fmt: skip


class NodeComparison:
    """Says which of the nodes differ from what they kept. Nodes may be added to the list at its end."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known = 0
        self._alone: list[int] = []
        self._chunks: list[tuple[list[int], _Chunk | None]] = []
        """The nodes of each chunk by their places in the list; None for one that is to be made again."""

    def differing(self) -> list[int]:
        """The places in the list of the nodes that differ, in order."""
        if self._known < len(self._nodes):
            self._take(range(self._known, len(self._nodes)))
        found = [index for index in self._alone if not self._nodes[index].same()]
        for number, (indices, chunk) in enumerate(self._chunks):
            if chunk is None:
                self._chunks[number] = (indices, chunk := self._made(indices))
            if not chunk.same():
                found += [index for index in indices if not self._nodes[index].same()]
                self._chunks[number] = (indices, None)
        return sorted(found)

    def _take(self, indices: Iterable[int]) -> None:
        self._known = len(self._nodes)
        by_kind: dict[type[Node], list[int]] = {}
        for index in indices:
            node = self._nodes[index]
            if type(node) in _KINDS and node.joins:  # type: ignore[attr-defined]
                by_kind.setdefault(type(node), []).append(index)
            else:
                self._alone.append(index)
        for members in by_kind.values():
            self._chunks += [(members[at : at + _CHUNK], None) for at in range(0, len(members), _CHUNK)]

    def _made(self, indices: Sequence[int]) -> _Chunk:
        nodes = [self._nodes[index] for index in indices]
        return _KINDS[type(nodes[0])](nodes)
