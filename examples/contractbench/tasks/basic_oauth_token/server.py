"""Client credentials (RFC 6749, 4.4) and bearer tokens (RFC 6750): the token is over before all the reports are fetched."""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import SUCCESS, most_severe

from ...desk import Desk, bearer, fields

FETCH_S = 4.0
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


def parameters(rng: Random) -> dict[str, Any]:
    """Five or six reports; one token never lasts for all of them."""
    names = ["ledger", "orders", "payroll", "inventory", "returns", "audit", "forecast", "capacity"]
    return {
        "client_id": f"reporting-{rng.randint(100, 999)}",
        "client_secret": "Cs" + "".join(rng.choice(_LETTERS) for _ in range(rng.randint(30, 44))),
        "scope": rng.choice(["reports:read", "finance.reports:read", "archive:read"]),
        "reports": rng.sample(names, rng.randint(5, 6)),
        "ttl": rng.randint(16, 20),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    references = {name: f"{name.upper()[:3]}-{desk.rng.randint(10_000, 99_999)}" for name in given["reports"]}
    desk.issue("client_secret", given["client_secret"])

    async def token(request: Request) -> Response:
        said = await fields(request)
        label, error, status = _grant(desk, said)
        if label:
            return desk.refuse(request, label, {"error": error}, status=status, resource="token")
        value = desk.issue("access_token", f"at.{desk.token(46)}", given["ttl"])
        body = {"access_token": value, "token_type": "Bearer", "expires_in": given["ttl"], "scope": given["scope"]}
        return desk.answer(request, "TOKEN_ISSUED", body, headers={"Cache-Control": "no-store"}, resource="token",
                           holds={"access_token": "access_token"})  # fmt: skip

    async def reports(request: Request) -> Response:
        return desk.answer(request, "LISTED", {"reports": given["reports"]})

    async def report(request: Request) -> Response:
        name = request.path_params["name"]
        if refused := _protected(desk, request, name):
            return refused
        if name not in references:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such report"}, status=404, resource=name)
        await desk.work(FETCH_S)
        return desk.answer(request, "FETCHED", {"name": name, "reference": references[name]}, resource=name)

    async def receipts(request: Request) -> Response:
        if refused := _protected(desk, request, "receipt"):
            return refused
        said = (await fields(request)).get("references")
        said = said if isinstance(said, dict) else {}
        if missing := [name for name in given["reports"] if name not in said]:
            body = {"error": f"no reference for {', '.join(missing)}"}
            return desk.refuse(request, "MISSING_CONSTRAINT", body, status=422, resource="receipt")
        if said != references:
            return desk.refuse(request, "WRONG_VALUE", {"error": "a reference is not ours"}, status=422, resource="receipt")
        return desk.answer(request, "RECEIPT", {"ok": True}, status=201, resource="receipt")

    return [
        Route("/oauth/token", token, methods=["POST"]),
        Route("/reports", reports),
        Route("/reports/{name}", report),
        Route("/receipts", receipts, methods=["POST"]),
    ]


def _grant(desk: Desk, said: dict[str, Any]) -> tuple[str, str, int]:
    """(label, error code of RFC 6749, status) of a token request, "" where it is granted."""
    given, problems = desk.given, []
    label, _ = desk.check("client_secret", str(said.get("client_secret") or ""))
    if said.get("client_id") != given["client_id"]:
        problems.append(("WRONG_VALUE" if said.get("client_id") else "MISSING_CONSTRAINT", "invalid_client", 401))
    if label:
        problems.append((label, "invalid_client", 401))
    if not said.get("grant_type"):
        problems.append(("MISSING_CONSTRAINT", "invalid_request", 400))
    elif said["grant_type"] != "client_credentials":
        problems.append(("WRONG_VALUE", "unsupported_grant_type", 400))
    if said.get("scope") != given["scope"]:
        problems.append(("WRONG_VALUE" if said.get("scope") else "MISSING_CONSTRAINT", "invalid_scope", 400))
    worst = most_severe(label for label, _, _ in problems)
    return ("", "", 200) if worst == SUCCESS else (worst, *problems[0][1:])


def _protected(desk: Desk, request: Request, resource: str) -> Response | None:
    """The refusal that RFC 6750, section 3, asks for; None where the token holds."""
    label, detail = desk.check("access_token", bearer(request))
    if not label:
        return None
    challenge = 'Bearer realm="reports"'
    if label != "MISSING_TOKEN":
        what = "expired" if label == "EXPIRED_BEFORE_USE" else "is invalid"
        challenge += f', error="invalid_token", error_description="The access token {what}"'
    return desk.refuse(request, label, {"error": "unauthorized"}, status=401, headers={"WWW-Authenticate": challenge},
                       resource=resource, **detail)  # fmt: skip
