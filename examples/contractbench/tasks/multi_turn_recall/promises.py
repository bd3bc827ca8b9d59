"""The contracts on traces of this task: the link is used byte by byte, neither too early nor too late."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import mat
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import backoff_respected, compliant, exchange, required

ISSUES = (mat.artifact.issue("archive_url", at="body.archive_url", expires_in="body.link_holds_seconds"),)
CONSUMES = (mat.artifact.consume("archive_url", at="url", when={"url": r"/archive/"}),)
REDACTED = "redacted"
"""In place of the digest of a text that the trace does not hold in the clear."""
TURNS, RECEIPT, ARCHIVE = "POST /conversations/{id}/turns", "POST /conversations/{id}/receipt", "GET /archive/*"


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant("archive_url"),
        backoff_respected([TURNS, ARCHIVE], statuses=(202, 425), scope="selection"),
        required(TURNS, "body.answer"),
        required(RECEIPT, "body.sha256"),
        answered,
        received,
    ]


@mat.trace_contract(FrozenDict(question="", reference=""), on="tool_call", id="answered", label="WRONG_VALUE")
def answered(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """Each answer is the one to the question before it: a sum, or the reference given at the beginning."""
    found = exchange(record)
    if found is None or not found.path.startswith("/conversations"):
        return None
    given = found.value("body.answer")
    numbers = re.findall(r"\d+", state["question"])
    right = str(sum(map(int, numbers))) if numbers else state["reference"]
    wrong = found.path.endswith("/turns") and state["question"] and given is not None and str(given).strip() != right
    said = found.reply if isinstance(found.reply, Mapping) else {}
    question = said.get("question", "" if found.succeeded else state["question"])
    after = FrozenDict(question=question, reference=said.get("reference", state["reference"]))
    return mat.Violated("this is not the answer", state=after) if wrong else after


@mat.trace_contract("", on="tool_call", id="received", label="WRONG_HASH")
def received(digest: str, record: Record) -> str | mat.Violated | None:
    """The digest in the receipt is that of the archive which was read."""
    found = exchange(record)
    if found is None:
        return None
    if record.action.name == "http_read" and found.succeeded and isinstance(found.reply, str):
        return sha256(found.reply.encode()).hexdigest() if "[redacted:" not in found.reply else REDACTED
    given = found.value("body.sha256") if found.path.endswith("/receipt") else None
    return None if given in (None, digest) or digest == REDACTED else mat.Violated("the receipt's digest is not the archive's")
