"""Pack runs into short JSON text and back, quickly: a journal keeps thousands of them (L5 holds here too).

A dataclass becomes the list of its fields in order, so a packed text is valid only for the classes of this version;
files that outlive a version are written by `mat.core.codec`. Nothing is converted: 1, 1.0 and True stay distinct.
Packing and unpacking are functions written once per class, because a run holds hundreds of values.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from mat.core.digest import plain
from mat.core.errors import CodecError, SpecError
from mat.core.record import Observation, Record
from mat.core.run import Run, TapeEntry
from mat.core.site import Site, parse_site
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.core.value import EMPTY, FrozenDict, FrozenList, fast_constructor, freeze
from mat.core.verdict import Verdict

Convert: TypeAlias = Callable[[Any], Any]
_text: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_ELSEWHERE: Final = RunSpec()
"""Replaces the spec in a text whose reader knows it."""


def pack(run: Run, spec: RunSpec) -> str:
    """A run as one line of ASCII; if the run was requested under `spec`, only its schedule is written.

    CodecError if the run contains a value that no run can contain.
    """
    try:
        try:  # values are JSON as they are, as a rule, and one pass in C writes all of them
            text = _text(_packed_run(run, spec, "value"))
        except (TypeError, ValueError):  # bytes, and numbers that JSON lacks
            text = ""
        if not text or '"$' in text:  # or a key that looks like a tag
            text = _text(_packed_run(run, spec, "plain(value)"))
    except (TypeError, ValueError, AttributeError) as error:
        raise CodecError(what=f"the run cannot be packed: {error}", why="recorded runs cannot contain such a value") from None
    return text


def unpack(data: Any, spec: RunSpec) -> Run:
    """The inverse of `pack`, from the JSON data of its text; CodecError for any other data."""
    try:
        schedule, packed, tape = data
        run: Run = _unpacker(Run)(packed)
        under = run.spec if schedule is None else spec.under(_unpacker(Schedule)(schedule))
        return dataclasses.replace(run, spec=under, tape=tuple([_tape_entry(entry, run.records) for entry in tape]))
    except (CodecError, SpecError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise CodecError(what=f"not a packed run: {error}", why="the text is damaged, or another version wrote it") from None


def _packed_run(run: Run, spec: RunSpec, value: str) -> list[Any]:
    """[schedule, or None where the run tells its whole spec; the run without its tape; the tape]."""
    ours = run.spec.under(NO_SCHEDULE) == spec
    slim = dataclasses.replace(run, spec=_ELSEWHERE if ours else run.spec, tape=())
    schedule = _packer(Schedule, value)(run.spec.schedule) if ours else None
    return [schedule, _packer(Run, value)(slim), _packed_tape(run, _packer(TapeEntry, value))]


def _packed_tape(run: Run, entry: Convert) -> list[Any]:
    """Usually a port's reply is delivered unchanged: then the number of its step replaces site and value."""
    records = {record.site: (index, record.observation.value) for index, record in enumerate(run.records)}
    found = []
    for item in run.tape:
        index, value = records.get(item.site, (-1, None))
        if index >= 0 and value is item.value:
            found.append([index, item.request, item.mode, item.error, item.opaque, item.retry_after_ms])
        else:
            found.append(entry(item))
    return found


def _tape_entry(data: Any, records: Sequence[Record]) -> TapeEntry:
    if type(data) is not list or type(data[0]) is not int:
        whole: TapeEntry = _unpacker(TapeEntry)(data)
        return whole
    index, request, mode, *rest = data
    record = records[index]
    entry: TapeEntry = _unpacker(TapeEntry)([record.site, request, mode, None, *rest])
    return dataclasses.replace(entry, value=record.observation.value)


# -- packing ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def _packer(kind: Any, value: str) -> Convert:
    """A function from an instance to a list; `value` is the expression that makes JSON data of a recorded value."""
    names: dict[str, Any] = {"plain": plain}
    common, rare = fields_of(kind)
    parts = [_packed(hint, f"it.{name}", value, names) for name, hint in common]
    more = [_packed(hint, f"it.{name}", value, names) for name, hint in rare]
    short = f"[{', '.join(parts)}]"
    if rare:
        given = " or ".join(f"it.{name}{' is not None' if _shape(hint)[0] == 'optional' else ''}" for name, hint in rare)
        short = f"[{', '.join([*parts, f'[{chr(44).join(more)}]'])}] if {given} else {short}"
    made: Convert = eval(f"lambda it: {short}", names)  # the names come from our own dataclasses
    return made


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
    common, rare = fields_of(kind)
    names: dict[str, Any] = {"refuse": _refuse, "make": kind if kind is Schedule else fast_constructor(kind)}
    parts = {name: _unpacked(hint, f"its_{name}", names) for name, hint in (*common, *rare)}
    listed = ", ".join(parts[field.name] for field in dataclasses.fields(kind))
    known = "".join(f"its_{name}, " for name, _ in common)
    lines = ["def read(data):", f"    if type(data) is not list: refuse({kind.__name__!r}, data)"]
    if rare:
        missing = ", ".join(absent(hint) for _, hint in rare)
        lines += [f"    {known}*rest = data", "    if len(rest) > 1: refuse('a surplus', rest)"]
        lines += [f"    {', '.join(f'its_{name}' for name, _ in rare)}, = rest[0] if rest else ({missing},)"]
    else:
        lines += [f"    {known} = data"]
    exec("\n".join([*lines, f"    return make({listed})"]), names)  # the names come from our own dataclasses
    read: Convert = names["read"]
    return read


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
        return f"tuple([{_unpacked(inner, 'part', names)} for part in read_items({it})])"
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
    raise ValueError(f"{name.removeprefix('its_')} cannot be of type {type(value).__name__}")


def _items(data: object) -> list[Any]:
    return data if type(data) is list else _refuse("a sequence", data)


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
    return found if type(found) is FrozenDict else _refuse("a mapping", found)


def _frozen_list(data: Any) -> FrozenList:
    return FrozenList(freeze(part) for part in _items(data))


def _site(data: Any) -> Site:
    return parse_site(data) if type(data) is str else _refuse("a site", data)


_READ: Final[dict[Any, Convert]] = {None: _value, FrozenDict: _frozen_dict, FrozenList: _frozen_list, Site: _site}


# -- shapes of fields ---------------------------------------------------------------------------------------------------


_RARE: Final[dict[Any, Sequence[str]]] = {
    Record: ("role", "state", "mediation", "links", "executed", "raw", "faults", "taped"),
    Observation: ("error", "cancelled", "chunks", "opaque", "usage"),
    Verdict: ("violations", "mitigation"),
}
"""Fields that are usually empty; they are written only if one of them is not."""
_Fields: TypeAlias = list[tuple[str, Any]]


def fields_of(kind: Any) -> tuple[_Fields, _Fields]:
    """Names and type hints of a class's fields: those that are always written, and the rare ones."""
    hints = get_type_hints(kind, include_extras=True)
    rare = _RARE.get(kind, ())
    fields = [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]
    return [item for item in fields if item[0] not in rare], [item for item in fields if item[0] in rare]


def absent(hint: Any) -> str:
    """The JSON data of a rare field that is not written."""
    kind, inner = _shape(hint)
    return {"optional": "None", "many": "[]", "scalar": "False" if inner is bool else "''"}.get(kind, "{}")


def _shape(hint: Any) -> tuple[str, Any]:
    """The kind of field that a type hint describes, and its parts. AssertionError for a kind that no run has."""
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
