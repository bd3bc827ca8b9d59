"""OpenTelemetry, both ways: export runs as spans, and judge the spans of any framework while a program runs.

    export(run, exporter)                       a run through any configured exporter or tracer provider
    to_otlp_json(run), from_otlp_json(data)     the same as an OTLP document, and back
    MatSpanProcessor([contract, ...])           judges the GenAI spans of a running program

docs/opentelemetry.md describes the mapping, and what is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mat.adapters.otel.names import LOST
from mat.adapters.otel.unknown import TraceGap

if TYPE_CHECKING:
    from mat.adapters.otel.processor import Alert, MatSpanProcessor, TraceResult
    from mat.adapters.otel.writer import export, from_otlp_json, readable_spans, to_otlp_json

__all__ = [
    "LOST",
    "Alert",
    "MatSpanProcessor",
    "TraceGap",
    "TraceResult",
    "export",
    "from_otlp_json",
    "readable_spans",
    "to_otlp_json",
]  # fmt: skip

_HOMES = {
    "Alert": "processor", "MatSpanProcessor": "processor", "TraceResult": "processor", "export": "writer",
    "from_otlp_json": "writer", "readable_spans": "writer", "to_otlp_json": "writer",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the SDK only on demand: it takes a third of a second, and the importer does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from mat.core.extras import require

    if _HOMES[name] == "processor":
        require("otel", name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
