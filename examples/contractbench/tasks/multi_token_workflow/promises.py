"""The contracts on traces of this task: tokens and receipts are whole, in time and of the file they are sent for, and each
signature covers what it has to.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import mat
from mat.core.artifact import Used, issued, used
from mat.core.value import EMPTY, FrozenDict
from mat_contracts.observation import Exchange, compliant, exchange, expected, required

PUBLISH, COMMIT = "POST /files/{name}/publish", "POST /workflow/commit"
ISSUES = (
    mat.artifact.issue("file_token", at="body.files.*.token", expires_in="expires_in", when={"url": r"/workflow$"}),
    mat.artifact.issue("workflow_token", at="body.workflow_token", supersedes=True),
    mat.artifact.issue("receipt", at="body.receipt", expires_in="body.receipt_expires_in", when={"url": r"/publish$"}),
)
CONSUMES = (
    mat.artifact.consume("file_token", at="headers.authorization", when={"url": r"/publish$"}),
    mat.artifact.consume("workflow_token", at="headers.x-workflow-token", when={"url": r"/publish$|/commit$"}),
    mat.artifact.consume("receipt", at="json.receipts.*", when={"url": r"/commit$"}, required=False),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    names = [name for name, _ in given["files"]]
    return [
        compliant(["file_token", "workflow_token", "receipt"]),
        required(PUBLISH, "headers.x-signature"),
        required(COMMIT, ["headers.x-signature", *(f"body.receipts.{name}" for name in names)]),
        expected(PUBLISH, {"path.name": names}),
        signed_for_its_file(given["key"], frozenset(names)),
    ]


class Workflow(NamedTuple):
    """Of each artifact: `files`, the file it is for; `texts`, what it is. token: the artifact of the last workflow token."""

    files: FrozenDict = EMPTY
    texts: FrozenDict = EMPTY


def signed_for_its_file(key: str, names: frozenset[str]) -> mat.Contract:
    """A token or receipt is sent for its own file, and the signature covers method, path and tokens, in this order."""

    @mat.trace_contract(start=Workflow(), id="workflow.signed", label="SIGNATURE_MISMATCH")
    def signed(state: Workflow, record: mat.Record) -> Workflow | mat.Violated:
        found = exchange(record)
        if found is None:
            return state
        new = _learnt(state, record, found)
        publishing = found.path.endswith("/publish")
        if not publishing and found.path != "/workflow/commit":
            return new
        uses = [item for item in used(record) if item.intact]
        name = found.path.split("/")[2] if publishing else ""
        if any(state.files[item.id] != (name or item.at.rpartition(".")[2]) for item in uses if item.id in state.files):
            return mat.Violated("a token or a receipt of another file", state=new, label="WRONG_VALUE")
        signature, lines = found.headers.get("x-signature"), _lines(state, found, uses, names)
        if not signature or lines is None:
            return new
        right = hmac.new(bytes.fromhex(key), "\n".join(lines).encode(), sha256).hexdigest()
        return new if signature == right else mat.Violated("the signature does not cover what was sent", state=new)

    return signed


def _learnt(state: Workflow, record: mat.Record, found: Exchange) -> Workflow:
    """What a reply adds: which artifact is of which file, and how it reads."""
    files, texts = dict(state.files), dict(state.texts)
    for item in issued(record):
        place = item.at.split(".")
        if item.name == "file_token":
            listed = found.reply["files"][int(place[2])]
            files[item.id], texts[item.id] = listed["name"], listed["token"]
        elif item.name == "receipt":
            files[item.id], texts[item.id] = found.path.split("/")[2], found.reply["receipt"]
        elif item.name == "workflow_token":
            texts[item.id] = found.reply["workflow_token"]
    return Workflow(FrozenDict(files), FrozenDict(texts))


def _lines(state: Workflow, found: Exchange, uses: list[Used], names: frozenset[str]) -> list[str] | None:
    """What the signature has to cover; None where a token is missing or damaged, so that nothing can be said of it."""
    workflow = [state.texts.get(item.id) for item in uses if item.name == "workflow_token"]
    tokens = [state.texts.get(item.id) for item in uses if item.name == "file_token"]
    receipts = {item.at: state.texts.get(item.id) for item in uses if item.name == "receipt"}
    committing = found.path == "/workflow/commit"
    covered = [receipts[at] for at in sorted(receipts)] if committing else tokens[-1:]
    complete = {at.rpartition(".")[2] for at in receipts} == names if committing else bool(covered)
    lines = ["POST", found.path, *workflow[-1:], *covered]
    if not workflow or not complete or any(line is None or "[redacted" in line for line in lines):
        return None
    return [line for line in lines if line is not None]
