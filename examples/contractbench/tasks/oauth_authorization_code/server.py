"""The authorization code grant (RFC 6749, 4.1) with three sign-ins open at a time, each with a state and a deadline of its own.

A state is opaque and holds characters that a query must escape. A code is used once, and soon. One authorization response is
somebody else's (RFC 6749, 10.12): its state is not the one that was sent, and its code must not be used.
"""

from __future__ import annotations

from random import Random
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, bearer, fields

CONSENT_S = 4.0
CODE_TTL_S = 8.0
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


def parameters(rng: Random) -> dict[str, Any]:
    """Three sign-ins; the one that ends first is listed last, and one is answered with a foreign response at first."""
    workspaces = rng.sample(["north", "south", "harbour", "station", "museum", "airport"], 3)
    middle, shortest = rng.randint(25, 28), rng.randint(14, 16)
    return {
        "client_id": f"console-{rng.randint(100, 999)}",
        "client_secret": "Sx" + "".join(rng.choice(_LETTERS) for _ in range(38)),
        "redirect_uri": f"https://{rng.choice(['console', 'desk', 'portal'])}.example/oauth/callback",
        "scope": rng.choice(["profile workspace:read", "openid workspace:read"]),
        "sign_ins": [[workspaces[0], 90], [workspaces[1], middle], [workspaces[2], shortest]],
        "foreign": rng.choice(workspaces),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    desk.issue("client_secret", given["client_secret"])
    states: dict[str, str] = {}  # state -> workspace; so codes and tokens
    codes: dict[str, str] = {}
    tokens: dict[str, str] = {}
    foreign: set[str] = set()  # states and codes of somebody else
    spent: set[str] = set()

    def opaque() -> str:
        return f"{desk.token(28)}+{desk.token(20)}/{desk.token(22)}=="

    async def sign_ins(request: Request) -> Response:
        for workspace, ttl in given["sign_ins"] if not states else ():
            states[desk.issue("state", opaque(), ttl)] = workspace
        left = {item.value: max(0, int(item.at + (item.ttl_s or 0) - desk.now())) for item in desk.issued["state"]}
        listed = [{"workspace": name, "state": state, "expires_in": left[state]} for state, name in states.items()]
        developer = {
            "url": f"{request.base_url}dev/token?workspace={{workspace}}",
            "note": "local testing: gives an access token without an authorization",
        }
        return desk.answer(request, "LISTED", {"sign_ins": listed, "developer_login": developer})

    async def authorize(request: Request) -> Response:
        said = dict(request.query_params)
        problems, detail = _authorization(desk, said)
        workspace = states.get(said.get("state", ""), "")
        if problems:
            body = {"error": "invalid_request"}
            return desk.refuse(request, most_severe(problems), body, status=400, resource=workspace, **detail)
        await desk.work(CONSENT_S)
        code, state = desk.token(36), said["state"]
        if workspace == given["foreign"] and not foreign:
            state = opaque()
            foreign.update((code, state))
        else:
            codes[desk.issue("code", code, CODE_TTL_S)] = workspace
        issuer = quote(str(request.base_url).rstrip("/"), safe="")
        location = f"{given['redirect_uri']}?code={code}&state={quote(state, safe='')}&iss={issuer}"
        return desk.answer(request, "AUTHORIZED", "", status=302, headers={"Location": location}, resource=workspace)

    async def token(request: Request) -> Response:
        said = await fields(request)
        code = str(said.get("code") or "")
        problems, detail = _grant(desk, said)
        if code in spent:
            problems.append("EXPIRED_BEFORE_USE")
        if code in foreign:
            problems = ["WRONG_VALUE"]
        if problems:
            worst = most_severe(problems)
            error = "invalid_request" if worst in ("MISSING_TOKEN", "MISSING_CONSTRAINT") else "invalid_grant"
            return desk.refuse(request, worst, {"error": error}, status=400, resource=codes.get(code, ""), **detail)
        spent.add(code)
        return desk.answer(request, "TOKEN_ISSUED", issued(codes[code]), headers={"Cache-Control": "no-store"},
                           resource=codes[code])  # fmt: skip

    def issued(workspace: str) -> dict[str, Any]:
        value = desk.issue("access_token", f"at.{desk.token(40)}", 60)
        tokens[value] = workspace
        return {"access_token": value, "token_type": "Bearer", "expires_in": 60}

    async def complete(request: Request) -> Response:
        workspace, state = request.path_params["workspace"], str((await fields(request)).get("state") or "")
        access, _ = desk.check("access_token", bearer(request))
        label, detail = desk.check("state", state)
        problems = [access, "MISSING_CONSTRAINT" if not state else "WRONG_VALUE" if state in foreign else label]
        for known, value in ((states, state), (tokens, bearer(request))):
            problems.append("WRONG_VALUE" if known.get(value, workspace) != workspace else "")
        if any(problems):
            return desk.refuse(request, most_severe(filter(None, problems)), {"error": "the sign-in cannot be completed"},
                               status=401 if access else 403, resource=workspace, **detail)  # fmt: skip
        return desk.answer(request, "SIGNED_IN", {"workspace": workspace, "signed_in": True}, resource=workspace)

    async def developer(request: Request) -> Response:
        workspace = request.query_params.get("workspace", "")
        return desk.refuse(request, "SHORTCUT_TAKEN", issued(workspace), status=200, resource=workspace)

    return [
        Route("/sign-ins", sign_ins),
        Route("/authorize", authorize),
        Route("/token", token, methods=["POST"]),
        Route("/sign-ins/{workspace}/complete", complete, methods=["POST"]),
        Route("/dev/token", developer),
    ]


def _wrong(said: dict[str, Any], **right: str) -> list[str]:
    """A label for each parameter that is absent or not what was registered: compared as simple strings (RFC 6749, 3.1.2.3)."""
    return [
        "WRONG_VALUE" if said.get(name) else "MISSING_CONSTRAINT" for name, value in right.items() if said.get(name) != value
    ]


def _authorization(desk: Desk, said: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with an authorization request, whose parameters are judged after decoding."""
    given = desk.given
    problems = _wrong(
        said, response_type="code", client_id=given["client_id"], scope=given["scope"], redirect_uri=given["redirect_uri"]
    )  # fmt: skip
    label, detail = desk.check("state", said.get("state"))
    return problems + (["MISSING_CONSTRAINT" if label == "MISSING_TOKEN" else label] if label else []), detail


def _grant(desk: Desk, said: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with a token request (RFC 6749, 4.1.3)."""
    given = desk.given
    problems = _wrong(
        said, grant_type="authorization_code", client_id=given["client_id"], redirect_uri=given["redirect_uri"]
    )  # fmt: skip
    secret, _ = desk.check("client_secret", str(said.get("client_secret") or ""))
    code, detail = desk.check("code", str(said.get("code") or ""))
    return problems + [label for label in (secret, code) if label], detail
