"""The contracts on traces of this task: the URL is used in time and as it was signed, and the receipt's digest is right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import mat
from mat.core.artifact import used
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import backoff_respected, compliant, exchange, expected, required

PRESIGN, RECEIPT = "POST /presign", "POST /receipts"


def _ttl_ms(url: str, reply: object) -> int | None:
    found = re.search(r"X-Amz-Expires=(\d+)", url)
    return None if found is None else int(found[1]) * 1000


ISSUES = (mat.artifact.issue("presigned_url", at="body.url", ttl_ms=_ttl_ms, when={"url": r"/presign$"}),)
CONSUMES = (mat.artifact.consume("presigned_url", at="url", when={"url": r"/archive/[^?]*\?"}),)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant("presigned_url"),
        signed,
        backoff_respected(PRESIGN, statuses=(202, 503)),
        required(PRESIGN, "body.key"),
        required(RECEIPT, ["body.key", "body.sha256"]),
        expected(PRESIGN, {"body.key": given["key"]}),
        expected(RECEIPT, {"body.key": given["key"]}),
        digest_of_what_came,
    ]


@mat.step_contract(on="tool_call", id="signed", label="MISSING_TOKEN")
def signed(record: Record) -> bool:
    """What is in the archive is asked for by a signed URL."""
    found = exchange(record)
    return found is None or not found.path.startswith("/archive/") or "?" in found.url or bool(used(record))


@mat.trace_contract(FrozenDict(digest=""), on="tool_call", id="digest_of_what_came", label="WRONG_HASH")
def digest_of_what_came(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """The receipt has the SHA-256 digest of the bytes that were received."""
    found = exchange(record)
    if found is None:
        return None
    if found.path.startswith("/archive/") and found.status == 200 and isinstance(found.reply, str):
        return FrozenDict(digest=sha256(found.reply.encode()).hexdigest())
    given = found.fields.get("sha256") if (found.method, found.path) == ("POST", "/receipts") else None
    if not given or str(given).lower() == state["digest"]:
        return None
    return mat.Violated("the receipt has another digest than what was received")
