"""Order, roles, tool messages and what is never stored (sections 2 and 6)."""

from __future__ import annotations

import re
from typing import Any, Final

from mat.core.value import EMPTY
from mat.core.verdict import Obligation
from mat.monitor.contract import Violated
from session.contracts.errors import NOTICE
from session.contracts.guarantee import broken, guarantee
from session.contracts.reading import Asked, Billed, Ended, Executed, Said, size, text_of
from session.contracts.result import reported
from session.contracts.settings import FINAL, SessionConfig
from session.contracts.view import OVERFLOW, Moment, View, is_overflow

TIMEOUT: Final = "(tool failed: timeout)"
FAILED: Final = re.compile(r"\(tool failed: .+\)", re.DOTALL)


@guarantee(
    "conversation.order",
    "6 Order guarantee",
    "system messages, the task, then assistant and tool messages in turn",
    on=Said,
    observable="result",
    repair="append messages in the order in which they belong to the exchange",
)
def _order(now: Moment, own: None) -> Violated | None:
    event, last = now.event, now.before.last_role
    assert isinstance(event, Said)
    notice = event.role == "user" and bool(event.answers) and now.config.transport == "xml"
    if _is_ephemeral(event):
        return None  # judged by conversation.ephemeral
    if event.role == "system":
        fine = last in ("", "system")
    elif event.role == "user":
        fine = last in ("", "system") or (notice and last in ("assistant", "user"))
        fine = fine or bool(event.answers)  # in the wrong transport: judged by the transport's own guarantees
    elif event.role == "assistant":
        fine = last in ("user", "assistant", "tool")
    else:
        fine = event.role == "tool" and last in ("assistant", "tool", "user") and now.before.accepted > 0
    if fine:
        return None
    return Violated(
        f"a message of role {event.role!r} follows {last or 'nothing'}", wanted="system, user, then assistant and tool in turn"
    )


def _is_ephemeral(event: Said) -> bool:
    return event.role in ("system", "user") and (event.content.startswith("System notice:") or event.instructions)


