"""Predicates on arguments as data, so that they can be recorded and compared: patterns, lengths, URLs, folders.

Each is called with a value and says whether it is surely inside, for permissions. Its `may_match` says whether the value may be
inside in one of its readings, for restrictions: parsers disagree about odd URLs and paths, and nobody knows which one is behind
a tool. `values_at` finds nested arguments; `narrower` says whether one
allow-list is contained in another; `allowed_data` and `allowed_from` convert to recorded values and back. They are here because
capabilities, resource contracts and contract templates all use them.

Source: A5.1.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from mat.core.allowed import Allowed, is_allow_list, is_range, parts_of, texts_of, within
from mat.core.digest import canonical
from mat.core.errors import CodecError, SpecError
from mat.core.value import FrozenDict, FrozenList, Value, snapshot

_PORTS: Final = {"https": 443, "http": 80, "wss": 443, "ws": 80, "ftp": 21}
_UNCLEAR: Final = re.compile(r"[\s\\\x00-\x1f\x7f]")
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ODD_PATH: Final = re.compile(r"%(?:2[ef]|5c|(?![0-9a-f]{2}))|//", re.IGNORECASE)
"""In the path of a URL: an encoded dot, slash or backslash, a broken escape, or an empty segment."""
_PARAMETER: Final = re.compile(r"/\.{1,2};")
"""A segment of dots with a parameter: some servers take the parameter away, and then follow the dots."""
_DECODINGS: Final = 4
"""How often a text is decoded to find what it may name. One that is encoded more often may name anything."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A text that a regular expression matches from its first to its last character, in time linear in its length."""

    expression: str

    @property
    def __name__(self) -> str:
        return f"the pattern {self.expression}"

    def __call__(self, value: Any) -> bool:
        return isinstance(value, str) and _matcher(self.expression)(value)

    def may_match(self, value: Any) -> bool:
        """Whether a text that the value can be read as, or a text inside it, matches; a dot may be the end of a line."""
        matchers = (_matcher(self.expression), _matcher(f"(?s:{self.expression})"))
        return any(matches(text) for text in texts_of(value) for matches in matchers)


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
        raise SpecError(
            what=f"{expression!r} is not a regular expression: {error}",
            fix="correct the expression, in the syntax of Python's re module",
        ) from error
    except SchemaError as error:
        reason = str(error).rpartition("rror: ")[2].strip().rstrip(".")  # after "error:" of the engine, or "SchemaError:"
        raise SpecError(
            what=f"{expression!r} cannot be matched in linear time: {reason}",
            why="the author of a text must not control how long a check takes",
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

    def may_match(self, value: Any) -> bool:
        """Whether the value, or a text in it or that it can be read as, has such a length. A mapping counts its members."""
        counted = isinstance(value, Mapping) and self.least <= len(value) <= self.most
        return counted or self(value) or any(self(text) for text in texts_of(value))


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
        if url.scheme not in self.schemes or "@" in url.netloc or _host_of(url.netloc) not in self.hosts:
            return False
        own = _PORTS.get(url.scheme)
        if (own if given is None else given) != (own if self.port is None else self.port):
            return False
        if not self.paths:
            return bool(_path_readings(url.path))
        readings = () if _is_odd_path(url.path) else _path_readings(url.path)
        return bool(readings) and all(any(_below(path, item) for item in self.paths) for path in readings)

    def may_match(self, value: Any) -> bool:
        """Whether some parser may find one of the hosts in the value, and nothing shows that the path is another.

        The scheme counts only if `schemes` is not the default, the port only if there is a `port`.
        """
        texts = [_decodings(item) for item in parts_of(value) if isinstance(item, str)]
        return any(_ENCODED.search(_url_parts(found[-1])[1]) or any(map(self._may_name, found)) for found in texts)

    def _may_name(self, text: str) -> bool:
        scheme, authority, path = _url_parts(text)
        if not any(name in self.hosts for part in _HOST_ENDS.split(authority) for name in _host_readings(part)):
            return False
        if scheme in _PORTS and self.schemes != ("https",) and scheme not in self.schemes:
            return False
        ports = re.findall(r":(\d+)", authority) or ([str(_PORTS[scheme])] if scheme in _PORTS else [])
        if self.port is not None and ports and all(found.lstrip("0") != str(self.port) for found in ports):
            return False
        if not self.paths or _is_odd_path(path) or not _path_readings(path):
            return True
        readings = (path, *_path_readings(path))
        return any(_below(reading.lower(), item.lower()) for reading in readings for item in self.paths)


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

    def may_match(self, value: Any) -> bool:
        """Whether the value may name a path in one of the folders, whatever its working folder is.

        A relative path is taken to stay below a working folder that is not itself in the folder, unless it climbs with `..`.
        """
        texts = [_decodings(item) for item in parts_of(value) if isinstance(item, str)]
        return any(_ENCODED.search(found[-1]) or any(map(self._may_name, found)) for found in texts)

    def _may_name(self, text: str) -> bool:
        if text.startswith(("~", "$")):
            return True
        plain = text.removeprefix("file:")
        names = (plain, re.sub(r"^//[^/]*", "", plain)) if plain != text else (text,)
        found = [posixpath.normpath(re.sub(r"^/+", "/", name)).lower() for name in names if name]
        return any(_may_be_below(path, item.lower()) for path in found for item in self.paths)


def _may_be_below(path: str, top: str) -> bool:
    """Whether a normal path may be `top` or below it, where the working folder of either is not known."""
    if path == ".." or path.startswith("../") or top == ".":
        return True
    if path.startswith("/") and top.startswith("/"):
        return _below(path, top)
    names, wanted = path.strip("/").split("/"), top.strip("/").split("/")
    if path.startswith("/") or not top.startswith("/"):  # the relative folder may lie anywhere above
        return any(names[at : at + len(wanted)] == wanted for at in range(len(names)))
    return any(names[: len(wanted) - at] == wanted[at:] for at in range(len(wanted)))


def _decodings(text: str) -> list[str]:
    """What a text may mean to a reader of URLs or paths: without control characters and outer spaces, and percent-decoded.

    The last one is still percent-encoded if the text is encoded more often than is decoded here.
    """
    found = []
    for _ in range(_DECODINGS):
        if "\0" in text:  # where a text ends for C
            found.append(text.partition("\0")[0])
        text = _without_controls(unicodedata.normalize("NFKC", text)).translate(_FULL_STOPS).strip(" <>\"'")
        found += [text.replace("\\", "/"), text] if "\\" in text else [text]
        decoded = unquote(text)
        if decoded == text:
            return found
        text = decoded
    return [*found, text]


def _without_controls(text: str) -> str:
    if text.isascii():
        return _CONTROLS.sub("", text)
    return "".join(char for char in text if unicodedata.category(char) not in ("Cc", "Cf"))


_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]+")
_FULL_STOPS: Final = str.maketrans("\u3002\uff0e\uff61", "...")
_URL_END: Final = re.compile(r"[/?#]")
_PATH_END: Final = re.compile(r"[?#]")
_HOST_ENDS: Final = re.compile(r"[\s@:,;\\\[\]<>\"']+")


