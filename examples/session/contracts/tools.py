"""Tool requests, responses, truncation, time-outs and queues (section 1)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mat.core.value import FrozenDict
from mat.monitor.contract import Violated
from session.contracts.guarantee import broken, guarantee
from session.contracts.parsing import parsed, repaired
from session.contracts.reading import Asked, Billed, Ended, Executed, Logged, Said, ToolRequest, field, size, text_of
from session.contracts.settings import BATCH, FINAL
from session.contracts.view import OVERFLOW, Moment, View, counted, executable, is_batch

TRUNCATED: Final = re.compile(
    r"\[TRUNCATED\] Original size (\d+) bytes; truncated to (\d+) bytes\.(?:\n\n|\n| )?(.*)", re.DOTALL
)
TIMEOUT: Final = "(tool failed: timeout)"
_MARK: Final = "[TRUNCATED]"


# -- truncation --------------------------------------------------------------------------------------------------------------


def _truncation_problem(text: str, limit: int, original: int | None) -> tuple[str, str] | None:
    """(problem, wanted) of a response in the conversation; `original`: the tool's own size, where known."""
    bytes_in = size(text)
    if not text.startswith(_MARK):
        known = bytes_in if original is None else original
        if known <= limit:
            return None
        notice = f"[TRUNCATED] Original size {known} bytes; truncated to {limit} bytes."
        return f"a response of {known} bytes, limit {limit}, is in the conversation without notice", notice
    found = TRUNCATED.fullmatch(text)
    if found is None:
        return f"the truncation notice reads {text[:80]!r}", "[TRUNCATED] Original size X bytes; truncated to Y bytes."
    said, kept, body = int(found[1]), int(found[2]), size(found[3])
    if original is not None and original <= limit:
        return f"a response of {original} bytes was truncated, limit {limit}", "the response as it is"
    if original is not None and said != original:
        return f"the notice says {said} bytes, the response had {original}", f"Original size {original} bytes"
    if said <= limit:
        return f"the notice says that {said} bytes exceeded {limit}", "the response as it is"
    if kept > limit or body > kept:
        return f"{body} bytes follow a notice that says {kept}, limit {limit}", f"at most {limit} bytes"
    if body < kept - 3:  # a cut in the middle of a character loses up to three bytes
        return f"{body} bytes follow a notice that says {kept}", f"{kept} bytes"
    return None


@guarantee(
    "tools.truncation",
    "1 toolResponseMaxBytes",
    "a tool response above toolResponseMaxBytes is truncated, with the notice in front of it",
    on=(Executed, Said),
    observable="result",
    needs=["tool_response_max_bytes"],
    start=(),
    repair="cut the response to the limit and prepend [TRUNCATED] Original size X bytes; truncated to Y bytes.",
)
def _truncation(now: Moment, own: tuple[tuple[str, int], ...]) -> Any:
    event, limit = now.event, now.config.tool_response_max_bytes or 0
    if isinstance(event, Executed):
        batch = event.name == BATCH or "/" in event.id
        known = () if now.before.executed == () else own
        return known if batch or event.text is None or event.failed else (*known, (event.id, size(event.text)))
    assert isinstance(event, Said)
    sizes, found = dict(own), []
    for answer in event.answers:
        if answer.failure is not None or answer.text == OVERFLOW or is_batch(now.before, answer.id) or answer.tool == BATCH:
            continue
        problem = _truncation_problem(answer.text, limit, sizes.pop(answer.id, None))
        if problem is not None:
            found.append(Violated(problem[0], instance=answer.id, wanted=problem[1]))
    return broken(found, tuple(sizes.items()))


