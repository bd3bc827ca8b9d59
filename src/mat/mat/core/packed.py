"""Runs as short JSON text, fast both ways: what a journal keeps of thousands of them (L5 holds here too).

A dataclass becomes the list of its fields in their order, so a text speaks of the classes as they are in this version and of
no other; files that outlive a version are written by `mat.core.codec`. Nothing is converted: 1, 1.0 and True stay apart.
Packing and unpacking are functions written once per class, because a run holds hundreds of values.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from mat.core.codec import freeze
from mat.core.digest import plain
from mat.core.errors import CodecError
from mat.core.run import Run
from mat.core.site import Site, parse_site
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.core.value import EMPTY, FrozenDict, FrozenList, fast_constructor

Convert: TypeAlias = Callable[[Any], Any]
_text: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_ELSEWHERE: Final = RunSpec()
"""Stands in a text for the spec that its reader knows."""


def pack(run: Run, spec: RunSpec) -> str:
    """A run as one line of ASCII; of one that was asked for under `spec`, only the schedule is written.

    CodecError where the run holds what no run holds.
    """
    ours = run.spec.under(NO_SCHEDULE) == spec
    slim = dataclasses.replace(run, spec=_ELSEWHERE) if ours else run
    try:
        try:  # values are JSON as they are, as a rule, and one pass in C writes all of them
            text = _text([_schedule(run, ours, "value"), _packer(Run, "value")(slim)])
        except (TypeError, ValueError):  # bytes, and numbers that JSON lacks
            text = ""
        if not text or '"$' in text:  # or a key that looks like a tag
            text = _text([_schedule(run, ours, "plain(value)"), _packer(Run, "plain(value)")(slim)])
    except (TypeError, ValueError, AttributeError) as error:
        raise CodecError(what=f"the run cannot be packed: {error}", why="it holds what no recorded run holds") from None
    return text


def unpack(text: str | bytes, spec: RunSpec) -> Run:
    """The inverse of `pack`; CodecError for anything that it does not write."""
    try:
        schedule, data = json.loads(text)
        run: Run = _unpacker(Run)(data)
        return run if schedule is None else dataclasses.replace(run, spec=spec.under(_unpacker(Schedule)(schedule)))
    except (CodecError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise CodecError(what=f"not a packed run: {error}", why="the text is damaged, or of another version") from None


def _schedule(run: Run, ours: bool, value: str) -> Any:
    return _packer(Schedule, value)(run.spec.schedule) if ours else None


# -- packing ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def _packer(kind: Any, value: str) -> Convert:
    """A function from an instance to a list; `value` is the expression that makes JSON data of a recorded value."""
    names: dict[str, Any] = {"plain": plain}
    parts = [_packed(hint, f"it.{name}", value, names) for name, hint in _fields(kind)]
    return _made(f"lambda it: [{', '.join(parts)}]", names)


def _packed(hint: Any, it: str, value: str, names: dict[str, Any]) -> str:
    """The expression that packs `it`. Tuples of scalars are JSON as they are."""
    kind, inner = _shape(hint)
    if kind == "value":
        return value.replace("value", it)
    if kind == "site":
        return f"str({it})"
    if kind == "data":
        names[f"pack_{inner.__name__}"] = _packer(inner, value)
        return f"pack_{inner.__name__}({it})"
    if kind == "optional":
        part = _packed(inner, it, value, names)
        return it if part == it else f"(None if {it} is None else {part})"
    if kind == "many":
        part = _packed(inner, "part", value, names)
        return it if part == "part" else f"([{part} for part in {it}] if {it} else ())"
    return it


# -- unpacking ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def _unpacker(kind: Any) -> Convert:
    """A function from a list to an instance; TypeError or ValueError where a part is not of its field's type."""
    fields = _fields(kind)
    names: dict[str, Any] = {"make": kind if kind is Schedule else fast_constructor(kind), "refuse": _refuse}
    parts = [_unpacked(hint, name, names) for name, hint in fields]
    given = ", ".join(name for name, _ in fields)
    source = (
        f"def read(data):\n    if type(data) is not list:\n        refuse({kind.__name__!r}, data)\n"
        f"    ({given},) = data\n    return make({', '.join(parts)})\n"
    )
    space = dict(names)
    exec(source, space)  # the names come from our own dataclasses
    return space["read"]  # type: ignore[no-any-return]


