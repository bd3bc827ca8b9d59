"""Declare which artifacts a port issues and consumes, with its options `issues=` and `consumes=`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mat.boundary.integrity import BYTE_BY_BYTE, Integrity
from mat.boundary.replies import Unread, as_data
from mat.core.errors import SpecError, did_you_mean
from mat.core.grammar import GRAMMARS, delivered, grammar_at, member

TimeToLive: TypeAlias = int | Callable[[str, Any], int | None] | None
"""Milliseconds, a function of (artifact, reply) that returns them, or None for an unlimited time."""
Decode: TypeAlias = str | Callable[[str], str | Iterable[str] | None]
"""The name of a grammar (see `mat.core.grammar`), or a function of a place's text that returns what it delivers."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_FIELD: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueDeclaration:
    """Artifacts that a port's replies issue; see `issue`."""

    name: str
    at: str = ""
    pattern: re.Pattern[str] | None = None
    read: Callable[[str], str] | None = None
    ttl_ms: TimeToLive = None
    expires_in: str = ""
    integrity: Integrity = BYTE_BY_BYTE
    supersedes: bool = False
    when: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def found(self, reply: Any) -> Iterator[tuple[str, str, int | None]]:
        """(where, artifact, time to live in ms) of each artifact in a reply."""
        for path, value, around in places(reply, self.at):
            text = text_of(value)
            if not text or not isinstance(value, str | bytes):
                continue
            texts = [text] if self.pattern is None else [_group(match) for match in self.pattern.finditer(text)]
            for written in texts:
                artifact = written if self.read is None else self.read(written)
                yield path, artifact, self._ttl(artifact, reply, around)

    def _ttl(self, artifact: str, reply: Any, around: Any) -> int | None:
        if callable(self.ttl_ms):
            return self.ttl_ms(artifact, reply)
        if not self.expires_in:
            return self.ttl_ms
        for where in (around, reply):
            for _, value, _ in places(where, self.expires_in):
                try:
                    return round(float(value) * 1000)
                except (TypeError, ValueError, OverflowError):
                    continue
        return self.ttl_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeDeclaration:
    """An artifact that a port's arguments must carry; see `consume`."""

    name: str
    at: str
    when: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    required: bool = True
    decode: Decode = ""
    parts: str = ""

    def delivered(self, text: str, *, tag: bool) -> tuple[str, ...]:
        """The texts that a place delivers. `tag`: the artifact is an entity tag, which may stand in a list."""
        if callable(self.decode):
            found = self.decode(text)
            return (found,) if isinstance(found, str) else tuple(found or ())
        grammar: Any = self.grammar
        return delivered("etag" if tag and grammar in ("value", "header") else grammar, text)

    @property
    def grammar(self) -> str:
        """The name of the place's grammar; "" where a function decodes it."""
        if callable(self.decode):
            return ""
        return self.decode or ("value" if self.parts else grammar_at(self.at))

    def texts(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        """(path, text) of each place; the text is None if it cannot be read. Empty places are left out."""
        if self.parts:
            yield from self._joined(arguments)
            return
        for at, value, _ in places(arguments, self.at):
            if not is_empty(value):
                yield at, text_of(value)

    def _joined(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        """The artifact put together from the places that `parts` names; nothing if one of them is empty."""
        paths = _FIELD.findall(self.parts)
        found = {path: next((value for _, value, _ in places(arguments, path) if not is_empty(value)), None) for path in paths}
        if None not in found.values():
            texts = {path: text_of(value) for path, value in found.items()}
            whole = None if None in texts.values() else _FIELD.sub(lambda part: texts[part[1]] or "", self.parts)
            yield self.at, whole

    @property
    def paths(self) -> tuple[str, ...]:
        """The places that the artifact, or a part of it, belongs to."""
        return tuple(_FIELD.findall(self.parts)) if self.parts else (self.at,)


_EMPTY: Final = re.compile(r"\s*|\s*(?i:bearer|basic|digest|token|dpop)\s*")
"""An empty value: blanks, or the scheme of an authorization alone."""
_TYPE: Final = re.compile(r"<[A-Za-z_][\w.]*\.[A-Za-z_]\w*>", re.ASCII)
"""What is recorded of an argument that has no recorded form."""


def is_empty(value: Any) -> bool:
    """Whether a value is none, a yes or no, empty, or the scheme of an authorization alone."""
    if value is None or isinstance(value, bool) or value in ((), [], {}):
        return True
    return isinstance(value, str) and _EMPTY.fullmatch(value) is not None


def text_of(value: Any) -> str | None:
    """A value of arguments or of a reply as text; None if it cannot be read. A structure becomes JSON."""
    if isinstance(value, str):
        return None if _TYPE.fullmatch(value) else value
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return None
    if isinstance(value, int | float):
        return str(value)
    with suppress(TypeError, ValueError):
        return json.dumps(value) if isinstance(value, dict | list) else None
    return None


def issue(
    name: str,
    *,
    at: str = "",
    pattern: str = "",
    read: Callable[[str], str] | None = None,
    ttl_ms: TimeToLive = None,
    expires_in: str = "",
    integrity: Integrity | None = None,
    supersedes: bool = False,
    when: Mapping[str, str] | None = None,
) -> IssueDeclaration:
    """Declare an artifact that replies of a port issue, for `@mat.tool(issues=...)`.

    - `name`: of these artifacts. `at`: their path in a reply, keys joined by full stops, `*` for each item of a list or
      mapping; "" for the reply itself.
    - `pattern`: a regular expression whose first group cuts them out of the text there. `read`: a function that converts that
      text to the artifact (html.unescape of an attribute, say).
    - `ttl_ms`: how long they are valid, in milliseconds, or a function of (artifact, reply). `expires_in`: the path of that
      time in the reply, in seconds, next to the artifact or from the top.
    - `integrity`: sha256() by default. `supersedes`: a new one ends the earlier ones.
    - `when`: parameter (or path in the arguments) -> regular expression that must match somewhere in it, for a reply of the
      call to issue any.

    Returns an IssueDeclaration. Raises `mat.MatError` with all problems.

    >>> @mat.tool(issues=mat.artifact.issue("url", at="body.url", ttl_ms=10_000))
    ... def share(file): return {"body": {"url": "https://files.example.org/a?sig=9f"}}
    >>> with mat.run() as run:
    ...     reply = share("a")
    >>> run.trace[0].artefacts["issued"][0]["name"]
    'url'

    Source: D1.
    """
    problems = _problems(name, when)
    if ttl_ms is not None and not callable(ttl_ms) and (not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms < 0):
        problems.append(f"ttl_ms={ttl_ms!r} is not a whole number of milliseconds")
    compiled = _compiled("pattern", pattern, problems) if pattern else None
    if read is not None and not callable(read):
        problems.append(f"read={read!r} is not a function of a string")
    if integrity is not None and not isinstance(integrity, Integrity):
        problems.append(f"integrity={integrity!r} is not a predicate; write mat.artifact.sha256()")
    conditions = {path: _compiled(f"when[{path!r}]", text, problems) for path, text in (when or {}).items()}
    _refuse(f"issue {name!r}", problems, 'mat.artifact.issue("download_url", at="body.url", ttl_ms=10_000)')
    return IssueDeclaration(
        name=name, at=at, pattern=compiled, read=read, ttl_ms=ttl_ms, expires_in=expires_in,
        integrity=integrity or BYTE_BY_BYTE, supersedes=supersedes,
        when={path: found for path, found in conditions.items() if found is not None},
    )  # fmt: skip


def consume(
    name: str,
    *,
    at: str = "",
    when: Mapping[str, str] | None = None,
    required: bool = True,
    decode: Decode = "",
    parts: str = "",
) -> ConsumeDeclaration:
    """Declare an artifact that calls of a port must carry, for `@mat.tool(consumes=...)`.

    - `name`: of the artifact. `at`: the parameter, or the path in the arguments.
    - `decode`: how the place carries it, by name or as a function. By default its path decides: a `url` is the artifact as
      a whole; an `Authorization` header is `Bearer` and the artifact, or basic authentication; a `Cookie` header holds it
      in a pair; `If-Match` and `If-None-Match` in a list of entity tags; any other header, and any other parameter, is the
      artifact itself. Other names: "base64", "json", "query", "header", "value", "bearer", "basic", "cookie", "etag",
      "body", "url". Or a function of the text that returns what it delivers, or None.
    - `parts`: in the place of `at`, how the artifact is put together from several parameters:
      `"https://{host}{path}?sig={sig}"`.
    - `when`: parameter or path -> regular expression that must match somewhere in it, for the call to need one.
    - `required`: whether the trace records its absence.

    Returns a ConsumeDeclaration. Raises `mat.MatError` with all problems.

    >>> @mat.tool(effect="write", consumes=mat.artifact.consume("token", at="headers.Authorization"))
    ... def pay(headers): return "paid"
    >>> with mat.run() as run:
    ...     reply = pay({})
    >>> run.trace[0].artefacts["lacking"][0]["name"]
    'token'

    Source: D1.
    """
    problems = _problems(name, when)
    if not at and not parts:
        problems.append("it names no parameter")
    if at and parts:
        problems.append("it has both at= and parts=")
    if parts and not _FIELD.search(parts):
        problems.append(f"parts={parts!r} names no parameter in braces")
    if isinstance(decode, str) and decode and decode not in GRAMMARS:
        choice = did_you_mean(decode, GRAMMARS) or f"; choose from {', '.join(GRAMMARS)}"
        problems.append(f"unknown decode={decode!r}{choice}")
    elif not isinstance(decode, str) and not callable(decode):
        problems.append(f"decode={decode!r} is neither the name of a grammar nor a function of a string")
    conditions = {path: _compiled(f"when[{path!r}]", text, problems) for path, text in (when or {}).items()}
    _refuse(f"consume {name!r}", problems, 'mat.artifact.consume("access_token", at="headers.Authorization")')
    kept = {path: found for path, found in conditions.items() if found is not None}
    return ConsumeDeclaration(
        name=name, at=at or " + ".join(_FIELD.findall(parts)), when=kept, required=required, decode=decode, parts=parts
    )


def as_issues(given: IssueDeclaration | Iterable[IssueDeclaration]) -> tuple[IssueDeclaration, ...]:
    """Normalise `issues=` to a tuple; TypeError says what is wrong."""
    found = (given,) if isinstance(given, IssueDeclaration) else tuple(given)
    for item in found:
        if not isinstance(item, IssueDeclaration):
            raise TypeError(f"issues contains {item!r}, which mat.artifact.issue(...) did not make")
    return found


def as_consumes(given: ConsumeDeclaration | Mapping[str, str] | Iterable[ConsumeDeclaration]) -> tuple[ConsumeDeclaration, ...]:
    """Normalise `consumes=`, which may map parameters to names of artifacts, to a tuple; TypeError says what is wrong."""
    if isinstance(given, Mapping):
        return tuple(consume(name, at=at) for at, name in given.items())
    found = (given,) if isinstance(given, ConsumeDeclaration) else tuple(given)
    for item in found:
        if not isinstance(item, ConsumeDeclaration):
            raise TypeError(f"consumes contains {item!r}, which mat.artifact.consume(...) did not make")
    return found


def applies(when: Mapping[str, re.Pattern[str]], arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a call meet all conditions."""
    return all(
        any(isinstance(value, str) and pattern.search(value) for _, value, _ in places(arguments, path))
        for path, pattern in when.items()
    )


def places(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, value, container) of each place that a path names. Keys of mappings match regardless of case.

    A path also leads into a response of an HTTP client, a list of pairs, and a text that holds names: cookies, a form, JSON.
    """
    found: list[tuple[str, Any, Any]] = [("", as_data(value), value)]
    for key in path.split(".") if path else ():
        found = [
            (f"{where}.{name}" if where and name else where or name, item, around)
            for where, around, _ in found
            for name, item in _items(around, key, where)
        ]
    yield from found


def cannot_be_read(value: Any, path: str) -> bool:
    """Whether a path leads into something whose parts cannot be read: an object that is no data, a body not read yet."""
    found = [as_data(value)]
    for key in path.split(".") if path else ():
        if any(_is_closed(item) or (isinstance(item, Unread) and item.lacks(key)) for item in found):
            return True
        found = [inner for item in found for _, inner in _items(item, key, "")]
    return any(_is_closed(item) for item in found)


def _is_closed(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return text_of(value) is None
    return not (value is None or isinstance(value, Mapping | Sequence | int | float))


def _items(value: Any, key: str, where: str) -> Iterator[tuple[str, Any]]:
    """(the rest of the path, value) of what a key names. where: the path of the value."""
    value = text_of(value) if isinstance(value, bytes) else value
    if isinstance(value, Mapping):
        for name, item in value.items():
            if key == "*" or (isinstance(name, str) and name.casefold() == key.casefold()):
                yield str(name), item
    elif isinstance(value, str):
        for item in member(value, key, around=where):
            yield "", item  # its place is that of the text
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            if key in ("*", str(index)):
                yield str(index), item
            elif _is_pair(item) and item[0].casefold() == key.casefold():
                yield f"{index}.1", item[1]
    elif key != "*" and not isinstance(value, str | bytes | int | float | type(None)) and not key.startswith("_"):
        item = getattr(value, key, None)
        if item is not None and not callable(item):
            yield key, item


def _is_pair(item: Any) -> bool:
    """Whether an item of a list is a name and a value, as HTTP clients take headers and parameters."""
    return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)


def _group(match: re.Match[str]) -> str:
    return match[1] if match.re.groups else match[0]


def _problems(name: str, when: Mapping[str, str] | None) -> list[str]:
    problems = []
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(f"{name!r} is not a name of letters, digits, full stops, _ and -")
    if when is not None and not isinstance(when, Mapping):
        problems.append(f"when={when!r} does not map parameters to regular expressions")
    return problems


def _compiled(what: str, text: str, problems: list[str]) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        problems.append(f"{what}={text!r} is not a regular expression: {error}")
        return None


def _refuse(what: str, problems: list[str], fix: str) -> None:
    if problems:
        raise SpecError(what=f"{what}: {'; '.join(problems)}", fix=f"write {fix}")
