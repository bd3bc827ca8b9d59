"""Independent books of resource contracts, rebuilt from a trace: every ledger entry is posted and checked.

The code does not know how the ledger made its entries. It posts the amounts of an entry to the accounts that the entry names;
whatever does not add up is a fault. Entries are posted in the order of their numbers. A trace holds them in ask order, so
some must wait for earlier ones. A fault breaks rules; each template of `mat_contracts.resource` reports the faults of its rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from mat.core.record import ActionKind, Record
from mat.core.resources import PER_PORT, TERMINAL, LedgerEntry, consumed, entries_of
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Violated
from mat_contracts._state import EMPTY_TABLE, PersistentTable

BookRule: TypeAlias = Literal[
    "conservation", "lifecycle", "monotone", "after_end", "reserve", "delegation", "overrun", "deadline"
]
BookRules: TypeAlias = BookRule | tuple[BookRule, ...]
KINDS: Final[frozenset[ActionKind]] = frozenset(("contract", "tool_call", "model_call", "retrieval"))
"""The records that hold entries."""
_COUNTED: Final = {"tool_call": "tool_calls", "model_call": "model_calls", "retrieval": "searches"}
_TOKENS: Final = ("tokens", "input_tokens", "reasoning_tokens", "output_tokens")


class BookShare(NamedTuple):
    """The part of an account that comes from the account of a contract above, and how much of it was used."""

    above: str
    part: int
    used: int = 0


class BookAccount(NamedTuple):
    """A contract's account of a resource, in the smallest unit.

    `budget` is what it has now, `allocated` all that it ever got: an ended contract gives back what it does not need.
    `own`: settled, `held`: reserved, `out`: allocated to contracts below, `used`: consumed here and below.
    """

    budget: int = 0
    allocated: int = 0
    reserve: int = 0
    own: int = 0
    held: int = 0
    out: int = 0
    used: int = 0
    shares: tuple[BookShare, ...] = ()

    @property
    def free(self) -> int:
        return self.budget - self.own - self.held - self.out

    @property
    def kept(self) -> int:
        """The part of the reserve that its own spending has not used. No contract below gets it."""
        return max(0, self.reserve - self.own - self.held)


class Party(NamedTuple):
    """A contract as the entries describe it. `state`: drafted, active, or the event that ended it.

    `in_proportion`: several contracts above pay what it consumes in proportion to their parts; else the first pays first.
    `ending`: the step at which it returned its budget before its end was recorded, or -1. The end of a contract is recorded
    after the ends of those below it.
    """

    id: str
    agent: str
    parents: tuple[str, ...]
    step: int
    state: str = "drafted"
    ending: int = -1
    ended: int = -1
    skills: tuple[str, ...] | None = None
    depth: int | None = None
    due_ms: int | None = None
    budgets: FrozenDict | None = None
    reserve: FrozenDict = EMPTY
    accounts: FrozenDict = EMPTY
    in_proportion: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to end."""
        return self.has_ended or self.ending >= 0

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_now(self) -> str:
        return "ending" if self.ending >= 0 and not self.has_ended else self.state

    @property
    def over_at(self) -> int:
        return self.ended if self.has_ended else self.ending


class OpenReservation(NamedTuple):
    """An open reservation. `amounts`: by account."""

    contract: str
    agent: str
    step: int
    amounts: FrozenDict


class Posted(NamedTuple):
    """An entry, and facts from its record.

    `counts` of a settled call: the consumption that its record proves. `counts` of a reservation for a call: the resources that
    every such call needs, whether or not the amount is known.
    """

    entry: LedgerEntry
    agent: str
    counts: FrozenDict = EMPTY


class Discrepancy(NamedTuple):
    """A fault in the ledger: the rules that it breaks, its violation, and the agent whose contract it concerns."""

    rules: frozenset[BookRule]
    violated: Violated
    agent: str


@dataclass(frozen=True, slots=True)
class Books:
    """The books after the entries so far. `number`: the number of the next entry.

    `waiting`: entries, by number, that came before earlier ones; all entries, if the trace begins in the middle of a run and
    lacks the first one. `begun`: the step of the first record. `reported`: lasting faults that were reported once, such as an
    overrun.
    """

    parties: PersistentTable = EMPTY_TABLE
    holds: PersistentTable = EMPTY_TABLE
    waiting: PersistentTable = EMPTY_TABLE
    number: int = 1
    begun: int = -1
    reported: frozenset[str] = frozenset()

    @property
    def from_start(self) -> bool:
        """Whether the trace holds the ledger from its beginning."""
        return self.number > 1 or self.begun == 0

    def in_order(self) -> list[Party]:
        """The contracts, in the order in which they were drafted."""
        return sorted(self.parties.values(), key=lambda party: (party.step, party.id))

    def open_holds(self) -> list[OpenReservation]:
        return sorted(self.holds.values(), key=lambda hold: (hold.step, hold.contract))


def entries(record: Record) -> Sequence[Posted]:
    """The entries that a record holds."""
    kind, name = record.action.kind, record.action.name
    if kind == "contract":
        return [Posted(item, record.agent) for item in entries_of(record)]
    mediation, charged = record.mediation, record.observation.charged
    if not charged and (mediation is None or not mediation.reserved):
        return ()
    surely, needed = _needs(kind, name)
    counts = {"reserved": needed, "settled": _shown_by(record, surely) if record.invoked else EMPTY}
    return [Posted(item, record.agent, counts[item.event]) for item in entries_of(record)]


@lru_cache(maxsize=1024)
def _needs(kind: str, name: str) -> tuple[frozenset[str], FrozenDict]:
    """The resources that a call surely consumes, and those that it must reserve: these, and those of unknown amount."""
    surely = ("calls", _COUNTED[kind], f"{PER_PORT[kind]}:{name}")
    needed = (*surely, "seconds", *(_TOKENS if kind == "model_call" else ()))
    return frozenset(surely), FrozenDict(dict.fromkeys(needed, 0))


def _shown_by(record: Record, surely: frozenset[str]) -> FrozenDict:
    """The consumption that the record of a call proves: the call itself, and the tokens that its whole reply names."""
    seen = record.observation
    sure = surely.union(_TOKENS) if seen.usage and seen.error is None and not seen.cancelled else surely
    return FrozenDict({name: value for name, value in consumed(record).items() if name in sure})