def _url_parts(text: str) -> tuple[str, str, str]:
    """(the scheme, all that some parser may take for the authority, the path) of a text that may be a URL."""
    head = _URL_END.split(text, maxsplit=1)[0]
    behind = text[len(head) :]
    rest = _URL_END.split(behind.lstrip("/"), maxsplit=1)[0]
    scheme = head.partition(":")[0].strip().lower() if ":" in head else ""
    leads = not head.strip() or head.endswith(":")
    authority = f"{head}@{rest}" if leads else head
    if "[" in authority:
        authority += "@" + "@".join(re.findall(r"\[([^\[\]]*)\]", authority)).replace(":", "\0")
    after = behind.lstrip("/")[len(rest) :] if leads else behind
    return scheme, authority, _PATH_END.split(after, maxsplit=1)[0]


def _host_readings(name: str) -> Iterator[str]:
    """The hosts that a part of an authority may mean: lower case, ASCII by both editions of IDNA, numbers as addresses."""
    host = name.replace("\0", ":").strip().strip(".").lower()
    yield host
    if not host.isascii():
        yield ".".join(label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in host.split("."))
        yield _idna(host)
    address = _ip_address(host)
    if address is not None:
        mapped = getattr(address, "ipv4_mapped", None)
        yield from (str(found) for found in (address, mapped) if found is not None)


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address in any notation that C's inet_aton reads: 127.1, 0x7f.0.0.1, 2130706433."""
    parts = host.split(".")
    try:
        if ":" in host:
            return ipaddress.ip_address(host)
        if not 1 <= len(parts) <= 4 or len(host) > 64:
            return None
        *high, low = [int(part, 16 if part.startswith("0x") else 8 if re.fullmatch("0[0-7]+", part) else 10) for part in parts]
        number = sum(part << 8 * (3 - at) for at, part in enumerate(high)) + low
        return ipaddress.IPv4Address(number)
    except ValueError:
        return None


def _host_of(netloc: str) -> str:
    """The host of a URL in lower case and ASCII, "" if there is none or it has no clear form."""
    host = urlsplit(f"//{netloc}").hostname or ""
    return host if netloc.isascii() else _ascii_host(re.sub(r":\d*$", "", netloc))


def _ascii_host(name: str) -> str:
    """A host name in lower case and ASCII, "" where the standard library knows no form that leads back to the name."""
    plain = ascii_lower(name)
    if plain.isascii():
        return plain
    found = _idna(plain)
    return found if found and found.encode().decode("idna") == plain else ""


