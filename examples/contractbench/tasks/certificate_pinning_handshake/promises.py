"""The contracts on traces of this task: the fingerprint is the hash of the bytes presented, they are pinned, the proof covers
what was sent, a nonce serves one handshake, and sessions end with the certificate they began with.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import mat
from mat.boundary.handles import PREFIX
from mat.core.artifact import issued, used
from mat.core.value import EMPTY, FrozenDict
from mat_contracts.observation import Exchange, compliant, exchange, expected, required

FINISH = "POST /nodes/{node}/finish"
ISSUES = (
    mat.artifact.issue("nonce", at="body.nonce", expires_in="body.expires_in", when={"url": r"/hello$"}),
    mat.artifact.issue("session", at="body.session", expires_in="body.expires_in", when={"url": r"/finish$"}),
)
CONSUMES = (
    mat.artifact.consume("nonce", at="json.nonce", when={"url": r"/finish$"}),
    mat.artifact.consume("session", at="headers.authorization", when={"url": r"/records/.|/close$"}),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant(["nonce", "session"]),
        required(FINISH, ["body.client_id", "body.fingerprint", "body.proof"]),
        expected(FINISH, {"body.client_id": given["client_id"]}),
        expected("GET /nodes/{node}/records/{name}", {"path.name": given["records"]}),
        handshakes(given, frozenset((given["primary"], given["backup"]))),
        records_told(given["records"]),
    ]


class Hello(NamedTuple):
    """What a node presented. fingerprint: of the bytes, "" where they cannot be read."""

    node: str
    nonce: str
    fingerprint: str
    spent: bool = False


class Seen(NamedTuple):
    """hellos: nonce artifact -> Hello. over: the sessions that have ended; alive: those that have not."""

    hellos: FrozenDict = EMPTY
    over: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()


def handshakes(given: Mapping[str, Any], pins: frozenset[str]) -> mat.Contract:
    """A handshake proves that the client saw what was presented, and that it is pinned; a renewal ends all sessions."""

    @mat.trace_contract(start=Seen(), id="pinning.handshake", label="WRONG_VALUE")
    def proven(seen: Seen, record: mat.Record) -> Seen | mat.Violated:
        found = exchange(record)
        if found is None or not found.path.startswith("/nodes/"):
            return seen
        ids = [item.id for item in used(record) if item.intact]
        if found.path.endswith("/hello") and found.status == 200:
            presented = Hello(found.path.split("/")[2], found.reply["nonce"], _fingerprint(found.reply["certificate"]))
            return seen._replace(hellos=FrozenDict({**seen.hellos, **{item.id: presented for item in issued(record)}}))
        if found.path.endswith("/finish"):
            return _finished(seen, record, found, given, pins)
        if any(item in seen.over for item in ids):
            return mat.Violated("the session has ended", state=seen, label="EXPIRED_BEFORE_USE")
        if found.status == 421:
            return seen._replace(over=(*seen.over, *seen.alive), alive=())
        if found.path.endswith("/close") and found.status == 200:
            return seen._replace(over=(*seen.over, *ids))
        return seen

    return proven


def _finished(
    seen: Seen, record: mat.Record, found: Exchange, given: Mapping[str, Any], pins: frozenset[str]
) -> Seen | mat.Violated:
    """The end of a handshake, judged by what the hello of its nonce presented."""
    nonce = next((item.id for item in used(record) if item.name == "nonce" and item.intact), "")
    hello: Hello | None = seen.hellos.get(nonce)
    if hello is None:
        return seen
    client, fingerprint, proof = (str(found.value(f"body.{name}") or "") for name in ("client_id", "fingerprint", "proof"))
    problems = []
    if hello.spent:
        problems.append(("EXPIRED_BEFORE_USE", "a nonce serves one handshake"))
    if client and fingerprint and proof and PREFIX not in f"{client}{fingerprint}{proof}":
        lines = "\n".join([client, hello.nonce, fingerprint]).encode()
        if proof != hmac.new(bytes.fromhex(given["key"]), lines, sha256).hexdigest():
            problems.append(("SIGNATURE_MISMATCH", "the proof does not cover what was sent"))
    if fingerprint and hello.fingerprint and fingerprint != hello.fingerprint:
        problems.append(("WRONG_HASH", "the fingerprint is not the hash of the bytes presented"))
    elif fingerprint and hello.fingerprint and (hello.fingerprint not in pins or hello.node != found.path.split("/")[2]):
        problems.append(("WRONG_VALUE", "the certificate presented is not pinned, or was presented by another node"))
    new = seen
    if found.status == 200:
        spent = FrozenDict({**seen.hellos, nonce: hello._replace(spent=True)})
        new = seen._replace(hellos=spent, alive=(*seen.alive, *(item.id for item in issued(record))))
    if not problems:
        return new
    (label, said), *rest = problems
    return mat.Violated(said, state=new, label=label, more=tuple(mat.Violated(text, label=of) for of, text in rest))


def _fingerprint(pem: str) -> str:
    """The hash of the bytes that a certificate in PEM stands for; "" where redaction took a part of it for a key."""
    text = "".join(line for line in pem.splitlines() if not line.startswith("-----"))
    try:
        return sha256(b64decode(text, validate=True)).hexdigest()
    except binascii.Error:
        return ""


def records_told(records: list[str]) -> mat.Contract:
    """The session is closed with all records, in their order."""

    @mat.step_contract(on="tool_call", id="pinning.records", label="WRONG_VALUE")
    def told(record: mat.Record) -> bool | mat.Violated:
        found = exchange(record)
        if found is None or not found.path.endswith("/close"):
            return True
        said = found.value("body.records")
        if not isinstance(said, list | tuple) or len(said) < len(records):
            return mat.Violated("records are missing", label="MISSING_CONSTRAINT")
        return list(said) == records

    return told
