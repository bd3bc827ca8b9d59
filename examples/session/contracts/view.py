"""The known state of a session at a step: a fold that all session contracts share, so that turns and attempts are counted once.

Its size is bounded by the calls of one reply and the targets; of the past it keeps only counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mat.core.record import Record
from mat.core.value import FrozenDict
from session.contracts.markup import Instructions
from session.contracts.reading import (
    Asked,
    Billed,
    Crashed,
    Ended,
    Event,
    Executed,
    ReplyKind,
    Said,
    ToolRequest,
    field,
    read,
    text_of,
)
from session.contracts.settings import BATCH, FINAL, SessionConfig

OVERFLOW: Final = "(tool failed: context window budget exceeded)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The latest request and its reply, as later steps need them."""

    step: int
    turn: int
    number: int
    provider: str
    model: str
    began_ms: int
    ended_ms: int
    reply: ReplyKind
    error: str
    retry_after_ms: int | None
    restricted: bool | None
    declared: bool
    content: str = ""
    reasoning: str = ""
    stop: str = ""
    calls: tuple[ToolRequest, ...] = ()
    used: int | None = None
    stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The session so far. `closed`: turns that ended, by an accepted reply or because all their attempts failed.

    `attempt` is None before the first request. `since_accepted` counts attempts after the last accepted reply, `empties`
    the empty ones of this turn. `guarded`: the context guard has fired; `forced` the step of the first restricted request
    after that; `dropped` the step of the first overflow stub; `report_failed` the turn of a final report that failed.
    """

    attempt: Attempt | None = None
    closed: int = 0
    accepted: int = 0
    since_accepted: int = 0
    empties: int = 0
    context_tokens: int | None = None
    guarded: bool = False
    forced: int = -1
    dropped: int = -1
    report_failed: int = 0
    executed: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    stored: tuple[ToolRequest, ...] = ()
    text: str = ""
    last_role: str = ""
    messages: int = 0
    ended: bool = False

    @property
    def turn(self) -> int:
        return 0 if self.attempt is None else self.attempt.turn

    @property
    def calls(self) -> tuple[ToolRequest, ...]:
        """The calls of the latest reply, as the model made them or, if that was not seen, as in the conversation."""
        attempt = self.attempt
        return self.stored if attempt is None or attempt.reply == "unknown" else attempt.calls


START: Final = View()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One step: the record, the event it is, and the session before and after it."""

    config: SessionConfig
    record: Record
    event: Event | None
    before: View
    after: View


_latest: Moment | None = None


def observe(config: SessionConfig, before: View, record: Record) -> Moment:
    """The moment of a record. Contracts of one session ask for the same one in turn, so the latest is kept: a pure memo."""
    global _latest
    known = _latest
    if known is not None and known.record is record and known.before is before and known.config is config:
        return known
    event = read(config, record)
    after = before if event is None else _advanced(config, before, event, record)
    _latest = moment = Moment(config=config, record=record, event=event, before=before, after=after)
    return moment


def _advanced(config: SessionConfig, view: View, event: Event, record: Record) -> View:
    if isinstance(event, Asked):
        return _after_attempt(config, view, event, record)
    if isinstance(event, Said):
        return _after_message(view, event, record)
    if isinstance(event, Executed):
        failed = view.report_failed or (view.turn if event.name == FINAL and event.failed else 0)
        return replace(view, executed=(*view.executed, event.id), report_failed=failed)
    if isinstance(event, Billed) and is_overflow(event.entry):
        return replace(view, guarded=True, dropped=record.step if view.dropped < 0 else view.dropped)
    return replace(view, ended=True) if isinstance(event, Ended | Crashed) else view


def is_overflow(entry: FrozenDict) -> bool:
    """Whether an accounting entry is that of a response dropped for the context window."""
    return entry.get("type") == "tool" and "context window budget exceeded" in text_of(entry.get("error"))


def _after_attempt(config: SessionConfig, view: View, event: Asked, record: Record) -> View:
    turn, number, closed = numbered(config, view, event)
    fresh = number == 1
    guarded = view.guarded or preflight(config, view, event) is True
    used = _used(event.usage)
    attempt = Attempt(
        step=record.step,
        turn=turn,
        number=number,
        provider=event.provider,
        model=event.model,
        began_ms=record.at_ms,
        ended_ms=record.sealed_ms,
        reply=event.reply,
        error=event.error,
        retry_after_ms=event.retry_after_ms,
        restricted=event.restricted,
        declared=event.turn is not None,
        content=event.content,
        reasoning=event.reasoning,
        stop=event.stop,
        calls=event.calls,
        used=used,
    )
    return replace(
        view,
        attempt=attempt,
        closed=closed,
        since_accepted=view.since_accepted + 1,
        empties=(0 if fresh else view.empties) + missing(config, event.reply),
        guarded=guarded,
        forced=record.step if view.forced < 0 and guarded and event.restricted else view.forced,
        executed=(),
        answered=(),
        stored=(),
        text="",
    )


