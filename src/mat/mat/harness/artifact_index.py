"""Index the artifacts of one run in the clear, and find them in later arguments. Only facts about them leave this module."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mat.boundary.handles import PREFIX
from mat.boundary.integrity import Integrity
from mat.boundary.issue import ConsumeDeclaration, IssueDeclaration, applies, cannot_be_read
from mat.boundary.port import Port
from mat.boundary.replies import as_data
from mat.core import limits
from mat.core.artifact import ABSENT, FOREIGN, LIKENESS, MENTION, UNDELIVERED, UNREAD, Issued, Lacking, Used, as_facts
from mat.core.damage import SHORTEST, Damage, TextReading, Wanted, damage_in, grams, holds, reading_of, wanted_of
from mat.core.grammar import assembled, can_be_sent, same_request
from mat.core.value import FrozenDict

_TAGS: Final = re.compile(r"\s*(?:\*|(?:W/)?\"[^\"]*\"(?:\s*,\s*(?:W/)?\"[^\"]*\")*)\s*")
"""A header field of entity tags."""
_ADDRESSES: Final = ("url", "uri", "href")
_PARAMETERS: Final = ("params", "query")
_SCHEME: Final = re.compile(r"[A-Za-z][\w\-]* (?=\S+\Z)")
_URL_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_WORD: Final = re.compile(r"\w")
_CREDENTIALS: Final = ("credentials", "bearer", "basic")
_FEW: Final = 8
"""So many artifacts are compared with a text one by one in less time than it takes to look them up."""
_PROSE: Final = 3
"""Words from which on a text is more than an artifact with a name or a scheme before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """An artifact in the clear, the step whose reply issued it, its number, and the features that identify it.

    order: among the artifacts of its name. serial: among all of the run.
    """

    fact: Issued
    text: str
    step: int
    order: int
    serial: int
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


@dataclass(slots=True, kw_only=True)
class _Search:
    """What is found in the arguments of one call. read: places that need no search for damaged artifacts."""

    used: list[Used] = field(default_factory=list)
    lacking: list[Lacking] = field(default_factory=list)
    sources: set[int] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    undelivered: set[tuple[str, str]] = field(default_factory=set)

    def has_read(self, at: str) -> bool:
        """Whether a place, or one that contains it, is a place that was read already."""
        return any(at == place or at.startswith(f"{place}.") for place in self.read)

    def has_used(self, id: str, at: str) -> bool:
        """Whether an artifact was found at a place, or at one that contains it."""
        return (id, at) in self.undelivered or any(
            item.id == id and (item.at == at or at.startswith(f"{item.at}.")) for item in self.used
        )

    def add(self, live: Live, fact: Used) -> None:
        self.sources.add(live.step)
        self.used.append(fact)


