"""Presigned URLs in the manner of S3 (SigV4 query authentication): a deadline and a signature in the query."""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

DOWNLOAD_S = 8.0


def parameters(rng: Random) -> dict[str, Any]:
    """Three files; the shortest time to live is never listed first."""
    names = rng.sample(["ledger", "orders", "payroll", "inventory", "returns", "audit"], 3)
    shortest, middle = rng.randint(10, 13), rng.randint(25, 32)
    return {"files": [[names[0], 60], [names[1], middle], [names[2], shortest]]}


def routes(desk: Desk) -> list[Route]:
    listed: list[dict[str, str]] = []

    async def exports(request: Request) -> Response:
        if not listed:
            for name, ttl in desk.given["files"]:
                path = f"/files/{name}.csv?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires={ttl}&X-Amz-Date={desk.now():g}"
                url = desk.issue(name, f"{request.base_url}{path[1:]}&X-Amz-Signature={desk.sign(path)}", ttl)
                desk.issue("file", url, ttl)
                listed.append({"name": name, "url": url})
        return desk.answer(request, "LISTED", {"files": listed}, holds={name: name for name, _ in desk.given["files"]})

    async def download(request: Request) -> Response:
        name = str(request.path_params.get("file", "")).removesuffix(".csv")
        label, detail = desk.check(name if name in desk.issued else "file", exact_url(request))
        if label in ("WRONG_VALUE", "MISSING_TOKEN") and "file" not in request.path_params:
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        if label == "EXPIRED_BEFORE_USE":
            return desk.refuse(request, label, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
                               status=403, resource=name, **detail)  # fmt: skip
        if label:
            return desk.refuse(request, label, "<Error><Code>SignatureDoesNotMatch</Code></Error>", status=403, resource=name,
                               **detail)  # fmt: skip
        await desk.work(DOWNLOAD_S)
        return desk.answer(request, "DOWNLOADED", f"{name},1\n", resource=name, media_type="text/csv")

    async def receipts(request: Request) -> Response:
        files = (await fields(request)).get("files")
        wanted = sorted(name for name, _ in desk.given["files"])
        if not isinstance(files, list) or len(files) < len(wanted):
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "files are missing"}, status=422)
        if sorted(map(str, files)) != wanted:
            return desk.refuse(request, "WRONG_VALUE", {"error": "not the files of this export"}, status=422)
        return desk.answer(request, "RECEIPT", {"ok": True}, status=201)

    return [
        Route("/exports", exports),
        Route("/files/{file}", download),
        Route("/receipts", receipts, methods=["POST"]),
        Route("/{damaged:path}", download),
    ]
