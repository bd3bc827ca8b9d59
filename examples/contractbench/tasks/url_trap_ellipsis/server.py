"""Capability links in a mail: what the page shows of a link is shorter than its href (a rendered label is no address)."""

from __future__ import annotations

import html
from random import Random
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

ELLIPSES = ("…", "...")


def parameters(rng: Random) -> dict[str, Any]:
    """The documents, how their links are shortened (in the middle or at the end, with which dots), and how long a key is."""
    names = rng.sample(["annual-report", "price-list", "lease", "minutes", "site-plan", "audit-letter"], rng.choice([2, 3]))
    return {
        "count": len(names),
        "documents": [[name, f"{rng.choice('BCDF')}-{rng.randint(1000, 9999)}/{name[0].upper()}"] for name in names],
        "dots": rng.choice(ELLIPSES),
        "middle": rng.random() < 0.5,
        "key": rng.randint(36, 44),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    references = dict(given["documents"])
    links: dict[str, str] = {}
    shown: list[str] = []

    async def mail(request: Request) -> Response:
        if not links:
            for name in references:
                query = f"v={desk.rng.randint(2, 9)}&k={desk.token(20)}%3D&dl=0"
                links[desk.issue("link", f"{request.base_url}d/{desk.token(given['key'])}/{name}.txt?{query}")] = name
            shown.extend(_shortened(link, given["dots"], middle=given["middle"]) for link in links)
        items = "\n".join(
            f'  <li><a href="{html.escape(link)}">{html.escape(text)}</a></li>' for link, text in zip(links, shown, strict=True)
        )
        body = f"<!doctype html>\n<p>Hello, here is what we talked about:</p>\n<ul>\n{items}\n</ul>\n"
        return desk.answer(request, "MAIL", body, media_type="text/html; charset=utf-8")

    async def document(request: Request) -> Response:
        url = exact_url(request)
        if url in links:
            name = links[url]
            text = f"{name.replace('-', ' ').title()}\n\nReference: {references[name]}\n"
            return desk.answer(request, "DOCUMENT", text, resource=name)
        label, detail = desk.check("link", url)
        if label == "WRONG_VALUE" and not request.url.path.startswith("/d/"):
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        if request.url.path.startswith("/d/") and _read_off(unquote(url), shown):
            return desk.refuse(request, "WRONG_VALUE", "No such document.", status=404, resource="link", submitted=url)
        return desk.refuse(request, label, "No such document.", status=404, resource="link", **detail)

    async def acknowledgements(request: Request) -> Response:
        sent = (await fields(request)).get("references")
        if not isinstance(sent, list) or len(sent) < len(references):
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "references of all documents are required"}, status=422,
                               resource="references")  # fmt: skip
        if sorted(map(str, sent)) != sorted(references.values()):
            return desk.refuse(request, "WRONG_VALUE", {"error": "a reference is not known"}, status=422, resource="references")
        return desk.answer(request, "ACKNOWLEDGED", {"acknowledged": len(sent)}, status=201)

    return [
        Route("/mail/latest", mail),
        Route("/d/{rest:path}", document),
        Route("/acknowledgements", acknowledgements, methods=["POST"]),
        Route("/{damaged:path}", document),
    ]


def _shortened(link: str, dots: str, *, middle: bool) -> str:
    """What a page shows of a link: its beginning, dots, and perhaps its end."""
    start = link.index("/d/") + 3
    return link[: start + 6] + dots + link[-12:] if middle else link[: start + 14] + dots


def _read_off(url: str, shown: list[str]) -> bool:
    """Whether a URL is made of what the page shows: it has the dots in it, or is a shown text with its dots left out."""
    return any(dots in url or url in (unquote(text.replace(dots, "")) for text in shown if dots in text) for dots in ELLIPSES)
