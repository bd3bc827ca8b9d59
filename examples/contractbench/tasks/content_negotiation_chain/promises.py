"""The contracts on traces of this task: what was offered is asked for, and what is amended is the present version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mat
from mat.core.artifact import used
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import (
    Exchange,
    bytes_preserved,
    digest_correct,
    exchange,
    expected,
    present,
    required,
    version_fresh,
)

ISSUES = (
    mat.artifact.issue("etag", at="headers.etag", integrity=mat.artifact.etag(), supersedes=True, when={"url": r"/documents/"}),
)
CONSUMES = (
    mat.artifact.consume("etag", at="headers.If-Match", when={"method": "PATCH", "headers.if-match": r"[^*]"}, required=False),
)
SCHEMA, PATCH = "GET /schemas/{name}", "PATCH /documents/{name}"


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        required(SCHEMA, "headers.accept"),
        required(PATCH, ["headers.if-match", "headers.content-digest", f"body.{given['field']}"]),
        expected(PATCH, {"headers.if-match": lambda tag: tag != "*"}, label="MISSING_CONSTRAINT", id="guarded"),
        expected(PATCH, {f"body.{given['field']}": given["value"]}),
        bytes_preserved("etag"),
        present("etag"),
        version_fresh("etag"),
        present_version,
        digest_correct(PATCH, "headers.content-digest", _content),
        negotiated,
    ]


def _content(record: Record) -> str | None:
    """The body as it went out; of a JSON value, as HTTP clients write it."""
    data = record.arguments.get("json")
    text = record.arguments.get("text")
    if data is not None:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text if isinstance(text, str) else None


@mat.step_contract(on="tool_call", id="present_version", label="VERSION_CONFLICT")
def present_version(record: Record) -> bool:
    """An amendment names the current version; no complete tag belongs to another one."""
    found = exchange(record)
    whole = any(item.name == "etag" and item.intact for item in used(record))
    return found is None or found.method != "PATCH" or found.status != 412 or not whole


@mat.trace_contract(FrozenDict(offered=(), schema="", amendment=""), on="tool_call", id="negotiated", label="WRONG_VALUE")
def negotiated(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """A requested or sent media type was offered, by the rules for comparing media types."""
    found = exchange(record)
    if found is None:
        return None
    wrong = _wrong(state, found)
    said = found.reply if isinstance(found.reply, Mapping) else {}
    new = dict(state)
    if "alternates" in said:
        new["offered"] = tuple((item["type"], item["language"]) for item in said["alternates"])
    if found.succeeded and "describedby" in said:
        new["schema"] = said["describedby"]["accept"]
    if found.succeeded and "amendment" in said:
        new["amendment"] = said["amendment"]["content_type"]
    return mat.Violated(wrong, state=FrozenDict(new)) if wrong else FrozenDict(new)


def _wrong(state: FrozenDict, found: Exchange) -> str:
    accept, kind = (found.headers.get(name, "") for name in ("accept", "content-type"))
    ranges = [_media(item) for item in accept.split(",") if accept and "*" not in _media(item)[0]]
    spoken = [item.partition(";")[0].strip().lower() for item in (found.headers.get("accept-language") or "*").split(",")]
    offered = [language in spoken or "*" in spoken for kind, language in state["offered"] if _media(kind) in ranges]
    if found.path.startswith("/documents/") and found.method == "GET" and ranges and state["offered"] and not any(offered):
        return f"{accept} was not offered in {', '.join(spoken)}"
    if found.path.startswith("/schemas/") and ranges and state["schema"] and _media(state["schema"]) not in ranges:
        return f"{accept} is not what the document's description asks for"
    if found.method == "PATCH" and state["amendment"] and _media(kind) != _media(state["amendment"]):
        return f"{kind or 'no type'} is not the type of an amendment"
    return ""


def _media(text: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """A media type without regard to case, to quotes, to the order of its parameters, and to its weight."""
    kind, *rest = text.split(";")
    pairs = [item.partition("=") for item in rest if item.strip()]
    told = frozenset(
        (name.strip().lower(), value.strip().strip('"')) for name, _, value in pairs if name.strip().lower() != "q"
    )
    return kind.strip().lower(), told
