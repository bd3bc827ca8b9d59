"""Declare which artifacts a port issues and consumes, with its options `issues=` and `consumes=`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mat.boundary.integrity import BYTE_BY_BYTE, Integrity
from mat.core.errors import SpecError

TimeToLive: TypeAlias = int | Callable[[str, Any], int | None] | None
"""Milliseconds, a function of (artifact, reply) that returns them, or None for an unlimited time."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
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
        for path, text, around in places(reply, self.at):
            if not isinstance(text, str) or not text:
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
class Consume:
    """An artifact that a port's arguments must carry; see `consume`."""

    name: str
    at: str
    when: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    required: bool = True


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
) -> Issue:
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

    Returns an Issue. Raises `mat.MatError` with all problems.

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
    return Issue(
        name=name, at=at, pattern=compiled, read=read, ttl_ms=ttl_ms, expires_in=expires_in,
        integrity=integrity or BYTE_BY_BYTE, supersedes=supersedes,
        when={path: found for path, found in conditions.items() if found is not None},
    )  # fmt: skip


def consume(name: str, *, at: str, when: Mapping[str, str] | None = None, required: bool = True) -> Consume:
    """Declare an artifact that calls of a port must carry, for `@mat.tool(consumes=...)`.

    `name`: of the artifact. `at`: the parameter, or the path in the arguments. `when`: parameter or path -> regular expression
    that must match somewhere in it, for the call to need one. `required`: whether the trace records its absence. Returns a
    Consume. Raises `mat.MatError` with all problems.

    >>> @mat.tool(effect="write", consumes=mat.artifact.consume("token", at="headers.Authorization"))
    ... def pay(headers): return "paid"
    >>> with mat.run() as run:
    ...     reply = pay({})
    >>> run.trace[0].artefacts["lacking"][0]["name"]
    'token'

    Source: D1.
    """
    problems = _problems(name, when)
    if not at:
        problems.append("it names no parameter")
    conditions = {path: _compiled(f"when[{path!r}]", text, problems) for path, text in (when or {}).items()}
    _refuse(f"consume {name!r}", problems, 'mat.artifact.consume("access_token", at="headers.Authorization")')
    kept = {path: found for path, found in conditions.items() if found is not None}
    return Consume(name=name, at=at, when=kept, required=required)


def as_issues(given: Issue | Iterable[Issue]) -> tuple[Issue, ...]:
    """Normalise `issues=` to a tuple; TypeError says what is wrong."""
    found = (given,) if isinstance(given, Issue) else tuple(given)
    for item in found:
        if not isinstance(item, Issue):
            raise TypeError(f"issues contains {item!r}, which mat.artifact.issue(...) did not make")
    return found


def as_consumes(given: Consume | Mapping[str, str] | Iterable[Consume]) -> tuple[Consume, ...]:
    """Normalise `consumes=`, which may map parameters to names of artifacts, to a tuple; TypeError says what is wrong."""
    if isinstance(given, Mapping):
        return tuple(consume(name, at=at) for at, name in given.items())
    found = (given,) if isinstance(given, Consume) else tuple(given)
    for item in found:
        if not isinstance(item, Consume):
            raise TypeError(f"consumes contains {item!r}, which mat.artifact.consume(...) did not make")
    return found


def applies(when: Mapping[str, re.Pattern[str]], arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a call meet all conditions."""
    return all(
        any(isinstance(value, str) and pattern.search(value) for _, value, _ in places(arguments, path))
        for path, pattern in when.items()
    )


def places(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, value, container) of each place that a path names. Keys of mappings match regardless of case."""
    found: list[tuple[str, Any, Any]] = [("", value, value)]
    for key in path.split(".") if path else ():
        found = [
            (f"{where}.{name}" if where else name, item, around)
            for where, around, _ in found
            for name, item in _items(around, key)
        ]
    yield from found


def _items(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if key == "*" or (isinstance(name, str) and name.casefold() == key.casefold()):
                yield str(name), item
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, item in enumerate(value):
            if key in ("*", str(index)):
                yield str(index), item
    elif key != "*" and not isinstance(value, str | bytes | int | float | type(None)) and not key.startswith("_"):
        item = getattr(value, key, None)
        if item is not None and not callable(item):
            yield key, item


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
