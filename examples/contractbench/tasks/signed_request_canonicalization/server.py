"""HTTP message signatures (RFC 9421) with a content digest (RFC 9530) and a server's nonce, in the manner of RFC 9449, 8."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from random import Random
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk

COVERED = ("@method", "@authority", "@path", "@query", "x-request-class")
OLDEST_S = 60
PARAMETERS = ("created", "keyid", "alg", "nonce")


def parameters(rng: Random) -> dict[str, Any]:
    """Names that need percent-encoding, the key, and how long a nonce holds: for two signed requests, not for three."""
    order = f"{rng.choice(['SO', 'PO'])}-{rng.randint(1000, 9999)}"
    place = quote(rng.choice(["Köln/Süd", "São José/2", "Århus/øst"]), safe="")
    note = quote(rng.choice(["a+b & c", "50% = half", "x/y?z"]), safe="")
    return {
        "keyid": f"client_{rng.randint(100, 999)}",
        "key": base64.b64encode(rng.randbytes(48)).decode(),
        "request_class": rng.choice(["settlement", "standard", "bulk"]),
        "order": order,
        "order_target": f"/orders/{order}?view=full&note={note}&empty=",
        "stock_target": f"/stock/{place}?order={order}&fields=sku%2Cqty&view=full",
        "release_target": f"/orders/{order}/release?from={place}&dry-run=false",
        "quantity": rng.randint(2, 60),
        "ttl": rng.randint(16, 19),
        "work": rng.choice([8, 9]),
    }


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    release = f'{{"order": "{given["order"]}",  "quantity":{given["quantity"]}.0, "token": "{desk.token(24)}"}}\n'

    def refused(request: Request, body: bytes, target: str) -> Response | None:
        label, said, detail = verify(request, body)
        if not label and _target(request) != target:  # well signed, but not what the order needs
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such resource"}, status=404, resource=request.url.path)
        if not label:
            return None
        missing = label in ("MISSING_CONSTRAINT", "MISSING_TOKEN")
        return desk.refuse(
            request, label, {"error": said}, status=400 if missing or label == "WRONG_HASH" else 401, resource=request.url.path,
            headers={"Accept-Signature": f"sig1=({' '.join(_quoted(_covered(body)))});created;keyid;alg;nonce"}, **detail,
        )  # fmt: skip

    def verify(request: Request, body: bytes) -> tuple[str, str, dict[str, Any]]:
        """(label, what the reply says, detail) of a signed request; RFC 9421, 3.2, then the digest, then the nonce."""
        if not request.headers.get("signature"):
            return "MISSING_TOKEN", "the request is not signed", {}
        components, params, line = parsed(request.headers.get("signature-input", ""))
        lacking = [f'"{name}"' for name in _covered(body) if name not in components]
        lacking += [name for name in PARAMETERS if name not in params]
        lacking += [name for name in ("x-request-class", *(["content-digest"] if body else [])) if name not in request.headers]
        if lacking:
            return "MISSING_CONSTRAINT", f"missing: {', '.join(lacking)}", {"missing": lacking}
        if params["keyid"] != given["keyid"] or params["alg"] != "hmac-sha256":
            return "WRONG_VALUE", "keyid or alg is not known", {"wrong": ["keyid", "alg"]}
        found = re.fullmatch(r"sig1=:([A-Za-z0-9+/=]*):", request.headers["signature"].strip())
        expected = sign(given["key"], signature_base(values(request, components), components, line))
        if found is None or not hmac.compare_digest(found[1], expected):
            return "SIGNATURE_MISMATCH", "the signature does not verify", {}
        if body and request.headers["content-digest"] != content_digest(body):
            return "WRONG_HASH", "the content digest is not that of the content", {}
        label, detail = desk.check("nonce", params["nonce"])
        if label:
            return label, "use another nonce", detail
        age = desk.now() - float(params["created"]) if re.fullmatch(r"\d{1,12}", params["created"]) else None
        if age is None or age < -1:
            return "WRONG_VALUE", "created is not a time of ours", {"wrong": ["created"]}
        if age > OLDEST_S:
            return "EXPIRED_BEFORE_USE", "the signature is too old", {"expired_by_seconds": round(age - OLDEST_S, 3)}
        if request.headers["x-request-class"] != given["request_class"]:
            return "WRONG_VALUE", "no such request class", {"wrong": ["x-request-class"]}
        return "", "", {}

    async def nonce(request: Request) -> Response:
        value = desk.issue("nonce", desk.token(22), given["ttl"])
        body = {"nonce": value, "now": int(desk.now()), "expires_in": given["ttl"]}
        return desk.answer(request, "NONCE", body, holds={"nonce": "nonce"}, headers={"Cache-Control": "no-store"})

    def signed(target: str, state: str, body: Mapping[str, Any]) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            if response := refused(request, await request.body(), target):
                return response
            await desk.work(given["work"])
            return desk.answer(request, state, body)

        return read

    async def released(request: Request) -> Response:
        body = await request.body()
        if not body:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "a release document is required"}, status=422)
        if response := refused(request, body, given["release_target"]):
            return response
        if body != release.encode():
            return desk.refuse(request, "WRONG_VALUE", {"error": "this is not the release document"}, status=422)
        return desk.answer(request, "RELEASED", {"order": given["order"], "status": "released"}, status=201)

    order = {"order": given["order"], "quantity": given["quantity"], "status": "open"}
    stock = {"available": given["quantity"] + 3, "release": release}
    return [
        Route("/nonce", nonce),
        Route("/orders/{order}", signed(given["order_target"], "ORDER", order)),
        Route("/stock/{place:path}", signed(given["stock_target"], "STOCK", stock)),
        Route("/orders/{order}/release", released, methods=["POST"]),
    ]


def parsed(header: str) -> tuple[tuple[str, ...], dict[str, str], str]:
    """(covered components, parameters, all of it as it stands) of the signature `sig1` in a Signature-Input header."""
    found = re.fullmatch(r"sig1=(\(([^()]*)\)((?:;[^;]+)*))", header.strip())
    if found is None:
        return (), {}, ""
    params = {name: value.strip('"') for name, value in re.findall(r';([a-z]+)=("[^"]*"|[^;]+)', found[3])}
    return tuple(re.findall(r'"([^"]+)"', found[2])), params, found[1]


def signature_base(values: Mapping[str, str], components: Iterable[str], line: str) -> str:
    """The signature base (RFC 9421, 2.5) over some components, in their order."""
    return "\n".join([*(f'"{name}": {values.get(name, "")}' for name in components), f'"@signature-params": {line}'])


def sign(key: str, base: str) -> str:
    """HMAC-SHA-256 of a signature base under a key in base64, as base64 (RFC 9421, 3.3.3)."""
    return base64.b64encode(hmac.digest(base64.b64decode(key), base.encode(), "sha256")).decode()


def content_digest(body: bytes) -> str:
    """The Content-Digest field of a body (RFC 9530, 2)."""
    return f"sha-256=:{base64.b64encode(sha256(body).digest()).decode()}:"


def values(request: Request, components: Iterable[str]) -> dict[str, str]:
    """The values of components of a request (RFC 9421, 2.1 and 2.2), as it came."""
    path, _, query = _target(request).partition("?")
    derived = {"@method": request.method, "@authority": request.headers["host"].lower(), "@path": path, "@query": f"?{query}"}
    return {name: derived.get(name, ", ".join(map(str.strip, request.headers.getlist(name)))) for name in components}


def _target(request: Request) -> str:
    """Path and query byte by byte."""
    path = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope["query_string"]
    return path.decode("latin-1") + ("?" + query.decode("latin-1") if query else "")


def _covered(body: bytes) -> tuple[str, ...]:
    return (*COVERED, "content-digest") if body else COVERED


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
