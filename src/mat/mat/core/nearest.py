"""Which of many recorded requests is nearest to one that has no reply, and how the two differ, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mat.core.digest import canonical

_FIELDS: Final = 50
"""Differing fields that are looked at; requests that differ in more are equally far."""
_MEASURED: Final = 200
"""Requests with as few differing fields as any before them whose texts are compared; of any more, the first is kept."""
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

    Nearest is the one with the fewest differing fields; among those, the one whose texts have most in common. A request is
    left as soon as it differs in more fields than the nearest so far, so that thousands of long ones are compared in a second.

    >>> nearest({"order": "A18", "amount": 30}, [{"order": "A17", "amount": 20}, {"order": "A17", "amount": 30}])[0].path
    'order'
    """
    best: tuple[FieldDifference, ...] | None = None
    least: int | None = None
    measured = 0
    for one in recorded:
        found = differences(one, asked, most=_FIELDS if best is None else len(best) + 1)
        if best is None or len(found) < len(best):
            best, least, measured = found, None, 0
        elif len(found) == len(best) and measured < _MEASURED:
            measured += 1
            least = _distances(best) if least is None else least
            distance = _distances(found)
            if distance < least:
                best, least = found, distance
    return best


def differences(recorded: Any, asked: Any, *, most: int = _FIELDS) -> tuple[FieldDifference, ...]:
    """The fields in which two values differ, at most `most`, in the order of their paths."""
    return tuple(islice(_walk(recorded, asked, ""), min(most, _FIELDS)))


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
    elif not _equal(one, other):
        yield FieldDifference(path=path, recorded=one, asked=other)


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are recorded alike. Texts, the long ones above all, are compared without encoding them."""
    if one is other:
        return True
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return canonical(one) == canonical(other)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _distances(found: Sequence[FieldDifference]) -> int:
    return sum(_distance(each.recorded, each.asked) for each in found)


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
