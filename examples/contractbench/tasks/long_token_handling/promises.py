"""The contracts on traces of this task: the token arrives whole, and the closing agrees with the entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.core.record import Record
from mat_contracts.observation import compliant, exchange, expected, required

TOKEN, CLOSE, REVOKE = "POST /oauth/token", "POST /ledger/{period}/close", "POST /oauth/revoke"

ISSUES = (
    mat.artifact.issue("access_token", at="body.access_token", expires_in="body.expires_in", when={"url": r"/oauth/token$"}),
)
CONSUMES = (
    mat.artifact.consume(
        "access_token", at="headers.authorization", when={"headers.authorization": r"\S\s+\S"}, required=False
    ),
    mat.artifact.consume("access_token", at="form.token", when={"url": r"/oauth/revoke$"}, required=False),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    cents = sum(given["cents"])
    total = f"{cents // 100}.{cents % 100:02d}"
    return [
        compliant("access_token", on=["/ledger/*", REVOKE]),
        as_a_bearer,
        required([CLOSE, "GET /ledger/{period}/entries"], "headers.authorization", label="MISSING_TOKEN", id="token sent"),
        required(TOKEN, ["body.grant_type", "body.client_id", "body.client_secret"]),
        required(CLOSE, ["body.count", "body.total"]),
        required(REVOKE, "body.token"),
        expected(TOKEN, {"body.grant_type": "client_credentials", "body.client_id": given["client_id"]}),
        expected(CLOSE, {"body.count": len(given["cents"]), "body.total": total}),
        known_client,
    ]


@mat.step_contract(on="tool_call", id="as_a_bearer", label="MISSING_TOKEN")
def as_a_bearer(record: Record) -> bool:
    """The token is sent as a bearer token. A trace hides the scheme, so the challenge is read: it names no error where the
    service saw no token (RFC 6750, 3.1)."""
    found = exchange(record)
    if found is None or found.status != 401:
        return True
    return found.reply_headers.get("www-authenticate", "").strip() != "Bearer"


@mat.step_contract(on="tool_call", id="known_client", label="WRONG_VALUE")
def known_client(record: Record) -> bool:
    """The client's secret is right; a trace does not hold it, so the service's word for it is taken (RFC 6749, 5.2)."""
    found = exchange(record)
    if found is None or not found.path.endswith("/oauth/token") or not isinstance(found.reply, Mapping):
        return True
    return found.reply.get("error") != "invalid_client"