def _unpacked(hint: Any, it: str, names: dict[str, Any]) -> str:
    """The expression that checks and unpacks `it`."""
    kind, inner = _shape(hint)
    if kind == "data":
        names[f"read_{inner.__name__}"] = _unpacker(inner)
        return f"read_{inner.__name__}({it})"
    if kind == "optional":
        return f"(None if {it} is None else {_unpacked(inner, it, names)})"
    if kind == "many":
        names["read_items"] = _items
        return f"(tuple([{_unpacked(inner, 'part', names)} for part in read_items({it})]) if {it} else ())"
    if kind == "few":
        names["read_few"] = _few
        return f"read_few({it}, {len(inner)}, {inner[0].__name__})"
    if kind == "literal":
        names[f"allowed_{it}"] = frozenset(inner)
        return f"({it} if {it} in allowed_{it} else refuse({it!r}, {it}))"
    if kind == "number":
        return f"({it} if type({it}) is float or type({it}) is int else refuse({it!r}, {it}))"
    if kind == "scalar":
        return f"({it} if type({it}) is {inner.__name__} else refuse({it!r}, {it}))"
    reader = f"read_{_READ[inner].__name__}"
    names[reader] = _READ[inner]
    return f"{reader}({it})"


def _refuse(name: str, value: object) -> Any:
    raise ValueError(f"{name} is {type(value).__name__} here")


def _items(data: object) -> list[Any]:
    return data if type(data) is list else _refuse("a sequence", data)  # type: ignore[no-any-return]


def _few(data: object, size: int, kind: type) -> tuple[Any, ...]:
    if type(data) is not list or len(data) != size or any(type(part) is not kind for part in data):
        _refuse("a fixed sequence", data)
    return tuple(data)  # type: ignore[arg-type]


def _value(data: Any) -> Any:
    return freeze(data) if type(data) is dict or type(data) is list else data


def _frozen_dict(data: Any) -> FrozenDict:
    if type(data) is not dict:
        _refuse("a mapping", data)
    found = freeze(data) if data else EMPTY
    return found if type(found) is FrozenDict else _refuse("a mapping", found)  # type: ignore[no-any-return]


def _frozen_list(data: Any) -> FrozenList:
    return FrozenList(freeze(part) for part in _items(data))


def _site(data: Any) -> Site:
    return parse_site(data) if type(data) is str else _refuse("a site", data)  # type: ignore[no-any-return]


_READ: Final[dict[Any, Convert]] = {None: _value, FrozenDict: _frozen_dict, FrozenList: _frozen_list, Site: _site}


# -- shapes of fields ---------------------------------------------------------------------------------------------------


def _fields(kind: Any) -> Sequence[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


def _shape(hint: Any) -> tuple[str, Any]:
    """What kind of field a type hint speaks of, and what is in it. AssertionError for a kind that no run has."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return "value", None
    if hint is FrozenDict or hint is FrozenList:
        return "value", hint
    if hint is Site:
        return "site", Site
    if origin is Literal:
        return "literal", inner
    if origin is tuple:
        return ("many", inner[0]) if inner[1:] == (...,) else ("few", inner)
    if origin is Union or origin is UnionType:
        (rest,) = [part for part in inner if part is not NoneType]
        return "optional", rest
    if dataclasses.is_dataclass(hint):
        return "data", hint
    assert hint in (str, int, bool, float), hint
    return ("number" if hint is float else "scalar"), hint


def _made(source: str, names: dict[str, Any]) -> Convert:
    return eval(source, names)  # type: ignore[no-any-return]  # the names come from our own dataclasses