def _batch_items(text: str) -> list[str] | None:
    """The outputs inside a batch's response: a JSON list of objects with `output`, or an object whose `results` is one."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    items = found.get("results") if isinstance(found, dict) else found
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    return [text_of(item.get("output")) for item in items]


@guarantee(
    "tools.batch_not_truncated",
    "1 toolResponseMaxBytes",
    "the output of agent__batch is not truncated as a whole",
    on=Said,
    observable="result",
    needs=["tool_response_max_bytes"],
    repair="apply the limit to the tools inside the batch only",
)
def _batch_whole(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Said)
    return broken(
        Violated("the output of agent__batch was truncated as a whole", instance=answer.id, wanted="the batch's output, whole")
        for answer in now.event.answers
        if (answer.tool == BATCH or is_batch(now.before, answer.id)) and answer.text.startswith(_MARK)
    )


@guarantee(
    "tools.batch_items_truncated",
    "1 toolResponseMaxBytes",
    "each tool's output inside agent__batch is truncated by itself",
    on=Said,
    observable="result",
    needs=["tool_response_max_bytes"],
    repair="truncate each output before it enters the batch's",
)
def _batch_parts(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Said)
    found = []
    for answer in now.event.answers:
        if answer.tool != BATCH and not is_batch(now.before, answer.id):
            continue
        for index, output in enumerate(_batch_items(answer.text) or ()):
            problem = _truncation_problem(output, now.config.tool_response_max_bytes or 0, None)
            if problem is not None:
                found.append(Violated(problem[0], instance=f"{answer.id}/{index}", wanted=problem[1]))
    return broken(found)


@guarantee(
    "tools.truncation_logged",
    "1 toolResponseMaxBytes",
    "a truncation logs a warning with tool, actual bytes and limit",
    on=(Executed, Logged, Asked, Ended),
    observable="log",
    needs=["tool_response_max_bytes"],
    start=(),
    repair="log tool, actual_bytes and limit_bytes with each truncation",
)
def _truncation_logged(now: Moment, own: tuple[tuple[str, int, int], ...]) -> Any:
    event, limit = now.event, now.config.tool_response_max_bytes or 0
    if isinstance(event, Executed):
        big = event.text is not None and not event.failed and event.name != BATCH and size(event.text) > limit
        return (*own, (event.name, size(event.text or ""), now.record.step)) if big else None
    if isinstance(event, Logged):
        key = (field(event.entry, "tool"), field(event.entry, "actual_bytes"))
        fits = [item for item in own if item[:2] == key and field(event.entry, "limit_bytes") == limit]
        return tuple(item for item in own if item is not fits[0]) if fits else None
    return broken(
        [
            Violated(f"no warning says that {tool} gave {count} bytes", step=step, wanted="tool, actual bytes, limit bytes")
            for tool, count, step in own
        ],
        (),
    )


@guarantee(
    "tools.original_only_when_tracing",
    "1 toolResponseMaxBytes",
    "the original of a truncated response is logged only with traceTools",
    on=Logged,
    observable="log",
    needs=["tool_response_max_bytes"],
    repair="keep oversized responses out of the log unless traceTools is on",
)
def _original(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Logged)
    kept = field(now.event.entry, "response")
    if now.config.trace_tools or not isinstance(kept, str) or size(kept) <= (now.config.tool_response_max_bytes or 0):
        return None
    return Violated(f"a log entry holds a response of {size(kept)} bytes", wanted="traceTools, or no original in the log")


# -- time-outs ---------------------------------------------------------------------------------------------------------------


@guarantee(
    "tools.timeout_aborts",
    "1 toolTimeout",
    "a tool runs no longer than toolTimeout",
    on=Executed,
    observable="result",
    needs=["tool_timeout_ms"],
    repair="abort the execution when its time is over",
)
def _aborts(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Executed)
    limit, event = now.config.tool_timeout_ms or 0, now.event
    if event.duration_ms <= limit + 5 + limit // 50:  # an abort takes time: 5 ms and 2 %
        return None
    return Violated(f"{event.name} ran for {event.duration_ms} ms", instance=event.id, wanted=f"an abort after {limit} ms")


@guarantee(
    "tools.timeout_accounted",
    "1 toolTimeout",
    "a timed-out tool is accounted as failed",
    on=(Executed, Billed, Said, Asked),
    observable="result",
    start=((), ()),
    repair="account the execution with status 'failed'",
)
def _timeout_accounted(now: Moment, own: tuple[tuple[str, ...], tuple[tuple[str, str], ...]]) -> Any:
    """(tools that timed out and have no entry yet, tool and status of this turn's other entries)."""
    waiting, entries = own
    event = now.event
    if isinstance(event, Asked):
        return (waiting, ())
    if isinstance(event, Executed):
        return ((*waiting, event.name), entries) if event.timed_out else None
    if isinstance(event, Said):
        return _timed_out_answers(now, event, waiting, entries)
    assert isinstance(event, Billed)
    command, status = text_of(event.entry.get("command")), text_of(event.entry.get("status"))
    if event.entry.get("type") != "tool":
        return None
    latency, limit = event.entry.get("latency"), now.config.tool_timeout_ms
    early = limit is not None and isinstance(latency, int | float) and latency < limit
    if command not in waiting or (status == "ok" and early):  # another execution of the same tool
        return (waiting, (*entries, (command, status)))
    index = waiting.index(command)
    state = ((*waiting[:index], *waiting[index + 1 :]), entries)
    if status != "ok":
        return (state[0], (*entries, (command, status)))
    return Violated(f"{command} timed out and is accounted as ok", state=state, instance=command, wanted="status 'failed'")


def _timed_out_answers(now: Moment, event: Said, waiting: tuple[str, ...], entries: tuple[tuple[str, str], ...]) -> Any:
    """Executions that timed out according to the conversation have a failed entry, too."""
    names = {call.id: call.name for call in now.before.calls}
    left, found = list(entries), []
    for answer in event.answers:
        name = names.get(answer.id, answer.tool)
        if answer.text != TIMEOUT or not name:
            continue
        if (name, "failed") in left:
            left.remove((name, "failed"))
        elif (name, "ok") in left:
            left.remove((name, "ok"))
            said = f"{name} timed out, as the conversation says, and is accounted as ok"
            found.append(Violated(said, instance=answer.id, wanted="status 'failed'"))
    return broken(found, (waiting, tuple(left)))


@guarantee(
    "tools.timeout_text",
    "1 toolTimeout",
    "the model is told (tool failed: timeout)",
    on=(Executed, Said),
    observable="result",
    start=(),
    repair=f"answer a timed-out call with {TIMEOUT}",
)
def _timeout_text(now: Moment, own: tuple[str, ...]) -> Any:
    event = now.event
    if isinstance(event, Executed):
        known = () if now.before.executed == () else own
        return (*known, event.id) if event.timed_out and event.id and "/" not in event.id else known
    assert isinstance(event, Said)
    found = [
        Violated(f"the model is told {answer.text[:80]!r}", instance=answer.id, wanted=TIMEOUT)
        for answer in event.answers
        if answer.id in own and answer.text not in (TIMEOUT, OVERFLOW)
    ]
    return broken(found, tuple(id for id in own if id not in {answer.id for answer in event.answers}))


# -- parsing and repair ------------------------------------------------------------------------------------------------------


def _asked_for(view: View, id: str) -> ToolRequest | None:
    return next((call for call in view.calls if call.id == id and id), None)


@guarantee(
    "tools.arguments_as_sent",
    "1 Parsing and repair",
    "arguments that are JSON reach the tool as they are",
    on=Executed,
    observable="request",
    repair="try JSON.parse first, and repair only what it refuses",
)
def _as_sent(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Executed)
    call = _asked_for(now.before, now.event.id)
    if call is None or call.final or not call.runs or now.event.arguments is None:
        return None
    wanted = parsed(call.raw)
    if wanted is None or wanted == now.event.arguments:
        return None
    return Violated(f"{call.name} ran with {dict(now.event.arguments)}", instance=call.id, wanted=text_of(wanted))


@guarantee(
    "tools.arguments_repaired",
    "1 Parsing and repair",
    "arguments that repair can mend are repaired, and the call runs",
    on=(Executed, Asked, Ended),
    observable="request",
    repair="repair what JSON.parse refuses: fences, quotes, commas, open braces",
)
def _mended(now: Moment, own: None) -> Any:
    event, view = now.event, now.before
    if isinstance(event, Executed):
        call = _asked_for(view, event.id)
        if call is None or call.final or event.arguments is None or parsed(call.raw) is not None:
            return None
        wanted = repaired(call.raw)
        if wanted is None or wanted == event.arguments:
            return None
        return Violated(f"{call.name} ran with {dict(event.arguments)}", instance=call.id, wanted=text_of(wanted))
    return broken(
        Violated(
            f"the arguments of {call.name} can be repaired, and it did not run",
            instance=call.id,
            wanted=text_of(call.arguments),
        )
        for call in _left_out(now)
        if call.standing == "repaired"
    )


def _left_out(now: Moment) -> tuple[ToolRequest, ...]:
    """Well-formed calls of the latest reply that should have run but did not. A limit, overflow or end excuses a call."""
    view, limit = now.before, now.config.max_tool_calls_per_turn
    attempt = view.attempt
    if attempt is None or not attempt.calls or attempt.restricted or view.dropped >= 0 or "" in view.executed:
        return ()  # "": an execution that does not name its call
    if any(call.final and call.runs for call in view.calls) or (limit is not None and len(counted(view)) > limit):
        return ()
    return tuple(call for call in executable(view) if call.id not in view.executed)


@guarantee(
    "tools.unparsable_dropped",
    "1 Parsing and repair",
    "a call whose arguments cannot be parsed does not run",
    on=Executed,
    observable="request",
    repair="drop the call; never guess its arguments",
)
def _unparsable(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Executed)
    call = _asked_for(now.before, now.event.id)
    if call is None or call.final or call.standing != "unparsable":
        return None
    return Violated(f"{call.name} ran although its arguments are no JSON", instance=call.id, wanted="a dropped call")


@guarantee(
    "tools.invalid_dropped",
    "2 Invalid tool call parameters",
    "a call whose parameters break the tool's schema does not run",
    on=Executed,
    observable="request",
    repair="check the arguments against the tool's schema before it runs",
)
def _invalid(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Executed)
    call = _asked_for(now.before, now.event.id)
    if call is None or call.final or call.standing not in ("invalid", "unknown"):
        return None
    return Violated(f"{call.name} ran although {call.problem}", instance=call.id, wanted="a dropped call")


def _untold(now: Moment, standings: tuple[str, ...]) -> Any:
    """Calls of a partly accepted reply that have one of these standings and are not reported to the model."""
    view = now.before
    attempt = view.attempt
    if attempt is None or not attempt.stored or any(call.final and call.runs for call in view.calls):
        return None
    told = ""
    if isinstance(now.event, Asked):
        told = " ".join(text_of(item.get("content")) for item in now.event.tail if item.get("role") != "assistant")
    elif now.event is not None and view.turn == now.config.max_turns:
        return None  # no model is left to inform
    return broken(
        Violated(
            f"nothing tells the model that {call.name} was dropped: {call.problem}",
            witness=(attempt.step, now.record.step),
            instance=call.id,
            wanted=f"(tool failed: {call.problem})",
        )
        for call in view.calls
        if call.standing in standings and not call.final and call.id not in view.answered and not (call.id and call.id in told)
    )


@guarantee(
    "tools.unparsable_told",
    "1 Parsing and repair",
    "the model is told to retry a call whose arguments could not be parsed",
    on=(Asked, Ended),
    observable="request",
    repair="answer the dropped call with an error that asks for valid JSON",
)
def _unparsable_told(now: Moment, own: None) -> Any:
    return _untold(now, ("unparsable", "unclosed"))


@guarantee(
    "tools.invalid_told",
    "2 Invalid tool call parameters",
    "the model is told why a call with invalid parameters was dropped",
    on=(Asked, Ended),
    observable="request",
    repair="answer the dropped call with the validation failure",
)
def _invalid_told(now: Moment, own: None) -> Any:
    return _untold(now, ("invalid", "unknown"))


@guarantee(
    "tools.valid_calls_run",
    "1 Parsing and repair; 2 Invalid tool call parameters",
    "valid calls run although others in the same reply were dropped",
    on=(Asked, Ended),
    observable="request",
    repair="drop the malformed call alone",
)
def _valid_run(now: Moment, own: None) -> Any:
    if not any(call.standing in ("unparsable", "invalid", "unknown", "unclosed") for call in now.before.calls):
        return None
    return broken(
        Violated(f"{call.name} is valid and did not run", instance=call.id, wanted=f"{call.name} executed")
        for call in _left_out(now)
        if call.standing == "valid"
    )


@guarantee(
    "tools.repair_logged",
    "1 Parsing and repair",
    "a repair logs the original and the repaired payload",
    on=(Asked, Ended, Logged),
    observable="log",
    start=(),
    repair="log original and repaired with each repair",
)
def _repair_logged(now: Moment, own: tuple[tuple[str, int], ...]) -> Any:
    return _logged(now, own, "repaired", ("original", "repaired"))


@guarantee(
    "tools.parse_failure_logged",
    "1 Parsing and repair",
    "a parse failure logs the full raw payload",
    on=(Asked, Ended, Logged),
    observable="log",
    start=(),
    repair="log the raw payload, not truncated",
)
def _failure_logged(now: Moment, own: tuple[tuple[str, int], ...]) -> Any:
    return _logged(now, own, "unparsable", ("payload",))


def _logged(now: Moment, own: tuple[tuple[str, int], ...], standing: str, fields: tuple[str, ...]) -> Any:
    event = now.event
    if isinstance(event, Logged):
        seen = field(event.entry, fields[0])
        fits = [item for item in own if item[0] == seen and all(name in event.entry for name in fields)]
        return tuple(item for item in own if item is not fits[0]) if fits else None
    late = [
        Violated(f"no log entry holds {' and '.join(fields)} of the call at step {step}", step=step, wanted=", ".join(fields))
        for _, step in own
    ]
    fresh: tuple[tuple[str, int], ...] = ()
    if isinstance(event, Asked):
        fresh = tuple(
            (call.raw, now.record.step)
            for call in event.calls
            if call.standing == standing and not call.final and isinstance(call.raw, str)
        )
    return broken(late, fresh)


# -- the final report as a tool ----------------------------------------------------------------------------------------------


@guarantee(
    "tools.report_failure_collapses",
    "1 Parsing and repair",
    "after a failed final report at most the final turn follows",
    on=Asked,
    observable="request",
    repair="make the next turn the last one",
)
def _collapses(now: Moment, own: None) -> Violated | None:
    view = now.after
    failed = now.before.report_failed
    if not failed or view.turn <= failed + 1 or view.turn == now.before.turn:
        return None
    said = f"turn {view.turn} began although the final report of turn {failed} had failed"
    return Violated(said, wanted=f"turn {failed + 1} as the last one")


@guarantee(
    "tools.report_failure_logged",
    "1 Parsing and repair",
    "a failed final report logs its full payload",
    on=(Executed, Logged, Asked, Ended),
    observable="log",
    start=-1,
    repair="log the whole payload of the final report that failed",
)
def _report_logged(now: Moment, own: int) -> Any:
    event = now.event
    if isinstance(event, Executed):
        return now.record.step if event.name == FINAL and event.failed else None
    if isinstance(event, Logged):
        return -1 if own >= 0 and "payload" in event.entry and event.event == "final_report_failed" else None
    if own < 0:
        return None
    return Violated(
        "no log entry holds the payload of the final report that failed", state=-1, step=own, wanted="the JSON payload"
    )


# -- queues ------------------------------------------------------------------------------------------------------------------


@guarantee(
    "tools.queue_concurrency",
    "1 queues.<name>.concurrent",
    "no more tools of a queue run at once than it has slots",
    on=Executed,
    observable="request",
    needs=["queues"],
    start=(),
    repair="take a slot of the queue before the tool starts",
)
def _concurrency(now: Moment, own: tuple[tuple[str, int], ...]) -> Any:
    assert isinstance(now.event, Executed)
    record, queue = now.record, now.event.queue
    slots = now.config.queues.get(queue)
    running = tuple(item for item in own if item[1] > record.asked_seq)
    state = (*running, (queue, record.sealed_seq))
    at_once = 1 + sum(item[0] == queue for item in running)
    if slots is None or at_once <= slots:
        return state
    return Violated(
        f"{at_once} tools of queue {queue!r} ran at once", state=state, instance=now.event.id, wanted=f"at most {slots}"
    )


@guarantee(
    "tools.queue_waits",
    "1 queues.<name>.concurrent",
    "a request beyond a queue's slots waits; it is not refused",
    on=(Asked, Ended),
    observable="request",
    needs=["queues"],
    repair="wait until a slot is free",
)
def _waits(now: Moment, own: None) -> Any:
    view = now.before
    if any(call.standing not in ("valid", "ignored") for call in view.calls):
        return None  # judged by tools.valid_calls_run and tools.arguments_repaired
    left = _left_out(now)
    return broken(
        Violated(f"{call.name} was refused", instance=call.id, wanted="the call waits for a slot of its queue") for call in left
    )


@guarantee(
    "tools.queue_depth",
    "1 queues.<name>.concurrent",
    "telemetry tells a queue's depth",
    on=(Executed, Logged, Ended),
    observable="log",
    needs=["queues"],
    start=(False, False),
    repair="log the depth of the queue with each execution",
)
def _depth(now: Moment, own: tuple[bool, bool]) -> Any:
    ran, told = own
    if isinstance(now.event, Executed):
        return (ran or now.event.queue in now.config.queues, told)
    if isinstance(now.event, Logged):
        return (ran, told or "queue_depth" in now.event.entry)
    return (
        Violated("nothing tells how deep a queue was", state=own, wanted="queue and queue_depth") if ran and not told else None
    )


def content_of(arguments: FrozenDict) -> Any:
    """The content of a final report from a model's arguments."""
    return field(arguments, "content_json", "messages", "report_content", "content")
