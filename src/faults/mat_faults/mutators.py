"""Message mutators: make changed copies of replies, and never change the original."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

FieldPath: TypeAlias = tuple[str | int, ...]
"""The path of a leaf: keys, field names and indices from the top."""

_TEXT_KEYS = ("text", "note", "content", "message", "body", "value")


def leaves(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Every scalar in a reply with its path; mappings and fields in sorted order, so that the order is fixed.

    Scalars are booleans, numbers, texts, bytes and dates. None, enums and objects of unknown classes hold nothing to damage.
    """
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
        for name in sorted(_visible_fields(value)):
            yield from leaves(getattr(value, name), (*path, name))
    elif corrupted(value, "wrong") is not None:
        yield path, value


def _visible_fields(model: Any) -> list[str]:
    """The fields of a pydantic model that its record shows: those that its data does not exclude."""
    return [name for name, field in type(model).model_fields.items() if not getattr(field, "exclude", None)]


def mappings(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Mapping[Any, Any]]]:
    """Every mapping in a reply with its path, outer ones first, otherwise in the order of `leaves`."""
    if isinstance(value, Mapping):
        yield path, value
        for key in sorted(value, key=str):
            yield from mappings(value[key], (*path, key))
        return
    for name, item in parts(value):
        yield from mappings(item, (*path, name))


def objects(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, dict[Any, Any]]]:
    """Every mapping and object with its path, as a dict of its fields; outer ones first. Empty ones are left out."""
    found = dict(parts(value))
    if found and not isinstance(value, list | tuple):
        yield path, found
    for name, item in found.items():
        yield from objects(item, (*path, name))


def parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    """The direct parts of a container, by key, index or field, in the order of `leaves`; none for a scalar."""
    if isinstance(value, Mapping):
        yield from ((key, value[key]) for key in sorted(value, key=str))
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((name, getattr(value, name)) for name in sorted(field.name for field in dataclasses.fields(value)))
    elif hasattr(type(value), "model_fields"):
        yield from ((name, getattr(value, name)) for name in sorted(_visible_fields(value)))


def at(value: Any, path: FieldPath) -> Any:
    """The value at a path."""
    for step in path:
        if isinstance(value, Mapping):
            value = value[step]
        else:
            value = value[int(step)] if isinstance(value, list | tuple) else getattr(value, str(step))
    return value


def without(value: Any, path: FieldPath) -> Any:
    """A copy of a reply without the key at the path's end."""
    parent = at(value, path[:-1])
    return with_leaf(value, path[:-1], {key: item for key, item in parent.items() if key != path[-1]})


def with_leaf(value: Any, path: FieldPath, new: Any) -> Any:
    """A copy of a reply with one leaf replaced, or a key added to a mapping; everything not on the path is shared."""
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        inner = with_leaf(value.get(head), rest, new)
        return {**{key: inner if key == head else item for key, item in value.items()}, head: inner}
    if isinstance(value, list | tuple):
        items = list(value)
        items[int(head)] = with_leaf(items[int(head)], rest, new)
        return items if isinstance(value, list) else like_sequence(value, items)
    name = str(head)
    inner = with_leaf(getattr(value, name), rest, new)
    if dataclasses.is_dataclass(value):
        changed = copy.copy(value)  # not dataclasses.replace: a class that checks its fields would refuse the damage
        object.__setattr__(changed, name, inner)
        return changed
    return value.model_copy(update={name: inner})


def like_sequence(value: Any, items: list[Any]) -> Any:
    """Items as a sequence of the type of `value`: a list, a tuple, or a named tuple if the number still fits."""
    if not isinstance(value, tuple):
        return items
    return type(value)(*items) if hasattr(value, "_fields") and len(items) == len(value) else tuple(items)


def corrupted(leaf: Any, how: str) -> Any:
    """A wrong value of the same type, never the same value; None for anything but a scalar. `how`: "wrong" or "empty"."""
    if isinstance(leaf, bool):
        return not leaf
    if type(leaf) in (int, decimal.Decimal) or isinstance(leaf, float):
        return _wrong_number(leaf, how)
    if type(leaf) in (datetime.datetime, datetime.date):
        day = datetime.timedelta(days=1)
        return leaf + day if leaf.year < datetime.MAXYEAR else leaf - day
    if type(leaf) is bytes:
        return b"" if how == "empty" and leaf else leaf + b"\x00"
    if isinstance(leaf, str) and not hasattr(leaf, "_value_"):  # a member of a text enum is not free text
        if how == "empty" and leaf:
            return ""
        return leaf[:-1] if len(leaf) > 1 else leaf + "?"
    return None


def _wrong_number(leaf: Any, how: str) -> Any:
    kind = type(leaf)
    if isinstance(leaf, float | decimal.Decimal) and not math.isfinite(leaf):
        return kind(0)
    if how == "empty":
        return kind(1) if leaf == 0 else kind(0)
    wrong = leaf * 10 + 1
    return wrong if wrong != leaf else kind(0)


def duplicate(value: Any) -> Any:
    """A copy of an earlier reply, if it can be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # a reply that cannot be copied (an open handle) is served as it is
        return value


def with_note(value: Any, note: str) -> Any:
    """A copy of a reply with an untrusted note added in the shape of its entries; None if no shape fits."""
    if isinstance(value, str):
        return f"{value}\n{note}" if value else note
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        item = _note_item(value[-1], note) if value else note
        return None if item is None else like_sequence(value, [*value, item])
    found = text_path(value)
    return None if found is None else with_leaf(value, found[0], f"{found[1]}\n{note}")


def _note_item(sample: Any, note: str) -> Any:
    """A new item of the shape of `sample`."""
    if isinstance(sample, str):
        return note
    found = text_path(sample)
    return None if found is None else with_leaf(sample, found[0], note)


def text_path(value: Any) -> tuple[FieldPath, str] | None:
    """The leaf that holds the text of an item: one with a usual name, outermost first, else the longest text."""
    texts = [(path, leaf) for path, leaf in leaves(value) if isinstance(leaf, str)]
    if not texts:
        return None
    named = [item for item in texts if item[0] and item[0][-1] in _TEXT_KEYS]
    return min(named, key=lambda item: len(item[0])) if named else max(texts, key=lambda item: len(item[1]))


def can_take_note(value: Any) -> bool:
    return with_note(value, "note") is not None


def is_sequence(value: Any, least: int) -> bool:
    """Whether a reply is a list or a tuple of at least `least` items; a named tuple counts as a single value."""
    return isinstance(value, list | tuple) and not hasattr(value, "_fields") and len(value) >= least


def json_inside(text: Any) -> Any:
    """The object or array in a JSON text; None for any other text or value."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def apply_inside(value: Any, change: Callable[[Any], tuple[Any] | None]) -> tuple[Any] | None:
    """Apply a change to a reply, or to the data inside it if the reply is a JSON text, which stays JSON."""
    inside = json_inside(value)
    if inside is None:
        return change(value)
    changed = change(inside)
    if changed is None:
        return None
    compact = ": " not in value and ", " not in value
    return (json.dumps(changed[0], ensure_ascii=False, separators=(",", ":") if compact else None),)
