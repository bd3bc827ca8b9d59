"""The artifacts of a record: which ones its reply issued, and which ones its arguments carry, whole or damaged.

Names, places and times are facts of the trace; the artifacts themselves are not, because tokens and signed URLs are usually
secrets. Contracts read these facts by `issued`, `used`, `reached` and `lacking`. This module is in core because the recorder
writes the facts and contract templates read them, and neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from mat.core.damage import Damage
from mat.core.record import Record
from mat.core.value import FrozenDict, FrozenList

ABSENT: Final = "absent"
FOREIGN: Final = "foreign"
UNDELIVERED: Final = "undelivered"
UNREAD: Final = "unread"
LIKENESS: Final = "likeness"
MENTION: Final = "mention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """An artifact that came with a reply, or that mat.artifact.observed declared.

    id: `name#n`, where n counts the artifacts of that name in the run. at: its path in the reply. issued_ms: run time.
    ttl_ms: how long it is valid, None for ever. integrity: the predicate's kind. delivered: whether the agent got it as it was
    issued. supersedes: it ends the validity of earlier artifacts of its name.
    """

    id: str
    name: str
    at: str
    issued_ms: int
    ttl_ms: int | None
    integrity: str
    delivered: bool
    supersedes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """An artifact in the arguments of a call. at: its path there. intact: whether its integrity predicate holds.

    damage: the kind of damage, "" if it is whole. handle: the agent passed its handle. issued_ms, ttl_ms: as in `Issued`.
    superseded: a newer artifact had ended its validity when the call was asked. place: of a URL passed by its handle, the URL
    without its query. guess: "" where the place is parsed by its grammar, and where the artifact is whole. Elsewhere damage is
    recognized by likeness: "likeness" in a value of its own, "mention" where a longer text, such as a line of a log, shows only
    a part of the artifact.
    """

    id: str
    name: str
    at: str
    damage: Damage
    intact: bool
    handle: bool
    issued_ms: int
    ttl_ms: int | None
    superseded: bool
    place: str = ""
    guess: str = ""

    def late_ms(self, at_ms: int) -> int | None:
        """Milliseconds between its expiry and `at_ms`: 0 at the expiry itself, None while the artifact is valid."""
        if self.ttl_ms is None or at_ms < self.issued_ms + self.ttl_ms:
            return None
        return at_ms - self.issued_ms - self.ttl_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """An artifact that is missing from the arguments.

    what: absent; foreign (another text is in its place); undelivered (it is there, without the scheme that the place needs, so
    that no server reads it); or unread (the run could not read the place, or the reply that should have issued the artifact, so
    nothing is known).
    """

    name: str
    at: str
    what: str


T = TypeVar("T")


def issued(record: Record) -> tuple[Issued, ...]:
    """The artifacts issued by this record's reply."""
    return _read(record, "issued", Issued)


def used(record: Record) -> tuple[Used, ...]:
    """The artifacts in the arguments as the agent asked."""
    return _read(record, "used", Used)


def reached(record: Record) -> tuple[Used, ...]:
    """The artifacts in the arguments that the port got, after changes by governance and faults."""
    return _read(record, "reached", Used) if "reached" in record.artefacts else used(record)


def lacking(record: Record) -> tuple[Lacking, ...]:
    """The artifacts that the port consumes and that the agent's arguments lack."""
    return _read(record, "lacking", Lacking)


def _read(record: Record, part: str, kind: type[T]) -> tuple[T, ...]:
    found = record.artefacts.get(part, ())
    return tuple([kind(**item) for item in cast("FrozenList", found)])


def as_facts(items: tuple[Any, ...]) -> FrozenList:
    """Facts in recorded form, for Record.artefacts. An empty `guess` is left out."""
    return FrozenList(
        FrozenDict({name: getattr(item, name) for name in type(item).__slots__ if name != "guess" or item.guess})
        for item in items
    )
