"""What the states of contracts that remember much are made of: mappings that share, and chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from zlib import crc32

from mat.core.value import EMPTY, FrozenDict

_BUCKETS: Final = 64


@dataclass(frozen=True, slots=True)
class PersistentTable:
    """A mapping that shares most of itself with the one it was made from: a change copies few of many entries."""

    buckets: FrozenDict = EMPTY
    count: int = 0

    def get(self, key: str) -> Any:
        return self.buckets.get(_bucket(key), EMPTY).get(key)

    def put(self, changes: Mapping[str, Any], alive: Callable[[Any], bool] | None = None) -> PersistentTable:
        """With these entries, and without those that are empty here.

        With `alive`, entries of the same buckets that can no longer matter are forgotten on the way.
        """
        if not changes:
            return self
        buckets, count = dict(self.buckets), self.count
        for key, value in changes.items():
            name = _bucket(key)
            before = buckets.get(name, EMPTY)
            bucket = {known: item for known, item in before.items() if known != key and (alive is None or alive(item))}
            if value:
                bucket[key] = value
            count += len(bucket) - len(before)
            if bucket:
                buckets[name] = FrozenDict(bucket)
            else:
                buckets.pop(name, None)
        return PersistentTable(FrozenDict(buckets), count)

    def items(self) -> Iterator[tuple[str, Any]]:
        for bucket in self.buckets.values():
            yield from bucket.items()

    def values(self) -> Iterator[Any]:
        for bucket in self.buckets.values():
            yield from bucket.values()


EMPTY_TABLE: Final = PersistentTable()


def _bucket(key: str) -> str:
    return f"{crc32(key.encode()) % _BUCKETS:02x}"


# -- chains -----------------------------------------------------------------------------------------------------------

CHAIN: Final = 32
"""Links of a chain; a full one is put to the rest."""
PersistentChain: TypeAlias = tuple[Any, ...]
"""A state that begins with 0, or a link of a short chain that begins there: (its length, the state before, one thing more). So
a step of which nothing may ever be asked costs next to nothing."""


def unchained(state: PersistentChain) -> tuple[PersistentChain, list[Any]]:
    """The state at which a chain begins, and what came since, oldest first."""
    later = []
    while state[0]:
        later.append(state[2])
        state = state[1]
    return state, later[::-1]
