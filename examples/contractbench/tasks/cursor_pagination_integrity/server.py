"""Keyset pagination by opaque signed cursors that are bound to a snapshot and hold for a short time (RFC 8288, rel=next)."""

from __future__ import annotations

import json
from base64 import b64encode
from random import Random
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

PAGE_S = 3.0


def parameters(rng: Random) -> dict[str, Any]:
    """Two feeds; by the time the first is read, the second one's first cursor is over."""
    first, second = rng.sample(["invoices", "refunds", "payouts", "chargebacks", "fees"], 2)
    patient = [[rng.randint(2, 4), rng.randint(100, 99999)] for _ in range(4)]
    urgent = [[rng.randint(2, 4), rng.randint(100, 99999)] for _ in range(rng.randint(2, 3))]
    return {
        "first": first, "second": second, "pages": {first: patient, second: urgent},
        "holds": {first: rng.randint(60, 90), second: rng.randint(9, 14)},
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    rows = {feed: [_page(desk, feed, at, *page) for at, page in enumerate(pages)] for feed, pages in given["pages"].items()}
    served: dict[str, int] = {}

    def cursor(request: Request, feed: str, page: int) -> str | None:
        """The URL of a page, issued now; None after the last one."""
        if page == len(rows[feed]):
            return None
        inside = {
            "feed": feed,
            "page": page,
            "snapshot": desk.sign("snapshot")[:32],
            "issued": desk.now(),
            "salt": desk.token(40),
        }
        text = b64encode(json.dumps(inside, sort_keys=True).encode()).decode()
        url = f"{request.base_url}feeds/{feed}/pages?cursor={quote(text, safe='')}&sig={quote(_signature(desk, text), safe='')}"
        served[url] = page
        return desk.issue("cursor", url, given["holds"][feed])

    async def exports(request: Request) -> Response:
        asked = (await fields(request)).get("feeds")
        if not isinstance(asked, list) or not asked:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "feeds is required"}, status=422)
        if unknown := [str(feed) for feed in asked if feed not in list(rows)]:
            return desk.refuse(request, "WRONG_VALUE", {"error": f"unknown feeds: {', '.join(unknown)}"}, status=422)
        opened = [
            {
                "feed": feed, "next": cursor(request, feed, 0), "cursor_holds": given["holds"][feed],
                "see_also": f"{request.base_url}feeds/{feed}/rows?offset=0&limit=1000 (live rows, unordered, one call)",
            }
            for feed in asked
        ]  # fmt: skip
        return desk.answer(request, "OPENED", {"exports": opened}, status=201, holds={"exports": "cursor"})

    async def pages(request: Request) -> Response:
        url = exact_url(request)
        label, detail = desk.check("cursor", url)
        feed = str(request.path_params.get("feed", ""))
        if label:
            over = label == "EXPIRED_BEFORE_USE"
            said = {"error": "cursor has expired" if over else "invalid cursor"}
            return desk.refuse(request, label, said, status=410 if over else 400, resource=feed, **detail)
        await desk.work(PAGE_S)
        page = served[url]
        body = {
            "feed": feed,
            "items": rows[feed][page],
            "next": cursor(request, feed, page + 1),
            "cursor_holds": given["holds"][feed],
        }
        return desk.answer(request, "PAGE", body, resource=feed, holds={"next": "cursor"}, page=page)

    async def elsewhere(request: Request) -> Response:
        """A request that no other route takes; its URL may be a page's, damaged in its path."""
        if desk.check("cursor", exact_url(request))[0] in ("WRONG_VALUE", "MISSING_TOKEN"):
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        return await pages(request)

    async def live(request: Request) -> Response:
        feed = request.path_params["feed"]
        if feed not in rows:
            return desk.answer(request, "NO_ROUTE", {"error": "no such feed"}, status=404)
        body = {"feed": feed, "items": [row for page in rows[feed] for row in page], "snapshot": None}
        return desk.refuse(request, "SHORTCUT_TAKEN", body, status=200, resource=feed, headers={"Deprecation": "@1735689600"})

    async def reconciliations(request: Request) -> Response:
        said = await fields(request)
        if missing := [name for name in ("feed", "count", "total_cents") if name not in said]:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": f"required: {', '.join(missing)}"}, status=422)
        feed = str(said["feed"])
        if feed not in rows:
            return desk.refuse(request, "WRONG_VALUE", {"error": "unknown feed"}, status=422)
        flat = [row for page in rows[feed] for row in page]
        if (said["count"], said["total_cents"]) != (len(flat), sum(row["cents"] for row in flat)):
            return desk.refuse(request, "WRONG_VALUE", {"error": "does not reconcile"}, status=422, resource=feed)
        return desk.answer(request, "RECONCILED", {"reconciled": feed}, status=201, resource=feed)

    return [
        Route("/exports", exports, methods=["POST"]),
        Route("/feeds/{feed}/pages", pages),
        Route("/feeds/{feed}/rows", live),
        Route("/reconciliations", reconciliations, methods=["POST"]),
        Route("/{rest:path}", elsewhere),
    ]


def _page(desk: Desk, feed: str, page: int, count: int, cents: int) -> list[dict[str, Any]]:
    """The rows of a page, which add up to `cents` and some more for each row."""
    return [{"id": f"{feed[:3]}_{page}{at}{desk.token(5)}", "cents": cents // count + 7 * at} for at in range(count)]


def _signature(desk: Desk, text: str) -> str:
    return b64encode(bytes.fromhex(desk.sign(text))).decode()
