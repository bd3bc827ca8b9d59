"""The closed set of effects. An operator decides one; the crossing acts (DESIGN decision 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mat.core.record import ActionKind
from mat.core.value import FrozenDict


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing happens."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The reply arrives `ms` later."""

    ms: int


@dataclass(frozen=True, slots=True)
class Replace:
    """This value is delivered. Decided before the port is invoked, the port is not invoked at all (a cache answers)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The port is invoked with these arguments (a partial mapping by parameter name)."""

    arguments: FrozenDict


@dataclass(frozen=True, slots=True)
class Drop:
    """The port is not invoked and nobody is told: None is delivered."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The agent meets an error of this kind after `delay_ms`. Decided on the reply, the port's effect has happened.

    Kinds: timeout, connection, rate_limit, server_error, auth, not_found, invalid. A port maps kinds to its own types.
    """

    kind: str
    message: str = ""
    delay_ms: int = 0
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """A stream ends after this many chunks."""

    chunks: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The port is invoked `times` more; the first reply is delivered."""

    times: int = 1


Effect: TypeAlias = Pass | Delay | Replace | Rewrite | Drop | Raise | Truncate | Duplicate
PASS: Final = Pass()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What an operator knows of a call. `history` holds the port's earlier raw replies in this run, oldest first.

    `asked` holds the arguments of those replies, one for one. `index` is the ask's place in the perturbation's range, from 0.
    `arguments` are in recorded form.
    """

    port: str
    kind: ActionKind
    agent: str
    site: str
    arguments: FrozenDict
    at_ms: int
    parameters: FrozenDict
    index: int = 0
    history: tuple[Any, ...] = ()
    asked: tuple[FrozenDict, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the port said, as Python data; operators build a changed copy and never alter it in place."""

    value: Any
