"""Results of ai-agent sessions (AIAgentResult) as traces. Only observes: it perturbs, governs and replays nothing.

A result holds `success`, `finalReport`, `conversation`, `accounting`, `error` and, if a command line was run, `exitCode`.
It becomes records by the convention of readings.md. What a result does not show is listed and never guessed:
requests and settings, Retry-After, turn numbers, raw tool responses, configuration files, streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeGuard, TypeVar

from mat.core.codec import load_json
from mat.core.errors import MatError
from mat.core.record import NOTHING, Action, ActionKind, ErrorFact, Observation, Record
from mat.core.site import escape
from mat.core.value import EMPTY, FrozenDict, snapshot
from mat.core.verdict import ContractOutcome, Violation
from mat.monitor.contract import Contract
from mat.monitor.judge import judge

AGENT: Final = "session"
ROLES: Final = ("system", "user", "assistant", "tool")
ERROR_KINDS: Final = ("auth", "quota", "rate_limit", "timeout", "network", "model", "invalid", "context")
_ERRORS: Final[Mapping[str, re.Pattern[str]]] = {
    "auth": re.compile(r"\b401\b|\b403\b|unauthori[sz]ed|authentication|invalid api key|auth[ _]error", re.I),
    "quota": re.compile(r"\b402\b|quota|billing|insufficient (?:funds|credits|balance)", re.I),
    "rate_limit": re.compile(r"\b429\b|rate[ _-]?limit|too many requests", re.I),
    "timeout": re.compile(r"timed? ?out|timeout|deadline exceeded", re.I),
    "network": re.compile(r"network|connection (?:refused|reset|error|failed)|ECONN|socket hang up|getaddrinfo", re.I),
    "model": re.compile(r"\b5\d\d\b|model[ _]error|internal server error|overloaded|server error", re.I),
    "invalid": re.compile(r"invalid[ _](?:response|reply|json)|malformed|empty (?:response|reply)|unparsable", re.I),
    "context": re.compile(r"context[ _-](?:length|window)|maximum context|prompt is too long", re.I),
}
_CATEGORIES: Final[Mapping[str, re.Pattern[str]]] = {
    "schema": re.compile(r"\bschema (?:validation|error|mismatch)|\b(?:invalid|tool) schema", re.I),
    "validation": re.compile(r"\bvalidation (?:error|failed|failure)", re.I),
    "configuration": re.compile(r"\b(?:configuration|config) error|\b(?:invalid|missing|bad) config(?:uration)?\b", re.I),
    "arguments": re.compile(r"\b(?:invalid|unknown|missing|unrecogni[sz]ed)(?: required)? (?:argument|option|flag)s?\b", re.I),
    "mcp": re.compile(r"\bmcp servers?\b", re.I),
    "initialization": re.compile(r"\binitiali[sz]ation (?:error|failed|failure)|\bfailed to initiali[sz]e", re.I),
}
"""The category of a session's failure by its error text. A schema validation is of the schema."""
_LEAD: Final = re.compile(r"(?:\s*(?:fatal|error)\b[\s:]*)*", re.I)
_TAG: Final = re.compile(r"<ai-agent-([0-9a-f]{8}-(?:\d{4}|FINAL))\s[^>]*?tool=\"([^\"]*)\"")
_TURNS: Final = tuple(
    f"session.{name}"
    for name in (
        "limits.round_robin",
        "limits.max_tool_calls",
        "limits.excess_calls_told",
        "tools.timeout_aborts",
        "tools.timeout_accounted",
        "tools.timeout_text",
        "context.window_respected",
        "context.no_new_tools_after_overflow",
        "errors.auth_is_fatal",
        "errors.quota_is_fatal",
        "errors.auth_result",
        "errors.quota_result",
        "errors.retries_until_exhausted",
        "result.always",
        "result.synthetic_reason",
        "conversation.tool_answered",
        "conversation.failed_format",
        "conversation.successful_response",
        "accounting.llm_entry",
        "accounting.tool_entry",
        "transport.report_command",
    )
)
"""Guarantees that follow requests and executions through the turns; they need to know which of them gave which message."""
_BY_CALL: Final = (
    "session.tools.timeout_text",
    "session.conversation.failed_format",
    "session.accounting.tool_entry",
)
"""Guarantees that need to know which accounting entry belongs to which call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotObservable:
    """Something that a result does not show: a guarantee's id, or an aspect in words, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A result as a trace. `silent`: ids of guarantees that must not be judged on it, each explained in `not_observable`."""

    records: tuple[Record, ...]
    not_observable: tuple[NotObservable, ...] = ()
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check: one outcome for each judged guarantee, and the guarantees that could not be judged."""

    records: tuple[Record, ...]
    outcomes: tuple[ContractOutcome, ...]
    not_observable: tuple[NotObservable, ...]

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for outcome in self.outcomes for violation in outcome.violations)


ConfigT = TypeVar("ConfigT", contravariant=True)


class Guaranteed(Protocol[ConfigT]):
    """The interface that `check` needs of a guarantee; `session.contracts.GUARANTEES` have it."""

    @property
    def id(self) -> str: ...
    @property
    def observable(self) -> str: ...
    @property
    def transports(self) -> tuple[str, ...]: ...
    def missing(self, config: ConfigT) -> tuple[str, ...]: ...
    def make(self, config: ConfigT) -> Contract: ...


def check(
    result: object, config: Any, guarantees: Iterable[Guaranteed[Any]], *, error_kind: Callable[[str], str] | None = None
) -> Checked:
    """Judge a result by every guarantee that is observable in it (C3), with `guarantees=session.contracts.GUARANTEES`.

    `config` is the SessionConfig that the session ran with. Guarantees that only requests or logs show, whose settings are
    not given, or whose evidence this result lacks are listed with the reason. MatError for a malformed result, as in `read`.
    """
    imported = read(result, transport=config.transport, error_kind=error_kind)
    judged: list[Contract] = []
    unseen: list[NotObservable] = []
    for item in guarantees:
        if config.transport not in item.transports:
            continue
        missing = item.missing(config)
        if item.observable != "result":
            unseen.append(NotObservable(what=item.id, why=_UNSEEN[item.observable]))
        elif missing:
            unseen.append(NotObservable(what=item.id, why=f"the configuration does not say {', '.join(missing)}"))
        elif item.id not in imported.silent:
            judged.append(item.make(config))
    _, outcomes = judge(imported.records, judged)
    return Checked(records=imported.records, outcomes=outcomes, not_observable=(*imported.not_observable, *unseen))


_UNSEEN: Final[Mapping[str, str]] = {
    "request": "only what providers, tools, the user or the configuration loader met shows it",
    "log": "only logs show it, and they are no part of the contract",
}


def read(result: object, *, transport: str = "native", error_kind: Callable[[str], str] | None = None) -> Imported:
    """A result as a trace: a mapping, or its JSON as text or bytes.

    `transport` is the format of calls in assistant messages. `error_kind` maps the error text of a failed LLM entry to one of
    ERROR_KINDS or to ""; the default knows common texts; a text that fits none or several is unknown. MatError
    reports every problem of a malformed result at once.
    """
    data = load_json(result, where="the result") if isinstance(result, str | bytes) else result
    problems = _problems(data)
    if problems:
        shown = "; ".join(problems[:20]) + (f"; and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise MatError(
            f"not an AIAgentResult: {shown}",
            why="a result has success, conversation and accounting, and where there are such finalReport, error and exitCode",
            fix="give the result as the session returned it, as a mapping or as JSON",
            where=problems[0].partition(" ")[0],
        )
    assert isinstance(data, Mapping)
    return _Reader(data, transport, error_kind or classified).read()


def classified(text: str) -> str:
    """The kind of an LLM error by its text; empty if no rule fits, or several do."""
    found = [kind for kind, rule in _ERRORS.items() if rule.search(text)]
    return found[0] if len(found) == 1 else ""


def failure_category(text: str) -> str:
    """The category of a session's failure by its error text, as exit codes have it; empty if no rule fits, or several do.

    What the text begins with decides: the rest of a configuration error may name a server, an option or a schema.

    >>> failure_category("configuration error: NOPE is not defined"), failure_category("schema validation failed")
    ('configuration', 'schema')
    >>> failure_category("Error: configuration error: the MCP server files has no command")
    'configuration'
    """
    begin = _LEAD.match(text)
    found = [name for name, rule in _CATEGORIES.items() if begin is not None and rule.match(text, begin.end())]
    found = found or [name for name, rule in _CATEGORIES.items() if rule.search(text)]
    if found[:2] == ["schema", "validation"]:
        del found[1]
    return found[0] if len(found) == 1 else ""


# -- validation --------------------------------------------------------------------------------------------------------------


def _problems(data: object) -> list[str]:
    """Every reason why data is not a result, each beginning with its place."""
    if not isinstance(data, Mapping):
        return [f"result is {type(data).__name__}, not an object"]
    found = [] if isinstance(data.get("success"), bool) else ["result.success is not true or false"]
    for name in ("conversation", "accounting"):
        items = data.get(name)
        if not _is_list(items):
            found.append(f"result.{name} is not an array")
            continue
        for index, item in enumerate(items):
            where = f"result.{name}[{index}]"
            if not isinstance(item, Mapping):
                found.append(f"{where} is not an object")
            elif name == "conversation":
                found += _message_problems(item, where)
            elif not isinstance(item.get("type"), str):
                found.append(f"{where}.type is not a text")
    if data.get("finalReport") is not None and not isinstance(data["finalReport"], Mapping):
        found.append("result.finalReport is not an object")
    if data.get("error") is not None and not isinstance(data["error"], str):
        found.append("result.error is not a text")
    code = data.get("exitCode")
    if code is not None and (not isinstance(code, int) or isinstance(code, bool)):
        found.append("result.exitCode is not an integer")
    return found


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _message_problems(item: Mapping[str, Any], where: str) -> list[str]:
    found = []
    if item.get("role") not in ROLES:
        found.append(f"{where}.role is {item.get('role')!r}, none of {', '.join(ROLES)}")
    if item.get("content") is not None and not isinstance(item["content"], str | Mapping) and not _is_list(item["content"]):
        found.append(f"{where}.content is neither a text nor structured")
    calls = _first(item, "toolCalls", "tool_calls")
    if calls is not None and (not _is_list(calls) or not all(isinstance(call, Mapping) for call in calls)):
        found.append(f"{where}.toolCalls is not an array of objects")
    return found


def _first(item: Mapping[str, Any], *names: str) -> Any:
    return next((item[name] for name in names if name in item), None)


# -- reading -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """A call of the latest assistant message, until an accounting entry claims it."""

    id: str
    name: str
    claimed: bool = False


@dataclass(slots=True)
class _Reader:
    """Merges accounting and conversation, each in its own order: requests before the messages that they gave."""

    result: Mapping[str, Any]
    transport: str
    error_kind: Callable[[str], str]
    records: list[Record] = field(default_factory=list)
    notes: list[NotObservable] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    calls: list[_Call] = field(default_factory=list)
    inner: int = 0
    paired: bool = True
    start: float | None = None
    now_ms: int = 0

    def read(self) -> Imported:
        entries = list(self.result["accounting"])
        messages = list(self.result["conversation"])
        self._check_pairing(entries, messages)
        at = 0 if self.paired else len(entries)
        for index, entry in enumerate(entries[:at]):  # without their requests and executions: pairs are never guessed
            self._write("accounting", index, entry)
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                at = self._entries(entries, at, until_ok=True)
                self._message(index, message)
                self.calls, self.inner = self._calls(message), 0
                at = self._entries(entries, at, until_ok=False)
            else:
                self._message(index, message)
        self._entries(entries, at, until_ok=None)
        self._end()
        return Imported(records=tuple(self.records), not_observable=tuple(self.notes), silent=frozenset(self.silent))

    def _check_pairing(self, entries: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]) -> None:
        good = sum(item["type"] == "llm" and item.get("status") == "ok" for item in entries)
        spoken = sum(item["role"] == "assistant" for item in messages)
        if good > spoken:
            why = f"{good} successful requests gave {spoken} assistant messages, and the result does not tell which"
            self._unseen("which request gave which message", why, _TURNS)
            self.paired = False
        if self.transport == "xml" and spoken:
            why = "the slots that a request offered are not in the result"
            self._unseen("which tags of a message were valid", why, ("session.limits.excess_calls_told",))
        if self.result.get("exitCode") is None:
            ids = ("session.result.exit_zero_is_success", "session.result.exit_code_category")
            self._unseen("the exit code", "the result has none", ids)

    def _unseen(self, what: str, why: str, ids: Iterable[str] = ()) -> None:
        note = NotObservable(what=what, why=why)
        if note not in self.notes:
            self.notes.append(note)
        for id in ids:
            if id not in self.silent:
                self.silent.add(id)
                self.notes.append(NotObservable(what=id, why=why))

    def _entries(self, entries: Sequence[Mapping[str, Any]], at: int, *, until_ok: bool | None) -> int:
        """Take entries: up to the next successful request (True), only tools (False), or all that are left (None)."""
        while at < len(entries):
            entry = entries[at]
            if entry["type"] == "tool":
                at = self._executions(entries, at)
                continue
            if entry["type"] != "llm":
                self._write("accounting", at, entry)
                at += 1
                continue
            if until_ok is False or (until_ok is True and not self._more_requests(entries, at)):
                return at
            at += 1
            self._request(entry)
            self._write("accounting", at - 1, entry)
            if until_ok is True and entry.get("status") == "ok":
                return at
        return at

    def _executions(self, entries: Sequence[Mapping[str, Any]], at: int) -> int:
        """Take a row of tool entries: executions by when they began, and each entry once its execution was over.

        If one ends as another begins, the other counts as begun before: the order within a millisecond is unknown.
        """
        end = next((index for index in range(at, len(entries)) if entries[index]["type"] != "tool"), len(entries))
        if not all(_is_number(entry.get("timestamp")) and _is_number(entry.get("latency")) for entry in entries[at:end]):
            for index in range(at, end):
                self._execution(entries[index])
                self._write("accounting", index, entries[index])
            return end
        moments = [(entry["timestamp"], 0, index) for index, entry in enumerate(entries[at:end], at)]
        moments += [(entry["timestamp"] + entry["latency"], 1, index) for index, entry in enumerate(entries[at:end], at)]
        for _, over, index in sorted(moments):
            if over:
                self._write("accounting", index, entries[index])
            else:
                self._execution(entries[index])
        return end

    def _more_requests(self, entries: Sequence[Mapping[str, Any]], at: int) -> bool:
        return any(item["type"] == "llm" and item.get("status") == "ok" for item in entries[at:])

    # -- one entry, one message -------------------------------------------------------------------------------------

    def _request(self, entry: Mapping[str, Any]) -> None:
        arguments = {name: entry[name] for name in ("provider", "model") if isinstance(entry.get(name), str)}
        tokens = entry.get("tokens")
        usage = {name: item for name, item in tokens.items() if type(item) is int} if isinstance(tokens, Mapping) else {}
        if entry.get("status") == "ok":
            value = {"usage": usage, "stop_reason": entry.get("stopReason") if isinstance(entry.get("stopReason"), str) else ""}
            observation = Observation(value=snapshot(value))
        else:
            text = entry["error"] if isinstance(entry.get("error"), str) else ""
            observation = Observation(error=ErrorFact(type="", message=text, kind=self._kind(entry, text)))
        began, ended = self._times(entry)
        self._record("model_call", "llm", arguments, observation, began=began, ended=ended)

    def _kind(self, entry: Mapping[str, Any], text: str) -> str:
        given = entry.get("errorKind")
        kind = given if given in ERROR_KINDS else self.error_kind(text)
        if kind in ERROR_KINDS:
            return str(kind)
        why = f"the error text {text[:80]!r} does not tell"
        self._unseen("the kind of an LLM error", why, ("session.errors.retries_until_exhausted",))
        return "unknown"

    def _execution(self, entry: Mapping[str, Any]) -> None:
        command = entry["command"] if isinstance(entry.get("command"), str) else ""
        name = command.removesuffix("_xml") if command == "agent__final_report_xml" else command
        arguments: dict[str, Any] = {"call_id": self._call_id(name)}
        if isinstance(entry.get("mcpServer"), str):
            arguments["server"] = entry["mcpServer"]
        text = entry["error"] if isinstance(entry.get("error"), str) else ""
        observation = NOTHING
        if entry.get("status") == "failed" and "context window budget exceeded" not in text:
            timed_out = _ERRORS["timeout"].search(text) is not None
            observation = Observation(error=ErrorFact(type="", message=text, kind="timeout" if timed_out else ""))
        began, ended = self._times(entry)
        self._record("tool_call", name, arguments, observation, began=began, ended=ended)

    def _call_id(self, name: str) -> str:
        """The call that an entry accounts for: by its tool's name, if this is the only call of that name in its reply."""
        mine = [call for call in self.calls if call.name == name]
        if not mine:
            batch = next((call for call in self.calls if call.name == "agent__batch"), None)
            self.inner += 1
            return "" if batch is None else f"{batch.id}/{self.inner}"
        if len(mine) > 1:
            why = f"a reply has {len(mine)} calls of {name}, and accounting entries do not name their call"
            self._unseen("which accounting entry belongs to which call", why, _BY_CALL)
            return ""
        if mine[0].claimed:
            return ""
        mine[0].claimed = True
        return mine[0].id

    def _calls(self, message: Mapping[str, Any]) -> list[_Call]:
        found = []
        for call in _first(message, "toolCalls", "tool_calls") or ():
            inner = call.get("function") if isinstance(call.get("function"), Mapping) else call
            if self.transport != "xml" and isinstance(call.get("id"), str) and isinstance(inner.get("name"), str):
                found.append(_Call(call["id"], inner["name"]))
        if self.transport != "native" and isinstance(message.get("content"), str):
            slots = dict(_TAG.findall(message["content"]))
            numbered = self.transport == "xml"
            found += [_Call(slot, tool) for slot, tool in slots.items() if numbered or slot.endswith("-FINAL")]
        return found

    def _message(self, index: int, message: Mapping[str, Any]) -> None:
        self._write("conversation", index, message)

    def _write(self, name: str, index: int, value: Mapping[str, Any]) -> None:
        arguments = {"key": str(index), "value": value}
        self._record("memory_write", name, arguments, NOTHING, began=self.now_ms, ended=self.now_ms)

    def _times(self, entry: Mapping[str, Any]) -> tuple[int, int]:
        """(begin, end) in ms since the first entry; the previous time if an entry has none."""
        stamp, latency = entry.get("timestamp"), entry.get("latency")
        if _is_number(stamp):
            self.start = stamp if self.start is None else self.start
            began = max(0, round(stamp - self.start))
        else:
            began = self.now_ms
        ended = began + (round(latency) if _is_number(latency) else 0)
        self.now_ms = max(self.now_ms, ended)
        return began, ended

    def _end(self) -> None:
        answer = {
            name: item for name, item in self.result.items() if name not in ("conversation", "accounting") and item is not None
        }
        asked = any(entry["type"] == "llm" for entry in self.result["accounting"])
        category = failure_category(str(self.result.get("error") or ""))
        if category and not asked and not self.result["success"]:  # later, such words may be a provider's or a tool's
            answer.setdefault("errorCategory", category)
        kind, name = ("final_response", "answer") if self.result["success"] else ("termination", "failed")
        self._record(kind, name, {"answer": answer}, NOTHING, began=self.now_ms, ended=self.now_ms)  # type: ignore[arg-type]

    def _record(
        self, kind: ActionKind, name: str, arguments: Mapping[str, Any], observation: Observation, *, began: int, ended: int
    ) -> None:
        step = len(self.records)
        boundary = {"model_call": "model", "tool_call": "service", "memory_write": "memory"}.get(kind, "")
        action = Action(
            kind=kind,
            name=name,
            arguments=_frozen(arguments),
            effect="write" if kind == "memory_write" else "none",
            boundary=boundary,
        )
        self.records.append(
            Record(
                step=step,
                at_ms=began,
                sealed_ms=ended,
                asked_seq=2 * step,
                sealed_seq=2 * step + 1,
                agent=AGENT,
                role="",
                state=EMPTY,
                site=f"{AGENT}/{boundary or kind}:{escape(name)}#{step + 1}",
                action=action,
                observation=observation,
                effected="yes" if observation.error is None else "unknown",
                mediation=None,
                links=(),
                executed=None,
                raw=None,
                invoked=1,
                faults=(),
                taped=False,
            )
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e16


def _frozen(arguments: Mapping[str, Any]) -> FrozenDict:
    copied = snapshot(arguments, "the result")
    assert isinstance(copied, FrozenDict)
    return copied


__all__ = ["ERROR_KINDS", "Checked", "Guaranteed", "Imported", "NotObservable", "check", "classified", "read"]
