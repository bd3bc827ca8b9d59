"""The result: always one, its triples, exit codes, and the final report (sections 2 and 5)."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from mat.core.value import EMPTY, FrozenDict
from mat.core.verdict import Obligation
from mat.monitor.contract import Violated
from session.contracts.guarantee import guarantee
from session.contracts.parsing import schema_problem, unfolded
from session.contracts.reading import Asked, Crashed, Ended, Loaded, Logged, ToolRequest, field, text_of
from session.contracts.settings import FINAL, SessionConfig
from session.contracts.view import Moment, View

EXIT_CODES: Final = {
    "": 1,
    "auth": 1,
    "quota": 1,
    "mcp": 3,
    "initialization": 3,
    "configuration": 4,
    "arguments": 4,
    "validation": 4,
    "schema": 5,
}
"""Exit code by category of failure; a failure without a category is generic."""


def _report(now: Moment) -> FrozenDict | None:
    assert isinstance(now.event, Ended)
    return now.event.report


def reported(view: View) -> ToolRequest | None:
    """The final report that the latest reply holds: its last valid one."""
    return next((call for call in reversed(view.calls) if call.final and call.runs), None)


def spoken(config: SessionConfig, view: View) -> str:
    """The text that serves as report if the last reply was stored and has text and no calls; native transport only."""
    if (
        config.transport != "native"
        or view.accepted == 0
        or (view.attempt is not None and not view.attempt.stored)
        or view.calls
    ):
        return ""
    return view.text.strip() if view.last_role == "assistant" else ""


# -- always return output ----------------------------------------------------------------------------------------------------


def _no_result(config: SessionConfig, view: View, own: None) -> Violated | None:
    if view.ended or view.attempt is None:
        return None
    return Violated("the session ended without a result", witness=(view.attempt.step,), wanted="an AIAgentResult")


def _owes(config: SessionConfig, view: View, own: None) -> tuple[Obligation, ...]:
    if view.ended or view.attempt is None:
        return ()
    return (Obligation(text="an AIAgentResult", since=view.attempt.step),)


@guarantee(
    "result.always",
    "2 Always Return Output; 1 maxRetries",
    "a session never ends without an AIAgentResult",
    on=Crashed,
    observable="result",
    end=_no_result,
    open=_owes,
    repair="turn every failure into a result at the outermost level",
)
def _always(now: Moment, own: None) -> Violated | None:
    if now.before.ended or now.before.attempt is None:
        return None
    assert isinstance(now.event, Crashed)
    return Violated(f"the run ended ({now.event.how}) without a result", wanted="an AIAgentResult")


@guarantee(
    "result.success_has_report",
    "2 Always Return Output; 9",
    "success: true comes with a finalReport",
    on=Ended,
    observable="result",
    repair="attach the final report, or do not call it a success",
)
def _has_report(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    if not now.event.success or now.event.report is not None:
        return None
    return Violated("success is true, and there is no finalReport", wanted="finalReport with status 'success'")


@guarantee(
    "result.status_and_success",
    "2 Always Return Output",
    "finalReport.status is 'success' where success is true, 'failure' where not",
    on=Ended,
    observable="result",
    repair="derive success and status from the same source",
)
def _agrees(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    report, success = now.event.report, now.event.success
    if report is None:
        return None
    wanted = "success" if success else "failure"
    if report.get("status") == wanted:
        return None
    if report.get("status") in ("success", "failure") and _by_source(now) not in (None, report.get("status")):
        return None  # the status itself is wrong: judged by result.status_by_source
    return Violated(
        f"success is {str(success).lower()}, and the report's status {report.get('status')!r}", wanted=f"status {wanted!r}"
    )


def _by_source(now: Moment) -> str | None:
    """The status that follows from the report's source; None if the source was not seen."""
    view = now.before
    if (view.attempt is None or view.attempt.reply == "unknown") and view.last_role != "assistant":
        return None
    return "success" if reported(view) is not None or spoken(now.config, view) else "failure"


