"""The three tool transports: native, xml-final and xml (section 11)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Violated
from session.contracts.guarantee import broken, guarantee
from session.contracts.markup import Tag, responses
from session.contracts.parsing import unfolded
from session.contracts.reading import (
    CUT_STOPS,
    NORMAL_STOPS,
    Asked,
    Billed,
    Ended,
    Executed,
    Logged,
    Said,
    Streamed,
    ToolRequest,
    field,
    text_of,
)
from session.contracts.result import reported
from session.contracts.settings import FINAL, SessionConfig
from session.contracts.view import Moment, View

XML: Final = ("xml-final", "xml")
NONCE: Final = re.compile(r"[0-9a-f]{8}")
PAST_FIELDS: Final = ("slot", "tool", "status", "duration", "request", "response")
_WRAPPER: Final = ("status", "format", "tool", "nonce", "slot", "encoding", "ts", "metadata")
_MARKUP: Final = re.compile(r"</?ai-agent-[0-9a-f]{8}")


# -- modes -------------------------------------------------------------------------------------------------------------------


@guarantee(
    "transport.tool_choice",
    "11 Modes",
    "in the XML transports tool choice is 'auto'",
    on=Asked,
    observable="request",
    transports=XML,
    repair="send tool_choice 'auto'",
)
def _choice(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Asked)
    choice = now.event.tool_choice
    return None if choice in (None, "auto") else Violated(f"tool choice is {choice!r}", wanted="'auto'")


@guarantee(
    "transport.xml_withholds_tools",
    "11 Modes",
    "in xml the provider gets no tool definitions",
    on=Asked,
    observable="request",
    transports=("xml",),
    repair="send an empty list of tools",
)
def _withheld(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Asked)
    names = now.event.tool_names
    return Violated(f"the provider gets definitions of {', '.join(names)}", wanted="no definitions") if names else None


@guarantee(
    "transport.xml_final_shows_tools",
    "11 Modes",
    "in xml-final the provider gets the tools' definitions, without the final report's",
    on=Asked,
    observable="request",
    needs=["tools"],
    transports=("xml-final",),
    repair="send the definitions of the user-facing tools",
)
def _shown(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    if event.tool_names is None:
        return None
    if FINAL in event.tool_names:
        return Violated("the provider gets a definition of the final report", wanted="the report in XML only")
    last_turn = now.config.max_turns is not None and now.after.turn >= now.config.max_turns
    if event.tool_names or now.after.guarded or last_turn or now.before.report_failed:
        return None
    return Violated("the provider gets no tool definitions", wanted=", ".join(tool.name for tool in now.config.tools))


@guarantee(
    "transport.report_by_tag",
    "11 Modes",
    "in the XML transports the final report comes from its tag",
    on=Ended,
    observable="result",
    transports=XML,
    repair="take the report only from a NONCE-FINAL tag",
)
def _by_tag(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Ended)
    view = now.before
    if not now.event.success or now.event.report is None or now.event.report.get("status") != "success":
        return None
    call, foreign = reported(view), [item for item in view.calls if item.final and item.standing == "ignored"]
    if call is not None or not foreign:
        return None
    return Violated(
        "the report came by a native call, or by a tag that does not match", instance=foreign[0].id, wanted="a NONCE-FINAL tag"
    )


# -- nonce and slots ---------------------------------------------------------------------------------------------------------


@guarantee(
    "transport.nonce_constant",
    "11 Session nonce and slots",
    "the nonce is 8 hex digits and the same in all turns",
    on=Asked,
    observable="request",
    transports=XML,
    start="",
    repair="draw the nonce once, when the session begins",
)
def _nonce(now: Moment, own: str) -> Any:
    assert isinstance(now.event, Asked)
    told = now.event.instructions
    if told is None:
        return None
    if not NONCE.fullmatch(told.nonce):
        return Violated(f"the nonce is {told.nonce!r}", state=own or told.nonce, wanted="8 hex digits")
    if own and told.nonce != own:
        return Violated(f"the nonce changed from {own} to {told.nonce}", state=told.nonce, wanted=own)
    return told.nonce


def _numbers(slots: tuple[str, ...]) -> list[int]:
    return [int(slot.rpartition("-")[2]) for slot in slots]


@guarantee(
    "transport.slots_increase",
    "11 Session nonce and slots",
    "slot numbers have four digits and go on from turn to turn",
    on=Asked,
    observable="request",
    transports=("xml",),
    start=(0, 0, 0),
    repair="go on with the number after the last slot of the turn before",
)
def _slots(now: Moment, own: tuple[int, int, int]) -> Any:
    """(turn, highest slot used in earlier turns, highest slot offered so far)."""
    assert isinstance(now.event, Asked)
    told, (turn, used, offered) = now.event.instructions, own
    if told is None or not told.slots:
        return None
    if now.after.turn != turn:
        calls = [call.id for call in now.before.calls if call.tag is not None and not call.final and call.standing != "ignored"]
        turn, used = now.after.turn, max([used, *_numbers(tuple(calls))])
    numbers = _numbers(told.slots)
    state = (turn, used, max(offered, *numbers))
    if any(len(slot.rpartition("-")[2]) != 4 for slot in told.slots):
        return Violated(f"the slots are {', '.join(told.slots)}", state=state, wanted="four digits")
    if used < min(numbers) <= offered + 1:
        return state
    said = f"the slots of turn {turn} begin with {told.slots[0]}"
    return Violated(said, state=state, wanted=f"{told.nonce}-{used + 1:04d}")


@guarantee(
    "transport.progress_slot",
    "11 Session nonce and slots",
    "a progress slot is offered in xml only",
    on=Asked,
    observable="request",
    transports=("xml-final",),
    repair="leave progress to the native tools",
)
def _progress(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Asked)
    told = now.event.instructions
    return (
        Violated("NONCE-PROGRESS is offered in xml-final", wanted="no progress slot")
        if told is not None and told.progress
        else None
    )


# -- messages ----------------------------------------------------------------------------------------------------------------


@guarantee(
    "transport.next_present",
    "11 Messages",
    "each request ends with XML-NEXT, which offers the final-report slot",
    on=Asked,
    observable="request",
    transports=XML,
    repair="append the per-turn instructions to each request",
)
def _next(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Asked)
    if now.event.messages is None or now.event.instructions is not None:
        return None
    return Violated("the request has no per-turn instructions", wanted='<ai-agent-NONCE-FINAL tool="agent__final_report">')


@guarantee(
    "transport.next_has_schemas",
    "11 Messages",
    "XML-NEXT holds each available tool with its JSON schema, and slot templates",
    on=Asked,
    observable="request",
    needs=["tools"],
    transports=("xml",),
    repair="list names and schemas of all tools",
)
def _schemas(now: Moment, own: None) -> Any:
    event = now.event
    assert isinstance(event, Asked)
    told = event.instructions
    if told is None or event.restricted:
        return None
    lost = []
    for tool in now.config.tools:
        parts = [tool.name, *(tool.schema.get("properties") or {})]
        if any(part not in told.text for part in parts):
            lost.append(tool.name)
    return broken(
        Violated(f"XML-NEXT lacks {name} or its schema", instance=name, wanted=f"{name} with its JSON schema") for name in lost
    )


@guarantee(
    "transport.next_not_stored",
    "11 Messages",
    "XML-NEXT is never stored in the conversation",
    on=Said,
    observable="result",
    transports=XML,
    repair="append XML-NEXT to the request only",
)
def _not_stored(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Said)
    return (
        Violated("the per-turn instructions are in the conversation", wanted="no such message")
        if now.event.instructions
        else None
    )


@guarantee(
    "transport.forced_final_next",
    "11 Messages",
    "a forced final XML-NEXT offers only the final report, and progress",
    on=Asked,
    observable="request",
    needs=["tools"],
    transports=("xml-final",),
    repair="leave all other tools out of XML-NEXT",
)
def _forced(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    told = event.instructions
    if told is None or not told.slots:
        return None
    if now.config.transport == "xml-final":
        return Violated(f"numbered slots are offered in xml-final: {told.slots[0]}", wanted="the final-report slot alone")
    return None


@guarantee(
    "transport.no_past_in_xml_final",
    "11 Messages",
    "XML-PAST is suppressed in xml-final, and has no place in native",
    on=Said,
    observable="result",
    transports=("xml-final", "native"),
    repair="return native results as tool messages",
)
def _no_past(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Said)
    if event.role != "user" or not event.answers:
        return None
    return Violated("tool results are returned in a user message", wanted="a message of role 'tool'")


@guarantee(
    "transport.past_has_fields",
    "11 Messages",
    "XML-PAST tells slot, tool, status, duration, request and response of each call",
    on=Said,
    observable="result",
    transports=("xml",),
    repair="write all fields into each block",
)
def _past(now: Moment, own: None) -> Any:
    event = now.event
    assert isinstance(event, Said)
    if event.role != "user":
        return None
    found = []
    for block in responses(event.content):
        lines = {line.partition(":")[0].strip().lower() for line in block.text.splitlines()}
        lost = [name for name in PAST_FIELDS if name not in lines]
        if lost:
            found.append(
                Violated(
                    f"the block of {block.slot} lacks {', '.join(lost)}", instance=block.slot, wanted=", ".join(PAST_FIELDS)
                )
            )
    return broken(found)


@guarantee(
    "transport.response_as_user",
    "11 Tool execution and responses",
    "in xml a tool response is a user message with the notice of its slot",
    on=Said,
    observable="result",
    transports=("xml",),
    repair="return System Notice: tool response for NONCE-000X (tool) as a user message",
)
def _as_user(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Said)
    if event.role != "tool":
        return None
    return Violated(
        "a tool response has role 'tool'",
        instance=event.call_id,
        wanted="System Notice: tool response for NONCE-000X (tool), role 'user'",
    )


@guarantee(
    "transport.prompt_is_clean",
    "11 Prompting and schemas",
    "in the XML transports the system prompt says nothing of tools or final report",
    on=Asked,
    observable="request",
    transports=XML,
    repair="put all instructions into XML-NEXT",
)
def _prompt(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Asked)
    head = event.messages[0] if event.messages else None
    if not isinstance(head, FrozenDict) or head.get("role") != "system":
        return None
    content = text_of(head.get("content"))
    marks = [FINAL, "final_report", "<ai-agent-", *(tool.name for tool in now.config.tools if "_" in tool.name)]
    found = next((mark for mark in marks if mark in content), None)
    return None if found is None else Violated(f"the system prompt speaks of {found}", wanted="instructions in XML-NEXT only")


# -- tags --------------------------------------------------------------------------------------------------------------------


@guarantee(
    "transport.only_valid_tags_run",
    "11 Tool execution and responses",
    "only tags of this nonce and an unused slot run; others are ignored",
    on=Executed,
    observable="request",
    transports=XML,
    repair="match nonce and slot before a tag runs",
)
def _valid_only(now: Moment, own: None) -> Violated | None:
    event, view = now.event, now.before
    assert isinstance(event, Executed)
    asked = [call for call in view.calls if call.id == event.id]
    if event.id in view.executed and asked and event.name != FINAL and asked[0].tag is not None:
        return Violated(f"slot {event.id} ran twice", instance=event.id, wanted="one execution a slot")
    if not asked or event.name == FINAL or any(call.standing != "ignored" for call in asked):
        return None  # of the final report: judged by transport.report_by_tag
    return Violated(f"{event.name} ran for a tag that does not match", instance=event.id, wanted="the tag ignored")


@guarantee(
    "transport.tags_run",
    "11 Tool execution and responses",
    "each valid tag runs through the orchestrator",
    on=(Asked, Ended),
    observable="request",
    transports=("xml",),
    repair="execute every valid tag",
)
def _tags_run(now: Moment, own: None) -> Any:
    view, limit = now.before, now.config.max_tool_calls_per_turn
    attempt = view.attempt
    if attempt is None or attempt.restricted or view.dropped >= 0 or reported(view) is not None or "" in view.executed:
        return None
    others = any(call.standing not in ("valid", "ignored") for call in attempt.calls)
    plain = [call for call in attempt.calls if not call.final and call.standing == "valid"]
    if others or (limit is not None and len(plain) > limit) or now.config.queues:
        return None  # judged by tools.valid_calls_run, tools.max_tool_calls and tools.queue_waits
    return broken(
        Violated(f"the tag of {call.name} did not run", instance=call.id, wanted=f"{call.name} executed")
        for call in plain
        if call.id not in view.executed
    )


@guarantee(
    "transport.unclosed_tools_do_not_run",
    "11 Unclosed final-report tag",
    "tools other than the final report need complete tags",
    on=Executed,
    observable="request",
    transports=("xml",),
    repair="drop tags that are not closed",
)
def _complete(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Executed)
    call = next((item for item in now.before.calls if item.id == event.id), None)
    if call is None or call.final or call.standing != "unclosed":
        return None
    return Violated(f"{event.name} ran although its tag is not closed", instance=event.id, wanted="a dropped call")


@guarantee(
    "transport.unclosed_report_accepted",
    "11 Unclosed final-report tag",
    "an unclosed report is accepted where the model stopped normally",
    on=(Asked, Ended),
    observable="request",
    transports=XML,
    repair="accept the content on stop, end_turn, end and eos, and on unknown reasons",
)
def _accepted(now: Moment, own: None) -> Violated | None:
    last = now.before.attempt
    if last is None or last.stored:
        return None
    call = next(
        (item for item in last.calls if item.final and item.runs and item.tag is not None and not item.tag.closed), None
    )
    if call is None:
        return None
    reason = last.stop if last.stop in NORMAL_STOPS else f"{last.stop or 'no'} (unknown)"
    return Violated(
        f"the unclosed report of step {last.step} was refused, stop reason {reason}",
        witness=(last.step, now.record.step),
        wanted="its content as the report",
    )


@guarantee(
    "transport.unclosed_report_cut",
    "11 Unclosed final-report tag",
    "an unclosed report that was cut off is incomplete and tried again",
    on=(Said, Ended),
    observable="request",
    transports=XML,
    repair="retry on length and max_tokens",
)
def _cut(now: Moment, own: None) -> Violated | None:
    last, event = now.before.attempt, now.event
    if last is None or last.stop not in CUT_STOPS:
        return None
    cut = any(call.final and call.standing == "unclosed" for call in last.calls) and not any(call.runs for call in last.calls)
    if not cut or not isinstance(event, Said) or event.role != "assistant" or last.stored:
        return None
    return Violated(f"a report cut off by {last.stop} was accepted", witness=(last.step, now.record.step), wanted="a retry")


@guarantee(
    "transport.unknown_stop_logged",
    "11 Unclosed final-report tag",
    "an unclosed report with an unknown stop reason logs a warning",
    on=(Asked, Logged, Ended),
    observable="log",
    transports=XML,
    start=-1,
    repair="log unclosed_final_report with the stop reason",
)
def _unknown_logged(now: Moment, own: int) -> Any:
    event = now.event
    if isinstance(event, Logged):
        return -1 if own >= 0 and event.event == "unclosed_final_report" else None
    if isinstance(event, Asked):
        odd = event.stop not in NORMAL_STOPS + CUT_STOPS
        found = any(call.final and call.runs and call.tag is not None and not call.tag.closed for call in event.calls)
        return now.record.step if odd and found else -1
    return (
        None
        if own < 0
        else Violated("no warning tells of the unknown stop reason", state=-1, step=own, wanted="unclosed_final_report")
    )


# -- the report's three layers -----------------------------------------------------------------------------------------------


def _valid_tags(view: View) -> list[ToolRequest]:
    return [call for call in view.calls if call.final and call.runs and call.tag is not None]


def _processed(config: SessionConfig, payload: str) -> Any:
    """Layer 2: a payload decoded by the session's format. ValueError if it cannot be read."""
    format = config.expected_output_format
    if format == "sub-agent":
        return payload
    if format == "json":
        return json.loads(payload)
    if format in ("slack", "slack-block-kit"):
        found = json.loads(payload)
        return found["messages"] if isinstance(found, dict) and "messages" in found else found
    return payload.strip()


