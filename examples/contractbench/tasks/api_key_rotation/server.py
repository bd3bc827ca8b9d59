"""An API key is replaced while it is in use: rotate, switch every consumer over in its window, prove the new key, revoke the
former one.

For a while after the rotation both keys are accepted, so that nothing stops. Configured may only be the new one.
"""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, Issued, fields

SWITCH_S = 5.0
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


def parameters(rng: Random) -> dict[str, Any]:
    """Three consumers; the one whose window closes first is listed last."""
    names = rng.sample(["checkout", "mailer", "warehouse", "analytics", "invoices", "search"], 3)
    middle, shortest = rng.randint(18, 21), rng.randint(8, 10)
    return {
        "key_id": f"key_{rng.randint(100, 499)}",
        "new_key_id": f"key_{rng.randint(500, 999)}",
        "api_key": "ak_Live" + "".join(rng.choice(_LETTERS) for _ in range(rng.randint(36, 48))),
        "consumers": [[names[0], 60], [names[1], middle], [names[2], shortest]],
        "overlap": rng.randint(30, 36),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    old, revoked = desk.issue("api_key", given["api_key"]), set[str]()
    new: list[str] = []
    proven: list[bool] = []
    tickets: dict[str, str] = {}
    switched: set[str] = set()

    def status(key: str) -> tuple[str, dict[str, Any]]:
        """(label, detail) of a key that a request bears."""
        label, detail = desk.check("api_key", key)
        return ("EXPIRED_BEFORE_USE", detail) if key in revoked else (label, detail)

    def refused(request: Request) -> Response | None:
        label, detail = status(request.headers.get("x-api-key", ""))
        if not label:
            return None
        said = {"MISSING_TOKEN": "an API key is required", "EXPIRED_BEFORE_USE": "this API key is no longer active"}
        body = {"error": said.get(label, "unknown API key")}
        return desk.refuse(request, label, body, status=401, resource="api_key", **detail)

    async def keys(request: Request) -> Response:
        if response := refused(request):
            return response
        former = "revoked" if old in revoked else "retiring" if new else "active"
        listed = [{"id": given["key_id"], "prefix": old[:6], "status": former}]
        listed += [{"id": given["new_key_id"], "prefix": key[:6], "status": "active"} for key in new]
        return desk.answer(request, "LISTED", {"keys": listed})

    async def rotate(request: Request) -> Response:
        if response := refused(request):
            return response
        if request.path_params["id"] != given["key_id"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such key to rotate"}, status=404, resource="api_key")
        if new:
            return desk.answer(request, "ROTATING", {"error": "this key is being rotated already"}, status=409)
        desk.issued["api_key"] = [Issued(old, desk.now(), given["overlap"])]
        new.append(desk.issue("api_key", f"ak_Live{desk.token(44)}"))
        body = {"id": given["new_key_id"], "key": new[0], "replaces": given["key_id"],
                "former_key_accepted_for": given["overlap"]}  # fmt: skip
        return desk.answer(request, "ROTATED", body, status=201, resource="api_key")

    async def consumers(request: Request) -> Response:
        if response := refused(request):
            return response
        for name, ttl in given["consumers"] if not tickets else ():
            tickets[name] = desk.issue(f"ticket {name}", f"sw.{desk.token(28)}", ttl)
        left = {name: int(desk.issued[f"ticket {name}"][0].at + ttl - desk.now()) for name, ttl in given["consumers"]}
        body = {
            "consumers": [{"name": name, "ticket": ticket, "closes_in": max(0, left[name])} for name, ticket in tickets.items()]
        }
        return desk.answer(request, "CONSUMERS", body)

    async def switch(request: Request) -> Response:
        name = request.path_params["name"]
        label, _ = status(request.headers.get("x-api-key", ""))
        problems, detail = _switch(desk, name, await fields(request))
        if label or problems:
            worst = most_severe([label, *problems] if label else problems)
            body, code = {"error": "the switch was not accepted"}, 401 if label else 409
            return desk.refuse(request, worst, body, status=code, resource=name, **detail)
        await desk.work(SWITCH_S)
        switched.add(name)
        return desk.answer(request, "SWITCHED", {"consumer": name, "key_id": given["new_key_id"]}, resource=name)

    async def whoami(request: Request) -> Response:
        if response := refused(request):
            return response
        is_new = request.headers["x-api-key"] in new
        proven.extend([True] if is_new else [])
        body = {"key_id": given["new_key_id" if is_new else "key_id"], "status": "active" if is_new or not new else "retiring"}
        return desk.answer(request, "PROVEN" if is_new else "KNOWN", body, resource="api_key")

    async def revoke(request: Request) -> Response:
        if response := refused(request):
            return response
        if request.path_params["id"] != given["key_id"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "not a key to be revoked"}, status=409, resource="api_key")
        waiting = [name for name, _ in given["consumers"] if name not in switched]
        if waiting or not proven:
            why = f"still in use by {', '.join(waiting)}" if waiting else "its successor has not been seen at /whoami yet"
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": why}, status=409, resource="api_key")
        revoked.add(old)
        return desk.answer(request, "REVOKED", {"id": given["key_id"], "status": "revoked"}, resource="api_key")

    return [
        Route("/keys", keys),
        Route("/keys/{id}/rotate", rotate, methods=["POST"]),
        Route("/keys/{id}", revoke, methods=["DELETE"]),
        Route("/consumers", consumers),
        Route("/consumers/{name}/key", switch, methods=["PUT"]),
        Route("/whoami", whoami),
    ]


def _switch(desk: Desk, name: str, said: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with switching a consumer over: its ticket holds, and the key it gets is the one that will stay."""
    if name not in {consumer for consumer, _ in desk.given["consumers"]}:
        return ["WRONG_VALUE"], {}
    ticket, key = str(said.get("ticket") or ""), str(said.get("key") or "")
    others = {
        item.value for known, items in desk.issued.items() if known not in ("api_key", f"ticket {name}") for item in items
    }
    of_ticket, detail = desk.check(f"ticket {name}", ticket)
    of_key, _ = desk.check("api_key", key, latest=True)
    problems = ["MISSING_CONSTRAINT" if not ticket else "WRONG_VALUE" if ticket in others else of_ticket]
    problems.append("MISSING_CONSTRAINT" if not key or len(desk.issued["api_key"]) == 1 else of_key)
    return [item for item in problems if item], detail