@guarantee(
    "conversation.ends_with_answer",
    "6 Order guarantee",
    "a successful conversation ends with the assistant's report or text",
    on=Ended,
    observable="result",
    repair="end the conversation with the message that holds the report",
)
def _ends(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    view = now.before
    if not now.event.success or view.messages == 0 or view.last_role == "assistant":
        return None
    if (now.event.report or EMPTY).get("status") == "failure":
        return None  # a synthetic report is in no message
    calls = [call.id for call in view.calls if call.final]
    if view.answered and view.answered[-1] in calls:
        return None  # judged by transport.final_no_response
    return Violated(f"the conversation ends with a message of role {view.last_role!r}", wanted="the assistant's final message")


@guarantee(
    "conversation.tool_linked",
    "6 Tool Message Handling",
    "each tool response names a call of the reply that it answers, once",
    on=Said,
    observable="result",
    repair="set toolCallId to the id of the call",
)
def _linked(now: Moment, own: None) -> Any:
    event, view = now.event, now.before
    assert isinstance(event, Said)
    if not event.answers or view.accepted == 0 or (event.role == "user" and now.config.transport != "xml"):
        return None  # results in user messages: judged by transport.no_past_in_xml_final
    ids = {call.id for call in (*view.calls, *view.stored)}
    found = []
    for answer in event.answers:
        if answer.id not in ids:
            found.append(
                Violated(
                    f"a tool response answers {answer.id!r}, which nobody asked for",
                    instance=answer.id,
                    wanted="the id of a call",
                )
            )
        elif answer.id in view.answered:
            found.append(
                Violated(f"the call {answer.id!r} is answered twice", instance=answer.id, wanted="one response a call")
            )
    return broken(found)


def _unanswered(config: SessionConfig, view: View) -> list[str]:
    """Calls that ran without a response in the conversation. Calls beyond the limit are judged by limits.excess_calls_told."""
    if view.attempt is None or not view.attempt.stored or reported(view) is not None:
        return []
    allowed = [call for call in view.stored if not call.final][: config.max_tool_calls_per_turn]
    owed = [call.id for call in allowed if call.runs and call.tag is None and call.id]
    ran = [id for id in view.executed if id and "/" not in id and id not in owed]
    finals = {call.id for call in view.calls if call.final}
    wanted = [*(id for id in owed if not view.attempt.calls or id in view.executed), *ran]
    return [id for id in wanted if id not in view.answered and id not in finals]


def _late(config: SessionConfig, view: View, where: str) -> Any:
    return broken(
        Violated(f"the call {id!r} has no response in the conversation {where}", instance=id, wanted=f"a tool message for {id}")
        for id in _unanswered(config, view)
    )


def _answers_open(config: SessionConfig, view: View, own: None) -> tuple[Obligation, ...]:
    if view.ended or view.attempt is None:
        return ()
    return tuple(Obligation(text="a tool response", since=view.attempt.step, instance=id) for id in _unanswered(config, view))


@guarantee(
    "conversation.tool_answered",
    "6 Tool Message Handling",
    "each tool that ran, or failed, has a response in the conversation",
    on=(Asked, Ended),
    observable="result",
    open=_answers_open,
    end=lambda config, view, own: None if view.ended else _late(config, view, "at the end"),
    repair="append a tool message for every call, also for those that failed",
)
def _answered(now: Moment, own: None) -> Any:
    return _late(now.config, now.before, "before the next request" if isinstance(now.event, Asked) else "at the end")


@guarantee(
    "conversation.failed_format",
    "6 Failed tools",
    "a failed tool's response reads (tool failed: <reason>)",
    on=(Executed, Said),
    observable="result",
    start=(),
    repair="put the reason into (tool failed: <reason>)",
)
def _failed(now: Moment, own: tuple[str, ...]) -> Any:
    event = now.event
    if isinstance(event, Executed):
        known = () if now.before.executed == () else own
        return (*known, event.id) if event.failed and not event.timed_out and event.id else known
    assert isinstance(event, Said)
    found = [
        Violated(
            f"the response of the failed call {answer.id!r} reads {answer.text[:80]!r}",
            instance=answer.id,
            wanted="(tool failed: <reason>)",
        )
        for answer in event.answers
        if answer.id in own and not FAILED.fullmatch(answer.text) and answer.text != OVERFLOW
    ]
    return broken(found, tuple(id for id in own if id not in {answer.id for answer in event.answers}))


@guarantee(
    "conversation.successful_response",
    "6 Successful tools",
    "a successful tool's response is added to the conversation, not a failure",
    on=(Executed, Billed, Said),
    observable="result",
    start=(),
    repair="append what the tool returned",
)
def _successful(now: Moment, own: tuple[tuple[str, str, str | None], ...]) -> Any:
    """(id, tool, response) of successes whose response must be stored unchanged; None for an unseen response."""
    event = now.event
    if isinstance(event, Executed):
        known = () if now.before.executed == () else own
        return (*known, (event.id, event.name, event.text)) if _comes_unchanged(now, event) else known
    if isinstance(event, Billed):
        if not is_overflow(event.entry):
            return None
        dropped = next((item for item in own if item[1] == event.entry.get("command")), None)
        return tuple(item for item in own if item is not dropped)
    assert isinstance(event, Said)
    texts, found = {id: text for id, _, text in own}, []
    for answer in event.answers:
        if answer.id not in texts or answer.text == OVERFLOW or answer.text.startswith("[TRUNCATED]"):
            continue
        wanted = texts[answer.id]
        unseen = wanted is None and (answer.failure is None or answer.text == TIMEOUT)
        if unseen or (wanted is not None and answer.text.strip() == wanted.strip()):
            continue
        said = f"the response to {answer.id!r} is not what the tool returned"
        found.append(Violated(said, instance=answer.id, wanted=(wanted or "the tool's response")[:200]))
    return broken(found, tuple(item for item in own if item[0] not in {answer.id for answer in event.answers}))


def _comes_unchanged(now: Moment, event: Executed) -> bool:
    """A success of a user-facing tool, in time and within the limit of its size."""
    if event.failed or not event.id or "/" in event.id or event.name == FINAL:
        return False
    config = now.config
    slow = config.tool_timeout_ms is not None and event.duration_ms > config.tool_timeout_ms
    return not slow and (config.tool_response_max_bytes is None or size(event.text or "") <= config.tool_response_max_bytes)


@guarantee(
    "conversation.reasoning_kept",
    "2 Empty content",
    "a reply of reasoning alone proceeds, and its reasoning stays in the conversation",
    on=(Asked, Ended, Said),
    observable="request",
    transports=("native",),
    repair="store the reply with its reasoning and go on",
)
def _reasoning(now: Moment, own: None) -> Violated | None:
    last, event = now.before.attempt, now.event
    if last is None or last.reply != "reasoning":
        return None
    if isinstance(event, Said):
        if event.role != "assistant" or last.stored or event.reasoning == last.reasoning:
            return None
        return Violated("the reasoning of the reply is not in the conversation", wanted=last.reasoning[:200])
    if last.stored:
        return None
    return Violated(
        f"the reasoning-only reply of step {last.step} was thrown away",
        witness=(last.step, now.record.step),
        wanted="the reply, stored",
    )


@guarantee(
    "conversation.empty_not_stored",
    "2 Empty content",
    "a reply without content, calls and reasoning is not stored",
    on=Said,
    observable="result",
    repair="retry instead of storing the reply",
)
def _empty(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Said)
    if event.role != "assistant" or event.content.strip() or event.reasoning.strip() or event.calls:
        return None
    return Violated("an empty assistant message is in the conversation", wanted="no message, and a retry")


@guarantee(
    "conversation.ephemeral",
    "6 Ephemeral Messages",
    "retry notices are never stored in the conversation",
    on=(Asked, Said),
    observable="result",
    start=(),
    repair="append notices to the request only",
)
def _ephemeral(now: Moment, own: tuple[str, ...]) -> Any:
    event = now.event
    if isinstance(event, Asked):
        sent = tuple(text_of(item.get("content")) for item in event.tail)
        return tuple(text for text in sent if text.startswith("System notice:"))
    assert isinstance(event, Said)
    if event.role == "assistant" or event.role == "tool":
        return None
    if not event.content.startswith("System notice:") and event.content not in own:
        return None
    return Violated("a retry notice is in the conversation", wanted="no such message in the conversation")


@guarantee(
    "conversation.notice_used_once",
    "6 Ephemeral Messages",
    "a retry notice goes with one retry, not with later requests",
    on=Asked,
    observable="request",
    repair="clear the notice after the retry that it was made for",
)
def _once(now: Moment, own: None) -> Violated | None:
    event, last = now.event, now.before.attempt
    assert isinstance(event, Asked)
    if not any(item.get("content") == NOTICE for item in event.tail):
        return None
    if last is not None and not last.stored and (last.reply in ("empty", "text", "reasoning") or last.reply == "unknown"):
        return None
    if last is not None and not last.stored and last.reply in ("calls", "error") and last.error in ("", "invalid"):
        return None  # a malformed response may get the same notice
    return Violated("the notice of an earlier retry is still in the request", wanted="a request without it")


@guarantee(
    "conversation.full_history",
    "6 Conversation",
    "what the model was accepted to have said is in the conversation as it said it",
    on=Said,
    observable="request",
    repair="store the reply's content and calls",
)
def _history(now: Moment, own: None) -> Violated | None:
    event, last = now.event, now.before.attempt
    assert isinstance(event, Said)
    if event.role != "assistant" or last is None or last.stored or last.reply in ("unknown", "error", "reasoning", "empty"):
        return None
    if last.content.strip() and event.content.strip() != last.content.strip():
        return Violated(
            "the stored message is not what the model said", witness=(last.step, now.record.step), wanted=last.content[:200]
        )
    lost = [
        call.id for call in last.calls if call.tag is None and call.runs and call.id not in {item.id for item in event.calls}
    ]
    if not lost:
        return None
    return Violated(
        f"the call {lost[0]!r} is missing in the stored message",
        witness=(last.step, now.record.step),
        instance=lost[0],
        wanted="all calls of the reply",
    )
