"""Three files, each with a signed token and a deadline of its own, in a workflow whose token is swapped at each step.

A request is signed by the client with HMAC-SHA-256 over its method, its path and the tokens in it, a line each (in the manner
of RFC 9421, 2.5, where all that matters is covered by the signature).
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, bearer, fields

PUBLISH_S = 7.0
RECEIPT_TTL_S = 45.0


def parameters(rng: Random) -> dict[str, Any]:
    """Three files; the one whose token ends first is second or third in the list."""
    middle, shortest = rng.randint(20, 24), rng.randint(6, 8)
    rest = [middle, shortest]
    rng.shuffle(rest)
    return {
        "key_id": f"wk-{rng.randint(1000, 9999)}",
        "key": rng.randbytes(20).hex(),
        "files": [[f"file_{letter}", ttl] for letter, ttl in zip(rng.sample("ABCDEFGH", 3), [60, *rest], strict=True)],
        "size": rng.randint(120, 150),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    tokens: dict[str, str] = {}  # file -> token; so receipts
    receipts: dict[str, str] = {}
    steps = {"workflow": 0}

    def swap() -> str:
        """The next token of the workflow."""
        steps["workflow"] += 1
        return desk.issue("workflow", f"ws{steps['workflow']}.{desk.token(40)}")

    async def workflow(request: Request) -> Response:
        if not tokens:
            for name, ttl in given["files"]:
                claims = urlsafe_b64encode(f'{{"file":"{name}","nonce":"{desk.token(given["size"])}"}}'.encode()).decode()
                tokens[name] = desk.issue(name, f"{claims}.{desk.sign(claims)}", ttl)
            swap()
        left = {name: int(desk.issued[name][0].at + ttl - desk.now()) for name, ttl in given["files"]}
        listed = [{"name": name, "token": token, "expires_in": max(0, left[name])} for name, token in tokens.items()]
        return desk.answer(request, "LISTED", {"workflow_token": desk.issued["workflow"][-1].value, "files": listed})

    async def publish(request: Request) -> Response:
        name, token = request.path_params["name"], bearer(request)
        if name not in tokens:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such file"}, status=404, resource=name)
        mixed = token != tokens[name] and token in tokens.values()
        problems, detail = _tokens(desk, request, name, "WRONG_VALUE" if mixed else "")
        if response := refused(request, name, problems, detail, token):
            return response
        await desk.work(PUBLISH_S)
        receipts[name] = desk.issue(f"receipt {name}", f"rc.{desk.token(36)}", RECEIPT_TTL_S)
        body = {
            "published": name,
            "receipt": receipts[name],
            "receipt_expires_in": int(RECEIPT_TTL_S),
            "workflow_token": swap(),
        }
        return desk.answer(request, "PUBLISHED", body, resource=name)

    async def commit(request: Request) -> Response:
        said = (await fields(request)).get("receipts")
        said = {str(name): str(value) for name, value in said.items()} if isinstance(said, dict) else {}
        label, detail = desk.check("workflow", request.headers.get("x-workflow-token"), latest=True)
        problems = [label]
        for name in tokens or {name: "" for name, _ in given["files"]}:
            mixed = said.get(name) != receipts.get(name) and said.get(name) in receipts.values()
            of_receipt, _ = desk.check(f"receipt {name}", said.get(name))
            problems.append("MISSING_CONSTRAINT" if name not in said else "WRONG_VALUE" if mixed else of_receipt)
        covered = [said[name] for name in sorted(said)]
        if response := refused(request, "commit", [item for item in problems if item], detail, *covered):
            return response
        return desk.answer(request, "COMMITTED", {"committed": sorted(said)}, status=201, resource="commit")

    def refused(request: Request, resource: str, problems: list[str], detail: dict[str, Any], *covered: str) -> Response | None:
        """The refusal of a request whose tokens or, where those are right, whose signature does not hold."""
        if problems:
            body, status = {"error": "a token was not accepted"}, 401
        else:
            signature = request.headers.get("x-signature", "")
            lines = [request.method, request.url.path, request.headers.get("x-workflow-token", ""), *covered]
            if hmac.compare_digest(signature.encode(), signed(given["key"], lines).encode()):
                return None
            body, status = {"error": "signature does not verify"}, 403
            problems = ["SIGNATURE_MISMATCH" if signature else "MISSING_CONSTRAINT"]
        return desk.refuse(request, most_severe(problems), body, status=status, resource=resource, **detail)

    return [
        Route("/workflow", workflow),
        Route("/files/{name}/publish", publish, methods=["POST"]),
        Route("/workflow/commit", commit, methods=["POST"]),
    ]


def _tokens(desk: Desk, request: Request, name: str, mixed: str) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with the tokens of a request for a file; mixed: the label where its token is that of another file."""
    session, _ = desk.check("workflow", request.headers.get("x-workflow-token"), latest=True)
    label, detail = desk.check(name, bearer(request))
    return [item for item in (session, mixed or label) if item], detail


def signed(key: str, lines: list[str]) -> str:
    """HMAC-SHA-256 over lines, in hexadecimal."""
    return hmac.new(bytes.fromhex(key), "\n".join(lines).encode(), sha256).hexdigest()
