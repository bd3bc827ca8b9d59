"""A short-lived bearer token beside a long-lived refresh token (RFC 6749, section 6; RFC 6750, section 3.1)."""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, bearer, fields

STAGE_S = 5.0
STAGES = ("extract", "clean", "join", "aggregate", "render", "publish", "notify")


def parameters(rng: Random) -> dict[str, Any]:
    """Five or six stages, no more than three of which fit into the life of one access token."""
    return {
        "client_id": f"reporting-{rng.randint(100, 999)}",
        "refresh_length": rng.randint(40, 60), "token_length": rng.randint(40, 64), "ttl": rng.randint(12, 15),
        "stages": list(STAGES[: rng.randint(5, 6)]),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    jobs: list[str] = []
    done: list[str] = []

    async def session(request: Request) -> Response:
        if (await fields(request)).get("client_id") != given["client_id"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "unknown client"}, status=403, resource="session")
        if "refresh" not in desk.issued:
            desk.issue("refresh", desk.token(given["refresh_length"]))
        body = {"refresh_token": desk.issued["refresh"][0].value, "token_type": "refresh_token"}
        return desk.answer(request, "SESSION", body, status=201, headers={"Cache-Control": "no-store"})

    def denied(request: Request, error: str, text: str, label: str, **detail: Any) -> Response:
        return desk.refuse(
            request, label, {"error": error, "error_description": text}, status=400, resource="refresh", **detail
        )

    async def token(request: Request) -> Response:
        form = await fields(request)
        grant, client, refresh = (form.get(name) for name in ("grant_type", "client_id", "refresh_token"))
        label, detail = desk.check("refresh", str(refresh)) if refresh else ("", {})
        if label:
            return denied(request, "invalid_grant", "the refresh token is invalid", label, **detail)
        if grant and grant != "refresh_token":
            return denied(request, "unsupported_grant_type", "only refresh_token is supported", "WRONG_VALUE")
        if client and client != given["client_id"]:
            return denied(request, "invalid_client", "unknown client", "WRONG_VALUE")
        if not (grant and client and refresh):
            return denied(request, "invalid_request", "a required parameter is missing", "MISSING_CONSTRAINT")
        access = desk.issue("access", desk.token(given["token_length"]), given["ttl"])
        body = {"access_token": access, "token_type": "Bearer", "expires_in": given["ttl"]}
        return desk.answer(
            request, "TOKEN_ISSUED", body, headers={"Cache-Control": "no-store"}, holds={"access_token": "access"}
        )

    def unauthorized(request: Request, resource: str) -> Response | None:
        """The refusal of a request whose bearer token does not do; None where it does."""
        label, detail = desk.check("access", bearer(request))
        if not label:
            return None
        reasons = {"MISSING_TOKEN": "", "EXPIRED_BEFORE_USE": "The access token expired"}
        reason = reasons.get(label, "The access token is malformed or unknown")
        challenge = (
            f'Bearer realm="jobs", error="invalid_token", error_description="{reason}"' if reason else 'Bearer realm="jobs"'
        )
        body = {"error": "invalid_token", "error_description": reason} if reason else {"error": "unauthorized"}
        return desk.refuse(
            request, label, body, status=401, resource=resource, headers={"WWW-Authenticate": challenge}, **detail
        )  # fmt: skip

    async def start(request: Request) -> Response:
        if refusal := unauthorized(request, "job"):
            return refusal
        jobs[:] = jobs or [f"job-{desk.token(6, '0123456789')}"]
        return desk.answer(request, "JOB_STARTED", {"job": jobs[0], "stages": given["stages"]}, status=201, resource=jobs[0])

    async def stage(request: Request) -> Response:
        job, name = request.path_params["job"], request.path_params["stage"]
        if refusal := unauthorized(request, name):
            return refusal
        due = given["stages"][len(done)] if len(done) < len(given["stages"]) else ""
        if job not in jobs or name != due:
            return desk.refuse(
                request, "WRONG_VALUE", {"error": "this stage is not due", "due": due}, status=409, resource=name
            )
        await desk.work(STAGE_S)
        done.append(name)
        return desk.answer(request, "STAGE_DONE", {"stage": name}, resource=name)

    return [
        Route("/sessions", session, methods=["POST"]),
        Route("/oauth/token", token, methods=["POST"]),
        Route("/jobs", start, methods=["POST"]),
        Route("/jobs/{job}/stages/{stage}", stage, methods=["POST"]),
    ]
