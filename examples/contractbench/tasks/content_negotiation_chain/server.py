"""Content negotiation (RFC 9110, 12 and 13): each representation names the media type of the next one; If-Match guards."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

Media = tuple[str, frozenset[tuple[str, str]]]
"""A media type in lower case, and its parameters but for q."""


def parameters(rng: Random) -> dict[str, Any]:
    language, other = rng.sample(["en", "de", "fr", "pt"], 2)
    family, version = rng.choice(["tariff", "contract", "policy"]), rng.randint(2, 6)
    return {
        "document": f"{family}-{rng.randint(100, 999)}", "language": language, "other": other, "version": version,
        "kind": f"application/vnd.acme.{family}+json", "field": rng.choice(["owner", "remark", "contact"]),
        "value": f"{rng.choice(['north', 'south', 'east', 'west'])} desk {rng.randint(1, 40)}",
        "profile": f"urn:acme:{family}_rules:{rng.randint(2020, 2026)}-{rng.randint(10, 12)}",
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    editable = f'{given["kind"]}; version={given["version"]}; profile="{given["profile"]}"'
    schema = f'application/schema+json; profile="{given["profile"]}"'
    amendment = f'application/merge-patch+json; profile="{given["profile"]}"'
    alternates = [
        {"type": "text/html; charset=utf-8", "language": given["language"], "editable": False},
        {"type": editable, "language": given["other"], "editable": True},
        {"type": editable, "language": given["language"], "editable": True},
        {"type": f"{given['kind']}; version={given['version'] - 1}", "language": given["language"], "editable": False},
    ]
    content = {"title": given["document"], given["field"]: "", "revision": 1}
    state = {"seen": False, "edited": False}

    def tag() -> str:
        return f'"{content["revision"]}-{desk.sign(json.dumps(content))[:32].upper()}"'

    async def read(request: Request) -> Response:
        wanted = _ranges(request.headers.get("accept") or "*/*")
        spoken = [item.partition(";")[0].strip().lower() for item in (request.headers.get("accept-language") or "*").split(",")]
        if all("*" in kind for kind, _ in wanted):
            return desk.answer(
                request, "CHOICES", {"alternates": alternates}, status=300, headers={"Vary": "Accept, Accept-Language"}
            )
        fitting = [
            item for item in alternates if _media(str(item["type"])) in wanted and ("*" in spoken or item["language"] in spoken)
        ]
        if not fitting:
            return desk.refuse(request, "WRONG_VALUE", {"alternates": alternates}, status=406, resource="accept")
        chosen = fitting[0]
        headers = {"Vary": "Accept, Accept-Language", "Content-Language": str(chosen["language"])}
        if not chosen["editable"]:
            return desk.answer(request, "READ", f"{content}", headers=headers, media_type=str(chosen["type"]))
        state["seen"] = True
        body = {
            **content,
            "describedby": {"href": f"{request.base_url}schemas/{given['kind'].split('.')[-1]}", "accept": schema},
        }
        headers["ETag"] = desk.issue("etag", tag())
        return desk.answer(
            request, "REPRESENTATION", body, resource=str(chosen["language"]), headers=headers, media_type=editable
        )

    async def describe(request: Request) -> Response:
        wanted = _ranges(request.headers.get("accept") or "*/*")
        if all("*" in kind for kind, _ in wanted):
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": "say which media type you accept"}, status=406, resource="accept"
            )
        if _media(schema) not in wanted:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such representation"}, status=406, resource="accept")
        if state["seen"] and not state["edited"]:  # somebody else saves their work while we read
            content["revision"], state["edited"] = content["revision"] + 1, True
        body = {"required": ["title", given["field"]], "amendment": {"content_type": amendment}}
        return desk.answer(request, "SCHEMA", body, media_type=schema)

    async def amend(request: Request) -> Response:
        body, refusal = await request.body(), _precondition(desk, request, tag())
        if refusal is not None:
            return refusal
        if not (sent := request.headers.get("content-digest")):
            return desk.refuse(
                request, "MISSING_CONSTRAINT", {"error": "Content-Digest is required"}, status=400, resource="digest"
            )
        if sent.strip() != f"sha-256=:{b64encode(sha256(body).digest()).decode()}:":
            return desk.refuse(request, "WRONG_HASH", {"error": "Content-Digest does not match"}, status=400, resource="digest")
        if _media(request.headers.get("content-type", "")) != _media(amendment):
            headers = {"Accept-Patch": amendment}
            return desk.refuse(request, "WRONG_VALUE", {"error": "unsupported media type"}, status=415, resource="content-type",
                               headers=headers)  # fmt: skip
        said = await fields(request)
        if given["field"] not in said:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "nothing is amended"}, status=422, resource="field")
        if said[given["field"]] != given["value"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "this value is not allowed"}, status=422, resource="field")
        content.update({given["field"]: given["value"], "revision": content["revision"] + 1})
        return desk.answer(request, "AMENDED", content, headers={"ETag": desk.issue("etag", tag())}, media_type=editable)

    return [
        Route("/documents/{name}", read),
        Route("/schemas/{name}", describe),
        Route("/documents/{name}", amend, methods=["PATCH"]),
    ]


def _precondition(desk: Desk, request: Request, present: str) -> Response | None:
    """The refusal of an If-Match that is missing, damaged, or of an older version (RFC 9110, 13.1.1; RFC 6585, 428)."""
    submitted = request.headers.get("if-match", "").strip()
    if submitted in ("", "*"):
        return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "If-Match is required"}, status=428, resource="etag")
    if submitted == present:
        return None
    label, _ = desk.check("etag", submitted)
    return desk.refuse(request, label or "VERSION_CONFLICT", {"error": "precondition failed"}, status=412, resource="etag")


def _media(text: str) -> Media:
    """A media type as it is compared: type and parameter names without regard to case, quoted or not, in any order."""
    kind, *rest = text.split(";")
    pairs = (item.partition("=") for item in rest)
    return kind.strip().lower(), frozenset(
        (name.strip().lower(), value.strip().strip('"')) for name, _, value in pairs if name.strip()
    )


def _ranges(accept: str) -> list[Media]:
    """The media ranges of an Accept header that are wanted at all."""
    found = []
    for kind, parameters in map(_media, accept.split(",")):
        weight = dict(parameters).get("q", "1")
        if weight.strip("0."):
            found.append((kind, frozenset(pair for pair in parameters if pair[0] != "q")))
    return found or [("*/*", frozenset())]
