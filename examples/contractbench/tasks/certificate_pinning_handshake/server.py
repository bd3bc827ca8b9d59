"""Certificate pinning (RFC 7469) in a handshake over HTTP: the client hashes what is presented, compares it with its pins, and
proves with a keyed hash that it saw the same.

The first node presents a certificate that nobody pinned. In the middle of a session the other node changes to its backup
certificate, which is pinned too; the session ends, and there is another handshake to be made.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, bearer, fields

READ_S = 2.0
NONCE_TTL_S = 8.0


def parameters(rng: Random) -> dict[str, Any]:
    """A client with its key; two nodes; certificates as bytes in the shape of DER; when the trusted node changes its own."""
    certificates = {name: _der(rng) for name in ("primary", "backup", "unknown")}
    nodes = rng.sample(["ams", "bru", "cph", "dub", "fra", "lis", "osl", "vie"], 2)
    records = rng.randint(4, 6)
    return {
        "client_id": f"vault-client-{rng.randint(100, 999)}",
        "key": rng.randbytes(24).hex(),
        "nodes": [f"{name}-{rng.randint(1, 9)}" for name in nodes],
        "records": [f"rec-{number}" for number in rng.sample(range(100, 999), records)],
        "renewed_after": rng.randint(1, records - 1),
        "certificates": {name: b64encode(der).decode() for name, der in certificates.items()},
        "primary": sha256(certificates["primary"]).hexdigest(),
        "backup": sha256(certificates["backup"]).hexdigest(),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    rogue, trusted = given["nodes"]
    presents = {rogue: "unknown", trusted: "primary"}
    hellos: dict[str, tuple[str, bytes]] = {}  # nonce -> node, certificate
    spent: set[str] = set()
    read: list[str] = []
    ended: set[str] = set()

    async def nodes(request: Request) -> Response:
        return desk.answer(request, "LISTED", {"nodes": given["nodes"], "records": given["records"]})

    async def hello(request: Request) -> Response:
        node = request.path_params["node"]
        if node not in presents:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such node"}, status=404, resource=node)
        certificate = b64decode(given["certificates"][presents[node]])
        nonce = desk.issue("nonce", desk.token(48), NONCE_TTL_S)
        hellos[nonce] = node, certificate
        body = {"certificate": _pem(certificate), "nonce": nonce, "expires_in": int(NONCE_TTL_S)}
        return desk.answer(request, "HELLO", body, resource=node, holds={"nonce": "nonce"})

    async def finish(request: Request) -> Response:
        node, said = request.path_params["node"], await fields(request)
        problems, detail = _handshake(desk, node, said, hellos, spent)
        if problems:
            return desk.refuse(
                request, most_severe(problems), {"error": "handshake failed"}, status=403, resource=node, **detail
            )
        spent.add(said["nonce"])
        body = {"session": desk.issue("session", f"se.{desk.token(40)}", 60), "expires_in": 60}
        return desk.answer(request, "ESTABLISHED", body, resource=node, holds={"session": "session"})

    def refused(request: Request, resource: str) -> Response | None:
        session = bearer(request)
        label, detail = desk.check("session", session)
        label = "EXPIRED_BEFORE_USE" if session in ended else label
        if not label and request.path_params["node"] != trusted:
            label = "WRONG_VALUE"
        body = {"error": "no session with this node"}
        return desk.refuse(request, label, body, status=401, resource=resource, **detail) if label else None

    async def record(request: Request) -> Response:
        name = request.path_params["name"]
        if response := refused(request, name):
            return response
        if name not in given["records"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such record"}, status=404, resource=name)
        if len(read) >= given["renewed_after"] and presents[trusted] == "primary":
            presents[trusted] = "backup"
            ended.update(item.value for item in desk.issued["session"])
            body = {
                "error": "the certificate of this node was renewed, sessions with the former one have ended: say hello again"
            }
            return desk.answer(request, "RENEWED", body, status=421, resource=name)
        await desk.work(READ_S)
        read.append(name)
        return desk.answer(request, "READ", {"record": name, "value": desk.token(10)}, resource=name)

    async def close(request: Request) -> Response:
        if response := refused(request, "session"):
            return response
        said = (await fields(request)).get("records")
        if said != given["records"]:
            label = "WRONG_VALUE" if isinstance(said, list) and len(said) >= len(given["records"]) else "MISSING_CONSTRAINT"
            return desk.refuse(request, label, {"error": "not the records listed"}, status=422, resource="session")
        ended.add(bearer(request))
        return desk.answer(request, "CLOSED", {"ok": True}, resource="session")

    return [
        Route("/nodes", nodes),
        Route("/nodes/{node}/hello", hello, methods=["POST"]),
        Route("/nodes/{node}/finish", finish, methods=["POST"]),
        Route("/nodes/{node}/records/{name}", record),
        Route("/nodes/{node}/close", close, methods=["POST"]),
    ]


def _handshake(
    desk: Desk, node: str, said: dict[str, Any], hellos: dict[str, tuple[str, bytes]], spent: set[str]
) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with the end of a handshake. The proof is judged over what was sent with it."""
    given, nonce = desk.given, str(said.get("nonce") or "")
    client, fingerprint, proof = (str(said.get(name) or "") for name in ("client_id", "fingerprint", "proof"))
    label, detail = desk.check("nonce", nonce)
    problems = ["EXPIRED_BEFORE_USE" if nonce in spent else label]
    problems += ["MISSING_CONSTRAINT" for value in (client, fingerprint, proof) if not value]
    if client and client != given["client_id"]:
        problems.append("WRONG_VALUE")
    if fingerprint and nonce in hellos:
        of, certificate = hellos[nonce]
        right = sha256(certificate).hexdigest()
        pinned = right in (given["primary"], given["backup"])
        problems.append("WRONG_HASH" if fingerprint != right else "" if pinned and of == node else "WRONG_VALUE")
    whole = not label and client and fingerprint and proof
    if whole and not hmac.compare_digest(proof.encode(), proved(given["key"], client, nonce, fingerprint).encode()):
        problems.append("SIGNATURE_MISMATCH")
    return [item for item in problems if item], detail


def proved(key: str, client_id: str, nonce: str, fingerprint: str) -> str:
    """HMAC-SHA-256 over the three lines of a handshake, in hexadecimal."""
    return hmac.new(bytes.fromhex(key), f"{client_id}\n{nonce}\n{fingerprint}".encode(), sha256).hexdigest()


def _der(rng: Random) -> bytes:
    """Bytes that begin as a certificate does: a SEQUENCE with its length in two bytes (X.690, 8.1.3)."""
    inner = rng.randbytes(rng.randint(380, 460))
    return b"\x30\x82" + len(inner).to_bytes(2, "big") + inner


def _pem(der: bytes) -> str:
    """The textual encoding of a certificate (RFC 7468): base64 in lines of 64 characters."""
    text = b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
