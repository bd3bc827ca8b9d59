"""Convert values to JSON and back. pydantic validates here, at the edge, and never in the hot path."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from mat.core import limits
from mat.core.digest import plain
from mat.core.errors import CodecError
from mat.core.site import Site
from mat.core.spec import Schedule

FORMAT: Final = 1
"""The version of every file that we write. A reader refuses a later version and says why."""

T = TypeVar("T")


def written(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of one of our dataclasses that are written to files, by name."""
    for name, sparse in _fields_to_write(cast(Hashable, type(value))):
        item = getattr(value, name)
        if item or not sparse:
            yield name, item


@lru_cache(maxsize=256)
def _fields_to_write(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of one of our dataclasses, and whether each is written only if it is not empty."""
    return tuple((field.name, bool(field.metadata.get("sparse"))) for field in dataclasses.fields(kind))


def encode(value: Any) -> Any:
    """JSON data for one of our frozen dataclasses (or a tuple of them): field by field, sites as text."""
    if isinstance(value, Site):
        return str(value)
    if isinstance(value, Schedule):
        return [encode(item) for item in value.perturbations]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(item) for name, item in written(value)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return plain(value)


def decode(kind: type[T], data: object, *, where: str = "", name: str = "") -> T:
    """A frozen dataclass from JSON data; CodecError lists every problem found, with its path.

    `name`: what the error calls the data; by default the words of the class's name.
    """
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(cast(Hashable, kind)).validate_python(data))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'value'}: {_problem(item)}" for item in error.errors()[:10]
        )
        raise CodecError(
            what=f"not {_with_article(name or _words(kind.__name__))}: {problems}",
            why="the data does not have the fields and types of the format",
            fix="restore the file from version control, or record it again",
            where=where,
        ) from None


def _problem(item: Any) -> str:
    """What pydantic says, without the names of our classes."""
    return "Input should be an object" if item["type"] == "dataclass_type" else str(item["msg"])


def _words(class_name: str) -> str:
    """`RunSpec` -> "run spec"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", class_name).strip("_").lower()


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def load_json(text: str | bytes, *, where: str) -> Any:
    """Parse JSON from outside, limited in size and depth; CodecError says where it is invalid."""
    if len(text) > limits.FILE_BYTES:
        raise CodecError(
            what=f"{where} has {len(text):,} bytes; the limit is {limits.FILE_BYTES:,}",
            why="files have a size limit, because they may come from others",
            fix="record it again with a smaller horizon",
            where=where,
        )
    try:
        data = json.loads(text)
    except RecursionError:
        raise CodecError(what=f"{where} is nested too deeply", why="files have a nesting limit", where=where) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise CodecError(
            what=f"{where} is not JSON: {error}",
            why="it may be another kind of file, half-written, or edited by hand",
            fix="give a JSON file; restore a damaged file from version control, or make it again",
            where=where,
        ) from None
    _check_depth(data, where)
    return data


def _check_depth(data: Any, where: str) -> None:
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > limits.FILE_DEPTH:
            raise CodecError(what=f"{where} is nested more than {limits.FILE_DEPTH} deep", where=where)
        level = [
            item
            for parent in level
            if isinstance(parent, dict | list)
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, dict | list)
        ]
