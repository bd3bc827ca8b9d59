"""The context guard (section 2, Context Management Contract)."""

from __future__ import annotations

from typing import Any, Final

from mat.monitor.contract import Violated
from session.contracts.guarantee import guarantee
from session.contracts.reading import Asked, Billed, Ended, Executed, Logged, Said, field, text_of
from session.contracts.settings import FINAL
from session.contracts.view import OVERFLOW, Moment, is_overflow, preflight, projected

PREPARED: Final = "llm_request_prepared"
"""The event name by which the convention knows the log entry `LLM request prepared`."""
GUARD: Final = "context_guard"


def _number(entry: Any, *names: str) -> int | None:
    value = field(entry, *names)
    return value if type(value) is int else None


@guarantee(
    "context.window_respected",
    "2 Context Management; 9",
    "no request exceeds the context window",
    on=Asked,
    observable="result",
    needs=["context_window"],
    repair="run the guard before each request",
)
def _window(now: Moment, own: None) -> Violated | None:
    event, window = now.event, now.config.context_window or 0
    assert isinstance(event, Asked)
    if event.restricted and now.after.guarded:
        return None  # what is left after shrinking goes out best-effort
    if event.overflow:
        return Violated(f"the provider refused the request: {event.error_text[:80]}", wanted=f"a prompt within {window} tokens")
    sent = _number(event.usage or {}, "inputTokens", "input_tokens")
    cached = _number(event.usage or {}, "cacheReadTokens", "cachedTokens", "cache_read_tokens") or 0
    if sent is None or sent + cached <= window:
        return None
    return Violated(f"the prompt had {sent + cached} tokens", wanted=f"at most {window}")


