"""MAS-SIM: runs of a scripted multi-agent system as spans in a JSON of its own, one injected fault in each.

A row is `{run_id, otel {task, status, task_metadata, spans[...]}, ...}` (`trajectory_log` and `trajectory_telemetry` repeat
the spans as text). Spans become steps by start time, and overlap as they did:

- The span of the whole run ("workflow", or one without a step index that others name as parent): the task, a
  `message` of the channel "user" at the prompt boundary, as `mat.untrusted` records it.
- "agent_llm": a `model_call` of the requested model by the span's agent and role, with its input, and as value what the
  span says came out of it: text, plan, planned tool and arguments. At its end, by what it says: a `delegation` for each
  event "task_delegated", a `verification` of "answer" where it has a validation status (passed: "APPROVED"), the
  `final_response` where it builds the answer.
- "tool_call": a `tool_call` of the tool with its arguments, by the agent whose span planned it (else the agent of the parent
  span, else "main"). A span with status ERROR has an error of its type and message; a schema error is "rejected".
- The end is "completed" or "failed", as the run's status says.

What no agent could see stays out of the records: the events "fault.injected" (label `injected`) and what was expected
(labels `expected_arguments` of the tool, `expected_result`, `expected_answer`).

Labels: `status`, `task`, `tool_operation`, `success_criteria`, those four, and, where a file labels.jsonl or labels.jsonl.gz
stands beside, `annotated_*` (see StoredTrace), `annotated_category`, `fault_mode` and `annotated_reason` of the run.
`annotated_agent` is the failed component: an agent, or the tool. Source steps are `experiment.step_index`, from 1; of the
steps one span became the last counts. Times are milliseconds since the first span began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corpora.formats.annotations import numbered
from mat.adapters.importers.base import (
    Format,
    RecordMaker,
    Row,
    StoredTrace,
    error_kind,
    field_of,
    interleave,
    misfit,
    one_trace_a_row,
    read_rows,
    structured,
    text_of,
)
from mat.core.record import DeclaredEffect

__all__ = ["FORMAT", "effect_of"]

_LABELS: Final = ("labels.jsonl.gz", "labels.jsonl")
_READS: Final = ("search", "get", "list", "read", "find", "check")
_USAGE: Final = ("input_tokens", "output_tokens", "total_tokens")


def effect_of(operation: str) -> DeclaredEffect:
    """Whether an operation (`catalog.search`, `catalog.get_details`) only reads, by the verb it is named after."""
    return "read" if operation.rpartition(".")[2].startswith(_READS) else "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A span: its times in ns, its attributes, and what was read of them. `step`: the source's index, None if not counted."""

    start: int
    end: int
    step: int | None
    agent: str
    role: str
    kind: str
    operation: str
    attributes: Mapping[str, Any]
    row: Mapping[str, Any]
    path: str


def _spans(position: str, otel: Mapping[str, Any]) -> list[_Span]:
    """The spans by start; of those that start together, the longer first, then as the file has them."""
    found = []
    for place, row in enumerate(field_of(otel, "spans", list, position, path="otel.")):
        path = f"otel.spans[{place}]."
        if not isinstance(row, Mapping):
            raise misfit(position, path.rstrip("."), f"is {row!r:.60}, not a span")
        attributes = field_of(row, "attributes", dict, position, path=path, default={})
        start = field_of(row, "start_time_unix_ns", int, position, path=path)
        step = attributes.get("experiment.step_index")
        found.append(
            _Span(
                start=start, end=max(start, field_of(row, "end_time_unix_ns", int, position, path=path, default=start)),
                step=step if type(step) is int else None, agent=_text(attributes, "gen_ai.agent.name") or "main",
                role=_text(attributes, "agent.role"), kind=_text(attributes, "experiment.operation_type"),
                operation=_text(attributes, "gen_ai.operation.name"), attributes=attributes, row=row, path=path,
            )
        )  # fmt: skip
    return sorted(found, key=lambda span: (span.start, -span.end))


def _text(attributes: Mapping[str, Any], name: str) -> str:
    return text_of(attributes.get(name))


