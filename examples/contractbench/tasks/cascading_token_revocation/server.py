"""Tokens derived from tokens (RFC 8693), and a leak: revoking one (RFC 7009) ends all that were derived from it.

A derived token has a part for each token that it descends from, so it grows with each step. Revocation is not available at
once: the first request is told to come back later, and until then the token still exists (RFC 7009, 2.2.1).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, bearer, fields

TTL_S = 120.0
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


def parameters(rng: Random) -> dict[str, Any]:
    """Three services: the tokens of the second are derived from those of the first, which leak; the third stands alone."""
    first, second, third = rng.sample(["orders", "shipping", "billing", "pricing", "returns", "loyalty"], 3)
    return {
        "root": "mt_Root" + "".join(rng.choice(_LETTERS) for _ in range(rng.randint(64, 72))),
        "first": first,
        "second": second,
        "third": third,
        "job": f"job-{rng.randint(1000, 9999)}",
        "incident": f"inc-{rng.randint(100, 999)}",
        "delay": rng.randint(3, 6),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    services = (given["first"], given["second"], given["third"])
    desk.issue("root", given["root"])
    glass = desk.issue("break glass", f"bg_{desk.token(44)}")
    started: set[str] = set()
    tree = Tree(desk, services)

    async def derive(request: Request) -> Response:
        audience = str((await fields(request)).get("audience") or "")
        if audience not in services:
            label = "WRONG_VALUE" if audience else "MISSING_CONSTRAINT"
            return desk.refuse(request, label, {"error": "invalid_target"}, status=400, resource=audience)
        if response := tree.refused(request, given["first"] if audience == given["second"] else "root"):
            return response
        token = tree.derive(audience, bearer(request))
        body = {"access_token": token, "token_type": "Bearer", "audience": audience, "expires_in": int(TTL_S)}
        return desk.answer(request, "DERIVED", body, status=201, resource=audience, token=tree.number(token),
                           holds={"access_token": audience})  # fmt: skip

    async def step(request: Request) -> Response:
        service, what = request.path_params["service"], request.path_params["what"]
        if service not in services or request.path_params["job"] != given["job"] or what not in ("start", "finish"):
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such job"}, status=404, resource=service)
        is_glass = bearer(request) == glass
        if not is_glass and (response := tree.refused(request, service)):
            return response
        if what == "finish" and service not in started:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "not started"}, status=409, resource=service)
        started.add(service)
        body = {"service": service, "job": given["job"], "state": f"{what}ed"}
        if is_glass:
            return desk.refuse(request, "SHORTCUT_TAKEN", body, status=200, resource=service)
        return desk.answer(request, "STARTED" if what == "start" else "FINISHED", body, resource=service)

    async def incidents(request: Request) -> Response:
        if response := tree.refused(request, "root"):
            return response
        if started != set(services):
            return desk.answer(request, "QUIET", {"incidents": []})
        note = "accepted by every service, whatever was revoked"
        body = {"incidents": [{"id": given["incident"], "leaked_token_of": given["first"]}],
                "break_glass": {"token": glass, "note": note}}  # fmt: skip
        return desk.answer(request, "INCIDENT", body, resource=given["incident"])

    async def close(request: Request) -> Response:
        if response := tree.refused(request, "root"):
            return response
        ended, said = tree.ended(), (await fields(request)).get("revoked")
        if request.path_params["id"] != given["incident"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such incident"}, status=404, resource=given["incident"])
        if not said or f"{given['first']}/1" not in ended:
            body = {"error": "the leaked token is still alive" if said else "revoked: which services lost their tokens?"}
            return desk.refuse(request, "MISSING_CONSTRAINT", body, status=409, resource=given["incident"])
        if not isinstance(said, list) or sorted(map(str, said)) != sorted((given["first"], given["second"])):
            body = {"error": "these are not the services whose tokens were ended"}
            return desk.refuse(request, "WRONG_VALUE", body, status=422, resource=given["incident"])
        return desk.answer(request, "CLOSED", {"id": given["incident"], "state": "closed"}, resource=given["incident"])

    return [
        Route("/tokens", derive, methods=["POST"]),
        Route("/services/{service}/jobs/{job}/{what}", step, methods=["POST"]),
        Route("/incidents", incidents),
        Route("/incidents/{id}/close", close, methods=["POST"]),
        Route("/revoke", _revocation(desk, tree), methods=["POST"]),
    ]


def _revocation(desk: Desk, tree: Tree) -> Callable[[Request], Awaitable[Response]]:
    """The revocation endpoint. For an unknown token it answers 200, too (RFC 7009, 2.2), and ends nothing."""
    busy = {"until": -1.0}

    def later(request: Request, label: str) -> Response:
        headers, body = {"Retry-After": str(math.ceil(busy["until"] - desk.now()))}, {"error": "temporarily_unavailable"}
        reply = desk.refuse if label == "BACKOFF_VIOLATION" else desk.answer
        return reply(request, label, body, status=503, headers=headers, resource="revocation")

    async def revoke(request: Request) -> Response:
        if response := tree.refused(request, "root"):
            return response
        token = str((await fields(request)).get("token") or "")
        if not token:
            return desk.refuse(request, "MISSING_TOKEN", {"error": "invalid_request"}, status=400, resource="revocation")
        if token not in tree.parents:
            return desk.refuse(request, tree.nearest(token), {}, status=200, resource="revocation")
        if busy["until"] < 0:
            busy["until"] = desk.now() + desk.given["delay"]
            return later(request, "LATER")
        if desk.now() < busy["until"]:
            return later(request, "BACKOFF_VIOLATION")
        before = tree.ended()
        tree.revoked.add(token)
        ended = [item for item in tree.ended() if item not in before]
        return desk.answer(request, "REVOKED", {}, resource=tree.services[token], ended=ended)

    return revoke


class Tree:
    """The tokens derived so far, and which of them were revoked. In the log, service/1 is the first one for a service."""

    def __init__(self, desk: Desk, services: tuple[str, ...]) -> None:
        self.desk, self.names = desk, services
        self.parents: dict[str, str] = {}
        self.services: dict[str, str] = {}
        self.revoked: set[str] = set()

    def derive(self, service: str, parent: str) -> str:
        """A new token for a service: as many parts as it has ancestors, and one more."""
        depth, above = 1, parent
        while above in self.parents:
            depth, above = depth + 1, self.parents[above]
        text = ".".join([f"d{depth}", *(self.desk.token(68) for _ in range(depth + 1))])
        token = self.desk.issue(service, text, TTL_S)
        self.parents[token], self.services[token] = parent, service
        return token

    def over(self, token: str) -> bool:
        """Whether a token was revoked, or one that it descends from."""
        return token in self.revoked or (token in self.parents and self.over(self.parents[token]))

    def number(self, token: str) -> str:
        service = self.services[token]
        return f"{service}/{1 + [item.value for item in self.desk.issued[service]].index(token)}"

    def ended(self) -> list[str]:
        return [self.number(token) for token in self.parents if self.over(token)]

    def nearest(self, token: str) -> str:
        """The label of a token that was never issued, by the state of the most similar one."""
        labels = [self.desk.check(name, token)[0] for name in self.names if name in self.desk.issued]
        return next((label for label in labels if label != "WRONG_VALUE"), "WRONG_VALUE")

    def refused(self, request: Request, name: str) -> Response | None:
        """The refusal of a request whose token is not one of that name, whole and alive; None where it is."""
        token = bearer(request)
        label, detail = self.desk.check(name, token)
        if token in self.parents and self.over(token):
            label = "EXPIRED_BEFORE_USE"
        if not label:
            return None
        challenge = 'Bearer realm="services"' + ("" if label == "MISSING_TOKEN" else ', error="invalid_token"')
        headers = {"WWW-Authenticate": challenge}
        return self.desk.refuse(request, label, {"error": "unauthorized"}, status=401, headers=headers, resource=name, **detail)