@guarantee(
    "context.turn_preflight",
    "2 Guard Projection",
    "a request whose projection exceeds the limit goes out as a forced final turn",
    on=Asked,
    observable="request",
    needs=["context_window", "tools"],
    repair="check the projection before each request",
)
def _preflight(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    if now.before.guarded or event.restricted is not False or preflight(now.config, now.before, event) is not True:
        return None
    said = f"the projection of the request exceeds {now.config.limit} tokens, and it offers all tools"
    return Violated(said, wanted=f"only {FINAL}")


@guarantee(
    "context.guard_is_strict",
    "2 Guard Projection",
    "the guard fires only where the projection is greater than the limit",
    on=Asked,
    observable="request",
    needs=["context_window", "tools"],
    repair="compare with >, not >=",
)
def _strict(now: Moment, own: None) -> Violated | None:
    event, before = now.event, now.before
    assert isinstance(event, Asked)
    if not event.restricted or before.guarded or before.report_failed or event.counters is None:
        return None
    if now.config.max_turns is None or now.after.turn >= now.config.max_turns:
        return None
    total, limit = projected(event.counters), now.config.limit
    if total is None or limit is None or total > limit:
        return None
    return Violated(f"the tools were withdrawn at a projection of {total} tokens, limit {limit}", wanted="all tools")


@guarantee(
    "context.tool_preflight",
    "2 Guard Projection",
    "a tool response that would exceed the limit is not committed",
    on=Asked,
    observable="request",
    needs=["context_window"],
    repair="project before committing a tool response, and drop what does not fit",
)
def _tool_preflight(now: Moment, own: None) -> Violated | None:
    event, limit = now.event, now.config.limit or 0
    assert isinstance(event, Asked)
    if event.counters is None or (total := projected(event.counters)) is None or now.before.forced >= 0:
        return None
    outputs = _number(event.counters, "outputs") or 0
    if total <= limit or total - outputs > limit or not outputs:
        return None
    said = f"tool responses of {outputs} tokens raised the projection to {total}, limit {limit}"
    return Violated(said, wanted=OVERFLOW)


# -- overflow ----------------------------------------------------------------------------------------------------------------


@guarantee(
    "context.overflow_stub",
    "2 Tool Overflow Handling",
    f"a dropped response is replaced by {OVERFLOW}",
    on=(Billed, Said, Asked, Ended),
    observable="result",
    start=(0, 0),
    repair=f"put {OVERFLOW} in its place",
)
def _stub(now: Moment, own: tuple[int, int]) -> Any:
    dropped, stubs = own
    event = now.event
    if isinstance(event, Billed):
        return (dropped + 1, stubs) if is_overflow(event.entry) else None
    if isinstance(event, Said):
        found = sum(answer.text == OVERFLOW for answer in event.answers)
        return (dropped, stubs + found) if found else None
    if stubs >= dropped:
        return (0, 0) if own != (0, 0) else None
    said = f"{dropped} tool responses were dropped for the context window, and {stubs} stubs are in the conversation"
    return Violated(said, state=(0, 0), wanted=OVERFLOW)


@guarantee(
    "context.overflow_accounted",
    "2 Tool Overflow Handling",
    "a dropped response is accounted with its estimate and its replacement's",
    on=(Billed, Said, Asked, Ended),
    observable="result",
    start=(0, 0),
    repair="account originalTokens and replacementTokens of the response that was dropped",
)
def _accounted(now: Moment, own: tuple[int, int]) -> Any:
    entries, stubs = own
    event = now.event
    if isinstance(event, Billed):
        has = _number(event.entry, "originalTokens", "original_tokens") is not None
        has = has and _number(event.entry, "replacementTokens", "replacement_tokens") is not None
        return (entries + 1, stubs) if has else None
    if isinstance(event, Said):
        found = sum(answer.text == OVERFLOW for answer in event.answers)
        return (entries, stubs + found) if found else None
    if entries >= stubs:
        return (0, 0) if own != (0, 0) else None
    said = f"{stubs} tool responses were dropped, and {entries} accounting entries tell their tokens"
    return Violated(said, state=(0, 0), wanted="originalTokens and replacementTokens")


@guarantee(
    "context.overflow_logged",
    "2 Tool Overflow Handling",
    "a drop logs projected, limit and remaining tokens",
    on=(Said, Logged, Asked, Ended),
    observable="log",
    start=0,
    repair="log projected_tokens, limit_tokens and, where positive, remaining_tokens",
)
def _overflow_logged(now: Moment, own: int) -> Any:
    """Positive: stubs without an entry yet; negative: entries whose stub comes later."""
    event = now.event
    if isinstance(event, Logged):
        told = _number(event.entry, "projected_tokens") is not None and _number(event.entry, "limit_tokens") is not None
        return own - 1 if told and event.event == "tool_overflow" else None
    if isinstance(event, Said):
        found = sum(answer.text == OVERFLOW for answer in event.answers)
        return own + found if found else None
    if own <= 0:
        return 0 if own else None
    return Violated(f"{own} drops were not logged with their tokens", state=0, wanted="projected_tokens, limit_tokens")


@guarantee(
    "context.no_new_tools_after_overflow",
    "2 Tool Overflow Handling",
    "after a drop no further user-facing tool starts",
    on=Executed,
    observable="result",
    repair="check the toolBudgetExceeded flag when a tool gets its slot",
)
def _no_new(now: Moment, own: None) -> Violated | None:
    view, event = now.before, now.event
    assert isinstance(event, Executed)
    if view.dropped < 0 or view.forced >= 0 or event.name == FINAL:
        return None
    said = f"{event.name} started after a response was dropped at step {view.dropped}"
    return Violated(said, witness=(view.dropped, now.record.step), instance=event.id, wanted="no further tool")


# -- the forced final turn ---------------------------------------------------------------------------------------------------


@guarantee(
    "context.forced_final_tools",
    "2 Forced Final Turn",
    f"once the guard has fired, requests offer only {FINAL}",
    on=Asked,
    observable="request",
    needs=["tools"],
    repair=f"restrict the tools to {FINAL} for the rest of the session",
)
def _final_tools(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    if not now.before.guarded or event.restricted is not False:
        return None
    return Violated("a request after the context guard fired offers other tools", wanted=f"only {FINAL}")


@guarantee(
    "context.final_instruction",
    "2 Forced Final Turn",
    "a forced final request carries the final instruction as a system message",
    on=Asked,
    observable="request",
    repair="add a system message that asks for the final report",
)
def _instruction(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    if not now.after.guarded or not event.restricted or event.messages is None or len(event.messages) < 3:
        return None
    if any(item.get("role") == "system" for item in event.tail if item is not event.messages[0]):
        return None
    return Violated("the forced final request has no final instruction", wanted="a system message among the last ones")


@guarantee(
    "context.no_tools_in_forced_final",
    "2 Forced Final Turn",
    "in a forced final turn no tool runs but the final report",
    on=Executed,
    observable="request",
    repair="refuse calls of withdrawn tools, progress included",
)
def _nothing_runs(now: Moment, own: None) -> Violated | None:
    view, event = now.before, now.event
    assert isinstance(event, Executed)
    if view.forced < 0 or event.name == FINAL:
        return None
    return Violated(
        f"{event.name} ran in a forced final turn", witness=(view.forced, now.record.step), instance=event.id, wanted=FINAL
    )


# -- what only logs show -----------------------------------------------------------------------------------------------------


@guarantee(
    "context.first_turn_is_zero",
    "2 Counters",
    "the first request logs ctx 0",
    on=Logged,
    observable="log",
    start=False,
    repair="start currentCtxTokens at 0",
)
def _zero(now: Moment, own: bool) -> Any:
    assert isinstance(now.event, Logged)
    value = _number(now.event.entry, "ctxTokens")
    if own or now.event.event != PREPARED:
        return None
    return Violated(f"the first request logs ctx {value}", state=True, wanted="ctx 0") if value not in (0, None) else True


@guarantee(
    "context.ctx_as_reported",
    "2 LLM Request Metrics",
    "ctxTokens is what the provider reported for the previous response",
    on=Logged,
    observable="log",
    repair="set currentCtxTokens to input + output + cacheRead of the last response",
)
def _reported(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    value, known = _number(now.event.entry, "ctxTokens"), now.before.context_tokens
    if now.event.event != PREPARED or value is None or known is None or value == known:
        return None
    return Violated(f"a request logs ctx {value}, the provider reported {known}", wanted=f"ctx {known}")


@guarantee(
    "context.expected_tokens",
    "2 LLM Request Metrics",
    "expectedTokens = ctxTokens + pendingCtxTokens + schemaCtxTokens",
    on=Logged,
    observable="log",
    repair="log the sum of the three counters",
)
def _expected(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    entry = now.event.entry
    parts = [_number(entry, name) for name in ("ctxTokens", "pendingCtxTokens", "schemaCtxTokens")]
    said = _number(entry, "expectedTokens")
    if now.event.event != PREPARED or said is None or None in parts or said == sum(part or 0 for part in parts):
        return None
    return Violated(f"expectedTokens is {said}", wanted=str(sum(part or 0 for part in parts)))


@guarantee(
    "context.new_tokens",
    "2 LLM Request Metrics",
    "the new tokens of a request log are pendingCtxTokens",
    on=Logged,
    observable="log",
    repair="log pendingCtxTokens as new",
)
def _new(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    new, pending = _number(now.event.entry, "newTokens"), _number(now.event.entry, "pendingCtxTokens")
    if now.event.event != PREPARED or new is None or pending is None or new == pending:
        return None
    return Violated(f"new is {new}, pendingCtxTokens {pending}", wanted=str(pending))


@guarantee(
    "context.retry_notices_counted",
    "2 LLM Request Metrics",
    "retry notices count toward pendingCtxTokens before the log",
    on=(Logged, Asked),
    observable="log",
    start=(None, None),
    repair="add the notice's tokens before the request is logged",
)
def _counted(now: Moment, own: tuple[int | None, int | None]) -> Any:
    """(pending of the turn's first request, pending of the latest log): the log of a request comes before it."""
    event, (base, mine) = now.event, own
    if isinstance(event, Logged):
        pending = _number(event.entry, "pendingCtxTokens")
        return (base, pending) if event.event == PREPARED and pending is not None else None
    assert isinstance(event, Asked)
    if mine is None:
        return None
    if now.before.attempt is None or now.after.turn != now.before.turn:
        return (mine, None)
    noticed = any(text_of(item.get("content")).startswith("System notice:") for item in event.tail)
    if base is None or not noticed or mine > base:
        return (base, None)
    said = f"the retry of step {now.record.step} brings a notice, and pendingCtxTokens stayed {mine}"
    return Violated(said, state=(base, None), wanted=f"more than {base}")


@guarantee(
    "context.flushed",
    "2 Counters",
    "newCtxTokens is moved into pendingCtxTokens before each projection",
    on=Logged,
    observable="log",
    repair="flush newCtxTokens before the guard projects",
)
def _flushed(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    left = _number(now.event.entry, "newCtxTokens")
    if now.event.event != GUARD or not left:
        return None
    return Violated(f"the guard projects with {left} tokens still in newCtxTokens", wanted="newCtxTokens 0")


@guarantee(
    "context.projection",
    "2 Guard Projection",
    "projected = current + pending + new + schema",
    on=Logged,
    observable="log",
    repair="add the four counters",
)
def _projection(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    entry = now.event.entry
    parts = [_number(entry, name) for name in ("currentCtxTokens", "pendingCtxTokens", "newCtxTokens", "schemaCtxTokens")]
    said = _number(entry, "projected_tokens")
    if now.event.event != GUARD or said is None or None in parts or said == sum(part or 0 for part in parts):
        return None
    return Violated(f"projected is {said}", wanted=str(sum(part or 0 for part in parts)))


@guarantee(
    "context.decision",
    "2 Guard Projection",
    "the guard decides by projected > limit",
    on=Logged,
    observable="log",
    repair="compare with >, not >=",
)
def _decision(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    entry = now.event.entry
    total, limit, fired = _number(entry, "projected_tokens"), _number(entry, "limit_tokens"), field(entry, "fired")
    if now.event.event != GUARD or total is None or limit is None or not isinstance(fired, bool) or fired is (total > limit):
        return None
    return Violated(
        f"the guard {'fired' if fired else 'did not fire'} at {total} of {limit} tokens", wanted="projected > limit"
    )


@guarantee(
    "context.limit",
    "2 Guard Projection",
    "limit = contextWindow - contextWindowBufferTokens - maxOutputTokens",
    on=Logged,
    observable="log",
    needs=["context_window"],
    repair="subtract the buffer and the reply's room from the window",
)
def _limit(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    said = _number(now.event.entry, "limit_tokens")
    if now.event.event != GUARD or said is None or said == now.config.limit:
        return None
    return Violated(f"limit is {said}", wanted=str(now.config.limit))


@guarantee(
    "context.blocked_pair",
    "2 Guard Projection",
    "a guard that fires records the blocked provider and model",
    on=Logged,
    observable="log",
    repair="log provider and model with the guard's decision",
)
def _blocked(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    entry = now.event.entry
    if now.event.event != GUARD or field(entry, "fired") is not True or (field(entry, "provider") and field(entry, "model")):
        return None
    return Violated("the guard fired and names no provider and model", wanted="provider, model")


@guarantee(
    "context.forced_reason_logged",
    "2 Forced Final Turn",
    "a forced final turn logs forcedFinalTurnReason 'context'",
    on=(Logged, Asked),
    observable="log",
    start=False,
    repair="log forcedFinalTurnReason = 'context'",
)
def _reason(now: Moment, own: bool) -> Any:
    if isinstance(now.event, Logged):
        return True if field(now.event.entry, "forcedFinalTurnReason") == "context" else None
    if own or now.after.forced != now.record.step:
        return None
    return Violated("the forced final turn is not logged", wanted="forcedFinalTurnReason 'context'")


@guarantee(
    "context.schema_recomputed",
    "2 Forced Final Turn",
    "the schema's tokens are recomputed for the reduced tools",
    on=Asked,
    observable="log",
    repair="estimate the schema anew after restricting the tools",
)
def _schema(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    if now.after.forced != now.record.step or event.counters is None or event.after_shrink is None:
        return None
    before, after = _number(event.counters, "schema"), _number(event.after_shrink, "schema")
    if before is None or after is None or after < before:
        return None
    return Violated(f"schemaCtxTokens is {after} for the reduced tools and was {before}", wanted=f"less than {before}")


@guarantee(
    "context.post_shrink_warning",
    "2 Forced Final Turn",
    "a projection that exceeds the limit even so is logged",
    on=(Logged, Asked),
    observable="log",
    needs=["context_window"],
    start=False,
    repair="log post_shrink_overflow and go on best-effort",
)
def _warning(now: Moment, own: bool) -> Any:
    if isinstance(now.event, Logged):
        return True if now.event.event == "post_shrink_overflow" else None
    event = now.event
    assert isinstance(event, Asked)
    if (
        event.after_shrink is None
        or (total := projected(event.after_shrink)) is None
        or total <= (now.config.limit or 0)
        or own
    ):
        return None
    return Violated(f"the projection is {total} after shrinking, and no warning says so", wanted="post_shrink_overflow")
