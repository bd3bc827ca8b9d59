"""Turn, call and attempt limits, and the order of targets (sections 1 and 3)."""

from __future__ import annotations

from typing import Any

from mat.core.value import EMPTY
from mat.monitor.contract import Violated
from session.contracts.guarantee import broken, guarantee
from session.contracts.reading import Asked, Ended, Executed, Said
from session.contracts.settings import FINAL
from session.contracts.view import Moment, counted


@guarantee(
    "limits.max_turns",
    "1 maxTurns",
    "a session never takes more than maxTurns turns",
    on=(Asked, Said),
    observable="result",
    needs=["max_turns"],
    repair="end the session with the final turn, with a synthetic report if need be",
)
def _max_turns(now: Moment, own: None) -> Violated | None:
    limit, view = now.config.max_turns or 0, now.after
    if isinstance(now.event, Said):
        over = now.event.role == "assistant" and view.accepted > limit
        said = f"assistant message {view.accepted} in a conversation with maxTurns {limit}"
    else:
        over = view.turn > limit and view.turn > now.before.turn
        said = f"turn {view.turn} of a session with maxTurns {limit} began"
    if not over:
        return None
    return Violated(said, witness=(now.record.step,), wanted=f"no request after turn {limit}")


@guarantee(
    "limits.retry_is_not_a_turn",
    "1 maxTurns",
    "retries within a turn do not count as turns",
    on=(Asked, Ended),
    observable="request",
    needs=["max_retries"],
    repair="raise the turn number only after an accepted reply or after maxRetries failed attempts",
)
def _retry_is_not_a_turn(now: Moment, own: None) -> Violated | None:
    last, config = now.before.attempt, now.config
    if last is None or not last.declared:
        return None
    if isinstance(now.event, Asked):
        if now.event.turn is not None and now.event.turn > last.turn + 1:
            said = f"turn {now.event.turn} follows turn {last.turn}"
            return Violated(said, witness=(last.step, now.record.step), wanted=f"turn {last.turn + 1}")
        early = (
            now.event.turn is not None
            and now.event.turn > last.turn
            and not last.stored
            and last.number < (config.max_retries or 0)
        )
        if not early or last.error in ("auth", "quota"):
            return None
        said = (
            f"turn {now.event.turn} began after {last.number} of {config.max_retries} attempts of turn {last.turn} had failed"
        )
        return Violated(said, witness=(last.step, now.record.step), wanted=f"attempt {last.number + 1} of turn {last.turn}")
    assert isinstance(now.event, Ended)
    reason = ((now.event.report or EMPTY).get("metadata") or {}).get("reason")
    taken = now.before.closed + (not last.stored and last.number >= (config.max_retries or 0))
    if reason != "max_turns_exhausted" or config.max_turns is None or taken >= config.max_turns or now.before.report_failed:
        return None
    said = f"the session says that its turns are used up after {taken} of {config.max_turns}"
    return Violated(said, witness=(last.step, now.record.step), wanted=f"turn {taken + 1}")


@guarantee(
    "limits.max_retries",
    "1 maxRetries",
    "a turn takes at most maxRetries attempts, the first one included",
    on=Asked,
    observable="request",
    needs=["max_retries"],
    repair="count every request of the turn, also the first, against maxRetries",
)
def _max_retries(now: Moment, own: None) -> Violated | None:
    attempt, limit = now.after.attempt, now.config.max_retries or 0
    assert attempt is not None
    if not attempt.declared or attempt.number - now.before.empties <= limit:
        return None  # empty replies that were not counted are judged by another guarantee
    said = f"attempt {attempt.number} of turn {attempt.turn} with maxRetries {limit}"
    return Violated(said, instance=f"turn {attempt.turn}", wanted=f"at most {limit} attempts a turn")


