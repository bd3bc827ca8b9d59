"""A form with a synchronizer token of its own (OWASP, CSRF prevention), a session cookie, hidden fields, escaped values."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, fields

COOKIE = "_shop_session"
FORM = "application/x-www-form-urlencoded"
TRAP = "website"
"""A field that people do not see and that stays empty; who fills it in is taken for a robot."""


def parameters(rng: Random) -> dict[str, Any]:
    """Who the account belongs to, what the form has in it, and which of the page's forms comes first."""
    first, last = rng.choice(["Ana", "Bruno", "Chidi", "Dana", "Emil"]), rng.choice(["Ortiz", "Keller", "Okafor", "Lind"])
    return {
        "display_name": f"{first} {last}-{rng.choice(['Voss', 'Marsh', 'Ito'])}",
        "email": f"{first}.{last}+{rng.choice(['shop', 'orders', 'news'])}{rng.randint(10, 99)}@mail.example".lower(),
        "former": f"{first}@old.example".lower(),
        "lock_version": str(rng.randint(3, 40)),
        "return_to": f"/settings?tab=contact&from={rng.choice(['mail', 'menu', 'banner'])}",
        "contact_first": rng.random() < 0.5,
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    kept = {"_method": "patch", "return_to": given["return_to"], "lock_version": given["lock_version"]}
    wanted = {**kept, "display_name": given["display_name"], "email": given["email"]}

    def masked() -> str:
        """A token as Rails makes them: a pad and the masked secret, in base64."""
        return base64.b64encode(desk.rng.randbytes(64)).decode()

    async def settings(request: Request) -> Response:
        contact = _form("contact", "Contact details", [
            *_hidden({"_method": "patch", "authenticity_token": desk.issue("contact", masked())}),
            *_hidden({"return_to": given["return_to"]}),
            *_visible({"display_name": "Customer", "email": given["former"]}),
            f'<label style="display:none">Leave this empty <input type="text" name="{TRAP}" value=""></label>',
            *_hidden({"lock_version": given["lock_version"]}),
        ])  # fmt: skip
        letter = _form("newsletter", "Newsletter", [
            *_hidden({"_method": "patch", "authenticity_token": desk.issue("newsletter", masked())}),
            *_visible({"frequency": "weekly"}),
        ])  # fmt: skip
        forms = [contact, letter] if given["contact_first"] else [letter, contact]
        session = desk.issue("session", desk.token(44))
        return desk.answer(
            request, "PAGE", "<!doctype html>\n<title>Settings</title>\n" + "\n".join(forms) + "\n", media_type="text/html",
            headers={"Set-Cookie": f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax"},
        )  # fmt: skip

    def token_label(submitted: str | None) -> str:
        if submitted and submitted in [item.value for item in desk.issued.get("newsletter", [])]:
            return "WRONG_VALUE"
        return desk.check("contact", submitted)[0]

    async def contact(request: Request) -> Response:
        as_form = request.headers.get("content-type", "").split(";")[0].strip().lower() == FORM
        sent = {name: value for name, value in (await fields(request)).items() if isinstance(value, str)}
        missing = [name for name in wanted if not sent.get(name)]
        wrong = [name for name, value in wanted.items() if (sent.get(name) or value) != value] + [TRAP] * bool(sent.get(TRAP))
        found = [
            ("" if as_form else "MISSING_CONSTRAINT", "content-type", 415, "unsupported media type"),
            (desk.check("session", request.cookies.get(COOKIE))[0], "session", 401, "Please sign in"),
            (token_label(sent.get("authenticity_token")), "authenticity_token", 422, "InvalidAuthenticityToken"),
            *(("MISSING_CONSTRAINT", name, 400, f"param is missing: {name}") for name in missing),
            *(("WRONG_VALUE", name, 422, f"{name} is not valid") for name in wrong),
        ]
        broken = [item for item in found if item[0]]
        if not broken:
            return desk.answer(request, "SAVED", "", status=303, headers={"Location": given["return_to"]}, email=sent["email"])
        worst = most_severe(label for label, *_ in broken)
        label, place, status, said = next(item for item in broken if most_severe([item[0]]) == worst)
        page = f"<h1>The change was rejected</h1><p>{said}</p>"
        return desk.refuse(request, label, page, status=status, resource=place, places=[item[1] for item in broken])

    async def newsletter(request: Request) -> Response:
        return desk.refuse(request, "WRONG_VALUE", "<h1>Please check the form</h1>", status=422, resource="newsletter")

    return [
        Route("/settings", settings),
        Route("/settings/contact", contact, methods=["POST"]),
        Route("/settings/newsletter", newsletter, methods=["POST"]),
    ]


def _form(name: str, title: str, inputs: Iterable[str]) -> str:
    lines = [f'<form id="{name}" action="/settings/{name}" method="post">', f"<h2>{title}</h2>", *inputs]
    return "\n  ".join(lines) + '\n  <button type="submit">Save</button>\n</form>'


def _hidden(values: dict[str, str]) -> list[str]:
    return [f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in values.items()]


def _visible(values: dict[str, str]) -> list[str]:
    return [f'<input type="text" name="{name}" value="{html.escape(value)}">' for name, value in values.items()]