@guarantee(
    "result.status_by_source",
    "2 Always Return Output; 5 Structure",
    "the report's status tells its source: 'success' of the model, 'failure' of the system; models do not set it",
    on=Ended,
    observable="result",
    repair="set the status from where the report came from",
)
def _source(now: Moment, own: None) -> Violated | None:
    report, wanted = _report(now), _by_source(now)
    if report is None or wanted is None or report.get("status") in (wanted, None) or now.before.report_failed:
        return None
    if wanted == "failure" and now.config.transport != "native" and _tagless(now):
        return None  # judged by transport.report_by_tag
    if wanted == "success" and reported(now.before) is None:
        return None  # judged by result.text_fallback
    who = "the model gave it" if wanted == "success" else "the model gave none"
    return Violated(f"the report's status is {report.get('status')!r}, and {who}", wanted=f"status {wanted!r}")


def _tagless(now: Moment) -> bool:
    return now.before.last_role == "assistant" and any(call.final for call in now.before.calls)


@guarantee(
    "result.every_session_reports",
    "5 Final Report Guarantees",
    "every session gives a report, or the error of a fatal failure",
    on=Ended,
    observable="result",
    repair="generate a synthetic failure report",
)
def _every(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    last = now.before.attempt
    if now.event.success or now.event.report is not None or now.event.error.strip():
        return None
    if last is not None and last.error in ("auth", "quota"):
        return None  # judged by errors.*_result
    return Violated("the session failed and gives neither report nor error", wanted="a report with status 'failure'")


# -- exit codes --------------------------------------------------------------------------------------------------------------


@guarantee(
    "result.exit_zero_is_success",
    "2 CLI Exit Codes; 9",
    "the exit code is 0 where the session succeeded, and only there",
    on=Ended,
    observable="result",
    repair="derive the exit code from result.success",
)
def _zero(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    code, success = now.event.exit_code, now.event.success
    if code is None or (code == 0) is success:
        return None
    return Violated(f"exit code {code} with success {str(success).lower()}", wanted="0" if success else "1, 3, 4 or 5")


@guarantee(
    "result.exit_code_category",
    "2 CLI Exit Codes; 3; 9",
    "the exit code of a failure tells its category: 1, 3, 4 or 5",
    on=(Loaded, Ended),
    observable="result",
    start="",
    repair="1 generic, 3 MCP or initialisation, 4 arguments, configuration, validation, 5 schema",
)
def _category(now: Moment, own: str) -> Any:
    event = now.event
    if isinstance(event, Loaded):
        error = event.event.get("error")
        return text_of(error.get("category")) or "configuration" if isinstance(error, FrozenDict) else None
    assert isinstance(event, Ended)
    if event.success or event.exit_code in (None, 0):
        return None
    category, ran = event.category or own, now.before.attempt is not None
    wanted = EXIT_CODES.get(category, 1)
    if not category and not ran:  # the cause of the failure was not seen
        known = event.exit_code in EXIT_CODES.values()
        return None if known else Violated(f"exit code {event.exit_code} means nothing", wanted="1, 3, 4 or 5")
    if event.exit_code == wanted:
        return None
    return Violated(f"exit code {event.exit_code} for a failure of category {category or 'generic'}", wanted=str(wanted))


# -- the synthetic report ----------------------------------------------------------------------------------------------------


def _turns_used_up(now: Moment) -> bool:
    """The session ended because its turns were used up: no model report, no context guard, no fatal error."""
    view, config = now.before, now.config
    last = view.attempt
    if last is None or config.max_turns is None or view.guarded or last.error in ("auth", "quota"):
        return False
    failed = not last.stored and config.max_retries is not None and last.number >= config.max_retries
    return view.closed + failed >= config.max_turns


@guarantee(
    "result.synthetic_reason",
    "2 Synthetic Failure Report",
    "a synthetic report for lack of turns has metadata.reason 'max_turns_exhausted'",
    on=Ended,
    observable="result",
    needs=["max_turns"],
    repair="set metadata.reason to max_turns_exhausted",
)
def _synthetic_reason(now: Moment, own: None) -> Violated | None:
    report = _report(now)
    if (
        report is None
        or report.get("status") != "failure"
        or not _turns_used_up(now)
        or reported(now.before)
        or spoken(now.config, now.before)
    ):
        return None
    reason = field(report.get("metadata") or {}, "reason")
    if reason == "max_turns_exhausted":
        return None
    return Violated(f"metadata.reason is {reason!r}", wanted="'max_turns_exhausted'")


@guarantee(
    "result.synthetic_content",
    "2 Synthetic Failure Report",
    "a synthetic report for lack of turns says that max turns were reached",
    on=Ended,
    observable="result",
    needs=["max_turns"],
    repair="say in the report that the turns are used up",
)
def _synthetic_content(now: Moment, own: None) -> Violated | None:
    report = _report(now)
    if report is None or field(report.get("metadata") or {}, "reason") != "max_turns_exhausted":
        return None
    assert isinstance(now.event, Ended)
    said = text_of(now.event.content).casefold()
    if "turn" in said:
        return None
    return Violated("the synthetic report does not say that the turns are used up", wanted="the reason: max turns reached")


# -- the report's form -------------------------------------------------------------------------------------------------------


def content_field(format: str) -> str:
    """The field of a report that holds its content, by format."""
    return {"json": "content_json", "slack": "messages", "slack-block-kit": "messages"}.get(format, "content")


@guarantee(
    "result.report_fields",
    "5 Final Report Structure",
    "a report has status, format, ts and the content field of its format",
    on=Ended,
    observable="result",
    repair="build the report with all its fields",
)
def _fields(now: Moment, own: None) -> Violated | None:
    report = _report(now)
    if report is None:
        return None
    problems = []
    if report.get("status") not in ("success", "failure"):
        problems.append("status")
    if not isinstance(report.get("format"), str) or not report["format"]:
        problems.append("format")
    if isinstance(report.get("ts"), bool) or not isinstance(report.get("ts"), int | float | str) or report.get("ts") == "":
        problems.append("ts")
    name = content_field(now.config.expected_output_format or text_of(report.get("format")))
    kinds: Any = {"content_json": (dict, list), "messages": list}.get(name, str)
    if report.get("status") == "failure":
        name, kinds = "content", (str, dict, list)
        present = any(isinstance(report.get(item), kinds) for item in ("content", "content_json", "messages"))
    else:
        present = isinstance(report.get(name), kinds)
    if not present:
        problems.append(name)
    return Violated(f"the report lacks {', '.join(problems)}", wanted="status, format, ts, content") if problems else None


@guarantee(
    "result.format",
    "5 Format Enforcement",
    "finalReport.format is the session's expectedOutputFormat",
    on=Ended,
    observable="result",
    needs=["expected_output_format"],
    repair="normalise the report's format before it is stored",
)
def _format(now: Moment, own: None) -> Violated | None:
    report, wanted = _report(now), now.config.expected_output_format
    if report is None or report.get("format") in (wanted, None):
        return None
    return Violated(f"the report's format is {report.get('format')!r}", wanted=repr(wanted))


@guarantee(
    "result.format_mismatch_logged",
    "5 Format Enforcement",
    "a report given in another format is logged as a warning before it is normalised",
    on=(Logged, Ended),
    observable="log",
    needs=["expected_output_format"],
    transports=("native",),
    start=False,
    repair="log format_mismatch",
)
def _mismatch(now: Moment, own: bool) -> Any:
    if isinstance(now.event, Logged):
        return True if now.event.event == "format_mismatch" else None
    call = reported(now.before)
    given_format = None if call is None else field(call.arguments or {}, "format")
    if own or given_format in (None, now.config.expected_output_format):
        return None
    return Violated(f"the model gave format {given_format!r}, and no warning says so", wanted="format_mismatch")


@guarantee(
    "result.format_const",
    "5 Format Enforcement",
    "the final report's tool schema fixes its format by const",
    on=Asked,
    observable="request",
    needs=["expected_output_format"],
    transports=("native",),
    repair="put const into the schema's format property",
)
def _const(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Asked)
    wanted = now.config.expected_output_format
    for item in now.event.tools or ():
        body = item.get("function") if isinstance(item, FrozenDict) and isinstance(item.get("function"), FrozenDict) else item
        if not isinstance(body, FrozenDict) or body.get("name") != FINAL:
            continue
        schema = field(body, "parameters", "input_schema", "inputSchema", "schema")
        part = ((schema or EMPTY).get("properties") or {}).get("format") if isinstance(schema, FrozenDict) else None
        if schema is not None and (not isinstance(part, FrozenDict) or part.get("const") != wanted):
            return Violated("the schema of the final report does not fix its format", wanted=f"const {wanted!r}")
    return None


@guarantee(
    "result.text_fallback",
    "5 Final Report Guarantees",
    "text in the final turn serves as the report where there is no tool call",
    on=Ended,
    observable="result",
    transports=("native",),
    repair="take the text of the final turn as the report",
)
def _fallback(now: Moment, own: None) -> Violated | None:
    view = now.before
    text, report = spoken(now.config, view), _report(now)
    assert isinstance(now.event, Ended)
    if not text or reported(view) is not None or now.event.error:
        return None
    if report is not None and report.get("status") == "success" and text_of(now.event.content).strip() == text:
        return None
    return Violated(
        "the final turn has text, and the report is not this text", wanted="a report with that text, status 'success'"
    )


# -- the report's content ----------------------------------------------------------------------------------------------------


def given(call: ToolRequest) -> Any:
    """The content of a native final report as the model gave it."""
    return field(call.arguments or {}, "content_json", "messages", "report_content", "content")


@guarantee(
    "result.report_is_the_models",
    "5 Final Report Structure",
    "the content of a model's report is what the model gave",
    on=Ended,
    observable="result",
    transports=("native",),
    repair="store the content as it was given",
)
def _models(now: Moment, own: None) -> Violated | None:
    call, report = reported(now.before), _report(now)
    assert isinstance(now.event, Ended)
    if (
        call is None
        or report is None
        or report.get("status") != "success"
        or field(call.arguments or {}, "encoding") == "base64"
    ):
        return None
    if content_field(now.config.expected_output_format or text_of(report.get("format"))) not in report:
        return None  # judged by result.report_fields
    content, wanted = now.event.content, given(call)
    if content is None or wanted is None or content == wanted or text_of(content).startswith("[TRUNCATED]"):
        return None
    if unfolded(wanted, now.config.output_schema) == unfolded(content, now.config.output_schema):
        return None
    return Violated("the report's content is not what the model gave", witness=(now.record.step,), wanted=text_of(wanted)[:200])


@guarantee(
    "result.report_base64",
    "1 Parsing and repair",
    "a report in base64 is decoded before use",
    on=Ended,
    observable="result",
    transports=("native",),
    repair="decode report_content where encoding is base64",
)
def _base64(now: Moment, own: None) -> Violated | None:
    call = reported(now.before)
    assert isinstance(now.event, Ended)
    if call is None or now.event.report is None or field(call.arguments or {}, "encoding") != "base64":
        return None
    try:
        wanted = base64.b64decode(text_of(given(call)), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    if now.event.report.get("status") != "success" or text_of(now.event.content) == wanted:
        return None
    return Violated("the report was given in base64 and is not decoded", wanted=wanted[:200])


@guarantee(
    "result.report_schema",
    "1 Parsing and repair",
    "a JSON report fits the session's output schema",
    on=Ended,
    observable="result",
    needs=["output_schema"],
    repair="validate content_json, and reject what does not fit",
)
def _schema(now: Moment, own: None) -> Violated | None:
    report = _report(now)
    if report is None or report.get("status") != "success" or "content_json" not in report:
        return None
    problem = schema_problem(report["content_json"], now.config.output_schema)
    folded = problem and not schema_problem(
        unfolded(report["content_json"], now.config.output_schema), now.config.output_schema
    )
    return Violated(f"content_json: {problem}", wanted="content that fits the schema") if problem and not folded else None


@guarantee(
    "result.nested_json_parsed",
    "1 Parsing and repair",
    "stringified JSON inside content_json is parsed before a report is rejected",
    on=Ended,
    observable="result",
    needs=["output_schema"],
    repair="parse stringified nested fields and validate again",
)
def _nested(now: Moment, own: None) -> Violated | None:
    schema, report = now.config.output_schema, _report(now)
    content = None if report is None else report.get("content_json")
    if report is None or report.get("status") != "success" or content is None or not schema_problem(content, schema):
        return None
    if schema_problem(unfolded(content, schema), schema):
        return None  # not repaired by parsing: judged by result.report_schema
    return Violated("content_json holds JSON in strings where the schema wants objects", wanted="the parsed content")


@guarantee(
    "result.final_not_truncated",
    "11 Unchanged",
    "no size limit is applied to final outputs",
    on=Ended,
    observable="result",
    repair="truncate tool responses only",
)
def _whole(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    if not text_of(now.event.content).startswith("[TRUNCATED] Original size"):
        return None
    return Violated("the final report was truncated", wanted="the report, whole")
