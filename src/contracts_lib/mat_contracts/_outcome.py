"""What became of an action: one rule for replies that report a failure, used wherever a template asks whether a call was done.

Many services answer a refused call with an ordinary reply, so a call that returned is not a call that was done. A reply reports
a failure if it is one of these, as a value or as JSON text:

- `{"error": ...}`, `{"errors": [...]}`, `{"exception": ...}` with anything in it;
- `{"success": false}`, `ok`, `succeeded`, `successful` likewise; `{"isError": true}`, `is_error`, `failed`, `failure` likewise;
- an HTTP status from 400 to 599 in `status`, `status_code`, `http_status` or `code`, or a `status` such as "failed", "denied";
- a text that begins with a failure: "Error: no such order", "404 Not Found", "Failed to send", "Could not find order 17".

A failure is *uncertain* if the service may have acted all the same: a time-out, a lost connection, or a status from 500 up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

from mat.core.record import Effected, Record

FailureKind: TypeAlias = Literal["timeout", "connection", "rate_limit", "server_error", "auth", "not_found", "invalid", "other"]
_UNCERTAIN: Final[frozenset[FailureKind]] = frozenset(("timeout", "connection", "server_error"))
JSON_CHARS: Final = 20_000
"""Characters of the longest text that is read as JSON."""
_HEAD: Final = 400
"""Characters at the start of a text that are searched for a failure."""


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    """A failure that a reply reports. `status`: its HTTP status, 0 if it names none."""

    kind: FailureKind
    status: int = 0

    @property
    def uncertain(self) -> bool:
        """Whether the service may have acted all the same."""
        return self.kind in _UNCERTAIN


def reported_failure(value: Any) -> ReportedFailure | None:
    """The failure that a reply reports, None if it reports none.

    >>> reported_failure({"error": "order not found"}), reported_failure("Error: timed out").uncertain
    (ReportedFailure(kind='not_found', status=0), True)
    >>> reported_failure({"status": "delivered"}), reported_failure("Errors are rare.")
    (None, None)
    """
    if type(value) is str or isinstance(value, str):
        return _by_text(value) if len(value) <= _HEAD else _by_long_text(value)
    if isinstance(value, dict):  # as in nearly all records
        return None if _NAMES.isdisjoint(value) else _by_fields(value)
    return _by_fields(value) if not isinstance(value, _PLAIN) and isinstance(value, Mapping) else None


_PLAIN: Final = (list, int, float, type(None))


def stated_failure(value: Mapping[str, Any]) -> ReportedFailure | None:
    """The failure that the fields of an object state; unlike `reported_failure`, what its texts say does not count."""
    return None if value.keys() <= _WORDS_ONLY else _by_fields(value)


def is_error_reply(value: Any) -> bool:
    """Whether a reply is nothing but the report of an error: an object with an error in it, or a text that begins with one.

    Unlike `reported_failure`, a status does not count: an order whose status is "failed" was found.

    >>> is_error_reply({"error": "no such order"}), is_error_reply({"order": "A17", "status": "failed"})
    (True, False)
    """
    if isinstance(value, str):
        return _ERROR_TEXT.match(value) is not None and reported_failure(value) is not None
    if not isinstance(value, Mapping):
        return False
    return any(_is_something(value.get(name)) for name in _ERRORS) or any(value.get(name) is True for name in _FAILED)


def failure_of(record: Record) -> ReportedFailure | None:
    """The failure that the reply of a call reported to its agent, None if it reported none or the call did not return."""
    seen = record.observation
    if record.action.kind != "tool_call" or seen.value is None or seen.opaque or seen.error is not None:
        return None
    return reported_failure(seen.value)


def failed(record: Record, kinds: tuple[str, ...] | None = None) -> bool:
    """Whether a call failed, as far as its agent knows: it raised, was cancelled, or its reply reports a failure.

    With `kinds`, only errors of these kinds count, and reported failures of these kinds.
    """
    seen = record.observation
    if seen.error is not None or seen.cancelled:
        return kinds is None or (seen.error is not None and seen.error.kind in kinds)
    if seen.value is None or seen.opaque or record.action.kind != "tool_call":
        return False
    found = reported_failure(seen.value)
    return found is not None and (kinds is None or found.kind in kinds)


def effect_of(record: Record) -> Effected:
    """Whether an action had its effect, by its record and the port's own reply, which a fault may have hidden from the agent.

    A call whose reply reports a failure had none; "unknown" if the failure is uncertain or the port ran more than once.
    """
    if record.effected != "yes" or record.action.kind != "tool_call":
        return record.effected
    reply = record.observation if record.raw is None else record.raw
    found = None if reply.value is None or reply.opaque or reply.error is not None else reported_failure(reply.value)
    if found is None:
        return "no" if reply.value is False and record.action.effect == "write" else "yes"
    return "unknown" if found.uncertain or record.invoked > 1 else "no"


def answered(record: Record) -> bool:
    """Whether a call returned a result: it was not blocked or cancelled, raised no error, and its reply reports no failure."""
    return not record.blocked and not failed(record)


def succeeded(record: Record) -> bool:
    """Whether an action is known to have had its effect, was not cancelled, and reported no failure to its agent."""
    return effect_of(record) == "yes" and not failed(record)


# -- waits --------------------------------------------------------------------------------------------------------------

_UNITS: Final[Mapping[str, int]] = {"": 1000, "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000, "ms": 1}
_STATED_WAIT: Final = re.compile(
    r"(?:retry|try again)[ _-]?(?:after|in)\"?'?[\s:=]+(\d+(?:\.\d+)?)\s*(ms|seconds?|secs?|s)?\b", re.IGNORECASE
)


def wait_in_text_ms(text: str) -> int | None:
    """The wait that the text of an error asks for, in milliseconds, None if it asks for none.

    >>> wait_in_text_ms("rate limited: retry after 5 s"), wait_in_text_ms("no such order")
    (5000, None)
    """
    match = _STATED_WAIT.search(text)
    return None if match is None else round(float(match[1]) * _UNITS[(match[2] or "").lower()])


# -- replies as texts ---------------------------------------------------------------------------------------------------

_PHRASES: Final[Mapping[str, int]] = {
    re.sub(r"\W+", " ", item.phrase.casefold()).strip(): int(item) for item in HTTPStatus if item >= 400
}
_REASONS: Final = "|".join(
    sorted((re.escape(item).replace(r"\ ", r"[\s\-]+") for item in _PHRASES), key=lambda item: -len(item))
)
_PLAIN_REASONS: Final = (
    r"bad\s+request|method\s+not\s+allowed|request\s+timeout|too\s+many\s+requests|internal\s+server\s+error|bad\s+gateway"
    r"|service\s+unavailable|gateway\s+time-?out"
)
"""The phrases that report a failure without their number: "Locked" may be what was asked for."""
_MARK: Final = r"(?=\s*(?:$|[:;,.!()\[\]\"'\-–—]))"
"""What ends a word that reports a failure alone: "Forbidden." does, "forbidden cities" does not."""
_FAILS = re.compile(
    rf"""[\W_]*+(?:tool\s+|api\s+|http\s+)?(?:
      (?:[\w.]*?(?:error|exception|failure)s?)(?:\s*(?:code|\#)?\s*\d+\b|{_MARK}|\s+(?:in|while|when|during|from|with|occurred
        |calling|executing|processing|running|invoking|fetching|connecting|response)\b)
    | traceback\s\(most\ recent\ call
    | (?:an?|some|the|there\s+was\s+an?|there\s+has\s+been\s+an?)\s+(?:\w+\s+){{0,3}}(?:error|exception|failure)\b
    | (?:something|things)\s+went\s+wrong | oops\b
    | fail(?:ed|ure)\b(?:\s+(?:to|with|because|due|as|at|on)\b|{_MARK})
    | (?:the\s+)?(?:request|call|operation|action|payment|transaction|transfer|order|booking|tool|command|query|card)\s+
      (?:(?:has|was|is|were|could)\s+)?(?:been\s+)?(?:not\s+be\s+\w+|failed|denied|declined|rejected|refused|forbidden|timed\s+out)
    | (?:cannot|can['’]t|could\s?n['’]t|could\s+not|can\s+not|unable\s+to|was\s+not\s+able\s+to|not\s+able\s+to)\b
    | (?:sorry,?\s+)?(?:i|we)\s+(?:could\s+not|couldn['’]t|cannot|can['’]t)\s+(?:find|process|complete|access|perform|locate)\b
    | invalid\b | denied\b | (?:access|permission|request)\s+denied\b | not\s+(?:found|allowed|permitted|authori[sz]ed)\b
    | no\s+such\s+\w+ | unauthori[sz]ed\b | forbidden{_MARK} | (?:request\s+)?timed?[\s\-]?out{_MARK} | timed\s+out\b
    | rate[\s\-]+limit(?:ed)?(?:\s+(?:exceeded|reached|hit)\b|{_MARK}) | connection\s+(?:refused|reset|aborted|closed|lost)\b
    | \w+(?:\s+\#?[\w\-]+)?\s+(?:was\s+|is\s+|were\s+)?(?:not\s+found|does\s+not\s+exist|doesn['’]t\s+exist){_MARK}
    | (?:http(?:/\d(?:\.\d)?)?\s*)(?:status\s*|error\s*|code\s*)*:?\s*(?P<http>[45]\d\d)\b
    | status(?:\s+code)?\s*[:=]?\s*(?P<status>[45]\d\d)\b
    | (?P<leading>[45]\d\d)\s*[:\-–]?\s*(?:{_REASONS}){_MARK} | (?P<reason>{_PLAIN_REASONS}){_MARK}
    )""",
    re.IGNORECASE | re.VERBOSE,
)


@lru_cache(maxsize=2048)
def _by_text(text: str) -> ReportedFailure | None:
    """The failure that a short text reports."""
    if text.startswith("{") and text.endswith("}"):
        return _by_json(text)
    match = _FAILS.match(text)
    if match is None:
        return None
    status = next((int(match[name]) for name in ("http", "status", "leading") if match[name]), 0)
    if not status and match["reason"]:
        status = _PHRASES.get(re.sub(r"[\W_]+", " ", match["reason"].casefold()).strip(), 0)
    return _failure(text, status)


def _by_long_text(text: str) -> ReportedFailure | None:
    """The failure that a long text reports: JSON, or a text that begins with an error."""
    if text[:1] == "{":
        return _by_json(text) if len(text) <= JSON_CHARS else None
    return _by_text(text[:_HEAD])


def _by_json(text: str) -> ReportedFailure | None:
    if _HINT.search(text) is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _by_fields(value) if isinstance(value, dict) else None


_HINT: Final = re.compile(r"(?i)err|exception|success|succeeded|\"ok\"|status|code|fail|detail|message|\"type\"")

# -- replies as objects -------------------------------------------------------------------------------------------------

_ERROR_TEXT: Final = re.compile(r"(?i)(?:[^\w{]|_)*+(?:[\w.]*(?:error|exception)s?\b|traceback\b|\{)")
_ERRORS: Final = frozenset(("error", "errors", "Error", "err", "exception", "error_message", "errorMessage", "fault"))
_DONE: Final = frozenset(("ok", "success", "succeeded", "successful", "is_success", "isSuccess"))
_FAILED: Final = frozenset(("isError", "is_error", "failed", "failure", "has_error", "hasError"))
_STATUS: Final = (
    "status",
    "status_code",
    "statusCode",
    "http_status",
    "httpStatus",
    "response_code",
    "error_code",
    "errorCode",
)
_NONE: Final = frozenset(
    ("", "0", "no", "none", "null", "nil", "false", "n/a", "no error", "no errors", "ok", "success", "[]", "{}")
)
_BAD: Final = re.compile(
    r"(?i)\W*(?:\w+[_ \-])?(?:errors?|errored|fail(?:ed|ure)?|exception|invalid|denied|declined|rejected|refused|forbidden"
    r"|unauthori[sz]ed|not[_ ]found|bad[_ ]request|timed?[_ ]?out)\b"
)
_WORDS_ONLY: Final = frozenset(("message", "detail", "details", "msg", "result", "output", "text", "content", "response"))
_STATED: Final = frozenset((*_STATUS, "code"))
_NAMES: Final = frozenset((*_ERRORS, *_DONE, *_FAILED, *_STATUS, *_WORDS_ONLY, "type", "code"))


def _by_fields(value: Mapping[str, Any]) -> ReportedFailure | None:
    """The failure that an object reports."""
    present = [name for name in value if name in _NAMES]
    if not present:  # nearly all replies
        return None
    for name in present:
        item = value[name]
        if name in _ERRORS:
            if _is_something(item):
                return _failure(_text_of(item), _status_in(value))
        elif name in _DONE:
            if _is_false(item):
                return _failure(_text_of(value), _status_in(value))
        elif (name in _FAILED and (item is True or item == "true")) or (name == "type" and item == "error"):
            return _failure(_text_of(value), _status_in(value))
    if not _STATED.isdisjoint(present) and (status := _status_in(value)):
        return _failure("", status)
    said = value.get("status")
    if isinstance(said, str) and _BAD.match(said):
        return _failure(_text_of(value), 0)
    if len(value) <= 2 and value.keys() <= _WORDS_ONLY:  # {"detail": "Not found."}
        return next((found for item in value.values() if isinstance(item, str) and (found := reported_failure(item))), None)
    return None


_WORDED: Final = _ERRORS | {"message", "detail", "msg", "reason", "title"}
"""Fields next to which a `code` is a status."""


def _status_in(value: Mapping[str, Any]) -> int:
    """The HTTP status from 400 to 599 that an object holds, 0 if it holds none."""
    for name in _STATUS:
        if status := _status(value.get(name)):
            return status
    worded = not _WORDED.isdisjoint(value)
    inner = value.get("error")
    nested = _status_in(inner) if isinstance(inner, Mapping) else 0
    return nested or (_status(value.get("code")) if worded else 0)


def _status(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[45]\d\d(?:\s.*)?", value):
        value = int(value[:3])
    return value if type(value) is int and 400 <= value <= 599 else 0


def _is_something(value: Any) -> bool:
    """Whether the value of an error field reports an error."""
    if isinstance(value, str):
        return value.strip().casefold() not in _NONE
    return value is not False and bool(value)


def _is_false(value: Any) -> bool:
    return (
        value is False
        or (type(value) is int and value == 0)
        or (isinstance(value, str) and value.casefold() in ("false", "no"))
    )


def _text_of(value: Any) -> str:
    """The texts of an error, up to a limit."""
    if isinstance(value, str):
        return value[:_HEAD]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return " ".join(_text_of(item) for item in inner)[:_HEAD]


_KINDS: Final[tuple[tuple[FailureKind, re.Pattern[str]], ...]] = (
    ("timeout", re.compile(r"(?i)time[sd]?[\s_\-]?out|deadline[\s_]exceeded")),
    ("rate_limit", re.compile(r"(?i)rate[\s_\-]?limit|too many requests|quota|throttl")),
    ("connection", re.compile(r"(?i)connection|network|unreachable|econn|broken pipe")),
    ("server_error", re.compile(
        r"(?i)internal[\s_]?(?:server )?error|service unavailable|bad gateway|try again later|server[\s_]error"
    )),
    ("auth", re.compile(r"(?i)unauthori[sz]ed|forbidden|denied|not (?:allowed|permitted|authori[sz]ed)|permission|credential")),
    ("not_found", re.compile(r"(?i)not[\s_]found|no such|does(?: not|n['’]t) exist|unknown")),
    ("invalid", re.compile(r"(?i)invalid|bad request|validation|missing|malformed")),
)  # fmt: skip
_BY_STATUS: Final[Mapping[int, FailureKind]] = {
    400: "invalid", 401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 422: "invalid", 429: "rate_limit",
    504: "timeout",
}  # fmt: skip


def _failure(text: str, status: int) -> ReportedFailure:
    if status:
        return ReportedFailure(_BY_STATUS.get(status, "server_error" if status >= 500 else "other"), status)
    return ReportedFailure(next((kind for kind, words in _KINDS if words.search(text)), "other"))
