"""The contracts on traces of this task: every request is signed as it is sent, over what the service wants to be covered.

A request is read as its receiver reads it (RFC 9421, 3.2): whether there is a signature, whether it covers enough, whether
it verifies; only then does it count what it says.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

import mat
from mat.core.artifact import Used, used
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import DAMAGE, Exchange, exchange

ISSUES = (
    mat.artifact.issue("nonce", at="body.nonce", expires_in="body.expires_in", when={"url": r"/nonce$"}),
    mat.artifact.issue("release", at="body.release", when={"url": r"/stock/"}),
)
COVERED = ("@method", "@authority", "@path", "@query", "x-request-class")
PARAMETERS = ("created", "keyid", "alg", "nonce")
OLDEST_S = 60
SAFE = "%/:@!$&'()*+,;=~?"
"""What a client sends as it is; all else it encodes, also after it was signed."""
_PARAMETER = re.compile(r';([a-z]+)=("[^"]*"|[^;]+)')
HANDLE = re.compile(r"@HANDLE:[A-Za-z0-9_\-]+")


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    targets = {given[name] for name in ("order_target", "stock_target", "release_target")}

    @mat.trace_contract(FrozenDict(nonces=(), releases=()), on="tool_call", id="well_signed")
    def well_signed(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
        """Signed requests verify, with a nonce that holds, a digest of their content, and values as they are to be."""
        found = exchange(record)
        if found is None:
            return None
        if found.path == "/nonce":
            return _with(state, "nonces", found.reply, "nonce")
        if not re.match(r"/(orders|stock)/", found.path):
            return None
        label, said = _wrong(_sent(found, record, state), record, given, targets)
        new = _with(state, "releases", found.reply, "release")
        return mat.Violated(said, state=new, label=label) if label else new

    return [well_signed]


def _with(state: FrozenDict, name: str, said: Any, field: str) -> FrozenDict:
    """The state with what a reply has issued, in its order: artifacts are numbered so."""
    if not isinstance(said, Mapping) or field not in said:
        return state
    return FrozenDict({**state, name: (*state[name], said[field])})


class _Request:
    """A request with the artifacts in place of their handles."""

    def __init__(self, found: Exchange, headers: Mapping[str, str], body: str) -> None:
        split = urlsplit(found.url)
        path, query = quote(split.path, safe=SAFE), quote(split.query, safe=SAFE)
        self.target = path + (f"?{query}" if query else "")
        self.method, self.headers, self.body = found.method, headers, body
        self.values = {
            "@method": found.method, "@authority": split.netloc.lower(), "@path": path, "@query": f"?{query}",
            **{name: item.strip() for name, item in headers.items()},
        }  # fmt: skip
        told = re.fullmatch(r"sig1=(\(([^()]*)\)((?:;[^;]+)*))", headers.get("signature-input", "").strip())
        self.line = told[1] if told else ""
        self.components = re.findall(r'"([^"]+)"', told[2]) if told else []
        self.params = {name: value.strip('"') for name, value in _PARAMETER.findall(told[3])} if told else {}


def _sent(found: Exchange, record: Record, state: FrozenDict) -> _Request:
    uses = [item for item in used(record) if item.handle]

    def resolved(text: str, name: str, known: tuple[str, ...]) -> str:
        numbers = [int(item.id.rpartition("#")[2]) for item in uses if item.name == name]
        return HANDLE.sub(lambda _: known[numbers[0] - 1], text) if numbers and numbers[0] <= len(known) else text

    headers = {name: resolved(item, "nonce", state["nonces"]) for name, item in found.headers.items()}
    body = found.body if isinstance(found.body, str) else ""
    return _Request(found, headers, resolved(body, "release", state["releases"]))


def _wrong(request: _Request, record: Record, given: Mapping[str, Any], targets: set[str]) -> tuple[str, str]:
    """(label, what is wrong) of a signed request; two empty texts where nothing is."""
    headers, params = request.headers, request.params
    if request.method == "POST" and not request.body:
        return "MISSING_CONSTRAINT", "there is no document in the request"
    if not headers.get("signature"):
        return "MISSING_TOKEN", "the request is not signed"
    covered = (*COVERED, "content-digest") if request.body else COVERED
    needed = [name for name in covered if not name.startswith("@")]
    lacking = [name for name in covered if name not in request.components]
    lacking += [name for name in PARAMETERS if name not in params] + [name for name in needed if name not in headers]
    if lacking:
        return "MISSING_CONSTRAINT", f"the signature lacks {', '.join(lacking)}"
    if (params["keyid"], params["alg"]) != (given["keyid"], "hmac-sha256"):
        return "WRONG_VALUE", "the signature names another key or algorithm"
    base = [
        *(f'"{name}": {request.values.get(name, "")}' for name in request.components),
        f'"@signature-params": {request.line}',
    ]
    right = hmac.new(b64decode(given["key"]), "\n".join(base).encode(), sha256).digest()
    if headers["signature"].strip() != f"sig1=:{b64encode(right).decode()}:":
        return "SIGNATURE_MISMATCH", "the signature does not verify"
    digest = b64encode(sha256(request.body.encode()).digest()).decode()
    if request.body and headers["content-digest"] != f"sha-256=:{digest}:":
        return "WRONG_HASH", "the digest is not that of the content"
    return _unfit(request, record, given, targets)


def _unfit(request: _Request, record: Record, given: Mapping[str, Any], targets: set[str]) -> tuple[str, str]:
    """(label, what is wrong) of a request whose signature verifies."""
    nonce = next((item for item in used(record) if item.name == "nonce"), None)
    label = _of_nonce(nonce, record)
    if label:
        return label, "the nonce is not one that holds"
    created = request.params["created"]
    age = record.at_ms / 1000 - int(created) if created.isdigit() else None
    if age is None or age < -1:
        return "WRONG_VALUE", "created is no time that has been"
    if age > OLDEST_S:
        return "EXPIRED_BEFORE_USE", "the signature is too old"
    if request.headers["x-request-class"] != given["request_class"] or request.target not in targets:
        return "WRONG_VALUE", "the request class or the target is another one"
    released = [item for item in used(record) if item.name == "release" and item.intact]
    if request.body and not released:
        return "WRONG_VALUE", "what is sent is not the release document"
    return "", ""


def _of_nonce(nonce: Used | None, record: Record) -> str:
    if nonce is None:
        return "WRONG_VALUE"
    if nonce.late_ms(record.at_ms) is not None:
        return "EXPIRED_BEFORE_USE"
    return "" if nonce.intact else DAMAGE[nonce.damage]
