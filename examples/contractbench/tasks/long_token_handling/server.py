"""A bearer token of more than a kilobyte (RFC 6749, 4.4; RFC 6750; RFC 7009; a JWT of RFC 7519): it counts to its last byte."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

TTL_S = 3600


def parameters(rng: Random) -> dict[str, Any]:
    """The entries of a period, the client's credentials, and how many characters the token has at least."""
    return {
        "client_id": f"ledger-{rng.randint(100, 999)}",
        "client_secret": "".join(rng.choice("abcdefghkmnpqrstuvwxyz23456789") for _ in range(24)),
        "period": f"2026-{rng.randint(1, 12):02d}",
        "cents": [rng.randint(1_000, 900_000) for _ in range(rng.randint(4, 7))],
        "length": rng.randint(1200, 2000),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    total = sum(given["cents"])

    async def token(request: Request) -> Response:
        sent = await fields(request)
        if missing := [name for name in ("grant_type", "client_id", "client_secret") if not sent.get(name)]:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "invalid_request"}, status=400, missing=missing)
        if sent["grant_type"] != "client_credentials":
            return desk.refuse(request, "WRONG_VALUE", {"error": "unsupported_grant_type"}, status=400)
        if any(sent[name] != given[name] for name in ("client_id", "client_secret")):
            return desk.refuse(request, "WRONG_VALUE", {"error": "invalid_client"}, status=401)
        value = desk.issue("access_token", _jwt(desk), TTL_S)
        body = {"access_token": value, "token_type": "Bearer", "expires_in": TTL_S, "display": _display(value)}
        return desk.answer(
            request, "TOKEN", body, holds={"access_token": "access_token"}, headers={"Cache-Control": "no-store"}
        )

    def check(submitted: str) -> tuple[str, dict[str, Any]]:
        if submitted in (_display(item.value) for item in desk.issued.get("access_token", [])):
            return "WRONG_VALUE", {"wrong": ["token"]}
        return desk.check("access_token", submitted)

    def refused(request: Request) -> Response | None:
        scheme, _, submitted = request.headers.get("authorization", "").partition(" ")
        label, detail = check(submitted.strip() if scheme.lower() == "bearer" else "")
        if not label:
            return None
        challenge = "Bearer" if label == "MISSING_TOKEN" else 'Bearer error="invalid_token"'
        return desk.refuse(request, label, {"error": "unauthorized"}, status=401, resource="access_token",
                           headers={"WWW-Authenticate": challenge}, **detail)  # fmt: skip

    async def entries(request: Request) -> Response:
        if response := refused(request):
            return response
        listed = [{"entry": at, "amount": _amount(cents)} for at, cents in enumerate(given["cents"], 1)]
        return desk.answer(request, "ENTRIES", {"period": given["period"], "entries": listed})

    async def close(request: Request) -> Response:
        if response := refused(request):
            return response
        sent = await fields(request)
        if missing := [name for name in ("count", "total") if sent.get(name) in (None, "")]:
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": f"{missing[0]} is required"}, status=422, missing=missing
            )
        if (sent["count"], sent["total"]) != (len(given["cents"]), _amount(total)):
            return desk.refuse(request, "WRONG_VALUE", {"error": "count and total do not match the entries"}, status=422)
        return desk.answer(request, "CLOSED", {"period": given["period"], "status": "closed"}, status=201)

    async def revoke(request: Request) -> Response:
        label, detail = check(str((await fields(request)).get("token", "")))
        if label == "MISSING_TOKEN":
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "invalid_request"}, status=400, missing=["token"])
        if label:  # RFC 7009, 2.2: an unknown token is answered like a known one
            return desk.refuse(request, label, "", status=200, resource="access_token", **detail)
        return desk.answer(request, "REVOKED", "")

    return [
        Route("/oauth/token", token, methods=["POST"]),
        Route("/oauth/revoke", revoke, methods=["POST"]),
        Route(f"/ledger/{given['period']}/entries", entries),
        Route(f"/ledger/{given['period']}/close", close, methods=["POST"]),
    ]


def _jwt(desk: Desk) -> str:
    """A JSON web token whose claims list what it entitles to, one by one, until it is as long as the instance says."""
    claims: dict[str, Any] = {
        "iss": "ledger",
        "sub": desk.given["client_id"],
        "exp": TTL_S,
        "jti": desk.token(22),
        "entitlements": [],
    }
    head = _base64url(json.dumps({"alg": "HS256", "typ": "JWT", "kid": desk.token(8)}).encode())
    signed = head
    while len(signed) + 44 < desk.given["length"]:
        claims["entitlements"].append(f"ledger:{desk.token(6)}:{desk.rng.choice(['read', 'post', 'close'])}")
        signed = f"{head}.{_base64url(json.dumps(claims).encode())}"
    return f"{signed}.{_base64url(bytes.fromhex(desk.sign(signed)))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _display(token: str) -> str:
    return f"jwt...{token[-6:]}"


def _amount(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
