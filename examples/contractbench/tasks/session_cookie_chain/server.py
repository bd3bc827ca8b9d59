"""Cookies (RFC 6265) in a chain: each step of a checkout replaces the session cookie, and the last one needs a second cookie.

A session that nobody uses ends. A cookie's value is signed and holds escapes, as Express writes it; it is opaque to clients.
"""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, fields

STEP_S = 2.0
STEPS = ("login", "cart", "address", "quote", "order")


def parameters(rng: Random) -> dict[str, Any]:
    """A customer, what to order and where to; how long an idle session lasts."""
    first, last = (
        rng.choice(["dana", "milo", "ines", "tariq", "lotte"]),
        rng.choice(["ortiz", "weber", "okafor", "silva", "kim"]),
    )
    words = rng.sample(["maple", "otter", "copper", "lantern", "violet", "harbor"], 3)
    return {
        "username": f"{first}_{last}",
        "password": "-".join([*words, str(rng.randint(10, 99))]),
        "article": f"SKU-{rng.randint(1000, 9999)}",
        "quantity": rng.randint(2, 9),
        "street": f"{rng.choice(['Mill Lane', 'High Street', 'Quay Road'])} {rng.randint(1, 80)}",
        "idle": rng.randint(10, 14),
        "cents": rng.randint(1200, 9900),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    total = f"{given['cents'] * given['quantity'] // 100}.{given['cents'] * given['quantity'] % 100:02d}"
    done: list[str] = []

    def set_cookie(name: str, path: str, ttl: int) -> dict[str, str]:
        value = f"s%3A{desk.token(24)}."
        value = desk.issue(name, f"{value}{desk.sign(value)}%2B{desk.token(6)}%3D", ttl)
        return {"Set-Cookie": f"{name}={value}; Max-Age={ttl}; Path={path}; HttpOnly; SameSite=Lax"}

    def refused(request: Request, step: str, *problems: str) -> Response | None:
        """The refusal of a request whose cookies or whose place in the chain are not right."""
        label, detail = desk.check("session", request.cookies.get("session"), latest=True)
        if not label and STEPS.index(step) > len(done):
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": f"{STEPS[len(done)]} comes first"}, status=409, resource=step
            )
        second = desk.check("checkout", request.cookies.get("checkout"), latest=True)[0] if step == "order" else ""
        worst = most_severe(item for item in (label, second, *problems) if item)
        if worst == "SUCCESS":
            return None
        body = {
            "error": "the session has ended, sign in again" if worst == "EXPIRED_BEFORE_USE" else "the request was not accepted"
        }
        return desk.refuse(request, worst, body, status=401 if label or second else 422, resource=step, **detail)

    def passed(request: Request, step: str, body: object, headers: dict[str, str], customer: str = "") -> Response:
        if step not in done:
            done.append(step)
        headers = {**headers, "Cache-Control": "no-store"}
        return desk.answer(request, step.upper(), body, headers=headers, resource=step, customer=customer)

    async def login(request: Request) -> Response:
        said = await fields(request)
        if problems := _wrong(said, username=given["username"], password=given["password"]):
            return desk.refuse(
                request, most_severe(problems), {"error": "user name or password is wrong"}, status=401, resource="login"
            )
        done.clear()
        cookie = set_cookie("session", "/", given["idle"])
        return passed(request, "login", {"signed_in": True}, cookie, customer=given["username"])

    async def cart(request: Request) -> Response:
        said = await fields(request)
        if response := refused(request, "cart", *_wrong(said, article=given["article"], quantity=given["quantity"])):
            return response
        await desk.work(STEP_S)
        return passed(request, "cart", {"lines": 1}, set_cookie("session", "/", given["idle"]))

    async def address(request: Request) -> Response:
        said = await fields(request)
        if response := refused(request, "address", *_wrong(said, street=given["street"])):
            return response
        await desk.work(STEP_S)
        return passed(request, "address", {"deliverable": True}, set_cookie("session", "/", given["idle"]))

    async def quote(request: Request) -> Response:
        if response := refused(request, "quote"):
            return response
        await desk.work(STEP_S)
        return passed(request, "quote", {"total": total, "currency": "EUR"}, set_cookie("checkout", "/order", given["idle"]))

    async def order(request: Request) -> Response:
        if response := refused(request, "order", *_wrong(await fields(request), total=total)):
            return response
        return passed(request, "order", {"order": f"A-{desk.token(6)}", "total": total}, {})

    return [
        Route("/login", login, methods=["POST"]),
        Route("/cart", cart, methods=["PUT"]),
        Route("/address", address, methods=["PUT"]),
        Route("/quote", quote),
        Route("/order", order, methods=["POST"]),
    ]


def _wrong(said: dict[str, Any], **right: object) -> list[str]:
    """A label for each field that is absent or not what was asked for."""
    return ["MISSING_CONSTRAINT" if said.get(name) in (None, "") else "WRONG_VALUE" for name, value in right.items()
            if said.get(name) != value]  # fmt: skip
