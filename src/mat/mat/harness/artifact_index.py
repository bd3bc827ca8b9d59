"""Index the artifacts of one run in the clear, and find them in later arguments. Only facts about them leave this module."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from mat.boundary.handles import PREFIX
from mat.boundary.integrity import Integrity
from mat.boundary.issue import Consume, Issue, applies, places
from mat.boundary.port import Port
from mat.core import limits
from mat.core.artifact import ABSENT, FOREIGN, Issued, Lacking, Used, as_facts
from mat.core.damage import SHORTEST, Damage, TextReading, Wanted, damage_in, holds
from mat.core.value import FrozenDict

_TAGS: Final = re.compile(r"\s*(?:\*|(?:W/)?\"[^\"]*\"(?:\s*,\s*(?:W/)?\"[^\"]*\")*)\s*")
"""A header field of entity tags."""
_ADDRESSES: Final = ("url", "uri", "href")
_BARE: Final = re.compile(r"\s*|\s*(?i:bearer|basic|digest|token|dpop)\s*")
"""An empty value: blanks, or the scheme of an authorization alone."""
_SCHEME: Final = re.compile(r"[A-Za-z][\w\-]* (?=\S+\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """An artifact in the clear, the step whose reply issued it, its number, and the features that identify it."""

    fact: Issued
    text: str
    step: int
    order: int
    integrity: Integrity
    wanted: Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The artifacts in the arguments of a call. `sources`: the steps that they came from."""

    used: tuple[Used, ...] = ()
    lacking: tuple[Lacking, ...] = ()
    sources: tuple[int, ...] = ()

    def facts(self) -> FrozenDict:
        found = {"used": self.used, "lacking": self.lacking}
        return FrozenDict({name: as_facts(items) for name, items in found.items() if items})


