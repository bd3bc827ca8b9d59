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
    confirmed: dict[str, str] = {}
    plan = desk.token(20)

    def left(name: str) -> float:
        """How many seconds an offer still holds."""
        ttl: int = offers[name]["ttl"]
        return max(0.0, round(desk.issued[name][0].at + ttl - desk.now(), 3))

    async def pool(request: Request) -> Response:
        if not listed:
            for name, offer in offers.items():
                query = f"scope=tenants%2F{given['tenant']}%2Fpool%2F{name}&lease={desk.token(given['lease_length'])}"
                path = f"/pool/{name}/claim?{query}&holds={offer['ttl']}"
                url = desk.issue(name, f"{request.base_url}{path[1:]}&signature={desk.sign(path)}", offer["ttl"])
                desk.issue("offer", url, offer["ttl"])
                listed.append({"name": name, "priority": offer["priority"], "takes": offer["takes"], "url": url})
            desk.issue("plan", plan)
        shown = [{**item, "expires_in": left(item["name"])} for item in listed]
        return desk.answer(request, "LISTED", {"plan": plan, "offers": shown}, holds={name: name for name in offers})

    async def claim(request: Request) -> Response:
        name = request.path_params.get("name", "")
        label, detail = desk.check("offer", exact_url(request))
        if label == "WRONG_VALUE":  # nothing like what was issued
            return desk.answer(request, "NO_OFFER", {"error": "not found"}, status=404)
        if label == "EXPIRED_BEFORE_USE":
            return desk.refuse(request, label, {"error": "this offer has lapsed"}, status=410, resource=name, **detail)
        if label:
            return desk.refuse(request, label, {"error": "the signature does not match"}, status=403, resource=name, **detail)
        if name not in confirmed:
            await desk.work(offers[name]["takes"])
            confirmed[name] = desk.issue("confirmation", f"{desk.token(12)}-{desk.token(12)}")
        body = {"name": name, "confirmation": confirmed[name]}
        return desk.answer(request, "CLAIMED", body, status=201, resource=name)

    async def allocate(request: Request) -> Response:
        body = await fields(request)
        sent, names = str(body.get("plan") or ""), body.get("confirmations")
        codes = [str(code) for code in names if code] if isinstance(names, list) else []
        for name, submitted in [("plan", sent), *(("confirmation", code) for code in codes)]:
            label, detail = desk.check(name, submitted) if submitted else ("", {})
            if label:
                return desk.refuse(request, label, {"error": f"{name} is unknown"}, status=422, resource=name, **detail)
        due = [confirmed[name] for name in sorted(confirmed, key=lambda item: offers[item]["priority"])]
        if codes != [code for code in due if code in codes]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "not in order of priority"}, status=422, resource="allocation")
        if not sent or len(codes) < len(offers):
            said = "confirmations are missing" if sent else "the plan is missing"
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": said}, status=422, resource="allocation")
        return desk.answer(request, "ALLOCATED", {"ok": True}, status=201, resource="allocation")

    return [
        Route("/pool", pool),
        Route("/pool/{name}/claim", claim, methods=["POST"]),
        Route("/allocations", allocate, methods=["POST"]),
        Route("/{damaged:path}", claim, methods=["POST"]),
    ]
