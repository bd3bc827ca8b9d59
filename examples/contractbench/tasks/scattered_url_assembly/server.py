"""A signed URL in the manner of CloudFront's custom policies, whose parts are made by services of their own."""

from __future__ import annotations

import json
from base64 import b64encode
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, damage, exact_url

PARTS = ("path", "Policy", "Signature", "Key-Pair-Id")
"""In the order of their positions in the URL."""
ERRORS = {
    "EXPIRED_BEFORE_USE": "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
    "MISSING_CONSTRAINT": "<Error><Code>MissingKey</Code><Message>Missing query parameter</Message></Error>",
}


def parameters(rng: Random) -> dict[str, Any]:
    """The signature holds for less time than the policy takes to make, and is listed before it."""
    folder, name = rng.choice(["spring sale", "autumn line", "winter range"]), rng.choice(["hero", "banner", "cover", "teaser"])
    others = rng.sample(["path", "Key-Pair-Id"], 2)
    listed = rng.choice([["Signature", "Policy", *others], ["Signature", others[0], "Policy", others[1]]])
    render = {"path": rng.randint(1, 2), "Policy": rng.randint(13, 16), "Signature": rng.randint(1, 3), "Key-Pair-Id": 1}
    holds = {"path": 600, "Policy": rng.randint(60, 90), "Signature": rng.randint(8, 12), "Key-Pair-Id": 600}
    return {
        "asset": f"{name}-{rng.randint(100, 999)}", "listed": listed, "render": render, "holds": holds,
        "path": f"/media/{rng.randint(2021, 2026)}%2F{folder.replace(' ', '%20')}/{name}_{rng.randint(1, 9)}%2B.tif",
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given

    async def manifest(request: Request) -> Response:
        parts = [
            {"position": PARTS.index(name) + 1, "name": name, "href": f"{request.base_url}parts/{given['asset']}/{name}",
             "render_seconds": given["render"][name], "max_age": given["holds"][name]}
            for name in given["listed"]
        ]  # fmt: skip
        return desk.answer(request, "LISTED", {"asset": given["asset"], "parts": parts})

    async def part(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in PARTS or request.path_params["asset"] != given["asset"]:
            return desk.answer(request, "NO_ROUTE", {"error": "no such part"}, status=404)
        await desk.work(given["render"][name])
        text = desk.issue(name, _made(desk, name), given["holds"][name])
        body = {"name": name, "text": text, "max_age": given["holds"][name]}
        return desk.answer(request, "PART", body, resource=name, holds={"text": name})

    async def media(request: Request) -> Response:
        label, detail = _judged(desk, request)
        if label:
            said = ERRORS.get(label, "<Error><Code>AccessDenied</Code><Message>Access denied</Message></Error>")
            return desk.refuse(request, label, said, status=403, resource=given["asset"], **detail)
        return desk.answer(request, "DOWNLOADED", f"TIFF {given['asset']}\n", resource=given["asset"], media_type="image/tiff")

    return [
        Route("/assets/{asset}", manifest),
        Route("/parts/{asset}/{name}", part),
        Route("/media/{rest:path}", media),
    ]


def _made(desk: Desk, name: str) -> str:
    """The text of a part. The policy and its signature are new each time."""
    if name == "path":
        return str(desk.given["path"])
    if name == "Key-Pair-Id":
        return "Key-Pair-Id=" + desk.sign("key pair")[:20].upper()
    resource = f"{desk.given['path']}?nonce={desk.token(24)}"
    until = {"DateLessThan": {"AWS:EpochTime": round(desk.now())}, "IpAddress": {"AWS:SourceIp": "203.0.113.0/24"}}
    policy = json.dumps({"Statement": [{"Resource": resource, "Condition": until}]})
    plain = policy.encode() if name == "Policy" else bytes.fromhex("".join(desk.sign(f"{policy}/{turn}") for turn in range(4)))
    return f"{name}=" + b64encode(plain).decode().translate(str.maketrans("+=/", "-_~"))


def _judged(desk: Desk, request: Request) -> tuple[str, dict[str, Any]]:
    """(label, detail) of an assembled URL: parts that are over first, then parts left out, then damage to the whole."""
    url = exact_url(request)
    place, _, query = url.removeprefix(str(request.base_url).rstrip("/")).partition("?")
    found = {"path": place, **{item.partition("=")[0]: item for item in query.split("&") if item.partition("=")[0] in PARTS}}
    over = [judged for name in PARTS if name in found for judged in [desk.check(name, found[name])] if _is_over(judged)]
    if over:
        return over[0]
    if any(name not in desk.issued for name in PARTS):
        return "MISSING_CONSTRAINT", {}
    used = [_meant(desk, name, found.get(name, "")) for name in PARTS]
    whole = f"{str(request.base_url).rstrip('/')}{used[0]}?{'&'.join(used[1:])}"
    if url == whole:
        return "", {}
    label = damage(whole, url)
    clipped = label == "TOOL_INPUT_TOO_LONG" and whole[len(url)] not in "?&"  # within a part, not between two
    left_out = any(name not in found for name in PARTS)
    return ("MISSING_CONSTRAINT" if left_out and not clipped else label), {}


def _is_over(judged: tuple[str, dict[str, Any]]) -> bool:
    return judged[0] == "EXPIRED_BEFORE_USE"


def _meant(desk: Desk, name: str, submitted: str) -> str:
    """The issued text that a part of the URL is held against: itself, or the one issued last."""
    values = [item.value for item in desk.issued[name]]
    return submitted if submitted in values else values[-1]
