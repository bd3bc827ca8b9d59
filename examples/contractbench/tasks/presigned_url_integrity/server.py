"""An S3 presigned URL as SigV4 makes it, with 256 characters of query (seed 003, appendix H), and a receipt with a digest."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from hashlib import md5, sha256
from random import Random
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

QUERY = 256
"""Characters in the query of the presigned URL."""
REGION = "auto"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When an episode begins, on the store's clock."""
KEY_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def parameters(rng: Random) -> dict[str, Any]:
    """The object, how long its restoration takes, and how long its URL holds."""
    year, name = rng.choice(["2023", "2024", "2025"]), rng.choice(["ledger", "orders", "payroll", "returns"])
    return {
        "key": f"{year}/{name}-{rng.randint(10, 99)}.csv",
        "rows": [[rng.randint(1000, 9999), rng.randint(1, 99_999)] for _ in range(rng.randint(3, 9))],
        "restore": rng.randint(8, 16),
        "ttl": rng.randint(20, 40),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    content = "id,amount\r\n" + "".join(f"{row},{cents // 100}.{cents % 100:02d}\r\n" for row, cents in given["rows"])
    etag = md5(content.encode(), usedforsecurity=False).hexdigest()
    secret = desk.token(40)
    ready: list[float] = []

    async def presign(request: Request) -> Response:
        sent = await fields(request)
        if not sent.get("key"):
            return desk.refuse(request, "MISSING_CONSTRAINT", {"code": "MissingParameter", "parameter": "key"}, status=400)
        if sent["key"] != given["key"]:
            return desk.refuse(request, "WRONG_VALUE", {"code": "NoSuchKey"}, status=404, resource=str(sent["key"]))
        left = ready[0] - desk.now() if ready else float(given["restore"])
        if left > 0:
            asks, body = {"Retry-After": f"{left:g}"}, {"code": "RestoreInProgress", "key": given["key"]}
            if ready:
                return desk.refuse(request, "BACKOFF_VIOLATION", body, status=503, resource=given["key"], headers=asks)
            ready.append(desk.now() + left)
            return desk.answer(request, "RESTORING", body, status=202, resource=given["key"], headers=asks)
        at = BEGIN + timedelta(seconds=int(desk.now()))
        origin, key = f"{request.base_url}".rstrip("/"), _access_key(desk, given["ttl"])
        url = presigned(
            origin, f"/archive/{given['key']}", at=at, expires=given["ttl"], region=REGION, access_key=key, secret=secret
        )  # fmt: skip
        body = {"key": given["key"], "url": desk.issue("url", url, given["ttl"])}
        return desk.answer(request, "PRESIGNED", body, resource=given["key"], holds={"url": "url"})

    async def download(request: Request) -> Response:
        label, detail = desk.check("url", exact_url(request) if request.url.query else None)
        if not label:
            return desk.answer(request, "DOWNLOADED", content, resource=given["key"], media_type="text/csv",
                               headers={"ETag": f'"{etag}"'})  # fmt: skip
        code, said = "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
        if label == "EXPIRED_BEFORE_USE":
            code, said = "AccessDenied", "Request has expired"
        elif label == "MISSING_TOKEN":
            code, said = "AccessDenied", "Access Denied"
        if label in ("WRONG_VALUE", "MISSING_TOKEN") and not request.url.path.startswith("/archive/"):
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{said}</Message></Error>'
        return desk.refuse(request, label, body, status=403, resource="url", **detail)

    async def receipts(request: Request) -> Response:
        sent = await fields(request)
        if missing := [name for name in ("key", "sha256") if not sent.get(name)]:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"code": "MissingParameter", "parameter": missing[0]}, status=400)
        if str(sent["sha256"]).lower() != sha256(content.encode()).hexdigest():
            said = {"code": "BadDigest", "message": "The digest is not that of the object."}
            return desk.refuse(request, "WRONG_HASH", said, status=400, resource=given["key"])
        if sent["key"] != given["key"]:
            return desk.refuse(request, "WRONG_VALUE", {"code": "NoSuchKey"}, status=404, resource=str(sent["key"]))
        return desk.answer(request, "RECEIPT", {"key": given["key"], "status": "complete"}, status=201)

    return [
        Route("/presign", presign, methods=["POST"]),
        Route("/archive/{key:path}", download),
        Route("/receipts", receipts, methods=["POST"]),
        Route("/{damaged:path}", download),
    ]


def presigned(
    origin: str, path: str, *, at: datetime, expires: int, region: str, access_key: str, secret: str, method: str = "GET"
) -> str:
    """A URL with SigV4 in its query (AWS, "Authenticating Requests: Using Query Parameters"), payload unsigned.

    origin: scheme and host. path: begins with "/", no escapes. at: when it is issued, UTC. expires: seconds.
    """
    stamp, day = f"{at:%Y%m%dT%H%M%SZ}", f"{at:%Y%m%d}"
    scope = f"{day}/{region}/s3/aws4_request"
    query = "&".join((
        "X-Amz-Algorithm=AWS4-HMAC-SHA256", f"X-Amz-Credential={quote(f'{access_key}/{scope}', safe='')}",
        f"X-Amz-Date={stamp}", f"X-Amz-Expires={expires}", "X-Amz-SignedHeaders=host",
    ))  # fmt: skip
    host = origin.split("://")[-1]
    canonical = f"{method}\n{quote(path)}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{origin}{quote(path)}?{query}&X-Amz-Signature={hmac.digest(key, to_sign.encode(), 'sha256').hex()}"


def _access_key(desk: Desk, expires: int) -> str:
    """An access key id that fills the query up to its length."""
    bare = presigned("http://host", "/", at=BEGIN, expires=expires, region=REGION, access_key="", secret="")
    return desk.token(QUERY - len(bare.split("?")[1]), KEY_LETTERS)