def _content(event: Ended) -> Any:
    content = event.content
    return content.strip() if isinstance(content, str) and (event.report or EMPTY).get("format") != "sub-agent" else content


def _is_payload(config: SessionConfig, event: Ended, tag: Tag | None) -> bool | None:
    """Whether the report's content equals that of this tag; None if the tag cannot be read."""
    if tag is None:
        return None
    try:
        wanted = _processed(config, tag.payload)
    except (ValueError, RecursionError):
        return None
    schema, content = config.output_schema, _content(event)
    return bool(content == wanted or (schema and unfolded(content, schema) == unfolded(wanted, schema)))


def _payload_rule(now: Moment, formats: tuple[str, ...], said: str) -> Violated | None:
    """A successful report's content against the last valid tag, for some formats; other rules report the rest."""
    event, config = now.event, now.config
    assert isinstance(event, Ended)
    found = _valid_tags(now.before)
    plain = config.expected_output_format not in ("json", "slack", "slack-block-kit", "sub-agent")
    mine = config.expected_output_format in formats or (plain and "text" in formats)
    if not mine or not found or event.report is None or event.report.get("status") != "success":
        return None
    if _is_payload(config, event, found[-1].tag) is not False or text_of(event.content).startswith("[TRUNCATED]"):
        return None
    if any(_is_payload(config, event, call.tag) for call in found[:-1]) or _polluted(now):
        return None
    return Violated(said, instance=found[-1].id, wanted=found[-1].tag.payload[:200] if found[-1].tag is not None else "")


