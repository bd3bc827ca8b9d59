"""The closed set of effects. An operator decides on one; the crossing carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mat.core.record import ActionKind
from mat.core.value import EMPTY, FrozenDict


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing happens."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The reply arrives `ms` later."""

    ms: int


@dataclass(frozen=True, slots=True)
class Replace:
    """This value is delivered. If decided before the port is invoked, the port is not invoked at all (a cache answers)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The port is invoked with these arguments (a partial mapping by parameter name)."""

    arguments: FrozenDict


@dataclass(frozen=True, slots=True)
class Drop:
    """The port is not invoked, and None is delivered without an error."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The agent gets an error of this kind after `delay_ms`. If decided on the reply, the port's effect has happened.

    Kinds: timeout, connection, rate_limit, server_error, auth, not_found, invalid. A port maps kinds to its own types.
    `retry_after_s` is the wait that the other side asks for, in seconds. `midway`: a part of the reply has arrived.
    """

    kind: str
    message: str = ""
    delay_ms: int = 0
    retry_after_s: float | None = None
    midway: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """A stream ends after this many chunks: silently, or with an error of `kind`, as when a connection breaks.

    The error comes at the latest at the end of the stream. After 0 chunks, the call is made and its reply is lost.
    """

    chunks: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Stall:
    """A stream is silent for `ms` after this many chunks, then goes on. A client that waits less long meets a time-out."""

    chunks: int
    ms: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """One chunk of a stream, counted from 1, comes twice."""

    chunk: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The port is invoked `times` more times; the first reply is delivered."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Hold:
    """Other calls go first: the call is asked, and goes on when `turns` other calls have ended or nobody else can run.

    Only at the order boundary. No time passes: code that would have to sleep or wait cannot run.
    """

    turns: int = 1


@dataclass(frozen=True, slots=True)
class Crash:
    """The agent's process ends when the call has had its effect, before the agent hears of it.

    Only at the process boundary. Code of the agent that still runs, such as a `finally`, reaches no port any more.
    """


Effect: TypeAlias = Pass | Delay | Replace | Rewrite | Drop | Raise | Truncate | Stall | Repeat | Duplicate | Hold | Crash
PASS: Final = Pass()


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier call of the same port that got a reply: its agent, its arguments in recorded form, and the port's reply."""

    kind: ActionKind
    agent: str
    arguments: FrozenDict
    value: Any
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What an operator knows about a call.

    `arguments` are in recorded form (hashed or redacted if the port says so), `given` as the caller gave them: this is
    what a Rewrite starts from. `past` holds the port's earlier calls in this run, by any agent, oldest first; reads and
    writes of one memory are one port. `index` is the call's position in the perturbation's range, from 0.
    """

    port: str
    kind: ActionKind
    agent: str
    site: str
    arguments: FrozenDict
    at_ms: int
    parameters: FrozenDict
    index: int = 0
    given: FrozenDict = EMPTY
    past: tuple[Past, ...] = ()

    @property
    def history(self) -> tuple[Any, ...]:
        """The port's earlier raw replies, oldest first."""
        return tuple(item.value for item in self.past)

    @property
    def asked(self) -> tuple[FrozenDict, ...]:
        """The arguments of the calls in `history`, in the same order."""
        return tuple(item.arguments for item in self.past)


@dataclass(frozen=True, slots=True)
class Reply:
    """The port's reply, as Python data; operators build a changed copy and never alter it in place."""

    value: Any


@dataclass(frozen=True, slots=True)
class BrokenReply:
    """A recorded stream that did not reach its end. `error`: what the port raised there; None if the agent left it there."""

    value: list[Any]
    error: BaseException | None
