"""Judge the spans of a running program by contracts, whatever framework makes them.

    provider.add_span_processor(MatSpanProcessor([refunds_are_verified], on_violation=warn))

A span has its attributes only when it ends, and a caller's span ends after the spans of its calls. So a trace is judged twice,
with the same conversion. While the trace is in progress, records are folded as soon as no open span can come before them, and
their violations are reported at once. When its last span has ended, the whole trace is converted and judged like an imported
one, which gives its result. Violations that were reported early and are not in the result are listed as withdrawn.
"""

from __future__ import annotations

import base64
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from mat.adapters.otel.convert import Conversion, EffectOf, effect_of
from mat.adapters.otel.native import is_native
from mat.adapters.otel.span import Event, Span, kind_of
from mat.adapters.otel.traces import Converted, convert, judged
from mat.adapters.otel.unknown import TraceGap
from mat.core.errors import MatError, SpecError, raised_text
from mat.core.record import ActionKind, Record
from mat.core.verdict import ContractOutcome, Outcome, Violation, merge
from mat.kernel.threads import real_rlock
from mat.monitor.contract import Contract
from mat.monitor.judge import Judge

__all__ = ["Alert", "MatSpanProcessor", "TraceResult"]

Reason: TypeAlias = Literal["ended", "idle", "evicted", "closed"]
_SpanKey: TypeAlias = tuple[str, Any, str]
_log: Final = logging.getLogger("mat.otel")
_AGENT: Final = ("gen_ai.agent.name", "agent_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A reported violation. `early`: the trace was still in progress; see `TraceResult.withdrawn`."""

    trace: str
    violation: Violation
    record: Record | None
    early: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """The verdicts of the contracts on one trace of spans.

    `trace` is its id in hex; `segment` counts from 1, because spans may come after a trace was judged. `reason`: why it was
    judged: its last span had ended, no span came for long, it made room for others, or the processor was closed. `finished`:
    the trace has its end, so that open obligations are violations; otherwise outcomes are presumed (RV-LTL). `lossy` and
    `unknown`: the facts that spans lack. `withdrawn`: violations that were reported early and do not hold. `error`: why the
    trace could not be read, or "".
    """

    trace: str
    segment: int
    reason: Reason
    records: tuple[Record, ...]
    outcomes: tuple[ContractOutcome, ...]
    finished: bool
    lossy: bool
    unknown: tuple[TraceGap, ...]
    withdrawn: tuple[Violation, ...] = ()
    error: str = ""

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All violations, hard and soft, by step."""
        found = [violation for outcome in self.outcomes for violation in outcome.violations]
        return tuple(sorted(found, key=lambda item: (item.step, item.contract, item.instance)))

    @property
    def outcome(self) -> Outcome:
        """The outcome of the hard contracts, as for a run."""
        return merge(item.outcome for item in self.outcomes if item.severity == "hard")


@dataclass(slots=True, eq=False)
class _OpenSpan:
    """A span that has begun. Its attributes may come later, so its kind is looked up until it has one."""

    span: SdkSpan
    parent: int
    start: int
    kind: ActionKind | None = None
    parental: bool = False
    known: bool = False


@dataclass(slots=True, eq=False)
class _Trace:
    """A trace in progress. `reports`: violations are reported early; `steps`: some span is a step of an agent."""

    id: int
    segment: int
    reports: bool
    early: Conversion | None = None
    judge: Judge | None = None
    steps: bool = False
    open: dict[int, _OpenSpan] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    reported: dict[_SpanKey, list[Violation]] = field(default_factory=dict)
    cut: int = 0
    latest: int = 0


class MatSpanProcessor(SpanProcessor):
    """Judges the GenAI spans of a tracer provider, online, by trace.

    `contracts`: any that read records; those that need raw values are unknown here. `on_violation` gets each violation once,
    in the thread that ended the span; `on_result` gets each TraceResult, and `results` holds the last `keep_results`.
    Exceptions of callbacks are logged, because a callback must not make a span fail. `effects` gives the effect and impact of
    a tool with a misleading name.

    Memory is bounded. With more than `max_traces` traces in progress, the one without a new span for the longest time is
    judged as it is. Only the first `max_spans` spans of a trace are judged. A trace without a new span for `idle_s` seconds,
    by the times of spans, is judged as it is. A trace in which no span is a step of an agent has no result. SpecError for
    limits below 1.
    """

    def __init__(
        self,
        contracts: Iterable[Contract],
        *,
        on_violation: Callable[[Alert], object] | None = None,
        on_result: Callable[[TraceResult], object] | None = None,
        effects: EffectOf = effect_of,
        max_traces: int = 1_000,
        max_spans: int = 10_000,
        idle_s: int = 3_600,
        keep_results: int = 100,
    ) -> None:
        self._contracts = tuple(contracts)
        Judge(self._contracts, online=False)  # raises for invalid contracts before any span exists
        limits = {"max_traces": max_traces, "max_spans": max_spans, "idle_s": idle_s, "keep_results": keep_results}
        if wrong := [f"{name}={value!r}" for name, value in limits.items() if type(value) is not int or value < 1]:
            raise SpecError(what="; ".join(f"{each} is not an integer >= 1" for each in wrong), fix="leave it out, or raise it")
        self._on_violation, self._on_result, self._effects = on_violation, on_result, effects
        self._max_traces, self._max_spans, self._idle_ns = max_traces, max_spans, idle_s * 1_000_000_000
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        self._segments: OrderedDict[int, int] = OrderedDict()
        self._results: deque[TraceResult] = deque(maxlen=keep_results)
        self._lock = real_rlock()
        self._closed = False
        self.late = 0
        """The number of spans that ended after their trace was judged, or began before the processor was added."""

    @property
    def results(self) -> tuple[TraceResult, ...]:
        """The results of the last judged traces, in the order in which they ended."""
        with self._lock:
            return tuple(self._results)

    # -- what the SDK calls -------------------------------------------------------------------------------------------

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        context, parent = span.context, span.parent
        if context is None or self._closed:
            return
        over: list[tuple[_Trace, Reason]] = []
        with self._lock:
            trace = self._traces.get(context.trace_id)
            if trace is None:
                trace = self._begin(context.trace_id)
                while len(self._traces) > self._max_traces:
                    over.append((self._traces.popitem(last=False)[1], "evicted"))
            above = 0 if parent is None else parent.span_id
            if len(trace.open) < self._max_spans:
                trace.open[context.span_id] = _OpenSpan(span, above, span.start_time or 0)
            else:
                trace.cut += 1
            around = trace.open.get(above)
            if around is not None:
                around.parental = True
            self._touch(trace, span.start_time or 0)
        if over:
            self._settle((), over)

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if context is None or self._closed:
            return
        ended = _span(span)
        over: list[tuple[_Trace, Reason]] = []
        with self._lock:
            trace = self._traces.get(context.trace_id)
            if trace is None:
                self.late += 1
                return
            now = ended.end or ended.start
            trace.open.pop(context.span_id, None)
            self._touch(trace, now)
            alerts: Sequence[Alert] = ()
            if len(trace.spans) >= self._max_spans:
                trace.cut += 1
            else:
                trace.spans.append(ended)
                trace.steps = trace.steps or ended.kind is not None or is_native(ended)
                if trace.steps:
                    alerts = self._fold_early(trace, ended, 0 if span.parent is None else span.parent.span_id)
            if not trace.open:
                over.append((self._traces.pop(context.trace_id), "ended"))
            while self._traces and (oldest := next(iter(self._traces.values()))).latest + self._idle_ns < now:
                over.append((self._traces.pop(oldest.id), "idle"))
        if alerts or over:
            self._settle(alerts, over)

    def shutdown(self) -> None:
        """Judge all traces in progress, as they are, and stop judging."""
        self.close()
        self._closed = True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: no data waits to be sent, and traces in progress are not ended."""
        return True

    def close(self) -> None:
        """Judge all traces in progress, as they are."""
        with self._lock:
            over: list[tuple[_Trace, Reason]] = [(trace, "closed") for trace in self._traces.values()]
            self._traces.clear()
        self._settle((), over)

    # -- while a trace is in progress ---------------------------------------------------------------------------------

    def _begin(self, id: int) -> _Trace:
        segment = self._segments.pop(id, 0) + 1
        self._segments[id] = segment
        if len(self._segments) > self._max_traces * 4:
            self._segments.popitem(last=False)
        trace = self._traces[id] = _Trace(id, segment, reports=self._on_violation is not None)
        return trace

    def _touch(self, trace: _Trace, at: int) -> None:
        """Move a trace with a new span to the end of the queue."""
        trace.latest = max(trace.latest, at)
        self._traces.move_to_end(trace.id)

    def _fold_early(self, trace: _Trace, span: Span, parent: int) -> list[Alert]:
        """Fold the records that no open span can precede; return their violations."""
        alerts: list[Alert] = []
        if is_native(span):  # our own exported runs are read when they are complete
            trace.reports = False
        if not trace.reports:
            return alerts
        early, judge = trace.early, trace.judge
        if early is None or judge is None:
            early = trace.early = Conversion(self._effects)
            judge = trace.judge = Judge(self._contracts, online=False)
            for before in trace.spans[:-1]:
                early.add(before)
        self._begin_parents(trace, parent, early)
        early.add(span)
        try:
            records = early.advance(_horizon(trace))
        except Exception:  # a value too deep to record, or `effects` raised: the result is unknown, with the reason
            trace.reports = False
            return alerts
        for record in records:
            for violation in judge.step(record).violations:
                trace.reported.setdefault(_key(violation, early.sources), []).append(violation)
                alerts.append(Alert(trace=format_trace_id(trace.id), violation=violation, record=record, early=True))
        return alerts

    def _begin_parents(self, trace: _Trace, parent: int, early: Conversion) -> None:
        """Pass the spans around an ended span to the conversion, because they name the agent."""
        around = trace.open.get(parent)
        while around is not None and not around.known:
            around.known = True
            early.begin(_span(around.span))
            around = trace.open.get(around.parent)

    # -- at the end of a trace ----------------------------------------------------------------------------------------

    def _settle(self, alerts: Sequence[Alert], over: Sequence[tuple[_Trace, Reason]]) -> None:
        """Judge finished traces and call the callbacks, outside the lock, because callbacks may make spans and wait."""
        for alert in alerts:
            self._call(self._on_violation, alert)
        for trace, reason in over:
            found = self._judge(trace, reason)
            if found is None:
                continue
            result, late = found
            with self._lock:
                self._results.append(result)
            for alert in late:
                self._call(self._on_violation, alert)
            self._call(self._on_result, result)

    def _judge(self, trace: _Trace, reason: Reason) -> tuple[TraceResult, list[Alert]] | None:
        """The result of a trace, and its violations that were not reported before; None if it has no step."""
        name, met = format_trace_id(trace.id), Counter(early=int(reason != "ended"), cut=trace.cut)
        spans = [*trace.spans, *(_span(item.span) for item in trace.open.values())]
        if not trace.steps and all(span.kind is None and not is_native(span) for span in spans):
            return None
        found, error = _read(spans, f"trace {name}", self._effects, met)
        if not found.records and not error:
            return None
        outcomes = judged(found.records, self._contracts, finished=found.finished)
        if error:
            outcomes = tuple(replace(item, outcome="unknown", error=error, standing="presumably_false") for item in outcomes)
        holds: dict[_SpanKey, list[Violation]] = {}
        for violation in (item for outcome in outcomes for item in outcome.violations):
            holds.setdefault(_key(violation, found.sources), []).append(violation)
        result = TraceResult(
            trace=name, segment=trace.segment, reason=reason, records=found.records, outcomes=outcomes, finished=found.finished,
            lossy=found.lossy, unknown=found.unknown, error=error,
            withdrawn=_missing_from(trace.reported, holds),
        )  # fmt: skip
        by_step = {record.step: record for record in found.records}
        late = [
            Alert(trace=name, violation=violation, record=by_step.get(violation.step), early=False)
            for violation in _missing_from(holds, trace.reported)
        ]
        return result, late

    def _call(self, callback: Callable[[Any], object] | None, item: object) -> None:
        if callback is None:
            return
        try:
            callback(item)
        except Exception:  # the callback failed, not the observed program
            _log.exception("%s of a MatSpanProcessor raised", getattr(callback, "__name__", "a callback"))


def _key(violation: Violation, sources: Sequence[Any]) -> _SpanKey:
    """The key of equal violations, independent of step numbers: the contract, the blamed span, the id."""
    known = 0 <= violation.step < len(sources)
    return violation.contract, sources[violation.step] if known else violation.step, violation.instance


def _missing_from(
    these: Mapping[_SpanKey, Sequence[Violation]], those: Mapping[_SpanKey, Sequence[Violation]]
) -> tuple[Violation, ...]:
    """The violations of the first that the second lacks, with multiplicity."""
    return tuple(violation for key, found in these.items() for violation in found[len(those.get(key, ())) :])


def _read(spans: Sequence[Span], where: str, effects: EffectOf, met: Mapping[str, int]) -> tuple[Converted, str]:
    """The whole trace and "", or an empty trace and why it could not be read."""
    try:
        return convert(spans, where=where, effects=effects, met=met), ""
    except MatError as error:
        problem = error.what
    except Exception as error:  # `effects` is user code; it must not make a span fail
        problem = raised_text(error)
    return Converted(records=(), finished=False, lossy=True, unknown=(), labels={}), problem


def _horizon(trace: _Trace) -> int | None:
    """When the first open span began that may become a step before later ones; None if there is none.

    Spans of the outermost agent, and enclosing spans that are not steps, do not count.
    """
    for item in trace.open.values():
        kind = _kind(item)
        if kind is None and item.parental:
            continue
        if kind == "delegation" and not _inside_agent(trace, item):
            continue
        return item.start
    return None


def _inside_agent(trace: _Trace, item: _OpenSpan) -> bool:
    above = trace.open.get(item.parent)
    while above is not None:
        if _kind(above) == "delegation":
            return True
        above = trace.open.get(above.parent)
    return False


def _kind(item: _OpenSpan) -> ActionKind | None:
    if item.kind is None:
        item.kind = kind_of(item.span.attributes or {})
    return item.kind


# -- from the SDK's spans ---------------------------------------------------------------------------------------------


def _span(span: ReadableSpan) -> Span:
    """Convert a span of the SDK. If it is not a step, keep only the attributes that name an agent."""
    given: Any = span.attributes
    attributes: dict[str, Any] = given.copy() if given else {}
    context, parent, start, end = span.context, span.parent, span.start_time, span.end_time
    assert context is not None
    begun = start or end or 0
    found = Span(
        id=format_span_id(context.span_id), parent="" if parent is None else format_span_id(parent.span_id), name=span.name,
        start=begun, end=max(begun, end) if end else None, attributes=attributes,
        failed=span.status.status_code is StatusCode.ERROR, status=span.status.description or "",
        remote=parent is not None and parent.is_remote, dropped=span.dropped_attributes + span.dropped_events,
    )  # fmt: skip
    if found.kind is None and not is_native(found):
        found.attributes = {key: attributes[key] for key in _AGENT if key in attributes}
        return found
    for key, value in attributes.items():
        if type(value) is not str:
            attributes[key] = _otlp_round_trip(value)
    found.events = [_event(event.name, event.attributes) for event in span.events]
    return found


def _event(name: str, attributes: Mapping[str, Any] | None) -> Event:
    return name, {key: _otlp_round_trip(value) for key, value in (attributes or {}).items()}


def _otlp_round_trip(value: Any) -> Any:
    """A value after a round trip through OTLP/JSON."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or kind is float or value is None:
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): _otlp_round_trip(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_otlp_round_trip(item) for item in value]
    return value