@guarantee(
    "transport.last_tag_wins",
    "11 Ordering and selection",
    "of several valid report tags the last one counts",
    on=Ended,
    observable="result",
    transports=XML,
    repair="take the last valid tag",
)
def _last(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Ended)
    found = _valid_tags(now.before)
    if len(found) < 2 or event.report is None or event.report.get("status") != "success":
        return None
    if _is_payload(now.config, event, found[-1].tag) is not False:
        return None
    if not any(_is_payload(now.config, event, call.tag) for call in found[:-1]):
        return None
    return Violated(
        "the report is that of an earlier tag",
        instance=found[-1].id,
        wanted=found[-1].tag.payload[:200] if found[-1].tag else "",
    )


def _polluted(now: Moment) -> list[str]:
    """Wrapper fields inside the content that are not in its tag."""
    event, found = now.event, _valid_tags(now.before)
    assert isinstance(event, Ended)
    if not found or not isinstance(event.content, FrozenDict):
        return []
    try:
        wanted = _processed(now.config, found[-1].tag.payload if found[-1].tag is not None else "")
    except (ValueError, RecursionError):
        return []
    return [
        name
        for name in event.content
        if name in _WRAPPER and (not isinstance(wanted, dict) or name not in wanted or wanted[name] != event.content[name])
    ]


