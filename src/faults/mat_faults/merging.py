"""Lost updates: what a writer would have written without seeing another one's last write (three-way difference)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from mat.core.digest import canonical
from mat.core.value import FrozenDict, FrozenList, Value

_WORD_OR_MARK = re.compile(r"\w+|\s+|[^\w\s]")
_LONGEST: Final = 4_000
"""The longest list, or text in words, that is compared; the comparison takes quadratic time."""
_UNKNOWN: Final = object()


def unseen(base: Value, theirs: Value, mine: Value) -> Value:
    """`mine` without the changes that `theirs` made to `base`; `mine` itself if it contains none of them.

    Mappings are compared key by key, lists item by item, texts word by word, and numbers by their difference; values of
    different types are not. `base` is None if there was no value before.
    """
    found = _without_update(base, theirs, mine)
    return mine if found is _UNKNOWN else found


def _without_update(base: Any, theirs: Any, mine: Any) -> Any:
    kind = type(theirs)
    if kind is not type(mine):
        return _UNKNOWN
    known = base if type(base) is kind else None
    if kind is FrozenDict:
        return _mapping(FrozenDict() if known is None else known, theirs, mine)
    if kind is FrozenList:
        return FrozenList(_sequence([] if known is None else list(known), list(theirs), list(mine), runs=False))
    if kind is str:
        pieces = (_WORD_OR_MARK.findall(known or ""), _WORD_OR_MARK.findall(theirs), _WORD_OR_MARK.findall(mine))
        return "".join(_sequence(*pieces, runs=True))
    if kind in (int, float) and known is not None:
        before = mine - (theirs - known)
        return before if math.isfinite(before) else _UNKNOWN
    return known if known is not None and _is_equal(theirs, mine) else _UNKNOWN


def _is_equal(one: Any, other: Any) -> bool:
    return canonical(one) == canonical(other)


def _mapping(base: FrozenDict, theirs: FrozenDict, mine: FrozenDict) -> FrozenDict:
    found: dict[str, Any] = {}
    for key, item in mine.items():
        if key not in theirs or (key in base and _is_equal(base[key], theirs[key])):
            found[key] = item
        elif key in base:
            before = base[key] if _is_equal(item, theirs[key]) else _without_update(base[key], theirs[key], item)
            found[key] = item if before is _UNKNOWN else before
        elif not _is_equal(item, theirs[key]):
            inner = _without_update(None, theirs[key], item)
            found[key] = item if inner is _UNKNOWN else inner
    found |= {key: item for key, item in base.items() if key not in theirs and key not in mine}
    return FrozenDict(found)


def _sequence(base: list[Any], theirs: list[Any], mine: list[Any], *, runs: bool) -> list[Any]:
    """The items of `mine` without those that `theirs` added to `base`, and with those that `theirs` removed or replaced.

    `runs`: items added at one place are removed together or not at all, because a single word may be there by chance.
    """
    if max(len(base), len(theirs), len(mine)) > _LONGEST:
        return mine
    one, other, third = ([canonical(item) for item in items] for items in (base, theirs, mine))
    place: dict[int, int] = {}
    for block in SequenceMatcher(None, other, third, autojunk=False).get_matching_blocks():
        place.update((block.a + offset, block.b + offset) for offset in range(block.size))
    lost: set[int] = set()
    put: dict[int, list[Any]] = {}
    for tag, first, last, start, end in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        added = [place[index] for index in range(start, end) if index in place]
        whole = len(added) == end - start and (not added or added[-1] - added[0] == end - start - 1)
        if tag in ("insert", "replace") and (whole or not runs):
            lost.update(added)
        if tag == "replace" and whole:
            put[added[0]] = base[first:last]
        elif tag == "delete" and _gap_is_there(place, start, len(theirs), len(mine)):
            put[place.get(start, len(mine))] = base[first:last]
    found: list[Any] = []
    for index in range(len(mine) + 1):
        found += put.get(index, [])
        if index < len(mine) and index not in lost:
            found.append(mine[index])
    return found


def _gap_is_there(place: dict[int, int], at: int, theirs: int, mine: int) -> bool:
    """Whether the two neighbors of a removed stretch are adjacent in the third sequence too."""
    before = -1 if at == 0 else place.get(at - 1, -2)
    after = mine if at == theirs else place.get(at, -2)
    return -2 not in (before, after) and after - before == 1


def leaves_changed(one: Value, other: Value) -> int:
    """The size of a difference: 1 for each item added or removed and each leaf changed, 1 for another order of equal items."""
    if type(one) is FrozenDict and type(other) is FrozenDict:
        apart = len(one.keys() ^ other.keys())
        return apart + sum(leaves_changed(one[key], other[key]) for key in one if key in other)
    if type(one) is FrozenList and type(other) is FrozenList:
        return _items_changed(one, other)
    return 0 if type(one) is type(other) and _is_equal(one, other) else 1


def _items_changed(one: Sequence[Any], other: Sequence[Any]) -> int:
    if len(one) == len(other):
        aligned = sum(leaves_changed(left, right) for left, right in zip(one, other, strict=True))
    else:
        aligned = len(one) + len(other)
    left, right = Counter(map(canonical, one)), Counter(map(canonical, other))
    moved = (left - right).total() + (right - left).total()
    return min(aligned, moved) if moved else min(aligned, 1)
