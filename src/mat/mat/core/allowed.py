"""Allow-lists of one parameter: values, a range of numbers, or a predicate. Contracts and governance share them.

Source: A5.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

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
    """Whether a value may be meant by a rule that restricts: as `within`, but of a predicate any answer that is true counts.

    >>> within(lambda value: "yes", 1), may_be_within(lambda value: "yes", 1)
    (False, True)
    """
    if not callable(allowed):
        return within(allowed, value)
    answer: object = allowed(value)
    if inspect.iscoroutine(answer):
        answer.close()
    return bool(answer)


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