def missing(config: SessionConfig, reply: ReplyKind) -> bool:
    """Whether a reply has nothing to act on. Reasoning alone is kept in the native transport and missing in the XML ones."""
    return reply in ("empty", "text") or (reply == "reasoning" and config.transport != "native")


def numbered(config: SessionConfig, view: View, event: Asked) -> tuple[int, int, int]:
    """(turn, attempt within it, turns closed before it) of a request.

    A turn closes when its reply is stored. If requests do not state their turn, one that used up its attempts has closed
    too, and the next request begins another.
    """
    last = view.attempt
    if last is None:
        return (1 if event.turn is None else event.turn), 1, view.closed
    exhausted = not last.stored and config.max_retries is not None and last.number >= config.max_retries
    if event.turn is not None:
        if event.turn == last.turn:
            return last.turn, last.number + 1, view.closed
        return event.turn, 1, view.closed + (not last.stored)
    if last.stored or exhausted:
        return last.turn + 1, 1, view.closed + (not last.stored)
    return last.turn, last.number + 1, view.closed


def projected(counters: FrozenDict) -> int | None:
    """current + pending + new + schema of recorded counters; None if one is missing."""
    values = [counters.get(name, 0 if name == "new" else None) for name in ("current", "pending", "new", "schema")]
    return sum(values) if all(type(value) is int for value in values) else None  # type: ignore[arg-type]


def preflight(config: SessionConfig, view: View, event: Asked) -> bool | None:
    """Whether the projection of a request exceeds the limit; None if that is unknown.

    Uses the orchestrator's own counters, else the provider's last report, which is a lower bound of the projection.
    """
    limit = config.limit
    if limit is None:
        return None
    if event.counters is not None and (total := projected(event.counters)) is not None:
        return total > limit
    return True if view.context_tokens is not None and view.context_tokens > limit else None


def _used(usage: FrozenDict | None) -> int | None:
    """inputTokens + outputTokens + cacheReadTokens as a provider reports them."""
    if usage is None:
        return None
    read_in, out = field(usage, "inputTokens", "input_tokens"), field(usage, "outputTokens", "output_tokens")
    cached = field(usage, "cacheReadTokens", "cachedTokens", "cache_read_tokens")
    if type(read_in) is not int or type(out) is not int:
        return None
    return read_in + out + (cached if type(cached) is int else 0)


def _after_message(view: View, event: Said, record: Record) -> View:
    attempt = view.attempt
    if event.role == "assistant":
        if attempt is not None and not attempt.stored:
            attempt = replace(attempt, stored=True)
            view = replace(view, context_tokens=view.context_tokens if attempt.used is None else attempt.used)
        return replace(
            view,
            attempt=attempt,
            closed=view.closed + 1,
            accepted=view.accepted + 1,
            answered=(),
            since_accepted=0,
            stored=event.calls,
            text=event.content,
            last_role="assistant",
            messages=view.messages + 1,
        )
    dropped = any(answer.text == OVERFLOW for answer in event.answers)
    return replace(
        view,
        answered=(*view.answered, *(answer.id for answer in event.answers)) if event.answers else view.answered,
        last_role=event.role,
        messages=view.messages + 1,
        guarded=view.guarded or dropped,
        dropped=record.step if dropped and view.dropped < 0 else view.dropped,
        report_failed=view.report_failed or (view.turn if _report_failed(view, event) else 0),
    )


def _report_failed(view: View, event: Said) -> bool:
    finals = [call.id for call in view.calls if call.final]
    return any(answer.id in finals and answer.failure is not None for answer in event.answers)


def executable(view: View) -> tuple[ToolRequest, ...]:
    """The user-facing calls of the latest reply that are well formed."""
    return tuple(call for call in view.calls if call.runs and not call.final)


def counted(view: View) -> tuple[ToolRequest, ...]:
    """The calls of the latest reply that count against maxToolCallsPerTurn: all but the final report and ignored tags."""
    return tuple(call for call in view.calls if not call.final and call.standing != "ignored")


def is_batch(view: View, call_id: str) -> bool:
    return any(call.id == call_id and call.name == BATCH for call in view.calls)


__all__ = [
    "OVERFLOW",
    "START",
    "Attempt",
    "Instructions",
    "Moment",
    "View",
    "counted",
    "executable",
    "is_batch",
    "is_overflow",
    "missing",
    "numbered",
    "observe",
    "preflight",
    "projected",
]
