"""Write runs as spans: to any exporter or tracer provider of OpenTelemetry, and as OTLP/JSON, which can be read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mat.adapters.otel import names
from mat.adapters.otel.draft import EPOCH_NS, Attributes, Draft, Happening, drafts, trace_id_of
from mat.core.errors import MatError, SpecError
from mat.core.extras import require
from mat.core.redact import cleaned
from mat.core.run import Run

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

__all__ = ["export", "from_otlp_json", "readable_spans", "to_otlp_json"]

_INTERNAL: Final = 1
_CLIENT: Final = 3
_ERROR: Final = 2


# -- OTLP/JSON --------------------------------------------------------------------------------------------------------


def to_otlp_json(*runs: Run, service: str = names.SERVICE, began_ns: int = EPOCH_NS) -> dict[str, Any]:
    """Convert runs to one OTLP document (JSON data): one trace per run, ids in hex, as in `opentelemetry-proto`.

    `began_ns`: run time 0 in Unix nanoseconds; by default the wall clock of virtual runs.
    """
    spans: list[dict[str, Any]] = []
    for run in runs:
        trace = trace_id_of(run)
        spans += [_otlp_span(draft, trace) for draft in drafts(run, began_ns=began_ns)]
    scope = {"name": names.SCOPE, "version": _version()}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _otlp_attributes({"service.name": cleaned(service)})},
                "scopeSpans": [{"scope": scope, "schemaUrl": names.SCHEMA_URL, "spans": spans}],
            }
        ]
    }


def from_otlp_json(document: Mapping[str, Any]) -> tuple[Run, ...]:
    """Read the runs of a document from `to_otlp_json`, or from a collector that received them through `export`.

    They lack the fields of `LOST`; `mat.judge(run.records, contracts)` gives verdicts again. Other traces are left out.
    CodecError if a run is incomplete.
    """
    from mat.adapters.importers.otlp import spans_of
    from mat.adapters.otel.native import read_run

    found = spans_of(document)
    return tuple(
        read_run(spans, f"trace {trace}")
        for trace, spans in found.items()
        if any(names.STEP in span.attributes or names.FORMAT in span.attributes for span in spans)
    )


def _otlp_span(draft: Draft, trace: str) -> dict[str, Any]:
    found: dict[str, Any] = {"traceId": trace, "spanId": draft.id}
    if draft.parent:
        found["parentSpanId"] = draft.parent
    found |= {
        "name": draft.name, "kind": _CLIENT if draft.client else _INTERNAL, "startTimeUnixNano": str(draft.start),
        "endTimeUnixNano": str(draft.end), "attributes": _otlp_attributes(draft.attributes),
    }  # fmt: skip
    if draft.events:
        found["events"] = [
            {"timeUnixNano": str(event.at), "name": event.name, "attributes": _otlp_attributes(event.attributes)}
            for event in draft.events
        ]
    if draft.links:
        found["links"] = [{"traceId": trace, "spanId": link} for link in draft.links]
    found["status"] = {} if draft.error is None else {"code": _ERROR, "message": draft.error}
    return found


def _otlp_attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _otlp_value(value)} for key, value in attributes.items()]


def _otlp_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_otlp_value(item) for item in value]}}
    return {"stringValue": value}


# -- the SDK ----------------------------------------------------------------------------------------------------------


def export(
    run: Run,
    target: SpanExporter | TracerProvider | None = None,
    *,
    service: str = names.SERVICE,
    began_ns: int = EPOCH_NS,
) -> str:
    """Send a run's spans to a span exporter (in memory, console, OTLP if its package is installed) or a tracer provider.

    A provider applies its own processors, samplers and limits; the default target is the program's provider. `service` is
    `service.name` for an exporter; a provider has its own resource. `began_ns` is as in `to_otlp_json`. Returns the trace id in
    hex. An exporter gets ids from the run's digests, so that a run sent twice counts once; a provider makes its own ids.
    SpecError for another kind of target, or if no provider was set; MatError if the exporter reports a failure.
    """
    if target is None:
        target = _current_provider()
    sends = getattr(target, "export", None)
    if callable(sends):
        from opentelemetry.sdk.trace.export import SpanExportResult

        if sends(readable_spans(run, service=service, began_ns=began_ns)) is not SpanExportResult.SUCCESS:
            raise MatError(
                f"{type(target).__name__} could not export the run",
                why="it reported a failure; see its own log",
                fix="check that its endpoint can be reached, and that it was not shut down",
            )
        return trace_id_of(run)
    if callable(getattr(target, "get_tracer", None)):
        return _send_through(target, run, began_ns)
    raise SpecError(
        what=f"a run cannot be exported to a value of type {type(target).__name__}",
        fix="give a SpanExporter, such as InMemorySpanExporter(), or a TracerProvider",
    )


def _current_provider() -> TracerProvider:
    require("otel", "export() of a run")
    from opentelemetry import trace
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider

    provider = trace.get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        raise SpecError(
            what="no tracer provider is set",
            why="without a target the run is exported through the program's own provider",
            fix="call opentelemetry.trace.set_tracer_provider(...) first, or pass a target: export(run, target)",
        )
    return provider


def readable_spans(run: Run, *, service: str = names.SERVICE, began_ns: int = EPOCH_NS) -> tuple[ReadableSpan, ...]:
    """A run as finished spans of the SDK, for exporters."""
    require("otel", "a span of the SDK")
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    trace, resource = int(trace_id_of(run), 16), Resource({"service.name": cleaned(service)})
    scope = InstrumentationScope(names.SCOPE, _version(), names.SCHEMA_URL)

    def context(id: str) -> SpanContext:
        return SpanContext(trace, int(id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return tuple(
        ReadableSpan(
            name=draft.name,
            context=context(draft.id),
            parent=context(draft.parent) if draft.parent else None,
            resource=resource,
            attributes=draft.attributes,
            events=[Event(event.name, event.attributes, event.at) for event in draft.events],
            links=[Link(context(link)) for link in draft.links],
            kind=SpanKind.CLIENT if draft.client else SpanKind.INTERNAL,
            status=Status() if draft.error is None else Status(StatusCode.ERROR, draft.error),
            start_time=draft.start,
            end_time=draft.end,
            instrumentation_scope=scope,
        )
        for draft in map(_encodable, drafts(run, began_ns=began_ns))
    )


def _send_through(provider: Any, run: Run, began_ns: int) -> str:
    """Make the spans of a run with a tracer: begin all of them in order, then end them from the inside out."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, StatusCode, format_trace_id, set_span_in_context

    tracer = provider.get_tracer(names.SCOPE, _version(), names.SCHEMA_URL)
    made: dict[str, Any] = {}
    todo = [_encodable(draft) for draft in drafts(run, began_ns=began_ns)]
    for draft in todo:
        made[draft.id] = tracer.start_span(
            draft.name,
            context=set_span_in_context(made[draft.parent], Context()) if draft.parent else Context(),
            kind=SpanKind.CLIENT if draft.client else SpanKind.INTERNAL,
            attributes=draft.attributes,
            links=[Link(made[link].get_span_context()) for link in draft.links],
            start_time=draft.start,
            record_exception=False,
        )
    for draft in reversed(todo):
        span = made[draft.id]
        for event in draft.events:
            span.add_event(event.name, event.attributes, event.at)
        if draft.error is not None:
            span.set_status(StatusCode.ERROR, draft.error)
        span.end(draft.end)
    return format_trace_id(made[todo[0].id].get_span_context().trace_id)


def _encodable(draft: Draft) -> Draft:
    """The span with texts that have a UTF-8 form, because exporters fail on a lone surrogate."""
    return Draft(
        name=_utf8(draft.name), id=draft.id, parent=draft.parent, client=draft.client, start=draft.start, end=draft.end,
        attributes=_utf8_attributes(draft.attributes),
        events=tuple(Happening(name=it.name, at=it.at, attributes=_utf8_attributes(it.attributes)) for it in draft.events),
        links=draft.links, error=None if draft.error is None else _utf8(draft.error),
    )  # fmt: skip


def _utf8_attributes(attributes: Attributes) -> Attributes:
    return {name: _utf8_value(value) for name, value in attributes.items()}


def _utf8_value(value: Any) -> Any:
    if isinstance(value, str):
        return _utf8(value)
    return tuple(map(_utf8_value, value)) if isinstance(value, list) else value


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _version() -> str:
    from mat import __version__

    return __version__