_Step = tuple[int, int, tuple[Any, ...], dict[str, Any]]
"""Start and end in ns, and the arguments of RecordMaker.add."""


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    otel = field_of(row, "otel", dict, position)
    spans = _spans(position, otel)
    steps = [step for span in spans for step in _steps(position, otel, span, spans)]
    order = interleave([(start, end) for start, end, _, _ in steps])
    began = spans[0].start if spans else 0
    maker = RecordMaker()
    for (asked, sealed), (start, end, what, how) in sorted(zip(order, steps, strict=True), key=lambda item: item[0]):
        at_ms, sealed_ms = (start - began) // 1_000_000, (end - began) // 1_000_000
        maker.add(*what, **how, at_ms=at_ms, sealed_ms=sealed_ms, asked_seq=asked, sealed_seq=sealed)
    status = _text(otel, "status")
    maker.end({"SUCCESS": "completed", "FAILED": "failed"}.get(status, "implicit"))
    run = str(row.get("run_id") or otel.get("run_id") or position)
    stated = _stated(position, otel, spans) | {"status": status, "timed": True}
    return StoredTrace(id=run, records=tuple(maker.records), labels=maker.labels(FORMAT.name, position, **stated))


def _stated(position: str, otel: Mapping[str, Any], spans: list[_Span]) -> dict[str, Any]:
    """What the row says besides its steps, the answers and the injected faults included."""
    task = field_of(otel, "task_metadata", dict, position, path="otel.", default={})
    injected = [
        {"source_step": span.step, **field_of(event, "attributes", dict, position, path=f"{span.path}events.", default={})}
        for span in spans
        for event in _events(position, span)
        if event.get("name") == "fault.injected"
    ]
    return {
        "task": otel.get("task"), "tool_operation": task.get("tool_operation"),
        "expected_arguments": task.get("default_tool_args"),
        "success_criteria": tuple(field_of(task, "success_criteria", list, position, path="otel.task_metadata.", default=[])),
        "expected_result": task.get("expected_result"), "expected_answer": task.get("expected_answer"),
        "injected": tuple(injected),
    }  # fmt: skip


def _events(position: str, span: _Span) -> list[Mapping[str, Any]]:
    found = field_of(span.row, "events", list, position, path=span.path, default=[])
    for place, event in enumerate(found):
        if not isinstance(event, Mapping):
            raise misfit(position, f"{span.path}events[{place}]", f"is {event!r:.60}, not an event")
    return found


def _steps(position: str, otel: Mapping[str, Any], span: _Span, spans: list[_Span]) -> Iterator[_Step]:
    """The steps of one span."""
    if span.kind == "tool_call":
        yield _tool(position, span, spans)
    elif span.step is None and (span.kind == "workflow" or any(_parent(other) == _id(span) for other in spans)):
        text = _text(span.attributes, "task.input") or _text(otel, "task")
        how = {"agent": "user", "boundary": "prompt", "value": text}
        yield span.start, span.start, ("message", "user", {"text": text, "sender": "user"}), how
    else:
        yield _model(position, span)
        for what, how in _conclusions(position, span):
            yield span.end, span.end, what, how | {"agent": span.agent, "role": span.role, "source": span.step}


def _id(span: _Span) -> object:
    return span.row.get("span_id")


def _parent(span: _Span) -> object:
    return span.row.get("parent_span_id")


def _model(position: str, span: _Span) -> _Step:
    """The model call a span of an agent stands for."""
    given = span.attributes
    asked = {"operation": span.operation, "input": _text(given, "agent.input_message")}
    said: dict[str, Any] = {"text": _text(given, "agent.output_message")}
    for field, name in (("plan", "plan.text"), ("tool", "tool.name"), ("validation", "validation.status")):
        if name in given:
            said[field] = given[name]
    for field, name in (("query", "plan.query_json"), ("tool_arguments", "tool.args_json")):
        if name in given:
            said[field] = structured(_text(given, name))
    usage = {name: given[f"gen_ai.usage.{name}"] for name in _USAGE if type(given.get(f"gen_ai.usage.{name}")) is int}
    how = {
        "agent": span.agent,
        "role": span.role,
        "value": said,
        "usage": usage,
        "source": span.step,
        **_failure(position, span),
    }
    return span.start, span.end, ("model_call", _text(given, "gen_ai.request.model") or "model", asked), how


