"""Fatal and retryable errors, back-off, and the notices of retries (sections 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from mat.monitor.contract import Violated
from session.contracts.guarantee import guarantee
from session.contracts.reading import RETRYABLE, Asked, Ended
from session.contracts.settings import SessionConfig
from session.contracts.view import Attempt, Moment, missing

NOTICE: Final = "System notice: plain text responses without tool calls are ignored. Use final_report to provide your answer."
FIRST_BACKOFF_MS: Final = 1_000
MAX_BACKOFF_MS: Final = 60_000
AT_ONCE_MS: Final = 1_000
"""Attempts closer together than the shortest back-off count as immediate."""
CLOCK_MS: Final = 5
"""The tolerance for a wait that ends early: clocks are rounded to milliseconds."""


def _no_retry(kind: str, now: Moment) -> Violated | None:
    last = now.before.attempt
    if last is None or last.error != kind:
        return None
    said = (
        f"a request to {now.after.attempt.provider if now.after.attempt else ''} followed the {kind} error of step {last.step}"
    )
    return Violated(said, witness=(last.step, now.record.step), wanted="the session's failure, at once")


@guarantee(
    "errors.auth_is_fatal",
    "3 Auth errors",
    "after an authentication error there is no further attempt",
    on=Asked,
    observable="result",
    repair="end the session on the first authentication error",
)
def _auth(now: Moment, own: None) -> Violated | None:
    return _no_retry("auth", now)


@guarantee(
    "errors.quota_is_fatal",
    "3 Quota exceeded",
    "after an exceeded quota there is no further attempt",
    on=Asked,
    observable="result",
    repair="end the session on the first quota error",
)
def _quota(now: Moment, own: None) -> Violated | None:
    return _no_retry("quota", now)


def _fatal_result(kind: str, now: Moment) -> Violated | None:
    last, event = now.before.attempt, now.event
    assert isinstance(event, Ended)
    if last is None or last.error != kind:
        return None
    if event.success:
        said, wanted = f"the session calls itself a success after a {kind} error", "success: false"
    elif not event.error.strip():
        said, wanted = f"result.error says nothing of the {kind} error", "result.error with the provider's reason"
    else:
        return None
    return Violated(said, witness=(last.step, now.record.step), wanted=wanted)


@guarantee(
    "errors.auth_result",
    "3 Auth errors",
    "an authentication error gives success: false and result.error",
    on=Ended,
    observable="result",
    repair="put the provider's reason into result.error",
)
def _auth_result(now: Moment, own: None) -> Violated | None:
    return _fatal_result("auth", now)


@guarantee(
    "errors.quota_result",
    "3 Quota exceeded",
    "an exceeded quota gives success: false and result.error",
    on=Ended,
    observable="result",
    repair="put the quota's details into result.error",
)
def _quota_result(now: Moment, own: None) -> Violated | None:
    return _fatal_result("quota", now)


@guarantee(
    "errors.retries_until_exhausted",
    "3 Retryable Errors",
    "after retryable errors a turn goes on until maxRetries attempts are made",
    on=Ended,
    observable="result",
    needs=["max_retries"],
    repair="try the next target until the attempts are used up",
)
def _until_exhausted(now: Moment, own: None) -> Violated | None:
    last, most = now.before.attempt, now.config.max_retries or 0
    if last is None or last.stored or now.before.ended or last.number >= most:
        return None
    failed = last.error in RETRYABLE or missing(now.config, last.reply)
    if not failed:
        return None
    said = f"the session ended after attempt {last.number} of {most} failed ({last.error or last.reply})"
    return Violated(said, witness=(last.step, now.record.step), wanted=f"attempt {last.number + 1}")


@guarantee(
    "errors.stops_on_success",
    "3 Provider Cycling",
    "after an accepted reply its turn makes no further attempt",
    on=Asked,
    observable="request",
    repair="end the attempts of a turn with its first accepted reply",
)
def _stops(now: Moment, own: None) -> Violated | None:
    last, event = now.before.attempt, now.event
    assert isinstance(event, Asked)
    if last is None or not last.stored or event.turn is None or event.turn != last.turn:
        return None
    return Violated(
        f"turn {last.turn} asked again after its reply was accepted",
        witness=(last.step, now.record.step),
        wanted="the next turn",
    )


# -- back-off ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """Until when a target must not be called, why, and how often in a row it was limited."""

    provider: str
    model: str
    until_ms: int
    wait_ms: int
    told: bool
    limited: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """Of a turn: a wait per target, and the waits of the attempts of the current cycle (0: that attempt was not limited)."""

    turn: int = 0
    targets: tuple[_Wait, ...] = ()
    cycle: tuple[int, ...] = ()

    def of(self, attempt: Attempt) -> _Wait | None:
        return next((item for item in self.targets if (item.provider, item.model) == (attempt.provider, attempt.model)), None)

    @property
    def told(self) -> bool:
        return any(item.told for item in self.targets)


NO_WAITS: Final = _Waits()


def backoff_ms(limited: int) -> int:
    """The wait after the n-th rate limit in a row: 1 s, doubled each time, 60 s at most."""
    return min(FIRST_BACKOFF_MS << min(limited - 1, 16), MAX_BACKOFF_MS)


def _noted(config: SessionConfig, waits: _Waits, attempt: Attempt) -> _Waits:
    """The waits after one more attempt; none if requests do not show their target."""
    if not attempt.provider:
        return NO_WAITS
    if attempt.turn != waits.turn:
        waits = _Waits(turn=attempt.turn)
    cycle = waits.cycle if len(waits.cycle) < max(1, len(config.targets)) else ()
    known = waits.of(attempt)
    others = tuple(item for item in waits.targets if item is not known)
    if attempt.error != "rate_limit":
        return replace(waits, targets=others, cycle=(*cycle, 0))
    limited = 1 if known is None else known.limited + 1
    told = attempt.retry_after_ms is not None
    wait_ms = attempt.retry_after_ms if attempt.retry_after_ms is not None else backoff_ms(limited)
    made = _Wait(
        provider=attempt.provider,
        model=attempt.model,
        until_ms=attempt.ended_ms + wait_ms,
        wait_ms=wait_ms,
        told=told,
        limited=limited,
        step=attempt.step,
    )
    return replace(waits, targets=(*others, made), cycle=(*cycle, wait_ms))


def _all_limited_ms(config: SessionConfig, waits: _Waits) -> int:
    """The longest wait of a complete cycle in which every target was limited; 0 without one."""
    complete = len(waits.cycle) == max(1, len(config.targets))
    return max(waits.cycle) if complete and all(wait > 0 for wait in waits.cycle) else 0


def _own_wait(now: Moment, waits: _Waits, *, told: bool) -> Violated | _Waits:
    attempt = now.after.attempt
    assert attempt is not None
    before, new = now.before.attempt, _noted(now.config, waits, attempt)
    wait = waits.of(attempt) if attempt.turn == waits.turn else None
    if wait is None or before is None or attempt.began_ms + CLOCK_MS >= wait.until_ms or wait.told is not told:
        return new
    if len(now.config.targets) > 1 and attempt.began_ms < before.ended_ms + _all_limited_ms(now.config, waits):
        return new  # the whole cycle was limited: that wait is judged by errors.all_limited_wait
    waited = attempt.began_ms - (wait.until_ms - wait.wait_ms)
    said = f"{wait.provider}/{wait.model} was asked again {waited} ms after it was rate-limited"
    why = "its Retry-After" if told else f"back-off {wait.limited}"
    return Violated(said, state=new, witness=(wait.step, now.record.step), wanted=f"{why}: at least {wait.wait_ms} ms")


@guarantee(
    "errors.retry_after",
    "3 Rate limits",
    "a target that said Retry-After is not asked again before",
    on=Asked,
    observable="request",
    start=NO_WAITS,
    repair="keep each target's Retry-After and wait for what is left of it",
)
def _retry_after(now: Moment, own: _Waits) -> Violated | _Waits:
    return _own_wait(now, own, told=True)


@guarantee(
    "errors.backoff",
    "3 Rate limits",
    "without Retry-After a limited target waits 1 s, doubled each time, up to 60 s",
    on=Asked,
    observable="request",
    start=NO_WAITS,
    repair="back off exponentially from 1 s to 60 s before asking a limited target again",
)
def _backoff(now: Moment, own: _Waits) -> Violated | _Waits:
    return _own_wait(now, own, told=False)


@guarantee(
    "errors.all_limited_wait",
    "3 Rate limits",
    "if all targets of a cycle are limited, the longest of their waits is kept",
    on=Asked,
    observable="request",
    needs=["targets"],
    start=NO_WAITS,
    repair="after a fully limited cycle sleep for the longest of its waits",
)
def _all_limited(now: Moment, own: _Waits) -> Violated | _Waits:
    attempt, before = now.after.attempt, now.before.attempt
    assert attempt is not None
    new = _noted(now.config, own, attempt)
    longest = _all_limited_ms(now.config, own) if attempt.turn == own.turn and len(now.config.targets) > 1 else 0
    if before is None or attempt.began_ms - before.ended_ms + CLOCK_MS >= longest:
        return new
    said = (
        f"all targets were rate-limited in one cycle, and the next attempt came {attempt.began_ms - before.ended_ms} ms later"
    )
    return Violated(
        said, state=new, witness=(before.step, now.record.step), wanted=f"at least {longest} ms, the longest wait of the cycle"
    )


@guarantee(
    "errors.backoff_capped",
    "3 Rate limits",
    "no back-off is longer than 60 s unless a Retry-After says so",
    on=Asked,
    observable="request",
    start=NO_WAITS,
    repair="cap the back-off at 60 s",
)
def _capped(now: Moment, own: _Waits) -> Violated | _Waits:
    attempt, before = now.after.attempt, now.before.attempt
    assert attempt is not None
    new = _noted(now.config, own, attempt)
    if before is None or before.error != "rate_limit" or own.told or attempt.turn != own.turn:
        return new
    waited = attempt.began_ms - before.ended_ms
    if waited <= MAX_BACKOFF_MS + AT_ONCE_MS:
        return new
    said = f"the session waited {waited} ms after a rate limit without Retry-After"
    return Violated(said, state=new, witness=(before.step, now.record.step), wanted=f"at most {MAX_BACKOFF_MS} ms")


@guarantee(
    "errors.no_delay",
    "3 Network/timeout/model errors",
    "after a network, timeout or model error the next target is tried at once",
    on=Asked,
    observable="request",
    start=NO_WAITS,
    repair="do not sleep between targets after such an error",
)
def _no_delay(now: Moment, own: _Waits) -> Violated | _Waits:
    attempt, before = now.after.attempt, now.before.attempt
    assert attempt is not None
    new = _noted(now.config, own, attempt)
    if before is None or attempt.turn != own.turn or before.error not in ("network", "timeout", "model") or own.of(attempt):
        return new
    waited = attempt.began_ms - before.ended_ms
    if waited < AT_ONCE_MS:
        return new
    said = f"the session waited {waited} ms after a {before.error} error"
    return Violated(said, state=new, witness=(before.step, now.record.step), wanted="the next target at once")


# -- the notices of retries ----------------------------------------------------------------------------------------------------


def _is_retry(now: Moment) -> Attempt | None:
    """The failed attempt before this one, in the same turn."""
    last, attempt = now.before.attempt, now.after.attempt
    if last is None or attempt is None or attempt.turn != last.turn or last.stored:
        return None
    return last


@guarantee(
    "errors.empty_retry_notice",
    "2 Empty content",
    "a retry after an empty reply carries the notice that plain text is ignored",
    on=Asked,
    observable="request",
    repair=f"append to the retry, and only to it: {NOTICE}",
)
def _notice(now: Moment, own: None) -> Violated | None:
    last, event = _is_retry(now), now.event
    assert isinstance(event, Asked)
    if last is None or not missing(now.config, last.reply) or event.messages is None:
        return None
    if any(item.get("content") == NOTICE for item in event.tail):
        return None
    said = f"the retry after the {last.reply} reply of step {last.step} has no notice"
    return Violated(said, witness=(last.step, now.record.step), wanted=NOTICE)


@guarantee(
    "errors.invalid_retry_notice",
    "3 Invalid/malformed responses",
    "a retry after a malformed response tells the model what was wrong",
    on=Asked,
    observable="request",
    start=0,
    repair="append an ephemeral message that names the error to the retry",
)
def _invalid_notice(now: Moment, own: int) -> Any:
    last, event = _is_retry(now), now.event
    assert isinstance(event, Asked)
    length = own if event.messages is None else len(event.messages)
    malformed = last is not None and (
        last.error == "invalid" or (last.reply == "calls" and not any(call.runs for call in last.calls))
    )
    if last is None or not malformed or event.messages is None or length > own or _tells(event):
        return length
    said = f"the retry after the malformed response of step {last.step} says nothing of it"
    return Violated(said, state=length, witness=(last.step, now.record.step), wanted="an error message for the model")


def _tells(event: Asked) -> bool:
    return any(
        item.get("role") in ("user", "system") and str(item.get("content", "")).startswith("System notice:")
        for item in event.tail
    )
