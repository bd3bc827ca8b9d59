"""Tamper-evident ledgers: each link is the SHA-256 (FIPS 180-4) of the one before it and of an entry; ledgers close in time."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

CALL_S = 1.0
ENTRY_S = 4
"""What one entry takes: two calls, each with a step of the agent."""


def parameters(rng: Random) -> dict[str, Any]:
    """Two ledgers; the one that closes sooner, too soon to be begun second, is listed second."""
    patient, urgent = ([_entry(rng, n) for n in range(1, rng.randint(3, 4) + 1)] for _ in range(2))
    names = rng.sample(["receivables", "payroll", "petty-cash", "fixed-assets", "intercompany"], 2)
    closes = ENTRY_S * len(urgent) + rng.randint(6, 9)
    return {
        "ledgers": [
            {"name": names[0], "entries": patient, "genesis": rng.randbytes(32).hex(), "closes_in": rng.randint(90, 120)},
            {"name": names[1], "entries": urgent, "genesis": rng.randbytes(32).hex(), "closes_in": closes},
        ]
    }


def _entry(rng: Random, n: int) -> str:
    memo = rng.choice(["Müller & Söhne -- net_30", "café “Zoë”  (2 cups)", "rebate:  50 % / Q3 ", "P.O. #77_b; see  note-4"])
    day, account = f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)}", rng.randint(1000, 9999)
    return f"{day}|{n:04d}|ACC-{account}|{rng.randint(10, 999)}.00|{memo}"


def chained(previous: str, entry: str) -> str:
    return sha256((previous + entry).encode()).hexdigest()


def routes(desk: Desk) -> list[Route]:
    ledgers = {ledger["name"]: ledger for ledger in desk.given["ledgers"]}
    heads: dict[str, list[str]] = {name: [ledger["genesis"]] for name, ledger in ledgers.items()}

    async def listing(request: Request) -> Response:
        for name, ledger in ledgers.items():
            if name not in desk.issued:
                desk.issue(name, ledger["genesis"], ledger["closes_in"])
        listed = [
            {"name": name, "genesis": ledger["genesis"], "entries": len(ledger["entries"]), "closes_in": _left(desk, name)}
            for name, ledger in ledgers.items()
        ]
        return desk.answer(request, "LISTED", {"ledgers": listed}, holds={name: name for name in ledgers})

    def closed(request: Request, name: str) -> Response | None:
        """The refusal of a request about a ledger that is unknown, or closed by now."""
        if name not in desk.issued:
            return desk.answer(request, "NO_ROUTE", {"error": "no such ledger is open"}, status=404)
        label, detail = desk.check(name, ledgers[name]["genesis"])
        if not label:
            return None
        return desk.refuse(request, label, {"error": "ledger is closed"}, status=410, resource=name, **detail)

    async def entry(request: Request) -> Response:
        name, n = request.path_params["name"], request.path_params["n"]
        if (refusal := closed(request, name)) is not None:
            return refusal
        if not 1 <= n <= min(len(heads[name]), len(ledgers[name]["entries"])):
            return desk.answer(request, "AHEAD", {"error": "the entry before is not linked"}, status=409, resource=name)
        await desk.work(CALL_S)
        return desk.answer(request, "ENTRY", {"n": n, "entry": ledgers[name]["entries"][n - 1]}, resource=name)

    async def link(request: Request) -> Response:
        name, said = request.path_params["name"], await fields(request)
        if (refusal := closed(request, name)) is not None:
            return refusal
        linked = len(heads[name]) - 1
        if not {"n", "digest"} <= set(said):
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "n and digest are required"}, status=422, resource=name)
        if said["n"] != linked + 1 or linked == len(ledgers[name]["entries"]):
            return desk.refuse(request, "WRONG_VALUE", {"error": f"{linked} entries are linked"}, status=409, resource=name)
        right = chained(heads[name][-1], ledgers[name]["entries"][linked])
        if said["digest"] != right:
            error = {"error": f"link {linked + 1} does not follow"}
            return desk.refuse(request, "WRONG_HASH", error, status=422, resource=name, expected=right)
        await desk.work(CALL_S)
        heads[name].append(right)
        return desk.answer(request, "LINKED", {"linked": linked + 1}, status=201, resource=name)

    async def seal(request: Request) -> Response:
        name, said = request.path_params["name"], await fields(request)
        if (refusal := closed(request, name)) is not None:
            return refusal
        if "head" not in said or len(heads[name]) <= len(ledgers[name]["entries"]):
            error = {"error": "head is required" if "head" not in said else "entries are not linked"}
            return desk.refuse(request, "MISSING_CONSTRAINT", error, status=422, resource=name)
        if said["head"] != heads[name][-1]:
            return desk.refuse(request, "WRONG_HASH", {"error": "this is not the head"}, status=422, resource=name)
        await desk.work(CALL_S)
        return desk.answer(request, "SEALED", {"sealed": name}, status=201, resource=name)

    return [
        Route("/ledgers", listing),
        Route("/ledgers/{name}/entries/{n:int}", entry),
        Route("/ledgers/{name}/links", link, methods=["POST"]),
        Route("/ledgers/{name}/seal", seal, methods=["POST"]),
    ]


def _left(desk: Desk, name: str) -> float:
    """Seconds until a ledger closes."""
    issued = desk.issued[name][-1]
    return max(0.0, round(issued.at + (issued.ttl_s or 0.0) - desk.now(), 3))
