"""Proof key for code exchange (RFC 7636) and refresh tokens that rotate (RFC 9700, 4.14.2) behind a rate limit (RFC 6585).

Access tokens end in the middle of the work. Each use of a refresh token gives a new one and ends the old one; an old one that
comes back ends the whole family. The token endpoint takes one grant in a window of time, which is longer than an access
token lives: the first request that is too early is told how long to wait.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64encode
from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, bearer, fields

FETCH_S = 3.0
CODE_TTL_S = 20.0
_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def parameters(rng: Random) -> dict[str, Any]:
    """Five or six photos; a token is good for two or three of them, and the next one is to be had some seconds later."""
    ttl = rng.randint(9, 12)
    return {
        "client_id": f"gallery-{rng.randint(100, 999)}",
        "redirect_uri": f"https://{rng.choice(['gallery', 'album', 'prints'])}.example/cb",
        "scope": rng.choice(["photos.read", "photos.read albums.write"]),
        "verifier": "".join(rng.choice(_UNRESERVED) for _ in range(rng.randint(48, 96))) + "aZ",
        "photos": [f"IMG_{number}" for number in rng.sample(range(1000, 9999), rng.randint(5, 6))],
        "ttl": ttl,
        "window": ttl + rng.randint(4, 6),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    challenges: dict[str, str] = {}  # code -> challenge
    spent: set[str] = set()
    family = {"over": False}  # a refresh token or a code that is over came back
    window = {"open": 0.0, "told": 0.0}  # when the next grant may be requested, and until when a client was asked to wait

    async def authorize(request: Request) -> Response:
        said = dict(request.query_params)
        problems = _wrong(said, response_type="code", client_id=given["client_id"], redirect_uri=given["redirect_uri"],
                          scope=given["scope"], code_challenge_method="S256")  # fmt: skip
        problems += [] if said.get("code_challenge") else ["MISSING_CONSTRAINT"]
        if problems:
            body = {"error": "invalid_request", "error_description": "a parameter is absent or not accepted"}
            return desk.refuse(request, most_severe(problems), body, status=400, resource="authorization")
        code = desk.issue("code", desk.token(43), CODE_TTL_S)
        challenges[code] = said["code_challenge"]
        location = f"{given['redirect_uri']}?code={code}"
        return desk.answer(request, "AUTHORIZED", "", status=302, headers={"Location": location}, resource="authorization")

    async def token(request: Request) -> Response:
        said = await fields(request)
        grant = str(said.get("grant_type") or "")
        problems, detail = _granted(desk, grant, said, challenges, spent)
        if problems:
            family["over"] |= "EXPIRED_BEFORE_USE" in problems and (grant == "refresh_token" or said["code"] in spent)
            worst = most_severe(problems)
            error = "invalid_request" if worst in ("MISSING_TOKEN", "MISSING_CONSTRAINT") else "invalid_grant"
            return desk.refuse(request, worst, {"error": error}, status=400, resource=grant, **detail)
        if (left := window["open"] - desk.now()) > 0:
            headers, body = {"Retry-After": str(math.ceil(left))}, {"error": "slow_down"}
            if desk.now() < window["told"]:
                return desk.refuse(request, "BACKOFF_VIOLATION", body, status=429, headers=headers, resource=grant)
            window["told"] = window["open"]
            return desk.answer(request, "LIMITED", body, status=429, headers=headers, resource=grant)
        if grant == "authorization_code":
            spent.add(said["code"])
            family["over"] = False
        window["open"] = desk.now() + given["window"]
        body = {"access_token": desk.issue("access_token", _jwt(desk), given["ttl"]), "token_type": "Bearer",
                "expires_in": given["ttl"], "refresh_token": desk.issue("refresh_token", f"rt.{desk.token(60)}")}  # fmt: skip
        return desk.answer(request, "TOKEN_ISSUED", body, headers={"Cache-Control": "no-store"}, resource=grant,
                           holds={"access_token": "access_token"})  # fmt: skip

    def protected(request: Request, resource: str) -> Response | None:
        label, detail = desk.check("access_token", bearer(request))
        label = "EXPIRED_BEFORE_USE" if family["over"] and label in ("", "EXPIRED_BEFORE_USE") else label
        if not label:
            return None
        challenge = 'Bearer realm="photos"' + ("" if label == "MISSING_TOKEN" else ', error="invalid_token"')
        return desk.refuse(request, label, {"error": "unauthorized"}, status=401, headers={"WWW-Authenticate": challenge},
                           resource=resource, **detail)  # fmt: skip

    async def listing(request: Request) -> Response:
        return desk.answer(request, "LISTED", {"photos": given["photos"]})

    async def photo(request: Request) -> Response:
        name = request.path_params["name"]
        if refused := protected(request, name):
            return refused
        if name not in given["photos"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such photo"}, status=404, resource=name)
        await desk.work(FETCH_S)
        return desk.answer(request, "FETCHED", {"photo": name, "width": 4000, "height": 3000}, resource=name)

    async def album(request: Request) -> Response:
        said = (await fields(request)).get("photos")
        if said == given["photos"]:
            return desk.answer(request, "RECEIPT", {"ok": True}, status=201, resource="album")
        label = "WRONG_VALUE" if isinstance(said, list) and len(said) >= len(given["photos"]) else "MISSING_CONSTRAINT"
        return desk.refuse(request, label, {"error": "not the photos of this album"}, status=422, resource="album")

    return [
        Route("/authorize", authorize),
        Route("/token", token, methods=["POST"]),
        Route("/photos", listing),
        Route("/photos/{name}", photo),
        Route("/album", album, methods=["POST"]),
    ]


def _wrong(said: dict[str, Any], **right: str) -> list[str]:
    """A label for each parameter that is absent or not what it has to be."""
    return [
        "WRONG_VALUE" if said.get(name) else "MISSING_CONSTRAINT" for name, value in right.items() if said.get(name) != value
    ]


def _granted(
    desk: Desk, grant: str, said: dict[str, Any], challenges: dict[str, str], spent: set[str]
) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with a token request."""
    if grant == "authorization_code":
        return _code(desk, said, challenges, spent)
    if grant == "refresh_token":
        return _refresh(desk, said)
    return ["WRONG_VALUE" if grant else "MISSING_CONSTRAINT"], {}


