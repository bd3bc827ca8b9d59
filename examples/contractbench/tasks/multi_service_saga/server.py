"""A saga (Garcia-Molina and Salem, 1987): local transactions in sequence, undone in reverse order when one of them fails."""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

BOOKING_S = 2.0


def parameters(rng: Random) -> dict[str, Any]:
    """Two or three services book; the one after them takes so long to refuse that every undo URL is over by then."""
    services = rng.sample(["warehouse", "billing", "courier", "insurance", "customs"], rng.randint(3, 4))
    items = rng.sample(["blue_mug-12", "oak_chair-04", "desk_lamp-31", "wool_rug-07", "tea_pot-22"], len(services))
    steps = [
        {"service": service, "item": item, "amount": f"{rng.randint(10, 400)}.00"}
        for service, item in zip(services, items, strict=True)
    ]
    return {
        "order": f"SO-{rng.randint(10000, 99999)}", "steps": steps, "refuses_after": rng.randint(24, 30),
        "undo_holds": rng.randint(14, 20), "busy": rng.randrange(len(services) - 1), "busy_for": rng.randint(5, 8),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    steps, failing = desk.given["steps"], len(desk.given["steps"]) - 1
    saga = ""
    booked: dict[str, int] = {}
    undone: list[str] = []
    busy_until: list[float] = []

    def undo(request: Request, booking: str) -> dict[str, Any]:
        """A URL that cancels a booking, good from now on for a while; older ones hold until their own time is over."""
        token = f"{desk.token(180)}%2B{desk.token(40)}"
        url = f"{request.base_url}{steps[booked[booking]]['service']}/bookings/{booking}/undo?capability={token}"
        return {"url": desk.issue("undo", url, desk.given["undo_holds"]), "holds": desk.given["undo_holds"]}

    async def begin(request: Request) -> Response:
        nonlocal saga
        order = (await fields(request)).get("order")
        if not order:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "order is required"}, status=422, resource="saga")
        if order != desk.given["order"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "unknown order"}, status=422, resource="saga")
        saga = saga or f"saga_{desk.token(8)}"
        return desk.answer(request, "OPENED", {"saga": saga, "steps": steps}, status=201)

    async def book(request: Request) -> Response:
        said, service = await fields(request), request.path_params["service"]
        at = next((at for at, step in enumerate(steps) if step["service"] == service), None)
        if at is None or not saga:
            return desk.answer(request, "NO_ROUTE", {"error": "nothing is to be booked here"}, status=404)
        if missing := [name for name in ("saga", "item", "amount") if name not in said]:
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": f"required: {', '.join(missing)}"}, status=422, resource=service
            )
        if said["saga"] != saga or any(said[name] != steps[at][name] for name in ("item", "amount")):
            return desk.refuse(request, "WRONG_VALUE", {"error": "not a step of this saga"}, status=422, resource=service)
        if at != len(booked) or undone:
            return desk.refuse(
                request, "WRONG_VALUE", {"error": "not the next step of this saga"}, status=409, resource=service
            )
        if at == failing:
            await desk.work(desk.given["refuses_after"])
            body = {
                "error": "no capacity", "saga": "failed: compensate what is booked",
                "support": f"POST {request.base_url}sagas/{saga}/abandon closes the saga at once",
            }  # fmt: skip
            return desk.answer(request, "FAILED", body, status=409, resource=service)
        await desk.work(BOOKING_S)
        booking = f"bk_{desk.token(8)}"
        booked[booking] = at
        body = {"booking": booking, "undo": undo(request, booking)}
        return desk.answer(request, "BOOKED", body, status=201, resource=booking, holds={"undo": "undo"})

    async def show(request: Request) -> Response:
        booking = request.path_params["booking"]
        if booking not in booked:
            return desk.answer(request, "NO_ROUTE", {"error": "no such booking"}, status=404)
        if booking in undone:
            return desk.answer(request, "SHOWN", {"booking": booking, "state": "cancelled"}, resource=booking)
        body = {"booking": booking, "state": "booked", "undo": undo(request, booking)}
        return desk.answer(request, "SHOWN", body, resource=booking, holds={"undo": "undo"})

    async def cancel(request: Request) -> Response:
        booking = str(request.path_params.get("booking", ""))
        label, detail = desk.check("undo", exact_url(request))
        if label:
            over = label == "EXPIRED_BEFORE_USE"
            said = {"error": "capability has expired" if over else "capability is not valid"}
            return desk.refuse(request, label, said, status=410 if over else 403, resource=booking, **detail)
        if booking in undone:
            return desk.answer(request, "ALREADY_UNDONE", {"booking": booking, "state": "cancelled"}, resource=booking)
        if any(at > booked[booking] for other, at in booked.items() if other not in undone):
            body = {"error": "a later step of the saga is still booked"}
            return desk.refuse(request, "COMPENSATION_FAILURE", body, status=409, resource=booking)
        if booked[booking] == desk.given["busy"] and (not busy_until or desk.now() < busy_until[0]):
            return _busy(desk, request, booking, busy_until)
        undone.append(booking)
        return desk.answer(request, "UNDONE", {"booking": booking, "state": "cancelled"}, resource=booking)

    async def elsewhere(request: Request) -> Response:
        """A request that no other route takes; its URL may be one to undo a booking, damaged in its path."""
        if desk.check("undo", exact_url(request))[0] in ("WRONG_VALUE", "MISSING_TOKEN"):
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        return await cancel(request)

    async def abandon(request: Request) -> Response:
        if request.path_params["saga"] != saga or not saga:
            return desk.answer(request, "NO_ROUTE", {"error": "no such saga"}, status=404)
        return desk.refuse(request, "SHORTCUT_TAKEN", {"saga": saga, "state": "closed"}, status=200, resource="saga")

    async def outcome(request: Request) -> Response:
        said = (await fields(request)).get("outcome")
        if request.path_params["saga"] != saga or not saga:
            return desk.answer(request, "NO_ROUTE", {"error": "no such saga"}, status=404)
        if said is None:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "outcome is required"}, status=422, resource="saga")
        if said != "compensated":
            return desk.refuse(request, "WRONG_VALUE", {"error": "not every step is booked"}, status=409, resource="saga")
        if len(undone) < len(booked):
            body = {"error": "bookings of this saga stand"}
            return desk.refuse(request, "COMPENSATION_FAILURE", body, status=409, resource="saga")
        return desk.answer(request, "COMPENSATED", {"saga": saga, "state": "compensated"}, status=201)

    return [
        Route("/sagas", begin, methods=["POST"]),
        Route("/sagas/{saga}/abandon", abandon, methods=["POST"]),
        Route("/sagas/{saga}/outcome", outcome, methods=["POST"]),
        Route("/{service}/bookings", book, methods=["POST"]),
        Route("/{service}/bookings/{booking}", show),
        Route("/{service}/bookings/{booking}/undo", cancel, methods=["POST"]),
        Route("/{rest:path}", elsewhere, methods=["POST"]),
    ]


def _busy(desk: Desk, request: Request, booking: str, busy_until: list[float]) -> Response:
    """The service is busy: report it once, and label a request that comes back before the stated time."""
    told = bool(busy_until)
    if not told:
        busy_until.append(desk.now() + desk.given["busy_for"])
    left = round(busy_until[0] - desk.now(), 3)
    headers, body = {"Retry-After": f"{left:g}"}, {"error": "busy"}
    if told:
        return desk.refuse(
            request, "BACKOFF_VIOLATION", body, status=503, resource=booking, headers=headers, early_by_seconds=left
        )
    return desk.answer(request, "BUSY", body, status=503, resource=booking, headers=headers)