@guarantee(
    "limits.empty_counts_as_attempt",
    "2 Empty content",
    "an empty reply counts as one attempt of maxRetries",
    on=Asked,
    observable="request",
    needs=["max_retries"],
    repair="count the attempt before looking at its reply",
)
def _empty_counts(now: Moment, own: None) -> Violated | None:
    attempt, limit, empties = now.after.attempt, now.config.max_retries or 0, now.before.empties
    assert attempt is not None
    if not attempt.declared or attempt.number <= limit or attempt.number - empties > limit:
        return None
    said = f"attempt {attempt.number} of turn {attempt.turn} with maxRetries {limit}: {empties} empty replies were not counted"
    return Violated(said, instance=f"turn {attempt.turn}", wanted=f"at most {limit} attempts a turn, empty replies counted")


@guarantee(
    "limits.round_robin",
    "3 Provider Cycling",
    "attempt N of a turn goes to targets[(N-1) % len(targets)]",
    on=Asked,
    observable="result",
    needs=["targets", "max_retries"],
    repair="choose the target by the attempt's number in its turn",
)
def _round_robin(now: Moment, own: None) -> Violated | None:
    attempt, targets = now.after.attempt, now.config.targets
    assert attempt is not None
    if not attempt.provider:
        return None  # recorded without it
    wanted = targets[(attempt.number - 1) % len(targets)]
    if (attempt.provider, attempt.model) == (wanted.provider, wanted.model) or now.after.turn < now.before.turn:
        return None
    said = f"attempt {attempt.number} of turn {attempt.turn} went to {attempt.provider}/{attempt.model}"
    return Violated(said, instance=f"turn {attempt.turn}", wanted=f"{wanted.provider}/{wanted.model}")


@guarantee(
    "limits.max_tool_calls",
    "1 maxToolCallsPerTurn",
    "no more than maxToolCallsPerTurn tools run in one turn",
    on=Executed,
    observable="result",
    needs=["max_tool_calls_per_turn"],
    start=(0, 0),
    repair="drop the calls beyond the limit before anything runs",
)
def _max_tool_calls(now: Moment, own: tuple[int, int]) -> Violated | tuple[int, int] | None:
    assert isinstance(now.event, Executed)
    if now.event.name == FINAL or "/" in now.event.id:  # parts of a batch are one call of the model
        return None
    ran = (own[1] if own[0] == now.before.turn else 0) + 1
    state, limit = (now.before.turn, ran), now.config.max_tool_calls_per_turn or 0
    if ran <= limit:
        return state
    said = f"{now.event.name} is tool call {ran} of turn {state[0]}, with maxToolCallsPerTurn {limit}"
    return Violated(said, state=state, instance=now.event.id, wanted="a dropped call and an error message for the model")


@guarantee(
    "limits.excess_calls_told",
    "1 maxToolCallsPerTurn",
    "the model gets an error message for each call dropped as excess",
    on=(Asked, Ended),
    observable="result",
    needs=["max_tool_calls_per_turn"],
    repair="answer each dropped call with (tool failed: ...) that names the limit",
)
def _excess_told(now: Moment, own: None) -> Any:
    view, limit = now.before, now.config.max_tool_calls_per_turn or 0
    calls = counted(view)
    if view.attempt is not None and view.attempt.reply == "unknown" and any(call.tag is not None for call in calls):
        return None  # only the request shows which tags were valid
    if len(calls) <= limit or view.attempt is None or not view.attempt.stored or _reported(view.calls):
        return None
    excess = [call for call in calls[limit:] if call.id not in view.answered and call.id not in view.executed]
    if isinstance(now.event, Asked):
        told = " ".join(str(item.get("content", "")) for item in now.event.tail)
        excess = [call for call in excess if not (call.id and call.id in told)]
    return broken(
        [
            Violated(
                f"{len(calls)} calls, limit {limit}, and the model does not hear that {call.name} was dropped",
                witness=(view.attempt.step, now.record.step),
                instance=call.id,
                wanted=f"an error message for {call.id}",
            )
            for call in excess
        ]
    )


def _reported(calls: tuple[object, ...]) -> bool:
    """Whether a reply also ended the session: then nobody reads answers anymore."""
    return any(getattr(call, "final", False) and getattr(call, "runs", False) for call in calls)
