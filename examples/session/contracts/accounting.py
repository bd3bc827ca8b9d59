"""The accounting array (section 4)."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from mat.core.value import FrozenDict
from mat.core.verdict import Obligation
from mat.monitor.contract import Violated
from session.contracts.guarantee import broken, guarantee
from session.contracts.reading import Asked, Billed, Ended, Executed, Said, field, text_of
from session.contracts.settings import FINAL, SessionConfig
from session.contracts.view import Moment, View

SLACK_MS: Final = 5
"""The allowed difference between an entry's latency and the observed duration, in addition to 2 %."""
_Open = tuple[tuple[str, int], ...]


def _is(entry: FrozenDict, kind: str) -> bool:
    return entry.get("type") == kind


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _command(name: str) -> str:
    return name.removesuffix("_xml") if name == f"{FINAL}_xml" else name


# -- every request and every execution ---------------------------------------------------------------------------------------


def _missing_llm(own: tuple[int, int]) -> Any:
    return (
        Violated("a request has no accounting entry", step=own[0], state=(-1, own[1]), wanted="an entry of type 'llm'")
        if own[0] >= 0
        else None
    )


@guarantee(
    "accounting.llm_entry",
    "4 LLM Accounting Entries",
    "every request to a model produces an accounting entry",
    on=(Asked, Billed, Said, Ended),
    observable="result",
    start=(-1, 0),
    repair="account each attempt, also the failed ones, before the next one",
    end=lambda config, view, own: None if view.ended else _missing_llm(own),
    open=lambda config, view, own: () if own[0] < 0 else (Obligation(text="an accounting entry of type 'llm'", since=own[0]),),
)
def _llm_entry(now: Moment, own: tuple[int, int]) -> Any:
    """(step of the request that waits for its entry or -1, ok entries not yet claimed by an assistant message)."""
    waits, spare = own
    event = now.event
    if isinstance(event, Billed):
        if not _is(event.entry, "llm"):
            return None
        return (-1, spare + (event.entry.get("status") == "ok"))
    if isinstance(event, Said):
        if event.role != "assistant" or (now.before.attempt is not None and now.before.attempt.reply != "unknown"):
            return None
        if spare > 0:
            return (waits, spare - 1)
        return Violated("an assistant message has no successful accounting entry", wanted="an entry of type 'llm', status 'ok'")
    found = _missing_llm(own)
    state = (now.record.step if isinstance(event, Asked) else -1, spare)
    return state if found is None else broken([found], state)


def _missing_tools(own: _Open) -> Any:
    return broken(
        [
            Violated(
                f"the execution of {name} has no accounting entry", step=step, instance=name, wanted="an entry of type 'tool'"
            )
            for name, step in own
        ],
        (),
    )


def _tools_open(config: SessionConfig, view: View, own: _Open) -> tuple[Obligation, ...]:
    return tuple(Obligation(text="an accounting entry of type 'tool'", since=step, instance=name) for name, step in own)


@guarantee(
    "accounting.tool_entry",
    "4 Tool Accounting Entries",
    "every tool execution produces an accounting entry",
    on=(Executed, Billed, Said, Asked, Ended),
    observable="result",
    start=(),
    open=_tools_open,
    repair="account each execution, also the failed ones",
    end=lambda config, view, own: None if view.ended or not own else _missing_tools(own),
)
def _tool_entry(now: Moment, own: _Open) -> Any:
    event = now.event
    if isinstance(event, Executed):
        return (*own, (event.name, now.record.step))
    if isinstance(event, Billed):
        name = _command(text_of(event.entry.get("command")))
        fits = [item for item in own if item[0] == name] if _is(event.entry, "tool") else []
        return tuple(item for item in own if item is not fits[0]) if fits else None
    if isinstance(event, Said):
        silent = [
            answer
            for answer in event.answers
            if answer.id
            and answer.failure is None
            and not {answer.id, ""} & {*now.before.executed}
            and any(call.id == answer.id and not call.final for call in now.before.stored)
        ]
        return broken(
            Violated(
                f"the response to {answer.id!r} has no execution in the accounting",
                instance=answer.id,
                wanted="an entry of type 'tool'",
            )
            for answer in silent
        )
    return _missing_tools(own) if own else None


# -- fields ------------------------------------------------------------------------------------------------------------------