def _code(desk: Desk, said: dict[str, Any], challenges: dict[str, str], spent: set[str]) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with the exchange of a code: the verifier's hash is the challenge that was sent (RFC 7636, 4.6)."""
    given, code, verifier = desk.given, str(said.get("code") or ""), str(said.get("code_verifier") or "")
    problems = _wrong(said, client_id=given["client_id"], redirect_uri=given["redirect_uri"])
    label, detail = desk.check("code", code)
    problems += ["EXPIRED_BEFORE_USE" if code in spent else label]
    if not verifier:
        problems.append("MISSING_CONSTRAINT")
    elif code in challenges and challenges[code] != challenge(verifier):
        problems.append("WRONG_HASH")
    return [item for item in problems if item], detail


def _refresh(desk: Desk, said: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with a refresh: only the refresh token issued last is taken."""
    problems = _wrong(said, client_id=desk.given["client_id"])
    label, detail = desk.check("refresh_token", str(said.get("refresh_token") or ""), latest=True)
    return problems + ([label] if label else []), detail


def challenge(verifier: str) -> str:
    """The S256 challenge of a verifier: its SHA-256 in base64url without padding (RFC 7636, 4.2)."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _jwt(desk: Desk) -> str:
    """An access token in three parts, as long as such tokens are: more than 250 characters."""
    claims = {"iss": "https://id.example", "sub": desk.token(12), "scope": desk.given["scope"], "iat": desk.now(),
              "exp": desk.now() + desk.given["ttl"], "jti": desk.token(24)}  # fmt: skip
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "HS256"}, claims)]
    return ".".join([*parts, desk.sign(".".join(parts))])
