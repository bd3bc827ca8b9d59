"""Predicates on arguments as data, so that they can be recorded and compared: patterns, lengths, URLs, folders.

Each is called with a value and says whether it is allowed. `values_at` finds nested arguments; `narrower` says whether one
allow-list is contained in another; `allowed_data` and `allowed_from` convert to recorded values and back. They are here because
capabilities, resource contracts and contract templates all use them.

Source: A5.1.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from mat.core.allowed import Allowed, is_allow_list, is_range, within
from mat.core.digest import canonical
from mat.core.errors import CodecError, SpecError
from mat.core.value import FrozenDict, FrozenList, Value, snapshot

_PORTS: Final = {"https": 443, "http": 80, "wss": 443, "ws": 80, "ftp": 21}
_UNCLEAR: Final = re.compile(r"[\s\\\x00-\x1f\x7f]")
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A text that a regular expression matches from its first to its last character, in time linear in its length."""

    expression: str

    @property
    def __name__(self) -> str:
        return f"the pattern {self.expression}"

    def __call__(self, value: Any) -> bool:
        return isinstance(value, str) and _matcher(self.expression)(value)


@lru_cache(maxsize=1024)
def _matcher(expression: str) -> Callable[[str], bool]:
    """Whether a whole text matches. SpecError for an expression that the engine does not have.

    The engine is that of Rust, which pydantic brings: it does not backtrack, so no text is slow.
    """
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        re.compile(expression)
        schema = core_schema.str_schema(pattern=rf"\A(?:{expression})\z", regex_engine="rust-regex")
        matches = SchemaValidator(schema).isinstance_python
    except (re.error, TypeError) as error:
        raise SpecError(what=f"{expression!r} is not a regular expression: {error}", fix="see the re module") from error
    except SchemaError as error:
        raise SpecError(
            what=f"{expression!r} cannot be matched in linear time: {str(error).rpartition('error: ')[2].strip()}",
            why="a text that somebody else wrote must not decide how long a check takes",
            fix="write it without look-around, back-references and large counts, in the syntax of pydantic's patterns "
            "(docs.rs/regex), or give a function",
        ) from error
    return lambda text: matches(text if text.isascii() else text.encode("utf-8", "replace").decode())


@dataclass(frozen=True, kw_only=True)
class Length:
    """A text, bytes or list of `least` to `most` characters or items."""

    least: int
    most: int

    @property
    def __name__(self) -> str:
        return f"a length of {self.least}..{self.most}"

    def __call__(self, value: Any) -> bool:
        return isinstance(value, str | list | bytes) and self.least <= len(value) <= self.most


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A URL of one of some hosts (exact, no subdomains), at or below one of some paths; see `endpoint`."""

    hosts: tuple[str, ...]
    paths: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ("https",)
    port: int | None = None

    @property
    def __name__(self) -> str:
        return f"the endpoint {', '.join(self.hosts)}{' ' + ', '.join(self.paths) if self.paths else ''}"

    def __call__(self, value: Any) -> bool:
        if not isinstance(value, str) or _UNCLEAR.search(value):
            return False
        try:
            url = urlsplit(value)
            given = url.port
        except ValueError:
            return False
        if url.scheme not in self.schemes or "@" in url.netloc or (url.hostname or "") not in self.hosts:
            return False
        own = _PORTS.get(url.scheme)
        if (own if given is None else given) != (own if self.port is None else self.port):
            return False
        readings = _path_readings(url.path)
        return bool(readings) and (not self.paths or all(any(_below(path, item) for item in self.paths) for path in readings))


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A POSIX path at or below one of some folders, after `.`, `..` and doubled slashes are resolved; see `folder`."""

    paths: tuple[str, ...]

    @property
    def __name__(self) -> str:
        return f"the folder {', '.join(self.paths)}"

    def __call__(self, value: Any) -> bool:
        if not isinstance(value, str) or not value or "\x00" in value or "\\" in value or value.startswith("~"):
            return False
        absolute = value.startswith("/")
        path = posixpath.normpath(re.sub(r"^/+", "/", value))
        return any(_below(path, item) for item in self.paths if item.startswith("/") == absolute)