class Catalogue:
    """Artifacts by what identifies them, so that a text is compared with those alone that it may contain.

    A text contains a mark of every artifact that it holds, whole or damaged (`Wanted.marks`, `Wanted.own_marks`). Each artifact
    has one anchor, the rarest of its marks when it was issued: a text that holds it whole contains it. A few artifacts are
    compared with every text.
    """

    __slots__ = (
        "_anchor_of",
        "_anchors",
        "_bases",
        "_by_id",
        "_by_serial",
        "_exact",
        "_marks",
        "_own_marks",
        "_starts",
        "_tags",
    )

    def __init__(self) -> None:
        self._by_serial: dict[int, Live] = {}
        self._exact: dict[tuple[str, str], list[int]] = {}
        """(name, text) -> serials, the latest last."""
        self._anchors: dict[str, set[int]] = {}
        self._anchor_of: dict[int, str] = {}
        self._marks: dict[str, set[int]] = {}
        self._own_marks: dict[str, set[int]] = {}
        self._starts: dict[str, set[int]] = {}
        self._bases: dict[str, set[int]] = {}
        self._tags: dict[str, bool] = {}
        self._by_id: dict[str, Live] = {}

    def __len__(self) -> int:
        return len(self._by_serial)

    def add(self, live: Live) -> None:
        self._by_serial[live.serial] = live
        self._by_id[live.fact.id] = live
        self._tags[live.fact.name] = live.integrity.kind == "etag"
        self._exact.setdefault((live.fact.name, live.text), []).append(live.serial)
        marks = sorted(live.wanted.whole_marks)
        self._anchor_of[live.serial] = min(marks, key=lambda mark: len(self._anchors.get(mark, ())))
        for table, key in self._entries(live):
            table.setdefault(key, set()).add(live.serial)

    def drop_oldest(self) -> None:
        serial = next(iter(self._by_serial))
        live = self._by_serial.pop(serial)
        self._exact[live.fact.name, live.text].remove(serial)
        if not self._exact[live.fact.name, live.text]:
            del self._exact[live.fact.name, live.text]
        for table, key in self._entries(live):
            table[key].discard(serial)
            if not table[key]:
                del table[key]
        del self._anchor_of[serial], self._by_id[live.fact.id]

    def _entries(self, live: Live) -> Iterator[tuple[dict[str, set[int]], str]]:
        wanted = live.wanted
        yield from ((self._marks, mark) for mark in wanted.marks)
        yield from ((self._own_marks, mark) for mark in wanted.own_marks)
        yield self._anchors, self._anchor_of[live.serial]
        yield self._starts, wanted.start
        yield self._bases, wanted.base

    def get(self, id: str) -> Live | None:
        """An artifact by its id, None if it is no longer tracked."""
        return self._by_id.get(id)

    def has_tags(self, name: str) -> bool:
        """Whether the latest artifact of a name is an entity tag."""
        return self._tags.get(name, False)

    def exactly(self, name: str, texts: tuple[str, ...]) -> Live | None:
        """The latest artifact of a name that is one of these texts."""
        found = [serials[-1] for text in texts if (serials := self._exact.get((name, text)))]
        return self._by_serial[max(found)] if found else None

    def possible_whole(self, reading: TextReading) -> list[Live]:
        """The artifacts that a text may hold whole, the latest first."""
        if len(self) <= _FEW:
            return list(reversed(self._by_serial.values()))
        return self._latest_first(_matching(self._anchors, grams(reading.everything)))

    def possible(self, reading: TextReading) -> list[Live]:
        """The artifacts that a text may hold, whole or damaged, the latest first."""
        if len(self) <= _FEW:
            return list(reversed(self._by_serial.values()))
        found = _matching(self._marks, reading.held)
        if reading.elided:
            found |= _matching(self._starts, reading.held)
        return self._latest_first(found)

    def possible_in_place(self, name: str, reading: TextReading) -> list[Live]:
        """The artifacts of a name that a text in their place may be, the latest first."""
        if len(self) <= _FEW:
            return [live for live in reversed(self._by_serial.values()) if live.fact.name == name]
        found = _matching(self._own_marks, reading.held)
        if reading.elided:
            found |= _matching(self._starts, reading.held)
        for text in _cut_to_a_base(reading.text):
            found |= self._bases.get(text, frozenset())
        return [live for live in self._latest_first(found) if live.fact.name == name]

    def _latest_first(self, serials: set[int]) -> list[Live]:
        return [self._by_serial[serial] for serial in sorted(serials, reverse=True)]


def _matching(table: dict[str, set[int]], held: frozenset[str]) -> set[int]:
    return {serial for mark in table.keys() & held for serial in table[mark]}


def _cut_to_a_base(text: str) -> Iterator[str]:
    """The text without its last characters, up to as many as no piece of the artifact itself fits into."""
    for size in range(len(text), max(0, len(text) - 5), -1):
        yield text[:size].rstrip("?")


