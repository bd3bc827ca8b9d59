"""Writes a report as JSON (names: DESIGN section 6) with everything that the document holds. `from_json` reads it back."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from mat.core.codec import FORMAT
from mat.evidence.replay_file import header
from mat.measure.estimate import Estimate
from mat.measure.robustness import Curve
from mat.report.document import Document, EvaluationLine, MetricLine, Tables


def as_data(document: Document) -> dict[str, Any]:
    """The report as JSON data."""
    return {
        "mat": FORMAT,
        "runs": document.runs,
        "items": [data_of(line) for line in document.items],
        "tables": {table.name: data_of(getattr(document, table.name)) for table in fields(Tables)},
        "counterexamples": [header(replay) for replay in document.counterexamples],
        "metrics": _by_name(document.metrics),
        "curves": [_curve(curve) for curve in document.curves],
        **({"variant": document.variant} if document.variant else {}),
        **({"interrupted": True} if document.interrupted else {}),
        **({"heat_maps": data_of(document.heat_maps)} if document.heat_maps else {}),
        **({"findings": data_of(document.findings)} if document.findings else {}),
    }


def _by_name(metrics: tuple[MetricLine, ...]) -> dict[str, Any]:
    return {metric.name: data_of(metric.estimate) for metric in metrics}


def to_json(document: Document, **more: Any) -> str:
    """The report as JSON text, with `more` data at its end: ASCII, indented, final newline. Equal reports give equal bytes."""
    return json.dumps(as_data(document) | more, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _curve(curve: Curve) -> dict[str, Any]:
    """A curve as JSON data. `proven` false: the value is an upper bound; null: the schedules were random."""
    return {
        "category": curve.category,
        "kind": curve.kind,
        "measure": curve.measure,
        "points": [
            {
                "budget": point.budget, "value": point.estimate.value, "low": point.estimate.low,
                "high": point.estimate.high, "n": point.estimate.n, "proven": point.proven, "method": point.estimate.method,
            }
            for point in curve.points
        ],
        "area": _estimate(curve.area, curve.area_proven),
        "last": _estimate(curve.last.estimate, curve.last.proven),
    }  # fmt: skip


def _estimate(estimate: Estimate, proven: bool | None) -> dict[str, Any]:
    return {
        "value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n,
        "confidence": estimate.confidence, "method": estimate.method, "proven": proven,
    }  # fmt: skip


def data_of(value: Any) -> Any:
    """A dataclass, tuple, fraction or plain value as JSON data, field by field."""
    if isinstance(value, EvaluationLine):  # its metrics are keyed by name, like those of the whole report
        return {each.name: data_of(getattr(value, each.name)) for each in fields(value)} | {"metrics": _by_name(value.metrics)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: data_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [data_of(item) for item in value]
    return float(value) if isinstance(value, Fraction) else value
