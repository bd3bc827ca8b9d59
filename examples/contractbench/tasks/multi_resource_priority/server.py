"""A pool whose offers are claimed by signed URLs, each with a deadline of its own; what is claimed is reported by priority.

Capability URLs in the manner of SigV4 query authentication: percent-escaped scope, deadline and signature in the query.
"""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

KINDS = ("gpu-node", "floating-ip", "block-volume", "licence-seat", "dns-zone", "queue-slot")
TENANTS = ("northwind", "tailspin", "fabrikam", "contoso")


def parameters(rng: Random) -> dict[str, Any]:
    """Four offers. In the order of deadlines all can be claimed; the most urgent one is listed last, and matters least."""
    kinds = rng.sample(KINDS, 4)
    takes = [rng.randint(4, 7) for _ in kinds]
    arrival, offers = 1, []
    for kind, seconds in zip(kinds, takes, strict=True):
        offers.append({"name": kind, "takes": seconds, "ttl": arrival + rng.randint(3, 4)})
        arrival += seconds + 1
    for rank, offer in zip([4, *rng.sample([1, 2, 3], 3)], offers, strict=True):
        offer["priority"] = rank
    later = offers[1:]
    rng.shuffle(later)
    return {"tenant": rng.choice(TENANTS), "offers": [*later, offers[0]], "lease_length": rng.randint(96, 128)}


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    offers = {offer["name"]: offer for offer in given["offers"]}
    listed: list[dict[str, Any]] = []
    plan = desk.token(20)

    async def pool(request: Request) -> Response:
        if not listed:
            for name, offer in offers.items():
                query = f"scope=tenants%2F{given['tenant']}%2Fpool%2F{name}&lease={desk.token(given['lease_length'])}"
                path = f"/pool/{name}/claim?{query}&holds={offer['ttl']}"
                url = desk.issue(name, f"{request.base_url}{path[1:]}&signature={desk.sign(path)}", offer["ttl"])
                said = {"name": name, "priority": offer["priority"], "takes": offer["takes"]}
                listed.append({**said, "url": url, "expires_in": offer["ttl"]})
            desk.issue("plan", plan)
        return desk.answer(request, "LISTED", {"plan": plan, "offers": listed}, holds={name: name for name in offers})

    async def claim(request: Request) -> Response:
        name = request.path_params["name"]
        label, detail = desk.check(name, exact_url(request))
        if label == "EXPIRED_BEFORE_USE":
            return desk.refuse(request, label, {"error": "this offer has lapsed"}, status=410, resource=name, **detail)
        if label:
            return desk.refuse(request, label, {"error": "the signature does not match"}, status=403, resource=name, **detail)
        await desk.work(offers[name]["takes"])
        confirmation = desk.issue(f"confirmation/{name}", f"{desk.token(12)}-{desk.token(12)}")
        return desk.answer(request, "CLAIMED", {"name": name, "confirmation": confirmation}, status=201, resource=name)

    async def allocate(request: Request) -> Response:
        body = await fields(request)
        codes = body.get("confirmations")
        codes = [str(code) for code in codes if code] if isinstance(codes, list) else []
        if not body.get("plan") or len(codes) < len(offers):
            said = "the plan is missing" if codes else "confirmations are missing"
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": said}, status=422, resource="allocation")
        ranked = sorted(offers.values(), key=lambda offer: offer["priority"])
        checks = [
            ("plan", str(body["plan"])),
            *((f"confirmation/{offer['name']}", code) for offer, code in zip(ranked, codes, strict=False)),
        ]
        known = {item.value for name, issued in desk.issued.items() if name.startswith("confirmation/") for item in issued}
        for name, submitted in checks:
            label, detail = desk.check(name, submitted)
            if label and submitted in known:
                return desk.refuse(request, "WRONG_VALUE", {"error": "not in order of priority"}, status=422, resource=name)
            if label:
                return desk.refuse(request, label, {"error": f"{name} is unknown"}, status=422, resource=name, **detail)
        return desk.answer(request, "ALLOCATED", {"ok": True}, status=201, resource="allocation")

    return [
        Route("/pool", pool),
        Route("/pool/{name}/claim", claim, methods=["POST"]),
        Route("/allocations", allocate, methods=["POST"]),
    ]