class ArtifactIndex:
    """All artifacts issued so far, the latest `limits.ARTIFACTS` of them in the clear. `note` reports problems."""

    __slots__ = ("_counts", "_ended", "_live", "_note")

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._live: list[Live] = []
        self._counts: Counter[str] = Counter()
        self._ended: dict[str, int] = {}
        """By name: the number of the first artifact that no newer one has ended."""
        self._note = note

    def issue(
        self,
        name: str,
        text: str,
        *,
        at: str,
        step: int,
        at_ms: int,
        ttl_ms: int | None,
        integrity: Integrity,
        supersedes: bool,
    ) -> Issued:
        """Add an artifact, and return the fact to record."""
        self._counts[name] = number = self._counts[name] + 1
        if supersedes:
            self._ended[name] = number
        fact = Issued(
            id=f"{name}#{number}", name=name, at=at, issued_ms=at_ms, ttl_ms=ttl_ms, integrity=integrity.kind,
            delivered=True, supersedes=supersedes,
        )  # fmt: skip
        if not self._keeps(integrity, text, text):
            self._note(
                "broken-artefact", f"{name} was issued with an integrity predicate ({integrity.kind}) that it does not satisfy"
            )
        self._live.append(Live(fact=fact, text=text, step=step, order=number, integrity=integrity, wanted=Wanted(text)))
        if len(self._live) > limits.ARTIFACTS:
            del self._live[0]
            self._note(
                "many-artefacts", f"more than {limits.ARTIFACTS} artifacts were issued; the oldest are no longer tracked"
            )
        return fact

    def issued_by(self, port: Port, reply: Any, arguments: Mapping[str, Any], *, step: int, at_ms: int) -> tuple[Issued, ...]:
        """The artifacts that a reply issues, by the port's declarations."""
        found = []
        for declared in port.issues:
            if not applies(declared.when, arguments):
                continue
            for at, text, ttl_ms in self._found_in(declared, reply):
                fact = self.issue(
                    declared.name, text, at=at, step=step, at_ms=at_ms, ttl_ms=ttl_ms, integrity=declared.integrity,
                    supersedes=declared.supersedes,
                )  # fmt: skip
                found.append(fact)
        return tuple(found)

    def _found_in(self, declared: Issue, reply: Any) -> list[tuple[str, str, int | None]]:
        """The artifacts in a reply; an error in a user's function becomes a finding and does not disturb the agent."""
        try:
            found = [(at, text, None if ttl is None else round(ttl)) for at, text, ttl in declared.found(reply)]
        except Exception as error:
            self._note("broken-issue", f"artifact {declared.name} could not be read from a reply: {type(error).__name__}")
            return []
        return [(at, text, ttl) for at, text, ttl in found if isinstance(text, str) and text]

    def delivered(self, issued: tuple[Issued, ...], reply: Any) -> tuple[Issued, ...]:
        """The same facts, with `delivered` computed from the reply that reached the agent, which a fault may have changed."""
        texts = [TextReading(text) for _, text in _texts_by_path(reply, 1)]
        live = {item.fact.id: item.text for item in self._live}
        return tuple(
            replace(fact, delivered=any(_is_in(live[fact.id], text) for text in texts)) if fact.id in live else fact
            for fact in issued
        )

    def carried(self, port: Port, arguments: Mapping[str, Any]) -> Carried:
        """The artifacts in the arguments of a call."""
        used: list[Used] = []
        lacking: list[Lacking] = []
        sources: set[int] = set()
        declared: set[str] = set()
        for wanted in port.consumes:
            if applies(wanted.when, arguments):
                declared |= self._consumed(port, wanted, arguments, used, lacking, sources)
        for at, text in _texts_by_path(arguments):
            read, handle = _without_handles(port, text)
            for live, what in self._within(_reading(at, read), taken=at in declared):
                if not any(item.id == live.fact.id and item.at == at for item in used):
                    sources.add(live.step)
                    used.append(self._use_fact(live, at, read, what, handle=handle))
        return Carried(used=tuple(used), lacking=tuple(lacking), sources=tuple(sorted(sources)))

    def _consumed(
        self,
        port: Port,
        wanted: Consume,
        arguments: Mapping[str, Any],
        used: list[Used],
        lacking: list[Lacking],
        sources: set[int],
    ) -> set[str]:
        """Look for an artifact in the places where it belongs; return these places."""
        named = [live for live in reversed(self._live) if live.fact.name == wanted.name]
        looked = set()
        for at, value, _ in places(arguments, wanted.at):
            if value is None or isinstance(value, bool) or (isinstance(value, str) and _BARE.fullmatch(value)):
                continue
            looked.add(at)
            text, handle = _without_handles(port, value if isinstance(value, str) else str(value))
            found = _match_in_place(named, _reading(at, text))
            if found is None:
                lacking.append(Lacking(name=wanted.name, at=at, what=FOREIGN))
            else:
                sources.add(found[0].step)
                used.append(self._use_fact(found[0], at, text, found[1], handle=handle))
        if not looked and wanted.required:
            lacking.append(Lacking(name=wanted.name, at=wanted.at, what=ABSENT))
        return looked

    def _within(self, reading: TextReading, *, taken: bool) -> Iterator[tuple[Live, Damage]]:
        """The artifacts that a text contains whole (of equal ones the latest), and one that the rest of it contains damaged.

        taken: the artifact that belongs here is already reported, so damaged ones are not looked for.
        """
        seen = set[tuple[str, str]]()
        for live in reversed(self._live):
            if len(live.text) >= SHORTEST and (live.text, live.fact.name) not in seen and holds(live.wanted, reading):
                seen.add((live.text, live.fact.name))
                yield live, ""
        texts = sorted({text for text, _ in seen}, key=lambda text: (-len(text), text))
        if taken or any(text not in reading.text for text in texts):
            return
        found = _damaged_match(self._live, reading, texts)
        if found is not None:
            yield found

    def _use_fact(self, live: Live, at: str, text: str, what: Damage, *, handle: bool) -> Used:
        """The recorded fact of a use. For an entity tag the whole text is checked, because it may be a list of tags."""
        tags = live.integrity.kind == "etag" and _TAGS.fullmatch(text) is not None
        submitted = text if what or tags else live.text
        scheme = _SCHEME.match(submitted) if what and " " not in live.text else None
        if scheme is not None:
            submitted = submitted[scheme.end() :]
        intact = self._keeps(live.integrity, live.text, submitted)
        fact = live.fact
        return Used(
            id=fact.id, name=fact.name, at=at, damage=what, intact=intact, handle=handle, issued_ms=fact.issued_ms,
            ttl_ms=fact.ttl_ms, superseded=live.order < self._ended.get(fact.name, 0),
            place=_url_path(live.text) if handle else "",
        )  # fmt: skip

    def _keeps(self, integrity: Integrity, issued: str, submitted: str) -> bool:
        try:
            return bool(integrity.keeps(issued, submitted))
        except Exception as error:  # a user's predicate that raises is not satisfied
            self._note("broken-predicate", f"the integrity predicate {integrity.kind} raised {type(error).__name__}")
            return False


