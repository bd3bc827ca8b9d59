"""Files that people write, read as untrusted input: YAML or JSON with lines, and what is wrong with them in words.

Policies and resource contracts share this. A file says what from a closed vocabulary; nothing in it is imported, evaluated or
called. `Reader` notes every problem with its place and line, so that one SpecError tells them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

from mat.core import limits
from mat.core.allowed import Allowed
from mat.core.codec import load_json
from mat.core.endpoint import endpoint, folder, length, pattern
from mat.core.errors import MatError, SpecError, did_you_mean

Where: TypeAlias = tuple[str | int, ...]
"""Where something stands in a file: keys, and places in lists."""
Scalar: TypeAlias = str | int | float | bool | None
Names: TypeAlias = str | tuple[str, ...]
STRICT: Final = {"extra": "forbid", "strict": True}
"""pydantic's configuration of a class that is read from a file."""
_T = TypeVar("_T")


# -- what a value may be ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    __pydantic_config__ = STRICT
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    __pydantic_config__ = STRICT
    hosts: Names
    schemes: Names = ("https",)
    paths: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a value may be; exactly one of these, `least` and `most` being one."""

    __pydantic_config__ = STRICT
    values: tuple[Scalar, ...] | None = None
    least: int | float | None = None
    most: int | float | None = None
    pattern: str | None = None
    length: Range | None = None
    endpoint: Address | None = None
    folder: Names | None = None


Fits: TypeAlias = tuple[Scalar, ...] | Values
_EXPRESSION_CHARS: Final = 1_000
"""Length of a regular expression that we agree to compile."""


# -- reading ----------------------------------------------------------------------------------------------------------


def text_of(path: Path, kind: str) -> str:
    """The text of a .yaml, .yml or .json file of some kind, such as "policy"; SpecError where it cannot be read."""
    try:
        size = path.stat().st_size
        if size > limits.FILE_BYTES:
            raise SpecError(f"{path.name} has {size} bytes, the limit is {limits.FILE_BYTES}", fix="split it", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read the {kind} {path.name}: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"the {kind} {path.name} is not UTF-8: {error.reason}", where=str(path)) from error
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise SpecError(f"{path.name} is no {kind} file", fix="name it .yaml, .yml or .json", where=str(path))
    return text


def data_of(text: str, *, json: bool, kind: str, where: str) -> tuple[Any, dict[Where, int]]:
    """(what a text holds, the line of everything in it); SpecError where it is neither YAML nor JSON, or beyond the limits."""
    return _read_json(text, kind, where) if json else _read_yaml(text, kind, where)


class Reader:
    """Makes values of data from a file, and keeps what is wrong with it. `inside`: key -> the class of what stands below it."""

    def __init__(self, lines: Mapping[Where, int], where: str, *, inside: Mapping[str, type[Any]] = {}) -> None:
        self._lines, self._where, self._inside = lines, where, {**_INSIDE, **inside}
        self.problems: list[str] = []
        self._told: set[str] = set()
        self.noted = 0
        """How often a problem was met: what is read twice tells its problems once, and is no less wrong."""

    def error(self, kind: str, *, why: str, fix: str) -> SpecError:
        """All problems in one."""
        count = len(self.problems)
        return SpecError(
            what=f"the {kind} has {count} problem{'s' * (count > 1)}: {'; '.join(self.problems)}",
            why=why, fix=fix, where=self._where,
        )  # fmt: skip

    def problem(self, at: Where, said: str) -> None:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".") or "the file"
        line = next((self._lines[at[:size]] for size in range(len(at), -1, -1) if at[:size] in self._lines), None)
        text = f"{place}{'' if line is None else f' (line {line})'}: {said}"
        self.noted += 1
        if text not in self._told:
            self._told.add(text)
            self.problems.append(text)

    def read(self, kind: type[_T], data: object, at: Where) -> _T | None:
        """Data as a class with STRICT as its configuration, or None with its problems noted."""
        from pydantic import ValidationError

        try:
            return cast(_T, _adapter(cast(Hashable, kind)).validate_json(json.dumps(data)))
        except ValidationError as error:
            for place, said in _explained(kind, error, at, self._inside):
                self.problem(place, said)
        return None

    def tried(self, at: Where, make: Callable[[], _T]) -> _T | None:
        """What a builder makes, or None with what it refused noted."""
        try:
            return make()
        except MatError as error:
            self.problem(at, error.what)
        return None

    def named(self, name: str, known: Mapping[str, _T], *, what: str, argument: str, at: Where) -> _T | None:
        """A function that a file names and whoever loads it gives, or None with the problem noted."""
        if name not in known:
            given = f"given were {', '.join(sorted(known))}" if known else "none were given"
            self.problem(at, f"no {what} is called {name!r}{did_you_mean(name, known)}; {given} to load({argument}=)")
            return None
        return known[name]

    def allowed(self, fits: Fits, at: Where) -> Allowed | None:
        """An allow-list from its data."""
        if not isinstance(fits, Values):
            return list(fits)
        said = [name for name in ("values", "pattern", "length", "endpoint", "folder") if getattr(fits, name) is not None]
        if fits.least is not None or fits.most is not None:
            said.append("least and most")
        if len(said) != 1:
            self.problem(at, f"it says {' and '.join(said) if said else 'nothing'}; one of values, least and most, pattern, "
                              "length, endpoint, folder says what is allowed")  # fmt: skip
            return None
        if fits.values is not None:
            return list(fits.values)
        if said == ["least and most"]:
            least = float("-inf") if fits.least is None else fits.least
            most = float("inf") if fits.most is None else fits.most
            if least > most:
                self.problem(at, f"least {least} is more than most {most}")
                return None
            return (least, most)
        return self.tried(at, lambda: _predicate(fits))


def short_expression(expression: str | None) -> None:
    """SpecError for a regular expression that is too long to be compiled."""
    if expression is not None and len(expression) > _EXPRESSION_CHARS:
        raise SpecError(f"a regular expression of {len(expression)} characters", fix=f"use at most {_EXPRESSION_CHARS}")


def _predicate(fits: Values) -> Allowed:
    """A predicate that is data."""
    if fits.pattern is not None:
        short_expression(fits.pattern)
        return pattern(fits.pattern)
    if fits.length is not None:
        return length(fits.length.least, fits.length.most)
    if fits.endpoint is not None:
        return endpoint(fits.endpoint.hosts, schemes=fits.endpoint.schemes, paths=fits.endpoint.paths)
    assert fits.folder is not None
    return folder(fits.folder)


# -- formats ----------------------------------------------------------------------------------------------------------


def _read_json(text: str, kind: str, where: str) -> tuple[Any, dict[Where, int]]:
    try:
        load_json(text, where=where)
    except MatError as error:
        raise SpecError(error.what, why=error.why, fix=error.fix, where=where) from None
    doubles: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in found]
        doubles.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(found)

    def constant(name: str) -> Any:
        raise SpecError(f"{name} is no number of JSON", where=where)

    data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    if doubles:
        raise SpecError(f"the {kind} names {', '.join(map(repr, doubles))} twice", why="one would hide the other", where=where)
    return data, {}


_PLAIN: Final = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+0123456789.")),
)
"""Plain scalars as YAML 1.2 reads them, so that `on` and `no` are words; no dates, no base 60."""


def _read_yaml(text: str, kind: str, where: str) -> tuple[Any, dict[Where, int]]:
    """Data and the line of everything in it. One document, without anchors, aliases and tags, and within limits."""
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise MatError(
            f"a {kind} in YAML needs PyYAML", why="it is not installed; JSON needs nothing",
            fix="pip install 'pytest-mat[yaml]'", where=where,
        ) from None  # fmt: skip
    if len(text) > limits.FILE_BYTES:
        raise SpecError(f"the {kind} has {len(text)} characters, the limit is {limits.FILE_BYTES}", where=where)

    loader: Any = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    for tag, expression, first in _PLAIN:
        loader.add_implicit_resolver(tag, re.compile(rf"^(?:{expression})$"), first)
    try:
        _check_events(yaml, yaml.parse(text, Loader=loader), kind, where)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise SpecError(f"the {kind} is not YAML{line}: {said}", fix="mend the line", where=where) from None
    lines: dict[Where, int] = {}
    doubles: list[str] = []
    data = None if node is None else _from_node(yaml, node, (), lines, doubles)
    if doubles:
        raise SpecError(f"the {kind} says {'; '.join(doubles)}", why="one would hide the other", where=where)
    return data, lines


def _check_events(yaml: Any, events: Iterator[Any], kind: str, where: str) -> None:
    """Refuse what grows, refers or constructs, before anything is built of it."""
    depth = documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise SpecError(
                f"the {kind} has an anchor or alias in line {line}", why="files are read as they stand", where=where
            )
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None):
            raise SpecError(f"the {kind} has a tag in line {line}", why="nothing is constructed from a file", where=where)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > limits.FILE_DEPTH:
                raise SpecError(f"the {kind} is nested more than {limits.FILE_DEPTH} deep in line {line}", where=where)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    if documents > 1:
        raise SpecError(f"the file holds {documents} documents", fix=f"one {kind} a file", where=where)


def _from_node(yaml: Any, node: Any, at: Where, lines: dict[Where, int], doubles: list[str]) -> Any:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_from_node(yaml, item, (*at, place), lines, doubles) for place, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, item in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key in found:
                doubles.append(f"{key!r} twice, again in line {line}")
            lines[(*at, key)] = line
            found[key] = _from_node(yaml, item, (*at, key), lines, doubles)
        return found
    tag, text = node.tag.rpartition(":")[2], node.value
    match tag:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _integer(text, node.start_mark.line + 1)
        case "float":
            return float(text)
    return text


def _integer(text: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:  # more digits than Python reads
        raise SpecError(f"the number in line {line} has {len(text)} digits", fix="write a smaller one") from None


# -- problems in words ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _explained(kind: type[Any], error: Any, at: Where, below: Mapping[str, type[Any]]) -> Iterator[tuple[Where, str]]:
    """pydantic's problems: where each stands, and what is wrong. Of a union's branches, the one that got furthest counts."""
    seen: dict[Where, list[str]] = {}
    for item in error.errors():
        loc = tuple(part for part in item["loc"] if not _is_branch(part))
        if item["type"] == "unexpected_keyword_argument" or item["type"] == "extra_forbidden":
            name = str(item["loc"][-1])
            inside = tuple(part for part in item["loc"][:-1] if not _is_branch(part))
            loc, said = (*inside, name), f"no key is called {name!r}{did_you_mean(name, _keys_of(kind, inside, below))}"
        elif item["type"] in ("missing", "missing_keyword_only_argument"):
            said = "it is missing"
        elif item["type"] == "literal_error":
            expected = str(item.get("ctx", {}).get("expected", "")).replace(" or ", ", ").replace("'", "")
            choices = [choice.strip() for choice in expected.split(",")]
            said = (
                f"{item['input']!r} is not one of {', '.join(filter(None, choices))}{did_you_mean(str(item['input']), choices)}"
            )
        else:
            said = f"{item['msg'][0].lower()}{item['msg'][1:]}, not {kind_of(item['input'])}"
        seen.setdefault((*at, *loc), []).append(said)
    for place, found in seen.items():
        if any(len(other) > len(place) and other[: len(place)] == place for other in seen):
            continue
        unique = list(dict.fromkeys(found))
        keyed = [said for said in unique if said.startswith("no key")]
        yield place, keyed[0] if keyed else " or ".join(unique)


def _is_branch(part: object) -> bool:
    """Whether a part of pydantic's path names a branch of a union, and nothing in the file."""
    return isinstance(part, str) and (part in _BRANCHES or "[" in part or part.startswith("_"))


_BRANCHES: Final = ("str", "int", "float", "bool", "none", "Values", "Range", "Address")


def _keys_of(kind: Any, loc: Where, below: Mapping[str, type[Any]]) -> list[str]:
    """The keys that a class above, or one inside it, takes."""
    found = [item.name for item in fields(kind)]
    for part in loc:
        inside = below.get(str(part))
        if inside is not None:
            found = [item.name for item in fields(inside)]
    return found


_INSIDE: Final[dict[str, type[Any]]] = {"length": Range, "endpoint": Address}


def kind_of(data: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(data), "nothing" if data is None else type(data).__name__)


def sound(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Those keys of some data that the class accepts on their own, in its types."""
    from pydantic import ValidationError

    found: dict[str, Any] = {}
    for item in fields(kind):
        if item.name in data:
            try:
                read = _adapter(cast(Hashable, kind)).validate_json(json.dumps({item.name: data[item.name]}))
            except ValidationError:
                continue
            found[item.name] = getattr(read, item.name)
    return found
