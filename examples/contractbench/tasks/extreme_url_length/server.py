"""Pages behind URLs of one to eight kilobytes, signed and full of percent-escapes (RFC 3986, 6; RFC 9110, 4.1)."""

from __future__ import annotations

import base64
from random import Random
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields


def parameters(rng: Random) -> dict[str, Any]:
    """What the report is about, and how many characters the URL of each page has."""
    lengths = [rng.randint(*bounds) for bounds in ((900, 1200), (2500, 3500), (6500, 8000))]
    return {
        "pages": len(lengths),
        "report": f"rep-{rng.randint(1000, 9999)}",
        "filter": f"region in ('{rng.choice(['north', 'south', 'coast'])}', 'all') & total >= {rng.randint(10, 99)}/100",
        "lengths": lengths,
        "codes": [f"{rng.choice('KLMNP')}{rng.randint(100, 999)}-{rng.choice('QRSTV')}{rng.randint(10, 99)}" for _ in lengths],
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    pages: dict[str, int] = {}

    def issue(request: Request, page: int) -> str | None:
        """The URL of a page, the same whenever it is asked for."""
        if page == given["pages"]:
            return None
        known = next((url for url, at in pages.items() if at == page), None)
        if known is None:
            known = _url(desk, f"{request.base_url}", page)
            pages[desk.issue(f"page_{page + 1}", known)] = page
        return known

    async def latest(request: Request) -> Response:
        return desk.answer(request, "REPORT", {"id": given["report"], "pages": given["pages"], "first": issue(request, 0)})

    async def page(request: Request) -> Response:
        url = exact_url(request)
        if url in pages:
            at = pages[url]
            body = {"page": at + 1, "code": given["codes"][at], "next": issue(request, at + 1)}
            return desk.answer(request, "PAGE", body, resource=f"page_{at + 1}")
        meant = f"page_{request.query_params.get('page', '1')}"
        label, detail = desk.check(meant if meant in desk.issued else "page_1", url)
        if request.url.path != "/reports/page" and (label == "WRONG_VALUE" or not request.url.query):
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        return desk.refuse(
            request, label, {"error": "invalid signature"}, status=403, resource=meant, length=len(url), **detail
        )

    async def read(request: Request) -> Response:
        sent = (await fields(request)).get("codes")
        if not isinstance(sent, list) or len(sent) < given["pages"]:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "the codes of all pages are required"}, status=422)
        if sent != given["codes"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "the codes do not match"}, status=422)
        return desk.answer(request, "READ", {"id": given["report"], "status": "read"}, status=201)

    return [
        Route("/reports/latest", latest),
        Route("/reports/page", page),
        Route(f"/reports/{given['report']}/read", read, methods=["POST"]),
        Route("/{damaged:path}", page),
    ]


def _url(desk: Desk, base: str, page: int) -> str:
    """A URL as long as the instance says: filter, page, state of the query in escaped base64, signature over all of it."""
    given = desk.given
    start = f"{base}reports/page?report={given['report']}&page={page + 1}&filter={quote(given['filter'], safe='')}&state="
    left = given["lengths"][page] - len(start) - len("&sig=") - 64
    state = quote(base64.b64encode(desk.rng.randbytes(left)).decode(), safe="")[: left - 3].rstrip("%").removesuffix("%2")
    unsigned = start + state + desk.token(left - len(state))
    return f"{unsigned}&sig={desk.sign(unsigned)}"