def _match_in_place(named: list[Live], reading: TextReading) -> tuple[Live, Damage] | None:
    """The best match for a text in a place where one of these artifacts belongs, and its damage; the latest one first."""
    text = reading.text
    for live in named:
        long = len(live.text) >= SHORTEST
        if long and text == f"{live.text}/" and not live.text.endswith("/"):
            return live, "other"  # a slash after a URL names another resource
        if text == live.text or (holds(live.wanted, reading, exact=True) if long else live.text in _short_candidates(text)):
            return live, ""
    if len(text) > limits.ARTIFACT_CHARS:
        reading = TextReading(text[: limits.ARTIFACT_CHARS], header=reading.header, address=reading.address)
    found = [(live, damage_in(live.wanted, reading, sure=True)) for live in named]
    return _best_match([(live, live.wanted, what) for live, what in found if what is not None], reading)


def _damaged_match(lives: list[Live], reading: TextReading, seen: list[str]) -> tuple[Live, Damage] | None:
    """The artifact that a text contains damaged, and the damage.

    seen: artifacts that the text contains whole. They are cut out of the text, and out of artifacts that contain them.
    """
    if seen or len(reading.text) > limits.ARTIFACT_CHARS:
        text = _without(reading.text, seen)[: limits.ARTIFACT_CHARS]
        reading = TextReading(text, header=reading.header, address=reading.address)
    if len(reading.text) < SHORTEST:
        return None
    found = list[tuple[Live, Wanted, Damage]]()
    for live in reversed(lives):
        wanted = live.wanted
        if live.text in seen:
            continue
        if len(live.text) > limits.ARTIFACT_CHARS or any(item in live.text for item in seen):
            wanted = Wanted(_without(live.text, seen)[: limits.ARTIFACT_CHARS])
        what = damage_in(wanted, reading) if wanted.perhaps(reading) else None
        if what is not None:
            found.append((live, wanted, what))
    return _best_match(found, reading)


def _best_match(found: list[tuple[Live, Wanted, Damage]], reading: TextReading) -> tuple[Live, Damage] | None:
    """Prefer an explained damage to an unexplained one, then the most similar artifact, then the first."""
    if not found:
        return None
    live, _, what = max(found, key=lambda item: (item[2] != "other", item[1].likeness(reading)))
    return live, what


def _without(text: str, found: list[str]) -> str:
    for item in found:
        text = text.replace(item, "\x00")
    return text


def _is_in(artifact: str, text: TextReading) -> bool:
    """Whether a text of a reply contains an artifact: as it is, or after decoding."""
    return artifact in text.text or any(artifact in item for item in text.decoded)


def _reading(at: str, text: str) -> TextReading:
    name = at.casefold()
    return TextReading(text, header=name.startswith("headers."), address=name.rpartition(".")[2] in _ADDRESSES)


def _short_candidates(text: str) -> list[str]:
    """The parts of a text that can be a short artifact: between blanks, commas, semicolons and equals signs."""
    for mark in ",;=":
        text = text.replace(mark, " ")
    return [*text.split(), *(word.strip('"') for word in text.split())]


def _without_handles(port: Port, text: str) -> tuple[str, bool]:
    """A text as the port gets it, and whether it contained a handle."""
    if port.handles is None or PREFIX not in text:
        return text, False
    with suppress(LookupError):  # the port will report the unknown handle
        return port.handles.resolve(text), True
    return text, False


def _url_path(artifact: str) -> str:
    """A URL without its query: contracts select calls by route, which a handle hides."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://[^?#\s]*", artifact)
    return found[0] if found else ""


def _texts_by_path(value: Any, least: int = SHORTEST, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, text) of all texts in a value with at least this many characters."""
    if isinstance(value, str):
        if len(value) >= least:
            yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts_by_path(item, least, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts_by_path(item, least, f"{path}.{index}" if path else str(index))