class ArtifactIndex:
    """All artifacts issued so far, the latest `limits.ARTIFACTS` of them in the clear. `note` reports problems."""

    __slots__ = ("_counts", "_ended", "_issued", "_known", "_note", "_unread")

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._known = Catalogue()
        self._issued = 0
        self._unread: set[str] = set()
        """Names of artifacts that a reply should have issued, and could not be read."""
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
                "broken-artefact",
                f"artifact {name} was issued with an integrity predicate ({integrity.kind}) that it does not satisfy",
            )
        self._known.add(
            Live(
                fact=fact, text=text, step=step, order=number, serial=self._issued, integrity=integrity, wanted=wanted_of(text)
            )
        )  # fmt: skip
        self._issued += 1
        if len(self._known) > limits.ARTIFACTS:
            self._known.drop_oldest()
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
            read = self._found_in(declared, reply)
            if not read and cannot_be_read(reply, declared.at):
                self._cannot_read(declared.name, f"a reply of {port.name}, which is a {type(reply).__qualname__}")
            for at, text, ttl_ms in read:
                fact = self.issue(
                    declared.name, text, at=at, step=step, at_ms=at_ms, ttl_ms=ttl_ms, integrity=declared.integrity,
                    supersedes=declared.supersedes,
                )  # fmt: skip
                found.append(fact)
        return tuple(found)

    def _found_in(self, declared: IssueDeclaration, reply: Any) -> list[tuple[str, str, int | None]]:
        """The artifacts in a reply; an error in a user's function becomes a finding and does not disturb the agent."""
        try:
            found = [(at, text, None if ttl is None else round(ttl)) for at, text, ttl in declared.found(reply)]
        except Exception as error:
            self._note("broken-issue", f"artifact {declared.name} could not be read from a reply: {type(error).__name__}")
            return []
        return [(at, text, ttl) for at, text, ttl in found if isinstance(text, str) and text]

    def delivered(self, issued: tuple[Issued, ...], reply: Any) -> tuple[Issued, ...]:
        """The same facts, with `delivered` computed from the reply that reached the agent, which a fault may have changed."""
        texts = [reading_of(text) for _, text in _texts_by_path(as_data(reply), 1)]

        def arrived(fact: Issued) -> bool:
            live = self._known.get(fact.id)
            return fact.delivered if live is None else any(_is_in(live.text, text) for text in texts)

        return tuple(replace(fact, delivered=arrived(fact)) for fact in issued)

    def carried(self, port: Port, arguments: Mapping[str, Any], *, changed: bool = False) -> Carried:
        """The artifacts in the arguments of a call. changed: governance or a fault changed what the agent asked with."""
        found = _Search()
        for wanted in port.consumes:
            if applies(wanted.when, arguments):
                self._consumed(port, wanted, arguments, found)
        requested = _request(arguments)
        for at, text in _texts_by_path(arguments):
            if requested is None or at != requested.at:
                self._add_within(port, found, at, text, requested, changed=changed)
        if requested is not None:
            self._add_within(port, found, requested.at, requested.url, None, changed=changed)
        self._put_together(found, arguments)
        return Carried(used=tuple(found.used), lacking=tuple(found.lacking), sources=tuple(sorted(found.sources)))

    def _put_together(self, found: _Search, arguments: Mapping[str, Any]) -> None:
        """Take an artifact for whole that a call has in several arguments, none of which is a declared place."""
        for id in sorted({item.id for item in found.used if item.guess and not item.intact}):
            live = self._known.get(id)
            parts = [] if live is None else [(at, text) for at, text in _texts_by_path(arguments, 1) if text in live.text]
            if live is None or len(parts) < 2 or not _covers([text for _, text in parts], live.text):
                continue
            found.used[:] = [item for item in found.used if item.id != id or not item.guess]
            at = " + ".join(at for at, _ in parts)
            found.used.append(self._use_fact(live, at, live.text, "", handle=False))

    def _add_within(self, port: Port, found: _Search, at: str, text: str, requested: _Request | None, *, changed: bool) -> None:
        """Look for artifacts in a text. A parameter given apart (requested) is a part of its URL, which is read as a whole."""
        text, handle = _without_handles(port, text)
        reading, apart = _reading(at, text), requested is not None and requested.holds(at)
        for live, what in self._within(reading, read=apart or found.has_read(at)):
            if found.has_used(live.fact.id, at) or (apart and requested and found.has_used(live.fact.id, requested.at)):
                continue
            guess = "" if not what else MENTION if not changed and _is_mention(live, reading, what) else LIKENESS
            found.add(live, self._use_fact(live, at, text, what, handle=handle, guess=guess))

    def _consumed(self, port: Port, wanted: ConsumeDeclaration, arguments: Mapping[str, Any], found: _Search) -> None:
        """Look for an artifact in the places where it belongs."""
        texts = list(wanted.texts(arguments))
        if texts and wanted.parts:
            found.read.update(wanted.paths)
        requested = _request(arguments)
        for at, text in texts:
            found.read.add(at)
            if text is None:
                found.lacking.append(self._unread_place(wanted.name, at, port))
                continue
            text, handle = _without_handles(port, text)
            whole = requested.url if requested is not None and at == requested.at else ""
            live, what, delivered = self._match_in_place(wanted, at, text, whole=whole)
            if live is None:
                unread = UNREAD if wanted.name in self._unread else FOREIGN
                found.lacking.append(Lacking(name=wanted.name, at=at, what=unread))
            elif delivered is None and what == "other" and wanted.grammar in _CREDENTIALS and can_be_sent(text):
                found.lacking.append(Lacking(name=wanted.name, at=at, what=UNDELIVERED))
                found.undelivered.add((live.fact.id, at))
            else:
                found.add(live, self._use_fact(live, at, delivered, what, handle=handle))
        if not texts and wanted.required:
            hidden = any(path.partition(".")[0] in port.exclude for path in wanted.paths)
            if hidden or any(cannot_be_read(arguments, path) for path in wanted.paths):
                found.lacking.append(self._unread_place(wanted.name, wanted.at, port))
            else:
                found.lacking.append(Lacking(name=wanted.name, at=wanted.at, what=ABSENT))

    def _unread_place(self, name: str, at: str, port: Port) -> Lacking:
        self._note("artefact-not-read", f"artifact {name} was not looked for in {at} of {port.name}, which cannot be read")
        return Lacking(name=name, at=at, what=UNREAD)

    def _cannot_read(self, name: str, where: str) -> None:
        self._unread.add(name)
        self._note("artefact-not-read", f"artifact {name} was not read from {where}")

    def _match_in_place(
        self, wanted: ConsumeDeclaration, at: str, text: str, *, whole: str
    ) -> tuple[Live | None, Damage, str | None]:
        """The artifact in a declared place, its damage, and the text that the place delivers, None if it delivers none.

        whole: of a URL whose parameters are given apart, the URL with them; else "".
        """
        texts = self._delivered(wanted, text)
        live = self._known.exactly(wanted.name, texts)
        if live is None and whole:
            text, texts = whole, self._delivered(wanted, whole)
            live = self._known.exactly(wanted.name, texts)
        if live is not None:
            return live, "", text if live.integrity.kind == "etag" else live.text
        reading = _reading(at, text[: limits.ARTIFACT_CHARS])
        named = self._known.possible_in_place(wanted.name, reading)
        if whole:
            live = next((live for live in named if same_request(live.text, text)), None)
            if live is not None:  # its client encodes the parameters, which are those of the artifact
                return live, "", live.text
        found = [(live, damage_in(live.wanted, reading, sure=True)) for live in named]
        best = _best_match([(live, live.wanted, what) for live, what in found if what is not None], reading)
        if best is None:
            return None, "", None
        live, what = best
        if wanted.grammar in _CREDENTIALS and " " not in live.text:  # it was not issued with a scheme
            texts = tuple(item for item in texts if item != text.strip())
        if live.integrity.kind == "etag" and any(texts):
            return live, what, text
        return live, what, max(texts, key=lambda item: _closeness(live.text, item), default=None)

    def _delivered(self, wanted: ConsumeDeclaration, text: str) -> tuple[str, ...]:
        tag = self._known.has_tags(wanted.name)
        try:
            return wanted.delivered(text, tag=tag)
        except Exception as error:  # a function of the user's that raises has read nothing
            self._note("broken-decode", f"decode= of artifact {wanted.name} raised {type(error).__name__}")
            return ()

    def _within(self, reading: TextReading, *, read: bool) -> Iterator[tuple[Live, Damage]]:
        """The artifacts that a text contains whole (of equal ones the latest), and one that the rest of it contains damaged.

        read: the text is in a place that was read already, so damaged ones are not looked for.
        """
        seen = set[tuple[str, str]]()
        for live in self._known.possible_whole(reading):
            if len(live.text) >= SHORTEST and (live.text, live.fact.name) not in seen and holds(live.wanted, reading):
                seen.add((live.text, live.fact.name))
                yield live, ""
        texts = sorted({text for text, _ in seen}, key=lambda text: (-len(text), text))
        if read or any(text not in reading.text for text in texts):
            return
        found = _damaged_match(self._known, reading, texts)
        if found is not None:
            yield found

    def _use_fact(self, live: Live, at: str, text: str | None, what: Damage, *, handle: bool, guess: str = "") -> Used:
        """The recorded fact of a use. text: what was delivered; None if it breaks the grammar of its place.

        For an entity tag the whole text is checked, because it may be a list of tags.
        """
        submitted = text
        if guess and text is not None:
            scheme = _SCHEME.match(text) if " " not in live.text else None
            submitted = text if scheme is None else text[scheme.end() :]
        elif not what and not (live.integrity.kind == "etag" and _TAGS.fullmatch(text or "")):
            submitted = live.text  # which the text contains byte by byte
        fact = live.fact
        return Used(
            id=fact.id, name=fact.name, at=at, damage=what,
            intact=submitted is not None and self._keeps(live.integrity, live.text, submitted), handle=handle,
            issued_ms=fact.issued_ms, ttl_ms=fact.ttl_ms, superseded=live.order < self._ended.get(fact.name, 0),
            place=_url_path(live.text) if handle else "", guess=guess,
        )  # fmt: skip

    def _keeps(self, integrity: Integrity, issued: str, submitted: str) -> bool:
        try:
            return bool(integrity.keeps(issued, submitted))
        except Exception as error:  # a user's predicate that raises is not satisfied
            self._note("broken-predicate", f"the integrity predicate {integrity.kind} raised {type(error).__name__}")
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The URL of a request whose parameters are given apart. at: the place of its URL, apart: the place of the parameters."""

    url: str
    at: str
    apart: str

    def holds(self, at: str) -> bool:
        """Whether a place is one of its parameters."""
        return at == self.apart or at.startswith(f"{self.apart}.")


def _request(arguments: Mapping[str, Any]) -> _Request | None:
    """The assembled URL, if the arguments have a URL and its parameters."""
    for at in _ADDRESSES:
        url = arguments.get(at)
        if not isinstance(url, str) or PREFIX in url:
            continue
        for apart in _PARAMETERS:
            whole = assembled(url, arguments.get(apart))
            if whole is not None:
                return _Request(url=whole, at=at, apart=apart)
    return None


def _covers(parts: list[str], artifact: str) -> bool:
    """Whether these texts make up an artifact, in its order, with nothing between them but separators.

    The scheme of a URL may be missing: a client is given it by other means.
    """
    scheme = _URL_SCHEME.match(artifact)
    at = 0 if scheme is None or any(artifact.startswith(part) for part in parts) else scheme.end()
    for part in sorted(parts, key=artifact.find):
        found = artifact.find(part, at)
        if found < 0 or _WORD.search(artifact, at, found):
            return False
        at = found + len(part)
    return _WORD.search(artifact, at) is None


def _is_mention(live: Live, reading: TextReading, what: Damage) -> bool:
    """Whether an agent shows a part of an artifact in a longer text, such as a line of a log, which uses nothing.

    So does base64 or hexadecimal of all of it: whoever reads the place as such gets every byte. Where it must not stand in
    another encoding, the port declares the place.
    """
    if what in ("reencoded", "other") and reading.encodes(live.text):
        return True
    if what not in ("truncated", "other") or reading.header or reading.text.lstrip()[:1] in ("{", "[", "<"):
        return False
    return len(reading.text.split()) >= _PROSE + live.text.count(" ")


def _damaged_match(known: Catalogue, reading: TextReading, seen: list[str]) -> tuple[Live, Damage] | None:
    """The artifact that a text contains damaged, and the damage.

    seen: artifacts that the text contains whole. They are cut out of the text, and out of artifacts that contain them.
    """
    whole = reading
    if seen or len(reading.text) > limits.ARTIFACT_CHARS:
        text = _without(reading.text, seen)[: limits.ARTIFACT_CHARS]
        reading = reading_of(text, header=reading.header, address=reading.address)
    if len(reading.text) < SHORTEST:
        return None
    lives = known.possible(reading)
    if seen:  # what is left of an artifact that contains one of these may have no mark of its own
        more = {live.serial: live for live in (*lives, *known.possible(whole))}
        lives = [more[serial] for serial in sorted(more, reverse=True)]
    found = list[tuple[Live, Wanted, Damage]]()
    for live in lives:
        wanted = live.wanted
        if live.text in seen:
            continue
        if len(live.text) > limits.ARTIFACT_CHARS or any(item in live.text for item in seen):
            wanted = wanted_of(_without(live.text, seen)[: limits.ARTIFACT_CHARS])
        what = damage_in(wanted, reading) if wanted.perhaps(reading) else None
        if what is not None:
            found.append((live, wanted, what))
    return _best_match(found, reading)


def _closeness(artifact: str, text: str) -> float:
    """How much two texts have in common, between 0 and 1."""
    first, second = grams(artifact), grams(text)
    return len(first & second) / max(1, len(first | second))


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
    return reading_of(text, header=name.startswith("headers."), address=name.rpartition(".")[2] in _ADDRESSES)


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
    elif isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            yield from _texts_by_path(value.decode(), least, path)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts_by_path(item, least, f"{path}.{index}" if path else str(index))