@guarantee(
    "accounting.llm_fields",
    "4 LLM Accounting Entries",
    "an LLM entry has provider, model, status, latency, tokens and timestamp",
    on=Billed,
    observable="result",
    repair="fill in all fields of the entry",
)
def _llm_fields(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    entry = now.event.entry
    if not _is(entry, "llm"):
        return None
    problems = [name for name in ("provider", "model") if not isinstance(entry.get(name), str) or not entry[name]]
    problems += [] if entry.get("status") in ("ok", "failed") else ["status"]
    problems += [name for name in ("latency", "timestamp") if not _is_number(entry.get(name))]
    tokens = entry.get("tokens")
    if not isinstance(tokens, FrozenDict):
        problems.append("tokens")
    else:
        problems += [
            f"tokens.{name}" for name in ("inputTokens", "outputTokens", "totalTokens") if not _is_number(tokens.get(name))
        ]
    if entry.get("status") == "failed" and not text_of(entry.get("error")).strip():
        problems.append("error")
    return (
        Violated(f"an LLM entry lacks {', '.join(problems)}", instance=", ".join(problems), wanted="all fields of section 4")
        if problems
        else None
    )


@guarantee(
    "accounting.tool_fields",
    "4 Tool Accounting Entries",
    "a tool entry has mcpServer, command, status, latency, timestamp, charactersIn and charactersOut",
    on=Billed,
    observable="result",
    repair="fill in all fields of the entry",
)
def _tool_fields(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    entry = now.event.entry
    if not _is(entry, "tool"):
        return None
    problems = [name for name in ("mcpServer", "command") if not isinstance(entry.get(name), str) or not entry[name]]
    problems += [] if entry.get("status") in ("ok", "failed") else ["status"]
    problems += [name for name in ("latency", "timestamp", "charactersIn", "charactersOut") if not _is_number(entry.get(name))]
    return (
        Violated(f"a tool entry lacks {', '.join(problems)}", instance=", ".join(problems), wanted="all fields of section 4")
        if problems
        else None
    )


@guarantee(
    "accounting.tool_failure_error",
    "4 Accounting Guarantees",
    "the entry of a failed tool has an error message",
    on=Billed,
    observable="result",
    repair="put the tool's error into the entry",
)
def _tool_error(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    entry = now.event.entry
    if not _is(entry, "tool") or entry.get("status") != "failed" or text_of(entry.get("error")).strip():
        return None
    return Violated(f"the entry of the failed {entry.get('command')} has no error", wanted="the error message")


@guarantee(
    "accounting.entry_types",
    "4 Accounting Contract",
    "every entry is of type 'llm' or 'tool'",
    on=Billed,
    observable="result",
    repair="set the entry's type",
)
def _types(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    kind = now.event.entry.get("type")
    return None if kind in ("llm", "tool") else Violated(f"an entry is of type {kind!r}", wanted="'llm' or 'tool'")


# -- entries agree with the trace ---------------------------------------------------------------------------------------


@guarantee(
    "accounting.provider_as_used",
    "4 Accounting Guarantees",
    "an LLM entry names the provider and model that were asked, so fallback shows",
    on=Billed,
    observable="request",
    repair="take provider and model from the request",
)
def _used(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    entry, last = now.event.entry, now.before.attempt
    if (
        not _is(entry, "llm")
        or last is None
        or not last.provider
        or not isinstance(entry.get("provider"), str)
        or not entry["provider"]
    ):
        return None
    if (entry["provider"], text_of(entry.get("model")) or last.model) == (last.provider, last.model):
        return None
    return Violated(
        f"an entry names {entry['provider']}/{entry.get('model')}",
        witness=(last.step, now.record.step),
        wanted=f"{last.provider}/{last.model}",
    )


@guarantee(
    "accounting.llm_status",
    "4 LLM Accounting Entries",
    "a request that failed is accounted as failed, one that was accepted as ok",
    on=(Billed, Said),
    observable="request",
    start="",
    repair="set the status from the attempt's outcome",
)
def _status(now: Moment, own: str) -> Any:
    event, last = now.event, now.before.attempt
    if last is None:
        return None
    if isinstance(event, Billed):
        if not _is(event.entry, "llm") or event.entry.get("status") not in ("ok", "failed"):
            return None
        status = text_of(event.entry.get("status"))
        if last.error and status == "ok":
            return Violated(
                f"the {last.error} error of step {last.step} is accounted as ok", state="", wanted="status 'failed'"
            )
        if last.stored and status == "failed":
            return Violated(f"the accepted reply of step {last.step} is accounted as failed", state="", wanted="status 'ok'")
        return status
    assert isinstance(event, Said)
    if event.role == "assistant" and own == "failed" and not last.stored and not last.error:
        return Violated(f"the accepted reply of step {last.step} is accounted as failed", state="", wanted="status 'ok'")
    return ""


@guarantee(
    "accounting.tool_status",
    "4 Tool Accounting Entries",
    "a tool that failed is accounted as failed, one that succeeded as ok",
    on=(Executed, Billed),
    observable="request",
    start=(),
    repair="set the status from the execution's outcome",
)
def _tool_status(now: Moment, own: tuple[tuple[str, bool], ...]) -> Any:
    event = now.event
    if isinstance(event, Executed):
        return None if event.timed_out else (*own, (event.name, event.failed))
    assert isinstance(event, Billed)
    name = _command(text_of(event.entry.get("command")))
    mine = [item for item in own if item[0] == name]
    if not _is(event.entry, "tool") or not mine:
        return None
    failed = event.entry.get("status") == "failed"
    fits = next((item for item in mine if item[1] is failed), None)
    chosen = mine[0] if fits is None else fits
    rest = list(own)
    rest.remove(chosen)
    dropped = "context window budget exceeded" in text_of(event.entry.get("error"))
    if fits is not None or event.entry.get("status") not in ("ok", "failed") or dropped:
        return tuple(rest)
    said = f"{name} {'succeeded' if failed else 'failed'} and is accounted as {event.entry.get('status')}"
    return Violated(said, state=tuple(rest), instance=name, wanted="status 'ok'" if failed else "status 'failed'")


@guarantee(
    "accounting.latency",
    "4 Accounting Guarantees",
    "an entry's latency is how long the request or the execution took",
    on=(Asked, Executed, Billed),
    observable="request",
    start=((), -1),
    repair="measure around the call",
)
def _latency(now: Moment, own: tuple[tuple[tuple[str, int], ...], int]) -> Any:
    tools, request = own
    event = now.event
    if isinstance(event, Asked):
        return (tools, now.record.sealed_ms - now.record.at_ms)
    if isinstance(event, Executed):
        return ((*tools, (event.name, event.duration_ms)), request)
    assert isinstance(event, Billed)
    said = event.entry.get("latency")
    if not _is_number(said):
        return None
    if _is(event.entry, "llm"):
        if request < 0 or abs(said - request) <= SLACK_MS + request // 50:
            return (tools, -1)
        return Violated(f"an entry says {said} ms, the request took {request} ms", state=(tools, -1), wanted=f"{request} ms")
    name = _command(text_of(event.entry.get("command")))
    mine = [item for item in tools if item[0] == name]
    if not mine:
        return None
    fits = min(mine, key=lambda item: abs(item[1] - said))
    rest = list(tools)
    rest.remove(fits)
    if abs(fits[1] - said) <= SLACK_MS + fits[1] // 50:
        return (tuple(rest), request)
    return Violated(
        f"an entry says {said} ms, {name} took {fits[1]} ms",
        state=(tuple(rest), request),
        instance=name,
        wanted=f"{fits[1]} ms",
    )


@guarantee(
    "accounting.tokens",
    "4 LLM Accounting Entries",
    "an LLM entry's tokens are what the provider reported",
    on=Billed,
    observable="request",
    start=None,
    repair="copy the usage of the reply",
)
def _tokens(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    entry, last = now.event.entry, now.before.attempt
    tokens = entry.get("tokens")
    known = None if last is None or last.error else last.used
    if not _is(entry, "llm") or known is None or not isinstance(tokens, FrozenDict):
        return None
    parts = [tokens.get("inputTokens"), tokens.get("outputTokens"), field(tokens, "cachedTokens", "cacheReadTokens") or 0]
    if not all(_is_number(item) for item in parts) or sum(parts) == known:  # type: ignore[arg-type]
        return None
    return Violated(f"an entry has {sum(parts)} tokens, the provider reported {known}", wanted=f"{known} tokens")  # type: ignore[arg-type]


@guarantee(
    "accounting.timestamps",
    "4 Accounting Guarantees",
    "timestamps put requests into sequence",
    on=Billed,
    observable="result",
    start=0,
    repair="stamp each entry when its request begins",
)
def _timestamps(now: Moment, own: float) -> Any:
    assert isinstance(now.event, Billed)
    stamp = now.event.entry.get("timestamp")
    if not _is(now.event.entry, "llm") or not _is_number(stamp):
        return None
    if stamp >= own:
        return stamp
    return Violated(f"an entry is stamped {stamp}, an earlier one {own}", state=stamp, wanted="timestamps that do not decrease")
