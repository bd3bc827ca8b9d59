"""The JSON schema of a report, made from the dataclasses that it is written from: `mat report --schema` prints it.

It is published as `docs/reference/report.schema.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, get_type_hints

from mat.core.codec import FORMAT
from mat.measure.estimate import Estimate
from mat.report.document import EvaluationLine, FindingLine, HeatMap, ItemLine, MetricLine, Tables

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/{model}"
_NUMBER: Final[dict[str, Any]] = {"type": ["number", "null"]}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}


def report_schema() -> dict[str, Any]:
    """The schema, in draft 2020-12. Every key that a report has is in it, and no other key is valid."""
    definitions: dict[str, Any] = {}
    tables = {name: _of(kind, definitions) for name, kind in get_type_hints(Tables).items()}
    items, heat_maps = _of(tuple[ItemLine, ...], definitions), _of(tuple[HeatMap, ...], definitions)
    findings = _of(tuple[FindingLine, ...], definitions)
    _of(Estimate, definitions)
    definitions[EvaluationLine.__name__]["properties"]["metrics"] = _METRICS
    definitions.pop(MetricLine.__name__, None)
    for name, definition in definitions.items():
        _close(name, definition)
    return {
        "$schema": DIALECT,
        "title": "Report of pytest-mat",
        "description": "What pytest --mat-report FILE.json writes. A number without data is null, with n = 0.",
        "type": "object",
        "properties": {
            "mat": {"const": FORMAT, "description": "version of the format"},
            "runs": {**_COUNT, "description": "runs that the report was built from"},
            "items": items,
            "tables": _object(tables, required=[each.name for each in fields(Tables)]),
            "counterexamples": {
                "type": "array", "items": {"type": "object"}, "description": "the headers of the replay files, as in DESIGN",
            },
            "metrics": _METRICS,
            "curves": {"type": "array", "items": _CURVE},
            "variant": {"type": "string", "description": "the governance variant that most tables show"},
            "interrupted": {"type": "boolean", "description": "the session ended before all tests had run"},
            "heat_maps": heat_maps,
            "findings": findings,
            "comparison": {"type": "object", "description": "with --baseline: the comparison with an earlier report"},
            "suite": {"type": "object", "description": "with mat suite: the replays that were selected"},
        },
        "required": ["mat", "runs", "items", "tables", "counterexamples", "metrics", "curves"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }  # fmt: skip


def schema_text() -> str:
    """The schema as JSON text, as it is published."""
    return json.dumps(report_schema(), ensure_ascii=True, indent=1) + "\n"


_METRICS: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": {"$ref": _REFERENCE.format(model="Estimate")},
    "description": "name -> estimate; names and definitions are in the guide to metrics",
}


def _object(properties: Mapping[str, Any], *, required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object", "properties": dict(properties), "required": [*properties] if required is None else required,
        "additionalProperties": False,
    }  # fmt: skip


_POINT: Final = {
    "value": _NUMBER, "low": _NUMBER, "high": _NUMBER, "n": _COUNT, "proven": {"type": ["boolean", "null"]},
    "method": {"type": "string"},
}  # fmt: skip
_SUMMARY: Final = _object({**_POINT, "confidence": {"type": "number"}})
_CURVE: Final = _object(
    {
        "category": {"type": "string"},
        "kind": {"type": "string", "description": "random or adversarial schedules"},
        "measure": {"type": "string", "description": "success or compliance"},
        "points": {"type": "array", "items": _object({"budget": _COUNT, **_POINT})},
        "area": _SUMMARY,
        "last": _SUMMARY,
    }
)  # fmt: skip


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; the dataclasses in it are added to `definitions`."""
    from pydantic import TypeAdapter

    made = TypeAdapter(kind).json_schema(mode="serialization", ref_template=_REFERENCE)
    definitions.update(made.pop("$defs", {}))
    return made


def _close(name: str, definition: dict[str, Any]) -> None:
    """Every field is written, so all are required, and no other."""
    definition.pop("title", None)
    if definition.get("type") == "object" and "properties" in definition:
        definition["required"] = [*definition["properties"]]
        definition["additionalProperties"] = False
        for each in definition["properties"].values():
            each.pop("title", None)
            each.pop("default", None)
    definition.setdefault("description", name)