def _path_readings(path: str) -> tuple[str, ...]:
    """The path of a URL with its dots resolved: as it stands, and with percent signs decoded, because servers do either.

    Empty if it is percent-encoded more than once, or has white space or a backslash.
    """
    decoded = unquote(path)
    if _ENCODED.search(decoded) or _UNCLEAR.search(decoded):
        return ()
    return tuple(posixpath.normpath("/" + reading.lstrip("/")) for reading in dict.fromkeys((path, decoded)))


def _below(path: str, top: str) -> bool:
    """Whether a normal path is `top` or below it: `/v1/x` is below `/v1`, `/v10` is not."""
    if top == ".":
        return path != ".." and not path.startswith("../")
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def _names(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(sorted(set(given)))
    if not found or not all(isinstance(name, str) and name for name in found):
        raise SpecError(what=f"{what}={given!r} is empty", fix=f"give {what} as a string or several strings")
    return found


def pattern(expression: str) -> Pattern:
    """A predicate: a text that a regular expression matches from its first to its last character.

    The syntax is that of pydantic's patterns (the regex crate of Rust), without look-around and back-references, so that any
    text is matched in linear time. Returns a Pattern, to be called with a value. Raises `mat.MatError` for an expression that
    is invalid or outside of this syntax.

    >>> from mat_contracts.privilege import pattern
    >>> order = pattern("[A-Z][0-9]+")
    >>> order("A17"), order("A17; B4")
    (True, False)

    Source: A5.1.
    """
    _matcher(expression)
    return Pattern(expression=expression)


def length(least: int, most: int) -> Length:
    """A predicate: a text, bytes or list of `least` to `most` characters or items, both included.

    >>> from mat_contracts.privilege import length
    >>> length(1, 3)("abc"), length(1, 3)("abcd")
    (True, False)

    Source: A5.1.
    """
    for name, count in (("least", least), ("most", most)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise SpecError(what=f"{name}={count!r} is not a length", fix=f"give {name} as an integer >= 0")
    if most < least:
        raise SpecError(what=f"most={most} is less than least={least}", fix="swap them")
    return Length(least=least, most=most)


def endpoint(
    host: str | Iterable[str],
    *,
    paths: str | Iterable[str] = (),
    schemes: str | Iterable[str] = "https",
    port: int | None = None,
) -> Endpoint:
    """A predicate: a URL of one of these hosts (exact, no subdomains), at or below one of `paths`, by default anywhere.

    The URL is parsed, not compared as a text. A URL with a user name, a backslash, white space or a path encoded more than once
    is refused, because parsers disagree about where it points. Dots in the path are resolved, and the path must be allowed both
    as it stands and with its percent signs decoded. `port` None means the scheme's own.

    >>> from mat_contracts.privilege import endpoint
    >>> shop = endpoint("api.shop.example", paths="/v1")
    >>> shop("https://api.shop.example/v1/orders"), shop("https://api.shop.example/v10")
    (True, False)
    """
    hosts = tuple(name.casefold().rstrip(".") for name in _names(host, "host"))
    wrong = [name for name in hosts if not re.fullmatch(r"[^/@:*?#\s]+|[0-9a-f:]+", name)]
    if wrong:
        raise SpecError(
            what=f"{wrong[0]!r} is not a host name",
            why="hosts are compared exactly",
            fix="give the bare name, such as api.shop.example",
        )
    below = tuple(posixpath.normpath("/" + path.strip("/")) for path in (_names(paths, "paths") if paths else ()))
    return Endpoint(hosts=hosts, paths=below, schemes=tuple(name.casefold() for name in _names(schemes, "schemes")), port=port)


def folder(path: str | Iterable[str]) -> Folder:
    """A predicate: a POSIX path at or below one of these. Relative paths are allowed only below relative ones.

    >>> from mat_contracts.privilege import folder
    >>> folder("/data")("/data/a.txt"), folder("/data")("/data/../etc/passwd")
    (True, False)

    Source: A5.1.
    """
    return Folder(paths=tuple(posixpath.normpath(re.sub(r"^/+", "/", item)) for item in _names(path, "path")))


# -- nested arguments ---------------------------------------------------------------------------------------------------

MISSING: Final = object()


def values_at(arguments: Mapping[str, Any], path: str) -> list[Any]:
    """The values that a path names: a parameter, or `body.amount`, `to.0` and `to.*` inside one; MISSING where there is none.

    `*` matches every member of a list or mapping; for an empty one there is no value, and nothing is missing. A name may
    contain full stops itself: then all that the path can mean is returned, so that one does not hide the other.

    >>> values_at({"body": {"amount": 5000}, "body.amount": 1}, "body.amount")
    [5000, 1]
    """
    return _inside(arguments, path.split("."))


def _inside(value: Any, parts: Sequence[str]) -> list[Any]:
    if not parts:
        return [value]
    first, rest = parts[0], parts[1:]
    if first == "*" and isinstance(value, Mapping | list | tuple):
        members = value.values() if isinstance(value, Mapping) else value
        return [found for member in members for found in _inside(member, rest)]
    if isinstance(value, Mapping):
        names = ((".".join(parts[:size]), parts[size:]) for size in range(1, len(parts) + 1))
        return [found for name, inner in names if name in value for found in _inside(value[name], inner)] or [MISSING]
    if isinstance(value, list | tuple) and first.isdecimal() and int(first) < len(value):
        return _inside(value[int(first)], rest)
    return [MISSING]


# -- allow-lists as data ------------------------------------------------------------------------------------------------

_KNOWN: Final = {"pattern": Pattern, "length": Length, "endpoint": Endpoint, "folder": Folder}


def allowed_data(allowed: Allowed, where: str) -> FrozenDict:
    """The recorded form of an allow-list. SpecError for a predicate that is a function: a record holds data only."""
    for name, kind in _KNOWN.items():
        if isinstance(allowed, kind):
            return FrozenDict({name: snapshot(allowed, where)})
    if callable(allowed):
        raise SpecError(
            what=f"{where} is a function, which cannot be recorded",
            why="the trace records every grant",
            fix="use a set of values, a (least, most) range, pattern(...), length(...), endpoint(...) or folder(...)",
        )
    if not is_allow_list(allowed):
        raise SpecError(
            what=f"{where}={allowed!r} is not an allow-list",
            why="a plain string would allow each of its substrings, and any other single value is ambiguous",
            fix="use a set of values, a (least, most) range, pattern(...), length(...), endpoint(...) or folder(...)",
        )
    if is_range(allowed):
        return FrozenDict({"range": FrozenList(allowed)})
    values: list[Value] = sorted((snapshot(item, where) for item in allowed), key=canonical)
    return FrozenDict({"values": FrozenList(values)})


def allowed_from(data: object, where: str) -> Allowed:
    """The allow-list of a recorded form; CodecError if it is not one."""
    if isinstance(data, Mapping) and len(data) == 1:
        ((name, value),) = data.items()
        if name == "values" and isinstance(value, list):
            return list(value)
        if name == "range" and isinstance(value, list) and is_range(tuple(value)):
            return (value[0], value[1])
        if name in _KNOWN and isinstance(value, Mapping):
            fields = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
            try:
                made: Allowed = _KNOWN[name](**fields)
            except TypeError:
                pass
            else:
                return made
    raise CodecError(what=f"{where} is not a recorded allow-list: {data!r}", fix="record it with mat.grant", where=where)


def narrower(inner: Allowed, outer: Allowed) -> bool:
    """Whether `outer` provably allows everything that `inner` allows; for functions of users, only if they are equal."""
    if inner == outer and type(inner) is type(outer):
        return True
    if callable(inner):
        return _narrower_data(inner, outer)
    if not is_range(inner):
        return all(within(outer, item) for item in inner)
    if callable(outer) or not is_range(outer):
        return False
    (least, most), (lowest, highest) = inner, outer
    return bool(lowest <= least and most <= highest)


def _narrower_data(inner: Any, outer: Any) -> bool:
    if isinstance(inner, Length) and isinstance(outer, Length):
        return outer.least <= inner.least and inner.most <= outer.most
    if isinstance(inner, Folder) and isinstance(outer, Folder):
        return all(outer(path) for path in inner.paths)
    if isinstance(inner, Endpoint) and isinstance(outer, Endpoint):
        fits = set(inner.hosts) <= set(outer.hosts) and set(inner.schemes) <= set(outer.schemes) and inner.port == outer.port
        return fits and (
            not outer.paths or (bool(inner.paths) and all(any(_below(p, top) for top in outer.paths) for p in inner.paths))
        )
    return False
