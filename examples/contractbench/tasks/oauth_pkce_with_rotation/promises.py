"""The contracts on traces of this task: codes and tokens are whole and in time, the challenge is the verifier's hash, a
refresh token is used once, and waits that the token endpoint asks for are kept.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import mat
from mat.boundary.handles import PREFIX
from mat.core.artifact import issued, used
from mat.core.value import EMPTY, FrozenDict
from mat_contracts.observation import backoff_respected, compliant, exchange, expected, required

TOKEN, CODE, REFRESH = {"url": r"/token$"}, "authorization_code", "refresh_token"
ISSUES = (
    mat.artifact.issue(
        "code", at="headers.location", pattern=r"[?&]code=([^&]+)", ttl_ms=20_000, when={"url": r"/authorize\?"}
    ),
    mat.artifact.issue("access_token", at="body.access_token", expires_in="body.expires_in", when=TOKEN),
    mat.artifact.issue("refresh_token", at="body.refresh_token", supersedes=True, when=TOKEN),
)
CONSUMES = (
    mat.artifact.consume("code", at="form.code", when={**TOKEN, "form.grant_type": CODE}),
    mat.artifact.consume("refresh_token", at="form.refresh_token", when={**TOKEN, "form.grant_type": REFRESH}),
    mat.artifact.consume("access_token", at="headers.authorization", when={"url": r"/photos/."}),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    client = {"client_id": given["client_id"], "redirect_uri": given["redirect_uri"]}
    query = {"response_type": "code", "scope": given["scope"], "code_challenge_method": "S256", **client}
    asked = {f"query.{name}": value for name, value in query.items()}
    return [
        compliant(["code", "refresh_token"], on="POST /token"),
        compliant("access_token", on="GET /photos/{name}"),
        backoff_respected("POST /token"),
        required("GET /authorize", [*asked, "query.code_challenge"]),
        expected("GET /authorize", asked),
        required("POST /token", ["body.grant_type", "body.client_id"]),
        expected(
            "POST /token", {"body.grant_type": (CODE, REFRESH), **{f"body.{name}": value for name, value in client.items()}}
        ),
        expected("GET /photos/{name}", {"path.name": given["photos"]}),
        proof_of_the_code(),
        album_complete(given["photos"]),
    ]


def proof_of_the_code() -> mat.Contract:
    """A code is exchanged once, with the verifier whose hash was sent for it (RFC 7636, 4.6)."""

    @mat.trace_contract(start=EMPTY, id="pkce.proof", label="WRONG_HASH")
    def proven(challenges: FrozenDict, record: mat.Record) -> FrozenDict | mat.Violated:
        found = exchange(record)
        if found is None:
            return challenges
        if found.path == "/authorize":
            challenge = found.value("query.code_challenge") or ""
            return FrozenDict({**challenges, **{item.id: challenge for item in issued(record)}})
        if found.path != "/token" or found.value("body.grant_type") != CODE:
            return challenges
        lacking = [name for name in ("code_verifier", "redirect_uri") if not found.value(f"body.{name}")]
        code = next((item.id for item in used(record) if item.name == "code" and item.intact), "")
        challenge, verifier = challenges.get(code, PREFIX), str(found.value("body.code_verifier"))
        if challenge == "spent":
            return mat.Violated("a code is used once", state=challenges, label="EXPIRED_BEFORE_USE")
        if lacking:
            return mat.Violated(f"the request lacks {', '.join(lacking)}", state=challenges, label="MISSING_CONSTRAINT")
        hashed = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if PREFIX not in challenge and PREFIX not in verifier and hashed != challenge:
            return mat.Violated("the challenge was not the hash of the verifier", state=challenges)
        return FrozenDict({**challenges, code: "spent"}) if found.status == 200 else challenges

    return proven


def album_complete(photos: list[str]) -> mat.Contract:
    """The album is confirmed with all its photos, in their order."""

    @mat.step_contract(on="tool_call", id="album.complete", label="WRONG_VALUE")
    def complete(record: mat.Record) -> bool | mat.Violated:
        found = exchange(record)
        if found is None or found.path != "/album":
            return True
        said = found.value("body.photos")
        if not isinstance(said, list | tuple) or len(said) < len(photos):
            return mat.Violated("photos are missing", label="MISSING_CONSTRAINT")
        return list(said) == photos

    return complete
