"""Which of many recorded requests is nearest to one that has no reply, and how the two differ, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mat.core.digest import canonical

_FIELDS: Final = 50
"""Differing fields that are looked at; requests that differ in more are equally far."""
_COMPARED: Final = 20_000
"""Characters of a text that are compared."""
_SHOWN: Final = 60
"""Characters of a text that are shown around the first difference."""
_BEFORE: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A field that differs: its path, such as "messages.2.content", and both values; None where one has no such field."""

    path: str
    recorded: Any
    asked: Any

    def __str__(self) -> str:
        one, other = _excerpts(self.recorded, self.asked)
        return f"{self.path or 'the request'}: recorded {one}, asked {other}"


def nearest(asked: Any, recorded: Iterable[Any]) -> tuple[FieldDifference, ...] | None:
    """How the nearest of the recorded requests differs from what was asked; None without any. The first of equals wins.

    Nearest is the one with the fewest differing fields; among those, the one whose texts have most in common.

    >>> nearest({"order": "A18", "amount": 30}, [{"order": "A17", "amount": 20}, {"order": "A17", "amount": 30}])[0].path
    'order'
    """
    best: tuple[tuple[int, int], tuple[FieldDifference, ...]] | None = None
    for one in recorded:
        found = differences(one, asked)
        distance = (len(found), sum(_distance(each.recorded, each.asked) for each in found))
        if best is None or distance < best[0]:
            best = distance, found
    return None if best is None else best[1]


def differences(recorded: Any, asked: Any) -> tuple[FieldDifference, ...]:
    """The fields in which two values differ, at most 50, in the order of their paths."""
    found: list[FieldDifference] = []
    for each in _walk(recorded, asked, ""):
        found.append(each)
        if len(found) == _FIELDS:
            break
    return tuple(found)


def in_words(found: Sequence[FieldDifference], *, shown: int = 3) -> str:
    """The first few differences in a sentence's part, and how many more there are."""
    rest = len(found) - shown
    more = f"; and {rest} more field{'s' if rest > 1 else ''}" if rest > 0 else ""
    return "; ".join(str(each) for each in found[:shown]) + more


def _walk(one: Any, other: Any, path: str) -> Iterator[FieldDifference]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}, key=str):
            yield from _walk(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    elif _is_list(one) and _is_list(other):
        for index in range(max(len(one), len(other))):
            before, after = (each[index] if index < len(each) else None for each in (one, other))
            yield from _walk(before, after, f"{path}.{index}" if path else str(index))
    elif one is not other and canonical(one) != canonical(other):
        yield FieldDifference(path=path, recorded=one, asked=other)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _distance(one: Any, other: Any) -> int:
    """How much of two values is not common to their beginnings and ends, in characters."""
    before, after = (each if isinstance(each, str) else canonical(each) for each in (one, other))
    before, after = before[:_COMPARED], after[:_COMPARED]
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    return max(len(before), len(after)) - start - end


def _common(one: str, other: str) -> int:
    """The length of the common beginning, by halves: comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _excerpts(one: Any, other: Any) -> tuple[str, str]:
    if isinstance(one, str) and isinstance(other, str):
        start = max(0, _common(one[:_COMPARED], other[:_COMPARED]) - _BEFORE)
        return _excerpt(one, start), _excerpt(other, start)
    return _short(one), _short(other)


def _excerpt(text: str, start: int) -> str:
    shown = text[start : start + _SHOWN]
    return f"{'...' if start else ''}{shown!r}{'...' if start + _SHOWN < len(text) else ''}"


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = canonical(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
