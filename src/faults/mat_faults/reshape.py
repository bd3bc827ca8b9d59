"""Changed copies of replies. Nothing here alters what it is given."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Where a leaf stands: keys, field names and indices from the top."""

_TEXT_KEYS = ("text", "note", "content", "message", "body", "value")


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every scalar in a reply with its path; mappings by sorted key, so that the order is decided."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name in sorted(field.name for field in dataclasses.fields(value)):
            yield from leaves(getattr(value, name), (*path, name))
    elif hasattr(type(value), "model_fields"):
        for name in sorted(type(value).model_fields):
            yield from leaves(getattr(value, name), (*path, name))
    elif value is not None:
        yield path, value


def with_leaf(value: Any, path: Path, new: Any) -> Any:
    """A copy of a reply with one leaf replaced; everything not on the path is shared."""
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        changed = dict(value)
        changed[str(head) if head not in changed else head] = with_leaf(value[head], rest, new)
        return changed
    if isinstance(value, list | tuple):
        items = list(value)
        items[int(head)] = with_leaf(items[int(head)], rest, new)
        if isinstance(value, tuple):
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return items
    name = str(head)
    inner = with_leaf(getattr(value, name), rest, new)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{name: inner})
    return value.model_copy(update={name: inner})


def corrupted(leaf: Any, how: str) -> Any:
    """A wrong value of the same type; never the same value. `how`: "wrong" or "empty"."""
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return (0 if leaf else 1) if how == "empty" else leaf * 10 + 1
    if isinstance(leaf, float):
        return (0.0 if leaf else 1.0) if how == "empty" else leaf * 10 + 1
    if isinstance(leaf, bytes):
        return b"" if how == "empty" and leaf else leaf[::-1] + b"\x00"
    text = str(leaf)
    if how == "empty" and text:
        return ""
    return text[:-1] if len(text) > 1 else text + "?"


def duplicate(value: Any) -> Any:
    """An earlier reply as its own object, where it can be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # a reply that cannot be copied (an open handle) is served as it is
        return value


def with_note(value: Any, note: str) -> Any:
    """A reply into which an untrusted note was put, in the shape the memory or the index already has; None where none fits."""
    if isinstance(value, str):
        return f"{value}\n{note}" if value else note
    if isinstance(value, list | tuple):
        item = _like(value[-1], note) if value else note
        return None if item is None else type(value)([*value, item])
    if isinstance(value, Mapping):
        found = text_path(value)
        return None if found is None else with_leaf(value, found[0], f"{found[1]}\n{note}")
    return None


def _like(sample: Any, note: str) -> Any:
    """A new item that looks like the ones beside it."""
    if isinstance(sample, str):
        return note
    found = text_path(sample)
    return None if found is None else with_leaf(sample, found[0], note)


def text_path(value: Any) -> tuple[Path, str] | None:
    """The leaf that holds the text of an item: one with a usual name, else the longest text."""
    texts = [(path, leaf) for path, leaf in leaves(value) if isinstance(leaf, str)]
    if not texts:
        return None
    named = [item for item in texts if item[0] and item[0][-1] in _TEXT_KEYS]
    return named[0] if named else max(texts, key=lambda item: len(item[1]))


def can_take_note(value: Any) -> bool:
    return with_note(value, "note") is not None


def is_sequence(value: Any, least: int) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) >= least
