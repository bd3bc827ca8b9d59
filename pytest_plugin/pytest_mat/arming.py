"""The contracts among an item's fixtures: requested by name or dynamically, alone or in containers. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

_CONTRACT: Final = ("mat.monitor.contract", "Contract")
_SEARCHED: Final = 1_000
"""Values in one fixture, with those in its containers, that are searched for contracts; larger ones are data."""
_DEPTH: Final = 4
"""Nesting of containers that are searched for contracts."""


def values_of(item: pytest.Item) -> dict[str, Any]:
    """The values of all fixtures made for an item so far, by name, those that `getfixturevalue` requested included."""
    found = dict(getattr(item, "funcargs", None) or {})
    request: Any = getattr(item, "_request", None)
    for name, fixture in (getattr(request, "_fixture_defs", None) or {}).items():
        result = getattr(fixture, "cached_result", None)
        if name not in found and result is not None and result[2] is None:
            found[name] = result[0]
    return found


def contracts_in(value: Any) -> Iterator[Any]:
    """The contracts in a value: itself, or inside mappings, lists, tuples and sets."""
    left = [_SEARCHED]
    return _contracts_in(value, _DEPTH, left)


def _contracts_in(value: Any, depth: int, left: list[int]) -> Iterator[Any]:
    left[0] -= 1
    kind = type(value)
    if (kind.__module__, kind.__name__) == _CONTRACT:
        yield value
        return
    if depth == 0 or not isinstance(value, Mapping | list | tuple | set | frozenset) or len(value) > left[0]:
        return
    for part in value.values() if isinstance(value, Mapping) else value:
        yield from _contracts_in(part, depth - 1, left)


def requests_contract(item: pytest.Item) -> bool:
    """Whether a fixture of the item is a contract or contains one."""
    return any(True for value in values_of(item).values() for _ in contracts_in(value))