def _conclusions(position: str, span: _Span) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What an agent did with what its model said."""
    given = span.attributes
    text = _text(given, "agent.output_message")
    for event in _events(position, span):
        target = field_of(event, "attributes", dict, position, path=f"{span.path}events.", default={}).get("target_agent")
        if event.get("name") == "task_delegated" and isinstance(target, str):
            yield ("delegation", target, {"task": text, "delegator": span.agent}), {"value": text}
    if "validation.status" in given:
        reason = _text(given, "validation.reason")
        passed = _text(given, "validation.status").upper() == "APPROVED"
        yield ("verification", "answer", {"passed": passed, "reason": reason}), {}
    if span.operation == "build_answer":
        yield ("final_response", "answer", {"answer": text}), {}


def _tool(position: str, span: _Span, spans: list[_Span]) -> _Step:
    given = span.attributes
    name = _text(given, "tool.name") or span.agent
    arguments = structured(_text(given, "tool.args_json"))
    failure = _failure(position, span)
    how = {
        **_asker(span, spans, name), "effect": effect_of(span.operation), "source": span.step,
        "value": None if failure else structured(_text(given, "tool.result_json")), **failure,
    }  # fmt: skip
    asked = arguments if isinstance(arguments, Mapping) else {"unparsed": arguments} if arguments else {}
    return span.start, span.end, ("tool_call", name, asked), how


def _asker(span: _Span, spans: list[_Span], tool: str) -> dict[str, str]:
    """Agent and role of the latest span before that planned this tool, else of the parent span."""
    before = [
        other
        for other in spans
        if other.kind != "tool_call" and other.start <= span.start and _text(other.attributes, "tool.name") == tool
    ]
    parents = [other for other in spans if _id(other) is not None and _id(other) == _parent(span)]
    found = before[-1:] or parents
    return {"agent": found[0].agent, "role": found[0].role} if found else {}


def _failure(position: str, span: _Span) -> dict[str, str]:
    """The error of a span whose status says so."""
    status = field_of(span.row, "status", dict, position, path=span.path, default={})
    if status.get("status_code") != "ERROR":
        return {}
    kind = _text(span.attributes, "error.type") or "Error"
    message = _text(span.attributes, "error.message") or text_of(status.get("description"))
    otherwise = "rejected" if "schema" in kind.casefold() else ""
    return {"error": message, "error_type": kind, "error_kind": error_kind(f"{kind} {message}", otherwise)}


# -- labels that stand beside -----------------------------------------------------------------------------------------


def _labelled(rows: Iterator[Row]) -> Iterator[StoredTrace]:
    """The traces, each with the labels of its run from the file beside, where there is one."""
    beside: dict[str, Mapping[str, Any]] | None = None
    for position, row in rows:
        if beside is None:
            beside = _labels_beside(position.rpartition(":")[0])
        for stored in _TRACES(iter(((position, row),))):
            truth = beside.get(stored.id)
            yield stored if truth is None else _with_truth(stored, truth)


def _labels_beside(path: str) -> dict[str, Mapping[str, Any]]:
    for name in _LABELS:
        file = Path(path).parent / name
        if file.is_file():
            return {
                field_of(row, "run_id", str, position): field_of(row, "ground_truth", dict, position)
                for position, row in read_rows(file)
            }
    return {}


def _with_truth(stored: StoredTrace, truth: Mapping[str, Any]) -> StoredTrace:
    step = numbered(truth.get("critical_failure_step"))
    stated = {
        "annotated_source_step": step,
        "annotated_step": stored.labels["our_steps"].get(step) if isinstance(step, int) else None,
        "annotated_agent": truth.get("failed_component"), "annotated_category": truth.get("failure_category"),
        "fault_mode": truth.get("fault_mode"), "annotated_reason": truth.get("reason"),
    }  # fmt: skip
    return StoredTrace(id=stored.id, records=stored.records, labels={**stored.labels, **stated}, finished=stored.finished)


def _accepts(row: Mapping[str, Any]) -> bool:
    otel = row.get("otel")
    return isinstance(otel, Mapping) and "spans" in otel


_TRACES: Final = one_trace_a_row("massim-otel", _accepts, _convert)
FORMAT: Final = Format(
    name="massim-otel",
    text="runs of MAS-SIM: run_id, otel with spans",
    accepts=_accepts,
    traces=_labelled,
)
