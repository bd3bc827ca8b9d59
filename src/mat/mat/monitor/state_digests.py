"""Digests of monitor states, remembered by value.

The search reads a digest of all states at every ask, and a child repeats its parent's states up to the perturbation. So most
states have been digested before, in another run: their value, as bytes, finds the digest again, without the
canonical text. Equal bytes mean equal states of equal types: 1, 1.0 and True stay distinct.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from mat.core import limits
from mat.core.digest import digest
from mat.core.value import FrozenDict, FrozenList

Name: TypeAlias = str | tuple[str, ...]
"""The contract whose state it is, or the contracts that have one state together."""

_FORM: Final = 2
"""The last version of the format that writes equal values equally: later ones write objects that occur twice as references."""
_known: dict[tuple[Name, bytes], str] = {}
_kept = 0
"""Bytes of the keys in `_known`."""


def state_digest(name: Name, state: Any, plain_form: Callable[[Any], Any]) -> str:
    """The digest of one state. `plain_form` makes its JSON data, and refuses a state that has none."""
    written = _written(state)
    if written is None:
        return digest([name, plain_form(state)])
    key = (name, written)
    text = _known.get(key)
    if text is None:
        text = digest([name, plain_form(state)])
        if _is_exact(state):
            _remember(key, text)
    return text


def _written(state: Any) -> bytes | None:
    """A state as bytes: of `marshal`, or of `pickle` (another first byte) if it contains what `marshal` does not know."""
    try:
        return marshal.dumps(_thawed(state), _FORM)
    except ValueError:
        try:
            return pickle.dumps(state, 5)
        except Exception:  # a class of the user's, which need not have one
            return None


def _thawed(state: Any) -> Any:
    """The state with plain mappings where it, or a member of it, is a frozen one: their canonical forms are the same."""
    kind = type(state)
    if kind is FrozenDict:
        return dict(state)
    if kind is tuple and FrozenDict in map(type, state):
        return tuple([dict(part) if type(part) is FrozenDict else part for part in state])
    return state


@lru_cache(maxsize=10_000)
def joint_digest(parts: tuple[str, ...]) -> str:
    """The digest of all monitor states from those of the single ones, if every contract could judge."""
    return digest([parts, ()])


def _remember(key: tuple[Name, bytes], text: str) -> None:
    global _kept
    if _kept > limits.STATE_DIGEST_BYTES:
        _known.clear()
        _kept = 0
    _known[key] = text
    _kept += len(key[1])


_SCALARS: Final[frozenset[type[object]]] = frozenset({type(None), bool, int, float, str})
_COLLECTIONS: Final[frozenset[type[object]]] = frozenset({tuple, list, set, frozenset, FrozenList})


def _is_exact(state: Any) -> bool:
    """Whether every part is written with its type. Anything with a buffer, such as numpy.float64, is written like bytes."""
    kind = type(state)
    if kind in _SCALARS:
        return True
    if kind is dict or kind is FrozenDict:
        return all(_is_exact(key) and _is_exact(item) for key, item in state.items())
    return kind in _COLLECTIONS and all(map(_is_exact, state))
