"""The artifacts of a record: which ones its reply issued, and which ones its arguments carry, whole or damaged.

Names, places and times are facts of the trace; the artifacts themselves are not, because tokens and
signed URLs are usually secrets. Contracts read them through `issued`, `used`, `reached` and `lacking`. They are here because
the recorder writes what contract templates read, and neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from mat.core.damage import Damage
from mat.core.record import Record
from mat.core.value import FrozenDict, FrozenList

ABSENT: Final = "absent"
FOREIGN: Final = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """An artifact that came with a reply, or was declared with mat.artifact.observed.

    id: `name#n`, n counting those of the name in the run. at: where it stood in the reply. issued_ms: run time; ttl_ms: None
    where it never ends. integrity: the predicate's kind. delivered: whether the agent got it as it was issued. supersedes: it
    ends the artifacts of its name that came before.
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
    """An artifact in the arguments of a call. at: where. intact: the integrity predicate holds of what stands there.

    damage: what became of it, "" where it is whole. handle: it was passed on by a handle. issued_ms, ttl_ms: as when it was
    issued. superseded: a newer one had ended it when the call was asked. place: where a URL that was passed on by a handle
    leads, without its query.
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

    def late_ms(self, at_ms: int) -> int | None:
        """How many milliseconds after its expiry a moment is: 0 at the expiry itself, None while the artifact is valid."""
        if self.ttl_ms is None or at_ms < self.issued_ms + self.ttl_ms:
            return None
        return at_ms - self.issued_ms - self.ttl_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """An artifact that is missing from the arguments. what: absent, or foreign (another text is in its place)."""

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
    """The artifacts in the arguments that the port got: the requested ones, unless governance or a fault changed them."""
    return _read(record, "reached", Used) if "reached" in record.artefacts else used(record)


def lacking(record: Record) -> tuple[Lacking, ...]:
    """The artifacts that the port consumes and the agent did not ask with."""
    return _read(record, "lacking", Lacking)


def _read(record: Record, part: str, kind: type[T]) -> tuple[T, ...]:
    found = record.artefacts.get(part, ())
    return tuple([kind(**item) for item in cast("FrozenList", found)])


def as_facts(items: tuple[Any, ...]) -> FrozenList:
    """Facts in recorded form, for Record.artifacts."""
    return FrozenList(FrozenDict({name: getattr(item, name) for name in type(item).__slots__}) for item in items)