@guarantee(
    "transport.wrapper_stays_outside",
    "11 Final-report via XML",
    "fields of the wrapper never get into the report's content",
    on=Ended,
    observable="result",
    transports=XML,
    repair="keep status, format and the like beside the content",
)
def _wrapper(now: Moment, own: None) -> Violated | None:
    names = _polluted(now)
    return (
        Violated(f"the content holds {', '.join(names)} of the wrapper", wanted="the payload's own fields") if names else None
    )


@guarantee(
    "transport.json_payload",
    "11 Final-report via XML",
    "a json report is the parsed payload",
    on=Ended,
    observable="result",
    transports=XML,
    repair="parse the payload, and nothing else",
)
def _json(now: Moment, own: None) -> Violated | None:
    return _payload_rule(now, ("json",), "the report is not the parsed payload")


@guarantee(
    "transport.slack_payload",
    "11 Final-report via XML",
    "a slack-block-kit report is the payload's messages array",
    on=Ended,
    observable="result",
    transports=XML,
    repair="take the messages array of the payload",
)
def _slack(now: Moment, own: None) -> Violated | None:
    return _payload_rule(now, ("slack", "slack-block-kit"), "the report's messages are not the payload's")


@guarantee(
    "transport.opaque_payload",
    "11 Final-report via XML",
    "a sub-agent report is passed through as it is",
    on=Ended,
    observable="result",
    transports=XML,
    repair="do not parse, trim or validate the payload",
)
def _opaque(now: Moment, own: None) -> Violated | None:
    return _payload_rule(now, ("sub-agent",), "the payload was changed")


