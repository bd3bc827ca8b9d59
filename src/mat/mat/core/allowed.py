"""Allow-lists of one parameter: values, a range of numbers, or a predicate. Contracts and governance share them.

There are two questions. `within` asks whether a value is surely inside, which is what permissions need. `may_be_within` asks
whether one reading of it may be inside, which is what restrictions need.

Source: A5.1.
"""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

Allowed: TypeAlias = Collection[Any] | tuple[float, float] | Callable[[Any], bool]
"""A collection of values, a (least, most) tuple of two numbers, both included, or a predicate that returns True."""


def is_allow_list(allowed: object) -> bool:
    """Whether a value can be an allow-list; a bare string cannot, because it would match by containment."""
    return callable(allowed) or (isinstance(allowed, Collection) and not isinstance(allowed, str | bytes))


def within(allowed: Allowed, value: object) -> bool:
    """Whether a value is allowed. True and 1 are different values; a bool lies in no range of numbers.

    A predicate allows with True and nothing else: a coroutine, which an async predicate returns, would be true.
    """
    if callable(allowed):
        answer: object = allowed(value)
        if inspect.iscoroutine(answer):
            answer.close()  # nobody will wait for it
        return answer is True
    if is_range(allowed):
        least, most = allowed
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    return any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in allowed)


def may_be_within(allowed: Allowed, value: object) -> bool:
    """Whether a rule that restricts must take a value for one that is meant, because one reading of it is inside.

    Readings: the members, keys and values of lists and mappings, bytes as text, texts as numbers and numbers as texts, and for
    a list of values each part of a text with commas. A number that is not known (NaN, "all", "5k") may lie in any range. A
    predicate is asked by its `may_match` where it has one; otherwise any answer that is true counts.

    >>> within((50, 100), "90"), may_be_within((50, 100), "90"), may_be_within((50, 100), [3, "4"])
    (False, True, False)
    >>> within(lambda value: "yes", 1), may_be_within(lambda value: "yes", 1)
    (False, True)
    """
    if callable(allowed):
        answer: object = getattr(allowed, "may_match", allowed)(value)
        if inspect.iscoroutine(answer):
            answer.close()
        return bool(answer)
    if within(allowed, value):
        return True
    if is_range(allowed):
        least, most = (Decimal(str(bound)) for bound in allowed)
        return any(_may_be_between(least, most, item) for item in parts_of(value))
    wanted = {form for item in allowed for form in _forms(item)}
    return any(not wanted.isdisjoint(_forms(item, apart=True)) for item in parts_of(value))


def parts_of(value: object) -> Iterator[object]:
    """A value and all that is inside it: members, keys and values, and texts in the place of bytes."""
    if isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from parts_of(key)
            yield from parts_of(item)
    elif isinstance(value, list | tuple | Set):
        for item in value:
            yield from parts_of(item)
    else:
        yield value


def texts_of(value: object) -> Iterator[str]:
    """The texts that a value, or something inside it, can be read as: "17" for 17, "5.0" and "5" for 5.0, "true" for True."""
    for item in parts_of(value):
        if isinstance(item, str):
            yield item
        elif isinstance(item, bool):
            yield from (str(item), str(item).lower())
        elif isinstance(item, int):
            yield str(Decimal(item))  # str(item) has a limit of digits
        elif isinstance(item, float):
            yield str(item)
            if item.is_integer():
                yield str(int(item))


_NUMERAL: Final = re.compile(r"([-+\u2212]?)(\d[\d.,_' ]*|\.\d+)(?:[eE]([-+]?\d{1,9}))?")
_PARTS: Final = re.compile(r"[,;<>\n]")


def _numbers(item: object) -> list[Decimal] | None:
    """The numbers that a scalar can be read as; [] if it surely is none, None if that is not known."""
    if isinstance(item, int | float):
        number = Decimal(str(item)) if isinstance(item, float) else Decimal(item)  # a bool is 0 or 1
        return None if number.is_nan() else [number]
    if not isinstance(item, str) or not item.strip():
        return []
    match = _NUMERAL.fullmatch(unicodedata.normalize("NFKC", item).strip())
    if match is None:
        return None
    sign, digits, exponent = match[1].replace("\u2212", "-"), match[2].strip(), match[3] or "0"
    plain = re.sub(r"[_' ]", "", digits)
    ways = {plain.replace(",", ""), plain.replace(".", "").replace(",", "."), re.sub(r"[.,]", "", plain)}
    try:
        return [Decimal(f"{sign}{way}e{exponent}") for way in sorted(ways) if way.count(".") < 2]
    except InvalidOperation:
        return None


def _may_be_between(least: Decimal, most: Decimal, item: object) -> bool:
    numbers = _numbers(item)
    return numbers is None or any(least <= number <= most for number in numbers)


def _forms(item: object, *, apart: bool = False) -> Iterator[object]:
    """What a scalar is compared by: its texts without case and outer spaces, and its numbers. `apart`: and parts of a text."""
    if isinstance(item, str | int | float):
        for text in texts_of(item):
            whole = unicodedata.normalize("NFKC", text).casefold()
            yield from (part.strip() for part in ({whole, *_PARTS.split(whole)} if apart else (whole,)))
        yield from _numbers(item) or ()
    elif isinstance(item, Collection):
        for part in parts_of(item):
            yield from _forms(part)
    else:
        yield item


def describe(allowed: Allowed) -> str:
    """An allow-list in words."""
    if callable(allowed):
        return f"what {getattr(allowed, '__name__', 'the predicate')} allows"
    if is_range(allowed):
        least, most = allowed
        return f"{least}..{most}"
    return "{" + ", ".join(sorted(map(repr, allowed))) + "}"


def is_range(allowed: Any) -> bool:
    """Whether an allow-list is a (least, most) tuple of two numbers."""
    return (
        isinstance(allowed, tuple)
        and len(allowed) == 2
        and all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in allowed)
    )