def _idna(host: str) -> str:
    """A host name in ASCII as IDNA 2003 has it, "" if there is none."""
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:
        return ""


def ascii_lower(text: str) -> str:
    """A text with A-Z in lower case. Other letters stay, because some of them would become others: K (Kelvin) the letter k."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _is_odd_path(path: str) -> bool:
    """Whether servers may disagree about where the path of a URL leads, beyond plain dots and percent signs."""
    decoded = unquote(path)
    folded = unicodedata.normalize("NFKC", decoded)
    same = all(folded.count(char) == decoded.count(char) for char in "./\\;%")
    return bool(_ODD_PATH.search(path) or _PARAMETER.search(decoded)) or "\ufffd" in decoded or not same


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

    Returns a Length, to be called with a value. Raises `mat.MatError` for a bound below 0, and if `most` is less than
    `least`.

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

    The URL is parsed, not compared as a text. A URL with a user name, a backslash, white space or a path encoded more than
    once is refused, because parsers disagree about where it points. Dots in the path are resolved, and the path must be
    allowed both as it stands and with its percent signs decoded. With `paths`, a path with encoded dots, slashes or
    backslashes, an empty segment or dots with a parameter (`..;`) is refused, too. `port`: an integer, None for the
    scheme's own. Hosts are compared in ASCII, by IDNA. Raises `mat.MatError` for a host that has no clear form there, and
    for an empty one.

    `schemes`: of the URL, "https" by default. Returns an Endpoint, to be called with a value.

    >>> from mat_contracts.privilege import endpoint
    >>> shop = endpoint("api.shop.example", paths="/v1")
    >>> shop("https://api.shop.example/v1/orders"), shop("https://api.shop.example/v10")
    (True, False)

    Source: A5.1; RFC 3986, RFC 5891.
    """
    names = tuple(name.rstrip(".") for name in _names(host, "host"))
    hosts = tuple(_ascii_host(name) for name in names)
    wrong = [name for name in hosts if name and not re.fullmatch(r"[^/@:*?#\s]+|[0-9a-f:]+", name)]
    if wrong or "" in names:
        raise SpecError(
            what=f"{(wrong[0] if wrong else host)!r} is not a host name",
            why="hosts are compared exactly",
            fix="give the bare name, such as api.shop.example",
        )
    if "" in hosts:
        raise SpecError(
            what=f"{names[hosts.index('')]!r} has no clear form in ASCII",
            why="hosts are compared in ASCII, and editions of IDNA disagree about this name",
            fix="give the name in lower case, or in ASCII, such as xn--strae-oqa.example",
        )
    below = () if paths == () else tuple(posixpath.normpath("/" + path.strip("/")) for path in _names(paths, "paths"))
    return Endpoint(
        hosts=hosts, paths=below, schemes=tuple(ascii_lower(name) for name in _names(schemes, "schemes")), port=port
    )


def folder(path: str | Iterable[str]) -> Folder:
    """A predicate: a POSIX path at or below one of these. Relative paths are allowed only below relative ones.

    Returns a Folder, to be called with a value. Raises `mat.MatError` for an empty path.

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


def may_be_at(arguments: Mapping[str, Any], path: str) -> list[Any]:
    """The values that a path may name for a rule that restricts: where a value has no members, it stands for its only one.

    A name also reaches into the members of a list. A value that is missing is left out.

    >>> may_be_at({"to": "eve"}, "to.*"), may_be_at({"body": [{"amount": 900}]}, "body.amount")
    (['eve'], [900])
    """
    return [found for found in _inside(arguments, path.split("."), loose=True) if found is not MISSING]


def _inside(value: Any, parts: Sequence[str], *, loose: bool = False) -> list[Any]:
    if not parts:
        return [value]
    first, rest = parts[0], parts[1:]
    if first == "*" and isinstance(value, Mapping | list | tuple):
        members = value.values() if isinstance(value, Mapping) else value
        return [found for member in members for found in _inside(member, rest, loose=loose)]
    if isinstance(value, Mapping):
        names = ((".".join(parts[:size]), parts[size:]) for size in range(1, len(parts) + 1))
        return [found for name, inner in names if name in value for found in _inside(value[name], inner, loose=loose)] or [
            MISSING
        ]
    if isinstance(value, list | tuple) and first.isdecimal() and int(first) < len(value):
        return _inside(value[int(first)], rest, loose=loose)
    if loose and isinstance(value, list | tuple) and not first.isdecimal():
        return [found for member in value for found in _inside(member, parts, loose=True)]
    if loose and (first == "*" or first.isdecimal()) and not isinstance(value, list | tuple):
        return _inside(value, rest, loose=True)
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
            what=f"{where}: {allowed!r} is not an allow-list",
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