@guarantee(
    "transport.text_payload",
    "11 Final-report via XML",
    "a text report is the raw content of the tag",
    on=Ended,
    observable="result",
    transports=XML,
    repair="take the tag's content",
)
def _text(now: Moment, own: None) -> Violated | None:
    return _payload_rule(now, ("text",), "the report is not the tag's content")


@guarantee(
    "transport.format_attribute",
    "11 Final-report via XML",
    "XML-NEXT asks for the session's format in the final slot",
    on=Asked,
    observable="request",
    needs=["expected_output_format"],
    transports=XML,
    repair='write format="<expected-format>" into the final slot',
)
def _attribute(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Asked)
    told = now.event.instructions
    if told is None:
        return None
    found = re.search(rf"<ai-agent-{re.escape(told.nonce)}-FINAL[^>]*\bformat=\"([^\"]*)\"", told.text)
    wanted = now.config.expected_output_format
    if found is not None and found[1] == wanted:
        return None
    return Violated(
        f"the final slot has format {found[1]!r}" if found else "the final slot has no format", wanted=f'format="{wanted}"'
    )


@guarantee(
    "transport.final_no_response",
    "11 Tool execution and responses",
    "an accepted final report gets no response message",
    on=Said,
    observable="result",
    repair="finalise the session instead",
)
def _no_response(now: Moment, own: None) -> Violated | None:
    event = now.event
    assert isinstance(event, Said)
    call = reported(now.before)
    finals = {item.id for item in now.before.calls if item.final}
    if call is None or not any(answer.id in finals and answer.failure is None for answer in event.answers):
        return None
    return Violated("the final report is answered", instance=call.id, wanted="no message after it")


