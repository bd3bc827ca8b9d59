"""Read the spans that `export` wrote: every field of every record from its `mat.*` attributes, and the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mat.adapters.otel import names
from mat.adapters.otel.span import Span
from mat.core import limits
from mat.core.codec import FORMAT, decode, load_json
from mat.core.digest import chain
from mat.core.errors import CodecError
from mat.core.record import Record, facts
from mat.core.run import Run
from mat.core.spec import RunSpec

__all__ = ["is_native", "read_records", "read_run"]

_FIX: Final = "export the run again, with no limit on the length and number of attributes"


def is_native(span: Span) -> bool:
    """Whether a span is a step of a run of ours, or the run itself."""
    return names.STEP in span.attributes or names.FORMAT in span.attributes


def read_records(spans: Sequence[Span], where: str) -> tuple[tuple[Record, ...], Counter[str]]:
    """The records 0, 1, 2, ... up to the first missing one, and what is wrong with them: code -> how often.

    The codes are those of `mat.adapters.otel.unknown`: "records" counts missing ones, "facts" those that do not have the digest
    that was sent with them. CodecError for attributes that cannot be read.
    """
    met: Counter[str] = Counter()
    steps: dict[int, Span] = {}
    for span in spans:
        step = span.attributes.get(names.STEP)
        met["spans_left_out"] += step is None and not is_native(span) and span.kind != "delegation"
        if step is not None:
            steps[_whole_number(step, where)] = span
    roots = [span for span in spans if names.FORMAT in span.attributes]
    counts = [root.attributes.get(names.RUN_RECORDS) for root in roots]
    stated = max((count for count in counts if type(count) is int), default=0)
    found: list[Record] = []
    link = str(roots[0].attributes.get(names.RUN_ID, "")) if roots else ""
    while (step_span := steps.get(len(found))) is not None:
        record = _record(step_span.attributes, f"{where}, step {len(found)}")
        found.append(record)
        link = chain(link, facts(record))
        met["facts"] += bool(roots) and step_span.attributes.get(names.HEAD, link) != link
    for root in roots:
        ending = [root.attributes.get(names.RUN_SCALARS[field]) for field in ("termination", "elapsed_ms")]
        met["facts"] += len(found) == stated and root.attributes.get(names.RUN_HEAD) != chain(link, ending)
    met["records"] = max(stated, len(steps)) - len(found)
    met["parents"] = not roots
    return tuple(found), +met


def read_run(spans: Sequence[Span], where: str) -> Run:
    """The run of these spans, without the fields in `names.LOST`. CodecError if a span is missing, incomplete or changed."""
    roots = [span for span in spans if names.FORMAT in span.attributes]
    if len(roots) != 1:
        raise CodecError(
            what=f"{where} has {len(roots)} spans with {names.FORMAT}; exactly one is needed",
            why="the span of the run has its spec and its end",
            fix="give all spans of one run, as mat.adapters.otel wrote them",
            where=where,
        )
    root = roots[0].attributes
    if root[names.FORMAT] != FORMAT:
        raise CodecError(
            what=f"{where} is of format {root[names.FORMAT]!r}; this pytest-mat reads format {FORMAT}",
            why="another version of pytest-mat wrote it",
            fix="upgrade pytest-mat, or export the run again",
            where=where,
        )
    records, met = read_records(spans, where)
    if met["records"]:
        raise CodecError(
            what=f"{where} lacks {met['records']} of the run's steps",
            why="a run needs all of its records",
            fix=_FIX,
            where=where,
        )
    if met["facts"]:
        raise CodecError(
            what=f"{where}: the facts of the run are not those that were sent ({met['facts']} digests differ)",
            why="its spans were changed on the way, by hand, by a limit on attributes or by a processor",
            fix=_FIX,
            where=where,
        )
    spec = decode(RunSpec, _fields(root, names.SPEC_SCALARS, names.SPEC_STRUCTURES, where), where=where)
    rest = _fields(root, names.RUN_SCALARS, names.RUN_STRUCTURES, where)
    without = decode(Run, {"spec": {}, **rest}, where=where)
    return Run(
        spec=spec, records=records, termination=without.termination, success=without.success, error=without.error,
        elapsed_ms=without.elapsed_ms, unreached=without.unreached, findings=without.findings,
    )  # fmt: skip


def _record(attributes: Mapping[str, Any], where: str) -> Record:
    """One record; pydantic checks each field."""
    action: dict[str, Any] = {field: attributes[name] for field, name in names.ACTION.items() if name in attributes}
    action["arguments"] = _structure(attributes, names.ARGUMENTS, where, {})
    data: dict[str, Any] = _fields(attributes, names.SCALARS, names.STRUCTURES, where)
    data["action"] = action
    data["observation"] = _observation(attributes, where)
    data["mediation"] = _mediation(attributes, where)
    for field, empty in (("state", {}), ("links", []), ("executed", None), ("raw", None), ("faults", []), ("artefacts", {})):
        data.setdefault(field, empty)
    return decode(Record, data, where=where)


def _observation(attributes: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {field: attributes[name] for field, name in names.OBSERVATION.items() if name in attributes}
    found["value"] = _structure(attributes, names.VALUE, where, None)
    found["error"] = _structure(attributes, names.ERROR, where, None)
    found["usage"] = _structure(attributes, names.USAGE, where, {})
    found["charged"] = _structure(attributes, names.CHARGED, where, {})
    return found


def _mediation(attributes: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    found: dict[str, Any] = {field: attributes[name] for field, name in names.MEDIATION.items() if name in attributes}
    if not found:
        return None
    return {
        **found, "arguments": _structure(attributes, names.ALLOWED, where, None), "under": attributes.get(names.UNDER, ()),
        "reserved": _structure(attributes, names.RESERVED, where, {}),
    }  # fmt: skip


def _fields(
    attributes: Mapping[str, Any], scalars: Mapping[str, str], structures: Mapping[str, str], where: str
) -> dict[str, Any]:
    found: dict[str, Any] = {field: attributes[name] for field, name in scalars.items() if name in attributes}
    for field, name in structures.items():
        if name in attributes:
            found[field] = _structure(attributes, name, where, None)
    return found


def _structure(attributes: Mapping[str, Any], name: str, where: str, otherwise: Any) -> Any:
    text = attributes.get(name)
    if text is None:
        return otherwise
    try:
        if not isinstance(text, str):
            raise CodecError(what=f"{name} is not JSON: it is of type {type(text).__name__}")
        return load_json(text, where=name)
    except CodecError as error:
        raise CodecError(
            what=f"{where}: {error.what}", why="a limit of the SDK or of a collector may have cut it",
            fix=_FIX, where=where,
        ) from None  # fmt: skip


def _whole_number(value: Any, where: str) -> int:
    if type(value) is int and 0 <= value < limits.FILE_BYTES:
        return value
    raise CodecError(what=f"{where}: {names.STEP} is {str(value)[:40]!r}", why="steps are numbered 0, 1, 2, ...", where=where)
