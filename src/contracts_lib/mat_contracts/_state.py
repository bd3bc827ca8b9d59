"""Tables and chains for contracts with large states: a changed copy shares most of its content with the original."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from zlib import crc32

from mat.core.value import EMPTY, FrozenDict

_BUCKETS: Final = 64


@dataclass(frozen=True, slots=True)
class PersistentTable:
    """An immutable mapping. A changed copy shares most of its entries with the original."""

    buckets: FrozenDict = EMPTY
    count: int = 0

    def get(self, key: str) -> Any:
        return self.buckets.get(_bucket(key), EMPTY).get(key)

    def put(self, changes: Mapping[str, Any], alive: Callable[[Any], bool] | None = None) -> PersistentTable:
        """A copy with these entries set; an entry with an empty value is removed.

        With `alive`, entries of the same buckets for which it returns False are removed as well.
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
"""Largest number of links of a chain. A full chain is merged into the state that it begins at."""
PersistentChain: TypeAlias = tuple[Any, ...]
"""Either a state, a tuple that begins with 0, or a link: (length of the chain, the state or link before, one more item).

Adding a link is cheap, and most links are never read, so a step does no more work than that."""


def unchained(state: PersistentChain) -> tuple[PersistentChain, list[Any]]:
    """The state that a chain begins at, and the items added since, oldest first."""
    later = []
    while state[0]:
        later.append(state[2])
        state = state[1]
    return state, later[::-1]