# -- accounting and streaming ------------------------------------------------------------------------------------------------


@guarantee(
    "transport.accounting_source",
    "11 Accounting/telemetry",
    "tools invoked by XML are accounted under their own name with source 'xml'",
    on=Billed,
    observable="result",
    transports=("xml",),
    repair="set source: xml in the entry",
)
def _source(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Billed)
    entry = now.event.entry
    if entry.get("type") != "tool" or entry.get("source") == "xml":
        return None
    return Violated(f"the entry of {entry.get('command')} has source {entry.get('source')!r}", wanted="source 'xml'")


@guarantee(
    "transport.report_command",
    "11 Accounting/telemetry",
    "a report by XML is accounted as agent__final_report_xml",
    on=(Billed, Ended),
    observable="result",
    transports=XML,
    start=False,
    repair="account command agent__final_report_xml",
)
def _command(now: Moment, own: bool) -> Any:
    event = now.event
    if isinstance(event, Billed):
        if field(event.entry, "command") == FINAL:
            return Violated("the report by XML is accounted as a native one", state=True, wanted=f"command {FINAL}_xml")
        return True if field(event.entry, "command") == f"{FINAL}_xml" else None
    assert isinstance(event, Ended)
    if own or not event.success or not _valid_tags(now.before) or now.before.attempt is None:
        return None
    return Violated("the report by XML is not accounted", wanted=f"command {FINAL}_xml")


@guarantee(
    "transport.stream_is_clean",
    "11 Streaming",
    "streamed text holds no fragment of a tag",
    on=Streamed,
    observable="request",
    transports=XML,
    start="",
    repair="buffer from the first fragment of an opening tag to its closing one",
    streams=True,
)
def _stream(now: Moment, own: str) -> Any:
    assert isinstance(now.event, Streamed)
    text = own + now.event.text
    found = _MARKUP.search(text)
    if found is not None:
        return Violated(f"{found[0]} was streamed to the user", state="", wanted="the tag's content alone")
    return text[-24:]
