"""One request, a dozen rules at once: session, class, digest, signature, forms of values. Each rule comes from a real protocol.

Prefer is RFC 7240, the digest is in the manner of RFC 9530 and SigV4 (hexadecimal), the signature in the manner of SigV4.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import most_severe

from ...desk import Desk, fields

FIELDS = ("amount", "currency", "payee", "reason_code", "reference", "schema")


def parameters(rng: Random) -> dict[str, Any]:
    """Values of the rules, the order in which they are listed, the items, and how long a session holds: for two of them."""
    payees = rng.sample(["Nord Paper-Works", "Blue_Harbour Ltd", "Orchard Sons", "Kiln-and-Clay", "Tern  Logistics"], 3)
    return {
        "client": f"cl-{rng.randint(100, 999)}",
        "signing_key": "".join(rng.choice("abcdefghkmnpqrstuvwxyz23456789") for _ in range(32)),
        "version": f"2026-{rng.randint(1, 12):02d}.r{rng.randint(2, 9)}",
        "region": rng.choice(["eu-central", "ap-south", "sa-east"]),
        "lane": rng.choice(["batch", "express", "night"]),
        "schema": f"settle/{rng.randint(2, 7)}",
        "reason": rng.choice(["INV", "REFUND", "FEE"]),
        "batch": f"b{rng.randint(1000, 9999)}",
        "items": [
            {
                "item": at,
                "payee": payee,
                "amount_minor": rng.randint(10, 9000) * 100,
                "currency": rng.choice(["eur", "sek", "pln"]),
            }
            for at, payee in enumerate(payees, 1)
        ],
        "listed": rng.sample(range(12), 12),
        "ttl": rng.randint(15, 19),
        "work": rng.choice([8, 9]),
    }


def rules(given: Mapping[str, Any]) -> list[str]:
    """The protocol in words, one rule a line."""
    return [
        f"Send the header `X-Protocol-Version: {given['version']}`.",
        f"Send the header `X-Client-Region: {given['region']}`.",
        f"Send the header `X-Lane: {given['lane']}`.",
        "Send the header `Prefer: return=minimal`.",
        "Send the header `X-Correlation-Id: <batch>-<item>`, with the id of the batch and the number of the item.",
        "Send the session in the header `X-Session`.",
        "Send the header `X-Content-SHA256`: the SHA-256 digest of the body as it is sent, in hexadecimal.",
        "Send the header `X-Signature`: the HMAC-SHA256, in hexadecimal, of `<version>\\n<correlation id>\\n<digest>` under"
        " your signing key, the digest as it stands in its header.",
        "The body is a JSON object; its `amount` is a string with two decimals, made from `amount_minor` (hundredths).",
        "Give the `currency` in upper case, and the `payee` character by character as it is listed.",
        f"Give `reason_code` as `{given['reason']}` and `schema` as `{given['schema']}`.",
        "Give `reference` as `<batch>/<item>`. The body has no other fields than the ones named.",
    ]


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    items = {f"{given['batch']}-{item['item']}": item for item in given["items"]}
    fixed = {
        "x-protocol-version": given["version"],
        "x-client-region": given["region"],
        "x-lane": given["lane"],
        "prefer": "return=minimal",
    }
    settled: set[str] = set()

    async def protocol(request: Request) -> Response:
        listed = rules(given)
        return desk.answer(request, "PROTOCOL", {"rules": [listed[at] for at in given["listed"]]})

    async def batch(request: Request) -> Response:
        return desk.answer(request, "BATCH", {"batch": given["batch"], "items": given["items"]})

    async def sessions(request: Request) -> Response:
        sent = await fields(request)
        if not sent.get("client"):
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "client is required"}, status=422)
        if sent["client"] != given["client"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such client"}, status=422)
        body = {"session": desk.issue("session", desk.token(40), given["ttl"]), "expires_in": given["ttl"]}
        return desk.answer(request, "SESSION", body, status=201, holds={"session": "session"})

    async def settlements(request: Request) -> Response:
        body, correlation = await request.body(), request.headers.get("x-correlation-id", "")
        session, detail = desk.check("session", request.headers.get("x-session"))
        found = [(session, "x-session")] if session else []
        found += _broken(request.headers, fixed, items, correlation)
        found += _content(_object(body), given, items.get(correlation))
        if correlation:
            found += _sealed(request.headers, body, f"{given['version']}\n{correlation}", given["signing_key"])
        if found:
            label = most_severe(name for name, _ in found)
            said = {"error": "rules are broken", "concerns": [what for _, what in found]}
            status, broken = 401 if session else 422, [list(item) for item in found]
            return desk.refuse(request, label, said, status=status, resource=correlation, broken=broken, **detail)
        if correlation in settled:
            return desk.answer(request, "KNOWN", {"error": "taken already"}, status=409, resource=correlation)
        settled.add(correlation)
        await desk.work(given["work"])
        return desk.answer(request, "SETTLED", {"settlement": correlation}, status=201, resource=correlation)

    return [
        Route("/protocol", protocol),
        Route("/batch", batch),
        Route("/sessions", sessions, methods=["POST"]),
        Route("/settlements", settlements, methods=["POST"]),
    ]


def _broken(
    headers: Mapping[str, str], fixed: Mapping[str, str], items: Mapping[str, object], correlation: str
) -> list[tuple[str, str]]:
    """(label, what it concerns) of the headers whose values are in the rules."""
    found = [("MISSING_CONSTRAINT", name) for name in (*fixed, "x-correlation-id") if not headers.get(name)]
    found += [("WRONG_VALUE", name) for name, value in fixed.items() if headers.get(name) not in (None, "", value)]
    return found + [("WRONG_VALUE", "x-correlation-id")] * (bool(correlation) and correlation not in items)


def _content(sent: Mapping[str, Any], given: Mapping[str, Any], item: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(label, what it concerns) of the fields of a body. Without an item, only what belongs to none is compared."""
    expected: dict[str, Any] = {"reason_code": given["reason"], "schema": given["schema"]}
    if item is not None:
        minor = item["amount_minor"]
        expected |= {
            "amount": f"{minor // 100}.{minor % 100:02d}",
            "currency": item["currency"].upper(),
            "payee": item["payee"],
            "reference": f"{given['batch']}/{item['item']}",
        }
    found = [("MISSING_CONSTRAINT", name) for name in FIELDS if name not in sent]
    found += [("WRONG_VALUE", name) for name, value in expected.items() if name in sent and sent[name] != value]
    return found + [("WRONG_VALUE", name) for name in sent if name not in FIELDS]


def _sealed(headers: Mapping[str, str], body: bytes, signed: str, key: str) -> list[tuple[str, str]]:
    """(label, what it concerns) of digest and signature. A signature is verified over the digest that came with it."""
    digest, signature = headers.get("x-content-sha256", ""), headers.get("x-signature", "")
    found = [("MISSING_CONSTRAINT", name) for name in ("x-content-sha256", "x-signature") if not headers.get(name)]
    if digest and digest != sha256(body).hexdigest():
        found.append(("WRONG_HASH", "x-content-sha256"))
    expected = hmac.new(key.encode(), f"{signed}\n{digest}".encode(), "sha256").hexdigest()
    if digest and signature and signature != expected:
        found.append(("SIGNATURE_MISMATCH", "x-signature"))
    return found


def _object(body: bytes) -> dict[str, Any]:
    try:
        sent = json.loads(body)
    except ValueError:
        return {}
    return sent if isinstance(sent, dict) else {}
